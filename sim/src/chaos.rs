//! The chaos driver: draws a plan from a seed, runs it in a World, heals, and demands that
//! everything works.
//!
//! *Swarm*: each seed draws the kinds of its faults, and every rate. A seed with everything at once
//! hides more than it shows.

mod plan;
mod summary;

pub use plan::{ChaosPlan, ClientMix, DeafMember, describe};
pub use summary::Summary;

use crate::chance::Rng;
use crate::fault::{Active, Fault};
use crate::history::{Ask, Call, HoldMode, Key, lock_name};
use crate::log::Log;
use crate::network::{MS, SECOND};
use crate::quorum::{QuorumLoss, ShutdownPlan};
use crate::step::{ClientWant, Step, first_holder};
use crate::world::World;
use elderlock::protocol::Wait;
use std::collections::BTreeMap;
use std::time::Duration;

/// The services that clients use.
pub const SERVICES: [&str; 2] = ["stock", "till"];
/// The locks of each service.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The objects of each service: one has the number of permits as its value, the other a text.
const OBJECTS: [&str; 2] = ["pool", "note"];
/// The least that a run must show to count: time under faults, kinds of faults, calls of clients.
const COUNTS: (u64, usize, usize) = (60 * SECOND, 3, 200);
/// The name under which dropped futures and guards are counted.
const DROPS: &str = "dropped future";
/// Requests of one member at a time.
const MAX_OPEN: usize = 8;

/// The random streams that choose relieved members.
const RELIEF: u64 = 1 << 40;
/// The random streams of clients' requests besides single locks.
const REQUESTS: u64 = 1 << 41;
/// The random streams of clients' metadata.
const WORDS: u64 = 1 << 42;
/// The random streams of clients' requests for shares and objects.
const SHARES: u64 = 1 << 43;
/// The random streams of questions along chains of waits, and of an operator's orders.
const CHAINS: u64 = 1 << 44;
/// Random streams of the locks that members prefer.
const HOMES: u64 = 1 << 45;
/// Random streams of the locks of the member that makes most requests.
const HOT: u64 = 1 << 46;
/// How long a member makes most requests, when members follow the load.
const HOT_SPAN: u64 = 5 * SECOND;
/// The number of latest calls that questions along chains, and orders, are about.
const LATEST: usize = 60;

impl ChaosPlan {
    /// Runs the plan to the end, or to the first break.
    pub fn run(&self, world: World) -> ChaosRun {
        let log = Log { scene: self.scene(), steps: Vec::new(), end: 0 };
        let mut run = ChaosRun {
            world,
            log,
            faults: BTreeMap::new(),
            pending: Vec::new(),
            complete: false,
            forced: None,
            part: false,
            disturbed: (0, 0),
            acts: 0,
        };
        // A panic of the core is a break like any other, and its trace is kept. The World is not
        // used further.
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.tell(self)));
        if let Err(panic) = told {
            run.world.fail_with(panic.as_ref());
        }
        run.log.end = run.world.now;
        let loss = QuorumLoss::of(run.world.record(), usize::from(self.council));
        run.forced = loss.map(|loss| if self.reckless { QuorumLoss::Reckless } else { loss });
        run.world.read_again();
        run
    }
}

/// A plan being run.
#[derive(Debug)]
pub struct ChaosRun {
    /// The World.
    pub world: World,
    /// The steps so far.
    pub log: Log,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Whether everything was demanded at the end and held.
    pub complete: bool,
    /// Why an operator had to force a member to go on, if one had to.
    pub forced: Option<QuorumLoss>,
    /// Whether only a part was healed.
    pub part: bool,
    /// How long the run was disturbed, and the calls of clients until then.
    disturbed: (u64, usize),
    /// Writes to be made later, with a token that `fence` gave before.
    pending: Vec<(u64, Ask)>,
    /// The number of acts of clients.
    acts: u64,
}

impl ChaosRun {
    /// Logs a step and applies it. The log comes first, for the step may be the last.
    fn apply(&mut self, step: Step) -> bool {
        self.log.steps.push((self.world.now, step));
        let (_, step) = &self.log.steps[self.log.steps.len() - 1];
        self.world.apply(step)
    }

