//! Counts allocations on demand: the bytes in use, and the number of allocations.
//!
//! While it does not count, an allocation costs one additional load of a flag that no thread
//! writes. So the counter slows no other measurement.

// This module has the only unsafe code of the bench, because the trait is unsafe to implement.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static IS_ON: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

struct CountingAllocator;

// SAFETY: each call goes to the system's allocator with the same arguments.
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

/// Starts or stops counting.
pub(crate) fn set(on: bool) {
    IS_ON.store(on, Relaxed);
}

/// The bytes in use and the number of allocations since counting started.
pub(crate) fn counted() -> (i64, u64) {
    (BYTES.load(Relaxed), CALLS.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_that_are_kept_are_counted_in_bytes_and_calls() {
        set(true);
        let (bytes, calls) = counted();
        let kept = vec![0_u8; 10_000_000];
        let (more, asked) = counted();
        // Other tests run at the same time, and allocate little.
        assert!((9_000_000..20_000_000).contains(&(more - bytes)), "{}", more - bytes);
        assert!(asked > calls);
        drop(kept);
        assert!(counted().0 - bytes < 9_000_000);
        set(false);
    }
}
