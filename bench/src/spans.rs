//! A histogram of times. A step is at most a 64th of the time, so that all times of a round fit in
//! little memory.

use serde::{Deserialize, Serialize};

/// The number of steps from one power of two to the next, as a power of two.
const FINE: u32 = 6;

/// The number of times in each step, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spans(Vec<u64>);

impl Spans {
    /// Adds a time.
    pub(crate) fn add(&mut self, nanos: u64) {
        let step = step(nanos);
        if step >= self.0.len() {
            self.0.resize(step + 1, 0);
        }
        self.0[step] += 1;
    }

    /// Adds the times of another histogram.
    pub(crate) fn join(&mut self, other: &Spans) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(count, other)| *count += other);
    }

    /// The longest time of the quickest half, of the quickest nine tenths, and so on: shares and
    /// seconds.
    pub(crate) fn percentiles(&self) -> Vec<(f64, f64)> {
        let all: u64 = self.0.iter().sum();
        let Some(last) = all.checked_sub(1) else { return Vec::new() };
        let at = |share: f64| {
            let (wanted, mut before) = (((all as f64 * share) as u64).min(last), 0);
            let passed = self.0.iter().take_while(|count| {
                before += **count;
                before <= wanted
            });
            nanos(passed.count()) as f64 / 1e9
        };
        [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0]
            .map(|share| (share, at(share)))
            .to_vec()
    }
}

fn step(nanos: u64) -> usize {
    let coarse = nanos.max(1).ilog2().saturating_sub(FINE);
    ((u64::from(coarse) << FINE) + (nanos >> coarse)) as usize
}

/// The middle of a step.
fn nanos(step: usize) -> u64 {
    let coarse = (step as u64 >> FINE).saturating_sub(1);
    let least = (step as u64 - (coarse << FINE)) << coarse;
    least + (1 << coarse) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(all: impl Iterator<Item = u64>) -> Spans {
        let mut spans = Spans::default();
        all.for_each(|nanos| spans.add(nanos));
        spans
    }

    #[test]
    fn percentiles_are_of_all_spans() {
        let mut all = spans((500..1000).rev().map(|number| number * 1_000_000));
        all.join(&spans((0..500).map(|number| number * 1_000_000)));
        let curve = all.percentiles();
        let near = |(share, seconds): (f64, f64), share_wanted: f64, wanted: f64| {
            assert_eq!(share, share_wanted);
            assert!((seconds / wanted - 1.0).abs() < 0.01, "{seconds} s is not {wanted} s");
        };
        near(curve[3], 0.5, 0.5);
        near(curve[7], 0.99, 0.99);
        near(curve[9], 1.0, 0.999);
        assert_eq!(Spans::default().percentiles(), Vec::new());
    }

    #[test]
    fn a_step_is_no_wider_than_a_64th_and_none_is_left_out() {
        for exponent in 0..63 {
            for span in [1 << exponent, (1 << exponent) + 1, (1_u64 << (exponent + 1)) - 1] {
                let shown = nanos(step(span));
                assert!(shown.abs_diff(span) <= span / 128 + 1, "{span} is told as {shown}");
                assert!(
                    step(span + 1) - step(span) <= 1,
                    "there are steps between {span} and the next"
                );
            }
        }
    }
}
