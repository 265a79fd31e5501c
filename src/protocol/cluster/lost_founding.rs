//! A founding that its founders did not survive.
//!
//! Only the coordinator of a founding has the first view on disk for certain. All founders may die
//! before the others have stored it. Then the coordinator's vote successor waits for votes that do
//! not exist, and the other new processes wait for it. The vote successor gives its vote up when
//!
//! - its view is the first of its lineage, is not *established*, and nothing is accepted for the
//!   next one;
//! - another process than the founder answers at the address of each other founder, and is in
//!   discovery, or has a vote in this same view;
//! - these votes and its own are not a quorum of that view: no later view is decided, since a
//!   quorum would have stored its acceptances;
//! - the same processes have answered for a whole member lease: no member's lease runs any more.
//!
//! After that the process is a seed like any other, and founds with the others, above the slots of
//! the lost view.
//!
//! A founder notes on disk that the view is established. It does so when it has had a lease in the
//! first view for as long as a member lease. If directories are lost after that, only an operator
//! can give them up.

use super::vote_successor::FounderReplacements;
use super::*;

impl Cluster {
    /// Returns whether the present view is not the first of its lineage, or has lasted.
    pub(super) fn is_established(&self) -> bool {
        match (&self.view, &self.votes.successor) {
            (Some(view), _) => !is_first(view) || self.votes.first_view_lasts,
            (None, Some(successor)) => successor.is_established,
            (None, None) => false,
        }
    }

    /// Notes that the first view has lasted, and stores that.
    pub(super) fn keep_founding(&mut self, now: Time, step: &mut StepParts) {
        let Some(view) = self.view.as_ref().filter(|view| is_first(view)) else { return };
        let lasts = self.lease.running && now >= self.member_since + view.timing.member_lease;
        if lasts && !self.votes.first_view_lasts {
            self.votes.first_view_lasts = true;
            self.store(step);
        }
    }

    /// Gives up the vote in a first view that no process can continue.
    pub(super) fn give_founding_up(&mut self, now: Time) {
        let replacements = self.founder_replacements();
        let Some(successor) = &mut self.votes.successor else { return };
        let Some(processes) = replacements else {
            successor.replacements = None;
            return;
        };
        let known = successor.replacements.take().filter(|known| known.processes == processes);
        let known = known.unwrap_or(FounderReplacements { processes, since: now });
        let timing = successor.view.timing;
        if now < known.since + timing.surely(timing.member_lease) {
            successor.replacements = Some(known);
            return;
        }
        self.config.found_above = self.config.found_above.max(successor.view.end_slot());
        self.config.stored = None;
        self.give_vote_up();
        if let MemberPhase::Discovery(discovery) = &mut self.phase {
            discovery.set_seeds(self.config.founding_seeds());
        }
    }

    /// The processes that answer in the place of the other founders, if all founders are replaced
    /// and the remaining votes are not a quorum.
    fn founder_replacements(&self) -> Option<BTreeSet<ProcessId>> {
        let (MemberPhase::Discovery(discovery), Some(successor)) =
            (&self.phase, &self.votes.successor)
        else {
            return None;
        };
        let view = &successor.view;
        if successor.is_established
            || self.votes.acceptor.accepted.is_some()
            || discovery.knows_a_cluster()
        {
            return None;
        }
        let mut voters = BTreeSet::from([successor.claim.voter]);
        let mut replacements = BTreeSet::new();
        for founder in view.members.iter().map(|member| &member.info) {
            if founder.process == successor.claim.voter {
                continue;
            }
            let (process, affiliation) = discovery.answer_from(founder.addr)?;
            match affiliation {
                Affiliation::Discovery { .. } => {}
                Affiliation::VoteSuccessor { claim, lineage, view: number }
                    if (*lineage, *number) == (view.lineage, view.number) =>
                {
                    voters.insert(claim.voter);
                }
                _ => return None,
            }
            if view.contains(process) {
                return None;
            }
            replacements.insert(process);
        }
        (!view.is_quorum(voters.iter())).then_some(replacements)
    }
}

fn is_first(view: &View) -> bool {
    view.number.0 == view.lineage.founded.0
}
