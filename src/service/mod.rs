//! The public API for users: members, lock services, guards, events.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `member.rs`, `member_builder.rs` | `Member` and its set-up |
//! | `member_builder/check.rs` | the checks of the options of a builder |
//! | `member_builder/join.rs` | the start of a member |
//! | `waiting.rs` | the seeds or members that a joining process waits for |
//! | `member_builder/local_member.rs` | a member without a network |
//! | `member_builder/network_inbox.rs` | the way from the network to the engine |
//! | `join_error.rs` | `JoinError` |
//! | `key_file.rs`, `secret_file.rs` | cluster keys from files; files that no other user may use |
//! | `lock_service.rs`, `handle.rs` | `LockService`, and the state that its guards share |
//! | `lock_service/inspection.rs`, `lock_service/revocation.rs` | its questions; its revocations |
//! | `lock_builder.rs`, `request.rs` | builders for requests; a request on its way |
//! | `lock_error.rs`, `command.rs` | errors of locks; a command to the engine |
//! | `guard.rs`, `batch_guard.rs`, `permit_guard.rs` | guards of a lock, a batch and permits |
//! | `suspend_guard.rs`, `hold.rs`, `held.rs` | guard of a suspension; the common part of guards |
//! | `scoped.rs` | `with`: take a lock, work, release it |
//! | `owners.rs`, `owner_entry.rs` | the local owners of locks; an owner in a lock |
//! | `shared_value.rs` | `SharedValue`: an open object |
//! | `revocation.rs`, `grantorship.rs` | revocations; becoming the grantor |
//! | `blockers.rs` | the chain of holds and waits behind a lock |
//! | `inspect.rs`, `status_report.rs` | answers of a grantor; the status of a member for tools |
//! | `events.rs`, `connection.rs` | the events of a member; its connection status |
//! | `orders.rs`, `sessions.rs` | orders of operators; locks for programs without membership |
//! | `blocking.rs` | the API for threads |
//! | `http.rs`, `http/access.rs`, `http/metrics_text.rs` | a member over HTTP |
//! | `http/listener.rs`, `http/shown_locks.rs` | its sockets; the locks of its page |
//! | `http/last_events.rs` | the last events of a member, with their ages |
//! | `http/member_slot.rs` | the member of a view, which may not be there yet |
//! | `simulated.rs` | members of a simulation, for `elderlock-testing` |

mod batch_guard;
mod blockers;
pub mod blocking;
mod command;
mod connection;
mod events;
mod grantorship;
mod guard;
mod handle;
mod held;
mod hold;
#[cfg(feature = "http")]
pub mod http;
mod inspect;
mod join_error;
#[cfg(feature = "secure")]
mod key_file;
mod lock_builder;
mod lock_error;
mod lock_service;
mod member;
mod member_builder;
mod orders;
mod owner_entry;
mod owners;
mod permit_guard;
mod request;
mod revocation;
mod scoped;
#[cfg(feature = "secure")]
mod secret_file;
mod sessions;
mod shared_value;
#[cfg(feature = "simulated")]
#[doc(hidden)]
pub mod simulated;
mod status_report;
mod suspend_guard;
mod waiting;

pub use crate::runtime::DataDirError;
pub use crate::runtime::engine::ConnectionStatus;
pub use crate::runtime::net::counters::Counters;
pub use crate::runtime::net::transport::BindError;
pub use crate::wire::VoteError;
pub use batch_guard::{BatchGuard, FenceError};
pub use blockers::{Blocker, Blockers};
pub use connection::{Connection, ConnectionEvent};
pub use events::{Events, MemberEvent};
pub use grantorship::{BecomeBuilder, BecomeError, BecomeFuture};
pub use guard::{Guard, UpgradeFuture};
pub(crate) use held::{held, held_by_token};
pub(crate) use hold::HoldHandle;
pub use hold::LossWatch;
pub use inspect::{HeldLocks, InspectError, Inspection, Position, ServiceExistsError, Waiters};
pub use join_error::JoinError;
#[cfg(feature = "secure")]
pub use key_file::KeyFileError;
pub use lock_builder::{LockBuilder, OpenBuilder, TryLockBuilder};
pub(crate) use lock_error::not_open;
pub use lock_error::{
    ExtendError, InvalidLease, InvalidWant, LockError, Lost, MAX_LEASE, ReleaseError, TryLockError,
    Unavailable, UpgradeError,
};
pub use lock_service::{DestroyError, LockService};
#[cfg(feature = "secure")]
pub use member::KeyringError;
pub use member::{ForceError, LeaveError, MAX_SERVICES, Member, ServiceError};
pub use member_builder::{MAX_KEPT_LOCKS, MemberBuilder};
pub(crate) use owner_entry::{EntryRefused, OwnerEntry};
pub use permit_guard::{Permit, PermitGuard, ReturnPermitsError};
pub(crate) use request::sealed;
pub use request::{Grant, LockFuture, TryLockFuture};
pub use revocation::{Revocation, RevokeBuilder, RevokeError, RevokeFuture, RevokeOutcome};
pub use scoped::WithError;
#[cfg(feature = "secure")]
pub use secret_file::{SecretFileError, read_secret_file};
pub use shared_value::{SetError, SharedValue, ValueChanges, Versioned};
pub use status_report::{
    HolderReport, LockReport, MemberReport, ServiceReport, StatusReport, ViewReport, WaiterReport,
};
pub use suspend_guard::SuspendGuard;

#[cfg(test)]
pub(crate) mod tests;
