//! Faults as they are carried out: the steps that a fault plans when it begins.

use super::*;

mod grantors;
mod machines;
mod paths;
mod views;

/// A fault that has begun: its remaining steps with their times.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    /// The end of the fault.
    pub(crate) until: u64,
    /// The sites that it hits.
    pub(crate) sites: Vec<usize>,
    weather: Option<LinkConditions>,
    /// The remaining steps with their times, the earliest first.
    agenda: VecDeque<(u64, Step)>,
}

impl Active {
    /// The next step that is due.
    pub(crate) fn next(&mut self, now: u64) -> Option<Step> {
        let (at, _) = self.agenda.front()?;
        if *at > now {
            return None;
        }
        self.agenda.pop_front().map(|(_, step)| step)
    }
}

impl World {
    fn find(&self, target: Target) -> Option<usize> {
        let of = |process| self.present_site_of(process);
        match target {
            Target::Site(site) => Some(site),
            Target::Elder => self.find_elder(),
            Target::Grantor => self.find_grantor(crate::chaos::SERVICES[0]),
            Target::Council(number) => {
                let council: Vec<ProcessId> =
                    self.latest_view()?.council().skip(1).map(|info| info.process).collect();
                council.get(number % council.len().max(1)).copied().and_then(of)
            }
            Target::Recovering => self.recovering().next().map(|(site, _)| site),
            Target::Awaited => self.recovering().filter_map(|(_, process)| of(process)).next_back(),
            Target::Suspender => self.wants(Call::suspends),
            Target::Batcher => self.wants(|call| call.keys.len() > 1),
            Target::Sharer => {
                self.wants(|call| matches!(call.mode, HoldMode::Share | HoldMode::Permits(_)))
            }
            Target::Writer => {
                let writes = |call: &Call| {
                    matches!(call.request_kind, ClientRequest::Put(..) | ClientRequest::Add(..))
                };
                let writers =
                    self.history().open().map(|ask| self.call(ask)).filter(|call| writes(call));
                let opened = self.history().opened().map(|ask| self.call(ask));
                let site = writers
                    .map(|call| call.member)
                    .next()
                    .or_else(|| opened.map(|call| call.member).next());
                site.or_else(|| self.find(Target::Grantor))
            }
        }
    }

    /// The site of a member that has, or waits for, something like this; else the grantor.
    fn wants(&self, these: impl Fn(&Call) -> bool) -> Option<usize> {
        let history = self.history();
        let asks = history.claims().chain(history.open()).map(|ask| self.call(ask));
        let sites = asks.filter(|call| these(call)).map(|call| call.member);
        sites.max().or_else(|| self.find(Target::Grantor))
    }

    /// Sites where a grantor recovers or receives a table, with the processes that it waits for.
    fn recovering(&self) -> impl DoubleEndedIterator<Item = (usize, ProcessId)> + '_ {
        let awaited = |site: usize| {
            self.sites[site].node.iter().flat_map(|node| node.awaiting()).collect::<Vec<_>>()
        };
        let others = move |site: usize| {
            let me = self.sites[site].process();
            awaited(site)
                .into_iter()
                .filter(move |process| Some(*process) != me)
                .map(move |process| (site, process))
        };
        self.sites().filter(|site| self.is_up(*site)).flat_map(others)
    }

    /// Looks up the targets of a fault, and plans its steps and their times. `None` if the fault
    /// finds no target, or a target that cannot be spared.
    pub(crate) fn begin_fault(&self, fault: &Fault, reckless: bool) -> Option<Active> {
        let (now, until) = (self.now, self.now + fault.lasts);
        let plot = FaultScript { now, until, steps: Vec::new() };
        let mut planner = FaultPlanner { world: self, fault, reckless, now, until, plot };
        planner.plan()?;
        let weather = match fault.what {
            FaultKind::Weather(worse) => Some(worse),
            _ => None,
        };
        Some(planner.plot.active(weather, self.sites()))
    }

    /// The sites on the host of this site.
    fn on_host_of(&self, site: usize) -> Vec<usize> {
        let host = self.sites[site].host;
        self.sites().filter(|other| self.sites[*other].host == host).collect()
    }

    /// The member that is cut off with the elder because it is a holder.
    fn holder(&self, loyal: CutOffGroup, elder: usize, candidate: Option<usize>) -> Option<usize> {
        let holders =
            self.history().claims().map(|ask| self.call(ask).member).filter(|_| loyal.holder);
        holders.filter(|site| *site != elder && Some(*site) != candidate).max()
    }

    /// The sites of these with a live process, if these processes may end.
    fn spared(&self, sites: &[usize], how: ShutdownPlan, reckless: bool) -> Option<Vec<usize>> {
        let spared = self.can_spare(sites, how, reckless);
        let alive: Vec<usize> = sites.iter().copied().filter(|site| self.is_alive(*site)).collect();
        (spared && !alive.is_empty()).then_some(alive)
    }

    /// The weather of all faults that go on, over a base.
    pub(crate) fn weather_of(&self, base: LinkConditions, active: &[(usize, Active)]) -> Step {
        let all = active.iter().filter_map(|(_, active)| active.weather);
        Step::Weather(all.fold(base, LinkConditions::worse))
    }
}

