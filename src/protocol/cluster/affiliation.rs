//! Joining and leaving a cluster, and the installation of a new view.

use super::discovery::{in_turn, led_member};
use super::*;

/// How many members outside the council are greeted at a time by a member without a renewing elder.
const GREETED_IN_TURN: usize = 4;

impl Cluster {
    pub(super) fn belonging(&self, now: Time) -> Affiliation {
        if let Some(VoteSuccessor { claim, view, .. }) = &self.votes.successor {
            return Affiliation::VoteSuccessor {
                claim: claim.clone(),
                lineage: view.lineage,
                view: view.number,
            };
        }
        match (&self.phase, &self.view) {
            (MemberPhase::Discovery(discovery), _) => discovery.belonging(),
            (_, Some(view)) => Affiliation::Member {
                lineage: view.lineage,
                view: view.number,
                elder: view.elder().clone(),
                version: view.version,
                led: self.is_ready(now),
                kept: self.is_view_kept(),
                settled: self.is_settled,
            },
            (_, None) => Affiliation::Discovery { seeds: BTreeSet::new(), bound: true },
        }
    }

    pub(super) fn on_hello(
        &mut self,
        now: Time,
        from: ProcessId,
        me: MemberInfo,
        (asked, nonce): (Option<SocketAddr>, u64),
        belonging: Affiliation,
        step: &mut StepParts,
    ) {
        if let Affiliation::VoteSuccessor { claim, lineage, .. } = &belonging
            && !self.is_claim_possible((from, &me), claim, *lineage, step)
        {
            return;
        }
        // A process speaks for itself alone. Otherwise a stranger could name a member and be
        // believed as that member.
        if me.process != from && !planted!(self.config.mutant, BelieveNamedProcess) {
            return;
        }
        // The nonce of a question is returned with the answer. The nonce of an answer proves it.
        let (echo, proof) = if asked.is_some() { (0, nonce) } else { (nonce, 0) };
        let is_believed = self.is_believed(me.process, proof);
        if let MemberPhase::Retiring { informed, .. } = &mut self.phase {
            let current = self.view.as_ref().map(|view| (view.lineage, view.number));
            // A process whose directory does not have the view may end, and its vote successor
            // would not know of the view.
            if let Affiliation::Member { lineage, view, kept, settled, .. } = belonging
                && (kept || settled && is_believed)
                && Some((lineage, view)) >= current
                && current.is_some_and(|current| current.0 == lineage)
            {
                if kept {
                    informed.insert(me.process);
                }
                if settled && is_believed {
                    return self.end_parting(now, true, step);
                }
                self.keep_parting(now, step);
            }
            return;
        }
        match &belonging {
            Affiliation::VoteSuccessor { claim, lineage, view } => {
                self.on_vote_successor(now, &me, (claim, *lineage, *view), (proof, echo), step)
            }
            Affiliation::Discovery { .. } => {
                // The process is in the view but was never told; send it the view.
                if let Some(view) = self.ballot_view().filter(|view| view.contains(me.process)) {
                    let view = View::clone(&view);
                    send(me.addr, me.process, Notice::FullView { view, nonce: echo }, step);
                }
            }
            Affiliation::Member { .. } => {}
        }
        if let (Some(mine), MemberPhase::Member, Affiliation::Member { lineage, led: true, .. }) =
            (&self.view, &self.phase, &belonging)
            && mine.lineage < *lineage
            && self.clock.check(now, lineage.founded).is_ok()
        {
            if is_believed {
                return self.defect(now, me.addr, step);
            }
            if self.nonce_for(me.addr) != 0 {
                self.send_hello(now, me.addr, None, step);
            }
        }
        self.report_other_lineage(&me, &belonging, step);
        if let (Some(mine), Affiliation::Member { lineage, view, .. }) =
            (&self.ballot_view(), &belonging)
            && mine.lineage == *lineage
            && mine.number < *view
        {
            self.fetch_from(now, &me, proof, step);
        }
        let of_theirs = match &belonging {
            Affiliation::Member { lineage, view, .. }
            | Affiliation::VoteSuccessor { lineage, view, .. } => Some((lineage, view)),
            Affiliation::Discovery { .. } => None,
        };
        if let Some(remembered) = self.config.last_view()
            && let MemberPhase::Discovery(_) = self.phase
            && let Some((lineage, view)) = of_theirs
            && *lineage == remembered.lineage
            && *view < remembered.number
        {
            let view = remembered.clone();
            send(me.addr, me.process, Notice::FullView { view, nonce: echo }, step);
        }
        if let MemberPhase::Discovery(discovery) = &mut self.phase {
            let heard = (asked, is_believed);
            let found = discovery.on_hello(&self.config, now, me, heard, belonging, step.out);
            self.on_founding_outcome(now, found, step);
        }
    }

