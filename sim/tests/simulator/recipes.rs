//! A share of the runs of `elderlock-sim recipes`, small enough for every test run: `--features
//! recipes`.

use elderlock_sim::recipes::shrink::shrink;
use elderlock_sim::recipes::{RecipePlan, RecipeViolation, ShrunkPlan, WorkloadKind, run};

/// Two runs of a seed are equal, to the last packet and to the order in which tasks go on.
#[test]
fn the_same_seed_of_whole_members_is_the_same_run() {
    for seed in 1..=6 {
        let plan = RecipePlan::draw(seed, &ShrunkPlan::default());
        let (first, again) = (run(&plan, 0, None), run(&plan, 0, None));
        assert_eq!(first.digest, again.digest, "{}", plan.describe());
        assert_ne!(
            first.digest,
            run(&RecipePlan::draw(seed + 100, &ShrunkPlan::default()), 0, None).digest
        );
    }
}

/// Every recipe keeps its promises in a few seeds.
#[test]
fn a_few_seeds_of_each_recipe_break_nothing() {
    for workload in WorkloadKind::ALL {
        for seed in 1..=6 {
            let plan = RecipePlan::draw(seed, &ShrunkPlan::only(workload));
            let run = run(&plan, 60, None);
            assert_eq!(run.broken, None, "{}\n{}", plan.describe(), run.story);
        }
    }
}

/// A plan that breaks loses the parts that the violation does not need. The rest is the plan that
/// its options draw.
#[test]
fn a_break_is_shrunk_to_its_causes() {
    let breaks = |plan: &RecipePlan| {
        let is_fault_there = plan.faults.iter().any(|fault| fault.number == 2);
        let is_enough = plan.sites >= 2
            && plan.workers >= 2
            && plan.span >= 4_000
            && plan.workloads.contains(&WorkloadKind::Locks);
        let what = String::new();
        // Only whole plans break with the luck of the seed.
        let other =
            RecipePlan::draw(plan.seed, &ShrunkPlan { luck: 2, ..ShrunkPlan::default() }).luck;
        let is_unlucky = plan.luck == other || plan.luck == plan.seed && plan.workers > 2;
        (is_fault_there && is_enough && is_unlucky).then_some(RecipeViolation {
            invariant: "no_panic",
            what,
            at: 9_000_000_000,
        })
    };
    let is_broken = |seed: &u64| breaks(&RecipePlan::draw(*seed, &ShrunkPlan::default())).is_some();
    let mut shrunk = 0;
    for seed in (1..2_000).filter(is_broken).take(20) {
        let found = breaks(&RecipePlan::draw(seed, &ShrunkPlan::default())).expect("it was there");
        let cut = shrink(seed, &ShrunkPlan::default(), &found, breaks);
        let small = RecipePlan::draw(seed, &cut);
        assert!(breaks(&small).is_some(), "{cut:?}");
        let kept: Vec<usize> = small.faults.iter().map(|fault| fault.number).collect();
        assert_eq!(
            (kept, small.workloads.as_slice(), small.workers),
            (vec![2], [WorkloadKind::Locks].as_slice(), 2),
            "{cut:?}"
        );
        let lasts = small.faults[0].at + small.faults[0].span;
        assert!(small.span <= lasts.max(9_000), "{cut:?}");
        shrunk += 1;
    }
    assert_eq!(shrunk, 20);
}
