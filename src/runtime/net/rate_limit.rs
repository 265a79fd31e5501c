//! `RateLimit`: a number of events in a row, and a rate in the long run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The most addresses whose part of a shared rate is remembered. An address that was forgotten gets
/// a fresh part.
const MAX_PARTS: usize = 1024;

/// Lets [`burst`](RateLimit::new) events pass in a row, and then a number of them each second or
/// each minute.
pub(crate) struct RateLimit {
    burst: u32,
    /// The events that may pass in a period, and its milliseconds.
    rate: (u32, u32),
    /// The events that may pass now, the time of that count, and the number of events stopped since
    /// one passed.
    state: Mutex<(u32, Instant, u64)>,
}

impl RateLimit {
    pub(crate) fn new(burst: u32, a_second: u32) -> Self {
        RateLimit::with_rate(burst, (a_second, 1000))
    }

    /// Lets `burst` events pass in a row, and then a number of them each minute.
    pub(crate) fn a_minute(burst: u32, a_minute: u32) -> Self {
        RateLimit::with_rate(burst, (a_minute, 60_000))
    }

    fn with_rate(burst: u32, rate: (u32, u32)) -> Self {
        RateLimit { burst, rate, state: Mutex::new((burst, Instant::now(), 0)) }
    }

    /// Whether one more event may pass, with the number of events that were stopped before it.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since, stopped) = &mut *state;
        let passed = now.saturating_duration_since(*since).as_millis();
        let gained = passed * u128::from(self.rate.0) / u128::from(self.rate.1);
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

/// A rate that several addresses share. Each has at most a part of it.
pub(crate) struct SharedRate {
    all: RateLimit,
    /// The burst and the rate of a part.
    of_one: (u32, u32),
    parts: Mutex<RateParts>,
}

/// The parts of addresses.
#[derive(Default)]
struct RateParts {
    /// The number of requests for a part.
    asked: u64,
    /// The part of each address, with the number of its latest request.
    of: BTreeMap<IpAddr, (u64, Arc<RateLimit>)>,
}

impl SharedRate {
    /// The part of each address is one in `parts` of the burst and the rate.
    pub(crate) fn new(burst: u32, a_second: u32, parts: u32) -> Self {
        SharedRate {
            all: RateLimit::new(burst, a_second),
            of_one: (burst / parts, a_second / parts),
            parts: Mutex::default(),
        }
    }

    /// The part of an address. `None`: each call gets a part of its own.
    pub(crate) fn part(&self, ip: Option<IpAddr>) -> Arc<RateLimit> {
        let (burst, a_second) = self.of_one;
        let new = || Arc::new(RateLimit::new(burst, a_second));
        let Some(ip) = ip.filter(|_| !planted!(PartForEachConnection)) else { return new() };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let RateParts { asked, of } = &mut *parts;
        *asked += 1;
        if of.len() >= MAX_PARTS && !of.contains_key(&ip) && !planted!(KeepAllParts) {
            // A part that a connection has is in use, and goes last.
            let oldest = of
                .iter()
                .min_by_key(|(_, (asked, part))| (Arc::strong_count(part) > 1, *asked))
                .map(|(ip, _)| *ip);
            oldest.and_then(|ip| of.remove(&ip));
        }
        let (latest, part) = of.entry(ip).or_insert_with(|| (*asked, new()));
        *latest = *asked;
        part.clone()
    }

    /// Returns whether one more event of this part may pass.
    pub(crate) fn pass(&self, part: &RateLimit) -> bool {
        // The part is asked first: an event that it stops costs the other addresses nothing.
        part.pass().is_some() && self.all.pass().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ip(number: u32) -> Option<IpAddr> {
        Some(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn one_address_has_its_part_of_a_shared_rate_on_all_its_connections() {
        let rate = SharedRate::new(8, 0, 4);
        let passed = |part: &RateLimit| (0..10).filter(|_| rate.pass(part)).count();
        let (first, second) = (rate.part(ip(1)), rate.part(ip(1)));
        assert_eq!((passed(&first), passed(&second)), (2, 0));
        assert_eq!(passed(&rate.part(ip(2))), 2, "another address has its own");
        assert_eq!([(), ()].map(|()| passed(&rate.part(None))), [2, 2], "each has its own");
        assert_eq!(passed(&rate.part(ip(3))), 0, "all are used up");
    }

    #[test]
    fn the_parts_of_a_thousand_addresses_are_remembered_and_used_ones_longest() {
        let rate = SharedRate::new(8, 0, 4);
        let used = rate.part(ip(1));
        assert!(rate.pass(&used) && rate.pass(&used));
        for number in 2..3000 {
            drop(rate.part(ip(number)));
        }
        assert!(!rate.pass(&rate.part(ip(1))), "it is in use");
        assert_eq!(rate.parts.lock().expect("no panic").of.len(), MAX_PARTS);
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_with_the_number_of_stopped_events() {
        let limit = RateLimit::new(3, 2);
        let now = Instant::now() + Duration::from_secs(100);
        let passed = |now| (0..10).filter_map(|_| limit.pass_at(now)).collect::<Vec<_>>();
        assert_eq!(passed(now), [0, 0, 0]);
        assert_eq!(passed(now + Duration::from_millis(400)), Vec::<u64>::new());
        assert_eq!(passed(now + Duration::from_millis(500)), [17]);
        assert_eq!(passed(now + Duration::from_secs(100)), [9, 0, 0]);
        // A clock that steps back lets no more events pass.
        assert_eq!(passed(now), Vec::<u64>::new());
    }

    #[test]
    fn a_rate_may_be_that_of_a_minute() {
        let limit = RateLimit::a_minute(2, 1);
        let now = Instant::now();
        let passed = |now| (0..10).filter_map(|_| limit.pass_at(now)).count();
        assert_eq!(
            [0, 50, 70, 100, 130].map(|after| passed(now + Duration::from_secs(after))),
            [2, 0, 1, 0, 1]
        );
    }
}
