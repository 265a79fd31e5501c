//! `RateLimit`: a number of events in a row, and a rate in the long run.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Lets [`burst`](RateLimit::new) events pass in a row, and then a number of them each second.
pub(crate) struct RateLimit {
    burst: u32,
    a_second: u32,
    /// The events that may pass now, the time of that count, and the events since the last one that
    /// passed.
    state: Mutex<(u32, Instant, u64)>,
}

impl RateLimit {
    pub(crate) fn new(burst: u32, a_second: u32) -> Self {
        RateLimit { burst, a_second, state: Mutex::new((burst, Instant::now(), 0)) }
    }

    /// Whether one more event may pass, with the number of events that were stopped before it.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since, stopped) = &mut *state;
        let passed = now.saturating_duration_since(*since).as_millis();
        let gained = passed * u128::from(self.a_second) / 1000;
        if gained > 0 {
            *left = u32::try_from(gained).unwrap_or(u32::MAX).saturating_add(*left).min(self.burst);
            *since = now;
        }
        match left.checked_sub(1) {
            Some(rest) => {
                *left = rest;
                Some(std::mem::take(stopped))
            }
            None => {
                *stopped += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_passes_and_then_the_rate_with_the_number_of_stopped_events() {
        let limit = RateLimit::new(3, 2);
        let now = Instant::now() + Duration::from_secs(100);
        let passed = |now| (0..10).filter_map(|_| limit.pass_at(now)).collect::<Vec<_>>();
        assert_eq!(passed(now), [0, 0, 0]);
        assert_eq!(passed(now + Duration::from_millis(400)), Vec::<u64>::new());
        assert_eq!(passed(now + Duration::from_millis(500)), [17]);
        assert_eq!(passed(now + Duration::from_secs(100)), [9, 0, 0]);
        // A clock that steps back gives nothing.
        assert_eq!(passed(now), Vec::<u64>::new());
    }
}
