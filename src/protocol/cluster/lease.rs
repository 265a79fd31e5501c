//! The member's side of the leases: beats to the elder, the end of its own lease, and its promise
//! to the elder.
//!
//! Two rules carry all of P2:
//! - a lease is counted from when the member *asked*, so any delay of the message is on the safe
//!   side;
//! - a promise is counted from when the elder's pulse *arrived*, so it outlasts the time that the
//!   elder counts from sending.

use crate::protocol::id::{ProcessId, ViewNumber};
use crate::protocol::message::Notice;
use crate::protocol::time::Time;
use crate::protocol::timing::Timing;
use std::collections::VecDeque;

/// The number of the latest beats that are kept. A lease from an older one would be over already.
const MAX_BEATS: usize = 256;

/// A member's lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct OwnLease {
    /// The number of the latest beat.
    beat: u64,
    /// Beats that may still be renewed, with the time of sending.
    sent: VecDeque<(u64, Time)>,
    /// The latest beat known to be renewed.
    confirmed: u64,
    /// The latest pulse of the present elder that this member confirms.
    pulse: u64,
    /// The time of the next beat.
    pub(crate) next_beat: Time,
    /// The number of beats since the elder's last pulse.
    pub(crate) unanswered: u32,
    /// The end of the lease.
    pub(crate) until: Time,
    /// Until then this member votes for no other candidate.
    pub(crate) promised_until: Time,
    /// Whether the lease ran at the last check: its end is reported once.
    pub(crate) running: bool,
    /// Whether the lease ever ran.
    pub(crate) ever: bool,
}

impl OwnLease {
    /// Adopts an installed view: the promise to its elder begins, and the elder gets a beat at
    /// once.
    pub(crate) fn on_view(&mut self, now: Time, timing: &Timing, same_elder: bool) {
        self.promised_until = now + timing.surely(timing.elder_lease);
        if !same_elder {
            self.pulse = 0;
            self.unanswered = 0;
        }
        self.next_beat = now;
    }

    /// Returns whether this process has sent that beat.
    pub(crate) fn has_sent(&self, beat: u64) -> bool {
        beat <= self.beat
    }

    /// Makes the next beat to the elder. `kept`: the view is on disk.
    pub(crate) fn beat(
        &mut self,
        now: Time,
        (view, kept): (ViewNumber, bool),
        period: std::time::Duration,
    ) -> Notice {
        self.beat += 1;
        self.sent.push_back((self.beat, now));
        if self.sent.len() > MAX_BEATS {
            self.sent.pop_front();
        }
        self.next_beat = now + period;
        self.unanswered += 1;
        Notice::Beat { view, beat: self.beat, pulse: self.pulse, confirmed: self.confirmed, kept }
    }

    /// Handles a pulse of the present elder. `free`: this member has promised its vote to no other
    /// process.
    pub(crate) fn on_pulse(
        &mut self,
        now: Time,
        pulse: u64,
        renews: u64,
        free: bool,
        timing: &Timing,
    ) {
        self.unanswered = 0;
        if free && pulse > self.pulse {
            self.pulse = pulse;
            self.promised_until = self.promised_until.max(now + timing.surely(timing.elder_lease));
        }
        if renews > self.confirmed {
            if let Some((_, asked)) = self.sent.iter().find(|(beat, _)| *beat == renews) {
                self.until = self.until.max(*asked + timing.member_lease);
            }
            self.confirmed = renews;
            self.sent.retain(|(beat, _)| *beat > renews);
        }
    }
}

/// The elder's knowledge of one member's lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MemberRecord {
    /// The latest renewed beat.
    pub(crate) renewed: u64,
    /// The time at which that beat arrived, or at which this elder began. The member's lease is
    /// surely over one lease later.
    pub(crate) renewed_at: Time,
    /// The time at which the latest pulse that the member confirms was sent.
    pub(crate) acked: Option<Time>,
    /// The latest renewal that the member knows of.
    pub(crate) confirmed: u64,
    /// The time of the first answered beat since the member last confirmed a later pulse.
    pub(crate) unheard_since: Option<Time>,
    /// The time at which the member was heard last.
    pub(crate) heard_at: Time,
    /// The latest view that the member is known to have.
    pub(crate) view: ViewNumber,
    /// The latest view that the member's directory is known to have.
    pub(crate) kept: ViewNumber,
}

impl MemberRecord {
    pub(crate) fn new(now: Time) -> MemberRecord {
        MemberRecord {
            renewed: 0,
            renewed_at: now,
            acked: None,
            confirmed: 0,
            unheard_since: None,
            heard_at: now,
            view: ViewNumber(0),
            kept: ViewNumber(0),
        }
    }
}

/// The pulses that an elder sent, with their times: so an answer shows when its question was sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pulses {
    last: u64,
    sent: VecDeque<Time>,
}

impl Pulses {
    pub(crate) fn after(last: u64) -> Pulses {
        Pulses { last, sent: VecDeque::new() }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn next(&mut self, now: Time, timing: &Timing) -> u64 {
        while self.sent.front().is_some_and(|sent| *sent + timing.elder_lease < now) {
            self.sent.pop_front();
        }
        self.last += 1;
        self.sent.push_back(now);
        self.last
    }

    pub(crate) fn sent_at(&self, pulse: u64) -> Option<Time> {
        let first = self.last - self.sent.len() as u64 + 1;
        let index = pulse.checked_sub(first)?;
        self.sent.get(usize::try_from(index).ok()?).copied()
    }
}

/// The position of a member in the order in which the council tries to take over.
pub(crate) fn rank(council: impl Iterator<Item = ProcessId>, me: ProcessId) -> u32 {
    council.take_while(|process| *process != me).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_hears_nothing_remembers_the_latest_beats_only() {
        let (timing, mut lease) = (Timing::lan(), OwnLease::default());
        let at = |beat: u64| Time::from_nanos(beat * 1_000);
        let last = MAX_BEATS as u64 + 44;
        for beat in 1..=last {
            lease.beat(at(beat), (ViewNumber(1), false), timing.slow_beat());
        }
        let kept: Vec<u64> = lease.sent.iter().map(|(beat, _)| *beat).collect();
        assert_eq!(kept, Vec::from_iter(45..=last));
        // A renewed beat and those before it can have no further effect.
        lease.on_pulse(at(last), 1, 100, true, &timing);
        assert_eq!(lease.until, at(100) + timing.member_lease);
        assert_eq!(lease.sent.front().map(|(beat, _)| *beat), Some(101));
    }
}
