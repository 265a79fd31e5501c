//! The transfer of a grantor's table: to a young turk, or to the successor of a grantor that
//! leaves.
//!
//! ```text
//! T ->[Become] E            E ->[NameGrantor from G] T
//! T ->[RequestTable e'] G   G ->[TableChunk e', in parts] T
//! T ->[Acts] E              T ->[Recover e'] those in the table   those ->[Report e'] T
//! ```
//! - `last_young_turk_wins`: a grantor that still waits for a table passes it on to the next asker.
//! - `nothing_lost_in_transfer`: the new grantor acts, and `revalidation.rs` finds the changes that
//!   were on their way to its predecessor.
//! - A table with more entries of a member than a grantor may have is dropped, and every member is
//!   asked. Holds survive at their members. Only the holds that exceed a member's bound end, when
//!   their member has been told (`recovery.rs`).

use super::*;
use crate::protocol::message::GrantorMessage;

impl Grantor {
    /// Asks the predecessor for its table. `copy`: the number of the whole copy that is here.
    pub(super) fn receive(
        &mut self,
        (early, source): (EarlyMessages, ProcessId),
        copy: Option<u64>,
        cx: &mut StepContext,
    ) {
        self.phase = GrantorPhase::Receiving { early, source };
        self.activation_path = ActivationPath(Some((GrantorState::Receiving, cx.now)));
        cx.send(
            source,
            GrantorMessage::RequestTable { service: self.service.clone(), epoch: self.epoch, copy },
        );
    }

    /// Handles a part of the predecessor's table.
    pub(crate) fn on_table_chunk(
        &mut self,
        from: ProcessId,
        objects: Vec<(LockName, Content)>,
        (holds, waits): Contents,
        (view, last): (&View, bool),
        cx: &mut StepContext,
    ) {
        if self.refused_tables.contains(&from) && !planted!(cx.mutant, TakeRestOfTable) {
            return;
        }
        if let Some(1..) = self.phase.open_parts() {
            // Every member has answered this epoch, so none of them had a table then or gets one
            // later. A member that sends one all the same has none any more, and is asked again.
            if last {
                self.ask_for_report(from, cx);
            }
            return;
        }
        if let GrantorPhase::Recovering { early, awaiting, .. } = &mut self.phase
            && awaiting.remove(&from).is_some()
        {
            // A predecessor that was taken to be lost still acts, and answers the recovery with its
            // table. The table contains everything that others have reported of it, except for
            // their later requests.
            self.activation_path = ActivationPath(Some((GrantorState::Receiving, cx.now)));
            let unheard = awaiting.keys().copied();
            self.revalidations =
                unheard.map(|process| (process, RevalidationAnswers::default())).collect();
            self.outdated_reporters.remove(&from);
            let by_part = |process| (process, early.by_part.contains(&process));
            self.outdated_reporters.extend(awaiting.keys().copied().map(by_part));
            self.table = Table::new(self.epoch).within(cx);
            self.phase = GrantorPhase::Receiving { early: std::mem::take(early), source: from };
        }
        if self.phase.source() != Some(from) {
            return;
        }
        let Some(early) = self.phase.early_mut() else { return };
        let most = cx.limits.table_bytes();
        planted!(=> let most = planted::most_of_table(most, cx));
        let most_objects = most.saturating_mul(view.members.len());
        for (name, content) in objects {
            if !early.count_object(from, content.weight(&name), most_objects) {
                return self.refuse_table(from, view, cx);
            }
            let maybe_stale = content.maybe_stale || planted!(cx.mutant, StaleByTransfer);
            self.table.adopt(name, Content { maybe_stale, ..content });
        }
        for (process, hold) in holds {
            planted!(=> let hold = planted::taken_over(hold, cx));
            let (key, token) = ((process, hold.request), hold.token);
            let since = cx.now.back(hold.held_for);
            let is_there = view.contains(process) || planted!(cx.mutant, TakeOverTheDead);
            if !early.is_over(key) && is_there {
                if self.table.bytes_of(process) >= most {
                    return self.refuse_table(from, view, cx);
                }
                self.table.enter_reported(key, hold.lock, token, since);
            }
        }
        for (process, wait) in waits {
            let key = (process, wait.request);
            if let Some(ticket) = wait.ticket
                && !early.is_over(key)
                && view.contains(process)
                && self.table.entry_status(key).is_none()
            {
                if self.table.bytes_of(process) >= most {
                    return self.refuse_table(from, view, cx);
                }
                self.table.wait(key, wait.lock, ticket, cx.now);
            }
        }
        let last = last || planted!(cx.mutant, ActOnFirstPart);
        if !last {
            return;
        }
        let early = std::mem::take(early);
        self.end_table(from, early, cx);
    }

