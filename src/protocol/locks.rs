//! Locks: the elder's registry of services, the grantors with their tables, and the lock client.
//!
//! [`Locks`] is the part of a member for locks. It passes each message to the role that handles it,
//! and knows the membership only by a [`StepContext`]. `cluster.rs` has the membership.

mod arrivals;
pub(super) mod client;
mod commands;
mod copies;
pub(super) mod dealer;
mod dispatch;
mod early_requests;
pub(super) mod grantor;
mod handovers;
pub(super) mod name_part;
#[cfg(elderlock_mutants)]
mod planted;
pub(super) mod registry;
mod routing;
mod status;
pub(super) mod table;
mod table_copies;

use super::cluster::view::View;
use super::event::{Command, GrantorState, LostReason, Outcome, ServiceStatus, Sizes, StatusMark};
use super::id::{
    Epoch, LockName, OwnerId, ProcessId, RequestId, ServiceName, Ticket, Token, ViewNumber,
};
use super::link::LinkSet;
use super::message::{
    ClientMessage, GrantorMessage, Message, Origin, Query, QueryReply, RegistryMessage, TokenRange,
};
use super::step_context::{KEPT_MESSAGES, StepContext};
use super::time::{Time, WallClock};
use super::visit_count::touch;
use client::{KeptUse, LockCall, LockClient};
use early_requests::EarlyRequests;
use grantor::{Grantor, ReceivedRequest};
use handovers::{PendingTransfers, Relinquishing};
use registry::Registry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use table::Table;
use table_copies::TableCopies;

/// The locks of one member: those that it asks for, and those that it grants.
///
/// Only the unit tests use the fields from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Locks {
    pub(super) client: LockClient,
    pub(super) grantors: BTreeMap<ServiceName, Grantor>,
    /// The elder's map of grantors, if this member is the elder.
    pub(super) registry: Option<Registry>,
    /// Services whose grantor role this member passes on.
    relinquishing: Relinquishing,
    /// The tables of such services, until the members that took them over have acknowledged them.
    pending_transfers: PendingTransfers,
    /// Services whose grantors have more to do than one step does: the next steps continue.
    unfinished: VecDeque<ServiceName>,
    /// The time since which such a service is unfinished.
    unfinished_at: Time,
    /// The time of the next slice of background work: of a report that no grantor waits for, or of
    /// the end of a table.
    background_at: Time,
    /// Requests for epochs that this member does not know yet.
    pub(super) early_requests: EarlyRequests,
    /// Queue positions that must be reported to other members, in the order in which they were
    /// given.
    pub(super) pending_positions: VecDeque<PendingPosition>,
    /// Copies of tables of other members.
    copies: TableCopies,
    /// Tables that are used no more: their memory is freed in slices.
    spent_tables: VecDeque<Table>,
}

/// A queue position that is reported to another member, if its request still waits at the time
/// `at`: see [`take_positions_due`](Locks::take_positions_due).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PendingPosition {
    at: Time,
    to: ProcessId,
    service: ServiceName,
    epoch: Epoch,
    request: RequestId,
    ticket: Ticket,
}

/// The result of a command on the fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastOutcome {
    /// The request holds, with this token, until this time.
    Granted(Token, Time),
    /// The request is over.
    Released,
}

/// The tokens that local grants of a lock may use: see [`Node::offer`](super::Node::offer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalOffer {
    /// The member grants the service itself: all local grants of the service share the range.
    OfService(TokenRange),
    /// The member keeps the lock: all local grants of its name share the range.
    OfName(TokenRange),
}

/// A lock that was taken with a token of [`Node::offer`](super::Node::offer).
#[derive(Debug)]
pub struct LocalGrant {
    /// The name of the lock.
    pub name: LockName,
    /// The owner.
    pub owner: OwnerId,
    /// An offered token.
    pub token: Token,
    /// The time of the local grant.
    pub since: Time,
}

