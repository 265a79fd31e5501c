//! `told_before_taken`: a hold is taken away only after its holder has been told that it is wanted back; and who is said to
//! have been told has been.

use super::{Count, Invariant, Observation, Verdict};
use crate::history::Ask;
use crate::world::World;
use elderlock::protocol::{HolderInfo, LostReason, Outcome, Token};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ToldBeforeTaken {
    /// With the tokens that they had then: a share that becomes the lock gets another.
    told: BTreeMap<Ask, BTreeSet<Token>>,
    premises: Count,
}

impl ToldBeforeTaken {
    /// Whether the one that has this token knows that it is wanted back.
    fn knows(&self, world: &World, holder: &HolderInfo) -> bool {
        self.told.iter().any(|(ask, tokens)| {
            let call = world.call(*ask);
            let has = || tokens.contains(&holder.token) || call.tokens().any(|(_, token)| token == holder.token);
            call.process == holder.process && has()
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

    fn hear(&mut self, world: &World, fact: &Observation<'_>) -> Verdict {
        match fact {
            Observation::Wanted { ask } => {
                let tokens = world.call(*ask).tokens().map(|(_, token)| token);
                self.told.entry(*ask).or_default().extend(tokens);
            }
            Observation::Loses { ask, reason: LostReason::Revoked } => {
                self.premises += 1;
                if !self.told.contains_key(ask) {
                    return Err(format!("taken away before its holder was told: {:?}", world.call(*ask)));
                }
            }
            Observation::Answers { outcome: Outcome::RevocationRequested { told, .. }, .. } => {
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
