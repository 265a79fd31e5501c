//! The lock table of one service: its holds and waits, and the next request to grant.
//!
//! All waiting requests stand in one line, ordered by their [tickets](Ticket). The queue of a name
//! is the part of the line that wants the name. The line alone decides which requests may be
//! granted:
//! - a lock or a batch, when it is first in the queue of each of its names, and no request holds
//!   any of them;
//! - a share, when it is first in its queue and the name has no holds except shares;
//! - permits, when they are first in their queue, the name has no holds except permits, and the sum
//!   is within the limit;
//! - a suspension, when only requests of its own owner hold anything, and no earlier request in the
//!   line could be granted. An earlier request that still waits then waits for the suspension's
//!   owner, which would otherwise wait for itself;
//! - no request behind the **first suspension** of the line. While a suspension is held, only the
//!   requests that passed it stand before that position.
//!
//! A request whose owner has a hold **passes**: its position is right before the first suspension.
//! So tickets have room:
//! ```text
//! number of a ticket:   block (32 bits) | position in the block (32 bits)
//!                         0 ..      in the order of arrival
//!                         2^30 ..   locks and batches that passed the suspension of this block
//!                           .. 2^32 suspensions of holders that passed it, and it, at the very end
//! ```
//! A request that passes a held suspension goes before all others. The later the suspension was
//! granted, the further in front it goes. Its ticket tells which suspension it passed, so recovery
//! and transfer need only holds and tickets.
//!
//! **Objects** are not locks. A request to open an object is not a hold and waits for no other
//! request. It is granted before all others, even while the service is suspended. An object exists
//! as long as a member has it open.
//!
//! - A name is in the table only while it is held, waited for or open: an idle name costs nothing.
//! - Only queries scan a queue: the cost of any other operation is logarithmic in the size of the
//!   table, for each name.
//! - The table has no clock, no tokens of its own and no messages: the grantor has these.
//!
//! `line.rs` has the tickets and the order, `queues.rs` the queue of each name, and `holders.rs`
//! the holders of each name. `requests.rs` has the requests of each member, and `objects.rs` the
//! objects. `questions.rs` answers queries. Below them are the entries of the table:
//! `queue_rank.rs`, `occupancy.rs`, `request.rs` and `object.rs`. `trace.rs` and
//! `copy_walk.rs` have the copy of a table, and `shedding.rs` its end.

use crate::protocol::content::Content;
use crate::protocol::id::{
    Epoch, LockName, OwnerId, ProcessId, RequestId, Ticket, Token, Value, Want,
};
use crate::protocol::limits::Limits;
use crate::protocol::message::{HoldReport, LockRequest, Refusal, WaitReport};
use crate::protocol::paged_map::PagedMap;
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

mod blockers;
mod bloom_filter;
mod copy_walk;
mod holders;
mod line;
mod names;
mod object;
mod objects;
mod occupancy;
#[cfg(elderlock_mutants)]
mod planted;
mod questions;
mod queue_rank;
mod queues;
mod request;
mod requests;
mod shedding;
mod trace;

pub(crate) use blockers::{Edge, TableBlocker};
pub(crate) use copy_walk::CopiedEntries;
use copy_walk::TableTrace;
use names::NameMap;
use object::TableObject;
use occupancy::Occupancy;
use queue_rank::{POSITION, QueueRank};
use request::{MemberRequests, RequestKey, TableRequest, TableRequestState, WaitStart, nth};

/// Holds and waits with their members, as one grantor sends them to another.
pub type Contents = (Vec<(ProcessId, HoldReport)>, Vec<(ProcessId, WaitReport)>);

/// The state of a request in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum EntryStatus {
    /// The request holds with this token.
    Holds(Token),
    /// The request waits at this position.
    Waits(Ticket),
}

