//! `StrangerBudget`: bytes that a member keeps for strangers, with one limit for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// See the module.
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

    /// Returns whether no more may be kept.
    pub(super) fn is_spent(&self) -> bool {
        self.used() >= self.limit
    }

    /// The bytes that are kept.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Counts `now` bytes in the place of `before`.
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
    /// A share of bytes that are there already.
    pub(super) fn new(budget: &Arc<StrangerBudget>, bytes: usize) -> Self {
        budget.replace(0, bytes);
        BudgetShare { budget: budget.clone(), bytes }
    }

    /// The number of its bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts `bytes` from now on. Returns `false` if there are more than before, and the budget
    /// has no room for that.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.budget.replace(before, bytes);
        bytes <= before || self.budget.used() <= self.budget.limit
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.replace(self.bytes, 0);
    }
}
