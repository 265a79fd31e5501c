//! Waiting for a condition, with a guard against hangs.

use std::time::{Duration, Instant};

/// A guard against hangs, longer than any step takes on a busy machine. It is never a measure of
/// success.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Calls `look` until it returns a value.
///
/// # Panics
/// After [`HANG`], with `what` and the last error of `look`.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    until_at_most(HANG, what, look)
}

/// Like [`until`], with another limit.
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

/// The nanoseconds of the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
