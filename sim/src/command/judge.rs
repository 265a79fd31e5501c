//! `judge`: checks the record of a run from a file.

use elderlock_sim::history_checker;
use elderlock_sim::record::Record;
use std::path::PathBuf;
use std::process::ExitCode;

/// The options of `judge`.
#[derive(Debug, clap::Args)]
pub(crate) struct JudgeOptions {
    /// The record, as `chaos --history` writes it.
    file: PathBuf,
}

pub(crate) fn run(options: &JudgeOptions) -> ExitCode {
    let read = std::fs::read_to_string(&options.file).map_err(|error| error.to_string());
    let record = read.and_then(|text| Record::from_json_lines(&text));
    let findings = match record.and_then(|record| history_checker::check(&record)) {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("{}: {error}", options.file.display());
            return ExitCode::from(2);
        }
    };
    for (name, count) in &findings.premises {
        println!("{count:>8}  {name}");
    }
    for flaw in &findings.flaws {
        println!("{:.6} s: {} is broken: {}", flaw.at as f64 / 1e9, flaw.invariant, flaw.what);
    }
    match findings.flaws.len() {
        0 => println!("held"),
        broken => println!("{broken} flaws"),
    }
    if findings.flaws.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
