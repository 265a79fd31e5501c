//! Hints of the gossip, and the notices of members and strangers.

use super::*;

impl Cluster {
    pub(crate) fn on_hint(&mut self, now: Time, hint: Hint, step: &mut StepParts) {
        match hint {
            Hint::Contact(addr) => {
                if let MemberPhase::Discovery(discovery) = &mut self.phase {
                    discovery.add_contact(addr);
                }
            }
            Hint::Unreachable(process) => {
                planted!(self.config.mutant, LoseInFlight => step.links.lose_kept(process));
                let is_new = !self.liveness.suspected.contains(&process);
                self.on_suspected(now, process, step);
                self.on_unreached(now, process, step);
                if is_new {
                    self.try_silent(now, process, step);
                }
            }
            Hint::Refused(process) | Hint::Replaced(process) => {
                self.on_suspected(now, process, step);
                if let MemberPhase::Leaving { .. } | MemberPhase::Retiring { .. } = self.phase {
                    self.liveness.refused.entry(process).or_insert(now);
                }
                match hint {
                    Hint::Refused(_) => self.on_refused(now, process, step),
                    _ => self.on_unreached(now, process, step),
                }
            }
            Hint::Dead(process) => self.on_dead(now, process, step),
            Hint::Connected(process) => {
                let was_broken = self.liveness.suspected.remove(&process);
                if let Some(view) = &self.view {
                    step.links.on_connected(
                        now,
                        &self.config.me,
                        view,
                        process,
                        was_broken,
                        step.out,
                    );
                }
            }
        }
    }

    /// Starts detours, and questions for other grantors, after a hint of gossip. Leases decide.
    fn on_suspected(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        if let Some(view) = &self.view
            && view.contains(process)
            && process != self.config.me.process
        {
            let is_new = self.liveness.suspected.insert(process);
            planted!(self.config.mutant, FreeOnHint => step.locks.free_all_of(process));
            step.links.trouble(now, process, true, &view.timing);
            if is_new {
                step.act(now, &self.standing(now), |locks, cx| locks.on_suspected(process, cx));
            }
        }
    }

    pub(super) fn on_dead(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        if self.view.as_ref().is_some_and(|view| self.outlives_death(view, process)) {
            return self.on_suspected(now, process, step);
        }
        if process == self.config.me.process || !self.liveness.dead.insert(process) {
            return;
        }
        if self.liveness.dead.len() > self.config.limits.dead as usize
            && let Some(view) = &self.view
        {
            self.liveness.dead.retain(|process| view.contains(*process));
        }
        if self.view.as_ref().is_some_and(|view| view.elder().process == process) {
            self.liveness.elder_dead_at = Some(now);
        }
        self.liveness.vouch_at = now;
        self.vouch(now, step);
    }

    /// Returns whether the holds of a member end with its lease only: programs that are not members
    /// may believe in them until then.
    pub(super) fn outlives_death(&self, view: &View, process: ProcessId) -> bool {
        view.member(process).is_some_and(|member| member.info.serves_sessions)
            && !planted!(self.config.mutant, VouchForSessions)
    }

    /// The view to use a linked packet with, if its sender is in it and has no newer one.
    pub(crate) fn known_sender(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        theirs: ViewNumber,
        step: &mut StepParts,
    ) -> Option<Arc<View>> {
        let view = self.view.clone()?;
        if theirs > view.number && !planted!(self.config.mutant, ActInOldView) {
            planted!(self.config.mutant, DealInHeardView => step.locks.deal_in_next());
            if view.contains(from) {
                step.links.note_missed(from);
            }
            self.fetch(now, from, addr, step);
            return None;
        }
        if !view.contains(from) && !planted!(self.config.mutant, HearStrangers) {
            send(addr, from, Notice::full_view(&view), step);
            return None;
        }
        Some(view)
    }

    /// Asks for a later view, which `from` has. A stranger's statement is a hint. The view is asked
    /// for at the addresses of the seeds and the council, and at that of the stranger if it is a
    /// member's.
    pub(super) fn fetch(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view() else { return };
        let is_believed = self.is_believed(from, 0);
        let pause = view.timing.retry / if is_believed { 8 } else { 2 };
        if self.fetched_at != Time::ZERO && now < self.fetched_at + pause {
            return;
        }
        self.fetched_at = now;
        let (lineage, have) = (view.lineage, view.number);
        if is_believed {
            let fetch = Notice::Fetch { lineage, have, nonce: self.nonce_for(addr) };
            return self.reply(now, addr, from, fetch, step);
        }
        let addrs = view.council().map(|info| info.addr).chain([addr]).collect();
        self.ask_known(addrs, lineage, have, step);
    }

    /// Like [`fetch`](Self::fetch), but asks `info` at once if its statements count with this
    /// proof.
    pub(super) fn fetch_from(
        &mut self,
        now: Time,
        info: &MemberInfo,
        proof: u64,
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view() else { return };
        if !self.is_believed(info.process, proof) {
            return self.fetch(now, info.process, info.addr, step);
        }
        let (lineage, have, nonce) = (view.lineage, view.number, self.nonce_for(info.addr));
        send(info.addr, info.process, Notice::Fetch { lineage, have, nonce }, step);
    }

    /// Asks for a later view at these addresses and the configured ones, if an answer from there is
    /// a proof.
    fn ask_known(
        &self,
        mut addrs: BTreeSet<SocketAddr>,
        lineage: Lineage,
        have: ViewNumber,
        step: &mut StepParts,
    ) {
        addrs.extend(self.config.seeds.iter().chain(&self.config.contacts));
        addrs.remove(&self.config.me.addr);
        for addr in addrs {
            let nonce = self.nonce_for(addr);
            if nonce != 0 {
                let packet = Notice::Fetch { lineage, have, nonce }.into();
                step.out.push(Output::Send { to: addr, process: None, packet });
            }
        }
    }

