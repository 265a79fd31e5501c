//! The states of a grantor, each with its data. [`GrantorState`] names them for observers.

use super::early_waits::EarlyWaits;
use super::received_request::ReceivedRequest;
use crate::protocol::event::GrantorState;
use crate::protocol::id::{Epoch, ProcessId, RequestId, Want};
use crate::protocol::locks::arrivals::Arrivals;
use crate::protocol::locks::name_part::highest_part;
use crate::protocol::message::HoldReport;
use std::collections::{BTreeMap, BTreeSet};

/// The state of a grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum GrantorPhase {
    /// The grantor asks every member. It grants only the names of open parts.
    Recovering {
        early: EarlyMessages,
        /// Members whose reports are not complete, with the number of their complete parts.
        awaiting: BTreeMap<ProcessId, u16>,
        /// The number of open parts. Every member has reported these parts.
        open: u16,
        /// Whether the table of a predecessor is here, but one of the awaited members may host a
        /// later predecessor.
        has_earlier_table: bool,
    },
    /// The grantor waits for the table of its predecessor.
    Receiving { early: EarlyMessages, source: ProcessId },
    /// A younger turk gets the table as soon as it arrives.
    PassingOn { early: EarlyMessages, table: PassedTable, next_turk: (ProcessId, Epoch) },
    /// The grantor grants.
    Acting,
}

/// The table that a grantor passes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PassedTable {
    /// The predecessor that may have the table.
    AwaitedFrom(ProcessId),
    /// The whole table is here.
    Arrived,
    /// No member has the table: the younger turk has to ask every member.
    Lost,
}

/// The reports, requests and releases that arrive before the grantor acts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct EarlyMessages {
    pub(super) waits: EarlyWaits,
    pub(super) parked: Arrivals<ReceivedRequest>,
    /// The waits in the table that have names in parts that are not open: by the highest parts.
    pub(super) held_back: BTreeMap<u16, BTreeSet<(ProcessId, RequestId)>>,
    /// Whether a member has reported a suspension or has asked for one.
    pub(super) has_suspension: bool,
    /// The holds that stand in for kept locks, as their members said.
    uses: Arrivals<((ProcessId, RequestId), Vec<HoldReport>)>,
    /// Requests that have ended meanwhile: a report or a parked request does not bring them back.
    over: BTreeMap<ProcessId, BTreeSet<RequestId>>,
    /// The approximate bytes of the reported objects, by member.
    object_bytes: BTreeMap<ProcessId, usize>,
    /// Members that report by the parts of the names, and so report their waits backwards.
    pub(super) by_part: BTreeSet<ProcessId>,
    /// Members whose present report exceeds their room here: they report once more.
    pub(super) oversized: BTreeSet<ProcessId>,
}

/// The approximate bytes of a request number in a set.
pub(super) const NUMBER_BYTES: usize = 64;

impl GrantorPhase {
    pub(super) fn state(&self) -> GrantorState {
        match self {
            GrantorPhase::Recovering { .. } => GrantorState::Recovering,
            GrantorPhase::Receiving { .. } => GrantorState::Receiving,
            GrantorPhase::PassingOn { .. } => GrantorState::PassingOn,
            GrantorPhase::Acting => GrantorState::Acting,
        }
    }

    /// The early messages, unless the grantor acts.
    pub(super) fn early(&self) -> Option<&EarlyMessages> {
        match self {
            GrantorPhase::Recovering { early, .. }
            | GrantorPhase::Receiving { early, .. }
            | GrantorPhase::PassingOn { early, .. } => Some(early),
            GrantorPhase::Acting => None,
        }
    }

    /// Like [`early`](GrantorPhase::early), but mutable.
    pub(super) fn early_mut(&mut self) -> Option<&mut EarlyMessages> {
        match self {
            GrantorPhase::Recovering { early, .. }
            | GrantorPhase::Receiving { early, .. }
            | GrantorPhase::PassingOn { early, .. } => Some(early),
            GrantorPhase::Acting => None,
        }
    }

    /// Returns whether a request with this want can be granted, as far as this phase is concerned.
    pub(super) fn is_open_to(&self, want: &Want) -> bool {
        match self {
            GrantorPhase::Acting => true,
            GrantorPhase::Recovering { early, open, .. } => {
                *want != Want::Suspension && !early.has_suspension && highest_part(want) < *open
            }
            _ => false,
        }
    }

    /// Returns whether waiting requests may be granted. While the grantor recovers, its table has
    /// waits of open parts, and batches that are held back.
    pub(super) fn may_grant(&self) -> bool {
        match self {
            GrantorPhase::Acting => true,
            GrantorPhase::Recovering { early, open, .. } => *open > 0 && !early.has_suspension,
            _ => false,
        }
    }

    /// The number of open parts of a grantor that recovers.
    pub(super) fn open_parts(&self) -> Option<u16> {
        match self {
            GrantorPhase::Recovering { open, .. } => Some(*open),
            _ => None,
        }
    }

