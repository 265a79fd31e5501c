//! How a grantor without a table rebuilds one from the reports of all members.
//!
//! ```text
//! G ->[Recover e] each member of the view      each member ->[Report e, in parts] G
//! ```
//! - `recovered_table_is_the_union`: the grantor acts when every member has reported or has left
//!   the view.
//! - A hold that the grantor has no room for is ended. Its member is told (`Supersede`) and reports
//!   once more before the grantor acts. Otherwise another member could get a lock that the first
//!   one believes it holds.
//! - `no_lost_wakeup`: a wait that the grantor has no room for is not lost. Its member is told
//!   (`NotGrantor`) and asks again.

use super::*;

impl Grantor {
    /// Begins a recovery: asks every member for a report.
    pub(super) fn recover(&mut self, early: EarlyMessages, view: &View, cx: &mut StepContext) {
        self.activation_path = ActivationPath(Some((GrantorState::Recovering, cx.now)));
        self.revalidations.clear();
        let awaiting: BTreeSet<ProcessId> =
            view.members.iter().map(|member| member.info.process).collect();
        planted!(=> let awaiting = planted::awaiting(awaiting, cx));
        for &process in &awaiting {
            self.ask_for_report(process, cx);
        }
        let early = early.without_reports();
        self.phase = GrantorPhase::Recovering { early, awaiting, has_earlier_table: false };
    }

    /// Asks a member for its holds and waits.
    pub(super) fn ask_for_report(&self, process: ProcessId, cx: &mut StepContext) {
        let (service, epoch) = (self.service.clone(), self.epoch);
        cx.send(process, ClientMessage::Recover { service, epoch, acts: false });
    }

    /// Continues without the predecessor's table: asks every member. If a younger turk waits for
    /// the table, the younger turk does so.
    pub(super) fn lose_source(&mut self, view: &View, cx: &mut StepContext) {
        self.table = Table::new(self.epoch).within(cx);
        self.departed.clear();
        match &mut self.phase {
            GrantorPhase::Receiving { early, .. } => {
                let early = std::mem::take(early);
                self.recover(early, view, cx);
            }
            GrantorPhase::PassingOn { table, .. } => *table = PassedTable::Lost,
            GrantorPhase::Recovering { .. } | GrantorPhase::Acting => {}
        }
    }

    /// Handles a member's report.
    pub(crate) fn on_report(
        &mut self,
        from: ProcessId,
        objects: Vec<(LockName, Content)>,
        (holds, waits): (Vec<HoldReport>, Vec<WaitReport>),
        last: bool,
        cx: &mut StepContext,
    ) {
        if self.outdated_reporters.contains(&from) && !planted!(cx.mutant, BelieveOutdatedReport) {
            return self.on_late_report(from, waits, last, cx);
        }
        if self.is_acting() {
            return self.on_revalidation_report(from, objects, (holds, waits), last, cx);
        }
        let GrantorPhase::Recovering { early, awaiting, .. } = &mut self.phase else { return };
        if !awaiting.contains(&from) {
            return;
        }
        let most = cx.limits.member_bytes();
        for (name, content) in objects {
            let maybe_stale = !planted!(cx.mutant, CallItSure);
            planted!(cx.mutant, FirstValueWins => if self.table.has_content(&name) { continue });
            if !early.count_object(from, content.weight(&name), most)
                && !planted!(cx.mutant, TakeAllObjects)
            {
                continue;
            }
            self.table.adopt(name, Content { maybe_stale, ..content });
        }
        for hold in holds {
            let key = (from, hold.request);
            if early.is_over(key) {
                continue;
            }
            let is_known = matches!(self.table.entry_status(key), Some(EntryStatus::Holds(_)));
            // Without room for its content, an object would come back with an earlier content.
            let has_room = self.table.bytes_of(from) < most
                && (!hold.lock.want.opens() || early.has_room_for_objects(from, most));
            let (token, since) = (hold.token, cx.now.back(hold.held_for));
            let losers = if has_room || is_known {
                self.table.enter_reported(key, hold.lock, token, since)
            } else {
                planted!(cx.mutant, LeaveHoldsOut => continue);
                early.oversized.insert(from);
                vec![key]
            };
            for (process, request) in losers {
                cx.send(
                    process,
                    ClientMessage::Supersede {
                        service: self.service.clone(),
                        epoch: self.epoch,
                        request,
                    },
                );
            }
        }
        planted!(=> let most = planted::most_of_waits(most, cx));
        let left_out = early.keep_waits(from, waits, most);
        let is_oversized = last && early.oversized.remove(&from);
        let reports_again = is_oversized && !planted!(cx.mutant, ActBeforeSecondReport);
        if reports_again {
            early.forget_waits(from);
        } else if last {
            awaiting.remove(&from);
        }
        self.send_waits_on(from, left_out, cx);
        if reports_again {
            // Links keep the order, so the member knows of the ended holds when it reports again.
            self.ask_for_report(from, cx);
        }
        self.finish_recovery(cx);
    }