    /// Takes over a copy of the predecessor's table, whose last changes have arrived.
    pub(crate) fn on_copied_table(
        &mut self,
        from: ProcessId,
        table: Table,
        view: &View,
        cx: &mut StepContext,
    ) {
        if self.phase.source() != Some(from) {
            return;
        }
        let Some(early) = self.phase.early_mut() else { return };
        let early = std::mem::take(early);
        self.table = table.renew(self.epoch).within(cx);
        early.ended().for_each(|key| self.table.release(key));
        // The predecessor ends the requests of departed members in slices, too.
        let departed = self.table.processes().filter(|process| !view.contains(*process));
        self.departed.extend(departed);
        self.end_table(from, early, cx);
        self.end_departed(cx);
    }

    /// Ends the receipt of the predecessor's table: acts, or passes it on.
    fn end_table(&mut self, from: ProcessId, early: EarlyMessages, cx: &mut StepContext) {
        // A later predecessor could begin only after this member had answered it. So this member
        // knows of it.
        let awaits_others = self.last_known.is_some_and(|known| known != Some(from))
            && !self.outdated_reporters.is_empty()
            && !planted!(cx.mutant, ActOnEarlierTable);
        if let GrantorPhase::PassingOn { table, early: kept, .. } = &mut self.phase
            && !planted!(cx.mutant, ActBeforeNextTurk)
        {
            *table = if awaits_others { PassedTable::Lost } else { PassedTable::Arrived };
            *kept = early;
            return;
        }
        if awaits_others {
            let awaiting = self.outdated_reporters.keys().map(|process| (*process, 0)).collect();
            let (open, has_earlier_table) = (0, true);
            self.phase = GrantorPhase::Recovering { early, awaiting, open, has_earlier_table };
            return;
        }
        self.act_on_table(early, cx);
    }

    /// Refuses the table of a predecessor, because it exceeds the bounds. An honest grantor has no
    /// such table. No hold of it may be dropped: another member could get a lock that the holder
    /// believes it has. So every member is asked, and the bounds of a report apply to each. The
    /// rest of this table is ignored: it is on its way and would pass for a whole one.
    fn refuse_table(&mut self, from: ProcessId, view: &View, cx: &mut StepContext) {
        self.refused_tables.insert(from);
        let service = self.service.clone();
        cx.out.push(Output::Event(Event::TableRefused { service, from }));
        self.lose_source(view, cx);
    }

    /// Begins to act on the last predecessor's table.
    pub(super) fn act_on_table(&mut self, mut early: EarlyMessages, cx: &mut StepContext) {
        self.phase = GrantorPhase::Acting;
        self.revalidate(cx);
        planted!(cx.mutant, LoseWaitsBesideTable => drop(early.waits.take_all()));
        for (process, waits) in early.waits.take_all() {
            // Only its later waits may be known. The revalidation brings all of them in order.
            let is_backwards =
                self.outdated_reporters.contains_key(&process) && early.by_part.contains(&process);
            if is_backwards {
                continue;
            }
            let lasting = waits.into_iter().filter(|wait| !early.is_over((process, wait.request)));
            self.enter_missing_waits(process, lasting, cx);
        }
        self.begin(early, true, cx);
    }

    /// The younger turk to which the table is due, if the table has arrived.
    pub(crate) fn next_turk_due(&self) -> Option<(ProcessId, Epoch)> {
        self.phase.next_turk().filter(|_| self.phase.source().is_none())
    }

