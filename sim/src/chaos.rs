//! The chaos driver: draws a story from a seed, tells it to a World, heals, and demands that everything works.
//!
//! *Swarm*: each seed draws which kinds of faults there are at all, and every rate. A seed with everything at once
//! hides more than it shows.

use crate::chance::Dice;
use crate::fault::{Active, Fault, KINDS, millis};
use crate::history::Ask;
use crate::log::{Log, Scene};
use crate::network::{MS, SECOND, Weather};
use crate::step::Step;
use crate::world::World;
use elderlock::protocol::{Outcome, Timing, Wait};
use std::collections::BTreeMap;
use std::time::Duration;

/// The services that clients use.
pub const SERVICES: [&str; 2] = ["stock", "till"];
/// The locks of each.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Requests of one member at a time.
const MAX_OPEN: usize = 8;

/// Everything that is drawn before a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Seeds that found the cluster.
    pub founders: usize,
    /// Members that join one after the other.
    pub joiners: usize,
    /// Council size.
    pub council: u8,
    /// Times.
    pub timing: Timing,
    /// Clock rate of each member in parts per million.
    pub clocks: Vec<i32>,
    /// Whether the clocks keep their bound.
    pub bounded: bool,
    /// The host of each member.
    pub hosts: Vec<u32>,
    /// Processes are killed without regard to the quorum.
    pub reckless: bool,
    /// Nobody notices broken connections.
    pub without_hints: bool,
    /// The weather when nothing is wrong.
    pub weather: Weather,
    /// How long there are faults.
    pub span: u64,
    /// Mean time between two deeds of clients.
    pub pace: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The numbers of the faults in the full plan, for replay after shrinking.
    pub kept: Vec<usize>,
}

impl Plan {
    /// Draws the plan of a seed, with `members.0` to `members.1` members.
    pub fn draw(seed: u64, members: (usize, usize)) -> Plan {
        let mut dice = Dice::new(seed, 1);
        let count = dice.between(members.0 as u64, members.1 as u64) as usize;
        let joiners = if dice.chance(300_000) { dice.below(count as u64 - 1) as usize } else { 0 };
        let timing = if dice.chance(250_000) { Timing::lan() } else { Timing::fast() };
        let bounded = !dice.chance(100_000);
        let error = if bounded { timing.clock_error_ppm as u64 - 500 } else { 300_000 };
        let skewed = dice.chance(700_000);
        let clocks =
            (0..count).map(|_| if skewed { dice.between(0, 2 * error) as i32 - error as i32 } else { 0 }).collect();
        let shared = dice.chance(300_000);
        let hosts = (0..count).map(|place| if shared { dice.below(2) as u32 } else { place as u32 }).collect();
        let span = dice.between(20, 26) * SECOND;
        let kinds: Vec<usize> = (0..KINDS).filter(|_| dice.chance(350_000)).collect();
        let many = dice.between(1, 16);
        let mut faults: Vec<Fault> = (0..many)
            .filter(|_| !kinds.is_empty())
            .map(|_| {
                let kind = *dice.pick(&kinds);
                Fault::draw(&mut dice, kind, count, span)
            })
            .collect();
        faults.sort_by_key(|fault| fault.at);
        Plan {
            seed,
            founders: count - joiners,
            joiners,
            council: if dice.chance(800_000) { 7 } else { dice.between(1, 5) as u8 },
            timing,
            clocks,
            bounded,
            hosts,
            reckless: dice.chance(60_000),
            without_hints: dice.chance(200_000),
            weather: Weather { slowest: dice.between(MS / 2, 5 * MS), ..Weather::FAIR },
            span,
            pace: dice.between(4, 60) * MS,
            kept: (0..faults.len()).collect(),
            faults,
        }
    }

    /// The plan with only these of its faults.
    pub fn only(&self, kept: &[usize]) -> Plan {
        let of = |number: &usize| self.kept.iter().position(|kept| kept == number).map(|index| self.faults[index]);
        Plan { faults: kept.iter().filter_map(of).collect(), kept: kept.to_vec(), ..self.clone() }
    }

    /// What the World of this plan is like before anything happens.
    pub fn scene(&self) -> Scene {
        Scene {
            founders: self.founders,
            joiners: self.joiners,
            council: self.council,
            timing: self.timing,
            hosts: self.hosts.clone(),
            clocks: self.clocks.clone(),
            bounded: self.bounded,
            hints: !self.without_hints,
            ..Scene::new(self.seed)
        }
    }

    /// The World of this plan, before anything happens.
    pub fn world(&self) -> World {
        self.scene().world()
    }

