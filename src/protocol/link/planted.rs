//! Planted breaks of links, see `mutant.rs`.

use super::LinkSet;
use crate::protocol::id::ProcessId;

impl LinkSet {
    /// Messages under way are lost with their connection.
    pub(crate) fn lose_kept(&mut self, to: ProcessId) {
        if let Some(link) = self.links.get_mut(&to) {
            link.sent -= link.kept.len() as u64;
            link.kept.clear();
            link.resend_at = None;
            link.repeats = None;
        }
    }

    /// Whether a message was received before.
    pub(crate) fn has_received(&self, from: ProcessId, seq: u64) -> bool {
        self.links.get(&from).is_some_and(|link| seq <= link.received)
    }
}
