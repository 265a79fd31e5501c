//! Proposing the next view and voting on it.

use super::affiliation::gone;
use super::*;

impl Cluster {
    /// The view in whose council this process votes: its own, or, for a vote successor, that of its
    /// voter.
    pub(super) fn ballot_view(&self) -> Option<Arc<View>> {
        self.view
            .clone()
            .or_else(|| self.votes.successor.as_ref().map(|successor| successor.view.clone()))
    }

    /// The process whose vote this process gives.
    pub(super) fn voter(&self) -> ProcessId {
        self.votes
            .successor
            .as_ref()
            .map_or(self.config.me.process, |successor| successor.claim.voter)
    }

    /// The vote of this process that a data directory must store now; `None`: it has no view, or
    /// stores no vote.
    pub(crate) fn stored_vote(&self) -> Option<StoredVote> {
        let view = self.ballot_view()?;
        let (voter, successors) = match &self.votes.successor {
            Some(successor) => (successor.voter.clone(), successor.successors.clone()),
            None => (stored_voter(&self.config)?, Vec::new()),
        };
        Some(StoredVote {
            voter,
            view: View::clone(&view),
            acceptor: self.votes.acceptor.clone(),
            successors,
            is_established: self.is_established(),
        })
    }

    /// Sends a notice about the choice of a view to a member or a vote successor.
    pub(super) fn send_ballot(
        &mut self,
        now: Time,
        addr: SocketAddr,
        to: ProcessId,
        notice: Notice,
        step: &mut StepParts,
    ) {
        match &self.votes.successor {
            Some(VoteSuccessor { claim, view, .. }) => {
                let (me, lineage) = (self.config.me.clone(), view.lineage);
                let packet = Packet::VoteSuccessor {
                    claim: Box::new(claim.clone()),
                    me: Box::new(me),
                    lineage,
                    notice: Box::new(notice),
                };
                step.out.push(Output::Send { to: addr, process: Some(to), packet });
            }
            None => self.reply(now, addr, to, notice, step),
        }
    }

    /// Returns whether `from` may have the vote that it claims. A process that knows the voter's
    /// view requires a proof. An impossible claim is refused, and reported. This check precedes
    /// each use of a claim.
    ///
    /// Only the sender of a claim has the vote. Another process that repeats the claim has no part
    /// in it.
    pub(super) fn is_claim_possible(
        &self,
        (from, me): (ProcessId, &MemberInfo),
        claim: &VoteClaim,
        lineage: Lineage,
        step: &mut StepParts,
    ) -> bool {
        let view = self.ballot_view();
        let view = view.as_deref().or(self.config.last_view());
        let voter =
            view.filter(|view| view.lineage == lineage).and_then(|view| view.member(claim.voter));
        let is_proven = match voter {
            None => true,
            Some(_) if self.votes.successors.is_known(claim, me) => true,
            Some(voter) => {
                let key = voter.info.vote_key.as_ref();
                key.is_some_and(|key| claim.is_proven(key, lineage, me))
            }
        };
        let is_possible =
            from == me.process && is_proven || planted!(self.config.mutant, BelieveAnyClaim);
        if !is_possible {
            let event = Event::VoteClaimRefused { voter: claim.voter, from };
            step.out.push(Output::Event(event));
        }
        is_possible
    }

    /// Notes a process's [possible](Self::is_claim_possible) claim of a vote. Returns `false` if
    /// the claim does not count.
    pub(super) fn hear_successor(
        &mut self,
        now: Time,
        claim: &VoteClaim,
        lineage: Lineage,
        info: &MemberInfo,
    ) -> bool {
        let Some(view) = self.ballot_view() else { return false };
        let voter = claim.voter;
        let is_rival = voter == self.voter() || voter == self.config.me.process;
        view.lineage == lineage
            && view.has_vote(voter)
            && !is_rival
            && self.votes.successors.hear(now, claim, info, view.timing.retry * 8)
    }

