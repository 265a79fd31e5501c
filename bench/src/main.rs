//! `elderlock-bench`: measures times and costs with real processes on the loopback.
//!
//! A case is measured several times, at several sizes. The results form a [`Sheet`]: medians,
//! targets, and whether the cost grows in step with the work. A missed target is reported. Only a
//! broken guarantee, such as a lost lock, fails the bench.

mod about;
mod bulk;
mod clock;
mod cluster;
mod count;
mod failover;
mod interrupt;
mod kept;
mod load;
mod markdown;
mod member;
mod membership;
mod message;
mod plot;
#[cfg(feature = "rivals")]
mod rivals;
// The demo starts its processes in the same way.
mod grantor_change;
#[allow(dead_code, reason = "the demo uses the rest")]
#[path = "../../cli/src/processes.rs"]
mod processes;
mod secure;
mod sheet;
mod spans;
mod speed;
mod wake;

use about::About;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use markdown::Markdown;
use processes::{CommandResult, Directory, exit_code, with_runtime};
use serde_json::{Value, json};
use sheet::{HELD, Sheet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measure the cost of locks, each beside a floor, and the time of fail-over, with real processes.
#[derive(Parser)]
#[command(name = "elderlock-bench", version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<Child>,
    #[command(flatten)]
    args: BenchArgs,
}

/// The kinds of processes that the bench starts.
#[derive(Subcommand)]
enum Child {
    /// A member.
    #[command(hide = true)]
    Member(member::MemberArgs),
    /// A client of another lock service.
    #[cfg(feature = "rivals")]
    #[command(hide = true)]
    Client(rivals::ClientArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.child {
        // The bench has no runtime here: a runtime's threads come and go, and a child dies with the
        // thread that started it.
        None => run(cli.args),
        Some(Child::Member(args)) => with_runtime(member::serve(args)),
        #[cfg(feature = "rivals")]
        Some(Child::Client(args)) => with_runtime(rivals::serve(args)),
    };
    exit_code("elderlock-bench", done)
}

/// A case of the bench.
struct Case {
    name: &'static str,
    /// The unit of the case's sizes.
    sizes: &'static str,
    /// The number of steps of each round.
    steps: fn(&BenchArgs) -> usize,
    run: fn(&BenchArgs, &Path, &Progress, &mut Sheet) -> Result<(), String>,
}

const fn case(
    name: &'static str,
    sizes: &'static str,
    steps: fn(&BenchArgs) -> usize,
    run: fn(&BenchArgs, &Path, &Progress, &mut Sheet) -> Result<(), String>,
) -> Case {
    Case { name, sizes, steps, run }
}

const CASES: [Case; 22] = [
    case("local", "tasks", |_| 1, speed::local),
    case("remote", "tasks", |_| 1, speed::remote),
    case("remote-64", "tasks", |_| 1, speed::remote_many),
    case("contended", "members", |_| 1, speed::contended),
    case("kept", "members", |_| 1, kept::kept),
    case("kept-shares", "members", |_| 1, kept::kept_shares),
    case("recalled", "percent", |_| 1, kept::recalled),
    case("in-turn", "members", |_| 1, kept::in_turn),
    case("held", HELD, |args| bulk::tables(args.table).len(), bulk::held),
    case("names", "names", |_| 1, bulk::names),
    case("waiters", "waiting", |_| 1, bulk::waiters),
    case("wake", "waiting", |_| 1, wake::wake),
    case("transfer", HELD, |args| args.holds.len(), grantor_change::transfer),
    case("leave", HELD, |args| args.holds.len(), grantor_change::leave),
    case("move", HELD, |args| args.moves.len(), grantor_change::moved),
    case("recovery", HELD, |args| args.holds.len(), grantor_change::recovery),
    case("fail-over", "beside", |_| failover::VICTIMS.len(), failover::fail_over),
    case("keeper-dies", "members", |_| 2, kept::keeper_dies),
    case("keeper-pauses", "members", |_| 2, kept::keeper_pauses),
    case("members", "members", |args| membership::sizes(args.members).len(), membership::members),
    case("idle", "members", |_| 2, membership::idle),
    case("secure", "tasks or members", |_| secure::PARTS, secure::secure),
];

/// The cases to measure, and their sizes.
#[derive(Args, Clone, Debug)]
struct BenchArgs {
    /// Only these cases.
    #[arg(long, value_delimiter = ',', value_name = "CASE",
        value_parser = PossibleValuesParser::new(CASES.iter().map(|case| case.name)))]
    only: Vec<String>,
    /// The number of rounds. Each round measures everything once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds for which each rate is measured in each round.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    millis: u32,
    /// Cases transfer, leave, recovery: the numbers of held locks.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 10_000, 100_000],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    holds: Vec<u32>,
    /// Case move: the numbers of held locks. Those above 10,000 are compared with 10,000.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 10_000, 1_000_000],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    moves: Vec<u32>,
    /// Cases transfer, leave, recovery, move: the number of waiting requests.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=2000))]
    waiters: u32,
    /// Case held: the number of held locks.
    #[arg(long, default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(2000..=2_000_000))]
    table: u32,
    /// Case names: the number of names that each of two members locks and releases once.
    #[arg(long, default_value_t = 10_000_000,
        value_parser = clap::value_parser!(u32).range(1000..=1_000_000_000))]
    names: u32,
    /// Case waiters: the number of requests that wait for one lock.
    #[arg(long, default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(200..=1_000_000))]
    queue: u32,
    /// Case members: the largest number of members.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(3..=200))]
    members: u32,
    /// Measure the installed ones of PostgreSQL, Redis, etcd and ZooKeeper instead, beside
    /// elderlock. Needs a build with `--features rivals`.
    #[arg(long, conflicts_with = "only")]
    rivals: bool,
    /// Leave each member's code at random addresses. By default all members have their code at the
    /// same addresses. So a processor's branch predictions for one member also help the next one,
    /// as on separate machines.
    #[arg(long)]
    random_addresses: bool,
    /// Print one JSON object on standard output; progress goes to standard error.
    #[arg(long)]
    json: bool,
    /// Draw the results into this HTML file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the tables of these cases into this Markdown file, between its marks `<!-- bench: ...
    /// -->` and `<!-- /bench -->`.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl BenchArgs {
    /// The time for which each rate is measured.
    fn span(&self) -> Duration {
        Duration::from_millis(self.millis.into())
    }
}