/// All requests of one service.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Table {
    epoch: Epoch,
    /// The number of the last ticket for an arriving request.
    arrivals: u64,
    /// The number of requests that have passed. It only rises. So of the requests that passed the
    /// same suspension, the earliest is granted first.
    passes: u64,
    parts: BTreeMap<ProcessId, MemberRequests>,
    /// The number of requests that hold.
    holds: usize,
    held: NameMap<Occupancy>,
    objects: BTreeMap<LockName, TableObject>,
    suspended: Option<(Token, RequestKey)>,
    queues: BTreeMap<LockName, BTreeSet<QueueRank>>,
    suspensions: BTreeSet<QueueRank>,
    /// Waiting locks and batches whose names are free. They are granted if they are before the
    /// first suspension.
    ready: BTreeSet<QueueRank>,
    /// The requests that wait to open an object: they need only a token.
    opening: BTreeSet<QueueRank>,
    /// An empty map whose memory the next added part reuses. Without it, a member that takes one
    /// lock after another would allocate each time.
    spare: PagedMap<TableRequest>,
    bounds: TableLimits,
    /// Whether a member or a grantor has reported an object whose openers may be unknown.
    has_adopted: bool,
    /// The copy of this table, or that this table is a copy.
    trace: Option<TableTrace>,
    /// A planted break.
    #[cfg(elderlock_mutants)]
    mutant: Option<crate::protocol::mutant::ProtocolMutant>,
}

/// The room of tickets, and the sizes of an answer, see [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct TableLimits {
    /// The positions of a block for arriving requests, and equally many for passing ones.
    room: u64,
    /// The first block without room.
    blocks: u64,
    /// The most entries of a list in an answer.
    listed: usize,
    /// The highest count of requests that hold, or that wait before another one.
    counted: usize,
}

impl TableLimits {
    fn of(limits: &Limits) -> TableLimits {
        let Limits { ticket_room, ticket_blocks, listed, counted, .. } = *limits;
        let (listed, counted) = (listed as usize, counted as usize);
        TableLimits { room: ticket_room.into(), blocks: ticket_blocks.into(), listed, counted }
    }
}

impl Table {
    /// An empty table that deals the tickets of an epoch.
    pub(crate) fn new(epoch: Epoch) -> Table {
        Table {
            epoch,
            arrivals: 0,
            passes: 0,
            parts: BTreeMap::new(),
            holds: 0,
            held: NameMap::new(),
            objects: BTreeMap::new(),
            suspended: None,
            queues: BTreeMap::new(),
            suspensions: BTreeSet::new(),
            ready: BTreeSet::new(),
            opening: BTreeSet::new(),
            spare: PagedMap::default(),
            bounds: TableLimits::of(&Limits::default()),
            has_adopted: false,
            trace: None,
            #[cfg(elderlock_mutants)]
            mutant: None,
        }
    }

    /// Returns the same table with the limits of a member.
    pub(crate) fn within(self, cx: &StepContext) -> Table {
        Table {
            bounds: TableLimits::of(cx.limits),
            #[cfg(elderlock_mutants)]
            mutant: cx.mutant,
            ..self
        }
    }

    /// Returns the same table, which is no copy any more and deals the tickets of a later epoch.
    pub(crate) fn renew(self, epoch: Epoch) -> Table {
        Table { epoch, arrivals: 0, trace: None, ..self }
    }

    /// Returns the state of the request, if the table has it.
    pub(crate) fn entry_status(&self, key: RequestKey) -> Option<EntryStatus> {
        Some(match self.get(key)?.state {
            TableRequestState::Holds { token, .. } => EntryStatus::Holds(token),
            TableRequestState::Waits { ticket, .. } => EntryStatus::Waits(ticket),
        })
    }

