//! The table of contents of the protocol: everything that members say to each other.
//!
//! Two kinds. A [`Notice`] is sent once, may be lost, doubled or late, and its sender has a timer of its own that
//! says it again: everything about membership. A [`Message`] travels on a link (`link.rs`), which delivers it
//! exactly once and in order as long as both processes live: everything about locks.

use super::edit::Edit;
use super::id::{
    Epoch, Lineage, LockName, MemberInfo, Metadata, Mode, OwnerId, ProcessId, RequestId, ServiceName, Slot, Ticket,
    Token, Value, ViewNumber, Want,
};
use super::view::{Change, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// What goes over a connection in one frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Packet {
    /// Unreliable.
    Notice(Box<Notice>),
    /// The `seq`-th message of the sender to the receiver.
    Linked {
        /// The sender's view: the receiver fetches it first if it is newer than its own.
        view: ViewNumber,
        /// Counts from 1 for each pair of processes.
        seq: u64,
        /// All messages of the other direction up to this one have arrived.
        ack: u64,
        /// The message.
        message: Message,
    },
    /// An acknowledgement alone.
    Ack {
        /// The sender's view.
        view: ViewNumber,
        /// All messages up to this one have arrived.
        ack: u64,
        /// Send the rest again now: something was missed.
        again: bool,
    },
    /// From `from` to `to` through the receiver, for pairs that cannot reach each other.
    Relay {
        /// Who speaks.
        from: Box<MemberInfo>,
        /// To whom.
        to: ProcessId,
        /// Whether the speaker has trouble with the straight way itself, and wants answers by a detour too. Those
        /// answers do not, or two members would keep each other on detours for ever.
        troubled: bool,
        /// The member through which the speaker lately heard the other: what goes through it arrives.
        heard: Option<ProcessId>,
        /// What. Never itself a relay.
        packet: Box<Packet>,
    },
    /// A notice that asks for votes or gives one, by the heir of a voter in its place.
    VoteSuccessor {
        /// The process whose vote it is.
        voter: ProcessId,
        /// The heir.
        me: Box<MemberInfo>,
        /// The lineage of the latest view that it knows.
        lineage: Lineage,
        /// What it says.
        notice: Box<Notice>,
    },
}

/// A proposal number: a round, then the proposer. Round 0 belongs to the elder of the view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ballot {
    /// 0 for the elder's first proposal, which needs no question first.
    pub round: u32,
    /// Who proposes.
    pub process: ProcessId,
}

/// What a process belongs to, as it tells whoever says hello.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Affiliation {
    /// In no view yet. `bound`: it has agreed to be founded with others.
    Discovery {
        /// The seed addresses it was configured with.
        seeds: BTreeSet<SocketAddr>,
        /// Whether it has already agreed to a founding.
        bound: bool,
    },
    /// In a view.
    Member {
        /// The lineage of that view.
        lineage: Lineage,
        /// Its number.
        view: ViewNumber,
        /// Its elder.
        elder: MemberInfo,
        /// Whether the answering member's lease is running: somebody leads.
        led: bool,
        /// Whether a process that starts on its directory would know of that view. True where nothing is kept.
        kept: bool,
    },
    /// In no view, with the stored vote of a former process.
    VoteSuccessor {
        /// The process whose vote it is.
        voter: ProcessId,
        /// The lineage of the latest view that it knows.
        lineage: Lineage,
        /// The number of that view.
        view: ViewNumber,
    },
}

