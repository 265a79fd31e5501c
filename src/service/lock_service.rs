//! `LockService`: a named set of locks. `lock_service/inspection.rs` has its questions, and
//! `lock_service/revocation.rs` the ways to get a hold back.

mod inspection;
mod revocation;

use super::batch_guard::BatchGuard;
use super::command::CommandFuture;
use super::grantorship::BecomeBuilder;
use super::handle::ServiceHandle;
use super::hold::HoldHandle;
use super::inspect::{self, ServiceExistsError};
use super::lock_builder::{LockBuilder, OpenBuilder, TryLockBuilder};
use super::lock_error::{InvalidWant, Unavailable};
use super::owner_entry::OwnerEntry;
use super::permit_guard::PermitGuard;
use super::suspend_guard::SuspendGuard;
use crate::protocol::id::Batch;
use crate::protocol::{
    Command, LockName, LostReason, OpenRequest, Outcome, Permits, ProcessId, ServiceName, Time,
    Value, Want,
};
use crate::runtime::engine::{Engine, Sleep, SleepEnd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A named set of locks, granted by one of the members, from
/// [`Member::lock_service`](crate::Member::lock_service).
///
/// Cheap to clone, and each clone counts its guards by itself. Threads that take many locks are
/// faster with a clone each than with one handle between them. A handle outlives a rejoin of its
/// member, and answers [`Unavailable::Left`](crate::Unavailable::Left) after the member has left.
///
/// Geode: `DistributedLockService`.
pub struct LockService {
    inner: Arc<ServiceHandle>,
}

impl Clone for LockService {
    fn clone(&self) -> Self {
        // Each handle has a count of its own: threads with a handle each write to shared memory
        // only for their tokens.
        LockService { inner: Arc::new(ServiceHandle::clone(&self.inner)) }
    }
}

impl LockService {
    pub(super) fn new(engine: Arc<Engine>, name: ServiceName) -> Self {
        LockService { inner: Arc::new(ServiceHandle::new(engine, name)) }
    }

    /// Returns whether a member grants the service, without making one of them its grantor.
    pub(super) async fn exists(&self) -> Result<bool, ServiceExistsError> {
        inspect::exists(&self.inner).await
    }

    pub(super) fn handle(&self) -> &Arc<ServiceHandle> {
        &self.inner
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.inner.destroyed.load(Ordering::Acquire)
    }

    /// Returns whether both are handles of one service of one member.
    pub(crate) fn is_same(&self, other: &LockService) -> bool {
        Arc::ptr_eq(&self.inner.owners, &other.inner.owners)
    }

    /// Returns whether the hold is of this service at this member.
    pub(crate) fn has(&self, hold: &HoldHandle) -> bool {
        Arc::ptr_eq(&self.inner.engine, &hold.service.engine)
            && self.inner.name == hold.service.name
    }

    /// The entry of a request for the lock in the owner's name.
    pub(crate) fn owner_entry(&self, name: &LockName, owner: u64) -> OwnerEntry {
        OwnerEntry::new(self.inner.clone(), name.clone(), owner)
    }

    /// Returns how many guards of the owner write, and how many only read, of a lock that the owner
    /// holds at this instant.
    pub(crate) fn entered_depth(&self, name: &LockName, owner: u64) -> (usize, usize) {
        self.inner.owners.depth(name, owner)
    }

    /// Returns whether any owner holds the lock at this instant.
    pub(crate) fn is_entered(&self, name: &LockName) -> bool {
        self.inner.owners.is_held(name)
    }

    /// The number of owners that this handle keeps in memory.
    #[cfg(test)]
    pub(crate) fn entries_kept(&self) -> usize {
        self.inner.owners.kept()
    }

    /// The present instant, by the clock of the member.
    pub(crate) fn now(&self) -> Time {
        self.inner.engine.now()
    }

    /// The runtime for the tasks of recipes.
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.inner.engine.runtime()
    }

    /// The time since the Unix epoch, by the member's wall clock.
    pub(crate) fn wall(&self) -> Duration {
        self.inner.engine.wall()
    }

    /// Completes after `span`, or when the member has left. The caller needs no runtime.
    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        self.inner.engine.sleep(span)
    }

    /// Runs `what` for at most `limit`. `None`: the limit was reached. If the member has left
    /// meanwhile, waits for the end of `what`, which comes at once. The caller needs no runtime.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, what: F) -> Option<F::Output> {
        let mut what = pin!(what);
        tokio::select! {
            biased;
            output = &mut what => return Some(output),
            woken = self.sleep(limit) => {
                if woken == SleepEnd::InTime {
                    return None;
                }
            }
        }
        Some(what.await)
    }

    /// The service's name.
    pub fn name(&self) -> &str {
        self.inner.name.as_str()
    }

    /// Asks for a lock, and queues for it: first come, first served. Set the options, then await
    /// the request.
    ///
    /// `name` is 1 to 4096 bytes of any value; a name out of range is an error of the await.
    /// Without [`wait`](LockBuilder::wait) the request waits for ever, without
    /// [`lease`](LockBuilder::lease) the hold lasts until the guard is released, dropped or lost.
    ///
    /// The locks are not reentrant by task or thread: a caller that holds a lock and asks for it
    /// again waits for itself. See [`Guard::reenter`](crate::Guard::reenter) and
    /// [`ReentrantMutex`](crate::ReentrantMutex).
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Geode: `DistributedLockService.lock`. Curator: `InterProcessMutex.acquire`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let request = stock.lock("sku-42").wait(Duration::from_secs(2));
    /// let guard = request.lease(Duration::from_secs(10)).await?;
    ///
    /// let error = stock.lock("sku-42").wait(Duration::from_millis(5)).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<[u8]>) -> LockBuilder {
        LockBuilder::new(self.inner.clone(), named(name, Want::Lock))
    }

    /// Takes a lock if it is free; neither queues nor waits for the end of an election, a recovery
    /// or a cut. If the grantor is another member, the call waits for one answer, at most
    /// [`Timing::answer`](crate::Timing::answer).
    ///
    /// # Errors
    /// [`TryLockError::Held`](crate::TryLockError::Held) with the holder;
    /// [`TryLockError::Undecided`](crate::TryLockError::Undecided) if no grantor answers; others as
    /// for `lock`. In every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    ///
    /// Geode: `DistributedLockService.lock` with a wait of 0.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        TryLockBuilder::new(self.inner.clone(), named(name, Want::Lock))
    }

    /// Asks for several locks, all or nothing, in one round trip. It takes 1 to 1024 different
    /// names of at most 1 MiB together; a repeated name counts once. The batch has one position in
    /// line, in the queue of each name, and is granted when each of its locks could be granted. No
    /// later request gets one of the locks before the batch, and the batch takes none before it
    /// gets all. So batches cannot wait for each other in a circle, and neither batches nor single
    /// locks starve.
    ///
    /// This rule covers the names of one batch. Two callers deadlock if each holds one lock and
    /// waits for the other's.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Geode: none that is public. Curator: `InterProcessMultiLock`, which takes the locks one
    /// after the other.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let accounts = member.lock_service("accounts").await?;
    /// let both = accounts.lock_all(["alice", "bob"]).await?;
    /// let (alice, bob) = (both.fence("alice")?, both.fence("bob")?);
    /// assert!(accounts.try_lock("bob").await.is_err());
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock_all(&self, names: impl IntoIterator<Item: AsRef<[u8]>>) -> LockBuilder<BatchGuard> {
        LockBuilder::new(self.inner.clone(), all(names))
    }

    /// Takes several locks if all of them are free; as [`try_lock`](LockService::try_lock) does for
    /// one.
    ///
    /// # Errors
    /// [`TryLockError::Held`](crate::TryLockError::Held) with the first name that is held, and with
    /// its holder; others as for `try_lock`. In every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    ///
    /// Geode: the `acquireTryLocks` behind its transactions, which is not public.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let accounts = member.lock_service("accounts").await?;
    /// let bob = accounts.lock("bob").await?;
    /// let error = accounts.try_lock_all(["alice", "bob"]).await.unwrap_err();
    /// assert_eq!(error.holder().unwrap().name.as_ref().unwrap().as_bytes(), b"bob");
    /// assert!(accounts.try_lock("alice").await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn try_lock_all(
        &self,
        names: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> TryLockBuilder<BatchGuard> {
        TryLockBuilder::new(self.inner.clone(), all(names))
    }

    /// Asks for a share of a lock, and queues for it. Any number of shares are held beside
    /// each other, and none beside the [lock](LockService::lock). Shares and locks are served in
    /// the order of asking. A share that comes after a waiter for the lock waits behind it, so
    /// neither readers nor writers starve.
    ///
    /// Each share has its own token. A later holder of the lock has a higher token than all shares
    /// before it.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Curator: `InterProcessReadWriteLock.readLock`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let readers = [stock.share("sku-42").await?, stock.share("sku-42").await?];
    /// assert!(stock.try_lock("sku-42").await.is_err());
    /// drop(readers);
    /// let writer = stock.lock("sku-42").await?;
    /// assert!(stock.try_share("sku-42").await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn share(&self, name: impl AsRef<[u8]>) -> LockBuilder {
        LockBuilder::new(self.inner.clone(), named(name, Want::Share))
    }

    /// Takes a share of a lock if the lock has neither holder nor waiter; as
    /// [`try_lock`](LockService::try_lock).
    ///
    /// # Errors
    /// As for [`try_lock`](LockService::try_lock).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    pub fn try_share(&self, name: impl AsRef<[u8]>) -> TryLockBuilder {
        TryLockBuilder::new(self.inner.clone(), named(name, Want::Share))
    }

    /// Opens an object: a value of up to 1024 bytes, which lives as long as a member has it open.
    /// The first opening sets the value to `initial`; later ones get the present value. Opening
    /// waits neither for locks nor for a suspension, only for a grantor that answers.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError); in every case nothing is open.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    ///
    /// Curator: `SharedValue.start`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// let colour = settings.open("colour", "red").await?;
    /// let again = settings.open("colour", "blue").await?;
    /// assert_eq!(&*again.get()?.value, b"red");
    /// # Ok(()) }
    /// ```
    pub fn open(&self, name: impl AsRef<[u8]>, initial: impl AsRef<[u8]>) -> OpenBuilder {
        let value = Value::new(initial.as_ref()).map_err(InvalidWant::Value);
        let want =
            value.and_then(|value| named(name, |name| Want::Open(OpenRequest::new(name, value))));
        OpenBuilder::new(self.inner.clone(), want)
    }

    /// Asks for `count` permits of an object at once, all or nothing: 1 to 65,536. The object's
    /// value is the number of permits, with 32 bits in little-endian order. There are none if that
    /// number is below zero as an `i32`, or if the value has not four bytes. This member must have
    /// the object [open](LockService::open) while it waits.
    ///
    /// Strictly first come, first served. The first request in the queue waits until as many
    /// permits are left as it asks for, and no request for fewer overtakes it. A lowered limit
    /// revokes no permits; nothing is granted until enough permits are returned. Each permit has a
    /// token, and the tokens of one grant are consecutive.
    ///
    /// # Errors
    /// [`LockError`](crate::LockError), [`LockError::NotOpen`](crate::LockError::NotOpen) among
    /// them; in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Curator: `InterProcessSemaphoreV2.acquire`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let two = pools.permits("db", 2).await?;
    /// assert!(pools.try_permits("db", 2).await.is_err());
    /// limit.set(4_u32.to_le_bytes()).await?;
    /// let two_more = pools.try_permits("db", 2).await?;
    /// # Ok(()) }
    /// ```
    pub fn permits(&self, name: impl AsRef<[u8]>, count: u32) -> LockBuilder<PermitGuard> {
        LockBuilder::new(self.inner.clone(), permits(name, count))
    }

    /// Takes permits if enough are left and no request waits for some; as
    /// [`try_lock`](LockService::try_lock).
    ///
    /// # Errors
    /// [`TryLockError::Held`](crate::TryLockError::Held) with one holder of permits,
    /// [`TryLockError::Limit`](crate::TryLockError::Limit) if there is none; others as for
    /// `try_lock`.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    pub fn try_permits(&self, name: impl AsRef<[u8]>, count: u32) -> TryLockBuilder<PermitGuard> {
        TryLockBuilder::new(self.inner.clone(), permits(name, count))
    }

    /// Suspends the service: waits until there is no other hold of it, and then keeps other
    /// requests waiting. The suspension lasts until the guard is resumed, dropped or lost. Earlier
    /// requests are served before it; later ones wait until the service is resumed. The
    /// [`position`](crate::LockFuture::position) of a pending suspension shows how many holds still
    /// have to drain.
    ///
    /// An owner that already holds something of the service passes a waiting suspension; otherwise
    /// it would deadlock. The suspender passes its own suspension, too. A holder may suspend the
    /// service and keeps its own holds. The [owner](LockBuilder::owner) is a number within the
    /// member. The default is the member as a whole, whose other tasks then neither drain nor wait.
    /// An owner whose holds overlap without end never waits for the suspension.
    ///
    /// # Errors
    /// [`LockError::Deadlock`](crate::LockError::Deadlock) at once if the suspension would wait for
    /// itself. That is so if its owner waits for a suspension already, or has one. It is also so if
    /// this owner and another one each hold a lock, and the other one waits for a suspension. Each
    /// would wait for the other. All other errors are those of `lock`. After an error nothing is
    /// suspended and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, the service is not suspended.
    ///
    /// Geode: `DistributedLockService.suspendLocking`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let (till, office) = (1, 2);
    ///
    /// let sale = stock.lock("sku-42").owner(till).await?;
    /// let suspending = stock.suspend().owner(office).reason("stock-taking").start();
    /// assert_eq!(suspending.position().await?.unwrap().holds, 1);
    /// sale.release().await?;
    /// let suspended = suspending.await?;
    ///
    /// let waiting = stock.lock("sku-42").owner(till).start();
    /// let suspension = waiting.position().await?.unwrap().suspension.unwrap();
    /// assert_eq!(suspension.metadata.as_bytes(), b"stock-taking");
    /// drop(waiting);
    /// assert!(stock.lock("sku-43").owner(till).wait(Duration::from_millis(5)).await.is_err());
    /// stock.lock("sku-43").owner(office).await?.release().await?;
    /// suspended.resume().await?;
    /// # Ok(()) }
    /// ```
    pub fn suspend(&self) -> LockBuilder<SuspendGuard> {
        LockBuilder::new(self.inner.clone(), Ok(Want::Suspension))
    }

    /// Lets this member *keep* locks of the service after their release, as cluster file systems
    /// do. Off by default. The setting applies to all handles of the service at this member, from
    /// their next request on. Other members decide for themselves.
    ///
    /// A member that locks a name again within some seconds keeps the lock if no other member wants
    /// it. Its tasks then take and release the lock without a message. When another member asks for
    /// the lock, the grantor recalls it. That member waits for one more round trip, or until the
    /// present holder releases it. A kept lock that is unused for 250 ms, or a sixteenth of
    /// [`Timing::member_lease`](crate::Timing::member_lease) if that is less, is released. A member
    /// keeps at most 1,024 locks of a service, unless
    /// [`MemberBuilder::kept_locks`](crate::MemberBuilder::kept_locks) says another number.
    ///
    /// [Shares](LockService::share) are kept as well, by any number of members at once. Up to 64
    /// tasks of a member have a kept share at the same time. When a member asks for the lock, the
    /// grantor recalls all shares. An [upgrade](crate::Guard::upgrade) beside shares that other
    /// members keep free waits for the answers to the recalls.
    ///
    /// Batches, permits, locks with [`metadata`](LockBuilder::metadata) and
    /// [revocable](LockBuilder::revocable) locks are not kept. Nothing is kept while the member's
    /// lease does not run.
    ///
    /// Keeping pays for names that one member locks many times in a row, such as a shard, a
    /// partition or the files of a customer. [`become_grantor`](LockService::become_grantor) serves
    /// a member that uses most names of a service.
    ///
    /// Keeping changes these promises:
    /// - Tokens rise for each *name*, and of a lock and a suspension the later one has the higher
    ///   token. Tokens of different names have no common order. Tokens of shares that several
    ///   members have at once have none either. Each is higher than that of the lock before it, and
    ///   lower than that of the lock after it.
    /// - A grant of a kept lock counts as earlier than all requests of other members whose recall
    ///   has not reached the keeper.
    /// - The death of the keeper costs what the death of a holder costs, also while the lock is
    ///   free.
    /// - A try at another member waits for the answer to the recall, at most
    ///   [`Timing::answer`](crate::Timing::answer).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let shards = member.lock_service("shards").await?;
    /// shards.keep_locks(true);
    /// for _ in 0..3 {
    ///     let guard = shards.lock("shard-7").await?;
    ///     println!("write with token {}", guard.fence()?);
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn keep_locks(&self, keep: bool) {
        self.inner.local_grants.set_keeps(keep);
    }

    /// Lets this member become the grantor of the service when it makes most of its requests. Off
    /// by default. The setting applies to all handles of the service at this member, from their
    /// next request on. Other members decide for themselves.
    ///
    /// A member asks to become the grantor when it got most of its tokens in each of three windows
    /// in a row. *Most* means at least two thirds of the service's tokens, and at least 16. A
    /// window is a quarter of [`Timing::member_lease`](crate::Timing::member_lease), or a little
    /// more. The member then reports [`FollowsLoad`](crate::MemberEvent::FollowsLoad), and becomes
    /// the grantor as by [`become_grantor`](LockService::become_grantor). So the grantor changes at
    /// most once in three windows, and not at all while no member makes most of the requests.
    /// Neither holders nor waiters notice a change.
    ///
    /// Following the load pays for services whose load moves, such as those of a program with one
    /// active member. [`keep_locks`](LockService::keep_locks) serves names that different members
    /// lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// jobs.follow_load(true);
    /// let guard = jobs.lock("nightly").await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn follow_load(&self, follow: bool) {
        self.inner.local_grants.set_follows(follow);
    }

    /// Makes this member the grantor of the service, so that its own locks cost no message. Holders
    /// and waiters notice nothing: the old grantor transfers its table, with the order of the
    /// waiters.
    ///
    /// If several members ask at the same time, the last one becomes the grantor, and the calls of
    /// the others fail. A grantor serves for twice [`Timing::retry`](crate::Timing) before the next
    /// takes over, so members that insist take turns. Members that ask before the elder knows that
    /// the previous grantor grants follow at once, each member once. The answer is this member's
    /// own knowledge: a call at a member that grants already succeeds at once. That holds also
    /// while the member is cut off and the other members may have another grantor.
    ///
    /// # Errors
    /// [`BecomeError`](crate::BecomeError). A failure changes no locks and no waits.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// this member may still become the grantor.
    ///
    /// Geode: `DistributedLockService.becomeLockGrantor`, which may return without having become
    /// it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// stock.become_grantor().await?;
    /// assert!(stock.is_grantor());
    /// # Ok(()) }
    /// ```
    pub fn become_grantor(&self) -> BecomeBuilder {
        BecomeBuilder::new(self.inner.clone())
    }

    /// Returns whether this member grants the locks of the service. The answer may be outdated when
    /// it is read; see [`MemberEvent::BecameGrantor`](crate::MemberEvent::BecameGrantor) and
    /// [`NoLongerGrantor`](crate::MemberEvent::NoLongerGrantor). False while the member still takes
    /// over, and after [`destroy`](LockService::destroy).
    ///
    /// Geode: `DistributedLockService.isLockGrantor`.
    pub fn is_grantor(&self) -> bool {
        !self.is_destroyed() && self.inner.engine.is_grantor(&self.inner.name)
    }

    /// The process id of the member that grants the locks of the service, as far as this member
    /// knows. `None`: it knows no grantor at the moment. Sends no message. The answer may be
    /// outdated when it is read. [`Status::view`](crate::Status) has the addresses of the members.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// assert_eq!(stock.grantor(), None);
    /// stock.lock("sku-42").await?.release().await?;
    /// assert_eq!(stock.grantor(), Some(member.process()));
    /// # Ok(()) }
    /// ```
    pub fn grantor(&self) -> Option<ProcessId> {
        if self.is_destroyed() { None } else { self.inner.engine.grantor_of(&self.inner.name) }
    }

    /// Destroys the service at this member. Its waiting requests are answered
    /// [`Unavailable::Destroyed`](crate::Unavailable::Destroyed), and its guards are lost. If this
    /// member is the grantor, another member takes over. Completes when the grantor confirms that
    /// nothing of this member is left, so that its former holds are free. Other members continue to
    /// use the service; other services do not notice.
    ///
    /// This handle and its clones answer "destroyed" from then on.
    /// [`Member::lock_service`](crate::Member::lock_service) returns a new handle at once, which is
    /// independent of the old one.
    ///
    /// # Errors
    /// [`DestroyError`].
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the destruction.
    ///
    /// Geode: `DistributedLockService.destroy`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LockError, Unavailable};
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// stock.destroy().await?;
    /// assert!(guard.fence().is_err());
    /// let error = stock.lock("sku-42").await.unwrap_err();
    /// assert_eq!(error, LockError::Unavailable(Unavailable::Destroyed));
    ///
    /// let again = member.lock_service("inventory").await?;
    /// assert!(again.try_lock("sku-42").await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn destroy(&self) -> Result<(), DestroyError> {
        let name = self.inner.name.clone();
        match CommandFuture::new(self.inner.clone(), move |request| Command::Destroy {
            request,
            service: name,
        })
        .await
        {
            Err(Outcome::Closed(LostReason::Left)) => Err(DestroyError::Left),
            Err(Outcome::Closed(LostReason::Destroyed)) => Err(DestroyError::Destroyed),
            Err(Outcome::Unconfirmed) => Err(DestroyError::Unconfirmed),
            // The member was expelled meanwhile: all members know that nothing of it is left.
            _ => Ok(()),
        }
    }
}

