//! Shrinking: of the faults of a broken run, those that it takes.

use crate::chaos::{Plan, run_seed};
use crate::world::World;

/// Runs spent on shrinking at most.
const MAX_RUNS: usize = 200;

/// Leaves faults out, first many and then single ones, as long as the same invariant breaks.
pub fn shrink(plan: &Plan, invariant: &str, prepare: impl Fn(World) -> World) -> Plan {
    let breaks = |kept: &[usize]| {
        run_seed(&plan.only(kept), &prepare).world.broken().is_some_and(|found| found.invariant == invariant)
    };
    let mut kept = plan.kept.clone();
    let mut chunk = kept.len();
    let mut runs = 0;
    while chunk > 0 {
        let mut start = 0;
        while start < kept.len() && runs < MAX_RUNS {
            let rest: Vec<usize> =
                kept[..start].iter().chain(&kept[(start + chunk).min(kept.len())..]).copied().collect();
            runs += 1;
            if breaks(&rest) {
                kept = rest;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    plan.only(&kept)
}
