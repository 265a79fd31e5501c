//! Runs the chaos driver against each planted defect of the core: one that is not found means that the driver looks
//! away. Only under `RUSTFLAGS="--cfg elderlock_mutants"`.

use std::process::ExitCode;

/// What to hunt.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this one, by its name.
    name: Option<String>,
    /// Shrink what was found, and write the steps into this folder, to be told again by `replay --mutant`.
    #[arg(long, value_name = "FOLDER")]
    save: Option<std::path::PathBuf>,
}

#[cfg(not(elderlock_mutants))]
pub(crate) fn run(_: &Options) -> ExitCode {
    eprintln!("mutants exist only under RUSTFLAGS=\"--cfg elderlock_mutants\"");
    ExitCode::from(2)
}

#[cfg(elderlock_mutants)]
pub(crate) fn run(options: &Options) -> ExitCode {
    hunt::run(options)
}

#[cfg(elderlock_mutants)]
mod hunt {
    use elderlock::protocol::mutant::Mutant;
    use elderlock_sim::World;
    use elderlock_sim::chaos::{Plan, run_seed};
    use elderlock_sim::invariants::Break;
    use elderlock_sim::shrink::{save, shrink, shrink_log};
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    /// Seeds spent on one mutant at most.
    const SEEDS: u64 = 2_000;

    pub(super) fn run(options: &super::Options) -> ExitCode {
        std::panic::set_hook(Box::new(|_| {}));
        let wanted = &options.name;
        let mut missed = 0;
        for mutant in &Mutant::ALL {
            if wanted.as_ref().is_some_and(|wanted| *wanted != format!("{mutant:?}")) {
                continue;
            }
            match find(*mutant) {
                Some((seed, found)) => {
                    println!("{mutant:?}: found after {seed} seeds by {}", found.invariant);
                    if let Some(folder) = &options.save {
                        write(*mutant, seed, &found, folder);
                    }
                }
                None => {
                    println!("{mutant:?}: NOT FOUND in {SEEDS} seeds");
                    missed += 1;
                }
            }
        }
        if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn write(mutant: Mutant, seed: u64, found: &Break, folder: &Path) {
        let prepare = |world: World| world.mutant(mutant);
        let small = shrink(&Plan::draw(seed, (3, 7)), found, prepare);
        let log = shrink_log(&run_seed(&small, prepare).log, found, prepare);
        match save(seed, &log, found, prepare, folder) {
            Ok(Some(file)) => println!("    {} steps: {}", log.steps.len(), file.display()),
            Ok(None) => println!("    its log does not break so"),
            Err(error) => eprintln!("{}: {error}", folder.display()),
        }
    }

    fn find(mutant: Mutant) -> Option<(u64, Break)> {
        let next = AtomicU64::new(1);
        let found: Mutex<Option<(u64, Break)>> = Mutex::new(None);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed > SEEDS || found.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                            break;
                        }
                        let plan = Plan::draw(seed, (3, 7));
                        let run = run_seed(&plan, |world| world.mutant(mutant));
                        // A seed that breaks without it proves nothing about the mutant.
                        if let Some(one) = run.world.broken()
                            && run_seed(&plan, |world| world).world.broken().is_none()
                        {
                            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                            found.get_or_insert((seed, one.clone()));
                        }
                    }
                });
            }
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
