//! Packets on their way: from the sending core to the receiving core.

use super::{Observation, PacketLoss, ScheduledEvent, World};
use crate::kind::kind;
use crate::network::{Delivery, MS, SECOND};
use crate::rule::{PacketDescription, PacketFate};
use elderlock::protocol::{Hint, Input, Packet, ProcessId};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct PacketInTransit {
    /// Its number in this run.
    pub(crate) number: u64,
    /// Its fingerprint, once it was computed.
    pub(crate) print: OnceLock<u64>,
    pub(crate) from: usize,
    pub(crate) sender: ProcessId,
    pub(crate) to: usize,
    pub(crate) wanted: Option<ProcessId>,
    pub(crate) packet: Packet,
    /// When it was sent.
    pub(crate) sent: u64,
    /// The connection that carries it.
    pub(crate) connection: u32,
    /// The seed of its damage, if it is damaged.
    pub(crate) damage: Option<u64>,
}

impl World {
    pub(super) fn send(
        &mut self,
        from: usize,
        sender: ProcessId,
        to: SocketAddr,
        wanted: Option<ProcessId>,
        packet: Packet,
    ) {
        self.tell(&Observation::Sent { site: from, process: sender, to: wanted, packet: &packet });
        self.hear_proposal(from, &packet);
        self.meter_frame(from, &packet);
        let Some(&to) = self.site_by_addr.get(&to) else { return };
        let packet = match self.common.has_versions {
            true => self.recoded(from, to, wanted, packet),
            false => Some(packet),
        };
        let Some(packet) = packet else { return };
        let sent = self.now;
        self.packets += 1;
        let mut parcel = PacketInTransit {
            number: self.packets,
            print: OnceLock::new(),
            from,
            sender,
            to,
            wanted,
            packet,
            sent,
            connection: 0,
            damage: None,
        };
        let flight = PacketDescription { from, to, packet: &parcel.packet };
        let matching = self
            .rules
            .iter()
            .position(|rule| rule.fate != PacketFate::Over && (rule.test)(&flight));
        if let Some(index) = matching {
            let rule = &mut self.rules[index];
            rule.matched += 1;
            let fate = rule.fate;
            match fate {
                PacketFate::Hold => {
                    self.note(from, |_| {
                        format!("    held back: {} to m{to}", kind(&parcel.packet))
                    });
                    self.tell_route(&parcel, None);
                    self.held_packets.push((index, parcel));
                    return;
                }
                PacketFate::Drop(left) => {
                    rule.fate =
                        if left > 1 { PacketFate::Drop(left - 1) } else { PacketFate::Over };
                    self.note(from, |_| format!("    dropped: {} to m{to}", kind(&parcel.packet)));
                    self.tell_route(&parcel, Some(PacketLoss::Dropped));
                    return;
                }
                PacketFate::Over => {}
            }
        }
        let Delivery { arrivals, connection, damage } = self.network.route(self.now, from, to);
        (parcel.connection, parcel.damage) = (connection, damage);
        let is_lost = arrivals[0].is_none();
        let why = if self.network.is_cut(from, to) { PacketLoss::Cut } else { PacketLoss::Lost };
        self.tell_route(&parcel, is_lost.then_some(why));
        if is_lost {
            self.note(from, |_| format!("    lost: {} to m{to}", kind(&parcel.packet)));
            if let Some(wanted) =
                wanted.filter(|_| self.hints && self.network.is_refused(self.now, from, to))
            {
                self.schedule(
                    MS / 5,
                    ScheduledEvent::Hint { to: from, process: sender, hint: Hint::Refused(wanted) },
                );
            }
        }
        let parcel = Arc::new(parcel);
        for arrival in arrivals.into_iter().flatten() {
            self.schedule(arrival - self.now, ScheduledEvent::Packet(Arc::clone(&parcel)));
        }
    }

    fn tell_route(&mut self, parcel: &PacketInTransit, lost: Option<PacketLoss>) {
        let PacketInTransit { number, from, to, ref packet, .. } = *parcel;
        self.tell(&Observation::Routed { from, to, number, packet, lost });
    }

    /// A packet comes to the end of its path.
    pub(super) fn deliver(&mut self, parcel: PacketInTransit) {
        let (from, to) = (parcel.from, parcel.to);
        if !self.network.is_open(from, to, parcel.connection) {
            return self.note(from, |_| {
                format!("    lost with its connection: {} to m{to}", kind(&parcel.packet))
            });
        }
        if self.network.is_clogged(from, to) {
            self.clogged
                .entry((from, to))
                .or_default()
                .push(ScheduledEvent::Packet(Arc::new(parcel)));
            return;
        }
        self.network.arrived(from, to);
        if parcel.damage.is_some() || self.streams.contains_key(&(from, to)) {
            self.read_damaged(parcel);
        } else {
            self.hand_over(parcel);
        }
    }

    /// A packet comes out of its connection.
    pub(crate) fn hand_over(&mut self, parcel: PacketInTransit) {
        let PacketInTransit { number, from, sender, to, wanted, packet, .. } = parcel;
        let peer = &self.sites[to];
        let here = peer.is_alive() && wanted.is_none_or(|wanted| peer.process() == Some(wanted));
        if here {
            self.tell(&Observation::Arrives { site: to, number });
            let addr = self.sites[from].addr;
            self.feed(to, Input::Received { from: sender, addr, packet });
        } else if let Some(wanted) = wanted
            && peer.host_up
            && self.hints
            && !self.network.is_cut(to, from)
        {
            let hint = if peer.is_alive() { Hint::Replaced(wanted) } else { Hint::Refused(wanted) };
            self.schedule(MS / 5, ScheduledEvent::Hint { to: from, process: sender, hint });
        }
    }

    /// Packets that waited at the end of a clogged path arrive now, in order.
    pub(crate) fn flush(&mut self, from: usize, to: usize) {
        for due in self.clogged.remove(&(from, to)).unwrap_or_default() {
            if let ScheduledEvent::Packet(parcel) = &due {
                self.network.longest = self.network.longest.max(self.now - parcel.sent);
            }
            self.schedule(0, due);
        }
    }

    /// Returns the position in the queue of the packet with this number.
    fn nth(&self, number: usize) -> Option<(u64, u64)> {
        let packets = self.queue.iter().filter(|(_, due)| matches!(due, ScheduledEvent::Packet(_)));
        packets.map(|(key, _)| *key).nth(number)
    }

    /// The packet with this number arrives now.
    pub(crate) fn deliver_nth(&mut self, number: usize) -> bool {
        let due = self.nth(number).and_then(|key| self.queue.remove(&key));
        due.map(|due| self.happen(due)).is_some()
    }

    /// The packet with this number is lost.
    pub(crate) fn lose_nth(&mut self, number: usize) -> bool {
        self.nth(number).and_then(|key| self.queue.remove(&key)).is_some()
    }

    /// The packet with this number is under way twice.
    pub(crate) fn double_nth(&mut self, number: usize) -> bool {
        let due = self.nth(number).map(|key| (key.0, self.queue[&key].clone()));
        due.map(|(at, due)| self.schedule(at.saturating_sub(self.now), due)).is_some()
    }

    /// Everything under way arrives within this time, held back packets apart.
    pub(crate) fn longest_way(&self) -> u64 {
        self.network.longest.max(SECOND / 100)
    }
}
