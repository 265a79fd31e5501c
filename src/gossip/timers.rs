//! foca's timers, none of which may be lost.

use super::identity::SwimId;
use crate::protocol::Time;
use foca::Timer;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Timers by the time at which they are due.
///
/// The number of timers is bounded without losing any that could still have an effect. Foca ignores
/// a periodic timer whose token is not its present one. Foca starts the next timer only after the
/// last has fired or its token has ended. So of each periodic kind only the latest counts. Foca
/// ignores the removal of an identity that a higher one has replaced, and an identity goes down
/// once. So of each address only the latest removal counts. The two timers of a probe remain, and
/// there is one probe a second.
#[derive(Default)]
pub(super) struct Timers {
    due: BTreeMap<TimerKey, Timer<SwimId>>,
    latest: BTreeMap<TimerKind, TimerKey>,
    sequence: u64,
}

/// The time at which a timer is due, and its number in the order of the starts.
type TimerKey = (Time, u64);

/// The kinds of timers of which only the latest has an effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKind {
    Probe,
    Announce,
    AnnounceDown,
    Gossip,
    Remove(SocketAddr),
}

impl Timers {
    /// Starts a timer.
    pub(super) fn start(&mut self, at: Time, timer: Timer<SwimId>) {
        let key = (at, self.sequence);
        self.sequence += 1;
        if let Some(superseded) = slot(&timer).and_then(|slot| self.latest.insert(slot, key)) {
            self.due.remove(&superseded);
        }
        self.due.insert(key, timer);
    }

    /// Returns the time at which the first timer is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes all timers that are due, in the order that foca needs for late ones. A probe's second
    /// stage comes before the next probe, at any times. Otherwise the order is by time.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<Timer<SwimId>> {
        let later = self.due.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.due, later);
        for (key, timer) in &due {
            if let Some(slot) = slot(timer)
                && self.latest.get(&slot) == Some(key)
            {
                self.latest.remove(&slot);
            }
        }
        let mut batch: Vec<_> = due.into_values().collect();
        batch.sort();
        batch
    }

    /// The number of waiting timers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

fn slot(timer: &Timer<SwimId>) -> Option<TimerKind> {
    match timer {
        Timer::ProbeRandomMember(_) => Some(TimerKind::Probe),
        Timer::PeriodicAnnounce(_) => Some(TimerKind::Announce),
        Timer::PeriodicAnnounceDown(_) => Some(TimerKind::AnnounceDown),
        Timer::PeriodicGossip(_) => Some(TimerKind::Gossip),
        Timer::RemoveDown(id) => Some(TimerKind::Remove(id.addr)),
        Timer::SendIndirectProbe { .. } | Timer::ChangeSuspectToDown { .. } => None,
    }
}
