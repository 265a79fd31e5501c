//! `one_elder_per_view`: only the oldest living member of a view calls itself its elder, and no
//! other member does later.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, Lineage, ProcessId, ViewNumber};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct OneElderPerView {
    elders: BTreeMap<(Lineage, ViewNumber), ProcessId>,
    /// Lineage and elder of each view that a process has installed.
    installed: BTreeMap<(ProcessId, ViewNumber), (Lineage, ProcessId)>,
    premises: Count,
}

impl Invariant for OneElderPerView {
    fn name(&self) -> &'static str {
        "one_elder_per_view"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, _world: &World, observation: &Observation<'_>) -> Verdict {
        let Observation::Event { site, process, event } = observation else { return Ok(()) };
        if let Event::ViewInstalled(view) = event {
            self.installed.insert((*process, view.number), (view.lineage, view.elder().process));
        }
        let Event::BecameElder(number) = event else { return Ok(()) };
        self.premises += 1;
        let Some((lineage, head)) = self.installed.get(&(*process, *number)) else {
            return Err(format!(
                "m{site} calls itself elder of view {number}, which it has not installed"
            ));
        };
        if head != process {
            return Err(format!("m{site} calls itself elder of a view with the elder {head}"));
        }
        let elder = *self.elders.entry((*lineage, *number)).or_insert(*process);
        if elder != *process {
            return Err(format!("view {number} has the elders {elder} and {process}"));
        }
        Ok(())
    }
}
