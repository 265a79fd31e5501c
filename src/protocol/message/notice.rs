//! Statements about membership.

use crate::protocol::cluster::view::{Change, View};
use crate::protocol::id::{Lineage, MemberInfo, ProcessId, ViewNumber};
use crate::protocol::vote_claim::VoteClaim;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A proposal number: a round, then the proposer. Round 0 belongs to the elder of the view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ballot {
    /// 0 for the elder's first proposal, which needs no question first.
    pub round: u32,
    /// The proposing process.
    pub process: ProcessId,
}

/// The affiliation of a process, as it answers a hello.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Affiliation {
    /// The sender is in no view yet. `bound`: it has agreed to be founded with others.
    Discovery {
        /// The seed addresses it was configured with.
        seeds: BTreeSet<SocketAddr>,
        /// Whether it has already agreed to a founding.
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
        /// The version of the wire that its members speak.
        version: u16,
        /// Whether the answering member's lease runs: some elder has a quorum.
        led: bool,
        /// Whether a process that starts on its directory would know of that view. True without
        /// storage.
        kept: bool,
        /// Whether the answering member knows that a quorum of the view's council has the view.
        settled: bool,
    },
    /// The sender is in no view, and has the stored vote of a former process.
    VoteSuccessor {
        /// The vote that it has.
        claim: VoteClaim,
        /// The lineage of the latest view that it knows.
        lineage: Lineage,
        /// The number of that view.
        view: ViewNumber,
    },
}

/// A statement about membership. Its sender sends a lost one again by timers of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Asks which process is there. `asked` is the address that the sender dialled.
    Hello {
        /// The sender.
        me: MemberInfo,
        /// The address it dialled.
        asked: SocketAddr,
        /// The sender's affiliation.
        belonging: Affiliation,
        /// A number that only the process at that address sees; 0 where it may be any process.
        nonce: u64,
    },
    /// The answer to `Hello`.
    HelloReply {
        /// The sender.
        me: MemberInfo,
        /// The address in the question.
        asked: SocketAddr,
        /// The sender's affiliation.
        belonging: Affiliation,
        /// As in the question: it shows that the sender is the process that was asked.
        nonce: u64,
    },
    /// Founding: proposes the first view.
    ///
    /// ```text
    /// coordinator ->[Found] every seed    every seed ->[FoundOk] coordinator
    /// coordinator ->[FullView] every seed
    /// ```
    Found {
        /// Rises with each attempt of one coordinator.
        attempt: u32,
        /// The proposed first view. Its first member is the coordinator.
        view: View,
    },
    /// Yes: the sender agrees to no other founding.
    FoundOk {
        /// The attempt it answers.
        attempt: u32,
    },
    /// A process that is in no view asks the elder to be taken in.
    Join {
        /// The process.
        me: MemberInfo,
        /// The view it has heard of: a much older request does not count.
        heard: ViewNumber,
    },
    /// A member says goodbye: it holds nothing, grants nothing and will not vote again.
    Leave,
    /// A member shows itself to the elder and asks for a renewal.
    ///
    /// ```text
    /// M ->[Beat k] E          E ->[Pulse p, renews k] M          (and again)
    /// ```
    Beat {
        /// The sender's view.
        view: ViewNumber,
        /// Counts up; the lease runs from the sending of the beat that is renewed.
        beat: u64,
        /// The latest pulse it has from this elder: a promise not to vote for another for one elder
        /// lease.
        pulse: u64,
        /// The latest of its beats that it knows to be renewed.
        confirmed: u64,
        /// Whether a process that starts on its directory would know of that view. True without
        /// storage.
        kept: bool,
    },
    /// The elder answers.
    Pulse {
        /// The elder's view.
        view: ViewNumber,
        /// Counts up over all members and views of this elder.
        pulse: u64,
        /// The beat of the receiver from which its lease runs; 0 for none.
        renews: u64,
        /// Beat again at once: the elder waits for its quorum.
        again: bool,
        /// A quorum of that view's council is known to have that view, on its disks where there
        /// are some. A process without a place in it may forget it.
        settled: bool,
    },
    /// The process is dead for sure: a member on the same host saw it end.
    Vouch {
        /// The dead process.
        dead: ProcessId,
    },
    /// The process refuses the sender's connections, or the sender does not reach it. The sender
    /// asks whether the receiver hears it. Sent only where a refused connection may count as a
    /// death.
    ///
    /// ```text
    /// refused ->[SuspectDead] council ->[SuspectDead] refused: may take it for dead
    ///                         council ->[Alive] refused: it lives
    /// ```
    SuspectDead {
        /// The process.
        process: ProcessId,
    },
    /// The answer to `SuspectDead`: the sender has heard the process since.
    Alive {
        /// The process.
        process: ProcessId,
    },
    /// Asks whether the receiver would promise this ballot. Binds no voter.
    PreVote {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot that would follow.
        ballot: Ballot,
        /// The processes that the sender knows to be dead for sure.
        dead: BTreeSet<ProcessId>,
    },
    /// The answer to `PreVote`.
    PreVoteReply {
        /// The view of the `PreVote` that this answers.
        instance: ViewNumber,
        /// The ballot of the `PreVote` that this answers.
        ballot: Ballot,
        /// Whether it would.
        willing: bool,
    },
    /// Asks the receiver to promise this ballot, and to report its earlier acceptance.
    Prepare {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot to promise.
        ballot: Ballot,
        /// The processes that the sender knows to be dead for sure.
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
    /// Refused: a higher ballot is promised.
    Nack {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot promised.
        promised: Ballot,
    },
    /// Accept this as the next view.
    Accept {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot of the message.
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
    /// Decided, for members that have the view before it.
    Install {
        /// The lineage.
        lineage: Lineage,
        /// The decided view.
        instance: ViewNumber,
        /// The change that makes it.
        change: Change,
        /// As in `Fetch`, if it answers one; otherwise 0.
        nonce: u64,
    },
    /// The stored vote of `voter` is older than a vote that this process is known to have had: it
    /// does not count.
    StaleVote {
        /// The process whose vote it is.
        voter: ProcessId,
        /// The nonce of the `Hello` that it answers.
        nonce: u64,
    },
    /// Decided, whole.
    FullView {
        /// The view.
        view: View,
        /// The nonce of the question that it answers; otherwise 0.
        nonce: u64,
    },
    /// Send me your view; mine is this.
    Fetch {
        /// The lineage of the requester's view.
        lineage: Lineage,
        /// Its number.
        have: ViewNumber,
        /// A nonce, as in `Hello`.
        nonce: u64,
    },
}

impl Notice {
    /// A view that is sent without a question.
    pub(crate) fn full_view(view: &View) -> Notice {
        Notice::FullView { view: view.clone(), nonce: 0 }
    }
}

impl Notice {
    /// The name of its variant.
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
