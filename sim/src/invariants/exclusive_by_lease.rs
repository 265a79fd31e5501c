//! `exclusive_by_lease`: no two guards of one lock give a token at the same instant. Stopped
//! processes count: they may wake now, and their guards look at their clocks first. Inside the
//! clock bound.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, HoldMode, Key};
use crate::world::{Observation, World};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ExclusiveByLease {
    premises: Count,
    /// The lock that two holders believe in.
    crowded: Option<Key>,
}

impl Invariant for ExclusiveByLease {
    fn name(&self) -> &'static str {
        "exclusive_by_lease"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.crowded.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Answered { ask } if world.is_granted(*ask) => self.premises += 1,
            Observation::Stepped { .. } => {}
            _ => return Ok(()),
        }
        if !world.bounded {
            return Ok(());
        }
        // A belief begins only in a step, so a check after each step misses nothing.
        for (key, claims) in world.history().crowded() {
            // Another invariant checks shares and permits.
            let alone =
                claims.iter().copied().filter(|ask| world.call(*ask).mode == HoldMode::Alone);
            let believing: Vec<Ask> = alone.filter(|ask| world.fence(*ask).is_some()).collect();
            if believing.len() > 1 {
                let holder_text = |ask: &Ask| {
                    format!("m{} with {:?}", world.call(*ask).member, world.token(*ask))
                };
                self.crowded = Some(key.clone());
                let holders: Vec<String> = believing.iter().map(holder_text).collect();
                return Err(format!("{key:?} is held by {}", holders.join(" and by ")));
            }
        }
        Ok(())
    }
}
