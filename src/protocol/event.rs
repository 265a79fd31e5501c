//! The core's inputs and outputs, as data.

use super::cluster::view::View;
use super::cluster::vote_successor::StoredVote;
use super::content::Content;
use super::content::Edit;
use super::id::{
    Epoch, Lineage, LockName, MemberInfo, MemberName, Metadata, ProcessId, RequestId, ServiceName,
    Slot, Token, ViewNumber, Want,
};
use super::limits::Limits;
use super::message::{
    ForceOrder, HoldState, HolderInfo, LockRequest, Packet, Query, QueryReply, WaiterInfo,
};
use super::time::Time;
use super::timing::Timing;
use super::versioned::Since;
use super::vote_key::VoteSecret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

/// The configuration of a [`Node`](super::Node).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// This process, as other members see it.
    pub me: MemberInfo,
    /// The timing for a founding. A joiner adopts the cluster's.
    pub timing: Timing,
    /// The council size for a founding. A joiner adopts the cluster's.
    pub council_size: u8,
    /// Every address of every seed. Members whose own address is among them found the cluster
    /// together.
    pub seeds: BTreeSet<SocketAddr>,
    /// Whether this process founds alone, now, regardless of the seeds.
    pub found_alone: bool,
    /// Whether an operator forces this start. The process listens first, and joins nothing. Then it
    /// founds alone, above the last view that it knew. If a cluster with an elder answers, the
    /// process ends.
    pub forced_start: bool,
    /// The least number of founders: this process takes part in no founding of fewer members,
    /// except with `found_alone`.
    pub expect: usize,
    /// The time of this machine's wall clock when the node begins. It advances as the node's own
    /// clock does.
    pub clock: Slot,
    /// A view founded by this process begins above this slot, regardless of the clock.
    pub found_above: Slot,
    /// The view that expelled this process's earlier incarnation, if there was one. This process
    /// may be the last that knows that view, and sends it to members that do not know it.
    pub remembered: Option<View>,
    /// Set if this process stores its votes: 32 random bytes, drawn for it alone. Its key is in the
    /// information of the process. No message tells of a vote before [`Input::Stored`] confirms its
    /// [`Output::Store`].
    pub vote_secret: Option<VoteSecret>,
    /// The stored vote of a former process, if there is one: this process is then its vote
    /// successor.
    pub stored: Option<StoredVote>,
    /// More addresses at which the cluster may be found, known for certain.
    pub contacts: BTreeSet<SocketAddr>,
    /// Whether the operator vouches that a process whose address refuses connections is dead. Two
    /// members must be refused.
    pub trust_refused: bool,
    /// Whether an operator may end holds of this process that are not revocable.
    pub forced_revokes: bool,
    /// Set where connections are not authenticated: a number that no other process can guess. An
    /// answer with it comes from the address that was asked. `None`: each process that reaches this
    /// one has the cluster key, so its statements about views need no such proof.
    pub nonce: Option<NonZeroU64>,
    /// How much the node keeps, and how much it sends at a time.
    pub limits: Limits,
    /// A planted break, to prove that the checks can fail.
    #[cfg(elderlock_mutants)]
    pub mutant: Option<super::mutant::ProtocolMutant>,
}

impl Config {
    /// A configuration that founds a council of seven, knows no seeds and stores nothing. Tests and
    /// drivers set the differences.
    pub fn new(me: MemberInfo, timing: Timing) -> Config {
        Config {
            me,
            timing,
            council_size: 7,
            seeds: BTreeSet::new(),
            found_alone: false,
            forced_start: false,
            expect: 1,
            clock: Slot(0),
            found_above: Slot(0),
            remembered: None,
            vote_secret: None,
            stored: None,
            contacts: BTreeSet::new(),
            trust_refused: false,
            forced_revokes: false,
            nonce: None,
            limits: Limits::default(),
            #[cfg(elderlock_mutants)]
            mutant: None,
        }
    }

    /// Sets the secret for the process's vote, and its key in the information of the process.
    pub(crate) fn set_vote_secret(&mut self, secret: Option<VoteSecret>) {
        self.me.vote_key = secret.as_ref().map(VoteSecret::key);
        self.vote_secret = secret;
    }

