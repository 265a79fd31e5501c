//! `EarlyWaits`: the waits that members have reported to a grantor that does not act yet.

use crate::protocol::id::{ProcessId, RequestId, Ticket, Want};
use crate::protocol::locks::name_part::{ALL_PARTS, lowest_part};
use crate::protocol::message::WaitReport;
use std::collections::{BTreeMap, BTreeSet};

/// A reported wait.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct EarlyWait {
    pub(super) wait: WaitReport,
    /// The ticket of a later wait of the same member, for a wait that was reported without one. The
    /// grantor that dealt the ticket had the earlier request as well, and had granted it. But its
    /// epoch was over for the member by then. Without such a wait: the ticket that the recovering
    /// grantor has [dealt](EarlyWaits::deal).
    pub(super) inherits: Option<Ticket>,
}

impl EarlyWait {
    /// Lets the wait inherit the `lowest` ticket of its member's later waits, or notes its own.
    fn inherit(&mut self, lowest: &mut Option<Ticket>, is_in_order: &impl Fn(Ticket) -> bool) {
        match self.wait.ticket {
            Some(ticket) if is_in_order(ticket) => {
                *lowest = (*lowest).into_iter().chain([ticket]).min()
            }
            None if self.wait.lock.want != Want::Suspension => self.inherits = *lowest,
            _ => {}
        }
    }

    /// The key of the wait.
    fn place(&self, from: ProcessId) -> (u16, ProcessId, RequestId) {
        (lowest_part(&self.wait.lock.want), from, self.wait.request)
    }

    fn has_no_ticket(&self) -> bool {
        let has_ticket = self.wait.ticket.is_some() || self.inherits.is_some();
        !has_ticket && self.wait.lock.want != Want::Suspension
    }
}

/// Waits of a report that the grantor has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LeftOutWaits {
    /// The first of these waits.
    pub(super) first: Option<RequestId>,
    /// The number of these waits.
    pub(super) count: usize,
}

/// The waits, by the lowest parts of their names.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct EarlyWaits {
    waits: BTreeMap<(u16, ProcessId, RequestId), EarlyWait>,
    /// The approximate bytes of these waits, by member.
    bytes: BTreeMap<ProcessId, usize>,
    /// The lowest reported ticket of each member, without those of requests that passed a
    /// suspension; and the last reported request. Members report their waits backwards.
    lowest_tickets: BTreeMap<ProcessId, (Option<Ticket>, RequestId)>,
    /// Whether a member does not report its waits backwards. Its view is below version 13.
    is_forwards: bool,
    /// Waits that had no ticket and inherited none when they came, by member and request, with
    /// their parts.
    undealt: BTreeSet<(ProcessId, RequestId, u16)>,
    /// The lowest reported ticket of a suspension.
    first_suspension: Option<Ticket>,
}

impl LeftOutWaits {
    /// Adds a wait.
    pub(super) fn add(&mut self, request: RequestId) {
        self.first.get_or_insert(request);
        self.count += 1;
    }
}

/// The first key of a part.
fn start_of(part: u16) -> (u16, ProcessId, RequestId) {
    (part, ProcessId(0), RequestId(0))
}

