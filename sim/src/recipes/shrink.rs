//! Shrinking: reduces a breaking run to the parts that the violation needs. It leaves out
//! workloads, faults, members, workers and time, as long as the same invariant breaks. A smaller
//! plan has fewer packets, and the remaining ones have another luck. So each remainder is tried
//! with some other lucks as well, and the luck with which it breaks is kept.

use super::belief_checker::RecipeViolation;
use super::plan::{RecipePlan, ShrunkPlan};
use crate::reduce::reduce;

/// Runs spent at most.
const MAX_RUNS: usize = 400;
/// The number of other lucks with which a remainder is tried.
const LUCKS: u64 = 3;

/// Shrinks the run of `seed` and `cut`, which broke as `found`. `run` gives the violation of a run.
pub fn shrink(
    seed: u64,
    cut: &ShrunkPlan,
    found: &RecipeViolation,
    run: impl FnMut(&RecipePlan) -> Option<RecipeViolation>,
) -> ShrunkPlan {
    let mut shrinking =
        Shrinking { seed, cut: cut.clone(), found: found.clone(), runs: MAX_RUNS, run };
    loop {
        let before = shrinking.cut.clone();
        shrinking.once();
        if shrinking.cut == before || shrinking.runs == 0 {
            return shrinking.cut;
        }
    }
}

struct Shrinking<F> {
    seed: u64,
    /// The smallest breaking plan so far, and its violation.
    cut: ShrunkPlan,
    found: RecipeViolation,
    runs: usize,
    run: F,
}

impl<F: FnMut(&RecipePlan) -> Option<RecipeViolation>> Shrinking<F> {
    /// Returns whether the remainder still breaks. If it does, it becomes the smallest plan.
    fn suffices(&mut self, rest: ShrunkPlan) -> bool {
        for luck in 0..=LUCKS {
            if self.runs == 0 {
                return false;
            }
            self.runs -= 1;
            // The luck that broke last is tried first.
            let luck = if luck == 0 { self.cut.luck } else { luck };
            let rest = ShrunkPlan { luck, ..rest.clone() };
            let broken = (self.run)(&RecipePlan::draw(self.seed, &rest));
            if let Some(broken) = broken.filter(|broken| broken.invariant == self.found.invariant) {
                (self.cut, self.found) = (rest, broken);
                return true;
            }
        }
        false
    }

    fn plan(&self) -> RecipePlan {
        RecipePlan::draw(self.seed, &self.cut)
    }

    fn once(&mut self) {
        if !self.cut.plain {
            self.suffices(ShrunkPlan { plain: true, ..self.cut.clone() });
        }
        let workloads = self.plan().workloads;
        if workloads.len() > 1 {
            let _ = workloads.iter().any(|workload| {
                self.suffices(ShrunkPlan { only: Some(*workload), ..self.cut.clone() })
            });
        }
        let faults: Vec<usize> = self.plan().faults.iter().map(|fault| fault.number).collect();
        let mut steps = MAX_RUNS;
        reduce(&faults, &mut steps, |kept| {
            self.suffices(ShrunkPlan { faults: Some(kept.to_vec()), ..self.cut.clone() })
        });
        for workers in 1..self.plan().workers.min(4) {
            if self.suffices(ShrunkPlan { workers: Some(workers), ..self.cut.clone() }) {
                break;
            }
        }
        for members in 1..self.plan().sites {
            if self.suffices(ShrunkPlan { members: Some(members), ..self.cut.clone() }) {
                break;
            }
        }
        // A violation before the healing needs no time after it. Otherwise a part of the time may
        // suffice, or the time of the faults.
        let until = self.found.at / 1_000_000;
        let faults =
            self.plan().faults.iter().map(|fault| fault.at + fault.span).max().unwrap_or_default();
        for span in [until, faults, self.plan().span / 2, self.plan().span * 3 / 4] {
            if span < self.plan().span {
                self.suffices(ShrunkPlan { span: Some(span), ..self.cut.clone() });
            }
        }
    }
}
