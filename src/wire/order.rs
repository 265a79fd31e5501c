//! Orders of an operator to one member, and the reports on them.

#[cfg(feature = "tokio")]
use crate::protocol::MemberInfo;
use crate::protocol::message::{HoldState, OwnerWait};
use crate::protocol::versioned::Trailing;
use crate::protocol::{
    HolderInfo, LineageId, LockName, MemberName, Metadata, ProcessId, ServiceName, Token, Versions,
    WaiterInfo,
};
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
        /// The operator, by its own word.
        operator: Metadata,
        /// How long a holder that was told has to release it.
        wait: Duration,
        /// Whether it is taken away from those that have not. Holds that are not revocable are
        /// taken away at once, if their members allow it.
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
        /// Whether each holder's member is asked for the lease of its hold.
        leases: bool,
    },
    /// To hold a lock for the program that gives the order, for as long as it keeps its session:
    /// [`hold_through`](crate::hold_through) gives it.
    Lock(SessionRequest),
    /// An order to another member of the view, which the member passes on with its own key. So one
    /// member that an operator reaches is enough. A lock is not passed on.
    PassOn {
        /// The other member.
        to: ProcessId,
        /// The order.
        order: Box<Order>,
    },
}

/// The lock of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionRequest {
    /// The service of the lock.
    pub service: ServiceName,
    /// The lock.
    pub name: LockName,
    /// Whether a share of the lock is wanted.
    pub shared: bool,
    /// How long it may wait. `None`: without a limit.
    pub wait: Option<Duration>,
    /// How long it may be held. `None`: until the session ends.
    pub lease: Option<Duration>,
    /// Data of the holder, for inspections.
    pub metadata: Metadata,
    /// The owner among those of the member that holds the lock. 0: the member as a whole.
    #[serde(with = "Trailing")]
    pub owner: u64,
}

impl SessionRequest {
    /// The lock `name` of a service, without limits and without metadata.
    pub fn new(service: ServiceName, name: LockName) -> SessionRequest {
        let (wait, lease, metadata) = (None, None, Metadata::default());
        SessionRequest { service, name, shared: false, wait, lease, metadata, owner: 0 }
    }

    /// Asks for a share of the lock, beside which other shares may stand.
    pub fn shared(mut self) -> SessionRequest {
        self.shared = true;
        self
    }

    /// How long it waits at most: `Duration::ZERO` tries once.
    pub fn wait(mut self, limit: Duration) -> SessionRequest {
        self.wait = Some(limit);
        self
    }

    /// How long it holds at most: above zero and at most ten years.
    pub fn lease(mut self, lease: Duration) -> SessionRequest {
        self.lease = Some(lease);
        self
    }

    /// The owner of the request: a random number, one for each task that waits with all its locks,
    /// among those of the member. [`blockers`](crate::LockService::blockers) then finds circles of
    /// owners that wait for each other. 0, unless set: no owner is known.
    pub fn owner(mut self, owner: u64) -> SessionRequest {
        self.owner = owner;
        self
    }

    /// Text or bytes for inspections.
    pub fn metadata(mut self, metadata: Metadata) -> SessionRequest {
        self.metadata = metadata;
        self
    }
}

/// The messages of a program to the member that holds a lock for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionMessage {
    /// The program lives, and asks how long the lock is held. The answer has the same number.
    KeepAlive(u64),
    /// The program does not use the lock any more.
    Release,
}

impl Order {
    /// Returns whether it takes something away from members that do not agree.
    pub fn is_forced(&self) -> bool {
        match self {
            Order::Revoke { force, .. } => *force,
            Order::Force => true,
            Order::PassOn { order, .. } => order.is_forced(),
            _ => false,
        }
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
            Order::Lock(_) => "lock",
            Order::PassOn { order, .. } => order.kind(),
        }
    }
}

/// An order on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderRequest {
    /// The cluster that is meant.
    pub cluster: String,
    /// The versions of the wire that the caller speaks.
    pub versions: Versions,
    /// The order.
    pub order: Order,
}

/// A holder in a report, with address and name of its member if the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedHolder {
    /// The holder.
    pub info: HolderInfo,
    /// Where its member is.
    pub addr: Option<SocketAddr>,
    /// The name of its member.
    pub member: Option<MemberName>,
    /// The rest of the hold's lease.
    pub lease: HoldLease,
}

impl ReportedHolder {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(info: HolderInfo, at: Option<MemberInfo>, lease: HoldLease) -> Self {
        let (addr, member) = at.map(|at| (at.addr, at.name)).unzip();
        ReportedHolder { info, addr, member, lease }
    }
}

