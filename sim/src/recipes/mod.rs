//! Whole members with the recipes in simulated time, as [`chaos`](crate::chaos) does for the core.
//!
//! Each run is one thread: several [`Member`](elderlock::Member)s as they ship (recipes, service,
//! engine, core), a paused clock, a network of this crate, and workers. The workers use the recipes
//! at random. The seed decides the order of polls, the acts of the workers, the behaviour of the
//! network and the faults. The same seed is the same run.
//!
//! - [`RecipePlan`] is drawn before the run; [`harness`] has the members, their workers and the
//!   faults; the members and their network are those of `elderlock-testing`
//!   ([`Sites`](elderlock_testing::simulation::sites::Sites));
//! - [`workloads`] use a recipe each and report their beliefs to the [`belief_checker`], which
//!   checks them;
//! - [`Tasks`] polls all of them in an order that the seed decides;
//! - [`shrink`](mod@shrink) leaves out the parts of a breaking plan that the violation does not
//!   need.

pub mod belief_checker;
pub mod harness;
pub mod mutants;
pub mod plan;
pub mod shrink;
pub mod workloads;

pub use belief_checker::RecipeViolation;
pub use plan::{RecipePlan, ShrunkPlan};
pub use workloads::WorkloadKind;

use belief_checker::BeliefChecker;
use elderlock::simulated::{RuntimeMutant, Simulation, plant};
use elderlock_testing::simulation::tasks::Tasks;
use harness::ClusterHarness;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RecipeRun {
    /// The digest of the run: equal runs have equal digests.
    pub digest: u64,
    /// The first violation, if any.
    pub broken: Option<RecipeViolation>,
    /// How often each counted act happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The last lines of its story.
    pub story: String,
    /// How long the run took by its own clock, in nanoseconds.
    pub took: u64,
}

/// Runs a plan, with or without a planted break, and keeps `lines` lines of its story.
pub fn run(plan: &RecipePlan, lines: usize, mutant: Option<RuntimeMutant>) -> RecipeRun {
    plant(mutant);
    let told = catch_unwind(AssertUnwindSafe(|| tell(plan, lines)));
    plant(None);
    told.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what
            .or_else(|| panic.downcast_ref::<&str>().map(|what| (*what).to_owned()))
            .unwrap_or_default();
        let broken = Some(RecipeViolation { invariant: "no_panic", what, at: 0 });
        RecipeRun { digest: 0, broken, counts: BTreeMap::new(), story: String::new(), took: 0 }
    })
}

/// The acts that must occur somewhere in a large batch, or the batch shows little.
pub fn acts(only: Option<WorkloadKind>) -> Vec<&'static str> {
    let mut acts = vec![
        "crashes",
        "leaves",
        "pauses",
        "cuts",
        "storms",
        "dropped futures",
        "runs that came to rest",
    ];
    for workload in
        WorkloadKind::ALL.into_iter().filter(|workload| only.is_none_or(|only| only == *workload))
    {
        acts.extend(workload.acts());
    }
    acts
}

fn tell(plan: &RecipePlan, lines: usize) -> RecipeRun {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing of the system");
    runtime.block_on(async {
        // The simulation outlives everything that reads the time.
        let simulation = Rc::new(Simulation::new(plan.luck));
        let clock = simulation.clone();
        let began = simulation.now();
        let checker = Rc::new(BeliefChecker::new(plan.luck, move || clock.now()));
        let (tasks, driver) = Tasks::new(plan.luck, plan.clocks.clone());
        let harness = ClusterHarness::new(plan.clone(), checker.clone(), tasks.clone());
        tasks.begin(None, harness.clone().tell());
        tasks.begin(None, harness.watch());
        driver.await;
        RecipeRun {
            digest: checker.digest(),
            broken: checker.broken(),
            counts: checker.counts(),
            story: checker.story(lines),
            took: simulation.now() - began,
        }
    })
}
