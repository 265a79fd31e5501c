//! `RevalidationAnswers`: the requests that a member has reported since the transfer of a table.

use super::phase::NUMBER_BYTES;
use crate::protocol::id::RequestId;
use std::collections::BTreeSet;

/// A member's answers to the revalidation, so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct RevalidationAnswers {
    /// The requests that the member has reported so far, or asked for since.
    pub(super) reported: BTreeSet<RequestId>,
    /// The end of the checked requests: those before it that the member left out have ended.
    pub(super) ended: Option<RequestId>,
}

impl RevalidationAnswers {
    /// Notes that the member reported a request, or asked for it, if it has less than `most` bytes
    /// of such notes here.
    pub(super) fn note_reported(&mut self, request: RequestId, most: usize) {
        if Some(request) >= self.ended && self.reported.len() < most / NUMBER_BYTES {
            self.reported.insert(request);
        }
    }

    /// Notes that the requests before `highest` are checked.
    pub(super) fn note_ended(&mut self, highest: Option<RequestId>) {
        self.ended = highest.max(self.ended);
        if let Some(ended) = &self.ended {
            self.reported = self.reported.split_off(ended);
        }
    }

    /// Returns whether the answers tell which requests have ended. They do not if the member may
    /// have reported more than could be noted. Its table entries then stay until it releases them.
    pub(super) fn tells_ends(&self, most: usize) -> bool {
        self.reported.len() < most / NUMBER_BYTES
    }

    /// The number of noted requests.
    pub(super) fn len(&self) -> usize {
        self.reported.len()
    }
}