/// How long the lease of a hold lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum HoldLease {
    /// The holder's member was not asked, or has not answered.
    #[default]
    Unknown,
    /// It has no lease, and lasts until it is released or lost.
    Unlimited,
    /// It ends after so long, unless it is extended.
    Left(Duration),
}

/// A circle of owners, each of which waits for a hold of the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Circle {
    /// No owner of it can go on: it lasts until a wait is given up, or a hold ends otherwise.
    Deadlock,
    /// It may resolve itself. A wait of it is not sure, or the owner is a
    /// member as a whole, whose tasks may not wait for each other.
    Possible,
}

impl From<&HoldState> for HoldLease {
    fn from(state: &HoldState) -> Self {
        match state {
            HoldState::Held { lease_left: Some(left), .. } => HoldLease::Left(*left),
            HoldState::Held { lease_left: None, .. } => HoldLease::Unlimited,
            HoldState::NotHeld => HoldLease::Unknown,
        }
    }
}

/// A hold of a chain in a report: `Blocker` has the same in the library.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedBlocker {
    /// 0: it is in the way of the lock. Else the owner of the nearest earlier hold that is one less
    /// deep waits for it.
    pub depth: u64,
    /// That owner's waiting request.
    pub wait: Option<OwnerWait>,
    /// The service of the hold.
    pub service: ServiceName,
    /// The holder.
    pub holder: ReportedHolder,
    /// Whether the wait lasts as long as the hold stays as it is.
    pub is_sure: bool,
    /// The circle that it closes.
    pub circle: Option<Circle>,
}

impl ReportedBlocker {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(
        (depth, wait): (u64, Option<OwnerWait>),
        (service, holder): (ServiceName, ReportedHolder),
        (is_sure, circle): (bool, Option<Circle>),
    ) -> Self {
        ReportedBlocker { depth, wait, service, holder, is_sure, circle }
    }
}

/// A waiter in a report, with address and name of its member if the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedWaiter {
    /// The waiter.
    pub info: WaiterInfo,
    /// Where its member is.
    pub addr: Option<SocketAddr>,
    /// The name of its member.
    pub member: Option<MemberName>,
}

impl ReportedWaiter {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(info: WaiterInfo, at: Option<MemberInfo>) -> Self {
        let (addr, member) = at.map(|at| (at.addr, at.name)).unzip();
        ReportedWaiter { info, addr, member }
    }
}

/// A step of an order that is carried out. [`Done`](OrderReport::Done),
/// [`Failed`](OrderReport::Failed) and [`NoService`](OrderReport::NoService) are the last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OrderReport {
    /// The holder was told that the lock is requested back.
    Told(ReportedHolder),
    /// The holder's hold is not revocable. It was not contacted.
    NotRevocable(ReportedHolder),
    /// The hold is not revocable, and its member allows no forced revokes. It goes on.
    ForceNotAllowed(ReportedHolder),
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
    /// The number of further holders that were not contacted.
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
    /// The number of further requests that wait.
    MoreWaiters(u64),
    /// A hold of the chain behind the lock, in the order of the chain.
    Blocker(Box<ReportedBlocker>),
    /// The chain may have more holds: a question was not answered, or the chain is too long.
    ChainCut,
    /// The lock of the session is held.
    Granted {
        /// The token of the grant.
        token: Token,
        /// The lineage that dealt it.
        lineage: LineageId,
    },
    /// The answer to [`KeepAlive`](SessionMessage::KeepAlive).
    Alive {
        /// The number of the question.
        number: u64,
        /// How long the lock is surely held, from the moment at which the question was asked.
        /// Zero: the request waits.
        held_for: Duration,
    },
    /// The lock of the session was not granted, for this reason.
    NotGranted(String),
    /// The lock of the session is lost, for this reason.
    Lost(String),
    /// The member leaves: it answers no more questions, and waits for the release until the end
    /// that it told last.
    Leaves,
    /// There is no service of that name, so nothing was asked. The last report.
    NoService,
}

impl OrderReport {
    /// The reason of [`Failed`](OrderReport::Failed) at a member that joins: another one may carry
    /// out the order. Programs go on by this text, so it stays as it is; a report of its own would
    /// need a new version of the wire.
    pub const JOINS: &str = "this member joins its cluster and is in no view yet: ask another one, \
                             or ask again when it has joined";
    /// The reason of [`Failed`](OrderReport::Failed) at a member that holds locks for as many
    /// programs as it may. Programs go on by this text as well.
    pub const FULL: &str = "this member holds locks for as many programs as it may: ask another \
                            one, or ask again later";

    /// Returns whether no report follows.
    pub fn is_last(&self) -> bool {
        use OrderReport::{Done, Failed, NoService};
        matches!(self, Done { .. } | Failed(_) | NoService)
    }
}