    /// Reports a member of another lineage that has an elder. The view may still have a former
    /// process of that member's address. Then it is no report: the address may have been in this
    /// lineage a moment ago, and the other process is heard again.
    fn report_other_lineage(
        &self,
        info: &MemberInfo,
        belonging: &Affiliation,
        step: &mut StepParts,
    ) {
        if let (Some(mine), MemberPhase::Member, Some(other)) =
            (&self.view, &self.phase, led_member(info, belonging))
            && mine.lineage != other.lineage
            && mine.members.iter().all(|member| member.info.addr != info.addr)
        {
            step.out.push(Output::Event(Event::OtherLineage(Box::new(other))));
        }
    }

    pub(super) fn on_founding_outcome(
        &mut self,
        now: Time,
        found: FoundingOutcome,
        step: &mut StepParts,
    ) {
        match found {
            FoundingOutcome::Pending => {}
            FoundingOutcome::Founded(view) => {
                let me = self.config.me.process;
                // A founder that is a quorum alone may grant at once, so its vote successor must
                // know the view. Other founders need members that know the view, too.
                if let Some(voter) = stored_voter(&self.config).filter(|_| view.is_quorum([&me])) {
                    let number = self.votes.durability.put(founding_vote(voter, &view), step.out);
                    self.votes.durability.wait(number, AfterStore::Founded(*view));
                } else {
                    self.begin_with(now, *view, step);
                }
            }
            FoundingOutcome::Abandoned => self.end(now, Event::Abandoned, step),
            FoundingOutcome::Refused(wrong) => self.refuse_clock(now, wrong, None, step),
            FoundingOutcome::Forced => self.force(now, step),
            FoundingOutcome::ForceRefused(member) => {
                self.end(now, Event::ForceRefused(member), step);
            }
        }
    }

    /// Ends the membership, since the cluster's slots are too far above this machine's clock.
    /// `elder`: the elder of a view with this process. It gets one goodbye, so that it need not
    /// wait for this member's lease.
    fn refuse_clock(
        &mut self,
        now: Time,
        WrongClock { theirs, ours }: WrongClock,
        elder: Option<&MemberInfo>,
        step: &mut StepParts,
    ) {
        if let Some(elder) = elder.filter(|elder| elder.process != self.config.me.process) {
            // All holds end first, since the goodbye states that the member holds nothing.
            let reason = LostReason::Left;
            step.act(now, &self.standing(now), |locks, cx| locks.give_everything_up(reason, cx));
            send(elder.addr, elder.process, Notice::Leave, step);
        }
        self.end(now, Event::WrongClock { theirs, ours }, step);
    }

    /// Installs the first view of a lineage that this process founds, and sends it to the other
    /// founders.
    pub(super) fn begin_with(&mut self, now: Time, view: View, step: &mut StepParts) {
        self.install(now, view.clone(), None, step);
        for info in
            view.members.iter().map(|member| &member.info).filter(|info| **info != self.config.me)
        {
            send(info.addr, info.process, Notice::full_view(&view), step);
        }
    }

