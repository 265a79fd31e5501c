//! `check`: searches small Worlds exhaustively.

use elderlock_sim::check::{Found, Hunt, Limits, Scope, scopes};
use std::process::ExitCode;
use std::time::Duration;

/// What to search.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these scopes, by their names.
    names: Vec<String>,
    /// Give a scope up after so many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Give a scope up after so many states.
    #[arg(long, default_value_t = 40_000_000)]
    states: u64,
    /// How many threads search.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long)]
    faults: Option<u8>,
    #[arg(long)]
    any: bool,
    #[arg(long)]
    bfs: bool,
    #[arg(long)]
    cancels: bool,
    #[arg(long)]
    noleap: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let mut held = true;
    for scope in scopes::ALL {
        if !options.names.is_empty() && !options.names.iter().any(|name| name == scope.name) {
            continue;
        }
        let mut scope = scope.clone();
        if let Some(f) = options.faults { scope.faults = f; }
        if options.any { scope.network = elderlock_sim::check::Network::AnyOrder; }
        if options.cancels { scope.cancels = true; }
        if options.noleap { scope.leaps = &[]; }
        let hunt = Hunt::new(scope.clone(), |world| world);
        let limits =
            Limits { time: Duration::from_secs(options.seconds), states: options.states, threads: options.threads, shortest: options.bfs };
        let found = hunt.run(limits, |_, _| {});
        tell(&scope, &found);
        if let Some(trail) = &found.broken {
            println!("{}{} is broken: {}", hunt.tell(trail), trail.broken.invariant, trail.broken.what);
            held = false;
        }
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(scope: &Scope, found: &Found) {
    let took = found.took.as_secs_f64();
    println!(
        "{}: {} states, {} moves, depth {}, {} ends, {took:.1} s ({:.0} moves/s), {}",
        scope.name, found.states, found.moves, found.depth, found.ends, found.moves as f64 / took,
        if found.complete { "complete" } else { "NOT complete" }
    );
    println!("   {:?}", found.premises);
}
