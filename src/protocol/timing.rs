//! All times of the protocol, and the relations between them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The upper bound of all times.
const LONGEST: Duration = Duration::from_secs(3600);

/// The protocol's times. They are part of the view: a process that joins adopts the cluster's
/// times.
///
/// Start from a preset and change only the necessary values; [`check`](Timing::check) reports a
/// broken rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// The time for which a member may act on one renewal by the elder (`TM`). A member that
    /// vanishes with its host is removed about this long after its last sign of life.
    pub member_lease: Duration,
    /// The time for which the elder may act on the answers of a quorum of its council (`TE`). The
    /// council waits this long, and a little more, before it lets another elder take over.
    pub elder_lease: Duration,
    /// The interval at which a member of the council beats to the elder. Other members do so at an
    /// eighth of `member_lease`.
    pub beat: Duration,
    /// The time that a message waits for its answer before it is repeated; doubled while there is
    /// no answer.
    pub retry: Duration,
    /// The additional delay before each next-oldest member of the council tries to take over.
    pub stagger: Duration,
    /// The time that `try` waits for a grantor that does not answer, before it ends as "undecided".
    pub answer: Duration,
    /// The largest deviation of any clock's *rate*, in parts per million.
    pub clock_error_ppm: u32,
}

impl Timing {
    /// The timing for members on one network: leases of 5 s and 2 s. The default.
    pub const fn lan() -> Self {
        Timing {
            member_lease: Duration::from_secs(5),
            elder_lease: Duration::from_secs(2),
            beat: Duration::from_millis(250),
            retry: Duration::from_millis(200),
            stagger: Duration::from_millis(50),
            answer: Duration::from_millis(500),
            clock_error_ppm: 20_000,
        }
    }

    /// The timing for members far apart: leases of 15 s and 5 s.
    pub const fn wan() -> Self {
        Timing {
            member_lease: Duration::from_secs(15),
            elder_lease: Duration::from_secs(5),
            beat: Duration::from_millis(600),
            retry: Duration::from_millis(1_000),
            stagger: Duration::from_millis(400),
            answer: Duration::from_millis(2_000),
            clock_error_ppm: 20_000,
        }
    }

    /// The timing for members in one rack or on one host: leases of 2.5 s and 1 s.
    pub const fn fast() -> Self {
        Timing {
            member_lease: Duration::from_millis(2_500),
            elder_lease: Duration::from_millis(1_000),
            beat: Duration::from_millis(120),
            retry: Duration::from_millis(80),
            stagger: Duration::from_millis(20),
            answer: Duration::from_millis(250),
            clock_error_ppm: 20_000,
        }
    }

