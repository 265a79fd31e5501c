//! `Owner`: on whose behalf a recipe asks.

use std::sync::atomic::{AtomicU64, Ordering};

/// On whose behalf something is asked for: a value that any task or thread may carry, and copy to those who act with it.
/// Whoever has it may enter what it holds; nobody can guess what another one is called within this process, nor need
/// it be told to other processes.
///
/// Curator: the thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(u64);

impl Owner {
    /// One that was never drawn before in this process.
    #[expect(clippy::new_without_default, reason = "each one is another, so there is no default")]
    pub fn new() -> Owner {
        Owner(draw_owner())
    }

    /// Its number, for [`LockBuilder::owner`](crate::LockBuilder::owner): what is held by the number counts as held by the
    /// owner when the service is [suspended](crate::LockService::suspend). Numbers of owners have the highest bit set.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A number that was never drawn before in this process. All recipes draw from this one range, which begins where the numbers
/// that programs think of end.
pub(crate) fn draw_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