    /// Logs and applies a step of a fault. A call of the fault gets its number only here, because
    /// the plan does not know how many calls come before it.
    fn apply_of_fault(&mut self, mut step: Step) {
        if let Step::Ask { call, site, .. } = &mut step {
            *call = self.world.history().calls.len();
            if !self.world.is_up(*site) {
                return;
            }
        }
        self.apply(step);
    }

    fn tell(&mut self, plan: &ChaosPlan) {
        let mut rng = Rng::new(plan.seed, 2);
        let mut active: Vec<(usize, Active)> = Vec::new();
        let mut coming: Vec<(usize, &Fault)> =
            plan.kept.iter().copied().zip(&plan.faults).collect();
        let mut joining: Vec<(u64, usize)> = (plan.founders..plan.founders + plan.joiners)
            .map(|site| (rng.below(plan.span / 2), site))
            .collect();
        let mut resolving = plan.resolutions.as_slice();
        // Resolving is set before the first process starts.
        self.resolve(&mut resolving);
        self.apply(Step::Weather(plan.weather));
        while self.world.now < plan.span && self.world.broken().is_none() {
            self.go_on(
                plan,
                rng.between(plan.pace / 4, plan.pace * 7 / 4),
                &mut coming,
                &mut active,
            );
            self.resolve(&mut resolving);
            let now = self.world.now;
            joining.retain(|(at, site)| {
                if *at <= now && !self.world.is_alive(*site) {
                    self.apply(Step::Start(*site));
                }
                *at > now
            });
            if now < plan.hush {
                self.act(plan);
                self.act_on_chains(plan);
                self.act_on_kept(plan);
                self.act_on_load(plan);
                self.relieve(plan);
            }
        }
        self.disturbed = (self.world.now, self.world.history().calls.len());
        if self.world.broken().is_none() {
            let core = if plan.partial { self.abandon_part(plan, &mut rng) } else { None };
            self.complete = match core {
                Some(core) => {
                    self.part = true;
                    self.apply(Step::RestorePart(core))
                }
                None => self.apply(Step::Restore),
            };
        }
    }

    /// The names of seeds resolve to the sites that are due by now.
    fn resolve(&mut self, resolving: &mut &[(u64, usize, Vec<usize>)]) {
        while let Some(((at, site, to), later)) = resolving.split_first()
            && *at <= self.world.now
            && self.world.broken().is_none()
        {
            *resolving = later;
            self.apply(Step::Resolve(*site, to.clone()));
        }
    }

    /// Lets the World go on for a while, with all the faults that begin and end meanwhile. A fault
    /// that lurks for a recovery gets its chance as soon as one begins.
    fn go_on(
        &mut self,
        plan: &ChaosPlan,
        span: u64,
        coming: &mut Vec<(usize, &Fault)>,
        active: &mut Vec<(usize, Active)>,
    ) {
        let until = self.world.now + span;
        while self.world.now < until && self.world.broken().is_none() {
            let left = Duration::from_nanos(until - self.world.now);
            let now = self.world.now;
            if coming.iter().any(|(_, fault)| fault.at <= now && fault.is_lurking()) {
                self.world.run_or_recover(left);
                // A step comes after all events that are due at its instant, for a log has only the
                // time.
                self.world.run_for(Duration::ZERO);
            } else {
                self.world.run_for(left);
            }
            self.turn(plan, coming, active);
        }
    }

