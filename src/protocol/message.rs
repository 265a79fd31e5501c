//! The messages of the protocol: everything that members send to each other.
//!
//! There are two kinds. A [`Notice`] is about membership. It may be lost, doubled or late, and its
//! sender sends it again by a timer of its own. A [`Message`] is about locks. It travels on a link
//! (`link.rs`), which delivers it exactly once and in order while both processes live.

mod blockers;
mod notice;
mod query;

pub(crate) use blockers::PROBE_BUDGET;
pub use blockers::{ChainLink, HoldState, MAX_CHAIN, OwnerWait, Probe};
pub use notice::{Affiliation, Ballot, Notice};
pub use query::{Blocked, BlockingHold, HolderInfo, Query, QueryReply, QueuePosition, WaiterInfo};

use super::content::{Content, Edit};
use super::id::{
    Epoch, Lineage, LockName, MemberInfo, Metadata, OwnerId, ProcessId, RequestId, ServiceName,
    Slot, Ticket, Token, ViewNumber, Want,
};
use super::versioned::Since;
use super::vote_claim::VoteClaim;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The content of one frame on a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Packet {
    /// A notice, which may be lost, doubled or late.
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
        /// Send the rest again now: a message was missed.
        again: bool,
    },
    /// A packet from `from` to `to` through the receiver, for pairs that cannot reach each other.
    Relay {
        /// The sender of the inner packet.
        from: Box<MemberInfo>,
        /// The process for which the inner packet is.
        to: ProcessId,
        /// Whether the sender has trouble with the direct path itself, and asks for answers by a
        /// detour too. Those answers do not ask for it, or two members would keep each other on
        /// detours for ever.
        troubled: bool,
        /// The member through which the sender lately heard the other: packets through it arrive.
        heard: Option<ProcessId>,
        /// The inner packet. Never itself a relay.
        packet: Box<Packet>,
    },
    /// The inner packet of a relay in a cluster with a key, as it passes the relay. Drivers seal
    /// and open it. The core passes it on.
    Sealed {
        /// Whether it is a notice.
        is_notice: bool,
        /// The packet, sealed.
        bytes: Vec<u8>,
    },
    /// A notice that asks for votes or gives one, by the vote successor of a voter.
    VoteSuccessor {
        /// The vote that it has.
        claim: Box<VoteClaim>,
        /// The vote successor.
        me: Box<MemberInfo>,
        /// The lineage of the latest view that it knows.
        lineage: Lineage,
        /// The notice itself.
        notice: Box<Notice>,
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
    /// The token after this many others of the range.
    pub fn nth(&self, number: u64) -> Option<Token> {
        (number < self.len()).then(|| self.first.plus(number))
    }

    /// How many tokens the range has.
    pub fn len(&self) -> u64 {
        (self.last.get() - self.first.get()).saturating_add(1)
    }

    /// Returns whether the range has no token. No range is empty.
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// Returns whether this is a valid range; checked on ranges that come from outside.
    pub fn is_sound(&self) -> bool {
        self.first <= self.last && self.first.slot() >= Slot(1) && self.last.slot() <= Slot::MAX
    }
}

/// A request for locks: one value from the call to the grantor's table, and in each report.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LockRequest {
    /// The locks, or the suspension.
    pub want: Want,
    /// The owner.
    pub owner: OwnerId,
    /// Whether other members may request the hold back.
    pub revocable: bool,
    /// The asker's metadata.
    pub metadata: Metadata,
}

impl LockRequest {
    /// The approximate number of its bytes in a message.
    pub(crate) fn weight(&self) -> usize {
        self.want.weight() + self.metadata.as_bytes().len()
    }

    /// The approximate number of bytes of a hold or a wait of it in a chunk.
    pub(crate) fn entry_weight(&self) -> usize {
        96 + self.weight()
    }
}

/// A hold as its member reports it to a recovering grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HoldReport {
    /// The number of the request that was granted.
    pub request: RequestId,
    /// The request itself.
    pub lock: LockRequest,
    /// The token of the grant; of a batch, that of its first lock.
    pub token: Token,
    /// How long it has held.
    pub held_for: Duration,
}

