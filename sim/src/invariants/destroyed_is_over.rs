//! `destroyed_is_over`: when a member hears that a service is destroyed there, the grantor's table
//! has nothing left of the member's earlier requests. The member itself grants the service no
//! longer. A former grantor that does not know yet that another was named does not count: its
//! entries end with its epoch. (That no grantor could be reached is another answer.) Inside the
//! clock bound: a grantor whose clock is too slow goes on while a view is without it. A member that
//! has asked for something of the service since may have been named again.
//!
//! Every member destroys every service after the healing, and hears that it is destroyed.

use super::{Count, Invariant, Latest, Verdict};
use crate::liveness::Demand;
use crate::world::{Observation, World};
use elderlock::protocol::{
    Epoch, Event, GrantorState, MemberMessage, Message, Outcome, Packet, ServiceName,
};
use std::collections::BTreeSet;

/// The name of the invariant.
pub const NAME: &str = "destroyed_is_over";

/// Demands that every service can be destroyed at every member, and that the destruction is
/// confirmed.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let (locks, objects) = (world.history().keys(), world.history().objects());
    let services: BTreeSet<ServiceName> =
        locks.into_iter().chain(objects).map(|(service, _)| service).collect();
    let sites: Vec<usize> = world.demanded().filter(|site| world.is_up(*site)).collect();
    for service in &services {
        for &site in &sites {
            let ask = world.destroy(site, service.as_str());
            world.run_until(|world| world.is_answered(ask), demand.answer);
            if world.outcome(ask) != Some(&Outcome::Destroyed) {
                let said = world.outcome(ask);
                world.fail(
                    NAME,
                    format!("m{site} destroys {service} when all are at rest, and hears {said:?}"),
                );
                return false;
            }
            world.count_premise(NAME);
        }
    }
    true
}

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct DestroyedIsOver {
    latest: Latest,
    premises: Count,
}

impl Invariant for DestroyedIsOver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Event { event: Event::BecameGrantor { service, epoch }, .. } => {
                self.latest.begins(service, *epoch);
            }
            Observation::Sent {
                packet:
                    Packet::Linked {
                        message: Message::Member(MemberMessage::NameGrantor { service, range, .. }),
                        ..
                    },
                ..
            } => self.latest.begins(service, Epoch(range.first)),
            Observation::Answers { ask, outcome: Outcome::Destroyed } => {
                let call = world.call(*ask);
                if !world.bounded {
                    return Ok(());
                }
                self.premises += 1;
                let own = world.sites[call.member]
                    .node
                    .as_ref()
                    .filter(|node| node.process() == call.process);
                let grants = own.is_some_and(|node| {
                    node.grantors().any(|(service, ..)| *service == call.service)
                });
                if grants && !world.history().was_used_since(call) {
                    return Err(format!(
                        "m{} still grants {}, which is destroyed there",
                        call.member, call.service
                    ));
                }
                for site in world.sites().filter(|site| world.is_ready(*site)) {
                    let Some(node) = world.sites[site].node.as_ref() else { continue };
                    let is_latest =
                        |(service, epoch, state): (&ServiceName, Epoch, GrantorState)| {
                            *service == call.service
                                && state == GrantorState::Acting
                                && self.latest.of(service) == Some(epoch)
                        };
                    if !node.grantors().any(is_latest) {
                        continue;
                    }
                    let is_left = |(process, request): (_, _)| {
                        process == call.process && request < call.request
                    };
                    let mut left =
                        node.table(&call.service).map(|(process, request, _)| (process, request));
                    if let Some((_, request)) = left.find(|left| is_left(*left)) {
                        return Err(format!(
                            "m{site} still has {request:?} of m{}, which destroyed it",
                            call.member
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
