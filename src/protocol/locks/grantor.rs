//! The grantor of one service: it grants the service's locks during one epoch, in the order of the
//! requests.
//!
//! `docs/protocol/transfer.md` describes its states and the transitions between them (`phase.rs`).
//! `recovery.rs` rebuilds a table from reports, and `transfer.rs` moves it to the next grantor.
//! `revalidation.rs` finds the changes that a transferred table lacks.
//!
//! - `one_grantor_per_epoch`: the elder deals each epoch once.
//! - `tokens_rise`: tokens come from the elder's ranges in order, and a later epoch's ranges were
//!   dealt later.
//! - `recovered_table_is_the_union`: no name is granted before every member has reported its part
//!   of the names or has left the view.
//! - `nothing_lost_in_transfer`: a table is transferred whole, once, by a grantor that grants
//!   nothing afterwards.

use super::table::{Contents, EntryStatus, Table};
use crate::protocol::cluster::view::View;
use crate::protocol::content::{Content, LastWrite};
use crate::protocol::content::{Edit, Edited};
use crate::protocol::event::{Event, GrantorLoad, GrantorState, LockStatus, Output};
use crate::protocol::id::{
    Epoch, LockName, ProcessId, RequestId, ServiceName, Ticket, Token, Want,
};
use crate::protocol::message::{
    Blocked, ClientMessage, HoldReport, LockRequest, Message, ObjectReply, Origin, Query,
    QueryReply, Refusal, RegistryMessage, TokenRange, WaitReport,
};
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use kept_holds::KeptHolds;
use phase::{EarlyMessages, GrantorPhase, PassedTable};
use revalidation_answers::RevalidationAnswers;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use table_copying::{CopyOffer, TableCopying};
use token_pool::TokenPool;

mod copying;
mod early_waits;
mod kept_holds;
mod phase;
#[cfg(elderlock_mutants)]
mod planted;
mod probing;
mod recalls;
mod received_request;
mod recovery;
mod revalidation;
mod revalidation_answers;
mod table_copying;
mod token_pool;
mod transfer;

pub(crate) use received_request::ReceivedRequest;

/// The last state of a grantor before it acted, and the time at which that state began. `None`: the
/// grantor acted as soon as it was named.
///
/// The path serves measurements and is not part of the grantor's protocol state. Two grantors that
/// differ only in it behave alike. So they compare equal, and a search of all states counts them as
/// one.
#[derive(Clone, Copy, Debug)]
struct ActivationPath(Option<(GrantorState, Time)>);

impl PartialEq for ActivationPath {
    fn eq(&self, _: &ActivationPath) -> bool {
        true
    }
}

impl Eq for ActivationPath {}

impl Hash for ActivationPath {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A grantor in one epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Grantor {
    service: ServiceName,
    epoch: Epoch,
    activation_path: ActivationPath,
    tokens: TokenPool,
    table: Table,
    phase: GrantorPhase,
    /// Members that have not answered the revalidation yet. They have something in the transferred
    /// table, or had not answered an earlier recovery.
    revalidations: BTreeMap<ProcessId, RevalidationAnswers>,
    /// Members that had not answered a recovery when a predecessor sent its table instead. Their
    /// next report answers the recovery, so it is older than the revalidation. For each, whether it
    /// has begun to report by part.
    outdated_reporters: BTreeMap<ProcessId, bool>,
    /// Predecessors whose tables exceeded the bounds.
    refused_tables: BTreeSet<ProcessId>,
    /// The member of the latest earlier grantor that this member knew of, if any. `Some(None)`: it
    /// knew of an earlier grantor, but not of its member.
    last_known: Option<Option<ProcessId>>,
    /// Members that have left the view, but whose requests here have not all ended.
    departed: BTreeSet<ProcessId>,
    /// Whether a later step continues the work of this one.
    is_unfinished: bool,
    /// The members that have declined to take over. `Some` while this member leaves, or after it
    /// destroyed the service. See `transfer.rs`.
    unwilling_successors: Option<BTreeSet<ProcessId>>,
    /// The holds that members keep after their release.
    kept: KeptHolds,
    /// The copy of the table that another member takes.
    copying: Option<TableCopying>,
    /// The copy that was offered to a successor.
    offer: Option<CopyOffer>,
}

impl Grantor {
    /// A grantor that has just been named, without a copy of its predecessor's table.
    #[cfg(test)]
    pub(crate) fn new(
        service: ServiceName,
        range: TokenRange,
        origin: Origin,
        view: &View,
        cx: &mut StepContext,
    ) -> Grantor {
        Grantor::named(service, range, (origin, None), view, cx)
    }

