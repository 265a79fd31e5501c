//! The member's part in leases, the elder's answers, and deaths that are vouched for.

use super::*;

impl Cluster {
    pub(crate) fn has_authority(&self, now: Time) -> bool {
        match (&self.elder, &self.view) {
            (Some(elder), Some(view)) => elder.has_authority(now, &view.timing),
            _ => false,
        }
    }

    /// Updates the elder's own lease, and reports the beginning and the end of the member's lease.
    pub(crate) fn look_at_lease(&mut self, now: Time, step: &mut StepParts) {
        let leaves = matches!(self.phase, MemberPhase::Leaving { .. });
        if self.view.is_none() || !(leaves || self.phase == MemberPhase::Member) {
            return;
        }
        self.extend_own(now);
        let running = now < self.granting_end();
        if running == self.lease.running {
            return;
        }
        self.lease.running = running;
        if leaves {
            return step.act(now, &self.standing(now), |locks, cx| locks.grant_all(cx));
        }
        if running {
            self.lease.ever = true;
            self.orphaned_at = Time::MAX;
            step.out.push(Output::Event(Event::Resumed));
            step.act(now, &self.standing(now), |locks, cx| locks.on_resumed(cx));
        } else {
            self.orphaned_at = now + self.timing().member_lease * 3;
            step.out.push(Output::Event(Event::Suspended));
            step.act(now, &self.standing(now), |locks, cx| locks.on_suspended(cx));
        }
    }

    /// Extends the elder's own lease, which depends on its quorum.
    fn extend_own(&mut self, now: Time) {
        if let (Some(view), Some(elder)) = (&self.view, &self.elder)
            && let Some(since) = elder.backed_since(now)
        {
            self.lease.until = self.lease.until.max(since + view.timing.member_lease);
        }
    }

    /// Acts like an idle timer: this member is awake.
    pub(crate) fn note_awake(&mut self, now: Time) {
        self.extend_own(now);
        if let (Some(view), Some(elder)) = (&self.view, &mut self.elder) {
            elder.note_awake(now, &view.timing);
        }
    }

    pub(super) fn on_beat(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        (theirs, beat, pulse, confirmed, kept): (ViewNumber, u64, u64, u64, bool),
        step: &mut StepParts,
    ) {
        let Some(view) = self.view.clone() else { return };
        let is_kept = self.is_view_kept();
        if theirs > view.number {
            self.fetch(now, from, addr, step);
        } else if !view.contains(from) {
            send(addr, from, Notice::full_view(&view), step);
        } else if self
            .elder
            .as_ref()
            .is_some_and(|elder| theirs == view.number && pulse > elder.last_pulse())
        {
            self.yield_identity(now, step);
        } else if let Some(elder) = &mut self.elder {
            let own = Some(self.config.me.process).filter(|_| is_kept);
            let had = elder.has_authority(now, &view.timing);
            planted!(self.config.mutant, RenewWithoutQuorum => elder.step_down_from_alone(now));
            self.is_settled = self.is_settled || elder.is_settled(own, &view);
            let beat = (theirs, beat, pulse, confirmed, kept);
            let mut answer =
                elder.on_beat(now, self.config.me.process, &view, from, beat, &self.liveness.dead);
            if let Some(Notice::Pulse { settled, .. }) = &mut answer {
                *settled = self.is_settled;
            }
            if elder.is_unheard(now, from, &view)
                && !planted!(self.config.mutant, AnswerTheDeafStraight)
            {
                // The answers do not arrive on the direct path; the member's own detours may fail
                // too.
                step.links.trouble(now, from, true, &view.timing);
            }
            if theirs < view.number {
                self.catch_up(now, addr, from, (theirs, 0), step);
            } else if let Some(answer) = answer {
                step.dispatch(now, &self.config.me, &view, from, answer.into());
            }
            if !had && self.has_authority(now) {
                self.on_authority(now, step);
            }
        } else if theirs < view.number {
            self.catch_up(now, addr, from, (theirs, 0), step);
        }
    }

    /// Ends this process because another one has the same id: the copy of a cloned machine. That
    /// shows when the elder answers a beat that this process has not sent, or a member confirms
    /// such a pulse. The process that is behind ends, so one of them continues.
    fn yield_identity(&mut self, now: Time, step: &mut StepParts) {
        step.out.push(Output::Event(Event::IdentityTaken));
        self.end(now, Event::Expelled, step);
    }

    /// Sends waiting renewals and answers, since the elder has its quorum again.
    pub(crate) fn on_authority(&mut self, now: Time, step: &mut StepParts) {
        step.act(now, &self.standing(now), |locks, cx| locks.on_authority(cx));
    }