    /// The process that may have the table.
    pub(super) fn source(&self) -> Option<ProcessId> {
        match self {
            GrantorPhase::Receiving { source, .. }
            | GrantorPhase::PassingOn { table: PassedTable::AwaitedFrom(source), .. } => {
                Some(*source)
            }
            _ => None,
        }
    }

    /// The younger turk that gets the table.
    pub(super) fn next_turk(&self) -> Option<(ProcessId, Epoch)> {
        match self {
            GrantorPhase::PassingOn { next_turk, .. } => Some(*next_turk),
            _ => None,
        }
    }

    /// Returns whether the whole table is here.
    pub(super) fn has_table(&self) -> bool {
        matches!(
            self,
            GrantorPhase::Acting | GrantorPhase::PassingOn { table: PassedTable::Arrived, .. }
        )
    }

    /// The members whose answers are missing.
    pub(super) fn awaiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let reports = match self {
            GrantorPhase::Recovering { awaiting, .. } => Some(awaiting),
            _ => None,
        };
        reports.into_iter().flat_map(BTreeMap::keys).copied().chain(self.source())
    }
}

impl EarlyMessages {
    /// Keeps a request until the grantor acts, or until the first part opens.
    pub(super) fn park(&mut self, asked: ReceivedRequest) {
        self.has_suspension |= asked.lock.want == Want::Suspension;
        let key = (asked.from, asked.request);
        self.parked.push(key, asked.lock.entry_weight(), asked);
    }

    /// Counts the bytes of an object that a member reports. Returns `false` if the member
    /// [has no room](EarlyMessages::has_room_for_objects) for it.
    pub(super) fn count_object(&mut self, from: ProcessId, weight: usize, most: usize) -> bool {
        let has_room = self.has_room_for_objects(from, most);
        if has_room {
            *self.object_bytes.entry(from).or_default() += weight;
        }
        has_room
    }

    /// Returns whether a member has reported objects of less than `most` bytes.
    pub(super) fn has_room_for_objects(&self, from: ProcessId, most: usize) -> bool {
        self.object_bytes.get(&from).is_none_or(|bytes| *bytes < most)
    }

    /// Notes that a request is over, if its member has less than `most` bytes of such notes here.
    pub(super) fn note_over(&mut self, (process, request): (ProcessId, RequestId), most: usize) {
        let over = self.over.entry(process).or_default();
        if over.len() < most / NUMBER_BYTES {
            over.insert(request);
        }
    }

    /// Notes that holds stand in for a kept lock, if there is room.
    pub(super) fn keep_use(
        &mut self,
        place: (ProcessId, RequestId),
        holds: Vec<HoldReport>,
        limit: u32,
    ) {
        let weight = holds.iter().map(|hold| hold.lock.entry_weight()).sum();
        if self.uses.has_room(weight, limit) {
            self.uses.push(place, weight, (place, holds));
        }
    }

    /// Takes the holds that stand in for kept locks and are not over, in the order of their
    /// messages.
    pub(super) fn take_uses(&mut self) -> Vec<((ProcessId, RequestId), Vec<HoldReport>)> {
        let mut uses: Vec<_> = std::mem::take(&mut self.uses).into_iter().collect();
        for ((process, _), holds) in &mut uses {
            holds.retain(|hold| !self.is_over((*process, hold.request)));
        }
        uses
    }

    /// Forgets the parked requests and the stand-ins of a process.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.parked.remove_all(process);
        self.uses.remove_all(process);
    }

    /// Returns whether a request is over.
    pub(super) fn is_over(&self, (process, request): (ProcessId, RequestId)) -> bool {
        self.over.get(&process).is_some_and(|over| over.contains(&request))
    }

    /// The requests that have ended meanwhile.
    pub(super) fn ended(&self) -> impl Iterator<Item = (ProcessId, RequestId)> {
        let all = self.over.iter();
        all.flat_map(|(process, over)| over.iter().map(|request| (*process, *request)))
    }

    /// The early messages without those of reports.
    pub(super) fn without_reports(self) -> EarlyMessages {
        let EarlyMessages { parked, over, .. } = self;
        let has_suspension = parked.iter().any(|asked| asked.lock.want == Want::Suspension);
        EarlyMessages { parked, over, has_suspension, ..EarlyMessages::default() }
    }

    /// Forgets the entries of members that have left the view.
    pub(super) fn keep_members(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.waits.keep_members(&is_there);
        self.over.retain(|process, _| is_there(*process));
        self.object_bytes.retain(|process, _| is_there(*process));
        self.oversized.retain(|process| is_there(*process));
        self.held_back.values_mut().for_each(|keys| keys.retain(|(process, _)| is_there(*process)));
    }

    /// Forgets a request that has ended.
    pub(super) fn forget_request(&mut self, key: (ProcessId, RequestId)) {
        self.waits.remove(key);
        for keys in self.held_back.values_mut() {
            keys.remove(&key);
        }
    }

    /// The number of stored entries.
    pub(super) fn len(&self) -> usize {
        let over: usize = self.over.values().map(BTreeSet::len).sum();
        let held_back: usize = self.held_back.values().map(BTreeSet::len).sum();
        self.waits.len() + self.parked.len() + self.uses.len() + over + held_back
    }
}
