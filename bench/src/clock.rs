//! The machine's monotonic clock, which has the same value in all processes.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The nanoseconds since an instant before all processes of the bench.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The time between two instants.
pub(crate) fn between(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}
