//! The lock table of one service: its holds, its waits, and the next request to grant.
//!
//! All waiting requests stand in one line, in the order of the [tickets](Ticket). The queue of a
//! name is the part of the line that wants the name. The line alone decides which requests may be
//! granted:
//! - a lock or a batch, when it is the first in the queue of each of its names and no request holds
//!   one of them;
//! - a share, when it is the first in its queue and the name has no holds but shares;
//! - permits, when they are the first in their queue, the name has no holds but permits, and the
//!   sum is within the limit;
//! - a suspension, when no request but its owner's holds anything, and no request before it in the
//!   line could be granted. A request that still waits before it then waits for the suspension's
//!   owner, which would otherwise wait for itself;
//! - no request behind the **gate**. The gate is the first waiting suspension. While a suspension
//!   is held, only the requests that passed it stand before the gate.
//!
//! A request of an owner with a hold **passes**: it gets a position in the line right before the
//! first suspension. So tickets have room:
//! ```text
//! number of a ticket:   block (32 bits) | position in the block (32 bits)
//!                         0 ..      in the order of arrival
//!                         2^30 ..   locks and batches that passed the suspension of this block
//!                           .. 2^32 suspensions of holders that passed it, and it, at the very end
//! ```
//! A request that passes a held suspension goes before all others. The later the suspension was
//! granted, the further in front the request goes. Its ticket says which suspension it passed, so
//! recovery and transfer need only holds and tickets.
//!
//! **Objects** are no locks. A request to have an object open is no hold and waits for no other
//! request. It is granted before all others, also while the service is suspended. An object exists
//! while a member has it open.
//!
//! - A name is in the table only while it is held, waited for or open: an idle name costs nothing.
//! - Nothing scans a queue, but for queries: an operation costs the logarithm of the table for each
//!   of its names.
//! - It has no clock, no tokens of its own and no messages: the grantor has.

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

mod bloom_filter;
mod names;
mod objects;
#[cfg(elderlock_mutants)]
mod planted;
mod questions;

use names::NameMap;
use objects::TableObject;

/// The position within a block: the low half of a ticket's number.
const POSITION: u64 = u32::MAX as u64;

/// The most names, and the most requests, that are searched for a holder in the way of a
/// suspension.
const SOUGHT: usize = 1 << 10;

/// A request, wherever it comes from.
pub(crate) type RequestKey = (ProcessId, RequestId);

/// Holds and waits, with their members, as one grantor sends them to another.
pub type Contents = (Vec<(ProcessId, HoldReport)>, Vec<(ProcessId, WaitReport)>);

