//! What users touch: members, lock services, guards, events.

mod batch_guard;
mod builder;
mod claims;
mod connection;
mod events;
mod grantorship;
mod guard;
mod held;
mod inspect;
#[cfg(feature = "secure")]
mod key_file;
mod lock_builder;
mod lock_error;
mod lock_service;
mod member;
mod permit_guard;
mod request;
mod revocation;
mod shared_value;
#[cfg(feature = "simulated")]
#[doc(hidden)]
pub mod simulated;
mod suspend_guard;

pub use crate::runtime::DataDirError;
pub use crate::runtime::counters::Counters;
pub use crate::runtime::engine::Standing;
pub use crate::runtime::transport::BindError;
pub use crate::wire::VoteError;
pub use batch_guard::{BatchGuard, FenceError};
pub use builder::{JoinError, MemberBuilder};
pub(crate) use claims::Claim;
pub use connection::{Connection, ConnectionState};
pub use events::{Events, MemberEvent};
pub use grantorship::{BecomeBuilder, BecomeError, Becoming};
pub(crate) use guard::Hold;
pub use guard::{ExtendError, Guard, LossWatch, Lost, ReleaseError, UpgradeError, Upgrading};
pub(crate) use held::{held, held_by_token};
pub use inspect::{HeldLocks, InspectError, Inspection, Position, Waiters};
#[cfg(feature = "secure")]
pub use key_file::KeyFileError;
pub use lock_builder::{LockBuilder, OpenBuilder, TryLockBuilder};
pub use lock_error::{InvalidLease, LockError, TryLockError};
pub use lock_service::{DestroyError, LockService};
#[cfg(feature = "secure")]
pub use member::KeyringError;
pub use member::{ForceError, LeaveError, Member, ServiceError};
pub use permit_guard::{GiveBackError, Lease, PermitGuard};
pub(crate) use request::sealed;
pub use request::{Grant, Locking, TryLocking};
pub use revocation::{Revocation, RevokeBuilder, RevokeError, RevokeOutcome, Revoking};
pub use shared_value::{SetError, SharedValue, ValueChanges, Versioned};
pub use suspend_guard::SuspendGuard;

#[cfg(test)]
pub(crate) mod tests;
