//! Tapes: bytes from outside, read as a run. A fuzzer varies them and keeps those that lead the
//! core to new states. So they find states that random draws hardly reach.
//!
//! Every tape is a run: the first bytes make the World, and each further one is a step with the
//! bytes that it needs. Impossible steps are left out. When the tape is over, everything heals, and
//! everything must work.

use crate::history::Ask;
use crate::kind::KINDS;
use crate::log::{Log, Scene};
use crate::network::{LinkConditions, MS, SECOND};
use crate::quorum::ShutdownPlan;
use crate::step::{ClientWant, OutsideHint, PacketFilter, Step};
use crate::world::World;
use elderlock::protocol::Wait;
use std::time::Duration;

/// Steps of one tape: enough for a meaningful run, few enough for hundreds of tapes in a second.
const MAX_STEPS: usize = 250;
/// The longest virtual time of a tape: some leases.
const MAX_SPAN: u64 = 12 * SECOND;
/// Requests of one member at a time.
const MAX_OPEN: usize = 8;

/// The pauses after a step, in milliseconds: mostly none or the time of a message.
const PAUSES: [u64; 8] = [0, 0, 0, 1, 2, 10, 60, 250];
/// Longer times, in milliseconds.
const SPANS: [u64; 8] = [5, 20, 80, 300, 700, 1_200, 2_600, 4_000];

/// The result of a tape.
#[derive(Debug)]
pub struct TapeResult {
    /// The World at the end.
    pub world: World,
    /// The log of the run, which can be replayed without the tape.
    pub log: Log,
    /// Whether everything could be demanded at the end, and held.
    pub complete: bool,
}

/// Bytes, read from the front.
struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number below `limit`; 0 when the tape is over.
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.next().unwrap_or_default()) % limit.max(1)
    }

    fn is(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }

    fn span(&mut self) -> Duration {
        Duration::from_millis(SPANS[self.below(SPANS.len())])
    }

    fn scene(&mut self) -> Scene {
        // Most tapes have three founders. Such runs are seven times as fast as runs of five
        // founders and two joiners, and most faults matter with three.
        let founders = [3, 3, 3, 3, 3, 2, 4, 5][self.below(8)];
        let joiners = [0, 0, 0, 0, 1, 1, 1, 2][self.below(8)];
        let sites = founders + joiners;
        let shared = self.is(4);
        let skewed = self.is(2);
        Scene {
            founders,
            joiners,
            council: if self.is(4) { 3 } else { 7 },
            hosts: (0..sites as u32).map(|site| if shared { site % 2 } else { site }).collect(),
            // The rates are just inside the bound of 20,000, to either side.
            clocks: (0..sites)
                .map(|site| if skewed { [-19_500, 19_500, 0][site % 3] } else { 0 })
                .collect(),
            hints: !self.is(4),
            ..Scene::new(self.below(256) as u64)
        }
    }

    fn packets(&mut self, sites: usize) -> PacketFilter {
        // The number behind the last site stands for any site.
        let some = |at: usize| (at < sites).then_some(at);
        let kind = self.below(KINDS.len() + 1);
        PacketFilter {
            from: some(self.below(sites + 1)),
            to: some(self.below(sites + 1)),
            kind: KINDS.get(kind).copied(),
        }
    }
}

/// Runs a tape in a World that keeps no trace.
pub fn tell(bytes: &[u8], prepare: impl Fn(World) -> World) -> TapeResult {
    let mut tape = Tape(bytes);
    let scene = tape.scene();
    let world = prepare(scene.world().untraced());
    let mut told =
        TapeResult { world, log: Log { scene, steps: Vec::new(), end: 0 }, complete: false };
    // The founders are started.
    told.world.run_for(Duration::from_millis(1));
    while told.log.steps.len() < MAX_STEPS
        && told.world.now < MAX_SPAN
        && told.world.broken().is_none()
    {
        let Some(op) = tape.next() else { break };
        told.step(op % 32, &mut tape);
        told.world.run_to(told.world.now + PAUSES[usize::from(op / 32)] * MS);
    }
    if told.world.broken().is_none() {
        told.complete = told.apply(Step::Restore);
    }
    told.log.end = told.world.now;
    told
}

impl TapeResult {
    fn apply(&mut self, step: Step) -> bool {
        self.log.steps.push((self.world.now, step));
        let (_, step) = &self.log.steps[self.log.steps.len() - 1];
        self.world.apply(step)
    }

