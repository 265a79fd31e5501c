//! `check`: searches small Worlds exhaustively.

use elderlock_sim::check::{Scope, ScopeModel, SearchLimits, SearchResult, scopes};
use elderlock_sim::report::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::time::Duration;

/// The options of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckOptions {
    /// Only these scopes, by their names.
    names: Vec<String>,
    /// Only the searches of about a minute in all: no packet is lost or doubled, and votes on disk
    /// are left out.
    #[arg(long, conflicts_with = "large")]
    quick: bool,
    /// Search the large forms: packets overtake each other in any way, and clients give up waiting.
    /// Hardly any of these searches ends within a limit.
    #[arg(long)]
    large: bool,
    /// Give a scope up after this many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Give a scope up after this many states.
    #[arg(long, default_value_t = 200_000_000)]
    states: u64,
    /// How many threads search; all cores of the machine unless said.
    #[arg(long)]
    threads: Option<usize>,
    /// Plant breaks in the core, and show which of them are found.
    /// Needs RUSTFLAGS="--cfg elderlock_mutants".
    #[arg(long)]
    mutants: bool,
    /// Plant only these breaks, by their names; every one of them must be found then.
    #[cfg(elderlock_mutants)]
    #[arg(long, value_delimiter = ',', requires = "mutants")]
    only: Vec<elderlock::protocol::mutant::ProtocolMutant>,
}

impl CheckOptions {
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

pub(crate) fn run(options: &CheckOptions) -> ExitCode {
    if let Some(unknown) =
        options.names.iter().find(|name| scopes::ALL.iter().all(|scope| scope.name != **name))
    {
        let names: Vec<&str> = scopes::ALL.iter().map(|scope| scope.name).collect();
        eprintln!("no scope is called {unknown}; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    // A panic is reported as a violation, with the way to it.
    std::panic::set_hook(Box::new(|_| {}));
    if options.mutants {
        return mutants::run(options);
    }
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (time, states) = (Duration::from_secs(options.seconds), options.states);
    let started = spent();
    let (mut scopes, mut complete, mut broken, mut states_seen) = (0, 0, 0, 0);
    for scope in options.scopes() {
        let hunt = ScopeModel::new(scope.clone(), |world| world);
        let before = spent();
        let found = watch(&hunt, &scope, SearchLimits { time, states, threads, shortest: false });
        tell(&scope, &found, spent() - before);
        scopes += 1;
        complete += usize::from(found.complete && found.broken.is_none());
        broken += usize::from(found.broken.is_some());
        states_seen += found.states as u64;
        if let Some(trail) = &found.broken {
            // The way that a depth-first search finds is long. A breadth-first search looks for a
            // shortest way, as far as memory allows: it keeps many Worlds.
            let shortest = SearchLimits { time, states: 200_000, threads: 1, shortest: true };
            let found = watch(&hunt, &scope, shortest).broken;
            let trail = found.as_ref().unwrap_or(trail);
            println!("\n{}", hunt.tell(trail));
            println!(
                "{} is broken after {} moves: {}\n",
                trail.broken.invariant,
                trail.moves.len(),
                trail.broken.what
            );
        }
    }
    let verdict = match (broken, complete == scopes) {
        (0, true) => "Held",
        (0, false) => "Held as far as it went",
        _ => "Broken",
    };
    println!(
        "{verdict}: {complete} of {scopes} scopes seen to their ends, {broken} broken, {} states, \
         {:.0} CPU seconds",
        grouped(states_seen),
        spent() - started
    );
    // The large form hardly ever completes. Any other search that was cut has not shown its claim.
    if broken == 0 && (complete == scopes || options.large) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn watch(hunt: &ScopeModel, scope: &Scope, limits: SearchLimits) -> SearchResult {
    let style =
        ProgressStyle::with_template("{prefix}: {msg}, {elapsed}").expect("the template is good");
    let bar = ProgressBar::new_spinner().with_style(style).with_prefix(scope.name);
    bar.enable_steady_tick(Duration::from_millis(500));
    let found = hunt.run(limits, |moves, states| {
        bar.set_message(format!(
            "{} states, {} moves",
            grouped(states as u64),
            grouped(moves as u64)
        ))
    });
    bar.finish_and_clear();
    found
}

/// The processor time of this process: on a shared machine it says more than the wall clock.
fn spent() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

fn tell(scope: &Scope, found: &SearchResult, spent: f64) {
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
    let [states, moves, ends] = [found.states as u64, found.moves as u64, found.ends].map(grouped);
    println!(
        "    {verdict}: {states} states, {moves} moves, ways of up to {} moves, {ends} ends, \
         {spent:.1} CPU seconds ({took:.1} s)",
        found.depth,
    );
    let said = found.premises.iter().filter(|(_, count)| **count > 0);
    let premises: Vec<String> =
        said.map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
    println!("    premises at the ends: {}", premises.join(", "));
}

#[cfg(not(elderlock_mutants))]
mod mutants {
    use std::process::ExitCode;

    pub(super) fn run(_: &super::CheckOptions) -> ExitCode {
        eprintln!("planted breaks exist only under RUSTFLAGS=\"--cfg elderlock_mutants\"");
        ExitCode::from(2)
    }
}

#[cfg(elderlock_mutants)]
mod mutants {
    use elderlock::protocol::mutant::ProtocolMutant;
    use elderlock_sim::World;
    use elderlock_sim::check::{Scope, ScopeModel, SearchLimits, SearchResult};
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// The number of planted breaks that must be found.
    const WANTED: usize = 12;
    /// The highest number of states for one planted break in one scope, unless that break is named.
    const STATES: u64 = 100_000;
    /// The time limit, for a shared machine.
    const TIME: Duration = Duration::from_secs(600);

    /// A scope as it is searched here, with the results of a search without any planted break.
    struct BaselineSearch {
        scope: Scope,
        /// The scope in words.
        name: String,
        states: usize,
        /// The planted breaks whose lines the cores reach. Any other break would change nothing
        /// within the limits.
        reached: Vec<ProtocolMutant>,
    }

    /// The result for a planted break.
    enum MutantResult {
        /// An invariant broke in the search.
        Found(String),
        /// The World breaks before the search begins, so the search did not find the planted break.
        Stillborn(String),
        /// The searched scopes, none of which showed the break.
        Missed(Vec<String>),
    }

    /// Searches for every planted break in the scopes that reach its lines, the smallest first,
    /// until a search finds the break. It uses the quick form of each scope, and the scopes that
    /// lose packets with one packet lost or doubled.
    pub(super) fn run(options: &super::CheckOptions) -> ExitCode {
        let only =
            |mutant: &&ProtocolMutant| options.only.is_empty() || options.only.contains(mutant);
        let chosen: Vec<&ProtocolMutant> = ProtocolMutant::ALL.iter().filter(only).collect();
        let states = if options.only.is_empty() { STATES } else { options.states };
        let workers = options
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));

        let (started, spent) = (Instant::now(), super::spent());
        let Some(grounds) = survey(options, states) else { return ExitCode::FAILURE };
        println!("surveyed in {:.0} CPU seconds", super::spent() - spent);
        let (next, found) = (AtomicUsize::new(0), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(mutant) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let fate = hunt(&grounds, **mutant, states);
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        *found += usize::from(matches!(fate, MutantResult::Found(_)));
                        match fate {
                            MutantResult::Found(how) => println!("{mutant:?}: {how}"),
                            MutantResult::Stillborn(what) => {
                                println!("{mutant:?}: not counted: {what}")
                            }
                            MutantResult::Missed(names) if names.is_empty() => {
                                println!("{mutant:?}: no scope reaches its line")
                            }
                            MutantResult::Missed(names) => {
                                println!("{mutant:?}: not found in {}", names.join(", "))
                            }
                        }
                    }
                });
            }
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let wanted = if options.only.is_empty() { WANTED } else { chosen.len() };
        println!(
            "{found} of {} found, at least {wanted} have to be; {:.0} CPU seconds ({:.0} s)",
            chosen.len(),
            super::spent() - spent,
            started.elapsed().as_secs_f64()
        );
        if found >= wanted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Searches every scope without a planted break. `None`: an invariant breaks. The scopes are
    /// searched one after the other, because all cores share one set of reached lines.
    fn survey(options: &super::CheckOptions, states: u64) -> Option<Vec<BaselineSearch>> {
        let scopes: Vec<Scope> = options.scopes().collect();
        let faulty = scopes.iter().filter(|scope| scope.faults > 0).map(Scope::with_one_fault);
        let mut grounds = Vec::new();
        for scope in scopes.iter().map(Scope::quick).chain(faulty) {
            ProtocolMutant::asked_for();
            let found = search(&scope, states, |world| world);
            let reached = ProtocolMutant::asked_for();
            let name =
                format!("{}{}", scope.name, if scope.faults > 0 { " with a fault" } else { "" });
            println!(
                "{name}: {} states, comes to {} of {}",
                found.states,
                reached.len(),
                ProtocolMutant::ALL.len()
            );
            if let Some(trail) = found.broken {
                println!("{name} is broken without any planted break: {}", trail.broken.what);
                return None;
            }
            grounds.push(BaselineSearch { scope, name, states: found.states, reached });
        }
        grounds.sort_by_key(|ground| ground.states);
        Some(grounds)
    }

