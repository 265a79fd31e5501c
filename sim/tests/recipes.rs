//! A share of what `elderlock-sim recipes` runs, small enough for every test run: `--features recipes`.

use elderlock_sim::recipes::{Plan, run};

/// The same seed is the same run, to the last packet and to the order in which tasks go on.
#[test]
fn the_same_seed_of_whole_members_is_the_same_run() {
    for seed in 1..=4 {
        let plan = Plan::draw(seed, None);
        let (first, again) = (run(&plan, 40, None), run(&plan, 40, None));
        assert_eq!(first.broken, None, "{}\n{}", plan.describe(), first.story);
        assert_eq!(first.digest, again.digest, "seed {seed}");
        println!("{seed}: {:?} {} ms", first.counts, first.took / 1_000_000);
        assert_ne!(first.digest, run(&Plan::draw(seed + 100, None), 0, None).digest);
    }
}
