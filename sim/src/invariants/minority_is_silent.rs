//! `minority_is_silent`: a member that could not reach a quorum of the latest view's council for
//! longer than the leases is granted no lock. Inside the clock bound.
//!
//! A quorum need not be reached at one instant: its members may answer an elder one after the
//! other. An elder renews others only on answers younger than an elder lease. But its own lease
//! runs for a member lease from the oldest answer that makes the quorum, and a new elder waits for
//! that lease. So two members count as in reach of each other for a member lease longer.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct MinorityIsSilent {
    /// When a site last reached a quorum, or a member that had reached one since: leases reach no
    /// further.
    last: BTreeMap<usize, u64>,
    /// When each path between two running members was last open.
    open: BTreeMap<(usize, usize), u64>,
    looked: u64,
    /// When the paths of each site were last checked.
    stepped: BTreeMap<usize, u64>,
    premises: Count,
}

/// The interval of connectivity checks. Cuts are far longer than this.
const LOOK_EVERY: u64 = 20 * crate::network::MS;
/// The interval of path checks for an active member. Such a member may wake, get all packets that
/// were sent to it, and be cut off at once.
const STEP_EVERY: u64 = crate::network::MS;

impl MinorityIsSilent {
    /// Checks the paths from and to a running site. A stopped member gets its packets when it
    /// wakes. These packets may be all that the two members ever exchange, for each may wake while
    /// the other is stopped.
    fn look_from(&mut self, world: &World, site: usize) {
        if !world.is_up(site) {
            return;
        }
        for other in world.sites().filter(|other| world.is_alive(*other)) {
            if !world.network.is_cut(site, other) {
                self.open.insert((site, other), world.now);
            }
            if world.is_up(other) && !world.network.is_cut(other, site) {
                self.open.insert((other, site), world.now);
            }
        }
    }

    fn look(&mut self, world: &World) {
        let Some(view) = world.latest.values().max_by_key(|view| view.number) else { return };
        world.sites().for_each(|site| self.look_from(world, site));
        let timing = world.common.timing;
        let window = timing.surely(timing.member_lease).as_nanos() as u64
            + LOOK_EVERY
            + 2 * world.longest_way();
        self.open.retain(|_, at| *at + window >= world.now);
        let mut there = vec![Vec::new(); world.sites().len()];
        let mut back = there.clone();
        for (from, to) in self.open.keys().copied() {
            there[from].push(to);
            back[to].push(from);
        }
        let mut last = BTreeMap::new();
        for site in world.sites().filter(|site| world.is_alive(*site)) {
            let (reached, reaching) = (reach(site, &there), reach(site, &back));
            let side: Vec<usize> =
                world.sites().filter(|other| reached[*other] && reaching[*other]).collect();
            let with_quorum = world.is_quorum(view, side.iter().copied());
            let heard = side.iter().filter_map(|other| self.last.get(other)).max().copied();
            last.insert(site, if with_quorum { world.now } else { heard.unwrap_or(world.now) });
        }
        self.last = last;
    }
}

/// The sites that `site` reaches over these paths.
fn reach(site: usize, ways: &[Vec<usize>]) -> Vec<bool> {
    let mut seen = vec![false; ways.len()];
    seen[site] = true;
    let mut next = vec![site];
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

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Stepped { site } => {
                if world.now >= self.looked + LOOK_EVERY {
                    self.looked = world.now;
                    self.look(world);
                }
                if self.stepped.get(site).is_none_or(|at| world.now >= *at + STEP_EVERY) {
                    self.stepped.insert(*site, world.now);
                    self.look_from(world, *site);
                }
            }
            Observation::Answered { ask } if world.bounded => {
                let Some(since) = self.last.get(&world.call(*ask).member) else { return Ok(()) };
                let timing = world.common.timing;
                let leases =
                    timing.surely(timing.member_lease + timing.elder_lease).as_nanos() as u64;
                let since = *since;
                let silent_from = since + leases + 2 * world.longest_way() + LOOK_EVERY;
                if world.now > silent_from {
                    self.premises += 1;
                    // This covers the time since the last interval check.
                    self.look(world);
                    let member = world.call(*ask).member;
                    let still = self
                        .last
                        .get(&member)
                        .is_some_and(|last| world.now > last + (silent_from - since));
                    // An object is not a lock: opening it takes nothing from others, so it is open
                    // when the answer comes.
                    if world.is_granted(*ask) && !world.call(*ask).opens() && still {
                        return Err(format!(
                            "m{member} is granted {:?} far from any quorum",
                            world.call(*ask).lock()
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
