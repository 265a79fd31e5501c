//! The subcommands.

pub(crate) mod chaos;
pub(crate) mod check;
pub(crate) mod crowd;
pub(crate) mod drawn;
pub(crate) mod handshakes;
pub(crate) mod judge;
pub(crate) mod mutants;
pub(crate) mod recipes;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod tape;
mod verdict;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the shared state of a command's threads. A thread that panicked leaves it as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