    /// Returns whether the process stores its votes.
    pub(crate) fn is_durable(&self) -> bool {
        self.vote_secret.is_some()
    }

    /// The latest view that this process, or a former process on its directory, knew before this
    /// incarnation.
    pub(crate) fn last_view(&self) -> Option<&View> {
        let stored = self.stored.as_ref().map(|stored| &stored.view);
        stored.into_iter().chain(&self.remembered).max_by_key(|view| view.number)
    }

    /// The seeds that found together. A process that knew a cluster founds nothing without itself
    /// among them: that cluster may live on.
    pub(crate) fn founding_seeds(&self) -> BTreeSet<SocketAddr> {
        let mut seeds = self.seeds.clone();
        if self.last_view().is_some() {
            seeds.remove(&self.me.addr);
        }
        seeds
    }

    /// Returns whether an answer from this address is a proof. The address is configured, or was a
    /// voter's in the last view that this process knew. One notice makes any process a learner.
    pub(crate) fn knows(&self, addr: SocketAddr) -> bool {
        self.seeds.contains(&addr)
            || self.contacts.contains(&addr)
            || !planted!(self.mutant, ForgetRememberedVoters)
                && self
                    .last_view()
                    .into_iter()
                    .flat_map(View::voter_addrs)
                    .any(|known| known == addr)
    }

    /// The addresses of members that this process knew.
    pub(crate) fn known_addrs(&self) -> BTreeSet<SocketAddr> {
        let members = self
            .last_view()
            .into_iter()
            .flat_map(|view| &view.members)
            .map(|member| member.info.addr);
        members.chain(self.contacts.iter().copied()).collect()
    }
}

/// An input of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// A packet arrived from a process at the other end of a connection.
    Received {
        /// The process that the handshake named.
        from: ProcessId,
        /// The address at which answers reach that process.
        addr: SocketAddr,
        /// The packet.
        packet: Packet,
    },
    /// A command of the application.
    Command(Command),
    /// A report from outside the protocol. It starts or speeds up a decision and never is one
    /// (except `Dead`).
    Hint(Hint),
    /// The deadline was reached, or may have been.
    Timer,
    /// The write with this number, and so each before it, is durable.
    Stored {
        /// The number of the [`Output::Store`].
        number: u64,
    },
    /// The write with this number failed: the disk has an earlier vote, or this vote. The node asks
    /// for the write again.
    StoreFailed {
        /// The number of the [`Output::Store`].
        number: u64,
    },
}

