//! A member's own clock: it starts anywhere and runs a little fast or slow.

use elderlock::protocol::Time;

/// `local = offset + true * (1_000_000 + ppm) / 1_000_000`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// What it shows when the World begins, in nanoseconds.
    pub offset: u64,
    /// How much it runs fast, in parts per million; negative: slow. More than -1,000,000.
    pub ppm: i32,
}

impl Clock {
    /// What it shows at true time `at`.
    pub fn local(&self, at: u64) -> Time {
        let run = u128::from(at) * self.rate() / 1_000_000;
        Time::from_nanos(self.offset + run as u64)
    }

    /// The first true time at which it shows `local` or more; `None` for [`Time::MAX`].
    pub fn when(&self, local: Time) -> Option<u64> {
        if local == Time::MAX {
            return None;
        }
        let run = u128::from(local.as_nanos().saturating_sub(self.offset));
        u64::try_from((run * 1_000_000).div_ceil(self.rate())).ok()
    }

    fn rate(&self) -> u128 {
        (1_000_000 + i64::from(self.ppm)).max(1) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_first_instant_that_shows_it() {
        for ppm in [-200_000, -19_999, -1, 0, 1, 20_000, 300_000] {
            let clock = Clock { offset: 12_345, ppm };
            for local in [12_346, 13_000, 1_000_000_007, 987_654_321_987] {
                let local = Time::from_nanos(local);
                let at = clock.when(local).unwrap();
                assert!(clock.local(at) >= local && clock.local(at - 1) < local, "{ppm} {local:?}");
            }
            assert_eq!(clock.when(Time::MAX), None);
        }
    }
}
