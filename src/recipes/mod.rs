//! Ready-made parts that programs build from locks. Each recipe uses the operations of a
//! [`LockService`](crate::LockService), and has no messages of its own. So recipes are fair,
//! fenced, and outlive the grantor as locks do.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `mutex.rs`, `reentrant_mutex.rs` | `Mutex`, `ReentrantMutex` |
//! | `read_write_lock.rs` | `ReadWriteLock`: many readers or one writer |
//! | `multi_lock.rs` | `MultiLock`: locks of several services |
//! | `leader_latch.rs`, `leader_selector.rs` | `LeaderLatch`, `LeaderSelector` |
//! | `leader_observer.rs`, `leadership.rs` | `LeaderObserver`; the common part of leaders |
//! | `semaphore.rs` | `Semaphore`: permits |
//! | `barrier.rs`, `double_barrier.rs` | `Barrier`, `DoubleBarrier` |
//! | `count_down_latch.rs` | `CountDownLatch` |
//! | `shared_count.rs`, `atomic_counter.rs` | `SharedCount`, `AtomicCounter` |
//! | `lock_value.rs` | `LockValue`: a value that travels with a lock |
//! | `partitions.rs`, `partition_guard.rs` | `Partitions` and the guard of one partition |
//! | `assignment.rs` | the shares of the claimants |
//! | `schedule.rs` | `Schedule`: a job for each tick, at one member |
//! | `token_gate.rs` | `TokenGate`: refuses stale holders at a resource |
//! | `acquire.rs`, `wait_future.rs` | the options of a request; a wait with or without a limit |
//! | `owner.rs`, `reentry.rs` | `Owner`; the entry of an owner into a lock that it has |
//! | `latest_hold.rs` | `LatestHold`: the latest hold that a recipe was granted |
//! | `any_guard.rs` | `AnyGuard` and `Fenced` for generic code |

mod acquire;
mod any_guard;
mod assignment;
mod atomic_counter;
mod barrier;
mod count_down_latch;
mod double_barrier;
mod latest_hold;
mod leader_latch;
mod leader_observer;
mod leader_selector;
mod leadership;
mod lock_value;
mod multi_lock;
mod mutex;
mod owner;
mod partition_guard;
mod partitions;
mod read_write_lock;
mod reentrant_mutex;
mod reentry;
mod schedule;
mod semaphore;
mod shared_count;
mod token_gate;
mod wait_future;

pub use acquire::Acquire;
pub use any_guard::{AnyGuard, Fenced};
pub use atomic_counter::{Addition, AtomicCounter, CounterError, CounterValue};
pub use barrier::{Barrier, BarrierError};
pub use count_down_latch::CountDownLatch;
pub use double_barrier::{DoubleBarrier, DoubleBarrierGuard};
pub use leader_latch::{
    AwaitLeadershipError, CloseError, CloseMode, LatchEvent, LatchEvents, LatchState, LeaderLatch,
    StartError,
};
pub use leader_observer::LeaderObserver;
pub use leader_selector::{LeaderSelector, SelectorError};
pub use leadership::{Participant, Participants, Term, TermEnd};
pub use lock_value::{LockGuard, LockValue, LockValueError};
pub use multi_lock::{MultiGuard, MultiLock, MultiLockError};
pub use mutex::{Mutex, MutexGuard};
pub use owner::Owner;
pub use partition_guard::PartitionGuard;
pub use partitions::{PartitionOwners, Partitions, PartitionsError};
pub use read_write_lock::{ReadGuard, ReadWriteLock, WriteGuard};
pub use reentrant_mutex::{ReentrantGuard, ReentrantMutex};
pub use reentry::EnterError;
pub use schedule::{MissedTicks, Schedule, ScheduleError, Tick};
pub use semaphore::{PermitsInUse, Semaphore, Usage};
pub use shared_count::{CountChanges, CountError, SharedCount, VersionedCount};
pub use token_gate::{StaleToken, TokenGate};
pub use wait_future::WaitFuture;

#[cfg(test)]
mod tests;
