//! `ReadWriteLock`: many readers or one writer.

use super::acquire::{Acquire, AcquireOptions};
use super::owner::Owner;
use super::reentry::{EnterError, enter};
use crate::protocol::LockName;
use crate::runtime::planted;
use crate::service::{
    Grant, Guard, HoldHandle, LockBuilder, LockService, Lost, OwnerEntry, TryLockBuilder,
    UpgradeError, held, held_by_token, sealed,
};

/// A lock that several owners may have for reading, or one for writing.
///
/// Readers have [shares](LockService::share) of the lock, a writer has the
/// [lock](LockService::lock) itself. Requests are served in their order: a reader that asks after a
/// writer waits behind it, so neither readers nor writers starve. Each guard, also a reader's, has
/// a fencing token of its own. It is higher than those of all earlier guards that excluded this
/// one.
///
/// An [`Owner`] enters its own hold again, without a message, by [`read_for`](Self::read_for) and
/// [`write_for`](Self::write_for):
///
/// | the owner | asks to read | asks to write |
/// |---|---|---|
/// | writes | reads beside its own writer | writes |
/// | only reads | reads, also ahead of writers that wait | is refused: it would wait for itself |
///
/// All guards of its hold have one token, end in any order, and fail together. When the owner's
/// last writer ends, its readers continue to read, and other owners may read beside them: no writer
/// comes in between.
///
/// Guards of [`read`](Self::read) and [`write`](Self::write) have no owner, and are the only guards
/// of their holds. A task with such a writer that asks to read waits for itself. So does one with
/// such a reader that asks to read again behind a waiting writer. Tasks may share a guard by an
/// [`Arc`](std::sync::Arc).
///
/// The read/write lock is the lock of that name. Any other holder of that lock, or of a share of
/// it, is a writer or a reader beside these. A [`ReentrantMutex`](crate::ReentrantMutex) or a
/// [`MultiLock`](crate::MultiLock) that was acquired for the owner counts as a writer: its guards
/// and the owner's writers enter one hold. The locks of a multi lock stay locks until its last
/// guard of that service is gone. Readers of its owner keep other owners out until then.
///
/// Curator: `InterProcessReadWriteLock`, where the owner is the thread, and a reader that asks to
/// write waits for ever.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{EnterError, LockError, Owner, ReadWriteLock};
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let (prices, till) = (ReadWriteLock::new(&shop, "prices"), Owner::new());
/// let writer = prices.write_for(till).await?;
/// let (inner, reader) = (prices.write_for(till).await?, prices.read_for(till).await?);
/// assert_eq!(writer.fence()?, reader.fence()?);
/// drop((writer, inner));
/// let other = prices.try_read().await?;
/// let refused = prices.write_for(till).await.unwrap_err();
/// assert_eq!(refused, EnterError::Lock(LockError::Deadlock));
/// # Ok(()) }
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Curator: `InterProcessReadWriteLock.readLock().acquire`.
    pub fn read(&self) -> LockBuilder<ReadGuard> {
        self.service.share(&self.name).granting()
    }

    /// Reads if that is possible at once. As [`LockService::try_share`].
    ///
    /// # Errors
    /// [`TryLockError`](crate::TryLockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    pub fn try_read(&self) -> TryLockBuilder<ReadGuard> {
        self.service.try_share(&self.name).granting()
    }

    /// Asks to write, and waits until the lock has no holder and no earlier waiter.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Curator: `InterProcessReadWriteLock.writeLock().acquire`.
    pub fn write(&self) -> LockBuilder<WriteGuard> {
        planted!(ReadForWrite => return self.service.share(&self.name).granting());
        self.service.lock(&self.name).granting()
    }

    /// Writes if that is possible at once. As [`LockService::try_lock`].
    ///
    /// # Errors
    /// [`TryLockError`](crate::TryLockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    pub fn try_write(&self) -> TryLockBuilder<WriteGuard> {
        self.service.try_lock(&self.name).granting()
    }

    /// Asks to read for the owner: enters if the owner reads or writes already, else waits as
    /// [`read`](Self::read) does. A reader that enters does not wait for waiting writers, so owners
    /// that read without end keep them waiting.
    ///
    /// Several tasks of one owner may ask at the same time. Leases and metadata count as for
    /// [`ReentrantMutex::acquire`](crate::ReentrantMutex::acquire).
    ///
    /// # Errors
    /// [`EnterError`]; in every case nothing more is held than before, and nothing is queued.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: nothing stays held or queued, and the owner keeps its
    /// earlier holds.
    ///
    /// Curator: `InterProcessReadWriteLock.readLock().acquire` of a thread that has either lock.
    pub fn read_for(&self, owner: Owner) -> Acquire<ReadGuard, EnterError> {
        self.acquire(owner, true, ReadGuard)
    }

    /// Asks to write for the owner: enters if the owner writes already, else waits as
    /// [`write`](Self::write) does.
    ///
    /// # Errors
    /// [`EnterError`]; in every case nothing more is held than before, and nothing is queued.
    /// [`LockError::Deadlock`](crate::LockError::Deadlock): the owner only reads. Its reader may
    /// [upgrade](ReadGuard::upgrade), or be released first.
    ///
    /// # Cancel safety
    /// As for [`read_for`](Self::read_for).
    ///
    /// Curator: `InterProcessReadWriteLock.writeLock().acquire`.
    pub fn write_for(&self, owner: Owner) -> Acquire<WriteGuard, EnterError> {
        self.acquire(owner, false, WriteGuard)
    }

    fn acquire<G: 'static>(
        &self,
        owner: Owner,
        reads: bool,
        guard: fn(Guard) -> G,
    ) -> Acquire<G, EnterError> {
        let (service, name) = (self.service.clone(), LockName::new(&self.name));
        let terms = AcquireOptions { owner: owner.number(), ..AcquireOptions::default() };
        Acquire::new(terms, async move |terms| enter(service, name, terms, reads).await.map(guard))
    }

    /// Returns whether the owner has a guard at this instant that [reads](Self::read_for). Sends no
    /// message.
    ///
    /// Curator: `readLock().isOwnedByCurrentThread`.
    pub fn is_read_by(&self, owner: Owner) -> bool {
        self.guards_of(owner).1 > 0
    }

    /// Returns whether the owner has a guard at this instant that [writes](Self::write_for). Sends
    /// no message.
    ///
    /// Curator: `writeLock().isOwnedByCurrentThread`.
    pub fn is_written_by(&self, owner: Owner) -> bool {
        self.guards_of(owner).0 > 0
    }

    fn guards_of(&self, owner: Owner) -> (usize, usize) {
        let name = LockName::new(&self.name);
        name.map_or((0, 0), |name| self.service.entered_depth(&name, owner.number()))
    }

    /// Returns the name, by which [`inspect`](LockService::inspect) shows the lock's readers,
    /// writer and waiters.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

