//! The member's own requests, waiting and holding, in all services, and its pending calls.
//!
//! - Wait limits and leases of locks are kept here and only here, on this member's clock. The
//!   grantor measures no time.
//! - `one_outcome_per_request`: a request is answered when the client forgets it or it begins to
//!   hold, and never twice.
//! - A request that is over is forgotten at once. A grant of it that still arrives is released.
//!
//! ```text
//!           grantor known        acknowledged       granted         released, lease ended, lost
//! Unsent ----------------> Asked ------------> Queued -----> Held -----------------------> over
//!    ^--- grantor gone ------/-----------------/   \-> Won: granted while the member's lease
//!                                                       does not run
//! ```
//!
//! `request.rs` has one request, and `service_state.rs` the state of one service. `grantors.rs`
//! service_queries the grantors, and `holds.rs` has the granted requests.
//!
//! A call that other members answer and that is not a request for a lock is a pending call
//! (`pending_call.rs`, `calls.rs`). Open objects are in `open_object.rs` and `objects.rs`. Holds
//! that are requested back are in `revocation_call.rs` and `revocation.rs`, and kept locks in
//! `kept_locks.rs` and `keeps.rs`. `load_meter.rs` measures whether this member makes most of a
//! service's requests.

use crate::protocol::cluster::view::View;
use crate::protocol::content::Content;
use crate::protocol::content::Edit;
use crate::protocol::event::{
    Event, LostReason, Outcome, Output, RevocationRequest, RevokeCommand, Sizes, Wait,
};
use crate::protocol::id::{
    Epoch, LockName, OwnerId, ProcessId, RequestId, ServiceName, Ticket, Token, Want,
};
use crate::protocol::limits::Limits;
use crate::protocol::message::{
    GrantorMessage, HolderInfo, Message, ObjectReply, Query, QueryReply, Refusal, RegistryMessage,
    RevocationAnswer,
};
use crate::protocol::paged_map::PagedMap;
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Bound;
use std::time::Duration;

mod calls;
mod grantors;
mod holds;
mod keeps;
mod kept_locks;
mod load_meter;
mod objects;
mod open_object;
mod owners;
mod pending_call;
#[cfg(elderlock_mutants)]
mod planted;
mod probes;
mod report;
mod report_progress;
mod request;
mod revocation;
mod revocation_call;
mod service_state;

use kept_locks::KeptLocks;
pub use kept_locks::KeptUse;
pub(crate) use kept_locks::{MAX_USERS, speaks_of_keeping};
use load_meter::LoadMeter;
use open_object::OpenObject;
use pending_call::{CallKind, PendingCall};
use report_progress::ReportProgress;
pub(crate) use request::LockCall;
use request::{ClientRequest, ClientRequestState};
use service_state::{DueServices, ServiceState};

/// The member's requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct LockClient {
    states: BTreeMap<ServiceName, ServiceState>,
    /// The services with a state, in the order of their first use.
    names: Vec<ServiceName>,
    /// The service of each request and pending call, as its index in `names`. The entries are
    /// small, because each held lock has one.
    services: PagedMap<u32>,
    /// The ends of the leases of held locks. Few locks have one.
    leases: PagedMap<Time>,
    /// Wait limits, ends of leases, and pending calls to be sent again.
    agenda: BTreeSet<(Time, RequestId)>,
    /// The times of the next probes of waiting requests.
    probes: BTreeSet<(Time, RequestId)>,
    /// Requests that were granted while this member's lease did not run.
    won: BTreeSet<(Token, RequestId)>,
    /// Services for which the elder is asked again: it did not know yet, or may have refused the
    /// name, or the grantor does not answer.
    again: DueServices,
    /// The services among these whose name the elder may have refused.
    unanswered: BTreeSet<ServiceName>,
    /// Pending calls of the kind `Ending`.
    destructions: BTreeSet<RequestId>,
    /// The destructions that the grantor has confirmed.
    confirmed: BTreeSet<RequestId>,
    /// Locks that this member keeps after their release.
    kept: KeptLocks,
    /// The meters of the services whose load this member follows.
    loads: BTreeMap<u32, LoadMeter>,
    /// The reports to grantors that are under way.
    reports: BTreeMap<ServiceName, ReportProgress>,
    /// The most requests and pending calls at the same time. Beyond it a caller gets
    /// [`Outcome::Busy`].
    most: usize,
    /// The approximate bytes of all requests.
    bytes: usize,
    /// The bytes from which on the caller of a further request gets [`Outcome::Busy`].
    most_bytes: usize,
}

