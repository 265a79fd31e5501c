//! `elderlock bench`: how long things take, with real processes on the loopback.
//!
//! A case is measured some times over, at several sizes, and comes to a [`Sheet`]: medians, targets, and whether the
//! cost grows in step with the work. A target that is missed is said in words; only what must not be at all, as a lock
//! that was lost, makes the bench fail.

mod clock;
mod member;
mod message;
mod sheet;
mod stage;
mod takeover;

pub(crate) use member::{MemberArgs, serve};

use crate::Done;
use crate::processes::Directory;
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sheet::Sheet;
use std::path::Path;
use std::process::ExitCode;

/// Something to measure.
struct Case {
    name: &'static str,
    run: fn(&BenchArgs, &Path, &Progress, &mut Sheet) -> Result<(), String>,
}

const CASES: [Case; 3] = [
    Case { name: "transfer", run: takeover::transfer },
    Case { name: "hand-off", run: takeover::hand_off },
    Case { name: "recovery", run: takeover::recovery },
];

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// Only these cases.
    #[arg(long, value_delimiter = ',', value_name = "CASE",
        value_parser = PossibleValuesParser::new(CASES.iter().map(|case| case.name)))]
    only: Vec<String>,
    /// How many locks are held.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 10_000, 100_000],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    holds: Vec<u32>,
    /// How many requests wait.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=2000))]
    waiters: u32,
    /// How often everything is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Print one JSON object on standard output; progress goes to standard error.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(mut args: BenchArgs) -> Done {
    args.holds.sort_unstable();
    args.holds.dedup();
    let directory = Directory::make("bench")?;
    let is_wanted = |case: &&Case| args.only.is_empty() || args.only.iter().any(|name| name == case.name);
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    let progress = Progress::new(cases.len() as u64 * args.holds.len() as u64 * u64::from(args.rounds));
    let mut sheets = Vec::new();
    for case in cases {
        progress.begin(case.name);
        let mut sheet = Sheet::new(case.name);
        if let Err(problem) = (case.run)(&args, &directory.0, &progress, &mut sheet) {
            sheet.problems.push(problem);
        }
        if !args.json {
            progress.print(&sheet.table());
        }
        sheets.push(sheet);
    }
    progress.close();

    let is_ok = sheets.iter().all(|sheet| sheet.problems.is_empty());
    if args.json {
        println!("{}", json!({ "ok": is_ok, "cases": sheets.iter().map(Sheet::json).collect::<Vec<_>>() }));
    }
    if is_ok {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("the members' logs are kept in {}", directory.keep().display());
    Ok(ExitCode::FAILURE)
}

/// How far the bench is, on standard error; nothing without a terminal.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(rounds: u64) -> Progress {
        let style = ProgressStyle::with_template("{elapsed:>4} {bar:20.green} {pos}/{len} {prefix}: {msg}");
        Progress { bar: ProgressBar::new(rounds).with_style(style.expect("the template is constant")) }
    }

    fn begin(&self, case: &'static str) {
        self.bar.set_prefix(case);
    }

    /// What goes on.
    fn say(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// A round is over.
    fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints above the bar, on standard output.
    fn print(&self, text: &str) {
        self.bar.suspend(|| print!("{text}"));
    }

    fn close(&self) {
        self.bar.finish_and_clear();
    }
}
