//! `RevalidationAnswers`: the requests that a member has told of since the transfer of a table.

use super::phase::NUMBER_BYTES;
use crate::protocol::id::RequestId;
use std::collections::BTreeSet;

/// A member's answers to the revalidation, so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct RevalidationAnswers {
    /// The requests that it reported so far, or asked for since.
    pub(super) reported: BTreeSet<RequestId>,
    /// The requests before this one that the member left out have ended.
    pub(super) ended: Option<RequestId>,
}

impl RevalidationAnswers {
    /// Keeps that the member reported a request, or asked for it, if it has less than `most` bytes
    /// of such here.
    pub(super) fn note_reported(&mut self, request: RequestId, most: usize) {
        if self.reported.len() < most / NUMBER_BYTES {
            self.reported.insert(request);
        }
    }

    /// Returns whether the report tells which requests are over. It does not if the member may have
    /// reported more than could be kept: its table entries then stay until it releases them.
    pub(super) fn tells_ends(&self, most: usize) -> bool {
        self.reported.len() < most / NUMBER_BYTES
    }

    /// How many requests are kept.
    pub(super) fn len(&self) -> usize {
        self.reported.len()
    }
}
