//! `check`: searches small Worlds exhaustively.

use elderlock_sim::check::{Found, Hunt, Limits, Scope, scopes};
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::time::Duration;

/// What to search, and how far.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these scopes, by their names.
    names: Vec<String>,
    /// Only what takes about a minute in all: nothing is lost or doubled, and votes on disk are left out.
    #[arg(long, conflicts_with = "large")]
    quick: bool,
    /// More: packets overtake each other in any way, and clients give up waiting. Hardly ends within any limit.
    #[arg(long)]
    large: bool,
    /// Give a scope up after so many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Give a scope up after so many states.
    #[arg(long, default_value_t = 200_000_000)]
    states: u64,
    /// How many threads search; all cores of the machine unless said.
    #[arg(long)]
    threads: Option<usize>,
    /// Plant breaks in the core, and look which of them are found. Needs RUSTFLAGS="--cfg elderlock_mutants".
    #[arg(long)]
    mutants: bool,
    /// Of the breaks only these, by their names; every one of them has to be found then.
    #[cfg(elderlock_mutants)]
    #[arg(long, value_delimiter = ',', requires = "mutants")]
    only: Vec<String>,
}

impl Options {
    fn scopes(&self) -> impl Iterator<Item = Scope> {
        let wanted = |scope: &&Scope| match &self.names[..] {
            [] => scope.small || !self.quick,
            names => names.iter().any(|name| name == scope.name),
        };
        scopes::ALL.iter().filter(wanted).map(|scope| match (self.quick, self.large) {
            (true, _) => scope.quick(),
            (_, true) => scope.large(),
            _ => scope.clone(),
        })
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(unknown) = options.names.iter().find(|name| scopes::ALL.iter().all(|scope| scope.name != **name)) {
        let names: Vec<&str> = scopes::ALL.iter().map(|scope| scope.name).collect();
        eprintln!("no scope is called {unknown}; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    // What panics is told as a break, with the way to it.
    std::panic::set_hook(Box::new(|_| {}));
    if options.mutants {
        return mutants::run(options);
    }
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (time, states) = (Duration::from_secs(options.seconds), options.states);
    let mut held = true;
    for scope in options.scopes() {
        let hunt = Hunt::new(scope.clone(), |world| world);
        let found = watch(&hunt, &scope, Limits { time, states, threads, shortest: false });
        tell(&scope, &found);
        if let Some(trail) = &found.broken {
            // That way is a long one: a shortest one is looked for, as far as memory goes. Breadth first keeps many Worlds.
            let shortest = Limits { time, states: 200_000, threads: 1, shortest: true };
            let found = watch(&hunt, &scope, shortest).broken;
            let trail = found.as_ref().unwrap_or(trail);
            println!("\n{}", hunt.tell(trail));
            println!("{} is broken after {} moves: {}\n", trail.broken.invariant, trail.moves.len(), trail.broken.what);
            held = false;
        }
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn watch(hunt: &Hunt, scope: &Scope, limits: Limits) -> Found {
    let style = ProgressStyle::with_template("{prefix}: {msg}, {elapsed}").expect("the template is good");
    let bar = ProgressBar::new_spinner().with_style(style).with_prefix(scope.name);
    bar.enable_steady_tick(Duration::from_millis(500));
    let found = hunt.run(limits, |moves, states| bar.set_message(format!("{states} states, {moves} moves")));
    bar.finish_and_clear();
    found
}

fn tell(scope: &Scope, found: &Found) {
    let took = found.took.as_secs_f64();
    let verdict = match (&found.broken, found.complete) {
        (Some(_), _) => "BROKEN",
        (None, true) => "complete, and held",
        (None, false) => "held as far as it went: NOT COMPLETE",
    };
    let verdict = match found.unexplored {
        0 => verdict.to_string(),
        left => format!("{verdict}, {left} states reached and not gone on from"),
    };
    println!("{}: {}", scope.name, scope.about);
    println!("    {}", scope.bounds());
    println!(
        "    {verdict}: {} states, {} moves, ways of up to {} moves, {} ends, {took:.1} s ({:.0} moves/s)",
        found.states,
        found.moves,
        found.depth,
        found.ends,
        found.moves as f64 / took,
    );
    let premises: Vec<String> =
        found.premises.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name} {count}")).collect();
    println!("    premises: {}", premises.join(", "));
}

#[cfg(not(elderlock_mutants))]
mod mutants {
    use std::process::ExitCode;

    pub(super) fn run(_: &super::Options) -> ExitCode {
        eprintln!("mutants exist only under RUSTFLAGS=\"--cfg elderlock_mutants\"");
        ExitCode::from(2)
    }
}

#[cfg(elderlock_mutants)]
mod mutants {
    use elderlock::protocol::mutant::Mutant;
    use elderlock_sim::check::{Hunt, Limits, Scope, Trail};
    use std::process::ExitCode;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    /// So many have to be found.
    const WANTED: usize = 12;
    /// In one scope no more is spent on one mutant, unless it is named.
    const STATES: u64 = 100_000;
    /// The same, for a machine that others use.
    const TIME: Duration = Duration::from_secs(600);

    /// What became of a mutant.
    enum Fate {
        /// An invariant broke in the search.
        Found(String),
        /// The World does not even come to where the search begins. No merit of the search.
        Stillborn(String),
        Missed,
    }

    /// Every mutant against the quick form of every scope, and then with one packet lost or doubled, until one finds it.
    /// That the scopes hold without a mutant is what `check` shows.
    pub(super) fn run(options: &super::Options) -> ExitCode {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(0));
        let workers = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let only = |mutant: &&Mutant| options.only.is_empty() || options.only.contains(&format!("{mutant:?}"));
        let chosen: Vec<&Mutant> = Mutant::ALL.iter().filter(only).collect();
        if let Some(unknown) =
            options.only.iter().find(|name| Mutant::ALL.iter().all(|one| format!("{one:?}") != **name))
        {
            eprintln!("no break is called {unknown}");
            return ExitCode::from(2);
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(mutant) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let fate = hunt(options, **mutant);
                        let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        *found += usize::from(matches!(fate, Fate::Found(_)));
                        match fate {
                            Fate::Found(how) => println!("{mutant:?}: {how}"),
                            Fate::Stillborn(what) => println!("{mutant:?}: not counted: {what}"),
                            Fate::Missed => println!("{mutant:?}: not found"),
                        }
                    }
                });
            }
        });
        let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let took = started.elapsed().as_secs();
        let wanted = if options.only.is_empty() { WANTED } else { chosen.len() };
        println!("{found} of {} found in {took} s; at least {wanted} have to be", chosen.len());
        if found >= wanted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn hunt(options: &super::Options, mutant: Mutant) -> Fate {
        let started = Instant::now();
        let (mut states, mut stillborn) = (0, None);
        let each = if options.only.is_empty() { STATES } else { options.states };
        // The small ones are the last.
        let mut scopes: Vec<_> = options.scopes().collect();
        scopes.reverse();
        let faulty = scopes.iter().filter(|scope| scope.faults > 0).map(Scope::with_one_fault);
        for scope in scopes.iter().map(Scope::quick).chain(faulty) {
            let hunt = Hunt::new(scope.clone(), move |world| world.mutant(mutant));
            let found = hunt.run(Limits { time: TIME, states: each, threads: 1, shortest: false }, |_, _| {});
            states += found.states;
            let Some(Trail { broken, moves }) = found.broken else { continue };
            if moves.is_empty() {
                stillborn = Some(broken.what);
                continue;
            }
            let (took, faults) = (started.elapsed().as_secs_f64(), if scope.faults > 0 { " with a fault" } else { "" });
            return Fate::Found(format!(
                "{} in {}{faults}, after {} moves ({states} states, {took:.1} s)",
                broken.invariant,
                scope.name,
                moves.len()
            ));
        }
        stillborn.map_or(Fate::Missed, Fate::Stillborn)
    }
}