    /// Handles a vote successor's report of the view of its stored vote.
    pub(super) fn on_vote_successor(
        &mut self,
        now: Time,
        info: &MemberInfo,
        (claim, lineage, theirs): (&VoteClaim, Lineage, ViewNumber),
        (proof, echo): (u64, u64),
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view().filter(|view| view.lineage == lineage) else { return };
        let voter = claim.voter;
        if theirs > view.number {
            self.fetch_from(now, info, proof, step);
        } else if self.elder.as_ref().is_some_and(|elder| theirs < elder.kept_view(voter)) {
            // The vote is older than one that its process is known to have had: the directory was
            // restored to an older state.
            send(info.addr, info.process, Notice::StaleVote { voter, nonce: echo }, step);
        } else if theirs < view.number {
            // An elder answers itself: it may know that the vote is stale.
            if self.elder.is_some() || !self.is_ready(now) {
                let view = View::clone(&view);
                send(info.addr, info.process, Notice::FullView { view, nonce: echo }, step);
            }
        } else {
            self.hear_successor(now, claim, lineage, info);
        }
    }

    /// Gives up a vote from a directory that was restored to an older state: it may contradict
    /// later votes of its process.
    pub(super) fn on_stale_vote(&mut self, voter: ProcessId) {
        if self.votes.successor.as_ref().is_some_and(|successor| successor.claim.voter == voter) {
            self.give_vote_up();
        }
    }

    /// Gives up the inherited vote, which no longer counts.
    pub(super) fn give_vote_up(&mut self) {
        self.votes.successor = None;
        self.votes.proposal = None;
        self.votes.acceptor = Acceptor::default();
        self.votes.durability.end_instance();
    }

    /// Adopts a later view of the lineage, as a vote successor. It has a vote in that view too, or
    /// none any more.
    pub(super) fn inherit(&mut self, view: View, step: &mut StepParts) {
        let Some(successor) = &mut self.votes.successor else { return };
        successor.inherit(view, &self.config.me);
        self.votes.acceptor = Acceptor::default();
        self.votes.proposal = None;
        self.votes.yield_until = Time::ZERO;
        self.votes.rounds = 0;
        self.votes.successors.clear();
        self.keep_view(step);
        if let Some(successor) = &self.votes.successor {
            let addrs = successor.addrs();
            // A still later view may list an earlier vote successor, which asked to join.
            if !successor.view.contains(successor.claim.voter) && successor.successors.len() <= 1 {
                self.config.remembered = Some(View::clone(&successor.view));
                self.config.stored = None;
                self.votes.successor = None;
            }
            if let MemberPhase::Discovery(discovery) = &mut self.phase {
                discovery.set_voters(addrs);
            }
        }
    }

    /// Handles all notices about the choice of the next view.
    pub(crate) fn on_ballot(
        &mut self,
        now: Time,
        speaker: VoteSender,
        notice: Notice,
        step: &mut StepParts,
    ) {
        let from = speaker.process;
        match notice {
            Notice::PreVote { instance, ballot, dead } => {
                self.believe(now, speaker.vote, dead, step);
                if let Some(willing) = self.on_pre_vote(now, &speaker, instance, ballot, step) {
                    self.send_ballot(
                        now,
                        speaker.addr,
                        from,
                        Notice::PreVoteReply { instance, ballot, willing },
                        step,
                    );
                }
            }
            Notice::Prepare { instance, ballot, dead } => {
                self.believe(now, speaker.vote, dead, step);
                self.on_prepare(now, &speaker, (instance, ballot), step);
            }
            Notice::Accept { instance, ballot, change } => {
                self.on_accept(now, &speaker, (instance, ballot), &change, step);
            }
            Notice::PreVoteReply { instance, ballot, willing: true }
                if self.is_answer(&speaker, instance) =>
            {
                self.on_vote(now, &speaker, ballot, None, step);
            }
            Notice::Promise { instance, ballot, accepted }
                if self.is_answer(&speaker, instance) =>
            {
                self.on_vote(now, &speaker, ballot, Some(accepted), step);
            }
            Notice::Accepted { instance, ballot } if self.is_answer(&speaker, instance) => {
                self.on_accepted(now, speaker.vote, ballot, step);
            }
            Notice::Nack { instance, promised } if self.is_answer(&speaker, instance) => {
                self.on_nack(now, promised, step)
            }
            _ => {}
        }
    }

