//! Naming grantors, sending requests to them, and reporting them to a new elder.

use super::*;
use crate::protocol::message::{HoldReport, Refusal, WaitReport};

/// The most pending positions that one call walks through for a member. Only a recovered or
/// transferred table has more.
const MAX_WALKED_POSITIONS: usize = 1 << 12;

impl Locks {
    /// Takes the positions that are due, of requests that still wait, for their members. Most waits
    /// end earlier, so that the grant is their only message. `most`: the number that one step
    /// handles; the others stay due.
    pub(crate) fn take_positions_due(&mut self, now: Time, most: u32) -> Vec<(ProcessId, Message)> {
        let (mut due, mut left) = (Vec::new(), most);
        if self.positions_due().is_none_or(|at| at > now) {
            return due;
        }
        while let Some(position) = self.pending_positions.pop_front() {
            if left == 0 {
                self.pending_positions.push_front(position);
                return due;
            }
            left -= 1;
            if !self.counts(&position) {
                continue;
            }
            if position.at > now {
                self.pending_positions.push_front(position);
                return due;
            }
            due.push((position.to, position.into()));
        }
        // The queue may have had many thousands of entries for a short time.
        self.pending_positions.shrink_to(KEPT_MESSAGES);
        due
    }

    /// Takes all pending positions of a member's requests, which it gets before the answer to its
    /// query. If too many positions are pending, only that of the queried request.
    pub(crate) fn take_positions_of(
        &mut self,
        to: ProcessId,
        service: &ServiceName,
        at: &Query,
    ) -> Vec<Message> {
        let mut taken = Vec::new();
        if self.pending_positions.len() > MAX_WALKED_POSITIONS {
            let position =
                |request| Some(self.grantors.get(service)?.queued_message((to, request)));
            if let Query::Position(request) = at {
                taken.extend(position(*request).flatten());
            }
            return taken;
        }
        if !self.pending_positions.iter().any(|position| position.to == to) {
            return taken;
        }
        for position in std::mem::take(&mut self.pending_positions) {
            if position.to != to {
                self.pending_positions.push_back(position);
            } else if self.counts(&position) {
                taken.push(position.into());
            }
        }
        taken
    }

    /// Delays the message with the position of another member's request. Returns any other message:
    /// it is to be sent now.
    pub(crate) fn put_off(
        &mut self,
        now: Time,
        to: ProcessId,
        message: Message,
        wait: Duration,
    ) -> Option<Message> {
        match message {
            Message::Client(ClientMessage::Queued { service, epoch, request, ticket }) => {
                let at = now + wait;
                self.pending_positions.push_back(PendingPosition {
                    at,
                    to,
                    service,
                    epoch,
                    request,
                    ticket,
                });
                return None;
            }
            // A granted request is mostly the one that has waited longest: its position needs no
            // timer then.
            Message::Client(ClientMessage::Grant { request, .. })
                if self
                    .pending_positions
                    .front()
                    .is_some_and(|position| (position.to, position.request) == (to, request)) =>
            {
                self.pending_positions.pop_front();
            }
            _ => {}
        }
        Some(message)
    }

    /// Returns whether the request still waits at this position.
    fn counts(&self, position: &PendingPosition) -> bool {
        let grantor = self
            .grantors
            .get(&position.service)
            .filter(|grantor| grantor.epoch() == position.epoch);
        grantor.is_some_and(|grantor| {
            grantor.waits_at((position.to, position.request), position.ticket)
        })
    }

    /// Returns the time at which the next position is due.
    pub(crate) fn positions_due(&self) -> Option<Time> {
        self.pending_positions.front().map(|position| position.at)
    }

