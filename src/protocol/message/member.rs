//! Messages from the elder to a member.

use super::token_range::TokenRange;
use crate::protocol::id::{Epoch, ProcessId, RequestId, ServiceName, ViewNumber};
use serde::{Deserialize, Serialize};

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

impl MemberMessage {
    /// The name of its variant.
    pub(super) fn kind(&self) -> &'static str {
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
