//! `one_grantor_per_epoch`: an epoch belongs to one process and one service, and only that process
//! grants in it.

use super::{Count, Invariant, Verdict};
use crate::kind::message;
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Event, LineageId, Message, Packet, ProcessId, ServiceName,
};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct OneGrantorPerEpoch {
    epochs: BTreeMap<(Epoch, LineageId), (ServiceName, ProcessId)>,
    premises: Count,
}

impl OneGrantorPerEpoch {
    fn claim(
        &mut self,
        world: &World,
        epoch: Epoch,
        service: &ServiceName,
        process: ProcessId,
    ) -> Verdict {
        self.premises += 1;
        let (of, by) = self
            .epochs
            .entry((epoch, world.dealt_apart(process)))
            .or_insert_with(|| (service.clone(), process));
        if of != service || *by != process {
            return Err(format!(
                "epoch {epoch:?} is {by}'s for {of} and {process}'s for {service}"
            ));
        }
        Ok(())
    }
}

impl Invariant for OneGrantorPerEpoch {
    fn name(&self) -> &'static str {
        "one_grantor_per_epoch"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Event {
                process, event: Event::BecameGrantor { service, epoch }, ..
            } => self.claim(world, *epoch, service, *process),
            Observation::Sent { process, packet, .. } => {
                let speaker = match packet {
                    Packet::Relay { from, .. } => from.process,
                    _ => *process,
                };
                match message(packet) {
                    Some(
                        Message::Client(ClientMessage::Grant { service, epoch, .. })
                        | Message::Client(ClientMessage::Queued { service, epoch, .. }),
                    ) => self.claim(world, *epoch, service, speaker),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
