//! Planted breaks of an elder, see `mutant.rs`.

use super::{Change, Elder, View};
use crate::protocol::mutant::ProtocolMutant;
use crate::protocol::time::Time;

impl Elder {
    pub(crate) fn with_mutant(mut self, mutant: Option<ProtocolMutant>) -> Elder {
        self.mutant = mutant;
        // The leases that earlier elders renewed count as over.
        if planted!(mutant, ForgetEarlierLeases) {
            self.lease_ends = self.members.keys().map(|process| (Time::ZERO, *process)).collect();
        }
        self
    }

    /// Returns whether a lease that is over within a member lease counts as over.
    pub(super) fn plant_removal(&self, at: Time, now: Time, view: &View) -> bool {
        planted!(self.mutant, RemoveEarly) && at <= now + view.timing.member_lease
    }
}

/// Gives joining processes a vote at once.
pub(super) fn promote_joiners(change: &mut Change) {
    change.promote.extend(change.join.iter().map(|info| info.process));
}
