//! Waiting for a condition, with a guard against hangs.

use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine: a guard against hangs, never a measure of
/// success.
pub(crate) const HANG: Duration = Duration::from_secs(40);

/// Looks until `look` gives something.
///
/// # Panics
/// After [`HANG`], with `what` and what the last look said.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    until_at_most(HANG, what, look)
}

/// Like [`until`], with another guard.
pub(crate) fn until_at_most<T>(
    guard: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        let seen = match look() {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        assert!(start.elapsed() < guard, "waited {guard:?} for: {what}; last seen: {seen}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Nanoseconds of the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