    /// Begins the faults that begin now, and ends the faults that end.
    fn turn(
        &mut self,
        plan: &ChaosPlan,
        coming: &mut Vec<(usize, &Fault)>,
        active: &mut Vec<(usize, Active)>,
    ) {
        let now = self.world.now;
        let mut changed = false;
        coming.retain(|(number, fault)| {
            if fault.at > now || self.world.broken().is_some() {
                return true;
            }
            let Some(mut begun) = self.world.begin_fault(fault, plan.reckless) else {
                return now < fault.may_begin_until();
            };
            *self.faults.entry(fault.what.name()).or_default() += 1;
            let (kind, sites) = (fault.what.name().to_string(), begun.sites.clone());
            self.apply(Step::Fault { fault: *number, kind, sites });
            while let Some(step) = begun.next(now) {
                self.apply_of_fault(step);
            }
            active.push((*number, begun));
            changed = true;
            false
        });
        active.retain_mut(|(number, one)| {
            let over = one.until <= now;
            if over {
                self.apply(Step::Mended { fault: *number });
                changed = true;
            }
            while let Some(step) = one.next(now) {
                // A member that could be spared when the fault began may be needed by now.
                let ends = match &step {
                    Step::Crash(site) | Step::Vanish(site) => Some((*site, ShutdownPlan::Dead)),
                    Step::Leave(site) => Some((*site, ShutdownPlan::Gone)),
                    _ => None,
                };
                let ends = ends.filter(|(site, _)| self.world.is_alive(*site));
                if ends.is_none_or(|(site, how)| self.world.can_spare(&[site], how, plan.reckless))
                {
                    self.apply_of_fault(step);
                }
            }
            !over
        });
        if changed {
            self.apply(self.world.weather_of(plan.weather, active));
        }
    }

    /// A part of the members that can go on by itself, if there is one. It begins with all; then
    /// one after the other is left out, as long as the rest suffices.
    fn draw_core(&self, rng: &mut Rng) -> Option<Vec<usize>> {
        let mut core: Vec<usize> = self.world.sites().collect();
        for _ in 0..rng.between(1, 2 * core.len() as u64) {
            let out = rng.below(core.len() as u64) as usize;
            let rest: Vec<usize> = core.iter().copied().filter(|site| *site != core[out]).collect();
            if self.world.is_sufficient(&rest) {
                core = rest;
            }
        }
        (core.len() < self.world.sites().len()).then_some(core)
    }

    /// Leaves members in a fault for good. Returns the others, which are to go on.
    fn abandon_part(&mut self, plan: &ChaosPlan, rng: &mut Rng) -> Option<Vec<usize>> {
        if let Some(core) = plan.deaf.and_then(|deaf| self.abandon_deaf(plan, deaf)) {
            return Some(core);
        }
        let core = self.draw_core(rng)?;
        self.abandon_all_but(plan, &core, rng);
        Some(core)
    }

    /// Leaves a member for good that is heard and receives nothing. Beside a candidate, members
    /// without which the others are a quorum are killed.
    fn abandon_deaf(&mut self, plan: &ChaosPlan, deaf: DeafMember) -> Option<Vec<usize>> {
        let elder = self.world.find_elder()?;
        let others: Vec<usize> = self.world.sites().filter(|site| *site != elder).collect();
        for &other in &others {
            self.apply(Step::Cut(elder, other));
            self.apply(Step::Cut(other, elder));
        }
        let site = match deaf {
            DeafMember::FormerElder => {
                self.run_until(plan, |world| world.find_elder().is_some_and(|at| at != elder));
                self.apply(Step::Heal);
                self.run_until(plan, |world| {
                    let newest = world.latest_view().map(|view| view.number);
                    world.view(elder).map(|view| view.number) == newest
                });
                elder
            }
            DeafMember::Candidate => {
                self.world.proposer = None;
                self.run_until(plan, |world| world.proposer.is_some_and(|at| at != elder));
                self.world.proposer.filter(|at| *at != elder)?
            }
        };
        let mut core: Vec<usize> = self.world.sites().filter(|at| *at != site).collect();
        if self.world.broken().is_some() || !self.world.is_sufficient(&core) {
            return None;
        }
        if deaf == DeafMember::Candidate {
            // The remaining members are a quorum with the elder alone.
            for other in others {
                let rest: Vec<usize> = core.iter().copied().filter(|at| *at != other).collect();
                if self.world.is_sufficient(&rest) {
                    core = rest;
                }
            }
        }
        self.apply(Step::Heal);
        let dead = self.world.sites().filter(|at| *at != site && !core.contains(at));
        for at in dead.collect::<Vec<_>>() {
            self.apply(Step::Crash(at));
        }
        for other in self.world.sites().filter(|other| *other != site) {
            self.apply(Step::Cut(other, site));
        }
        Some(core)
    }

