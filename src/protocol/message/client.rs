//! Messages to the lock client of a member.

use super::blockers::{HoldState, Probe};
use super::query::{HolderInfo, QueryReply};
use super::revocation::{RevocationAnswer, RevocationDemand};
use crate::protocol::content::Content;
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName, Ticket, Token};
use crate::protocol::versioned::Since;
use serde::{Deserialize, Serialize};

/// The answer of the grantor of an object; the object's content comes with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ObjectReply {
    /// The object is open, with this token for the request.
    Opened(Token),
    /// The object was written.
    Written {
        /// The new version, made by the write.
        version: Token,
        /// The new number, made by a step; `None` for a set value.
        number: Option<i32>,
    },
    /// The object was not written: its version is not the expected one, or the number edit is
    /// refused.
    Unwritten,
}

/// The reason why a request is refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The request does not wait, and this hold excludes it.
    Held(HolderInfo),
    /// The request does not wait, and earlier requests wait for this lock, or to suspend the
    /// service. Also the answer to a suspension when a bounded search finds only holds of its
    /// requester.
    Waited(Option<LockName>),
    /// The request does not wait, and the grantor cannot answer yet.
    Undecided,
    /// The request's owner has a hold and wants to suspend the service. So does the owner of an
    /// earlier suspension that waits. Each would wait for the other for ever.
    Deadlock,
    /// The request wants permits of an object that its member does not have open.
    NotOpen,
    /// The request does not wait and wants more permits than this limit, and no member has a
    /// permit.
    Limit(u32),
    /// The share cannot become the lock: this many other requests have a share.
    Shared(u64),
}

/// Messages of grantors to a lock client, and messages between lock clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ClientMessage {
    /// A newer grantor than the receiver exists.
    Deposed {
        /// The service.
        service: ServiceName,
        /// The newer grantor, if the sender knows it.
        by: Option<ProcessId>,
        /// The newer grantor's epoch.
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
    /// The request is granted.
    Grant {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The fencing token. For a batch: the token of the first lock; the tokens of the others
        /// follow it.
        token: Token,
        /// The number of following tokens that the receiver may grant itself with, because it keeps
        /// the lock. 0: it does not keep the lock.
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
    /// The sender does not grant this service, or no longer grants it in that epoch.
    NotGrantor {
        /// The service.
        service: ServiceName,
        /// The epoch that was asked for.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The newer grantor and its epoch, if the sender knows them.
        instead: Option<(ProcessId, Epoch)>,
    },
    /// The share has become the lock, with a new token.
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
    /// An object's content, sent to every member that has the object open, whenever the content
    /// changes.
    Value {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The object.
        name: LockName,
        /// The content.
        content: Box<Content>,
        /// The receiver's request that this answers, and the reply. The receiver uses both content
        /// and reply, or neither.
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
        /// Whether the holds are to be reported by the parts of their names. A grantor that acts
        /// already, with the table of its predecessor, gets them in the order of their requests. No
        /// request waits for that report.
        #[serde(with = "Since::<13>")]
        by_part: bool,
    },
    /// The receiver's hold has ended, because another hold of the lock has a higher token.
    Supersede {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The request whose hold has ended.
        request: RequestId,
    },
    /// The grantor has nothing of the receiver's requests any more.
    DestroyConfirmed {
        /// The service of the `ConfirmDestroy` that this answers.
        service: ServiceName,
        /// The number of that question.
        request: RequestId,
    },
    /// The sender cannot confirm the destruction yet, or another member has to.
    DestroyUnconfirmed {
        /// The service of the `ConfirmDestroy` that this answers.
        service: ServiceName,
        /// The number of that question.
        request: RequestId,
        /// The present grantor; `None`: not known.
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
    /// Requests the release of a hold, or orders its end.
    ///
    /// ```text
    /// A ->[RequestRevocation] H  H ->[RevocationReply] A
    /// ```
    RequestRevocation {
        /// The service.
        service: ServiceName,
        /// The requester's number of the revocation; the holder is told of a repeated one once.
        request: RequestId,
        /// The request of the holder.
        hold: RequestId,
        /// The token of the hold.
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
        /// The token in that request.
        token: Token,
        /// The answer of the holder's member.
        heard: RevocationAnswer,
    },
    /// Asks a holder's member for the time left of the hold's lease, and for the waits of its
    /// owner.
    ///
    /// ```text
    /// A ->[AskHolder] H     H ->[HolderReply] A
    /// ```
    AskHolder {
        /// The service.
        service: ServiceName,
        /// The requester's number of the question.
        request: RequestId,
        /// The request of the holder.
        hold: RequestId,
        /// The token of the hold.
        token: Token,
    },
    /// The answer to `AskHolder`.
    HolderReply {
        /// The service of the question.
        service: ServiceName,
        /// The number of the question.
        request: RequestId,
        /// The state of the hold.
        state: Box<HoldState>,
    },
    /// A probe that is to be forwarded to the grantors of all requests for which the hold's owner
    /// waits.
    ProbeHold {
        /// The service of the hold.
        service: ServiceName,
        /// The receiver's request that holds.
        hold: RequestId,
        /// The token of the hold.
        token: Token,
        /// The probe.
        probe: Box<Probe>,
    },
    /// Recalls a lock that the receiver keeps, because another member asks for it.
    ///
    /// ```text
    /// G ->[Recall] K     K ->[Release] G        (free)
    /// G ->[Recall] K     K ->[KeepInUse] G      (in use)
    /// ```
    Recall {
        /// The service.
        service: ServiceName,
        /// The request for which the lock was granted to be kept.
        request: RequestId,
    },
    /// A chunk of the receiver's report has arrived, which was not the last. A member sends few
    /// chunks ahead. So the chunks of all members arrive in turn, and the first part is complete
    /// early.
    ReportTaken {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
    },
}

impl ClientMessage {
    /// The variant name.
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
            ClientMessage::ReportTaken { .. } => "ReportTaken",
        }
    }
}
