//! `chaos`: runs seeds on all cores of the machine.

use super::lock;
use super::verdict::{self, BrokenRun, Progress, RunTotals};
use elderlock_sim::World;
use elderlock_sim::chaos::{ChaosPlan, Summary, describe, run_seed, trace_seed};
use elderlock_sim::fault::FaultNumbers;
use elderlock_sim::quorum::QuorumLoss;
use elderlock_sim::report::{self, of_batch, of_run};
use elderlock_sim::shrink::{save, shrink, shrink_log};
use elderlock_sim::world::Violation;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Of this number of seeds one is run twice; both runs must be equal.
const TWICE_EVERY: u64 = 16;

/// The highest share, in a thousand runs, that may lose a quorum without reckless faults. A higher
/// share shows a defect that loses quorums.
const FORCED_PER_MILLE: u64 = 10;
/// The number of seeds from which on a batch must reach every rare state.
const RARE_SEEDS: u64 = 5_000;
/// The number of seeds from which on a batch must show every premise.
const TELLING_SEEDS: u64 = 1_000;
/// The least percentage of the runs of a telling batch that must count.
const COUNTING_PERCENT: u64 = 95;

/// The options of `chaos`.
#[derive(Debug, clap::Args)]
pub(crate) struct ChaosOptions {
    /// How many seeds.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many members, as 5 or 3..7, both ends included; 2 to 12.
    #[arg(long, default_value = "3..7", value_parser = members)]
    members: (usize, usize),
    /// Only these faults of each plan, by their numbers; or "none".
    #[arg(long)]
    faults: Option<FaultNumbers>,
    /// How many lines of its story are printed for a violation.
    #[arg(long, default_value_t = 60)]
    trace: usize,
    /// Go on after a violation and report each.
    #[arg(long)]
    keep_going: bool,
    /// Write the record of the broken run (shrunk), or of the first seed if none breaks, here as
    /// JSON lines.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The folder into which the steps of a broken run (shrunk) are written, for `replay`.
    #[arg(long, value_name = "FOLDER", default_value = "target/breaks")]
    save: PathBuf,
    /// Write a page of HTML here: the broken run (shrunk), or the whole batch if none breaks.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The verdict as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// The lowest and the highest number of members.
pub(crate) fn members(text: &str) -> Result<(usize, usize), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let number =
        |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is not a number"));
    let (low, high) = (number(low)?, number(high.trim_start_matches('='))?);
    if low < 2 || high < low || high > 12 {
        return Err("wants 2 to 12 members, as 5 or 3..7".to_string());
    }
    Ok((low, high))
}

fn plan(options: &ChaosOptions, seed: u64) -> ChaosPlan {
    let plan = ChaosPlan::draw(seed, options.members);
    match &options.faults {
        Some(kept) => plan.only(&kept.0),
        None => plan,
    }
}

