//! The states of a grantor, each with its data. [`GrantorState`] names them for the outside.

use super::ReceivedRequest;
use crate::protocol::event::GrantorState;
use crate::protocol::id::{Epoch, ProcessId, RequestId};
use crate::protocol::locks::arrivals::Arrivals;
use crate::protocol::message::WaitReport;
use std::collections::BTreeSet;

/// The state of a grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Phase {
    /// The grantor asks every member before it grants.
    Recovering {
        heard: HeardEarly,
        /// Members whose report is missing.
        awaiting: BTreeSet<ProcessId>,
        /// The table of a predecessor is here. One of the members that are awaited may host a
        /// later predecessor.
        has_earlier_table: bool,
    },
    /// The grantor waits for the table of its predecessor.
    Receiving { heard: HeardEarly, source: ProcessId },
    /// A younger turk gets the table as soon as it is here.
    PassingOn { heard: HeardEarly, table: PassedTable, next_turk: (ProcessId, Epoch) },
    /// The grantor grants.
    Acting,
}

/// The table that a grantor passes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PassedTable {
    /// This predecessor may have the table.
    AwaitedFrom(ProcessId),
    /// The table is here, whole.
    Arrived,
    /// No member has the table: the younger turk asks every member.
    Lost,
}

/// The reports, requests and releases that a grantor has received before it acts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct HeardEarly {
    /// The waits by reports, in the order in which the reports arrived.
    pub(super) waits: Vec<(ProcessId, Vec<WaitReport>)>,
    pub(super) parked: Arrivals<ReceivedRequest>,
    /// Requests that ended meanwhile, so that a report or a parked request does not bring them
    /// back.
    pub(super) over: BTreeSet<(ProcessId, RequestId)>,
}

impl Phase {
    pub(super) fn state(&self) -> GrantorState {
        match self {
            Phase::Recovering { .. } => GrantorState::Recovering,
            Phase::Receiving { .. } => GrantorState::Receiving,
            Phase::PassingOn { .. } => GrantorState::PassingOn,
            Phase::Acting => GrantorState::Acting,
        }
    }

    /// The reports and requests that it has received, unless it acts.
    pub(super) fn heard(&self) -> Option<&HeardEarly> {
        match self {
            Phase::Recovering { heard, .. }
            | Phase::Receiving { heard, .. }
            | Phase::PassingOn { heard, .. } => Some(heard),
            Phase::Acting => None,
        }
    }

    /// Like [`heard`](Phase::heard), to be changed.
    pub(super) fn heard_mut(&mut self) -> Option<&mut HeardEarly> {
        match self {
            Phase::Recovering { heard, .. }
            | Phase::Receiving { heard, .. }
            | Phase::PassingOn { heard, .. } => Some(heard),
            Phase::Acting => None,
        }
    }

    /// The process that may have the table.
    pub(super) fn source(&self) -> Option<ProcessId> {
        match self {
            Phase::Receiving { source, .. }
            | Phase::PassingOn { table: PassedTable::AwaitedFrom(source), .. } => Some(*source),
            _ => None,
        }
    }

    /// The younger turk that gets the table.
    pub(super) fn next_turk(&self) -> Option<(ProcessId, Epoch)> {
        match self {
            Phase::PassingOn { next_turk, .. } => Some(*next_turk),
            _ => None,
        }
    }

    /// Returns whether the whole table is here.
    pub(super) fn has_table(&self) -> bool {
        matches!(self, Phase::Acting | Phase::PassingOn { table: PassedTable::Arrived, .. })
    }

    /// The members that it waits for.
    pub(super) fn awaiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let reports = match self {
            Phase::Recovering { awaiting, .. } => Some(awaiting),
            _ => None,
        };
        reports.into_iter().flatten().copied().chain(self.source())
    }
}

impl HeardEarly {
    /// Keeps the waits of a report.
    pub(super) fn keep_waits(&mut self, from: ProcessId, waits: Vec<WaitReport>) {
        if !waits.is_empty() {
            self.waits.push((from, waits));
        }
    }

    /// The number of requests that are kept.
    pub(super) fn len(&self) -> usize {
        let waits: usize = self.waits.iter().map(|(_, waits)| waits.len()).sum();
        waits + self.parked.len() + self.over.len()
    }
}
