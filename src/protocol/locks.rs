//! Locks: the elder's registry of services, the grantors with their tables, and the side that asks.
//!
//! [`Locks`] is this side of a member. It hands each message to the role that it is for, and knows
//! of the membership only what a [`StepContext`] says. `cluster.rs` has the other side.

mod arrivals;
pub(super) mod client;
mod commands;
pub(super) mod dealer;
mod departures;
pub(super) mod grantor;
#[cfg(elderlock_mutants)]
mod planted;
mod registry;
mod routing;
mod status;
pub(super) mod table;

use super::cluster::view::View;
use super::event::{
    Command, GrantorState, LostReason, Outcome, ServiceStatus, Sizes, StatusMark, Wait,
};
use super::id::{
    Epoch, LockName, Metadata, OwnerId, ProcessId, RequestId, ServiceName, Ticket, Token,
    ViewNumber, Want,
};
use super::link::LinkSet;
use super::message::{Addressee, Message, Origin, Query, QueryReply, TokenRange};
use super::step_context::{MAIL, StepContext};
use super::time::{Time, WallClock};
use super::visit_count::touch;
use arrivals::Arrivals;
use client::{LockClient, LockRequest};
use departures::{PendingHandovers, Relinquishing};
use grantor::{Asked, Grantor};
use registry::Registry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use table::RequestSpec;

/// The locks of one member: those that it asks for, and those that it grants.
///
/// Only the tests beside use its fields from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Locks {
    pub(super) client: LockClient,
    pub(super) grantors: BTreeMap<ServiceName, Grantor>,
    /// The elder's map of grantors, if this member is the elder.
    pub(super) registry: Option<Registry>,
    /// Services that this member gives away.
    relinquishing: Relinquishing,
    /// Their tables, until the members that took them over have acknowledged them.
    pending_handovers: PendingHandovers,
    /// Services whose grantors have more to do than one step does: the next steps go on.
    unfinished: VecDeque<ServiceName>,
    /// When one of them was left unfinished.
    unfinished_at: Time,
    /// Requests for epochs that this member has not heard of yet.
    pub(super) early_requests: BTreeMap<ServiceName, Arrivals<(Epoch, Asked)>>,
    /// Queue positions that are to be reported to other members, in the order in which they were
    /// given.
    pub(super) pending_positions: VecDeque<PendingPosition>,
}

/// A queue position that another member is told of, if its request still waits at the time `at`:
/// see [`take_places_due`](Locks::take_places_due).
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
    /// The request holds, with this token, until then.
    Granted(Token, Time),
    /// The request is over.
    Released,
}

/// A lock that was taken with a token of [`Node::offer`](super::Node::offer).
#[derive(Debug)]
pub struct LocalGrant {
    /// Its name.
    pub name: LockName,
    /// The owner.
    pub owner: OwnerId,
    /// One of the offered tokens.
    pub token: Token,
    /// When it was taken.
    pub since: Time,
}

/// A newly installed view, as far as it concerns the locks.
pub(super) struct InstalledView<'a> {
    /// The processes that are in it no more.
    pub(super) departed: &'a [ProcessId],
    /// The processes that came with it.
    pub(super) joined: &'a [ProcessId],
    /// Whether the same elder goes on, in the same tenure.
    pub(super) same_tenure: bool,
    pub(super) registry: RegistryChange,
}

/// The end or the beginning of the elder's registry with a view.
#[derive(Clone, Copy)]
pub(super) enum RegistryChange {
    /// This member is not the elder.
    End,
    /// It has been the elder in this tenure before.
    Keep,
    /// It was the elder before, and begins a tenure. `ask`: there were elders before.
    Restart { ask: bool, clocks: (WallClock, WallClock) },
    /// It has become the elder.
    Begin { ask: bool, clocks: (WallClock, WallClock) },
}

impl Locks {
    pub(super) fn new(client: LockClient) -> Locks {
        Locks {
            client,
            grantors: BTreeMap::new(),
            registry: None,
            relinquishing: Relinquishing::default(),
            pending_handovers: PendingHandovers::default(),
            unfinished: VecDeque::new(),
            unfinished_at: Time::ZERO,
            early_requests: BTreeMap::new(),
            pending_positions: VecDeque::new(),
        }
    }