fn run(mut args: BenchArgs) -> CommandResult {
    for sizes in [&mut args.holds, &mut args.moves] {
        sizes.sort_unstable();
        sizes.dedup();
    }
    interrupt::heed()?;
    let has_equal_addresses = !args.random_addresses && cluster::choose_equal_addresses();
    let directory = Directory::make("bench")?;
    let is_wanted =
        |case: &&Case| args.only.is_empty() || args.only.iter().any(|name| name == case.name);
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    let plan = |file: &PathBuf| Markdown::plan(file, (!args.rivals).then_some(&names));
    let markdown = args.markdown.as_ref().map(plan).transpose()?;
    let about = About::of(&args, has_equal_addresses);
    if !args.json {
        println!("{}", about.line());
    }
    let sheets = if args.rivals {
        beside_rivals(&args, &directory.0)?
    } else {
        sheets(&cases, &args, &directory.0)
    };
    interrupt::check()?;

    let is_ok = sheets.iter().all(|sheet| sheet.problems.is_empty());
    let cases: Vec<Value> = sheets.iter().map(Sheet::json).collect();
    let record = json!({ "ok": is_ok, "about": about.json(), "cases": cases });
    if args.json {
        println!("{record}");
    }
    if let Some(file) = &args.plot {
        std::fs::write(file, plot::page(&about.line(), &record))?;
    }
    if is_ok {
        markdown.map(|markdown| markdown.write(&about.line(), &sheets)).transpose()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.markdown {
        eprintln!("{} is unchanged, because a case failed", file.display());
    }
    eprintln!("the members' logs are kept in {}", directory.keep().display());
    Ok(ExitCode::FAILURE)
}

fn sheets(cases: &[&Case], args: &BenchArgs, logs: &Path) -> Vec<Sheet> {
    let steps: usize = cases.iter().map(|case| (case.steps)(args)).sum();
    let progress = Progress::new(steps as u64 * u64::from(args.rounds));
    let mut sheets = Vec::new();
    for case in cases {
        progress.begin(case.name);
        let mut sheet = Sheet::new(case.name, case.sizes);
        if let Err(problem) = (case.run)(args, logs, &progress, &mut sheet) {
            sheet.problems.push(problem);
        }
        if interrupt::check().is_err() {
            break;
        }
        if !args.json {
            progress.print(&sheet.table());
        }
        sheets.push(sheet);
    }
    progress.close();
    sheets
}

#[cfg(feature = "rivals")]
fn beside_rivals(args: &BenchArgs, logs: &Path) -> Result<Vec<Sheet>, String> {
    let progress = Progress::new(rivals::STEPS as u64 * u64::from(args.rounds));
    let sheets = rivals::run(args, logs, &progress);
    progress.close();
    interrupt::check()?;
    if !args.json {
        sheets.iter().for_each(|sheet| print!("{}", sheet.table()));
    }
    Ok(sheets)
}

#[cfg(not(feature = "rivals"))]
fn beside_rivals(_: &BenchArgs, _: &Path) -> Result<Vec<Sheet>, String> {
    let how = "cargo run --release -p elderlock-bench --features rivals -- --rivals";
    Err(format!("this was built without the rivals' clients: {how}"))
}

/// The progress of the bench, on standard error. Nothing is shown without a terminal.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(rounds: u64) -> Progress {
        let style =
            ProgressStyle::with_template("{elapsed:>4} {bar:20.green} {pos}/{len} {prefix}: {msg}");
        Progress {
            bar: ProgressBar::new(rounds).with_style(style.expect("the template is constant")),
        }
    }

    fn begin(&self, case: &'static str) {
        self.bar.set_prefix(case);
    }

    /// Shows the present activity.
    fn show(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// Counts one step as done.
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