    pub(super) fn on_join(
        &mut self,
        now: Time,
        from: ProcessId,
        info: MemberInfo,
        heard: ViewNumber,
        step: &mut StepParts,
    ) {
        let Some(view) = &self.view else { return };
        // Members send requests on. A stranger that names another process would make this member
        // dial any address.
        let is_own = from == info.process || planted!(self.config.mutant, TakeAnyJoin);
        if !is_own && !view.contains(from) {
            return;
        }
        // A stranger may name any view, and its request would never be void. A joiner that did hear
        // of a later view asks again, after this member has asked for that view.
        if heard > view.number
            && !self.is_believed(from, 0)
            && !planted!(self.config.mutant, TakeJoinOfLaterView)
        {
            return self.fetch(now, from, info.addr, step);
        }
        let is_spoken = view.is_spoken_by(&info) || planted!(self.config.mutant, AdmitAnyVersion);
        let is_admitted = view.admits(&info, heard) || planted!(self.config.mutant, AdmitTheGone);
        if view.contains(info.process) || !is_admitted || !is_spoken {
            send(info.addr, info.process, Notice::full_view(view), step);
        } else if let Some(elder) = &mut self.elder {
            elder.on_join(now, info);
        } else if from == info.process {
            // The joiner may not reach the elder yet, or not know the present one. Only a joiner's
            // own request is sent on: two members with different views may each take the other for
            // the elder.
            let elder = view.elder();
            send(elder.addr, elder.process, Notice::Join { me: info, heard }, step);
        }
    }

    pub(super) fn on_leave(&mut self, now: Time, from: ProcessId, step: &mut StepParts) {
        let is_member = self.view.as_ref().is_some_and(|view| view.contains(from));
        if !is_member && !planted!(self.config.mutant, KeepAnyGoodbye) {
            return;
        }
        if self.elder.as_mut().is_some_and(|elder| elder.on_leave(now, from)) {
            step.act(now, &self.standing(now), |locks, cx| locks.on_goodbye(from, cx));
        }
    }

    pub(crate) fn leave(&mut self, now: Time, step: &mut StepParts) {
        match &mut self.phase {
            MemberPhase::Discovery(_) => self.end(now, Event::Left { heard: true }, step),
            MemberPhase::Retiring { left, .. } => *left = true,
            MemberPhase::Member => {
                let member_lease =
                    self.view.as_ref().map_or(self.config.timing, |view| view.timing).member_lease;
                self.phase = MemberPhase::Leaving { again_at: now, until: now + member_lease };
                step.act(now, &self.standing(now), |locks, cx| locks.close(LostReason::Left, cx));
                // This member's requests have ended at its own grantors by now. The calls here
                // transfer the rest of their tables.
                for service in step.locks.granted_here() {
                    step.act(now, &self.standing(now), |locks, cx| {
                        locks.depart_service(&service, cx)
                    });
                }
            }
            MemberPhase::Leaving { .. } | MemberPhase::Gone => {}
        }
    }

    /// Says goodbye, again and again, until there is a view without this process. While an elder
    /// with a quorum renews its lease, another member can take over. Then the process does not
    /// leave before its tables are transferred.
    pub(super) fn keep_leaving(&mut self, now: Time, step: &mut StepParts) {
        let MemberPhase::Leaving { .. } = self.phase else { return };
        let has_handed_over = step.locks.has_handed_over();
        let is_led = now < self.lease.until || self.has_authority(now);
        let (MemberPhase::Leaving { again_at, until }, Some(view)) = (&mut self.phase, &self.view)
        else {
            return;
        };
        let me = self.config.me.process;
        if is_led && !has_handed_over {
            *until = now + view.timing.member_lease;
        }
        let gone = gone(now, &self.liveness.dead, &self.liveness.refused, &view.timing);
        let others = || {
            view.members.iter().map(|member| member.info.process).filter(|process| *process != me)
        };
        // A member whose address belongs to another process by now is gone. This includes a former
        // process of this member.
        let is_replaced =
            |process| view.member(process).is_some_and(|member| view.is_replaced(member));
        let is_last =
            others().all(|process| self.liveness.dead.contains(&process) || is_replaced(process));
        if is_last || now >= *until || others().all(|process| gone.contains(&process)) {
            let heard = is_last || planted!(self.config.mutant, CallItHeard);
            self.end(now, Event::Left { heard }, step);
        } else if now >= *again_at && has_handed_over {
            *again_at = now + view.timing.retry;
            let elder = view.elder().process;
            if self.elder.is_some() {
                self.on_leave(now, me, step);
            } else {
                step.dispatch(now, &self.config.me, view, elder, Packet::from(Notice::Leave));
            }
        }
    }

