//! A member's own clock: it starts anywhere, runs a little fast or slow, and may change its rate.

use elderlock::protocol::Time;

/// `local = offset + (true - since) * (1_000_000 + ppm) / 1_000_000`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Its reading at `since`, in nanoseconds.
    pub offset: u64,
    /// How much it runs fast, in parts per million; negative: slow. More than -1,000,000.
    pub ppm: i32,
    /// The true time since which it has had this rate.
    pub since: u64,
}

impl Clock {
    /// Its reading at true time `at`, which is not before `since`.
    pub fn local(&self, at: u64) -> Time {
        let run = u128::from(at.saturating_sub(self.since)) * self.rate() / 1_000_000;
        Time::from_nanos(self.offset + run as u64)
    }

    /// The first true time at which it shows `local` or more; `None` for [`Time::MAX`].
    pub fn when(&self, local: Time) -> Option<u64> {
        if local == Time::MAX {
            return None;
        }
        let run = u128::from(local.as_nanos().saturating_sub(self.offset));
        u64::try_from((run * 1_000_000).div_ceil(self.rate())).ok().map(|run| self.since + run)
    }

    /// Gives it another rate from true time `now` on. The reading does not jump.
    pub fn turn(&mut self, now: u64, ppm: i32) {
        *self = Clock { offset: self.local(now).as_nanos(), ppm, since: now };
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
            let mut clock = Clock { offset: 12_345, ppm, since: 0 };
            for since in [0, 3_000_000] {
                clock.turn(since, ppm);
                for local in [4_012_346, 1_000_000_007, 987_654_321_987] {
                    let local = Time::from_nanos(local);
                    let at = clock.when(local).unwrap();
                    assert!(
                        clock.local(at) >= local && clock.local(at - 1) < local,
                        "{ppm} {local:?}"
                    );
                }
            }
            assert_eq!(clock.when(Time::MAX), None);
        }
    }

    #[test]
    fn a_clock_that_changes_its_rate_does_not_jump() {
        let mut clock = Clock { offset: 7, ppm: 20_000, since: 0 };
        let before = clock.local(1_000_000);
        clock.turn(1_000_000, -20_000);
        assert_eq!(clock.local(1_000_000), before);
        assert_eq!(clock.local(2_000_000).since(before).as_nanos(), 980_000);
    }
}
