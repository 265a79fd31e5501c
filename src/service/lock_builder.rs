//! Builders for lock requests.

use super::guard::Guard;
use super::handle::ServiceHandle;
use super::lock_error::{InvalidLease, InvalidWant, LockError, MAX_LEASE, TryLockError};
use super::request::{Grant, LockFuture, RequestFuture, RequestParts, TryLockFuture};
use super::shared_value::SharedValue;
use super::suspend_guard::SuspendGuard;
use crate::protocol::message::LockRequest;
use crate::protocol::{InvalidName, Metadata, OwnerId, Wait, Want};
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The options of all kinds of requests.
struct BuilderParts {
    service: Arc<ServiceHandle>,
    want: Result<Want, InvalidWant>,
    owner: OwnerId,
    lease: Option<Duration>,
    revocable: bool,
    metadata: Result<Metadata, InvalidName>,
    detects: bool,
}

impl BuilderParts {
    fn new(service: Arc<ServiceHandle>, want: Result<Want, InvalidWant>) -> Self {
        let (owner, metadata) = (OwnerId::default(), Ok(Metadata::default()));
        let (lease, revocable, detects) = (None, false, false);
        BuilderParts { service, want, owner, lease, revocable, metadata, detects }
    }

    fn request<E: From<InvalidWant> + From<InvalidLease> + From<InvalidName>>(
        self,
        wait: Wait,
    ) -> Result<RequestFuture, E> {
        let lease = self.lease.map(InvalidLease::check).transpose()?;
        let BuilderParts { service, want, owner, revocable, metadata, detects, .. } = self;
        let lock = LockRequest { want: want?, owner, revocable, metadata: metadata? };
        Ok(RequestFuture::new(service, RequestParts { lock, wait, lease, detects }))
    }
}

/// A request for a lock, for several, or for a suspension, from [`lock`](crate::LockService::lock),
/// [`lock_all`](crate::LockService::lock_all) and [`suspend`](crate::LockService::suspend). Await
/// it, or [`start`](LockBuilder::start) it and await it later.
#[must_use = "nothing is asked until this is awaited or started"]
pub struct LockBuilder<G = Guard> {
    parts: BuilderParts,
    wait: Wait,
    granted: PhantomData<fn() -> G>,
}

impl<G: Grant> LockBuilder<G> {
    pub(super) fn new(service: Arc<ServiceHandle>, want: Result<Want, InvalidWant>) -> Self {
        LockBuilder {
            parts: BuilderParts::new(service, want),
            wait: Wait::Forever,
            granted: PhantomData,
        }
    }

    /// Limits the wait to `limit`, then fails with [`LockError::TimedOut`]. Zero makes the request
    /// non-blocking. Asking a grantor at another member takes its time, at most
    /// [`Timing::answer`](crate::Timing::answer), and a missing answer counts as timed out. A limit
    /// above ten years counts as none. The limit also holds during recoveries, transfers and cuts.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = wait(limit);
        self
    }

    /// Limits the hold to `lease`, from the grant on, unless it is [extended](Guard::extend). The
    /// lease is above zero and at most ten years. Without one, the hold lasts until it is released
    /// or lost.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.parts.lease = Some(lease);
        self
    }

    /// Lets other members [request the lock back](crate::LockService::revoke), and [revoke it by
    /// force](crate::LockService::force_revoke) once this holder has been told. Listen to the
    /// guard's [`revocation`](Guard::revocation), and release the lock as soon as that is safe.
    ///
    /// Curator: `Revocable.makeRevocable`.
    pub fn revocable(mut self) -> Self {
        self.parts.revocable = true;
        self
    }

    /// The holder's data for other members to read: up to 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.parts.metadata = Metadata::new(metadata.as_ref());
        self
    }

    /// The owner of the request within this member: any number that the application chooses, say
    /// for a thread, a task or a session. It counts for [suspensions](crate::LockService::suspend)
    /// only: an owner with a hold passes a waiting one. The default 0 is the member as a whole. If
    /// its tasks always have some hold between them, it never waits for a suspension, except one
    /// that another owner of the member has. Give an owner wherever services are suspended.
    ///
    /// Geode: the thread.
    pub fn owner(mut self, owner: u64) -> Self {
        self.parts.owner = OwnerId(owner);
        self
    }

    /// Fails with [`LockError::Deadlock`] if the request waits in a circle. In a circle its owner
    /// holds a lock for which another owner waits, and so on. The last of them holds the lock that
    /// this request waits for. The owners may be of any members, and the locks of any services.
    /// Give each of them an [owner](LockBuilder::owner): a request of the member as a whole detects
    /// nothing, and is part of no detected circle.
    ///
    /// While the request waits, its member looks for a circle after four
    /// [`retry`](crate::Timing::retry), and then once in each [member
    /// lease](crate::Timing::member_lease). If several requests of a circle detect it, one of them
    /// fails. Its caller then releases the locks of its owner, and tries again. No request fails
    /// because of a circle that never existed; permits, and waits behind a suspension, count for no
    /// circle.
    ///
    /// Geode: none. Databases: the deadlock detector.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::LockError;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let one = stock.lock("a").owner(1).await?;
    /// let two = stock.lock("b").owner(2).await?;
    /// let waiting = stock.lock("b").owner(1).start();
    /// let refused = stock.lock("a").owner(2).detect_deadlock().await;
    /// assert_eq!(refused.unwrap_err(), LockError::Deadlock);
    /// two.release().await?;
    /// waiting.await?;
    /// # drop(one);
    /// # Ok(()) }
    /// ```
    pub fn detect_deadlock(mut self) -> Self {
        self.parts.detects = true;
        self
    }

    /// Returns the same request, for a guard of another type.
    pub(crate) fn granting<H: Grant>(self) -> LockBuilder<H> {
        LockBuilder { parts: self.parts, wait: self.wait, granted: PhantomData }
    }

    /// Sends the request now. The returned future has the request's
    /// [`position`](LockFuture::position), and gives the guard when awaited.
    pub fn start(self) -> LockFuture<G> {
        self.into_future().start()
    }
}

