//! A share of what `elderlock-sim recipes` runs, small enough for every test run: `--features recipes`.

use elderlock_sim::recipes::{Cast, Plan, run};

/// The same seed is the same run, to the last packet and to the order in which tasks go on.
#[test]
fn the_same_seed_of_whole_members_is_the_same_run() {
    for seed in 1..=6 {
        let plan = Plan::draw(seed, None);
        let (first, again) = (run(&plan, 0, None), run(&plan, 0, None));
        assert_eq!(first.digest, again.digest, "{}", plan.describe());
        assert_ne!(first.digest, run(&Plan::draw(seed + 100, None), 0, None).digest);
    }
}

/// Every recipe holds what it promises in a few seeds.
#[test]
fn a_few_seeds_of_each_recipe_break_nothing() {
    for cast in Cast::ALL {
        for seed in 1..=6 {
            let plan = Plan::draw(seed, Some(cast));
            let run = run(&plan, 60, None);
            assert_eq!(run.broken, None, "{}\n{}", plan.describe(), run.story);
        }
    }
}