    /// Asks known addresses whether this process has joined, since a stranger says so.
    pub(super) fn fetch_first(&mut self, now: Time, lineage: Lineage, step: &mut StepParts) {
        let MemberPhase::Discovery(discovery) = &self.phase else { return };
        if self.fetched_at != Time::ZERO && now < self.fetched_at + self.config.timing.retry / 8 {
            return;
        }
        let remembered = self.config.last_view().into_iter().flat_map(View::council);
        let addrs = discovery.proven_addrs().chain(remembered.map(|info| info.addr)).collect();
        self.fetched_at = now;
        self.ask_known(addrs, lineage, ViewNumber(0), step);
    }

    pub(crate) fn on_notice(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        notice: Notice,
        step: &mut StepParts,
    ) {
        match notice {
            Notice::Hello { me, asked, belonging, nonce } => {
                let answer = Notice::HelloReply {
                    me: self.config.me.clone(),
                    asked,
                    belonging: self.belonging(now),
                    nonce,
                };
                send(addr, from, answer, step);
                self.on_hello(now, from, me, (None, nonce), belonging, step);
            }
            Notice::HelloReply { me, asked, belonging, nonce } => {
                self.on_hello(now, from, me, (Some(asked), nonce), belonging, step)
            }
            Notice::Found { attempt, view } => {
                if let MemberPhase::Discovery(discovery) = &mut self.phase {
                    let found =
                        discovery.on_found(&self.config, now, from, attempt, &view, step.out);
                    self.on_founding_outcome(now, found, step);
                } else if let Some(view) = &self.view {
                    send(addr, from, Notice::full_view(view), step);
                }
            }
            Notice::FoundOk { attempt } => {
                if let MemberPhase::Discovery(discovery) = &mut self.phase {
                    let found = discovery.on_found_ok(from, attempt);
                    self.on_founding_outcome(now, found, step);
                }
            }
            Notice::Join { me, heard } => self.on_join(now, from, me, heard, step),
            Notice::Leave => self.on_leave(now, from, step),
            Notice::SuspectDead { process } => {
                self.on_suspect_dead(now, (from, addr), process, step)
            }
            Notice::Alive { process } => self.on_alive(from, process),
            Notice::Vouch { dead } => self.believe(now, from, BTreeSet::from([dead]), step),
            Notice::Beat { view, beat, pulse, confirmed, kept } => {
                self.on_beat(now, from, addr, (view, beat, pulse, confirmed, kept), step);
            }
            Notice::Pulse { view, pulse, renews, again, settled } => {
                self.on_pulse(now, from, addr, (view, pulse, renews, again, settled), step)
            }
            Notice::Install { lineage, instance, change, nonce } => {
                self.on_install(now, (from, addr), (lineage, instance, nonce), change, step)
            }
            Notice::FullView { view, nonce } => {
                self.on_full_view(now, (from, addr), (view, nonce), step)
            }
            Notice::Fetch { lineage, have, nonce } => {
                self.on_fetch(now, (from, addr), (lineage, have, nonce), step)
            }
            Notice::StaleVote { voter, nonce } => {
                if self.is_believed(from, nonce) {
                    self.on_stale_vote(voter);
                }
            }
            ballot => self.on_ballot(
                now,
                VoteSender { vote: from, process: from, addr, successor: None },
                ballot,
                step,
            ),
        }
    }

    /// Handles a decided change.
    fn on_install(
        &mut self,
        now: Time,
        (from, addr): (ProcessId, SocketAddr),
        (lineage, instance, nonce): (Lineage, ViewNumber, u64),
        change: Change,
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view().filter(|view| view.lineage == lineage) else { return };
        if view.number >= instance {
            return;
        }
        if !self.is_believed(from, nonce) || view.number.next() < instance {
            return self.fetch(now, from, addr, step);
        }
        let next = view.next(&change);
        if matches!(self.phase, MemberPhase::Retiring { .. }) {
            self.end_parting(now, true, step);
        } else if next.is_sound()
            && self.votes.successor.is_some()
            && !next.contains(self.config.me.process)
        {
            self.inherit(next, step);
        } else if next.is_sound() {
            self.last_change = Some((instance, change));
            self.install(now, next, Some((from, addr)), step);
        }
    }

    /// Handles the question of a process with an earlier view for a later one.
    fn on_fetch(
        &mut self,
        now: Time,
        (from, addr): (ProcessId, SocketAddr),
        (lineage, have, nonce): (Lineage, ViewNumber, u64),
        step: &mut StepParts,
    ) {
        let is_later = |view: &View| view.lineage == lineage && view.number > have;
        if self.ballot_view().is_some_and(|view| is_later(&view)) {
            self.catch_up(now, addr, from, (have, nonce), step);
        } else if let (MemberPhase::Discovery(_), Some(view)) =
            (&self.phase, self.config.last_view().filter(|view| is_later(view)))
        {
            send(addr, from, Notice::FullView { view: view.clone(), nonce }, step);
        }
    }

    /// Handles a notice about the choice of a view from a process that claims the vote of another.
    pub(crate) fn on_packet_of_successor(
        &mut self,
        now: Time,
        (from, me): (ProcessId, MemberInfo),
        (claim, lineage): (VoteClaim, Lineage),
        notice: Notice,
        step: &mut StepParts,
    ) {
        if self.is_claim_possible((from, &me), &claim, lineage, step)
            && self.hear_successor(now, &claim, lineage, &me)
        {
            let speaker = VoteSender {
                vote: claim.voter,
                process: me.process,
                addr: me.addr,
                successor: Some(me),
            };
            self.on_ballot(now, speaker, notice, step);
        }
    }
}
