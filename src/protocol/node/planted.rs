//! Planted breaks of a node, see `mutant.rs`.

use super::{Node, StepParts};
use crate::protocol::id::ProcessId;
use crate::protocol::message::Message;
use crate::protocol::mutant::ProtocolMutant;
use crate::protocol::step_context::Standing;
use crate::protocol::time::Time;

impl Node {
    /// Returns the time until which steps may be short. Planted breaks act only in full steps.
    pub(super) fn plant_quiet(&self, quiet_until: Time, is_quiet: bool) -> Time {
        match self.cluster.config().mutant {
            None => quiet_until,
            Some(ProtocolMutant::AtOnceThoughLate) if is_quiet => Time::MAX,
            Some(_) => Time::ZERO,
        }
    }
}

impl StepParts<'_> {
    /// Handles a message once more that was received before.
    pub(super) fn plant_repeat(
        &mut self,
        now: Time,
        (from, seq): (ProcessId, u64),
        message: &Message,
        standing: &Standing,
    ) {
        if planted!(standing.mutant, HearTwice) && self.links.has_received(from, seq) {
            self.on_message(now, from, message.clone(), standing);
        }
    }
}