    /// Returns whether an answer counts: it is about the next view, and from a voter of this one.
    /// Any other process could name an accepted change, which the candidate would have to propose.
    fn is_answer(&self, speaker: &VoteSender, instance: ViewNumber) -> bool {
        let has_vote = || {
            self.ballot_view().is_some_and(|view| view.has_vote(speaker.vote))
                || planted!(self.config.mutant, BelieveAnyVoter)
        };
        self.is_open(instance) && has_vote()
    }

    fn on_prepare(
        &mut self,
        now: Time,
        speaker: &VoteSender,
        (instance, ballot): (ViewNumber, Ballot),
        step: &mut StepParts,
    ) {
        if self.on_pre_vote(now, speaker, instance, ballot, step) == Some(true) {
            let is_new = self.is_new(ballot);
            self.stand_down(now, ballot);
            let Some(view) = self.ballot_view() else { return };
            if is_new {
                let until = now + view.timing.retry * 4;
                self.votes.yield_until = self.votes.yield_until.max(until);
            }
            let answer = self.votes.acceptor.on_prepare(view.elder().process, instance, ballot);
            planted!(=> let answer = planted::promise(answer, &self.config));
            self.answer_when_kept(now, speaker, answer, step);
        } else if let Some(promised) = self.votes.acceptor.promised
            && self.is_open(instance)
            && promised > ballot
        {
            let refusal = Notice::Nack { instance, promised };
            self.send_ballot(now, speaker.addr, speaker.process, refusal, step);
        }
    }

    fn on_accept(
        &mut self,
        now: Time,
        speaker: &VoteSender,
        (instance, ballot): (ViewNumber, Ballot),
        change: &Change,
        step: &mut StepParts,
    ) {
        let is_sound = self.ballot_view().is_some_and(|view| view.next(change).is_sound());
        if !self.is_voter(now, speaker, instance, step) || !is_sound {
            return;
        }
        if self.votes.acceptor.promised.is_none_or(|promised| promised <= ballot) {
            self.stand_down(now, ballot);
        }
        planted!(self.config.mutant, BreakPromise => self.votes.acceptor.promised = None);
        planted!(=> if self.plant_vote(now, speaker, (instance, ballot), change, step) { return });
        let Some(view) = self.ballot_view() else { return };
        let elder = view.elder().process;
        let answer = self.votes.acceptor.on_accept(elder, instance, ballot, change);
        self.answer_when_kept(now, speaker, answer, step);
    }

    /// Returns whether this process has not promised that ballot its vote yet. A candidate that
    /// receives nothing repeats its message for ever, and is waited for once.
    pub(super) fn is_new(&self, ballot: Ballot) -> bool {
        self.votes.acceptor.promised != Some(ballot) || planted!(self.config.mutant, YieldForEver)
    }

    /// This process as a voter.
    pub(super) fn own_vote_sender(&self) -> VoteSender {
        let me = &self.config.me;
        let successor = self.votes.successor.is_some().then(|| me.clone());
        VoteSender { vote: self.voter(), process: me.process, addr: me.addr, successor }
    }

    /// Returns whether this process may give its vote in `instance` to `from`. A process with an
    /// older view gets the newer one.
    pub(super) fn is_voter(
        &mut self,
        now: Time,
        from: &VoteSender,
        instance: ViewNumber,
        step: &mut StepParts,
    ) -> bool {
        let Some(view) = self.ballot_view() else { return false };
        if instance > view.number.next() {
            self.fetch(now, from.process, from.addr, step);
            false
        } else if instance <= view.number || !view.contains(from.vote) {
            send(from.addr, from.process, Notice::full_view(&view), step);
            false
        } else {
            view.has_vote(self.voter()) && view.has_vote(from.vote)
        }
    }

    /// Returns the time until which this voter may have promised its vote to the elder of the view.
    fn promised_until(&self) -> Time {
        self.votes
            .successor
            .as_ref()
            .map_or(self.lease.promised_until, |successor| successor.free_at)
    }

