//! The member's own requests, waiting and holding, in all services; and its pending calls.
//!
//! - Wait limits and leases of locks live here and only here, on this member's clock; the grantor
//!   times nothing.
//! - `one_outcome_per_request`: a request is answered when it leaves this book or begins to hold,
//!   and never twice.
//! - A request that is over is forgotten at once. A grant of it that still arrives is released.
//!
//! ```text
//!           grantor known        acknowledged       granted         released, lease ended, lost
//! Unsent ----------------> Asked ------------> Queued -----> Held -----------------------> over
//!    ^--- grantor gone ------/-----------------/   \-> Won: granted while the member's lease
//!                                                       does not run
//! ```
//!
//! A call that other members answer and that is no request for a lock is a pending call
//! (`calls.rs`). Open objects are in `objects.rs`. A hold that is requested back is in
//! `revocation.rs`.

use crate::protocol::cluster::view::View;
use crate::protocol::content::Content;
use crate::protocol::content::Edit;
use crate::protocol::event::{
    LostReason, Outcome, Output, RevocationRequest, RevokeCommand, Sizes, Wait,
};
use crate::protocol::id::{
    Epoch, LockName, Metadata, OwnerId, ProcessId, RequestId, ServiceName, Ticket, Token, Want,
};
use crate::protocol::limits::Limits;
use crate::protocol::message::{
    GrantorMessage, HolderInfo, LockRequest, Message, ObjectReply, Query, QueryReply, Refusal,
    RegistryMessage, RevocationAnswer,
};
use crate::protocol::paged_map::PagedMap;
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Bound;
use std::time::Duration;

mod calls;
mod objects;
#[cfg(elderlock_mutants)]
mod planted;
mod report;
mod revocation;

use calls::{CallKind, PendingCall, PendingCalls};
use objects::OpenObject;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ClientRequestState {
    Unsent,
    Asked(Epoch),
    Queued(Epoch),
    /// Since when.
    Won(Token, Time),
    Held {
        token: Token,
        since: Time,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ClientRequest {
    want: Want,
    owner: OwnerId,
    state: ClientRequestState,
    /// `None`: all its fields are empty. Kept apart, because each held lock has a request, and most
    /// of these have no such fields.
    cold: Option<Box<RequestColdFields>>,
}

/// The fields that a waiting request has, and few holding ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct RequestColdFields {
    metadata: Metadata,
    /// The requests of members that have asked for it back; `None`: it is not revocable.
    revocable: Option<BTreeSet<(ProcessId, RequestId)>>,
    /// `None`: it does not wait any more.
    waiting: Option<WaitState>,
}

/// The fields that matter until a request holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct WaitState {
    lease: Option<Duration>,
    only_if_free: bool,
    /// When the limit is reached before an answer, a try hears that no member can say. Other
    /// requests hear that the limit is reached.
    is_try: bool,
    /// The wait limit.
    limit: Time,
    /// The acknowledged ticket, kept also while no grantor is known.
    ticket: Option<Ticket>,
}

impl LockCall {
    /// How it waits. `answer`: how long a try may take.
    fn waiting(&self, answer: Duration, now: Time) -> WaitState {
        let (only_if_free, limit) = match self.wait {
            Wait::Try | Wait::AtMost(Duration::ZERO) => (true, now + answer),
            Wait::AtMost(span) => (false, now + span),
            Wait::Forever => (false, Time::MAX),
        };
        WaitState {
            lease: self.lease,
            only_if_free,
            is_try: self.wait == Wait::Try,
            limit,
            ticket: None,
        }
    }

    /// The request as this client keeps it.
    fn kept(self, waiting: Option<WaitState>, state: ClientRequestState) -> ClientRequest {
        let LockRequest { want, owner, revocable, metadata } = self.lock;
        let cold =
            RequestColdFields { metadata, revocable: revocable.then(BTreeSet::new), waiting }
                .kept();
        ClientRequest { want, owner, state, cold }
    }
}

impl RequestColdFields {
    /// The fields as they are kept: none, if all are empty.
    fn kept(self) -> Option<Box<RequestColdFields>> {
        (self != RequestColdFields::default()).then(|| Box::new(self))
    }
}

impl ClientRequest {
    fn waiting(&self) -> Option<&WaitState> {
        self.cold.as_ref()?.waiting.as_ref()
    }

    fn waiting_mut(&mut self) -> Option<&mut WaitState> {
        self.cold.as_mut()?.waiting.as_mut()
    }

    /// Ends the wait of the request, and returns its state.
    fn take_waiting(&mut self) -> Option<WaitState> {
        let mut cold = self.cold.take()?;
        let waiting = cold.waiting.take();
        self.cold = Some(cold).filter(|cold| **cold != RequestColdFields::default());
        waiting
    }

    /// The request as the grantor has it.
    fn lock(&self) -> LockRequest {
        LockRequest {
            want: self.want.clone(),
            owner: self.owner,
            revocable: self.is_revocable(),
            metadata: self.cold.as_ref().map(|cold| cold.metadata.clone()).unwrap_or_default(),
        }
    }

    fn is_revocable(&self) -> bool {
        self.cold.as_ref().is_some_and(|cold| cold.revocable.is_some())
    }

    /// The requests of members that have asked for it back; `None`: it is not revocable.
    fn revocable_mut(&mut self) -> Option<&mut BTreeSet<(ProcessId, RequestId)>> {
        self.cold.as_mut()?.revocable.as_mut()
    }

    /// The outcome for the caller when the limit is reached before an answer.
    fn at_limit(&self) -> Outcome {
        if self.is_try() { Outcome::Undecided } else { Outcome::TimedOut }
    }

