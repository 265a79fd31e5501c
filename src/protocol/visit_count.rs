//! Counts visits of entries, for tests of the cost of a step. Every other build counts nothing.

#[cfg(test)]
thread_local! {
    static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts one visit of an entry of a table or map.
#[inline(always)]
pub(crate) fn touch() {
    #[cfg(test)]
    TOUCHED.set(TOUCHED.get() + 1);
}

/// The number of entries that `work` visits on this thread.
#[cfg(test)]
pub(crate) fn touched(work: impl FnOnce()) -> usize {
    let before = TOUCHED.get();
    work();
    TOUCHED.get() - before
}