    /// Returns whether this member would promise the ballot. `None`: it gives no answer.
    pub(super) fn on_pre_vote(
        &mut self,
        now: Time,
        from: &VoteSender,
        instance: ViewNumber,
        ballot: Ballot,
        step: &mut StepParts,
    ) -> Option<bool> {
        if !self.is_voter(now, from, instance, step) {
            return None;
        }
        let view = self.ballot_view()?;
        let elder = view.elder().process;
        let released = from.process == elder
            || self.liveness.dead.contains(&elder)
            || (self.elder.is_none() && now >= self.promised_until())
            || planted!(self.config.mutant, VoteEarly);
        let is_open = self.votes.acceptor.promised.is_none_or(|promised| promised <= ballot)
            || planted!(self.config.mutant, BreakPromise);
        // A member that cannot store its promise could not answer the `Prepare` that comes after
        // this.
        Some(
            is_open
                && released
                && ballot.process == from.process
                && !self.votes.durability.is_failing(),
        )
    }

    /// Returns the time at which this member tries to take over: after its promise to the elder,
    /// and after the older members of the council.
    pub(super) fn takeover_at(&self, view: &View) -> Time {
        let me = self.voter();
        let elder = view.elder().process;
        if !view.has_vote(me) || self.votes.durability.is_failing() {
            return Time::MAX;
        }
        let listens_until = match &self.phase {
            // A vote successor continues a lineage only if no other process does.
            MemberPhase::Discovery(discovery)
                if self.votes.successor.is_none() || discovery.knows_a_cluster() =>
            {
                return Time::MAX;
            }
            MemberPhase::Discovery(discovery) => discovery.listens_until(),
            _ => Time::ZERO,
        };
        if let Some(state) = &self.elder {
            // An elder that voted for a candidate tries itself if that candidate fails.
            return if state.deposed { self.votes.yield_until } else { Time::MAX };
        }
        let rivals = view
            .council()
            .map(|info| info.process)
            .filter(|process| *process != elder && !self.liveness.dead.contains(process));
        let wait = view.timing.stagger * rank(rivals, me);
        let free = self.liveness.elder_dead_at.unwrap_or(self.promised_until());
        (free.max(listens_until) + wait).max(self.votes.yield_until)
    }

    pub(super) fn proposal_due(&self, view: &View, proposal: &Proposal) -> Time {
        match &proposal.phase {
            ProposalPhase::Preparing { quorum_at: Some(at), .. } => {
                proposal.again_at.min(*at + view.timing.stagger)
            }
            _ => proposal.again_at,
        }
    }

    /// Proposes a change that is due, as the elder. As another voter, takes over from an elder that
    /// is silent or dead.
    pub(crate) fn decide(&mut self, now: Time, step: &mut StepParts) {
        let Some(view) = self.ballot_view() else { return };
        let me = self.config.me.process;
        if let Some(proposal) = &mut self.votes.proposal {
            if proposal.again_at <= now {
                proposal.again_at = now + view.timing.retry;
                self.question(now, &view, step);
            }
            if let Some(Proposal {
                phase: ProposalPhase::Preparing { promises, quorum_at: Some(at) },
                ..
            }) = &self.votes.proposal
            {
                let all = view.council().all(|info| {
                    promises.contains_key(&info.process)
                        || self.liveness.dead.contains(&info.process)
                });
                if all || *at + view.timing.stagger <= now {
                    self.propose_chosen(now, step);
                }
            }
            return;
        }
        if now >= self.takeover_at(&view) {
            let round = self.next_round();
            let ballot = Ballot { round, process: me };
            let phase = ProposalPhase::PreVoting { willing: BTreeSet::new() };
            self.votes.proposal = Some(Proposal::new(ballot, phase, now + view.timing.retry));
            self.question(now, &view, step);
            self.on_vote(now, &self.own_vote_sender(), ballot, None, step);
            return;
        }
        let Some(elder) = &mut self.elder else { return };
        if elder.deposed {
            return;
        }
        let gone = || gone(now, &self.liveness.dead, &self.liveness.refused, &view.timing);
        let longer = step.locks.wants_more_slots();
        let change = elder.wanted_change(
            now,
            me,
            &view,
            &self.liveness.dead,
            longer,
            (gone, &self.votes.successors),
        );
        if change.is_empty() && !step.locks.is_exhausted() {
            return;
        }
        self.stand_down(now, Ballot { round: 0, process: me });
        if self.votes.acceptor.promised.is_none() {
            let ballot = Ballot { round: 0, process: me };
            self.accept_own(now, &view, ballot, change, step);
        } else {
            let round = self.next_round();
            self.prepare(now, &view, Ballot { round, process: me }, step);
        }
    }