    /// Runs it to the end, or to the first break.
    pub fn run(&self, world: World) -> Run {
        let log = Log { scene: self.scene(), steps: Vec::new(), end: 0 };
        let mut run = Run { world, log, faults: BTreeMap::new(), pending: Vec::new(), complete: false, deed: 0 };
        // A panic of the core is a break like any other, and its trace is wanted. The World is not used further.
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.tell(self)));
        if let Err(panic) = told {
            run.world.fail_with(panic.as_ref());
        }
        run.log.end = run.world.now;
        run.world.read_again();
        run
    }
}

/// A plan being run.
#[derive(Debug)]
pub struct Run {
    /// The World.
    pub world: World,
    /// What was done to it.
    pub log: Log,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Whether everything was demanded at the end and came about.
    pub complete: bool,
    /// Writes to be made later, with a token that `fence` gave before.
    pending: Vec<(u64, Ask)>,
    deed: u64,
}

impl Run {
    /// Takes a step and writes it down; first of all that, for it may be the last.
    fn apply(&mut self, step: Step) -> bool {
        self.log.steps.push((self.world.now, step));
        let (_, step) = &self.log.steps[self.log.steps.len() - 1];
        self.world.apply(step)
    }

    fn tell(&mut self, plan: &Plan) {
        let mut dice = Dice::new(plan.seed, 2);
        let mut active: Vec<(usize, Active)> = Vec::new();
        let mut coming = plan.kept.iter().zip(&plan.faults).peekable();
        let mut joining: Vec<(u64, usize)> =
            (plan.founders..plan.founders + plan.joiners).map(|place| (dice.below(plan.span / 2), place)).collect();
        self.apply(Step::Weather(plan.weather));
        while self.world.now < plan.span && self.world.broken().is_none() {
            self.world.run_for(Duration::from_nanos(dice.between(plan.pace / 4, plan.pace * 7 / 4)));
            let now = self.world.now;
            let mut changed = false;
            while let Some((number, fault)) = coming.next_if(|(_, fault)| fault.at <= now) {
                if let Some((begun, steps)) = self.world.begin_fault(fault, plan.reckless) {
                    *self.faults.entry(fault.what.name()).or_default() += 1;
                    let (kind, places) = (fault.what.name().to_string(), begun.places(&self.world));
                    self.apply(Step::Fault { fault: *number, kind, places });
                    steps.into_iter().for_each(|step| _ = self.apply(step));
                    active.push((*number, begun));
                    changed = true;
                }
            }
            let (over, going_on) = active.into_iter().partition(|(_, one)| one.until <= now);
            active = going_on;
            let over: Vec<(usize, Active)> = over;
            for (number, one) in &over {
                self.apply(Step::Mended { fault: *number });
                let steps = self.world.end_fault(one);
                steps.into_iter().for_each(|step| _ = self.apply(step));
                changed = true;
            }
            if changed {
                self.apply(self.world.weather_of(plan.weather, &active));
            }
            joining.retain(|(at, place)| {
                if *at <= now && !self.world.is_alive(*place) {
                    self.apply(Step::Start(*place));
                }
                *at > now
            });
            self.act(plan.seed);
        }
        if self.world.broken().is_none() {
            self.complete = self.apply(Step::Restore);
        }
    }

