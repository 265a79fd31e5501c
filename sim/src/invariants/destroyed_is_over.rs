//! `destroyed_is_over`: when a member hears that a service is destroyed there, nothing that it had asked of the service
//! before is in the table of the grantor any more, and it grants the service no longer. (That no grantor could be heard is another
//! answer.) Inside the clock bound: a grantor whose clock is too slow goes on while a view is without it.

use super::{Count, Fact, Invariant, Latest, Verdict};
use crate::world::World;
use elderlock::protocol::{Epoch, Event, GrantorState, Outcome, ServiceName};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct DestroyedIsOver {
    latest: Latest,
    premises: Count,
}

impl Invariant for DestroyedIsOver {
    fn name(&self) -> &'static str {
        "destroyed_is_over"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        match fact {
            Fact::Event { event: Event::BecameGrantor { service, epoch }, .. } => {
                self.latest.begins(service, *epoch);
            }
            Fact::Answers { ask, outcome: Outcome::Destroyed } => {
                let call = world.call(*ask);
                if !world.bounded {
                    return Ok(());
                }
                self.premises += 1;
                for place in world.places().filter(|place| world.is_ready(*place)) {
                    let Some(node) = world.peers[place].node.as_ref() else { continue };
                    let is_latest = |(service, epoch, state): (&ServiceName, Epoch, GrantorState)| {
                        *service == call.service
                            && state == GrantorState::Acting
                            && self.latest.of(service) == Some(epoch)
                    };
                    if !node.grantors().any(is_latest) {
                        continue;
                    }
                    let is_left = |(process, request): (_, _)| process == call.process && request < call.request;
                    let mut left = node.table(&call.service).map(|(process, request, _)| (process, request));
                    if let Some((_, request)) = left.find(|left| is_left(*left)) {
                        return Err(format!("m{place} still has {request:?} of m{}, which destroyed it", call.member));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