    /// Begins the retirement after the decision of a view without this member. Either this member
    /// decided the view, or another process told it. If the member left at once, and its messages
    /// were lost, no other process might know the view.
    pub(crate) fn part(
        &mut self,
        now: Time,
        next: View,
        informant: Option<ProcessId>,
        step: &mut StepParts,
    ) {
        // With stored votes the informant may not have the view on disk yet, so it is asked.
        let informant = informant.filter(|_| !self.config.is_durable());
        let left = matches!(self.phase, MemberPhase::Leaving { .. });
        let reason = if left { LostReason::Left } else { LostReason::Expelled };
        step.act(now, &self.standing(now), |locks, cx| locks.give_everything_up(reason, cx));
        let until = now + next.timing.member_lease * 2;
        step.out.push(Output::Event(Event::ViewInstalled(next.clone())));
        self.view = Some(Arc::new(next));
        self.is_settled = false;
        self.votes.acceptor = Acceptor::default();
        self.keep_view(step);
        self.elder = None;
        step.locks.end_registry();
        self.votes.proposal = None;
        self.liveness.death_suspicions.clear();
        self.sole_quorum = false;
        self.phase = MemberPhase::Retiring {
            again_at: now,
            until,
            informed: informant.into_iter().collect(),
            left,
        };
        self.keep_parting(now, step);
    }

    pub(super) fn keep_parting(&mut self, now: Time, step: &mut StepParts) {
        let belonging = self.belonging(now);
        let MemberPhase::Retiring { again_at, until, informed, .. } = &mut self.phase else {
            return;
        };
        let Some(view) = &self.view else { return };
        let heard = view.is_quorum(informed.iter())
            || view.members.iter().all(|member| self.liveness.dead.contains(&member.info.process));
        // A gone member cannot be told. The others without it are not a quorum that could continue.
        let gone = gone(now, &self.liveness.dead, &self.liveness.refused, &view.timing);
        if heard || view.is_quorum(informed.iter().chain(&gone)) || now >= *until {
            self.end_parting(now, heard, step);
        } else if now >= *again_at {
            *again_at = now + view.timing.retry;
            for info in view.council() {
                // A member that has the view already is asked whether a quorum has it.
                if !informed.contains(&info.process) {
                    send(info.addr, info.process, Notice::full_view(view), step);
                }
                let hello = Notice::Hello {
                    me: self.config.me.clone(),
                    asked: info.addr,
                    belonging: belonging.clone(),
                    nonce: 0,
                };
                send(info.addr, info.process, hello, step);
            }
        }
    }

    pub(super) fn end_parting(&mut self, now: Time, heard: bool, step: &mut StepParts) {
        let left = matches!(self.phase, MemberPhase::Retiring { left: true, .. });
        self.end(now, if left { Event::Left { heard } } else { Event::Expelled }, step);
    }

    /// Greets other processes. The council greets the seeds all the time, so that seeds which start
    /// again find the cluster instead of founding another. A member that no elder renews asks the
    /// processes that it knows whether the cluster continues. It asks the council each time, and a
    /// few of the other members in turn, since the council may be gone.
    pub(crate) fn greet(&mut self, now: Time, step: &mut StepParts) {
        let Some(view) = &self.view else { return };
        if self.phase != MemberPhase::Member || now < self.greeting.at {
            return;
        }
        self.greeting.at = now + view.timing.slow_beat();
        let mut addrs = BTreeSet::new();
        if !self.lease.running || view.has_vote(self.config.me.process) {
            addrs.extend(&self.config.seeds);
        }
        if !self.lease.running {
            addrs.extend(view.council().map(|info| info.addr));
            let known = view.members.iter().map(|member| member.info.addr);
            let others: BTreeSet<SocketAddr> = known.filter(|addr| !addrs.contains(addr)).collect();
            let next = in_turn(others.iter(), self.greeting.last, GREETED_IN_TURN);
            if others.len() > next.len() {
                self.greeting.last = next.last().copied();
            }
            addrs.extend(next);
        }
        for addr in addrs.into_iter().filter(|addr| *addr != self.config.me.addr) {
            self.send_hello(now, addr, None, step);
        }
    }

    /// Asks which process is at `addr`.
    pub(super) fn send_hello(
        &self,
        now: Time,
        addr: SocketAddr,
        process: Option<ProcessId>,
        step: &mut StepParts,
    ) {
        let (me, belonging) = (self.config.me.clone(), self.belonging(now));
        let hello = Notice::Hello { me, asked: addr, belonging, nonce: self.nonce_for(addr) };
        step.out.push(Output::Send { to: addr, process, packet: hello.into() });
    }