/// A wait as its member reports it to a recovering grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct WaitReport {
    /// The number of the request.
    pub request: RequestId,
    /// The request itself.
    pub lock: LockRequest,
    /// Its position, if one was acknowledged.
    pub ticket: Option<Ticket>,
}

/// The answer of the grantor of an object, beside the object's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ObjectReply {
    /// The object is open, with this token for the request.
    Opened(Token),
    /// The object was written.
    Written {
        /// The version that the write made.
        version: Token,
        /// The number that a step made; `None` for a set value.
        number: Option<i32>,
    },
    /// The object was not written: it has another version than the expected one, or the number edit
    /// is refused.
    Unwritten,
}

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The request does not wait, and this holder is in its way.
    Held(HolderInfo),
    /// The request does not wait, and earlier requests wait for this lock, or to suspend the
    /// service. Also for a suspension if its asker holds so much that no other holder is found to
    /// be named.
    Waited(Option<LockName>),
    /// The request does not wait, and the grantor cannot answer yet.
    Undecided,
    /// The owner of the request has a hold and wants to suspend the service, and so does an earlier
    /// owner with a hold. Each would wait for the other for ever.
    Deadlock,
    /// The request wants permits of an object that its member does not have open.
    NotOpen,
    /// The request does not wait, no member has a permit, and this limit is too low for it.
    Limit(u32),
    /// An upgrade of a share: this many others have a share too.
    Shared(u64),
}

/// The source of a named grantor's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// No member holds anything.
    Free,
    /// Some member may hold: the grantor asks every member.
    Everyone,
    /// This member may have the table.
    Predecessor(ProcessId),
}

/// A question or an order to a holder's member about its hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationDemand {
    /// The holder is told that the hold is requested back, with the asker's metadata.
    Ask(Metadata),
    /// The hold ends, if its holder has been told.
    Take,
    /// The hold ends, revocable or not, if the member allows it.
    Force(ForceOrder),
}

/// An operator's order to end a hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ForceOrder {
    /// The operator, by its own word.
    pub operator: Metadata,
    /// The reason.
    pub reason: Metadata,
}

/// The answer of a holder's member to a revocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationAnswer {
    /// The holder has been told.
    HolderTold,
    /// The hold is revoked.
    Revoked,
    /// The hold is not revoked: the holder has not been told yet.
    HolderNotTold,
    /// The hold is not revocable.
    NotRevocable,
    /// The member allows no forced revokes.
    ForceNotAllowed,
    /// The member knows no such hold, but has the same lock with another token or waits for it. The
    /// asker queries again in a while.
    TryAgain,
    /// There is no such hold any more.
    NotHeld,
}

/// A statement about locks; delivered exactly once and in order while both processes live. Grouped
/// by the role that handles it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A message to the elder, which maps each service to its grantor.
    Registry(RegistryMessage),
    /// A message from the elder to a member.
    Member(MemberMessage),
    /// A message to the grantor of a service, or to a member that is taken for it.
    Grantor(GrantorMessage),
    /// A message to the lock client of a member.
    Client(ClientMessage),
}

