//! The clocks of this machine.

use super::clock_watch::Reading;
use crate::protocol::{Slot, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Midnight of 2026-01-01 UTC in Unix seconds: the origin of slots.
const ORIGIN: Duration = Duration::from_secs(1_767_225_600);

/// The current time, by a clock that continues while the machine sleeps.
///
/// On Unix `std::time::Instant` stands still during sleep: a lease would look valid after it.
#[cfg(not(elderlock_shuttle))]
pub(crate) fn now() -> Time {
    #[cfg(feature = "simulated")]
    if let Some(now) = super::simulated::now() {
        return now;
    }
    awake_or_asleep()
}

#[cfg(all(not(elderlock_shuttle), any(target_os = "linux", target_os = "android")))]
fn awake_or_asleep() -> Time {
    read(rustix::time::ClockId::Boottime)
}

/// `CLOCK_MONOTONIC_RAW` of Apple's systems is `mach_continuous_time`, which continues during sleep
/// and is never slewed.
#[cfg(all(not(elderlock_shuttle), target_vendor = "apple"))]
fn awake_or_asleep() -> Time {
    let clock = nix::time::ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
    let time = nix::time::clock_gettime(clock).expect("macOS has had this clock since 10.12");
    since_boot(time.tv_sec(), time.tv_nsec())
}

/// The standard library reads `QueryPerformanceCounter`, which continues during sleep and is never
/// slewed. It counts from the first reading, and from one second on: zero means "never".
#[cfg(all(not(elderlock_shuttle), windows))]
fn awake_or_asleep() -> Time {
    use std::sync::LazyLock;
    use std::time::Instant;
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since_origin = Instant::now().saturating_duration_since(*ORIGIN);
    Time::from_nanos(1_000_000_000) + since_origin
}

/// The monotonic clock continues during sleep on some of these platforms only.
#[cfg(all(
    not(elderlock_shuttle),
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows))
))]
fn awake_or_asleep() -> Time {
    read(rustix::time::ClockId::Monotonic)
}

#[cfg(all(not(elderlock_shuttle), not(any(target_vendor = "apple", windows))))]
fn read(clock: rustix::time::ClockId) -> Time {
    let time = rustix::time::clock_gettime(clock);
    since_boot(time.tv_sec, time.tv_nsec)
}

#[cfg(all(not(elderlock_shuttle), not(windows)))]
fn since_boot(seconds: i64, nanos: impl Into<i64>) -> Time {
    // Seconds and nanoseconds since boot are never negative, and 584 years fit.
    Time::from_nanos(seconds as u64 * 1_000_000_000 + nanos.into() as u64)
}

/// Reads all clocks. `None` in a simulation, whose clocks are not the machine's.
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

/// No call of this platform is known to show that a clock is slewed.
#[cfg(not(all(not(elderlock_shuttle), target_os = "linux")))]
pub(crate) fn all() -> Option<Reading> {
    None
}

/// Sleeps from `now` until `until`, or longer if the machine sleeps meanwhile.
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
        /// Any time but zero, which the engine reads as "never".
        static ref NANOS: AtomicU64 = AtomicU64::new(1_000_000_000);
        static ref SLEEPERS: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
    }

    pub(crate) fn now() -> Time {
        Time::from_nanos(NANOS.load(Ordering::SeqCst))
    }

    /// Advances the clock and wakes the sleepers, which read it.
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
            // The waker is added before the clock is read: the clock could move in between.
            SLEEPERS.lock().expect("no thread panics with it").push(context.waker().clone());
            if now() >= until { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The slot of the wall clock. Read it at the same instant as the [clock](now) by which it
/// advances.
pub(crate) fn slot() -> Slot {
    #[cfg(feature = "simulated")]
    if let Some(slot) = super::simulated::slot() {
        return slot;
    }
    Slot(0).plus(Slot::count(wall().saturating_sub(ORIGIN)))
}

/// The time since the Unix epoch, by the wall clock.
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
