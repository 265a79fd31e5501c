//! The crew: the demo's worker processes as the parent knows them, their last reports, and their
//! end.

use super::message::{ClusterSnapshot, WorkerOrder, WorkerReport};
use crate::processes::{ChildOutput, ChildUpdate, Processes, StopSignal, free_addresses};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The settings with which every worker is started.
pub(crate) struct Recipe {
    pub(crate) directory: PathBuf,
    pub(crate) file: PathBuf,
    /// The file with the crew's cluster key.
    pub(crate) key: PathBuf,
    pub(crate) articles: u32,
    pub(crate) seed: u64,
    pub(crate) no_lock: bool,
    pub(crate) no_fence: bool,
}

/// A worker of the crew. A worker that is started again keeps its index and address.
pub(crate) struct Worker {
    addr: SocketAddr,
    /// The number of restarts.
    run: u32,
    /// Whether the worker was ordered to leave.
    leaves: bool,
    /// The last snapshot that the worker reported; `None` once it has ended.
    pub(crate) sight: Option<ClusterSnapshot>,
}

/// A worker's report, or its unexpected end.
#[derive(Clone, Debug)]
pub(crate) enum WorkerUpdate {
    /// A report of the worker.
    Said(WorkerReport),
    /// The worker ended, although this process had neither killed it nor told it to leave.
    Ended,
}

/// The interval at which [`Crew::finish`] checks for ended workers.
const LOOK: Duration = Duration::from_millis(20);

/// All workers of the demo.
pub(crate) struct Crew {
    recipe: Recipe,
    processes: Processes<WorkerReport>,
    pub(crate) workers: Vec<Worker>,
    seeds: Vec<SocketAddr>,
    /// The number of reported sales.
    pub(crate) sales: u64,
    /// The time of the last reported sale.
    sold_at: Instant,
    /// The longest time without a sale since [`watch`](Crew::watch).
    pub(crate) silence: Duration,
    /// Tasks of workers that did not get or keep their lock since then, each with the reason.
    pub(crate) unserved: Vec<String>,
    /// The reported troubles, with their numbers.
    pub(crate) troubles: BTreeMap<String, u64>,
}

impl Crew {
    /// Starts `members` workers on free ports of the loopback; the first three are the seeds.
    pub(crate) fn start(recipe: Recipe, members: usize) -> std::io::Result<Crew> {
        let addresses = free_addresses(members)?;
        let seeds = addresses.iter().copied().take(3).collect();
        let mut crew = Crew {
            recipe,
            processes: Processes::new(),
            workers: Vec::new(),
            seeds,
            sales: 0,
            sold_at: Instant::now(),
            silence: Duration::ZERO,
            unserved: Vec::new(),
            troubles: BTreeMap::new(),
        };
        for (index, addr) in addresses.into_iter().enumerate() {
            crew.workers.push(Worker { addr, run: 0, leaves: false, sight: None });
            crew.spawn(index)?;
        }
        Ok(crew)
    }

    /// Starts the worker of this index again, at its former address, and lets it sell.
    pub(crate) fn restart(&mut self, index: usize) -> std::io::Result<()> {
        let Worker { addr, run, .. } = self.workers[index];
        self.workers[index] = Worker { addr, run: run + 1, leaves: false, sight: None };
        self.spawn(index)?;
        self.order(index, WorkerOrder::Open);
        Ok(())
    }

    fn spawn(&mut self, index: usize) -> std::io::Result<()> {
        let (worker, recipe) = (&self.workers[index], &self.recipe);
        let mut arguments: Vec<String> =
            ["worker", "--index", &index.to_string()].map(str::to_owned).into();
        let mut add_argument =
            |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add_argument("--bind", worker.addr.to_string());
        for seed in &self.seeds {
            add_argument("--seed-address", seed.to_string());
        }
        add_argument("--file", recipe.file.display().to_string());
        add_argument("--key-file", recipe.key.display().to_string());
        add_argument("--articles", recipe.articles.to_string());
        let chance = recipe
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add((index as u64) << 8 | u64::from(worker.run));
        add_argument("--chance", chance.to_string());
        if recipe.no_lock {
            arguments.push("--no-lock".to_owned());
        }
        if recipe.no_fence {
            arguments.push("--no-fence".to_owned());
        }
        let errors = self.log(index);
        self.processes.start(index, &arguments, &errors)
    }

    /// Returns the file of the worker's standard error.
    pub(crate) fn log(&self, index: usize) -> PathBuf {
        self.recipe.directory.join(format!("worker-{index}.log"))
    }

    /// Sends an order.
    pub(crate) fn order(&mut self, index: usize, order: WorkerOrder) {
        self.workers[index].leaves |= order == WorkerOrder::Finish;
        self.processes.order(index, &order);
    }