    /// Returns `Ok` if a request that is not in the table could be granted at once; otherwise the
    /// reason why not.
    pub(crate) fn is_free(
        &self,
        process: ProcessId,
        entry: &LockRequest,
        now: Time,
    ) -> Result<(), Refusal> {
        let held = |name, key| {
            self.info(name, key, now).map_or(Refusal::Waited(name.cloned()), Refusal::Held)
        };
        let suspends = entry.want == Want::Suspension;
        if suspends && self.deadlocks(process, entry.owner) {
            return Err(Refusal::Deadlock);
        }
        if entry.want.opens() {
            return Ok(());
        }
        for name in entry.want.names() {
            if let Want::Permits(..) = entry.want
                && !self.is_open(name, process)
            {
                return Err(Refusal::NotOpen);
            }
            if !self.fits(name, &entry.want) {
                let holder = self.holders_of(name).next();
                return Err(
                    holder.map_or(Refusal::Limit(self.limit(name)), |key| held(Some(name), key))
                );
            }
        }
        let passes = self.pass(process, entry.owner, suspends);
        if let Some((_, key)) = self.suspended
            && (suspends || passes.is_none())
        {
            return Err(held(None, key));
        }
        if suspends {
            if !self.is_alone(process, entry.owner) {
                let other = self.other_hold(process, entry.owner);
                return Err(
                    other.map_or(Refusal::Waited(None), |(name, key)| held(Some(name), key))
                );
            }
            return if self.first().is_some() { Err(Refusal::Waited(None)) } else { Ok(()) };
        }
        let is_before = |rank: &QueueRank| passes.is_none_or(|ticket| rank.0 < ticket);
        if self.suspensions.first().is_some_and(is_before) {
            return Err(Refusal::Waited(None));
        }
        match entry
            .want
            .names()
            .iter()
            .find(|name| self.head(name).is_some_and(|rank| is_before(&rank)))
        {
            Some(name) => Err(Refusal::Waited(Some(name.clone()))),
            None => Ok(()),
        }
    }

    /// Returns whether the service is suspended, or a suspension waits.
    pub(crate) fn has_suspension(&self) -> bool {
        self.suspended.is_some() || !self.suspensions.is_empty()
    }

    /// Returns whether the suspension has a holder.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Returns whether no request holds this name or waits for it, and there is no suspension. The
    /// name is then free for every member.
    pub(crate) fn is_clear(&self, name: &LockName) -> bool {
        self.is_unwanted(name) && !self.held.contains_key(name)
    }

    /// Records a hold for a request that [is free](Table::is_free).
    pub(crate) fn hold(&mut self, key: RequestKey, entry: LockRequest, token: Token, since: Time) {
        debug_assert!(self.get(key).is_none(), "a request is granted once");
        self.take(key, &entry.want, token);
        self.insert_hold(
            key,
            TableRequest { entry, state: TableRequestState::Holds { token, since } },
        );
    }

    /// Returns whether the end of a hold of this name affects no other request: none waits for the
    /// name or for a suspension.
    pub(crate) fn is_unwanted(&self, name: &LockName) -> bool {
        self.suspended.is_none() && self.suspensions.is_empty() && self.head(name).is_none()
    }

    /// Records that a request holds its names or the suspension, or has its object open.
    fn take(&mut self, key: RequestKey, want: &Want, token: Token) {
        match want {
            Want::Suspension => self.suspended = Some((token, key)),
            Want::Open(opening) => self.open(key.0, opening.name(), opening.value(), token),
            _ => {
                for name in want.names() {
                    let was_free = self.occupy(name, key, want);
                    debug_assert!(was_free, "nothing is held beside what excludes it");
                }
            }
        }
    }

