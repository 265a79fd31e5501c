//! The pending calls of a lock client: the beginning, the repetition and the answer of each.
//! `pending_call.rs` has the kinds.

use super::*;
use crate::protocol::message::ClientMessage;

/// After this many `retry` the same elder is asked again to name this member. Links lose nothing
/// and every new view asks anew. So only a member that was named and could not begin then must ask
/// once more.
const BID_RETRIES: u32 = 16;

impl LockClient {
    /// Tells the grantor that a share stays a share, after a caller has stopped waiting for its
    /// upgrade. The grantor may still upgrade it. Nothing is sent if another guard of the hold
    /// waits for the same upgrade.
    pub(super) fn stay_reduced(
        &self,
        service: &ServiceName,
        hold: RequestId,
        cx: &mut StepContext,
    ) {
        if self.upgrades_of(service, hold).is_empty() {
            self.send_reduce(service, hold, cx);
        }
    }

    /// The pending calls that ask for that share to become the lock.
    pub(super) fn upgrades_of(&self, service: &ServiceName, hold: RequestId) -> Vec<RequestId> {
        self.states
            .get(service)
            .into_iter()
            .flat_map(|state| state.calls.upgrades_of(hold))
            .collect()
    }

    /// Asks to turn a share into the lock, for the application.
    pub(crate) fn upgrade(
        &mut self,
        request: RequestId,
        hold: RequestId,
        answer: Duration,
        cx: &mut StepContext,
    ) {
        self.end_keep_of(hold, cx);
        self.end_keep_beside(hold, cx);
        let may = cx.leased && cx.now < self.lease_end(hold);
        let service = self.service_of(hold).cloned();
        let outcome = match (self.request_mut(hold), service) {
            (
                Some(ClientRequest { want, state: ClientRequestState::Held { token, .. }, .. }),
                Some(service),
            ) if may => {
                if let Want::Share(_) = want {
                    let limit = cx.now + answer;
                    self.run_call(
                        (request, service.clone()),
                        CallKind::Upgrade(hold, None),
                        Time::MAX,
                        limit,
                    );
                    return self.pursue(&service, Some(request), cx);
                }
                Outcome::Upgraded { hold, token: *token }
            }
            _ => Outcome::NotHeld,
        };
        cx.out.push(Output::Answer { request, outcome });
    }

    /// Notes that a share became the lock.
    pub(crate) fn on_upgraded(
        &mut self,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
        token: Token,
        cx: &mut StepContext,
    ) {
        if self.newest(service).is_some_and(|newest| newest > epoch) || !cx.is_dealt(token) {
            return; // a newer grantor knows the share, and is asked again
        }
        let Some(PendingCall { kind: CallKind::Upgrade(hold, _), .. }) = self.call_mut(request)
        else {
            return;
        };
        let hold = *hold;
        let outcome = match self.request_mut(hold) {
            Some(ClientRequest {
                want,
                state: ClientRequestState::Held { token: known, .. },
                ..
            }) => {
                if let [name] = want.names() {
                    *want = Want::Lock(name.clone());
                }
                *known = token;
                Outcome::Upgraded { hold, token }
            }
            _ => Outcome::NotHeld,
        };
        self.answer_call(request, outcome, cx);
    }

    /// Bids to become the service's grantor, for the application. `acts`: this member is the
    /// grantor.
    pub(crate) fn bid(
        &mut self,
        (request, service): (RequestId, ServiceName),
        (wait, answer): (Wait, Duration),
        acts: bool,
        cx: &mut StepContext,
    ) {
        let limit = match wait {
            Wait::Try => cx.now + answer,
            Wait::AtMost(span) => cx.now + span,
            Wait::Forever => Time::MAX,
        };
        if acts {
            cx.out.push(Output::Answer { request, outcome: Outcome::Won });
        } else if self.is_full() {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
        } else {
            let again = cx.now + cx.timing.retry * BID_RETRIES;
            self.run_call((request, service.clone()), CallKind::Bid, again, limit);
            self.states[&service].send_bids(&service, cx);
        }
    }

