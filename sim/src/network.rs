//! The network: when, how often and whether at all a packet arrives.
//!
//! Between a pair packets arrive in order, as over TCP; loss, doubling and overtaking are faults with a rate. Cuts
//! are one-way and count: two overlapping cuts of the same way need two mendings.

use crate::chance::mix;
use std::collections::BTreeMap;

/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One second.
pub const SECOND: u64 = 1_000 * MS;

/// What the network does to every packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Weather {
    /// Lost, in parts per million.
    pub loss: u32,
    /// Delivered twice, in parts per million.
    pub duplicate: u32,
    /// May be overtaken by later ones, in parts per million.
    pub reorder: u32,
    /// The shortest time on the way, in nanoseconds.
    pub fastest: u64,
    /// The longest.
    pub slowest: u64,
    /// Kept up on the way for up to `spike_by` more, in parts per million.
    pub spike: u32,
    /// How much longer at most.
    pub spike_by: u64,
}

impl Weather {
    /// A quiet local network: 0.2 to 1 ms and nothing lost.
    pub const FAIR: Weather =
        Weather { loss: 0, duplicate: 0, reorder: 0, fastest: MS / 5, slowest: MS, spike: 0, spike_by: 0 };

    /// The worse of the two in every respect.
    pub fn worse(self, other: Weather) -> Weather {
        Weather {
            loss: self.loss.max(other.loss),
            duplicate: self.duplicate.max(other.duplicate),
            reorder: self.reorder.max(other.reorder),
            fastest: self.fastest.max(other.fastest),
            slowest: self.slowest.max(other.slowest),
            spike: self.spike.max(other.spike),
            spike_by: self.spike_by.max(other.spike_by),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Way {
    packets: u64,
    last_arrival: u64,
    cuts: u32,
    slow_by: u64,
}

/// All ways between members, by their places in the World.
#[derive(Clone, Debug)]
pub struct Network {
    seed: u64,
    weather: Weather,
    ways: BTreeMap<(usize, usize), Way>,
    /// The longest time that any packet was under way.
    pub longest: u64,
}

/// What is decided about one packet.
#[derive(Clone, Copy)]
enum Question {
    Loss,
    Duplicate,
    Reorder,
    Latency,
    Spike,
    SpikeBy,
    SecondLatency,
}

impl Network {
    /// A fair network.
    pub fn new(seed: u64) -> Network {
        Network { seed, weather: Weather::FAIR, ways: BTreeMap::new(), longest: 0 }
    }

    /// Changes the weather for packets sent from now on.
    pub fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
    }

    /// The present weather.
    pub fn weather(&self) -> Weather {
        self.weather
    }

    /// Nothing sent from `from` arrives at `to` any more. What is on its way does.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.ways.entry((from, to)).or_default().cuts += 1;
    }

    /// Takes back one [`cut`](Self::cut).
    pub fn mend(&mut self, from: usize, to: usize) {
        let way = self.ways.entry((from, to)).or_default();
        way.cuts = way.cuts.saturating_sub(1);
    }

    /// Takes back every cut.
    pub fn mend_all(&mut self) {
        for way in self.ways.values_mut() {
            way.cuts = 0;
            way.slow_by = 0;
        }
    }

    /// Everything sent from `from` to `to` takes so much longer from now on.
    pub fn slow(&mut self, from: usize, to: usize, by: u64) {
        self.ways.entry((from, to)).or_default().slow_by = by;
    }

    /// Whether the way is cut.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.ways.get(&(from, to)).is_some_and(|way| way.cuts > 0)
    }

    /// The true times at which a packet sent at `now` arrives: none if it is lost, two if it is doubled.
    pub fn route(&mut self, now: u64, from: usize, to: usize) -> [Option<u64>; 2] {
        let way = self.ways.entry((from, to)).or_default();
        way.packets += 1;
        let (seed, packet, weather) = (self.seed, way.packets, self.weather);
        let ask = |question: Question| mix(&[seed, from as u64, to as u64, packet, question as u64]);
        let hit = |question: Question, ppm: u32| ask(question) % 1_000_000 < u64::from(ppm);
        if way.cuts > 0 || hit(Question::Loss, weather.loss) {
            return [None, None];
        }
        let spread = weather.slowest.saturating_sub(weather.fastest) + 1;
        let mut arrival = now + way.slow_by + weather.fastest + ask(Question::Latency) % spread;
        if hit(Question::Spike, weather.spike) {
            arrival += ask(Question::SpikeBy) % (weather.spike_by + 1);
        }
        if !hit(Question::Reorder, weather.reorder) {
            arrival = arrival.max(way.last_arrival);
            way.last_arrival = arrival;
        }
        let second = hit(Question::Duplicate, weather.duplicate)
            .then(|| arrival + ask(Question::SecondLatency) % (20 * weather.slowest + 1));
        self.longest = self.longest.max(second.unwrap_or(arrival) - now);
        [Some(arrival), second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(weather: Weather, n: u64) -> Vec<Option<u64>> {
        let mut network = Network::new(3);
        network.set_weather(weather);
        (0..n).map(|i| network.route(i * MS / 100, 0, 1)[0]).collect()
    }

    #[test]
    fn a_pair_is_in_order_unless_the_weather_says_otherwise() {
        let in_order = |times: &[Option<u64>]| times.iter().flatten().is_sorted();
        assert!(in_order(&arrivals(Weather { spike: 100_000, spike_by: SECOND, ..Weather::FAIR }, 1_000)));
        assert!(!in_order(&arrivals(Weather { reorder: 500_000, ..Weather::FAIR }, 1_000)));
    }

    #[test]
    fn what_one_fault_does_to_a_packet_leaves_other_packets_alone() {
        let fair = arrivals(Weather::FAIR, 1_000);
        let lossy = arrivals(Weather { loss: 100_000, reorder: 1_000_000, ..Weather::FAIR }, 1_000);
        let lossless = arrivals(Weather { reorder: 1_000_000, ..Weather::FAIR }, 1_000);
        assert!(lossy.iter().filter(|time| time.is_none()).count() > 50);
        assert!(lossy.iter().zip(&lossless).all(|(with, without)| with.is_none() || with == without));
        assert!(fair.iter().all(Option::is_some));
    }

    #[test]
    fn cuts_are_one_way_and_count() {
        let mut network = Network::new(1);
        network.cut(0, 1);
        network.cut(0, 1);
        network.mend(0, 1);
        assert_eq!(network.route(0, 0, 1), [None, None]);
        assert!(network.route(0, 1, 0)[0].is_some());
        network.mend(0, 1);
        assert!(network.route(0, 0, 1)[0].is_some());
    }
}