    pub(super) fn on_inventory(&mut self, from: ProcessId, view: ViewNumber, cx: &mut StepContext) {
        let mut heard: BTreeMap<ServiceName, (ProcessId, Epoch)> = BTreeMap::new();
        for (service, grantor, epoch) in self.client.known() {
            // Only the hosting member states the place of a grantor, so this member names itself
            // only for its own grantors.
            let grantor = if grantor == cx.me { ProcessId(0) } else { grantor };
            heard.insert(service.clone(), (grantor, epoch));
        }
        for (service, early) in self.early_requests.iter() {
            if let Some((epoch, _)) = early.iter().max_by_key(|(epoch, _)| *epoch) {
                heard.entry(service.clone()).or_insert((ProcessId(0), *epoch));
            }
        }
        // A grantor may have heard of a younger grantor that never began. It then reports its own
        // epoch only as others do.
        heard.retain(|service, (_, epoch)| {
            self.grantors.get(service).is_none_or(|own| own.epoch() < *epoch)
        });
        let hosted =
            self.grantors.iter().map(|(service, own)| (service.clone(), cx.me, own.epoch()));
        let known: Vec<_> = heard
            .into_iter()
            .map(|(service, (grantor, epoch))| (service, grantor, epoch))
            .chain(hosted)
            .collect();
        let mut parts = known.chunks(cx.limits.inventory_part as usize).peekable();
        if parts.peek().is_none() {
            cx.send(from, RegistryMessage::InventoryReply { view, known: Vec::new(), last: true });
        }
        while let Some(part) = parts.next() {
            cx.send(
                from,
                RegistryMessage::InventoryReply {
                    view,
                    known: part.to_vec(),
                    last: parts.peek().is_none(),
                },
            );
        }
    }

    /// Handles the elder's message that names this member as a grantor.
    pub(in crate::protocol) fn on_name_grantor(
        &mut self,
        (service, asked): (ServiceName, Option<RequestId>),
        range: TokenRange,
        origin: Origin,
        cx: &mut StepContext,
    ) {
        // The message is of an earlier tenure of this elder: in the present tenure it already deals
        // higher tokens. Requests of that tenure were repeated with the view.
        if cx.view.is_none_or(|view| range.first < Token::new(view.tenure, 0))
            && !planted!(cx.mutant, HeedFormerElder)
        {
            return;
        }
        let epoch = Epoch(range.first);
        let (last_known, newest) = self.client.grantor(&service);
        let last_known = newest.map(|_| last_known);
        self.client.on_named(&service, asked);
        if self.client.is_destroyed(&service) {
            // The member bid, or was proposed as the successor, before it destroyed the service. A
            // new bid would have it named again.
            self.client.on_ended(&service, epoch);
            for (asked_for, asked) in self.early_requests.take(&service) {
                self.on_request_lock(service.clone(), asked_for, asked, cx);
            }
            cx.send_elder(RegistryMessage::Decline { service, epoch });
            return;
        }
        if !cx.is_member || self.client.newest(&service).is_some_and(|newest| newest > epoch) {
            // A younger turk superseded this member before the naming arrived.
            if let Some(by) = self.client.grantor(&service).0 {
                self.client.on_superseded(&service, by, cx);
            }
            cx.send_elder(RegistryMessage::Decline { service, epoch });
            return;
        }
        let Some(view) = cx.view else { return };
        let before = match self.grantors.get(&service) {
            Some(before) if before.epoch() >= epoch => return,
            Some(_) => self.grantors.remove(&service),
            None => None,
        };
        let grantor = match before {
            Some(before) if origin == Origin::Predecessor(cx.me) && before.is_acting() => {
                before.renew(range, cx)
            }
            before => {
                if let Some(before) = before {
                    before.tell_end(cx);
                    let table = before.close(None, cx);
                    self.discard(table, cx);
                }
                let origin =
                    if origin == Origin::Predecessor(cx.me) { Origin::Everyone } else { origin };
                let copy = match origin {
                    Origin::Predecessor(source) => self.copies.whole_of(&service, source),
                    _ => None,
                };
                Grantor::named(service.clone(), range, (origin, copy), view, cx).after(last_known)
            }
        };
        self.relinquishing.remove(&service);
        self.client.forget_outbid(&service);
        self.grantors.insert(service.clone(), grantor);
        planted!(cx.mutant, ActOnCopy => self.act_on_copy(&service, cx));
        for (asked_for, asked) in self.early_requests.take(&service) {
            self.on_request_lock(service.clone(), asked_for, asked, cx);
        }
        self.answer_bids(&service, cx);
    }