    /// Continues without the predecessor's table: asks every member. If a younger turk waits for
    /// the table, the younger turk does so.
    pub(crate) fn on_no_table(&mut self, from: ProcessId, view: &View, cx: &mut StepContext) {
        if self.phase.source() == Some(from) {
            planted!(cx.mutant, TakeNoTableForEmpty => return self.begin_empty(cx));
            self.lose_source(view, cx);
        }
    }

    /// Handles the request of a grantor of a later epoch for the table. Returns whether this
    /// grantor can answer now. Otherwise it passes the table on when the table arrives.
    pub(crate) fn on_request_table(
        &mut self,
        next_turk: (ProcessId, Epoch),
        cx: &mut StepContext,
    ) -> bool {
        let (service, own) = (self.service.clone(), self.epoch);
        let Some(source) = self.phase.source() else { return true };
        if let Some((process, epoch)) = self.phase.next_turk() {
            cx.send(process, GrantorMessage::NoTable { service: service.clone(), epoch });
        }
        let mut early = self.phase.early_mut().map(std::mem::take).unwrap_or_default();
        let parked = std::mem::take(&mut early.parked);
        self.phase =
            GrantorPhase::PassingOn { early, table: PassedTable::AwaitedFrom(source), next_turk };
        for asked in parked {
            planted!(cx.mutant, ForgetEarlyRequesters => continue);
            let (service, request) = (service.clone(), asked.request);
            cx.send(
                asked.from,
                ClientMessage::NotGrantor {
                    service,
                    epoch: own,
                    request,
                    instead: Some(next_turk),
                },
            );
        }
        false
    }

    /// Sends the table to the next grantor, if the table is whole, and ends. `copy`: the number of
    /// the copy that the next grantor has. Returns the table, which is used no more.
    pub(crate) fn transfer(
        mut self,
        next_turk: (ProcessId, Epoch),
        copy: Option<u64>,
        cx: &mut StepContext,
    ) -> Table {
        let (to, epoch) = next_turk;
        if self.has_copy(to, copy) {
            self.send_rest(epoch, cx);
            return self.close(Some(next_turk), cx);
        }
        let (service, kept) = (&self.service, self.may_have_kept());
        if !self.phase.has_table() && !planted!(cx.mutant, TransferWhatIsThere) {
            cx.send(to, GrantorMessage::NoTable { service: service.clone(), epoch });
            return self.close(Some(next_turk), cx);
        }
        let (all_holds, all_waits) = self.table.export(cx.now);
        planted!(=> let (all_holds, all_waits) = planted::transfer(all_holds, all_waits, cx));
        let (mut holds, mut waits, mut bytes) = (Vec::new(), Vec::new(), 0);
        let part = |objects: Vec<_>, holds, waits, last| {
            let service = service.clone();
            Message::Grantor(GrantorMessage::TableChunk {
                service,
                epoch,
                objects: objects.into(),
                holds,
                waits,
                last,
                kept,
            })
        };
        let mut objects = Vec::new();
        for (name, content) in self.table.objects() {
            planted!(cx.mutant, TransferNoValues => continue);
            bytes += content.weight(name);
            objects.push((name.clone(), content.clone()));
            if bytes >= cx.limits.part_bytes as usize {
                bytes = 0;
                cx.send(to, part(std::mem::take(&mut objects), Vec::new(), Vec::new(), false));
            }
        }
        let mut table = |holds, waits, last| part(std::mem::take(&mut objects), holds, waits, last);
        for (process, hold) in all_holds {
            bytes += hold.lock.entry_weight();
            holds.push((process, hold));
            if bytes >= cx.limits.part_bytes as usize {
                bytes = 0;
                cx.send(to, table(std::mem::take(&mut holds), Vec::new(), false));
            }
        }
        for (process, wait) in all_waits {
            bytes += wait.lock.entry_weight();
            waits.push((process, wait));
            if bytes >= cx.limits.part_bytes as usize {
                bytes = 0;
                cx.send(to, table(std::mem::take(&mut holds), std::mem::take(&mut waits), false));
            }
        }
        cx.send(to, table(holds, waits, true));
        self.close(Some(next_turk), cx)
    }

