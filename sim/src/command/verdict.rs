//! The output of `chaos`: its progress and its result.

use elderlock_sim::chaos::{ChaosRun, Summary};
use elderlock_sim::report::{Gallery, about, grouped, held, meaning, timed};
use elderlock_sim::world::Violation;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The interval of progress lines without a terminal, in seconds.
const LINE_EVERY: u64 = 15;

/// The totals of the runs of a worker, or of all.
#[derive(Debug, Default)]
pub(crate) struct RunTotals {
    pub(crate) summary: Summary,
    pub(crate) gallery: Gallery,
    /// Steps of cores, those of runs that were run twice included.
    pub(crate) simulated: u64,
    /// Time of all workers together.
    pub(crate) busy: Duration,
}

impl RunTotals {
    pub(crate) fn merge(&mut self, other: RunTotals) {
        self.summary.merge(&other.summary);
        self.gallery.merge(other.gallery);
        self.simulated += other.simulated;
        self.busy += other.busy;
    }

    fn rates(&self, took: Duration) -> (f64, f64) {
        let rate = |time: Duration| self.simulated as f64 / time.as_secs_f64().max(1e-9);
        (rate(took), rate(self.busy))
    }
}

/// A shrunk violation.
#[derive(Debug)]
pub(crate) struct BrokenRun {
    pub(crate) seed: u64,
    pub(crate) found: Violation,
    /// The violation in plain words.
    pub(crate) words: String,
    /// The World and the faults that the violation needs, in words.
    pub(crate) plan: String,
    /// How many faults the violation needs, and how many there were.
    pub(crate) faults: (usize, usize),
    /// The last lines of its trace.
    pub(crate) story: String,
    /// How many steps the violation needs, and how many there were with those faults.
    pub(crate) steps: (usize, usize),
    /// The command that replays those steps, if they were saved.
    pub(crate) replay: Option<String>,
    /// The command that runs the plan again.
    pub(crate) plan_again: String,
    /// The command that draws the run.
    pub(crate) report: String,
}

/// How far a batch is: a bar in a terminal, now and then a line elsewhere. On stderr.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    seeds: u64,
    done: AtomicU64,
    virtual_seconds: AtomicU64,
    faults: AtomicU64,
    grants: AtomicU64,
    lines: AtomicU64,
}

impl Progress {
    pub(crate) fn new(seeds: u64) -> Progress {
        let bar = ProgressBar::new(seeds);
        let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}");
        bar.set_style(style.expect("the template is sound").progress_chars("━╸─"));
        let zero = || AtomicU64::new(0);
        let (done, virtual_seconds, faults, grants, lines) =
            (zero(), zero(), zero(), zero(), zero());
        Progress {
            bar,
            started: Instant::now(),
            seeds,
            done,
            virtual_seconds,
            faults,
            grants,
            lines,
        }
    }

    /// A run is done.
    pub(crate) fn add(&self, run: &ChaosRun) {
        let add = |to: &AtomicU64, more: u64| to.fetch_add(more, Ordering::Relaxed) + more;
        let done = add(&self.done, 1);
        let hours = add(&self.virtual_seconds, run.world.seconds()) as f64 / 3_600.0;
        let faults = grouped(add(&self.faults, run.faults.values().sum()));
        let grants = grouped(add(&self.grants, run.world.history().grants));
        let speed = done as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let words = || {
            let (done, all) = (grouped(done), grouped(self.seeds));
            format!(
                "{done} of {all} seeds, {speed:.0}/s, {hours:.1} simulated hours, {faults} faults, \
                 {grants} grants"
            )
        };
        self.bar.set_position(done);
        if !self.bar.is_hidden() {
            self.bar.set_message(words());
            return;
        }
        let due = self.started.elapsed().as_secs() / LINE_EVERY;
        if self.lines.fetch_max(due, Ordering::Relaxed) < due {
            eprintln!("{}", words());
        }
    }

    /// Prints a line between the lines of the progress, on stderr as well.
    pub(crate) fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Ends the progress. Returns how long the batch took.
    pub(crate) fn finish(&self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }
}