impl Acquire<ReadGuard, EnterError> {
    /// Lets other members [request the lock back](LockService::revoke), and [revoke it by
    /// force](LockService::force_revoke) once this holder has been told: see
    /// [`LockBuilder::revocable`]. Listen to the guard's [`revocation`](ReadGuard::revocation). If
    /// the owner enters a hold again, the request that was granted decides whether the hold is
    /// revocable.
    ///
    /// Curator: `readLock().makeRevocable`.
    pub fn revocable(self) -> Self {
        self.made_revocable()
    }
}

impl Acquire<WriteGuard, EnterError> {
    /// As for [a reader](Acquire::<ReadGuard, EnterError>::revocable).
    ///
    /// Curator: `writeLock().makeRevocable`.
    pub fn revocable(self) -> Self {
        self.made_revocable()
    }
}

/// A [`ReadWriteLock`] that is held for reading, beside other readers.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct ReadGuard(Guard);

/// A [`ReadWriteLock`] that is held for writing, alone, or beside other guards of its owner.
///
/// The guard makes no second guard of itself: its owner [enters](ReadWriteLock::write_for) the hold
/// instead.
///
/// ```compile_fail
/// # async fn f(lock: elderlock::ReadWriteLock) {
/// let writer = lock.write().await.unwrap();
/// let inner = writer.reenter();
/// # }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct WriteGuard(Guard);

impl ReadGuard {
    /// Turns this reader into a writer, with a new and higher token, if it is the only reader.
    /// Never waits for other readers, so two that try cannot wait for each other; waiting writers
    /// continue to wait. A reader whose owner writes is a writer at once, with the same token.
    ///
    /// # Errors
    /// [`UpgradeError`], with this guard, if it is still good: [`UpgradeError::Shared`] if others
    /// read too, or its owner has other readers.
    ///
    /// # Cancel safety
    /// Dropping the future releases this guard, whether it is a reader or a writer by then.
    ///
    /// Curator: none; there a reader that asks to write waits for ever.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        let mut guard = self.0;
        if let Err(lost) = guard.fence() {
            return Err((lost.into(), None));
        }
        match guard.hold_mut().write_on() {
            Ok(()) => return Ok(WriteGuard(guard)),
            Err(0) => {}
            Err(others) => {
                let others = others as u64;
                return Err((UpgradeError::Shared { others }, Some(ReadGuard(guard))));
            }
        }
        match guard.upgrade().await {
            Ok(mut guard) => match guard.hold_mut().write_on() {
                Ok(()) => {
                    OwnerEntry::tell(guard.hold());
                    Ok(WriteGuard(guard))
                }
                // Another reader of the owner entered meanwhile and ended, and the lock became a
                // share with its end.
                Err(_) => Err((UpgradeError::Undecided, Some(ReadGuard(guard)))),
            },
            Err((UpgradeError::Shared { .. }, Some(share))) if planted!(UpgradeBlindly) => {
                Ok(WriteGuard(share))
            }
            Err((error, guard)) => Err((error, guard.map(ReadGuard))),
        }
    }

    fn hold(&self) -> &HoldHandle {
        self.0.hold()
    }

    fn into_hold(self) -> HoldHandle {
        self.0.into_hold()
    }
}

impl WriteGuard {
    /// Turns this writer into a reader. The guard keeps its token, and no other writer writes in
    /// between. Readers that wait first in the queue read beside it, when the owner has no other
    /// writer.
    ///
    /// # Errors
    /// [`Lost`]: the lock was lost before.
    ///
    /// Curator: a writer that acquires the read lock and then releases the write lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::ReadWriteLock;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let prices = ReadWriteLock::new(&shop, "prices");
    /// let writer = prices.write().await?;
    /// let reader = writer.downgrade()?;
    /// let other = prices.try_read().await?;
    /// # Ok(()) }
    /// ```
    pub fn downgrade(mut self) -> Result<ReadGuard, Lost> {
        self.0.hold_mut().read_on()?;
        Ok(ReadGuard(self.0))
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
