//! `KeptHolds`: the holds that members keep after their release, and the tries that wait for them.

use super::received_request::ReceivedRequest;
use crate::protocol::id::{ProcessId, RequestId};
use crate::protocol::locks::arrivals::Arrivals;
use std::collections::{BTreeMap, BTreeSet};

/// The holds that were granted to be kept in this epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct KeptHolds {
    /// Each hold, and whether it was recalled.
    pub(super) holds: BTreeMap<(ProcessId, RequestId), bool>,
    /// Whether members may keep holds of the table that an earlier epoch left, as far as they have
    /// not reported. The table does not say which.
    pub(super) are_transferred: bool,
    /// The tries that wait for answers to recalls.
    pub(super) tries: Arrivals<ReceivedRequest>,
}

impl KeptHolds {
    /// Forgets the holds and tries of processes that have left.
    pub(super) fn retain(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.holds.retain(|(process, _), _| is_there(*process));
        let gone: BTreeSet<_> =
            self.tries.iter().map(|asked| asked.from).filter(|from| !is_there(*from)).collect();
        gone.into_iter().for_each(|process| self.tries.remove_all(process));
    }

    pub(super) fn is_in_use(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Removes a try that is over.
    pub(super) fn drop_try(&mut self, key: (ProcessId, RequestId)) {
        self.tries.remove(key);
    }
}
