//! `minority_is_silent`: where for longer than the leases nobody could reach a quorum of the latest view's council,
//! no lock is granted. Inside the clock bound.
//!
//! A quorum need not be reached at one instant: its members may answer an elder one after the other. It renews others
//! only on answers younger than an elder lease, but its own lease runs for a member lease from the oldest answer that
//! makes the quorum: whoever took over since then waits for that lease. So two members count as in reach of each other
//! for a member lease after. (Found by chaos: one answer came back after four seconds and an elder went on, rightly.)

use super::{Count, Invariant, Observation, Verdict};
use crate::world::World;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct MinorityIsSilent {
    /// When a place was last with a quorum, or with somebody who had been since: leases reach no further.
    last: BTreeMap<usize, u64>,
    /// When each way between two running members was last open.
    open: BTreeMap<(usize, usize), u64>,
    looked: u64,
    /// When the ways of each place were last looked at.
    stepped: BTreeMap<usize, u64>,
    premises: Count,
}

/// How often connectivity is looked at. Cuts are far longer than this.
const LOOK_EVERY: u64 = 20 * crate::network::MS;
/// How often the ways of one that does something: it may wake, hear all that was sent to it, and be cut off at once.
const STEP_EVERY: u64 = crate::network::MS;

impl MinorityIsSilent {
    /// The ways from and to a place that runs. What it says to one that is stopped is heard when that one wakes, and may be all
    /// that those two ever say to each other: each may wake while the other is stopped. (Found by chaos: the elder, a quorum by
    /// itself, renewed in seven milliseconds a lease that had been asked for two seconds before.)
    fn look_from(&mut self, world: &World, place: usize) {
        if !world.is_up(place) {
            return;
        }
        for other in world.places().filter(|other| world.is_alive(*other)) {
            if !world.network.is_cut(place, other) {
                self.open.insert((place, other), world.now);
            }
            if world.is_up(other) && !world.network.is_cut(other, place) {
                self.open.insert((other, place), world.now);
            }
        }
    }

    fn look(&mut self, world: &World) {
        let Some(view) = world.latest.values().max_by_key(|view| view.number) else { return };
        world.places().for_each(|place| self.look_from(world, place));
        let timing = world.common.timing;
        let window = timing.surely(timing.member_lease).as_nanos() as u64 + LOOK_EVERY + 2 * world.longest_way();
        self.open.retain(|_, at| *at + window >= world.now);
        let mut there = vec![Vec::new(); world.places().len()];
        let mut back = there.clone();
        for (from, to) in self.open.keys().copied() {
            there[from].push(to);
            back[to].push(from);
        }
        let mut last = BTreeMap::new();
        for place in world.places().filter(|place| world.is_alive(*place)) {
            let (reached, reaching) = (reach(place, &there), reach(place, &back));
            let side: Vec<usize> = world.places().filter(|other| reached[*other] && reaching[*other]).collect();
            let with_quorum = world.is_quorum(view, side.iter().copied());
            let heard = side.iter().filter_map(|other| self.last.get(other)).max().copied();
            last.insert(place, if with_quorum { world.now } else { heard.unwrap_or(world.now) });
        }
        self.last = last;
    }
}

/// Who is reached from `place` over these ways from each.
fn reach(place: usize, ways: &[Vec<usize>]) -> Vec<bool> {
    let mut seen = vec![false; ways.len()];
    seen[place] = true;
    let mut next = vec![place];
    while let Some(here) = next.pop() {
        for &to in &ways[here] {
            if !std::mem::replace(&mut seen[to], true) {
                next.push(to);
            }
        }
    }
    seen
}

impl Invariant for MinorityIsSilent {
    fn name(&self) -> &'static str {
        "minority_is_silent"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Observation<'_>) -> Verdict {
        match fact {
            Observation::Stepped { place } => {
                if world.now >= self.looked + LOOK_EVERY {
                    self.looked = world.now;
                    self.look(world);
                }
                if self.stepped.get(place).is_none_or(|at| world.now >= *at + STEP_EVERY) {
                    self.stepped.insert(*place, world.now);
                    self.look_from(world, *place);
                }
            }
            Observation::Answered { ask } if world.bounded => {
                let Some(since) = self.last.get(&world.call(*ask).member) else { return Ok(()) };
                let timing = world.common.timing;
                let leases = timing.surely(timing.member_lease + timing.elder_lease).as_nanos() as u64;
                let since = *since;
                let silent_from = since + leases + 2 * world.longest_way() + LOOK_EVERY;
                if world.now > silent_from {
                    self.premises += 1;
                    // What the looks in between missed is looked at now.
                    self.look(world);
                    let member = world.call(*ask).member;
                    let still = self.last.get(&member).is_some_and(|last| world.now > last + (silent_from - since));
                    // An object is no lock: nobody gets anything by it that others have, so it is opened when the word comes.
                    if world.is_granted(*ask) && !world.call(*ask).opens() && still {
                        return Err(format!("m{member} is granted {:?} far from any quorum", world.call(*ask).lock()));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
