//! What is drawn before a run: who is there, who plays what, and what goes wrong when.

use super::players::Cast;
use crate::chance::Dice;
use crate::network::{MS, Weather};

/// Something that goes wrong, for a while.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Trouble {
    /// The process of that seat ends; another one is started there later.
    Crash(usize),
    /// The member says goodbye, and comes back later.
    Leave(usize),
    /// The process is stopped, and goes on later.
    Pause(usize),
    /// Nothing reaches or leaves it.
    Isolate(usize),
    /// Nothing sent by the first reaches the second.
    OneWay(usize, usize),
    /// Seats in the mask and the others do not reach each other.
    Split(u32),
    /// The weather is bad.
    Storm(Weather),
}

/// When, what and for how long, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault {
    /// From the end of the founding on.
    pub at: u64,
    /// What.
    pub trouble: Trouble,
    /// For how long.
    pub span: u64,
}

/// A run, before it is run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Everything else follows from it, and the luck of packets and players too.
    pub seed: u64,
    /// Seats for members.
    pub seats: usize,
    /// For how long things go wrong, in milliseconds.
    pub span: u64,
    /// Whether others see a process end for sure.
    pub vouched: bool,
    /// What the players play.
    pub casts: Vec<Cast>,
    /// In the order of their beginnings.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// The run of this seed; `only`: with this cast and no other.
    pub fn draw(seed: u64, only: Option<Cast>) -> Plan {
        let dice = &mut Dice::new(seed, 1);
        let seats = dice.between(3, 5) as usize;
        let span = dice.between(8_000, 20_000);
        let mut casts = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let cast = *dice.pick(&Cast::ALL);
            if !casts.contains(&cast) {
                casts.push(cast);
            }
        }
        if let Some(only) = only {
            casts = vec![only];
        }
        let mut faults: Vec<Fault> = (0..dice.between(3, 9)).map(|_| Fault::draw(dice, seats, span)).collect();
        faults.sort_by_key(|fault| fault.at);
        Plan { seed, seats, span, vouched: dice.chance(500_000), casts, faults }
    }

    /// One line each.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "seed {}: {} members, {} ms, {}, deaths are {}\n",
            self.seed,
            self.seats,
            self.span,
            self.casts.iter().map(|cast| cast.name()).collect::<Vec<_>>().join(" and "),
            if self.vouched { "seen" } else { "found out" }
        );
        for fault in &self.faults {
            text += &format!("  at {} ms for {} ms: {:?}\n", fault.at, fault.span, fault.trouble);
        }
        text
    }
}

impl Fault {
    fn draw(dice: &mut Dice, seats: usize, span: u64) -> Fault {
        let seat = dice.below(seats as u64) as usize;
        let other = (seat + 1 + dice.below(seats as u64 - 1) as usize) % seats;
        let (trouble, low, high) = match dice.below(100) {
            0..=24 => (Trouble::Crash(seat), 10, 6_000),
            25..=36 => (Trouble::Leave(seat), 10, 3_000),
            37..=52 => (Trouble::Pause(seat), 50, 6_000),
            53..=67 => (Trouble::Isolate(seat), 100, 6_000),
            68..=76 => (Trouble::OneWay(seat, other), 100, 5_000),
            77..=86 => (Trouble::Split(dice.between(1, (1 << seats) - 2) as u32), 100, 5_000),
            _ => (Trouble::Storm(storm(dice)), 500, 5_000),
        };
        Fault { at: dice.below(span), trouble, span: dice.between(low, high) }
    }
}

/// What a network of one building does: late by some milliseconds, and nothing lost.
pub const CALM: Weather = Weather {
    loss: 0,
    duplicate: 0,
    reorder: 0,
    fastest: MS,
    slowest: 4 * MS,
    spike: 10_000,
    spike_by: 40 * MS,
    garble: 0,
};

fn storm(dice: &mut Dice) -> Weather {
    Weather {
        loss: dice.between(0, 150_000) as u32,
        duplicate: dice.between(0, 50_000) as u32,
        reorder: dice.between(0, 100_000) as u32,
        slowest: dice.between(4, 60) * MS,
        spike: 50_000,
        spike_by: 300 * MS,
        ..CALM
    }
}
