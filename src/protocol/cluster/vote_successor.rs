//! Votes on disk, and their inheritance.
//!
//! A process with a data directory stores its vote on the next view before any message tells of it.
//! Its vote does not die with it: the next process that starts on the directory is its **vote
//! successor**. That is a new process, holds nothing and is in no view, but it votes as the former
//! process could. So a quorum that restarts meets again, decides the view after the last one, and
//! the lineage goes on. Tokens rise, the former processes stay as ghosts until their leases are
//! surely over, and the vote successors are members.

use super::decision::Acceptor;
use super::view::View;
use crate::protocol::id::{MemberInfo, ProcessId, ViewNumber};
use crate::protocol::message::Ballot;
use crate::protocol::time::Time;
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
    pub voter: ProcessId,
    /// The latest view that it knew. Its vote counts while it is in that view's council.
    pub view: View,
    /// Its promise and its acceptance for the view after that.
    pub(crate) acceptor: Acceptor,
    /// The vote successors that have used the directory since, newest last. A view may have taken
    /// one of them in without its knowledge, so that it never voted there: its vote is inherited
    /// too.
    pub successors: Vec<ProcessId>,
    /// The view is not the first of its lineage, or its process has had a lease in it for as long
    /// as a member lease. So the other founders have it on disk as well.
    pub is_established: bool,
}

/// This many vote successors are remembered. One is forgotten after as many further starts that led
/// to no membership.
const MAX_SUCCESSORS: usize = 16;

impl StoredVote {
    /// Whether it is valid: its view, and the view that would come of its acceptance. Checked on
    /// votes that come from a disk.
    pub fn is_sound(&self) -> bool {
        let accepted = self.acceptor.accepted.as_ref();
        self.view.is_sound() && accepted.is_none_or(|(_, change)| self.view.next(change).is_sound())
    }

    /// Whether this ballot, or a later one, was promised for the view with that number.
    pub fn has_promised(&self, instance: ViewNumber, ballot: Ballot) -> bool {
        self.view.number.next() == instance
            && self.acceptor.promised.is_some_and(|promised| promised >= ballot)
    }

    /// Whether a change was accepted for the view after the stored one.
    pub fn has_accepted(&self) -> bool {
        self.acceptor.accepted.is_some()
    }

    /// The view that comes of the stored acceptance. A candidate that needs this vote has to decide
    /// that view and no other.
    pub fn accepted_view(&self) -> Option<View> {
        self.acceptor.accepted.as_ref().map(|(_, change)| self.view.next(change))
    }

    /// Accepts this change, as the voter itself.
    #[cfg(test)]
    pub(crate) fn accept(&mut self, change: super::view::Change) {
        self.acceptor.accepted =
            Some((crate::protocol::message::Ballot { round: 0, process: self.voter }, change));
    }
}

/// The inherited vote of a vote successor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct VoteSuccessor {
    /// The process whose vote it has.
    pub(crate) voter: ProcessId,
    /// The latest view that it knows of the voter's lineage.
    pub(crate) view: Arc<View>,
    /// The vote successors before this one, and this one.
    pub(crate) successors: Vec<ProcessId>,
    /// The voter may have promised its vote to an elder just before it ended: no other candidate
    /// gets it before this time.
    pub(crate) free_at: Time,
    /// While all other founders of its first view are replaced.
    pub(super) replacements: Option<FounderReplacements>,
    /// See [`StoredVote::is_established`].
    pub(super) is_established: bool,
}

/// The processes that answer in the place of the other founders, and since when these do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FounderReplacements {
    pub(super) processes: BTreeSet<ProcessId>,
    pub(super) since: Time,
}

impl VoteSuccessor {
    /// The vote successor of the process that left `stored`, if that process is still in the view.
    /// A ghost has no vote, but a view that it does not know yet may have given its vote back. An
    /// earlier vote successor also counts: a later view may have taken it in, and it ended before
    /// it knew.
    pub(crate) fn of(stored: &StoredVote, me: ProcessId, now: Time) -> Option<VoteSuccessor> {
        let view = &stored.view;
        let promise = view.timing.surely(view.timing.elder_lease);
        let mut successors = stored.successors.clone();
        successors.drain(..successors.len().saturating_sub(MAX_SUCCESSORS - 1));
        successors.push(me);
        (view.contains(stored.voter) || !stored.successors.is_empty()).then(|| VoteSuccessor {
            voter: stored.voter,
            view: Arc::new(view.clone()),
            successors,
            free_at: now + promise,
            replacements: None,
            is_established: stored.is_established,
        })
    }

    /// Goes on to a later view of the lineage, with the vote of an inherited process that has one
    /// there.
    pub(crate) fn inherit(&mut self, view: View) {
        let spoken_for = || self.successors.iter().rev().chain([&self.voter]).copied();
        let voter = spoken_for().find(|process| view.has_vote(*process));
        self.voter = voter
            .or_else(|| spoken_for().find(|process| view.contains(*process)))
            .unwrap_or(self.voter);
        self.is_established = true;
        self.view = Arc::new(view);
    }

    /// The addresses where the other voters, or their vote successors, may be found.
    pub(crate) fn addrs(&self) -> BTreeSet<SocketAddr> {
        self.view.council().map(|info| info.addr).collect()
    }
}

/// The vote successors of voters, as far as a member or another vote successor has heard in this
/// view.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct VoteSuccessors {
    known: BTreeMap<ProcessId, (MemberInfo, Time)>,
}

impl VoteSuccessors {
    /// `info` claims the vote of `voter`. False if another process, at another address, claims the
    /// same: one of the two has a copy of the other's data directory, and the first stays.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        voter: ProcessId,
        info: &MemberInfo,
        span: Duration,
    ) -> bool {
        let rival = self.known.get(&voter).is_some_and(|(known, at)| {
            known.process != info.process && known.addr != info.addr && *at + span > now
        });
        if !rival {
            self.known.insert(voter, (info.clone(), now));
        }
        !rival
    }

    /// The vote successor of `voter`.
    pub(crate) fn of(&self, voter: ProcessId) -> Option<&MemberInfo> {
        self.known.get(&voter).map(|(info, _)| info)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &MemberInfo> {
        self.known.values().map(|(info, _)| info)
    }

    /// A new view: its voters have other vote successors.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

/// The sender of a notice in the choice of a view: a voter itself, or its vote successor.
#[derive(Clone, Debug)]
pub(crate) struct VoteSender {
    /// The process whose vote it gives.
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
        let me = MemberInfo {
            process: ProcessId(process),
            addr: ([127, 0, 0, 1], PORT).into(),
            host: None,
        };
        let config =
            Config { found_alone: true, durable: true, stored, ..Config::new(me, Timing::fast()) };
        Node::new(config, Time::from_nanos(1))
    }

    /// Runs its timers for twenty seconds.
    fn go_on(node: &mut Node) {
        let end = Time::from_nanos(20_000_000_000);
        while let Some(due) = node.deadline().filter(|due| *due < end) {
            let mut inputs = VecDeque::from([Input::Timer]);
            while let Some(input) = inputs.pop_front() {
                let mut outputs = Vec::new();
                node.step(due, input, &mut outputs);
                // A disk that completes each write at once.
                inputs.extend(outputs.into_iter().filter_map(|output| match output {
                    Output::Store { number, .. } => Some(Input::Stored { number }),
                    _ => None,
                }));
            }
        }
    }

    /// Votes that are read from a disk are checked there, but a core has to stand an unchecked one.
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
