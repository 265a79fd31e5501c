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
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
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
        CliCommand::Chaos(options) => command::chaos::run(&options),
        CliCommand::Check(options) => command::check::run(&options),
        CliCommand::Crowd(options) => command::crowd::run(&options),
        CliCommand::Drawn(options) => command::drawn::run(&options),
        CliCommand::Handshakes(options) => command::handshakes::run(&options),
        CliCommand::Judge(options) => command::judge::run(&options),
        CliCommand::Mutants(options) => command::mutants::run(&options),
        CliCommand::Recipes(options) => command::recipes::run(&options),
        CliCommand::Replay(options) => command::replay::run(&options),
        CliCommand::Report(options) => command::report::run(&options),
        CliCommand::Tape(options) => command::tape::run(&options),
    }
}
