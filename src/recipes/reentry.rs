//! The entry of an owner into a lock that it has.

use super::acquire::AcquireOptions;
use crate::protocol::{InvalidName, LockName};
use crate::runtime::planted;
use crate::service::{EntryRefused, ExtendError, Guard, LockError, LockService, Lost};
use std::future::IntoFuture;

/// Returns one more guard of the hold that the owner of these options has. The guard only `reads`,
/// or has the lock. If the owner has no hold, the lock is requested.
pub(super) async fn enter(
    service: LockService,
    name: Result<LockName, InvalidName>,
    options: AcquireOptions,
    reads: bool,
) -> Result<Guard, EnterError> {
    let name = name.map_err(LockError::from)?;
    let entry =
        service.owner_entry(&name, if planted!(EnterForOthers) { 0 } else { options.owner });
    let asked = || {
        let name = name.as_bytes();
        options.put(if reads { service.share(name) } else { service.lock(name) })
    };
    planted!(AskAgain => return Ok(asked().await?));
    let hold = match entry.enter(reads)? {
        Some(hold) => hold,
        None => tokio::select! {
            // The order matters: after a grant to a sibling the task's own request is not needed.
            biased;
            hold = entry.entered(reads) => hold,
            granted = asked().into_future() => {
                let granted = granted?.into_hold();
                return Ok(Guard::new(entry.give_one(granted, reads)));
            }
        },
    };
    let guard = Guard::new(hold);
    match options.lease.map(|lease| guard.extend(lease)) {
        None | Some(Ok(())) => Ok(guard),
        Some(Err(ExtendError::InvalidLease(error))) => Err(LockError::from(error).into()),
        Some(Err(ExtendError::Lost(lost))) => Err(lost.into()),
    }
}

/// Why a lock was not acquired for an owner. Nothing more is held than before, and nothing is
/// queued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnterError {
    /// The lock was not granted. [`LockError::Deadlock`]: the owner only
    /// [reads](crate::ReadWriteLock::read_for) it, and would wait for itself.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The owner has guards of a hold that is lost: drop them, then ask again.
    #[error("the owner has lost the lock and still has guards of it: {0}")]
    Lost(#[from] Lost),
}

impl EnterError {
    /// Returns whether the wait limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, EnterError::Lock(error) if error.is_timeout())
    }

    /// Returns whether a hold, or the member, was lost.
    pub fn is_lost(&self) -> bool {
        match self {
            EnterError::Lock(error) => error.is_lost(),
            EnterError::Lost(_) => true,
        }
    }
}

impl From<EntryRefused> for EnterError {
    fn from(refused: EntryRefused) -> EnterError {
        match refused {
            EntryRefused::OnlyReads => EnterError::Lock(LockError::Deadlock),
            EntryRefused::Lost(lost) => EnterError::Lost(lost),
        }
    }
}
