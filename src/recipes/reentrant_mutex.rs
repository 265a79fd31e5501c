//! `ReentrantMutex`: a lock that its owner enters again.

use super::acquire::{Acquire, AcquireOptions};
use super::owner::Owner;
use super::reentry::{EnterError, enter};
use crate::protocol::{InvalidName, LockName};
use crate::service::{Guard, HoldHandle, LockService, held, held_by_token};

/// A lock that belongs to an [`Owner`]: each task that acts for the owner of the hold enters at
/// once, without a message.
///
/// Each [`acquire`](ReentrantMutex::acquire) returns a [`ReentrantGuard`] of the one hold, all with
/// the same token. The guards may be released in any order, by any task; the lock is free when the
/// last of them is gone. Only a guard can release it. Guards outlive this value, which is only a
/// name. Any number of such values for one name, made anywhere in the process from the same member
/// and service, are the same mutex.
///
/// When the hold is lost (its lease, the member's lease, the service destroyed), all its guards
/// fail together. The owner cannot enter until they are dropped, because a new guard would share a
/// lost hold.
///
/// A [`MultiLock`](crate::MultiLock) or a writer of a [`ReadWriteLock`](crate::ReadWriteLock) that
/// was acquired for the owner enters the same hold, and the other way round. Locks that were
/// granted together are released together, with the last guard of any of the locks of that service.
///
/// The mutex is the lock of that name: [`LockService::lock`], [`Mutex`](crate::Mutex) and batches
/// exclude it and wait in the same line. [`inspect`](LockService::inspect) names its holder and its
/// waiters. Fairness, the death of the grantor, and suspension by owner are those of locks.
///
/// Curator: `InterProcessMutex`, where the owner is the thread, and reentry works through the same
/// instance only. Its `getParticipantNodes` is [`inspect`](LockService::inspect).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{Owner, ReentrantMutex};
/// # use std::time::Duration;
/// let member = elderlock::Member::local().await?;
/// let stock = member.lock_service("inventory").await?;
/// let (mutex, till) = (ReentrantMutex::new(&stock, "sku-42"), Owner::new());
///
/// let outer = mutex.acquire(till).wait(Duration::from_secs(2)).await?;
/// let inner = mutex.acquire(till).await?;
/// assert_eq!((mutex.depth(till), inner.fence()?), (2, outer.fence()?));
/// let other = mutex.acquire(Owner::new()).wait(Duration::from_millis(5));
/// assert!(other.await.unwrap_err().is_timeout());
/// outer.release().await?;
/// assert!(mutex.is_held());
/// inner.release().await?;
/// assert!(!mutex.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    service: LockService,
    name: Result<LockName, InvalidName>,
}

impl ReentrantMutex {
    /// The mutex that is the lock `name` of the service: 1 to 4096 bytes of any value. Sends no
    /// message; a name out of range is an error of [`acquire`](ReentrantMutex::acquire).
    pub fn new(service: &LockService, name: impl AsRef<[u8]>) -> Self {
        ReentrantMutex { service: service.clone(), name: LockName::new(name.as_ref()) }
    }

    /// Enters if the owner has the lock, else queues for it.
    ///
    /// Several tasks of one owner may ask at the same time: as soon as one of them is granted the
    /// lock, all enter. Each of them has a position in the queue of its own until then, so if one
    /// ends its request, the others continue to wait.
    ///
    /// A lease belongs to the hold, and counts from the grant. A lease that is given when the lock
    /// is entered again [extends](ReentrantGuard::extend) the hold's lease. It has no effect on a
    /// hold without one. A guard that enters a hold with a lease, and gives none itself, has the
    /// lock until the hold's lease ends. Then all guards of the hold fail together. The metadata is
    /// that of the request that was granted.
    ///
    /// # Errors
    /// [`EnterError`]; in every case nothing more is held than before, and nothing is queued.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: nothing stays held or queued, and the owner keeps its
    /// earlier holds.
    ///
    /// Curator: `InterProcessMutex.acquire`, with and without a limit.
    pub fn acquire(&self, owner: Owner) -> Acquire<ReentrantGuard, EnterError> {
        let (service, name) = (self.service.clone(), self.name.clone());
        let terms = AcquireOptions { owner: owner.number(), ..AcquireOptions::default() };
        let reads = false;
        Acquire::new(terms, async move |terms| {
            enter(service, name, terms, reads).await.map(ReentrantGuard)
        })
    }

    /// Returns whether any owner of this member holds the lock at this instant, through any value
    /// of this type. Sends no message. The call does not know the holds of other members, or plain
    /// locks: see [`inspect`](LockService::inspect).
    ///
    /// Curator: `isAcquiredInThisProcess`.
    pub fn is_held(&self) -> bool {
        self.name.as_ref().is_ok_and(|name| self.service.is_entered(name))
    }

    /// Returns whether the owner holds the lock at this instant.
    ///
    /// Curator: `isOwnedByCurrentThread`.
    pub fn is_held_by(&self, owner: Owner) -> bool {
        self.depth(owner) > 0
    }

    /// Returns how many guards the owner has of the hold. With a [`MultiLock`](crate::MultiLock)
    /// the hold is of all locks that were granted together. Returns 0 if the owner does not hold
    /// the lock at this instant, or has lost it. [Readers](crate::ReadWriteLock::read_for) do not
    /// count.
    ///
    /// Curator: the `lockCount`, which is not public.
    pub fn depth(&self, owner: Owner) -> usize {
        self.name.as_ref().map_or(0, |name| self.service.entered_depth(name, owner.number()).0)
    }
}

impl Acquire<ReentrantGuard, EnterError> {
    /// Lets other members [request the lock back](LockService::revoke), and [revoke it by
    /// force](LockService::force_revoke) once this holder has been told: see
    /// [`LockBuilder::revocable`](crate::LockBuilder::revocable). Listen to the guard's
    /// [`revocation`](ReentrantGuard::revocation). If the owner enters a hold again, the request
    /// that was granted decides whether the hold is revocable.
    ///
    /// Curator: `Revocable.makeRevocable` of `InterProcessMutex`.
    pub fn revocable(self) -> Self {
        self.made_revocable()
    }
}

/// A guard of a held [`ReentrantMutex`]. The hold ends with the last of them.
///
/// The hold cannot be turned into a share, as a [`Guard`] can: the other guards would still count
/// on the owner being alone.
///
/// ```compile_fail
/// # async fn f(mutex: elderlock::ReentrantMutex) {
/// let guard = mutex.acquire(elderlock::Owner::new()).await.unwrap();
/// let share = guard.downgrade();
/// # }
/// ```
#[must_use = "the lock is released when all guards are dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct ReentrantGuard(Guard);

impl ReentrantGuard {
    pub(super) fn hold(&self) -> &HoldHandle {
        self.0.hold()
    }

    fn into_hold(self) -> HoldHandle {
        self.0.into_hold()
    }
}

held!(ReentrantGuard);
held_by_token!(ReentrantGuard);