    pub(crate) fn on_pulse(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        (theirs, pulse, renews, again, settled): (ViewNumber, u64, u64, bool, bool),
        step: &mut StepParts,
    ) {
        let Some(view) = self.view.clone() else { return };
        if theirs > view.number {
            self.fetch(now, from, addr, step);
        } else if theirs < view.number {
            self.catch_up(now, addr, from, (theirs, 0), step);
        } else if from == view.elder().process || planted!(self.config.mutant, HeedAnyPulse) {
            if !self.lease.has_sent(renews) {
                return self.yield_identity(now, step);
            }
            self.is_settled |= settled;
            let free = !self.votes.acceptor.is_bound
                || planted!(self.config.mutant, StandByElderThoughBound);
            if let Some(promised) = self.votes.acceptor.promised.filter(|_| !free) {
                // The elder is back, but this member's vote is bound: a view decided in a later
                // round frees it.
                self.reply(
                    now,
                    addr,
                    from,
                    Notice::Nack { instance: view.number.next(), promised },
                    step,
                );
            } else if matches!(
                self.votes.proposal,
                Some(Proposal { phase: ProposalPhase::PreVoting { .. }, .. })
            ) {
                self.votes.proposal = None;
            }
            let first = self.lease.until == Time::ZERO;
            self.lease.on_pulse(now, pulse, renews, free, &view.timing);
            planted!(=> self.plant_pulse(now, renews, &view));
            // The first pulse of an elder cannot renew a beat that the elder has not confirmed yet:
            // do not wait a whole beat.
            if again
                || (first
                    && self.lease.until == Time::ZERO
                    && self.lease.next_beat > now + view.timing.stagger)
            {
                self.lease.next_beat = if again { now } else { now + view.timing.stagger };
            }
        }
    }

    pub(super) fn beat(&mut self, now: Time, step: &mut StepParts) {
        let Some(view) = &self.view else { return };
        if self.elder.is_some() || now < self.lease.next_beat {
            return;
        }
        let elder = view.elder().process;
        let votes = view.has_vote(self.config.me.process);
        let period = if votes { view.timing.beat } else { view.timing.slow_beat() };
        // A member without a lease uses detours after one unanswered beat: it is new, or is back
        // and must be quick.
        if self.lease.unanswered >= if self.lease.running { 2 } else { 1 } {
            step.links.trouble(now, elder, true, &view.timing);
        }
        let beat = self.lease.beat(now, (view.number, self.is_view_kept()), period);
        step.dispatch(now, &self.config.me, view, elder, beat.into());
    }

    /// The time at which a process gives up that became a member and never got a lease. It holds
    /// nothing, and its cluster may never have come about.
    pub(super) fn give_up_at(&self, view: &View) -> Time {
        if self.member_since == Time::MAX || self.lease.ever {
            Time::MAX
        } else {
            self.member_since + view.timing.member_lease * 3
        }
    }

    pub(super) fn vouch(&mut self, now: Time, step: &mut StepParts) {
        let Some(view) = &self.view else { return };
        if now < self.liveness.vouch_at {
            return;
        }
        let dead: Vec<ProcessId> =
            self.liveness.dead.iter().copied().filter(|process| view.contains(*process)).collect();
        self.liveness.vouch_at = if dead.is_empty() { Time::MAX } else { now + view.timing.retry };
        let me = self.config.me.process;
        for process in dead {
            for info in view
                .council()
                .filter(|info| info.process != me && !self.liveness.dead.contains(&info.process))
            {
                send(info.addr, info.process, Notice::Vouch { dead: process }, step);
            }
        }
    }

    /// Counts deaths that `from` reports. `from` must be able to see the process end, on the same
    /// host, or refused connections must count as deaths. Then a death is certain, since members do
    /// not lie.
    pub(super) fn believe(
        &mut self,
        now: Time,
        from: ProcessId,
        dead: BTreeSet<ProcessId>,
        step: &mut StepParts,
    ) {
        let Some(view) = &self.view else { return };
        let is_known = view.contains(from) || planted!(self.config.mutant, HearAnyVoucher);
        if !is_known || !self.is_believed(from, 0) {
            return;
        }
        let is_witness = |process: &ProcessId| {
            view.is_witness(from, *process)
                || self.trusts_refused()
                || planted!(self.config.mutant, BelieveAnyWitness)
        };
        let known: Vec<ProcessId> = dead
            .into_iter()
            .filter(|process| view.contains(*process) && is_witness(process))
            .collect();
        for process in known {
            self.on_dead(now, process, step);
        }
    }
}