    /// Handles a newer grantor's request for the table. `copy`: the number of its whole copy.
    pub(super) fn on_request_table(
        &mut self,
        from: ProcessId,
        (service, epoch): (ServiceName, Epoch),
        copy: Option<u64>,
        cx: &mut StepContext,
    ) {
        if self.grantors.get(&service).is_some_and(|grantor| grantor.epoch() > epoch) {
            // This member was named later than the one that asks, so it continues.
            cx.send(from, GrantorMessage::NoTable { service, epoch });
            return;
        }
        if !self.client.on_newer_grantor(from, &service, epoch, cx) {
            let (by, newest) = self.client.grantor(&service);
            cx.send(from, GrantorMessage::NoTable { service: service.clone(), epoch });
            if let Some(epoch) = newest {
                cx.send(from, ClientMessage::Deposed { service, by, epoch });
            }
            return;
        }
        match self.grantors.get_mut(&service).filter(|grantor| grantor.epoch() < epoch) {
            // If this member has bid, it may still be named, after the member that asks for the
            // table.
            None => cx.send(from, GrantorMessage::NoTable { service: service.clone(), epoch }),
            Some(grantor) => {
                if grantor.on_request_table((from, epoch), cx) {
                    self.transfer(&service, (from, epoch), copy, cx);
                }
                planted!(=> let from = planted::winner(from, cx));
                self.client.on_superseded(&service, from, cx);
            }
        }
        self.send_on_early(&service, from, epoch, cx);
    }

    /// Ends the grantor here, and transfers its table to the next grantor, `next_turk`.
    fn transfer(
        &mut self,
        service: &ServiceName,
        next_turk: (ProcessId, Epoch),
        copy: Option<u64>,
        cx: &mut StepContext,
    ) {
        if let Some(grantor) = self.grantors.remove(service) {
            planted!(cx.mutant, GrantAfterTransfer => self.keep_grantor(service, &grantor));
            self.on_grantor_end(service, &grantor, cx);
            let table = grantor.transfer(next_turk, copy, cx);
            self.discard(table, cx);
            if self.relinquishing.remove(service) {
                self.pending_transfers.insert(service.clone(), next_turk.0);
                self.client.bid_again(service, cx);
            }
        }
    }

    /// Continues after a table chunk: passes the table on to a younger turk, or answers the bids if
    /// the grantor acts.
    pub(super) fn after_transfer(&mut self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(next_turk) = self.grantors.get(service).and_then(Grantor::next_turk_due) {
            self.transfer(service, next_turk, None, cx);
        }
        self.answer_bids(service, cx);
    }

    /// Answers this member's bids as won, if its grantor acts and does not give its role up.
    pub(super) fn answer_bids(&mut self, service: &ServiceName, cx: &mut StepContext) {
        if self.relinquishing.contains(service) {
            return;
        }
        if self
            .grantors
            .get(service)
            .is_some_and(|grantor| grantor.is_acting() || planted!(cx.mutant, WinWhenNamed))
        {
            self.client.on_won(service, cx);
        }
    }

    /// Handles the news of a newer grantor than the one here. The newer one asks an acting grantor
    /// for its table. A recovering one would wait for ever for reports, so it ends.
    pub(super) fn on_deposed(
        &mut self,
        service: &ServiceName,
        by: Option<ProcessId>,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        if !cx.is_dealt_epoch(epoch) {
            return;
        }
        if self.grantors.get(service).is_some_and(|grantor| {
            grantor.epoch() < epoch && grantor.state() == GrantorState::Recovering
        }) {
            self.end_grantor(service, by.map(|by| (by, epoch)), cx);
            if let Some(by) = by {
                self.client.on_newer_grantor(by, service, epoch, cx);
                self.client.on_superseded(service, by, cx);
            }
        }
    }