    /// One deed of one client.
    fn act(&mut self, seed: u64) {
        // A stream for each deed: what happened before does not change what is wanted next.
        self.deed += 1;
        let mut dice = Dice::new(seed, 1_000 + self.deed);
        let now = self.world.now;
        let (due, later) = std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| *at <= now);
        self.pending = later;
        let due: Vec<(u64, Ask)> = due;
        for (_, ask) in due {
            if self.world.is_up(self.world.call(ask).member) {
                self.apply(Step::WriteEarlier(ask.0));
            }
        }
        let world = &self.world;
        let place = dice.below(world.places().len() as u64) as usize;
        let some = |dice: &mut Dice, these: Vec<Ask>| (!these.is_empty()).then(|| dice.pick(&these).0);
        let usable = |ask: &Ask| world.is_up(world.call(*ask).member);
        let claims = || world.history().claims().filter(usable).collect();
        match dice.below(100) {
            0..45 => {
                let busy = world.history().open().chain(world.history().claims());
                let busy = busy.filter(|ask| world.call(*ask).member == place).count();
                if !world.is_up(place) || busy >= MAX_OPEN {
                    return;
                }
                let ms = |dice: &mut Dice, high: u64| Duration::from_millis(dice.between(1, high));
                let wait = match dice.below(10) {
                    0..2 => Wait::Try,
                    2..6 => Wait::AtMost(ms(&mut dice, 4_000)),
                    _ => Wait::Forever,
                };
                let lease = dice.chance(400_000).then(|| ms(&mut dice, 3_000));
                let (service, name) = (dice.pick(&SERVICES).to_string(), dice.pick(&NAMES).to_string());
                let call = world.history().calls.len();
                self.apply(Step::Ask { call, place, service, name, wait, lease });
            }
            45..75 => {
                if let Some(call) = some(&mut dice, claims()) {
                    self.apply(Step::Release(call));
                }
            }
            75..82 => {
                let open = world.history().open().filter(usable).collect();
                if let Some(call) = some(&mut dice, open) {
                    self.apply(Step::Cancel(call));
                }
            }
            82..88 => {
                if let Some(call) = some(&mut dice, claims()) {
                    self.apply(Step::Extend(call, Duration::from_millis(dice.between(1, 3_000))));
                }
            }
            _ => {
                let Some(call) = some(&mut dice, claims()) else { return };
                if dice.chance(500_000) {
                    self.apply(Step::Write(call));
                } else if self.apply(Step::Fence(call)) {
                    self.pending.push((now + dice.below(6 * SECOND), Ask(call)));
                }
            }
        }
    }
}

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub seeds: u64,
    /// Inputs handled.
    pub events: u64,
    /// Virtual seconds.
    pub virtual_seconds: u64,
    /// Grants answered.
    pub grants: u64,
    /// Answers by kind.
    pub answers: BTreeMap<&'static str, u64>,
    /// Holds lost.
    pub lost: u64,
    /// Stale writes that the store refused.
    pub refused: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often the premise of each invariant held.
    pub premises: BTreeMap<&'static str, u64>,
    /// The same of those that are checked once more offline.
    pub offline: BTreeMap<&'static str, u64>,
    /// Runs that lost a quorum for good, of which nothing could be demanded at the end.
    pub excused: u64,
}

impl Summary {
    /// Adds a run.
    pub fn add(&mut self, run: &Run) {
        self.seeds += 1;
        self.events += run.world.events();
        self.virtual_seconds += run.world.seconds();
        self.grants += run.world.history().grants;
        self.refused += run.world.store.refused;
        self.excused += u64::from(!run.complete && run.world.broken().is_none());
        for call in &run.world.history().calls {
            self.lost += u64::from(call.lost.is_some());
            let name = match &call.outcome {
                Some(Outcome::Granted { .. }) => "granted",
                Some(Outcome::TimedOut) => "timed out",
                Some(Outcome::Held(_)) => "held",
                Some(Outcome::Undecided) => "undecided",
                Some(Outcome::Busy) => "busy",
                Some(Outcome::Closed(_)) => "closed",
                Some(Outcome::Extended { .. } | Outcome::NotHeld) | None => "none",
            };
            *self.answers.entry(name).or_default() += 1;
        }
        add_all(&mut self.faults, &run.faults);
        add_all(&mut self.premises, &run.world.premises());
        add_all(&mut self.offline, &run.world.offline_premises());
    }

    /// Adds another summary.
    pub fn merge(&mut self, other: &Summary) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.virtual_seconds += other.virtual_seconds;
        self.grants += other.grants;
        self.lost += other.lost;
        self.refused += other.refused;
        self.excused += other.excused;
        add_all(&mut self.answers, &other.answers);
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.premises, &other.premises);
        add_all(&mut self.offline, &other.offline);
    }
}

fn add_all(to: &mut BTreeMap<&'static str, u64>, from: &BTreeMap<&'static str, u64>) {
    for (name, count) in from {
        *to.entry(name).or_default() += count;
    }
}

/// A plan for people.
pub fn describe(plan: &Plan) -> String {
    let mut text = format!(
        "{} founders, {} joiners, council {}, member lease {:?}, clocks {:?} ppm, hosts {:?}{}{}{}",
        plan.founders,
        plan.joiners,
        plan.council,
        plan.timing.member_lease,
        plan.clocks,
        plan.hosts,
        if plan.bounded { "" } else { ", clocks out of bound" },
        if plan.reckless { ", reckless" } else { "" },
        if plan.without_hints { ", no hints" } else { "" },
    );
    for (number, fault) in plan.kept.iter().zip(&plan.faults) {
        text.push_str(&format!(
            "\n  fault {number}: at {:?} for {:?}: {:?}",
            millis(fault.at),
            millis(fault.lasts),
            fault.what
        ));
    }
    text
}

/// Runs a plan without a trace.
pub fn run_seed(plan: &Plan, prepare: impl Fn(World) -> World) -> Run {
    plan.run(prepare(plan.world().untraced()))
}

/// Runs a plan with a trace.
pub fn trace_seed(plan: &Plan, prepare: impl Fn(World) -> World) -> Run {
    plan.run(prepare(plan.world()))
}