    /// The proof to ask for from the process at `addr`: only an answer from a configured address,
    /// or from a member's, is proof of anything. 0: none.
    pub(super) fn nonce_for(&self, addr: SocketAddr) -> u64 {
        let Some(nonce) = self.config.nonce else { return 0 };
        let is_in = |view: Arc<View>| view.voter_addrs().any(|known| known == addr);
        let is_known = match &self.phase {
            MemberPhase::Discovery(discovery) => discovery.knows(&self.config, addr),
            _ => self.config.knows(addr),
        } || self.ballot_view().is_some_and(is_in);
        if is_known { nonce.get() } else { 0 }
    }

    /// Returns whether this process believes every process. If a process knows only seeds, and none
    /// has told it of a cluster for a while, all seeds may have started again. Then it believes
    /// each process. It does so before a view that admitted it would drop it for its missing
    /// answer.
    fn believes_all(&self, now: Time) -> bool {
        let MemberPhase::Discovery(discovery) = &self.phase else { return false };
        let knows_others = self.config.last_view().is_some() || !self.config.contacts.is_empty();
        !knows_others
            && now >= discovery.listens_until() + self.config.timing.member_lease / 2
            && discovery.proven_addrs().next().is_none()
    }

    /// Returns whether packets that `relay` passes on count as packets of their origin. Without
    /// authentication a stranger could speak as any member. A process in no view knows no relay.
    pub(crate) fn takes_relays_of(&self, relay: ProcessId) -> bool {
        self.view.is_none()
            || self.is_believed(relay, 0)
            || planted!(self.config.mutant, BelieveAnyRelay)
    }

    /// Returns whether `relay` is a member that sends a packet of its own on a detour. Its word is
    /// not needed for the origin, so a learner may do so. A learner that gets no vote, because the
    /// council is full, would otherwise lose its lease with the straight path to the elder.
    pub(crate) fn is_own_relay(&self, relay: ProcessId, origin: &MemberInfo) -> bool {
        let known = self.view.as_ref().and_then(|view| view.member(relay));
        known.is_some_and(|member| member.info == *origin)
            && !planted!(self.config.mutant, RefuseRelayOfLearner)
    }

    /// Returns whether statements of `from` count: on views, on deaths, and on the origin of
    /// relayed packets. Without authentication a stranger's statements count only with a proof that
    /// the stranger was asked. A learner has shown nothing either: one notice makes any process a
    /// learner.
    pub(super) fn is_believed(&self, from: ProcessId, nonce: u64) -> bool {
        let Some(own) = self.config.nonce else { return true };
        let is_shown = |view: &View| {
            view.member(from).is_some_and(|member| {
                !member.learner || planted!(self.config.mutant, BelieveLearners)
            })
        };
        nonce == own.get()
            || self.ballot_view().is_some_and(|view| is_shown(&view))
            || self.votes.successors.all().any(|info| info.process == from)
            || planted!(self.config.mutant, BelieveStrangers)
    }

    /// Leaves for another lineage, which has an elder with a quorum and is later than this one. Its
    /// tokens are higher, so a resource that saw one of them never sees a lower one later. The
    /// member gives its own lineage up, with all its holds, and joins the other.
    fn defect(&mut self, now: Time, addr: SocketAddr, step: &mut StepParts) {
        self.defected = true;
        self.config.contacts.insert(addr);
        self.end(now, Event::Expelled, step);
    }

    /// Carries out the operator's declaration that every process without an answer is dead. It is
    /// wrong where a cluster with an elder answers: two clusters would run.
    pub(crate) fn force(&mut self, now: Time, step: &mut StepParts) {
        let is_refused = match &self.phase {
            MemberPhase::Leaving { .. } | MemberPhase::Retiring { .. } => true,
            MemberPhase::Discovery(discovery) => discovery.knows_a_cluster(),
            MemberPhase::Member | MemberPhase::Gone => false,
        };
        if !self.is_ready(now) && !is_refused {
            self.forced = true;
            self.end(now, Event::Forced, step);
        }
    }