fn wait(limit: Duration) -> Wait {
    match limit {
        Duration::ZERO => Wait::Try,
        limit if limit > MAX_LEASE => Wait::Forever,
        limit => Wait::AtMost(limit),
    }
}

impl LockBuilder<SuspendGuard> {
    /// The reason: up to 4096 bytes of text. A caller reads it when it
    /// [inspects](crate::LockService::inspect_suspension) the service, or when it is refused a lock
    /// while the service is suspended. A waiter reads it with its
    /// [`position`](LockFuture::position), and the grantor's status shows it.
    pub fn reason(self, reason: impl AsRef<str>) -> Self {
        self.metadata(reason.as_ref())
    }
}

impl<G: Grant> IntoFuture for LockBuilder<G> {
    type Output = Result<G, LockError>;
    type IntoFuture = LockFuture<G>;

    fn into_future(self) -> LockFuture<G> {
        LockFuture::new(self.parts.request(self.wait))
    }
}

/// A request that never queues, for a lock or for several, from
/// [`try_lock`](crate::LockService::try_lock) and
/// [`try_lock_all`](crate::LockService::try_lock_all). It is granted only if all of them are free.
/// Await it.
#[must_use = "nothing is asked until this is awaited"]
pub struct TryLockBuilder<G = Guard> {
    parts: BuilderParts,
    granted: PhantomData<fn() -> G>,
}

impl<G: Grant> TryLockBuilder<G> {
    pub(super) fn new(service: Arc<ServiceHandle>, want: Result<Want, InvalidWant>) -> Self {
        TryLockBuilder { parts: BuilderParts::new(service, want), granted: PhantomData }
    }

    /// Returns the same request, for a guard of another type.
    pub(crate) fn granting<H: Grant>(self) -> TryLockBuilder<H> {
        TryLockBuilder { parts: self.parts, granted: PhantomData }
    }

    /// Limits the hold to `lease`, from the grant on, unless it is [extended](Guard::extend). The
    /// lease is above zero and at most ten years. Without one, the hold lasts until it is released
    /// or lost.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.parts.lease = Some(lease);
        self
    }

    /// Lets other members request the lock back: see [`LockBuilder::revocable`].
    pub fn revocable(mut self) -> Self {
        self.parts.revocable = true;
        self
    }

    /// The holder's data for other members to read: up to 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.parts.metadata = Metadata::new(metadata.as_ref());
        self
    }

    /// The owner of the request: see [`LockBuilder::owner`].
    pub fn owner(mut self, owner: u64) -> Self {
        self.parts.owner = OwnerId(owner);
        self
    }
}

impl<G: Grant> IntoFuture for TryLockBuilder<G> {
    type Output = Result<G, TryLockError>;
    type IntoFuture = TryLockFuture<G>;

    fn into_future(self) -> TryLockFuture<G> {
        TryLockFuture::new(self.parts.request(Wait::Try))
    }
}

/// A request to open an object, from [`open`](crate::LockService::open). Await it.
#[must_use = "nothing is asked until this is awaited"]
pub struct OpenBuilder {
    parts: BuilderParts,
    wait: Wait,
}

impl OpenBuilder {
    pub(super) fn new(service: Arc<ServiceHandle>, want: Result<Want, InvalidWant>) -> Self {
        OpenBuilder { parts: BuilderParts::new(service, want), wait: Wait::Forever }
    }

    /// Limits the wait for the grantor's answer to `limit`, then fails with
    /// [`LockError::TimedOut`]. A limit above ten years counts as none.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = wait(limit);
        self
    }
}

impl IntoFuture for OpenBuilder {
    type Output = Result<SharedValue, LockError>;
    type IntoFuture = LockFuture<SharedValue>;

    fn into_future(self) -> LockFuture<SharedValue> {
        LockFuture::new(self.parts.request(self.wait))
    }
}

impl std::fmt::Debug for OpenBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenBuilder")
            .field("want", &self.parts.want)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl<G> std::fmt::Debug for LockBuilder<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockBuilder")
            .field("want", &self.parts.want)
            .field("owner", &self.parts.owner)
            .field("wait", &self.wait)
            .field("lease", &self.parts.lease)
            .finish_non_exhaustive()
    }
}

impl<G> std::fmt::Debug for TryLockBuilder<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TryLockBuilder")
            .field("want", &self.parts.want)
            .field("owner", &self.parts.owner)
            .field("lease", &self.parts.lease)
            .finish_non_exhaustive()
    }
}
