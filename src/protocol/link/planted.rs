//! Planted breaks of links, see `mutant.rs`.

use super::LinkSet;
use super::detour::Detour;
use crate::protocol::id::ProcessId;
use crate::protocol::limits::LinkLimits;
use crate::protocol::message::Packet;
use crate::protocol::mutant::ProtocolMutant;
use crate::protocol::time::Time;
use crate::protocol::timing::Timing;

/// A detour with a break that makes it use one relay after the other.
pub(super) struct PlantedDetour<'a>(pub(super) &'a mut Detour, pub(super) Option<ProtocolMutant>);

impl PlantedDetour<'_> {
    pub(super) fn choose(
        &mut self,
        now: Time,
        packet: &Packet,
        relays: &[ProcessId],
        most: usize,
        timing: &Timing,
    ) -> Vec<ProcessId> {
        if !planted!(self.1, DetoursInTurn) {
            return self.0.choose(now, packet, relays, most, timing);
        }
        let next = relays.get(self.0.next_relay as usize % relays.len().max(1)).copied();
        self.0.next_relay = self.0.next_relay.wrapping_add(1);
        next.into_iter().collect()
    }
}

impl std::ops::Deref for PlantedDetour<'_> {
    type Target = Detour;

    fn deref(&self) -> &Detour {
        self.0
    }
}

/// The number of messages that are sent again at once.
pub(super) fn window(window: usize, mutant: Option<ProtocolMutant>, limits: &LinkLimits) -> usize {
    if planted!(mutant, RepeatAllAtOnce) { limits.burst as usize } else { window }
}

impl LinkSet {
    /// Loses messages that are under way with their connection.
    pub(crate) fn lose_kept(&mut self, to: ProcessId) {
        if let Some(link) = self.links.get_mut(&to) {
            link.sent -= link.kept.len() as u64;
            link.kept.clear();
            link.resend_at = None;
            link.repeats = None;
        }
    }

    /// Returns whether a message was received before.
    pub(crate) fn has_received(&self, from: ProcessId, seq: u64) -> bool {
        self.links.get(&from).is_some_and(|link| seq <= link.received)
    }
}
