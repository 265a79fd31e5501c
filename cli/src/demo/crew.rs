//! The crew: the demo's worker processes as their parent has them, what they said last, and how to end them.

use super::message::{Order, Report, Sight};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait for the parent: a tenth of a second's worth of sales at most, then workers wait at their pipes.
const INBOX: usize = 4096;

/// How every worker is started.
pub(crate) struct Recipe {
    pub(crate) directory: PathBuf,
    pub(crate) file: PathBuf,
    pub(crate) articles: u32,
    pub(crate) seed: u64,
    pub(crate) no_lock: bool,
    pub(crate) no_fence: bool,
}

/// One place in the crew; a worker that died and was started again has the same place and address.
pub(crate) struct Worker {
    addr: SocketAddr,
    child: Child,
    /// Dropped to let the worker know that nothing more will come.
    orders: Option<ChildStdin>,
    /// Told apart from what an earlier run in this place had still in its pipe.
    run: u32,
    /// Whether its end is known.
    ended: bool,
    /// What it saw last.
    pub(crate) sight: Option<Sight>,
}

/// Something a worker said, or its silence.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// It said so.
    Said(Report),
    /// It ended, and nobody here had killed it.
    Ended,
}

struct Line {
    place: usize,
    run: u32,
    at: Instant,
    /// `None`: the pipe was closed.
    report: Option<Report>,
}

/// All workers.
pub(crate) struct Crew {
    recipe: Recipe,
    pub(crate) workers: Vec<Worker>,
    seeds: Vec<SocketAddr>,
    lines: Receiver<Line>,
    sender: SyncSender<Line>,
    /// Sales that were reported.
    pub(crate) sales: u64,
    /// Troubles that were reported, and how often each.
    pub(crate) troubles: BTreeMap<String, u64>,
}

impl Crew {
    /// Starts `members` workers on free ports of the loopback; the first three are the seeds.
    pub(crate) fn start(recipe: Recipe, members: usize) -> std::io::Result<Crew> {
        let addresses = free_addresses(members)?;
        let seeds = addresses.iter().copied().take(3).collect();
        let (sender, lines) = sync_channel(INBOX);
        let troubles = BTreeMap::new();
        let mut crew = Crew { recipe, workers: Vec::new(), seeds, lines, sender, sales: 0, troubles };
        for (place, addr) in addresses.into_iter().enumerate() {
            let worker = crew.spawn(place, addr, 0)?;
            crew.workers.push(worker);
        }
        Ok(crew)
    }

    /// Starts the worker of this place again, at its old address, and lets it sell.
    pub(crate) fn restart(&mut self, place: usize) -> std::io::Result<()> {
        let (addr, run) = (self.workers[place].addr, self.workers[place].run + 1);
        self.workers[place] = self.spawn(place, addr, run)?;
        self.order(place, Order::Open);
        Ok(())
    }

