//! Proposing the next view and voting on it.

use super::*;

impl Node {
    /// Whether the vote in `instance` is ours to give to `from`; whoever is behind is told.
    pub(super) fn is_voter(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        instance: ViewNumber,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(view) = self.view.clone() else { return false };
        if instance > view.number.next() {
            self.fetch(now, from, addr, out);
            false
        } else if instance <= view.number || !view.contains(from) {
            send(addr, from, Notice::ViewIs(View::clone(&view)), out);
            false
        } else {
            view.has_vote(self.config.me.process) && view.has_vote(from)
        }
    }

    /// Would this member promise the ballot? `None`: not its question to answer.
    pub(super) fn on_canvass(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        instance: ViewNumber,
        ballot: Ballot,
        out: &mut Vec<Output>,
    ) -> Option<bool> {
        if !self.is_voter(now, from, addr, instance, out) {
            return None;
        }
        let view = self.view.as_ref()?;
        let elder = view.elder().process;
        let released =
            from == elder || self.dead.contains(&elder) || (self.elder.is_none() && now >= self.lease.promised_until);
        Some(self.acceptor.promised.is_none_or(|promised| promised <= ballot) && released && ballot.process == from)
    }

    /// When this member tries to take over: after its promise to the elder, and after its elders in the council.
    pub(super) fn takeover_at(&self, view: &View) -> Time {
        let me = self.config.me.process;
        let elder = view.elder().process;
        if matches!(self.stage, Stage::Seeking(_)) || !view.has_vote(me) {
            return Time::MAX;
        }
        if let Some(state) = &self.elder {
            // An elder that voted for another, which then came to nothing, tries itself.
            return if state.deposed { self.yield_until } else { Time::MAX };
        }
        let rivals =
            view.council().map(|info| info.process).filter(|process| *process != elder && !self.dead.contains(process));
        let wait = view.timing.stagger * rank(rivals, me);
        let free = self.elder_dead_at.unwrap_or(self.lease.promised_until);
        (free + wait).max(self.yield_until)
    }

    pub(super) fn proposal_due(&self, view: &View, proposal: &Proposal) -> Time {
        match &proposal.step {
            Step::Preparing { quorum_at: Some(at), .. } => proposal.again_at.min(*at + view.timing.stagger),
            _ => proposal.again_at,
        }
    }

    /// The elder proposes what is due; others take over from an elder that is silent or dead.
    pub(super) fn decide(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(view) = self.view.clone() else { return };
        let me = self.config.me.process;
        if let Some(proposal) = &mut self.proposal {
            if proposal.again_at <= now {
                proposal.again_at = now + view.timing.retry;
                self.question(now, &view, out);
            }
            if let Some(Proposal { step: Step::Preparing { promises, quorum_at: Some(at) }, .. }) = &self.proposal {
                let all = view
                    .council()
                    .all(|info| promises.contains_key(&info.process) || self.dead.contains(&info.process));
                if all || *at + view.timing.stagger <= now {
                    self.propose_chosen(now, out);
                }
            }
            return;
        }
        if now >= self.takeover_at(&view) {
            let round = self.next_round();
            let ballot = Ballot { round, process: me };
            let proposal = Proposal {
                ballot,
                step: Step::Canvassing { willing: BTreeSet::new() },
                again_at: now + view.timing.retry,
            };
            self.proposal = Some(proposal);
            self.question(now, &view, out);
            self.on_vote(now, me, ballot, None, out);
            return;
        }
        let Some(elder) = &mut self.elder else { return };
        if elder.deposed {
            return;
        }
        let change = elder.wanted_change(now, me, &view, &self.dead);
        if change.is_empty() && !elder.registry.is_exhausted() {
            return;
        }
        self.stand_down(now, Ballot { round: 0, process: me });
        if self.acceptor.promised.is_none() {
            let ballot = Ballot { round: 0, process: me };
            self.accept_own(now, &view, ballot, change, out);
        } else {
            let round = self.next_round();
            self.prepare(now, &view, Ballot { round, process: me }, out);
        }
    }

    pub(super) fn next_round(&self) -> u32 {
        self.acceptor.promised.map_or(0, |ballot| ballot.round).max(self.rounds).saturating_add(1)
    }

    pub(super) fn question(&mut self, now: Time, view: &View, out: &mut Vec<Output>) {
        let Some(proposal) = &self.proposal else { return };
        let question = proposal.question(view.number.next(), &self.dead);
        let me = self.config.me.process;
        for process in proposal.silent(view).into_iter().filter(|process| *process != me) {
            self.post.dispatch(now, &self.config.me, view, process, Packet::Notice(question.clone()), out);
        }
    }

