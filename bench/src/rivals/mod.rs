//! `--rivals`: the same work with the locks of other services. The bench starts each server on the
//! loopback, in a folder of its own, and stops it at the end. Its clients are processes on the same
//! runtime as the members.
//!
//! In each round the services are measured one after the other, while the others idle. A service
//! with a log is measured with and without waiting for the disk, if it offers both.

mod client;
mod etcd;
mod server;

pub(crate) use client::{ClientArgs, serve};

use crate::clock::between;
use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, Load, LoadResult, Names, QueuedWaiter};
use crate::sheet::{Figure, Sheet};
use crate::{BenchArgs, Progress, interrupt};
use clap::ValueEnum;
use client::LEASE;
use server::Server;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The other lock services.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rival {
    /// Session-level advisory locks, with a connection for each client.
    Postgresql,
    /// SET NX PX, and a script that deletes the client's own key. A client that finds the key taken
    /// tries again after a millisecond.
    Redis,
    /// The lock service of etcd's API, under a lease.
    Etcd,
    /// The recipe of Curator's `InterProcessMutex`.
    Zookeeper,
}

/// The arguments of a client of this service.
pub(super) fn arguments(rival: Rival, at: SocketAddr) -> Vec<String> {
    let name =
        rival.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    ["client", "--rival", &name, "--at", &at.to_string()].map(str::to_owned).to_vec()
}

/// A measured lock service.
struct Entry {
    name: &'static str,
    kind: RivalKind,
}

enum RivalKind {
    /// Members of elderlock, and one more that grants. `keeps`: they keep the locks that they use
    /// again and again.
    Ours { keeps: bool },
    /// Clients of a server. `is_durable`: each grant is on the disk first, if the service offers a
    /// choice.
    Theirs { rival: Rival, is_durable: bool },
}

const fn theirs(name: &'static str, rival: Rival, is_durable: bool) -> Entry {
    Entry { name, kind: RivalKind::Theirs { rival, is_durable } }
}

const ENTRIES: [Entry; 9] = [
    Entry { name: "elderlock, from other members", kind: RivalKind::Ours { keeps: false } },
    Entry { name: "elderlock, from members that keep", kind: RivalKind::Ours { keeps: true } },
    theirs("PostgreSQL advisory", Rival::Postgresql, true),
    theirs("Redis, memory only", Rival::Redis, false),
    theirs("Redis, appendfsync always", Rival::Redis, true),
    theirs("etcd, 1 node, no fsync", Rival::Etcd, false),
    theirs("etcd, 1 node", Rival::Etcd, true),
    theirs("ZooKeeper, 1 node, no fsync", Rival::Zookeeper, false),
    theirs("ZooKeeper, 1 node", Rival::Zookeeper, true),
];

/// The work that is measured at all services.
struct Work {
    case: &'static str,
    sizes: &'static str,
    clients: usize,
    tasks: u32,
    names: Names,
}

const WORKS: [Work; 3] = [
    Work { case: "one client", sizes: "tasks", clients: 1, tasks: 1, names: Names::Own },
    Work {
        case: "one client, each task its own name",
        sizes: "tasks",
        clients: 1,
        tasks: 64,
        names: Names::Own,
    },
    Work {
        case: "all want one name",
        sizes: "clients",
        clients: CLIENTS,
        tasks: 1,
        names: Names::One,
    },
];
/// The entry for the work of one client at the grantor's own member. A server has no such member.
const AT_HOME: &str = "elderlock, at the grantor's own member";
/// The number of processes of each service that want locks.
const CLIENTS: usize = 8;
/// The figure of each service that is not a rate.
const KILLED: &str = "holder killed, until the next has it";
/// The time until the next waiter is queued.
const SETTLE: Duration = Duration::from_millis(500);
/// The number of steps of each round.
pub(super) const STEPS: usize = ENTRIES.len();