    fn is_try(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.is_try)
    }

    fn is_only_if_free(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.only_if_free)
    }

    /// The wait limit.
    fn limit(&self) -> Time {
        self.waiting().map_or(Time::MAX, |waiting| waiting.limit)
    }

    /// The position that it was told.
    fn ticket(&self) -> Option<Ticket> {
        self.waiting().and_then(|waiting| waiting.ticket)
    }
}

/// Services for which something is due.
type DueServices = BTreeSet<(Time, ServiceName)>;

/// This member's knowledge of one service.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct ServiceState {
    /// The number of its service among [the services](LockClient::names).
    number: u32,
    grantor: Option<(ProcessId, Epoch)>,
    /// Grants of older epochs are refused.
    newest: Option<Epoch>,
    /// The grantor that this member reported to last. Statements of older grantors are not in that
    /// report.
    reported: Option<Epoch>,
    /// The elder was asked for the grantor, and has not answered.
    asked_elder: bool,
    /// The grantor does not answer, and something waits for it: the elder is to be asked for
    /// another.
    is_suspected: bool,
    /// The process that granted before `grantor` was cleared. Our requests that it may still have
    /// end there.
    last: Option<ProcessId>,
    /// The grantor of this epoch says that it is none, though the elder may not know it yet.
    refused: Option<Epoch>,
    /// The last epoch in which this member was named, and does not grant any more, or never did.
    ended: Option<Epoch>,
    /// The last of this member's requests to be the grantor for which it was named.
    named_for: Option<RequestId>,
    /// While this member grants: the last of them after which another member asked, and that
    /// member. If the grantor here ends without giving its table away, that is the answer.
    outbid: Option<(RequestId, ProcessId)>,
    /// The service was destroyed here, and no call has asked for anything of it since.
    destroyed: bool,
    requests: PagedMap<ClientRequest>,
    /// The requests that do not hold: few beside the holds, and nothing but a report goes through
    /// all holds.
    waits: BTreeSet<RequestId>,
    /// How many of the requests have an object open.
    opens: usize,
    calls: PendingCalls,
    objects: BTreeMap<LockName, OpenObject>,
    /// Requests for permits that have not been granted, by their objects.
    permits: BTreeSet<(LockName, RequestId)>,
    /// Requests for the suspension of the service that wait or hold, by their owners: at most one
    /// of each.
    suspensions: BTreeMap<OwnerId, RequestId>,
}

impl ServiceState {
    /// Without a known grantor: whether something waits for it. An object's content is worth little
    /// without a grantor.
    fn wants_grantor(&self) -> bool {
        !self.objects.is_empty()
            || self.waiting().any(|entry| entry.state == ClientRequestState::Unsent)
            || self.calls.want_grantor()
    }

    /// With a known grantor: whether something waits for its answer.
    fn awaits_grantor(&self) -> bool {
        !self.waits.is_empty() || self.wants_grantor()
    }

    /// The requests that do not hold.
    fn waiting(&self) -> impl Iterator<Item = &ClientRequest> + '_ {
        self.waits.iter().filter_map(|request| self.requests.get(request)).inspect(|_| touch())
    }

    /// Sends the requests that the grantor has not been asked for in this epoch: `only` this
    /// request, or all.
    fn ask_for_locks(
        &mut self,
        service: &ServiceName,
        (grantor, epoch): (ProcessId, Epoch),
        only: Option<RequestId>,
        cx: &mut StepContext,
    ) {
        let mut ask = |request: RequestId, entry: &mut ClientRequest| {
            let home = match entry.state {
                ClientRequestState::Unsent => None,
                ClientRequestState::Asked(home) | ClientRequestState::Queued(home) => Some(home),
                ClientRequestState::Won(..) | ClientRequestState::Held { .. } => return,
            };
            if home == Some(epoch) {
                return;
            }
            entry.state = ClientRequestState::Asked(epoch);
            let (service, lock) = (service.clone(), entry.lock());
            let only_if_free = entry.is_only_if_free();
            cx.send(
                grantor,
                GrantorMessage::RequestLock { service, epoch, request, lock, only_if_free },
            );
        };
        match only {
            Some(request) => {
                if let Some(entry) = self.requests.get_mut(&request) {
                    ask(request, entry);
                }
            }
            None => self.each_waiting(ask),
        }
    }

    /// Does something with each request that does not hold.
    fn each_waiting(&mut self, mut act: impl FnMut(RequestId, &mut ClientRequest)) {
        for request in &self.waits {
            touch();
            if let Some(entry) = self.requests.get_mut(request) {
                act(*request, entry);
            }
        }
    }

    /// The grantor does not answer: if something waits for it, the elder is asked at `at`.
    fn suspect_grantor(&mut self, again: &mut DueServices, service: &ServiceName, at: Time) {
        if !self.is_suspected && self.awaits_grantor() {
            self.is_suspected = true;
            again.insert((at, service.clone()));
        }
    }

    /// The question to the elder which member grants the service.
    fn question(&self, service: &ServiceName) -> Message {
        Message::Registry(RegistryMessage::FindGrantor {
            service: service.clone(),
            heard: self.newest,
        })
    }

    /// Tells the elder that this member wants to be the grantor, if it does.
    fn send_bids(&self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(request) = self.calls.bids().next_back() {
            cx.send_elder(RegistryMessage::Become { service: service.clone(), request });
        }
    }
}