    /// Records a hold that a member reported. Of two holds that exclude each other, the one with
    /// the higher token stays. A removed hold does not return when a third one removes the other.
    /// Permits are recorded at any limit. Returns the removed holds.
    pub(crate) fn enter_reported(
        &mut self,
        key: RequestKey,
        entry: LockRequest,
        token: Token,
        since: Time,
    ) -> Vec<RequestKey> {
        let status = self.entry_status(key);
        if let Some(EntryStatus::Holds(_)) = status {
            return Vec::new();
        }
        // In nearly all cases the request is new and the lock is free.
        if let (None, Want::Lock(name) | Want::Share(name) | Want::Permits(name, _)) =
            (status, &entry.want)
            && self.occupy(name, key, &entry.want)
        {
            self.insert_hold(
                key,
                TableRequest { entry, state: TableRequestState::Holds { token, since } },
            );
            return Vec::new();
        }
        let mut losers = BTreeSet::new();
        let names = if entry.want.opens() { &[] } else { entry.want.names() };
        for (index, name) in names.iter().enumerate() {
            let Some(used) = self.held.get(name).filter(|used| !used.is_beside(&entry.want)) else {
                continue;
            };
            if self
                .holders(name, used)
                .any(|other| self.token_of(other, Some(name)) > Some(nth(token, index)))
            {
                self.release(key);
                return vec![key];
            }
            losers.extend(self.holders(name, used));
        }
        if let Some((other_token, other)) = self.suspended
            && entry.want == Want::Suspension
        {
            if other_token > token {
                self.release(key);
                return vec![key];
            }
            losers.insert(other);
        }
        for &loser in &losers {
            self.release(loser);
        }
        self.release(key);
        self.hold(key, entry, token, since);
        losers.into_iter().collect()
    }

    /// Removes a request, whether it holds or waits. Unknown requests are ignored.
    pub(crate) fn release(&mut self, key: RequestKey) {
        let Some(TableRequest { entry, state }) = self.remove(key) else { return };
        let names = entry.want.names();
        match state {
            TableRequestState::Holds { .. } => match &entry.want {
                Want::Suspension => self.suspended = None,
                Want::Open(opening) => self.shut(key.0, opening.name()),
                want => names.iter().for_each(|name| self.vacate(name, key, want)),
            },
            TableRequestState::Waits { ticket, .. } => {
                self.suspensions.remove(&(ticket, key));
                self.ready.remove(&(ticket, key));
                self.opening.remove(&(ticket, key));
                names.iter().for_each(|name| self.leave(name, (ticket, key)));
            }
        }
    }

    /// Lets requests of the same member hold a lock, or shares of it, in place of the granted
    /// request. If the granted request is among them, it continues to hold. Without any of them, it
    /// ends.
    pub(crate) fn replace(&mut self, key: RequestKey, holds: Vec<HoldReport>, now: Time) {
        let has = match self.held_by(key) {
            Some(has @ (Want::Lock(_) | Want::Share(_))) => has.clone(),
            _ => return,
        };
        let stays = holds.iter().any(|hold| hold.request == key.1);
        let mut holds = holds.into_iter();
        if let Want::Lock(name) = &has {
            return match holds.next() {
                _ if stays => {}
                Some(hold) => self.replace_lock((key, name), hold, now),
                None => self.release(key),
            };
        }
        if !stays {
            self.release(key);
        }
        for HoldReport { request, lock, token, held_for } in holds {
            let by = (key.0, request);
            if lock.want == has && self.get(by).is_none() {
                self.hold(by, lock, token, now.back(held_for));
            }
        }
    }

    /// Lets another request of the same member hold a lock in place of the granted request.
    fn replace_lock(
        &mut self,
        (key, name): (RequestKey, &LockName),
        HoldReport { request, lock, token, held_for }: HoldReport,
        now: Time,
    ) {
        let (by, since) = ((key.0, request), now.back(held_for));
        let is_taken = self.get(by).is_some();
        let (has, wants) = (Want::Lock(name.clone()), lock.want.clone());
        if is_taken || (wants != has && !wants.is_less_than(&has)) {
            return;
        }
        self.remove(key);
        self.reoccupy(name, by);
        let entry = LockRequest { want: has.clone(), ..lock };
        self.insert_hold(
            by,
            TableRequest { entry, state: TableRequestState::Holds { token, since } },
        );
        // The hold may have been reduced to a share already.
        if wants != has {
            self.reduce(by, &wants, token);
        }
    }