/// A position in the line. The key keeps it one request's own, even if members report equal
/// tickets.
type QueueRank = (Ticket, RequestKey);

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum EntryStatus {
    /// The request holds, with this token.
    Holds(Token),
    /// The request waits, at this position.
    Waits(Ticket),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum TableRequestState {
    Holds {
        token: Token,
        since: Time,
    },
    /// `missing`: the number of its names for which it is not the first in the queue, or does not
    /// fit beside the present holds.
    Waits {
        ticket: Ticket,
        missing: u32,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct TableRequest {
    entry: LockRequest,
    state: TableRequestState,
}

impl TableRequest {
    /// An open object is no hold.
    fn is_hold(&self) -> bool {
        matches!(self.state, TableRequestState::Holds { .. }) && !self.entry.want.opens()
    }

    /// Whether it holds the lock of this name, by itself or in a batch.
    fn has_lock(&self, name: &LockName) -> bool {
        let is_lock = matches!(self.entry.want, Want::Lock(_) | Want::Batch(_));
        let holds = matches!(self.state, TableRequestState::Holds { .. });
        is_lock && holds && self.entry.want.names().binary_search(name).is_ok()
    }
}

/// The holders of a name: one lock, or any number of shares, or any number of permits. Small,
/// because one exists for each held lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Occupancy {
    /// The holding request, and how the number of its process [begins](beginning). The process
    /// follows from the rest of the [table](Table::holder).
    Lock(RequestId, u32),
    #[allow(clippy::box_collection)] // one word
    Shares(Box<BTreeSet<RequestKey>>),
    Permits(Box<PermitHolders>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PermitHolders {
    keys: BTreeSet<RequestKey>,
    /// How many permits they have together.
    sum: u64,
}

impl Occupancy {
    fn len(&self) -> usize {
        match self {
            Occupancy::Lock(..) => 1,
            Occupancy::Shares(keys) => keys.len(),
            Occupancy::Permits(permitted) => permitted.keys.len(),
        }
    }

    /// Whether a hold of this want may exist beside these, at any limit.
    fn is_beside(&self, want: &Want) -> bool {
        matches!(
            (self, want),
            (Occupancy::Shares(_), Want::Share(_)) | (Occupancy::Permits(..), Want::Permits(..))
        )
    }
}

/// One member's requests in the table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct MemberRequests {
    requests: PagedMap<TableRequest>,
    /// How many of them hold.
    holds: usize,
    /// How many of them have an object open.
    opens: usize,
    /// How many of them hold for each owner. Owner 0, the whole member, is left out.
    owners: BTreeMap<OwnerId, usize>,
}

/// All requests of one service.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Table {
    epoch: Epoch,
    /// The number of the last ticket that was dealt to an arriving request.
    arrivals: u64,
    /// How many requests have passed. It only rises, so that of the requests that passed one
    /// suspension the first goes first.
    passes: u64,
    parts: BTreeMap<ProcessId, MemberRequests>,
    /// How many hold.
    holds: usize,
    held: NameMap<Occupancy>,
    objects: BTreeMap<LockName, TableObject>,
    suspended: Option<(Token, RequestKey)>,
    queues: BTreeMap<LockName, BTreeSet<QueueRank>>,
    suspensions: BTreeSet<QueueRank>,
    /// Waiting locks and batches that miss nothing: to be granted if they are before the gate.
    ready: BTreeSet<QueueRank>,
    /// The requests that wait to have an object open, for nothing but a token.
    opening: BTreeSet<QueueRank>,
    /// Always empty: it keeps the memory of a removed part for the next part. Otherwise a member
    /// that takes one lock after the other would allocate memory each time.
    spare: PagedMap<TableRequest>,
    bounds: TableLimits,
    /// A planted break.
    #[cfg(elderlock_mutants)]
    mutant: Option<crate::protocol::mutant::ProtocolMutant>,
}

/// The room that tickets have, and the sizes of an answer, see [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct TableLimits {
    /// How many positions of a block are for arriving requests, and how many for passing ones.
    room: u64,
    /// From this block on there is no room in blocks any more.
    blocks: u64,
    /// The most entries of a list that one answer has.
    listed: usize,
    /// The most that is counted of the requests that wait before another one, or hold.
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
            #[cfg(elderlock_mutants)]
            mutant: None,
        }
    }

    /// Returns the same table with the bounds of a member.
    pub(crate) fn within(self, cx: &StepContext) -> Table {
        Table {
            bounds: TableLimits::of(cx.limits),
            #[cfg(elderlock_mutants)]
            mutant: cx.mutant,
            ..self
        }
    }

    /// Returns the same table, which deals the tickets of a later epoch from now on.
    pub(crate) fn renew(self, epoch: Epoch) -> Table {
        Table { epoch, arrivals: 0, ..self }
    }

    /// Where the request stands, if it is known.
    pub(crate) fn entry_status(&self, key: RequestKey) -> Option<EntryStatus> {
        Some(match self.get(key)?.state {
            TableRequestState::Holds { token, .. } => EntryStatus::Holds(token),
            TableRequestState::Waits { ticket, .. } => EntryStatus::Waits(ticket),
        })
    }

    /// Whether a request that is not in the table could be granted at once; otherwise the obstacle.
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

    /// Whether the service is suspended, or a suspension waits.
    pub(crate) fn has_suspension(&self) -> bool {
        self.suspended.is_some() || !self.suspensions.is_empty()
    }

    /// Whether no request has this name or waits for it, and no suspension is held or waits. The
    /// name is then free for every member.
    pub(crate) fn is_clear(&self, name: &LockName) -> bool {
        self.is_unwanted(name) && !self.held.contains_key(name)
    }

    /// Records a hold of a request that [is free](Table::is_free).
    pub(crate) fn hold(&mut self, key: RequestKey, entry: LockRequest, token: Token, since: Time) {
        debug_assert!(self.get(key).is_none(), "a request is granted once");
        self.take(key, &entry.want, token);
        self.insert_hold(
            key,
            TableRequest { entry, state: TableRequestState::Holds { token, since } },
        );
    }

    /// Whether the end of a hold of this name concerns no other request: no request waits for the
    /// name or for a suspension.
    pub(crate) fn is_unwanted(&self, name: &LockName) -> bool {
        self.suspended.is_none() && self.suspensions.is_empty() && self.head(name).is_none()
    }

    /// Gives a request the names, the suspension or the object that it wants.
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

    /// Gives a request a new position in the line.
    pub(crate) fn queue(&mut self, key: RequestKey, entry: LockRequest) -> Result<Ticket, Refusal> {
        debug_assert!(self.get(key).is_none(), "a request has one position");
        let suspends = entry.want == Want::Suspension;
        if suspends && self.deadlocks(key.0, entry.owner) {
            return Err(Refusal::Deadlock);
        }
        let passed = self.pass(key.0, entry.owner, suspends);
        let ticket = passed.unwrap_or_else(|| self.arrive(suspends));
        self.passes += u64::from(passed.is_some());
        self.stand(key, entry, ticket);
        Ok(ticket)
    }

    /// Puts a request at the position that it had in another table. Known requests keep theirs.
    pub(crate) fn wait(&mut self, key: RequestKey, entry: LockRequest, ticket: Ticket) {
        if self.get(key).is_none() {
            self.keep_clear_of(ticket);
            self.stand(key, entry, ticket);
        }
    }

    /// Completes the waits that members reported without a position: each gets the position of the
    /// same member's next wait behind it. That later request has a position, so its grantor had the
    /// earlier request as well. The grantor granted the earlier one, and its epoch was over for the
    /// member by then. A request that may pass a suspension is left out, and so is the position of
    /// a request that passed one. Returns the waits that got a position.
    pub(crate) fn keep_own_order(
        &self,
        waits: &mut [(ProcessId, WaitReport)],
    ) -> BTreeSet<RequestKey> {
        planted!(self.mutant, ForgetOwnOrder => return BTreeSet::new());
        // A request of an owner with a hold has to pass this suspension, and must not wait behind
        // it.
        let suspensions = waits.iter().filter(|(_, wait)| wait.lock.want == Want::Suspension);
        let gate = suspensions.filter_map(|(_, wait)| wait.ticket).min();
        let is_open =
            |ticket: &Ticket| self.suspended.is_none() && gate.is_none_or(|gate| *ticket < gate);
        let mut next: BTreeMap<ProcessId, Ticket> = BTreeMap::new();
        let mut completed = BTreeSet::new();
        for (process, wait) in waits.iter_mut().rev() {
            match wait.ticket {
                Some(ticket) if ticket.number & POSITION < self.bounds.room => {
                    let next = next.entry(*process).or_insert(ticket);
                    *next = ticket.min(*next);
                }
                None if wait.lock.want != Want::Suspension => {
                    let holds = self.holds_of(*process, wait.lock.owner) > 0;
                    wait.ticket =
                        next.get(process).copied().filter(|ticket| !holds || is_open(ticket));
                    if wait.ticket.is_some() {
                        completed.insert((*process, wait.request));
                    }
                }
                _ => {}
            }
        }
        completed
    }

    /// Records a hold that a member reported. Of two holds that exclude each other the higher token
    /// wins. A loser is not brought back when the winner loses against a third hold. Permits are
    /// kept at any limit. Returns the losers.
    pub(crate) fn claim(
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
        // Nearly always the request is new and no request has the lock.
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

    /// Forgets a request, whether it holds or waits. Unknown ones are ignored.
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

    /// Forgets all requests of a process.
    #[cfg(test)]
    fn end_all(&mut self, process: ProcessId) {
        self.end_some(process, usize::MAX);
    }

    /// Forgets requests of a process, `most` of them at most. Returns how many.
    pub(crate) fn end_some(&mut self, process: ProcessId, most: usize) -> usize {
        let requests: Vec<RequestId> = self.requests_of(process).take(most).collect();
        for request in &requests {
            self.release((process, *request));
        }
        requests.len()
    }

    /// Whether a process has something here.
    pub(crate) fn has_part_of(&self, process: ProcessId) -> bool {
        self.parts.contains_key(&process)
    }

    /// How many tokens the next request takes that can be granted, if there is one.
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

    /// A hold is reduced: a share in place of its lock, or fewer permits, with the token that its
    /// holder has. Anything else is ignored.
    pub(crate) fn narrow(&mut self, key: RequestKey, to: &Want, has: Token) {
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

    /// How many others have a share of the same lock; `None`: this is no share.
    pub(crate) fn others_beside(&self, key: RequestKey) -> Option<usize> {
        let Some(TableRequest {
            entry: LockRequest { want: Want::Share(name), .. },
            state: TableRequestState::Holds { .. },
        }) = self.get(key)
        else {
            return None;
        };
        self.held.get(name).map(|used| used.len() - 1)
    }

    /// Turns the only share of a lock into the lock. A hold that is the lock already gets another
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

    /// The want of the request, if it holds.
    pub(crate) fn held_by(&self, key: RequestKey) -> Option<&Want> {
        let TableRequest { entry, state: TableRequestState::Holds { .. } } = self.get(key)? else {
            return None;
        };
        Some(&entry.want)
    }

    /// All requests, with the token of those that hold.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.all().map(|((process, id), request)| match request.state {
            TableRequestState::Holds { token, .. } => (process, id, Some(token)),
            TableRequestState::Waits { .. } => (process, id, None),
        })
    }

    /// All held locks, with their requests and tokens.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&LockName, ProcessId, RequestId, Token)> {
        self.all_held()
            .filter_map(|(name, key)| Some((name, key.0, key.1, self.token_of(key, Some(name))?)))
    }

    /// All waiting requests, with their tickets.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (ProcessId, RequestId, Ticket)> {
        self.all().filter_map(|((process, id), request)| match request.state {
            TableRequestState::Waits { ticket, .. } => Some((process, id, ticket)),
            TableRequestState::Holds { .. } => None,
        })
    }

    /// The requests of a process.
    pub(crate) fn requests_of(&self, process: ProcessId) -> impl Iterator<Item = RequestId> {
        self.parts.get(&process).into_iter().flat_map(|part| part.requests.keys())
    }

    /// The requests of a process from a number on.
    pub(crate) fn requests_from(
        &self,
        process: ProcessId,
        first: RequestId,
    ) -> impl Iterator<Item = RequestId> + use<'_> {
        self.parts
            .get(&process)
            .into_iter()
            .flat_map(move |part| part.requests.from(first).map(|(request, _)| request))
    }

    /// The last request of each member, or the last that waits.
    pub(crate) fn last_requests(&self, waits: bool) -> impl Iterator<Item = RequestKey> {
        let parts = self.parts.iter().filter(move |(_, part)| !waits || part.waits() > 0);
        parts.filter_map(move |(process, part)| {
            let counts =
                |one: &TableRequest| !waits || matches!(one.state, TableRequestState::Waits { .. });
            let last = part.requests.backwards().find(|(_, one)| counts(one));
            last.map(|(request, _)| (*process, request))
        })
    }

    /// Everything, for another grantor: holds, and waits in the order of the line.
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

    /// How many holds and how many waits each member has.
    pub(crate) fn shares(&self) -> BTreeMap<ProcessId, (usize, usize)> {
        self.parts.iter().map(|(&process, part)| (process, (part.holds, part.waits()))).collect()
    }

    /// The numbers of holds and waits. The cost grows with the number of members in the table.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.holds, self.parts.values().map(MemberRequests::waits).sum())
    }

    /// How many entries it has.
    pub(crate) fn size(&self) -> usize {
        let (holds, waits) = self.load();
        let opens: usize = self.parts.values().map(|part| part.opens).sum();
        let (names, line) =
            (self.held.len() + self.queues.len(), self.suspensions.len() + self.ready.len());
        holds + waits + opens + names + line + self.objects.len() + self.opening.len()
    }

    /// Whether no request holds or waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// The line.
