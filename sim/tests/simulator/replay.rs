//! The written record of a run gives the same run again.

use elderlock::wire::VERSIONS;
use elderlock_sim::World;
use elderlock_sim::chaos::{ChaosPlan, run_seed};
use elderlock_sim::script::ScriptRunner;

fn first_with_the_release_before() -> u64 {
    let is_one =
        |plan: &ChaosPlan| !plan.older.is_empty() && plan.older_highest == VERSIONS.highest - 1;
    let mut seeds = 3_000_000..4_000_000;
    seeds.find(|seed| is_one(&ChaosPlan::draw(*seed, (3, 7)))).expect("half of them are")
}

/// The log of a run contains everything that was done in it, as values and as text.
#[test]
fn replaying_the_written_log_of_a_run_gives_the_same_run() {
    // Seed 14 has a fault that waits for the moment in which a recovery begins. The last one has
    // members of the release before.
    for seed in [2, 14, first_with_the_release_before()] {
        let run = run_seed(&ChaosPlan::draw(seed, (3, 7)), |world| world);
        assert!(run.log.steps.len() > 100);
        let again = run.log.replay(run.log.scene.world().untraced());
        assert_eq!(again.digest(), run.world.digest(), "seed {seed}");
        let script = run.log.to_script();
        let mut runner = ScriptRunner::new(World::untraced);
        let told = runner.run_script(&script).unwrap();
        assert_eq!(runner.world().digest(), run.world.digest(), "seed {seed} as text:\n{script}");
        // The answers in the text do not change the run, and are the same again.
        assert_eq!(
            ScriptRunner::new(World::untraced).run_script(&told).unwrap(),
            told,
            "seed {seed} a second time"
        );
    }
}