/// Members ask the elder for grantors, and tell it of their own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RegistryMessage {
    /// Asks for the grantor of this service. The first member that asks becomes the grantor.
    ///
    /// ```text
    /// M ->[FindGrantor] E    E ->[GrantorIs] M    or, to the new grantor: E ->[NameGrantor] M
    /// ```
    FindGrantor {
        /// The service.
        service: ServiceName,
        /// The youngest epoch of it that the member has heard of: it believes in no earlier one.
        heard: Option<Epoch>,
    },
    /// A young turk's bid to become grantor.
    ///
    /// ```text
    /// T ->[Become] E         E ->[NameGrantor from G] T
    /// T ->[RequestTable] G   G ->[TableChunk ...] T
    /// T ->[Acts] E           T ->[Recover] those in it
    /// ```
    Become {
        /// The service.
        service: ServiceName,
        /// The sender's last such request.
        request: RequestId,
    },
    /// A grantor has begun to act.
    Acts {
        /// The service.
        service: ServiceName,
        /// Its epoch.
        epoch: Epoch,
    },
    /// A leaving grantor proposes this member as its successor.
    ProposeSuccessor {
        /// The service.
        service: ServiceName,
        /// The leaving grantor's epoch.
        epoch: Epoch,
        /// The successor.
        to: ProcessId,
    },
    /// A grantor is over, and its table was empty.
    Vacant {
        /// The service.
        service: ServiceName,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The named member will not grant in that epoch.
    Decline {
        /// The service.
        service: ServiceName,
        /// The epoch that it declines.
        epoch: Epoch,
    },
    /// The grantor's tokens run low.
    MoreTokens {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The number of tokens that it asks for. It may get fewer, and asks again.
        count: u32,
    },
    /// The answer, in chunks.
    InventoryReply {
        /// The view of the `Inventory` that this answers.
        view: ViewNumber,
        /// Services with the grantor known to the sender and its epoch.
        known: Vec<(ServiceName, ProcessId, Epoch)>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// Asks whether a member grants this service. No member becomes its grantor by it.
    ///
    /// ```text
    /// M ->[FindService] E    E ->[QueryReply] M
    /// ```
    FindService {
        /// The service.
        service: ServiceName,
        /// The number of the question.
        request: RequestId,
    },
}

/// The elder tells a member of grantors, and asks it for its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum MemberMessage {
    /// The grantor of a service is this member, in this epoch.
    GrantorIs {
        /// The service.
        service: ServiceName,
        /// The grantor.
        grantor: ProcessId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The receiver is the grantor. The epoch is the first token of the range.
    NameGrantor {
        /// The service.
        service: ServiceName,
        /// Tokens to grant with.
        range: TokenRange,
        /// The source of other members' holds and waits.
        origin: Origin,
        /// The last of the receiver's bids; `None`: it made none.
        asked: Option<RequestId>,
    },
    /// A later bid outbids the receiver's: the elder will not name it.
    Outbid {
        /// The service.
        service: ServiceName,
        /// The receiver's last request that arrived at the elder. A later request may still win.
        request: RequestId,
        /// The young turk of the later bid.
        by: ProcessId,
    },
    /// The proposed successor declines: the grantor proposes another one.
    SuccessorDeclined {
        /// The service.
        service: ServiceName,
        /// The member that declines.
        by: ProcessId,
    },
    /// More tokens.
    Tokens {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The range; higher than every one dealt before.
        range: TokenRange,
    },
    /// A new elder asks every member which grantors it hosts, and of which it has heard.
    Inventory {
        /// The view in which the elder asks.
        view: ViewNumber,
    },
}

/// Members ask a grantor and report to it, and another grantor sends it a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GrantorMessage {
    /// Asks for the receiver's table. The answer ends every older epoch at the receiver.
    RequestTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
    },
    /// The table, in chunks.
    TableChunk {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
        /// Objects. All of them come before all holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds, with their members.
        holds: Vec<(ProcessId, HoldReport)>,
        /// Waits, with their members, in ticket order.
        waits: Vec<(ProcessId, WaitReport)>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// The sender has no table to transfer: the new grantor asks every member.
    NoTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
    },
    /// Asks for a lock.
    ///
    /// ```text
    /// free:                   H ->[RequestLock] G  G ->[Grant] H  H ->[Release] G
    /// held for a moment only: the same
    /// held for longer:        H ->[RequestLock] G  G ->[Queued] H  G ->[Grant] H  H ->[Release] G
    /// ```
    RequestLock {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the asker knows it.
        epoch: Epoch,
        /// The asker's number for it; a repeated request is granted once.
        request: RequestId,
        /// The names, the owner and the options.
        lock: LockRequest,
        /// Do not queue: refuse unless free.
        only_if_free: bool,
        /// How many tokens the asker wants behind that of the grant, to keep the lock; 0: it does
        /// not keep it.
        #[serde(with = "Since::<13>")]
        keep: u32,
    },
    /// The request is over: released, cancelled, or an unwanted grant that is returned.
    Release {
        /// The service.
        service: ServiceName,
        /// The request.
        request: RequestId,
    },
    /// The request that holds goes on with less: a share in place of its lock, or fewer permits.
    /// One-way, as `Release` is.
    Reduce {
        /// The service.
        service: ServiceName,
        /// The newest epoch of which the holder has heard. A grantor of a later epoch asks for all
        /// holds when it begins, and may have enlarged this one since.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The want that it holds from now on.
        want: Want,
        /// The token of the hold: the grantor may have given another, of which the holder has not
        /// heard.
        token: Token,
    },
    /// Asks that a share become the lock.
    ///
    /// ```text
    /// H ->[Upgrade] G     G ->[Upgraded] H      (no other share)
    /// H ->[Upgrade] G     G ->[Refuse] H        (others; or it cannot say yet)
    /// ```
    Upgrade {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the asker knows it.
        epoch: Epoch,
        /// The asker's number for it; a repeated upgrade is done once.
        request: RequestId,
        /// The request that has the share.
        hold: RequestId,
    },
    /// A write into an object that the sender has open.
    ///
    /// ```text
    /// W ->[Write] G     G ->[Value] all that have it open; to W with its request
    /// ```
    Write {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the writer knows it.
        epoch: Epoch,
        /// The writer's number for it; a repeated write is made once.
        request: RequestId,
        /// The object.
        name: LockName,
        /// The edit.
        edit: Box<Edit>,
    },
    /// The answer, in chunks.
    Report {
        /// The service.
        service: ServiceName,
        /// The epoch of the `Recover` that this answers.
        epoch: Epoch,
        /// Objects that the sender has open, as far as it has heard. All of them come before all
        /// holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds of the sender.
        holds: Vec<HoldReport>,
        /// Waits of the sender.
        waits: Vec<WaitReport>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// Asks for a confirmation as soon as the grantor has nothing left of the sender's in the
    /// destroyed service.
    ConfirmDestroy {
        /// The service.
        service: ServiceName,
        /// The asker's number for it.
        request: RequestId,
    },
    /// A question about the grantor's table.
    Query {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the asker knows it.
        epoch: Epoch,
        /// The asker's number for it.
        request: RequestId,
        /// The question.
        at: Box<Query>,
    },
    /// A probe for the holders of all holds that a request of the sender waits for.
    ///
    /// ```text
    /// M ->[ProbeWait] G   G ->[ProbeHold] H, for each hold   H ->[ProbeWait] G', for each wait
    /// ```
    ProbeWait {
        /// The service.
        service: ServiceName,
        /// The sender's waiting request.
        request: RequestId,
        /// The probe.
        probe: Box<Probe>,
    },
    /// A kept lock is in use: from now on the request `by` holds in place of `request`, and the
    /// lock is kept no longer.
    KeepInUse {
        /// The service.
        service: ServiceName,
        /// The request that was granted the lock to keep.
        request: RequestId,
        /// The request that holds it.
        by: RequestId,
        /// The owner of that request.
        owner: OwnerId,
        /// Its token, of the range that came with the grant.
        token: Token,
    },
}

