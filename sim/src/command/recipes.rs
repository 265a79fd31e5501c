//! `recipes`: whole members with the recipes in simulated time, on all cores of the machine. Needs
//! the feature `recipes`.

use elderlock_sim::fault::FaultNumbers;
#[cfg(not(feature = "recipes"))]
use std::process::ExitCode;

/// The options of `recipes`.
#[derive(Debug, clap::Args)]
#[cfg_attr(
    not(feature = "recipes"),
    allow(dead_code, reason = "the same command line in every build")
)]
pub(crate) struct RecipeOptions {
    /// How many seeds.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Play only this workload.
    #[arg(long, value_name = "CAST")]
    only: Option<String>,
    /// At most this many members.
    #[arg(long)]
    members: Option<usize>,
    /// At most this many workers of each workload at each member.
    #[arg(long)]
    workers: Option<u64>,
    /// Only these faults of each plan, by their numbers; or "none".
    #[arg(long)]
    faults: Option<FaultNumbers>,
    /// Faults occur for at most this many milliseconds.
    #[arg(long)]
    span: Option<u64>,
    /// Draw no small bounds.
    #[arg(long)]
    plain: bool,
    /// Draw the luck of packets, tasks and workers anew, by this number; 0: the luck of the seed.
    #[arg(long, default_value_t = 0)]
    luck: u64,
    /// How many lines of its story are printed for a violation.
    #[arg(long, default_value_t = 60)]
    trace: usize,
    /// Go on after a violation and name each violation; shrink none.
    #[arg(long)]
    keep_going: bool,
    /// Plant breaks and check that each is found. Needs RUSTFLAGS="--cfg elderlock_mutants".
    #[arg(long)]
    mutants: bool,
    /// Plant this break. With `--mutants`: search for these breaks only.
    #[arg(long, value_name = "BREAK", value_delimiter = ',')]
    mutant: Vec<String>,
}

#[cfg(not(feature = "recipes"))]
pub(crate) fn run(_: &RecipeOptions) -> ExitCode {
    eprintln!(
        "the recipes are in a build of their own: cargo run -p elderlock-sim --features recipes -- \
         recipes"
    );
    ExitCode::from(2)
}

#[cfg(feature = "recipes")]
pub(crate) use driver::run;

#[cfg(feature = "recipes")]
mod driver {
    use super::RecipeOptions;
    use crate::command::lock;
    use elderlock::simulated::RuntimeMutant;
    use elderlock_sim::recipes::{
        self, RecipePlan, RecipeRun, RecipeViolation, ShrunkPlan, WorkloadKind, mutants,
    };
    use elderlock_sim::seeds::on_all_cores;
    use std::collections::BTreeMap;
    use std::process::ExitCode;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    /// Of this number of seeds one is run twice; both runs must be equal.
    const TWICE_EVERY: u64 = 16;
    /// The number of seeds from which on all acts of the workers must have occurred.
    const TELLING_SEEDS: u64 = 200;
    /// The highest percentage of the runs of a telling batch that may lose their quorum.
    const LOST_PERCENT: u64 = 5;
    /// Seeds spent on one planted break at most.
    const HUNT: u64 = 600;

    pub(crate) fn run(options: &RecipeOptions) -> ExitCode {
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
        let only = match options.only.as_deref().map(WorkloadKind::find).transpose() {
            Ok(only) => only,
            Err(error) => return wrong(&error),
        };
        match options.mutant.iter().map(|name| mutants::find(name)).collect::<Result<Vec<_>, _>>() {
            Err(error) => wrong(&error),
            Ok(mutants) if options.mutants => hunt_all(options, &mutants),
            Ok(mutants) => batch(options, &options.cut(only), mutants.first().copied()),
        }
    }

    impl RecipeOptions {
        fn cut(&self, only: Option<WorkloadKind>) -> ShrunkPlan {
            let faults = self.faults.clone().map(|faults| faults.0);
            let (members, workers, span, plain, luck) =
                (self.members, self.workers, self.span, self.plain, self.luck);
            ShrunkPlan { only, members, workers, faults, span, plain, luck }
        }
    }

