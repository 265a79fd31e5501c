//! `DeferredQueue`: work for the next thread that has the engine state.

use super::super::hold_cell::HoldCell;
use super::super::sync::{AtomicU64, Mutex, fence, lock};
use crate::protocol::{Command, Want};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Commands that wait for a thread with the engine state. Mostly there are none: the count lets
/// threads skip the lock then.
#[derive(Default)]
pub(super) struct DeferredQueue {
    commands: Mutex<Vec<DeferredCommand>>,
    count: AtomicU64,
}

/// A command that waits for the thread that has the turn.
pub(super) enum DeferredCommand {
    Command(Command),
    /// Releases a hold that was a local grant when this was queued. The core has absorbed it before
    /// it carries this out.
    Release(Arc<HoldCell>),
    /// Reduces a hold, which may have been a local grant when this was queued.
    Reduce(Arc<HoldCell>, Want),
}

impl DeferredQueue {
    pub(super) fn push(&self, command: DeferredCommand) {
        let mut commands = lock(&self.commands);
        commands.push(command);
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn take(&self) -> Vec<DeferredCommand> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut commands = lock(&self.commands);
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut *commands)
    }

    /// The number of entries that no thread has carried out yet. They stay in the queue.
    #[cfg(all(test, elderlock_shuttle))]
    pub(super) fn len(&self) -> usize {
        lock(&self.commands).len()
    }

    /// Returns whether nothing is deferred. Call this after unlocking the engine state, and before
    /// trying to lock it again. The fence stands between these two accesses, and `push` has one
    /// too. So either this thread sees a pushed entry, or the pushing thread sees that the engine
    /// state is free.
    pub(super) fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Acquire) == 0
    }
}