/// The member's requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct LockClient {
    states: BTreeMap<ServiceName, ServiceState>,
    /// The services with a state, in the order in which this member came to them.
    names: Vec<ServiceName>,
    /// The service of each request and pending call, as its index in `names`. Small, because
    /// each held lock has an entry.
    services: PagedMap<u32>,
    /// When the leases of held locks end, of those few that have one.
    leases: PagedMap<Time>,
    /// Wait limits, ends of leases, and pending calls to be sent again.
    agenda: BTreeSet<(Time, RequestId)>,
    /// Requests that were granted while this member's lease did not run.
    won: BTreeSet<(Token, RequestId)>,
    /// Services for which the elder is asked again: it did not know yet, or the grantor does not
    /// answer.
    again: DueServices,
    /// Pending calls of the kind `Ending`.
    endings: BTreeSet<RequestId>,
    /// The endings whose grantor knows.
    confirmed: BTreeSet<RequestId>,
    /// Requests and pending calls at the same time; beyond it the caller is told [`Outcome::Busy`].
    most: usize,
}

/// A request as the application makes it.
pub(crate) struct LockCall {
    pub(crate) request: RequestId,
    pub(crate) service: ServiceName,
    pub(crate) lock: LockRequest,
    pub(crate) wait: Wait,
    pub(crate) lease: Option<Duration>,
}

impl LockClient {
    pub(crate) fn new(limits: &Limits) -> LockClient {
        LockClient { most: limits.requests as usize, ..LockClient::default() }
    }

    fn is_full(&self) -> bool {
        self.services.len() >= self.most
    }

    /// The application wants a lock. `answer`: how long a try may take; `crowded`: too much is on
    /// its way to a member already.
    pub(crate) fn lock(
        &mut self,
        call: LockCall,
        answer: Duration,
        crowded: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        let (request, service) = (call.request, call.service.clone());
        let is_full = self.is_full();
        let state = self.state(&service);
        state.destroyed = false;
        if is_full || state.grantor.is_some_and(|(process, _)| crowded(process)) {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        match &call.lock.want {
            Want::Open(opening) => {
                state.objects.entry(opening.name().clone()).or_default().opens.insert(request);
            }
            Want::Permits(name, _) if state.objects.contains_key(name) => {
                state.permits.insert((name.clone(), request));
            }
            Want::Permits(..) => {
                cx.out.push(Output::Answer { request, outcome: Outcome::NotOpen });
                return;
            }
            Want::Suspension => {
                if self.suspends(&service, call.lock.owner, cx)
                    && !planted!(cx.mutant, WaitForItself)
                {
                    cx.out.push(Output::Answer { request, outcome: Outcome::Deadlock });
                    return;
                }
                self.state(&service).suspensions.insert(call.lock.owner, request);
            }
            _ => {}
        }
        let waiting = call.waiting(answer, cx.now);
        let state = self.state(&service);
        let (number, limit) = (state.number, waiting.limit);
        state.requests.insert(request, call.kept(Some(waiting), ClientRequestState::Unsent));
        state.waits.insert(request);
        self.services.insert(request, number);
        if limit != Time::MAX {
            self.agenda.insert((limit, request));
        }
        self.pursue(&service, Some(request), cx);
    }

    /// Whether the owner waits for the suspension of the service or has it. A second one would wait
    /// for the end of the first. A hold with an ended lease does not count, even before that end is
    /// noticed.
    fn suspends(&self, service: &ServiceName, owner: OwnerId, cx: &StepContext) -> bool {
        let first = self.states.get(service).and_then(|state| state.suspensions.get(&owner));
        first.is_some_and(|request| match self.request(*request).map(|entry| &entry.state) {
            Some(ClientRequestState::Held { .. }) => cx.leased && cx.now < self.lease_end(*request),
            waits => waits.is_some(),
        })
    }

    /// The application wants a lock, or a share of one, of a service that this very member grants
    /// in that epoch. The request holds at once, if `grant` grants it. The same as asking and being
    /// granted without the messages in between. Returns the token and the end of the lease.
    pub(crate) fn hold_at_once(
        &mut self,
        call: LockCall,
        (me, epoch): (ProcessId, Epoch),
        now: Time,
        grant: impl FnOnce(&LockCall) -> Option<Token>,
    ) -> Option<(Token, Time)> {
        if !self.may_hold(&call.service, (me, epoch)) {
            return None;
        }
        let token = grant(&call)?;
        Some((token, self.hold(call, token, now)))
    }

    /// Whether this very member grants the service, in that epoch, and may have one more request.
    pub(crate) fn may_hold(&self, service: &ServiceName, home: (ProcessId, Epoch)) -> bool {
        let is_home =
            |state: &ServiceState| state.grantor == Some(home) && state.newest == Some(home.1);
        self.states.get(service).is_some_and(is_home) && !self.is_full()
    }

    /// Records a hold that this member's own grantor has granted without a message. Returns the end
    /// of its lease.
    pub(crate) fn hold(&mut self, call: LockCall, token: Token, since: Time) -> Time {
        let until = call.lease.map_or(Time::MAX, |lease| since + lease);
        let request = call.request;
        if let Some(state) = self.states.get_mut(&call.service) {
            state.destroyed = false;
            self.services.insert(request, state.number);
            state
                .requests
                .insert(request, call.kept(None, ClientRequestState::Held { token, since }));
            self.lease_until(request, until);
        }
        until
    }

    /// The service and the name of a lock or a share that the request holds.
    pub(crate) fn held_lock(&self, request: RequestId) -> Option<(&ServiceName, &LockName)> {
        let service = self.service_of(request)?;
        match self.states.get(service)?.requests.get(&request)? {
            ClientRequest {
                want: Want::Lock(name) | Want::Share(name),
                state: ClientRequestState::Held { .. },
                ..
            } => Some((service, name)),
            _ => None,
        }
    }

    /// Forgets such a request after its grantor here has ended the hold.
    pub(crate) fn end_at_once(&mut self, request: RequestId) {
        self.forget(request);
    }

    /// Whether it is this member that grants the service, in that epoch.
    pub(crate) fn is_home(&self, service: &ServiceName, home: (ProcessId, Epoch)) -> bool {
        self.states.get(service).is_some_and(|state| state.grantor == Some(home))
    }

    /// Whether an answer waits for services that were destroyed here.
    pub(crate) fn has_endings(&self) -> bool {
        !self.endings.is_empty()
    }

    /// The application is done with a request, or no longer waits for a pending call.
    pub(crate) fn release(&mut self, request: RequestId, cx: &mut StepContext) {
        let Some(service) = self.service_of(request).cloned() else { return };
        match self.drop_call(request) {
            None => self.end(request, cx),
            Some(PendingCall { what: CallKind::Upgrade(hold, Some(_)), .. }) => {
                self.stay_narrow(&service, hold, cx)
            }
            Some(PendingCall { what: CallKind::Write(name, ..), .. }) => {
                self.write_next(&service, &name, cx)
            }
            Some(_) => {}
        }
    }

    fn send_reduce(&self, service: &ServiceName, request: RequestId, cx: &mut StepContext) {
        if let Some(state) = self.states.get(service)
            && let Some(ClientRequest {
                want, state: ClientRequestState::Held { token, .. }, ..
            }) = state.requests.get(&request)
            && let Some(grantor) = state.grantor.map(|(process, _)| process).or(state.last)
            && let Some(epoch) = state.newest
        {
            let (service, want, token) = (service.clone(), want.clone(), *token);
            cx.send(grantor, GrantorMessage::Reduce { service, epoch, request, want, token });
        }
    }

    /// The application reduces a hold.
    pub(crate) fn narrow(&mut self, request: RequestId, want: Want, cx: &mut StepContext) {
        let may = cx.leased && cx.now < self.lease_end(request);
        let outcome = match self.request_mut(request) {
            Some(ClientRequest { want: has, state: ClientRequestState::Held { .. }, .. })
                if may && want.is_less_than(has) =>
            {
                *has = want;
                Outcome::Narrowed
            }
            _ => Outcome::NotHeld,
        };
        if outcome == Outcome::Narrowed
            && let Some(service) = self.service_of(request).cloned()
        {
            // Another guard of the hold may have asked for an upgrade before. The answer may be on
            // its way, and predates this call.
            for asked in self.upgrades_of(&service, request) {
                self.answer_call(asked, Outcome::Undecided, cx);
            }
            self.send_reduce(&service, request, cx);
        }
        cx.out.push(Output::Answer { request, outcome });
    }

    /// Ends pending calls and requests, objects last: so the end of an object tells no caller of an
    /// end that it is told already.
    fn close_all(
        &mut self,
        calls: Vec<RequestId>,
        requests: Vec<RequestId>,
        reason: LostReason,
        cx: &mut StepContext,
    ) {
        for request in calls {
            if self.drop_call(request).is_some() {
                cx.out.push(Output::Answer { request, outcome: Outcome::Closed(reason) });
            }
        }
        let opens = |holder: &LockClient, request| {
            holder.request(request).is_some_and(|entry| entry.want.opens())
        };
        let (opens, others): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| opens(self, *request));
        for request in others.into_iter().chain(opens) {
            let Some(entry) = self.request(request) else { continue };
            match entry.state {
                ClientRequestState::Held { .. } => self.report_loss(request, reason, cx),
                _ => {
                    let outcome = Outcome::Closed(reason);
                    cx.out.push(Output::Answer { request, outcome });
                }
            }
            self.end(request, cx);
        }
    }

