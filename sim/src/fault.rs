//! Faults as values: what, when and for how long. A list of them is a story that can be shrunk.

use crate::chance::Dice;
use crate::network::{MS, SECOND, Weather};
use crate::step::{Rumour, Step};
use crate::world::World;
use elderlock::protocol::View;
use std::time::Duration;

/// Whom a fault hits, looked up when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The member at a place.
    Place(usize),
    /// The elder.
    Elder,
    /// The grantor of the first service.
    Grantor,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The network gets worse for everybody.
    Weather(Weather),
    /// One way between two members is cut.
    CutOneWay(usize, usize),
    /// One way between two members takes so much longer.
    SlowWay(usize, usize, u64),
    /// Both ways are cut.
    Cut(usize, usize),
    /// A member is cut off from everybody.
    Isolate(Target),
    /// The members whose bit is set are cut off from the others.
    Split(u32),
    /// A process is killed, and another is started there at the end.
    Crash(Target),
    /// Elder and grantor are killed at once.
    CrashBoth,
    /// The next process that decides a view is killed before it can tell anyone.
    DieDeciding,
    /// A host fails, and is back at the end.
    Vanish(Target),
    /// A process is stopped, and wakes at the end.
    Pause(Target),
    /// A member says goodbye, and another is started there at the end.
    Leave(Target),
    /// Gossip calls a living member down.
    FalseAlarm(usize, Target),
}

impl What {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            What::Weather(weather) if weather.loss > 0 => "loss",
            What::Weather(weather) if weather.duplicate > 0 => "duplicate",
            What::Weather(weather) if weather.reorder > 0 => "reorder",
            What::Weather(_) => "slow",
            What::CutOneWay(..) => "cut one way",
            What::SlowWay(..) => "slow way",
            What::Cut(..) => "cut",
            What::Isolate(_) => "isolate",
            What::Split(_) => "split",
            What::Crash(_) => "crash",
            What::CrashBoth => "crash both",
            What::DieDeciding => "die deciding",
            What::Vanish(_) => "vanish",
            What::Pause(_) => "pause",
            What::Leave(_) => "leave",
            What::FalseAlarm(..) => "false alarm",
        }
    }
}

/// A fault of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When it begins, in true nanoseconds.
    pub at: u64,
    /// How long it lasts.
    pub lasts: u64,
    /// What it is.
    pub what: What,
}

/// Kinds of faults that a plan may draw from.
pub const KINDS: usize = 16;

impl Fault {
    /// Draws a fault of one kind for a World of `places` members that is disturbed for `span`.
    pub fn draw(dice: &mut Dice, kind: usize, places: usize, span: u64) -> Fault {
        let at = dice.between(SECOND / 2, span);
        let lasts = match dice.below(4) {
            0 => dice.between(20 * MS, 300 * MS),
            1 | 2 => dice.between(300 * MS, 3 * SECOND),
            _ => dice.between(2 * SECOND, 8 * SECOND),
        };
        let place = dice.below(places as u64) as usize;
        let other = (place + 1 + dice.below(places.max(2) as u64 - 1) as usize) % places;
        let target = match dice.below(4) {
            0 => Target::Elder,
            1 => Target::Grantor,
            _ => Target::Place(place),
        };
        let rate = dice.between(10_000, 300_000) as u32;
        let what = match kind {
            0 => What::Weather(Weather { loss: rate, ..Weather::FAIR }),
            1 => What::Weather(Weather { duplicate: rate, ..Weather::FAIR }),
            2 => What::Weather(Weather { reorder: rate, slowest: 30 * MS, ..Weather::FAIR }),
            3 => {
                let spike_by = dice.between(20 * MS, 4 * SECOND);
                What::Weather(Weather { spike: rate, spike_by, slowest: dice.between(MS, 60 * MS), ..Weather::FAIR })
            }
            4 => What::CutOneWay(place, other),
            5 => What::Cut(place, other),
            6 => What::Isolate(target),
            7 => What::Split(dice.between(1, (1 << places) - 2) as u32),
            8 => What::Crash(target),
            9 => What::CrashBoth,
            10 => What::Vanish(target),
            11 => What::Pause(target),
            12 => What::Leave(target),
            13 => What::SlowWay(place, other, dice.between(20 * MS, 2 * SECOND)),
            14 => What::DieDeciding,
            _ => What::FalseAlarm(other, target),
        };
        Fault { at, lasts, what }
    }
}

/// A fault that has begun, with what must be undone.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) until: u64,
    what: What,
    cuts: Vec<(usize, usize)>,
    down: Vec<usize>,
}