    pub(super) fn client(&self) -> &LockClient {
        &self.client
    }

    /// The grantor of the service, if it is here.
    pub(super) fn grantor(&self, service: &ServiceName) -> Option<&Grantor> {
        self.grantors.get(service)
    }

    pub(super) fn grantors(&self) -> impl Iterator<Item = (&ServiceName, &Grantor)> {
        self.grantors.iter()
    }

    /// Hands a message to the role that it is for.
    pub(super) fn on_message(&mut self, from: ProcessId, message: Message, turn: &mut StepContext) {
        match message.addressee() {
            Addressee::Registry => self.on_message_to_registry(from, message, turn),
            Addressee::Named => self.on_message_of_elder(from, message, turn),
            Addressee::Grantor => self.on_message_to_grantor(from, message, turn),
            Addressee::Client => self.on_message_to_client(from, message, turn),
        }
    }

    /// Members ask the elder, and tell it of their grantors.
    fn on_message_to_registry(
        &mut self,
        from: ProcessId,
        message: Message,
        turn: &mut StepContext,
    ) {
        let Some(registry) = &mut self.registry else { return };
        let may_name = turn.may_name();
        match message {
            Message::FindGrantor { service, heard } => {
                registry.on_who_grants(from, service, heard, may_name, turn);
            }
            Message::Become { service, request } => {
                registry.on_become((from, request), service, may_name, turn)
            }
            Message::Acts { service, epoch } => registry.on_acts(from, &service, epoch, turn),
            Message::ProposeSuccessor { service, epoch, to } => {
                // It may have been sent before the successor left the view.
                let to = Some(to).filter(|to| turn.is_there(*to));
                registry.on_yield((from, epoch), service, to, may_name, turn);
            }
            Message::Vacant { service, epoch } => {
                registry.on_vacant(from, &service, epoch, turn);
                registry.answer_about(&BTreeSet::from([service]), may_name, turn);
            }
            Message::Decline { service, epoch } => {
                registry.on_decline(from, &service, epoch, turn);
                registry.answer_about(&BTreeSet::from([service]), may_name, turn);
            }
            Message::MoreTokens { service, epoch, count } => {
                registry.on_more_tokens(from, (service, epoch, count), may_name, turn);
            }
            Message::InventoryReply { view, known, last } => {
                registry.on_inventory((from, view), known, last, may_name, turn);
            }
            _ => {}
        }
    }