/// Makes a sheet for each work, and one for the kill of a holder.
pub(super) fn run(args: &BenchArgs, logs: &Path, progress: &Progress) -> Vec<Sheet> {
    progress.begin("rivals");
    let mut sheets: Vec<Sheet> =
        WORKS.iter().map(|work| Sheet::new(work.case, work.sizes)).collect();
    sheets.push(Sheet::new(KILLED, "waiting"));
    sheets[WORKS.len()]
        .notes
        .push(format!("leases and sessions of {LEASE:?}, where there are such"));

    let mut contenders = Vec::new();
    for entry in &ENTRIES {
        progress.show(&format!("{} starts", entry.name));
        match RunningRival::start(entry, logs) {
            Ok(contender) => {
                // The version is the same for a server with and without its disk.
                let version =
                    contender.version().filter(|version| !sheets[0].notes.contains(version));
                sheets[0].notes.extend(version);
                contenders.push(contender);
            }
            Err(missing) => entry.complain(&mut sheets[0], "missing", &missing),
        }
    }
    // The first round only warms up.
    for round in 0..=args.rounds {
        contenders.retain_mut(|contender| {
            progress.show(&format!("round {round} of {}: {}", args.rounds, contender.entry.name));
            let measured =
                interrupt::check().and_then(|()| contender.measure(args, round > 0, &mut sheets));
            if round > 0 {
                progress.step();
            }
            measured
                .map_err(|problem| contender.entry.complain(&mut sheets[0], "given up", &problem))
                .is_ok()
        });
    }
    sheets
}

impl Entry {
    /// Notes the failure of another service as a remark, which is no problem of the bench.
    fn complain(&self, sheet: &mut Sheet, what: &str, why: &str) {
        let complaint = format!("{}: {what}: {why}", self.name);
        match self.kind {
            RivalKind::Ours { .. } => sheet.problems.push(complaint),
            RivalKind::Theirs { .. } => sheet.notes.push(complaint),
        }
    }
}

/// A measured lock service that is running. The clients end before their server.
struct RunningRival {
    entry: &'static Entry,
    cluster: BenchCluster,
    /// The index of the first client.
    first: usize,
    server: Option<Server>,
}

impl RunningRival {
    fn start(entry: &'static Entry, logs: &Path) -> BenchResult<RunningRival> {
        let folder = logs.join(entry.name.replace([' ', ',', '\''], "-"));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(match entry.kind {
            RivalKind::Ours { keeps } => {
                let mut cluster = BenchCluster::set(1 + CLIENTS, folder)?;
                cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
                for member in 1..=CLIENTS {
                    cluster.ask(member, &BenchOrder::Keep(keeps), BenchReport::done)?;
                }
                RunningRival { entry, cluster, first: 1, server: None }
            }
            RivalKind::Theirs { rival, is_durable } => {
                let server = Server::start(rival, is_durable, &folder)?;
                let cluster = BenchCluster::clients(CLIENTS, rival, server.addr(), folder)?;
                RunningRival { entry, cluster, first: 0, server: Some(server) }
            }
        })
    }

    fn version(&self) -> Option<String> {
        self.server.as_ref().map(Server::version)
    }

    /// Measures all figures once.
    fn measure(&mut self, args: &BenchArgs, counts: bool, sheets: &mut [Sheet]) -> BenchResult<()> {
        for (work, sheet) in WORKS.iter().zip(&mut *sheets) {
            let mut entries = vec![(self.entry.name, self.first)];
            let is_first = matches!(self.entry.kind, RivalKind::Ours { keeps: false });
            if is_first && work.clients == 1 {
                entries.insert(0, (AT_HOME, 0));
            }
            for (name, first) in entries {
                let load = Load::Locks { tasks: work.tasks, names: work.names, timed: true };
                let loads: Vec<(usize, Load)> =
                    (first..first + work.clients).map(|index| (index, load)).collect();
                let mut all = LoadResult::default();
                self.cluster.run(&loads, args.span())?.into_iter().for_each(|ran| all.join(ran));
                if counts {
                    sheet.note(work.clients as u32 * work.tasks, Figure::rate(name), all.rate());
                    sheet.trace(name, all.spans.percentiles());
                }
            }
        }
        if counts {
            sheets[WORKS.len()].note_time(1, Figure::time(self.entry.name), self.kill()?);
        }
        Ok(())
    }

    /// Kills a client whose lock another client waits for, and starts it again.
    fn kill(&mut self) -> BenchResult<Duration> {
        let (holder, waiter) = (self.first + 1, self.first + 2);
        self.cluster.ask(holder, &BenchOrder::HoldQueues(1), BenchReport::done)?;
        self.cluster.order(waiter, &BenchOrder::Wait(vec![QueuedWaiter { queue: 0, waiter: 0 }]));
        self.cluster.pause(SETTLE)?;
        let from = self.cluster.kill(holder);
        let granted =
            self.cluster.any_report("for the next waiter to have the lock", |index, report| {
                match report {
                    BenchReport::Served(served) if index == waiter => Some(served[0].at),
                    _ => None,
                }
            })?;
        self.cluster.enter(holder)?;
        if let RivalKind::Ours { keeps } = self.entry.kind {
            self.cluster.ask(holder, &BenchOrder::Keep(keeps), BenchReport::done)?;
        }
        Ok(between(from, granted))
    }
}