    /// Gives up the grantor role of a service, because this member leaves or has destroyed the
    /// service.
    pub(crate) fn depart_service(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let (Some(view), Some(grantor)) = (cx.view, self.grantors.get_mut(service)) else {
            self.relinquishing.remove(service);
            return;
        };
        if grantor.depart(view, cx.suspected, cx) {
            self.end_grantor(service, None, cx);
        } else {
            self.relinquishing.insert(service.clone(), cx.now + cx.timing.retry);
        }
    }

    /// Returns whether this member still grants a service whose role it gives up, or its successor
    /// does not have the whole table yet.
    pub(crate) fn is_departing(&self, service: &ServiceName) -> bool {
        self.relinquishing.contains(service) || self.pending_transfers.contains(service)
    }

    /// Returns whether nothing is granted here any more, and all successors have their whole
    /// tables.
    pub(crate) fn has_handed_over(&self) -> bool {
        self.grantors.is_empty() && self.pending_transfers.is_empty()
    }

    /// Forgets successors that have their whole tables, or have left.
    pub(crate) fn forget_handed_over(&mut self, view: Option<&Arc<View>>, links: &LinkSet) {
        if !self.pending_transfers.is_empty() {
            self.pending_transfers.forget_arrived(view.map(|view| &**view), links);
        }
    }

    /// The services for which a successor is to be proposed again, at most as many as one step may.
    pub(crate) fn due_to_depart(&self, now: Time, most: u32) -> BTreeSet<ServiceName> {
        self.relinquishing.due(now, most as usize)
    }

    /// The services that are granted here.
    pub(crate) fn granted_here(&self) -> Vec<ServiceName> {
        self.grantors.keys().cloned().collect()
    }

    /// Notes that the named successor of the grantor here declines.
    pub(super) fn on_successor_declined(
        &mut self,
        service: ServiceName,
        by: ProcessId,
        cx: &mut StepContext,
    ) {
        let Some(grantor) = self.grantors.get_mut(&service) else { return };
        if self.relinquishing.contains(&service) {
            grantor.on_successor_declined(by);
            self.depart_service(&service, cx);
        } else if by != cx.me {
            // Requests in the table here may have been released elsewhere meanwhile: a new epoch
            // asks for them.
            cx.send_elder(self.client.question(&service));
        }
    }

    /// Handles the end of a request.
    pub(super) fn on_release(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        request: RequestId,
        cx: &mut StepContext,
    ) {
        if !planted!(cx.mutant, ForgetEarlyDone) {
            self.early_requests.remove(service, (from, request));
        }
        if let Some(grantor) = self.grantors.get_mut(service) {
            grantor.on_release(from, request, cx);
        }
    }

    pub(super) fn on_request_lock(
        &mut self,
        service: ServiceName,
        epoch: Epoch,
        asked: ReceivedRequest,
        cx: &mut StepContext,
    ) {
        if let Some(grantor) = self.grantors.get_mut(&service)
            && grantor.epoch() >= epoch
        {
            // The member repeats a request for an earlier epoch, after its earlier requests.
            let own = grantor.epoch();
            if own == epoch {
                grantor.on_request_lock(asked, cx);
            } else {
                let instead = Some((cx.me, own));
                cx.send(
                    asked.from,
                    ClientMessage::NotGrantor { service, epoch, request: asked.request, instead },
                );
            }
            return;
        }
        // If this member knows of the epoch but does not grant in it, its grantor role has ended.
        let outdated = self.client.has_heard_of(&service, epoch) || !cx.is_dealt_epoch(epoch);
        let has_room = self.early_requests.has_room(&service, &asked, cx.limits.early)
            || planted!(cx.mutant, KeepAllEarly);
        if outdated || !has_room || !cx.is_member {
            let instead = self.grantor_after(&service, epoch, cx.me);
            cx.send(
                asked.from,
                ClientMessage::NotGrantor { service, epoch, request: asked.request, instead },
            );
            return;
        }
        // The message that names this member may be on its way. The request waits for it, and the
        // elder is asked to be sure.
        if !self.early_requests.contains(&service) {
            cx.send_elder(self.client.question(&service));
        }
        self.early_requests.push(service, epoch, asked);
    }