/// A newly installed view, as far as it concerns the locks.
pub(super) struct InstalledView<'a> {
    /// The processes that are no longer in the view.
    pub(super) departed: &'a [ProcessId],
    /// The processes that came with the view.
    pub(super) joined: &'a [ProcessId],
    /// Whether the same elder continues, in the same tenure.
    pub(super) same_tenure: bool,
    pub(super) registry: RegistryChange,
}

/// The end or the beginning of the elder's registry with a view.
#[derive(Clone, Copy)]
pub(super) enum RegistryChange {
    /// This member is not the elder.
    End,
    /// This member was the elder in this tenure before.
    Keep,
    /// This member was the elder before, and begins a tenure. `ask`: there were elders before.
    Restart { ask: bool, clocks: (WallClock, WallClock) },
    /// This member has become the elder.
    Begin { ask: bool, clocks: (WallClock, WallClock) },
}

impl Locks {
    pub(super) fn new(client: LockClient) -> Locks {
        Locks {
            client,
            grantors: BTreeMap::new(),
            registry: None,
            relinquishing: Relinquishing::default(),
            pending_transfers: PendingTransfers::default(),
            unfinished: VecDeque::new(),
            unfinished_at: Time::ZERO,
            background_at: Time::ZERO,
            early_requests: EarlyRequests::default(),
            pending_positions: VecDeque::new(),
            copies: TableCopies::default(),
            spent_tables: VecDeque::new(),
        }
    }

    pub(super) fn client(&self) -> &LockClient {
        &self.client
    }

    /// The grantor of the service, if this member has it.
    pub(super) fn grantor(&self, service: &ServiceName) -> Option<&Grantor> {
        self.grantors.get(service)
    }

    pub(super) fn grantors(&self) -> impl Iterator<Item = (&ServiceName, &Grantor)> {
        self.grantors.iter()
    }

    /// Returns whether a grantor of an earlier epoch acts here.
    fn acts_below(&self, service: &ServiceName, epoch: Epoch) -> bool {
        self.grantors.get(service).is_some_and(|own| own.is_acting() && own.epoch() < epoch)
    }

    /// The grantor here, if it has this epoch.
    fn grantor_in(&mut self, service: &ServiceName, epoch: Epoch) -> Option<&mut Grantor> {
        self.grantors.get_mut(service).filter(|grantor| grantor.epoch() == epoch)
    }

    /// The grantor of a service here, for a member's statement about its holds in that epoch or
    /// earlier ones. A later grantor gets the same in a later report.
    fn grantor_up_to(&mut self, service: &ServiceName, epoch: Epoch) -> Option<&mut Grantor> {
        self.grantors.get_mut(service).filter(|grantor| grantor.epoch() <= epoch)
    }

    /// Adopts a new view.
    pub(super) fn on_view(
        &mut self,
        view: &Arc<View>,
        installed: InstalledView,
        cx: &mut StepContext,
    ) {
        let InstalledView { departed, joined, same_tenure, registry } = installed;
        match registry {
            RegistryChange::End => self.registry = None,
            RegistryChange::Keep => {
                if let Some(registry) = &mut self.registry {
                    registry.on_view(view, departed);
                }
            }
            RegistryChange::Restart { ask, clocks } | RegistryChange::Begin { ask, clocks } => {
                self.registry = Some(Registry::new(view, ask, clocks, cx));
            }
        }
        if let Some(registry) = &mut self.registry
            && !matches!(installed.registry, RegistryChange::Begin { .. })
        {
            registry.answer(cx.may_name(), cx);
        }
        if !same_tenure {
            self.end_unbegun(cx);
            self.end_copies(cx);
        }
        self.tend_copies(cx);
        // A moving table may be due for a younger turk now, or its grantor may act.
        let mut moving = Vec::new();
        for (service, grantor) in &mut self.grantors {
            touch();
            if !grantor.is_acting() {
                moving.push(service.clone());
            }
            grantor.on_view(view, departed, joined, cx);
            if !same_tenure {
                grantor.on_new_elder(cx);
            }
        }
        for service in moving {
            self.after_transfer(&service, cx);
        }
        departed.iter().for_each(|process| self.early_requests.remove_all(*process));
        for (service, _) in self.early_requests.iter() {
            cx.send_elder(self.client.question(service));
        }
        self.client.on_view(view, cx);
    }

