//! Statements about membership.

use crate::protocol::cluster::view::{Change, View};
use crate::protocol::id::{Lineage, MemberInfo, ProcessId, ViewNumber};
use crate::protocol::vote_claim::VoteClaim;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A proposal number: a round and the proposer. Round 0 belongs to the elder of the view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ballot {
    /// The round. The elder's first proposal has round 0 and needs no `Prepare`.
    pub round: u32,
    /// The proposing process.
    pub process: ProcessId,
}

/// The affiliation of a process, as its hello and its answer to one state it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Affiliation {
    /// The sender is in no view yet.
    Discovery {
        /// The sender's configured seed addresses.
        seeds: BTreeSet<SocketAddr>,
        /// Whether the sender has already agreed to be founded with others.
        bound: bool,
    },
    /// The sender is in a view.
    Member {
        /// The lineage of that view.
        lineage: Lineage,
        /// The number of that view.
        view: ViewNumber,
        /// The elder of that view.
        elder: MemberInfo,
        /// The version of the wire format that the members of that view use.
        version: u16,
        /// Whether the sender's lease runs: some elder then has a quorum.
        led: bool,
        /// Whether a process that starts on the sender's directory would know of that view. `true`
        /// without storage.
        kept: bool,
        /// Whether the sender knows that a quorum of that view's council has the view.
        settled: bool,
    },
    /// The sender is in no view, and has the stored vote of a former process.
    VoteSuccessor {
        /// The claim to that vote.
        claim: VoteClaim,
        /// The lineage of the latest view that the sender knows.
        lineage: Lineage,
        /// The number of that view.
        view: ViewNumber,
    },
}

