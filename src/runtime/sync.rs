//! The local path's locks, counters and waits: std's, and under `--cfg elderlock_shuttle`
//! shuttle's.
//!
//! Shuttle runs the threads of a test one at a time and chooses, at every lock and every atomic,
//! which thread goes on. So the engine that ships is driven through thousands of orders
//! (`service/tests/threads.rs`); in every other build the names here are std's own. tokio's
//! `Notify`, `watch` and `broadcast` stay as they are. Each call of theirs is one step there, with
//! a seam before it where it matters, and their waiting tasks are woken through shuttle.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::PoisonError;

#[cfg(not(elderlock_shuttle))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
    // A reader takes one of eight locks, by its thread; a writer takes all. So threads that only
    // read rarely meet.
    pub(crate) use crossbeam_utils::sync::{
        ShardedLock as RwLock, ShardedLockWriteGuard as RwLockWriteGuard,
    };
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::fence;
    pub(crate) use std::sync::{Mutex, MutexGuard};

    /// Returns whether a thread panicked while writing.
    pub(crate) fn is_poisoned<T>(lock: &RwLock<T>) -> bool {
        lock.is_poisoned()
    }

    /// Does nothing in a build for use.
    #[inline(always)]
    pub(crate) fn seam() {}

    /// Returns whether a test has planted this break: never here.
    pub(crate) const fn is_planted(_: super::ThreadMutant) -> bool {
        false
    }
}

#[cfg(elderlock_shuttle)]
mod real {
    use super::ThreadMutant;
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::atomic::fence;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};

    /// Never: a panic ends the whole test.
    pub(crate) fn is_poisoned<T>(_: &RwLock<T>) -> bool {
        false
    }

    /// Another thread may go on here.
    pub(crate) fn seam() {
        AtomicU8::new(0).load(Ordering::SeqCst);
    }

    thread_local! {
        /// All threads of a test run on one thread of the system.
        static PLANTED: Cell<Option<ThreadMutant>> = const { Cell::new(None) };
    }

    /// Plants a break, or takes it out again.
    #[cfg(test)]
    pub(crate) fn plant(planted: Option<ThreadMutant>) {
        PLANTED.set(planted);
    }

    /// Returns whether a test has planted this break.
    pub(crate) fn is_planted(which: ThreadMutant) -> bool {
        PLANTED.get() == Some(which)
    }
}

pub(crate) use real::*;

/// Locks a mutex whose holders cannot panic half-way: the protected value is whole even after a
/// panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map by the number of a request. Its order is the same in every run: the order of wake-ups must
/// not depend on the machine's chance.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<SequenceHasher>>;

/// Spreads numbers that are counted up. No outside party chooses them.
#[derive(Default)]
pub(crate) struct SequenceHasher(u64);

impl Hasher for SequenceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Odd, so that no two numbers meet, and about the golden section of all numbers, so that
        // neighbours lie far apart.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Planted breaks, which prove that the tests under shuttle can fail. They do not exist in any
/// other build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadMutant {
    /// A turn does not look at the deferred queue after unlocking.
    DeferredQueueStays,
    /// The thread that empties the deferred queue does not look again after unlocking.
    LooksOnce,
    /// A request keeps the waker of its first poll.
    OldWaker,
    /// The loss of a hold wakes none of the waiting tasks.
    LossUntold,
    /// The timer task is not told of a nearer deadline.
    TimerSleepsOn,
    /// The turn that arrives later decides the phase of two turns.
    PhaseGoesBack,
    /// The thread that announces events does not look again.
    EventStays,
    /// A thread that finds only readers of the core, and no writer, leaves its command without an
    /// executor.
    ReaderKeepsDeferred,
    /// A turn begins without the local grants.
    LocalGrantsStay,
    /// The token of a local grant is taken before the shard of its name.
    TokenFirst,
    /// A guard may enter as a writer between the look at an owner's readers and the change of its
    /// lock into a share.
    ShareUnlocked,
}