/// A command of the application.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Get a lock. Exactly one [`Output::Answer`] follows, unless `Release` comes first.
    Lock {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
        /// The names, the owner and the options of the request.
        lock: LockRequest,
        /// The kind of the wait.
        wait: Wait,
        /// How long the hold lasts unless extended, from receipt of the grant; `None`: until
        /// released or lost.
        lease: Option<Duration>,
        /// Whether the request is answered `Deadlock` when it waits in a circle of owners. Its
        /// owner is not the whole member then.
        detects: bool,
        /// Whether this member may keep the lock after its release, see
        /// docs/protocol/kept-locks.md.
        keeps: bool,
        /// Whether this member asks to become the grantor of the service if it makes most of its
        /// requests, see docs/protocol/load.md.
        follows: bool,
    },
    /// End the request, whether it waits or holds. Unknown requests are ignored. No answer follows.
    Release {
        /// The request.
        request: RequestId,
    },
    /// Let the hold end no earlier than `lease` from now. Answered `Extended` or `NotHeld`.
    Extend {
        /// The request that holds.
        request: RequestId,
        /// The time from now to the earliest end of the hold.
        lease: Duration,
    },
    /// Continue with less: a share in place of the lock, or fewer permits. Answered `Reduced` or
    /// `NotHeld`.
    Reduce {
        /// The request of the hold.
        request: RequestId,
        /// The want of the hold afterwards.
        want: Want,
    },
    /// Turn the share of a request into the lock, if no other request has a share. Answered
    /// `Upgraded`, `Shared`, `NotHeld`, or `Undecided` without an answer in time, unless `Release`
    /// of this request comes first.
    Upgrade {
        /// A number never used before in this process.
        request: RequestId,
        /// The request of the hold.
        hold: RequestId,
    },
    /// Write into an object that a request has open. Answered `Written`, `Unwritten` or `NotOpen`,
    /// unless `Release` of this request comes first: then the write may be made nevertheless.
    Write {
        /// A number never used before in this process.
        request: RequestId,
        /// The request that has the object open.
        open: RequestId,
        /// The edit.
        edit: Edit,
    },
    /// Become the grantor of the service. Answered `Won` or `Outbid`, or at the limit
    /// `TimedOut`, unless `Release` comes first; this member may become the grantor even after
    /// that.
    Become {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
        /// The longest wait; `Try` counts as `AtMost` the time for an answer.
        wait: Wait,
    },
    /// End all that this member has of the service: its waits are answered `Closed`, its holds are
    /// lost, and its grantor role is transferred. Answered `Destroyed` when the grantor knows, and
    /// `Unconfirmed` if it does not after one member lease.
    Destroy {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
    },
    /// Have the service's grantor confirm the end of a request, or how much is left of a hold that
    /// was reduced. Answered `Confirmed`, or `Unconfirmed` if no grantor confirms within one member
    /// lease, unless `Release` of this request comes first.
    Confirm {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
        /// The request that is over, or was reduced.
        over: RequestId,
    },
    /// Ask the service's grantor. Answered `QueryReply`, or `Undecided` without an answer in time.
    Query {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
        /// The question.
        at: Query,
    },
    /// Ask a holder's member about a hold. Answered `Holder`, or `Undecided` without an answer in
    /// time, unless `Release` of this request comes first.
    AskHolder {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
        /// The hold.
        holder: HolderInfo,
    },
    /// Request a hold back. Answered `RevocationRequested`, `Revoked` or `HolderNotTold`, or at the
    /// limit `Undecided`, unless `Release` comes first.
    Revoke {
        /// A number never used before in this process.
        request: RequestId,
        /// The service.
        service: ServiceName,
        /// The question to the holders, or the forced release of one hold.
        what: RevokeCommand,
        /// The longest wait; `Try` counts as `AtMost` one member lease.
        wait: Wait,
    },
    /// New addresses of the seeds, after their names were resolved again.
    Seeds(BTreeSet<SocketAddr>),
    /// Say goodbye. All holds and waits end; [`Event::Left`] follows.
    Leave,
    /// The operator declares that every process that does not answer is dead for ever: continue
    /// without a quorum, as a new lineage. [`Event::Forced`] follows; a member whose lease runs
    /// ignores the command.
    Force,
}

#[cfg(feature = "tokio")]
impl Command {
    /// Gives a request the number `number`.
    pub(crate) fn number(&mut self, number: RequestId) {
        match self {
            Command::Lock { request, .. }
            | Command::Release { request }
            | Command::Extend { request, .. }
            | Command::Reduce { request, .. }
            | Command::Upgrade { request, .. }
            | Command::Write { request, .. }
            | Command::Become { request, .. }
            | Command::Destroy { request, .. }
            | Command::Confirm { request, .. }
            | Command::Query { request, .. }
            | Command::AskHolder { request, .. }
            | Command::Revoke { request, .. } => *request = number,
            Command::Seeds(_) | Command::Leave | Command::Force => {}
        }
    }
}

/// How long a request waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wait {
    /// Do not queue; do not wait for recovery or an elder either.
    Try,
    /// The request waits at most this long.
    AtMost(Duration),
    /// The request waits without a limit.
    Forever,
}

/// The demand to the holder, and the holders that it is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RevokeCommand {
    /// Tell every holder of the request.
    Ask {
        /// The lock; `None`: the suspension.
        name: Option<LockName>,
        /// The requester's metadata.
        metadata: Metadata,
    },
    /// Revoke exactly this hold, if its holder has been told.
    Take(HolderInfo),
    /// End exactly this hold, revocable or not, if its member allows it. Answered as `Take`, or
    /// `ForceNotAllowed`.
    Force(HolderInfo, ForceOrder),
}