    /// A grantor that has just been named. `copy`: the number of its whole copy of the
    /// predecessor's table.
    pub(crate) fn named(
        service: ServiceName,
        range: TokenRange,
        (origin, copy): (Origin, Option<u64>),
        view: &View,
        cx: &mut StepContext,
    ) -> Grantor {
        let epoch = Epoch(range.first);
        let tokens = TokenPool::new(range, cx.now);
        planted!(=> let tokens = planted::tokens(tokens, origin, view, cx));
        let mut grantor = Grantor {
            service,
            epoch,
            activation_path: ActivationPath(None),
            tokens,
            table: Table::new(epoch).within(cx),
            phase: GrantorPhase::Acting,
            revalidations: BTreeMap::new(),
            outdated_reporters: BTreeMap::new(),
            refused_tables: BTreeSet::new(),
            last_known: None,
            departed: BTreeSet::new(),
            is_unfinished: false,
            unwilling_successors: None,
            kept: KeptHolds::default(),
            copying: None,
            offer: None,
        };
        if origin == Origin::Free {
            cx.out.push(Output::Event(Event::BecameGrantor {
                service: grantor.service.clone(),
                epoch,
            }));
            cx.send_elder(RegistryMessage::Acts { service: grantor.service.clone(), epoch });
            return grantor;
        }
        match origin {
            Origin::Predecessor(source) if view.contains(source) => {
                grantor.receive((EarlyMessages::default(), source), copy, cx);
            }
            _ => grantor.recover(EarlyMessages::default(), view, cx),
        }
        grantor
    }

    /// Records the member of the latest earlier grantor that this member knew of.
    pub(crate) fn after(self, last_known: Option<Option<ProcessId>>) -> Grantor {
        Grantor { last_known, ..self }
    }

