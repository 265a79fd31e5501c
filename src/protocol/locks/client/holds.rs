//! The holds of a lock client: the beginning of a hold, its duration, and its loss.

use super::*;

impl LockClient {
    /// Holds a lock, or a share of one, at once, if `grant` grants the request. The service's
    /// grantor in that epoch is this member itself. The result is that of a request and a grant,
    /// without the messages in between. Returns the token and the end of the lease.
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

    /// Returns whether this member itself grants the service, in that epoch, and may have a further
    /// request.
    pub(crate) fn may_hold(&self, service: &ServiceName, home: (ProcessId, Epoch)) -> bool {
        let is_home =
            |state: &ServiceState| state.grantor == Some(home) && state.newest == Some(home.1);
        self.states.get(service).is_some_and(is_home) && self.has_room()
    }

    /// Records a hold that this member's own grantor has granted without a message. Returns the end
    /// of its lease.
    pub(crate) fn hold(&mut self, call: LockCall, token: Token, since: Time) -> Time {
        let until = call.lease.map_or(Time::MAX, |lease| since + lease);
        let request = call.request;
        if let Some(state) = self.states.get_mut(&call.service) {
            self.bytes += call.lock.kept_weight();
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

    /// Handles a grant.
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
            return; // `no_resurrected_grant`: the report to a newer grantor lacks this grant
        }
        if !cx.is_dealt(token) || !self.is_of_grantor(from, service, epoch, cx) {
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

    /// Measures a grant by another member, with `kept` further tokens. If this member makes most of
    /// the service's requests, it bids for the service as a young turk does. The elder orders the
    /// bids of a member by their requests, and this request has no other bid. If the bid is lost
    /// with its elder, the next windows make another one.
    pub(crate) fn follow_load(
        &mut self,
        (from, service, epoch): (ProcessId, &ServiceName, Epoch),
        request: RequestId,
        (token, kept): (Token, u32),
        cx: &mut StepContext,
    ) {
        if from == cx.me || !cx.leased || !cx.is_member {
            return;
        }
        let Some(state) = self.states.get(service) else { return };
        let Some(meter) = self.loads.get_mut(&state.number) else { return };
        let Some(entry) = state.requests.get(&request).filter(|_| state.newest == Some(epoch))
        else {
            return;
        };
        let count = u64::from(entry.want.tokens()) + u64::from(kept);
        planted!(=> let token = planted::metered(meter, token, cx));
        let length = load_meter::window(cx.timing.member_lease);
        if meter.granted(epoch, (token, count), cx.now, length) || planted!(cx.mutant, FollowAtOnce)
        {
            cx.send_elder(RegistryMessage::Become { service: service.clone(), request });
            cx.out.push(Output::Event(Event::FollowsLoad { service: service.clone() }));
        }
    }

    /// Begins the hold of a granted request, if the member's lease runs.
    pub(super) fn accept(&mut self, request: RequestId, cx: &mut StepContext) {
        let Some(entry) = self.request_mut(request) else { return };
        let ClientRequestState::Won(token, since) = entry.state else { return };
        if !cx.leased && !entry.want.opens() && !planted!(cx.mutant, GrantWhileSuspended) {
            self.won.insert((token, request));
            return;
        }
        let waiting = entry.take_waiting();
        let lease = waiting.as_ref().and_then(|waiting| waiting.lease);
        let until = lease.map_or(Time::MAX, |lease| cx.now + lease);
        let probe = waiting.as_ref().and_then(|waiting| waiting.probe);
        let limit = waiting.map_or(Time::MAX, |waiting| waiting.limit);
        entry.state = ClientRequestState::Held { token, since };
        let want = entry.want.clone();
        self.agenda.remove(&(limit, request));
        if let Some(at) = probe {
            self.probes.remove(&(at, request));
        }
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

    /// Reduces a hold, for the application.
    pub(crate) fn reduce(&mut self, request: RequestId, want: Want, cx: &mut StepContext) {
        self.end_keep_of(request, cx);
        let may = cx.leased && cx.now < self.lease_end(request);
        let outcome = match self.request_mut(request) {
            Some(ClientRequest { want: has, state: ClientRequestState::Held { .. }, .. })
                if may && want.is_less_than(has) =>
            {
                *has = want;
                Outcome::Reduced
            }
            _ => Outcome::NotHeld,
        };
        if outcome == Outcome::Reduced
            && let Some(service) = self.service_of(request).cloned()
        {
            // Another guard of the hold may have asked for an upgrade before. Its answer may be on
            // its way, and predates this call.
            for asked in self.upgrades_of(&service, request) {
                self.answer_call(asked, Outcome::Undecided, cx);
            }
            self.send_reduce(&service, request, cx);
        }
        cx.out.push(Output::Answer { request, outcome });
    }

    pub(super) fn send_reduce(
        &self,
        service: &ServiceName,
        request: RequestId,
        cx: &mut StepContext,
    ) {
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

    /// Extends a hold, for the application.
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

    /// Returns the time at which the lease of the request's hold ends.
    pub(super) fn lease_end(&self, request: RequestId) -> Time {
        self.leases.get(&request).copied().unwrap_or(Time::MAX)
    }

    /// Sets the end of the lease of the request's hold.
    fn lease_until(&mut self, request: RequestId, until: Time) {
        if until != Time::MAX {
            self.leases.insert(request, until);
            self.agenda.insert((until, request));
        }
    }

    /// Returns the token if a hold of the request may be believed at `now`, apart from the member's
    /// own lease. An open object is not a hold.
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

    pub(super) fn held(&self) -> Vec<RequestId> {
        let requests = self.states.values().flat_map(|state| state.requests.iter());
        let holds = |entry: &ClientRequest| {
            matches!(entry.state, ClientRequestState::Held { .. }) && !entry.want.opens()
        };
        requests.filter(|(_, entry)| holds(entry)).map(|(request, _)| request).collect()
    }

    /// Ends a hold of this member because another hold of the lock has a higher token.
    pub(crate) fn on_supersede(&mut self, request: RequestId, cx: &mut StepContext) {
        self.end_keep_of(request, cx);
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

    /// Begins the holds of requests that were granted while the member's lease did not run, in the
    /// order of the grants.
    pub(crate) fn on_resumed(&mut self, cx: &mut StepContext) {
        for (_, request) in std::mem::take(&mut self.won) {
            self.accept(request, cx);
        }
    }

    /// Ends all holds, since the member's lease is over. Waits continue.
    pub(crate) fn on_suspended(&mut self, cx: &mut StepContext) {
        planted!(cx.mutant, HoldWhileSuspended => return);
        self.end_keeps(None, cx);
        for request in self.held() {
            // Objects stay open: that keeps nothing of this member from other members.
            self.report_loss(request, LostReason::Suspended, cx);
            self.end(request, cx);
        }
    }

    /// Reports that a hold is over, before it is forgotten.
    pub(super) fn report_loss(&self, request: RequestId, reason: LostReason, cx: &mut StepContext) {
        let (Some(service), Some(entry)) = (self.service_of(request), self.request(request)) else {
            return;
        };
        let (service, want) = (service.clone(), entry.want.clone());
        cx.out.push(Output::Lost { request, reason, service, want });
    }
}