    fn hunt(grounds: &[BaselineSearch], mutant: ProtocolMutant, limit: u64) -> MutantResult {
        let (mut states, mut in_vain, mut stillborn) = (0, Vec::new(), None);
        for ground in grounds.iter().filter(|ground| ground.reached.contains(&mutant)) {
            let found = search(&ground.scope, limit, move |world| world.mutant(mutant));
            states += found.states;
            match found.broken {
                None => in_vain.push(ground.name.clone()),
                Some(trail) if trail.moves.is_empty() => stillborn = Some(trail.broken.what),
                Some(trail) => {
                    let (invariant, moves) = (trail.broken.invariant, trail.moves.len());
                    let name = &ground.name;
                    return MutantResult::Found(format!(
                        "{invariant} in {name}, after {moves} moves ({states} states)"
                    ));
                }
            }
        }
        stillborn.map_or(MutantResult::Missed(in_vain), MutantResult::Stillborn)
    }

    /// Searches a scope depth first and by one thread, so that each search goes the same way. With
    /// a planted break it goes the same way as without one, until a core reaches the planted
    /// break's lines.
    fn search(
        scope: &Scope,
        states: u64,
        prepare: impl Fn(World) -> World + Send + Sync + 'static,
    ) -> SearchResult {
        let hunt = ScopeModel::new(scope.clone(), prepare);
        hunt.run(SearchLimits { time: TIME, states, threads: 1, shortest: false }, |_, _| {})
    }
}
