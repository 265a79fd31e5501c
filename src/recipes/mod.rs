//! What programs build from locks, ready made. Each recipe is made of what a [`LockService`](crate::LockService) gives, and
//! has no messages of its own: so all of them are fair, fenced, and outlive the grantor as locks do.

mod barrier;
mod count_down_latch;
mod double_barrier;
mod read_write_lock;
mod semaphore;
mod shared_count;

pub use barrier::{Barrier, BarrierError};
pub use count_down_latch::CountDownLatch;
pub use double_barrier::{DoubleBarrier, Inside};
pub use read_write_lock::{ReadGuard, ReadWriteLock, WriteGuard};
pub use semaphore::{Semaphore, Usage};
pub use shared_count::{Count, CountChanges, CountError, SharedCount};
