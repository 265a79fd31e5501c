//! Votes on disk, and their inheritance.
//!
//! A process with a data directory stores its vote on the next view before any message tells of it.
//! Its vote does not die with it: the next process that starts on the directory is its **vote
//! successor**. That is a new process, holds nothing and is in no view, but it votes as the former
//! process could. So a quorum that restarts meets again, decides the view after the last one, and
//! continues the lineage. Tokens rise, the former processes stay as ghosts until their leases are
//! surely over, and the vote successors are members.

use super::decision::Acceptor;
use super::view::View;
use crate::protocol::id::{MemberInfo, ProcessId, ViewNumber};
use crate::protocol::message::Ballot;
use crate::protocol::time::Time;
use crate::protocol::vote_claim::VoteClaim;
use crate::protocol::vote_key::{VoteProof, VoteSecret};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The vote of a process on disk: enough for its vote successor to vote in its place, and never
/// differently.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StoredVote {
    /// The process that gave the vote.
    pub voter: StoredVoter,
    /// The latest view that the process knew. Its vote counts while it is in that view's council.
    pub view: View,
    /// The promise and the acceptance for the view after that.
    pub(crate) acceptor: Acceptor,
    /// The vote successors that have used the directory since, newest last. A view may have taken
    /// one of them in without its knowledge, so that it never voted there: its vote is inherited
    /// too.
    pub successors: Vec<StoredVoter>,
    /// Whether the other founders have the view on disk as well. That is so if the view is not the
    /// first of its lineage. It is also so if the process has had a lease in it for as long as a
    /// member lease.
    pub is_established: bool,
}

/// A process whose vote is on disk, and the secret with which its vote is claimed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct StoredVoter {
    /// The process.
    pub process: ProcessId,
    /// The secret that the process drew at its start.
    pub secret: VoteSecret,
}

/// The most remembered vote successors. One is forgotten after as many further starts that led to
/// no membership.
const MAX_SUCCESSORS: usize = 16;

impl StoredVote {
    /// Returns whether the stored vote is valid: its view, and the view that would result from its
    /// acceptance. Votes from a disk are checked by this.
    pub fn is_sound(&self) -> bool {
        let accepted = self.acceptor.accepted.as_ref();
        self.view.is_sound() && accepted.is_none_or(|(_, change)| self.view.next(change).is_sound())
    }

    /// Returns whether this ballot, or a later one, was promised for the view with that number.
    pub fn has_promised(&self, instance: ViewNumber, ballot: Ballot) -> bool {
        self.view.number.next() == instance
            && self.acceptor.promised.is_some_and(|promised| promised >= ballot)
    }

    /// Returns whether a change was accepted for the view after the stored one.
    pub fn has_accepted(&self) -> bool {
        self.acceptor.accepted.is_some()
    }

    /// The view that results from the stored acceptance. A candidate that needs this vote must
    /// decide that view and no other.
    pub fn accepted_view(&self) -> Option<View> {
        self.acceptor.accepted.as_ref().map(|(_, change)| self.view.next(change))
    }

    /// Accepts this change in the voter's place.
    #[cfg(test)]
    pub(crate) fn accept(&mut self, change: super::view::Change) {
        self.acceptor.accepted = Some((
            crate::protocol::message::Ballot { round: 0, process: self.voter.process },
            change,
        ));
    }
}

/// The inherited vote of a vote successor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct VoteSuccessor {
    /// The process whose vote is inherited.
    pub(super) voter: StoredVoter,
    /// The claim to that vote, which other processes get.
    pub(super) claim: VoteClaim,
    /// The latest known view of the voter's lineage.
    pub(crate) view: Arc<View>,
    /// The vote successors up to this process.
    pub(super) successors: Vec<StoredVoter>,
    /// The voter may have promised its vote to an elder just before it ended: no other candidate
    /// gets the vote before this time.
    pub(crate) free_at: Time,
    /// Set while all other founders of the first view are replaced.
    pub(super) replacements: Option<FounderReplacements>,
    /// See [`StoredVote::is_established`].
    pub(super) is_established: bool,
}

/// The processes that answer in the place of the other founders, and the time since which they do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FounderReplacements {
    pub(super) processes: BTreeSet<ProcessId>,
    pub(super) since: Time,
}

