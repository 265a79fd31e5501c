//! `DeferredQueue`: what is to be done by whoever has the shell next.

use super::super::hold_cell::HoldCell;
use super::super::sync::{AtomicU64, Mutex, fence};
use super::lock;
use crate::protocol::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Commands that wait for somebody who has the shell, and how many there are: mostly none, and then nobody locks it.
#[derive(Default)]
pub(super) struct DeferredQueue {
    commands: Mutex<Vec<DeferredCommand>>,
    count: AtomicU64,
}

/// What was put aside.
pub(super) enum DeferredCommand {
    Command(Command),
    /// To give back what was taken in a lane; the core knows of it by the time this is done.
    GiveBack(Arc<HoldCell>),
}

impl DeferredQueue {
    pub(super) fn push(&self, aside: DeferredCommand) {
        let mut commands = lock(&self.commands);
        commands.push(aside);
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

    /// What is carried out by nobody yet, and is not taken by this.
    #[cfg(all(test, elderlock_shuttle))]
    pub(super) fn len(&self) -> usize {
        lock(&self.commands).len()
    }

    /// To be asked after unlocking the shell, and before trying to lock it. The fence stands between the two on both sides:
    /// either what is pushed is seen here, or whoever pushes it sees that the shell is free.
    pub(super) fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Acquire) == 0
    }
}