    /// Ends this process as a member, and reports that as `event`.
    pub(super) fn end(&mut self, now: Time, event: Event, step: &mut StepParts) {
        let reason =
            if let Event::Left { .. } = event { LostReason::Left } else { LostReason::Expelled };
        // No member is left to tell, so no message is sent: all holds and grants end with the
        // membership.
        let _ = step.cx(now, &self.standing(now), |locks, cx| locks.give_everything_up(reason, cx));
        self.phase = MemberPhase::Gone;
        self.elder = None;
        self.votes.proposal = None;
        step.locks.forget_membership();
        self.liveness.death_suspicions.clear();
        *step.links = LinkSet::new(&self.config);
        step.out.push(Output::Event(event));
    }

    /// Confirms a view to a process that reported it and is not in it. That process stays until the
    /// view is known here, and asks for that. But this member may leave before it is asked.
    pub(super) fn confirm(&self, addr: SocketAddr, informant: ProcessId, step: &mut StepParts) {
        let Some(view) = &self.view else { return };
        let belonging = Affiliation::Member {
            lineage: view.lineage,
            view: view.number,
            elder: view.elder().clone(),
            version: view.version,
            led: false,
            kept: self.is_view_kept(),
            settled: false,
        };
        send(
            addr,
            informant,
            Notice::HelloReply { me: self.config.me.clone(), asked: addr, belonging, nonce: 0 },
            step,
        );
    }

    pub(super) fn on_full_view(
        &mut self,
        now: Time,
        (from, addr): (ProcessId, SocketAddr),
        (view, nonce): (View, u64),
        step: &mut StepParts,
    ) {
        if !view.is_sound() {
            return;
        }
        let is_later = self
            .ballot_view()
            .is_some_and(|mine| view.lineage == mine.lineage && view.number > mine.number);
        if is_later && !self.is_believed(from, nonce) {
            return self.fetch(now, from, addr, step);
        }
        if let MemberPhase::Discovery(discovery) = &self.phase {
            let is_used_up = discovery.is_used_up(&self.config, &view);
            let is_believed = self.is_believed(from, nonce)
                || discovery.is_bound_to(from)
                || self.believes_all(now);
            if (view.contains(self.config.me.process) || is_used_up) && !is_believed {
                return self.fetch_first(now, view.lineage, step);
            }
            if is_used_up {
                // The process has joined and was removed again before it knew, or this may be so.
                return self.end(now, Event::Abandoned, step);
            }
        }
        if let (Some(successor), false) =
            (&self.votes.successor, view.contains(self.config.me.process))
        {
            if view.lineage == successor.view.lineage && view.number > successor.view.number {
                self.inherit(view, step);
            }
            return;
        }
        let acceptable = match (&self.phase, &self.view) {
            (MemberPhase::Discovery(_), _) => view.contains(self.config.me.process),
            (_, Some(mine)) => view.lineage == mine.lineage && view.number > mine.number,
            (_, None) => false,
        };
        if acceptable && matches!(self.phase, MemberPhase::Retiring { .. }) {
            self.end_parting(now, true, step); // the members have a later view: they know
        } else if acceptable {
            self.last_change = None;
            self.install(now, view, Some((from, addr)), step);
        }
    }

    /// Sends this member's view to `to`, which has view `have`.
    pub(super) fn catch_up(
        &mut self,
        now: Time,
        addr: SocketAddr,
        to: ProcessId,
        (have, nonce): (ViewNumber, u64),
        step: &mut StepParts,
    ) {
        let Some(view) = self.ballot_view() else { return };
        let notice = match &self.last_change {
            // A vote successor may know a later view by now, without the change that made it.
            Some((number, change)) if have.next() == view.number && *number == view.number => {
                Notice::Install {
                    lineage: view.lineage,
                    instance: view.number,
                    change: change.clone(),
                    nonce,
                }
            }
            _ => Notice::FullView { view: View::clone(&view), nonce },
        };
        self.reply(now, addr, to, notice, step);
    }

    /// Sends a notice to a member, on detours if need be, or to a stranger.
    pub(super) fn reply(
        &mut self,
        now: Time,
        addr: SocketAddr,
        to: ProcessId,
        notice: Notice,
        step: &mut StepParts,
    ) {
        match &self.view {
            Some(view) if view.contains(to) => {
                step.dispatch(now, &self.config.me, view, to, notice.into());
            }
            _ => send(addr, to, notice, step),
        }
    }

