//! The public API for users: members, lock services, guards, events.

mod batch_guard;
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
mod sessions;
mod shared_value;
#[cfg(feature = "simulated")]
#[doc(hidden)]
pub mod simulated;
mod status_report;
mod suspend_guard;

pub use crate::runtime::DataDirError;
pub use crate::runtime::engine::ConnectionStatus;
pub use crate::runtime::net::counters::Counters;
pub use crate::runtime::net::transport::BindError;
pub use crate::wire::VoteError;
pub use batch_guard::{BatchGuard, FenceError};
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
    ExtendError, InvalidLease, InvalidWant, LockError, Lost, ReleaseError, TryLockError,
    Unavailable, UpgradeError,
};
pub use lock_service::{DestroyError, LockService};
#[cfg(feature = "secure")]
pub use member::KeyringError;
pub use member::{ForceError, LeaveError, MAX_SERVICES, Member, ServiceError};
pub use member_builder::MemberBuilder;
pub(crate) use owner_entry::{EntryRefused, OwnerEntry};
pub use permit_guard::{Permit, PermitGuard, ReturnPermitsError};
pub(crate) use request::sealed;
pub use request::{Grant, LockFuture, TryLockFuture};
pub use revocation::{Revocation, RevokeBuilder, RevokeError, RevokeFuture, RevokeOutcome};
pub use scoped::WithError;
pub use shared_value::{SetError, SharedValue, ValueChanges, Versioned};
pub use status_report::{
    HolderReport, LockReport, MemberReport, ServiceReport, StatusReport, ViewReport, WaiterReport,
};
pub use suspend_guard::SuspendGuard;

#[cfg(test)]
pub(crate) mod tests;
