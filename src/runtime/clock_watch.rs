//! `ClockWatch`: checks that the clock of the leases runs at the assumed rate.
//!
//! Leases count by `CLOCK_BOOTTIME`, which a time daemon may slew: chrony does by up to 8 %.
//! `CLOCK_MONOTONIC_RAW` is the same oscillator without slewing. So over a window in which the
//! machine did not sleep, the two must agree within the cluster's `clock_error_ppm`. BOOTTIME
//! counts sleep, and MONOTONIC does not. Jumps of the wall clock are reported and change nothing
//! else.

use crate::protocol::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// How often the clocks are read.
pub(crate) const EVERY: Duration = Duration::from_millis(500);
/// The shortest span over which the clocks are compared.
const LEAST: Duration = Duration::from_secs(1);
/// The number of readings that are kept. Each is compared with the newest.
const KEPT: usize = 9;
/// The most that MONOTONIC and BOOTTIME may differ by without sleep.
const AWAKE: Duration = Duration::from_millis(1);
/// The least change of the wall clock that counts as a jump.
const JUMP: Duration = Duration::from_secs(1);

/// All clocks at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) boottime: Time,
    pub(crate) monotonic: Time,
    pub(crate) raw: Time,
    /// The time since the Unix epoch, by the wall clock.
    pub(crate) wall: Duration,
    /// The time that reading all clocks took, by RAW.
    pub(crate) took: Duration,
}

/// How two clocks ran over one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rates {
    pub(crate) boottime: Duration,
    pub(crate) raw: Duration,
}

/// The result of a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Finding {
    /// The rates that differ, if the clock is not to be trusted from now on.
    pub(crate) distrust: Option<Rates>,
    /// The clock may be trusted again, as far as its rate goes.
    pub(crate) is_steady: bool,
    /// The wall clock has jumped by this many milliseconds.
    pub(crate) wall_jump: Option<i64>,
}

/// The latest readings of all clocks; the module tells how they are judged.
#[derive(Default)]
pub(crate) struct ClockWatch {
    readings: VecDeque<Reading>,
}

impl ClockWatch {
    /// Judges one more reading. `error_ppm`: the largest allowed difference of the rates.
    pub(crate) fn look(&mut self, now: Reading, error_ppm: u32) -> Finding {
        let mut finding = Finding::default();
        if let Some(last) = self.readings.back() {
            finding.wall_jump = wall_jump(last, &now);
            let awake = now.monotonic.since(last.monotonic);
            if now.boottime.since(last.boottime).abs_diff(awake) > AWAKE + last.took + now.took {
                self.readings.clear();
            }
        }
        // The shortest window comes first, so that the newest difference is reported.
        let mut windows =
            self.readings.iter().rev().map(|then| (rates(then, &now), then.took + now.took));
        finding.distrust = windows
            .find(|(rates, noise)| rates.differ_by(error_ppm, *noise))
            .map(|(rates, _)| rates);
        if finding.distrust.is_some() {
            // Later readings are compared with each other only.
            self.readings.clear();
        }
        self.readings.push_back(now);
        if self.readings.len() > KEPT {
            self.readings.pop_front();
        }
        let first = self.readings[0];
        finding.is_steady = self.readings.len() == KEPT
            && !rates(&first, &now).differ_by(error_ppm / 2, Duration::ZERO);
        finding
    }
}

impl Rates {
    /// Returns whether the rates differ by more than `error_ppm`. `noise`: the time that reading
    /// the clocks took, which counts as no difference.
    fn differ_by(&self, error_ppm: u32, noise: Duration) -> bool {
        let allowed =
            Duration::from_nanos((self.raw.as_nanos() * u128::from(error_ppm) / 1_000_000) as u64);
        self.raw >= LEAST && self.boottime.abs_diff(self.raw) > allowed + noise
    }
}

fn rates(then: &Reading, now: &Reading) -> Rates {
    Rates { boottime: now.boottime.since(then.boottime), raw: now.raw.since(then.raw) }
}

