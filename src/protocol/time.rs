//! Time as the core has it: an integer that the caller passes in.

use super::cluster::view::MAX_AHEAD;
use super::id::Slot;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// An instant on one member's own clock, in nanoseconds since an origin without meaning to any
/// other process.
///
/// In production the clock is `CLOCK_BOOTTIME`, which continues while the machine sleeps. Instants
/// of two members are never compared; only the *rates* of their clocks are assumed to agree (see
/// the assumptions in DESIGN.md).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Time = Time(0);
    /// Later than every other instant: a deadline that never comes.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Time {
    /// The instant `span` before this one, not before the origin.
    pub const fn back(self, span: Duration) -> Time {
        let nanos = span.as_nanos();
        Time(if nanos > self.0 as u128 { 0 } else { self.0 - nanos as u64 })
    }
}

/// The wall clock at the node's start, advanced by the node's own clock since. No jump of the wall
/// clock changes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WallClock {
    began: Time,
    showed: Slot,
}

impl WallClock {
    pub(crate) fn new(began: Time, showed: Slot) -> WallClock {
        WallClock { began, showed }
    }

    /// A clock that now shows the slot before `first`.
    pub(crate) fn pace(now: Time, first: Slot) -> WallClock {
        WallClock::new(now, Slot(first.0.saturating_sub(1)))
    }

    /// The slot that the clock shows at `now`.
    pub(crate) fn slot(&self, now: Time) -> Slot {
        self.showed.plus(Slot::count(now.since(self.began)))
    }

    /// Returns the time at which the clock shows this slot.
    pub(crate) fn time_of(&self, slot: Slot) -> Time {
        self.began + Slot::span(slot.0.saturating_sub(self.showed.0))
    }

    /// Refuses a slot that is too far above the clock.
    pub(crate) fn check(&self, now: Time, slot: Slot) -> Result<(), WrongClock> {
        let ours = self.slot(now);
        let is_ahead = slot > ours.plus(Slot::count(MAX_AHEAD));
        if is_ahead { Err(WrongClock { theirs: slot, ours }) } else { Ok(()) }
    }
}

/// The error of a slot more than an hour above the own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WrongClock {
    pub(crate) theirs: Slot,
    pub(crate) ours: Slot,
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Saturates at [`Time::MAX`], so "for ever" plus a span remains "for ever".
    fn add(self, span: Duration) -> Time {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::MAX {
            return f.write_str("never");
        }
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1_000)
    }
}