    pub(super) fn next_round(&self) -> u32 {
        self.votes
            .acceptor
            .promised
            .map_or(0, |ballot| ballot.round)
            .max(self.votes.rounds)
            .saturating_add(1)
    }

    pub(super) fn question(&mut self, now: Time, view: &View, step: &mut StepParts) {
        let Some(proposal) = &self.votes.proposal else { return };
        let question = proposal.question(view.number.next(), &self.liveness.dead);
        let me = self.voter();
        for process in proposal.silent(view).into_iter().filter(|process| *process != me) {
            if let Some(successor) = self.votes.successors.of(process).cloned() {
                self.send_ballot(now, successor.addr, successor.process, question.clone(), step);
            }
            if let Some(member) = view.member(process) {
                self.send_ballot(now, member.info.addr, process, question.clone(), step);
            }
        }
    }

    pub(super) fn prepare(&mut self, now: Time, view: &View, ballot: Ballot, step: &mut StepParts) {
        self.stand_down(now, ballot);
        let own = self.votes.acceptor.on_prepare(view.elder().process, view.number.next(), ballot);
        let phase = ProposalPhase::Preparing { promises: BTreeMap::new(), quorum_at: None };
        self.votes.proposal = Some(Proposal::new(ballot, phase, now + view.timing.retry));
        self.question(now, view, step);
        if let Notice::Promise { accepted, .. } = own {
            self.tell_when_kept(now, AfterStore::Promised { ballot, accepted }, step);
        }
    }

    pub(super) fn accept_own(
        &mut self,
        now: Time,
        view: &View,
        ballot: Ballot,
        change: Change,
        step: &mut StepParts,
    ) {
        if !view.next(&change).is_sound() {
            // Data on a disk may be anything: no process may install a view without members.
            (self.votes.proposal, self.votes.yield_until) = (None, now + view.timing.retry);
            return;
        }
        if let Some(elder) = &mut self.elder {
            elder.note_removals(&change.remove);
        }
        let own = self.votes.acceptor.on_accept(
            view.elder().process,
            view.number.next(),
            ballot,
            &change,
        );
        let phase = ProposalPhase::Accepting { change, accepted: BTreeSet::new() };
        let successors =
            self.votes.proposal.take().map(|proposal| proposal.successors).unwrap_or_default();
        self.votes.proposal =
            Some(Proposal { successors, ..Proposal::new(ballot, phase, now + view.timing.retry) });
        self.question(now, view, step);
        if let Notice::Accepted { .. } = own {
            self.tell_when_kept(now, AfterStore::Accepted { ballot }, step);
        }
    }

    /// Handles a willing or promising answer.
    pub(super) fn on_vote(
        &mut self,
        now: Time,
        from: &VoteSender,
        ballot: Ballot,
        promise: Option<Option<(Ballot, Change)>>,
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view() else { return };
        let voter = self.voter();
        let Some(proposal) = &mut self.votes.proposal else { return };
        if proposal.ballot != ballot {
            return;
        }
        match (&mut proposal.phase, promise) {
            (ProposalPhase::PreVoting { willing }, None) => {
                willing.insert(from.vote);
                if view.is_quorum(willing.iter()) {
                    let round = self.next_round();
                    self.prepare(
                        now,
                        &view,
                        Ballot { round, process: self.config.me.process },
                        step,
                    );
                }
            }
            (ProposalPhase::Preparing { promises, quorum_at }, Some(accepted)) => {
                promises.insert(from.vote, accepted);
                match &from.successor {
                    Some(info) => proposal.successors.insert(from.vote, info.clone()),
                    None => proposal.successors.remove(&from.vote),
                };
                // Without its own promise a candidate would make itself a ghost.
                let is_ready = self.elder.is_some() || promises.contains_key(&voter);
                if quorum_at.is_none() && is_ready && view.is_quorum(promises.keys()) {
                    *quorum_at = Some(now);
                }
            }
            _ => {}
        }
    }