/// Said of membership; lost ones are said again by their sender's own timers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Who is there? `asked` is the address that the sender dialled.
    Hello {
        /// The sender.
        me: MemberInfo,
        /// The address it dialled.
        asked: SocketAddr,
        /// What it belongs to.
        belonging: Affiliation,
    },
    /// The answer.
    HelloReply {
        /// The sender.
        me: MemberInfo,
        /// As in the question.
        asked: SocketAddr,
        /// What it belongs to.
        belonging: Affiliation,
    },
    /// Founding: shall this be the first view?
    ///
    /// ```text
    /// coordinator ->[Found] every seed     every seed ->[FoundOk] coordinator     coordinator ->[FullView] every seed
    /// ```
    Found {
        /// Rises with each attempt of one coordinator.
        attempt: u32,
        /// The proposed first view. Its first member is the coordinator.
        view: View,
    },
    /// Yes: the sender will not be founded with anybody else.
    FoundOk {
        /// The attempt it answers.
        attempt: u32,
    },
    /// A process that is in no view asks the elder to be taken in.
    Join {
        /// The process.
        me: MemberInfo,
        /// The view it has heard of: a request that is much older is worth nothing.
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
        /// The latest pulse it has from this elder: a promise not to vote for another for one elder lease.
        pulse: u64,
        /// The latest of its beats of which it knows that it was renewed.
        confirmed: u64,
        /// Whether a process that starts on its directory would know of that view. True where nothing is kept.
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
    },
    /// The process is dead for sure: a member on the same host saw it end.
    Vouch {
        /// The dead process.
        dead: ProcessId,
    },
    /// The sender is refused by the process, or does not reach it, and asks whether the receiver hears it. Said where
    /// a refused connection may count as a death.
    ///
    /// ```text
    /// refused ->[SuspectDead] council ->[SuspectDead] refused, who may take it for dead  or council ->[Alive] refused
    /// ```
    SuspectDead {
        /// The process.
        process: ProcessId,
    },
    /// The answer to a doubt: the sender has heard the process since.
    Alive {
        /// The process.
        process: ProcessId,
    },
    /// Would you promise this ballot? Binds nobody.
    PreVote {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot that would follow.
        ballot: Ballot,
        /// Whom the sender knows to be dead for sure.
        dead: BTreeSet<ProcessId>,
    },
    /// The answer to a canvass.
    PreVoteReply {
        /// As asked.
        instance: ViewNumber,
        /// As asked.
        ballot: Ballot,
        /// Whether it would.
        willing: bool,
    },
    /// Promise this ballot, and say what you accepted before.
    Prepare {
        /// The view to be decided.
        instance: ViewNumber,
        /// The ballot to promise.
        ballot: Ballot,
        /// Whom the sender knows to be dead for sure.
        dead: BTreeSet<ProcessId>,
    },
    /// Promised.
    Promise {
        /// As asked.
        instance: ViewNumber,
        /// As asked.
        ballot: Ballot,
        /// What the sender accepted under the highest earlier ballot.
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
        /// Under this ballot.
        ballot: Ballot,
        /// The change to the view before it.
        change: Change,
    },
    /// Accepted.
    Accepted {
        /// As asked.
        instance: ViewNumber,
        /// As asked.
        ballot: Ballot,
    },
    /// Decided, for those who have the view before it.
    Install {
        /// The lineage.
        lineage: Lineage,
        /// The decided view.
        instance: ViewNumber,
        /// The change that makes it.
        change: Change,
    },
    /// The stored vote of `voter` is older than what that process is known to have had: it counts for nothing.
    StaleVote {
        /// The process whose vote it is.
        voter: ProcessId,
    },
    /// Decided, whole.
    FullView(View),
    /// Send me your view; mine is this.
    Fetch {
        /// The lineage of the asker's view.
        lineage: Lineage,
        /// Its number.
        have: ViewNumber,
    },
}

/// A range of tokens dealt by the elder, ends included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TokenRange {
    /// The first token.
    pub first: Token,
    /// The last token.
    pub last: Token,
}

impl TokenRange {
    /// The one after so many others of the range.
    pub fn nth(&self, number: u64) -> Option<Token> {
        (number < self.len()).then(|| self.first.plus(number))
    }

    /// How many tokens it has.
    pub fn len(&self) -> u64 {
        (self.last.get() - self.first.get()).saturating_add(1)
    }

    /// Whether it has none, which no range is.
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// What every range must be; checked on those that come from outside.
    pub fn is_sound(&self) -> bool {
        self.first <= self.last && self.first.slot() >= Slot(1) && self.last.slot() <= Slot::MAX
    }
}

