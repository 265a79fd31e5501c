//! Messages from the elder to a member.

use super::token_range::TokenRange;
use crate::protocol::id::{Epoch, ProcessId, RequestId, ServiceName, ViewNumber};
use serde::{Deserialize, Serialize};

/// The source of a named grantor's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// No member holds anything.
    Free,
    /// A member may hold something: the grantor asks every member.
    Everyone,
    /// This process may have the table.
    Predecessor(ProcessId),
}

/// Messages of the elder to a member about grantors.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum MemberMessage {
    /// `grantor` grants the service, in this epoch.
    GrantorIs {
        /// The service.
        service: ServiceName,
        /// The grantor.
        grantor: ProcessId,
        /// The grantor's epoch.
        epoch: Epoch,
    },
    /// The receiver becomes the grantor of the service. Its epoch is the first token of the range.
    NameGrantor {
        /// The service.
        service: ServiceName,
        /// The grantor's first tokens.
        range: TokenRange,
        /// The source of other members' holds and waits.
        origin: Origin,
        /// The receiver's last bid that the elder knows; `None`: it made none.
        asked: Option<RequestId>,
    },
    /// A later bid ends the receiver's bid: the elder will not name the receiver for it.
    Outbid {
        /// The service.
        service: ServiceName,
        /// The receiver's last bid that the elder knows. A later bid may still win.
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
    /// Deals more tokens to a grantor.
    Tokens {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The range: above every range that was dealt before.
        range: TokenRange,
    },
    /// A new elder asks every member which grantors it hosts, and which others it knows.
    Inventory {
        /// The view in which the elder asks.
        view: ViewNumber,
    },
}

impl MemberMessage {
    /// The variant name.
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
