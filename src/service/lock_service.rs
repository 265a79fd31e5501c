//! `LockService`: a named set of locks.

use super::guard::Guard;
use super::lock_error::{InvalidLease, LONGEST, LockError, TryLockError};
use super::request::{Locking, Request, TryLocking, Wish};
use crate::protocol::{InvalidName, LockName, Metadata, ServiceName, Wait};
use crate::runtime::engine::Engine;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

/// A named set of locks, granted by one of the members, from [`Member::lock_service`](crate::Member::lock_service).
///
/// Cheap to clone. It outlives a rejoin of its member, and answers [`LockError::Left`] after the member has left.
///
/// Geode: `DistributedLockService`.
#[derive(Clone)]
pub struct LockService {
    inner: Arc<Inner>,
}

/// What handles, requests and guards of one service share.
pub(super) struct Inner {
    pub(super) engine: Arc<Engine>,
    pub(super) name: ServiceName,
}

impl LockService {
    pub(super) fn new(engine: Arc<Engine>, name: ServiceName) -> Self {
        LockService { inner: Arc::new(Inner { engine, name }) }
    }

    /// The service's name.
    pub fn name(&self) -> &str {
        self.inner.name.as_str()
    }

    /// Asks for a lock, and waits in line for it: first come, first served. Set what you need, then await it.
    ///
    /// `name` is 1 to 4096 bytes of any value; a name out of range is an error of the await. Without
    /// [`wait`](LockBuilder::wait) it waits for ever, without [`lease`](LockBuilder::lease) it holds until the guard is
    /// released, dropped or lost.
    ///
    /// The locks are not reentrant by task or thread: whoever holds a lock and asks for it again waits for himself.
    /// See [`Guard::reenter`].
    ///
    /// # Errors
    /// [`LockError`]; in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// Dropped at any time, even after the grant: nothing stays held or queued.
    ///
    /// Geode: `DistributedLockService.lock`. Curator: `InterProcessMutex.acquire`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").wait(Duration::from_secs(2)).lease(Duration::from_secs(10)).await?;
    ///
    /// let error = stock.lock("sku-42").wait(Duration::from_millis(5)).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<[u8]>) -> LockBuilder {
        LockBuilder {
            service: self.inner.clone(),
            name: LockName::new(name.as_ref()),
            wait: Wait::Forever,
            lease: None,
            metadata: Ok(Metadata::default()),
        }
    }

    /// Takes a lock if it is free; neither queues nor waits for an election, a recovery or a cut to end. If the grantor
    /// is another member, it waits for one answer, at most [`Timing::answer`](crate::Timing::answer).
    ///
    /// # Errors
    /// [`TryLockError::Held`] with the holder; [`TryLockError::Undecided`] if nobody can say; others as of `lock`. In
    /// every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// Dropped at any time: nothing stays held or queued.
    ///
    /// Geode: `DistributedLockService.lock` with a wait of 0.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::TryLockError;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").metadata(b"till 3").await?;
    /// match stock.try_lock("sku-42").await {
    ///     Err(TryLockError::Held(holder)) => assert_eq!(holder.metadata.as_bytes(), b"till 3"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_lock(&self, name: impl AsRef<[u8]>) -> TryLockBuilder {
        TryLockBuilder {
            service: self.inner.clone(),
            name: LockName::new(name.as_ref()),
            lease: None,
            metadata: Ok(Metadata::default()),
        }
    }
}

impl std::fmt::Debug for LockService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockService").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A wish for a lock, from [`LockService::lock`]. Await it.
#[must_use = "nothing is asked until this is awaited"]
pub struct LockBuilder {
    service: Arc<Inner>,
    name: Result<LockName, InvalidName>,
    wait: Wait,
    lease: Option<Duration>,
    metadata: Result<Metadata, InvalidName>,
}

impl LockBuilder {
    /// Waits at most so long, then [`LockError::TimedOut`]. Zero: takes the lock only if it is free; asking a
    /// grantor elsewhere takes its time, at most [`Timing::answer`](crate::Timing::answer), and an answer that does not
    /// come counts as timed out. Above ten years: for ever. Kept during recoveries and cuts too.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = match limit {
            Duration::ZERO => Wait::Try,
            limit if limit > LONGEST => Wait::Forever,
            limit => Wait::AtMost(limit),
        };
        self
    }

    /// Holds at most so long, from the grant on, unless [extended](Guard::extend). More than zero, at most ten years.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// What others may read about the holder: up to 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.metadata = Metadata::new(metadata.as_ref());
        self
    }

    fn request(self) -> Result<Request, LockError> {
        let lease = self.lease.map(InvalidLease::check).transpose()?;
        let wish = Wish { name: self.name?, wait: self.wait, lease, metadata: self.metadata? };
        Ok(Request::new(self.service, wish))
    }
}

impl IntoFuture for LockBuilder {
    type Output = Result<Guard, LockError>;
    type IntoFuture = Locking;

    fn into_future(self) -> Locking {
        Locking::new(self.request())
    }
}

/// A wish for a lock if it is free, from [`LockService::try_lock`]. Await it.
#[must_use = "nothing is asked until this is awaited"]
pub struct TryLockBuilder {
    service: Arc<Inner>,
    name: Result<LockName, InvalidName>,
    lease: Option<Duration>,
    metadata: Result<Metadata, InvalidName>,
}

impl TryLockBuilder {
    /// Holds at most so long, from the grant on, unless [extended](Guard::extend). More than zero, at most ten years.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// What others may read about the holder: up to 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.metadata = Metadata::new(metadata.as_ref());
        self
    }

    fn request(self) -> Result<Request, TryLockError> {
        let lease = self.lease.map(InvalidLease::check).transpose()?;
        let wish = Wish { name: self.name?, wait: Wait::Try, lease, metadata: self.metadata? };
        Ok(Request::new(self.service, wish))
    }
}

impl IntoFuture for TryLockBuilder {
    type Output = Result<Guard, TryLockError>;
    type IntoFuture = TryLocking;

    fn into_future(self) -> TryLocking {
        TryLocking::new(self.request())
    }
}

impl std::fmt::Debug for LockBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockBuilder")
            .field("name", &self.name)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TryLockBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TryLockBuilder").field("name", &self.name).field("lease", &self.lease).finish_non_exhaustive()
    }
}
