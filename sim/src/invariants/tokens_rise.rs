//! `tokens_rise`: the grants of a lock, in the order in which holders begin, carry rising tokens. Inside the clock
//! bound; outside it two holds may overlap, and then the store refuses the lower one.

use super::{Count, Fact, Invariant, Verdict};
use crate::history::{Key, nth};
use crate::world::World;
use elderlock::protocol::{Outcome, Token};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct TokensRise {
    last: BTreeMap<Key, Token>,
    premises: Count,
}

impl Invariant for TokensRise {
    fn name(&self) -> &'static str {
        "tokens_rise"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        let Fact::Answers { ask, outcome: Outcome::Granted { token, .. } } = fact else { return Ok(()) };
        if !world.bounded {
            return Ok(());
        }
        for (index, key) in world.call(*ask).keys.iter().enumerate() {
            let token = nth(*token, index);
            if let Some(last) = self.last.insert(key.clone(), token) {
                self.premises += 1;
                if last >= token {
                    return Err(format!("{ask:?} gets {token:?} for {key:?} after {last:?}"));
                }
            }
        }
        Ok(())
    }
}
