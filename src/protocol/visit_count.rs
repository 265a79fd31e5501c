//! Counts looks at entries, for tests of what one step costs: in every other build nothing is counted.

#[cfg(test)]
thread_local! {
    static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// An entry of a table or a book is looked at.
#[inline(always)]
pub(crate) fn touch() {
    #[cfg(test)]
    TOUCHED.set(TOUCHED.get() + 1);
}

/// How many entries `work` looks at on this thread.
#[cfg(test)]
pub(crate) fn touched(work: impl FnOnce()) -> usize {
    let before = TOUCHED.get();
    work();
    TOUCHED.get() - before
}