/// A report from outside the protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Hint {
    /// Gossip or an operator knows a process at this address. In discovery it gets a hello.
    Contact(SocketAddr),
    /// Gossip calls the process down, or a stream to it broke or cannot be opened.
    Unreachable(ProcessId),
    /// The address of the process refuses connections.
    Refused(ProcessId),
    /// Another process answers at the address of the process. The process may have started anew, or
    /// packets reach another host.
    Replaced(ProcessId),
    /// The process was on this process's host and has certainly ended.
    Dead(ProcessId),
    /// A connection to the process was opened (again).
    Connected(ProcessId),
}

/// An output of a node. Outputs are executed in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// Send a packet. Best effort.
    Send {
        /// The address.
        to: SocketAddr,
        /// The receiving process: drop the packet if another process answers there. `None`: any
        /// process at the address.
        process: Option<ProcessId>,
        /// The packet.
        packet: Packet,
    },
    /// The answer to a `Lock` or `Extend`.
    Answer {
        /// The request.
        request: RequestId,
        /// The result of the request.
        outcome: Outcome,
    },
    /// An object that was answered `Opened` has a new content.
    Value {
        /// The request that has the object open.
        request: RequestId,
        /// The content.
        content: Content,
    },
    /// A hold that was answered `Granted`, or an object that was answered `Opened`, has ended other
    /// than by `Release`.
    Lost {
        /// The request of the hold.
        request: RequestId,
        /// The reason of the loss.
        reason: LostReason,
        /// The service of the hold, for the log.
        service: ServiceName,
        /// The names of the hold, for the log.
        want: Want,
    },
    /// Another member requests the release of a hold that was answered `Granted`.
    RevocationRequested {
        /// The request of the hold.
        request: RequestId,
        /// The request for the hold's release.
        by: RevocationRequest,
    },
    /// A change that the application should know.
    Event(Event),
    /// Store this vote durably in place of the vote before. The answer is [`Input::Stored`] or
    /// [`Input::StoreFailed`], at any later time. Until then the node sends nothing that tells of
    /// this vote. A later write may replace one that has not begun.
    Store {
        /// The number of the write. It rises with each write.
        number: u64,
        /// The vote to store.
        vote: Box<StoredVote>,
    },
}

/// The end of a request, or its grant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Granted. The hold ends at `until` by this member's clock unless extended.
    Granted {
        /// The fencing token.
        token: Token,
        /// The end of the hold's lease; [`Time::MAX`] without one.
        until: Time,
    },
    /// An object is open, until released or lost.
    Opened {
        /// The token of the request.
        token: Token,
        /// The content.
        content: Content,
    },
    /// The object was written.
    Written {
        /// The version that the write made.
        version: Token,
        /// The number that a step made; `None` for a set value.
        number: Option<i32>,
    },
    /// The object was not written: it has another version than the expected one, or the number edit
    /// is refused.
    Unwritten(Content),
    /// This member does not have the object open. If it closed the object after the request, a
    /// write may have been made.
    NotOpen,
    /// The hold continues with less.
    Reduced,
    /// The share became the lock.
    Upgraded {
        /// The request of the hold.
        hold: RequestId,
        /// The new token of the hold.
        token: Token,
    },
    /// Other holders have a share of the lock; this is their number.
    Shared(u64),
    /// `Try`: no member has a permit, and the limit is below the requested number.
    Limit(u32),
    /// The wait limit was reached.
    TimedOut,
    /// `Try`: this holder has the lock.
    Held(HolderInfo),
    /// `Try`: other requests wait for this lock, or to suspend the service.
    Waited(Option<LockName>),
    /// `Try`, or a query: no grantor can answer at the moment.
    Undecided,
    /// The suspension would wait for another one that waits for this request's owner. Or the
    /// request waited in a circle of owners, and detects circles.
    Deadlock,
    /// This member is the grantor and acts.
    Won,
    /// Another member is the grantor instead, or is about to be.
    Outbid(ProcessId),
    /// The service is destroyed here, and its grantor has nothing left of this member.
    Destroyed,
    /// The service is destroyed, or a request is over, here, but no grantor has confirmed that in
    /// time.
    Unconfirmed,
    /// The grantor knows that the request is over, or how much is left of it.
    Confirmed,
    /// The grantor's answer.
    QueryReply(QueryReply),
    /// Each holder has been told, or its hold is not revocable. Holders that released meanwhile are
    /// left out.
    RevocationRequested {
        /// The holders that have been told.
        told: Vec<HolderInfo>,
        /// The holders whose hold is not revocable.
        not_revocable: Vec<HolderInfo>,
        /// The number of further holders that were not contacted.
        not_asked: u64,
    },
    /// The hold is revoked.
    Revoked,
    /// The hold is not revoked: its holder has not been told of the revocation.
    HolderNotTold,
    /// Too many requests or bytes wait already: no message was sent.
    Busy,
    /// The member was expelled or left.
    Closed(LostReason),
    /// The hold is extended.
    Extended {
        /// The new end, by this member's clock.
        until: Time,
    },
    /// The request holds nothing, or holds nothing any more.
    NotHeld,
    /// The answer of the holder's member.
    Holder(HoldState),
    /// The hold was not ended: its member allows no forced revokes.
    ForceNotAllowed,
}

