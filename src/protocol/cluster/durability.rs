//! Votes on their way to disk, and the work that waits for them.
//!
//! A vote is stored before any message tells of it. The protocol asks for the write
//! ([`Output::Store`]) and continues. Messages that tell of the vote wait here until the write is
//! confirmed ([`Input::Stored`](crate::protocol::Input::Stored)):
//!
//! ```text
//!            a vote changes                     Stored n
//! kept ----------------------------> writing n ----------> kept: waiting work up to n runs
//!                                      |   ^
//!                          StoreFailed |   | after a while, or when the vote changes again
//!                                      v   |
//!                                   voteless: no candidate, no pre-vote; beats, holds, grants
//! ```
//!
//! Each write replaces the one before, so the confirmation of one confirms all before it. Waiting
//! work is dropped when the instance of its vote is over, and members that need it ask again:
//! nothing waits for ever.

use super::decision::Acceptor;
use super::view::{Change, View};
use super::vote_successor::{StoredVote, StoredVoter};
use crate::protocol::event::Output;
use crate::protocol::id::ProcessId;
use crate::protocol::message::{Ballot, Notice};
use crate::protocol::time::Time;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// The work to do when a vote is stored.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AfterStore {
    /// The answer to a question of another voter.
    Answer {
        /// The address of the other voter.
        addr: SocketAddr,
        /// The other voter.
        to: ProcessId,
        /// The answer.
        notice: Box<Notice>,
    },
    /// The process's own promise counts.
    Promised {
        /// The ballot that got the promise.
        ballot: Ballot,
        /// The earlier acceptance.
        accepted: Option<(Ballot, Change)>,
    },
    /// The process's own acceptance counts.
    Accepted {
        /// The ballot of the acceptance.
        ballot: Ballot,
    },
    /// A process that reported a view without itself gets the confirmation that the view is known
    /// here.
    Known {
        /// The address of that process.
        addr: SocketAddr,
        /// The process that reported the view.
        informant: ProcessId,
    },
    /// The first view of a founder that is a quorum alone is installed.
    Founded(View),
}

/// The writes of one process.
///
/// Two values that differ only in the numbers of their writes are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct VoteDurability {
    /// The vote of the latest write, which may be under way.
    newest: Option<Box<StoredVote>>,
    /// The number of the latest requested write.
    asked: u64,
    /// The number of the latest confirmed write. All earlier writes are confirmed too.
    confirmed: u64,
    /// The first write that has the present view.
    view_since: u64,
    /// The waiting work, with the number of its write, in order.
    waiting: VecDeque<(u64, AfterStore)>,
    /// Whether the latest completed write failed.
    failing: bool,
    /// The time at which a failed write is tried again.
    again_at: Option<Time>,
}

impl PartialEq for VoteDurability {
    fn eq(&self, other: &VoteDurability) -> bool {
        self.parts() == other.parts() && self.waiting().eq(other.waiting())
    }
}

impl Eq for VoteDurability {}

impl Hash for VoteDurability {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
        self.waiting().for_each(|waiting| waiting.hash(state));
    }
}

impl VoteDurability {
    /// The state without the waiting work. Numbers count from the last confirmed write.
    fn parts(&self) -> impl PartialEq + Hash {
        let unconfirmed =
            [self.asked, self.view_since].map(|number| number.saturating_sub(self.confirmed));
        (&self.newest, unconfirmed, [self.is_first(), self.failing], self.again_at)
    }

    fn waiting(&self) -> impl Iterator<Item = (u64, &AfterStore)> {
        self.waiting
            .iter()
            .map(|(number, telling)| (number.saturating_sub(self.confirmed), telling))
    }

    /// Requests the write of the vote, unless it is on disk or on its way. Returns the number of
    /// its write.
    pub(crate) fn put(&mut self, vote: StoredVote, out: &mut Vec<Output>) -> u64 {
        if self.newest.as_deref() != Some(&vote) {
            self.newest = Some(Box::new(vote));
            self.write(out);
        }
        self.asked
    }

    fn write(&mut self, out: &mut Vec<Output>) {
        if let Some(vote) = &self.newest {
            self.asked += 1;
            self.again_at = None;
            out.push(Output::Store { number: self.asked, vote: vote.clone() });
        }
    }

    /// Returns whether the write with this number is confirmed.
    pub(crate) fn has(&self, number: u64) -> bool {
        number <= self.confirmed
    }

    /// Adds work that waits for a write. The same work waits only once.
    pub(crate) fn wait(&mut self, number: u64, telling: AfterStore) {
        if !self.waiting.iter().any(|(_, waiting)| *waiting == telling) {
            self.waiting.push_back((number, telling));
        }
    }

    /// Notes that a write is confirmed, and with it all before it.
    pub(crate) fn on_stored(&mut self, number: u64) {
        self.confirmed = self.confirmed.max(number.min(self.asked));
        if self.confirmed == self.asked {
            self.failing = false;
            self.again_at = None;
        }
    }

    /// Notes that a write failed. The disk has the vote of an earlier write, or of this one.
    pub(crate) fn on_failed(&mut self, number: u64, again_at: Time) {
        if number == self.asked && !self.has(number) {
            self.failing = true;
            self.again_at = Some(again_at);
        }
    }

    /// Tries a failed write again if it is time.
    pub(crate) fn on_timer(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.write(out);
        }
    }

    /// Returns the time at which a failed write is tried again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.again_at
    }

    /// Takes the next work whose write is confirmed.
    pub(crate) fn next(&mut self) -> Option<AfterStore> {
        match self.waiting.front() {
            Some((number, _)) if self.has(*number) => {
                self.waiting.pop_front().map(|(_, telling)| telling)
            }
            _ => None,
        }
    }

    /// Ends the instance: work that waited for its votes is obsolete.
    pub(crate) fn end_instance(&mut self) {
        self.waiting.clear();
    }

    /// Notes that the present view is in this write.
    pub(crate) fn has_view_since(&mut self, number: u64) {
        self.view_since = number;
    }

    /// Returns whether the present view is on disk.
    pub(crate) fn is_view_kept(&self) -> bool {
        self.has(self.view_since)
    }

    /// Returns whether this process's first write is under way, and nothing is on disk yet.
    pub(crate) fn is_first(&self) -> bool {
        self.asked > 0 && self.confirmed == 0
    }

    /// Returns whether the latest completed write failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing
    }
}

/// The vote of a founder before its first view.
pub(crate) fn founding_vote(voter: StoredVoter, view: &View) -> StoredVote {
    StoredVote {
        voter,
        view: view.clone(),
        acceptor: Acceptor::default(),
        successors: Vec::new(),
        is_established: false,
    }
}
