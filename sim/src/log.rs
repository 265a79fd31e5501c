//! Logs: a World as it is before anything happens, and every step that was taken, with its time. A
//! log is a whole run, and its replay needs no seed of chaos.

use crate::limits::SMALL_PARTS;
use crate::step::Step;
use crate::world::World;
use elderlock::protocol::{Limits, Timing};
use elderlock::wire::VERSIONS;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A World before anything happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scene {
    /// The luck of the network and of everything else random inside the World.
    pub seed: u64,
    /// Members that found the cluster.
    pub founders: usize,
    /// Sites for members that join.
    pub joiners: usize,
    /// The size of the council.
    pub council: u8,
    /// The times of the cluster.
    pub timing: Timing,
    /// The host of each site; each has its own if there are none.
    pub hosts: Vec<u32>,
    /// Clock rate of each site in parts per million; none: all are right.
    pub clocks: Vec<i32>,
    /// The sites whose processes hold locks for programs that are not members.
    pub sessions: Vec<usize>,
    /// The sites whose first process is of an earlier release.
    pub older: Vec<usize>,
    /// The highest version that the earlier release speaks.
    pub older_highest: u16,
    /// The sites whose processes let operators end holds that are not revocable.
    pub forcible: Vec<usize>,
    /// Whether requests of owners are to be told of circles.
    pub detects: bool,
    /// Members keep locks after their release.
    pub keeps: bool,
    /// Members keep shares too.
    pub keeps_shares: bool,
    /// Members ask to grant a service if they make most of its requests.
    pub follows: bool,
    /// Whether the clocks keep their bound.
    pub bounded: bool,
    /// Whether members notice broken connections.
    pub hints: bool,
    /// The least number of founders.
    pub expect: usize,
    /// Whether operators trust refused connections.
    pub trust_refused: bool,
    /// Whether the cluster has no key.
    pub keyless: bool,
    /// Whether each member runs real gossip.
    pub gossip: bool,
    /// Whether every site has a data directory.
    pub durable: bool,
    /// Whether two lineages may live at once. If so, invariants that need a single one are not
    /// checked.
    pub lineages: bool,
    /// Whether founders are started by steps, too.
    pub asleep: bool,
    /// Bounds and sizes of each member.
    pub limits: Limits,
}

impl Scene {
    /// No members, with default settings.
    pub fn new(seed: u64) -> Scene {
        Scene {
            seed,
            founders: 0,
            joiners: 0,
            council: 7,
            timing: Timing::fast(),
            hosts: Vec::new(),
            clocks: Vec::new(),
            sessions: Vec::new(),
            older: Vec::new(),
            older_highest: VERSIONS.lowest,
            forcible: Vec::new(),
            detects: false,
            keeps: false,
            keeps_shares: false,
            follows: false,
            bounded: true,
            hints: true,
            expect: 1,
            trust_refused: false,
            keyless: false,
            gossip: false,
            durable: false,
            lineages: false,
            asleep: false,
            limits: SMALL_PARTS,
        }
    }

    /// The World.
    pub fn world(&self) -> World {
        let mut world = World::new(self.seed)
            .members(self.founders)
            .joiners(self.joiners)
            .council(self.council)
            .timing(self.timing)
            .limits(self.limits)
            .expect_founders(self.expect)
            .hosts(&self.hosts)
            .serving_sessions(&self.sessions)
            .older(&self.older, self.older_highest)
            .allowing_forced_revokes(&self.forcible)
            .lenient();
        for (site, ppm) in self.clocks.iter().enumerate().take(self.founders + self.joiners) {
            world = world.clock(site, *ppm);
        }
        if !self.bounded {
            world = world.unbounded_clocks();
        }
        if !self.hints {
            world = world.without_hints();
        }
        if self.trust_refused {
            world = world.trust_refused();
        }
        if self.keyless {
            world = world.keyless().with_contacts();
        }
        if self.gossip {
            world = world.with_gossip();
        }
        if self.durable {
            world = world.durable();
        }
        if self.lineages {
            world = world.two_lineages_may_meet();
        }
        if self.detects {
            world = world.detecting();
        }
        if self.keeps {
            world = world.keeping();
        }
        if self.keeps_shares {
            world = world.keeping_shares();
        }
        if self.follows {
            world = world.following();
        }
        if self.asleep {
            world = world.asleep();
        }
        world
    }
}

/// A run, as its steps with their times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// The World at its beginning.
    pub scene: Scene,
    /// The steps, each with its time in true nanoseconds.
    pub steps: Vec<(u64, Step)>,
    /// When the run ended.
    pub end: u64,
}

impl Log {
    /// Replays the log in a World, to the end or to the first break. A panic of the core is a
    /// break.
    pub fn replay(&self, mut world: World) -> World {
        let told = catch_unwind(AssertUnwindSafe(|| {
            for (at, step) in &self.steps {
                world.run_to(*at);
                if world.broken().is_some() {
                    return;
                }
                world.apply(step);
            }
            world.run_to(self.end);
        }));
        if let Err(panic) = told {
            world.fail_with(panic.as_ref());
        }
        world.read_again();
        world
    }
}