/// Grantors answer a lock client and ask it, and lock clients ask each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ClientMessage {
    /// There is a newer grantor than the receiver.
    Deposed {
        /// The service.
        service: ServiceName,
        /// The newer grantor, if the sender knows it.
        by: Option<ProcessId>,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The request's position in the queue.
    Queued {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The position.
        ticket: Ticket,
    },
    /// The request holds.
    Grant {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The fencing token. For a batch it is the token of the first lock; the others follow.
        token: Token,
        /// How many tokens behind it the receiver may grant itself: it keeps the lock. 0: it does
        /// not.
        #[serde(with = "Since::<13>")]
        kept: u32,
    },
    /// The request is neither granted nor queued.
    Refuse {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The reason.
        refusal: Box<Refusal>,
    },
    /// The sender does not grant this service, or no longer in that epoch.
    NotGrantor {
        /// The service.
        service: ServiceName,
        /// The epoch that was asked for.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The newer grantor and its epoch, if the sender has heard of one.
        instead: Option<(ProcessId, Epoch)>,
    },
    /// The share is the lock now, with a new token.
    Upgraded {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The number of the `Upgrade` that this answers.
        request: RequestId,
        /// The new token.
        token: Token,
    },
    /// An object's content, to every member that has it open, whenever the content changes.
    Value {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The object.
        name: LockName,
        /// The content.
        content: Box<Content>,
        /// The request of the receiver that this answers, and its reply. The receiver takes both or
        /// neither.
        answers: Option<(RequestId, ObjectReply)>,
    },
    /// A new grantor asks every member for its holds and waits. The answer ends every older epoch
    /// at the member.
    ///
    /// ```text
    /// G ->[Recover e] everyone        everyone ->[Report e, in parts] G
    /// ```
    Recover {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
    },
    /// The receiver's hold lost against another of the same lock with a higher token.
    Supersede {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The request whose hold is over.
        request: RequestId,
    },
    /// The grantor has nothing left of the receiver's.
    DestroyConfirmed {
        /// The service of the `ConfirmDestroy` that this answers.
        service: ServiceName,
        /// The number of that question.
        request: RequestId,
    },
    /// The sender cannot confirm that yet, or another member has to.
    DestroyUnconfirmed {
        /// The service of the `ConfirmDestroy` that this answers.
        service: ServiceName,
        /// The number of that question.
        request: RequestId,
        /// The grantor now.
        instead: Option<ProcessId>,
    },
    /// The answer to `Query`, and to `FindService`.
    QueryReply {
        /// The service of the question.
        service: ServiceName,
        /// The number of the question.
        request: RequestId,
        /// The answer to the question.
        seen: Box<QueryReply>,
    },
    /// Requests a revocable hold back.
    ///
    /// ```text
    /// A ->[RequestRevocation] H  H ->[RevocationReply] A
    /// ```
    RequestRevocation {
        /// The service.
        service: ServiceName,
        /// The asker's number for it; the holder is told of a repeated request once.
        request: RequestId,
        /// The request of the holder.
        hold: RequestId,
        /// The token with which it is held.
        token: Token,
        /// The question or the order.
        demand: RevocationDemand,
    },
    /// The result of a revocation.
    RevocationReply {
        /// The service of the `RequestRevocation` that this answers.
        service: ServiceName,
        /// The number of that request.
        request: RequestId,
        /// The token of that request.
        token: Token,
        /// The answer of the holder's member.
        heard: RevocationAnswer,
    },
    /// Asks a holder's member for the rest of the hold's lease, and what its owner waits for.
    ///
    /// ```text
    /// A ->[AskHolder] H     H ->[HolderReply] A
    /// ```
    AskHolder {
        /// The service.
        service: ServiceName,
        /// The asker's number for it.
        request: RequestId,
        /// The request of the holder.
        hold: RequestId,
        /// The token with which it is held.
        token: Token,
    },
    /// The answer to `AskHolder`.
    HolderReply {
        /// The service of the question.
        service: ServiceName,
        /// The number of the question.
        request: RequestId,
        /// The hold.
        state: Box<HoldState>,
    },
    /// A probe for the grantors of all requests for which the owner of a hold waits.
    ProbeHold {
        /// The service of the hold.
        service: ServiceName,
        /// The request of the receiver that holds.
        hold: RequestId,
        /// The token with which it is held.
        token: Token,
        /// The probe.
        probe: Box<Probe>,
    },
    /// Another member asks for a lock that the receiver keeps.
    ///
    /// ```text
    /// G ->[Recall] K     K ->[Release] G        (free)
    /// G ->[Recall] K     K ->[KeepInUse] G      (in use)
    /// ```
    Recall {
        /// The service.
        service: ServiceName,
        /// The request that was granted the lock to keep.
        request: RequestId,
    },
}