    /// Handles a hint that calls a member unreachable.
    pub(super) fn on_suspected(&mut self, process: ProcessId, cx: &mut StepContext) {
        self.client.on_suspected(process, cx);
    }

    /// Handles the return of the member's lease.
    pub(super) fn on_resumed(&mut self, cx: &mut StepContext) {
        self.client.on_resumed(cx);
        self.grant_all(cx);
    }

    /// Handles the end of the member's lease.
    pub(super) fn on_suspended(&mut self, cx: &mut StepContext) {
        self.client.on_suspended(cx);
    }

    /// Grants the waiting requests that can be granted.
    pub(super) fn grant_all(&mut self, cx: &mut StepContext) {
        for grantor in self.grantors.values_mut() {
            grantor.grant(cx);
        }
    }

    /// Ends all requests of this member.
    pub(super) fn close(&mut self, reason: LostReason, cx: &mut StepContext) {
        self.client.close(reason, cx);
    }

    /// Ends all holds, waits and grantors of this member.
    pub(super) fn give_everything_up(&mut self, reason: LostReason, cx: &mut StepContext) {
        self.client.close(reason, cx);
        self.end_grantors(cx);
    }

    /// Forgets the membership, which is over.
    pub(super) fn forget_membership(&mut self) {
        self.registry = None;
        self.unfinished.clear();
        self.early_requests.clear();
        self.pending_positions.clear();
        self.forget_copies();
    }

    /// Ends the registry: this member is no longer the elder.
    pub(super) fn end_registry(&mut self) {
        self.registry = None;
    }

    /// Continues the registry, since the elder has its quorum again.
    pub(super) fn on_authority(&mut self, cx: &mut StepContext) {
        if let Some(registry) = &mut self.registry {
            registry.answer(true, cx);
        }
    }

    /// Handles a member's goodbye to the elder here.
    pub(super) fn on_goodbye(&mut self, process: ProcessId, cx: &mut StepContext) {
        if let Some(registry) = &mut self.registry {
            registry.on_leave(process);
            registry.answer(cx.may_name(), cx);
        }
    }

    /// Names the young turks that need not wait any longer.
    pub(super) fn advance_turks(&mut self, cx: &mut StepContext) {
        if let Some(registry) = &mut self.registry {
            registry.advance_turks(cx.may_name(), cx);
        }
    }

    /// Returns whether a young turk need not wait any longer.
    pub(super) fn has_turk_due(&self, now: Time, retry: Duration) -> bool {
        self.registry
            .as_ref()
            .and_then(|registry| registry.deadline(retry))
            .is_some_and(|at| at <= now)
    }

    /// Returns the times at which the elder's registry can continue: with a young turk, and with
    /// the dealing of tokens.
    pub(super) fn registry_due(&self, retry: Duration) -> [Option<Time>; 2] {
        self.registry
            .as_ref()
            .map_or([None; 2], |registry| [registry.deadline(retry), registry.opens_at()])
    }

    /// Returns whether members wait for an answer of the elder's registry.
    pub(super) fn has_parked(&self) -> bool {
        self.registry.as_ref().is_some_and(Registry::has_parked)
    }

    /// Returns whether ranges waited for the limit of dealing, and no longer need to.
    pub(super) fn is_open_again(&mut self, now: Time) -> bool {
        self.registry.as_mut().is_some_and(|registry| registry.is_open_again(now))
    }

    /// Returns whether the view's tokens are used up: the elder then makes a new view.
    pub(super) fn is_exhausted(&self) -> bool {
        self.registry.as_ref().is_some_and(Registry::is_exhausted)
    }

    /// Returns whether the view had too few slots.
    pub(super) fn wants_more_slots(&self) -> bool {
        self.registry.as_ref().is_some_and(Registry::wants_more_slots)
    }

    /// Returns whether a timer of the lock client is due.
    pub(super) fn is_client_due(&self, now: Time) -> bool {
        self.client.deadline().is_some_and(|at| at <= now)
    }

