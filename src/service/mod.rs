//! What users touch: members, lock services, guards, events.

mod builder;
mod events;
mod guard;
mod lock_error;
mod lock_service;
mod member;
mod request;

pub use crate::runtime::DataDirError;
pub use crate::runtime::counters::Counters;
pub use crate::runtime::transport::BindError;
pub use crate::wire::VoteError;
pub use builder::{JoinError, MemberBuilder};
pub use events::{Events, MemberEvent};
pub use guard::{ExtendError, Guard, Lost, ReleaseError};
pub use lock_error::{InvalidLease, LockError, TryLockError};
pub use lock_service::{LockBuilder, LockService, TryLockBuilder};
pub use member::{ForceError, LeaveError, Member, ServiceError};
pub use request::{Locking, TryLocking};

#[cfg(test)]
mod tests;