    /// Kills the worker with SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        self.workers[index].sight = None;
        self.processes.kill(index);
    }

    /// Sends SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, index: usize, signal: StopSignal) -> std::io::Result<()> {
        self.processes.signal(index, signal)
    }

    /// Starts to measure the longest time without a sale, and to collect tasks that get no lock.
    pub(crate) fn watch(&mut self) {
        self.sold_at = Instant::now();
        self.silence = Duration::ZERO;
        self.unserved.clear();
    }

    /// The next report of a living worker. `None` if none arrives before `until`.
    pub(crate) fn next(&mut self, until: Instant) -> Option<(usize, Instant, WorkerUpdate)> {
        loop {
            let ChildUpdate { index, at, is_late, what } = self.processes.next(until)?;
            let worker = &mut self.workers[index];
            let report = match what {
                ChildOutput::Said(report) => report,
                ChildOutput::Nonsense(text) => WorkerReport::Trouble(text),
                ChildOutput::Ended => {
                    worker.sight = None;
                    if worker.leaves {
                        continue;
                    }
                    return Some((index, at, WorkerUpdate::Ended));
                }
            };
            if let WorkerReport::Sale { .. } = report {
                self.sales += 1;
                self.silence = self.silence.max(at.saturating_duration_since(self.sold_at));
                self.sold_at = self.sold_at.max(at);
            }
            if is_late {
                continue;
            }
            match &report {
                WorkerReport::Sees(sight) | WorkerReport::Standing { sight, .. } => {
                    worker.sight = Some(sight.clone())
                }
                WorkerReport::Trouble(text) => *self.troubles.entry(text.clone()).or_default() += 1,
                WorkerReport::Unserved(text) => {
                    self.unserved.push(format!("worker {index}: {text}"))
                }
                WorkerReport::Sale { .. }
                | WorkerReport::Refused { .. }
                | WorkerReport::Became(_)
                | WorkerReport::Counted { .. }
                | WorkerReport::Failed(_) => {}
            }
            return Some((index, at, WorkerUpdate::Said(report)));
        }
    }

    /// The end of the worker of this index, if it has ended.
    pub(crate) fn ended(&self, index: usize) -> Option<ExitStatus> {
        self.processes.ended(index)
    }

    /// The newest snapshot of the cluster among the living workers.
    pub(crate) fn sight(&self) -> Option<&ClusterSnapshot> {
        self.workers
            .iter()
            .filter_map(|worker| worker.sight.as_ref())
            .filter(|sight| sight.leased)
            .max_by_key(|s| s.view)
    }

    /// The index of the worker that has this process id now.
    pub(crate) fn index_of(&self, process: &str) -> Option<usize> {
        self.workers
            .iter()
            .position(|worker| worker.sight.as_ref().is_some_and(|sight| sight.me == process))
    }

    /// The elder's index.
    pub(crate) fn elder(&self) -> Option<usize> {
        self.sight().and_then(|sight| sight.elder.as_deref()).and_then(|elder| self.index_of(elder))
    }

    /// The index of the grantor: the living process that most workers name.
    pub(crate) fn grantor(&self) -> Option<usize> {
        let mut votes = BTreeMap::new();
        for sight in self.workers.iter().filter_map(|worker| worker.sight.as_ref()) {
            if let Some(index) = sight.grantor.as_deref().and_then(|grantor| self.index_of(grantor))
            {
                *votes.entry(index).or_insert(0) += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(index, _)| index)
    }

    /// The indexes of the living workers, oldest member first.
    pub(crate) fn by_age(&self) -> Vec<usize> {
        let members = self.sight().map(|sight| sight.members.clone()).unwrap_or_default();
        members.iter().filter_map(|process| self.index_of(process)).collect()
    }

    /// Returns whether every worker is alive and one view lists exactly these workers.
    pub(crate) fn is_whole(&self) -> bool {
        let Some(first) = self.sight() else { return false };
        self.workers.iter().all(|worker| {
            worker.sight.as_ref().is_some_and(|sight| {
                sight.leased
                    && sight.view == first.view
                    && sight.ghosts == 0
                    && sight.members == first.members
            })
        }) && first.members.len() == self.workers.len()
            && self.by_age().len() == self.workers.len()
    }

    /// Lets all workers finish and leave. Names the processes that did not, or not cleanly. Ends
    /// within `limit`.
    pub(crate) fn finish(&mut self, limit: Duration) -> Vec<String> {
        let until = Instant::now() + limit;
        for index in 0..self.workers.len() {
            self.order(index, WorkerOrder::Finish);
        }
        while self.processes.living() > 0 && Instant::now() < until {
            self.next(until.min(Instant::now() + LOOK));
        }
        let problem = |index: usize| match self.ended(index) {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("worker {index} ended with {status}")),
            None => Some(format!("worker {index} did not finish within {limit:?}")),
        };
        (0..self.workers.len()).filter_map(problem).collect()
    }
}