    pub(super) fn on_client_timer(&mut self, cx: &mut StepContext) {
        self.client.on_timer(cx);
    }

    /// Returns the time at which a timer of the lock client, or of a service that is passed on, is
    /// due.
    pub(super) fn deadline(&self) -> Time {
        let client = self.client.deadline().unwrap_or(Time::MAX);
        let others =
            [self.relinquishing.deadline(), self.unfinished_since(), self.copies.deadline()];
        others.into_iter().flatten().fold(client, Time::min)
    }

    /// Returns the times at which a request, a queue position or the rest of a grantor's work is
    /// due. A short step makes no other timer due here.
    pub(super) fn short_deadline(&self) -> [Option<Time>; 3] {
        [self.client.deadline(), self.positions_due(), self.unfinished_since()]
    }

    /// Returns the time since which work of an earlier step is due, or the next such time.
    fn unfinished_since(&self) -> Option<Time> {
        let awaited = self.is_awaited().then_some(self.unfinished_at);
        let background = self.has_background().then_some(self.background_at);
        awaited.into_iter().chain(background).min()
    }

    /// Returns whether work of an earlier step is unfinished.
    pub(super) fn is_unfinished(&self) -> bool {
        self.is_awaited() || self.has_background()
    }

    /// Returns whether other members wait for unfinished work, so that it goes on at once.
    fn is_awaited(&self) -> bool {
        !self.unfinished.is_empty() || self.client.is_report_awaited()
    }

    /// Returns whether a report, or the end of a table, is unfinished.
    fn has_background(&self) -> bool {
        !self.spent_tables.is_empty() || self.client.is_reporting()
    }

    /// Notes that these grantors have unfinished work.
    pub(super) fn leave_unfinished(&mut self, now: Time, services: Vec<ServiceName>) {
        if !services.is_empty() {
            self.unfinished.extend(services);
            self.unfinished_at = now;
        }
    }

    /// Notes that a report, or the end of a table, is about to begin.
    pub(super) fn begin_background(&mut self, cx: &StepContext) {
        self.unfinished_at = cx.now;
        if !self.has_background() {
            self.background_at = cx.now + cx.timing.pause();
        }
    }

    /// Continues the work of one of the unfinished grantors, and a report or the end of a table.
    /// Work for which no member waits goes on after a pause only. It would otherwise take the
    /// processor from requests.
    pub(super) fn go_on(&mut self, cx: &mut StepContext) {
        let is_due = self.background_at <= cx.now;
        if self.client.is_report_awaited() || is_due && self.client.is_reporting() {
            self.client.go_on_reporting(cx);
        } else if is_due
            && let Some(mut table) = self.spent_tables.pop_front()
            && table.shed(cx.limits.slice as usize)
        {
            self.spent_tables.push_front(table);
        }
        if is_due {
            // Further tables wait, so their memory is freed no more slowly than they come.
            let is_late = self.spent_tables.len() > 1;
            self.background_at = if is_late { cx.now } else { cx.now + cx.timing.pause() };
        }
        if let Some(service) = self.unfinished.pop_front()
            && let Some(grantor) = self.grantors.get_mut(&service)
        {
            grantor.go_on(cx);
            // A recovering grantor may have begun to act.
            self.answer_bids(&service, cx);
        }
    }

    /// Returns whether no work is under way that every step continues.
    pub(super) fn is_idle(&self) -> bool {
        self.relinquishing.is_empty()
            && self.pending_transfers.is_empty()
            && self.early_requests.is_empty()
            && self.copies.is_empty()
            && !self.client.has_endings()
            && !self.has_parked()
    }

    pub(super) fn count(&self, sizes: &mut Sizes) {
        sizes.early = self.early_requests.len();
        sizes.positions = self.pending_positions.len();
        let spent: usize = self.spent_tables.iter().map(Table::size).sum();
        let granting: usize = self.grantors.values().map(Grantor::size).sum();
        sizes.granting = granting + self.copies.len() + spent;
        self.client.count(sizes);
    }
}