impl VoteSuccessor {
    /// The vote successor of the process that left `stored`, if that process is still in the view.
    /// A ghost has no vote, but a view that this process does not know yet may have revived the
    /// ghost. An earlier vote successor also counts: a later view may have taken it in, and it
    /// ended before it knew. `own`: this process, if it stores its votes.
    pub(crate) fn of(
        stored: &StoredVote,
        me: &MemberInfo,
        own: Option<StoredVoter>,
        now: Time,
    ) -> Option<VoteSuccessor> {
        let (view, voter) = (&stored.view, &stored.voter);
        let promise = view.timing.surely(view.timing.elder_lease);
        let mut successors = stored.successors.clone();
        successors.drain(..successors.len().saturating_sub(MAX_SUCCESSORS - 1));
        successors.extend(own);
        (view.contains(voter.process) || !stored.successors.is_empty()).then(|| VoteSuccessor {
            voter: voter.clone(),
            claim: VoteClaim::new(&voter.secret, voter.process, view.lineage, me),
            view: Arc::new(view.clone()),
            successors,
            free_at: now + promise,
            replacements: None,
            is_established: stored.is_established,
        })
    }

    /// Continues with a later view of the lineage, with the vote of an inherited process that has
    /// one there.
    pub(crate) fn inherit(&mut self, view: View, me: &MemberInfo) {
        let spoken_for = || self.successors.iter().rev().chain([&self.voter]);
        let voter = spoken_for().find(|voter| view.has_vote(voter.process));
        let voter = voter.or_else(|| spoken_for().find(|voter| view.contains(voter.process)));
        if let Some(voter) = voter.cloned() {
            self.voter = voter;
        }
        let StoredVoter { process, secret } = &self.voter;
        self.claim = VoteClaim::new(secret, *process, view.lineage, me);
        self.is_established = true;
        self.view = Arc::new(view);
    }

    /// The addresses where the other voters, or their vote successors, may be found.
    pub(crate) fn addrs(&self) -> BTreeSet<SocketAddr> {
        self.view.council().map(|info| info.addr).collect()
    }
}

/// A vote successor that has proven its claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct KnownSuccessor {
    info: MemberInfo,
    proof: VoteProof,
    heard_at: Time,
}

/// The vote successors of voters, as far as a member or another vote successor knows them in this
/// view.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct VoteSuccessors {
    known: BTreeMap<ProcessId, KnownSuccessor>,
}

impl VoteSuccessors {
    /// Returns whether this process has made this claim before in this view.
    pub(crate) fn is_known(&self, claim: &VoteClaim, info: &MemberInfo) -> bool {
        let known = self.known.get(&claim.voter);
        known.is_some_and(|known| known.info == *info && known.proof == claim.proof)
    }

    /// Notes that `info` claims a vote, and has proven that. Returns `false` if another process, at
    /// another address, claims the same vote. One of the two then has a copy of the other's data
    /// directory, and the first stays.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        claim: &VoteClaim,
        info: &MemberInfo,
        span: Duration,
    ) -> bool {
        let rival = self.known.get(&claim.voter).is_some_and(|known| {
            known.info.process != info.process
                && known.info.addr != info.addr
                && known.heard_at + span > now
        });
        if !rival {
            let proof = claim.proof.clone();
            let known = KnownSuccessor { info: info.clone(), proof, heard_at: now };
            self.known.insert(claim.voter, known);
        }
        !rival
    }

    /// The vote successor of `voter`.
    pub(crate) fn of(&self, voter: ProcessId) -> Option<&MemberInfo> {
        self.known.get(&voter).map(|known| &known.info)
    }

    /// All known vote successors.
    pub(crate) fn all(&self) -> impl Iterator<Item = &MemberInfo> {
        self.known.values().map(|known| &known.info)
    }

    /// Forgets all of them for a new view: its voters have other vote successors.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

/// The sender of a notice in the choice of a view: a voter itself, or its vote successor.
#[derive(Clone, Debug)]
pub(crate) struct VoteSender {
    /// The process whose vote the sender gives.
    pub(crate) vote: ProcessId,
    /// The sending process, and the address at which answers reach it.
    pub(crate) process: ProcessId,
    pub(crate) addr: SocketAddr,
    /// The sender, if it is a vote successor.
    pub(crate) successor: Option<MemberInfo>,
}

