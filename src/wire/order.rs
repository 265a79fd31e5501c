//! Orders of an operator to one member, and the reports on them.

use crate::protocol::{HolderInfo, LockName, Metadata, ServiceName, WaiterInfo};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// An order of an operator to one member, which carries it out and reports on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Order {
    /// To ask the holders of a lock to release it.
    Revoke {
        /// The service of the lock.
        service: ServiceName,
        /// The lock. `None`: the suspension of the service.
        name: Option<LockName>,
        /// The reason of the order, as the holders read it.
        metadata: Metadata,
        /// How long a holder that was told has to release it.
        wait: Duration,
        /// Whether it is taken away from those that have not, unless they are firm.
        force: bool,
    },
    /// To become the grantor of a service.
    Transfer {
        /// The service.
        service: ServiceName,
        /// How long it may take.
        wait: Duration,
    },
    /// To leave the cluster.
    Leave,
    /// To go on without a quorum, as `Member::force`.
    Force,
    /// To list the holders of a lock, and its waiters. Changes nothing.
    Inspect {
        /// The service of the lock.
        service: ServiceName,
        /// The lock. `None`: the suspension of the service.
        name: Option<LockName>,
    },
    /// To list the holds of a service, in the order of the names. Changes nothing.
    Held {
        /// The service.
        service: ServiceName,
    },
}

impl Order {
    /// Whether it takes something away from members that do not agree.
    pub fn is_forced(&self) -> bool {
        matches!(self, Order::Revoke { force: true, .. } | Order::Force)
    }

    /// A word for logs.
    pub fn kind(&self) -> &'static str {
        match self {
            Order::Revoke { .. } => "revoke",
            Order::Transfer { .. } => "transfer",
            Order::Leave => "leave",
            Order::Force => "force",
            Order::Inspect { .. } => "inspect",
            Order::Held { .. } => "held",
        }
    }
}

/// An order on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderRequest {
    /// The cluster that is meant.
    pub cluster: String,
    /// The order.
    pub order: Order,
}

/// A holder in a report, with the address of its member if the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedHolder {
    /// The holder.
    pub info: HolderInfo,
    /// Where its member is.
    pub addr: Option<SocketAddr>,
}

impl ReportedHolder {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(info: HolderInfo, addr: Option<SocketAddr>) -> Self {
        ReportedHolder { info, addr }
    }
}

/// A waiter in a report, with the address of its member if the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedWaiter {
    /// The waiter.
    pub info: WaiterInfo,
    /// Where its member is.
    pub addr: Option<SocketAddr>,
}

impl ReportedWaiter {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(info: WaiterInfo, addr: Option<SocketAddr>) -> Self {
        ReportedWaiter { info, addr }
    }
}

/// A step of an order that is carried out. [`Done`](OrderReport::Done) and
/// [`Failed`](OrderReport::Failed) are the last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OrderReport {
    /// The holder was told that the lock is requested back.
    Told(ReportedHolder),
    /// The holder's hold is not revocable. It was not contacted.
    NotRevocable(ReportedHolder),
    /// The holder has released it.
    Released(ReportedHolder),
    /// The holder has it still when the wait is over.
    Kept(ReportedHolder),
    /// The lock was taken away from the holder.
    Taken(ReportedHolder),
    /// The lock was to be taken away from the holder, which may have it still, for this reason.
    Unsure(ReportedHolder, String),
    /// The holder took the lock meanwhile and was not contacted.
    Later(ReportedHolder),
    /// So many further holders were not contacted.
    More(u64),
    /// The lock has no holder.
    NotHeld,
    /// The order was carried out as far as the reports before say. `complete`: there is nothing
    /// left of what was asked.
    Done {
        /// Whether all of it was done.
        complete: bool,
    },
    /// The order could not be carried out, for this reason.
    Failed(String),
    /// A holder of the lock, or a hold of the service.
    Holder(ReportedHolder),
    /// A request that waits. They come in the order in which they will be served.
    Waiter(ReportedWaiter),
    /// So many further requests wait.
    MoreWaiters(u64),
}

impl OrderReport {
    /// Whether no report follows.
    pub fn is_last(&self) -> bool {
        matches!(self, OrderReport::Done { .. } | OrderReport::Failed(_))
    }
}
