//! Questions to a grantor or to the elder, and their answers.

use crate::protocol::content::Content;
use crate::protocol::id::{LockName, Metadata, Mode, ProcessId, RequestId, Ticket, Token};
use crate::protocol::versioned::Since;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The holder of a lock, as the answer to a query or a refusal tells it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The lock; `None`: the holder has suspended the whole service.
    pub name: Option<LockName>,
    /// The holder's process.
    pub process: ProcessId,
    /// The number of the holder's request. The process finds the hold by it.
    pub request: RequestId,
    /// The [owner](crate::LockBuilder::owner) of the request within that process; 0: the process as
    /// a whole.
    pub owner: u64,
    /// The token of the hold.
    pub token: Token,
    /// The mode of the hold.
    pub mode: Mode,
    /// Whether other members may [request its release](crate::LockBuilder::revocable).
    pub revocable: bool,
    /// The metadata of the request.
    pub metadata: Metadata,
    /// The time for which it has held, by the grantor's clock.
    pub held_for: Duration,
}

impl HolderInfo {
    /// Returns whether the hold may have been granted to be kept.
    pub(crate) fn may_be_place(&self) -> bool {
        let is_plain = !self.revocable && self.metadata.as_bytes().is_empty();
        is_plain && self.name.is_some() && matches!(self.mode, Mode::Lock | Mode::Share)
    }
}

/// A waiting request, as its grantor knows it. A waiter has no lease until it is granted, so it has
/// no end to tell. [`LockService::hold_state`](crate::LockService::hold_state) tells the lease of a
/// holder.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The process of the request.
    pub process: ProcessId,
    /// The [owner](crate::LockBuilder::owner) within that process; 0: the process as
    /// a whole.
    pub owner: u64,
    /// The metadata of the request.
    pub metadata: Metadata,
    /// The mode that the request wants.
    pub mode: Mode,
    /// The number of the request. Its process finds the request by it. `None`: a member of the
    /// release before answered, or forwarded the answer.
    #[serde(with = "Since::<12>")]
    pub request: Option<RequestId>,
}

/// The request whose blockers are queried.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Blocked {
    /// A new request for this lock.
    Name(LockName),
    /// A new request to suspend the service.
    Suspension,
    /// A waiting request.
    Request(ProcessId, RequestId),
}

/// A hold that has to end before the request is granted.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BlockingHold {
    /// The holder.
    pub holder: HolderInfo,
    /// Whether the request cannot be granted while the hold stays as it is.
    pub is_sure: bool,
}

/// A query of a grantor, or of the elder.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The holders of a lock, and its waiters.
    Lock(LockName),
    /// The suspension of the service, and the requests that wait for one.
    Suspension,
    /// The number of requests before this request of the requester.
    Position(RequestId),
    /// The held locks after this name, in the order of their names.
    Held(Option<LockName>),
    /// The waiters for a lock, after this position.
    Waiting(LockName, Option<QueuePosition>),
    /// Whether the service exists. The elder answers, and names no grantor for it.
    Service,
    /// The holds that have to end before a request is granted.
    Blockers(Blocked),
}

/// The position of a request among all waiting requests of one grantor.
pub type QueuePosition = (Ticket, ProcessId, RequestId);

/// The answer to a [`Query`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum QueryReply {
    /// A lock or the suspension.
    Lock {
        /// The first holders: one of a lock or suspension, possibly many of shares or permits.
        holders: Vec<HolderInfo>,
        /// The number of further holders.
        more_holders: u64,
        /// The sum of the permits that are held; 0 for a lock.
        permits: u64,
        /// The object of that name, if a member has it open.
        content: Option<Content>,
        /// The number of members that have the object open.
        opener_count: u64,
        /// The first waiters, in their order.
        waiters: Vec<WaiterInfo>,
        /// The number of further waiters.
        more: u64,
    },
    /// The position of a waiting request.
    Position {
        /// The number of requests before it. For a lock: in its queue. For a batch: in the longest
        /// of its queues. For a suspension: all that wait and came earlier.
        before: u64,
        /// The number of holds that have to end before.
        holds: u64,
        /// The request that has suspended the service, or waits to suspend it before this one.
        suspension: Option<WaiterInfo>,
    },
    /// Holders, in the order of the names.
    Held {
        /// The holders on this page.
        holders: Vec<HolderInfo>,
        /// Whether this is the last page.
        last: bool,
    },
    /// Waiters, in their order.
    Waiting {
        /// The waiters on this page.
        waiters: Vec<WaiterInfo>,
        /// The position of the last waiter, if more follow.
        last: Option<QueuePosition>,
    },
    /// The request is not known, or holds already.
    Unknown,
    /// The grantor does not act yet, or the elder does not know yet.
    Undecided,
    /// Whether the service exists.
    Service(bool),
    /// The holds for which a request waits.
    Blockers {
        /// The first such holds.
        holds: Vec<BlockingHold>,
        /// Whether there may be more.
        more: bool,
    },
}

impl QueryReply {
    /// The holders that the answer tells of.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &HolderInfo> {
        let (holders, holds): (&[HolderInfo], &[BlockingHold]) = match self {
            QueryReply::Lock { holders, .. } | QueryReply::Held { holders, .. } => (holders, &[]),
            QueryReply::Blockers { holds, .. } => (&[], holds),
            _ => (&[], &[]),
        };
        holders.iter().chain(holds.iter().map(|hold| &hold.holder))
    }
}
