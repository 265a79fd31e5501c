//! `told_before_taken`: a hold is taken away only after its holder has been told that it is wanted back; and who is said to
//! have been told has been.

use super::{Count, Fact, Invariant, Verdict};
use crate::history::Ask;
use crate::world::World;
use elderlock::protocol::{HolderInfo, LostReason, Outcome};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ToldBeforeTaken {
    told: BTreeSet<Ask>,
    premises: Count,
}

impl ToldBeforeTaken {
    /// Whether the one that has this token knows that it is wanted back.
    fn knows(&self, world: &World, holder: &HolderInfo) -> bool {
        self.told.iter().any(|ask| {
            let call = world.call(*ask);
            call.process == holder.process && call.tokens().any(|(_, token)| token == holder.token)
        })
    }
}

impl Invariant for ToldBeforeTaken {
    fn name(&self) -> &'static str {
        "told_before_taken"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        match fact {
            Fact::Wanted { ask } => {
                self.told.insert(*ask);
            }
            Fact::Loses { ask, reason: LostReason::Revoked } => {
                self.premises += 1;
                if !self.told.contains(ask) {
                    return Err(format!("taken away before its holder was told: {:?}", world.call(*ask)));
                }
            }
            Fact::Answers { outcome: Outcome::AskedBack { told, .. }, .. } => {
                self.premises += told.len() as u64;
                if let Some(holder) = told.iter().find(|holder| !self.knows(world, holder)) {
                    return Err(format!("said to have been told, and was not: {holder:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
