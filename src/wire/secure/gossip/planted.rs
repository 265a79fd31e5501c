//! Planted breaks of sealed gossip, see `mutant.rs`.

use super::*;

impl SealedGossip {
    /// Notes the number of a datagram that has not been opened yet.
    pub(super) fn move_window(&mut self, from: ProcessId, number: u64) {
        self.senders.entry(from).or_insert_with(Sender::new).window.note(number);
    }
}