/// A fault that begins: the World that it looks at, and the steps that are planned so far. The
/// methods that plan a fault are in the files of its family. Each returns `None` if the fault finds
/// no target, or a target that cannot be spared.
struct FaultPlanner<'a> {
    world: &'a World,
    fault: &'a Fault,
    reckless: bool,
    /// The beginning of the fault.
    now: u64,
    /// The end of the fault.
    until: u64,
    plot: FaultScript,
}

impl FaultPlanner<'_> {
    fn plan(&mut self) -> Option<()> {
        match self.fault.what {
            FaultKind::Weather(_) => Some(()),
            FaultKind::SlowWay(from, to, by) => self.slow_way(from, to, by),
            FaultKind::CutOneWay(from, to) => self.cut_one_way(from, to),
            FaultKind::Cut(a, b) => self.cut(a, b),
            FaultKind::Isolate(target) => self.isolate(target),
            FaultKind::Split(mask) => self.split(mask),
            FaultKind::OneNeighbour(target, luck) => self.one_neighbour(target, luck),
            FaultKind::Ring(luck) => self.ring(luck),
            FaultKind::OneWayRing(luck) => self.one_way_ring(luck),
            FaultKind::Swizzle(luck) => self.swizzle(luck),
            FaultKind::NarrowWay(from, to, narrow) => self.narrow_way(from, to, narrow),
            FaultKind::Resets(luck, times) => self.resets(luck, times),
            FaultKind::Reject(target) => self.reject(target),
            FaultKind::RejectPair(target, other) => self.reject_pair(target, other),
            FaultKind::Deafen(target) => self.deafen(target),
            FaultKind::NoDatagrams(target) => self.no_datagrams(target),
            FaultKind::FalseAlarm(at, about) => self.false_alarm(at, about),
            FaultKind::LyingStranger(target, luck, lies) => self.lying_stranger(target, luck, lies),
            FaultKind::Crash(target) => self.crash(target),
            FaultKind::CrashBoth => self.crash_both(),
            FaultKind::CrashAll => self.crash_all(),
            FaultKind::Vanish(target) => self.vanish(target),
            FaultKind::LoseDisk(target) => self.lose_disk(target),
            FaultKind::Leave(target) => self.leave(target),
            FaultKind::Pause(target) => self.pause(target),
            FaultKind::TornStep(target, after, votes) => self.torn_step(target, after, votes),
            FaultKind::DieDeciding => self.die_deciding(),
            FaultKind::SlowDisk(target, takes) => self.slow_disk(target, takes),
            FaultKind::FailingDisk(target) => self.failing_disk(target),
            FaultKind::FullDisk => self.full_disk(),
            FaultKind::ClockRate(site, ppm) => self.clock_rate(site, ppm),
            FaultKind::WallClock(site, by) => self.wall_clock(site, by),
            FaultKind::Late(packets) => self.late(packets),
            FaultKind::ElderTakeover(takeover) => self.elder_takeover(takeover),
            FaultKind::SplitView(loyal) => self.split_view(loyal),
            FaultKind::Reprieve(removal) => self.reprieve(removal),
            FaultKind::Turncoat(number, luck) => self.turncoat(number, luck),
            FaultKind::StrayName(named, other) => self.stray_name(named, other),
            FaultKind::LateNaming { named, elder_fails } => self.late_naming(named, elder_fails),
            FaultKind::Rush { turk, leaves } => self.rush(turk, leaves),
            FaultKind::Newcomer { turk } => self.newcomer(turk),
            FaultKind::Duel { first } => self.duel(first),
            FaultKind::PassingWait { first } => self.passing_wait(first),
            FaultKind::TornValue { late, adds } => self.torn_value(late, adds),
        }
    }

    /// Draws a number below `below` from these numbers.
    fn draw(numbers: [u64; 3], below: u64) -> u64 {
        mix(&numbers) % below.max(1)
    }

    fn sites(&self) -> Range<usize> {
        self.world.sites()
    }

    fn find(&self, target: Target) -> Option<usize> {
        self.world.find(target)
    }

    /// Returns the sites that are up, without these.
    fn up_but(&self, these: &[usize]) -> Vec<usize> {
        self.sites().filter(|site| !these.contains(site) && self.world.is_up(*site)).collect()
    }

    fn spared(&self, sites: &[usize], how: ShutdownPlan) -> Option<Vec<usize>> {
        self.world.spared(sites, how, self.reckless)
    }

    /// Ends the live processes of these sites, and starts others there at the end of the script.
    fn end(&mut self, sites: &[usize], how: ShutdownPlan, begin: fn(usize) -> Step) -> Option<()> {
        let spared = self.spared(sites, how)?;
        self.plot.down(&spared, begin, Step::Start);
        Some(())
    }

    /// Cuts a site off from all others.
    fn cut_off(&mut self, site: usize) {
        for other in self.sites().filter(|other| *other != site) {
            self.plot.both(site, other, Step::Cut, Step::Mend);
        }
    }

    /// Cuts the sites of a group off from the others.
    fn cut_apart(&mut self, is_in: impl Fn(&usize) -> bool) {
        for a in self.sites().filter(&is_in) {
            for b in self.sites().filter(|b| !is_in(b)) {
                self.plot.both(a, b, Step::Cut, Step::Mend);
            }
        }
    }
}

