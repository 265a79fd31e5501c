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
        /// The operator, as the order names it.
        operator: Metadata,
        /// The time that a told holder has for the release.
        wait: Duration,
        /// Whether the release is forced for holders that have not released the lock by then. Holds
        /// that are not revocable are ended at once, if their members allow it.
        force: bool,
    },
    /// To become the grantor of a service.
    Transfer {
        /// The service.
        service: ServiceName,
        /// The longest time that it may take.
        wait: Duration,
    },
    /// To leave the cluster.
    Leave,
    /// To continue without a quorum, as by `Member::force`.
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
    /// To hold a lock for the program that gives the order, for as long as the program keeps its
    /// session. [`hold_through`](crate::hold_through) gives this order.
    Lock(SessionRequest),
    /// An order to another member of the view, which the member passes on with its own key. So an
    /// operator needs to reach only one member. A lock is not passed on.
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
    /// Whether the request is for a share of the lock.
    pub shared: bool,
    /// The longest wait. `None`: without a limit.
    pub wait: Option<Duration>,
    /// The longest hold. `None`: until the session ends.
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

    /// Asks for a share of the lock. Other shares may exist beside it.
    pub fn shared(mut self) -> SessionRequest {
        self.shared = true;
        self
    }

    /// Limits the wait: `Duration::ZERO` tries once.
    pub fn wait(mut self, limit: Duration) -> SessionRequest {
        self.wait = Some(limit);
        self
    }

    /// Limits the hold: above zero and at most ten years.
    pub fn lease(mut self, lease: Duration) -> SessionRequest {
        self.lease = Some(lease);
        self
    }

    /// Sets the owner of the request: a random number, one for each task that waits with all its
    /// locks, among those of the member. [`blockers`](crate::LockService::blockers) then finds
    /// circles of owners that wait for each other. 0, unless set: no owner is known.
    pub fn owner(mut self, owner: u64) -> SessionRequest {
        self.owner = owner;
        self
    }

    /// Sets text or bytes for inspections.
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
    /// The program no longer uses the lock.
    Release,
    /// The program has stopped its use of the lock against its will. The member releases the lock
    /// as lost. A member of an older release ends the connection, and keeps the lock until the end
    /// in its last answer.
    Stopped(SessionStop),
}

/// Why a program stops its use of a lock before it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SessionStop {
    /// The lease of the lock is about to end.
    LeaseEnds,
    /// The member does not confirm the lock any more.
    Unconfirmed,
    /// The member leaves its cluster.
    MemberLeaves,
}

impl Order {
    /// Returns whether the order forces something on members that do not agree.
    pub fn is_forced(&self) -> bool {
        match self {
            Order::Revoke { force, .. } => *force,
            Order::Force => true,
            Order::PassOn { order, .. } => order.is_forced(),
            _ => false,
        }
    }

    /// The kind of the order, as the word of its command: for logs.
    pub fn kind(&self) -> &'static str {
        match self {
            Order::Revoke { .. } => "revoke",
            Order::Transfer { .. } => "transfer",
            Order::Leave => "leave",
            Order::Force => "force",
            Order::Inspect { .. } => "why",
            Order::Held { .. } => "held",
            Order::Lock(_) => "lock",
            Order::PassOn { order, .. } => order.kind(),
        }
    }

    /// The service that the order is about, if it is about one.
    pub fn service(&self) -> Option<&ServiceName> {
        match self {
            Order::Revoke { service, .. }
            | Order::Transfer { service, .. }
            | Order::Inspect { service, .. }
            | Order::Held { service, .. } => Some(service),
            Order::Lock(request) => Some(&request.service),
            Order::PassOn { order, .. } => order.service(),
            Order::Leave | Order::Force => None,
        }
    }

    /// The lock that the order is about, if it is about one.
    pub fn lock_name(&self) -> Option<&LockName> {
        match self {
            Order::Revoke { name, .. } | Order::Inspect { name, .. } => name.as_ref(),
            Order::Lock(request) => Some(&request.name),
            Order::PassOn { order, .. } => order.lock_name(),
            _ => None,
        }
    }
}

/// An order on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderRequest {
    /// The cluster of the member that the caller means.
    pub cluster: String,
    /// The versions of the wire that the caller speaks.
    pub versions: Versions,
    /// The order.
    pub order: Order,
}

/// A holder in a report, with the address and the name of its member if the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedHolder {
    /// The holder.
    pub info: HolderInfo,
    /// The address of the holder's member.
    pub addr: Option<SocketAddr>,
    /// The name of the holder's member.
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
    /// The hold has no lease, and lasts until it is released or lost.
    Unlimited,
    /// The hold ends after this time, unless it is extended.
    Left(Duration),
}