/// A hold as its member reports it to a recovering grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HoldReport {
    /// The request that was granted.
    pub request: RequestId,
    /// What it wanted.
    pub want: Want,
    /// On whose behalf.
    pub owner: OwnerId,
    /// The token of the grant; of a batch, that of its first lock.
    pub token: Token,
    /// How long it has held.
    pub held_for: Duration,
    /// Whether it may be wanted back.
    pub revocable: bool,
    /// What the holder says of itself.
    pub metadata: Metadata,
}

/// A wait as its member reports it to a recovering grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct WaitReport {
    /// The request.
    pub request: RequestId,
    /// What it wants.
    pub want: Want,
    /// On whose behalf.
    pub owner: OwnerId,
    /// Its place, if one was acknowledged.
    pub ticket: Option<Ticket>,
    /// Whether it may be wanted back once it is granted.
    pub revocable: bool,
    /// What the holder-to-be says of itself.
    pub metadata: Metadata,
}

/// What an object has to tell, whole: who knows a version knows of every write that led to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Content {
    /// Its value.
    pub value: Value,
    /// The token with which that was written. Rises with each write.
    pub version: Token,
    /// A grantor died since it was written: what was written last may be lost with it.
    pub maybe_stale: bool,
    /// The last write of each member that has it open: none is made twice.
    pub writes: BTreeMap<ProcessId, LastWrite>,
}

/// The last write of a member into an object. If it is asked for again, this is its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LastWrite {
    /// The writer's number for it.
    pub request: RequestId,
    /// The version that it made.
    pub version: Token,
    /// Of a step: the number that it made. The value may be a later one by now.
    pub number: Option<i32>,
}

impl Content {
    /// About how many bytes it takes on its way.
    pub(crate) fn weight(&self, name: &LockName) -> usize {
        48 + name.as_bytes().len() + self.value.as_bytes().len() + 48 * self.writes.len()
    }
}

/// What the grantor of an object answers, beside what the object has to tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ObjectReply {
    /// It is open, with this token for the request.
    Opened(Token),
    /// It was written.
    Written {
        /// As this version.
        version: Token,
        /// Of a step: the number that it made.
        number: Option<i32>,
    },
    /// It was not written: its version is another than the expected one, or there is no such step from its number.
    Unwritten,
}

/// Who holds a lock, for those who are refused it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The lock; `None`: it has suspended the whole service.
    pub name: Option<LockName>,
    /// The holder's process.
    pub process: ProcessId,
    /// Its token.
    pub token: Token,
    /// How it holds it.
    pub mode: Mode,
    /// Whether it may be [wanted back](crate::LockBuilder::revocable).
    pub revocable: bool,
    /// What it says of itself.
    pub metadata: Metadata,
    /// How long it has held, by the grantor's clock.
    pub held_for: Duration,
}

/// A request as its grantor sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Whose it is.
    pub process: ProcessId,
    /// What it says of itself.
    pub metadata: Metadata,
    /// What it waits for.
    pub mode: Mode,
}

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// It did not want to wait, and this stands in its way.
    Held(HolderInfo),
    /// It did not want to wait, and others were there first: they wait for this lock, or to suspend the service.
    Waited(Option<LockName>),
    /// It did not want to wait, and the grantor cannot say yet.
    Undecided,
    /// Its owner holds something and wants to suspend the service, and so does another that holds something and was
    /// there first: each would wait for the other for ever.
    Deadlock,
    /// It wants permits of an object that its member has not open.
    NotOpen,
    /// It did not want to wait, nobody has a permit, and this limit is too low for it.
    Limit(u32),
    /// A share that is to become the lock: so many others have a share too.
    Shared(u64),
}