    /// Lets the World go on until the condition holds, for at most two member leases.
    fn run_until(&mut self, plan: &ChaosPlan, is_so: impl Fn(&World) -> bool) {
        self.world.run_until(is_so, plan.timing.member_lease * 2);
        // A step comes after all events that are due at its instant, for a log has only the time.
        self.world.run_for(Duration::ZERO);
    }

    /// Kills, stops, deafens or cuts off the other members for good, or leaves their present state
    /// as it is.
    fn abandon_all_but(&mut self, plan: &ChaosPlan, core: &[usize], rng: &mut Rng) {
        let others: Vec<usize> = self.world.sites().filter(|site| !core.contains(site)).collect();
        self.apply(Step::Heal);
        for &site in &others {
            let is_heard = rng.chance(if plan.is_plain() { 300_000 } else { 500_000 });
            match rng.below(3) {
                0 => _ = self.apply(Step::Crash(site)),
                1 => _ = self.apply(Step::Pause(site)),
                _ => {
                    let alone = rng.chance(500_000);
                    for other in self.world.sites().filter(|other| *other != site) {
                        if core.contains(&other) || alone {
                            if !is_heard {
                                self.apply(Step::Cut(site, other));
                            }
                            self.apply(Step::Cut(other, site));
                        }
                    }
                }
            }
        }
    }

    /// Why the run shows too little to count, if it does. It must be disturbed for long enough, by
    /// enough kinds of faults, and clients must call often enough.
    pub fn falls_short(&self) -> Option<String> {
        let (span, kinds, calls) = COUNTS;
        let shown = self.faults.keys().filter(|kind| **kind != DROPS).count();
        let (disturbed, called) = self.disturbed;
        (disturbed < span || shown < kinds || called < calls)
            .then(|| format!("{} s, {shown} kinds of faults, {called} calls", disturbed / SECOND))
    }

    /// In some runs members are relieved now and then: at one instant one of them says goodbye and
    /// all members that are down start. So one view has the leaving and the joining members.
    fn relieve(&mut self, plan: &ChaosPlan) {
        let mut rng = Rng::new(plan.seed, RELIEF + self.acts);
        if !Rng::new(plan.seed, RELIEF).chance(300_000) || !rng.chance(5_000) {
            return;
        }
        // Seeds that come and go before they found together never found.
        if self.world.latest.is_empty() {
            return;
        }
        let goes = rng.below(self.world.sites().len() as u64) as usize;
        for site in
            self.world.sites().filter(|site| !self.world.is_alive(*site)).collect::<Vec<_>>()
        {
            self.apply(Step::Start(site));
        }
        if self.world.is_up(goes)
            && self.world.can_spare(&[goes], ShutdownPlan::Gone, plan.reckless)
        {
            self.apply(Step::Leave(goes));
        }
    }

    /// The objects that clients at the site have open, by call.
    fn opened_at(&self, site: usize, service: &str) -> Vec<(usize, String)> {
        let opened = self.world.history().opened().map(|ask| (ask, self.world.call(ask)));
        let here =
            opened.filter(|(_, call)| call.member == site && call.service.as_str() == service);
        let name = |call: &Call| match &call.object {
            Some((_, Some(name))) => String::from_utf8_lossy(name.as_bytes()).into_owned(),
            _ => String::new(),
        };
        here.map(|(ask, call)| (ask.0, name(call))).collect()
    }