/// Returns how far the wall clock has moved against BOOTTIME, if that is a jump.
fn wall_jump(then: &Reading, now: &Reading) -> Option<i64> {
    let ran = now.boottime.since(then.boottime);
    let should = then.wall + ran;
    let by = should.abs_diff(now.wall);
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    (by >= JUMP).then_some(if now.wall >= should { millis } else { -millis })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Clocks that a test moves.
    pub(crate) struct Clocks(pub(crate) Reading);

    impl Clocks {
        pub(crate) fn new() -> Clocks {
            let at = Time::from_nanos(1_000_000_000_000);
            let wall = Duration::from_secs(1_800_000_000);
            Clocks(Reading {
                boottime: at,
                monotonic: at,
                raw: at,
                wall,
                took: Duration::from_micros(1),
            })
        }

        /// Runs for the time `raw` of RAW, while BOOTTIME is `ppm` too fast.
        pub(crate) fn run(&mut self, raw: Duration, ppm: i64) -> Reading {
            let nanos = raw.as_nanos() as i64;
            let slewed = Duration::from_nanos((nanos + nanos * ppm / 1_000_000) as u64);
            let Reading { boottime, monotonic, raw: at, wall, took } = self.0;
            let (boottime, monotonic, wall) =
                (boottime + slewed, monotonic + slewed, wall + slewed);
            self.0 = Reading { boottime, monotonic, raw: at + raw, wall, took };
            self.0
        }

        pub(crate) fn step_wall(&mut self, seconds: i64) {
            let wall = self.0.wall.as_secs().saturating_add_signed(seconds);
            self.0.wall = Duration::new(wall, self.0.wall.subsec_nanos());
        }

        fn sleep(&mut self, span: Duration) {
            self.0.boottime = self.0.boottime + span;
            self.0.wall += span;
        }
    }

    const BOUND: u32 = 20_000;

    fn finds(watch: &mut ClockWatch, clocks: &mut Clocks, ppm: i64) -> Finding {
        let reading = clocks.run(EVERY, ppm);
        watch.look(reading, BOUND)
    }

    #[test]
    fn clocks_that_agree_within_the_bound_are_steady() {
        for ppm in [0, 500, -500, 19_000, -19_000] {
            let (mut watch, mut clocks) = (ClockWatch::default(), Clocks::new());
            let found: Vec<Finding> =
                (0..40).map(|_| finds(&mut watch, &mut clocks, ppm)).collect();
            assert!(
                found.iter().all(|found| found.distrust.is_none() && found.wall_jump.is_none()),
                "{ppm}"
            );
            assert_eq!(found[39].is_steady, ppm.abs() < 10_000, "{ppm}");
        }
    }

    #[test]
    fn a_clock_slewed_beyond_the_bound_is_found_in_two_seconds_and_is_steady_afterwards() {
        for ppm in [83_333, -83_333, 25_000, -25_000] {
            let (mut watch, mut clocks) = (ClockWatch::default(), Clocks::new());
            (0..20).for_each(|_| _ = finds(&mut watch, &mut clocks, 0));
            let found = (0..4).find_map(|_| finds(&mut watch, &mut clocks, ppm).distrust);
            let rates = found.expect("within two seconds");
            assert_eq!(rates.boottime > rates.raw, ppm > 0);
            assert!(!(0..20).any(|_| finds(&mut watch, &mut clocks, ppm).is_steady));
            let steady = (0..20)
                .position(|_| finds(&mut watch, &mut clocks, 0).is_steady)
                .expect("it is over");
            assert!(steady + 1 >= KEPT - 1, "{steady}");
        }
    }

    #[test]
    fn sleep_is_no_slewing_and_a_jump_of_the_wall_clock_is_told_and_no_more() {
        let (mut watch, mut clocks) = (ClockWatch::default(), Clocks::new());
        (0..20).for_each(|_| _ = finds(&mut watch, &mut clocks, 0));
        clocks.sleep(Duration::from_secs(3600));
        assert_eq!(finds(&mut watch, &mut clocks, 0), Finding::default());
        (0..20).for_each(|_| assert_eq!(finds(&mut watch, &mut clocks, 0).distrust, None));
        clocks.step_wall(-60);
        let found = finds(&mut watch, &mut clocks, 0);
        assert_eq!((found.distrust, found.wall_jump), (None, Some(-60_000)));
        clocks.step_wall(60);
        assert_eq!(finds(&mut watch, &mut clocks, 0).wall_jump, Some(60_000));
        assert_eq!(finds(&mut watch, &mut clocks, 0).wall_jump, None);
    }

    #[test]
    fn time_lost_while_reading_the_clocks_is_no_slewing() {
        let (mut watch, mut clocks) = (ClockWatch::default(), Clocks::new());
        (0..20).for_each(|_| _ = finds(&mut watch, &mut clocks, 0));
        let mut reading = clocks.run(EVERY, 0);
        // The thread is preempted between one clock and the next.
        reading.raw = reading.raw + Duration::from_millis(40);
        reading.took = Duration::from_millis(41);
        assert_eq!(watch.look(reading, BOUND).distrust, None);
    }
}
