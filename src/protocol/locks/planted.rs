//! Planted breaks of the lock side of a member, see `mutant.rs`.

use super::Locks;
use crate::protocol::id::ProcessId;

impl Locks {
    /// All requests of a process are released.
    pub(in crate::protocol) fn free_all_of(&mut self, process: ProcessId) {
        self.grantors.values_mut().for_each(|grantor| grantor.free_all_of(process));
    }

    /// Deals the tokens of the next view.
    pub(in crate::protocol) fn deal_in_next(&mut self) {
        if let Some(registry) = &mut self.registry {
            registry.dealer.deal_in_next();
        }
    }
}
