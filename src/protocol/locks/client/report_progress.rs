//! `ReportProgress`: a report of which a part was sent.

use crate::protocol::id::{Epoch, ProcessId, RequestId};
use crate::protocol::locks::name_part::ALL_PARTS;
use std::collections::VecDeque;

/// A report that is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ReportProgress {
    /// The grantor that gets the report, and its epoch.
    pub(super) to: (ProcessId, Epoch),
    /// The last request of the report. Later ones are sent to the grantor as usual.
    pub(super) last: Option<RequestId>,
    pub(super) stage: ReportStage,
    /// The holds that were sorted and not reported yet, by the parts of their names. It is an array
    /// because the first grant of a recovery waits for the sort.
    pub(super) sorted: [VecDeque<RequestId>; ALL_PARTS as usize],
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
        let (stage, sorted) = (ReportStage::Begins, Default::default());
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
        match self.sorted.iter().position(|holds| !holds.is_empty()) {
            Some(part) => self.complete = part as u16,
            None => self.end(),
        }
    }

    /// Notes that everything is reported.
    pub(super) fn end(&mut self) {
        (self.stage, self.complete) = (ReportStage::Over, ALL_PARTS);
    }

    /// Takes at most `most` of the next sorted holds, all of one part.
    pub(super) fn take_sorted(&mut self, most: usize) -> VecDeque<RequestId> {
        let Some(first) = self.sorted.iter_mut().find(|holds| !holds.is_empty()) else {
            return VecDeque::new();
        };
        if first.len() <= most {
            return std::mem::take(first);
        }
        first.drain(..most).collect()
    }
}
