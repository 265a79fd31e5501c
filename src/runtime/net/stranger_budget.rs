//! `StrangerBudget`: the bytes that a member keeps for strangers, with one limit for all strangers.
//! The queues of all peers have such a budget too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes in the queues of all peers together, without the share of each peer and the bytes for
/// strangers. They are the full queues of a dozen peers that do not read. Members that join and
/// read nothing would otherwise cost a full queue each.
pub(super) const MEMBER_BYTES: usize = 256 * 1024 * 1024;

/// The factor of the limit for frames that are alone in their queues: 1 GiB for the queues of all
/// peers.
pub(super) const LONE_FRAMES: usize = 4;

/// A counter of bytes with a limit.
#[derive(Debug, Default)]
pub(super) struct StrangerBudget {
    /// Bytes that are kept.
    used: AtomicUsize,
    /// The most that may be kept.
    pub(super) limit: usize,
}

impl StrangerBudget {
    pub(super) fn new(limit: usize) -> Self {
        StrangerBudget { used: AtomicUsize::new(0), limit }
    }

    /// Returns whether the limit is reached.
    pub(super) fn is_spent(&self) -> bool {
        self.used() >= self.limit
    }

    /// Returns whether the limit for frames that are alone in their queues is reached. Such frames
    /// may go beyond the limit of all others.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.used() >= self.limit.saturating_mul(1 + LONE_FRAMES)
    }

    /// The bytes that are kept.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Counts `now` bytes instead of `before`.
    pub(super) fn replace(&self, before: usize, now: usize) {
        if now > before {
            self.used.fetch_add(now - before, Relaxed);
        } else if now < before {
            self.used.fetch_sub(before - now, Relaxed);
        }
    }
}

/// Bytes that the budget counts until this is dropped.
pub(super) struct BudgetShare {
    budget: Arc<StrangerBudget>,
    bytes: usize,
}

impl BudgetShare {
    /// Counts bytes that are there already.
    pub(super) fn new(budget: &Arc<StrangerBudget>, bytes: usize) -> Self {
        budget.replace(0, bytes);
        BudgetShare { budget: budget.clone(), bytes }
    }

    /// The number of counted bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts nothing from now on: the bytes are about to be freed.
    pub(super) fn forget(&mut self) {
        self.budget.replace(std::mem::take(&mut self.bytes), 0);
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_until_they_are_dropped() {
        let budget = Arc::new(StrangerBudget::new(100));
        let first = BudgetShare::new(&budget, 40);
        assert_eq!((first.bytes(), budget.used(), budget.is_spent()), (40, 40, false));
        // Bytes that are there already are counted, whether or not there is room.
        let second = BudgetShare::new(&budget, 70);
        assert_eq!((budget.used(), budget.is_spent()), (110, true));
        drop(first);
        assert_eq!((budget.used(), budget.is_spent()), (70, false));
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
