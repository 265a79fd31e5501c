//! Counts how many tasks use something at once.

use std::sync::atomic::{AtomicI64, Ordering};

/// The number of present users, and the highest number so far.
#[derive(Default)]
pub(crate) struct Gauge {
    now: AtomicI64,
    most: AtomicI64,
}

impl Gauge {
    pub(crate) fn enter(&self, count: i64) {
        let now = self.now.fetch_add(count, Ordering::SeqCst) + count;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self, count: i64) {
        self.now.fetch_sub(count, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> i64 {
        self.most.load(Ordering::SeqCst)
    }
}
