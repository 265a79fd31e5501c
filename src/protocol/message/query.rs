//! Questions to a grantor or to the elder, and their answers.

use crate::protocol::content::Content;
use crate::protocol::id::{LockName, Metadata, Mode, ProcessId, RequestId, Ticket, Token};
use crate::protocol::versioned::Since;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The holder of a lock, as a refused request learns it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The lock; `None`: it has suspended the whole service.
    pub name: Option<LockName>,
    /// The holder's process.
    pub process: ProcessId,
    /// The number of its request, by which that process finds the hold.
    pub request: RequestId,
    /// The [owner](crate::LockBuilder::owner) of its request within that process; 0: the process as
    /// a whole.
    pub owner: u64,
    /// Its token.
    pub token: Token,
    /// How it holds it.
    pub mode: Mode,
    /// Whether it may be [requested back](crate::LockBuilder::revocable).
    pub revocable: bool,
    /// Its metadata.
    pub metadata: Metadata,
    /// How long it has held, by the grantor's clock.
    pub held_for: Duration,
}

/// A request as its grantor sees it. A waiter has no lease until it is granted, so there is no end
/// to tell. [`LockService::hold_state`](crate::LockService::hold_state) has the lease of a holder.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The process of the request.
    pub process: ProcessId,
    /// The [owner](crate::LockBuilder::owner) within that process; 0: the process as
    /// a whole.
    pub owner: u64,
    /// Its metadata.
    pub metadata: Metadata,
    /// The mode that it waits for.
    pub mode: Mode,
    /// The number of its request, by which its process finds it. `None`: a member of the release
    /// before was asked, or passed it on.
    #[serde(with = "Since::<12>")]
    pub request: Option<RequestId>,
}

/// The request whose blockers are asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Blocked {
    /// A new request for this lock.
    Name(LockName),
    /// A new request to suspend the service.
    Suspension,
    /// A waiting request.
    Request(ProcessId, RequestId),
}

/// A hold that has to end before a request is granted.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BlockingHold {
    /// The holder.
    pub holder: HolderInfo,
    /// Whether the request cannot be granted while the hold stays as it is.
    pub is_sure: bool,
}

/// A question to a grantor, or to the elder.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The holders of a lock, and its waiters.
    Lock(LockName),
    /// The suspension of the service, and the requests that wait for one.
    Suspension,
    /// The number of requests before this request of the requester.
    Position(RequestId),
    /// The held locks after this one, in the order of their names.
    Held(Option<LockName>),
    /// The waiters for a lock, after this position.
    Waiting(LockName, Option<QueuePosition>),
    /// Whether the service exists. The elder answers, so that no grantor is named for it.
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
        /// The first holders: many of shares or permits, but one of a lock or suspension.
        holders: Vec<HolderInfo>,
        /// How many more have it.
        more_holders: u64,
        /// The permits that all holders have together; none of a lock.
        permits: u64,
        /// The object of that name, if a member has it open.
        content: Option<Content>,
        /// How many members have it open.
        opener_count: u64,
        /// The first waiters, in their order.
        waiters: Vec<WaiterInfo>,
        /// How many more wait.
        more: u64,
    },
    /// A position.
    Position {
        /// Requests that go first. For a lock: the requests before it in its queue. For a batch:
        /// those in the longest of its queues. For a suspension: all earlier waiting requests.
        before: u64,
        /// Holds that have to end first.
        holds: u64,
        /// The request that has suspended the service, or waits to suspend it before this one.
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
        /// The position of the last of these, if more follow.
        last: Option<QueuePosition>,
    },
    /// The request is not known, or holds already.
    Unknown,
    /// The grantor does not act yet, or the elder cannot say yet.
    Undecided,
    /// Whether the service exists.
    Service(bool),
    /// The holds that a request waits for.
    Blockers {
        /// The first of them.
        holds: Vec<BlockingHold>,
        /// Whether there may be more.
        more: bool,
    },
}
