//! The decision of the next view: single-decree consensus, one instance for each view.
//!
//! ```text
//! elder      ->[Accept 0] council   council ->[Accepted] elder      elder ->[Install] everyone
//! candidate  ->[PreVote] council    council ->[PreVoteReply] candidate
//!            ->[Prepare] council    council ->[Promise]  candidate
//!            ->[Accept]  council    council ->[Accepted] candidate  candidate ->[Install] everyone
//! ```
//! The acceptors of instance n+1 are the council of view n; a quorum is more than half of its
//! weight. The pre-vote binds no voter. It keeps a member that alone cannot hear the elder from
//! invalidating the elder's ballot.

use super::view::{Change, View};
use crate::protocol::id::{MemberInfo, ProcessId, ViewNumber};
use crate::protocol::message::{Ballot, Notice};
use crate::protocol::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One member's vote in the open instance. It is dropped only when a later view is installed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Acceptor {
    /// The highest ballot promised or accepted.
    pub(crate) promised: Option<Ballot>,
    /// The acceptance under the highest ballot.
    pub(crate) accepted: Option<(Ballot, Change)>,
    /// Whether a candidate other than the elder had this vote once. For the rest of this instance
    /// the member confirms no pulse of the elder. Another view may be decided already that the
    /// elder does not know.
    pub(crate) is_bound: bool,
}

impl Acceptor {
    pub(crate) fn on_prepare(
        &mut self,
        elder: ProcessId,
        instance: ViewNumber,
        ballot: Ballot,
    ) -> Notice {
        match self.promised {
            Some(promised) if promised > ballot => Notice::Nack { instance, promised },
            _ => {
                self.promised = Some(ballot);
                self.is_bound |= ballot.process != elder;
                Notice::Promise { instance, ballot, accepted: self.accepted.clone() }
            }
        }
    }

    pub(crate) fn on_accept(
        &mut self,
        elder: ProcessId,
        instance: ViewNumber,
        ballot: Ballot,
        change: &Change,
    ) -> Notice {
        match self.promised {
            Some(promised) if promised > ballot => Notice::Nack { instance, promised },
            _ => {
                self.promised = Some(ballot);
                self.is_bound |= ballot.process != elder;
                self.accepted = Some((ballot, change.clone()));
                Notice::Accepted { instance, ballot }
            }
        }
    }
}

/// The phase of a proposal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ProposalPhase {
    /// The pre-vote: the voters are asked whether they would promise.
    PreVoting {
        /// The willing voters.
        willing: BTreeSet<ProcessId>,
    },
    /// The voters are asked for promises.
    Preparing {
        /// The voters that promised, with their earlier acceptances.
        promises: BTreeMap<ProcessId, Option<(Ballot, Change)>>,
        /// The time at which a quorum had promised. The other voters get a short grace to answer.
        quorum_at: Option<Time>,
    },
    /// The voters are asked to accept.
    Accepting {
        /// The proposed change.
        change: Change,
        /// The voters that accepted.
        accepted: BTreeSet<ProcessId>,
    },
}

/// A proposal of this member for the next view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Proposal {
    /// The ballot of the proposal.
    pub(crate) ballot: Ballot,
    /// The phase of the proposal.
    pub(crate) phase: ProposalPhase,
    /// The time at which the proposal's question is repeated.
    pub(crate) again_at: Time,
    /// The vote successors that promised in the place of a voter, by that voter.
    pub(crate) successors: BTreeMap<ProcessId, MemberInfo>,
}

impl Proposal {
    pub(crate) fn new(ballot: Ballot, phase: ProposalPhase, again_at: Time) -> Proposal {
        Proposal { ballot, phase, again_at, successors: BTreeMap::new() }
    }

    /// The question for the council.
    pub(crate) fn question(&self, instance: ViewNumber, dead: &BTreeSet<ProcessId>) -> Notice {
        let ballot = self.ballot;
        match &self.phase {
            ProposalPhase::PreVoting { .. } => {
                Notice::PreVote { instance, ballot, dead: dead.clone() }
            }
            ProposalPhase::Preparing { .. } => {
                Notice::Prepare { instance, ballot, dead: dead.clone() }
            }
            ProposalPhase::Accepting { change, .. } => {
                Notice::Accept { instance, ballot, change: change.clone() }
            }
        }
    }

    /// The members of the council that have not answered yet.
    pub(crate) fn silent(&self, view: &View) -> Vec<ProcessId> {
        let answered = |process: &ProcessId| match &self.phase {
            ProposalPhase::PreVoting { willing } => willing.contains(process),
            ProposalPhase::Preparing { promises, .. } => promises.contains_key(process),
            ProposalPhase::Accepting { accepted, .. } => accepted.contains(process),
        };
        view.council().map(|info| info.process).filter(|process| !answered(process)).collect()
    }
}

/// The change that a candidate with these promises must or may propose.
///
/// An earlier acceptance must be completed. Otherwise council members that did not answer
/// themselves become ghosts, and members known to be dead are removed. Vote successors join, in the
/// order of their voters. So the elder of the next view has answered in this very round.
pub(crate) fn choose(
    view: &View,
    promises: &BTreeMap<ProcessId, Option<(Ballot, Change)>>,
    successors: &BTreeMap<ProcessId, MemberInfo>,
    dead: &BTreeSet<ProcessId>,
) -> Change {
    let accepted = promises.values().flatten().max_by_key(|(ballot, _)| *ballot);
    if let Some((_, change)) = accepted {
        return change.clone();
    }
    let is_present =
        |process: &ProcessId| promises.contains_key(process) && !successors.contains_key(process);
    let remove: BTreeSet<ProcessId> = dead
        .iter()
        .copied()
        .filter(|process| view.contains(*process) && !is_present(process))
        .collect();
    // If only vote successors answered, no member of the view was heard. So no member may be elder
    // of the next view.
    let is_led = view.council().any(|info| is_present(&info.process));
    let asked = view.council().count();
    let ghost = view
        .living()
        .take(if is_led { asked } else { usize::MAX })
        .map(|member| member.info.process)
        .filter(|process| !is_present(process) && !remove.contains(process))
        .collect();
    let join = view.council().filter_map(|info| successors.get(&info.process)).cloned();
    let join: Vec<MemberInfo> = join.filter(|info| view.is_spoken_by(info)).collect();
    let promote = join.iter().map(|info| info.process).collect();
    Change { remove, ghost, join, promote, takeover: true, ..Change::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acceptance_binds_the_vote_also_without_the_question_before_it() {
        let (elder, candidate) = (ProcessId(1), ProcessId(2));
        let instance = ViewNumber(3);
        let mut acceptor = Acceptor::default();
        acceptor.on_accept(
            elder,
            instance,
            Ballot { round: 0, process: elder },
            &Change::default(),
        );
        assert!(!acceptor.is_bound);
        acceptor.on_accept(
            elder,
            instance,
            Ballot { round: 1, process: candidate },
            &Change::default(),
        );
        assert!(acceptor.is_bound);
    }
}
