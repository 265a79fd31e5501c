//! `ReportProgress`: a report of which a part was sent.

use crate::protocol::id::{Epoch, ProcessId, RequestId};
use crate::protocol::locks::name_part::ALL_PARTS;
use std::collections::{BTreeMap, VecDeque};

/// A report that is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ReportProgress {
    /// The grantor that gets the report, and its epoch.
    pub(super) to: (ProcessId, Epoch),
    /// The last request of the report. Later ones are sent to the grantor as usual.
    pub(super) last: Option<RequestId>,
    pub(super) stage: ReportStage,
    /// The holds that were sorted and not reported yet, by the parts of their names. No part is
    /// empty.
    pub(super) sorted: BTreeMap<u16, VecDeque<RequestId>>,
    /// The number of complete parts.
    pub(super) complete: u16,
    /// The number of complete parts of which the grantor has heard.
    pub(super) told: u16,
    /// Whether the grantor opens the names by parts. It then says that it has taken each chunk.
    pub(super) by_part: bool,
    /// Whether the grantor acts already, so that no request waits for the report.
    pub(super) acts: bool,
    /// Whether the grantor has refused a request since the report began.
    pub(super) is_refused: bool,
    /// The number of chunks that the grantor has not taken yet, if it says so.
    pub(super) ahead: u32,
}

/// The most chunks of a report that are on their way at a time.
const MAX_AHEAD: u32 = 4;

/// The place of a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ReportStage {
    /// Nothing is reported.
    Begins,
    /// All requests are reported in their order, from this one on.
    InOrder(RequestId),
    /// The waits are reported, from this one backwards.
    Waits(RequestId),
    /// The holds are sorted, from this request on.
    Sorts(RequestId),
    /// The sorted holds are reported.
    Holds,
    /// Everything is reported.
    Over,
}

impl ReportProgress {
    pub(super) fn new(
        to: (ProcessId, Epoch),
        last: Option<RequestId>,
        by_part: bool,
        acts: bool,
    ) -> ReportProgress {
        let (stage, sorted) = (ReportStage::Begins, BTreeMap::new());
        ReportProgress {
            to,
            last,
            stage,
            sorted,
            complete: 0,
            told: 0,
            by_part,
            acts,
            is_refused: false,
            ahead: 0,
        }
    }

    /// Returns whether the report tells of the request: it is not sent otherwise.
    pub(super) fn tells(&self, request: RequestId) -> bool {
        Some(request) <= self.last
    }

    /// Returns whether the next chunk may be sent.
    pub(super) fn may_go_on(&self) -> bool {
        self.ahead < MAX_AHEAD
    }

    /// Notes that all holds that were taken are reported, so the parts before the next one are
    /// complete.
    pub(super) fn note_reported(&mut self) {
        match self.sorted.first_key_value() {
            Some((part, _)) => self.complete = *part,
            None => self.end(),
        }
    }

    /// Notes that everything is reported.
    pub(super) fn end(&mut self) {
        (self.stage, self.complete) = (ReportStage::Over, ALL_PARTS);
    }

    /// Takes at most `most` of the next sorted holds, all of one part.
    pub(super) fn take_sorted(&mut self, most: usize) -> VecDeque<RequestId> {
        let Some(mut first) = self.sorted.first_entry() else { return VecDeque::new() };
        let requests = first.get_mut();
        if requests.len() <= most {
            return first.remove();
        }
        requests.drain(..most).collect()
    }
}
