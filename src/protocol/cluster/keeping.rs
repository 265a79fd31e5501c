//! Messages that tell of a vote wait until the vote is on disk: see [`VoteDurability`].

use super::*;

impl Cluster {
    /// Returns whether nothing may be sent because the first write is not confirmed. A vote
    /// successor whose own vote no process could inherit must not join. A founder that is a quorum
    /// alone must not grant in a view that its vote successor does not know.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.votes.durability.is_first() && matches!(self.phase, MemberPhase::Discovery(_))
    }

    /// Returns whether the vote successor of this process would know the process's view.
    pub(super) fn is_view_kept(&self) -> bool {
        self.votes.durability.is_view_kept() || planted!(self.config.mutant, CallItKept)
    }

    /// Requests the write of the vote, unless it is on disk or on its way. Returns the number of
    /// that write.
    pub(super) fn store(&mut self, step: &mut StepParts) -> Option<u64> {
        planted!(=> if self.plant_loss() { return None });
        let vote = self.stored_vote().filter(|_| self.config.is_durable())?;
        Some(self.votes.durability.put(vote, step.out))
    }

    /// Begins a view, and with it an instance: work that waited for votes of the instance before is
    /// obsolete.
    pub(super) fn keep_view(&mut self, step: &mut StepParts) {
        self.votes.durability.end_instance();
        if let Some(number) = self.store(step) {
            self.votes.durability.has_view_since(number);
        }
    }

    /// Does the work as soon as the present vote is on disk.
    pub(super) fn tell_when_kept(&mut self, now: Time, telling: AfterStore, step: &mut StepParts) {
        planted!(=> let Some(telling) = self.plant_telling(now, telling, step) else { return });
        match self.store(step).filter(|number| !self.votes.durability.has(*number)) {
            Some(number) => self.votes.durability.wait(number, telling),
            None => self.tell_kept(now, telling, step),
        }
    }

    /// Answers the question of another voter. A refusal tells of no vote that another process could
    /// count.
    pub(super) fn answer_when_kept(
        &mut self,
        now: Time,
        to: &VoteSender,
        answer: Notice,
        step: &mut StepParts,
    ) {
        let is_refusal = matches!(answer, Notice::Nack { .. });
        let telling =
            AfterStore::Answer { addr: to.addr, to: to.process, notice: Box::new(answer) };
        if is_refusal || planted!(self.config.mutant, TellUnstored) {
            self.store(step);
            self.tell_kept(now, telling, step);
        } else {
            self.tell_when_kept(now, telling, step);
        }
    }

    pub(crate) fn on_stored(&mut self, now: Time, number: u64, step: &mut StepParts) {
        self.votes.durability.on_stored(number);
        while let Some(telling) = self.votes.durability.next() {
            self.tell_kept(now, telling, step);
        }
        // A learner gets its vote when the elder knows that its directory has the view.
        let me = self.config.me.process;
        let is_learner = self
            .view
            .as_ref()
            .and_then(|view| view.member(me))
            .is_some_and(|member| member.learner);
        if is_learner && self.is_view_kept() {
            self.lease.next_beat = now;
        }
    }

    /// Handles the failure of a vote's write. The member continues without the vote, and tries the
    /// write again in a while.
    pub(crate) fn on_store_failed(&mut self, now: Time, number: u64) {
        self.votes.durability.on_failed(number, now + self.timing().retry * STORE_AGAIN);
        // Other voters may have promised this candidate their votes, and need not wait for it.
        if self.votes.durability.is_failing()
            && self.elder.is_none()
            && matches!(
                &self.votes.proposal,
                Some(Proposal {
                    phase: ProposalPhase::PreVoting { .. } | ProposalPhase::Preparing { .. },
                    ..
                })
            )
        {
            self.votes.proposal = None;
        }
    }

    pub(super) fn tell_kept(&mut self, now: Time, telling: AfterStore, step: &mut StepParts) {
        match telling {
            AfterStore::Answer { addr, to, notice } => {
                self.send_ballot(now, addr, to, *notice, step)
            }
            AfterStore::Promised { ballot, accepted } => {
                self.on_vote(now, &self.own_vote_sender(), ballot, Some(accepted), step);
            }
            AfterStore::Accepted { ballot } => {
                // Without this vote no other elder can have been chosen before.
                if self.sole_quorum
                    && let Some(elder) = self.elder.as_mut().filter(|elder| !elder.deposed)
                {
                    elder.step_down_from_alone(now);
                }
                self.on_accepted(now, self.voter(), ballot, step);
            }
            AfterStore::Known { addr, informant } => self.confirm(addr, informant, step),
            AfterStore::Founded(view) => {
                if let MemberPhase::Discovery(_) = self.phase {
                    self.begin_with(now, view, step);
                }
            }
        }
    }
}