    /// The elder tells a member which grantors there are.
    fn on_message_of_elder(&mut self, from: ProcessId, message: Message, turn: &mut StepContext) {
        // A message of an earlier elder does not count: the present elder has asked every member,
        // and a late message must not contradict it. Its inventory is answered all the same.
        let is_of_elder = turn.view.is_some_and(|view| view.elder().process == from);
        if !is_of_elder
            && !matches!(message, Message::Inventory { .. })
            && !planted!(turn.mutant, HeedFormerElder)
        {
            return;
        }
        match message {
            Message::GrantorIs { service, grantor, epoch } if turn.is_there(grantor) => {
                self.send_on_early(&service, grantor, epoch, turn);
                self.client.on_grantor(&service, grantor, epoch, turn);
            }
            Message::NameGrantor { service, range, origin, asked } => {
                self.on_name((service, asked), range, origin, turn);
            }
            Message::Tokens { service, epoch, range } => {
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.on_tokens(range, turn);
                }
            }
            Message::Outbid { service, request, by } => {
                // A member that was named before goes on to win, or until it is asked for the
                // table: it is only not named again.
                let goes_on = |grantor: &Grantor| grantor.state() != GrantorState::PassingOn;
                if self.grantors.get(&service).is_some_and(goes_on) {
                    self.client.on_outbid_while_granting(&service, request, by);
                } else {
                    self.client.on_outbid(&service, request, by, turn);
                }
            }
            Message::SuccessorDeclined { service, by } => {
                self.on_successor_declined(service, by, turn)
            }
            Message::Inventory { view } => self.on_inventory_wanted(from, view, turn),
            _ => {}
        }
    }

    /// Members ask a grantor, report to it, and hand it tables.
    fn on_message_to_grantor(&mut self, from: ProcessId, message: Message, turn: &mut StepContext) {
        match message {
            Message::RequestLock {
                service,
                epoch,
                request,
                want,
                owner,
                only_if_free,
                revocable,
                metadata,
            } => {
                let asked = Asked { from, request, want, owner, only_if_free, revocable, metadata };
                self.on_ask(service, epoch, asked, turn);
            }
            Message::Release { service, request } => self.on_release(from, &service, request, turn),
            Message::Reduce { service, epoch, request, want, token } => {
                // A `Reduce` to an earlier epoch here is contained in a later report.
                if let Some(grantor) =
                    self.grantors.get_mut(&service).filter(|grantor| grantor.epoch() <= epoch)
                {
                    grantor.on_narrow((from, request), &want, token, turn);
                }
            }
            Message::Upgrade { service, epoch, request, hold } => {
                if let Some(grantor) = self.asked_of(from, (&service, epoch), request, turn) {
                    grantor.on_upgrade(from, request, hold, turn);
                }
            }
            Message::Write { service, epoch, request, name, edit } => {
                if let Some(grantor) = self.asked_of(from, (&service, epoch), request, turn) {
                    grantor.on_write((from, request), &name, &edit, turn);
                }
            }
            Message::Query { service, epoch, request, at } => {
                self.on_look(from, (service, epoch), request, &at, turn);
            }
            Message::ConfirmDestroy { service, request } => {
                self.on_settle(from, &service, request, turn)
            }
            Message::Report { service, epoch, objects, holds, waits, last } => {
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.on_report(from, objects.into_vec(), (holds, waits), last, turn);
                    self.settle_bids(&service, turn);
                } else {
                    self.send_reported_on(from, &service, epoch, (&holds, &waits), turn);
                }
            }
            Message::RequestTable { service, epoch } => self.on_hand(from, service, epoch, turn),
            Message::TableChunk { service, epoch, objects, holds, waits, last } => {
                let Some(view) = turn.view else { return };
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.on_table(from, objects.into_vec(), (holds, waits), (view, last), turn);
                    self.after_transfer(&service, turn);
                }
            }
            Message::NoTable { service, epoch } => {
                let Some(view) = turn.view else { return };
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.on_no_table(from, view, turn);
                    self.after_transfer(&service, turn);
                }
            }
            _ => {}
        }
    }

    /// Grantors answer a lock client, and ask it.
    fn on_message_to_client(&mut self, from: ProcessId, message: Message, turn: &mut StepContext) {
        let view = turn.view;
        let is_known = |process: ProcessId| view.is_none_or(|view| view.contains(process));
        match message {
            Message::Grant { service, epoch, request, token } => {
                self.client.on_grant(from, &service, epoch, request, token, turn);
            }
            Message::Queued { service, epoch, request, ticket } => {
                self.client.on_queued(from, &service, epoch, (request, ticket), turn);
            }
            Message::Refuse { epoch, request, refusal, .. } => {
                self.client.on_refuse(epoch, request, *refusal, turn)
            }
            Message::NotGrantor { service, epoch, request, instead } => {
                let instead = instead.filter(|(process, _)| turn.is_there(*process));
                self.client.on_not_grantor(&service, epoch, request, instead, turn);
            }
            Message::Upgraded { service, epoch, request, token } => {
                self.client.on_upgraded(&service, epoch, request, token, turn);
            }
            Message::Value { service, epoch, name, content, answers } => {
                self.client.on_value(from, (&service, epoch), (&name, *content), answers, turn);
            }
            Message::QueryReply { request, seen, .. } => {
                self.client.on_seen(request, *seen, is_known, turn)
            }
            // The elder took this member to be lost. The grantor here, which acts still, has the
            // whole table, so no other member's report is needed.
            Message::Recover { service, epoch } if self.acts_below(&service, epoch) => {
                self.on_hand(from, service, epoch, turn);
            }
            Message::Recover { service, epoch } => {
                if self.client.on_recover(from, &service, epoch, turn) {
                    self.end_grantor_below(&service, from, epoch, turn);
                    self.send_on_early(&service, from, epoch, turn);
                } else if let (by, Some(epoch)) = self.client.grantor(&service) {
                    turn.send(from, Message::Deposed { service, by, epoch });
                }
            }
            Message::Supersede { service, epoch, request }
                if self.client.newest(&service).is_none_or(|newest| newest <= epoch) =>
            {
                self.client.on_revoke(request, turn);
            }
            Message::Deposed { service, by, epoch } => self.on_deposed(&service, by, epoch, turn),
            Message::DestroyConfirmed { request, .. } => self.client.on_settled(from, request),
            Message::DestroyUnconfirmed { request, instead, .. } => {
                // The named member may be gone by now: the sender will know better in a while.
                let instead = instead.filter(|by| turn.is_there(*by));
                self.client.on_unsettled(from, request, instead, turn);
            }
            Message::RequestRevocation { service, request, hold, token, says } => {
                self.client.on_ask_back((from, request), &service, (hold, token), says, turn);
            }
            Message::RevocationReply { request, token, heard, .. } => {
                self.client.on_asked_back(from, (request, token), heard, turn);
            }
            _ => {}
        }
    }

    /// Whether a grantor of an earlier epoch acts here.
    fn acts_below(&self, service: &ServiceName, epoch: Epoch) -> bool {
        self.grantors.get(service).is_some_and(|own| own.is_acting() && own.epoch() < epoch)
    }

    /// The grantor here, if it has that epoch.
    fn grantor_in(&mut self, service: &ServiceName, epoch: Epoch) -> Option<&mut Grantor> {
        self.grantors.get_mut(service).filter(|grantor| grantor.epoch() == epoch)
    }

    /// A view begins.
    pub(super) fn on_view(
        &mut self,
        view: &Arc<View>,
        installed: InstalledView,
        turn: &mut StepContext,
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
                self.registry = Some(Registry::new(view, ask, clocks, turn));
            }
        }
        if let Some(registry) = &mut self.registry
            && !matches!(installed.registry, RegistryChange::Begin { .. })
        {
            registry.answer(turn.may_name(), turn);
        }
        if !same_tenure {
            self.end_unbegun(turn);
        }
        // A table that moves may be due for a younger turk now, or its grantor may act.
        let mut moving = Vec::new();
        for (service, grantor) in &mut self.grantors {
            touch();
            if !grantor.is_acting() {
                moving.push(service.clone());
            }
            grantor.on_view(view, departed, joined, turn);
            if !same_tenure {
                grantor.on_new_elder(turn);
            }
        }
        for service in moving {
            self.after_transfer(&service, turn);
        }
        for (service, early) in &mut self.early_requests {
            departed.iter().for_each(|process| early.remove_all(*process));
            if !early.is_empty() {
                turn.send_elder(self.client.question(service));
            }
        }
        self.early_requests.retain(|_, early| !early.is_empty());
        self.client.on_view(view, turn);
    }

    /// Some hint calls a member unreachable.
    pub(super) fn on_suspected(&mut self, process: ProcessId, turn: &mut StepContext) {
        self.client.on_suspected(process, turn);
    }

    /// The member's lease runs again.
    pub(super) fn on_resumed(&mut self, turn: &mut StepContext) {
        self.client.on_resumed(turn);
        self.grant_all(turn);
    }

    /// The member's lease is over.
    pub(super) fn on_suspended(&mut self, turn: &mut StepContext) {
        self.client.on_suspended(turn);
    }

    /// Grants the waiting requests that can be granted.
    pub(super) fn grant_all(&mut self, turn: &mut StepContext) {
        for grantor in self.grantors.values_mut() {
            grantor.grant(turn);
        }
    }

    /// Ends all requests of this member.
    pub(super) fn close(&mut self, reason: LostReason, turn: &mut StepContext) {
        self.client.close(reason, turn);
    }

    /// Ends all holds, waits and grantors of this member.
    pub(super) fn give_everything_up(&mut self, reason: LostReason, turn: &mut StepContext) {
        self.client.close(reason, turn);
        self.end_grantors(turn);
    }

    /// The membership is over.
    pub(super) fn forget_membership(&mut self) {
        self.registry = None;
        self.unfinished.clear();
        self.early_requests.clear();
        self.pending_positions.clear();
    }

    /// This member is the elder no more.
    pub(super) fn end_registry(&mut self) {
        self.registry = None;
    }

    /// The elder has its quorum (again).
    pub(super) fn on_authority(&mut self, turn: &mut StepContext) {
        if let Some(registry) = &mut self.registry {
            registry.answer(true, turn);
        }
    }

    /// A member said goodbye to the elder here.
    pub(super) fn on_goodbye(&mut self, process: ProcessId, turn: &mut StepContext) {
        if let Some(registry) = &mut self.registry {
            registry.on_leave(process);
            registry.answer(turn.may_name(), turn);
        }
    }

    /// Names the young turks that need not wait any longer.
    pub(super) fn advance_turks(&mut self, turn: &mut StepContext) {
        if let Some(registry) = &mut self.registry {
            registry.advance_turks(turn.may_name(), turn);
        }
    }

    /// Whether a young turk need not wait any longer.
    pub(super) fn has_turk_due(&self, now: Time, retry: Duration) -> bool {
        self.registry
            .as_ref()
            .and_then(|registry| registry.deadline(retry))
            .is_some_and(|at| at <= now)
    }

    /// When the elder's registry can go on: with a young turk, and with the dealing of tokens.
    pub(super) fn registry_due(&self, retry: Duration) -> [Option<Time>; 2] {
        self.registry
            .as_ref()
            .map_or([None; 2], |registry| [registry.deadline(retry), registry.opens_at()])
    }

    /// Whether members wait for an answer of the elder's registry.
    pub(super) fn has_parked(&self) -> bool {
        self.registry.as_ref().is_some_and(Registry::has_parked)
    }

    /// Whether ranges waited for the limit of dealing, and need not any longer.
    pub(super) fn is_open_again(&mut self, now: Time) -> bool {
        self.registry.as_mut().is_some_and(|registry| registry.is_open_again(now))
    }

    /// Whether the view's tokens are used up: the elder then makes a new view.
    pub(super) fn is_exhausted(&self) -> bool {
        self.registry.as_ref().is_some_and(Registry::is_exhausted)
    }

    /// Whether the view had too few slots.
    pub(super) fn wants_more_slots(&self) -> bool {
        self.registry.as_ref().is_some_and(Registry::wants_more_slots)
    }

    /// Whether the lock client has something to do.
    pub(super) fn is_client_due(&self, now: Time) -> bool {
        self.client.deadline().is_some_and(|at| at <= now)
    }

    pub(super) fn on_client_timer(&mut self, turn: &mut StepContext) {
        self.client.on_timer(turn);
    }

    /// When the lock client, or a service that is given away, has something to do.
    pub(super) fn deadline(&self) -> Time {
        let client = self.client.deadline().unwrap_or(Time::MAX);
        let others = [self.relinquishing.deadline(), self.unfinished_since()];
        others.into_iter().flatten().fold(client, Time::min)
    }

    /// When a request, a queue position or the rest of a grantor's work is due: a short step makes
    /// nothing else due here.
    pub(super) fn short_deadline(&self) -> [Option<Time>; 3] {
        [self.client.deadline(), self.places_due(), self.unfinished_since()]
    }

    /// Since when a grantor has more to do.
    fn unfinished_since(&self) -> Option<Time> {
        (!self.unfinished.is_empty()).then_some(self.unfinished_at)
    }

    /// Whether a grantor has more to do than an earlier step did.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// These grantors left something to do.
    pub(super) fn leave_unfinished(&mut self, now: Time, services: Vec<ServiceName>) {
        if !services.is_empty() {
            self.unfinished.extend(services);
            self.unfinished_at = now;
        }
    }

    /// One of the grantors that have more to do goes on.
    pub(super) fn go_on(&mut self, turn: &mut StepContext) {
        if let Some(service) = self.unfinished.pop_front()
            && let Some(grantor) = self.grantors.get_mut(&service)
        {
            grantor.go_on(turn);
        }
    }

    /// Whether no work is under way that every step continues.
    pub(super) fn is_idle(&self) -> bool {
        self.relinquishing.is_empty()
            && self.pending_handovers.is_empty()
            && self.early_requests.is_empty()
            && !self.client.has_endings()
            && !self.has_parked()
    }

    pub(super) fn count(&self, sizes: &mut Sizes) {
        sizes.early = self.early_requests.values().map(Arrivals::len).sum();
        sizes.places = self.pending_positions.len();
        sizes.granting = self.grantors.values().map(Grantor::size).sum();
        self.client.count(sizes);
    }
}