/// Why a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease of the lock ran out.
    LeaseEnded,
    /// The lease of the member ran out: no elder with a quorum renewed it in time.
    Suspended,
    /// The cluster continues without this member.
    Expelled,
    /// Another hold of the same lock has a higher token.
    Superseded,
    /// The member left.
    Left,
    /// The service was destroyed at this member.
    Destroyed,
    /// The hold was revoked, after the holder had been told of the revocation. Or an operator
    /// ended it by force, at a member that allows
    /// [forced revokes](crate::MemberBuilder::forced_revokes).
    Revoked,
    /// The holder released the hold. Only watchers of another's hold get this reason.
    Released,
    /// This process is a `fork` copy of the process that has the hold. Join after the fork.
    Forked,
    /// The program for which this member held the lock did not keep its
    /// [session](crate::hold_through), or stopped because the lock was not confirmed any more.
    SessionEnded,
}

impl LostReason {
    /// The reason as metrics and logs have it, such as `lease_ended`.
    pub fn word(self) -> &'static str {
        match self {
            LostReason::LeaseEnded => "lease_ended",
            LostReason::Suspended => "suspended",
            LostReason::Expelled => "expelled",
            LostReason::Superseded => "superseded",
            LostReason::Left => "left",
            LostReason::Destroyed => "destroyed",
            LostReason::Revoked => "revoked",
            LostReason::Released => "released",
            LostReason::Forked => "forked",
            LostReason::SessionEnded => "session_ended",
        }
    }
}

/// A request for the release of a revocable hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
#[non_exhaustive]
pub struct RevocationRequest {
    /// The requesting process.
    pub process: ProcessId,
    /// The metadata of the request.
    pub metadata: Metadata,
}

