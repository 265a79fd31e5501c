//! The states of a grantor, each with its data. [`GrantorState`] names them for observers.

use super::received_request::ReceivedRequest;
use crate::protocol::event::GrantorState;
use crate::protocol::id::{Epoch, ProcessId, RequestId};
use crate::protocol::locks::arrivals::Arrivals;
use crate::protocol::message::{HoldReport, WaitReport};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum GrantorPhase {
    /// The grantor asks every member before it grants.
    Recovering {
        early: EarlyMessages,
        /// Members whose reports are missing.
        awaiting: BTreeSet<ProcessId>,
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
    /// The reported waits, in the order of the reports.
    pub(super) waits: Vec<(ProcessId, Vec<WaitReport>)>,
    pub(super) parked: Arrivals<ReceivedRequest>,
    /// The holds that stand in for kept locks, as their members said.
    uses: Arrivals<((ProcessId, RequestId), Vec<HoldReport>)>,
    /// Requests that have ended meanwhile: a report or a parked request does not bring them back.
    over: BTreeMap<ProcessId, BTreeSet<RequestId>>,
    /// The approximate bytes of the waits, by member.
    wait_bytes: BTreeMap<ProcessId, usize>,
    /// The approximate bytes of the reported objects, by member.
    object_bytes: BTreeMap<ProcessId, usize>,
    /// Members whose present report exceeds their room here: they report once more.
    pub(super) oversized: BTreeSet<ProcessId>,
}

/// Waits of a report that the grantor has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LeftOutWaits {
    /// The first of these waits.
    pub(super) first: Option<RequestId>,
    /// The number of these waits.
    pub(super) count: usize,
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
        reports.into_iter().flatten().copied().chain(self.source())
    }
}

impl LeftOutWaits {
    /// Adds a wait.
    pub(super) fn add(&mut self, request: RequestId) {
        self.first.get_or_insert(request);
        self.count += 1;
    }
}

impl EarlyMessages {
    /// Stores the waits of a report while its member has less than `most` bytes here. Returns the
    /// others.
    pub(super) fn keep_waits(
        &mut self,
        from: ProcessId,
        mut waits: Vec<WaitReport>,
        most: usize,
    ) -> LeftOutWaits {
        if waits.is_empty() {
            return LeftOutWaits::default();
        }
        let bytes = self.wait_bytes.entry(from).or_default();
        let fits = |wait: &&WaitReport| {
            let has_room = *bytes < most;
            *bytes += if has_room { wait.lock.kept_weight() } else { 0 };
            has_room
        };
        let count = waits.iter().take_while(fits).count();
        let first = waits.get(count).map(|wait| wait.request);
        let left_out = LeftOutWaits { first, count: waits.len() - count };
        // The bound must hold for the allocated memory, too: a report of thousands of parts beyond
        // the bound must store nothing.
        if count > 0 {
            waits.truncate(count);
            waits.shrink_to_fit();
            self.waits.push((from, waits));
        }
        left_out
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
        EarlyMessages { parked, over, ..EarlyMessages::default() }
    }

    /// Forgets the waits that a member has reported.
    pub(super) fn forget_waits(&mut self, from: ProcessId) {
        self.waits.retain(|(process, _)| *process != from);
        self.wait_bytes.remove(&from);
    }

    /// Forgets the entries of members that have left the view.
    pub(super) fn keep_members(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.waits.retain(|(process, _)| is_there(*process));
        self.wait_bytes.retain(|process, _| is_there(*process));
        self.over.retain(|process, _| is_there(*process));
        self.object_bytes.retain(|process, _| is_there(*process));
        self.oversized.retain(|process| is_there(*process));
    }

    /// The number of stored entries.
    pub(super) fn len(&self) -> usize {
        let waits: usize = self.waits.iter().map(|(_, waits)| waits.len()).sum();
        let over: usize = self.over.values().map(BTreeSet::len).sum();
        waits + self.parked.len() + self.uses.len() + over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::id::{LockName, Metadata, OwnerId, Want};
    use crate::protocol::message::LockRequest;

    fn wait(number: u64) -> WaitReport {
        let want = Want::Lock(LockName::new(b"x").expect("a good name"));
        let (owner, metadata) = (OwnerId::default(), Metadata::default());
        let lock = LockRequest { want, owner, revocable: false, metadata };
        WaitReport { request: RequestId(number), lock, ticket: None }
    }

    #[test]
    fn waits_beyond_the_bound_of_a_member_take_no_memory() {
        let (mut early, most) = (EarlyMessages::default(), 3 * wait(1).lock.entry_weight());
        let part = |part: u64| (0..10).map(|number| wait(10 * part + number)).collect::<Vec<_>>();
        let left_out: Vec<LeftOutWaits> =
            (0..100).map(|number| early.keep_waits(ProcessId(1), part(number), most)).collect();
        let of = |first, count| LeftOutWaits { first: Some(RequestId(first)), count };
        assert_eq!(left_out[..2], [of(3, 7), of(10, 10)]);
        assert_eq!(early.len(), 3);
        assert_eq!(early.waits.len(), 1, "later parts leave nothing");
        let room = early.waits[0].1.capacity();
        assert!(room < 10, "room for {room} waits");
        early.keep_waits(ProcessId(2), part(0), most);
        assert_eq!(early.len(), 6, "each member has bytes of its own");
        let none = LeftOutWaits::default();
        assert_eq!(early.keep_waits(ProcessId(3), vec![wait(1)], most), none);
    }
}
