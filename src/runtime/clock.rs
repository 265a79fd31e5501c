//! The clocks of this machine.

use super::clock_watch::Reading;
use crate::protocol::{Slot, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Midnight of 2026-01-01 UTC in Unix seconds: the origin of slots.
const ORIGIN: Duration = Duration::from_secs(1_767_225_600);

/// This instant by a clock that goes on while the machine sleeps.
///
/// `std::time::Instant` would not do: it stands still during sleep, and a lease would look valid
/// after it.
#[cfg(all(not(elderlock_shuttle), any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Time {
    read(rustix::time::ClockId::Boottime)
}

/// This instant by the monotonic clock, which goes on during sleep on some of these platforms only.
#[cfg(all(not(elderlock_shuttle), not(any(target_os = "linux", target_os = "android"))))]
pub(crate) fn now() -> Time {
    read(rustix::time::ClockId::Monotonic)
}

#[cfg(not(elderlock_shuttle))]
fn read(clock: rustix::time::ClockId) -> Time {
    #[cfg(feature = "simulated")]
    if let Some(now) = super::simulated::now() {
        return now;
    }
    let time = rustix::time::clock_gettime(clock);
    // Seconds and nanoseconds since boot: never negative, and 584 years fit.
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// All clocks, if this platform has them and they are the machine's.
#[cfg(all(not(elderlock_shuttle), target_os = "linux"))]
pub(crate) fn all() -> Option<Reading> {
    use rustix::time::ClockId::{Boottime, Monotonic, MonotonicRaw};
    #[cfg(feature = "simulated")]
    if super::simulated::now().is_some() {
        return None;
    }
    let raw = read(MonotonicRaw);
    let (boottime, monotonic) = (read(Boottime), read(Monotonic));
    let took = read(MonotonicRaw).since(raw);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Reading { boottime, monotonic, raw, wall, took })
}

/// Nothing on this platform is known to tell a clock that is slewed.
#[cfg(not(all(not(elderlock_shuttle), target_os = "linux")))]
pub(crate) fn all() -> Option<Reading> {
    None
}

/// Sleeps from `now` until `until`; later, if the machine sleeps too.
#[cfg(not(elderlock_shuttle))]
pub(crate) async fn sleep(now: Time, until: Time) {
    let span = until.since(now);
    #[cfg(feature = "simulated")]
    let span = super::simulated::span(span);
    tokio::time::sleep(span).await;
}

#[cfg(elderlock_shuttle)]
pub(crate) use simulated::{now, sleep};

/// The clock of a test under shuttle: it stands still until the test moves it.
#[cfg(elderlock_shuttle)]
pub(crate) mod simulated {
    use super::Time;
    use shuttle::sync::Mutex;
    use shuttle::sync::atomic::{AtomicU64, Ordering};
    use std::future::poll_fn;
    use std::task::{Poll, Waker};
    use std::time::Duration;

    shuttle::lazy_static! {
        /// Any time but zero, which the engine takes for "never".
        static ref NANOS: AtomicU64 = AtomicU64::new(1_000_000_000);
        static ref SLEEPERS: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
    }

    pub(crate) fn now() -> Time {
        Time::from_nanos(NANOS.load(Ordering::SeqCst))
    }

    /// Moves the clock on and wakes the sleepers, to look at it.
    #[cfg(test)]
    pub(crate) fn advance(span: Duration) {
        NANOS.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
        let sleepers = std::mem::take(&mut *SLEEPERS.lock().expect("no thread panics with it"));
        for sleeper in sleepers {
            sleeper.wake();
        }
    }

    pub(crate) async fn sleep(_: Time, until: Time) {
        poll_fn(|context| {
            // Put in before looking at the clock, or it could move in between.
            SLEEPERS.lock().expect("no thread panics with it").push(context.waker().clone());
            if now() >= until { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The slot that the wall clock shows. To be read in the same instant as the [clock](now) that it
/// goes on by.
pub(crate) fn slot() -> Slot {
    #[cfg(feature = "simulated")]
    if let Some(slot) = super::simulated::slot() {
        return slot;
    }
    Slot(0).plus(Slot::count(wall().saturating_sub(ORIGIN)))
}

/// How long ago the Unix epoch was, by the wall clock.
pub(crate) fn wall() -> Duration {
    #[cfg(feature = "simulated")]
    if let Some(wall) = super::simulated::wall() {
        return ORIGIN + wall;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
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
    fn the_wall_clock_shows_slots_that_go_on() {
        let first = slot();
        std::thread::sleep(Duration::from_millis(2));
        assert!(slot() > first && slot() < Slot::MAX);
    }
}
