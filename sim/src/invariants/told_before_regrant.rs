//! `told_before_regrant`: when a lock is granted, its former holder has been told that its hold is
//! over, if that process was running. Inside the clock bound.

use super::{Count, Invariant, Verdict};
use crate::history::Key;
use crate::world::{Observation, World};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ToldBeforeRegrant {
    /// Locks whose last holder lost them.
    lost: BTreeSet<Key>,
    premises: Count,
}

impl Invariant for ToldBeforeRegrant {
    fn name(&self) -> &'static str {
        "told_before_regrant"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        if let Observation::Loses { ask, .. } = observation {
            self.lost.extend(world.call(*ask).keys.iter().cloned());
        }
        let Observation::Answered { ask } = observation else { return Ok(()) };
        if !world.bounded || !world.is_granted(*ask) {
            return Ok(());
        }
        let call = world.call(*ask);
        for key in &call.keys {
            self.premises += u64::from(self.lost.remove(key));
            for other in world.history().claims_of(key).filter(|other| other != ask) {
                let theirs = world.call(other);
                if call.mode.suffers(theirs.mode) {
                    continue;
                }
                let busy_now = world.sites[theirs.member].due.is_some_and(|due| due <= world.now);
                if world.is_up(theirs.member) && !busy_now {
                    return Err(format!(
                        "m{} gets {key:?} and m{} was not told",
                        call.member, theirs.member
                    ));
                }
            }
        }
        Ok(())
    }
}