    /// The grantor after this epoch, if it is known and at another member.
    fn grantor_after(
        &self,
        service: &ServiceName,
        epoch: Epoch,
        me: ProcessId,
    ) -> Option<(ProcessId, Epoch)> {
        let (by, newest) = self.client.grantor(service);
        by.zip(newest).filter(|(by, newest)| *newest > epoch && *by != me)
    }

    /// Tells the member of a report that came after the end of its epoch to ask elsewhere. No other
    /// member was asked for the reported waits.
    pub(super) fn send_reported_on(
        &self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        (holds, waits): (&[HoldReport], &[WaitReport]),
        cx: &mut StepContext,
    ) {
        let instead = self.grantor_after(service, epoch, cx.me);
        // One answer counts for all holds of the report. Even holds need one, since open objects
        // need a grantor.
        let held = holds.first().map(|hold| hold.request);
        for request in held.into_iter().chain(waits.iter().map(|wait| wait.request)) {
            cx.send(
                from,
                ClientMessage::NotGrantor { service: service.clone(), epoch, request, instead },
            );
        }
    }

    /// Answers a member that has destroyed a service and released everything of it. A table that
    /// was transferred meanwhile may still contain some of it. So may the table of a grantor that
    /// was silent for a while. If no grantor is here and none is known, the elder is asked.
    pub(super) fn on_confirm_destroy(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        request: RequestId,
        cx: &mut StepContext,
    ) {
        let known = self.client.grantor(service).0.filter(|by| *by != cx.me);
        let confirmed = match (self.grantors.get(service), &self.registry, known) {
            (Some(grantor), ..) => grantor.confirms_destruction(from, request),
            _ if planted!(cx.mutant, SettleElsewhere) => Ok(()),
            // The elder knows when no member grants any more, regardless of the grantor that its
            // own lock client knows.
            (_, Some(registry), _) if cx.may_name() => registry.confirms_destruction(service),
            (.., Some(by)) => Err(Some(by)),
            (_, Some(_), _) => Err(None),
            _ => Err(cx.elder),
        };
        cx.send(
            from,
            match confirmed {
                Ok(()) => Message::Client(ClientMessage::DestroyConfirmed {
                    service: service.clone(),
                    request,
                }),
                Err(instead) => Message::Client(ClientMessage::DestroyUnconfirmed {
                    service: service.clone(),
                    request,
                    instead,
                }),
            },
        );
    }

    /// Handles a member's query.
    pub(super) fn on_query(
        &mut self,
        from: ProcessId,
        (service, epoch): (ServiceName, Epoch),
        request: RequestId,
        at: &Query,
        cx: &mut StepContext,
    ) {
        if let Some(grantor) =
            self.grantors.get_mut(&service).filter(|grantor| grantor.epoch() >= epoch)
        {
            grantor.on_query(from, request, at, cx);
        } else if !self.client.has_heard_of(&service, epoch) && cx.is_member {
            // The message that names this member may be on its way.
            cx.send(
                from,
                ClientMessage::QueryReply {
                    service,
                    request,
                    seen: Box::new(QueryReply::Undecided),
                },
            );
        } else {
            let instead = self.grantor_after(&service, epoch, cx.me);
            cx.send(from, ClientMessage::NotGrantor { service, epoch, request, instead });
        }
    }

    /// The grantor here, if it acts in the epoch of the request. Otherwise the requester is told
    /// where to ask, or that there is no answer yet. A request for an earlier epoch may have been
    /// answered elsewhere since: the requester repeats it if needed.
    pub(super) fn asked_of(
        &mut self,
        from: ProcessId,
        (service, epoch): (&ServiceName, Epoch),
        request: RequestId,
        cx: &mut StepContext,
    ) -> Option<&mut Grantor> {
        if self.grantors.get(service).is_none_or(|grantor| grantor.epoch() < epoch) {
            let service = service.clone();
            let is_early = !self.client.has_heard_of(&service, epoch);
            cx.send(
                from,
                if is_early && cx.is_member {
                    // The message that names this member may be on its way.
                    Message::Client(ClientMessage::Refuse {
                        service,
                        epoch,
                        request,
                        refusal: Box::new(Refusal::Undecided),
                    })
                } else {
                    let instead = self.grantor_after(&service, epoch, cx.me);
                    Message::Client(ClientMessage::NotGrantor { service, epoch, request, instead })
                },
            );
            return None;
        }
        let grantor = self.grantors.get_mut(service)?;
        let own = grantor.epoch();
        if own > epoch {
            let (service, instead) = (service.clone(), Some((cx.me, own)));
            cx.send(from, ClientMessage::NotGrantor { service, epoch, request, instead });
            return None;
        }
        Some(grantor)
    }