/// A question to a grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Query {
    /// Who holds a lock, and who waits for it?
    Lock(LockName),
    /// Who has suspended the service, and who waits for that?
    Suspension,
    /// How many are before this request of the asker?
    Place(RequestId),
    /// Which locks are held, in the order of their names, after this one?
    Held(Option<LockName>),
    /// Who waits for a lock, after this one?
    Waiting(LockName, Option<QueuePosition>),
}

/// Where a request stands among all that wait for the grants of one grantor.
pub type QueuePosition = (Ticket, ProcessId, RequestId);

/// The answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum QueryReply {
    /// A lock or the suspension.
    Lock {
        /// The first who have it: many shares, or permits, but one lock or suspension.
        holders: Vec<HolderInfo>,
        /// How many more have it.
        more_holders: u64,
        /// How many permits they have together; none of a lock.
        permits: u64,
        /// The object of that name, if somebody has it open.
        content: Option<Content>,
        /// How many members have it open.
        openers: u64,
        /// The first who wait, in their order.
        waiters: Vec<WaiterInfo>,
        /// How many more wait.
        more: u64,
    },
    /// A place.
    Place {
        /// Requests that go first: of a lock those before it in its queue, of a batch those in the longest of its queues, of
        /// a suspension all earlier ones that wait.
        before: u64,
        /// Holds that have to end first.
        holds: u64,
        /// Whoever has suspended the service, or waits to before this one.
        suspension: Option<WaiterInfo>,
    },
    /// Holders, in the order of the names.
    Held {
        /// Some of them.
        holders: Vec<HolderInfo>,
        /// Whether there are no more.
        last: bool,
    },
    /// Waiters, in their order.
    Waiting {
        /// Some of them.
        waiters: Vec<WaiterInfo>,
        /// Where the last of these stands, if more follow.
        last: Option<QueuePosition>,
    },
    /// The request is not known, or holds already.
    Unknown,
    /// The grantor does not act yet.
    Undecided,
}

/// What a named grantor begins with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// Nobody holds anything.
    Free,
    /// Somebody may hold: ask everyone.
    Everyone,
    /// This member may have the table.
    Predecessor(ProcessId),
}

/// What a holder's member says to whoever wants its hold back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationAnswer {
    /// The holder has been told.
    HolderTold,
    /// It is taken away.
    Revoked,
    /// It is not taken away: the holder has not been told yet.
    HolderNotTold,
    /// The hold is not revocable.
    NotRevocable,
    /// There is no such hold, as far as its member knows, but it has that very lock with another token or waits for it: look
    /// again in a while.
    TryAgain,
    /// There is no such hold any more.
    NotHeld,
}