impl Table {
    /// The next request, if it can be granted.
    fn first(&self) -> Option<QueueRank> {
        if let Some(rank) = self.opening.first() {
            return Some(*rank);
        }
        let gate = match self.suspended {
            Some((token, _)) => Some(Ticket::in_front(token, POSITION)),
            None => self.suspensions.first().map(|rank| rank.0),
        };
        if let Some(rank) = self.ready.first()
            && gate.is_none_or(|gate| rank.0 < gate)
        {
            return Some(*rank);
        }
        let rank = self.suspensions.first().filter(|_| self.suspended.is_none())?;
        let owner = self.get(rank.1)?.entry.owner;
        self.is_alone(rank.1.0, owner).then_some(*rank)
    }

    /// The ticket of a request that passes the first suspension; `None`: there is no suspension, or
    /// the request has no right or no room to pass.
    fn pass(&self, process: ProcessId, owner: OwnerId, suspends: bool) -> Option<Ticket> {
        let pass = self.passes + 1;
        let is_none = self.suspended.is_none() && self.suspensions.is_empty();
        if is_none || pass >= self.bounds.room || self.holds_of(process, owner) == 0 {
            return None;
        }
        if let Some((token, key)) = self.suspended
            && !suspends
        {
            // A request of the whole member is not one of the owner that has suspended the service.
            let by = self.get(key).map(|request| request.entry.owner);
            let may = owner != OwnerId(0) || by == Some(owner);
            return may.then(|| Ticket::in_front(token, pass));
        }
        let (Ticket { epoch, number }, _) = *self.suspensions.first()?;
        if number >> 32 >= self.bounds.blocks {
            return None;
        }
        let block = number & !POSITION;
        // A suspension that passes goes before those that passed already: they do not wait for it,
        // being of its owner.
        Some(Ticket {
            epoch,
            number: if suspends {
                block + POSITION - pass
            } else {
                block + self.bounds.room + pass
            },
        })
    }