    /// A client closes an object, turns a share into the lock or the lock into a share, or gives
    /// some permits back. False if no client can.
    fn act_on_shared(&mut self, plan: &ChaosPlan) -> bool {
        if !plan.mix.shares() {
            return false;
        }
        let mut rng = Rng::new(plan.seed, SHARES + (1 << 20) + self.acts);
        let world = &self.world;
        let some = |rng: &mut Rng, these: Vec<Ask>| (!these.is_empty()).then(|| rng.pick(&these).0);
        let usable = |ask: &Ask| world.is_up(world.call(*ask).member);
        let claims = |is_it: fn(&Call) -> bool| -> Vec<Ask> {
            world.history().claims().filter(usable).filter(|ask| is_it(world.call(*ask))).collect()
        };
        let step = match rng.below(100) {
            0..12 => {
                some(&mut rng, world.history().opened().filter(usable).collect()).map(Step::Release)
            }
            12..24 => some(&mut rng, claims(|call| call.mode == HoldMode::Share)).map(|of| {
                let asked = world.call(Ask(of));
                let (call, site, service) =
                    (world.history().calls.len(), asked.member, asked.service.as_str());
                let (service, wanted, says) =
                    (service.to_string(), ClientWant::Upgrade(of), String::new());
                Step::Ask {
                    call,
                    site,
                    service,
                    wanted,
                    owner: 0,
                    says,
                    wait: Wait::Try,
                    lease: None,
                }
            }),
            24..36 => some(&mut rng, claims(Call::may_be_shared)).map(Step::Downgrade),
            36..54 => {
                let call =
                    some(&mut rng, claims(|call| matches!(call.mode, HoldMode::Permits(2..))));
                call.map(|call| Step::ReturnPermits(call, 1))
            }
            _ => None,
        };
        match step {
            Some(step) => self.apply(step),
            None => false,
        }
    }

    /// A client asks what a request waits for, or asks a holder's member about a hold. An operator
    /// may instead look at a lock, and end a hold that was reported. These acts have random streams
    /// of their own, so the other acts stay as they are.
    fn act_on_chains(&mut self, plan: &ChaosPlan) {
        let mut rng = Rng::new(plan.seed, CHAINS + self.acts);
        let (asks, orders) = (rng.chance(plan.chains), rng.chance(plan.forces));
        let site = rng.below(self.world.sites().len() as u64) as usize;
        if !(asks || orders) || self.world.broken().is_some() || !self.world.is_up(site) {
            return;
        }
        let call = self.world.history().calls.len();
        let latest = || call.saturating_sub(LATEST)..call;
        let some =
            |rng: &mut Rng, these: Vec<usize>| (!these.is_empty()).then(|| *rng.pick(&these));
        let listed = |rng: &mut Rng, world: &World| {
            some(rng, latest().filter(|of| first_holder(world, *of).is_some()).collect())
        };
        let (about, wanted) = if orders {
            let of = listed(&mut rng, &self.world).filter(|_| rng.chance(600_000));
            (of, of.map(ClientWant::EndByForce))
        } else if rng.chance(500_000) {
            let of = listed(&mut rng, &self.world);
            (of, of.map(ClientWant::SeeOwner))
        } else {
            let waits = |of: &usize| self.world.history().open().any(|open| open == Ask(*of));
            let of = some(&mut rng, latest().filter(waits).collect());
            (of, of.map(ClientWant::SeeBlockers))
        };
        let service = match about {
            Some(of) => self.world.call(Ask(of)).service.as_str().to_string(),
            None => rng.pick(&SERVICES).to_string(),
        };
        let wanted = wanted.unwrap_or_else(|| ClientWant::SeeLock(rng.pick(&NAMES).to_string()));
        let (says, wait, lease) = (String::new(), Wait::Try, None);
        self.apply(Step::Ask { call, site, service, wanted, owner: 0, says, wait, lease });
    }

    /// Where members keep locks, a program of a member uses one lock again and again. The other
    /// acts stay as they are.
    fn act_on_kept(&mut self, plan: &ChaosPlan) {
        let mut rng = Rng::new(plan.seed, HOMES + (1 << 20) + self.acts);
        let site = rng.below(self.world.sites().len() as u64) as usize;
        if !plan.keeps || self.world.broken().is_some() || !self.world.is_up(site) {
            return;
        }
        let (service, name) = (SERVICES[0].to_string(), format!("home{site}"));
        let history = self.world.history();
        let is_it = |ask: &Ask| {
            let call = self.world.call(*ask);
            let of_name = |key: &Key| lock_name(key) == format!("{service}/{name}");
            call.member == site && call.keys.len() == 1 && call.keys.iter().all(of_name)
        };
        if history.open().any(|ask| is_it(&ask)) {
            return;
        }
        let held: Vec<Ask> = history.claims().filter(is_it).collect();
        let (mut wanted, mut left) = (ClientWant::Lock(name.clone()), 0);
        if plan.keeps_shares && rng.chance(500_000) {
            // At times several requests have a share at once.
            (wanted, left) = (ClientWant::Share(name), rng.below(3) as usize);
        }
        for held in held.iter().skip(left) {
            self.apply(Step::Release(held.0));
        }
        let call = self.world.history().calls.len();
        let wait = if rng.chance(300_000) { Wait::Try } else { Wait::Forever };
        let (says, lease) = (String::new(), None);
        let owner = rng.below(3);
        self.apply(Step::Ask { call, site, service, wanted, owner, says, wait, lease });
    }