#[cfg(test)]
mod tests {
    use super::super::super::event::{Config, Input, Output};
    use super::super::super::node::Node;
    use super::super::super::timing::Timing;
    use super::super::view::Change;
    use super::*;
    use std::collections::VecDeque;

    const PORT: u16 = 7400;

    fn lone(process: u128, stored: Option<StoredVote>) -> Node {
        let me = MemberInfo::new(ProcessId(process), ([127, 0, 0, 1], PORT).into());
        let vote_secret = Some(secret(process));
        let config = Config { vote_secret, stored, ..Config::new(me, Timing::fast()) };
        Node::new(Config { found_alone: true, ..config }, Time::from_nanos(1))
    }

    fn secret(process: u128) -> VoteSecret {
        VoteSecret::new([process as u8; 32])
    }

    /// Runs the node's timers for twenty seconds.
    fn go_on(node: &mut Node) {
        let end = Time::from_nanos(20_000_000_000);
        while let Some(due) = node.deadline().filter(|due| *due < end) {
            let mut inputs = VecDeque::from([Input::Timer]);
            while let Some(input) = inputs.pop_front() {
                let mut outputs = Vec::new();
                node.step(due, input, &mut outputs);
                // The disk completes each write at once.
                inputs.extend(outputs.into_iter().filter_map(|output| match output {
                    Output::Store { number, .. } => Some(Input::Stored { number }),
                    _ => None,
                }));
            }
        }
    }

    /// A later view took an earlier vote successor in, and its vote is claimed with its own secret.
    #[test]
    fn an_inherited_vote_is_claimed_with_the_secret_of_its_process() {
        let info = |process: u128| MemberInfo {
            vote_key: Some(secret(process).key()),
            ..MemberInfo::new(ProcessId(process), ([127, 0, 0, 1], PORT).into())
        };
        let mut founder = lone(7, None);
        go_on(&mut founder);
        let stored = founder.stored_vote().expect("it has founded");
        assert_eq!(stored.voter, StoredVoter { process: ProcessId(7), secret: secret(7) });
        let first = stored.view.clone();

        // The second of two vote successors, of which the first has joined.
        let successor = lone(8, Some(stored)).stored_vote().expect("it has a vote");
        assert_eq!(
            successor.successors,
            [StoredVoter { process: ProcessId(8), secret: secret(8) }]
        );
        let me = info(9);
        let own = StoredVoter { process: me.process, secret: secret(9) };
        let now = Time::from_nanos(1);
        let mut vote = VoteSuccessor::of(&successor, &me, Some(own), now).expect("it has a vote");
        let is_of = |vote: &VoteSuccessor, process: u128| {
            vote.claim.voter == ProcessId(process)
                && vote.claim.is_proven(&secret(process).key(), vote.view.lineage, &me)
        };
        assert!(is_of(&vote, 7) && !is_of(&vote, 8));
        let change = Change {
            remove: [ProcessId(7)].into(),
            join: vec![info(8)],
            promote: [ProcessId(8)].into(),
            ..Change::default()
        };
        vote.inherit(first.next(&change), &me);
        assert!(is_of(&vote, 8) && !is_of(&vote, 7));
        // The next process on the directory has the same vote, and none of the secrets is lost.
        let kept: Vec<_> = vote.successors.iter().map(|voter| voter.process.0).collect();
        assert_eq!((vote.voter.process.0, kept), (8, vec![8, 9]));
    }

    /// Votes from a disk are checked when they are read, but a core must withstand an unchecked
    /// one.
    #[test]
    fn a_vote_successor_makes_no_empty_view_of_an_acceptance() {
        let mut founder = lone(7, None);
        go_on(&mut founder);
        let mut stored = founder.stored_vote().expect("it has founded");
        let sound = stored.view.clone();

        let mut successor = lone(8, Some(stored.clone()));
        go_on(&mut successor);
        let after = successor.stored_vote().expect("it has a vote").view;
        assert!(
            after.number > sound.number && after.contains(ProcessId(8)),
            "alone it is a quorum, and goes on"
        );

        stored.accept(Change { remove: [ProcessId(7)].into(), ..Change::default() });
        assert!(!stored.is_sound());
        let mut successor = lone(8, Some(stored));
        go_on(&mut successor);
        assert_eq!(successor.stored_vote().expect("it has a vote").view, sound);
    }
}
