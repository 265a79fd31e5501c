//! `epochs_rise`: whoever becomes grantor of a service while its lease runs has a higher epoch than all before it.

use super::{Count, Fact, Invariant, Verdict};
use crate::world::World;
use elderlock::protocol::{Epoch, Event, ServiceName};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct EpochsRise {
    highest: BTreeMap<ServiceName, Epoch>,
    premises: Count,
}

impl Invariant for EpochsRise {
    fn name(&self) -> &'static str {
        "epochs_rise"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        let Fact::Event { place, event: Event::BecameGrantor { service, epoch }, .. } = fact else { return Ok(()) };
        if !world.bounded || !world.is_ready(*place) {
            return Ok(()); // named long ago, and told too late to matter
        }
        if let Some(highest) = self.highest.get(service) {
            self.premises += 1;
            if epoch < highest {
                return Err(format!("m{place} becomes grantor of {service} in {epoch}, after {highest}"));
            }
        }
        self.highest.insert(service.clone(), *epoch);
        Ok(())
    }
}
