//! The API for threads: write [`.block()`](Block::block) where an example has `.await`.
//!
//! A program without async joins with [`join`]. Its member has a thread of its own with a runtime
//! inside. So the program needs no runtime, and none of its threads has to answer other members.
//! Every call of the member, of its services and recipes is then a blocking call:
//!
//! ```
//! use elderlock::blocking::{self, Block};
//! use elderlock::{CountDownLatch, LeaderLatch, Member, Semaphore};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // As "127.0.0.1:7400", on a port that is free here.
//! # let here = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
//! let member = blocking::join(Member::builder("shop").bind(&here).seeds([&here]))?;
//! let stock = member.lock_service("inventory").block()?;
//!
//! let wait = Duration::from_secs(2);
//! let guard = stock.lock("sku-42").wait(wait).lease(Duration::from_secs(10)).block()?;
//! assert!(stock.try_lock("sku-42").block().is_err());
//! println!("write with token {}", guard.fence()?);
//! guard.release().block()?;
//!
//! let (one, other) = (stock.share("sku-42").block()?, stock.share("sku-42").block()?);
//! let tills = Semaphore::open(&stock, "tills", 2).block()?;
//! let both = tills.acquire(2).block()?;
//! let shelves = CountDownLatch::open(&stock, "shelves", 1).block()?;
//! shelves.count_down().block()?;
//! shelves.wait().block()?;
//! let latch = LeaderLatch::new(&stock, "cron", "node-1")?;
//! latch.start()?;
//! let term = latch.await_leadership().block()?;
//! println!("leads with token {}", term.fence()?);
//! # latch.close().block()?;
//! # drop((one, other, both));
//!
//! member.leave().block()?;
//! # Ok(()) }
//! ```
//!
//! A thread uses the same guards as a task: [`fence`](crate::Guard::fence) and the drop never
//! block, and [`lost`](crate::Guard::lost) with [`block_for`](Block::block_for) waits for a loss.
//!
//! # Within a runtime
//! [`join`] and [`local`] also work within a tokio runtime, and [`block`](Block::block) does not
//! panic there. It blocks its thread, so other tasks of that thread wait.
//!
//! | the member was joined with | its tasks run | `block` completes |
//! |---|---|---|
//! | [`join`] | on the member's own thread | as it does outside a runtime |
//! | `.await` | in the runtime of that call | on the only thread of that runtime: only if the call needs no answer of another member or of a timer |
//!
//! In async code use `.await`, or block in `spawn_blocking`.

use super::join_error::JoinError;
use super::member::Member;
use super::member_builder::MemberBuilder;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::task::coop::unconstrained;

/// Joins as [`MemberBuilder::join`] does, and blocks until that is done. The member has a thread of
/// its own, named `elderlock`, which ends when the member has left. Tasks of its recipes, such as a
/// [`LeaderLatch`](crate::LeaderLatch), run there too.
///
/// End with `member.leave().block()`. If the program ends before that thread does, no other member
/// gets the goodbye. The locks of this member are then free when its lease is over.
///
/// # Errors
/// [`JoinError`], as for [`MemberBuilder::join`]; [`JoinError::NoThread`].
///
/// ```
/// use elderlock::blocking::{self, Block};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let member = blocking::join(elderlock::Member::builder("shop").found())?;
/// assert!(member.is_elder());
/// member.leave().block()?;
/// # Ok(()) }
/// ```
pub fn join(builder: MemberBuilder) -> Result<Member, JoinError> {
    on_own_thread(builder.join())
}

/// A cluster of one within this process, as by [`Member::local`], on a thread of its own.
///
/// # Errors
/// As for [`Member::local`]; [`JoinError::NoThread`].
///
/// ```
/// use elderlock::blocking::{self, Block};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let member = blocking::local()?;
/// let stock = member.lock_service("inventory").block()?;
/// # Ok(()) }
/// ```
pub fn local() -> Result<Member, JoinError> {
    on_own_thread(Member::local())
}

