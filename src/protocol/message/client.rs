//! Messages to the lock client of a member.

use super::blockers::{HoldState, Probe};
use super::query::{HolderInfo, QueryReply};
use super::revocation::{RevocationAnswer, RevocationDemand};
use crate::protocol::content::Content;
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName, Ticket, Token};
use crate::protocol::versioned::Since;
use serde::{Deserialize, Serialize};

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
    /// service. Also for a suspension if its requester holds so much that no other holder is found
    /// to be named.
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
        /// The requester's number for it; the holder is told of a repeated request once.
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
    /// Asks a holder's member for the rest of the hold's lease, and the waits of its owner.
    ///
    /// ```text
    /// A ->[AskHolder] H     H ->[HolderReply] A
    /// ```
    AskHolder {
        /// The service.
        service: ServiceName,
        /// The requester's number for it.
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

impl ClientMessage {
    /// The name of its variant.
    pub(super) fn kind(&self) -> &'static str {
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
