//! An embeddable distributed lock service: fair, fenced, crash-proof locks between peer processes,
//! with no server to run.
//!
//! Each process that uses elderlock is a [`Member`] of a cluster. The members find each other and
//! agree on the list of members. The first member to ask for a lock of a [`LockService`] grants the
//! locks of that service. When any member dies, the others continue. Another member takes over its
//! service, and each lock that it held is granted to the next waiter.
//!
//! ```
//! # use std::time::Duration;
//! # struct Store;
//! # impl Store {
//! #     // Refuses tokens lower than the highest it has seen.
//! #     async fn update(&self, _: elderlock::Token, _: u32) -> std::io::Result<()> { Ok(()) }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use elderlock::Member;
//! # let store = Store;
//! # // As "127.0.0.1:7400", on a port that is free here.
//! # let addr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
//! let member = Member::builder("shop").bind(&addr).seeds([&addr]).join().await?;
//! let stock = member.lock_service("inventory").await?;
//! let request = stock.lock("sku-42").wait(Duration::from_secs(2));
//! let guard = request.lease(Duration::from_secs(10)).await?;
//! store.update(guard.fence()?, 41).await?;
//! guard.release().await?;
//! member.leave().await?;
//! # Ok(()) }
//! ```
//!
//! - **[`Guard::fence`]** gives a token that rises from grant to grant. Let the resource refuse
//!   tokens lower than the highest it has seen. Then no stale holder writes to it after a newer
//!   one, independent of clocks and networks. Call `fence` before each side effect: it is an error
//!   as soon as the lock is lost.
//! - **[`Member::local`]** gives the same in one process without sockets, for tests. The crate
//!   `elderlock-testing` causes every loss, in simulated time.
//! - **[`Member::events`]** and **[`Member::status`]** tell what happens and where things stand;
//!   [`telemetry`] says what is measured and logged.
//! - **[`Member::connection`]** tells when a member, and with it every guard, is cut off or back.
//! - Every future can be dropped at any time: nothing stays held or queued.
//! - **[`blocking`]** gives the same to threads without async: `.block()` in place of `.await`.
//!
//! The member above founds its cluster alone. [`MemberBuilder::seeds`] says when seeds found one
//! together.
//!
//! # Recipes
//!
//! Recipes are built on locks, so they are as fair, fenced and crash-proof.
//!
//! | purpose | type |
//! |---|---|
//! | one holder; its owner may enter again | [`ReentrantMutex`] |
//! | one holder; its owner may not enter again | [`Mutex`] |
//! | many readers or one writer | [`ReadWriteLock`] |
//! | locks of several services, all or nothing | [`MultiLock`] |
//! | a limited number of permits | [`Semaphore`] |
//! | one leader; the program asks or listens | [`LeaderLatch`] |
//! | one leader; work that runs while it leads | [`LeaderSelector`] |
//! | to see the leader without being a candidate | [`LeaderObserver`] |
//! | to make tasks wait until a barrier is removed | [`Barrier`] |
//! | work that all begin and end together | [`DoubleBarrier`] |
//! | to wait until a number of things are done | [`CountDownLatch`] |
//! | a number that is set, or a counter that is added to | [`SharedCount`], [`AtomicCounter`] |
//! | a small value that any member may write | [`SharedValue`] |
//! | a small value that only the holder of its lock may write | [`LockValue`] |
//! | a set of names that members divide among themselves | [`Partitions`] |
//! | a job that runs at fixed times on one member | [`Schedule`] |
//! | a resource in this process that refuses stale holders | [`TokenGate`] |
//!
//! # Limits
//!
//! | limit | of |
//! |---|---|
//! | [`MAX_SERVICE_NAME`], [`MAX_LOCK_NAME`], [`MAX_MEMBER_NAME`], [`MAX_CLUSTER`] | the bytes of a name: of a service, a lock, a member, a cluster |
//! | [`MAX_METADATA`] | the bytes that a holder or waiter may attach |
//! | [`MAX_VALUE`] | the bytes of a value |
//! | [`MAX_BATCH`], [`MAX_BATCH_NAMES`] | the locks of a batch, and the bytes of their names together |
//! | [`MAX_PERMITS`] | the permits of one request |
//! | [`MAX_LEASE`] | the lease of a hold, and the period of a schedule |
//! | [`MAX_SERVICES`], [`MAX_KEPT_LOCKS`] | the services of a member, unless it is configured; the kept locks of a service |
//! | [`MAX_COUNCIL`], [`MAX_BUSY_POLL`] | the members of the council; the time of one busy polling |
//! | [`MAX_KEYS`] | the keys of a ring |
//!
//! # Guides
//!
//! - [Getting started](https://docs.rs/crate/elderlock/latest/source/docs/guide/getting-started.md)
//! - [Recipes](https://docs.rs/crate/elderlock/latest/source/docs/guide/recipes.md)
//! - [Without async](https://docs.rs/crate/elderlock/latest/source/docs/guide/without-async.md)
//! - [Fencing](https://docs.rs/crate/elderlock/latest/source/docs/guide/fencing.md)
//! - [Testing](https://docs.rs/crate/elderlock/latest/source/docs/guide/testing.md)
//! - [Errors](https://docs.rs/crate/elderlock/latest/source/docs/guide/errors.md)
//! - [Operations](https://docs.rs/crate/elderlock/latest/source/docs/guide/operations.md)
//! - [Kubernetes](https://docs.rs/crate/elderlock/latest/source/docs/guide/kubernetes.md)
//! - [Upgrade](https://docs.rs/crate/elderlock/latest/source/docs/guide/upgrade.md)
//! - [From Curator](https://docs.rs/crate/elderlock/latest/source/docs/guide/from-curator.md)
//! - [From Geode](https://docs.rs/crate/elderlock/latest/source/docs/guide/from-geode.md)
//!
//! # Features
//! - `tokio` (default): everything but the pure protocol.
//! - `secure` (default): cluster keys, see [`Keyring`] and [`MemberBuilder::keyring`].
//! - `postgres`, `rusqlite`, `sqlx`: [`Token`] and [`LineageId`] as values of that driver
//!   (`postgres` for `tokio-postgres`), as `i64`.
//! - `http`: a router with metrics, probes, the status and a page, see [`http`].
//! - `metrics`: measurements through the `metrics` facade, see [`telemetry`].
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod gossip;
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "tokio")]
mod recipes;
#[cfg(feature = "tokio")]
mod runtime;
#[cfg(feature = "tokio")]
mod service;
#[cfg(any(feature = "postgres", feature = "rusqlite", feature = "sqlx"))]
mod sql;
#[doc(hidden)]
pub mod wire;