impl Active {
    /// The places that it hits.
    pub(crate) fn places(&self, world: &World) -> Vec<usize> {
        let cut = self.cuts.iter().flat_map(|(a, b)| [*a, *b]);
        let mut places: Vec<usize> = self.down.iter().copied().chain(cut).collect();
        match self.what {
            What::Weather(_) => places.extend(world.places()),
            What::SlowWay(from, to, _) => places.extend([from, to]),
            What::FalseAlarm(at, about) => places.extend([Some(at), world.find(about)].into_iter().flatten()),
            _ => {}
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

impl World {
    fn find(&self, target: Target) -> Option<usize> {
        match target {
            Target::Place(place) => Some(place),
            Target::Elder => self.find_elder(),
            Target::Grantor => self.find_grantor(crate::chaos::SERVICES[0]),
        }
    }

    /// Whether these processes may end: a quorum of the latest view lives on (unless the plan is reckless), and so
    /// does a seed that remembers it. Seeds that all start anew at once found a new cluster, as long as nothing is
    /// kept on disk.
    pub(crate) fn can_spare(&self, places: &[usize], reckless: bool) -> bool {
        let Some(view) = self.latest.values().max_by_key(|view| view.number) else { return true };
        let stays = |place: &usize| self.is_alive(*place) && !self.peers[*place].leaving && !places.contains(place);
        let rest: Vec<usize> = self.places().filter(stays).collect();
        let remembers = |place: &usize| {
            let peer = &self.peers[*place];
            // It has to be a member and to know it: a joiner that was taken in but not told still seeks.
            let own = peer.node.as_ref().and_then(|node| node.view());
            let is_in = |of: &View| peer.process().is_some_and(|process| of.contains(process));
            peer.seeds.contains(&peer.addr) && is_in(view) && own.is_some_and(is_in)
        };
        rest.iter().any(remembers) && (reckless || self.is_quorum(view, rest.iter().copied()))
    }

    /// Looks up whom a fault hits, and says what is to be done to them. `None` if it found no victim, or one that
    /// cannot be spared.
    pub(crate) fn begin_fault(&self, fault: &Fault, reckless: bool) -> Option<(Active, Vec<Step>)> {
        let mut steps = Vec::new();
        let mut active = Active { until: fault.at + fault.lasts, what: fault.what, cuts: Vec::new(), down: Vec::new() };
        match fault.what {
            What::Weather(_) => {}
            What::SlowWay(from, to, by) => steps.push(Step::Slow(from, to, Duration::from_nanos(by))),
            What::CutOneWay(a, b) => active.cuts.push((a, b)),
            What::Cut(a, b) => active.cuts.extend([(a, b), (b, a)]),
            What::Isolate(target) => {
                let place = self.find(target)?;
                for other in self.places().filter(|other| *other != place) {
                    active.cuts.extend([(place, other), (other, place)]);
                }
            }
            What::Split(mask) => {
                let left = |place: usize| mask >> place & 1 == 1;
                for a in self.places().filter(|a| left(*a)) {
                    for b in self.places().filter(|b| !left(*b)) {
                        active.cuts.extend([(a, b), (b, a)]);
                    }
                }
            }
            What::Crash(target) => active.down.push(self.find(target)?),
            What::CrashBoth => active.down.extend([self.find(Target::Elder)?, self.find(Target::Grantor)?]),
            What::Vanish(target) => {
                let host = self.peers[self.find(target)?].host;
                active.down.extend(self.places().filter(|place| self.peers[*place].host == host));
            }
            What::Pause(target) | What::Leave(target) => active.down.push(self.find(target)?),
            What::DieDeciding => steps.push(Step::DieDeciding { until: active.until.max(self.now + 4 * SECOND) }),
            What::FalseAlarm(at, about) => {
                let about = self.find(about).filter(|about| *about != at)?;
                self.peers[about].process()?;
                steps.push(Step::Notice { at, about, what: Rumour::Unreachable });
            }
        }
        let ends = matches!(fault.what, What::Crash(_) | What::CrashBoth | What::Vanish(_) | What::Leave(_));
        if ends && !self.can_spare(&active.down, reckless) {
            return None;
        }
        active.down.retain(|place| self.is_alive(*place));
        steps.extend(active.cuts.iter().map(|(from, to)| Step::Cut(*from, *to)));
        for &place in &active.down {
            match fault.what {
                What::Crash(_) | What::CrashBoth => steps.push(Step::Crash(place)),
                What::Vanish(_) => steps.push(Step::Vanish(place)),
                What::Pause(_) => steps.push(Step::Pause(place)),
                What::Leave(_) => steps.push(Step::Leave(place)),
                _ => {}
            }
        }
        Some((active, steps))
    }

    /// What is to be done to end a fault.
    pub(crate) fn end_fault(&self, active: &Active) -> Vec<Step> {
        let mut steps = Vec::new();
        if let What::SlowWay(from, to, _) = active.what {
            steps.push(Step::Slow(from, to, Duration::ZERO));
        }
        steps.extend(active.cuts.iter().map(|(from, to)| Step::Mend(*from, *to)));
        for &place in &active.down {
            match active.what {
                What::Pause(_) => steps.push(Step::Wake(place)),
                _ if !self.is_alive(place) => steps.push(Step::Start(place)),
                _ => {}
            }
        }
        steps
    }

    /// The weather of all faults that go on, over a base.
    pub(crate) fn weather_of(&self, base: Weather, active: &[(usize, Active)]) -> Step {
        Step::Weather(active.iter().fold(base, |weather, (_, active)| match active.what {
            What::Weather(worse) => weather.worse(worse),
            _ => weather,
        }))
    }
}

/// A span for people.
pub(crate) fn millis(nanos: u64) -> Duration {
    Duration::from_millis(nanos / MS)
}