    /// Returns whether the first view of this process has other information about it than its own.
    /// Another process requested its join then, and the key of its vote could be that process's.
    fn is_misnamed_in(&self, view: &View) -> bool {
        let me = &self.config.me;
        matches!(self.phase, MemberPhase::Discovery(_))
            && view.member(me.process).is_some_and(|own| own.info != *me)
    }

    /// Installs a decided view, with the process that told it. Only this function adapts the state
    /// that depends on the view.
    pub(super) fn install(
        &mut self,
        now: Time,
        view: View,
        informant: Option<(ProcessId, SocketAddr)>,
        step: &mut StepParts,
    ) {
        let me = self.config.me.process;
        if self.is_misnamed_in(&view) {
            return self.end(now, Event::Abandoned, step);
        }
        planted!(=> if self.plant_expulsion(&view) { return });
        planted!(=> let view = self.plant_version(view));
        if let Err(wrong) = self.clock.check(now, view.first_slot)
            && view.contains(me)
        {
            return self.refuse_clock(now, wrong, Some(view.elder()), step);
        }
        let pace = *self.pace.get_or_insert(WallClock::pace(now, view.first_slot));
        let view = Arc::new(view);
        let before = self.view.replace(Arc::clone(&view));
        self.sole_quorum = view.elder().process == me && view.is_quorum([&me]);
        // A death may be reported before a view shows that the process served sessions.
        let mut dead = std::mem::take(&mut self.liveness.dead);
        dead.retain(|process| !self.outlives_death(&view, *process));
        self.liveness.dead = dead;
        self.liveness.elder_dead_at =
            self.liveness.dead.contains(&view.elder().process).then_some(now);
        self.votes.acceptor = Acceptor::default();
        self.votes.successor = None;
        self.votes.successors.clear();
        self.keep_view(step);
        self.votes.proposal = None;
        (self.votes.yield_until, self.votes.rounds) = (Time::ZERO, 0);
        let follows = before.as_ref().is_some_and(|before| before.number.next() == view.number);
        if let Some((informant, addr)) =
            informant.filter(|(informant, _)| !view.contains(*informant))
        {
            self.tell_when_kept(now, AfterStore::Known { addr, informant }, step);
        }
        let informant = informant.map(|(informant, _)| informant);
        if !view.contains(me) {
            if follows && before.as_ref().is_some_and(|before| before.has_vote(me)) {
                // Perhaps only leaving members have the view: they may not forget it before the
                // remaining members know it.
                self.part(now, View::clone(&view), informant, step);
                return;
            }
            let left = matches!(self.phase, MemberPhase::Leaving { .. });
            step.out.push(Output::Event(Event::ViewInstalled(View::clone(&view))));
            self.end(now, if left { Event::Left { heard: true } } else { Event::Expelled }, step);
            return;
        }
        if let MemberPhase::Discovery(_) = self.phase {
            self.phase = MemberPhase::Member;
            self.member_since = now;
            self.greeting.at = now + view.timing.slow_beat();
        }
        // If this member missed a view in between, another process may have been elder meanwhile.
        let same_elder = follows
            && before.as_ref().is_some_and(|before| before.elder().process == view.elder().process);
        let same_tenure =
            same_elder && before.as_ref().is_some_and(|before| before.tenure == view.tenure);
        self.lease.on_view(now, &view.timing, same_elder);
        self.is_settled = false;
        planted!(self.config.mutant, ViewRenewsLease => self.plant_renewal(now, &view));
        planted!(self.config.mutant, ForgetPromiseOverView => self.lease.promised_until = now);
        self.adapt_liveness(now, &view);
        step.out.push(Output::Event(Event::ViewInstalled(View::clone(&view))));
        let only_in = |one: &View, other: &View| -> Vec<ProcessId> {
            let members = one.members.iter().map(|member| member.info.process);
            members.filter(|process| !other.contains(*process)).collect()
        };
        let departed = before.as_ref().map(|before| only_in(before, &view)).unwrap_or_default();
        let joined = before.as_ref().map(|before| only_in(&view, before)).unwrap_or_default();
        step.links.on_view(now, &self.config.me, &view, step.out);
        // The locks may use the lease from before this view made an elder here, or ended one.
        let leased = now < self.granting_end();
        if !same_elder && let Some(elder) = self.elder.take() {
            self.last_pulse = elder.last_pulse();
        }
        // Only the founder of a lineage knows that there was no earlier elder.
        let ask = before.is_some()
            || view.number.0 != view.lineage.founded.0
            || view.lineage.founder != me;
        let registry = self.adapt_elder(now, &view, (ask, same_tenure), pace, step);
        let installed =
            InstalledView { departed: &departed, joined: &joined, same_tenure, registry };
        let standing = Standing { leased, ..self.standing(now) };
        let messages = step.cx(now, &standing, |locks, cx| locks.on_view(&view, installed, cx));
        step.deliver(now, &self.standing(now), messages);
    }

