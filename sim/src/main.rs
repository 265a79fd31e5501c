//! `elderlock-sim`: simulated clusters as a tool. Each subcommand has its own file under
//! `command/`.
//!
//! Exit code 0: held. 1: a break was found, or the run shows too little. 2: a wrong command line.
#![forbid(unsafe_code)]

mod command;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Clusters of elderlock's core in virtual time: chaos, checks, replays.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs seeds of chaos on all cores of the machine, and shrinks the first break.
    Chaos(command::chaos::ChaosOptions),
    /// Searches small Worlds exhaustively.
    Check(command::check::CheckOptions),
    /// Shows the cost of idle members, from a few to a thousand.
    Crowd(command::crowd::CrowdOptions),
    /// Tries breaks that a tool has drawn. Needs a copy that `sim/drawn` makes.
    Drawn(command::drawn::DrawnOptions),
    /// Shakes hands, and sends records and sealed gossip, on an attacker's network.
    Handshakes(command::handshakes::HandshakeOptions),
    /// Checks the record of a run, as `chaos --history` writes it, once more.
    Judge(command::judge::JudgeOptions),
    /// Plants breaks in the core and shows whether chaos finds each.
    /// Needs RUSTFLAGS="--cfg elderlock_mutants".
    Mutants(command::mutants::MutantOptions),
    /// Runs whole members with the recipes in simulated time. Needs the feature `recipes`.
    Recipes(command::recipes::RecipeOptions),
    /// Runs a log or a script again, and prints the outcome.
    Replay(command::replay::ReplayOptions),
    /// Writes a page of HTML that shows a run as diagrams.
    Report(command::report::ReportOptions),
    /// Shows the run of a tape of the fuzzer.
    Tape(command::tape::TapeOptions),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Chaos(options) => command::chaos::run(&options),
        Command::Check(options) => command::check::run(&options),
        Command::Crowd(options) => command::crowd::run(&options),
        Command::Drawn(options) => command::drawn::run(&options),
        Command::Handshakes(options) => command::handshakes::run(&options),
        Command::Judge(options) => command::judge::run(&options),
        Command::Mutants(options) => command::mutants::run(&options),
        Command::Recipes(options) => command::recipes::run(&options),
        Command::Replay(options) => command::replay::run(&options),
        Command::Report(options) => command::report::run(&options),
        Command::Tape(options) => command::tape::run(&options),
    }
}