    /// Ends the grantor: its waiters are told to ask elsewhere, or to ask the elder. Waiters in a
    /// transferred table are told too. Otherwise they would wait here for ever if the next grantor
    /// ended before they knew of it.
    /// Returns the table, which is used no more.
    pub(crate) fn close(
        mut self,
        instead: Option<(ProcessId, Epoch)>,
        cx: &mut StepContext,
    ) -> Table {
        self.end_tries(cx);
        self.end_copying(cx);
        let (service, own) = (self.service, self.epoch);
        let not_here = |request| {
            Message::Client(ClientMessage::NotGrantor {
                service: service.clone(),
                epoch: own,
                request,
                instead,
            })
        };
        let Some(early) = self.phase.early() else {
            planted!(cx.mutant, EndInSilence => return self.table);
            // An answer to one request counts for all requests of its member.
            let waiters = self.table.last_requests(true);
            waiters.for_each(|(process, request)| cx.send(process, not_here(request)));
            return self.table;
        };
        if let Some((process, epoch)) =
            self.phase.next_turk().filter(|next_turk| Some(*next_turk) != instead)
        {
            cx.send(process, GrantorMessage::NoTable { service: service.clone(), epoch });
        }
        // Reported requests wait here, too: a later grantor that already has its table asks no
        // member.
        let reported = early.waits.requests();
        let parked = early.parked.iter().map(|asked| (asked.from, asked.request));
        reported.chain(parked).for_each(|(process, request)| cx.send(process, not_here(request)));
        // A member that has an object open waits for no answer, but for the writes of other
        // members.
        let known = self.table.last_requests(false);
        known.for_each(|(process, request)| cx.send(process, not_here(request)));
        self.table
    }

    /// Continues at the same member in a new epoch, with the present table.
    pub(crate) fn renew(mut self, range: TokenRange, cx: &mut StepContext) -> Grantor {
        self.tell_end(cx);
        self.end_tries(cx);
        self.end_copying(cx);
        self.epoch = Epoch(range.first);
        self.activation_path = ActivationPath(None);
        self.tokens = TokenPool::new(range, cx.now);
        self.table = self.table.renew(self.epoch);
        self.unwilling_successors = None;
        self.kept = KeptHolds { are_transferred: self.may_have_kept(), ..KeptHolds::default() };
        // Answers that are on their way belong to the former epoch.
        self.revalidations.clear();
        self.outdated_reporters.clear();
        self.refused_tables.clear();
        self.revalidate(cx);
        self.begin(EarlyMessages::default(), true, cx);
        self
    }

    /// Ends this member's role as the grantor. Returns whether the role is over at once. Otherwise
    /// it continues until the successor asks for the table.
    pub(crate) fn depart(
        &mut self,
        view: &View,
        suspected: &BTreeSet<ProcessId>,
        cx: &mut StepContext,
    ) -> bool {
        let (service, epoch) = (self.service.clone(), self.epoch);
        if !self.is_acting() {
            cx.send_elder(RegistryMessage::Decline { service, epoch });
            return true;
        }
        if self.table.is_empty() || planted!(cx.mutant, CallItVacant) {
            cx.send_elder(RegistryMessage::Vacant { service, epoch });
            return true;
        }
        let unwilling = self.unwilling_successors.get_or_insert_default();
        let shares = self.table.shares();
        // A learner that has nothing here may never answer.
        let others = view.living().enumerate().filter(|(_, member)| {
            let process = member.info.process;
            let has_answered = !member.learner || shares.contains_key(&process);
            process != cx.me && has_answered && !unwilling.contains(&process)
        });
        let best = others.max_by_key(|(age, member)| {
            let process = member.info.process;
            let share = shares.get(&process).filter(|_| !planted!(cx.mutant, YieldToOldest));
            let share = share.copied().unwrap_or_default();
            (!suspected.contains(&process), share, std::cmp::Reverse(*age))
        });
        let Some((_, member)) = best else { return true };
        let to = member.info.process;
        if !self.awaits_successor(to, cx) {
            cx.send_elder(RegistryMessage::ProposeSuccessor { service, epoch, to });
        }
        false
    }

    /// Notes that the proposed successor declines.
    pub(crate) fn on_successor_declined(&mut self, by: ProcessId) {
        if let Some(unwilling) = &mut self.unwilling_successors {
            unwilling.insert(by);
        }
    }
}