    fn adapt_liveness(&mut self, now: Time, view: &View) {
        let liveness = &mut self.liveness;
        liveness.suspected.retain(|process| view.contains(*process));
        liveness.death_suspicions.retain(|process, _| view.contains(*process));
        let vouches = liveness.dead.iter().any(|process| view.contains(*process));
        liveness.vouch_at = if vouches { now } else { Time::MAX };
    }

    /// Makes this member the elder of a view, or updates its elder for the view. `ask`: earlier
    /// elders may have named grantors. `same_tenure`: this elder continues as before.
    fn adapt_elder(
        &mut self,
        now: Time,
        view: &View,
        (ask, same_tenure): (bool, bool),
        pace: WallClock,
        step: &mut StepParts,
    ) -> RegistryChange {
        let me = self.config.me.process;
        if view.elder().process != me {
            return RegistryChange::End;
        }
        let clocks = (self.clock, pace);
        match &mut self.elder {
            Some(elder) => {
                elder.on_view(now, me, view);
                match same_tenure {
                    true => RegistryChange::Keep,
                    false => RegistryChange::Restart { ask, clocks },
                }
            }
            None => {
                let joins = self.config.limits.joins;
                let elder = Elder::new(now, me, view, (self.last_pulse, joins));
                planted!(=> let elder = elder.with_mutant(self.config.mutant));
                self.elder = Some(elder);
                step.out.push(Output::Event(Event::BecameElder(view.number)));
                RegistryChange::Begin { ask, clocks }
            }
        }
    }

    pub(super) fn is_open(&self, instance: ViewNumber) -> bool {
        self.ballot_view().is_some_and(|view| view.number.next() == instance)
    }

    /// Returns whether this member is the elder and a quorum by itself, with nothing under way that
    /// could end that.
    pub(super) fn is_alone(&self) -> bool {
        self.sole_quorum
            && self.votes.proposal.is_none()
            && self.elder.as_ref().is_some_and(|elder| !elder.deposed)
    }

    /// Ends this elder's lease as a quorum alone. This comes before this member's vote may help to
    /// choose a view with which other members can continue.
    pub(super) fn stand_down(&mut self, now: Time, ballot: Ballot) {
        let Some(view) = self.ballot_view() else { return };
        let is_new = self.is_new(ballot);
        if self.is_alone() {
            self.lease.until = self.lease.until.max(now + view.timing.member_lease);
            if let Some(elder) = &mut self.elder {
                elder.step_down_from_alone(now);
            }
        }
        if ballot.process != self.config.me.process
            && let Some(elder) = &mut self.elder
        {
            if is_new {
                self.votes.yield_until = now + view.timing.elder_lease;
            }
            elder.deposed = true;
        }
        if self.votes.proposal.as_ref().is_some_and(|proposal| proposal.ballot < ballot) {
            self.votes.proposal = None;
        }
    }
}

/// Members that are surely dead, or that have refused connections for four retries without a
/// packet. A leaving member counts these as gone: it must not wait for ever, and other members do
/// not depend on it.
pub(super) fn gone(
    now: Time,
    dead: &BTreeSet<ProcessId>,
    refused: &BTreeMap<ProcessId, Time>,
    timing: &Timing,
) -> BTreeSet<ProcessId> {
    let refused = refused.iter().filter(|(_, since)| **since + timing.retry * 4 <= now);
    dead.iter().copied().chain(refused.map(|(process, _)| *process)).collect()
}
