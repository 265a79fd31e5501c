//! The plan that is drawn before a run: the members, their workloads and the faults with their
//! times.

use super::workloads::WorkloadKind;
use crate::chance::{Rng, mix};
use crate::fault::FaultNumbers;
use crate::limits::{self, SMALL_PARTS};
use crate::network::{LinkConditions, MS};
use elderlock::Timing;
use elderlock::protocol::Limits;
use elderlock_testing::simulation::faults::SiteFault;
use elderlock_testing::simulation::sites::FAIR_WEATHER;

/// One fault, with times in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecipeFault {
    /// The time from the end of the founding on.
    pub at: u64,
    /// Its number among all that were drawn.
    pub number: usize,
    /// The kind of the fault.
    pub trouble: SiteFault,
    /// The duration.
    pub span: u64,
}

/// The kept parts of a plan, and how its luck is drawn. The parts that a violation does not need
/// are left out. Each field is an option of the command line.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ShrunkPlan {
    /// This workload and no other.
    pub only: Option<WorkloadKind>,
    /// Sites for members, no more than were drawn.
    pub members: Option<usize>,
    /// The highest number of workers of each workload at each member.
    pub workers: Option<u64>,
    /// Faults, by their numbers.
    pub faults: Option<Vec<usize>>,
    /// How long faults occur, in milliseconds.
    pub span: Option<u64>,
    /// The plan has no small bounds.
    pub plain: bool,
    /// The luck of packets, tasks and workers, if not that of the seed.
    pub luck: u64,
}

impl ShrunkPlan {
    /// This workload and no other.
    pub fn only(workload: WorkloadKind) -> ShrunkPlan {
        ShrunkPlan { only: Some(workload), ..ShrunkPlan::default() }
    }

    /// Options of `elderlock-sim recipes`.
    pub fn args(&self) -> String {
        let mut args = String::new();
        let mut arg = |name, value: Option<String>| {
            if let Some(value) = value {
                args += &format!(" --{name} {value}");
            }
        };
        arg("only", self.only.map(|workload| workload.name().to_owned()));
        arg("members", self.members.map(|members| members.to_string()));
        arg("workers", self.workers.map(|workers| workers.to_string()));
        arg("faults", self.faults.clone().map(|kept| FaultNumbers(kept).to_string()));
        arg("span", self.span.map(|span| span.to_string()));
        arg("luck", (self.luck > 0).then(|| self.luck.to_string()));
        if self.plain {
            args += " --plain";
        }
        args
    }
}

/// A run, before it is run.
#[derive(Clone, PartialEq, Debug)]
pub struct RecipePlan {
    /// The seed, from which everything else follows.
    pub seed: u64,
    /// The seed of the luck of packets, tasks and workers.
    pub luck: u64,
    /// Sites for members.
    pub sites: usize,
    /// How long faults occur, in milliseconds.
    pub span: u64,
    /// The millionths by which each site's clock is too fast: inside the bound that members rely
    /// on.
    pub clocks: Vec<i32>,
    /// Bounds and sizes of each member.
    pub limits: Limits,
    /// Whether other members see the end of a process for certain.
    pub vouched: bool,
    /// Whether members keep locks after their release.
    pub keeps: bool,
    /// The workloads of the workers.
    pub workloads: Vec<WorkloadKind>,
    /// The highest number of workers of each workload at each member.
    pub workers: u64,
    /// The faults in the order of their beginnings.
    pub faults: Vec<RecipeFault>,
}

