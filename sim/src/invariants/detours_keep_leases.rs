//! `detours_keep_leases`: every member has a lease, and none runs out, if nothing else is wrong and
//! the members reach each other. That is: each two members of the view have reached each other,
//! straight or through one council member, for two member leases. Inside the clock bound.
//!
//! A known path may end when paths change, so the time counts from the last change on. A lease that
//! was not renewed before the change runs out within one member lease. The second lease covers the
//! packets that are under way then. Where nothing was cut for a member lease before the change,
//! every lease has just been renewed. Then none may run out at any time after the change.

use super::{Count, Invariant, Verdict, stretched};
use crate::network::{LinkConditions, MS};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, ProcessId};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct DetoursKeepLeases {
    /// The time since which nothing is wrong but cuts that relays bridge, and how often paths had
    /// changed by then.
    since: Option<(u64, u64)>,
    /// The members of the view at that time.
    members: BTreeSet<ProcessId>,
    /// Whether two members exist that do not reach each other straight.
    goes_round: bool,
    /// Whether every lease had just been renewed then: nothing was wrong or cut for a member lease.
    is_renewed: bool,
    /// Whether the fault has lasted for longer than a lease.
    is_counted: bool,
    looked: u64,
    premises: Count,
}

impl Hash for DetoursKeepLeases {
    /// The check's state depends on time only: two ways to one state that differ in nothing else
    /// are one.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

fn living(world: &World) -> impl Iterator<Item = ProcessId> + '_ {
    world.latest.values().flat_map(|view| view.living().map(|member| member.info.process))
}

fn sites(world: &World) -> impl Iterator<Item = usize> + '_ {
    living(world).filter_map(|process| world.site_of(process))
}

/// The interval of path checks.
const LOOK_EVERY: u64 = 20 * MS;

impl DetoursKeepLeases {
    fn look(&mut self, world: &World) -> Verdict {
        let changes = world.network.changes;
        match self.is_fine(world) {
            Some(goes_round) => {
                let is_renewed = !std::mem::replace(&mut self.goes_round, goes_round)
                    && self.has_lasted(world, 1)
                    && sites(world).all(|site| world.is_ready(site));
                let members: BTreeSet<ProcessId> = living(world).collect();
                if self.since.is_none_or(|(_, before)| before != changes)
                    || !members.is_subset(&self.members)
                {
                    self.members = members;
                    self.is_renewed = is_renewed;
                    self.since = Some((world.now, changes));
                    self.is_counted = false;
                }
            }
            None => (self.since, self.is_renewed) = (None, false),
        }
        if self.goes_round && self.has_lasted(world, 2) && !self.is_counted {
            self.is_counted = true;
            self.premises += 1;
            if let Some(site) = sites(world).find(|site| !world.is_ready(*site)) {
                return Err(format!("m{site} has no lease, though all others can be reached"));
            }
        }
        Ok(())
    }

    /// Returns whether nothing else has been wrong for this many member leases.
    fn has_lasted(&self, world: &World, leases: u64) -> bool {
        let lease = world.common.timing.member_lease.as_nanos() as u64;
        let long = stretched(world, leases * lease).as_nanos() as u64;
        self.since.is_some_and(|(at, _)| at + long <= world.now)
    }

    /// Returns whether a relay is in use, or `None` if anything is wrong that relays cannot bridge.
    fn is_fine(&self, world: &World) -> Option<bool> {
        let mut lineages = world.latest.values();
        let (Some(view), None) = (lineages.next(), lineages.next()) else { return None };
        let of = |processes: Vec<ProcessId>| -> Option<Vec<usize>> {
            processes.into_iter().map(|process| world.present_site_of(process)).collect()
        };
        let members = of(view.members.iter().map(|member| member.info.process).collect())?;
        let council = of(view.council().map(|info| info.process).collect())?;
        let runs = |site: &usize| world.is_up(*site) && !world.sites[*site].leaving;
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

impl Invariant for DetoursKeepLeases {
    fn name(&self) -> &'static str {
        "detours_keep_leases"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Stepped { .. } if self.looked + LOOK_EVERY <= world.now => {
                self.looked = world.now;
                return self.look(world);
            }
            Observation::Ends { .. } => (self.since, self.is_renewed) = (None, false),
            Observation::Event { site, process, event: Event::Suspended } => {
                self.look(world)?;
                let is_member = world.latest.values().any(|view| view.contains(*process));
                if is_member && (self.has_lasted(world, 2) || self.is_renewed) {
                    return Err(format!(
                        "m{site} has lost its lease, though all others can be reached"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
