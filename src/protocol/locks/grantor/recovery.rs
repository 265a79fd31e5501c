//! How a grantor without a table rebuilds one from the reports of all members.
//!
//! ```text
//! G ->[Recover e] each member of the view      each member ->[Report e, in parts] G
//! ```
//! - `recovered_table_is_the_union`: the grantor grants the names of a part when every member has
//!   reported that part or has left the view. It acts when all have reported everything.
//! - A suspension concerns all names. So no part opens beside one before the whole.
//! - A hold that the grantor has no room for is ended. Its member is told (`Supersede`) and reports
//!   once more before the grantor acts. Otherwise another member could get a lock that the first
//!   one believes it holds.
//! - `no_lost_wakeup`: a wait that the grantor has no room for is not lost. Its member is told
//!   (`NotGrantor`) and asks again.

use super::early_waits::{EarlyWait, LeftOutWaits};
use super::*;
use crate::protocol::locks::name_part::{ALL_PARTS, FIRST_PART, highest_part, lowest_part};

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
        let (early, open, has_earlier_table) = (early.without_reports(), 0, false);
        let awaiting = awaiting.into_iter().map(|process| (process, 0)).collect();
        self.phase = GrantorPhase::Recovering { early, awaiting, open, has_earlier_table };
    }

    /// Asks a member for its holds and waits.
    pub(super) fn ask_for_report(&self, process: ProcessId, cx: &mut StepContext) {
        let (service, epoch) = (self.service.clone(), self.epoch);
        cx.send(process, ClientMessage::Recover { service, epoch, by_part: true });
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

    /// Handles a member's report, or the beginning of it.
    #[cfg(test)]
    pub(crate) fn on_report(
        &mut self,
        from: ProcessId,
        objects: Vec<(LockName, Content)>,
        entries: (Vec<HoldReport>, Vec<WaitReport>),
        last: bool,
        cx: &mut StepContext,
    ) {
        self.on_part_of_report(from, objects, entries, (last, None), cx);
    }

    /// Handles a chunk of a member's report: whether it is the last, and the number of parts that
    /// are complete with it.
    pub(crate) fn on_part_of_report(
        &mut self,
        from: ProcessId,
        objects: Vec<(LockName, Content)>,
        (holds, waits): (Vec<HoldReport>, Vec<WaitReport>),
        (last, parts): (bool, Option<u16>),
        cx: &mut StepContext,
    ) {
        let acts = self.is_acting();
        if let Some(by_part) = self.outdated_reporters.get_mut(&from)
            && !planted!(cx.mutant, BelieveOutdatedReport)
        {
            *by_part |= parts.is_some();
            // A grantor that acts asks for no report by part. So this one is the answer to the
            // revalidation, which the member has begun in place of the rest of the outdated one.
            if !*by_part || parts.is_some() || !acts {
                return self.on_late_report(from, waits, (last, parts.is_some()), cx);
            }
            self.outdated_reporters.remove(&from);
        }
        if acts {
            return self.on_revalidation_report(from, objects, (holds, waits), last, cx);
        }
        let GrantorPhase::Recovering { early, awaiting, .. } = &mut self.phase else { return };
        let Some(complete) = awaiting.get_mut(&from) else { return };
        if parts.is_some() {
            early.by_part.insert(from);
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
        early.has_suspension |= self.table.has_suspension()
            || waits.iter().any(|wait| wait.lock.want == Want::Suspension);
        let is_in_order = |ticket| self.table.is_in_order(ticket);
        let left_out = early.waits.keep(from, waits, most, is_in_order);
        let is_oversized = last && early.oversized.remove(&from);
        let reports_again = is_oversized && !planted!(cx.mutant, ActBeforeSecondReport);
        if reports_again {
            early.waits.forget(from);
            // Its waits are missing again, so no further part opens before they are here.
            *complete = FIRST_PART;
        } else if last {
            awaiting.remove(&from);
        } else if !early.oversized.contains(&from) || planted!(cx.mutant, OpenBesideLeftOutHolds) {
            *complete = parts.unwrap_or(0).min(ALL_PARTS - 1).max(*complete);
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
        (last, by_part): (bool, bool),
        cx: &mut StepContext,
    ) {
        if last {
            self.outdated_reporters.remove(&from);
        }
        match self.phase.early_mut() {
            Some(early) => {
                let most = cx.limits.member_bytes();
                let is_in_order = |ticket| self.table.is_in_order(ticket);
                let left_out = early.waits.keep(from, waits, most, is_in_order);
                if by_part {
                    early.by_part.insert(from);
                }
                self.send_waits_on(from, left_out, cx);
            }
            // They come backwards. The revalidation brings all waits of the member in their order.
            None if by_part => {}
            None => {
                let mut waits = waits;
                waits.sort_by_key(|wait| wait.request);
                self.enter_missing_waits(from, waits, cx);
            }
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

    /// Opens the parts that every member has reported, and begins to act once all have reported
    /// everything. One step opens as many parts as have one slice of waits.
    pub(super) fn finish_recovery(&mut self, cx: &mut StepContext) {
        let GrantorPhase::Recovering { early, awaiting, open, has_earlier_table } = &mut self.phase
        else {
            return;
        };
        if *has_earlier_table {
            if awaiting.is_empty() {
                let early = std::mem::take(early);
                self.act_on_table(early, cx);
            }
            return;
        }
        let complete = awaiting.values().min().copied().unwrap_or(ALL_PARTS).max(*open);
        planted!(=> let complete = planted::complete(complete, awaiting, cx));
        let is_whole = complete == ALL_PARTS;
        if early.has_suspension && !is_whole && !planted!(cx.mutant, OpenBesideSuspension) {
            return;
        }
        if complete == FIRST_PART
            || awaiting.values().any(|parts| *parts == FIRST_PART)
                && !planted!(cx.mutant, OpenBeforeSilentMembers)
        {
            // A member's waits enter the table when all of them are here.
            return;
        }
        // The tickets of all waits tell which of them pass a suspension.
        let end = match early.has_suspension {
            true => complete,
            false => early.waits.end_within(complete, cx.limits.slice as usize),
        };
        if *open == FIRST_PART && complete > FIRST_PART {
            early.waits.inherit_forwards(|ticket| self.table.is_in_order(ticket));
        }
        if !early.has_suspension && (*open > FIRST_PART || end < ALL_PARTS) {
            early.waits.deal(|| self.table.deal_ticket());
            self.deal_to_parked(cx);
        }
        let GrantorPhase::Recovering { early, open, .. } = &mut self.phase else { return };
        let before = std::mem::replace(open, end.max(*open));
        if before == FIRST_PART && end > FIRST_PART {
            // All members have reported which objects they have open.
            self.table.drop_unopened();
        }
        let waits = early.waits.take_below(end);
        let rest = early.held_back.split_off(&end);
        let freed = std::mem::replace(&mut early.held_back, rest);
        freed.into_values().flatten().for_each(|key| self.table.let_go(key));
        planted!(cx.mutant, NewcomersFirst => self.serve_parked(cx));
        self.enter_waits(waits, end, cx);
        if end == ALL_PARTS {
            return self.begin_recovered(cx);
        }
        self.grant(cx);
        if end < complete {
            self.leave_unfinished(cx);
        }
    }

    /// Begins to act.
    fn begin_recovered(&mut self, cx: &mut StepContext) {
        let early = self.phase.early_mut().map(std::mem::take).unwrap_or_default();
        self.phase = GrantorPhase::Acting;
        self.begin(early, false, cx);
    }

    /// Deals tickets to the requests that arrived before the first part opens, in their order. From
    /// then on they wait for their parts like reported ones. So all requests of a member keep their
    /// order, also if they enter the table in the order of their parts.
    fn deal_to_parked(&mut self, cx: &mut StepContext) {
        let GrantorPhase::Recovering { early, .. } = &mut self.phase else { return };
        for asked in std::mem::take(&mut early.parked) {
            self.await_parts(asked, cx);
        }
    }

    /// Lets a request wait until its parts open. A batch stands in its queues as soon as its lowest
    /// part is open.
    pub(super) fn await_parts(&mut self, asked: ReceivedRequest, cx: &mut StepContext) {
        let GrantorPhase::Recovering { early, open, .. } = &mut self.phase else { return };
        let ReceivedRequest { from, request, lock, .. } = asked;
        let (dealt, end) = (self.table.deal_ticket(), *open);
        let wait = WaitReport { request, lock, ticket: None };
        if lowest_part(&wait.lock.want) < end {
            let inherits = Some(dealt);
            self.enter_waits(vec![(from, EarlyWait { wait, inherits })], end, cx);
        } else if !early.waits.keep_dealt(from, wait, dealt, cx.limits.member_bytes()) {
            let left_out = LeftOutWaits { first: Some(request), count: 1 };
            self.send_waits_on(from, left_out, cx);
        }
    }

    /// Enters reported waits. Waits with an acknowledged position come first, in their old order.
    /// Other waits follow. A batch with names in parts from `end` on stands in all of its queues,
    /// and is held back until these parts open.
    fn enter_waits(&mut self, waits: Vec<(ProcessId, EarlyWait)>, end: u16, cx: &mut StepContext) {
        let mut completed = BTreeSet::new();
        let mut waits: Vec<(ProcessId, WaitReport)> = waits
            .into_iter()
            .map(|(from, EarlyWait { mut wait, inherits })| {
                if let Some(ticket) = inherits
                    && self.may_inherit(from, &wait, ticket, cx)
                {
                    wait.ticket = Some(ticket);
                    completed.insert((from, wait.request));
                }
                (from, wait)
            })
            .collect();
        waits.sort_by_key(|(from, wait)| (wait.ticket.is_none(), wait.ticket, *from, wait.request));
        planted!(cx.mutant, LoseWaiters => waits.clear());
        planted!(cx.mutant, LosePositions => planted::lose_positions(&mut waits));
        planted!(cx.mutant, LoseOwnPositions => planted::lose_positions_of(cx.me, &mut waits));
        // Holds and waits had separate bounds so far. The table has one for both.
        let mut left_out: BTreeMap<ProcessId, LeftOutWaits> = BTreeMap::new();
        for (from, wait) in waits {
            let key = (from, wait.request);
            let is_over = self.phase.early().is_some_and(|early| early.is_over(key));
            if self.table.entry_status(key).is_some() || is_over {
                continue;
            }
            if !self.has_room(from, cx) {
                left_out.entry(from).or_default().add(wait.request);
                continue;
            }
            let (ticket, highest) = (wait.ticket, highest_part(&wait.lock.want));
            self.enter_wait(key, wait, cx);
            debug_assert!(
                ticket.is_none() || self.table.entry_status(key) == ticket.map(EntryStatus::Waits)
            );
            if let Some(ticket) = ticket.filter(|_| completed.contains(&key)) {
                self.tell_queued(key, ticket, cx);
            }
            if highest >= end
                && let Some(early) = self.phase.early_mut()
                && !planted!(cx.mutant, GrantHalfOpenBatch)
            {
                early.held_back.entry(highest).or_default().insert(key);
                self.table.hold_back(key);
            }
        }
        left_out.into_iter().for_each(|(from, waits)| self.send_waits_on(from, waits, cx));
    }

    /// Returns whether a wait without a ticket may get that of a later wait of its member. A
    /// request whose owner has a hold must pass a suspension, not wait behind it.
    fn may_inherit(
        &self,
        from: ProcessId,
        wait: &WaitReport,
        ticket: Ticket,
        _cx: &StepContext,
    ) -> bool {
        let is_behind = self.table.is_suspended()
            || self.phase.early().is_some_and(|early| early.waits.is_behind_suspension(ticket));
        let passes = is_behind && self.table.holds_of(from, wait.lock.owner) > 0;
        !passes && !planted!(_cx.mutant, ForgetOwnOrder)
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
