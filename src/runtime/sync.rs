//! The local path's locks, counters and waits: std's, and under `--cfg elderlock_shuttle`
//! shuttle's.
//!
//! Shuttle runs the threads of a test one at a time and chooses, at every lock and every atomic,
//! which thread continues. So the engine that ships is driven through thousands of orders
//! (`service/tests/threads.rs`). In every other build the names here are std's own. tokio's
//! `Notify`, `watch` and `broadcast` stay as they are. Under shuttle each of their calls is one
//! step, with a seam before it where the order matters. Their waiting tasks are woken through
//! shuttle.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{PoisonError, TryLockError};

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

    /// Does nothing outside a test under shuttle.
    #[inline(always)]
    pub(crate) fn seam() {}

    /// Returns whether a test has planted this break: never in this build.
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

    /// Never true: a panic ends the whole test.
    pub(crate) fn is_poisoned<T>(_: &RwLock<T>) -> bool {
        false
    }

    /// Lets another thread continue here.
    pub(crate) fn seam() {
        AtomicU8::new(0).load(Ordering::SeqCst);
    }

    thread_local! {
        /// The planted break. All threads of a test run on one thread of the system.
        static PLANTED: Cell<Option<ThreadMutant>> = const { Cell::new(None) };
    }

    /// Plants a break, or removes it.
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

/// Locks a mutex whose holders cannot panic half-way: the protected value is consistent even after
/// a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`lock`], without waiting. `None`: another thread has the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A map by the number of a request. Its order is the same in every run: the order of wake-ups must
/// not depend on chance.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<SequenceHasher>>;

/// Spreads consecutive numbers. No outside party chooses them.
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
        // The factor is odd, so that no two numbers collide. It is about the golden section of all
        // numbers, so that neighbours are far apart.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Planted breaks, which prove that the tests under shuttle can fail. No other build has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadMutant {
    /// A turn does not check the deferred queue after unlocking.
    DeferredQueueStays,
    /// The thread that empties the deferred queue does not check it again after unlocking.
    LooksOnce,
    /// A request keeps the waker of its first poll.
    OldWaker,
    /// The loss of a hold wakes none of the waiting tasks.
    LossUntold,
    /// The timer task is not told of a nearer deadline.
    TimerSleepsOn,
    /// Of two turns the one that arrives later sets the phase.
    PhaseGoesBack,
    /// The thread that announces events does not check the queue again.
    EventStays,
    /// A thread that finds only readers of the core, and no writer, leaves its command in the
    /// queue.
    ReaderKeepsDeferred,
    /// A turn begins without absorbing the local grants.
    LocalGrantsStay,
    /// The token of a local grant is drawn before the shard of its name is locked.
    TokenFirst,
    /// A guard may enter as a writer between the check of an owner's readers and the change of its
    /// lock into a share.
    ShareUnlocked,
}
