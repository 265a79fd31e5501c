//! `Barrier`: its waiters wait until it is removed.

use super::shared_count::{CountError, ObjectKind, SharedCount};
use super::wait_future::WaitFuture;
use crate::protocol::NumberEdit;
use crate::runtime::planted;
use crate::service::{LockError, LockService, ReleaseError, Unavailable};

/// A barrier that any member may set and remove. A waiter continues as soon as the barrier is not
/// set.
///
/// The barrier lives while a member has it open, and is not set when none has. Keep it open at the
/// member that sets it until the waiters have opened it. Setting or removing it takes one question
/// to the grantor, however many members do the same. When a member dies, the barrier that it set
/// stays set while other members have it open, and any of them may remove it. One death may undo a
/// change: that of the [grantor](LockService::is_grantor), with all members that knew the last
/// change. The barrier is then as it was before that, and marked
/// [`maybe_stale`](Barrier::maybe_stale).
///
/// The barrier counts how often it was set and removed. So a waiter continues after a removal, even
/// if the barrier is set again before the waiter looks.
///
/// A barrier uses the object of its name in the service. It cannot be opened while a
/// [`SharedCount`], a [`Semaphore`](crate::Semaphore), a [`DoubleBarrier`](crate::DoubleBarrier) or
/// a [`CountDownLatch`](crate::CountDownLatch) is open by that name.
///
/// Curator: `DistributedBarrier`, whose barrier stays in ZooKeeper for ever if the client that
/// should remove it dies.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::Barrier;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let opening = Barrier::open(&shop, "opening").await?;
/// opening.set().await?;
/// let waiting = tokio::spawn({
///     let opening = opening.clone();
///     async move { opening.wait().await }
/// });
/// opening.remove().await?;
/// waiting.await??;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the barrier is removed as soon as no member has it open"]
pub struct Barrier {
    /// Odd while the barrier is set. It rises by one with each setting and each removal.
    count: SharedCount,
}

impl Barrier {
    /// Opens the barrier `name`, 1 to 4096 bytes. It is not set if no member had it open.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherRecipe`]: a count, say, is open by that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
    ) -> WaitFuture<'static, Barrier, LockError> {
        let make = |count| Barrier { count };
        SharedCount::open_as(ObjectKind::Barrier, service, name.as_ref(), 0, make)
    }

    /// Sets the barrier: later waits do not return until it is removed. No error if it is set.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the barrier may be set or not. Others: nothing is changed.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// the barrier may be set.
    ///
    /// Curator: `DistributedBarrier.setBarrier`.
    pub async fn set(&self) -> Result<(), CountError> {
        self.switch(true).await
    }

    /// Removes the barrier: all waiters continue. No error if it is not set.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the barrier may be set or not. Others: nothing is changed.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// the barrier may be removed.
    ///
    /// Curator: `DistributedBarrier.removeBarrier`.
    pub async fn remove(&self) -> Result<(), CountError> {
        self.switch(false).await
    }

    /// Asks the grantor to set or remove the barrier. The grantor does so in the order of the
    /// requests. One round trip.
    async fn switch(&self, odd: bool) -> Result<(), CountError> {
        match self.count.step(NumberEdit::SetParity { odd }).await {
            Ok(_) | Err(CountError::Changed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Closes the barrier, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the barrier begins anew.
    /// With other clones of this barrier around only this clone ends, and the grantor is not told.
    /// One round trip, no message at the grantor's own member.
    ///
    /// A drop returns at once: a barrier that is opened before the grantor knows of the drop is as
    /// it was.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the barrier was lost before, or no grantor has
    /// answered within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the barrier too, but then the caller cannot know when the grantor
    /// does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.count.close().await
    }

    /// Returns whether the barrier is set, at an instant after the call. One round trip.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed. [`CountError::TimedOut`]: no grantor has answered within
    /// the [limit](WaitFuture::wait).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn is_set(&self) -> WaitFuture<'_, bool, CountError> {
        WaitFuture::new(self.count.service(), || CountError::TimedOut, self.look())
    }

    async fn look(&self) -> Result<bool, CountError> {
        Ok(is_set(self.count.fresh().await?.count))
    }

    /// Returns whether the grantor has died since the barrier was set or removed, so that a later
    /// change may be lost. The barrier may be set though it was removed, or the other way round.
    /// Setting or removing it anew ends that. This is this member's knowledge; the call sends no
    /// message.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    pub fn maybe_stale(&self) -> Result<bool, CountError> {
        Ok(self.count.get()?.maybe_stale)
    }

    /// Waits until the barrier is not set, or was removed since the wait began. Asks the grantor
    /// first: a task that knows that the barrier was set does wait.
    ///
    /// # Errors
    /// [`BarrierError`]: it is not known whether the barrier is set, or a [limit](WaitFuture::wait)
    /// ended.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `DistributedBarrier.waitOnBarrier`.
    pub fn wait(&self) -> WaitFuture<'_, (), BarrierError> {
        WaitFuture::new(self.count.service(), timed_out, self.pass())
    }

    async fn pass(&self) -> Result<(), BarrierError> {
        planted!(GateAlwaysOpen => return Ok(()));
        let count = self.count.opened_anew().await?;
        let began = count.get()?.count;
        count.until(|count| !is_set(count) || count != began && !planted!(GateForgets)).await?;
        Ok(())
    }
}

fn is_set(count: i32) -> bool {
    count & 1 == 1
}

/// The error at the end of a limit.
pub(super) fn timed_out() -> BarrierError {
    BarrierError::TimedOut
}

/// Why a wait at a [`Barrier`], a [`DoubleBarrier`](crate::DoubleBarrier) or a
/// [`CountDownLatch`](crate::CountDownLatch) failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The limit was reached.
    #[error("the wait limit ended")]
    TimedOut,
    /// The barrier or latch is no longer open, or the object is of another kind.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A lock that the barrier uses was not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl BarrierError {
    /// Returns whether the limit was reached.
    pub fn is_timeout(&self) -> bool {
        match self {
            BarrierError::TimedOut => true,
            BarrierError::Count(error) => error.is_timeout(),
            BarrierError::Lock(error) => error.is_timeout(),
        }
    }

    /// Returns whether the barrier or latch is no longer open. If so, the member was cut off,
    /// expelled or has left, or the service was destroyed here.
    pub fn is_lost(&self) -> bool {
        match self {
            BarrierError::Count(error) => error.is_lost(),
            BarrierError::Lock(error) => {
                error.is_lost() || *error == LockError::Unavailable(Unavailable::Destroyed)
            }
            BarrierError::TimedOut => false,
        }
    }
}
