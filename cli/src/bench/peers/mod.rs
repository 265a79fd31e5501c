//! `bench --peers`: the same work for others' locks. Each rival's server is started here, on the loopback and in a folder
//! of its own, and stopped when its rounds are over. Its clients are processes like the members, on the same runtime.
//!
//! Where a rival keeps a log it is measured with and without waiting for the disk, if it can do without.

mod client;
mod server;

pub(crate) use client::{ClientArgs, serve};

use super::load::Outcome;
use super::message::{Load, Names, Order, Ran, Report};
use super::sheet::{Figure, Sheet};
use super::stage::{Stage, Step};
use super::{BenchArgs, Progress};
use clap::ValueEnum;
use server::Server;
use std::net::SocketAddr;
use std::path::Path;

/// Whose locks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rival {
    /// Session-level advisory locks, a connection for each who wants one.
    Postgresql,
    /// SET NX PX, and a script that deletes what is one's own; whoever finds it taken tries again after a millisecond.
    Redis,
    /// The lock service of its API, under a lease.
    Etcd,
    /// The recipe of Curator's `InterProcessMutex`.
    Zookeeper,
}

/// Why etcd is missing, in a build without it.
#[cfg(not(feature = "etcd"))]
const NO_ETCD: &str = "this was built without --features etcd";

/// How a client of it is started.
pub(super) fn arguments(rival: Rival, at: SocketAddr) -> Vec<String> {
    let name = rival.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    ["bench-client", "--rival", &name, "--at", &at.to_string()].map(str::to_owned).to_vec()
}

/// A rival, and how its server is run.
struct Entry {
    rival: Rival,
    name: &'static str,
    /// What is granted is on the disk first, where that is a choice.
    is_durable: bool,
}

const ENTRIES: [Entry; 7] = [
    Entry { rival: Rival::Postgresql, name: "PostgreSQL advisory", is_durable: true },
    Entry { rival: Rival::Redis, name: "Redis, memory only", is_durable: false },
    Entry { rival: Rival::Redis, name: "Redis, appendfsync always", is_durable: true },
    Entry { rival: Rival::Etcd, name: "etcd, 1 node, no fsync", is_durable: false },
    Entry { rival: Rival::Etcd, name: "etcd, 1 node", is_durable: true },
    Entry { rival: Rival::Zookeeper, name: "ZooKeeper, 1 node, no fsync", is_durable: false },
    Entry { rival: Rival::Zookeeper, name: "ZooKeeper, 1 node", is_durable: true },
];

/// The work that all do.
struct Work {
    case: &'static str,
    sizes: &'static str,
    clients: usize,
    tasks: u32,
    names: Names,
}

const WORKS: [Work; 3] = [
    Work { case: "peers: one client", sizes: "tasks", clients: 1, tasks: 1, names: Names::Own },
    Work { case: "peers: 64 tasks of one client", sizes: "tasks", clients: 1, tasks: 64, names: Names::Own },
    Work { case: "peers: 8 clients fight for one name", sizes: "clients", clients: 8, tasks: 1, names: Names::One },
];
impl Work {
    /// From this place on.
    fn loads(&self, first: usize) -> Vec<(usize, Load)> {
        let load = Load::Locks { tasks: self.tasks, names: self.names, timed: true };
        (first..first + self.clients).map(|place| (place, load)).collect()
    }
}

/// Clients that any work needs.
const CLIENTS: usize = 8;

/// Steps of each round.
pub(super) const STEPS: usize = ENTRIES.len() + 1;

/// One sheet for each work.
pub(super) fn run(args: &BenchArgs, logs: &Path, progress: &Progress) -> Vec<Sheet> {
    progress.begin("peers");
    let mut sheets: Vec<Sheet> = WORKS.iter().map(|work| Sheet::new(work.case, work.sizes)).collect();
    if let Err(problem) = ours(args, logs, progress, &mut sheets) {
        sheets[0].problems.push(format!("elderlock: {problem}"));
    }
    for entry in &ENTRIES {
        let folder = logs.join(entry.name.replace([' ', ','], "-"));
        let mut server = match Server::start(entry.rival, entry.is_durable, &folder) {
            Ok(server) => server,
            Err(missing) => {
                sheets[0].notes.push(format!("{}: missing: {missing}", entry.name));
                continue;
            }
        };
        sheets[0].notes.push(format!("{}: {}", entry.name, server.version()));
        if let Err(problem) = theirs(entry, &server, args, &folder, progress, &mut sheets) {
            // A rival that fails is none of ours.
            sheets[0].notes.push(format!("{}: not measured to the end: {problem}", entry.name));
        }
        server.stop();
    }
    sheets
}

fn theirs(
    entry: &Entry,
    server: &Server,
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheets: &mut [Sheet],
) -> Step<()> {
    let mut stage = Stage::clients(CLIENTS, entry.rival, server.addr(), logs.to_owned())?;
    measure(&mut stage, 0, entry.name, args, progress, sheets)
}

/// The first member grants; those who want locks are the others.
fn ours(args: &BenchArgs, logs: &Path, progress: &Progress, sheets: &mut [Sheet]) -> Step<()> {
    let mut stage = Stage::set(CLIENTS + 1, logs.to_owned())?;
    stage.ask(0, &Order::Become, Report::did)?;
    measure(&mut stage, 1, "elderlock", args, progress, sheets)
}

fn measure(
    stage: &mut Stage,
    first: usize,
    name: &'static str,
    args: &BenchArgs,
    progress: &Progress,
    sheets: &mut [Sheet],
) -> Step<()> {
    progress.say(&format!("{name} warms up"));
    for work in &WORKS {
        stage.run(&work.loads(first), args.span())?;
    }
    for round in 1..=args.rounds {
        progress.say(&format!("{name}, round {round} of {}", args.rounds));
        for (work, sheet) in WORKS.iter().zip(&mut *sheets) {
            let mut all = Ran::default();
            stage.run(&work.loads(first), args.span())?.into_iter().for_each(|ran| all.join(ran));
            let size = work.clients as u32 * work.tasks;
            sheet.note(size, Figure::rate(name), all.rate());
            sheet.trace(name, super::speed::percentiles(all.spans));
        }
        progress.step();
    }
    Ok(())
}
