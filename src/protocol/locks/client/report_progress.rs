//! `ReportProgress`: a report of which a part was sent.

use crate::protocol::id::{Epoch, ProcessId, RequestId};

/// A report that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ReportProgress {
    /// The grantor that gets the report, and its epoch.
    pub(super) to: (ProcessId, Epoch),
    /// The next request; `None`: nothing is reported yet.
    pub(super) next: Option<RequestId>,
    /// The last request of the report. Later ones are sent to the grantor as usual.
    pub(super) last: Option<RequestId>,
    /// Whether the grantor acts already, so that no request waits for the report.
    pub(super) acts: bool,
}

impl ReportProgress {
    /// Returns whether the report tells of the request: it is not sent otherwise.
    pub(super) fn tells(&self, request: RequestId) -> bool {
        Some(request) <= self.last
    }
}