    /// The application wants a hold to last.
    pub(crate) fn extend(&mut self, request: RequestId, lease: Duration, cx: &mut StepContext) {
        let before = self.lease_end(request);
        let is_held = self
            .request(request)
            .is_some_and(|entry| matches!(entry.state, ClientRequestState::Held { .. }));
        let outcome = if is_held && cx.leased && cx.now < before {
            let until = before.max(cx.now + lease);
            self.leases.remove(&request);
            self.agenda.remove(&(before, request));
            self.lease_until(request, until);
            Outcome::Extended { until }
        } else {
            Outcome::NotHeld
        };
        cx.out.push(Output::Answer { request, outcome });
    }

    /// Wait limits and leases that are over.
    pub(crate) fn on_timer(&mut self, cx: &mut StepContext) {
        while let Some((at, service)) = self.again.pop_first() {
            if at > cx.now {
                self.again.insert((at, service));
                break;
            }
            if let Some(state) = self.states.get_mut(&service) {
                state.refused = None;
                state.asked_elder = false;
                let is_suspected = std::mem::take(&mut state.is_suspected);
                // A known grantor has been asked for everything.
                if state.grantor.is_none() {
                    self.pursue(&service, None, cx);
                } else if is_suspected {
                    self.ask_for_another(&service, cx);
                }
            }
        }
        // Those beyond stay due.
        for _ in 0..cx.limits.slice {
            let Some(&(at, request)) = self.agenda.first() else { break };
            if at > cx.now {
                break;
            }
            touch();
            self.agenda.remove(&(at, request));
            if let Some(call) = self.call_mut(request) {
                let outcome = (call.limit <= cx.now).then(|| call.at_limit());
                match outcome {
                    Some(outcome) => {
                        self.release(request, cx);
                        cx.out.push(Output::Answer { request, outcome });
                    }
                    None => self.repeat(request, cx),
                }
                continue;
            }
            let Some(entry) = self.request_mut(request) else { continue };
            match entry.state {
                ClientRequestState::Held { .. } => {
                    self.report_loss(request, LostReason::LeaseEnded, cx);
                }
                _ => {
                    let outcome = entry.at_limit();
                    cx.out.push(Output::Answer { request, outcome });
                }
            }
            planted!(cx.mutant, TellNobodyOfLeaseEnd => self.forget(request));
            self.end(request, cx);
        }
    }