/// A statement about membership. Notices may be lost: the sender repeats them by timers of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Asks which process is at an address.
    Hello {
        /// The sender.
        me: MemberInfo,
        /// The address that the sender dialled.
        asked: SocketAddr,
        /// The sender's affiliation.
        belonging: Affiliation,
        /// A number that only the process at that address sees; 0 if any process may answer.
        nonce: u64,
    },
    /// The answer to `Hello`.
    HelloReply {
        /// The sender.
        me: MemberInfo,
        /// The address in the `Hello` that this answers.
        asked: SocketAddr,
        /// The sender's affiliation.
        belonging: Affiliation,
        /// The number in the `Hello` that this answers: it proves that the sender is the process
        /// that was asked.
        nonce: u64,
    },
    /// Proposes the first view of a founding.
    ///
    /// ```text
    /// coordinator ->[Found] every seed    every seed ->[FoundOk] coordinator
    /// coordinator ->[FullView] every seed
    /// ```
    Found {
        /// The number of the coordinator's attempt: it rises with each.
        attempt: u32,
        /// The proposed first view. Its first member is the coordinator.
        view: View,
    },
    /// Agrees to a founding: the sender agrees to no other one.
    FoundOk {
        /// The attempt that this answers.
        attempt: u32,
    },
    /// Asks the elder to let a process that is in no view join.
    Join {
        /// The process that wants to join.
        me: MemberInfo,
        /// The view that the process knows of: a much older request is ignored.
        heard: ViewNumber,
    },
    /// The goodbye of a member: it holds nothing, grants nothing and will not vote again.
    Leave,
    /// Shows the elder that a member lives, and asks for a renewal of its lease.
    ///
    /// ```text
    /// M ->[Beat k] E          E ->[Pulse p, renews k] M          (and again)
    /// ```
    Beat {
        /// The sender's view.
        view: ViewNumber,
        /// The number of the beat: it rises. The lease runs from the sending of the beat that is
        /// renewed.
        beat: u64,
        /// The latest pulse of this elder that the sender has. With it the sender promises to vote
        /// for no other elder for one elder lease.
        pulse: u64,
        /// The sender's latest beat that it knows to be renewed.
        confirmed: u64,
        /// Whether a process that starts on the sender's directory would know of that view. `true`
        /// without storage.
        kept: bool,
    },
    /// The elder's answer to a beat.
    Pulse {
        /// The elder's view.
        view: ViewNumber,
        /// The number of the pulse: it rises over all members and views of this elder.
        pulse: u64,
        /// The receiver's beat from which its lease runs; 0 for none.
        renews: u64,
        /// Whether the receiver is to beat again at once: the elder waits for its quorum.
        again: bool,
        /// Whether a quorum of that view's council is known to have the view, on its disks where
        /// there are some. A process without a place in the view may then forget it.
        settled: bool,
    },
    /// States that a process is dead for certain: a member on the same host saw it end.
    Vouch {
        /// The dead process.
        dead: ProcessId,
    },
    /// Asks whether the receiver hears a process that refuses the sender's connections, or that the
    /// sender does not reach. Sent only where a refused connection may count as a death.
    ///
    /// ```text
    /// refused ->[SuspectDead] council ->[SuspectDead] refused: may take it for dead
    ///                         council ->[Alive] refused: it lives
    /// ```
    SuspectDead {
        /// The suspected process.
        process: ProcessId,
    },
    /// The answer to `SuspectDead`: the sender still hears the process.
    Alive {
        /// The suspected process.
        process: ProcessId,
    },
    /// Asks whether the receiver would promise this ballot. The answer binds no voter.
    PreVote {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot that is to follow.
        ballot: Ballot,
        /// The processes that the sender knows to be dead for certain.
        dead: BTreeSet<ProcessId>,
    },
    /// The answer to `PreVote`.
    PreVoteReply {
        /// The view of the `PreVote` that this answers.
        instance: ViewNumber,
        /// The ballot of the `PreVote` that this answers.
        ballot: Ballot,
        /// Whether the sender would promise the ballot.
        willing: bool,
    },
    /// Asks the receiver to promise this ballot, and to report its earlier acceptance.
    Prepare {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot to promise.
        ballot: Ballot,
        /// The processes that the sender knows to be dead for certain.
        dead: BTreeSet<ProcessId>,
    },
    /// The answer to `Prepare`: the sender has promised the ballot.
    Promise {
        /// The view of the `Prepare` that this answers.
        instance: ViewNumber,
        /// The ballot of the `Prepare` that this answers.
        ballot: Ballot,
        /// The sender's acceptance under the highest earlier ballot.
        accepted: Option<(Ballot, Change)>,
    },
    /// Refuses a ballot: the sender has promised a higher one.
    Nack {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot that the sender has promised.
        promised: Ballot,
    },
    /// Asks the receiver to accept a change as the next view.
    Accept {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot of the proposal.
        ballot: Ballot,
        /// The change to the view before it.
        change: Change,
    },
    /// The answer to `Accept`: the sender has accepted the change.
    Accepted {
        /// The view of the `Accept` that this answers.
        instance: ViewNumber,
        /// The ballot of the `Accept` that this answers.
        ballot: Ballot,
    },
    /// The decided change, for members that have the view before it.
    Install {
        /// The lineage of the view.
        lineage: Lineage,
        /// The decided view.
        instance: ViewNumber,
        /// The change to the view before it.
        change: Change,
        /// The nonce of the `Fetch` that this answers; 0 if it answers none.
        nonce: u64,
    },
    /// The stored vote of `voter` does not count: it is older than a vote that this process is
    /// known to have had.
    StaleVote {
        /// The process whose vote is stored.
        voter: ProcessId,
        /// The nonce of the `Hello` that this answers.
        nonce: u64,
    },
    /// A decided view as a whole.
    FullView {
        /// The view.
        view: View,
        /// The nonce of the question that this answers; 0 if it answers none.
        nonce: u64,
    },
    /// Asks for the receiver's view, and tells the sender's.
    Fetch {
        /// The lineage of the requester's view.
        lineage: Lineage,
        /// The number of the requester's view.
        have: ViewNumber,
        /// A nonce, as in `Hello`.
        nonce: u64,
    },
}

impl Notice {
    /// A view that answers no question.
    pub(crate) fn full_view(view: &View) -> Notice {
        Notice::FullView { view: view.clone(), nonce: 0 }
    }
}

impl Notice {
    /// The variant name.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Notice::Hello { .. } => "Hello",
            Notice::HelloReply { .. } => "HelloReply",
            Notice::Found { .. } => "Found",
            Notice::FoundOk { .. } => "FoundOk",
            Notice::Join { .. } => "Join",
            Notice::Leave => "Leave",
            Notice::Beat { .. } => "Beat",
            Notice::Pulse { .. } => "Pulse",
            Notice::Vouch { .. } => "Vouch",
            Notice::SuspectDead { .. } => "SuspectDead",
            Notice::Alive { .. } => "Alive",
            Notice::PreVote { .. } => "PreVote",
            Notice::PreVoteReply { .. } => "PreVoteReply",
            Notice::Prepare { .. } => "Prepare",
            Notice::Promise { .. } => "Promise",
            Notice::Nack { .. } => "Nack",
            Notice::Accept { .. } => "Accept",
            Notice::Accepted { .. } => "Accepted",
            Notice::Install { .. } => "Install",
            Notice::FullView { .. } => "FullView",
            Notice::Fetch { .. } => "Fetch",
            Notice::StaleVote { .. } => "StaleVote",
        }
    }
}
