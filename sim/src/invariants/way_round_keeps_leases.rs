//! `way_round_keeps_leases`: no lease runs out where each two members of the view have reached each
//! other, straight or through one council member, for two member leases, and nothing else is wrong.
//! Inside the clock bound.
//!
//! A known path may end when paths change, so the time counts from the last change on. A lease that
//! was not renewed before the change runs out within one member lease. The second lease covers the
//! packets that are under way then.

use super::{Count, Invariant, Verdict, stretched};
use crate::network::{LinkConditions, MS};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, ProcessId};
use std::hash::{Hash, Hasher};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct WayRoundKeepsLeases {
    /// Since when nothing is wrong but cuts that relays bridge, and how often paths had changed by
    /// then.
    since: Option<(u64, u64)>,
    /// Whether two members exist that do not reach each other straight.
    goes_round: bool,
    /// Whether that has lasted long enough for a lease to have run out.
    is_counted: bool,
    looked: u64,
    premises: Count,
}

impl Hash for WayRoundKeepsLeases {
    /// It depends on time only: two ways to one state that differ in nothing else are one.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The interval of path checks.
const LOOK_EVERY: u64 = 20 * MS;

impl WayRoundKeepsLeases {
    fn look(&mut self, world: &World) {
        let changes = world.network.changes;
        match self.is_fine(world) {
            Some(goes_round) => {
                self.goes_round = goes_round;
                if self.since.is_none_or(|(_, before)| before != changes) {
                    self.since = Some((world.now, changes));
                    self.is_counted = false;
                }
            }
            None => self.since = None,
        }
        if self.goes_round && self.has_lasted(world) && !self.is_counted {
            self.is_counted = true;
            self.premises += 1;
        }
    }

    fn has_lasted(&self, world: &World) -> bool {
        let lease = world.common.timing.member_lease.as_nanos() as u64;
        let long = stretched(world, 2 * lease).as_nanos() as u64;
        self.since.is_some_and(|(at, _)| at + long <= world.now)
    }

    /// Whether a relay is in use, or `None` if anything is wrong that relays cannot bridge.
    fn is_fine(&self, world: &World) -> Option<bool> {
        let mut lineages = world.latest.values();
        let (Some(view), None) = (lineages.next(), lineages.next()) else { return None };
        let place = |process: ProcessId| {
            world.place_of(process).filter(|place| world.peers[*place].is(process))
        };
        let of = |processes: Vec<ProcessId>| -> Option<Vec<usize>> {
            processes.into_iter().map(place).collect()
        };
        let members = of(view.members.iter().map(|member| member.info.process).collect())?;
        let council = of(view.council().map(|info| info.process).collect())?;
        let runs = |place: &usize| world.is_up(*place) && !world.peers[*place].leaving;
        let weather = world.network.weather();
        let is_fair = weather
            == LinkConditions { slowest: weather.slowest, ..LinkConditions::FAIR }
            && weather.slowest <= 10 * MS;
        if !(world.bounded
            && is_fair
            && world.rules.is_empty()
            && world.network.is_plain()
            && members.iter().all(runs))
        {
            return None;
        }
        let is_open = |from: usize, to: usize| !world.network.is_cut(from, to);
        let mut goes_round = false;
        for (from, to) in members.iter().flat_map(|from| members.iter().map(move |to| (*from, *to)))
        {
            if from != to && !is_open(from, to) {
                goes_round = true;
                let others = council.iter().filter(|relay| ![from, to].contains(relay));
                others.copied().find(|relay| is_open(from, *relay) && is_open(*relay, to))?;
            }
        }
        Some(goes_round)
    }
}

impl Invariant for WayRoundKeepsLeases {
    fn name(&self) -> &'static str {
        "way_round_keeps_leases"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Observation<'_>) -> Verdict {
        match fact {
            Observation::Stepped { .. } if self.looked + LOOK_EVERY <= world.now => {
                self.looked = world.now;
                self.look(world);
            }
            Observation::Ends { .. } => self.since = None,
            Observation::Event { place, process, event: Event::Suspended } => {
                self.look(world);
                let is_member = world.latest.values().any(|view| view.contains(*process));
                if is_member && self.has_lasted(world) {
                    return Err(format!(
                        "m{place} has lost its lease, though all others can be reached"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