    /// The ticket of an arriving request.
    fn arrive(&mut self, suspends: bool) -> Ticket {
        let next = self.arrivals.saturating_add(1);
        self.arrivals = match next >> 32 {
            block if block >= self.bounds.blocks => next,
            _ if suspends => next | POSITION,
            block if next & POSITION >= self.bounds.room => (block + 1) << 32,
            _ => next,
        };
        Ticket { epoch: self.epoch, number: self.arrivals }
    }

    /// Sees to it that a ticket which came from elsewhere is not dealt again.
    fn keep_clear_of(&mut self, ticket: Ticket) {
        if ticket.epoch == self.epoch {
            self.arrivals = self.arrivals.max(ticket.number);
        }
        let position = ticket.number & POSITION;
        let pass = if ticket.is_in_front() {
            position
        } else if position < 2 * self.bounds.room {
            position.saturating_sub(self.bounds.room)
        } else {
            POSITION - position
        };
        if pass < self.bounds.room {
            self.passes = self.passes.max(pass);
        }
    }

    /// Whether a suspension would wait for the first suspension that waits, and that suspension for
    /// it.
    fn deadlocks(&self, process: ProcessId, owner: OwnerId) -> bool {
        let Some(&(_, key)) = self.suspensions.first() else { return false };
        planted!(self.mutant, QueueDeadlock => return false);
        planted!(self.mutant, QueueOwnersDeadlock => if process == key.0 { return false });
        let Some(other) = self.get(key).map(|request| request.entry.owner) else { return false };
        let awaited = if process != key.0 {
            self.holds_of(process, owner)
        } else if other == OwnerId(0) || other == owner {
            0
        } else if owner == OwnerId(0) {
            self.holds_of(process, owner) - self.holds_of(process, other)
        } else {
            self.holds_of(process, owner)
        };
        awaited > 0 && (self.holds_of(key.0, other) > 0 || planted!(self.mutant, SuspectDeadlock))
    }