fn named(name: impl AsRef<[u8]>, want: impl FnOnce(LockName) -> Want) -> Result<Want, InvalidWant> {
    LockName::new(name.as_ref()).map(want).map_err(InvalidWant::Name)
}

fn permits(name: impl AsRef<[u8]>, count: u32) -> Result<Want, InvalidWant> {
    let count = Permits::new(count).map_err(InvalidWant::Permits)?;
    named(name, |name| Want::Permits(name, count))
}

fn all(names: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Want, InvalidWant> {
    let names: Result<Vec<_>, _> =
        names.into_iter().map(|name| LockName::new(name.as_ref())).collect();
    Batch::new(names.map_err(InvalidWant::Name)?).map(Want::Batch).map_err(InvalidWant::Batch)
}

impl std::fmt::Debug for LockService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockService").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Why [`LockService::destroy`] did nothing, or cannot confirm that all is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The service was destroyed before, through this handle or a clone of it.
    #[error("the service is destroyed already")]
    Destroyed,
    /// The member has left or is leaving, so all of its part in the service ends without this call.
    /// Other calls are refused with [`ServiceError::Left`](crate::ServiceError::Left); this call
    /// had nothing to do.
    #[error("{}", Unavailable::Left)]
    Left,
    /// The service is destroyed here, but no grantor has confirmed within a member lease that
    /// nothing of this member is left. Its former holds are free when a grantor learns of that, at
    /// the latest when this member is out of the view.
    #[error(
        "destroyed here, but no grantor confirmed it; \
         the locks of this member are free when a grantor hears of it"
    )]
    Unconfirmed,
}
