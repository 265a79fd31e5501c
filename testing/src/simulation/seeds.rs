//! Many seeds, on all cores of the machine.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `look` with each of `seeds` seeds from `first` on, on all cores, until a call returns
/// true. All seeds below that seed are always tried.
pub fn on_all_cores(first: u64, seeds: u64, look: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed.wrapping_sub(first) >= seeds || look(seed) {
                        break;
                    }
                }
            });
        }
    });
}