impl LockClient {
    pub(crate) fn new(limits: &Limits) -> LockClient {
        LockClient {
            most: limits.requests as usize,
            most_bytes: limits.link.request_bytes as usize,
            ..LockClient::default()
        }
    }

    fn is_full(&self) -> bool {
        self.services.len() >= self.most
    }

    /// Returns whether a further request may be kept.
    fn has_room(&self) -> bool {
        !self.is_full() && self.bytes < self.most_bytes
    }

    /// Requests a lock for the application. `answer`: how long a try may take; `crowded`: too much
    /// is on its way to a member already.
    pub(crate) fn lock(
        &mut self,
        call: LockCall,
        answer: Duration,
        crowded: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        let (request, service) = (call.request, call.service.clone());
        if !self.has_room() && !planted!(cx.mutant, AskWithoutRoom) {
            self.state(&service).destroyed = false;
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        let Some((call, keep)) = self.use_kept(call, cx) else { return };
        let state = self.state(&service);
        state.destroyed = false;
        if state.grantor.is_some_and(|(process, _)| crowded(process)) {
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
        let mut waiting = call.waiting(answer, cx.now);
        waiting.keep = keep;
        let is_one = call.lock.owner != OwnerId::default();
        let detects = call.detects && is_one && !waiting.is_only_if_free();
        let follows = call.follows;
        self.bytes += call.lock.kept_weight();
        let state = self.state(&service);
        let (number, limit) = (state.number, waiting.limit);
        state.requests.insert(request, call.kept(Some(waiting), ClientRequestState::Unsent));
        state.waits.insert(request);
        self.services.insert(request, number);
        match follows {
            true => _ = self.loads.entry(number).or_default(),
            false => _ = self.loads.remove(&number),
        }
        if limit != Time::MAX {
            self.agenda.insert((limit, request));
        }
        if detects {
            self.probe_for(request, cx);
        }
        self.pursue(&service, Some(request), cx);
    }

    /// Returns whether the owner waits for the suspension of the service or has it. A second
    /// suspension would wait for the end of the first. A hold with an ended lease does not count,
    /// even before that end is noticed.
    fn suspends(&self, service: &ServiceName, owner: OwnerId, cx: &StepContext) -> bool {
        let first = self.states.get(service).and_then(|state| state.suspensions.get(&owner));
        first.is_some_and(|request| match self.request(*request).map(|entry| &entry.state) {
            Some(ClientRequestState::Held { .. }) => cx.leased && cx.now < self.lease_end(*request),
            waits => waits.is_some(),
        })
    }

    /// Returns whether a pending call waits for the end of a service that was destroyed here.
    pub(crate) fn has_endings(&self) -> bool {
        !self.destructions.is_empty()
    }

    /// Ends a request of the application, or drops a pending call.
    pub(crate) fn release(&mut self, request: RequestId, cx: &mut StepContext) {
        let Some(service) = self.service_of(request).cloned() else { return };
        match self.drop_call(request) {
            None => self.end(request, cx),
            Some(PendingCall { kind: CallKind::Upgrade(hold, Some(_)), .. }) => {
                self.stay_reduced(&service, hold, cx)
            }
            Some(PendingCall { kind: CallKind::Write(name, ..), .. }) => {
                self.write_next(&service, &name, cx)
            }
            Some(_) => {}
        }
    }

    /// Ends pending calls and requests, objects last: so no caller gets a second answer because an
    /// object has ended.
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

    /// Handles wait limits and leases that are over.
    pub(crate) fn on_timer(&mut self, cx: &mut StepContext) {
        while let Some((at, service)) = self.again.pop_first() {
            if at > cx.now {
                self.again.insert((at, service));
                break;
            }
            self.unanswered.remove(&service);
            if let Some(state) = self.states.get_mut(&service) {
                state.refused = None;
                state.asked_elder = false;
                let is_suspected = std::mem::take(&mut state.is_suspected);
                // All requests have been sent to a known grantor already.
                if state.grantor.is_none() {
                    self.pursue(&service, None, cx);
                } else if is_suspected {
                    self.ask_for_another(&service, cx);
                }
            }
        }
        self.send_probes(cx);
        self.look_at_kept(cx);
        // Entries beyond one slice stay due for the next step.
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
            planted!(cx.mutant, HideLeaseEnd => self.forget(request));
            self.end(request, cx);
        }
    }

    /// Adds the sizes of this client.
    pub(crate) fn count(&self, sizes: &mut Sizes) {
        sizes.requests += self.services.len() + self.kept.len();
        sizes.request_timers += self.agenda.len() + self.again.len() + self.probes.len();
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let again = self.again.first().map(|(at, _)| *at);
        let probe = self.probes.first().map(|(at, _)| *at);
        self.agenda
            .first()
            .map(|(at, _)| *at)
            .into_iter()
            .chain(again)
            .chain(probe)
            .chain(self.kept.deadline())
            .min()
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

    /// Notes an acknowledged position.
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
            // Perhaps a younger grantor was told that the request is over, and never came to act.
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

    /// Handles a refusal: the grantor neither grants nor queues the request.
    pub(crate) fn on_refuse(
        &mut self,
        epoch: Epoch,
        request: RequestId,
        refusal: Refusal,
        cx: &mut StepContext,
    ) {
        if let Some(call) = self.call_mut(request) {
            // The next grantor was asked meanwhile, and may have answered with an effect.
            if call.kind.asked().is_some_and(|asked| *asked > Some(epoch)) {
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

    /// The membership has ended: end all requests and holds.
    pub(crate) fn close(&mut self, reason: LostReason, cx: &mut StepContext) {
        self.end_keeps(None, cx);
        self.reports.clear();
        let requests = self.services.keys().collect::<Vec<_>>();
        self.close_all(requests.clone(), requests, reason, cx);
    }

    /// Returns whether the service was destroyed here, and is not in use again.
    pub(crate) fn is_destroyed(&self, service: &ServiceName) -> bool {
        self.states.get(service).is_some_and(|state| state.destroyed)
    }

    /// Returns, for [`Status`](crate::protocol::Status), the service, its grantor and epoch, and
    /// the waits, holds and open objects of this member. Lists the services `after` that service,
    /// or all, in the order of their names.
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

    /// The number of known services.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn services(&self) -> usize {
        self.states.len()
    }

    /// Forgets the request and tells the grantor, if the grantor may know it.
    fn end(&mut self, request: RequestId, cx: &mut StepContext) {
        if self.stays_kept(request, cx) {
            return;
        }
        let Some((service, entry)) = self.take(request) else { return };
        self.shut(&service, &entry, cx);
        planted!(=> if planted::is_kept(&entry, cx) { return });
        let Some(state) = self.states.get(&service) else { return };
        let grantor = state.grantor.map(|(process, _)| process);
        // A process that refused as no grantor may have become one meanwhile, with this request in
        // its table.
        if let Some(grantor) =
            grantor.filter(|_| entry.state != ClientRequestState::Unsent).or(state.last)
        {
            self.send_release(&service, request, grantor, cx);
        }
    }

    /// Forgets the request. Returns it and its service.
    fn take(&mut self, request: RequestId) -> Option<(ServiceName, ClientRequest)> {
        let service = self.service_of(request)?.clone();
        Some((service, self.forget(request)?))
    }

    fn forget(&mut self, request: RequestId) -> Option<ClientRequest> {
        let number = self.services.remove(&request)?;
        self.forget_stand_in(request);
        let state = self.states.get_mut(self.names.get(number as usize)?)?;
        let entry = state.requests.remove(&request)?;
        self.bytes -= entry.weight();
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
        if let Some(at) = entry.waiting().and_then(|waiting| waiting.probe) {
            self.probes.remove(&(at, request));
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

    /// The state of a service. A new one is made if there is none.
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

    /// Forgets a service of which nothing is kept: it was only asked for.
    fn forget_unused(&mut self, service: &ServiceName) {
        let Some(state) = self.states.get(service) else { return };
        let number = state.number;
        if *state == (ServiceState { number, ..ServiceState::default() }) {
            self.states.remove(service);
            self.kept.forget_service(number);
            self.loads.remove(&number);
            if number as usize + 1 == self.names.len() {
                self.names.pop();
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
