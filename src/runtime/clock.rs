//! The clocks of this machine.

use crate::protocol::{Time, ViewNumber};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Midnight of 2026-01-01 UTC in Unix seconds: the origin of founding numbers.
const FOUNDING_ORIGIN: Duration = Duration::from_secs(1_767_225_600);

/// The highest founding number: leaves 268 million views to a lineage, whatever the wall clock says.
const MAX_FOUNDING_NUMBER: u64 = 0x7000_0000;

/// This instant by a clock that goes on while the machine sleeps.
///
/// `std::time::Instant` would not do: it stands still during sleep, and a lease would look valid after it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Time {
    read(rustix::time::ClockId::Boottime)
}

/// This instant by the monotonic clock, which goes on during sleep on some of these platforms only.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Time {
    read(rustix::time::ClockId::Monotonic)
}

fn read(clock: rustix::time::ClockId) -> Time {
    let time = rustix::time::clock_gettime(clock);
    // Seconds and nanoseconds since boot: never negative, and 584 years fit.
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The number of a view founded now: seconds since 2026-01-01 by the wall clock, at least 1.
pub(crate) fn founding_number() -> ViewNumber {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = unix.saturating_sub(FOUNDING_ORIGIN).as_secs().clamp(1, MAX_FOUNDING_NUMBER);
    ViewNumber(seconds as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let first = now();
        assert!(now() >= first);
        assert!(first > Time::ZERO);
    }

    #[test]
    fn founding_numbers_are_positive_and_leave_room() {
        let number = founding_number();
        assert!(number.0 >= 1 && u64::from(number.0) <= MAX_FOUNDING_NUMBER);
    }
}