impl EarlyWaits {
    /// Stores the waits of a report while its member has less than `most` bytes here. Returns the
    /// others. `is_in_order`: whether a ticket tells the order of arrival.
    pub(super) fn keep(
        &mut self,
        from: ProcessId,
        mut waits: Vec<WaitReport>,
        most: usize,
        is_in_order: impl Fn(Ticket) -> bool,
    ) -> LeftOutWaits {
        if waits.is_empty() {
            return LeftOutWaits::default();
        }
        let bytes = self.bytes.entry(from).or_default();
        let fits = |wait: &&WaitReport| {
            let has_room = *bytes < most;
            *bytes += if has_room { wait.lock.kept_weight() } else { 0 };
            has_room
        };
        let count = waits.iter().take_while(fits).count();
        let first = waits.get(count).map(|wait| wait.request);
        let left_out = LeftOutWaits { first, count: waits.len() - count };
        waits.truncate(count);
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.request));
        let unknown = (None, RequestId(u64::MAX));
        let (lowest, last) = self.lowest_tickets.entry(from).or_insert(unknown);
        for wait in waits {
            self.is_forwards |= wait.request > *last;
            *last = wait.request;
            if wait.lock.want == Want::Suspension {
                let known = self.first_suspension.into_iter();
                self.first_suspension = known.chain(wait.ticket).min();
            }
            let mut early = EarlyWait { wait, inherits: None };
            early.inherit(lowest, &is_in_order);
            let place @ (part, _, request) = early.place(from);
            if early.has_no_ticket() {
                self.undealt.insert((from, request, part));
            }
            self.waits.insert(place, early);
        }
        left_out
    }

    /// Stores a request that has arrived meanwhile, with a dealt ticket, if its member has less
    /// than `most` bytes here. Returns whether it has.
    pub(super) fn keep_dealt(
        &mut self,
        from: ProcessId,
        wait: WaitReport,
        dealt: Ticket,
        most: usize,
    ) -> bool {
        let early = EarlyWait { wait, inherits: Some(dealt) };
        let place = early.place(from);
        if self.waits.contains_key(&place) {
            // The member has repeated the request.
            return true;
        }
        let bytes = self.bytes.entry(from).or_default();
        let has_room = *bytes < most;
        if has_room {
            *bytes += early.wait.lock.kept_weight();
            self.waits.insert(place, early);
        }
        has_room
    }

    /// Forgets a request that has ended. So its member has room for another one.
    pub(super) fn remove(&mut self, (from, request): (ProcessId, RequestId)) {
        for part in 0..ALL_PARTS {
            self.undealt.remove(&(from, request, part));
            if let Some(early) = self.waits.remove(&(part, from, request)) {
                self.free(from, &early);
            }
        }
    }

    /// Counts a wait no longer.
    fn free(&mut self, from: ProcessId, early: &EarlyWait) {
        if let Some(bytes) = self.bytes.get_mut(&from) {
            *bytes = bytes.saturating_sub(early.wait.lock.kept_weight());
        }
    }

    /// Lets waits inherit tickets of waits that were reported later, if a member does not report
    /// backwards. Then no part opens before that member has reported everything.
    pub(super) fn inherit_forwards(&mut self, is_in_order: impl Fn(Ticket) -> bool) {
        if !self.is_forwards {
            return;
        }
        let mut all: BTreeMap<ProcessId, Vec<&mut EarlyWait>> = BTreeMap::new();
        for ((_, from, _), wait) in &mut self.waits {
            all.entry(*from).or_default().push(wait);
        }
        for mut waits in all.into_values() {
            waits.sort_by_key(|early| std::cmp::Reverse(early.wait.request));
            let mut lowest = None;
            waits.into_iter().for_each(|early| early.inherit(&mut lowest, &is_in_order));
        }
        // Some inherit nothing now.
        let undealt = self.waits.iter().filter(|(_, early)| early.has_no_ticket());
        let undealt = undealt.map(|((part, from, request), _)| (*from, *request, *part));
        self.undealt = undealt.collect();
    }

    /// Deals tickets to the waits without one, in the order in which each member has made them. Its
    /// waits may enter the table in another order, that of their parts.
    pub(super) fn deal(&mut self, mut next: impl FnMut() -> Ticket) {
        for (from, request, part) in std::mem::take(&mut self.undealt) {
            let early = self.waits.get_mut(&(part, from, request));
            if let Some(early) = early.filter(|early| early.has_no_ticket()) {
                early.inherits = Some(next());
            }
        }
    }

    /// Takes the waits of the parts below `end`.
    pub(super) fn take_below(&mut self, end: u16) -> Vec<(ProcessId, EarlyWait)> {
        let rest = self.waits.split_off(&start_of(end));
        let taken = std::mem::replace(&mut self.waits, rest).into_iter();
        let taken: Vec<_> = taken.map(|((_, from, _), wait)| (from, wait)).collect();
        taken.iter().for_each(|(from, early)| self.free(*from, early));
        taken
    }

    /// Takes all waits, in the order in which each member made them.
    pub(super) fn take_all(&mut self) -> BTreeMap<ProcessId, Vec<WaitReport>> {
        let mut all: BTreeMap<ProcessId, Vec<WaitReport>> = BTreeMap::new();
        for ((_, from, _), early) in std::mem::take(self).waits {
            all.entry(from).or_default().push(early.wait);
        }
        all.values_mut().for_each(|waits| waits.sort_by_key(|wait| wait.request));
        all
    }

    /// The end of the parts that one step may take: with `most` waits, and at least one part.
    pub(super) fn end_within(&self, end: u16, most: usize) -> u16 {
        let (mut count, mut first) = (0, None);
        for (part, ..) in self.waits.range(..start_of(end)).map(|(place, _)| place) {
            count += 1;
            let first = *first.get_or_insert(*part);
            if count > most && *part > first {
                return *part;
            }
        }
        end
    }

    /// Returns whether a wait that inherits a ticket would stand behind a reported suspension.
    pub(super) fn is_behind_suspension(&self, ticket: Ticket) -> bool {
        self.first_suspension.is_some_and(|first| ticket >= first)
    }

    /// Forgets the waits that a member has reported.
    pub(super) fn forget(&mut self, from: ProcessId) {
        self.keep_members(|process| process != from);
    }

    /// Forgets the waits of other members.
    pub(super) fn keep_members(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.waits.retain(|(_, process, _), _| is_there(*process));
        self.bytes.retain(|process, _| is_there(*process));
        self.lowest_tickets.retain(|process, _| is_there(*process));
        self.undealt.retain(|(process, ..)| is_there(*process));
    }

    /// The waiting requests.
    pub(super) fn requests(&self) -> impl Iterator<Item = (ProcessId, RequestId)> {
        self.waits.keys().map(|(_, from, request)| (*from, *request))
    }

    pub(super) fn len(&self) -> usize {
        self.waits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::id::{Epoch, LockName, Metadata, OwnerId, Slot, Token};
    use crate::protocol::message::LockRequest;

    fn wait(number: u64) -> WaitReport {
        let want = Want::Lock(LockName::new(b"x").expect("a good name"));
        let (owner, metadata) = (OwnerId::default(), Metadata::default());
        let lock = LockRequest { want, owner, revocable: false, metadata };
        WaitReport { request: RequestId(number), lock, ticket: None }
    }

    fn ticket(number: u64) -> Ticket {
        Ticket { epoch: Epoch(Token::new(Slot(0), 1)), number }
    }

    fn keep(early: &mut EarlyWaits, from: u128, waits: Vec<WaitReport>) {
        let left_out = early.keep(ProcessId(from), waits, usize::MAX, |ticket| ticket.number < 100);
        assert_eq!(left_out, LeftOutWaits::default());
    }

    /// The tickets that the waits have or inherit, in the order of their requests.
    fn tickets(early: &mut EarlyWaits) -> Vec<Option<u64>> {
        let mut waits = early.take_below(u16::MAX);
        waits.sort_by_key(|(from, early)| (*from, early.wait.request));
        let number = |early: EarlyWait| early.wait.ticket.or(early.inherits).map(|one| one.number);
        waits.into_iter().map(|(_, early)| number(early)).collect()
    }

    #[test]
    fn waits_beyond_the_bound_of_a_member_take_no_memory() {
        let (mut early, most) = (EarlyWaits::default(), 3 * wait(1).lock.entry_weight());
        let part = |part: u64| (0..10).map(|number| wait(10 * part + number)).collect::<Vec<_>>();
        let mut keep = |from, waits| early.keep(ProcessId(from), waits, most, |_| true);
        let left_out: Vec<LeftOutWaits> = (0..100).map(|number| keep(1, part(number))).collect();
        let of = |first, count| LeftOutWaits { first: Some(RequestId(first)), count };
        assert_eq!(left_out[..2], [of(3, 7), of(10, 10)]);
        keep(2, part(0));
        let none = LeftOutWaits::default();
        assert_eq!(keep(3, vec![wait(1)]), none);
        assert_eq!(early.len(), 7, "each member has bytes of its own");
    }

    #[test]
    fn a_request_that_ends_or_is_repeated_takes_no_room_of_the_next() {
        let mut early = EarlyWaits::default();
        let most = 2 * wait(1).lock.kept_weight();
        let ask = |early: &mut EarlyWaits, number| {
            early.keep_dealt(ProcessId(1), wait(number), ticket(number), most)
        };
        for number in 1..100 {
            assert!(ask(&mut early, number) && ask(&mut early, number) && ask(&mut early, 1000));
            early.remove((ProcessId(1), RequestId(number)));
        }
        assert!(ask(&mut early, 100) && !ask(&mut early, 101));
        assert_eq!(early.take_below(ALL_PARTS).len(), 2);
        assert!(ask(&mut early, 102), "those that are taken have no bytes here");
    }

    #[test]
    fn a_wait_without_a_ticket_inherits_the_lowest_one_of_its_members_later_waits() {
        let mut early = EarlyWaits::default();
        let told = |request, number| WaitReport { ticket: Some(ticket(number)), ..wait(request) };
        // The member reports backwards, in two chunks.
        keep(&mut early, 1, vec![wait(9), told(8, 30), told(7, 100), told(6, 20), wait(5)]);
        keep(&mut early, 1, vec![told(4, 40), wait(3)]);
        keep(&mut early, 2, vec![wait(1)]);
        // The chunks of another member are in the order of its requests.
        keep(&mut early, 3, vec![wait(1)]);
        keep(&mut early, 3, vec![wait(2), told(3, 50)]);
        early.inherit_forwards(|ticket| ticket.number < 100);
        let some = |number| Some(number);
        let expected = [
            some(20),
            some(40),
            some(20),
            some(20),
            some(100),
            some(30),
            None,
            None,
            some(50),
            some(50),
            some(50),
        ];
        assert_eq!(tickets(&mut early), expected);
    }

    #[test]
    fn waits_without_a_ticket_are_dealt_one_in_the_order_of_their_member() {
        let mut early = EarlyWaits::default();
        let told = |request, number| WaitReport { ticket: Some(ticket(number)), ..wait(request) };
        keep(&mut early, 1, vec![wait(5), told(4, 30)]);
        keep(&mut early, 1, vec![wait(3)]);
        keep(&mut early, 2, vec![wait(2), wait(1)]);
        let mut number = 90;
        let mut next = || {
            number += 1;
            ticket(number)
        };
        early.deal(&mut next);
        early.deal(&mut next);
        let expected = [30, 30, 91, 92, 93].map(Some);
        assert_eq!(tickets(&mut early), expected);
    }

    #[test]
    fn a_wait_that_inherits_nothing_forwards_is_dealt_a_ticket() {
        let mut early = EarlyWaits::default();
        // The last wait seems to be an earlier one, until it is known that the member reports
        // forwards.
        keep(&mut early, 1, vec![WaitReport { ticket: Some(ticket(20)), ..wait(1) }]);
        keep(&mut early, 1, vec![wait(2)]);
        early.inherit_forwards(|_| true);
        early.deal(|| ticket(90));
        assert_eq!(tickets(&mut early), [20, 90].map(Some));
    }

    #[test]
    fn a_suspension_inherits_nothing() {
        let mut early = EarlyWaits::default();
        let suspension = |number| {
            let lock = LockRequest { want: Want::Suspension, ..wait(1).lock };
            WaitReport { lock, ticket: number, ..wait(1) }
        };
        keep(&mut early, 1, vec![WaitReport { ticket: Some(ticket(20)), ..wait(2) }]);
        keep(&mut early, 1, vec![suspension(None)]);
        assert!(!early.is_behind_suspension(ticket(20)));
        keep(&mut early, 2, vec![suspension(Some(ticket(20)))]);
        assert!(early.is_behind_suspension(ticket(20)) && !early.is_behind_suspension(ticket(19)));
        assert_eq!(tickets(&mut early), [None, Some(20), Some(20)]);
    }

    #[test]
    fn one_step_takes_at_least_one_part_and_no_more_waits_than_it_may() {
        let mut early = EarlyWaits::default();
        let names = (0..20_u8).map(|byte| LockName::new(&[byte]).expect("a good name"));
        let waits = names.zip(1..).map(|(name, number)| {
            let lock = LockRequest { want: Want::Lock(name), ..wait(1).lock };
            WaitReport { lock, ..wait(number) }
        });
        keep(&mut early, 1, waits.collect());
        let (mut taken, mut steps) = (0, 0);
        while early.len() > 0 {
            let end = early.end_within(u16::MAX, 3);
            let part = early.take_below(end);
            let parts: BTreeSet<u16> =
                part.iter().map(|(_, early)| lowest_part(&early.wait.lock.want)).collect();
            assert!(!part.is_empty() && (part.len() <= 3 || parts.len() == 1), "{part:?}");
            (taken, steps) = (taken + part.len(), steps + 1);
        }
        assert!(taken == 20 && steps > 2);
        assert_eq!(early.end_within(7, 3), 7);
    }
}
