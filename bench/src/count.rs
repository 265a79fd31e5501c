//! Counts allocations, once it is told to: the bytes in use, and the number of allocations.
//!
//! Until then it costs one load of a flag that nobody writes, so that a measurement beside it is
//! not slowed.

// The one place of the command that cannot do without: the trait is unsafe to implement.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static IS_ON: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

struct CountingAllocator;

// SAFETY: everything is left to the system's allocator, with the very arguments.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size(), 0);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size, layout.size());
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if IS_ON.load(Relaxed) {
            BYTES.fetch_sub(layout.size() as i64, Relaxed);
        }
        unsafe { System.dealloc(ptr, layout) }
    }
}

fn took(size: usize, gave: usize) {
    if IS_ON.load(Relaxed) {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(size as i64 - gave as i64, Relaxed);
    }
}

/// Counts from now on, or no more.
pub(crate) fn turn(on: bool) {
    IS_ON.store(on, Relaxed);
}

/// Bytes that are in use more than when it began, and how often memory was asked for since.
pub(crate) fn counted() -> (i64, u64) {
    (BYTES.load(Relaxed), CALLS.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted_in_bytes_and_calls() {
        turn(true);
        let (bytes, calls) = counted();
        let kept = vec![0_u8; 10_000_000];
        let (more, asked) = counted();
        // Other tests run beside this one, and take little.
        assert!((9_000_000..20_000_000).contains(&(more - bytes)), "{}", more - bytes);
        assert!(asked > calls);
        drop(kept);
        assert!(counted().0 - bytes < 9_000_000);
        turn(false);
    }
}