    /// The time to wait by the own clock until `span` is certainly over by every other clock. The
    /// own clock may be fast by the error, and the other one slow by it.
    pub fn surely(&self, span: Duration) -> Duration {
        let error = u128::from(self.clock_error_ppm);
        let nanos = span.as_nanos() * (1_000_000 + error) / (1_000_000 - error) + 1;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The interval at which a member outside the council beats.
    pub(crate) fn slow_beat(&self) -> Duration {
        self.member_lease / 8
    }

    /// The time without a beat after which the elder calls a member silent. It replaces the
    /// member's grantors at once, and removes the member as soon as its lease is over.
    pub(crate) fn silence(&self) -> Duration {
        self.slow_beat() * 2
    }

    /// The time that a request waits before the grantor reports its position. Long compared with
    /// most waits for a busy lock, short compared with the delay of an acknowledgement.
    pub(crate) fn position_delay(&self) -> Duration {
        self.retry / 32
    }

    /// The time between two slices of work for which no member waits. Other work gets the processor
    /// meanwhile.
    pub(crate) fn pause(&self) -> Duration {
        (self.retry / 100).min(Duration::from_millis(2))
    }

    /// The time that a seed listens before it founds: two greetings by every member of a council
    /// that may live on.
    pub(crate) fn listen(&self) -> Duration {
        self.slow_beat() * 2
    }

    /// Checks each rule for the relations between the times.
    pub fn check(&self) -> Result<(), InvalidTiming> {
        let spans =
            [self.member_lease, self.elder_lease, self.beat, self.retry, self.stagger, self.answer];
        // This check comes first, so that no sum below can overflow: a view's times come from
        // outside.
        if spans.iter().any(|span| *span > LONGEST) || self.clock_error_ppm > 200_000 {
            let rule =
                "no time is longer than an hour, and clock_error_ppm is at most 200,000 (20 %)";
            return Err(InvalidTiming { rule, given: Box::new(*self) });
        }
        let takeover = self.surely(self.elder_lease) + self.stagger * 8 + self.retry * 4;
        let rules = [
            (self.retry >= Duration::from_millis(1), "retry is at least 1 ms"),
            (self.stagger >= Duration::from_millis(1), "stagger is at least 1 ms"),
            (self.beat >= Duration::from_millis(1), "beat is at least 1 ms"),
            (
                self.elder_lease >= self.beat * 4,
                "elder_lease is at least 4 beats, or one lost message ends it",
            ),
            (
                self.member_lease >= self.elder_lease * 2,
                "member_lease is at least 2 elder_leases, or a takeover outlasts it",
            ),
            (self.retry * 4 <= self.elder_lease, "retry is at most a quarter of elder_lease"),
            (self.stagger * 8 <= self.elder_lease, "stagger is at most an eighth of elder_lease"),
            (self.answer <= self.member_lease, "answer is at most member_lease"),
            (!self.answer.is_zero(), "answer is not zero"),
            (
                self.member_lease >= takeover,
                "member_lease is at least elder_lease stretched by the clock error, 8 staggers and \
                 4 retries, or a takeover outlasts it",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(InvalidTiming { rule, given: Box::new(*self) }),
            None => Ok(()),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Timing::lan()
    }
}

/// The error of times that break a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid timing {given:?}: {rule}; a preset of Timing keeps each rule")]
pub struct InvalidTiming {
    /// The rule that the times break.
    pub rule: &'static str,
    /// The times that break the relation.
    pub given: Box<Timing>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_keep_every_relation() {
        for timing in [Timing::lan(), Timing::wan(), Timing::fast()] {
            assert_eq!(timing.check(), Ok(()));
        }
    }

    #[test]
    fn each_relation_is_checked() {
        let lan = Timing::lan();
        let ms = Duration::from_millis;
        for broken in [
            Timing { clock_error_ppm: 200_001, ..lan },
            Timing { retry: ms(0), ..lan },
            Timing { stagger: ms(0), ..lan },
            Timing { beat: ms(0), ..lan },
            Timing { beat: ms(501), ..lan },
            Timing { member_lease: ms(3_999), ..lan },
            Timing { retry: ms(501), ..lan },
            Timing { stagger: ms(251), ..lan },
            Timing { answer: ms(5_001), ..lan },
            Timing { answer: ms(0), ..lan },
            Timing { member_lease: ms(3_600_001), ..lan },
            Timing { clock_error_ppm: 200_000, elder_lease: ms(2_500), stagger: ms(300), ..lan },
            Timing { member_lease: Duration::MAX, ..lan },
            Timing { elder_lease: Duration::MAX, ..lan },
            Timing { beat: Duration::MAX, ..lan },
            Timing { retry: Duration::MAX, ..lan },
            Timing { stagger: Duration::MAX, ..lan },
            Timing { answer: Duration::MAX, ..lan },
            Timing { clock_error_ppm: u32::MAX, ..lan },
        ] {
            assert!(broken.check().is_err(), "{broken:?}");
        }
    }

    #[test]
    fn surely_covers_a_slow_and_a_fast_clock() {
        let lan = Timing::lan();
        let span = Duration::from_secs(5);
        // With a clock that is 2 % slow, a holder uses up its lease after 5 / 0.98 s. With a clock
        // that is 2 % fast, a waiter has then counted 1.02 times that.
        let counted = span.as_secs_f64() / 0.98 * 1.02;
        assert!(lan.surely(span).as_secs_f64() >= counted);
        assert!(lan.surely(span).as_secs_f64() < counted * 1.001);
    }
}