    pub(super) fn prepare(&mut self, now: Time, view: &View, ballot: Ballot, out: &mut Vec<Output>) {
        self.stand_down(now, ballot);
        let own = self.acceptor.on_prepare(view.elder().process, view.number.next(), ballot);
        let step = Step::Preparing { promises: BTreeMap::new(), quorum_at: None };
        self.proposal = Some(Proposal { ballot, step, again_at: now + view.timing.retry });
        self.question(now, view, out);
        if let Notice::Promise { accepted, .. } = own {
            self.on_vote(now, self.config.me.process, ballot, Some(accepted), out);
        }
    }

    pub(super) fn accept_own(&mut self, now: Time, view: &View, ballot: Ballot, change: Change, out: &mut Vec<Output>) {
        if let Some(elder) = &mut self.elder {
            elder.condemn(&change.remove);
        }
        let own = self.acceptor.on_accept(view.elder().process, view.number.next(), ballot, &change);
        let step = Step::Accepting { change, accepted: BTreeSet::new() };
        self.proposal = Some(Proposal { ballot, step, again_at: now + view.timing.retry });
        self.question(now, view, out);
        if let Notice::Accepted { .. } = own {
            self.on_accepted(now, self.config.me.process, ballot, out);
        }
    }

    /// A willing or promising answer.
    pub(super) fn on_vote(
        &mut self,
        now: Time,
        from: ProcessId,
        ballot: Ballot,
        promise: Option<Option<(Ballot, Change)>>,
        out: &mut Vec<Output>,
    ) {
        let Some(view) = self.view.clone() else { return };
        let Some(proposal) = &mut self.proposal else { return };
        if proposal.ballot != ballot {
            return;
        }
        match (&mut proposal.step, promise) {
            (Step::Canvassing { willing }, None) => {
                willing.insert(from);
                if view.is_quorum(willing.iter()) {
                    let round = self.next_round();
                    self.prepare(now, &view, Ballot { round, process: self.config.me.process }, out);
                }
            }
            (Step::Preparing { promises, quorum_at }, Some(accepted)) => {
                promises.insert(from, accepted);
                if quorum_at.is_none() && view.is_quorum(promises.keys()) {
                    *quorum_at = Some(now);
                }
            }
            _ => {}
        }
    }

    /// A quorum has promised, and the rest had its chance.
    pub(super) fn propose_chosen(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(view) = self.view.clone() else { return };
        let Some(Proposal { ballot, step: Step::Preparing { promises, .. }, .. }) = &self.proposal else { return };
        let (ballot, mut change) = (*ballot, choose(&view, promises, &self.dead));
        if promises.values().all(Option::is_none)
            && let Some(elder) = &mut self.elder
        {
            // The elder itself, in a later round: it may propose what it wanted all along.
            change = elder.wanted_change(now, self.config.me.process, &view, &self.dead);
        }
        #[cfg(elderlock_mutants)]
        if self.config.mutant == Some(Mutant::ForgetGhosts) {
            change.remove.append(&mut change.ghost);
        }
        self.accept_own(now, &view, ballot, change, out);
    }

    pub(super) fn on_accepted(&mut self, now: Time, from: ProcessId, ballot: Ballot, out: &mut Vec<Output>) {
        let Some(view) = self.view.clone() else { return };
        let Some(proposal) = &mut self.proposal else { return };
        let Step::Accepting { change, accepted } = &mut proposal.step else { return };
        if proposal.ballot != ballot {
            return;
        }
        accepted.insert(from);
        if !view.is_quorum(accepted.iter()) {
            return;
        }
        let next = view.next(change);
        let me = self.config.me.process;
        if !next.contains(me) && !next.is_quorum(accepted.iter()) {
            return; // those who go on must know of it before the one who goes may forget it
        }
        let change = change.clone();
        let install = Notice::Install { lineage: view.lineage, instance: next.number, change: change.clone() };
        for member in view.members.iter().filter(|member| member.info.process != me) {
            self.post.dispatch(now, &self.config.me, &view, member.info.process, Packet::Notice(install.clone()), out);
        }
        for info in &change.join {
            send(info.addr, info.process, Notice::ViewIs(next.clone()), out);
        }
        self.last_change = Some(change);
        if next.contains(me) {
            self.install(now, next, out);
        } else {
            self.part(now, next, out);
        }
    }

    pub(super) fn on_nack(&mut self, now: Time, promised: Ballot, out: &mut Vec<Output>) {
        let Some(view) = self.view.clone() else { return };
        let me = self.config.me.process;
        let own = self.proposal.as_ref().map(|proposal| proposal.ballot);
        if promised.process == me || own.is_some_and(|own| promised <= own) {
            return;
        }
        if self.elder.as_ref().is_some_and(|elder| !elder.deposed) {
            self.rounds = self.rounds.max(promised.round);
            let round = self.next_round();
            self.prepare(now, &view, Ballot { round, process: me }, out);
        } else if own.is_some() {
            // Let the other one finish; if it does not, try above it.
            self.proposal = None;
            let rivals = view.council().map(|info| info.process);
            self.yield_until = now + view.timing.retry + view.timing.stagger * (rank(rivals, me) + 1);
            self.rounds = self.rounds.max(promised.round);
        }
    }
}