    /// Where members follow the load, one member after the other makes most requests: it locks a
    /// free name of its own again and again. At times two members take turns, and neither makes
    /// most requests. The other acts stay as they are.
    fn act_on_load(&mut self, plan: &ChaosPlan) {
        let sites = self.world.sites().len() as u64;
        let span = self.world.now / HOT_SPAN;
        let mut rng = Rng::new(plan.seed, HOT + span);
        let two = [(); 2].map(|()| rng.below(sites) as usize);
        let (are_two, pause) = (rng.chance(300_000), rng.chance(200_000));
        let site = two[if are_two { self.acts as usize % 2 } else { 0 }];
        if !plan.follows || pause || self.world.broken().is_some() || !self.world.is_up(site) {
            return;
        }
        let own = format!("{}/hot{site}", SERVICES[1]);
        let is_own = |world: &World, ask: &Ask| {
            let call = world.call(*ask);
            call.member == site && call.keys.len() == 1 && lock_name(&call.keys[0]) == own
        };
        if self.world.history().open().any(|ask| is_own(&self.world, &ask)) {
            return;
        }
        let held = self.world.history().claims().find(|ask| is_own(&self.world, ask));
        if let Some(Ask(held)) = held {
            self.apply(Step::Release(held));
        }
        let (service, wanted) = (SERVICES[1].to_string(), ClientWant::Lock(format!("hot{site}")));
        let (call, says) = (self.world.history().calls.len(), String::new());
        let (owner, wait, lease) = (0, Wait::Forever, None);
        self.apply(Step::Ask { call, site, service, wanted, owner, says, wait, lease });
    }

