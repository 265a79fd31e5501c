//! All times of the protocol, and the relations between them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest of all times.
const LONGEST: Duration = Duration::from_secs(3600);

/// The protocol's times. They belong to the view: a process that joins adopts the cluster's.
///
/// Start from a preset and change only the necessary values; [`check`](Timing::check) reports a
/// broken relation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// How long a member may act on one renewal by the elder (`TM`). A member that vanishes with
    /// its host is removed about this long after its last sign of life.
    pub member_lease: Duration,
    /// How long the elder may act on the answers of a quorum of its council (`TE`). The council
    /// waits this long, and a little more, before it lets another elder take over.
    pub elder_lease: Duration,
    /// How often a member of the council shows itself to the elder. Others do so at an eighth of
    /// `member_lease`.
    pub beat: Duration,
    /// How long a message waits for its answer before it is sent again; doubled while there is no
    /// answer.
    pub retry: Duration,
    /// How much later each next-oldest member of the council tries to take over.
    pub stagger: Duration,
    /// How long `try` waits for a grantor that does not answer before it ends as "undecided".
    pub answer: Duration,
    /// The most by which any clock's *rate* may be off, in parts per million.
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

    /// How long to wait by the own clock so that `span` is surely over by every other clock. The
    /// own clock may be fast by the error, and the other one slow by it.
    pub fn surely(&self, span: Duration) -> Duration {
        let error = u128::from(self.clock_error_ppm);
        let nanos = span.as_nanos() * (1_000_000 + error) / (1_000_000 - error) + 1;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How often a member outside the council shows itself.
    pub(crate) fn slow_beat(&self) -> Duration {
        self.member_lease / 8
    }

    /// The time without a beat after which the elder takes a member to be silent. It replaces the
    /// member's grantors, and removes the member as soon as its lease is over.
    pub(crate) fn silence(&self) -> Duration {
        self.slow_beat() * 2
    }

    /// How long a request waits before the grantor reports its position. Long compared with most
    /// waits for a busy lock, short compared with the delay of an acknowledgement.
    pub(crate) fn position_delay(&self) -> Duration {
        self.retry / 32
    }

    /// How long a seed listens before it founds: two greetings of every member of a council that
    /// may live on.
    pub(crate) fn listen(&self) -> Duration {
        self.slow_beat() * 2
    }

    /// Checks each relation between the times.
    pub fn check(&self) -> Result<(), InvalidTiming> {
        let spans =
            [self.member_lease, self.elder_lease, self.beat, self.retry, self.stagger, self.answer];
        // First, so that no sum below can overflow: a view's times come from outside.
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

/// Times that do not fit together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{rule}, which is not so in {given:?}; a preset of Timing keeps each rule")]
pub struct InvalidTiming {
    /// The relation that does not hold.
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
        // A holder whose clock runs 2 % slow uses up its lease after 5 / 0.98 s. A waiter whose
        // clock runs 2 % fast has then counted 1.02 times that.
        let counted = span.as_secs_f64() / 0.98 * 1.02;
        assert!(lan.surely(span).as_secs_f64() >= counted);
        assert!(lan.surely(span).as_secs_f64() < counted * 1.001);
    }
}
