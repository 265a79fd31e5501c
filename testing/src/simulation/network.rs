//! The network: whether, when and how often a packet arrives.
//!
//! Between a pair packets arrive in order, as over TCP; loss, doubling and overtaking are faults
//! with a rate. Cuts are one-way and count: two overlapping cuts of the same path need two
//! mendings. A clogged path delivers when it is unclogged. A narrow path lets one packet after the
//! other through and keeps a limited number. A reset loses all packets under way. Datagrams go the
//! same paths, each for itself.

use super::chance::mix;
use std::collections::BTreeMap;

/// A millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second, in nanoseconds.
pub const SECOND: u64 = 1_000 * MS;

/// The conditions that the network applies to every packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkConditions {
    /// The rate of lost packets, in parts per million.
    pub loss: u32,
    /// The rate of packets that are delivered twice, in parts per million.
    pub duplicate: u32,
    /// The rate of packets that later ones may overtake, in parts per million.
    pub reorder: u32,
    /// The shortest time on the path, in nanoseconds.
    pub fastest: u64,
    /// The longest time on the path, in nanoseconds.
    pub slowest: u64,
    /// The share of packets with an extra delay of up to `spike_by`, in parts per million.
    pub spike: u32,
    /// The longest extra delay, in nanoseconds.
    pub spike_by: u64,
    /// The rate of damaged packets, in parts per million.
    pub garble: u32,
}

impl LinkConditions {
    /// A quiet local network: 0.2 to 1 ms and nothing lost.
    pub const FAIR: LinkConditions = LinkConditions {
        loss: 0,
        duplicate: 0,
        reorder: 0,
        fastest: MS / 5,
        slowest: MS,
        spike: 0,
        spike_by: 0,
        garble: 0,
    };

    /// The worse value of the two in every respect.
    pub fn worse(self, other: LinkConditions) -> LinkConditions {
        LinkConditions {
            loss: self.loss.max(other.loss),
            duplicate: self.duplicate.max(other.duplicate),
            reorder: self.reorder.max(other.reorder),
            fastest: self.fastest.max(other.fastest),
            slowest: self.slowest.max(other.slowest),
            spike: self.spike.max(other.spike),
            spike_by: self.spike_by.max(other.spike_by),
            garble: self.garble.max(other.garble),
        }
    }
}

/// The limits of a narrow path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NarrowPath {
    /// The time for one packet, in nanoseconds.
    pub each: u64,
    /// The number of packets that may wait. When it is reached, further packets are dropped until
    /// all of the waiting ones are through.
    pub room: u32,
}

#[derive(Clone, Debug, Default)]
struct NetworkPath {
    packets: u64,
    datagrams: u64,
    last_arrival: u64,
    cuts: u32,
    /// The number of faults by which datagrams do not arrive.
    deaf: u32,
    /// The number of cuts that answer with a refusal.
    rejects: u32,
    /// The time of the last refusal, and the number of refusals.
    refused_at: u64,
    clogs: u32,
    slow_by: u64,
    narrow: Option<NarrowPath>,
    waiting: u32,
    overflowing: bool,
    /// The number of connections so far. Packets of an earlier connection do not arrive.
    connection: u32,
}

/// The fate of a packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The true times at which the packet arrives: none if it is lost, two if it is doubled.
    pub arrivals: [Option<u64>; 2],
    /// The connection of the packet.
    pub connection: u32,
    /// The seed of the packet's damage, if it is damaged.
    pub damage: Option<u64>,
}

impl Delivery {
    const LOST: [Option<u64>; 2] = [None, None];
}

/// All paths between members, by their sites in the World.
#[derive(Clone, Debug)]
pub struct Network {
    seed: u64,
    weather: LinkConditions,
    paths: BTreeMap<(usize, usize), NetworkPath>,
    /// The longest time that any packet was under way.
    pub longest: u64,
    /// How often a path was cut or mended.
    pub changes: u64,
}

/// A decision about one packet.
#[derive(Clone, Copy)]
enum PacketDecision {
    Loss,
    Duplicate,
    Reorder,
    Latency,
    Spike,
    SpikeBy,
    SecondLatency,
    Garble,
    Damage,
}