impl From<RegistryMessage> for Message {
    fn from(message: RegistryMessage) -> Message {
        Message::Registry(message)
    }
}

impl From<MemberMessage> for Message {
    fn from(message: MemberMessage) -> Message {
        Message::Member(message)
    }
}

impl From<GrantorMessage> for Message {
    fn from(message: GrantorMessage) -> Message {
        Message::Grantor(message)
    }
}

impl From<ClientMessage> for Message {
    fn from(message: ClientMessage) -> Message {
        Message::Client(message)
    }
}

impl From<Notice> for Packet {
    fn from(notice: Notice) -> Packet {
        Packet::Notice(Box::new(notice))
    }
}

impl Packet {
    /// The variant name of the packet's notice or message. A relay has the name of its inner
    /// packet.
    pub fn kind(&self) -> &'static str {
        match self {
            Packet::VoteSuccessor { notice, .. } => notice.kind(),
            Packet::Notice(notice) => notice.kind(),
            Packet::Linked { message, .. } => message.kind(),
            Packet::Ack { .. } => "Ack",
            Packet::Relay { packet, .. } => packet.kind(),
            Packet::Sealed { .. } => "Sealed",
        }
    }
}

impl Message {
    /// Returns whether it changes only requests and tables.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            self,
            Message::Grantor(GrantorMessage::RequestLock { .. } | GrantorMessage::Release { .. })
                | Message::Client(
                    ClientMessage::Queued { .. }
                        | ClientMessage::Grant { .. }
                        | ClientMessage::Refuse { .. }
                )
        )
    }

    /// The approximate number of its bytes: of an entry that has no weight of its own, the most.
    pub(crate) fn weight(&self) -> usize {
        const ENTRY: usize = 512;
        let of_table = |objects: &[(LockName, Content)]| {
            objects.iter().map(|(name, content)| content.weight(name)).sum::<usize>()
        };
        let entries = match self {
            Message::Registry(RegistryMessage::InventoryReply { known, .. }) => {
                known.iter().map(|(service, ..)| 64 + service.as_str().len()).sum()
            }
            Message::Grantor(GrantorMessage::TableChunk { objects, holds, waits, .. }) => {
                of_table(objects)
                    + holds.iter().map(|(_, hold)| hold.lock.entry_weight()).sum::<usize>()
                    + waits.iter().map(|(_, wait)| wait.lock.entry_weight()).sum::<usize>()
            }
            Message::Grantor(GrantorMessage::Report { objects, holds, waits, .. }) => {
                of_table(objects)
                    + holds.iter().map(|hold| hold.lock.entry_weight()).sum::<usize>()
                    + waits.iter().map(|wait| wait.lock.entry_weight()).sum::<usize>()
            }
            Message::Grantor(GrantorMessage::RequestLock { lock, .. }) => lock.weight(),
            Message::Grantor(GrantorMessage::Reduce { want, .. }) => want.weight(),
            Message::Grantor(GrantorMessage::Write { edit, .. }) => match &**edit {
                Edit::Set { value, .. } | Edit::Step { tail: value, .. } => value.as_bytes().len(),
            },
            Message::Client(ClientMessage::Value { name, content, .. }) => content.weight(name),
            Message::Client(ClientMessage::HolderReply { state, .. }) => match &**state {
                HoldState::Held { waits, .. } => ENTRY * waits.len(),
                HoldState::NotHeld => 0,
            },
            Message::Grantor(GrantorMessage::ProbeWait { probe, .. })
            | Message::Client(ClientMessage::ProbeHold { probe, .. }) => 128 * probe.path.len(),
            Message::Client(ClientMessage::QueryReply { seen, .. }) => match &**seen {
                QueryReply::Lock { holders, waiters, content, .. } => {
                    let value =
                        content.as_ref().map_or(0, |content| content.value.as_bytes().len());
                    ENTRY * (holders.len() + waiters.len()) + value
                }
                QueryReply::Held { holders, .. } => ENTRY * holders.len(),
                QueryReply::Waiting { waiters, .. } => ENTRY * waiters.len(),
                QueryReply::Blockers { holds, .. } => ENTRY * holds.len(),
                QueryReply::Position { .. }
                | QueryReply::Service(_)
                | QueryReply::Unknown
                | QueryReply::Undecided => 0,
            },
            _ => 0,
        };
        ENTRY + entries
    }

    /// The name of its group's variant.
    fn kind(&self) -> &'static str {
        match self {
            Message::Registry(message) => message.kind(),
            Message::Member(message) => message.kind(),
            Message::Grantor(message) => message.kind(),
            Message::Client(message) => message.kind(),
        }
    }
}