pub use protocol::id::{
    InvalidBatch, InvalidLineage, InvalidToken, MAX_BATCH, MAX_BATCH_NAMES, MAX_LOCK_NAME,
    MAX_METADATA, MAX_PERMITS, MAX_SERVICE_NAME, MAX_VALUE,
};
pub use protocol::message::{HoldState, OwnerWait, WaiterInfo};
pub use protocol::{
    Epoch, GrantorState, HolderInfo, Host, InvalidMemberName, InvalidName, InvalidPermits,
    InvalidTiming, InvalidValue, Lineage, LineageId, LockName, LockStatus, LostReason, MAX_COUNCIL,
    MAX_MEMBER_NAME, MemberInfo, MemberName, Metadata, Mode, ProcessId, RequestId,
    RevocationRequest, ServiceName, ServiceStatus, Slot, Status, Timing, Token, Versions, View,
    ViewMember, ViewNumber,
};
#[cfg(all(feature = "secure", feature = "tokio"))]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub use runtime::{give_order_with, hold_through_with, query_status_of_with, query_status_with};
#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub use wire::secure::{ClusterKey, KeyError, KeyName, Keyring, MAX_KEYS};
pub use wire::{Circle, HoldLease, MAX_CLUSTER, ReportedBlocker};
pub use wire::{
    Order, OrderReport, ReportedHolder, ReportedWaiter, Role, SessionRequest, SessionStop,
};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use {
    recipes::*,
    runtime::{
        MAX_BUSY_POLL, OrderReports, QueryError, give_order, query_status, query_status_of,
        telemetry,
    },
    runtime::{SessionEnd, SessionError, SessionGuard, hold_through},
    service::*,
};

/// The code of the documents, as doctests.
#[cfg(all(doctest, feature = "tokio"))]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guide/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../docs/guide/recipes.md")]
    struct Recipes;
    #[doc = include_str!("../docs/guide/without-async.md")]
    struct WithoutAsync;
    #[doc = include_str!("../docs/guide/from-curator.md")]
    struct FromCurator;
    #[doc = include_str!("../docs/guide/from-geode.md")]
    struct FromGeode;
}
