//! Faults at a moment of a grantor: late namings and tables, young turks, suspensions and writes.

use super::*;

/// The service at which these faults aim.
const SERVICE: &str = crate::chaos::SERVICES[0];
/// The owner of the requests of a fault, where it needs one: clients have lower numbers.
const OWNER: u64 = 99;

impl FaultPlanner<'_> {
    pub(super) fn stray_name(&mut self, named: usize, other: usize) -> Option<()> {
        let service = format!("errand{}", self.now);
        self.vanish_while_naming((named, other), (&service, Wait::Forever))?;
        self.plot.now = self.until;
        self.plot.ask(other, &service, ClientWant::Lock("a".to_string()));
        Some(())
    }

    pub(super) fn late_naming(&mut self, named: usize, elder_fails: bool) -> Option<()> {
        let elder = self.world.find_elder()?;
        let others = self.up_but(&[elder]);
        if others.len() < 3 {
            return None;
        }
        let nth = |number: usize| others[number % others.len()];
        let (named, other, former) = (nth(named), nth(named + 1), nth(named + 2));
        let (now, until) = (self.now, self.until);
        let lease = self.world.common.timing.member_lease.as_nanos() as u64;
        let (service, name) = (format!("late{now}"), || ClientWant::Lock("a".to_string()));
        if elder_fails {
            let wait = Wait::AtMost(millis(15 * MS));
            self.vanish_while_naming((named, other), (&service, wait))?;
            self.plot.now = until + 10 * MS;
            self.plot.ask(named, &service, name());
            // The recovery of the named member takes until the elder's lease is over.
            for number in 0..4 {
                self.plot.now = until + lease * (8 + number) / 8;
                self.plot.ask(other, &service, name());
            }
        } else {
            let spared = self.spared(&[former], ShutdownPlan::Dead)?;
            self.plot.ask(former, &service, name());
            self.plot.now = now + 30 * MS;
            self.plot.until = until + lease;
            self.plot.down(&spared, Step::Crash, Step::Start);
            (self.plot.now, self.plot.until) = (until + lease / 2, until + lease / 2 + 60 * MS);
            self.plot.hold(None, Some(named), "NameGrantor");
            self.plot.ask(named, &service, name());
            self.plot.now += 15 * MS;
            self.plot.ask_within(other, &service, name(), Wait::AtMost(millis(15 * MS)));
        }
        self.plot.until = until + 2 * lease;
        Some(())
    }

    /// A member asks for a lock of a service that none has used, and the elder's host fails. The
    /// naming of the member arrives at the end. `None` if that member or the other one would not
    /// outlive the host.
    fn vanish_while_naming(
        &mut self,
        (named, other): (usize, usize),
        (service, wait): (&str, Wait),
    ) -> Option<()> {
        let elder = self.world.find_elder().filter(|elder| ![named, other].contains(elder))?;
        let there = self.world.on_host_of(elder);
        let both_stay =
            [named, other].iter().all(|site| self.world.is_up(*site) && !there.contains(site));
        let spared = self.spared(&there, ShutdownPlan::Dead).filter(|_| both_stay)?;
        self.plot.hold(Some(elder), Some(named), "NameGrantor");
        self.plot.hold(Some(elder), Some(named), "GrantorIs");
        self.plot.ask_within(named, service, ClientWant::Lock("a".to_string()), wait);
        self.plot.now += 20 * MS;
        self.plot.down(&spared, Step::Vanish, Step::Start);
        Some(())
    }

    pub(super) fn rush(&mut self, turk: usize, leaves: bool) -> Option<()> {
        let grantor = self.world.find_grantor(SERVICE)?;
        let others = self.up_but(&[grantor]);
        let nth = |number: usize| others[number % others.len()];
        if others.len() < 3 {
            return None;
        }
        self.plot.hold(Some(grantor), None, "TableChunk");
        self.plot.ask(nth(turk), SERVICE, ClientWant::Become);
        self.plot.now = self.now + self.fault.lasts / 3;
        if leaves {
            let history = self.world.history();
            let holders = history
                .claims()
                .map(|ask| self.world.call(ask))
                .filter(|call| call.service.as_str() == SERVICE);
            let holder = holders
                .map(|call| call.member)
                .find(|site| ![grantor, nth(turk)].contains(site))?;
            return self.end(&[holder], ShutdownPlan::Gone, Step::Leave);
        }
        self.plot.ask(nth(turk + 1), SERVICE, ClientWant::Lock("rush".to_string()));
        self.plot.now = self.now + self.fault.lasts * 2 / 3;
        self.plot.ask(nth(turk + 2), SERVICE, ClientWant::Become);
        Some(())
    }

    pub(super) fn newcomer(&mut self, turk: usize) -> Option<()> {
        let (elder, grantor) = (self.world.find_elder()?, self.world.find_grantor(SERVICE)?);
        let others = self.up_but(&[elder, grantor]);
        if others.len() < 2 {
            return None;
        }
        let (turk, joins) = (others[turk % others.len()], others[(turk + 1) % others.len()]);
        let (now, lasts) = (self.now, self.fault.lasts);
        let spared = self.spared(&[joins], ShutdownPlan::Gone)?;
        self.plot.until = now + lasts / 4;
        self.plot.down(&spared, Step::Leave, Step::Start);
        (self.plot.now, self.plot.until) = (now + lasts / 8, self.until);
        self.plot.hold(None, Some(turk), "Install");
        self.plot.hold(None, Some(turk), "FullView");
        self.plot.now = now + lasts / 2;
        self.plot.ask(joins, SERVICE, ClientWant::Lock("fresh".to_string()));
        self.plot.now = now + lasts * 3 / 4;
        self.plot.ask(turk, SERVICE, ClientWant::Lock("fresh".to_string()));
        self.plot.ask(turk, SERVICE, ClientWant::Become);
        Some(())
    }

    pub(super) fn duel(&mut self, first: usize) -> Option<()> {
        let grantor = self.world.find_grantor(SERVICE)?;
        let up = self.up_but(&[grantor]);
        if up.len() < 2 {
            return None;
        }
        let duellists = [up[first % up.len()], up[(first + 1) % up.len()]];
        let quarter = self.fault.lasts / 4;
        self.plot.ask(duellists[0], SERVICE, ClientWant::Lock("left".to_string()));
        self.plot.ask(duellists[1], SERVICE, ClientWant::Lock("right".to_string()));
        for (number, duellist) in duellists.into_iter().enumerate() {
            self.plot.now = self.now + quarter * (number as u64 + 1);
            self.plot.ask(duellist, SERVICE, ClientWant::Suspension);
        }
        Some(())
    }

    pub(super) fn passing_wait(&mut self, first: usize) -> Option<()> {
        let world = self.world;
        let grantor = world.find_grantor(SERVICE)?;
        let mut up = self.up_but(&[grantor]);
        if up.len() < 3 {
            return None;
        }
        // Of several requests that probe the one with the highest key is told.
        let top = *up.iter().max_by_key(|site| world.sites[**site].process())?;
        up.retain(|site| *site != top);
        let nth = |number: usize| (up[number % up.len()], OWNER);
        let (one, two, three) = ((top, OWNER), nth(first), nth(first + 1));
        // By then the first request has sent its first probe.
        let wait = world.common.timing.retry.as_nanos() as u64 * 6;
        let begun = self.now + 40 * MS;
        self.plot.until = begun + wait + self.fault.lasts;
        self.until = self.plot.until;
        self.plot.hold(None, Some(three.0), "ProbeHold");
        let lease = Some(millis(self.until - self.now + SECOND));
        let name = |of: &str| ClientWant::Lock(format!("{of}{}", self.now));
        for (owner, of) in [(one, "one"), (two, "two"), (three, "three")] {
            self.plot.ask_as(owner, SERVICE, name(of), (Wait::Forever, lease));
        }
        self.plot.now = begun;
        let limit = Wait::AtMost(millis(wait));
        self.plot.ask_as(two, SERVICE, name("three"), (limit, lease));
        self.plot.ask_as(one, SERVICE, name("two"), (Wait::Forever, lease));
        self.plot.now = begun + wait + self.fault.lasts / 2;
        self.plot.ask_as(three, SERVICE, name("one"), (Wait::Forever, lease));
        Some(())
    }

    pub(super) fn torn_value(&mut self, late: usize, adds: Option<i32>) -> Option<()> {
        let world = self.world;
        let grantor = world.find_grantor(SERVICE)?;
        let here = |ask: &Ask| {
            let call = world.call(*ask);
            call.service.as_str() == SERVICE && call.member != grantor && world.is_up(call.member)
        };
        let opened: Vec<Ask> = world.history().opened().filter(here).collect();
        let nth = |number: usize| {
            opened.get(number % opened.len().max(1)).map(|ask| (*ask, world.call(*ask)))
        };
        let ((writer, writes), (_, hears)) = (nth(late)?, nth(late + 1)?);
        let open = world.name_of(writer)?;
        let are_two = writes.object == hears.object && writes.member != hears.member;
        let spared = self.spared(&[grantor], ShutdownPlan::Dead).filter(|_| are_two)?;
        self.plot.hold(Some(grantor), Some(hears.member), "Value");
        let wanted = match adds {
            Some(by) => ClientWant::Add(open, by),
            None => ClientWant::Put(open, format!("torn{}", self.fault.at)),
        };
        self.plot.ask(writes.member, SERVICE, wanted);
        self.plot.now = self.now + self.fault.lasts / 2;
        self.plot.until = self.until + SECOND;
        self.plot.down(&spared, Step::Crash, Step::Start);
        Some(())
    }
}
