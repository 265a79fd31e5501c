//! Faults as they are carried out: the steps that a fault plans when it begins.

use super::*;

/// A fault that has begun: its remaining steps with their times.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    /// When it is over.
    pub(crate) until: u64,
    /// The sites that it hits.
    pub(crate) sites: Vec<usize>,
    weather: Option<LinkConditions>,
    /// The first is due first.
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
        let of = |process| self.site_of(process).filter(|site| self.peers[*site].is(process));
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
                    matches!(call.deed, ClientRequest::Put(..) | ClientRequest::Add(..))
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
            self.peers[site].node.iter().flat_map(|node| node.awaiting()).collect::<Vec<_>>()
        };
        let others = move |site: usize| {
            let me = self.peers[site].process();
            awaited(site)
                .into_iter()
                .filter(move |process| Some(*process) != me)
                .map(move |process| (site, process))
        };
        self.sites().filter(|site| self.is_up(*site)).flat_map(others)
    }

    /// Looks up the targets of a fault, and plans its steps and their times. `None` if it found no
    /// target, or one that cannot be spared.
    pub(crate) fn begin_fault(&self, fault: &Fault, reckless: bool) -> Option<Active> {
        let (now, until) = (self.now, self.now + fault.lasts);
        let mut plot = FaultScript { now, until, steps: Vec::new() };
        let mut weather = None;
        let all = || self.sites();
        match fault.what {
            FaultKind::Weather(worse) => weather = Some(worse),
            FaultKind::SlowWay(from, to, by) => {
                plot.pair(
                    Step::Slow(from, to, Duration::from_nanos(by)),
                    Step::Slow(from, to, Duration::ZERO),
                );
            }
            FaultKind::CutOneWay(from, to) => plot.pair(Step::Cut(from, to), Step::Mend(from, to)),
            FaultKind::Cut(a, b) => plot.both(a, b, Step::Cut, Step::Mend),
            FaultKind::Isolate(target) => {
                let site = self.find(target)?;
                all()
                    .filter(|other| *other != site)
                    .for_each(|other| plot.both(site, other, Step::Cut, Step::Mend));
            }
            FaultKind::Split(mask) => {
                let left = |site: &usize| mask >> site & 1 == 1;
                for a in all().filter(left) {
                    all().filter(|b| !left(b)).for_each(|b| plot.both(a, b, Step::Cut, Step::Mend));
                }
            }
            FaultKind::OneNeighbour(target, luck) => {
                let site = self.find(target)?;
                let mut others: Vec<usize> = all().filter(|other| *other != site).collect();
                others.sort_by_key(|other| mix(&[luck, *other as u64]));
                others
                    .iter()
                    .skip(1)
                    .for_each(|other| plot.both(site, *other, Step::Cut, Step::Mend));
            }
            FaultKind::Ring(luck) => {
                let mut ring: Vec<usize> = all().collect();
                ring.sort_by_key(|site| mix(&[luck, *site as u64]));
                // Beyond five the next but one is a neighbour, too.
                let reach = if ring.len() > 5 { 2 } else { 1 };
                for (here, a) in ring.iter().enumerate() {
                    for (there, b) in ring.iter().enumerate().skip(here + 1) {
                        if (there - here).min(ring.len() - (there - here)) > reach {
                            plot.both(*a, *b, Step::Cut, Step::Mend);
                        }
                    }
                }
            }
            FaultKind::OneWayRing(luck) => {
                let mut ways: Vec<(usize, usize)> = all()
                    .flat_map(|a| all().map(move |b| (a, b)))
                    .filter(|(a, b)| a != b)
                    .collect();
                ways.sort_by_key(|(a, b)| mix(&[luck, *a as u64, *b as u64]));
                let mut cut = BTreeSet::new();
                for way in ways {
                    cut.insert(way);
                    let is_bridged = |(a, b): &(usize, usize)| {
                        all().any(|relay| {
                            relay != *a
                                && relay != *b
                                && !cut.contains(&(*a, relay))
                                && !cut.contains(&(relay, *b))
                        })
                    };
                    if !cut.iter().all(is_bridged) {
                        cut.remove(&way);
                    }
                }
                cut.into_iter().for_each(|(a, b)| plot.pair(Step::Cut(a, b), Step::Mend(a, b)));
            }
            FaultKind::Crash(target) => {
                let site = self.find(target)?;
                plot.down(
                    &self.spared(&[site], ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
            }
            FaultKind::CrashBoth => {
                let both = [self.find(Target::Elder)?, self.find(Target::Grantor)?];
                plot.down(
                    &self.spared(&both, ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
            }
            FaultKind::Vanish(target) => {
                let there = self.on_host_of(self.find(target)?);
                plot.down(
                    &self.spared(&there, ShutdownPlan::Dead, reckless)?,
                    Step::Vanish,
                    Step::Start,
                );
            }
            FaultKind::CrashAll => {
                let every_site: Vec<usize> = all().collect();
                plot.down(
                    &self.spared(&every_site, ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
            }
            FaultKind::LoseDisk(target) => {
                let site = self.find(target).filter(|site| self.can_lose_disk(*site))?;
                plot.down(
                    &self.spared(&[site], ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
                plot.add(now, Step::LoseDisk(site));
            }
            FaultKind::Leave(target) => {
                let site = self.find(target)?;
                plot.down(
                    &self.spared(&[site], ShutdownPlan::Gone, reckless)?,
                    Step::Leave,
                    Step::Start,
                );
            }
            FaultKind::Pause(target) => {
                let site = self.find(target).filter(|site| self.is_up(*site))?;
                plot.pair(Step::Pause(site), Step::Wake(site));
            }
            FaultKind::SlowDisk(target, takes) => {
                let site = self.find(target)?;
                plot.pair(
                    Step::Disk(site, DiskHealth::Slow(Duration::from_nanos(takes))),
                    Step::Disk(site, DiskHealth::Fast),
                );
            }
            FaultKind::FailingDisk(target) => {
                let site = self.find(target)?;
                plot.pair(
                    Step::Disk(site, DiskHealth::Failing),
                    Step::Disk(site, DiskHealth::Fast),
                );
            }
            FaultKind::FullDisk => {
                all().for_each(|site| {
                    plot.pair(
                        Step::Disk(site, DiskHealth::Failing),
                        Step::Disk(site, DiskHealth::Fast),
                    )
                });
            }
            FaultKind::TornStep(target, after, votes) => {
                let site = self.find(target)?;
                plot.add(now, Step::Tear(TornStep { site, after, votes, until }));
                plot.add(until, Step::Start(site));
            }
            FaultKind::DieDeciding => {
                plot.add(now, Step::DieDeciding { until: until.max(now + 4 * SECOND) })
            }
            FaultKind::FalseAlarm(at, about) => {
                let about = self.find(about).filter(|about| *about != at)?;
                self.peers[about].process()?;
                plot.add(now, Step::Notice { at, about, what: OutsideHint::Unreachable });
            }
            FaultKind::Swizzle(luck) => {
                let ways = all()
                    .flat_map(|from| all().map(move |to| (from, to)))
                    .filter(|(from, to)| from != to);
                let draw = |way: &(usize, usize), question| {
                    mix(&[luck, way.0 as u64, way.1 as u64, question])
                };
                let third = (fault.lasts / 3).max(1);
                for way in ways.filter(|way| draw(way, 0) % 100 < luck % 80 + 10) {
                    plot.add(now + draw(&way, 1) % third, Step::Clog(way.0, way.1));
                    plot.add(until - draw(&way, 2) % third, Step::Unclog(way.0, way.1));
                }
            }
            FaultKind::NarrowWay(from, to, narrow) => {
                plot.pair(Step::Narrow(from, to, Some(narrow)), Step::Narrow(from, to, None));
            }
            FaultKind::Resets(luck, times) => {
                for number in 0..u64::from(times) {
                    let draw = |question, below: u64| mix(&[luck, number, question]) % below.max(1);
                    let from = draw(0, all().len() as u64) as usize;
                    let to = (from + 1 + draw(1, all().len() as u64 - 1) as usize) % all().len();
                    let both = draw(2, 2) == 0;
                    let step = if both { Step::Reset(from, to) } else { Step::ResetHalf(from, to) };
                    plot.add(now + draw(3, fault.lasts), step);
                }
            }
            FaultKind::Reject(target) => {
                let site = self.find(target)?;
                for other in all().filter(|other| *other != site) {
                    plot.both(site, other, Step::Reject, Step::Accept);
                }
            }
            FaultKind::ClockRate(site, ppm) => {
                plot.pair(
                    Step::TurnClock(site, ppm),
                    Step::TurnClock(site, self.peers[site].clock.ppm),
                );
            }
            FaultKind::WallClock(site, by) => {
                plot.pair(Step::StepWallClock(site, by), Step::StepWallClock(site, -by))
            }
            FaultKind::Late(LatePackets { kind, from, to, blow }) => {
                let from = match from {
                    Some(target) => Some(self.find(target)?),
                    None => None,
                };
                let packets = PacketFilter { from, to, kind: Some(kind) };
                plot.pair(Step::Hold(packets), Step::LetGo(packets));
                let victim = match blow {
                    Some(ConcurrentFault::GrantorLeaves) => {
                        self.find(Target::Grantor).filter(|site| Some(*site) != to)
                    }
                    _ => from.or_else(|| self.find_elder()),
                };
                if let (Some(blow), Some(site)) = (blow, victim) {
                    let others = all().filter(|other| *other != site);
                    plot.now = now + fault.lasts / 8;
                    match blow {
                        ConcurrentFault::Crash => {
                            plot.down(
                                &self.spared(&[site], ShutdownPlan::Dead, reckless)?,
                                Step::Crash,
                                Step::Start,
                            );
                        }
                        ConcurrentFault::Leave => {
                            plot.down(
                                &self.spared(&[site], ShutdownPlan::Gone, reckless)?,
                                Step::Leave,
                                Step::Start,
                            );
                        }
                        ConcurrentFault::GrantorLeaves => {
                            (plot.now, plot.until) = (until - 5 * MS, until + SECOND);
                            plot.down(
                                &self.spared(&[site], ShutdownPlan::Gone, reckless)?,
                                Step::Leave,
                                Step::Start,
                            );
                        }
                        ConcurrentFault::Isolate => {
                            others.for_each(|other| plot.both(site, other, Step::Cut, Step::Mend))
                        }
                    }
                }
            }
            FaultKind::Overthrow(Overthrow { candidate, deaf, loyal, restart }) => {
                let elder = self.find_elder()?;
                let candidate =
                    self.find(Target::Council(candidate)).filter(|site| *site != elder)?;
                let others = all().filter(|other| *other != candidate);
                let holder = self.holder(loyal, elder, Some(candidate));
                let loyal = loyal.with(elder, holder, Some(candidate));
                // The holder has it when the elder is cut off, and one of the others wants it.
                let service = crate::chaos::SERVICES[0];
                let crown = || ClientWant::Lock("crown".to_string());
                if let Some(holder) = holder {
                    plot.ask(holder, service, crown());
                }
                plot.until = now + deaf;
                others.for_each(|other| plot.both(candidate, other, Step::Cut, Step::Mend));
                plot.now = plot.until;
                plot.until = plot.now + fault.lasts;
                plot.ask(candidate, service, crown());
                for a in all().filter(&loyal) {
                    all()
                        .filter(|b| !loyal(b))
                        .for_each(|b| plot.both(a, b, Step::Cut, Step::Mend));
                }
                if restart && self.common.durable {
                    let rest: Vec<usize> =
                        all().filter(|site| *site != candidate && !loyal(site)).collect();
                    if let Some(rest) = self.spared(&rest, ShutdownPlan::Dead, reckless) {
                        let until = std::mem::replace(&mut plot.until, plot.now + 5 * MS);
                        plot.down(&rest, Step::Crash, Step::Start);
                        plot.until = until;
                    }
                }
            }
            FaultKind::SplitView(loyal) => {
                let elder = self.find_elder().filter(|_| self.viewed_at == now)?;
                let loyal = loyal.with(elder, self.holder(loyal, elder, None), None);
                for a in all().filter(&loyal) {
                    all()
                        .filter(|b| !loyal(b))
                        .for_each(|b| plot.both(a, b, Step::Cut, Step::Mend));
                }
            }
            FaultKind::Reprieve(DelayedRemoval { target, cut, pending }) => {
                let elder = self.find_elder()?;
                let site = self.find(target).filter(|site| *site != elder && self.is_up(*site))?;
                plot.until = now + cut;
                all()
                    .filter(|other| *other != site)
                    .for_each(|other| plot.both(site, other, Step::Cut, Step::Mend));
                // Packets from before the cut are not kept back.
                plot.now = now + cut * 9 / 10;
                plot.until = now + cut + pending;
                plot.hold(None, Some(elder), "Accepted");
                plot.until = until;
                ["Install", "FullView"]
                    .into_iter()
                    .for_each(|kind| plot.hold(None, Some(site), kind));
            }
            FaultKind::Turncoat(number, luck) => {
                let elder = self.find_elder()?;
                let site = self.find(Target::Council(number))?;
                let spared = self.spared(&[site], ShutdownPlan::Gone, reckless)?;
                let mut others: Vec<usize> =
                    all().filter(|other| ![elder, site].contains(other)).collect();
                others.sort_by_key(|other| mix(&[luck, *other as u64]));
                let (untold, told) = others.split_at(others.len().div_ceil(2));
                let told: Vec<usize> = told.iter().copied().chain([elder]).collect();
                for &a in untold {
                    told.iter().for_each(|&b| plot.both(a, b, Step::Cut, Step::Mend));
                }
                plot.down(&spared, Step::Leave, Step::Start);
                let turns = now + 10 * MS + luck % (100 * MS);
                plot.until = turns;
                untold.iter().for_each(|&a| plot.both(a, site, Step::Cut, Step::Mend));
                (plot.now, plot.until) = (turns, until);
                told.iter().for_each(|&b| plot.both(b, site, Step::Cut, Step::Mend));
            }
            FaultKind::StrayName(named, other) => {
                let service = format!("errand{now}");
                self.vanish_while_naming(
                    &mut plot,
                    (named, other),
                    (&service, Wait::Forever),
                    reckless,
                )?;
                plot.now = until;
                plot.ask(other, &service, ClientWant::Lock("a".to_string()));
            }
            FaultKind::Rush { turk, leaves } => {
                let service = crate::chaos::SERVICES[0];
                let grantor = self.find_grantor(service)?;
                let others: Vec<usize> =
                    all().filter(|site| *site != grantor && self.is_up(*site)).collect();
                let nth = |number: usize| others[number % others.len()];
                if others.len() < 3 {
                    return None;
                }
                plot.hold(Some(grantor), None, "TableChunk");
                plot.ask(nth(turk), service, ClientWant::Become);
                plot.now = now + fault.lasts / 3;
                if leaves {
                    let holders = self
                        .history()
                        .claims()
                        .map(|ask| self.call(ask))
                        .filter(|call| call.service.as_str() == service);
                    let holder = holders
                        .map(|call| call.member)
                        .find(|site| ![grantor, nth(turk)].contains(site))?;
                    plot.down(
                        &self.spared(&[holder], ShutdownPlan::Gone, reckless)?,
                        Step::Leave,
                        Step::Start,
                    );
                    return Some(plot.active(weather, all()));
                }
                plot.ask(nth(turk + 1), service, ClientWant::Lock("rush".to_string()));
                plot.now = now + fault.lasts * 2 / 3;
                plot.ask(nth(turk + 2), service, ClientWant::Become);
            }
            FaultKind::Newcomer { turk } => {
                let service = crate::chaos::SERVICES[0];
                let (elder, grantor) = (self.find_elder()?, self.find_grantor(service)?);
                let others: Vec<usize> = all()
                    .filter(|site| ![elder, grantor].contains(site) && self.is_up(*site))
                    .collect();
                if others.len() < 2 {
                    return None;
                }
                let (turk, joins) =
                    (others[turk % others.len()], others[(turk + 1) % others.len()]);
                let spared = self.spared(&[joins], ShutdownPlan::Gone, reckless)?;
                plot.until = now + fault.lasts / 4;
                plot.down(&spared, Step::Leave, Step::Start);
                (plot.now, plot.until) = (now + fault.lasts / 8, until);
                ["Install", "FullView"]
                    .into_iter()
                    .for_each(|kind| plot.hold(None, Some(turk), kind));
                plot.now = now + fault.lasts / 2;
                plot.ask(joins, service, ClientWant::Lock("fresh".to_string()));
                plot.now = now + fault.lasts * 3 / 4;
                plot.ask(turk, service, ClientWant::Lock("fresh".to_string()));
                plot.ask(turk, service, ClientWant::Become);
            }
            FaultKind::Duel { first } => {
                let service = crate::chaos::SERVICES[0];
                let grantor = self.find_grantor(service)?;
                let up: Vec<usize> =
                    all().filter(|site| *site != grantor && self.is_up(*site)).collect();
                if up.len() < 2 {
                    return None;
                }
                let duellists = [up[first % up.len()], up[(first + 1) % up.len()]];
                let quarter = fault.lasts / 4;
                plot.ask(duellists[0], service, ClientWant::Lock("left".to_string()));
                plot.ask(duellists[1], service, ClientWant::Lock("right".to_string()));
                for (number, duellist) in duellists.into_iter().enumerate() {
                    plot.now = now + quarter * (number as u64 + 1);
                    plot.ask(duellist, service, ClientWant::Suspension);
                }
            }
            FaultKind::Deafen(target) => {
                let site = self.find(target)?;
                all()
                    .filter(|other| *other != site)
                    .for_each(|other| plot.pair(Step::Cut(other, site), Step::Mend(other, site)));
            }
            FaultKind::LyingStranger(target, luck, lies) => {
                let target = match target {
                    Some(target) => Some(self.find(target)?),
                    None => None,
                };
                for number in 0..u64::from(lies) {
                    let draw = |question, below: u64| mix(&[luck, number, question]) % below.max(1);
                    let site = target.unwrap_or(draw(0, all().len() as u64) as usize);
                    let lie = Step::Lie(site, mix(&[luck, number, 2]));
                    plot.add(now + draw(1, fault.lasts), lie);
                }
            }
            FaultKind::RejectPair(target, other) => {
                let site = self.find(target).filter(|site| *site != other)?;
                ["Install", "FullView", "HelloReply"]
                    .into_iter()
                    .for_each(|kind| plot.hold(None, Some(site), kind));
                plot.both(site, other, Step::Reject, Step::Accept);
                // A connection of a third member that breaks meanwhile is no second refusal.
                for third in all().filter(|third| ![site, other].contains(third)) {
                    let draw = |question, below| mix(&[fault.at, third as u64, question]) % below;
                    for number in 0..draw(0, 6) {
                        plot.add(now + draw(number + 1, fault.lasts), Step::Reset(third, site));
                    }
                    // Again and again while the first member learns that it is refused.
                    let times = if fault.at.is_multiple_of(2) { 10 } else { 0 };
                    for number in 0..times {
                        plot.add(now + number * MS, Step::Reset(third, site));
                    }
                }
            }
            FaultKind::LateNaming { named, elder_fails } => {
                let elder = self.find_elder()?;
                let others: Vec<usize> =
                    all().filter(|site| *site != elder && self.is_up(*site)).collect();
                if others.len() < 3 {
                    return None;
                }
                let nth = |number: usize| others[number % others.len()];
                let (named, other, former) = (nth(named), nth(named + 1), nth(named + 2));
                let lease = self.common.timing.member_lease.as_nanos() as u64;
                let (service, name) = (format!("late{now}"), || ClientWant::Lock("a".to_string()));
                if elder_fails {
                    self.vanish_while_naming(
                        &mut plot,
                        (named, other),
                        (&service, Wait::AtMost(millis(15 * MS))),
                        reckless,
                    )?;
                    plot.now = until + 10 * MS;
                    plot.ask(named, &service, name());
                    // Its recovery takes until the elder's lease is over.
                    for number in 0..4 {
                        plot.now = until + lease * (8 + number) / 8;
                        plot.ask(other, &service, name());
                    }
                } else {
                    let spared = self.spared(&[former], ShutdownPlan::Dead, reckless)?;
                    plot.ask(former, &service, name());
                    plot.now = now + 30 * MS;
                    plot.until = until + lease;
                    plot.down(&spared, Step::Crash, Step::Start);
                    (plot.now, plot.until) = (until + lease / 2, until + lease / 2 + 60 * MS);
                    plot.hold(None, Some(named), "NameGrantor");
                    plot.ask(named, &service, name());
                    plot.now += 15 * MS;
                    plot.ask_within(other, &service, name(), Wait::AtMost(millis(15 * MS)));
                }
                plot.until = until + 2 * lease;
            }
            FaultKind::TornValue { late, adds } => {
                let service = crate::chaos::SERVICES[0];
                let grantor = self.find_grantor(service)?;
                let here = |ask: &Ask| {
                    let call = self.call(*ask);
                    call.service.as_str() == service
                        && call.member != grantor
                        && self.is_up(call.member)
                };
                let opened: Vec<Ask> = self.history().opened().filter(here).collect();
                let nth = |number: usize| {
                    opened.get(number % opened.len().max(1)).map(|ask| (*ask, self.call(*ask)))
                };
                let ((writer, writes), (_, hears)) = (nth(late)?, nth(late + 1)?);
                let open = self.name_of(writer)?;
                let are_two = writes.object == hears.object && writes.member != hears.member;
                let spared =
                    self.spared(&[grantor], ShutdownPlan::Dead, reckless).filter(|_| are_two)?;
                plot.hold(Some(grantor), Some(hears.member), "Value");
                let wanted = match adds {
                    Some(by) => ClientWant::Add(open, by),
                    None => ClientWant::Put(open, format!("torn{}", fault.at)),
                };
                plot.ask(writes.member, service, wanted);
                plot.now = now + fault.lasts / 2;
                plot.until = until + SECOND;
                plot.down(&spared, Step::Crash, Step::Start);
            }
            FaultKind::NoDatagrams(target) => {
                let site = self.find(target)?;
                for other in all().filter(|other| *other != site) {
                    plot.pair(Step::Deafen(site, other), Step::Undeafen(site, other));
                }
            }
        }
        Some(plot.active(weather, all()))
    }

    /// The sites on the host of this site.
    fn on_host_of(&self, site: usize) -> Vec<usize> {
        let host = self.peers[site].host;
        self.sites().filter(|other| self.peers[*other].host == host).collect()
    }

    /// A member asks for a lock of a service that none has used, and the elder's host fails. The
    /// naming of the member arrives at the end. `None` if that member and the other one would not
    /// outlive it.
    fn vanish_while_naming(
        &self,
        plot: &mut FaultScript,
        (named, other): (usize, usize),
        (service, wait): (&str, Wait),
        reckless: bool,
    ) -> Option<()> {
        let elder = self.find_elder().filter(|elder| ![named, other].contains(elder))?;
        let there = self.on_host_of(elder);
        let both_stay =
            [named, other].iter().all(|site| self.is_up(*site) && !there.contains(site));
        let spared = self.spared(&there, ShutdownPlan::Dead, reckless).filter(|_| both_stay)?;
        ["NameGrantor", "GrantorIs"]
            .into_iter()
            .for_each(|kind| plot.hold(Some(elder), Some(named), kind));
        plot.ask_within(named, service, ClientWant::Lock("a".to_string()), wait);
        plot.now += 20 * MS;
        plot.down(&spared, Step::Vanish, Step::Start);
        Some(())
    }

    /// The member that is cut off with the elder because it is a holder.
    fn holder(&self, loyal: CutOffGroup, elder: usize, candidate: Option<usize>) -> Option<usize> {
        let holders =
            self.history().claims().map(|ask| self.call(ask).member).filter(|_| loyal.holder);
        holders.filter(|site| *site != elder && Some(*site) != candidate).max()
    }

    /// The live ones of these sites, if they may end.
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

    /// The same, for a limited time.
    fn ask_within(&mut self, site: usize, service: &str, wanted: ClientWant, wait: Wait) {
        let (service, says) = (service.to_string(), String::new());
        let ask = Step::Ask { call: 0, site, service, wanted, owner: 0, says, wait, lease: None };
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
    /// A predicate for its members: never the candidate.
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