impl RecipePlan {
    /// The run of this seed, reduced by `cut`.
    pub fn draw(seed: u64, cut: &ShrunkPlan) -> RecipePlan {
        let rng = &mut Rng::new(seed, 1);
        let sites = rng.between(3, 5) as usize;
        let span = rng.between(8_000, 20_000);
        let mut workloads = Vec::new();
        for _ in 0..rng.between(1, 3) {
            let workload = *rng.pick(&WorkloadKind::ALL);
            if !workloads.contains(&workload) {
                workloads.push(workload);
            }
        }
        if let Some(only) = cut.only {
            workloads = vec![only];
        }
        let mut faults: Vec<RecipeFault> =
            (0..rng.between(3, 9)).map(|_| RecipeFault::draw(rng, sites, span)).collect();
        faults.sort_by_key(|fault| fault.at);
        let vouched = rng.chance(500_000);
        let mut clocks = vec![0; sites];
        if rng.chance(500_000) {
            clocks.fill_with(|| rng.between(0, 2 * CLOCK_ERROR) as i32 - CLOCK_ERROR as i32);
        }
        for (number, fault) in faults.iter_mut().enumerate() {
            fault.number = number;
        }
        let sites = cut.members.map_or(sites, |members| members.clamp(1, sites));
        let span = cut.span.map_or(span, |cut| cut.min(span));
        let is_left = |number| cut.faults.as_ref().is_none_or(|faults| faults.contains(&number));
        faults.retain(|fault| {
            is_left(fault.number) && fault.at < span && fault.trouble.is_among(sites)
        });
        let luck = if cut.luck == 0 { seed } else { mix(&[seed, cut.luck]) };
        clocks.truncate(sites);
        let limits = if cut.plain { SMALL_PARTS } else { limits::draw(&mut Rng::new(seed, 2)) };
        let keeps = !cut.plain && Rng::new(seed, 3).chance(KEEPS);
        let workers = cut.workers.unwrap_or(u64::MAX);
        RecipePlan {
            seed,
            luck,
            sites,
            span,
            clocks,
            limits,
            vouched,
            keeps,
            workloads,
            workers,
            faults,
        }
    }

    /// Describes the plan: a line for the members, and a line for each further part.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "seed {}: {} members, {} ms, {}, deaths are {}, clocks too fast by {:?} millionths\n",
            self.seed,
            self.sites,
            self.span,
            self.workloads.iter().map(|workload| workload.name()).collect::<Vec<_>>().join(" and "),
            if self.vouched { "seen" } else { "found out" },
            self.clocks,
        );
        if self.keeps {
            text += "  members keep locks\n";
        }
        if self.limits != SMALL_PARTS {
            text += &format!("  limits{}\n", limits::write(self.limits));
        }
        for fault in &self.faults {
            text += &format!(
                "  fault {} at {} ms for {} ms: {:?}\n",
                fault.number, fault.at, fault.span, fault.trouble
            );
        }
        text
    }
}

impl RecipeFault {
    fn draw(rng: &mut Rng, sites: usize, span: u64) -> RecipeFault {
        let site = rng.below(sites as u64) as usize;
        let other = (site + 1 + rng.below(sites as u64 - 1) as usize) % sites;
        let (trouble, low, high) = match rng.below(100) {
            0..=24 => (SiteFault::Crash(site), 10, 6_000),
            25..=36 => (SiteFault::Leave(site), 10, 3_000),
            37..=52 => (SiteFault::Pause(site), 50, 6_000),
            53..=67 => (SiteFault::Isolate(site), 100, 6_000),
            68..=76 => (SiteFault::OneWay(site, other), 100, 5_000),
            77..=86 => (SiteFault::Split(rng.between(1, (1 << sites) - 2) as u32), 100, 5_000),
            _ => (SiteFault::Storm(storm(rng)), 500, 5_000),
        };
        RecipeFault { at: rng.below(span), number: 0, trouble, span: rng.between(low, high) }
    }
}

/// The runs in a million in which members keep locks.
const KEEPS: u32 = 300_000;
/// The highest error of clocks, in millionths: a little less than the bound that members rely on.
const CLOCK_ERROR: u64 = Timing::fast().clock_error_ppm as u64 - 500;

fn storm(rng: &mut Rng) -> LinkConditions {
    LinkConditions {
        loss: rng.between(0, 150_000) as u32,
        duplicate: rng.between(0, 50_000) as u32,
        reorder: rng.between(0, 100_000) as u32,
        slowest: rng.between(4, 60) * MS,
        spike: 50_000,
        spike_by: 300 * MS,
        ..FAIR_WEATHER
    }
}