/// Said of locks; delivered exactly once and in order while both processes live.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Who grants this service? Whoever asks first becomes the grantor.
    ///
    /// ```text
    /// M ->[FindGrantor] E      E ->[GrantorIs] M         or, to the new grantor: E ->[NameGrantor] M
    /// ```
    FindGrantor {
        /// The service.
        service: ServiceName,
    },
    /// That member, in that epoch.
    GrantorIs {
        /// The service.
        service: ServiceName,
        /// The grantor.
        grantor: ProcessId,
        /// Its term.
        epoch: Epoch,
    },
    /// You are the grantor. The epoch is the first token of the range.
    NameGrantor {
        /// The service.
        service: ServiceName,
        /// Tokens to grant with.
        range: TokenRange,
        /// Where what others hold and wait for is found.
        origin: Origin,
        /// The last of its requests to be named; `None`: it did not ask.
        asked: Option<RequestId>,
    },
    /// I want to be the grantor: a young turk.
    ///
    /// ```text
    /// T ->[Become] E   E ->[NameGrantor from G] T  T ->[RequestTable] G  G ->[TableChunk ...] T  T ->[Acts] E  T ->[Recover] those in it
    /// ```
    Become {
        /// The service.
        service: ServiceName,
        /// Which of the sender's requests says so: the last.
        request: RequestId,
    },
    /// Another asked after you, and you will not be named.
    Outbid {
        /// The service.
        service: ServiceName,
        /// The last request of yours that had come here. Whoever has asked once more since may be named yet.
        request: RequestId,
        /// Who.
        by: ProcessId,
    },
    /// A grantor has begun to act.
    Acts {
        /// The service.
        service: ServiceName,
        /// Its term.
        epoch: Epoch,
    },
    /// A grantor that goes asks for this member to be named in its place.
    ProposeSuccessor {
        /// The service.
        service: ServiceName,
        /// The term of the one that goes.
        epoch: Epoch,
        /// The successor.
        to: ProcessId,
    },
    /// A grantor is over, and its table was empty.
    Vacant {
        /// The service.
        service: ServiceName,
        /// Its term.
        epoch: Epoch,
    },
    /// The named member will not grant in that epoch.
    Decline {
        /// The service.
        service: ServiceName,
        /// The term that was named.
        epoch: Epoch,
    },
    /// The member that was named in your place will not: yield to another.
    SuccessorDeclined {
        /// The service.
        service: ServiceName,
        /// Who will not.
        by: ProcessId,
    },
    /// Hand your table over. Answering ends every older epoch at the answerer.
    RequestTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's term.
        epoch: Epoch,
    },
    /// The table, in parts.
    TableChunk {
        /// The service.
        service: ServiceName,
        /// The new grantor's term.
        epoch: Epoch,
        /// Objects. All of them come before all holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds, with their members.
        holds: Vec<(ProcessId, HoldReport)>,
        /// Waits, with their members, in ticket order.
        waits: Vec<(ProcessId, WaitReport)>,
        /// No more parts.
        last: bool,
    },
    /// I have no table to hand over: ask everyone.
    NoTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's term.
        epoch: Epoch,
    },
    /// There is a newer grantor than you.
    Deposed {
        /// The service.
        service: ServiceName,
        /// Who, if the sender knows.
        by: Option<ProcessId>,
        /// Its term.
        epoch: Epoch,
    },
    /// The grantor's tokens run low.
    MoreTokens {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// How many it wants. It may get fewer, and asks again.
        count: u32,
    },
    /// More tokens.
    Tokens {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// The range; higher than every one dealt before.
        range: TokenRange,
    },
    /// A new elder asks everyone: which grantors do you host, and of which have you heard?
    Inventory {
        /// The view in which the elder asks.
        view: ViewNumber,
    },
    /// The answer, in parts.
    InventoryReply {
        /// As asked.
        view: ViewNumber,
        /// Services with the grantor known to the sender and its term.
        known: Vec<(ServiceName, ProcessId, Epoch)>,
        /// No more parts.
        last: bool,
    },
    /// May I have this lock?
    ///
    /// ```text
    /// H ->[RequestLock] G  G ->[Grant] H                H ->[Release] G   (free)
    /// H ->[RequestLock] G  G ->[Grant] H                H ->[Release] G   (held by another for a moment)
    /// H ->[RequestLock] G  G ->[Queued] H  G ->[Grant] H  H ->[Release] G  (for longer)
    /// ```
    RequestLock {
        /// The service.
        service: ServiceName,
        /// The grantor's term as the asker knows it.
        epoch: Epoch,
        /// The asker's number for it; asked twice, it is granted once.
        request: RequestId,
        /// What it wants.
        want: Want,
        /// On whose behalf.
        owner: OwnerId,
        /// Do not queue: refuse unless free.
        only_if_free: bool,
        /// Whether it may be wanted back once it is granted.
        revocable: bool,
        /// What the asker says of itself.
        metadata: Metadata,
    },
    /// Your place in the queue.
    Queued {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The place.
        ticket: Ticket,
    },
    /// It is yours.
    Grant {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The fencing token; of a batch that of its first lock, the others follow.
        token: Token,
    },
    /// Not granted, and not queued either.
    Refuse {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// I do not grant this service, or no longer in that epoch.
    NotGrantor {
        /// The service.
        service: ServiceName,
        /// The epoch that was asked for.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// Who does, if the sender has heard of a newer one.
        instead: Option<(ProcessId, Epoch)>,
    },
    /// The request is over: released, cancelled, or an unwanted grant given back.
    Release {
        /// The service.
        service: ServiceName,
        /// The request.
        request: RequestId,
    },
    /// The request that holds goes on with less: a share in place of its lock, or fewer permits. One word, as `Release` is.
    Reduce {
        /// The service.
        service: ServiceName,
        /// The newest epoch of which the holder has heard. A grantor of a later one asks what is held when it begins, and may have made
        /// more of it since.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// What it has from now on.
        want: Want,
        /// With which token: the grantor may have dealt another, of which the holder has not heard.
        token: Token,
    },
    /// May my share become the lock?
    ///
    /// ```text
    /// H ->[Upgrade] G     G ->[Upgraded] H      (no other share)
    /// H ->[Upgrade] G     G ->[Refuse] H        (others; or it cannot say yet)
    /// ```
    Upgrade {
        /// The service.
        service: ServiceName,
        /// The grantor's term as the asker knows it.
        epoch: Epoch,
        /// The asker's number for it; asked twice, it is done once.
        request: RequestId,
        /// The request that has the share.
        hold: RequestId,
    },
    /// It is the lock now, with a new token.
    Upgraded {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// As asked.
        request: RequestId,
        /// The new token.
        token: Token,
    },
    /// Write this into an object that I have open.
    ///
    /// ```text
    /// W ->[Write] G     G ->[Value] all who have it open; to W with its request
    /// ```
    Write {
        /// The service.
        service: ServiceName,
        /// The grantor's term as the writer knows it.
        epoch: Epoch,
        /// The writer's number for it; asked twice, it is written once.
        request: RequestId,
        /// The object.
        name: LockName,
        /// What to write.
        edit: Box<Edit>,
    },
    /// What an object has to tell, to everybody who has it open, whenever that changes.
    Value {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// The object.
        name: LockName,
        /// What it has to tell.
        content: Box<Content>,
        /// Which request of the receiver this answers, and how. Both are taken, or neither is.
        answers: Option<(RequestId, ObjectReply)>,
    },
    /// A new grantor asks everyone for holds and waits. Answering ends every older epoch at the answerer.
    ///
    /// ```text
    /// G ->[Recover e] everyone        everyone ->[Report e, in parts] G
    /// ```
    Recover {
        /// The service.
        service: ServiceName,
        /// The new grantor's term.
        epoch: Epoch,
    },
    /// The answer, in parts.
    Report {
        /// The service.
        service: ServiceName,
        /// As asked.
        epoch: Epoch,
        /// Objects that the sender has open, as far as it has heard. All of them come before all holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds of the sender.
        holds: Vec<HoldReport>,
        /// Waits of the sender.
        waits: Vec<WaitReport>,
        /// No more parts.
        last: bool,
    },
    /// Your hold lost against another of the same lock with a higher token.
    Supersede {
        /// The service.
        service: ServiceName,
        /// The grantor's term.
        epoch: Epoch,
        /// The request whose hold is over.
        request: RequestId,
    },
    /// Tell me when nothing is left there of what I have given up.
    ConfirmDestroy {
        /// The service.
        service: ServiceName,
        /// The asker's number for it.
        request: RequestId,
    },
    /// Nothing is.
    DestroyConfirmed {
        /// As asked.
        service: ServiceName,
        /// As asked.
        request: RequestId,
    },
    /// That cannot be said here yet, or is another one's to say.
    DestroyUnconfirmed {
        /// As asked.
        service: ServiceName,
        /// As asked.
        request: RequestId,
        /// Who grants now.
        instead: Option<ProcessId>,
    },
    /// What do you see?
    Query {
        /// The service.
        service: ServiceName,
        /// The grantor's term as the asker knows it.
        epoch: Epoch,
        /// The asker's number for it.
        request: RequestId,
        /// At what.
        at: Box<Query>,
    },
    /// This.
    QueryReply {
        /// As asked.
        service: ServiceName,
        /// As asked.
        request: RequestId,
        /// The answer.
        seen: Box<QueryReply>,
    },
    /// Somebody wants your hold back.
    ///
    /// ```text
    /// A ->[RequestRevocation] H  H ->[RevocationReply] A
    /// ```
    RequestRevocation {
        /// The service.
        service: ServiceName,
        /// The asker's number for it; asked twice, the holder is told once.
        request: RequestId,
        /// The lock; `None`: the suspension.
        name: Option<LockName>,
        /// The token with which it is held.
        token: Token,
        /// What the asker says of itself; `None`: it takes it away, if the holder has been told.
        says: Option<Metadata>,
    },
    /// What became of it.
    RevocationReply {
        /// As asked.
        service: ServiceName,
        /// As asked.
        request: RequestId,
        /// As asked.
        token: Token,
        /// The answer.
        heard: RevocationAnswer,
    },
}

