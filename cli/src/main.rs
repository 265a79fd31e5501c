//! The `elderlock` command: the demo, a member to run by hand, the status of a running member,
//! orders to one, and cluster keys.

mod caller;
mod cli_words;
mod clock;
mod cluster_status;
mod control_escaper;
mod demo;
mod duration;
mod generated;
mod holders;
mod keys;
mod lock;
mod members;
mod node;
mod orders;
mod processes;
mod revoke;
#[cfg(test)]
#[path = "../tests/support/schemas.rs"]
mod schemas;
mod secret;
mod signals;
mod status;
mod switch;
mod why;

use clap::{CommandFactory, Parser, Subcommand};
use processes::{CommandResult, exit_code, with_runtime};
use std::process::ExitCode;

// The description is that of the package.
#[derive(Parser)]
#[command(name = "elderlock", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sell a stock of goods from several processes while they are killed and paused, and check the
    /// books.
    Demo(demo::DemoArgs),
    /// Run one member, print its events, leave on SIGTERM or SIGINT.
    Node(node::NodeArgs),
    /// Show what a running member sees, or whether it is healthy.
    Status(status::StatusArgs),
    /// List the members of the cluster, as a running member sees them.
    Members(members::MembersArgs),
    /// Run a command while a lock is held for it, through a running member.
    ///
    /// The command finds the fencing token in ELDERLOCK_TOKEN and its lineage in ELDERLOCK_LINEAGE.
    /// ELDERLOCK_OWNER makes a lock that the command takes one of the same owner.
    /// Exit codes: that of the command, 75 if the lock was not granted, 76 if it was lost or the
    /// command was stopped for it.
    Lock(lock::LockArgs),
    /// Show the holders of a lock, and the requests that wait for it, in their order.
    Why(why::WhyArgs),
    /// List the held locks of a service, with their holders.
    Held(why::HeldArgs),
    /// Ask the holder of a lock to release it, and take it away if it does not.
    Revoke(revoke::RevokeArgs),
    /// Make a member the grantor of a service.
    Transfer(orders::TransferArgs),
    /// Have a member leave its cluster.
    Leave(orders::MemberOrderArgs),
    /// Have a member that is cut off for good go on without a quorum, as a new lineage.
    Force(orders::MemberOrderArgs),
    /// Make a cluster key, or derive the key of a role.
    Keygen(keys::KeygenArgs),
    /// Print the completions for a shell.
    Completions(generated::CompletionsArgs),
    /// Write the man pages, one for each command, to a directory.
    Man(generated::ManArgs),
    /// Becomes the command of `lock`.
    #[command(hide = true)]
    Exec(lock::ExecArgs),
    /// A process of the demo.
    #[command(hide = true)]
    Worker(demo::WorkerArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        // The command has no runtime here: a runtime's threads come and go, and a child dies with
        // the thread that started it.
        Command::Demo(args) => demo::run(args),
        Command::Exec(args) => lock::exec(args),
        // The child of `lock` dies with the thread that started it, which is this one.
        Command::Lock(args) => with_runtime(lock::lock(args)),
        Command::Worker(args) => with_runtime(demo::work(args)),
        Command::Keygen(args) => keys::generate(args),
        Command::Node(args) => with_runtime(node::run(args)),
        Command::Status(args) => with_runtime(status::run(args)),
        Command::Members(args) => with_runtime(members::run(args)),
        Command::Completions(args) => generated::completions(args, Cli::command()),
        Command::Man(args) => generated::man(args, Cli::command()),
        Command::Why(args) => with_runtime(why::why(args)),
        Command::Held(args) => with_runtime(why::held(args)),
        Command::Revoke(args) => with_runtime(revoke::run(args)),
        Command::Transfer(args) => with_runtime(orders::transfer(args)),
        Command::Leave(args) => with_runtime(orders::leave(args)),
        Command::Force(args) => with_runtime(orders::force(args)),
    };
    exit_code("elderlock", done)
}
