//! A World for the model checker: the steps that it can take by itself, and the fingerprint of its
//! future.

use crate::chance::{PortableHasher, WordSink, mix};
use crate::step::Step;
use crate::world::{PacketInTransit, ScheduledEvent, World};
use elderlock::protocol::Input;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A packet under way, with the number by which steps name it.
type Numbered<'a> = (usize, &'a Arc<PacketInTransit>);

impl World {
    /// Everything that can happen by itself at this instant: any packet under way arrives, or a
    /// timer that is due goes off. The driver makes the faults and the clients' steps.
    pub fn enabled(&self) -> Vec<Step> {
        let packets = self.under_way().map(|(number, _)| Step::Deliver(number));
        let is_due = |site: &usize| {
            self.is_up(*site) && self.sites[*site].due.is_some_and(|due| due <= self.now)
        };
        packets.chain(self.sites().filter(is_due).map(Step::Timer)).collect()
    }

    /// The packets under way, in the order of their arrival.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = Numbered<'_>> {
        let packets = self.queue.values().filter_map(|due| match due {
            ScheduledEvent::Packet(parcel) => Some(parcel),
            _ => None,
        });
        packets.enumerate()
    }

    /// Delivers pending hints now, drops the restarts of expelled processes, and drops packets to
    /// ended processes. No process starts again under the old id.
    pub(crate) fn tidy(&mut self) {
        while let Some(key) =
            self.queue.iter().find_map(|(key, due)| self.is_idle(due).then_some(*key))
        {
            if let Some(ScheduledEvent::Hint { to, process, hint }) = self.queue.remove(&key)
                && self.sites[to].is(process)
            {
                self.feed(to, Input::Hint(hint));
            }
        }
    }

    fn is_idle(&self, due: &ScheduledEvent) -> bool {
        match due {
            ScheduledEvent::Packet(parcel) => {
                let peer = &self.sites[parcel.to];
                match parcel.wanted {
                    Some(wanted) => !peer.is(wanted),
                    None => !peer.is_alive(),
                }
            }
            ScheduledEvent::Hint { .. } | ScheduledEvent::Rebirth { .. } => true,
            // No scope has gossip, damaged connections, slow disks, or clients that give up.
            ScheduledEvent::Gossip { .. }
            | ScheduledEvent::GiveUp { .. }
            | ScheduledEvent::FrameEnds { .. }
            | ScheduledEvent::Written { .. } => false,
        }
    }

    /// Fires the next timer that is due up to `until`. If there is none, advances to `until` and
    /// returns false.
    pub(crate) fn ring_next(&mut self, until: u64) -> bool {
        let due = self
            .sites()
            .filter(|site| self.is_up(*site))
            .filter_map(|site| Some((self.sites[site].due?, site)));
        match due.min().filter(|(due, _)| *due <= until) {
            Some((_, site)) => self.ring(site),
            None => {
                self.now = self.now.max(until);
                false
            }
        }
    }

    /// Time passes without any step.
    pub(crate) fn pass(&mut self, nanos: u64) {
        self.now += nanos;
    }
}

/// Hashes all parts of a World that decide its future. These are the time, the cores, the packets
/// under way, the clients' requests and answers, and the memory of the invariants. The trace, the
/// record and the premise counts decide nothing and are left out. So are cuts, rules and weather,
/// which a scope does not change. Stored votes count in durable Worlds.
///
/// A move changes little of a World, so the hashes of its parts are kept.
#[derive(Clone, Debug)]
pub(crate) struct StateFingerprint {
    sites: Vec<u64>,
    history: u64,
    /// The hash of all parts.
    pub(crate) whole: u64,
}

impl StateFingerprint {
    /// The fingerprint of `world`. `before` is the World one move earlier with its fingerprint, if
    /// any. `in_order`: packets of one pair stay in their order.
    pub(crate) fn of(
        world: &World,
        before: Option<(&World, &StateFingerprint)>,
        in_order: bool,
        left: &impl Hash,
    ) -> StateFingerprint {
        let peer = |site: usize| {
            let peer = &world.sites[site];
            let known = before.filter(|(before, _)| match (&before.sites[site].node, &peer.node) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now),
                (None, None) => true,
                _ => false,
            });
            known.map_or_else(|| print(&peer.node), |(_, print)| print.sites[site])
        };
        let sites: Vec<u64> = world.sites().map(peer).collect();
        let known = before.filter(|(before, _)| Arc::ptr_eq(&before.history, &world.history));
        let history = known.map_or_else(|| print(&world.history.calls), |(_, print)| print.history);

        let mut hasher = mill();
        (world.now, &sites, history).hash(&mut hasher);
        for peer in &world.sites {
            (peer.run, peer.leaving, peer.requests, peer.incarnation, &peer.inbox)
                .hash(&mut hasher);
        }
        if world.common.durable {
            world.sites.iter().for_each(|peer| peer.disk.hash(&mut hasher));
        }
        let views = world.latest.iter().map(|(lineage, view)| (lineage, view.number));
        views.for_each(|view| view.hash(&mut hasher));
        world.observers().invariants.hash_memory(&mut hasher);
        world.broken().is_some().hash(&mut hasher);
        left.hash(&mut hasher);
        if in_order {
            let mut pairs: Vec<_> = world
                .under_way()
                .map(|(number, parcel)| (parcel.from, parcel.to, number, parcel.print()))
                .collect();
            pairs.sort_unstable();
            pairs.iter().for_each(|(_, _, _, print)| print.hash(&mut hasher));
        } else {
            let sum =
                world.under_way().fold(0, |sum: u64, (_, parcel)| sum.wrapping_add(parcel.print()));
            sum.hash(&mut hasher);
        }
        StateFingerprint { sites, history, whole: hasher.finish() }
    }
}

/// Hashes states, which is much of the work of a search. Each word goes in by a reversible step, so
/// inputs that differ in one word only have different hashes. (`WordMixer` is slower, and its
/// digest of a run must stay as it is.)
struct FingerprintHasher;

impl WordSink for FingerprintHasher {
    fn take(state: u64, word: u64) -> u64 {
        let product = (state.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    }

    fn end(state: u64) -> u64 {
        mix(&[state])
    }
}

/// The start value is not zero, so that leading zeros count, too.
fn mill() -> PortableHasher<FingerprintHasher> {
    PortableHasher::new(0x243f_6a88_85a3_08d3)
}

/// A number that is equal for equal values, and hardly ever for others.
pub(crate) fn print(what: &impl Hash) -> u64 {
    let mut hasher = mill();
    what.hash(&mut hasher);
    hasher.finish()
}

impl PacketInTransit {
    /// The fingerprint is equal for equal packets. The packet's number in the run is only a name
    /// for logs.
    pub(crate) fn print(&self) -> u64 {
        let parts = (self.from, self.sender, self.to, self.wanted, &self.packet);
        *self.print.get_or_init(|| print(&parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn slightly_different_worlds_are_told_apart_and_equal_ones_are_not() {
        let value = |number: u64| {
            (
                number % 10,
                number / 10 % 10,
                vec![number / 100 % 10, 7],
                (number / 1_000).to_string(),
            )
        };
        let prints: BTreeSet<u64> = (0..100_000).map(|number| print(&value(number))).collect();
        assert_eq!(prints.len(), 100_000);
        assert_eq!(print(&value(77)), print(&value(77)));
        assert_ne!(print(&(0_u8, 0_u8)), print(&0_u8));
        assert_eq!(print(&(1_u8, 2_u32, 3_usize, 4_u128)), 0xea77_1e8a_83f6_9158);
    }
}