impl RegistryMessage {
    /// The name of its variant.
    fn kind(&self) -> &'static str {
        match self {
            RegistryMessage::FindGrantor { .. } => "FindGrantor",
            RegistryMessage::Become { .. } => "Become",
            RegistryMessage::Acts { .. } => "Acts",
            RegistryMessage::ProposeSuccessor { .. } => "ProposeSuccessor",
            RegistryMessage::Vacant { .. } => "Vacant",
            RegistryMessage::Decline { .. } => "Decline",
            RegistryMessage::MoreTokens { .. } => "MoreTokens",
            RegistryMessage::InventoryReply { .. } => "InventoryReply",
            RegistryMessage::FindService { .. } => "FindService",
        }
    }
}

impl MemberMessage {
    /// The name of its variant.
    fn kind(&self) -> &'static str {
        match self {
            MemberMessage::GrantorIs { .. } => "GrantorIs",
            MemberMessage::NameGrantor { .. } => "NameGrantor",
            MemberMessage::Outbid { .. } => "Outbid",
            MemberMessage::SuccessorDeclined { .. } => "SuccessorDeclined",
            MemberMessage::Tokens { .. } => "Tokens",
            MemberMessage::Inventory { .. } => "Inventory",
        }
    }
}

impl GrantorMessage {
    /// The name of its variant.
    fn kind(&self) -> &'static str {
        match self {
            GrantorMessage::RequestTable { .. } => "RequestTable",
            GrantorMessage::TableChunk { .. } => "TableChunk",
            GrantorMessage::NoTable { .. } => "NoTable",
            GrantorMessage::RequestLock { .. } => "RequestLock",
            GrantorMessage::Release { .. } => "Release",
            GrantorMessage::Reduce { .. } => "Reduce",
            GrantorMessage::Upgrade { .. } => "Upgrade",
            GrantorMessage::Write { .. } => "Write",
            GrantorMessage::Report { .. } => "Report",
            GrantorMessage::ConfirmDestroy { .. } => "ConfirmDestroy",
            GrantorMessage::Query { .. } => "Query",
            GrantorMessage::ProbeWait { .. } => "ProbeWait",
            GrantorMessage::KeepInUse { .. } => "KeepInUse",
        }
    }
}

