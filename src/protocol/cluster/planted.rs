//! Planted breaks of a member's part in its cluster, see `mutant.rs`.

use super::*;

/// The vote successor, if this process is one. It votes from `free_at` on.
pub(super) fn successor(
    successor: Option<VoteSuccessor>,
    config: &Config,
    now: Time,
) -> Option<VoteSuccessor> {
    successor.map(|successor| {
        let votes_at_once = planted!(config.mutant, VoteSuccessorVotesAtOnce);
        let free_at = if votes_at_once { now } else { successor.free_at };
        VoteSuccessor { free_at, ..successor }
    })
}

/// The answer to a candidate.
pub(super) fn promise(answer: Notice, config: &Config) -> Notice {
    match answer {
        Notice::Promise { instance, ballot, .. } if planted!(config.mutant, ForgetAccepted) => {
            Notice::Promise { instance, ballot, accepted: None }
        }
        answer => answer,
    }
}

impl Cluster {
    /// Returns whether this member's lease is endless.
    pub(super) fn plant_lease(&self) -> bool {
        matches!((&self.phase, &self.view), (MemberPhase::Member, Some(_)))
            && !self.is_alone()
            && self.lease.ever
            && planted!(self.config.mutant, LeaseWithoutEnd)
    }

    /// Raises the view as soon as one member speaks a higher version.
    pub(super) fn plant_version(&self, view: View) -> View {
        let highest = view.members.iter().map(|member| member.info.versions.highest).max();
        match highest.filter(|_| planted!(self.config.mutant, RaiseEarly)) {
            Some(version) => View { version, ..view },
            None => view,
        }
    }

    /// Returns whether this member stays in its view although the next view is without it.
    pub(super) fn plant_expulsion(&mut self, view: &View) -> bool {
        if view.contains(self.config.me.process) {
            return false;
        }
        if planted!(self.config.mutant, StayThoughExpelled) {
            return true;
        }
        let votes_on = planted!(self.config.mutant, VoteThoughExpelled);
        if votes_on {
            self.votes.acceptor = Acceptor::default();
        }
        votes_on
    }

    /// Renews this member's lease by a view.
    pub(super) fn plant_renewal(&mut self, now: Time, view: &View) {
        self.lease.until = self.lease.until.max(now + view.timing.member_lease);
    }

    /// Renews this member's lease from the receipt of a pulse on.
    pub(super) fn plant_pulse(&mut self, now: Time, renews: u64, view: &View) {
        if renews > 0 && planted!(self.config.mutant, LeaseFromReceipt) {
            self.lease.until = now + view.timing.member_lease;
        }
    }

    /// Returns whether this member alone declares a process dead that refuses it.
    pub(super) fn plant_suspicion(&self, process: ProcessId) -> bool {
        planted!(self.config.mutant, SuspectAlone)
            && self.view.as_ref().is_some_and(|view| view.contains(process))
    }

    /// Returns whether this process accepted a change without promising anything by it.
    pub(super) fn plant_vote(
        &mut self,
        now: Time,
        speaker: &VoteSender,
        (instance, ballot): (ViewNumber, Ballot),
        change: &Change,
        step: &mut StepParts,
    ) -> bool {
        let Some(view) = self.ballot_view() else { return false };
        if !planted!(self.config.mutant, AcceptPromisesNothing) {
            return false;
        }
        let (elder, promised) = (view.elder().process, self.votes.acceptor.promised);
        let answer = self.votes.acceptor.on_accept(elder, instance, ballot, change);
        self.votes.acceptor.promised = promised;
        self.answer_when_kept(now, speaker, answer, step);
        true
    }

    /// Returns whether the vote is not written.
    pub(super) fn plant_loss(&self) -> bool {
        planted!(self.config.mutant, ForgetOnDisk) && self.votes.acceptor.promised.is_some()
    }

    /// The work that waits for the disk, except this process's own vote.
    pub(super) fn plant_telling(
        &mut self,
        now: Time,
        telling: AfterStore,
        step: &mut StepParts,
    ) -> Option<AfterStore> {
        if matches!(telling, AfterStore::Promised { .. } | AfterStore::Accepted { .. })
            && planted!(self.config.mutant, CountUnstored)
        {
            self.store(step);
            self.tell_kept(now, telling, step);
            return None;
        }
        Some(telling)
    }
}