    /// Some hint calls a member unreachable. If it grants services of which something is awaited,
    /// the elder is asked for other grantors, unless the member answers after all.
    pub(crate) fn on_suspected(&mut self, process: ProcessId, cx: &mut StepContext) {
        for (service, state) in &mut self.states {
            if state.grantor.is_some_and(|(grantor, _)| grantor == process) {
                state.suspect_grantor(&mut self.again, service, cx.now + cx.timing.silence());
            }
        }
    }

    /// Asks the elder for another grantor in place of one that does not answer. The elder names
    /// one if it does not hear the present one either, so it is asked until the suspicion is over.
    fn ask_for_another(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let Some(state) = self.states.get_mut(service) else { return };
        let Some((grantor, _)) = state.grantor else { return };
        let is_suspected = cx.suspected.contains(&grantor) || cx.is_ghost(grantor);
        if is_suspected && state.awaits_grantor() {
            cx.send_elder(state.question(service));
            state.suspect_grantor(&mut self.again, service, cx.now + cx.timing.slow_beat());
        }
    }

    /// Adds the sizes of this client.
    pub(crate) fn count(&self, sizes: &mut Sizes) {
        sizes.requests += self.services.len();
        sizes.request_timers += self.agenda.len() + self.again.len();
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let again = self.again.first().map(|(at, _)| *at);
        self.agenda.first().map(|(at, _)| *at).into_iter().chain(again).min()
    }

    /// Whether a hold of the request may be believed at `now`, but for the member's own lease. An
    /// open object is no hold.
    pub(crate) fn holds(&self, request: RequestId, now: Time) -> Option<Token> {
        let entry = self.request(request)?;
        match entry.state {
            ClientRequestState::Held { token, .. }
                if now < self.lease_end(request) && !entry.want.opens() =>
            {
                Some(token)
            }
            _ => None,
        }
    }

    /// The token that the request was granted, whether or not it may be believed.
    pub(crate) fn granted(&self, request: RequestId) -> Option<Token> {
        match self.request(request)?.state {
            ClientRequestState::Held { token, .. } | ClientRequestState::Won(token, _) => {
                Some(token)
            }
            _ => None,
        }
    }

    /// The position of the request, if it was reported.
    pub(crate) fn position_of(&self, request: RequestId) -> Option<Ticket> {
        let entry = self.request(request)?;
        match entry.state {
            ClientRequestState::Unsent
            | ClientRequestState::Asked(_)
            | ClientRequestState::Queued(_) => entry.ticket(),
            ClientRequestState::Won(..) | ClientRequestState::Held { .. } => None,
        }
    }

    /// The elder, or a recovering grantor, states the grantor of the service.
    pub(crate) fn on_grantor_is(
        &mut self,
        service: &ServiceName,
        grantor: ProcessId,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        let state = self.state(service);
        let outdated = state.newest.is_some_and(|newest| newest > epoch);
        if outdated && state.grantor.is_some() {
            return;
        }
        if outdated || state.refused == Some(epoch) {
            // We know of a younger grantor, or two point at each other. The elder will hear of it,
            // so it is asked again in a while.
            self.again.insert((cx.now + cx.timing.retry, service.clone()));
            return;
        }
        let before = state.grantor.replace((grantor, epoch));
        state.newest = Some(epoch);
        state.last = None;
        state.asked_elder = false;
        if before != state.grantor {
            self.pursue(service, None, cx);
        }
    }

    /// A grantor shows by its answer that it acts. It may have refused a request of the same epoch
    /// before, because it did not act yet. This member then knows of no grantor.
    fn on_acting(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        let Some(state) = self.states.get_mut(service) else { return };
        if state.grantor.is_none() && state.newest == Some(epoch) {
            state.refused = None;
            self.on_grantor_is(service, from, epoch, cx);
        }
    }

    /// A position was acknowledged.
    pub(crate) fn on_queued(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        (request, ticket): (RequestId, Ticket),
        cx: &mut StepContext,
    ) {
        self.queue(from, service, epoch, (request, ticket), cx);
        self.on_acting(from, service, epoch, cx);
    }

    fn queue(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        (request, ticket): (RequestId, Ticket),
        cx: &mut StepContext,
    ) {
        let state = self.states.get_mut(service);
        let outdated =
            state.as_ref().is_some_and(|state| state.newest.is_some_and(|newest| newest > epoch));
        let Some((reported, entry)) = state.and_then(|state| {
            let entry = state.requests.get_mut(&request)?;
            Some((state.reported, entry))
        }) else {
            // Perhaps a younger grantor was told that it is over, and never came to act.
            if !outdated && !planted!(cx.mutant, KeepUnwantedGrant) {
                cx.send(from, GrantorMessage::Release { service: service.clone(), request });
            }
            return;
        };
        if let ClientRequestState::Unsent
        | ClientRequestState::Asked(_)
        | ClientRequestState::Queued(_) = entry.state
        {
            let Some(waiting) = entry.waiting_mut() else { return };
            if !outdated {
                waiting.ticket = Some(ticket);
                entry.state = ClientRequestState::Queued(epoch);
            } else if reported.is_none_or(|reported| reported <= epoch) {
                // A young turk is named, and this grantor acts until it is asked for its table: the
                // position is good.
                waiting.ticket.get_or_insert(ticket);
            }
        }
    }

    /// A lock was granted.
    pub(crate) fn on_grant(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
        token: Token,
        cx: &mut StepContext,
    ) {
        let outdated = self.newest(service).is_some_and(|newest| newest > epoch);
        if outdated && !planted!(cx.mutant, AcceptOlderEpoch) {
            return; // `no_resurrected_grant`: our report to a newer grantor lacks this grant
        }
        if !cx.is_dealt(token) {
            return;
        }
        let Some(entry) = self.request_mut(request) else {
            if !planted!(cx.mutant, KeepUnwantedGrant) {
                cx.send(from, GrantorMessage::Release { service: service.clone(), request });
            }
            return;
        };
        match entry.state {
            ClientRequestState::Held { .. } | ClientRequestState::Won(..)
                if !planted!(cx.mutant, AnswerTwice) => {}
            _ => {
                entry.state = ClientRequestState::Won(token, cx.now);
                self.accept(request, cx);
            }
        }
        self.on_acting(from, service, epoch, cx);
    }