    fn spawn(&self, place: usize, addr: SocketAddr, run: u32) -> std::io::Result<Worker> {
        let errors = File::options().create(true).append(true).open(self.log(place))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").args(["--index", &place.to_string(), "--bind", &addr.to_string()]);
        for seed in &self.seeds {
            command.args(["--seed-address", &seed.to_string()]);
        }
        let chance = self.recipe.seed.wrapping_mul(1_000_003).wrapping_add((place as u64) << 8 | u64::from(run));
        command.arg("--file").arg(&self.recipe.file);
        command.args(["--articles", &self.recipe.articles.to_string(), "--chance", &chance.to_string()]);
        if self.recipe.no_lock {
            command.arg("--no-lock");
        }
        if self.recipe.no_fence {
            command.arg("--no-fence");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn()?;
        let orders = child.stdin.take();
        let output = child.stdout.take().expect("stdout was asked for as a pipe two lines above");
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                let at = Instant::now();
                let report = serde_json::from_str(&text)
                    .unwrap_or_else(|error| Report::Trouble(format!("said {text:?}, which is no report: {error}")));
                if sender.send(Line { place, run, at, report: Some(report) }).is_err() {
                    return;
                }
            }
            let _ = sender.send(Line { place, run, at: Instant::now(), report: None });
        });
        Ok(Worker { addr, child, orders, run, ended: false, sight: None })
    }

    /// Where the worker's standard error goes.
    pub(crate) fn log(&self, place: usize) -> PathBuf {
        self.recipe.directory.join(format!("worker-{place}.log"))
    }

    /// Orders something. A worker that cannot be told is dead, and that is seen at its other pipe.
    pub(crate) fn order(&mut self, place: usize, order: Order) {
        if let Some(orders) = &mut self.workers[place].orders {
            let line = serde_json::to_string(&order).expect("an order is a bare word");
            let _ = writeln!(orders, "{line}");
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, place: usize) {
        let worker = &mut self.workers[place];
        worker.ended = true;
        worker.sight = None;
        let _ = worker.child.kill();
        let _ = worker.child.wait();
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, place: usize, signal: Signal) -> std::io::Result<()> {
        let pid = Pid::from_child(&self.workers[place].child);
        Ok(kill_process(pid, signal)?)
    }

    /// The next thing that a living worker says; `None` when it is `until` and nobody said anything.
    pub(crate) fn next(&mut self, until: Instant) -> Option<(usize, Instant, News)> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            };
            let worker = &mut self.workers[line.place];
            if let Some(Report::Sale { .. }) = line.report {
                self.sales += 1;
            }
            if line.run != worker.run || worker.ended {
                continue;
            }
            let Some(report) = line.report else {
                worker.ended = true;
                worker.sight = None;
                return Some((line.place, line.at, News::Ended));
            };
            match &report {
                Report::Sees(sight) | Report::Standing { sight, .. } => worker.sight = Some(sight.clone()),
                Report::Trouble(text) => *self.troubles.entry(text.clone()).or_default() += 1,
                Report::Sale { .. } | Report::Refused { .. } => {}
            }
            return Some((line.place, line.at, News::Said(report)));
        }
    }

    /// The newest sight of the cluster among the living.
    pub(crate) fn sight(&self) -> Option<&Sight> {
        self.workers
            .iter()
            .filter_map(|worker| worker.sight.as_ref())
            .filter(|sight| sight.leased)
            .max_by_key(|s| s.view)
    }

    /// The place of the worker that is this process now.
    pub(crate) fn place_of(&self, process: &str) -> Option<usize> {
        self.workers.iter().position(|worker| worker.sight.as_ref().is_some_and(|sight| sight.me == process))
    }

    /// The elder's place.
    pub(crate) fn elder(&self) -> Option<usize> {
        self.sight().and_then(|sight| sight.elder.as_deref()).and_then(|elder| self.place_of(elder))
    }

    /// The grantor's place, as most see it that name one who lives.
    pub(crate) fn grantor(&self) -> Option<usize> {
        let mut votes = BTreeMap::new();
        for sight in self.workers.iter().filter_map(|worker| worker.sight.as_ref()) {
            if let Some(place) = sight.grantor.as_deref().and_then(|grantor| self.place_of(grantor)) {
                *votes.entry(place).or_insert(0) += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(place, _)| place)
    }

    /// The places of the living, oldest member first.
    pub(crate) fn by_age(&self) -> Vec<usize> {
        let members = self.sight().map(|sight| sight.members.clone()).unwrap_or_default();
        members.iter().filter_map(|process| self.place_of(process)).collect()
    }

    /// Whether every worker is alive and all are in one view, nobody else in it.
    pub(crate) fn is_whole(&self) -> bool {
        let Some(first) = self.sight() else { return false };
        self.workers.iter().all(|worker| {
            worker.sight.as_ref().is_some_and(|sight| {
                sight.leased && sight.view == first.view && sight.ghosts == 0 && sight.members == first.members
            })
        }) && first.members.len() == self.workers.len()
            && self.by_age().len() == self.workers.len()
    }

    /// How many are alive.
    pub(crate) fn living(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.ended).count()
    }

    /// Lets all finish and leave; says who did not, or not cleanly. Ends within `limit`.
    pub(crate) fn finish(&mut self, limit: Duration) -> Vec<String> {
        let until = Instant::now() + limit;
        for place in 0..self.workers.len() {
            self.order(place, Order::Finish);
        }
        while self.living() > 0 && self.next(until).is_some() {}
        let mut problems = Vec::new();
        for (place, worker) in self.workers.iter_mut().enumerate() {
            let ended = worker.ended;
            if !ended {
                let _ = worker.child.kill();
            }
            match worker.child.wait() {
                Ok(status) if status.success() => {}
                Ok(_) if !ended => problems.push(format!("worker {place} did not finish within {limit:?}")),
                Ok(status) => problems.push(format!("worker {place} ended with {status}")),
                Err(error) => problems.push(format!("worker {place} cannot be waited for: {error}")),
            }
        }
        problems
    }
}

impl Drop for Crew {
    /// Nobody is left behind, stopped ones included.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// Loopback addresses whose port is free for TCP and UDP. All are held until all are found, so they differ.
///
/// They come from below the range that the kernel gives to outgoing connections: a port of that range could be
/// taken by another worker's connection while its own worker is dead.
fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    const PORTS: std::ops::Range<u16> = 15_000..32_000;
    let start = std::process::id().wrapping_mul(37) % PORTS.len() as u32;
    let ports = PORTS.cycle().skip(start as usize).take(PORTS.len());
    let mut held = Vec::new();
    for addr in ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        if let (Ok(tcp), Ok(udp)) = (TcpListener::bind(addr), UdpSocket::bind(addr)) {
            held.push((addr, tcp, udp));
        }
        if held.len() == count {
            return Ok(held.into_iter().map(|(addr, _, _)| addr).collect());
        }
    }
    Err(std::io::Error::other("no free ports on the loopback"))
}
