//! `Owner`: the owner of a recipe's requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// The owner of a hold: a value that any task or thread may carry, and copy to tasks that act with
/// it. Each task that has the value may enter the owner's holds. No task can guess the number of
/// another owner within this process. Other processes need not know the number.
///
/// Curator: the thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(u64);

impl Owner {
    /// An owner that was never drawn before in this process.
    #[expect(clippy::new_without_default, reason = "each one is another, so there is no default")]
    pub fn new() -> Owner {
        Owner(draw_owner())
    }

    /// Returns the owner's number, for [`LockBuilder::owner`](crate::LockBuilder::owner): holds of
    /// the number count as the owner's holds when the service is
    /// [suspended](crate::LockService::suspend). Numbers of owners have the highest bit set.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A number that was never drawn before in this process. All recipes draw from this one range,
/// which begins where the numbers that programs choose end.
pub(crate) fn draw_owner() -> u64 {
    #[cfg(feature = "simulated")]
    if let Some(owner) = crate::runtime::simulated::draw_owner() {
        return owner;
    }
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