/// Blocks the calling thread until a call is done. Every future and every builder of this crate
/// has these two methods once the trait is imported.
pub trait Block: IntoFuture + Sized {
    /// Waits for the result. This wait has no limit of its own: the call has one, such as
    /// [`LockBuilder::wait`](crate::LockBuilder::wait).
    ///
    /// ```
    /// use elderlock::blocking::{self, Block};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = blocking::local()?;
    /// let stock = member.lock_service("inventory").block()?;
    /// let guard = stock.lock("sku-42").block()?;
    /// # Ok(()) }
    /// ```
    fn block(self) -> Self::Output {
        // A task's budget does not fit here: it is renewed only when the task returns.
        let mut future = pin!(unconstrained(self.into_future()));
        let waker = waker();
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            thread::park();
        }
    }

    /// Waits for the result, at most for `limit`. `None`: there is no result yet, and the call is
    /// cancelled as its "Cancel safety" describes. A limit beyond the range of the clock counts as
    /// none.
    ///
    /// ```
    /// use elderlock::blocking::{self, Block};
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = blocking::local()?;
    /// let stock = member.lock_service("inventory").block()?;
    /// let guard = stock.lock("sku-42").block()?;
    /// let lost = guard.lost().block_for(Duration::from_millis(10));
    /// assert_eq!(lost, None);
    /// # Ok(()) }
    /// ```
    fn block_for(self, limit: Duration) -> Option<Self::Output> {
        let Some(end) = Instant::now().checked_add(limit) else { return Some(self.block()) };
        let mut future = pin!(unconstrained(self.into_future()));
        let waker = waker();
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

impl<F: IntoFuture> Block for F {}

/// A waker that unparks a blocked thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker of the calling thread.
fn waker() -> Waker {
    Waker::from(Arc::new(ThreadWaker(thread::current())))
}

/// Joins on a new thread, which keeps the member's runtime until the member has left.
fn on_own_thread<F>(joining: F) -> Result<Member, JoinError>
where
    F: Future<Output = Result<Member, JoinError>> + Send + 'static,
{
    let (tell, told) = mpsc::sync_channel(1);
    let run = move || {
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = tell.send(Err(JoinError::NoThread(error)));
                return;
            }
        };
        let joined = runtime.block_on(joining);
        let over = joined.as_ref().ok().map(|member| {
            member.keep_runtime(runtime.handle());
            member.has_left()
        });
        // The caller waits for the result, so the send succeeds.
        let _ = tell.send(joined);
        if let Some(over) = over {
            runtime.block_on(over);
        }
    };
    thread::Builder::new().name("elderlock".into()).spawn(run).map_err(JoinError::NoThread)?;
    // Without an answer the thread has panicked, and its message shows why.
    told.recv().unwrap_or_else(|_| {
        Err(JoinError::NoThread(std::io::Error::other("the thread of the member panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LostReason;

    /// A task may make some 128 calls before tokio lets other tasks run. A thread that blocks
    /// within a task cannot let them run.
    #[test]
    fn blocking_calls_within_a_task_neither_panic_nor_hang() {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let member = local().unwrap();
            let stock = member.lock_service("stock").block().unwrap();
            for _ in 0..1000 {
                stock.lock("a").block().unwrap().release().block().unwrap();
            }
        });
    }

    #[test]
    fn a_blocked_thread_is_woken_by_a_release_by_a_loss_and_by_its_limit() {
        let member = local().unwrap();
        let stock = member.lock_service("stock").block().unwrap();
        let first = stock.lock("a").block().unwrap();
        assert!(stock.lock("a").block_for(Duration::from_millis(20)).is_none());
        let waits = thread::spawn({
            let stock = stock.clone();
            move || stock.lock("a").block().unwrap()
        });
        thread::sleep(Duration::from_millis(20));
        first.release().block().unwrap();
        let second = waits.join().unwrap();
        assert_eq!(second.lost().block_for(Duration::from_millis(20)), None);
        let leaves = thread::spawn(move || member.leave().block());
        assert_eq!(second.lost().block(), LostReason::Left);
        leaves.join().unwrap().unwrap();
    }

    #[test]
    fn the_thread_of_a_member_ends_when_the_member_was_dropped() {
        let member = local().unwrap();
        let over = member.has_left();
        drop(member);
        assert!(over.block_for(Duration::from_secs(120)).is_some());
    }
}