    /// Handles an answer to a recovery that a predecessor's table has ended. The table has the
    /// member's holds, but maybe not all of its waits. The member may also have asked for more
    /// since.
    pub(super) fn on_late_report(
        &mut self,
        from: ProcessId,
        waits: Vec<WaitReport>,
        last: bool,
        cx: &mut StepContext,
    ) {
        if last {
            self.outdated_reporters.remove(&from);
        }
        match self.phase.early_mut() {
            Some(early) => {
                let left_out = early.keep_waits(from, waits, cx.limits.member_bytes());
                self.send_waits_on(from, left_out, cx);
            }
            None => self.enter_missing_waits(from, waits, cx),
        }
        if last
            && let GrantorPhase::Recovering { awaiting, has_earlier_table: true, .. } =
                &mut self.phase
        {
            awaiting.remove(&from);
            self.finish_recovery(cx);
        }
        self.grant(cx);
    }

    /// Begins to act once every member has answered. Waits with an acknowledged position come
    /// first, in their old order. Other waits follow, then requests that arrived meanwhile.
    pub(super) fn finish_recovery(&mut self, cx: &mut StepContext) {
        let GrantorPhase::Recovering { early, awaiting, has_earlier_table } = &mut self.phase
        else {
            return;
        };
        if !awaiting.is_empty() {
            return;
        }
        let mut early = std::mem::take(early);
        if *has_earlier_table {
            return self.act_on_table(early, cx);
        }
        self.phase = GrantorPhase::Acting;
        let reports = std::mem::take(&mut early.waits).into_iter();
        let waits =
            reports.flat_map(|(from, waits)| waits.into_iter().map(move |wait| (from, wait)));
        let mut waits: Vec<(ProcessId, WaitReport)> = waits.collect();
        let completed = self.table.keep_own_order(&mut waits);
        waits.sort_by_key(|(_, wait)| (wait.ticket.is_none(), wait.ticket));
        planted!(cx.mutant, LoseWaiters => waits.clear());
        planted!(cx.mutant, LosePositions => planted::lose_positions(&mut waits));
        planted!(cx.mutant, LoseOwnPositions => planted::lose_positions_of(cx.me, &mut waits));
        planted!(cx.mutant, NewcomersFirst => self.serve_parked(&mut early, cx));
        // Holds and waits had separate bounds so far. The table has one for both.
        let mut left_out: BTreeMap<ProcessId, LeftOutWaits> = BTreeMap::new();
        for (from, wait) in waits {
            let key = (from, wait.request);
            if self.table.entry_status(key).is_some() || early.is_over(key) {
                continue;
            }
            if !self.has_room(from, cx) {
                left_out.entry(from).or_default().add(wait.request);
                continue;
            }
            let ticket = wait.ticket;
            self.enter_wait(key, wait, cx);
            debug_assert!(
                ticket.is_none() || self.table.entry_status(key) == ticket.map(EntryStatus::Waits)
            );
            if let Some(ticket) = ticket.filter(|_| completed.contains(&key)) {
                self.tell_queued(key, ticket, cx);
            }
        }
        left_out.into_iter().for_each(|(from, waits)| self.send_waits_on(from, waits, cx));
        self.begin(early, false, cx);
    }

    /// Queues the waits that a member reported to a recovery and that the transferred table lacks.
    /// A wait that could pass a suspension by an ended hold is left to the revalidation.
    pub(super) fn enter_missing_waits(
        &mut self,
        process: ProcessId,
        waits: impl IntoIterator<Item = WaitReport>,
        cx: &mut StepContext,
    ) {
        let mut left_out = LeftOutWaits::default();
        for wait in waits {
            let key = (process, wait.request);
            let may_pass =
                self.table.has_suspension() && self.table.holds_of(process, wait.lock.owner) > 0;
            if may_pass || self.table.entry_status(key).is_some() {
                continue;
            }
            match self.has_room(process, cx) {
                true => self.enter_wait(key, wait, cx),
                false => left_out.add(wait.request),
            }
        }
        self.send_waits_on(process, left_out, cx);
    }

    /// Tells a member that the grantor has no room for some reported waits. The member asks for
    /// them again, as after [`send_on`](Grantor::send_on). One answer counts for all requests of
    /// the member, since a report may have millions.
    pub(super) fn send_waits_on(
        &self,
        member: ProcessId,
        left_out: LeftOutWaits,
        cx: &mut StepContext,
    ) {
        planted!(cx.mutant, LeaveWaitsOut => return);
        let LeftOutWaits { first: Some(request), count } = left_out else { return };
        let (service, epoch, instead) = (self.service.clone(), self.epoch, self.phase.next_turk());
        cx.send(member, ClientMessage::NotGrantor { service, epoch, request, instead });
        let service = self.service.clone();
        cx.out.push(Output::Event(Event::WaitsLeftOut { service, member, count }));
    }

    /// Puts a reported wait at its acknowledged position, or at the end if it has none.
    pub(super) fn enter_wait(
        &mut self,
        key: (ProcessId, RequestId),
        wait: WaitReport,
        cx: &mut StepContext,
    ) {
        let ticket = wait.ticket;
        let entry = wait.lock;
        match ticket {
            Some(ticket) => {
                self.recall(&entry.want, cx);
                self.table.wait(key, entry, ticket, cx.now);
            }
            None => match self.queue(key, entry, cx) {
                Ok(ticket) => self.tell_queued(key, ticket, cx),
                Err(refusal) => self.tell_refusal(key, refusal, cx),
            },
        }
    }
}