/// Separates the chance of datagrams from that of packets.
const DATAGRAMS: u64 = 0xda7a;
/// The interval between two attempts to dial a refused connection.
const DIAL_EVERY: u64 = 200 * MS;

impl Network {
    /// A fair network.
    pub fn new(seed: u64) -> Network {
        Network {
            seed,
            weather: LinkConditions::FAIR,
            paths: BTreeMap::new(),
            longest: 0,
            changes: 0,
        }
    }

    /// Changes the conditions for packets sent from now on.
    pub fn set_weather(&mut self, weather: LinkConditions) {
        self.weather = weather;
    }

    /// The present conditions.
    pub fn weather(&self) -> LinkConditions {
        self.weather
    }

    /// Cuts a direction: no packet sent from `from` from now on arrives at `to`. Packets under way
    /// do arrive.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.changes += 1;
        self.paths.entry((from, to)).or_default().cuts += 1;
    }

    /// Ends one [`cut`](Self::cut).
    pub fn mend(&mut self, from: usize, to: usize) {
        self.changes += 1;
        let path = self.paths.entry((from, to)).or_default();
        path.cuts = path.cuts.saturating_sub(1);
    }

    /// Ends every cut.
    pub fn mend_all(&mut self) {
        self.changes += 1;
        for path in self.paths.values_mut() {
            path.cuts = 0;
            path.deaf = 0;
            path.rejects = 0;
            path.clogs = 0;
            path.slow_by = 0;
            path.narrow = None;
            path.waiting = 0;
            path.overflowing = false;
        }
    }

    /// Delays each packet from `from` to `to` by `by` from now on.
    pub fn slow(&mut self, from: usize, to: usize, by: u64) {
        self.paths.entry((from, to)).or_default().slow_by = by;
    }

    /// Returns whether the path is cut.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.paths.get(&(from, to)).is_some_and(|path| path.cuts > 0)
    }

    /// Returns whether no path has a fault other than a cut.
    pub fn is_plain(&self) -> bool {
        let is_plain = |path: &NetworkPath| {
            path.clogs == 0 && path.slow_by == 0 && path.narrow.is_none() && path.rejects == 0
        };
        self.paths.values().all(is_plain)
    }

    /// The paths that are cut.
    pub fn cuts(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.paths.iter().filter(|(_, path)| path.cuts > 0).map(|(ends, _)| *ends)
    }

    /// Returns whether the path is clogged: packets wait until it is not.
    pub fn is_clogged(&self, from: usize, to: usize) -> bool {
        self.paths.get(&(from, to)).is_some_and(|path| path.clogs > 0)
    }

    /// Lets packets that arrive at the end of the path wait there from now on.
    pub fn clog(&mut self, from: usize, to: usize) {
        self.paths.entry((from, to)).or_default().clogs += 1;
    }

    /// Ends one [`clog`](Self::clog). Returns true if the path is open again.
    pub fn unclog(&mut self, from: usize, to: usize) -> bool {
        let path = self.paths.entry((from, to)).or_default();
        path.clogs = path.clogs.saturating_sub(1);
        path.clogs == 0
    }

    /// Makes the path narrow from now on, or removes the limit.
    pub fn narrow(&mut self, from: usize, to: usize, narrow: Option<NarrowPath>) {
        let path = self.paths.entry((from, to)).or_default();
        path.narrow = narrow;
        path.waiting = 0;
        path.overflowing = false;
    }

    /// Loses all packets under way.
    pub fn reset(&mut self, from: usize, to: usize) {
        let path = self.paths.entry((from, to)).or_default();
        path.connection += 1;
        path.waiting = 0;
        path.overflowing = false;
        // A new connection does not wait for the packets of the old one.
        path.last_arrival = 0;
    }

    /// Returns whether packets of this connection can still arrive.
    pub fn is_open(&self, from: usize, to: usize, connection: u32) -> bool {
        self.paths.get(&(from, to)).is_none_or(|path| path.connection == connection)
    }

    /// Answers a packet that is cut off from `to` by a refusal from now on, as if no process
    /// listened there.
    pub fn reject(&mut self, from: usize, to: usize) {
        self.paths.entry((from, to)).or_default().rejects += 1;
    }

    /// Ends one [`reject`](Self::reject).
    pub fn accept(&mut self, from: usize, to: usize) {
        let path = self.paths.entry((from, to)).or_default();
        path.rejects = path.rejects.saturating_sub(1);
    }

    /// Returns whether a packet that was just sent is answered by a refusal: a connection is
    /// dialled at most once in `DIAL_EVERY`.
    pub fn is_refused(&mut self, now: u64, from: usize, to: usize) -> bool {
        let Some(path) = self.paths.get_mut(&(from, to)) else { return false };
        let due = path.rejects > 0
            && path.cuts > 0
            && (path.refused_at == 0 || now >= path.refused_at + DIAL_EVERY);
        if due {
            path.refused_at = now;
        }
        due
    }

    /// Keeps datagrams from `from` from arriving at `to`.
    pub fn deafen(&mut self, from: usize, to: usize) {
        self.paths.entry((from, to)).or_default().deaf += 1;
    }

    /// Ends one [`deafen`](Self::deafen).
    pub fn undeafen(&mut self, from: usize, to: usize) {
        let path = self.paths.entry((from, to)).or_default();
        path.deaf = path.deaf.saturating_sub(1);
    }

    /// The delivery of a packet sent at `now`.
    pub fn route(&mut self, now: u64, from: usize, to: usize) -> Delivery {
        let path = self.paths.entry((from, to)).or_default();
        path.packets += 1;
        let (seed, packet, weather) = (self.seed, path.packets, self.weather);
        let ask = |question: PacketDecision| {
            mix(&[seed, from as u64, to as u64, packet, question as u64])
        };
        let hit = |question: PacketDecision, ppm: u32| {
            ppm > 0 && ask(question) % 1_000_000 < u64::from(ppm)
        };
        let connection = path.connection;
        if path.cuts > 0 || hit(PacketDecision::Loss, weather.loss) {
            return Delivery { arrivals: Delivery::LOST, connection, damage: None };
        }
        let damage =
            hit(PacketDecision::Garble, weather.garble).then(|| ask(PacketDecision::Damage));
        let spread = weather.slowest.saturating_sub(weather.fastest) + 1;
        let mut arrival =
            now + path.slow_by + weather.fastest + ask(PacketDecision::Latency) % spread;
        if hit(PacketDecision::Spike, weather.spike) {
            arrival += ask(PacketDecision::SpikeBy) % (weather.spike_by + 1);
        }
        if let Some(narrow) = path.narrow {
            path.overflowing |= path.waiting >= narrow.room;
            if path.overflowing {
                return Delivery { arrivals: Delivery::LOST, connection, damage: None };
            }
            path.waiting += 1;
            arrival = arrival.max(path.last_arrival + narrow.each);
            path.last_arrival = arrival;
        } else if !hit(PacketDecision::Reorder, weather.reorder) {
            arrival = arrival.max(path.last_arrival);
            path.last_arrival = arrival;
        }
        // The room of a narrow path is counted, so it doubles nothing.
        let second = (path.narrow.is_none() && hit(PacketDecision::Duplicate, weather.duplicate))
            .then(|| arrival + ask(PacketDecision::SecondLatency) % (20 * weather.slowest + 1));
        self.longest = self.longest.max(second.unwrap_or(arrival) - now);
        Delivery { arrivals: [Some(arrival), second], connection, damage }
    }

    /// The delivery of a datagram sent at `now`: like a packet's, but independent of other
    /// datagrams and of connections.
    pub fn route_datagram(&mut self, now: u64, from: usize, to: usize) -> Delivery {
        let path = self.paths.entry((from, to)).or_default();
        path.datagrams += 1;
        let (seed, packet, weather) = (self.seed, path.datagrams, self.weather);
        let ask = |question: PacketDecision| {
            mix(&[seed, DATAGRAMS, from as u64, to as u64, packet, question as u64])
        };
        let hit = |question: PacketDecision, ppm: u32| {
            ppm > 0 && ask(question) % 1_000_000 < u64::from(ppm)
        };
        if path.cuts > 0
            || path.deaf > 0
            || path.overflowing
            || hit(PacketDecision::Loss, weather.loss)
        {
            return Delivery { arrivals: Delivery::LOST, connection: 0, damage: None };
        }
        let damage =
            hit(PacketDecision::Garble, weather.garble).then(|| ask(PacketDecision::Damage));
        let spread = weather.slowest.saturating_sub(weather.fastest) + 1;
        let mut arrival =
            now + path.slow_by + weather.fastest + ask(PacketDecision::Latency) % spread;
        if hit(PacketDecision::Spike, weather.spike) {
            arrival += ask(PacketDecision::SpikeBy) % (weather.spike_by + 1);
        }
        let second = hit(PacketDecision::Duplicate, weather.duplicate)
            .then(|| arrival + ask(PacketDecision::SecondLatency) % (20 * weather.slowest + 1));
        Delivery { arrivals: [Some(arrival), second], connection: 0, damage }
    }

    /// A packet has come to the end of its path.
    pub fn arrived(&mut self, from: usize, to: usize) {
        let Some(path) = self.paths.get_mut(&(from, to)).filter(|path| path.narrow.is_some())
        else {
            return;
        };
        path.waiting = path.waiting.saturating_sub(1);
        path.overflowing &= path.waiting > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(weather: LinkConditions, n: u64) -> Vec<Option<u64>> {
        let mut network = Network::new(3);
        network.set_weather(weather);
        (0..n).map(|i| network.route(i * MS / 100, 0, 1).arrivals[0]).collect()
    }

    #[test]
    fn a_pair_is_in_order_unless_the_weather_says_otherwise() {
        let in_order = |times: &[Option<u64>]| times.iter().flatten().is_sorted();
        assert!(in_order(&arrivals(
            LinkConditions { spike: 100_000, spike_by: SECOND, ..LinkConditions::FAIR },
            1_000
        )));
        assert!(!in_order(&arrivals(
            LinkConditions { reorder: 500_000, ..LinkConditions::FAIR },
            1_000
        )));
    }

    #[test]
    fn one_faulty_packet_leaves_other_packets_alone() {
        let fair = arrivals(LinkConditions::FAIR, 1_000);
        let lossy = arrivals(
            LinkConditions { loss: 100_000, reorder: 1_000_000, ..LinkConditions::FAIR },
            1_000,
        );
        let lossless =
            arrivals(LinkConditions { reorder: 1_000_000, ..LinkConditions::FAIR }, 1_000);
        assert!(lossy.iter().filter(|time| time.is_none()).count() > 50);
        assert!(
            lossy.iter().zip(&lossless).all(|(with, without)| with.is_none() || with == without)
        );
        assert!(fair.iter().all(Option::is_some));
    }

    #[test]
    fn cuts_are_one_way_and_count() {
        let mut network = Network::new(1);
        network.cut(0, 1);
        network.cut(0, 1);
        network.mend(0, 1);
        assert_eq!(network.route(0, 0, 1).arrivals, [None, None]);
        assert!(network.route(0, 1, 0).arrivals[0].is_some());
        network.mend(0, 1);
        assert!(network.route(0, 0, 1).arrivals[0].is_some());
    }

    #[test]
    fn a_full_narrow_path_drops_packets_until_it_is_empty_again() {
        let mut network = Network::new(1);
        network.narrow(0, 1, Some(NarrowPath { each: 10 * MS, room: 3 }));
        let times: Vec<_> = (0..5).map(|_| network.route(0, 0, 1).arrivals[0]).collect();
        assert_eq!(times.iter().flatten().count(), 3);
        assert!(times[1].unwrap() >= times[0].unwrap() + 10 * MS, "one after the other");
        network.arrived(0, 1);
        network.arrived(0, 1);
        assert_eq!(network.route(0, 0, 1).arrivals[0], None, "it is still full");
        network.arrived(0, 1);
        assert!(network.route(0, 0, 1).arrivals[0].is_some());
    }

    #[test]
    fn a_refusal_comes_only_from_a_path_that_is_cut_and_rejects_and_not_for_every_packet() {
        let mut network = Network::new(1);
        network.reject(0, 1);
        assert!(!network.is_refused(SECOND, 0, 1));
        network.cut(0, 1);
        assert!(network.is_refused(SECOND, 0, 1));
        assert!(!network.is_refused(SECOND + MS, 0, 1));
        assert!(network.is_refused(2 * SECOND, 0, 1));
        network.accept(0, 1);
        assert!(!network.is_refused(3 * SECOND, 0, 1));
    }
}