/// The steps of a fault, as they are planned.
struct FaultScript {
    now: u64,
    until: u64,
    steps: Vec<(u64, Step)>,
}

impl FaultScript {
    fn add(&mut self, at: u64, step: Step) {
        self.steps.push((at, step));
    }

    fn pair(&mut self, begin: Step, end: Step) {
        self.add(self.now, begin);
        self.add(self.until, end);
    }

    /// Packets of a kind are kept back.
    fn hold(&mut self, from: Option<usize>, to: Option<usize>, kind: &'static str) {
        let packets = PacketFilter { from, to, kind: Some(kind) };
        self.pair(Step::Hold(packets), Step::LetGo(packets));
    }

    /// A client asks for something, and waits for ever. The number of its call is set when the step
    /// is applied.
    fn ask(&mut self, site: usize, service: &str, wanted: ClientWant) {
        self.ask_within(site, service, wanted, Wait::Forever);
    }

    /// A client asks for something, and waits for a limited time.
    fn ask_within(&mut self, site: usize, service: &str, wanted: ClientWant, wait: Wait) {
        self.ask_as((site, 0), service, wanted, (wait, None));
    }

    /// A client asks for something, for an owner and with a lease.
    fn ask_as(
        &mut self,
        (site, owner): (usize, u64),
        service: &str,
        wanted: ClientWant,
        (wait, lease): (Wait, Option<Duration>),
    ) {
        let (service, says) = (service.to_string(), String::new());
        let ask = Step::Ask { call: 0, site, service, wanted, owner, says, wait, lease };
        self.add(self.now, ask);
    }

    fn both(
        &mut self,
        a: usize,
        b: usize,
        begin: fn(usize, usize) -> Step,
        end: fn(usize, usize) -> Step,
    ) {
        self.pair(begin(a, b), end(a, b));
        self.pair(begin(b, a), end(b, a));
    }

    fn down(&mut self, sites: &[usize], begin: fn(usize) -> Step, end: fn(usize) -> Step) {
        for &site in sites {
            self.pair(begin(site), end(site));
        }
    }

    fn active(mut self, weather: Option<LinkConditions>, all: Range<usize>) -> Active {
        let mut sites: Vec<usize> = match weather {
            Some(_) => all.collect(),
            None => self.steps.iter().flat_map(|(_, step)| step.sites()).collect(),
        };
        sites.sort_unstable();
        sites.dedup();
        self.steps.sort_by_key(|(at, _)| *at);
        Active { until: self.until, sites, weather, agenda: self.steps.into() }
    }
}

impl CutOffGroup {
    /// Tells whether a site is in the group. The candidate never is, unless it is the holder.
    fn with(
        self,
        elder: usize,
        holder: Option<usize>,
        candidate: Option<usize>,
    ) -> impl Fn(&usize) -> bool {
        move |site| {
            let is_drawn = Some(*site) != candidate && self.sites >> site & 1 == 1;
            *site == elder || Some(*site) == holder || is_drawn
        }
    }
}