    fn stand(&mut self, key: RequestKey, entry: LockRequest, ticket: Ticket) {
        let (rank, want) = ((ticket, key), entry.want.clone());
        let missing = want.names().len() as u32;
        self.insert(
            key,
            TableRequest { entry, state: TableRequestState::Waits { ticket, missing } },
        );
        match &want {
            Want::Suspension => drop(self.suspensions.insert(rank)),
            Want::Open(_) => drop(self.opening.insert(rank)),
            _ => want.names().iter().for_each(|name| self.enter(name, rank, &want)),
        }
    }
}

impl MemberRequests {
    fn waits(&self) -> usize {
        self.requests.len() - self.holds - self.opens
    }

    /// One more of them holds, or has an object open. Returns whether it is a hold.
    fn count(&mut self, want: &Want, owner: OwnerId) -> bool {
        if want.opens() {
            self.opens += 1;
            return false;
        }
        self.holds += 1;
        if owner != OwnerId(0) {
            *self.owners.entry(owner).or_default() += 1;
        }
        true
    }
}

/// Names. A waiting request misses a name unless it is the first in the name's queue and fits
/// beside the name's holders.
impl Table {
    /// All held names, with the requests that hold them.
    fn all_held(&self) -> impl Iterator<Item = (&LockName, RequestKey)> {
        let all = self
            .held
            .iter()
            .flat_map(|(name, used)| self.holders(name, used).map(move |key| (name, key)));
        all.inspect(|_| touch())
    }