    /// The grantor neither grants nor queues it.
    pub(crate) fn on_refuse(
        &mut self,
        epoch: Epoch,
        request: RequestId,
        refusal: Refusal,
        cx: &mut StepContext,
    ) {
        if let Some(call) = self.call_mut(request) {
            // The next grantor has been asked since, and may have done it.
            if call.what.asked().is_some_and(|asked| *asked > Some(epoch)) {
                return;
            }
            return self.on_call_refused(request, &refusal, cx);
        }
        let Some(entry) = self.request_mut(request) else { return };
        let is_final =
            entry.is_only_if_free() || matches!(refusal, Refusal::Deadlock | Refusal::NotOpen);
        if !matches!(entry.state, ClientRequestState::Asked(_)) || !is_final {
            return;
        }
        let outcome = match refusal {
            Refusal::Deadlock => Outcome::Deadlock,
            Refusal::NotOpen => Outcome::NotOpen,
            Refusal::Limit(limit) if entry.is_try() => Outcome::Limit(limit),
            Refusal::Held(holder) if entry.is_try() => Outcome::Held(holder),
            Refusal::Waited(name) if entry.is_try() => Outcome::Waited(name),
            _ => entry.at_limit(),
        };
        if let Some((service, entry)) = self.take(request) {
            cx.out.push(Output::Answer { request, outcome });
            self.shut(&service, &entry, cx);
        }
    }

    /// The process that we asked does not grant. `instead`: a member of the view that does, as far
    /// as that process knows.
    pub(crate) fn on_not_grantor(
        &mut self,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
        instead: Option<(ProcessId, Epoch)>,
        cx: &mut StepContext,
    ) {
        let Some(state) = self.states.get_mut(service) else { return };
        let unsent = |_: RequestId, entry: &mut ClientRequest| {
            if let ClientRequestState::Asked(asked) | ClientRequestState::Queued(asked) =
                entry.state
                && asked == epoch
            {
                entry.state = ClientRequestState::Unsent;
            }
        };
        if state.grantor.is_some_and(|(_, known)| known == epoch) {
            // An answer to one request counts for all: the process may leave before it has answered
            // every one of them.
            state.last = state.grantor.map(|(process, _)| process);
            state.grantor = None;
            state.refused = Some(epoch);
            state.each_waiting(unsent);
            for (_, call) in state.calls.iter_mut() {
                if let Some(asked) = call.what.asked()
                    && *asked == Some(epoch)
                {
                    *asked = None;
                }
            }
        } else if let Some(entry) = state.requests.get_mut(&request) {
            unsent(request, entry);
        }
        if let Some((process, newer)) = instead
            && newer > epoch
            && state.newest.is_none_or(|newest| newest < newer)
        {
            self.on_grantor_is(service, process, newer, cx);
        } else {
            // A known grantor has been asked for all the others, and many of these may be refused,
            // each with an answer of its own.
            self.pursue(service, Some(request), cx);
        }
    }

    /// A newer grantor asked the one here for its table. Returns false if there is a still newer
    /// one.
    pub(crate) fn on_newer_grantor(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) -> bool {
        if self.newest(service).is_some_and(|newest| newest > epoch) {
            return false;
        }
        self.state(service).refused = None;
        self.on_grantor_is(service, from, epoch, cx);
        true
    }

    /// The question to the elder which member grants the service.
    pub(crate) fn question(&self, service: &ServiceName) -> Message {
        let heard = self.newest(service);
        Message::Registry(RegistryMessage::FindGrantor { service: service.clone(), heard })
    }

    /// The grantor of the service, and the newest epoch heard of.
    pub(crate) fn grantor(&self, service: &ServiceName) -> (Option<ProcessId>, Option<Epoch>) {
        let Some(state) = self.states.get(service) else { return (None, None) };
        (state.grantor.map(|(process, _)| process), state.newest)
    }

    /// Our hold lost against one with a higher token.
    pub(crate) fn on_supersede(&mut self, request: RequestId, cx: &mut StepContext) {
        if let Some(entry) = self.request_mut(request) {
            if matches!(entry.state, ClientRequestState::Held { .. }) {
                self.report_loss(request, LostReason::Superseded, cx);
            } else {
                let outcome = Outcome::Closed(LostReason::Superseded);
                cx.out.push(Output::Answer { request, outcome });
            }
            if let Some((service, entry)) = self.take(request) {
                self.shut(&service, &entry, cx);
            }
        }
    }

    /// A new grantor asks for our holds and waits. From here on older epochs are over for this
    /// member. Returns false if this question is itself out of date.
    pub(crate) fn on_recover(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) -> bool {
        let state = self.state(service);
        if state.newest.is_some_and(|newest| newest > epoch) {
            return false;
        }
        state.grantor = Some((from, epoch));
        state.newest = Some(epoch);
        state.reported = Some(epoch);
        state.last = None;
        state.asked_elder = false;
        state.report(service, (from, epoch), cx);
        state.calls.each_ending(|request, awaited| {
            if awaited.is_some() {
                // The process that we told may have transferred its table before. A request that is
                // not in our report is over here.
                *awaited = Some(from);
                cx.send(from, GrantorMessage::ConfirmDestroy { service: service.clone(), request });
            }
        });
        self.pursue(service, None, cx);
        true
    }

