//! `cost_is_bounded`: no storm. The members of a World together never send more packets in a
//! virtual second than a generous limit that does not depend on their load.

use super::{Count, Invariant, Verdict};
use crate::network::SECOND;
use crate::world::{Observation, World};
use std::hash::{Hash, Hasher};

/// Ten times the packets a second that at most a dozen members need for a few hundred requests a
/// second.
const LIMIT: u64 = 60_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct CostIsBounded {
    second: u64,
    sent: u64,
    premises: Count,
}

impl Hash for CostIsBounded {
    /// The number of packets so far would separate two ways to one state, and no short way comes
    /// near the limit.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Invariant for CostIsBounded {
    fn name(&self) -> &'static str {
        "cost_is_bounded"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        if !matches!(observation, Observation::Sent { .. }) {
            return Ok(());
        }
        if self.second != world.now / SECOND {
            self.second = world.now / SECOND;
            self.sent = 0;
            self.premises += 1;
        }
        self.sent += 1;
        if self.sent > LIMIT {
            return Err(format!("more than {LIMIT} packets in one second"));
        }
        Ok(())
    }
}
