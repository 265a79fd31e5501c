//! `ForkGuard`: whether this process joined itself, or is a copy that `fork()` made of a member.
//!
//! A copy has all that its parent had: guards, the core, and the very same connections. The copy
//! must trust no hold, since the parent's death is vouched for while the copy lives. The copy must
//! send nothing, since its packets would be in its parent's name. So guards fail there, calls
//! answer, and tasks stand still, without a system call. libc's `fork` runs a handler in the child
//! before it returns there, which raises a number in its memory.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Remembers the process in which it was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForkGuard(forkguard::Guard);

impl ForkGuard {
    /// The guard of the calling process.
    pub(crate) fn here() -> ForkGuard {
        ForkGuard::default()
    }

    /// Returns whether this process is a copy of the one in which the guard was made. A copy stays
    /// one.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        // The inner guard reports a fork once only. So a clone is asked, and the inner guard
        // reports the fork again later.
        self.0.clone().detected_fork()
    }

    /// Runs `task` in this process only. In a copy it stands still, and its sockets are neither
    /// read, written nor closed there: the parent and the other ends would notice.
    pub(crate) fn keep<F: Future<Output = ()>>(&self, task: F) -> ForkGuarded<F> {
        ForkGuarded { home: self.clone(), task: Some(Box::pin(task)) }
    }
}

/// The future of [`ForkGuard::keep`].
pub(crate) struct ForkGuarded<F> {
    home: ForkGuard,
    task: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = ()>> Future for ForkGuarded<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.home.is_left() {
            return Poll::Pending;
        }
        self.task.as_mut().map_or(Poll::Ready(()), |task| task.as_mut().poll(context))
    }
}

impl<F> Drop for ForkGuarded<F> {
    fn drop(&mut self) {
        if self.home.is_left() {
            // Dropping a connection would shut it down, for the parent too.
            std::mem::forget(self.task.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_has_forked() {
        let home = ForkGuard::here();
        assert!(!home.is_left() && !home.clone().is_left());
    }

    #[tokio::test]
    async fn a_task_at_home_runs_to_its_end() {
        let mut done = false;
        ForkGuard::here().keep(async { done = true }).await;
        assert!(done);
    }
}