/// A change in a member's state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A new view.
    ViewInstalled(View),
    /// This member is the elder of the view, and its predecessor is not.
    BecameElder(ViewNumber),
    /// This member grants the locks of the service from now on.
    BecameGrantor {
        /// The service.
        service: ServiceName,
        /// The new epoch.
        epoch: Epoch,
    },
    /// This member no longer grants the locks of the service. Sent once for each time that it
    /// [began](Event::BecameGrantor) to grant them.
    NoLongerGrantor {
        /// The service.
        service: ServiceName,
        /// The epoch that ended.
        epoch: Epoch,
    },
    /// This member has learned that another one grants the locks of the service, in an epoch that
    /// it did not know.
    FoundGrantor {
        /// The service.
        service: ServiceName,
        /// The epoch of the grantor.
        epoch: Epoch,
        /// The grantor.
        process: ProcessId,
    },
    /// This member makes most of the service's requests, and has asked the elder to become its
    /// grantor.
    FollowsLoad {
        /// The service.
        service: ServiceName,
    },
    /// This member was named, but the epoch ended before this member granted anything in it.
    GrantorAborted {
        /// The service.
        service: ServiceName,
        /// The epoch that ended.
        epoch: Epoch,
    },
    /// The elder dealt more tokens to a grantor here.
    Supplied {
        /// The service.
        service: ServiceName,
        /// The epoch of that grantor.
        epoch: Epoch,
        /// The first of the tokens.
        first: Token,
    },
    /// The member lease ran out: every hold is lost and this member grants nothing.
    Suspended,
    /// The member lease runs, for the first time or again.
    Resumed,
    /// A later view leaves this process out. It must draw a new process id and start again.
    Expelled,
    /// This member has left, as the program asked.
    Left {
        /// Whether the other members know. True if a view without this member is decided, if no
        /// member is left for its goodbye, or if it never knew of its membership. Otherwise they
        /// find out when its lease is surely over.
        heard: bool,
    },
    /// The founding failed. The process must draw a new process id and start again.
    Abandoned,
    /// Another process has this process id: a copy of a cloned or restored machine. This process
    /// ends, as [`Expelled`](Event::Expelled) reports; the other one continues.
    IdentityTaken,
    /// A process claimed the vote of a member without a proof. The claim had no effect.
    VoteClaimRefused {
        /// The process whose vote was claimed.
        voter: ProcessId,
        /// The process that sent the claim.
        from: ProcessId,
    },
    /// The grantor of a service here has no room for waits that a member reported. That member
    /// requests them again.
    WaitsLeftOut {
        /// The service.
        service: ServiceName,
        /// The member that reported them.
        member: ProcessId,
        /// The number of waits in this part of the report.
        count: usize,
    },
    /// The grantor of a service here received a table with more than a grantor keeps. It dropped
    /// the table, and asks every member.
    TableRefused {
        /// The service.
        service: ServiceName,
        /// The member that sent the table.
        from: ProcessId,
    },
    /// This member of another lineage greeted or answered this one: two clusters of one name run.
    /// This member stays in its own lineage.
    OtherLineage(Box<LedMember>),
    /// The cluster's slots are more than an hour above this machine's clock: one of the two clocks
    /// is wrong, and this process takes no part.
    WrongClock {
        /// The slot of the cluster.
        theirs: Slot,
        /// The slot of this machine's clock.
        ours: Slot,
    },
    /// This member has had no quorum for three member leases. It grants and holds nothing until
    /// enough other members are back, or an operator forces it.
    Orphaned,
    /// An operator has ended a hold of this member by force. The loss of the hold follows.
    ForcedRevoke {
        /// The service.
        service: ServiceName,
        /// The want of the hold.
        want: Want,
        /// The token of the hold.
        token: Token,
        /// The member that carried out the order.
        by: ProcessId,
        /// The order.
        order: ForceOrder,
    },
    /// An operator forced the member to continue without a quorum. It must draw a new process id
    /// and start again, and will found a new lineage.
    Forced,
    /// An operator forced the start of this process, and this member of a cluster with an elder
    /// answered. The process has founded and joined nothing, and ends.
    ForceRefused(Box<LedMember>),
}

/// A member whose lease runs, as it states itself: its cluster has an elder with a quorum.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LedMember {
    /// The member.
    pub info: MemberInfo,
    /// The lineage of its view.
    pub lineage: Lineage,
    /// The number of its view.
    pub view: ViewNumber,
    /// The elder of its view.
    pub elder: MemberInfo,
}

/// The state of a cluster at one node, for people and tools.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The process that gives the status.
    pub me: MemberInfo,
    /// The view, if the process is in one.
    pub view: Option<View>,
    /// The elder of that view.
    pub elder: Option<ProcessId>,
    /// Whether the member lease runs, by a trusted clock.
    pub leased: bool,
    /// The services that the member uses or grants.
    pub services: Vec<ServiceStatus>,
    /// The number of further services, which are not listed: an answer to a process outside is cut.
    pub more_services: usize,
    /// Members that some hint calls unreachable.
    pub suspected: Vec<ProcessId>,
}

impl Status {
    /// The name of the member with this process id, if it is this member or in its view.
    pub fn member_name(&self, process: ProcessId) -> Option<&MemberName> {
        if self.me.process == process {
            return Some(&self.me.name);
        }
        Some(&self.view.as_ref()?.member(process)?.info.name)
    }
}