    /// One act of one client.
    fn act(&mut self, plan: &ChaosPlan) {
        // A stream for each act, so that earlier events do not change the next request.
        self.acts += 1;
        let mut rng = Rng::new(plan.seed, 1_000 + self.acts);
        let now = self.world.now;
        let (due, later) =
            std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| *at <= now);
        self.pending = later;
        let due: Vec<(u64, Ask)> = due;
        for (_, ask) in due {
            if self.world.is_up(self.world.call(ask).member) {
                self.apply(Step::WriteEarlier(ask.0));
            }
        }
        let first = rng.below(self.world.sites().len() as u64) as usize;
        let chosen = rng.below(100);
        if (45..75).contains(&chosen) && self.act_on_shared(plan) {
            return;
        }
        let world = &self.world;
        let some = |rng: &mut Rng, these: Vec<Ask>| (!these.is_empty()).then(|| rng.pick(&these).0);
        let usable = |ask: &Ask| world.is_up(world.call(*ask).member);
        let claims = || world.history().claims().filter(usable).collect();
        match chosen {
            0..45 => {
                let busy = |site: usize| {
                    let open = world.history().open().chain(world.history().claims());
                    open.filter(|ask| world.call(*ask).member == site).count() >= MAX_OPEN
                };
                let mut from_first = world.sites().cycle().skip(first).take(world.sites().len());
                let Some(site) = from_first.find(|site| world.is_up(*site) && !busy(*site)) else {
                    return;
                };
                let ms = |rng: &mut Rng, high: u64| Duration::from_millis(rng.between(1, high));
                let wait = match rng.below(10) {
                    0..2 => Wait::Try,
                    2..6 => Wait::AtMost(ms(&mut rng, 4_000)),
                    _ => Wait::Forever,
                };
                let mut lease = rng.chance(400_000).then(|| ms(&mut rng, 3_000));
                let (mut service, name) =
                    (rng.pick(&SERVICES).to_string(), rng.pick(&NAMES).to_string());
                // Now and then the request is for a new service.
                if rng.chance(30_000) {
                    service = format!("day{}", now / (2 * SECOND));
                }
                let mut homes = Rng::new(plan.seed, HOMES + self.acts);
                let (service, name) = match homes.below(100) {
                    0..65 if plan.keeps => (SERVICES[0].to_string(), format!("home{site}")),
                    65..80 if plan.keeps => (SERVICES[0].to_string(), format!("home{first}")),
                    _ => (service, name),
                };
                let call = world.history().calls.len();
                let dropped = rng.chance(plan.drops).then(|| draw_drop(&mut rng, call));
                let mut requests = Rng::new(plan.seed, REQUESTS + self.acts);
                let (mut wanted, owner) = plan.mix.pick(&mut requests, &service, name, call);
                if let ClientWant::Lock(name) = &wanted {
                    let mut shares = Rng::new(plan.seed, SHARES + self.acts);
                    let opened = self.opened_at(site, &service);
                    if let Some(shared) = plan.mix.pick_shared(&mut shares, name, &opened) {
                        wanted = shared;
                    }
                }
                if let (true, ClientWant::Lock(name)) = (plan.keeps_shares, &wanted)
                    && name.starts_with("home")
                    && homes.chance(400_000)
                {
                    wanted = ClientWant::Share(name.clone());
                }
                if wanted == ClientWant::Suspension && requests.chance(800_000) {
                    // The suspension has a lease, because all other requests wait for its end.
                    lease = Some(ms(&mut requests, 1_500));
                }
                let often = if plan.keeps { 200_000 } else { 700_000 };
                let talks =
                    wanted.is_hold() && Rng::new(plan.seed, WORDS + self.acts).chance(often);
                // Each client has its own metadata, so that clients can be told apart.
                let says = if talks { format!("client{call}") } else { String::new() };
                self.apply(Step::Ask { call, site, service, wanted, owner, says, wait, lease });
                if let Some(step) = dropped {
                    *self.faults.entry(DROPS).or_default() += 1;
                    self.apply(step);
                }
            }
            45..75 => {
                if !(plan.tenacious && rng.chance(800_000))
                    && let Some(call) = some(&mut rng, claims())
                {
                    self.apply(Step::Release(call));
                }
            }
            75..82 => {
                let open = world.history().open().filter(usable).collect();
                if let Some(call) = some(&mut rng, open) {
                    self.apply(Step::Cancel(call));
                }
            }
            82..88 => {
                if let Some(call) = some(&mut rng, claims()) {
                    self.apply(Step::Extend(call, Duration::from_millis(rng.between(1, 3_000))));
                }
            }
            _ => {
                let Some(call) = some(&mut rng, claims()) else { return };
                if rng.chance(500_000) {
                    self.apply(Step::Write(call));
                } else if self.apply(Step::Fence(call)) {
                    self.pending.push((now + rng.below(6 * SECOND), Ask(call)));
                }
            }
        }
    }
}

/// Returns the step at which a client drops its future or guard. The client drops it at once, while
/// the call is under way, when it is answered, or soon after that.
fn draw_drop(rng: &mut Rng, call: usize) -> Step {
    let soon = |rng: &mut Rng| Duration::from_nanos(rng.between(MS / 100, 5 * MS));
    match rng.below(4) {
        0 => Step::Cancel(call),
        1 => Step::GiveUp(call, soon(rng)),
        2 => Step::GiveUpAnswered(call, Duration::ZERO),
        _ => Step::GiveUpAnswered(call, soon(rng)),
    }
}

/// Runs a plan without a trace.
pub fn run_seed(plan: &ChaosPlan, prepare: impl Fn(World) -> World) -> ChaosRun {
    plan.run(prepare(plan.world().untraced()))
}

/// Runs a plan with a trace.
pub fn trace_seed(plan: &ChaosPlan, prepare: impl Fn(World) -> World) -> ChaosRun {
    plan.run(prepare(plan.world()))
}