/// A circle of owners, each of which waits for a hold of the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Circle {
    /// No owner of the circle can continue: it lasts until a wait ends by its limit or its caller,
    /// or a hold ends otherwise.
    Deadlock,
    /// The circle may resolve itself. One of its waits is not sure, or an owner is a member as a
    /// whole, whose tasks may not wait for each other.
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

/// A hold of a chain in a report. `Blocker` is the same in the library.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedBlocker {
    /// 0 for a hold of the requested lock. Otherwise the hold's place in the chain: the owner of
    /// the nearest earlier hold that is one less deep waits for this hold.
    pub depth: u64,
    /// The waiting request of that owner.
    pub wait: Option<OwnerWait>,
    /// The service of the hold.
    pub service: ServiceName,
    /// The holder.
    pub holder: ReportedHolder,
    /// Whether the wait lasts as long as the hold stays as it is.
    pub is_sure: bool,
    /// The circle that this hold closes.
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

/// A waiter in a report, with the address and the name of its member if the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReportedWaiter {
    /// The waiter.
    pub info: WaiterInfo,
    /// The address of the waiter's member.
    pub addr: Option<SocketAddr>,
    /// The name of the waiter's member.
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
/// [`Failed`](OrderReport::Failed) and [`NoService`](OrderReport::NoService) are the last steps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OrderReport {
    /// The holder was told that the lock is requested back.
    Told(ReportedHolder),
    /// The holder's hold is not revocable. The holder was not contacted.
    NotRevocable(ReportedHolder),
    /// The hold is not revocable, and its member allows no forced revokes. The hold continues.
    ForceNotAllowed(ReportedHolder),
    /// The holder has released the lock.
    Released(ReportedHolder),
    /// The holder still has the lock when the wait is over.
    Kept(ReportedHolder),
    /// The release of the lock was forced.
    Taken(ReportedHolder),
    /// The release of the lock was to be forced, but the holder may still have the lock, for this
    /// reason.
    Unsure(ReportedHolder, String),
    /// The holder got the lock meanwhile and was not contacted.
    Later(ReportedHolder),
    /// The number of further holders that were not contacted.
    More(u64),
    /// The lock has no holder.
    NotHeld,
    /// The order was carried out as far as the previous reports say. `complete`: all of it was
    /// done.
    Done {
        /// Whether all of the order was done.
        complete: bool,
    },
    /// The order could not be carried out, for this reason.
    Failed(String),
    /// A holder of the lock, or a hold of the service.
    Holder(ReportedHolder),
    /// A request that waits. These reports come in the order in which the requests will be served.
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
        /// The lineage that dealt the token.
        lineage: LineageId,
    },
    /// The answer to [`KeepAlive`](SessionMessage::KeepAlive).
    Alive {
        /// The number of the question.
        number: u64,
        /// How long the lock is surely held, counted from the question. Zero: the request waits.
        held_for: Duration,
    },
    /// The lock of the session was not granted, for this reason.
    NotGranted(String),
    /// The lock of the session is lost, for this reason.
    Lost(String),
    /// The member leaves. It answers no more questions, and waits for the release until the end in
    /// its last answer.
    Leaves,
    /// There is no service of that name, so nothing was asked. This is the last report.
    NoService,
    /// The member that carries the order out. It tells so first in a transfer, a leave and a forced
    /// continuation.
    CarriedOutBy {
        /// Its name.
        member: MemberName,
        /// Its process.
        process: ProcessId,
        /// The address at which other members reach it.
        addr: SocketAddr,
    },
}

impl OrderReport {
    /// The reason of [`Failed`](OrderReport::Failed) at a member that joins: another one may carry
    /// out the order. Programs recognise this text, so it stays as it is; a report of its own would
    /// need a new version of the wire.
    pub const JOINS: &str = "this member joins its cluster and is in no view yet: ask another one, \
                             or ask again when it has joined";
    /// The reason of [`Failed`](OrderReport::Failed) at a member that holds locks for as many
    /// programs as it may. Programs recognise this text as well.
    pub const FULL: &str = "this member holds locks for as many programs as it may: ask another \
                            one, or ask again later";

    /// Returns whether readers of this version of the wire know the report.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_known_in(&self, version: u16) -> bool {
        version >= 13 || !matches!(self, OrderReport::CarriedOutBy { .. })
    }

    /// Returns whether no report follows.
    pub fn is_last(&self) -> bool {
        use OrderReport::{Done, Failed, NoService};
        matches!(self, Done { .. } | Failed(_) | NoService)
    }
}
