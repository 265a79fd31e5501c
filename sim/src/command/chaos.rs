//! `chaos`: runs seeds on all cores of the machine.

use elderlock_sim::World;
use elderlock_sim::chaos::{Plan, Summary, describe, run_seed, trace_seed};
use elderlock_sim::invariants::Break;
use elderlock_sim::shrink::{save, shrink, shrink_log};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One seed in so many is run twice, and must go the same way.
const TWICE_EVERY: u64 = 16;

/// More excused runs than this mean that something loses quorums that it should not. About 3 in a hundred plans are
/// drawn to be reckless, and a part of those is excused.
const EXCUSED_PERCENT: u64 = 4;
/// From so many seeds on a batch has to reach every rare state.
const RARE_SEEDS: u64 = 5_000;
/// From so many seeds on a batch has to show every premise.
const TELLING_SEEDS: u64 = 1_000;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many members, as 5 or 3..7, both ends included; 2 to 12.
    #[arg(long, default_value = "3..7", value_parser = members)]
    members: (usize, usize),
    /// Only these faults of each plan, by their numbers.
    #[arg(long, value_delimiter = ',')]
    faults: Option<Vec<usize>>,
    /// How many lines of its story are told of a break.
    #[arg(long, default_value_t = 60)]
    trace: usize,
    /// Go on after a break and tell of each.
    #[arg(long)]
    keep_going: bool,
    /// Write the record of the broken run (shrunk), or of the first seed if none breaks, here as JSON lines.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The folder into which the steps of a broken run (shrunk) are written, to be told again by `replay`.
    #[arg(long, value_name = "FOLDER", default_value = "target/breaks")]
    save: PathBuf,
}

fn members(text: &str) -> Result<(usize, usize), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is no number"));
    let (low, high) = (number(low)?, number(high.trim_start_matches('='))?);
    if low < 2 || high < low || high > 12 {
        return Err("wants 2 to 12 members, as 5 or 3..7".to_string());
    }
    Ok((low, high))
}