    /// A hold that is none of the owner's: that of the first name, or, behind very many names of
    /// the owner, one of another member. `None`: it is not found among so many.
    fn other_hold(&self, process: ProcessId, owner: OwnerId) -> Option<(&LockName, RequestKey)> {
        let first = self.all_held().take(SOUGHT).find(|(_, key)| !self.is_of(*key, process, owner));
        first.or_else(|| {
            let others =
                self.parts.iter().filter(|(other, part)| **other != process && part.holds > 0);
            let requests = others.flat_map(|(other, part)| {
                part.requests.iter().map(|(id, one)| ((*other, id), one))
            });
            let held = requests.take(SOUGHT).filter(|(_, one)| one.is_hold());
            held.filter_map(|(key, one)| Some((one.entry.want.names().first()?, key))).next()
        })
    }

    /// The requests that hold a name.
    pub(crate) fn holders_of(&self, name: &LockName) -> impl Iterator<Item = RequestKey> {
        self.held.get(name).into_iter().flat_map(move |used| self.holders(name, used))
    }

    /// The requests that hold a name in this way, in the order of their keys.
    fn holders(&self, name: &LockName, used: &Occupancy) -> impl Iterator<Item = RequestKey> {
        let (one, many) = match used {
            Occupancy::Lock(request, begins) => (self.holder(name, *request, *begins), None),
            Occupancy::Shares(keys) => (None, Some(&**keys)),
            Occupancy::Permits(permitted) => (None, Some(&permitted.keys)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }

    /// The request that holds the lock of this name. It has this number, and the number of its
    /// process begins so. A second such request hardly ever exists.
    fn holder(&self, name: &LockName, request: RequestId, begins: u32) -> Option<RequestKey> {
        let first = u128::from(begins) << 96;
        let mut alike = self.parts.range(ProcessId(first)..=ProcessId(first | u128::MAX >> 32));
        let has = |part: &MemberRequests| {
            part.requests.get(&request).is_some_and(|request| request.has_lock(name))
        };
        alike.find(|(_, part)| has(part)).map(|(process, _)| (*process, request))
    }

    fn head(&self, name: &LockName) -> Option<QueueRank> {
        self.queues.get(name).and_then(|queue| queue.first().copied())
    }

    /// Whether a want of a name may be held beside the name's present holds.
    fn fits(&self, name: &LockName, want: &Want) -> bool {
        let used = self.held.get(name);
        let is_beside = used.is_none_or(|used| used.is_beside(want));
        match (want, used) {
            (Want::Permits(_, permits), Some(Occupancy::Permits(permitted))) => {
                is_beside && permitted.sum + u64::from(permits.get()) <= self.limit(name).into()
            }
            (Want::Permits(_, permits), None) => permits.get() <= self.limit(name),
            _ => is_beside,
        }
    }

    /// Whether the first request in a queue fits; `None`: the queue is empty.
    fn head_fits(&self, name: &LockName) -> Option<(QueueRank, bool)> {
        let rank = self.head(name)?;
        Some((rank, self.get(rank.1).is_some_and(|request| self.fits(name, &request.entry.want))))
    }

    /// Changes the holds of a name, or its limit, and checks whether the first request in its queue
    /// fits now.
    fn reconsider<R>(&mut self, name: &LockName, change: impl FnOnce(&mut Table) -> R) -> R {
        if self.queues.is_empty() {
            return change(self);
        }
        let before = self.head_fits(name);
        let result = change(self);
        if let Some((rank, fitted)) = before {
            match (fitted, self.head_fits(name)) {
                (true, Some((_, false))) => self.misses_one(rank),
                (false, Some((_, true))) => self.misses_one_less(rank),
                _ => {}
            }
        }
        result
    }

    /// Returns whether no present hold of the name excludes this want; otherwise nothing changes.
    /// The limit does not matter here.
    fn occupy(&mut self, name: &LockName, key: RequestKey, want: &Want) -> bool {
        self.reconsider(name, |table| table.put(name, key, want))
    }

    fn vacate(&mut self, name: &LockName, key: RequestKey, want: &Want) {
        self.reconsider(name, |table| table.remove_use(name, key, want));
    }

    /// Replaces a request's hold of its names with another kind of hold.
    fn exchange(&mut self, key: RequestKey, from: &Want, to: &Want) {
        for name in from.names() {
            self.reconsider(name, |table| {
                table.remove_use(name, key, from);
                table.put(name, key, to)
            });
        }
    }

    /// Nearly always no request has the name.
    fn put(&mut self, name: &LockName, key: RequestKey, want: &Want) -> bool {
        let first = || match want {
            Want::Share(_) => Occupancy::Shares(Box::new(BTreeSet::from([key]))),
            Want::Permits(_, permits) => Occupancy::Permits(Box::new(PermitHolders {
                keys: BTreeSet::from([key]),
                sum: permits.get().into(),
            })),
            _ => Occupancy::Lock(key.1, beginning(key.0)),
        };
        self.held.put(name, first, |used| match (used, want) {
            (Occupancy::Shares(keys), Want::Share(_)) => keys.insert(key),
            (Occupancy::Permits(permitted), Want::Permits(_, permits)) => {
                permitted.sum += u64::from(permits.get());
                permitted.keys.insert(key)
            }
            _ => false,
        })
    }

    fn remove_use(&mut self, name: &LockName, key: RequestKey, want: &Want) {
        self.held.take(name, |used| match used {
            Occupancy::Shares(keys) => keys.remove(&key) && keys.is_empty(),
            Occupancy::Permits(permitted) => {
                permitted.sum -= u64::from(want.tokens());
                permitted.keys.remove(&key) && permitted.keys.is_empty()
            }
            Occupancy::Lock(..) => true,
        });
    }

    fn enter(&mut self, name: &LockName, rank: QueueRank, want: &Want) {
        let before = self.head_fits(name);
        self.queues.entry(name.clone()).or_default().insert(rank);
        if before.is_some_and(|(head, _)| head < rank) {
            return;
        }
        if let Some((head, true)) = before {
            self.misses_one(head);
        }
        if self.fits(name, want) {
            self.misses_one_less(rank);
        }
    }

    fn leave(&mut self, name: &LockName, rank: QueueRank) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let was_head = queue.first() == Some(&rank);
        queue.remove(&rank);
        if queue.is_empty() {
            self.queues.remove(name);
        } else if was_head && let Some((head, true)) = self.head_fits(name) {
            self.misses_one_less(head);
        }
    }

    fn misses_one(&mut self, rank: QueueRank) {
        if let Some(TableRequest { state: TableRequestState::Waits { missing, .. }, .. }) =
            self.get_mut(rank.1)
        {
            *missing += 1;
            self.ready.remove(&rank);
        }
    }

    fn misses_one_less(&mut self, rank: QueueRank) {
        if let Some(TableRequest { state: TableRequestState::Waits { missing, .. }, .. }) =
            self.get_mut(rank.1)
        {
            *missing -= 1;
            if *missing == 0 {
                self.ready.insert(rank);
            }
        }
    }
}

/// Requests and owners.
impl Table {
    fn get(&self, (process, id): RequestKey) -> Option<&TableRequest> {
        touch();
        self.parts.get(&process)?.requests.get(&id)
    }

