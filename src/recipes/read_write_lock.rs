//! `ReadWriteLock`: many readers or one writer.

use crate::runtime::planted;
use crate::service::{
    Grant, Guard, HoldHandle, LockBuilder, LockService, Lost, TryLockBuilder, UpgradeError, held, held_by_token, sealed,
};

/// A lock that many may have for reading, or one for writing.
///
/// Readers have [shares](LockService::share) of the lock, a writer has the
/// [lock](LockService::lock) itself. Served in the order of asking: a reader that asks after a
/// writer waits behind it, so neither readers nor writers starve. Each guard, also a reader's, has
/// a fencing token of its own, higher than those of all earlier guards that shut it out.
///
/// Not reentrant by task or thread: a writer that asks to read waits for itself. So does a reader
/// that asks to read again behind a waiting writer. Each hold has one guard, so that no other one
/// is wrong about it when [`downgrade`](WriteGuard::downgrade) and [`upgrade`](ReadGuard::upgrade)
/// change one into the other. Tasks may share it by an [`Arc`](std::sync::Arc).
///
/// It is the lock of that name: any other holder of that lock, or of a share of it, is a writer or
/// a reader beside these.
///
/// Curator: `InterProcessReadWriteLock`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::ReadWriteLock;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let prices = ReadWriteLock::new(&shop, "prices");
/// let (one, two) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await.is_err());
/// one.release().await?;
/// two.release().await?;
/// let writer = prices.write().metadata("till 3").await?;
/// assert!(prices.try_read().await.is_err());
/// writer.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    service: LockService,
    name: Vec<u8>,
}

impl ReadWriteLock {
    /// The lock `name` of the service, 1 to 4096 bytes; sends no message. A name out of range is an
    /// error of each request.
    pub fn new(service: &LockService, name: impl AsRef<[u8]>) -> ReadWriteLock {
        ReadWriteLock { service: service.clone(), name: name.as_ref().to_vec() }
    }

    /// Asks to read, and waits until no writer has the lock or asked before.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// Dropped at any time, even after the grant: nothing stays held or queued.
    ///
    /// Curator: `InterProcessReadWriteLock.readLock().acquire`.
    pub fn read(&self) -> LockBuilder<ReadGuard> {
        self.service.share(&self.name).granting()
    }

    /// Reads if that can be at once. As [`LockService::try_share`].
    ///
    /// # Errors
    /// [`TryLockError`](crate::TryLockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// Dropped at any time: nothing stays held or queued.
    pub fn try_read(&self) -> TryLockBuilder<ReadGuard> {
        self.service.try_share(&self.name).granting()
    }

    /// Asks to write, and waits until the lock has no holder and no earlier waiter.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// Dropped at any time, even after the grant: nothing stays held or queued.
    ///
    /// Curator: `InterProcessReadWriteLock.writeLock().acquire`.
    pub fn write(&self) -> LockBuilder<WriteGuard> {
        if planted!(ReadForWrite) {
            return self.service.share(&self.name).granting();
        }
        self.service.lock(&self.name).granting()
    }

    /// Writes if that can be at once. As [`LockService::try_lock`].
    ///
    /// # Errors
    /// [`TryLockError`](crate::TryLockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// Dropped at any time: nothing stays held or queued.
    pub fn try_write(&self) -> TryLockBuilder<WriteGuard> {
        self.service.try_lock(&self.name).granting()
    }

    /// Its name, to [inspect](LockService::inspect) its readers, writer and waiters.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

/// A [`ReadWriteLock`] that is held for reading, beside other readers.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct ReadGuard(Guard);

/// A [`ReadWriteLock`] that is held for writing, alone. There is no second guard of the hold, which
/// would go on in that belief when the first one is [downgraded](WriteGuard::downgrade).
///
/// ```compile_fail
/// # async fn f(lock: elderlock::ReadWriteLock) {
/// let writer = lock.write().await.unwrap();
/// let inner = writer.reenter();
/// # }
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct WriteGuard(Guard);

impl ReadGuard {
    /// Makes a writer of this reader, with a new and higher token, if it is the only reader. Never
    /// waits for other readers, so two that try cannot wait for each other; writers that wait go on
    /// waiting.
    ///
    /// # Errors
    /// [`UpgradeError`], with this guard, if it is still good: [`UpgradeError::Shared`] if others
    /// read too.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back, as a reader's or a writer's.
    ///
    /// Curator: none; there a reader that asks to write waits for ever.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{ReadWriteLock, UpgradeError};
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let prices = ReadWriteLock::new(&shop, "prices");
    /// let (one, two) = (prices.read().await?, prices.read().await?);
    /// let (error, one) = one.upgrade().await.unwrap_err();
    /// assert!(matches!(error, UpgradeError::Shared { others: 1 }));
    /// two.release().await?;
    /// let writer = one.unwrap().upgrade().await.map_err(|(error, _)| error)?;
    /// writer.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn upgrade(self) -> Result<WriteGuard, (UpgradeError, Option<ReadGuard>)> {
        let upgraded = match self.0.upgrade().await {
            Err((UpgradeError::Shared { .. }, Some(share))) if planted!(UpgradeBlindly) => Ok(share),
            upgraded => upgraded,
        };
        upgraded.map(WriteGuard).map_err(|(error, guard)| (error, guard.map(ReadGuard)))
    }

    fn hold(&self) -> &HoldHandle {
        self.0.hold()
    }

    fn into_hold(self) -> HoldHandle {
        self.0.into_hold()
    }
}

impl WriteGuard {
    /// Makes a reader of this writer. It keeps its token, and no other writes in between; readers
    /// that wait first in line read beside it.
    ///
    /// # Errors
    /// [`Lost`]: the lock was lost before.
    ///
    /// Curator: a writer that acquires the read lock and then releases the write lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::ReadWriteLock;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let prices = ReadWriteLock::new(&shop, "prices");
    /// let writer = prices.write().await?;
    /// let reader = writer.downgrade()?;
    /// let other = prices.try_read().await?;
    /// # Ok(()) }
    /// ```
    pub fn downgrade(self) -> Result<ReadGuard, Lost> {
        self.0.downgrade().map(ReadGuard)
    }

    pub(super) fn hold(&self) -> &HoldHandle {
        self.0.hold()
    }

    fn into_hold(self) -> HoldHandle {
        self.0.into_hold()
    }
}

held!(ReadGuard, WriteGuard);
held_by_token!(ReadGuard, WriteGuard);

impl Grant for ReadGuard {}
impl Grant for WriteGuard {}

impl sealed::FromHold for ReadGuard {
    fn new(hold: HoldHandle) -> Self {
        ReadGuard(sealed::FromHold::new(hold))
    }
}

impl sealed::FromHold for WriteGuard {
    fn new(hold: HoldHandle) -> Self {
        WriteGuard(sealed::FromHold::new(hold))
    }
}
