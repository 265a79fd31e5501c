//! Detours: while the direct path to a process is broken, its packets are also sent through the
//! council.

use crate::protocol::id::ProcessId;
use crate::protocol::message::{Notice, Packet};
use crate::protocol::time::Time;
use crate::protocol::timing::Timing;
use std::collections::BTreeMap;

/// The detour for packets to one process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Detour {
    /// The time until which packets go both ways.
    pub(super) until: Time,
    /// The time until which this member counts the path as broken by its own observation: the other
    /// side should answer by detours too.
    pub(super) seen_until: Time,
    /// Index of the next relay (round robin).
    pub(super) next_relay: u32,
    /// The member through which the other side hears this one, and the time of the other side's
    /// last report of it.
    pub(super) relay: Option<(ProcessId, Time)>,
    /// The member through which this one hears the other side, and the time of the last packet from
    /// there.
    pub(super) heard: Option<(ProcessId, Time)>,
    /// The time of the last packet on the direct path.
    pub(super) straight_at: Time,
    /// The time at which a packet other than a notice was last sent through all relays.
    probed_at: Option<Time>,
    /// The notices that were sent through all relays lately, and the time since which they are
    /// counted.
    notices: Vec<Packet>,
    noticed_since: Time,
}

impl Detour {
    /// Returns whether the detour continues. A detour in use, while the direct path is silent,
    /// lasts for one more member lease.
    pub(super) fn goes_on(&mut self, now: Time, timing: &Timing) -> bool {
        if self.until <= now
            && is_fresh(self.relay, now, timing)
            && self.straight_at + timing.slow_beat() * 2 <= now
        {
            self.until = now + timing.member_lease;
            self.seen_until = self.until;
        }
        self.until > now
    }

    /// The members of `relays` for a packet: the relay that is known to deliver. While none is
    /// known, a notice is sent through all, the same notice once in a quarter of `retry`. If
    /// packets are frequent or long, only one in that time is sent through all. The others are sent
    /// through one relay after the other. `most`: at most this many notices.
    pub(super) fn choose(
        &mut self,
        now: Time,
        packet: &Packet,
        relays: &[ProcessId],
        most: usize,
        timing: &Timing,
    ) -> Vec<ProcessId> {
        if let Some((way, _)) =
            self.relay.filter(|way| is_fresh(Some(*way), now, timing) && relays.contains(&way.0))
        {
            return vec![way];
        }
        let is_view = |notice: &Notice| matches!(notice, Notice::FullView { .. });
        let is_short = matches!(packet, Packet::Notice(notice) if !is_view(notice));
        if is_short {
            // A question through all relays would otherwise be answered through all relays, each
            // time that it arrives.
            if self.noticed_since + timing.retry / 4 <= now {
                self.noticed_since = now;
                self.notices.clear();
            }
            if self.notices.contains(packet) {
                return Vec::new();
            }
            if self.notices.len() < most {
                self.notices.push(packet.clone());
                return relays.to_vec();
            }
        } else if is_time(&mut self.probed_at, now, timing) {
            return relays.to_vec();
        }
        let next = relays.get(self.next_relay as usize % relays.len().max(1)).copied();
        self.next_relay = self.next_relay.wrapping_add(1);
        next.into_iter().collect()
    }
}

/// Returns whether the last packet is so recent that the next one is not overdue. Every member
/// sends a packet within an eighth of a member lease.
pub(super) fn is_fresh(heard: Option<(ProcessId, Time)>, now: Time, timing: &Timing) -> bool {
    heard.is_some_and(|(_, at)| now < at + timing.slow_beat() * 2)
}

/// Lets packets to `to` also go through the council for one member lease.
pub(super) fn open_detour(
    detours: &mut BTreeMap<ProcessId, Detour>,
    now: Time,
    to: ProcessId,
    seen: bool,
    timing: &Timing,
) {
    let until = now + timing.member_lease;
    let detour = detours.entry(to).or_insert(Detour {
        until,
        seen_until: Time::ZERO,
        next_relay: 0,
        relay: None,
        heard: None,
        straight_at: Time::ZERO,
        probed_at: None,
        notices: Vec::new(),
        noticed_since: Time::ZERO,
    });
    detour.until = until;
    if seen {
        detour.seen_until = until;
        // Later packets through that relay were not answered.
        detour.relay = detour.relay.filter(|(_, at)| now < *at + timing.retry);
    }
}

/// Returns whether a quarter of `retry` has passed since the last time that this was true. Records
/// the present time if so.
pub(super) fn is_time(last: &mut Option<Time>, now: Time, timing: &Timing) -> bool {
    let due = last.is_none_or(|last| last + timing.retry / 4 <= now);
    if due {
        *last = Some(now);
    }
    due
}