/// The verdict for people.
pub(crate) fn print(
    batch: &RunTotals,
    took: Duration,
    broken: Option<&BrokenRun>,
    idle: Option<&str>,
) {
    let total = &batch.summary;
    match (broken, idle) {
        (Some(broken), _) => {
            let (needed, all) = broken.faults;
            let (_, words) = meaning(broken.found.invariant);
            println!(
                "Broken: {words} ({}), seed {}; it takes {needed} of {all} faults.",
                broken.found.invariant, broken.seed
            );
        }
        (None, Some(idle)) => println!("Held, but it says little ({idle}): {}", held(total)),
        (None, None) => println!("Held: {}", held(total)),
    }
    println!("\n{:<30} {:>13} {:>13}  in words", "invariant", "premise held", "and offline");
    let names: BTreeSet<&str> =
        total.premises.keys().chain(total.offline.keys()).copied().collect();
    for name in names {
        let count = |of: &BTreeMap<&str, u64>| {
            of.get(name).map_or_else(|| "-".to_string(), |count| grouped(*count))
        };
        let (online, offline) = (count(&total.premises), count(&total.offline));
        println!("{name:<30} {online:>13} {offline:>13}  {}", meaning(name).0);
    }
    let line = |what: &str, counts: &BTreeMap<&'static str, u64>| {
        let counts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
        println!("{what:<8} {}", counts.join(", "));
    };
    println!("\n{:<52} {:>13}", "rare state", "seeds");
    for (name, count) in &total.rare {
        println!("{name:<52} {:>13}", grouped(*count));
    }
    println!(
        "\n{:<32} {:>10} {:>12} {:>12} {:>12} {:>12}",
        "how long", "times", "50 %", "90 %", "99 %", "longest"
    );
    for (what, times) in timed(&total.timed) {
        let [half, most, nearly] =
            [50.0, 90.0, 99.0].map(|percent| about(times.percentile(percent)));
        let (count, longest) = (grouped(times.count()), about(times.longest()));
        println!("{what:<32} {count:>10} {half:>12} {most:>12} {nearly:>12} {longest:>12}");
    }
    println!();
    line("faults", &total.faults);
    line("answers", &total.answers);
    println!(
        "{:<8} {}, {} holds lost, {} stale writes refused",
        "grants",
        grouped(total.grants),
        grouped(total.lost),
        grouped(total.refused)
    );
    println!(
        "{:<8} {} say enough to count, {} were healed in part, {} had real gossip",
        "runs",
        grouped(total.counting),
        grouped(total.parts),
        grouped(total.gossiping)
    );
    let forced = total.forced.iter().map(|(why, runs)| format!(", {} ({why})", grouped(*runs)));
    let (all, why) = (total.forced.values().sum(), forced.collect::<String>());
    println!("{:<8} {} runs that had lost their quorum for good{why}", "forced", grouped(all));
    let [damaged, broke, unended] = total.damages.map(grouped);
    println!(
        "{:<8} {damaged} damaged, {broke} broke a connection, {unended} did not end",
        "frames"
    );
    println!("{:<8} {:016x}, the same for these seeds on every machine", "digest", total.digest);
    let (all, one) = batch.rates(took);
    println!(
        "{:<8} {} events in {:.1} s: {} a second, {} on each core",
        "speed",
        grouped(batch.simulated),
        took.as_secs_f64(),
        grouped(all as u64),
        grouped(one as u64)
    );
    if let Some(broken) = broken {
        tell(broken);
    }
}

fn tell(broken: &BrokenRun) {
    let found = &broken.found;
    println!("\n{}\n{}", broken.plan, broken.story);
    println!("{} at {:.6} s: {}", found.invariant, found.at as f64 / 1e9, broken.words);
    let (steps, all) = broken.steps;
    match &broken.replay {
        Some(replay) => println!("replay:   {replay}\n          ({steps} steps of {all})"),
        None => println!("(the log of this run does not break so: it is not saved)"),
    }
    println!("the plan: {}\nreport:   {}", broken.plan_again, broken.report);
}

/// The verdict for machines.
pub(crate) fn json(
    batch: &RunTotals,
    took: Duration,
    broken: Option<&BrokenRun>,
    idle: Option<&str>,
) -> Value {
    let total = &batch.summary;
    let (all, one) = batch.rates(took);
    let [damaged, broke, unended] = total.damages;
    let frames = json!({ "damaged": damaged, "broke_a_connection": broke, "did_not_end": unended });
    let broken = broken.map(|broken| {
        json!({
            "seed": broken.seed, "invariant": broken.found.invariant, "words": broken.words,
            "at": broken.found.at, "faults": broken.faults.0, "faults_before": broken.faults.1,
            "steps": broken.steps.0, "steps_before": broken.steps.1, "plan": broken.plan,
            "replay": broken.replay, "report": broken.report,
        })
    });
    let times: BTreeMap<&str, Value> = timed(&total.timed)
        .into_iter()
        .map(|(what, times)| {
            let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| times.percentile(percent));
            let (count, max) = (times.count(), times.longest());
            (what, json!({ "count": count, "p50": p50, "p90": p90, "p99": p99, "max": max }))
        })
        .collect();
    json!({
        "held": broken.is_none(), "says_little": idle, "broken": broken,
        "seeds": total.seeds, "virtual_seconds": total.virtual_seconds,
        "seconds": took.as_secs_f64(),
        "events": batch.simulated, "events_per_second": all, "events_per_second_per_core": one,
        "grants": total.grants, "lost": total.lost, "refused": total.refused,
        "forced": total.forced,
        "answers": total.answers, "faults": total.faults, "premises": total.premises,
        "offline": total.offline, "counting": total.counting, "parts": total.parts,
        "gossiping": total.gossiping, "frames": frames,
        "rare": total.rare, "nanoseconds": times, "digest": format!("{:016x}", total.digest),
    })
}