    fn get_mut(&mut self, (process, id): RequestKey) -> Option<&mut TableRequest> {
        self.parts.get_mut(&process)?.requests.get_mut(&id)
    }

    fn all(&self) -> impl Iterator<Item = (RequestKey, &TableRequest)> {
        self.parts.iter().flat_map(|(&process, part)| {
            part.requests.iter().map(move |(id, request)| ((process, id), request))
        })
    }

    fn part(&mut self, process: ProcessId) -> &mut MemberRequests {
        self.parts.entry(process).or_insert_with(|| MemberRequests {
            requests: std::mem::take(&mut self.spare),
            ..MemberRequests::default()
        })
    }

    fn insert(&mut self, (process, id): RequestKey, request: TableRequest) {
        self.part(process).requests.insert(id, request);
    }

    fn insert_hold(&mut self, (process, id): RequestKey, request: TableRequest) {
        let part = self.part(process);
        let is_hold = part.count(&request.entry.want, request.entry.owner);
        part.requests.insert(id, request);
        self.holds += usize::from(is_hold);
    }

    fn count(&mut self, process: ProcessId, want: &Want, owner: OwnerId) {
        let is_hold = self.part(process).count(want, owner);
        self.holds += usize::from(is_hold);
    }

    fn remove(&mut self, (process, id): RequestKey) -> Option<TableRequest> {
        let part = self.parts.get_mut(&process)?;
        let request = part.requests.remove(&id)?;
        if let TableRequestState::Holds { .. } = request.state
            && request.entry.want.opens()
        {
            part.opens -= 1;
        } else if let TableRequestState::Holds { .. } = request.state {
            part.holds -= 1;
            self.holds -= 1;
            if let Some(count) = part.owners.get_mut(&request.entry.owner) {
                *count -= 1;
                if *count == 0 {
                    part.owners.remove(&request.entry.owner);
                }
            }
        }
        if part.requests.is_empty()
            && let Some(part) = self.parts.remove(&process)
        {
            self.spare = part.requests;
        }
        Some(request)
    }