    /// A new view: grantors that left are forgotten, and the elder is asked for those that are
    /// needed.
    pub(crate) fn on_view(&mut self, view: &View, cx: &mut StepContext) {
        let (mut wanting, mut suspected, mut revoking) = (Vec::new(), Vec::new(), Vec::new());
        for (service, state) in &mut self.states {
            touch();
            state.asked_elder = false;
            state.refused = None;
            if state.grantor.is_some_and(|(process, _)| !view.contains(process)) {
                state.grantor = None;
                state.each_waiting(|_, entry| {
                    if let ClientRequestState::Asked(_) | ClientRequestState::Queued(_) =
                        entry.state
                    {
                        entry.state = ClientRequestState::Unsent;
                    }
                });
            }
            // The elder may be another one.
            state.send_bids(service, cx);
            state.calls.each_ending(|request, awaited| {
                if let Some(awaited) = awaited
                    && !view.contains(*awaited)
                {
                    // It may have had a successor.
                    *awaited = view.elder().process;
                    cx.send(
                        *awaited,
                        GrantorMessage::ConfirmDestroy { service: service.clone(), request },
                    );
                }
            });
            revoking.extend(state.calls.revocations());
            if state.grantor.is_none() && state.wants_grantor() {
                wanting.push(service.clone());
            }
            if state.grantor.is_some_and(|(grantor, _)| cx.is_ghost(grantor)) {
                suspected.push(service.clone());
            }
        }
        for service in wanting {
            self.pursue(&service, None, cx);
        }
        for service in suspected {
            self.ask_for_another(&service, cx);
        }
        self.revocations_on_view(revoking, view, cx);
    }

    /// The member's lease runs (again): requests that were won meanwhile begin to hold, in the
    /// order in which they were granted.
    pub(crate) fn on_resumed(&mut self, cx: &mut StepContext) {
        for (_, request) in std::mem::take(&mut self.won) {
            self.accept(request, cx);
        }
    }

    /// The member's lease is over: no hold may be believed. Waits go on.
    pub(crate) fn on_suspended(&mut self, cx: &mut StepContext) {
        planted!(cx.mutant, HoldWhileSuspended => return);
        for request in self.held() {
            // Objects stay open: no other member gets anything by it that this member has.
            self.report_loss(request, LostReason::Suspended, cx);
            self.end(request, cx);
        }
    }

    /// The member is out: everything ends.
    pub(crate) fn close(&mut self, reason: LostReason, cx: &mut StepContext) {
        let requests = self.services.keys().collect::<Vec<_>>();
        self.close_all(requests.clone(), requests, reason, cx);
    }

