//! A run that was written down is the same run when it is told again.

use elderlock_sim::chaos::{Plan, run_seed};

/// The log of a run says everything that was done in it.
#[test]
fn replaying_the_log_of_a_run_gives_the_same_run() {
    for seed in 1..=12 {
        let run = run_seed(&Plan::draw(seed, (3, 7)), |world| world);
        let again = run.log.replay(run.log.scene.world().untraced());
        assert_eq!(again.digest(), run.world.digest(), "seed {seed}");
        assert_eq!(again.events(), run.world.events(), "seed {seed}");
    }
}