pub(crate) fn run(options: &ChaosOptions) -> ExitCode {
    // Panics of the core are caught and reported as violations, with their location.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let next = AtomicU64::new(options.from);
    let end = options.from.saturating_add(options.seeds);
    let total = Mutex::new(RunTotals::default());
    let breaks: Mutex<Vec<(u64, Violation)>> = Mutex::new(Vec::new());
    let progress = Progress::new(options.seeds);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut batch = RunTotals::default();
                let started = Instant::now();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let stop = !options.keep_going && !lock(&breaks).is_empty();
                    if seed >= end || stop {
                        break;
                    }
                    if let Some(found) = one(options, seed, &mut batch, &progress) {
                        lock(&breaks).push((seed, found));
                    }
                }
                batch.busy = started.elapsed();
                lock(&total).merge(batch);
            });
        }
    });
    let took = progress.finish();
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut breaks = std::mem::take(&mut *lock(&breaks));
    breaks.sort_by_key(|(seed, _)| *seed);
    let broken = breaks.first().map(|(seed, found)| told(options, *seed, found));
    let idle = idle(&total.summary);
    if options.json {
        println!("{}", verdict::json(&total, took, broken.as_ref(), idle.as_deref()));
    } else {
        if options.keep_going {
            for (seed, found) in &breaks {
                let what: String = found.what.chars().take(160).collect();
                println!("seed {seed}: {}: {what}", found.invariant);
            }
        }
        verdict::print(&total, took, broken.as_ref(), idle.as_deref());
    }
    let written = write_history(options, breaks.first())
        .and_then(|()| write_page(options, &total, breaks.first()));
    if let Err(error) = written {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    if broken.is_none() && idle.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why a batch without a violation shows little. Premises held nowhere, rare states were never
/// reached, or many runs were hardly disturbed or lost their quorum. A small batch need not show
/// more.
fn idle(total: &Summary) -> Option<String> {
    let none = |counts: &BTreeMap<&'static str, u64>| -> Vec<&'static str> {
        counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect()
    };
    let (idle, idle_offline, unseen) =
        (none(&total.premises), none(&total.offline), none(&total.rare));
    let mut why = Vec::new();
    if total.seeds >= TELLING_SEEDS && !idle.is_empty() {
        why.push(format!("premises that never held: {}", idle.join(", ")));
    }
    if total.seeds >= TELLING_SEEDS && !idle_offline.is_empty() {
        why.push(format!("premises that never held offline: {}", idle_offline.join(", ")));
    }
    if total.seeds >= RARE_SEEDS && !unseen.is_empty() {
        why.push(format!("rare states never reached: {}", unseen.join(", ")));
    }
    if total.seeds >= TELLING_SEEDS && total.counting * 100 < total.seeds * COUNTING_PERCENT {
        why.push(format!("only {} runs say enough to count", total.counting));
    }
    let forced = total
        .forced
        .iter()
        .filter(|(loss, _)| **loss != QuorumLoss::Reckless.name())
        .map(|(_, count)| count);
    let forced: u64 = forced.sum();
    if total.seeds >= TELLING_SEEDS && forced * 1_000 > total.seeds * FORCED_PER_MILLE {
        why.push(format!("{forced} runs lost a quorum that no fault was meant to take"));
    }
    if total.forced.contains_key(QuorumLoss::Unexplained.name()) {
        why.push("a quorum was lost that was there".to_string());
    }
    (!why.is_empty()).then(|| why.join("; "))
}

fn one(
    options: &ChaosOptions,
    seed: u64,
    batch: &mut RunTotals,
    progress: &Progress,
) -> Option<Violation> {
    let plan = plan(options, seed);
    let run = run_seed(&plan, |world| world);
    batch.summary.add(&run);
    batch.gallery.add(&plan, &run);
    batch.simulated += run.world.events();
    progress.add(&run);
    if options.keep_going {
        if let Some(short) = run.falls_short() {
            progress.print_line(&format!("seed {seed} does not count: {short}"));
        }
        if let Some(loss) = run.forced {
            let plan = describe(&plan);
            let plan = plan.lines().next().unwrap_or_default();
            progress
                .print_line(&format!("seed {seed} was forced to go on: {}: {plan}", loss.name()));
        }
    }
    if seed.is_multiple_of(TWICE_EVERY) {
        let again = run_seed(&plan, |world| world).world;
        batch.simulated += again.events();
        if again.digest() != run.world.digest() {
            let what = "the same seed went another way".to_string();
            return Some(Violation { invariant: "determinism", lock: None, what, at: 0 });
        }
    }
    run.world.broken().cloned()
}

/// The shrunk plan of the broken run, or the first plan.
fn telling(options: &ChaosOptions, broken: Option<&(u64, Violation)>) -> ChaosPlan {
    match broken {
        Some((seed, found)) => shrink(&plan(options, *seed), found, |world| world),
        None => plan(options, options.from),
    }
}

fn write_history(options: &ChaosOptions, broken: Option<&(u64, Violation)>) -> Result<(), String> {
    let Some(file) = &options.history else { return Ok(()) };
    let run = run_seed(&telling(options, broken), World::with_messages);
    std::fs::write(file, run.world.into_record().to_json_lines())
        .map_err(|error| format!("{}: {error}", file.display()))
}

fn write_page(
    options: &ChaosOptions,
    total: &RunTotals,
    broken: Option<&(u64, Violation)>,
) -> Result<(), String> {
    let Some(file) = &options.report else { return Ok(()) };
    let (from, members) = (options.from, options.members);
    let page = match broken {
        Some((seed, _)) => {
            of_run(&super::report::of_seed(*seed, members, options.faults.as_ref(), None)?)
        }
        None => {
            // The run that healed slowest shows most.
            let seed = total.gallery.heals.first().map_or(from, |heal| heal.seed);
            let record = run_seed(&plan(options, seed), |world| world).world.into_record();
            let picture = Some((format!("seed {seed}, the slowest to heal"), record));
            of_batch(&report::BatchReport {
                total: &total.summary,
                gallery: &total.gallery,
                from,
                members,
                picture,
            })
        }
    };
    super::report::write(file, &page)
}

/// A violation, shrunk, with its steps saved, and how to see it again.
fn told(options: &ChaosOptions, seed: u64, found: &Violation) -> BrokenRun {
    // The panic was reported once; each shrinking run would report it again.
    std::panic::set_hook(Box::new(|_| {}));
    let full = plan(options, seed);
    let small = shrink(&full, found, |world| world);
    let traced = trace_seed(&small, |world| world);
    let found = traced.world.broken().unwrap_or(found);
    let log = shrink_log(&traced.log, found, |world| world);
    let file = save(seed, &log, found, |world| world, &options.save);
    let file = file.unwrap_or_else(|error| {
        eprintln!("{}: {error}", options.save.display());
        None
    });
    let (low, high) = options.members;
    let again = format!("--members {low}..{high} --faults {}", FaultNumbers(small.kept.clone()));
    let command = "cargo run --release -p elderlock-sim --";
    BrokenRun {
        seed,
        found: found.clone(),
        words: report::breach(traced.world.record()).unwrap_or_else(|| found.what.clone()),
        plan: describe(&small),
        faults: (small.faults.len(), full.faults.len()),
        steps: (log.steps.len(), traced.log.steps.len()),
        story: traced.world.story_until(found.at, options.trace),
        // A log that does not break in the same way is not saved.
        replay: file.map(|file| format!("{command} replay {}", file.display())),
        plan_again: format!("{command} chaos --seeds 1 --from {seed} {again}"),
        report: format!("{command} report --seed {seed} {again}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seeds: u64) -> Summary {
        let counts = |name| BTreeMap::from([(name, 1)]);
        let (premises, offline, rare) = (counts("online"), counts("offline"), counts("rare"));
        Summary { seeds, counting: seeds, premises, offline, rare, ..Summary::default() }
    }

    fn says(total: &Summary) -> String {
        idle(total).unwrap_or_default()
    }

    #[test]
    fn a_batch_of_many_seeds_without_a_rare_state_fails_and_names_it() {
        assert_eq!(idle(&batch(RARE_SEEDS)), None);
        let never = BTreeMap::from([("often", 1), ("never there", 0)]);
        assert_eq!(
            says(&Summary { rare: never.clone(), ..batch(RARE_SEEDS) }),
            "rare states never reached: never there"
        );
        assert_eq!(idle(&Summary { rare: never, ..batch(RARE_SEEDS - 1) }), None);
    }

    #[test]
    fn a_batch_with_a_check_that_had_nothing_to_say_fails_and_names_it() {
        let never = BTreeMap::from([("mute", 0)]);
        let online = Summary { premises: never.clone(), ..batch(TELLING_SEEDS) };
        let offline = Summary { offline: never, ..batch(TELLING_SEEDS) };
        assert_eq!(says(&online), "premises that never held: mute");
        assert_eq!(says(&offline), "premises that never held offline: mute");
        assert_eq!(idle(&Summary { seeds: TELLING_SEEDS - 1, ..online }), None);
    }

    #[test]
    fn a_batch_of_runs_that_say_too_little_fails() {
        let enough = TELLING_SEEDS * COUNTING_PERCENT / 100;
        assert_eq!(idle(&Summary { counting: enough, ..batch(TELLING_SEEDS) }), None);
        assert!(
            says(&Summary { counting: enough - 1, ..batch(TELLING_SEEDS) }).contains("say enough")
        );
    }

    #[test]
    fn a_batch_that_loses_quorums_fails() {
        let forced = |loss: QuorumLoss, times| Summary {
            forced: BTreeMap::from([(loss.name(), times)]),
            ..batch(1_000)
        };
        assert_eq!(idle(&forced(QuorumLoss::Ended, FORCED_PER_MILLE)), None);
        assert!(
            says(&forced(QuorumLoss::Ended, FORCED_PER_MILLE + 1))
                .contains("no fault was meant to take")
        );
        assert_eq!(idle(&forced(QuorumLoss::Reckless, 100)), None);
        assert!(says(&forced(QuorumLoss::Unexplained, 1)).contains("that was there"));
    }
}