    /// Handles the elder's news of the grantor: members with early requests here are told to ask
    /// there.
    pub(super) fn send_on_early(
        &mut self,
        service: &ServiceName,
        grantor: ProcessId,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        if grantor == cx.me {
            return; // the message that names this member follows on the same link
        }
        for (asked_for, asked) in self.early_requests.take(service) {
            if asked_for <= epoch {
                let (service, request) = (service.clone(), asked.request);
                let instead = Some((grantor, epoch)).filter(|(_, epoch)| *epoch > asked_for);
                cx.send(
                    asked.from,
                    ClientMessage::NotGrantor { service, epoch: asked_for, request, instead },
                );
            } else {
                self.early_requests.push(service.clone(), asked_for, asked);
            }
        }
    }

    /// Ends an older grantor here, because a newer one has this member's answer.
    pub(super) fn end_grantor_below(
        &mut self,
        service: &ServiceName,
        by: ProcessId,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        if self.grantors.get(service).is_some_and(|grantor| grantor.epoch() < epoch) {
            self.end_grantor(service, Some((by, epoch)), cx);
            self.client.on_superseded(service, by, cx);
        }
    }

    /// Ends the grantors here that have not begun, because the elder has changed, or may have for a
    /// while. The new elder does not know them, and may have named others since. If they began only
    /// now, they could begin after those. A member that still wants the role bids again. An
    /// unchanged elder is told, since it would wait for them.
    pub(in crate::protocol) fn end_unbegun(&mut self, cx: &mut StepContext) {
        planted!(cx.mutant, BeginForFormerElder => return);
        let over = |grantor: &Grantor| !grantor.is_acting();
        let services: Vec<ServiceName> = self
            .grantors
            .iter()
            .filter(|(_, grantor)| over(grantor))
            .map(|(service, _)| service.clone())
            .collect();
        for service in services {
            self.end_grantor(&service, None, cx);
        }
    }

    /// Ends the grantor here. Its waiters are told to ask the next grantor, or the elder.
    fn end_grantor(
        &mut self,
        service: &ServiceName,
        next: Option<(ProcessId, Epoch)>,
        cx: &mut StepContext,
    ) {
        if let Some(grantor) = self.grantors.remove(service) {
            self.on_grantor_end(service, &grantor, cx);
            let table = grantor.close(next, cx);
            self.discard(table, cx);
            if next.is_none() {
                self.client.on_ended_unasked(service, cx);
            }
            if self.relinquishing.remove(service) {
                self.client.bid_again(service, cx);
            }
        }
    }

    /// Reports the end of a grantor here to the elder. A new elder may not know it otherwise, and
    /// would send every member here for ever.
    fn on_grantor_end(&mut self, service: &ServiceName, grantor: &Grantor, cx: &mut StepContext) {
        let epoch = grantor.epoch();
        self.client.on_ended(service, epoch);
        grantor.tell_end(cx);
        cx.send_elder(RegistryMessage::Decline { service: service.clone(), epoch });
    }

    pub(super) fn end_grantors(&mut self, cx: &mut StepContext) {
        self.relinquishing.clear();
        self.pending_transfers.clear();
        self.unfinished.clear();
        for grantor in std::mem::take(&mut self.grantors).into_values() {
            grantor.tell_end(cx);
        }
    }
}

impl From<PendingPosition> for Message {
    fn from(position: PendingPosition) -> Message {
        let PendingPosition { at: _, to: _, service, epoch, request, ticket } = position;
        Message::Client(ClientMessage::Queued { service, epoch, request, ticket })
    }
}
