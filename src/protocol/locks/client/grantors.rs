//! The grantors of the services: how a lock client learns of them, and asks the elder for others.
//! It forgets a grantor that has left the view or does not grant.

use super::*;
use crate::protocol::locks::name_part;
use crate::protocol::message::ClientMessage;

impl LockClient {
    /// Handles the statement of the elder, or of a recovering grantor, which member is the grantor
    /// of the service.
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
            // This member knows a younger grantor, or two members name each other. The elder will
            // learn of it, so it is asked again in a while.
            self.again.insert((cx.now + cx.timing.retry, service.clone()));
            return;
        }
        let before = state.grantor.replace((grantor, epoch));
        let is_newer = state.newest.is_some_and(|newest| newest < epoch);
        state.learn_epoch(service, (grantor, epoch), cx);
        state.last = None;
        state.asked_elder = false;
        let is_another = before != state.grantor;
        if is_newer {
            // The keeps end before any request is sent: its owner may pass a suspension by its
            // holds.
            self.end_keeps_with_epoch(service, (grantor, epoch), cx);
        }
        if is_another {
            self.pursue(service, None, cx);
        }
    }

    /// Notes that a grantor acts, as its answer shows. It may have refused a request of the same
    /// epoch before, because it did not act yet. This member then knows no grantor.
    pub(super) fn on_acting(
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

    /// Handles that the asked process does not grant. `instead`: a member of the view that does, as
    /// far as that process knows.
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
            if let Some(report) = self.reports.get_mut(service) {
                report.is_refused |= report.to.1 == epoch;
            }
            state.each_waiting(unsent);
            for (_, call) in state.calls.iter_mut() {
                if let Some(asked) = call.kind.asked()
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
            // All other requests have been sent to a known grantor, and many of them may be
            // refused, each with an answer of its own.
            self.pursue(service, Some(request), cx);
        }
    }

    /// Handles that a newer grantor asked the one here for its table. Returns `false` if there is a
    /// still newer one, or if no elder dealt the epoch.
    pub(crate) fn on_newer_grantor(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) -> bool {
        if self.newest(service).is_some_and(|newest| newest > epoch) || !cx.is_dealt_epoch(epoch) {
            return false;
        }
        self.state(service).refused = None;
        self.on_grantor_is(service, from, epoch, cx);
        true
    }

    /// Answers a new grantor's question for the holds and waits of this member. From here on older
    /// epochs are over for this member. `by_part`: whether the holds are reported by the parts of
    /// their names. Returns `false` if the question itself is outdated, or if no elder dealt its
    /// epoch.
    pub(crate) fn on_recover(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        (epoch, by_part): (Epoch, bool),
        cx: &mut StepContext,
    ) -> bool {
        if self.newest(service).is_some_and(|newest| newest > epoch) || !cx.is_dealt_epoch(epoch) {
            return false;
        }
        self.end_keeps_with_epoch(service, (from, epoch), cx);
        let state = self.state(service);
        state.grantor = Some((from, epoch));
        state.learn_epoch(service, (from, epoch), cx);
        state.reported = Some(epoch);
        state.last = None;
        state.asked_elder = false;
        // In a view below that version no grantor asks by part, and one that recovers waits, too.
        let acts = !by_part && cx.view.is_some_and(|view| view.version >= name_part::VERSION);
        let progress = state.new_report((from, epoch), by_part, acts);
        self.reports.insert(service.clone(), progress);
        self.go_on_report(service, cx);
        let state = self.state(service);
        state.calls.each_destruction(|request, awaited| {
            if awaited.is_some() {
                // The process that was told before may have transferred its table earlier. A
                // request that is missing in this member's report is over here.
                *awaited = Some(from);
                cx.send(from, GrantorMessage::ConfirmDestroy { service: service.clone(), request });
            }
        });
        self.pursue(service, None, cx);
        true
    }

    /// Continues a report by one slice. It also goes on if the grantor has refused a request
    /// meanwhile: the grantor still waits for the report, and asks no second time. If there is a
    /// newer grantor, the older one hears of it instead.
    fn go_on_report(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let Some(mut progress) = self.reports.remove(service) else { return };
        let (to, epoch) = progress.to;
        let state = self.state(service);
        if let Some(newest) = state.newest.filter(|newest| *newest > epoch) {
            let (service, by) = (service.clone(), state.grantor.map(|(process, _)| process));
            cx.send(to, ClientMessage::Deposed { service, by, epoch: newest });
        } else if !state.report(service, &mut progress, cx) {
            self.reports.insert(service.clone(), progress);
        }
    }

    /// Notes that the grantor has a chunk of the report that is under way.
    pub(crate) fn on_report_taken(&mut self, service: &ServiceName, by: (ProcessId, Epoch)) {
        if let Some(report) = self.reports.get_mut(service).filter(|report| report.to == by) {
            report.ahead = report.ahead.saturating_sub(1);
        }
    }

    /// Returns whether a report can go on.
    pub(crate) fn is_reporting(&self) -> bool {
        self.reports.values().any(ReportProgress::may_go_on)
    }

    /// Returns whether a grantor waits for a report that is under way, before it acts.
    pub(crate) fn is_report_awaited(&self) -> bool {
        self.reports.values().any(|report| !report.acts && report.may_go_on())
    }

    /// Continues one of the reports that are under way, first those for which a grantor waits. The
    /// requests that were held back because of it follow it.
    pub(crate) fn go_on_reporting(&mut self, cx: &mut StepContext) {
        let ready = self.reports.iter().filter(|(_, report)| report.may_go_on());
        let next = ready.min_by_key(|(_, report)| report.acts);
        let Some(service) = next.map(|(service, _)| service.clone()) else { return };
        self.go_on_report(&service, cx);
        if !self.reports.contains_key(&service) {
            self.pursue(&service, None, cx);
        }
    }

    /// Adopts a new view: forgets grantors that left, and asks the elder for those that are needed.
    pub(crate) fn on_view(&mut self, view: &View, cx: &mut StepContext) {
        self.reports.retain(|_, report| view.contains(report.to.0));
        let (mut wanting, mut suspected, mut of_holders) = (Vec::new(), Vec::new(), Vec::new());
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
            // The elder may have changed.
            state.send_bids(service, cx);
            state.calls.each_destruction(|request, awaited| {
                if let Some(awaited) = awaited
                    && !view.contains(*awaited)
                {
                    // The process may have had a successor.
                    *awaited = view.elder().process;
                    cx.send(
                        *awaited,
                        GrantorMessage::ConfirmDestroy { service: service.clone(), request },
                    );
                }
            });
            of_holders.extend(state.calls.of_holders());
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
        self.calls_of_holders_on_view(of_holders, view, cx);
    }

    /// Handles a hint that calls a member unreachable. If it grants services from which this member
    /// awaits an answer, the elder is asked for other grantors, unless the member still answers.
    pub(crate) fn on_suspected(&mut self, process: ProcessId, cx: &mut StepContext) {
        for (service, state) in &mut self.states {
            if state.grantor.is_some_and(|(grantor, _)| grantor == process) {
                state.suspect_grantor(&mut self.again, service, cx.now + cx.timing.silence());
            }
        }
    }

    /// Asks the elder for another grantor in place of one that does not answer. The elder names one
    /// if it does not hear the present one either. So it is asked until the suspicion is over.
    pub(super) fn ask_for_another(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let Some(state) = self.states.get_mut(service) else { return };
        let Some((grantor, _)) = state.grantor else { return };
        let is_suspected = cx.suspected.contains(&grantor) || cx.is_ghost(grantor);
        if is_suspected && state.awaits_grantor() {
            cx.send_elder(state.question(service));
            state.suspect_grantor(&mut self.again, service, cx.now + cx.timing.slow_beat());
        }
    }

    /// Sends unsent requests of the service: `only` this request, or all. When a grantor becomes
    /// known, all are sent. So with a known grantor no other unsent request is left.
    pub(super) fn pursue(
        &mut self,
        service: &ServiceName,
        only: Option<RequestId>,
        cx: &mut StepContext,
    ) {
        // The elder may keep no further name of a service for this member, without saying so.
        let may_be_refused = self.states.len() > cx.limits.link.names as usize;
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
                if may_be_refused
                    && !planted!(cx.mutant, AskRefusedOnce)
                    && self.unanswered.insert(service.clone())
                {
                    self.again.insert((cx.now + cx.timing.retry, service.clone()));
                }
            }
            return;
        };
        // The report has all earlier requests, with their positions.
        let report = self.reports.get(service).filter(|report| report.to == (grantor, epoch));
        let tells = |report: &&ReportProgress| only.is_none_or(|request| report.tells(request));
        if let Some(report) = report.filter(tells) {
            // A grantor that acts may grant a request that its predecessor has lost, long before it
            // has the whole report. A request that it refuses until then is asked again after the
            // report. Otherwise its answers to other requests would have it asked without an end.
            let is_asked =
                report.acts && !report.is_refused || planted!(cx.mutant, AskBesideReport);
            if is_asked && state.waits.len() <= cx.limits.slice as usize {
                state.ask_for_locks(service, (grantor, epoch), only, cx);
            }
            return;
        }
        state.ask_for_locks(service, (grantor, epoch), only, cx);
        // Calls follow the requests, as they may be about one of these.
        state.ask_for_calls(service, (grantor, epoch), only, &self.kept, cx);
    }

    /// The question to the elder which member grants the service.
    pub(crate) fn question(&self, service: &ServiceName) -> Message {
        let heard = self.newest(service);
        Message::Registry(RegistryMessage::FindGrantor { service: service.clone(), heard })
    }

    /// The grantor of the service, and the newest known epoch.
    pub(crate) fn grantor(&self, service: &ServiceName) -> (Option<ProcessId>, Option<Epoch>) {
        let Some(state) = self.states.get(service) else { return (None, None) };
        (state.grantor.map(|(process, _)| process), state.newest)
    }

    /// The grantor of the service and its epoch, as far as this member knows.
    pub(crate) fn home(&self, service: &ServiceName) -> Option<(ProcessId, Epoch)> {
        self.states.get(service)?.grantor
    }

    /// The grantors that this member knows.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&ServiceName, ProcessId, Epoch)> {
        self.states.iter().filter_map(|(service, state)| {
            let (grantor, epoch) =
                state.grantor.or(state.newest.map(|newest| (ProcessId(0), newest)))?;
            Some((service, grantor, epoch))
        })
    }

    /// Returns whether this member knows the epoch. Its own epochs that are over count, too.
    pub(crate) fn has_heard_of(&self, service: &ServiceName, epoch: Epoch) -> bool {
        self.states.get(service).is_some_and(|state| state.newest.max(state.ended) >= Some(epoch))
    }

    /// The newest epoch of the service that this member knows.
    pub(crate) fn newest(&self, service: &ServiceName) -> Option<Epoch> {
        self.states.get(service)?.newest
    }

    /// Returns whether `from` may grant in that epoch: an epoch has one grantor. If this member
    /// does not know it, each member may be it, since a grant may be the first news of an epoch.
    pub(super) fn is_of_grantor(
        &self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        _cx: &StepContext,
    ) -> bool {
        let known = self.states.get(service).and_then(|state| state.grantor);
        known.is_none_or(|(process, of)| of != epoch || process == from)
            || planted!(_cx.mutant, HearAnyGrantor)
    }

    /// Notes that an epoch of this member's own is over, or will never begin.
    pub(crate) fn on_ended(&mut self, service: &ServiceName, epoch: Epoch) {
        let state = self.state(service);
        state.ended = state.ended.max(Some(epoch));
    }

    /// Returns whether this member itself grants the service, in that epoch.
    pub(crate) fn is_home(&self, service: &ServiceName, home: (ProcessId, Epoch)) -> bool {
        self.states.get(service).is_some_and(|state| state.grantor == Some(home))
    }
}
