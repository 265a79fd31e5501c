//! `suspension_is_exclusive`: while a holder believes in the suspension of a service, only its
//! owner believes in a lock of the service. That owner does not wait for a second suspension.
//! Inside the clock bound.

use super::{Count, Invariant, Verdict};
use crate::history::{Call, Key};
use crate::world::{Observation, World};
use elderlock::protocol::OwnerId;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct SuspensionIsExclusive {
    premises: Count,
    /// The suspension beside which another owner holds.
    shared: Option<Key>,
}

/// Returns whether a hold may stand beside a suspension: it is of the same owner, or the suspension
/// is of the whole member.
fn may_stand_beside(suspension: &Call, hold: &Call) -> bool {
    suspension.process == hold.process
        && (suspension.owner == hold.owner || suspension.owner == OwnerId::default())
}

impl Invariant for SuspensionIsExclusive {
    fn name(&self) -> &'static str {
        "suspension_is_exclusive"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.shared.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Answered { ask }
                if world.is_granted(*ask) && world.call(*ask).suspends() =>
            {
                self.premises += 1
            }
            Observation::Stepped { .. } => {}
            _ => return Ok(()),
        }
        if !world.bounded {
            return Ok(());
        }
        for suspension in world.history().suspensions().filter(|ask| world.fence(*ask).is_some()) {
            let suspends = world.call(suspension);
            let of_it =
                |hold: &Call| hold.service == suspends.service && !may_stand_beside(suspends, hold);
            let is_second = |call: &Call| {
                let of = |call: &Call| (call.process, call.owner);
                call.suspends() && call.service == suspends.service && of(call) == of(suspends)
            };
            if world.history().open().any(|ask| is_second(world.call(ask))) {
                let (member, service) = (suspends.member, &suspends.service);
                return Err(format!(
                    "m{member} has suspended {service} and waits for itself to end that"
                ));
            }
            let beside = |ask| of_it(world.call(ask)) && world.fence(ask).is_some();
            if let Some(other) =
                world.history().claims().find(|ask| *ask != suspension && beside(*ask))
            {
                self.shared = suspends.keys.first().cloned();
                let other = world.call(other);
                return Err(format!(
                    "m{} has suspended {} and m{} holds {}",
                    suspends.member,
                    suspends.service,
                    other.member,
                    other.lock()
                ));
            }
        }
        Ok(())
    }
}
