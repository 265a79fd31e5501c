//! `Mutex`: a lock that its holder cannot enter again.

use super::acquire::{Acquire, AcquireOptions};
use super::latest_hold::{LatestHold, TrackedHold};
use super::owner::Owner;
use crate::protocol::{InvalidName, LockName, Token};
use crate::service::{Guard, HoldHandle, LockError, LockService, LossWatch, held, held_by_token};
use std::sync::Arc;

/// A lock that is not reentrant: a holder that asks for it again waits for itself, until its limit
/// ends. There is one guard of it in the cluster at a time.
///
/// The mutex is the lock of that name, as by [`LockService::lock`], and remembers whether a guard
/// that it returned is held. Clones share this memory. A guard outlives this value.
///
/// Curator: `InterProcessSemaphoreMutex`. There acquire and release take four writes with a quorum,
/// here one question.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// let member = elderlock::Member::local().await?;
/// let mutex = elderlock::Mutex::new(&member.lock_service("inventory").await?, "sku-42");
/// let guard = mutex.acquire().wait(Duration::from_secs(3)).await?;
/// assert!(mutex.acquire().wait(Duration::from_millis(5)).await.unwrap_err().is_timeout());
/// assert!(mutex.is_acquired());
/// guard.release().await?;
/// assert!(!mutex.is_acquired());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    service: LockService,
    name: Result<LockName, InvalidName>,
    /// The hold of the latest guard.
    last: Arc<LatestHold<LossWatch>>,
}

impl TrackedHold for LossWatch {
    fn token(&self) -> Token {
        LossWatch::token(self)
    }

    fn is_over(&self) -> bool {
        self.reason().is_some()
    }
}

impl Mutex {
    /// The mutex that is the lock `name` of the service: 1 to 4096 bytes of any value. Sends no
    /// message; a name out of range is an error of [`acquire`](Mutex::acquire).
    pub fn new(service: &LockService, name: impl AsRef<[u8]>) -> Self {
        Mutex { service: service.clone(), name: LockName::new(name.as_ref()), last: Arc::default() }
    }

    /// Queues for the lock.
    ///
    /// # Errors
    /// [`LockError`]; in every case nothing more is held than before, and nothing is queued.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, even after the grant: nothing stays held or queued.
    ///
    /// Curator: `InterProcessSemaphoreMutex.acquire`, with and without a limit.
    pub fn acquire(&self) -> Acquire<MutexGuard, LockError> {
        let (service, name, last) = (self.service.clone(), self.name.clone(), self.last.clone());
        Acquire::new(AcquireOptions::default(), async move |terms: AcquireOptions| {
            let guard = MutexGuard(terms.lock(&service, name?.as_bytes()).await?);
            last.note(guard.watch());
            Ok(guard)
        })
    }

    /// Returns whether a guard that this value or a clone of it returned is held at this instant.
    /// Sends no message.
    ///
    /// Curator: `isAcquiredInThisProcess`, which is true until the release, also after the end of
    /// the session.
    pub fn is_acquired(&self) -> bool {
        self.last.get().is_some()
    }
}

impl Acquire<MutexGuard, LockError> {
    /// Sets the owner. It counts for [suspensions](LockService::suspend) only, see
    /// [`LockBuilder::owner`](crate::LockBuilder::owner). The owner does not enter a lock that it
    /// has.
    pub fn owner(self, owner: Owner) -> Self {
        self.owned_by(owner.number())
    }

    /// Lets other members [request the lock back](LockService::revoke), and [revoke it by
    /// force](LockService::force_revoke) once this holder has been told: see
    /// [`LockBuilder::revocable`](crate::LockBuilder::revocable). Listen to the guard's
    /// [`revocation`](MutexGuard::revocation).
    ///
    /// Curator: none. Its `InterProcessSemaphoreMutex` cannot be revoked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = elderlock::Mutex::new(&stock, "sku-42").acquire().revocable().await?;
    /// stock.revoke("sku-42").metadata("stock-taking").await?;
    /// let request = guard.revocation().requested().await.expect("it is held");
    /// assert_eq!(request.metadata.as_bytes(), b"stock-taking");
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn revocable(self) -> Self {
        self.made_revocable()
    }
}

/// A [`Mutex`] that is held: its only guard. The hold ends when the guard is released or dropped.
///
/// The hold cannot be entered again, nor turned into a share, as a [`Guard`] can: its holder is
/// alone until it is released or lost.
///
/// ```compile_fail
/// # async fn f(mutex: elderlock::Mutex) {
/// let guard = mutex.acquire().await.unwrap();
/// let second = guard.reenter();
/// # }
/// ```
///
/// ```compile_fail
/// # async fn f(mutex: elderlock::Mutex) {
/// let guard = mutex.acquire().await.unwrap();
/// let share = guard.downgrade();
/// # }
/// ```
///
/// Curator: the `Lease` within `InterProcessSemaphoreMutex`, which is not public.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct MutexGuard(Guard);

impl MutexGuard {
    pub(super) fn hold(&self) -> &HoldHandle {
        self.0.hold()
    }

    fn into_hold(self) -> HoldHandle {
        self.0.into_hold()
    }
}

held!(MutexGuard);
held_by_token!(MutexGuard);