    /// Reports the end of this epoch to the application.
    pub(crate) fn tell_end(&self, cx: &mut StepContext) {
        let (service, epoch) = (self.service.clone(), self.epoch);
        let event = match self.phase {
            GrantorPhase::Acting => Event::NoLongerGrantor { service, epoch },
            _ => Event::GrantorAborted { service, epoch },
        };
        cx.out.push(Output::Event(event));
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn state(&self) -> GrantorState {
        self.phase.state()
    }

    /// The number of open parts, if the grantor recovers.
    pub(crate) fn open_parts(&self) -> Option<u16> {
        self.phase.open_parts()
    }

    pub(crate) fn is_acting(&self) -> bool {
        matches!(self.phase, GrantorPhase::Acting)
    }

    /// The message that tells a waiting request its position; `None` if the request does not wait.
    pub(crate) fn queued_message(&self, key: (ProcessId, RequestId)) -> Option<Message> {
        let Some(EntryStatus::Waits(ticket)) = self.table.entry_status(key) else { return None };
        let (service, epoch, request) = (self.service.clone(), self.epoch, key.1);
        Some(Message::Client(ClientMessage::Queued { service, epoch, request, ticket }))
    }

    /// Returns whether the request waits at this position.
    pub(crate) fn waits_at(&self, key: (ProcessId, RequestId), ticket: Ticket) -> bool {
        self.table.entry_status(key) == Some(EntryStatus::Waits(ticket))
    }

    /// Returns the grantor's load, if it acts.
    pub(crate) fn load(&self) -> Option<GrantorLoad> {
        let (holds, waits) = self.table.load();
        self.is_acting().then_some(GrantorLoad {
            epoch: self.epoch,
            holds,
            waits,
            way: self.activation_path.0,
        })
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.table.requests()
    }

    pub(crate) fn contents(&self, now: Time) -> Contents {
        self.table.export(now)
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (&LockName, ProcessId, RequestId, Token)> {
        self.table.held()
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (&LockName, &Content)> {
        self.table.objects()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = (ProcessId, RequestId, Ticket)> {
        self.table.waiting()
    }

    pub(crate) fn status(
        &self,
        now: Time,
        after: Option<Option<&LockName>>,
        most: usize,
    ) -> (Vec<LockStatus>, bool) {
        self.table.status(now, after, most)
    }

    /// The length of the list.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn listed(&self) -> usize {
        self.table.listed()
    }

    /// The number of locks and requests in the table, and of the entries that early messages and
    /// revalidation answers hold.
    pub(crate) fn size(&self) -> usize {
        let early = self.phase.early().map_or(0, EarlyMessages::len);
        let awaited = self.awaiting().count() + self.outdated_reporters.len();
        let reported: usize = self.revalidations.values().map(RevalidationAnswers::len).sum();
        self.table.size() + early + awaited + reported
    }

    /// The predecessor that may have the table, if this grantor waits for it.
    pub(crate) fn source(&self) -> Option<ProcessId> {
        self.phase.source()
    }

    /// The members whose answers are missing.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.phase.awaiting().chain(self.revalidations.keys().copied())
    }

    /// Handles a request for names that are not open yet: it waits here, or is sent on.
    fn put_off(&mut self, asked: ReceivedRequest, cx: &mut StepContext) {
        let has_open_parts = self.phase.may_grant();
        if let Some(next_turk) = self.phase.next_turk() {
            self.send_on(&asked, Some(next_turk), cx);
        } else if asked.only_if_free {
            self.refuse(&asked, Refusal::Undecided, cx);
        } else if has_open_parts && asked.lock.want != Want::Suspension {
            self.await_parts(asked, cx);
        } else if let Some(early) = self.phase.early_mut()
            && early.parked.has_room(asked.lock.entry_weight(), cx.limits.parked)
        {
            early.park(asked);
        } else {
            self.send_on(&asked, None, cx);
        }
    }

    /// Handles a member's request for locks.
    pub(crate) fn on_request_lock(&mut self, asked: ReceivedRequest, cx: &mut StepContext) {
        let key = (asked.from, asked.request);
        if !self.phase.is_open_to(&asked.lock.want) && !planted!(cx.mutant, ServeWhileRecovering) {
            return self.put_off(asked, cx);
        }
        if let Some(answers) = self.revalidations.get_mut(&asked.from) {
            answers.note_reported(asked.request, cx.limits.member_bytes());
            // Holds of this member in the transferred table may be over, and would let its request
            // pass a suspension. So the member asks again after its answer to the revalidation.
            let may_pass = self.table.has_suspension()
                && self.table.holds_of(asked.from, asked.lock.owner) > 0;
            if may_pass && self.table.entry_status(key).is_none() {
                return self.send_on(&asked, None, cx);
            }
        }
        match self.table.entry_status(key) {
            // The member repeats a request if the first answer was for an epoch that it no longer
            // trusts.
            Some(EntryStatus::Holds(token)) => return self.tell_grant(key, token, cx),
            Some(EntryStatus::Waits(ticket)) => return self.tell_queued(key, ticket, cx),
            // This member's own lock client stays within this bound.
            None if !self.has_room(asked.from, cx) => return self.send_on(&asked, None, cx),
            None => {}
        }
        let ReceivedRequest { from, request, lock: entry, only_if_free, keep } = asked;
        planted!(=> self.plant_deadlock(from, cx));
        let free = self.table.is_free(from, &entry, cx.now);
        planted!(=> let (entry, free) = self.plant_ask(entry, free, cx));
        let may_grant = cx.leased || planted!(cx.mutant, GrantWhileSuspended);
        match free {
            Ok(()) if may_grant && self.tokens.has(entry.want.tokens()) => {
                let kept = self.tokens_to_keep((from, keep), &entry.want, cx);
                let carved = if planted!(cx.mutant, CarveNothing) { 0 } else { kept };
                if let Some(token) = self.tokens.take(entry.want.tokens() + carved) {
                    let is_limit = entry.want.opens();
                    self.table.hold(key, entry, token, cx.now);
                    if kept > 0 {
                        self.note_kept(key);
                    }
                    self.tell_grant_to_keep(key, (token, kept), cx);
                    self.feed_copy(cx);
                    if is_limit {
                        // A member may have reported waits for permits without their object.
                        self.grant(cx);
                    }
                }
            }
            // Without a lease this grantor knows nothing for sure. Holds of its table may be over,
            // and locks that it has as free may be granted elsewhere.
            _ if only_if_free && !cx.leased => {
                return self.tell_refusal((from, request), Refusal::Undecided, cx);
            }
            Err(_) if only_if_free && self.kept.is_in_use() && self.recalls_for_try(&entry, cx) => {
                let lock = entry;
                let asked = ReceivedRequest { from, request, lock, only_if_free, keep };
                return self.put_off_try(asked, cx);
            }
            Err(refusal)
                if only_if_free || matches!(refusal, Refusal::Deadlock | Refusal::NotOpen) =>
            {
                return self.tell_refusal((from, request), refusal, cx);
            }
            // A try never enters the queue. Reports leave tries out, so a later grantor could not
            // tell a queued try from a request that has ended.
            Ok(()) if only_if_free => {
                self.tell_refusal((from, request), Refusal::Undecided, cx);
                return self.request_tokens(entry.want.tokens(), cx);
            }
            _ => match self.queue(key, entry, cx) {
                Ok(ticket) => {
                    self.tell_queued(key, ticket, cx);
                    planted!(=> self.plant_queue(key, cx));
                    self.grant(cx); // a request that passes a suspension may go first at once
                }
                Err(refusal) => return self.tell_refusal((from, request), refusal, cx),
            },
        }
        self.request_tokens(0, cx);
    }

    /// Grants a free lock, or a share of one, to this grantor's own member if no other member is
    /// concerned. No message is sent, and nothing becomes due. The table decides whether the lock
    /// is free and records the hold, as in [`on_request_lock`](Grantor::on_request_lock).
    pub(crate) fn grant_at_once(
        &mut self,
        (process, request): (ProcessId, RequestId),
        entry: impl FnOnce() -> LockRequest,
        now: Time,
    ) -> Option<Token> {
        if !self.is_at_rest() || self.tokens.spare() == 0 || self.is_copy_due() {
            return None;
        }
        let entry = entry();
        self.table.is_free(process, &entry, now).ok()?;
        let token = self.tokens.take(1)?;
        self.table.hold((process, request), entry, token, now);
        Some(token)
    }

    /// The tokens with which this grantor's own member may take the lock without a step, see
    /// [`Node::offer`](crate::protocol::Node::offer).
    pub(crate) fn offer(&self, name: &LockName) -> Option<TokenRange> {
        let others = self.tokens.spare().checked_sub(1)?;
        let first = self.tokens.ranges.front()?.first;
        let last = first.plus(others);
        (self.is_at_rest() && !self.is_copy_due() && self.table.is_clear(name))
            .then_some(TokenRange { first, last })
    }

    /// Removes the number of offered tokens that were used.
    pub(crate) fn spend(&mut self, count: u64) {
        // The count also includes threads that found no token left.
        let count = u32::try_from(count.min(self.tokens.spare())).unwrap_or(u32::MAX);
        if count > 0 {
            self.tokens.take(count);
        }
    }

    /// Records that this grantor's own member took a lock that was offered to it.
    pub(crate) fn hold(
        &mut self,
        key: (ProcessId, RequestId),
        entry: LockRequest,
        token: Token,
        since: Time,
    ) {
        debug_assert!(
            self.is_at_rest() && entry.want.names().iter().all(|name| self.table.is_clear(name))
        );
        self.table.hold(key, entry, token, since);
    }

    /// Ends a hold of a lock that no request waits for. Returns whether the hold was ended.
    pub(crate) fn end_at_once(&mut self, key: (ProcessId, RequestId), name: &LockName) -> bool {
        let is_quiet = self.is_at_rest() && !self.is_copy_due() && self.table.is_unwanted(name);
        if is_quiet {
            self.table.release(key);
        }
        is_quiet
    }

    /// Returns whether the table may have one more request of the member.
    fn has_room(&self, process: ProcessId, cx: &StepContext) -> bool {
        planted!(cx.mutant, CountPresentValues => return self.has_room_now(process, cx));
        self.table.bytes_of(process) < cx.limits.member_bytes()
    }

    /// Returns whether the grantor acts, misses no member's answer, and is not about to end.
    fn is_at_rest(&self) -> bool {
        self.is_acting() && self.revalidations.is_empty() && self.unwilling_successors.is_none()
    }

    /// Handles the end of a request.
    pub(crate) fn on_release(&mut self, from: ProcessId, request: RequestId, cx: &mut StepContext) {
        let key = (from, request);
        if let Some(early) = self.phase.early_mut()
            && !planted!(cx.mutant, ForgetWhatEnded)
        {
            early.note_over(key, cx.limits.member_bytes());
            early.forget_request(key);
        }
        self.table.release(key);
        self.kept.drop_try(key);
        self.end_kept(key, cx);
        self.grant(cx);
    }

    /// Handles the reduction of a hold. A hold that is not in the table yet will be reported in its
    /// reduced form.
    pub(crate) fn on_reduce(
        &mut self,
        key: (ProcessId, RequestId),
        want: &Want,
        token: Token,
        cx: &mut StepContext,
    ) {
        planted!(=> let Some(want) = &self.plant_reduce(key, want, cx) else { return });
        self.table.reduce(key, want, token);
        self.grant(cx);
    }

    /// Handles the upgrade of a share to the lock.
    pub(crate) fn on_upgrade(
        &mut self,
        from: ProcessId,
        request: RequestId,
        hold: RequestId,
        cx: &mut StepContext,
    ) {
        let key = (from, hold);
        planted!(=> self.plant_upgrade(key, cx));
        // A kept share may have no user: its member then releases it. Otherwise the member says
        // which requests use it.
        let awaits_recall = self.is_acting() && self.recalls_beside(key, cx);
        let refusal = match (
            self.table.held_by(key),
            self.table.entry_status(key),
            self.table.others_beside(key),
        ) {
            _ if !self.is_acting() || awaits_recall => Refusal::Undecided,
            // The member has repeated its request.
            (Some(Want::Lock(_)), Some(EntryStatus::Holds(token)), _) if self.is_own(token) => {
                return self.tell_upgraded((from, request), token, cx);
            }
            (_, _, Some(others @ 1..)) => Refusal::Shared(others as u64),
            // The predecessor may have granted the upgrade without the holder's knowledge. A token
            // of this epoch keeps the holder's older report from making the hold a share again.
            (Some(Want::Lock(_) | Want::Share(_)), ..) if cx.leased => match self.tokens.take(1) {
                Some(token) => {
                    planted!(=> let token = self.plant_token(key, token, cx));
                    self.table.upgrade(key, token);
                    self.tell_upgraded((from, request), token, cx);
                    return self.request_tokens(0, cx);
                }
                None => Refusal::Undecided,
            },
            _ => Refusal::Undecided,
        };
        self.tell_refusal((from, request), refusal, cx);
    }

    fn tell_upgraded(
        &self,
        (process, request): (ProcessId, RequestId),
        token: Token,
        cx: &mut StepContext,
    ) {
        cx.send(
            process,
            ClientMessage::Upgraded {
                service: self.service.clone(),
                epoch: self.epoch,
                request,
                token,
            },
        );
    }

    /// Returns whether the token belongs to this epoch.
    fn is_own(&self, token: Token) -> bool {
        token > self.epoch.0
    }

    /// Handles a member's write into an object.
    pub(crate) fn on_write(
        &mut self,
        key: (ProcessId, RequestId),
        name: &LockName,
        edit: &Edit,
        cx: &mut StepContext,
    ) {
        if !self.is_acting() {
            return self.tell_refusal(key, Refusal::Undecided, cx);
        }
        let is_open = self.table.is_open(name, key.0);
        let Some(content) = self.table.content(name).filter(|_| is_open) else {
            return self.tell_refusal(key, Refusal::NotOpen, cx);
        };
        if let Some(&LastWrite { version, number, .. }) = content
            .writes
            .get(&key.0)
            .filter(|last| last.request == key.1 && !planted!(cx.mutant, WriteTwice))
            && !(number.is_some() && planted!(cx.mutant, StepTwice))
        {
            // The member repeats a write if the first answer was lost with its grantor.
            let answers = Some((key.1, ObjectReply::Written { version, number }));
            return self.tell_value(key.0, name, answers, cx);
        }
        let edited = edit.apply(content);
        planted!(=> let edited = planted::edit(edit, content, cx).or(edited));
        let Some(Edited { value, number }) = edited else {
            return self.tell_value(key.0, name, Some((key.1, ObjectReply::Unwritten)), cx);
        };
        let Some(version) = cx.leased.then(|| self.tokens.take(1)).flatten() else {
            return self.tell_refusal(key, Refusal::Undecided, cx);
        };
        let (process, request) = key;
        self.table.write(process, name, value, LastWrite { request, version, number });
        self.tell_all(name, Some((key, ObjectReply::Written { version, number })), cx);
        self.grant(cx); // the object may be a limit of permits
    }

    /// Sends an object's content to each member that has it open.
    fn tell_all(
        &self,
        name: &LockName,
        answers: Option<((ProcessId, RequestId), ObjectReply)>,
        cx: &mut StepContext,
    ) {
        for process in self.table.openers(name) {
            let answers = answers.filter(|((writer, _), _)| *writer == process);
            planted!(=> if answers.is_none() && self.plant_silence(cx) { continue });
            self.tell_value(process, name, answers.map(|((_, request), told)| (request, told)), cx);
        }
    }

    fn tell_value(
        &self,
        to: ProcessId,
        name: &LockName,
        answers: Option<(RequestId, ObjectReply)>,
        cx: &mut StepContext,
    ) {
        let Some(content) = self.table.content(name).cloned().map(Box::new) else { return };
        let (service, epoch, name) = (self.service.clone(), self.epoch, name.clone());
        cx.send(to, ClientMessage::Value { service, epoch, name, content, answers });
    }

    /// Returns `Ok` if no request that the member made before `request` is left here: with
    /// `request` it gave all of them up. Otherwise returns the process that can tell; `None`: this
    /// grantor, later. The release of a reported request may have gone to a younger grantor that
    /// never acted. The member is then told that the request is still here.
    pub(crate) fn confirms_destruction(
        &self,
        from: ProcessId,
        request: RequestId,
    ) -> Result<(), Option<ProcessId>> {
        // Requests end in the order of their numbers.
        let has_more = self.table.requests_of(from).next().is_some_and(|one| one < request);
        if !self.is_acting() {
            // The predecessor may still act.
            return Err(self.phase.next_turk().map(|(next_turk, _)| next_turk));
        }
        if self.revalidations.contains_key(&from) || has_more { Err(None) } else { Ok(()) }
    }

    /// Handles a member's query of the table.
    pub(crate) fn on_query(
        &mut self,
        from: ProcessId,
        request: RequestId,
        at: &Query,
        cx: &mut StepContext,
    ) {
        // Without a lease, other grantors may have granted locks that are free in this table.
        let leased = cx.leased || planted!(cx.mutant, SeeWithoutLease);
        // Only the predecessor may know that the member has ended some of its requests meanwhile.
        let asked = match at {
            Query::Position(_) => Some(from),
            Query::Blockers(Blocked::Request(process, _)) => Some(*process),
            _ => None,
        };
        let is_heard = asked.is_none_or(|process| !self.revalidations.contains_key(&process));
        // Recalled members say which requests use their kept locks.
        let is_heard = is_heard && !self.recall_for(from, at, cx);
        let knows = self.is_acting() && leased && is_heard || planted!(cx.mutant, SeeBeforeActing);
        let seen = Some(at).filter(|_| knows).map(|at| self.table.answer(from, at, cx.now));
        let seen = seen.filter(|seen| !self.may_tell_of_place(seen, cx));
        let seen = seen.unwrap_or(QueryReply::Undecided);
        planted!(=> let seen = planted::reply(seen, cx));
        cx.send(
            from,
            ClientMessage::QueryReply {
                service: self.service.clone(),
                request,
                seen: Box::new(seen),
            },
        );
    }

    /// Grants the waiting requests that can be granted, at most as many as one step may. Nothing is
    /// granted without the member's lease, or without tokens.
    pub(crate) fn grant(&mut self, cx: &mut StepContext) {
        if !self.phase.may_grant()
            || (!cx.leased && !planted!(cx.mutant, GrantWhileSuspended))
            || self.is_unfinished
        {
            return;
        }
        self.feed_copy(cx);
        let mut left = cx.limits.slice;
        while let Some(count) = self.table.next() {
            if left == 0 {
                self.leave_unfinished(cx);
                break;
            }
            left -= 1;
            let Some(token) = self.tokens.take(count) else { break };
            if let Some(key) = self.table.grant_next(token, cx.now) {
                self.tell_grant(key, token, cx);
            }
        }
        self.request_tokens(0, cx);
    }

    /// Continues the work that an earlier step left.
    pub(crate) fn go_on(&mut self, cx: &mut StepContext) {
        self.is_unfinished = false;
        self.end_departed(cx);
        self.grant(cx);
        self.finish_recovery(cx);
    }

    fn leave_unfinished(&mut self, cx: &mut StepContext) {
        if !std::mem::replace(&mut self.is_unfinished, true) {
            cx.unfinished.push(self.service.clone());
        }
    }

    /// Ends requests of members that have left the view, at most as many as one step may. Until
    /// then these requests exclude others like those of a living member.
    fn end_departed(&mut self, cx: &mut StepContext) {
        let mut left = cx.limits.slice as usize;
        while let Some(&process) = self.departed.first() {
            left -= self.table.end_some(process, left);
            if self.table.has_part_of(process) {
                return self.leave_unfinished(cx);
            }
            self.departed.pop_first();
        }
    }

    /// Handles tokens that the elder dealt. A range of an earlier tenure is ignored if another
    /// elder has dealt higher tokens since: those may be used up already.
    pub(crate) fn on_tokens(&mut self, range: TokenRange, cx: &mut StepContext) {
        self.tokens.asked = false;
        if range.first > self.tokens.newest || planted!(cx.mutant, TakeOlderRange) {
            self.tokens.add(range, cx.now);
            let (service, epoch, first) = (self.service.clone(), self.epoch, range.first);
            cx.out.push(Output::Event(Event::Supplied { service, epoch, first }));
        }
        self.grant(cx);
    }

    /// Asks for tokens again if needed: a new elder may not know that the former one was asked.
    pub(crate) fn on_new_elder(&mut self, cx: &mut StepContext) {
        self.tokens.asked = false;
        self.request_tokens(0, cx);
    }

    /// Handles a new view. The requests of members that left end, and their reports are no longer
    /// awaited. A predecessor that still acts may have granted something to members that joined, so
    /// a recovering grantor asks them too.
    pub(crate) fn on_view(
        &mut self,
        view: &View,
        departed: &[ProcessId],
        joined: &[ProcessId],
        cx: &mut StepContext,
    ) {
        self.departed.extend(departed.iter().filter(|process| self.table.has_part_of(**process)));
        self.end_departed(cx);
        planted!(cx.mutant, FreeGhosts => self.free_ghosts(view));
        self.kept.retain(|process| view.contains(process));
        self.keep_copying(view);
        self.revalidations.retain(|process, _| view.contains(*process));
        self.outdated_reporters.retain(|process, _| view.contains(*process));
        self.refused_tables.retain(|process| view.contains(*process));
        if let Some(early) = self.phase.early_mut()
            && !departed.is_empty()
            && !planted!(cx.mutant, KeepWordOfTheGone)
        {
            early.keep_members(|process| view.contains(process));
            departed.iter().for_each(|process| early.forget(*process));
        }
        if let GrantorPhase::Recovering { awaiting, .. } = &mut self.phase {
            awaiting.retain(|process, _| view.contains(*process));
            planted!(cx.mutant, AwaitNoGhosts => planted::await_no_ghosts(awaiting, view));
            let joined = if planted!(cx.mutant, AskNoJoiners) { &[] } else { joined };
            let complete = if planted!(cx.mutant, OpenBeforeJoiners) { u16::MAX } else { 0 };
            awaiting.extend(joined.iter().map(|process| (*process, complete)));
            joined.iter().for_each(|process| self.ask_for_report(*process, cx));
            self.finish_recovery(cx);
        } else if self.phase.source().is_some_and(|source| !view.contains(source))
            && !planted!(cx.mutant, WaitForTheGone)
        {
            self.lose_source(view, cx);
        }
        self.grant(cx);
    }

    /// Begins to act. `is_transferred`: whether the whole table came from another grantor.
    fn begin(&mut self, mut early: EarlyMessages, is_transferred: bool, cx: &mut StepContext) {
        let (service, epoch) = (self.service.clone(), self.epoch);
        cx.out.push(Output::Event(Event::BecameGrantor { service, epoch }));
        cx.send_elder(RegistryMessage::Acts { service: self.service.clone(), epoch: self.epoch });
        self.table.drop_unopened();
        if !is_transferred {
            // Not every opener has seen the highest version, and none knows whether a higher one
            // existed.
            self.table.objects().for_each(|(name, _)| self.tell_all(name, None, cx));
        }
        for (key, holds) in early.take_uses() {
            self.on_keep_in_use(key, holds, cx);
        }
        self.grant(cx);
        for asked in std::mem::take(&mut early.parked) {
            if !early.is_over((asked.from, asked.request)) {
                self.on_request_lock(asked, cx);
            }
        }
    }

    /// Asks the elder for tokens when they run low. `wanted`: the number of tokens in a row that a
    /// refused request needs.
    fn request_tokens(&mut self, wanted: u32, cx: &mut StepContext) {
        // The first waiting request may need more tokens in a row than are left.
        let wanted = self.table.next().unwrap_or(0).max(wanted);
        if let Some(count) = self.tokens.ask(wanted, cx) {
            cx.send_elder(RegistryMessage::MoreTokens {
                service: self.service.clone(),
                epoch: self.epoch,
                count,
            });
        }
    }

    /// Tells the requester to ask elsewhere.
    fn send_on(
        &self,
        asked: &ReceivedRequest,
        instead: Option<(ProcessId, Epoch)>,
        cx: &mut StepContext,
    ) {
        let (service, epoch, request) = (self.service.clone(), self.epoch, asked.request);
        cx.send(asked.from, ClientMessage::NotGrantor { service, epoch, request, instead });
    }

    fn refuse(&self, asked: &ReceivedRequest, refusal: Refusal, cx: &mut StepContext) {
        self.tell_refusal((asked.from, asked.request), refusal, cx);
    }

    fn tell_refusal(
        &self,
        (process, request): (ProcessId, RequestId),
        refusal: Refusal,
        cx: &mut StepContext,
    ) {
        planted!(cx.mutant, DeadlockInSilence => if refusal == Refusal::Deadlock { return });
        let (service, epoch, refusal) = (self.service.clone(), self.epoch, Box::new(refusal));
        cx.send(process, ClientMessage::Refuse { service, epoch, request, refusal });
    }

    fn tell_grant(&self, key: (ProcessId, RequestId), token: Token, cx: &mut StepContext) {
        self.tell_grant_to_keep(key, (token, 0), cx);
    }

    fn tell_grant_to_keep(
        &self,
        key @ (process, request): (ProcessId, RequestId),
        (token, kept): (Token, u32),
        cx: &mut StepContext,
    ) {
        if let Some(Want::Open(opening)) = self.table.held_by(key) {
            return self.tell_value(
                process,
                opening.name(),
                Some((request, ObjectReply::Opened(token))),
                cx,
            );
        }
        cx.send(
            process,
            ClientMessage::Grant {
                service: self.service.clone(),
                epoch: self.epoch,
                request,
                token,
                kept,
            },
        );
    }

    fn tell_queued(
        &self,
        (process, request): (ProcessId, RequestId),
        ticket: Ticket,
        cx: &mut StepContext,
    ) {
        cx.send(
            process,
            ClientMessage::Queued {
                service: self.service.clone(),
                epoch: self.epoch,
                request,
                ticket,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::DefaultHasher;

    #[test]
    fn grantors_that_differ_only_in_their_activation_path_are_equal() {
        let print = |way: ActivationPath| {
            let mut hasher = DefaultHasher::new();
            (way, 7).hash(&mut hasher);
            hasher.finish()
        };
        let ways =
            [ActivationPath(None), ActivationPath(Some((GrantorState::Recovering, Time::ZERO)))];
        assert_eq!(ways[0], ways[1]);
        assert_eq!(print(ways[0]), print(ways[1]));
    }
}