impl ClientMessage {
    /// The name of its variant.
    fn kind(&self) -> &'static str {
        match self {
            ClientMessage::Deposed { .. } => "Deposed",
            ClientMessage::Queued { .. } => "Queued",
            ClientMessage::Grant { .. } => "Grant",
            ClientMessage::Refuse { .. } => "Refuse",
            ClientMessage::NotGrantor { .. } => "NotGrantor",
            ClientMessage::Upgraded { .. } => "Upgraded",
            ClientMessage::Value { .. } => "Value",
            ClientMessage::Recover { .. } => "Recover",
            ClientMessage::Supersede { .. } => "Supersede",
            ClientMessage::DestroyConfirmed { .. } => "DestroyConfirmed",
            ClientMessage::DestroyUnconfirmed { .. } => "DestroyUnconfirmed",
            ClientMessage::QueryReply { .. } => "QueryReply",
            ClientMessage::RequestRevocation { .. } => "RequestRevocation",
            ClientMessage::RevocationReply { .. } => "RevocationReply",
            ClientMessage::AskHolder { .. } => "AskHolder",
            ClientMessage::HolderReply { .. } => "HolderReply",
            ClientMessage::ProbeHold { .. } => "ProbeHold",
            ClientMessage::Recall { .. } => "Recall",
        }
    }
}