/// The sizes of all that a node keeps: finished work must leave nothing behind. At rest all sizes
/// but the first are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sizes {
    /// Links to other members.
    pub links: usize,
    /// Messages that are not acknowledged.
    pub unacknowledged: usize,
    /// Messages that arrived ahead of their turn.
    pub ahead: usize,
    /// Links with a timer.
    pub link_timers: usize,
    /// Processes that are also reached by detours.
    pub detours: usize,
    /// Requests of this member.
    pub requests: usize,
    /// Timers of requests.
    pub request_timers: usize,
    /// Requests of other members for an epoch that this member does not know yet.
    pub early: usize,
    /// Queue positions that are not reported yet.
    pub positions: usize,
    /// Requests and locks of the grantors here, and the entries that they keep while they recover.
    pub granting: usize,
    /// Members that a hint calls unreachable.
    pub suspected: usize,
    /// A decision that this member proposes.
    pub proposals: usize,
}

/// The load of an acting grantor, and how it began to act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantorLoad {
    /// The grantor's epoch.
    pub epoch: Epoch,
    /// Holding requests in its table: a batch counts once, and so does a suspension.
    pub holds: usize,
    /// Waiting requests in its table.
    pub waits: usize,
    /// The grantor's last state before it acted, and the time since which it was in that state.
    /// `None`: it acted as soon as it was named.
    pub way: Option<(GrantorState, Time)>,
}

/// The end of a page of a [`Status`]: this service, or this entry within the service's locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StatusMark {
    pub(crate) service: ServiceName,
    pub(crate) lock: Option<Option<LockName>>,
}

impl Status {
    /// Appends the services of the next page.
    pub(crate) fn go_on(&mut self, page: Vec<ServiceStatus>) {
        for service in page {
            match self.services.last_mut().filter(|last| last.service == service.service) {
                Some(last) => last.locks.extend(service.locks),
                None => self.services.push(service),
            }
        }
    }
}

/// One service at one member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// The service.
    pub service: ServiceName,
    /// The grantor, as far as the member knows.
    pub grantor: Option<ProcessId>,
    /// The epoch of that grantor.
    pub epoch: Option<Epoch>,
    /// The state of the grantor, if the member is the grantor.
    pub granting: Option<GrantorState>,
    /// Locks that are held or waited for (only at the grantor).
    pub locks: Vec<LockStatus>,
    /// The number of further locks, which are not listed: an answer to a process outside is cut.
    pub more_locks: usize,
    /// The number of waiting requests of this member.
    pub waiting_here: usize,
    /// The number of holds of this member.
    pub held_here: usize,
    /// The number of objects that this member has open.
    pub open_here: usize,
    /// The number of locks that this member keeps, in use or free. A lock that is kept free is held
    /// for this member at the grantor. 0 for a member below version 13.
    #[serde(with = "Since::<13>")]
    pub kept_here: usize,
    /// The number of kept locks in use.
    #[serde(with = "Since::<13>")]
    pub kept_in_use_here: usize,
}

impl ServiceStatus {
    /// The status of a service of which nothing is known yet.
    pub(crate) fn new(service: &ServiceName) -> ServiceStatus {
        ServiceStatus {
            service: service.clone(),
            grantor: None,
            epoch: None,
            granting: None,
            locks: Vec::new(),
            more_locks: 0,
            waiting_here: 0,
            held_here: 0,
            open_here: 0,
            kept_here: 0,
            kept_in_use_here: 0,
        }
    }
}

/// The state of a grantor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum GrantorState {
    /// The grantor waits for the table of its predecessor.
    Receiving,
    /// The grantor waits for that table to pass it on: a younger turk asked for it.
    PassingOn,
    /// The grantor asks every member before it grants.
    Recovering,
    /// The grantor grants requests.
    Acting,
}

/// One lock at its grantor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockStatus {
    /// The lock; `None`: the suspension of the whole service.
    pub name: Option<LockName>,
    /// The holder. Of many shares or permits one holder.
    pub holder: Option<HolderInfo>,
    /// The number of holders.
    pub holder_count: usize,
    /// The number of members that have the object of that name open.
    pub opener_count: usize,
    /// The number of waiters.
    pub waiter_count: usize,
    /// The first waiter.
    pub next: Option<WaiterInfo>,
    /// How long the present grantor has known of the first waiter. `None`: no request waits, or
    /// another member gave the status, since messages do not carry these times.
    #[serde(skip)]
    pub next_waits: Option<Duration>,
}