impl From<Notice> for Packet {
    fn from(notice: Notice) -> Packet {
        Packet::Notice(Box::new(notice))
    }
}

impl Packet {
    /// The name of what it carries: the variant of its notice or message. A relay is named by its inside.
    pub fn kind(&self) -> &'static str {
        match self {
            Packet::VoteSuccessor { notice, .. } => notice.kind(),
            Packet::Notice(notice) => notice.kind(),
            Packet::Linked { message, .. } => message.kind(),
            Packet::Ack { .. } => "Ack",
            Packet::Relay { packet, .. } => packet.kind(),
        }
    }
}

impl Notice {
    /// The name of its variant.
    fn kind(&self) -> &'static str {
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
            Notice::FullView(_) => "FullView",
            Notice::Fetch { .. } => "Fetch",
            Notice::StaleVote { .. } => "StaleVote",
        }
    }
}

impl Message {
    /// The name of its variant.
    fn kind(&self) -> &'static str {
        match self {
            Message::FindGrantor { .. } => "FindGrantor",
            Message::GrantorIs { .. } => "GrantorIs",
            Message::NameGrantor { .. } => "NameGrantor",
            Message::MoreTokens { .. } => "MoreTokens",
            Message::Tokens { .. } => "Tokens",
            Message::Inventory { .. } => "Inventory",
            Message::InventoryReply { .. } => "InventoryReply",
            Message::RequestLock { .. } => "RequestLock",
            Message::Queued { .. } => "Queued",
            Message::Grant { .. } => "Grant",
            Message::Refuse { .. } => "Refuse",
            Message::NotGrantor { .. } => "NotGrantor",
            Message::Release { .. } => "Release",
            Message::Recover { .. } => "Recover",
            Message::Report { .. } => "Report",
            Message::Supersede { .. } => "Supersede",
            Message::Become { .. } => "Become",
            Message::Outbid { .. } => "Outbid",
            Message::Acts { .. } => "Acts",
            Message::ProposeSuccessor { .. } => "ProposeSuccessor",
            Message::Vacant { .. } => "Vacant",
            Message::Decline { .. } => "Decline",
            Message::SuccessorDeclined { .. } => "SuccessorDeclined",
            Message::RequestTable { .. } => "RequestTable",
            Message::TableChunk { .. } => "TableChunk",
            Message::NoTable { .. } => "NoTable",
            Message::Deposed { .. } => "Deposed",
            Message::ConfirmDestroy { .. } => "ConfirmDestroy",
            Message::DestroyConfirmed { .. } => "DestroyConfirmed",
            Message::DestroyUnconfirmed { .. } => "DestroyUnconfirmed",
            Message::Query { .. } => "Query",
            Message::QueryReply { .. } => "QueryReply",
            Message::Reduce { .. } => "Reduce",
            Message::Upgrade { .. } => "Upgrade",
            Message::Upgraded { .. } => "Upgraded",
            Message::Write { .. } => "Write",
            Message::Value { .. } => "Value",
            Message::RequestRevocation { .. } => "RequestRevocation",
            Message::RevocationReply { .. } => "RevocationReply",
        }
    }
}
