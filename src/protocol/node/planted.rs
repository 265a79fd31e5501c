//! Planted breaks of a node, see `mutant.rs`.

use super::Node;
use crate::protocol::mutant::ProtocolMutant;
use crate::protocol::time::Time;

impl Node {
    /// Until when steps may be short. Breaks are planted in full steps.
    pub(super) fn plant_quiet(&self, quiet_until: Time, is_quiet: bool) -> Time {
        match self.cluster.config().mutant {
            None => quiet_until,
            Some(ProtocolMutant::AtOnceThoughLate) if is_quiet => Time::MAX,
            Some(_) => Time::ZERO,
        }
    }
}