fn plan(options: &Options, seed: u64) -> Plan {
    let plan = Plan::draw(seed, options.members);
    match &options.faults {
        Some(kept) => plan.only(kept),
        None => plan,
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    // Panics of the core are caught and told as breaks, with where they happened.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let started = Instant::now();
    let next = AtomicU64::new(options.from);
    let end = options.from + options.seeds;
    let total = Mutex::new(Summary::default());
    let breaks: Mutex<Vec<(u64, Break)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut summary = Summary::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let stop = !options.keep_going && !lock(&breaks).is_empty();
                    if seed >= end || stop {
                        break;
                    }
                    if let Some(found) = one(options, seed, &mut summary) {
                        lock(&breaks).push((seed, found));
                    }
                }
                lock(&total).merge(&summary);
            });
        }
    });
    report(&lock(&total), started.elapsed().as_secs_f64());
    let mut breaks = std::mem::take(&mut *lock(&breaks));
    breaks.sort_by_key(|(seed, _)| *seed);
    if options.keep_going {
        for (seed, found) in &breaks {
            let what: String = found.what.chars().take(160).collect();
            println!("seed {seed}: {}: {what}", found.invariant);
        }
    }
    if let Some(file) = &options.history
        && let Err(error) = write_history(options, breaks.first(), file)
    {
        eprintln!("{}: {error}", file.display());
        return ExitCode::from(2);
    }
    match breaks.first() {
        Some((seed, found)) => {
            tell(options, *seed, found);
            ExitCode::FAILURE
        }
        None if is_telling(&lock(&total)) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

/// Whether a batch without a break means something: few runs were excused, and every premise held somewhere. A small
/// batch need not show that.
fn is_telling(total: &Summary) -> bool {
    let idle: Vec<&str> = total.premises.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    let unseen: Vec<&str> = total.rare.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    if total.seeds >= RARE_SEEDS && !unseen.is_empty() {
        println!("no break, but these rare states were never reached: {unseen:?}");
        return false;
    }
    let too_many = total.excused * 100 > total.seeds * EXCUSED_PERCENT;
    if total.seeds < TELLING_SEEDS || (idle.is_empty() && !too_many) {
        return true;
    }
    println!("no break, but it means little: premises that never held {idle:?}, {} runs excused", total.excused);
    false
}

fn one(options: &Options, seed: u64, summary: &mut Summary) -> Option<Break> {
    let plan = plan(options, seed);
    let run = run_seed(&plan, |world| world);
    summary.add(&run);
    if options.keep_going {
        if let Some(short) = run.falls_short() {
            println!("seed {seed} does not count: {short}");
        }
        if run.is_excused() {
            println!("seed {seed} is excused: {}", describe(&plan).lines().next().unwrap_or_default());
        }
    }
    if seed.is_multiple_of(TWICE_EVERY) && run_seed(&plan, |world| world).world.digest() != run.world.digest() {
        let what = "the same seed went another way".to_string();
        return Some(Break { invariant: "determinism", lock: None, what, at: 0 });
    }
    run.world.broken().cloned()
}

fn write_history(options: &Options, broken: Option<&(u64, Break)>, file: &Path) -> std::io::Result<()> {
    let plan = match broken {
        Some((seed, found)) => shrink(&plan(options, *seed), found, |world| world),
        None => plan(options, options.from),
    };
    let run = run_seed(&plan, World::with_messages);
    std::fs::write(file, run.world.into_record().to_json_lines())
}

fn report(total: &Summary, took: f64) {
    println!(
        "{} seeds, {} virtual s, {} events in {took:.1} s ({:.0} events/s), {} excused",
        total.seeds,
        total.virtual_seconds,
        total.events,
        total.events as f64 / took,
        total.excused
    );
    println!(
        "{} runs count, {} were healed in part, {} had real gossip; frames damaged {}, that broke a connection {}, that \
         did not end {}",
        total.counting, total.parts, total.gossiping, total.damages[0], total.damages[1], total.damages[2]
    );
    println!("{} grants, {} lost, {} stale writes refused", total.grants, total.lost, total.refused);
    for (what, counts) in [
        ("answers", &total.answers),
        ("faults", &total.faults),
        ("premises", &total.premises),
        ("offline", &total.offline),
        ("rare", &total.rare),
    ] {
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("{what}: {}", counts.join(", "));
    }
}

fn tell(options: &Options, seed: u64, found: &Break) {
    // It was told where it panicked; it will again and again.
    std::panic::set_hook(Box::new(|_| {}));
    let full = plan(options, seed);
    let small = shrink(&full, found, |world| world);
    let traced = trace_seed(&small, |world| world);
    println!("\nseed {seed} breaks {}: {}", found.invariant, found.what);
    println!("{}", describe(&small));
    println!("(of {} faults)", full.faults.len());
    println!("{}", traced.world.story(options.trace));
    if let Some(found) = traced.world.broken() {
        println!("{} at {:.6} s: {}", found.invariant, found.at as f64 / 1e9, found.what);
    }
    let faults: Vec<String> = small.kept.iter().map(ToString::to_string).collect();
    let log = shrink_log(&traced.log, found, |world| world);
    match save(seed, &log, found, |world| world, &options.save) {
        Ok(Some(file)) => {
            println!("{} steps of {} are in {}", log.steps.len(), traced.log.steps.len(), file.display());
            println!("replay: cargo run --release -p elderlock-sim -- replay {}", file.display());
        }
        Ok(None) => println!("(the log of this run does not break so: it is not saved)"),
        Err(error) => eprintln!("{}: {error}", options.save.display()),
    }
    println!(
        "the plan: cargo run --release -p elderlock-sim -- chaos --seeds 1 --from {seed} --members {}..{} --faults {}",
        options.members.0,
        options.members.1,
        if faults.is_empty() { ",".to_string() } else { faults.join(",") }
    );
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