    /// How many holds an owner has. Owner 0 is the whole member.
    pub(crate) fn holds_of(&self, process: ProcessId, owner: OwnerId) -> usize {
        let Some(part) = self.parts.get(&process) else { return 0 };
        if owner == OwnerId(0) {
            part.holds
        } else {
            part.owners.get(&owner).copied().unwrap_or_default()
        }
    }

    /// Whether no other owner holds anything.
    fn is_alone(&self, process: ProcessId, owner: OwnerId) -> bool {
        self.holds == self.holds_of(process, owner)
    }

    fn is_of(&self, key: RequestKey, process: ProcessId, owner: OwnerId) -> bool {
        key.0 == process
            && (owner == OwnerId(0)
                || self.get(key).is_some_and(|request| request.entry.owner == owner))
    }

    /// The token with which a request holds a lock, or the suspension.
    fn token_of(&self, key: RequestKey, name: Option<&LockName>) -> Option<Token> {
        let TableRequest { entry, state: TableRequestState::Holds { token, .. } } =
            self.get(key)?
        else {
            return None;
        };
        let index = name.and_then(|name| entry.want.names().binary_search(name).ok());
        Some(nth(*token, index.unwrap_or_default()))
    }
}

/// The first 32 bits of a process's number.
fn beginning(process: ProcessId) -> u32 {
    (process.0 >> 96) as u32
}

/// The token of a batch's lock at that index among its names.
fn nth(token: Token, index: usize) -> Token {
    token.plus(index as u64)
}

#[cfg(test)]
mod tests;
