//! `elderlock demo`: a shop with real processes, real deaths and an audit.

mod crew;
mod message;
mod progress;
mod scenario;
mod shop;
mod verdict;
mod worker;

pub(crate) use worker::{WorkerArgs, work};

use crate::CommandResult;
use crate::processes::Directory;
use clap::Args;
use crew::{Crew, Recipe};
use elderlock::ClusterKey;
use progress::DemoProgress;
use scenario::Scenario;
use shop::Shop;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use verdict::Verdict;

/// The settings of the demo.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Processes. At least 5, so that elder and grantor can die together and a quorum is left.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=16))]
    members: u32,
    /// Articles in stock, each with a lock of its own. At least 2: two victims hold one each.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    articles: u32,
    /// How long to sell.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..=45))]
    seconds: u32,
    /// Seed for the victims and the pauses; scheduling between processes still varies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object on standard output; progress goes to standard error.
    #[arg(long)]
    json: bool,
    /// Take no locks. The audit must find oversold goods. Exit code 1.
    #[arg(long, conflicts_with = "no_fence")]
    no_lock: bool,
    /// Let the table ignore tokens. The audit must find late writes. Exit code 1.
    #[arg(long)]
    no_fence: bool,
}

/// The most time from the start of the command to its end.
const LIMIT: Duration = Duration::from_secs(58);
/// Time reserved for the workers to leave and the audit.
const CLOSING: Duration = Duration::from_secs(8);

pub(crate) fn run(args: DemoArgs) -> CommandResult {
    let until = Instant::now() + LIMIT - CLOSING;
    let directory = Directory::make("demo")?;
    let file = directory.0.join("shop.sqlite");
    Shop::create(&file, args.articles)?;
    let key = directory.0.join("cluster.key");
    ClusterKey::generate()?.write_file(&key)?;
    let recipe = Recipe {
        directory: directory.0.clone(),
        file: file.clone(),
        key,
        articles: args.articles,
        seed: args.seed,
        no_lock: args.no_lock,
        no_fence: args.no_fence,
    };
    let progress = DemoProgress::new(args.seconds);
    progress.tell(&format!(
        "{} processes sell {} articles out of {}",
        args.members,
        args.articles,
        file.display()
    ));
    let mut crew = Crew::start(recipe, args.members as usize)?;
    let played = Scenario::new(&mut crew, &progress, &args, until).play();
    progress.tell("closing: all workers finish and leave");
    let left = crew.finish(CLOSING / 2);
    progress.close();

    let audit = Shop::open(&file, true)?.audit()?;
    let verdict = Verdict::new(&args, played, audit, left, &crew);
    if args.json {
        println!("{}", verdict.json());
    } else {
        print!("{}", verdict.table());
    }
    if verdict.is_ok() {
        return Ok(ExitCode::SUCCESS);
    }
    if !verdict.is_expected_failure() {
        eprintln!("the books and the workers' logs are kept in {}", directory.keep().display());
    }
    Ok(ExitCode::FAILURE)
}
