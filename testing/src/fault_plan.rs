//! `FaultPlan`: the faults of a run, drawn from its seed before it begins.

use crate::simulation::chance::Rng;
use crate::simulation::faults::SiteFault;
use crate::simulation::network::{LinkConditions, MS};
use crate::simulation::sites::FAIR_WEATHER;
use elderlock::Timing;
use std::fmt;
use std::time::Duration;

/// The fewest and the most faults of a run.
const FAULTS: (u64, u64) = (2, 8);

/// A fault with its times, counted from the instant at which every member has joined.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PlannedFault {
    /// The number of the fault among all drawn faults.
    pub(crate) number: usize,
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: SiteFault,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlannedFault { number, at, lasts, fault } = self;
        write!(
            f,
            "fault {number} at {:.3} s for {:.3} s: {fault}",
            at.as_secs_f64(),
            lasts.as_secs_f64()
        )
    }
}

/// The faults of a run, drawn from its seed before it begins.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FaultPlan {
    /// The time in which faults occur. Then all of them end.
    pub(crate) span: Duration,
    /// Whether the other members are told of the end of a process, as by a witness on its host.
    pub(crate) vouched: bool,
    /// The faults in the order of their beginnings.
    pub(crate) faults: Vec<PlannedFault>,
}

impl FaultPlan {
    /// Draws the faults of this seed.
    pub(crate) fn draw(seed: u64, members: usize, timing: Timing, span: Duration) -> FaultPlan {
        let rng = &mut Rng::new(seed, 1);
        let vouched = rng.chance(500_000);
        let count = rng.between(FAULTS.0, FAULTS.1);
        let drawn = |_| draw_one(rng, members as u64, timing, millis(span));
        let mut faults: Vec<PlannedFault> = (0..count).map(drawn).collect();
        faults.retain(|fault| fault.fault.is_among(members));
        faults.sort_by_key(|fault| fault.at);
        for (number, fault) in faults.iter_mut().enumerate() {
            fault.number = number;
        }
        FaultPlan { span, vouched, faults }
    }

    /// Returns the plan with only the faults of these numbers.
    pub(crate) fn only(&self, numbers: &[usize]) -> FaultPlan {
        let mut plan = self.clone();
        plan.faults.retain(|fault| numbers.contains(&fault.number));
        plan
    }

    /// The numbers of the plan's faults.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.faults.iter().map(|fault| fault.number).collect()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn draw_one(rng: &mut Rng, members: u64, timing: Timing, span: u64) -> PlannedFault {
    let lease = millis(timing.member_lease);
    let site = rng.below(members) as usize;
    let other = (site + 1 + rng.below(members - 1) as usize) % members as usize;
    let (fault, shortest, longest) = match rng.below(100) {
        0..=17 => (SiteFault::Crash(site), 10, 2 * lease),
        18..=25 => (SiteFault::Leave(site), 10, lease),
        // A lock without a fence does not survive this fault.
        26..=51 => (SiteFault::Pause(site), 50, 3 * lease),
        52..=67 => (SiteFault::Isolate(site), 100, 3 * lease),
        68..=75 => (SiteFault::OneWay(site, other), 100, 2 * lease),
        76..=83 => {
            let mask = rng.between(1, (1_u64 << members).saturating_sub(2)) as u32;
            (SiteFault::Split(mask), 100, 2 * lease)
        }
        84..=89 => (SiteFault::Slow(site, rng.between(5, lease / 8)), 500, 2 * lease),
        _ => (SiteFault::Storm(storm(rng, timing)), 500, 2 * lease),
    };
    PlannedFault {
        number: 0,
        at: Duration::from_millis(rng.below(span)),
        lasts: Duration::from_millis(rng.between(shortest, longest)),
        fault,
    }
}

fn storm(rng: &mut Rng, timing: Timing) -> LinkConditions {
    LinkConditions {
        loss: rng.between(0, 150_000) as u32,
        duplicate: rng.between(0, 50_000) as u32,
        reorder: rng.between(0, 100_000) as u32,
        slowest: rng.between(4, 60) * MS,
        spike: 50_000,
        spike_by: millis(timing.retry) * 2 * MS,
        ..FAIR_WEATHER
    }
}