    /// Removes all requests of a process.
    #[cfg(test)]
    fn end_all(&mut self, process: ProcessId) {
        self.end_some(process, usize::MAX);
    }

    /// Removes at most `most` requests of a process. Returns their number.
    pub(crate) fn end_some(&mut self, process: ProcessId, most: usize) -> usize {
        let requests: Vec<RequestId> = self.requests_of(process).take(most).collect();
        for request in &requests {
            self.release((process, *request));
        }
        requests.len()
    }

    /// The number of tokens that the next grantable request needs, if there is one.
    pub(crate) fn next(&self) -> Option<u32> {
        let (_, key) = self.first()?;
        self.get(key).map(|request| request.entry.want.tokens())
    }

    /// Grants the next request that can be granted.
    pub(crate) fn grant_next(&mut self, token: Token, since: Time) -> Option<RequestKey> {
        let rank @ (_, key) = self.first()?;
        let request = self.get_mut(key)?;
        request.state = TableRequestState::Holds { token, since };
        let entry = request.entry.clone();
        self.suspensions.remove(&rank);
        self.ready.remove(&rank);
        self.opening.remove(&rank);
        self.take(key, &entry.want, token);
        entry.want.names().iter().for_each(|name| self.leave(name, rank));
        self.count(key.0, &entry.want, entry.owner);
        Some(key)
    }

    /// Reduces a hold, which keeps its token: its lock becomes a share, or its permits become
    /// fewer. Anything else is ignored.
    pub(crate) fn reduce(&mut self, key: RequestKey, to: &Want, has: Token) {
        let Some(TableRequest { entry, state: TableRequestState::Holds { token, .. } }) =
            self.get_mut(key)
        else {
            return;
        };
        if to.is_less_than(&entry.want) {
            *token = has;
            let from = std::mem::replace(&mut entry.want, to.clone());
            self.exchange(key, &from, to);
        }
    }

    /// Turns the only share of a lock into the lock. A hold that already has the lock gets another
    /// token.
    pub(crate) fn upgrade(&mut self, key: RequestKey, by: Token) {
        debug_assert!(
            self.others_beside(key).is_none_or(|others| others == 0),
            "no member shares a lock"
        );
        let Some(TableRequest { entry, state: TableRequestState::Holds { token, .. } }) =
            self.get_mut(key)
        else {
            return;
        };
        let [name] = entry.want.names() else { return };
        let to = Want::Lock(name.clone());
        *token = by;
        let from = std::mem::replace(&mut entry.want, to.clone());
        self.exchange(key, &from, &to);
    }

    /// All entries, for another grantor: the holds, and the waits in the order of the line.
    pub(crate) fn export(&self, now: Time) -> Contents {
        let (mut holds, mut waits) = (Vec::new(), Vec::new());
        for ((process, id), TableRequest { entry, state }) in self.all() {
            let lock = entry.clone();
            match *state {
                TableRequestState::Holds { token, since } => {
                    let held_for = now.since(since);
                    let request = id;
                    holds.push((process, HoldReport { request, lock, token, held_for }));
                }
                TableRequestState::Waits { ticket, .. } => {
                    let (request, ticket) = (id, Some(ticket));
                    waits.push((process, WaitReport { request, lock, ticket }));
                }
            }
        }
        waits.sort_by_key(|(process, wait)| (wait.ticket, *process, wait.request));
        (holds, waits)
    }

    /// The number of entries.
    pub(crate) fn size(&self) -> usize {
        let (holds, waits) = self.load();
        let opens: usize = self.parts.values().map(|part| part.opens).sum();
        let (names, line) =
            (self.held.len() + self.queues.len(), self.suspensions.len() + self.ready.len());
        holds + waits + opens + names + line + self.objects.len() + self.opening.len()
    }

    /// Returns whether no request holds or waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

#[cfg(test)]
mod tests;