    /// Proposes a change after the promises of a quorum, and after the other voters had time to
    /// answer.
    pub(super) fn propose_chosen(&mut self, now: Time, step: &mut StepParts) {
        let Some(view) = self.ballot_view() else { return };
        let Some(Proposal {
            ballot,
            phase: ProposalPhase::Preparing { promises, .. },
            successors,
            ..
        }) = &self.votes.proposal
        else {
            return;
        };
        let (ballot, mut change) =
            (*ballot, choose(&view, promises, successors, &self.liveness.dead));
        if promises.values().all(Option::is_none)
            && let Some(elder) = &mut self.elder
        {
            // This is the elder itself, in a later round: it may propose its pending change.
            let gone = || gone(now, &self.liveness.dead, &self.liveness.refused, &view.timing);
            let longer = step.locks.wants_more_slots();
            change = elder.wanted_change(
                now,
                self.config.me.process,
                &view,
                &self.liveness.dead,
                longer,
                (gone, &self.votes.successors),
            );
        }
        planted!(self.config.mutant, ForgetGhosts => change.remove.append(&mut change.ghost));
        self.accept_own(now, &view, ballot, change, step);
    }

    pub(crate) fn on_accepted(
        &mut self,
        now: Time,
        from: ProcessId,
        ballot: Ballot,
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view() else { return };
        let Some(proposal) = &mut self.votes.proposal else { return };
        let ProposalPhase::Accepting { change, accepted } = &mut proposal.phase else { return };
        if proposal.ballot != ballot {
            return;
        }
        accepted.insert(from);
        if !view.is_quorum(accepted.iter()) {
            return;
        }
        let next = view.next(change);
        let me = self.config.me.process;
        // The remaining members must have accepted the view before a leaving one may forget it. A
        // vote successor forgets nothing. A sole voter has no other voter to ask, and tells the
        // others before it leaves. A member that must wait tells them too: it may be the only one
        // left that can decide.
        let may_forget = planted!(self.config.mutant, ForgetAtOnce)
            || self.votes.successor.is_some()
            || next.is_quorum(accepted.iter())
            || view.has_sole_voter();
        let change = change.clone();
        let install = Notice::Install {
            lineage: view.lineage,
            instance: next.number,
            change: change.clone(),
            nonce: 0,
        };
        for member in view.members.iter().filter(|member| member.info.process != me) {
            match self.votes.successor {
                Some(_) => send(member.info.addr, member.info.process, install.clone(), step),
                None => {
                    let packet = Packet::from(install.clone());
                    step.dispatch(now, &self.config.me, &view, member.info.process, packet);
                }
            }
        }
        for successor in self.votes.successors.all() {
            send(successor.addr, successor.process, install.clone(), step);
        }
        for info in &change.join {
            send(info.addr, info.process, Notice::full_view(&next), step);
        }
        if !next.contains(me) && !may_forget {
            return;
        }
        self.last_change = Some((next.number, change));
        if next.contains(me) {
            self.install(now, next, None, step);
        } else if self.votes.successor.is_some() {
            self.inherit(next, step);
        } else {
            self.part(now, next, None, step);
        }
    }

    pub(super) fn on_nack(&mut self, now: Time, promised: Ballot, step: &mut StepParts) {
        let Some(view) = self.ballot_view() else { return };
        let me = self.config.me.process;
        let own = self.votes.proposal.as_ref().map(|proposal| proposal.ballot);
        if promised.process == me || own.is_some_and(|own| promised <= own) {
            return;
        }
        if self.elder.as_ref().is_some_and(|elder| !elder.deposed) {
            self.votes.rounds = self.votes.rounds.max(promised.round);
            let round = self.next_round();
            self.prepare(now, &view, Ballot { round, process: me }, step);
        } else if own.is_some() {
            // The other candidate may finish. If it does not, this member tries a higher ballot.
            self.votes.proposal = None;
            let rivals = view.council().map(|info| info.process);
            self.votes.yield_until =
                now + view.timing.retry + view.timing.stagger * (rank(rivals, self.voter()) + 1);
            self.votes.rounds = self.votes.rounds.max(promised.round);
        }
    }
}