    fn wrong(error: &str) -> ExitCode {
        eprintln!("{error}");
        ExitCode::from(2)
    }

    fn batch(options: &RecipeOptions, cut: &ShrunkPlan, mutant: Option<RuntimeMutant>) -> ExitCode {
        let started = Instant::now();
        let counts: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
        let breaks: Mutex<BTreeMap<u64, RecipeRun>> = Mutex::default();
        let (runs, simulated) = (AtomicU64::new(0), AtomicU64::new(0));
        on_all_cores(options.from, options.seeds, |seed| {
            let plan = RecipePlan::draw(seed, cut);
            let mut run = recipes::run(&plan, options.trace, mutant);
            if seed.is_multiple_of(TWICE_EVERY)
                && recipes::run(&plan, 0, mutant).digest != run.digest
            {
                let what = "the same seed went another way".to_owned();
                run.broken.get_or_insert(RecipeViolation { invariant: "determinism", what, at: 0 });
            }
            runs.fetch_add(1, Ordering::Relaxed);
            simulated.fetch_add(run.took, Ordering::Relaxed);
            for (what, count) in &run.counts {
                *lock(&counts).entry(what).or_default() += count;
            }
            if run.broken.is_some() {
                lock(&breaks).insert(seed, run);
            }
            !options.keep_going && !lock(&breaks).is_empty()
        });
        let (counts, breaks) = (lock(&counts), lock(&breaks));
        let (runs, simulated) = (runs.into_inner(), simulated.into_inner() / 1_000_000_000);
        let took = started.elapsed().as_secs_f64();
        println!("{runs} runs from seed {} on, {simulated} s in {took:.1} s", options.from);
        for (what, count) in counts.iter() {
            println!("  {what:<32} {count:>8}");
        }
        for (seed, run) in breaks.iter() {
            let Some(found) = &run.broken else { continue };
            if breaks.first_key_value().is_some_and(|(first, _)| first == seed) {
                tell(*seed, cut, found, options, mutant);
            }
            println!("seed {seed} breaks {}: {}", found.invariant, found.what);
            println!("  again: {}", again(*seed, cut, mutant));
        }
        let undone: Vec<&str> =
            recipes::acts(cut.only).into_iter().filter(|act| !counts.contains_key(act)).collect();
        let is_mute = runs >= TELLING_SEEDS && !undone.is_empty();
        if is_mute {
            println!("these never happened: {}", undone.join(", "));
        }
        let lost = counts.get("quorums lost").copied().unwrap_or_default();
        let are_lost = runs >= TELLING_SEEDS && lost * 100 > runs * LOST_PERCENT;
        if are_lost {
            println!("{lost} runs lost their quorum: they say nothing about the end");
        }
        if breaks.is_empty() && !is_mute && !are_lost {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// The command that runs the shrunk plan again.
    fn again(seed: u64, cut: &ShrunkPlan, mutant: Option<RuntimeMutant>) -> String {
        let mutant = mutant.map(|mutant| format!(" --mutant {mutant:?}")).unwrap_or_default();
        format!("elderlock-sim recipes --seeds 1 --from {seed}{}{mutant} --trace 400", cut.args())
    }

    /// Prints the story of a violation, shrunk first.
    fn tell(
        seed: u64,
        cut: &ShrunkPlan,
        found: &RecipeViolation,
        options: &RecipeOptions,
        mutant: Option<RuntimeMutant>,
    ) {
        let is_same = |run: &RecipeRun| {
            run.broken.as_ref().is_some_and(|broken| broken.invariant == found.invariant)
        };
        let small = match options.keep_going {
            true => cut.clone(),
            false => shrunk(seed, cut, found, mutant),
        };
        let plan = RecipePlan::draw(seed, &small);
        let run = recipes::run(&plan, options.trace, mutant);
        println!("{}\n{}", run.story, plan.describe());
        if small != *cut && is_same(&run) {
            println!("shrunk: {}", again(seed, &small, mutant));
        }
    }

    fn shrunk(
        seed: u64,
        cut: &ShrunkPlan,
        found: &RecipeViolation,
        mutant: Option<RuntimeMutant>,
    ) -> ShrunkPlan {
        let mut runs = 0;
        let small = recipes::shrink::shrink(seed, cut, found, |plan| {
            runs += 1;
            recipes::run(plan, 0, mutant).broken
        });
        eprintln!("shrunk in {runs} runs");
        small
    }

    fn hunt_all(options: &RecipeOptions, wanted: &[RuntimeMutant]) -> ExitCode {
        if !cfg!(elderlock_mutants) {
            return wrong(
                "planted breaks exist only in a build of their own: RUSTFLAGS='--cfg \
                 elderlock_mutants'",
            );
        }
        std::panic::set_hook(Box::new(|_| {}));
        let started = Instant::now();
        let (mut missed, mut first) = (Vec::new(), None);
        println!("{:<24} {:>5} {:>6}  found by", "break", "seeds", "s");
        let is_wanted = |mutant: &RuntimeMutant| wanted.is_empty() || wanted.contains(mutant);
        let hunted: Vec<RuntimeMutant> = RuntimeMutant::ALL.into_iter().filter(is_wanted).collect();
        for mutant in &hunted {
            let began = Instant::now();
            let (workload, invariants) = mutants::found_by(*mutant);
            let found: Mutex<BTreeMap<u64, RecipeViolation>> = Mutex::default();
            let counts = |found: &RecipeViolation| invariants.contains(&found.invariant);
            on_all_cores(options.from, HUNT, |seed| {
                let plan = RecipePlan::draw(seed, &ShrunkPlan::only(workload));
                if let Some(broken) = recipes::run(&plan, 0, Some(*mutant)).broken
                    // A seed that breaks without the planted break proves nothing about it.
                    && recipes::run(&plan, 0, None).broken.is_none()
                {
                    lock(&found).insert(seed, broken);
                }
                lock(&found).iter().any(|(at, found)| *at < seed && counts(found))
            });
            let found = lock(&found);
            let (took, name) = (began.elapsed().as_secs_f64(), format!("{mutant:?}"));
            match found.iter().find(|(_, found)| counts(found)) {
                Some((seed, found)) => {
                    println!(
                        "{name:<24} {:>5} {took:>6.1}  {}",
                        seed - options.from + 1,
                        found.invariant
                    );
                    first.get_or_insert_with(|| {
                        (*seed, ShrunkPlan::only(workload), found.clone(), *mutant)
                    });
                }
                None => {
                    let others: Vec<&str> = found.values().map(|found| found.invariant).collect();
                    println!(
                        "{name:<24} {HUNT:>5} {took:>6.1}  NOT FOUND by {}; {others:?}",
                        invariants.join(", ")
                    );
                    missed.push(name);
                }
            }
        }
        // One of the runs is shrunk, to check that the smaller plan breaks in the same way.
        if let Some((seed, cut, found, mutant)) = first {
            let small = shrunk(seed, &cut, &found, Some(mutant));
            println!("shrunk: {}", again(seed, &small, Some(mutant)));
            let broken = recipes::run(&RecipePlan::draw(seed, &small), 0, Some(mutant)).broken;
            if small == cut || broken.is_none_or(|broken| broken.invariant != found.invariant) {
                missed.push("the invariant in a shrunk run".to_owned());
            }
        }
        let took = started.elapsed().as_secs_f64();
        let rest = if missed.is_empty() {
            "none is left".to_owned()
        } else {
            format!("NOT FOUND: {}", missed.join(", "))
        };
        println!(
            "{} found from seed {} on in {took:.0} s: {rest}",
            hunted.len().saturating_sub(missed.len()),
            options.from
        );
        if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