    /// The grantors this member has heard of.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&ServiceName, ProcessId, Epoch)> {
        self.states.iter().filter_map(|(service, state)| {
            let (grantor, epoch) =
                state.grantor.or(state.newest.map(|newest| (ProcessId(0), newest)))?;
            Some((service, grantor, epoch))
        })
    }

    /// Whether this member knows of the epoch. Its own epochs that are over count, too.
    pub(crate) fn has_heard_of(&self, service: &ServiceName, epoch: Epoch) -> bool {
        self.states.get(service).is_some_and(|state| state.newest.max(state.ended) >= Some(epoch))
    }

    /// An epoch of this member's own is over, or will never begin.
    pub(crate) fn on_ended(&mut self, service: &ServiceName, epoch: Epoch) {
        let state = self.state(service);
        state.ended = state.ended.max(Some(epoch));
    }

    /// Whether the service was destroyed here, and is not in use again.
    pub(crate) fn is_destroyed(&self, service: &ServiceName) -> bool {
        self.states.get(service).is_some_and(|state| state.destroyed)
    }

    /// The newest epoch of the service that this member has heard of.
    pub(crate) fn newest(&self, service: &ServiceName) -> Option<Epoch> {
        self.states.get(service)?.newest
    }

    /// For [`Status`](crate::protocol::Status): the service, its grantor and epoch, waits, holds
    /// and open objects of this member. Services `after` that service, all if there is none, in the
    /// order of their names.
    pub(crate) fn status(
        &self,
        after: Bound<&ServiceName>,
    ) -> impl Iterator<Item = (&ServiceName, Option<(ProcessId, Epoch)>, [usize; 3])> {
        self.states.range::<ServiceName, _>((after, Bound::Unbounded)).map(|(service, state)| {
            touch();
            let (waits, opens) = (state.waits.len(), state.opens);
            (service, state.grantor, [waits, state.requests.len() - waits - opens, opens])
        })
    }

    /// How many services it knows.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn services(&self) -> usize {
        self.states.len()
    }

    fn held(&self) -> Vec<RequestId> {
        let requests = self.states.values().flat_map(|state| state.requests.iter());
        let holds = |entry: &ClientRequest| {
            matches!(entry.state, ClientRequestState::Held { .. }) && !entry.want.opens()
        };
        requests.filter(|(_, entry)| holds(entry)).map(|(request, _)| request).collect()
    }

    /// Brings unsent requests of the service on their way: `only` this request, or all. Whenever a
    /// grantor becomes known all are, so with a known grantor no other one is left.
    fn pursue(&mut self, service: &ServiceName, only: Option<RequestId>, cx: &mut StepContext) {
        let Some(state) = self.states.get_mut(service) else { return };
        if let Some((grantor, _)) = state.grantor
            && cx.suspected.contains(&grantor)
        {
            state.suspect_grantor(&mut self.again, service, cx.now + cx.timing.silence());
        }
        let Some((grantor, epoch)) = state.grantor else {
            if !state.asked_elder && cx.elder.is_some() && state.wants_grantor() {
                state.asked_elder = true;
                cx.send_elder(state.question(service));
            }
            return;
        };
        state.ask_for_locks(service, (grantor, epoch), only, cx);
        // After the requests: they may be about one.
        state.ask_for_calls(service, (grantor, epoch), only, cx);
    }

    /// A won lock begins to be held, if the member's lease runs.
    fn accept(&mut self, request: RequestId, cx: &mut StepContext) {
        let Some(entry) = self.request_mut(request) else { return };
        let ClientRequestState::Won(token, since) = entry.state else { return };
        if !cx.leased && !entry.want.opens() && !planted!(cx.mutant, GrantWhileSuspended) {
            self.won.insert((token, request));
            return;
        }
        let waiting = entry.take_waiting();
        let lease = waiting.as_ref().and_then(|waiting| waiting.lease);
        let until = lease.map_or(Time::MAX, |lease| cx.now + lease);
        let limit = waiting.map_or(Time::MAX, |waiting| waiting.limit);
        entry.state = ClientRequestState::Held { token, since };
        let want = entry.want.clone();
        self.agenda.remove(&(limit, request));
        self.lease_until(request, until);
        let mut outcome = Outcome::Granted { token, until };
        if let Some(state) = self.state_of_mut(request) {
            state.waits.remove(&request);
            state.opens += usize::from(want.opens());
            match want {
                Want::Permits(name, _) => drop(state.permits.remove(&(name, request))),
                Want::Open(opening) => {
                    if let Some(object) = state.objects.get_mut(opening.name()) {
                        object.granted += 1;
                        if let Some(content) = object.content.clone() {
                            outcome = Outcome::Opened { token, content };
                        }
                    }
                }
                _ => {}
            }
        }
        cx.out.push(Output::Answer { request, outcome });
    }

    /// When the lease of the request's hold ends.
    fn lease_end(&self, request: RequestId) -> Time {
        self.leases.get(&request).copied().unwrap_or(Time::MAX)
    }

    /// Leases the request's hold until then.
    fn lease_until(&mut self, request: RequestId, until: Time) {
        if until != Time::MAX {
            self.leases.insert(request, until);
            self.agenda.insert((until, request));
        }
    }

    /// Forgets the request and tells the grantor, if it may know of it.
    fn end(&mut self, request: RequestId, cx: &mut StepContext) {
        let Some((service, entry)) = self.take(request) else { return };
        self.shut(&service, &entry, cx);
        planted!(=> if planted::is_kept(&entry, cx) { return });
        let Some(state) = self.states.get(&service) else { return };
        let grantor = state.grantor.map(|(process, _)| process);
        // A process that said it does not grant may have learned since that it does, and have us in
        // its table.
        if let Some(grantor) =
            grantor.filter(|_| entry.state != ClientRequestState::Unsent).or(state.last)
        {
            cx.send(grantor, GrantorMessage::Release { service, request });
        }
    }

    /// Reports that a hold is over, before it is forgotten.
    fn report_loss(&self, request: RequestId, reason: LostReason, cx: &mut StepContext) {
        let (Some(service), Some(entry)) = (self.service_of(request), self.request(request)) else {
            return;
        };
        let (service, want) = (service.clone(), entry.want.clone());
        cx.out.push(Output::Lost { request, reason, service, want });
    }

    /// Forgets the request. Returns it and its service.
    fn take(&mut self, request: RequestId) -> Option<(ServiceName, ClientRequest)> {
        let service = self.service_of(request)?.clone();
        Some((service, self.forget(request)?))
    }

    fn forget(&mut self, request: RequestId) -> Option<ClientRequest> {
        let number = self.services.remove(&request)?;
        let state = self.states.get_mut(self.names.get(number as usize)?)?;
        let entry = state.requests.remove(&request)?;
        let is_held = matches!(entry.state, ClientRequestState::Held { .. });
        if !is_held {
            state.waits.remove(&request);
        }
        state.opens -= usize::from(is_held && entry.want.opens());
        let due = match entry.state {
            ClientRequestState::Held { .. } => self.leases.remove(&request),
            _ => Some(entry.limit()),
        };
        if let ClientRequestState::Won(token, _) = entry.state {
            self.won.remove(&(token, request));
        }
        if let Some(due) = due {
            self.agenda.remove(&(due, request));
        }
        match &entry.want {
            Want::Permits(name, _) => drop(state.permits.remove(&(name.clone(), request))),
            Want::Open(opening) => {
                if let Some(object) = state.objects.get_mut(opening.name()) {
                    object.opens.remove(&request);
                    object.granted -= usize::from(is_held);
                }
            }
            Want::Suspension if state.suspensions.get(&entry.owner) == Some(&request) => {
                state.suspensions.remove(&entry.owner);
            }
            _ => {}
        }
        Some(entry)
    }

    /// The state of a service. It begins now, if there is none.
    fn state(&mut self, service: &ServiceName) -> &mut ServiceState {
        match self.states.entry(service.clone()) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(new) => {
                let number = self.names.len() as u32;
                self.names.push(service.clone());
                new.insert(ServiceState { number, ..ServiceState::default() })
            }
        }
    }

    /// The service of a request, or of a pending call.
    fn service_of(&self, request: RequestId) -> Option<&ServiceName> {
        self.names.get(*self.services.get(&request)? as usize)
    }

    fn state_of_mut(&mut self, request: RequestId) -> Option<&mut ServiceState> {
        let number = *self.services.get(&request)?;
        self.states.get_mut(self.names.get(number as usize)?)
    }

    fn request(&self, request: RequestId) -> Option<&ClientRequest> {
        self.states.get(self.service_of(request)?)?.requests.get(&request)
    }

    fn request_mut(&mut self, request: RequestId) -> Option<&mut ClientRequest> {
        self.state_of_mut(request)?.requests.get_mut(&request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each held lock has one.
    #[test]
    fn a_held_lock_takes_little_memory() {
        assert_eq!(size_of::<ClientRequest>(), 72);
    }
}