    /// Queries the service's grantor, for the application.
    pub(crate) fn query(
        &mut self,
        (request, service): (RequestId, ServiceName),
        at: Query,
        answer: Duration,
        crowded: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        let grantor = self.states.get(&service).and_then(|state| state.grantor);
        if self.is_full() || grantor.is_some_and(|(process, _)| crowded(process)) {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        self.run_call(
            (request, service.clone()),
            CallKind::Query(at, None),
            Time::MAX,
            cx.now + answer,
        );
        self.pursue(&service, Some(request), cx);
    }

    /// Asks the elder whether the service exists, for the application.
    pub(crate) fn find(
        &mut self,
        (request, service): (RequestId, ServiceName),
        answer: Duration,
        cx: &mut StepContext,
    ) {
        if self.is_full() {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        // The first question is sent at once, in the same way as later ones.
        self.run_call((request, service), CallKind::FindService, cx.now, cx.now + answer);
        self.agenda.remove(&(cx.now, request));
        self.repeat(request, cx);
    }

    /// Asks the grantor, for the application, to confirm the end of a request, or how much is left
    /// of its hold. After `limit` the caller no longer waits. Only an acting grantor answers,
    /// whichever it is by then.
    pub(crate) fn confirm(
        &mut self,
        (request, service): (RequestId, ServiceName),
        over: RequestId,
        limit: Duration,
        cx: &mut StepContext,
    ) {
        if self.is_full() {
            cx.out.push(Output::Answer { request, outcome: Outcome::Unconfirmed });
            return;
        }
        self.end_keep_once_used(over, cx);
        self.run_call(
            (request, service.clone()),
            CallKind::Confirm(over, None),
            Time::MAX,
            cx.now + limit,
        );
        self.pursue(&service, Some(request), cx);
    }

    /// Ends all waits and holds of the service here, for the application. The rest follows by
    /// [`confirmed`](Self::confirmed); after `limit` the caller no longer waits.
    pub(crate) fn destroy(
        &mut self,
        request: RequestId,
        service: ServiceName,
        limit: Duration,
        cx: &mut StepContext,
    ) {
        let reason = LostReason::Destroyed;
        let number = self.state(&service).number;
        self.end_keeps(Some(number), cx);
        let state = self.state(&service);
        // The elder knows the successor of a grantor that is gone.
        let elder = cx.elder.filter(|_| state.newest.is_some());
        let awaited = state.grantor.map(|(process, _)| process).or(state.last).or(elder);
        let calls: Vec<RequestId> = state.calls.but_endings().collect();
        let requests: Vec<RequestId> = state.requests.keys().collect();
        self.close_all(calls, requests, reason, cx);
        if let Some(awaited) = awaited {
            cx.send(awaited, GrantorMessage::ConfirmDestroy { service: service.clone(), request });
        }
        let limit = cx.now + limit;
        let awaited = awaited.filter(|_| !planted!(cx.mutant, DestroyedAtOnce));
        self.run_call((request, service), CallKind::Destruction(awaited), Time::MAX, limit);
        self.destructions.insert(request);
        if awaited.is_none() {
            self.confirmed.insert(request);
        }
    }

    /// The services that were destroyed here, and whose grantor knows it.
    pub(crate) fn confirmed(&self) -> Vec<(RequestId, ServiceName)> {
        let service = |request: &RequestId| Some((*request, self.service_of(*request)?.clone()));
        self.confirmed.iter().inspect(|_| touch()).filter_map(service).collect()
    }

    /// Answers a completed pending call.
    pub(crate) fn answer_call(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        cx: &mut StepContext,
    ) {
        if self.drop_call(request).is_some() {
            cx.out.push(Output::Answer { request, outcome });
        }
    }

    pub(super) fn on_call_refused(
        &mut self,
        request: RequestId,
        refusal: &Refusal,
        cx: &mut StepContext,
    ) {
        let Some(call) = self.call_mut(request) else { return };
        match (&call.kind, refusal) {
            (CallKind::Upgrade(..), Refusal::Shared(others)) => {
                self.answer_call(request, Outcome::Shared(*others), cx);
            }
            (CallKind::Write(..), Refusal::NotOpen) => {
                self.on_written(request, Outcome::NotOpen, cx)
            }
            (CallKind::Upgrade(..) | CallKind::Write(..), _) => self.postpone(request, cx),
            _ => {}
        }
    }

    /// Notes that this member is named, because of its bids until then.
    pub(crate) fn on_named(&mut self, service: &ServiceName, asked: Option<RequestId>) {
        let state = self.state(service);
        state.named_for = state.named_for.max(asked);
    }

    /// Repeats this member's bids, which the elder took as answered by an epoch that is over now.
    pub(crate) fn bid_again(&self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(state) = self.states.get(service) {
            state.send_bids(service, cx);
        }
    }

    /// Answers the bids: this member acts as the service's grantor.
    pub(crate) fn on_won(&mut self, service: &ServiceName, cx: &mut StepContext) {
        self.answer_bids(service, |_| true, &Outcome::Won, cx);
    }

    /// Handles that another member is the service's grantor instead of this one, or is about to be.
    /// The elder answers the bids that were made after this member was named: they may be later
    /// than the other member's, too.
    pub(crate) fn on_superseded(
        &mut self,
        service: &ServiceName,
        by: ProcessId,
        cx: &mut StepContext,
    ) {
        let named_for = self.states.get(service).and_then(|state| state.named_for);
        if by != cx.me {
            self.answer_bids(
                service,
                |request| Some(request) <= named_for,
                &Outcome::Outbid(by),
                cx,
            );
        }
    }

    /// Handles the elder's statement that another member bid after this one's requests up to
    /// `last`. Later requests may still win.
    pub(crate) fn on_outbid(
        &mut self,
        service: &ServiceName,
        last: RequestId,
        by: ProcessId,
        cx: &mut StepContext,
    ) {
        if by != cx.me {
            planted!(=> let last = planted::outbid(last, cx));
            self.answer_bids(service, |request| request <= last, &Outcome::Outbid(by), cx);
        }
    }

    /// Handles that another member bid after this one, which still grants. This member may win
    /// until it is asked for its table.
    pub(crate) fn on_outbid_while_granting(
        &mut self,
        service: &ServiceName,
        last: RequestId,
        by: ProcessId,
    ) {
        self.on_named(service, Some(last));
        let state = self.state(service);
        state.outbid = state.outbid.max(Some((last, by)));
    }

    /// Forgets that this member was outbid, since it is named: its bids may win again.
    pub(crate) fn forget_outbid(&mut self, service: &ServiceName) {
        if let Some(state) = self.states.get_mut(service) {
            state.outbid = None;
        }
    }

    /// Returns whether a bid of this member is not answered yet.
    pub(crate) fn has_bids(&self, service: &ServiceName) -> bool {
        self.states.get(service).is_some_and(|state| state.calls.bids().next().is_some())
    }

    /// Holds the bids of the service back, until a copy of the table is here.
    pub(crate) fn hold_bids_back(&mut self, service: &ServiceName) {
        self.state(service).calls.are_bids_held_back = true;
    }

    /// Sends the bids that were held back.
    pub(crate) fn release_bids(&mut self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(state) = self.states.get_mut(service)
            && std::mem::take(&mut state.calls.are_bids_held_back)
        {
            state.send_bids(service, cx);
        }
    }

    /// Handles the end of the grantor here, whose table no member has asked for.
    pub(crate) fn on_ended_unasked(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let outbid = self.states.get_mut(service).and_then(|state| state.outbid.take());
        if let Some((last, by)) = outbid {
            self.on_outbid(service, last, by, cx);
        }
    }

    fn answer_bids(
        &mut self,
        service: &ServiceName,
        which: impl Fn(RequestId) -> bool,
        outcome: &Outcome,
        cx: &mut StepContext,
    ) {
        let Some(state) = self.states.get(service) else { return };
        for request in state.calls.bids().filter(|request| which(*request)).collect::<Vec<_>>() {
            self.answer_call(request, outcome.clone(), cx);
        }
    }

    /// Handles a member's confirmation that it has done all that this one sent before.
    pub(crate) fn on_destroy_confirmed(&mut self, from: ProcessId, request: RequestId) {
        if let Some(PendingCall { kind: CallKind::Destruction(awaited), .. }) =
            self.call_mut(request)
            && *awaited == Some(from)
        {
            *awaited = None;
            self.confirmed.insert(request);
        }
    }

    /// Handles that a member cannot confirm the end of a service here. `instead`: the present
    /// grantor, as far as that member knows. Only the elder is believed: former grantors would pass
    /// a question round in a circle.
    pub(crate) fn on_destroy_unconfirmed(
        &mut self,
        from: ProcessId,
        request: RequestId,
        instead: Option<ProcessId>,
        cx: &mut StepContext,
    ) {
        let elder = cx.elder.filter(|elder| *elder != from);
        if let Some(PendingCall { kind: CallKind::Destruction(awaited), .. }) =
            self.call_mut(request)
            && *awaited == Some(from)
        {
            *awaited = elder.or(instead).or(*awaited);
            self.postpone(request, cx);
        }
    }

    /// Handles a grantor's answer to a query. If the grantor cannot answer, it is asked again until
    /// the limit. `is_there`: whether a process is in the view.
    pub(crate) fn on_query_reply(
        &mut self,
        request: RequestId,
        seen: QueryReply,
        is_there: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        match self.call_mut(request).map(|call| &call.kind) {
            Some(CallKind::Query(..) | CallKind::FindService) => {}
            Some(CallKind::Confirm(..)) if seen == QueryReply::Unknown => {
                return self.answer_call(request, Outcome::Confirmed, cx);
            }
            Some(CallKind::Confirm(..)) => return self.postpone(request, cx),
            Some(CallKind::Revoke(_)) => return self.on_holders(request, seen, is_there, cx),
            _ => return,
        }
        if seen == QueryReply::Undecided {
            self.postpone(request, cx);
        } else {
            self.answer_call(request, Outcome::QueryReply(seen), cx);
        }
    }

    /// Sends an unanswered pending call again.
    pub(super) fn repeat(&mut self, request: RequestId, cx: &mut StepContext) {
        let Some(service) = self.service_of(request).cloned() else { return };
        let mut is_bid = false;
        let Some(call) = self.call_mut(request) else { return };
        call.again = Time::MAX;
        match &mut call.kind {
            CallKind::Bid => {
                call.again = cx.now + cx.timing.retry * BID_RETRIES;
                is_bid = true;
            }
            // The elder may have changed by then.
            CallKind::FindService => {
                cx.send_elder(RegistryMessage::FindService { service: service.clone(), request });
                call.again = cx.now + cx.timing.retry;
            }
            CallKind::Query(_, asked) | CallKind::Confirm(_, asked) => *asked = None,
            CallKind::Upgrade(_, asked) | CallKind::Write(_, _, asked) => *asked = None,
            CallKind::AskHolder(holder) => {
                let (process, hold, token) = (holder.process, holder.request, holder.token);
                let service = service.clone();
                cx.send(process, ClientMessage::AskHolder { service, request, hold, token });
                call.again = if cx.elder.is_none() { cx.now + cx.timing.retry } else { Time::MAX };
            }
            CallKind::Revoke(revoking) => {
                revoking.repeat(&service, request, cx);
                // A process that is in no view yet sends no messages.
                if cx.elder.is_none() {
                    call.again = cx.now + cx.timing.retry;
                }
            }
            CallKind::Destruction(awaited) => {
                if let Some(awaited) = *awaited {
                    cx.send(
                        awaited,
                        GrantorMessage::ConfirmDestroy { service: service.clone(), request },
                    );
                }
            }
        }
        let due = call.due();
        if due != Time::MAX {
            self.agenda.insert((due, request));
        }
        if let Some(state) = self.states.get(&service).filter(|_| is_bid) {
            state.send_bids(&service, cx);
        }
        self.pursue(&service, Some(request), cx);
    }

    /// Repeats a pending call in a while: the grantor cannot answer yet, or does not know yet that
    /// it is the grantor.
    pub(super) fn postpone(&mut self, request: RequestId, cx: &StepContext) {
        let Some(call) = self.call_mut(request) else { return };
        let before = call.due();
        call.again = cx.now + cx.timing.retry / 2;
        let due = call.due();
        self.agenda.remove(&(before, request));
        self.agenda.insert((due, request));
    }

    pub(super) fn run_call(
        &mut self,
        (request, service): (RequestId, ServiceName),
        kind: CallKind,
        again: Time,
        limit: Time,
    ) {
        let call = PendingCall { kind, again, limit };
        if call.due() != Time::MAX {
            self.agenda.insert((call.due(), request));
        }
        let state = self.state(&service);
        // A question about a service requests nothing of it.
        if call.kind != CallKind::FindService {
            state.destroyed = call.is_destruction();
        }
        state.calls.insert(request, call);
        let number = state.number;
        self.services.insert(request, number);
    }

    pub(super) fn drop_call(&mut self, request: RequestId) -> Option<PendingCall> {
        let service = self.service_of(request)?.clone();
        let call = self.states.get_mut(&service)?.calls.remove(request)?;
        self.services.remove(&request);
        self.destructions.remove(&request);
        self.confirmed.remove(&request);
        self.agenda.remove(&(call.due(), request));
        if let CallKind::Write(name, ..) = &call.kind
            && let Some(object) = self.object_mut(&service, name)
        {
            object.writes.remove(&request);
            object.writing = object.writing.filter(|writing| *writing != request);
        }
        if let CallKind::FindService = call.kind {
            self.forget_unused(&service);
        }
        Some(call)
    }

    pub(super) fn call_mut(&mut self, request: RequestId) -> Option<&mut PendingCall> {
        self.state_of_mut(request)?.calls.get_mut(&request)
    }
}