    fn step(&mut self, op: u8, tape: &mut Tape<'_>) {
        let sites = self.world.sites().len();
        let site = tape.below(sites);
        let step = match op {
            0..3 => return self.world.run_for(tape.span()),
            3..10 => return self.ask(site, tape),
            10..16 => {
                let calls = self.world.history().calls.len();
                // The last calls matter most, so they are counted from the end.
                let Some(call) = calls.checked_sub(1 + tape.below(calls.min(MAX_OPEN * sites)))
                else {
                    return;
                };
                if !self.world.is_up(self.world.call(Ask(call)).member) {
                    return;
                }
                match op {
                    10 | 11 => Step::Release(call),
                    12 => Step::Cancel(call),
                    13 => Step::Extend(call, tape.span()),
                    14 if tape.is(2) => Step::Fence(call),
                    14 => Step::Write(call),
                    _ => Step::WriteEarlier(call),
                }
            }
            16 => return self.end(Step::Crash(site), &[site]),
            17 => return self.end(Step::Leave(site), &[site]),
            18 => {
                let host = |site: usize| self.world.sites[site].host;
                let there: Vec<usize> =
                    self.world.sites().filter(|other| host(*other) == host(site)).collect();
                return self.end(Step::Vanish(site), &there);
            }
            19 | 20 => Step::Start(site),
            21 => Step::Pause(site),
            22 => Step::Wake(site),
            23 => {
                let other = tape.below(sites);
                let cut = if tape.is(2) { Step::Mend } else { Step::Cut };
                cut(site, other)
            }
            24 => {
                // The site is cut off from the sites with set bits, both ways.
                let others = tape.next().unwrap_or_default();
                for other in (0..sites).filter(|other| *other != site && others >> other & 1 == 1) {
                    self.apply(Step::Cut(site, other));
                    self.apply(Step::Cut(other, site));
                }
                return;
            }
            25 => Step::Heal,
            26 => match tape.packets(sites) {
                packets if tape.is(2) => Step::LetGo(packets),
                packets => Step::Hold(packets),
            },
            27 => Step::DropNext(tape.packets(sites)),
            28 => Step::Lose(tape.below(32)),
            29 => match tape.below(32) {
                number if tape.is(2) => Step::Double(number),
                number => Step::Deliver(number),
            },
            30 => {
                let at = tape.below(sites);
                let what =
                    if tape.is(4) { OutsideHint::Connected } else { OutsideHint::Unreachable };
                if at == site {
                    return;
                }
                Step::Notice { at, about: site, what }
            }
            _ => {
                let rate = 50_000 * (1 + tape.below(6) as u32);
                let span = tape.span();
                match tape.below(6) {
                    0 => Step::Weather(LinkConditions { loss: rate, ..LinkConditions::FAIR }),
                    1 => Step::Weather(LinkConditions { duplicate: rate, ..LinkConditions::FAIR }),
                    2 => Step::Weather(LinkConditions {
                        reorder: rate,
                        slowest: 30 * MS,
                        ..LinkConditions::FAIR
                    }),
                    3 => Step::Weather(LinkConditions {
                        spike: rate,
                        spike_by: span.as_nanos() as u64,
                        ..LinkConditions::FAIR
                    }),
                    4 => Step::Slow(site, tape.below(sites), span),
                    _ => Step::DieDeciding { until: self.world.now + 4 * SECOND },
                }
            }
        };
        self.apply(step);
    }

    fn ask(&mut self, site: usize, tape: &mut Tape<'_>) {
        let history = self.world.history();
        let open = history.open().chain(history.claims());
        if !self.world.is_up(site)
            || open.filter(|ask| self.world.call(*ask).member == site).count() >= MAX_OPEN
        {
            return;
        }
        let (service, name) =
            [("stock", "a"), ("stock", "b"), ("till", "a"), ("till", "b")][tape.below(4)];
        let wait = match tape.below(4) {
            0 => Wait::Try,
            1 => Wait::AtMost(tape.span()),
            _ => Wait::Forever,
        };
        let lease = tape.is(3).then(|| tape.span());
        let call = history.calls.len();
        let wanted = ClientWant::Lock(name.into());
        self.apply(Step::Ask {
            call,
            site,
            service: service.into(),
            wanted,
            owner: 0,
            says: String::new(),
            wait,
            lease,
        });
    }

    /// Applies a step that ends the processes at these sites, if the cluster can go on without
    /// them.
    fn end(&mut self, step: Step, sites: &[usize]) {
        let how =
            if matches!(step, Step::Leave(_)) { ShutdownPlan::Gone } else { ShutdownPlan::Dead };
        if self.world.can_spare(sites, how, false) {
            self.apply(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Rng;

    fn tapes() -> impl Iterator<Item = Vec<u8>> {
        (0..40).map(|seed| {
            let mut rng = Rng::new(seed, 0);
            (0..150).map(|_| rng.roll() as u8).collect()
        })
    }

    #[test]
    fn a_tape_is_the_same_story_each_time() {
        let (mut grants, mut complete) = (0, 0);
        for tape in tapes() {
            let told = tell(&tape, |world| world);
            assert_eq!(
                told.world.broken().map(|found| &found.what),
                None,
                "{}",
                told.log.to_script()
            );
            assert_eq!(tell(&tape, |world| world).world.digest(), told.world.digest());
            grants += told.world.history().grants;
            complete += u32::from(told.complete);
        }
        // The runs use locks, and most of them can be healed.
        assert!(grants > 400 && complete > 30, "{grants} grants, {complete} complete");
    }

    #[test]
    fn a_tape_is_told_again_by_its_log() {
        for tape in tapes().take(10) {
            let told = tell(&tape, |world| world);
            let again = told.log.replay(told.log.scene.world().untraced());
            assert_eq!(again.digest(), told.world.digest());
        }
    }
}
