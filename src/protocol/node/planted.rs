//! Deliberate breaks of a node, see `mutant.rs`.

use super::Node;
use crate::protocol::mutant::ProtocolMutant;
use crate::protocol::time::Time;

impl Node {
    /// Until when steps may be short. Breaks are planted in full steps.
    pub(super) fn plant_calm(&self, calm: Time, is_calm: bool) -> Time {
        match self.cluster.config().mutant {
            None => calm,
            Some(ProtocolMutant::AtOnceThoughLate) if is_calm => Time::MAX,
            Some(_) => Time::ZERO,
        }
    }
}
