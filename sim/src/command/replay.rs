//! `replay`: runs a log or a script in a World, and prints it with the outcome.

use elderlock_sim::World;
use elderlock_sim::report::breach;
use elderlock_sim::script::ScriptRunner;
use std::path::PathBuf;
use std::process::ExitCode;

/// The options of `replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayOptions {
    /// The log or script.
    file: PathBuf,
    /// How many lines of the story inside the members are printed for a violation.
    #[arg(long, default_value_t = 60)]
    trace: usize,
    /// Plant this break in every core.
    #[cfg(elderlock_mutants)]
    #[arg(long)]
    mutant: Option<elderlock::protocol::mutant::ProtocolMutant>,
}

impl ReplayOptions {
    fn prepare(&self, world: World) -> World {
        #[cfg(elderlock_mutants)]
        if let Some(mutant) = self.mutant {
            return world.mutant(mutant);
        }
        world
    }
}

pub(crate) fn run(options: &ReplayOptions) -> ExitCode {
    let script = match std::fs::read_to_string(&options.file) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("{}: {error}", options.file.display());
            return ExitCode::from(2);
        }
    };
    let mut runner = ScriptRunner::new(|world| options.prepare(world));
    match runner.run_script(&script) {
        Ok(told) => print!("{told}"),
        Err(error) => {
            eprintln!("{}: {error}", options.file.display());
            return ExitCode::from(2);
        }
    }
    let world = runner.world();
    let Some(found) = world.broken() else {
        // The verdict goes to stderr, because stdout has the run, which is compared and kept.
        eprintln!("held: no invariant broke");
        return ExitCode::SUCCESS;
    };
    println!("\n{}", world.story_until(found.at, options.trace));
    let words = breach(world.record()).unwrap_or_else(|| found.what.clone());
    println!("{} is broken at {:.6} s: {words}", found.invariant, found.at as f64 / 1e9);
    ExitCode::FAILURE
}
