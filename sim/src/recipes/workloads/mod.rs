//! The workloads: for each recipe, tasks that use it as a program would, at random.

mod barriers;
mod connections;
mod count;
mod counter;
mod leaders;
mod lock_value;
mod locks;
mod mutexes;
mod partitions;
mod read_write;
pub mod revocations;
mod schedule;
mod semaphore;

use super::belief_checker::{Belief, ClaimMode};
use super::harness::ClusterHarness;
use crate::chance::Rng;
use elderlock::simulated::by_clock;
use elderlock::{LockError, LockService, Member, ServiceError, Unavailable};
use std::cell::RefCell;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// The kinds of workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadKind {
    /// Locks, batches, suspensions, transfers and destructions of a service.
    Locks,
    /// Mutexes, reentrant and not, and multi locks.
    Mutexes,
    /// Leader latches and selectors.
    Leaders,
    /// Read/write locks.
    ReadWrite,
    /// Semaphores.
    Semaphore,
    /// Shared counts.
    Count,
    /// Atomic counters.
    Counter,
    /// Partitions that claimants share.
    Partitions,
    /// Schedules with a job for each tick.
    Schedule,
    /// Values of locks.
    LockValue,
    /// Barriers, double barriers and latches.
    Barriers,
    /// Connections, and the effect of their states on guards.
    Connections,
    /// Locks whose revocation is requested, and then forced.
    Revocations,
}

impl WorkloadKind {
    /// All kinds.
    pub const ALL: [WorkloadKind; 13] = [
        WorkloadKind::Locks,
        WorkloadKind::Mutexes,
        WorkloadKind::Leaders,
        WorkloadKind::ReadWrite,
        WorkloadKind::Semaphore,
        WorkloadKind::Count,
        WorkloadKind::LockValue,
        WorkloadKind::Barriers,
        WorkloadKind::Connections,
        WorkloadKind::Revocations,
        WorkloadKind::Counter,
        WorkloadKind::Partitions,
        WorkloadKind::Schedule,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::Locks => "locks",
            WorkloadKind::Mutexes => "mutexes",
            WorkloadKind::Leaders => "leaders",
            WorkloadKind::ReadWrite => "read-write",
            WorkloadKind::Semaphore => "semaphore",
            WorkloadKind::Count => "count",
            WorkloadKind::Counter => "counter",
            WorkloadKind::Partitions => "partitions",
            WorkloadKind::Schedule => "schedule",
            WorkloadKind::LockValue => "lock-value",
            WorkloadKind::Barriers => "barriers",
            WorkloadKind::Connections => "connections",
            WorkloadKind::Revocations => "revocations",
        }
    }

    /// Finds a workload by its name.
    pub fn find(name: &str) -> Result<WorkloadKind, String> {
        let names = || WorkloadKind::ALL.map(WorkloadKind::name).join(", ");
        WorkloadKind::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
            .ok_or_else(|| format!("no workload is called {name}; there are {}", names()))
    }

    /// The acts that its workers must do somewhere in a large batch.
    pub fn acts(self) -> &'static [&'static str] {
        match self {
            WorkloadKind::Locks => &[
                "locks held",
                "batches held",
                "suspensions held",
                "second suspensions refused",
                "releases confirmed",
                "scoped work done",
                "scoped work lost",
                "transfers asked for",
                "destructions",
            ],
            WorkloadKind::Mutexes => &[
                "locks entered again",
                "locks held by two tasks",
                "multi locks held",
                "multi locks entered again",
            ],
            WorkloadKind::Leaders => &[
                "terms led",
                "works led",
                "works run",
                "works interrupted",
                "terms heard from beginning to end",
            ],
            WorkloadKind::ReadWrite => &[
                "shares held",
                "upgrades",
                "upgrades refused",
                "downgrades",
                "read/write locks entered again",
                "readers refused to write",
            ],
            WorkloadKind::Semaphore => &[
                "permits held",
                "limits set",
                "permits returned early",
                "permits handed on",
                "permits looked up",
            ],
            WorkloadKind::Count => &["counts added to", "counts set", "counts changed meanwhile"],
            WorkloadKind::Counter => {
                &["counters added to", "counters added much to", "sums compared"]
            }
            WorkloadKind::Partitions => {
                &["claims begun", "partitions owned", "partitions asked for", "settled shares seen"]
            }
            WorkloadKind::Schedule => &["ticks run", "ticks compared", "ticks dropped"],
            WorkloadKind::LockValue => {
                &["values read under the lock", "values written under the lock"]
            }
            WorkloadKind::Barriers => &[
                "gates passed",
                "rounds entered",
                "rounds left",
                "latches counted down",
                "latches passed",
            ],
            WorkloadKind::Connections => &[
                "suspensions heard of",
                "reconnections heard of",
                "losses heard of",
                "guards that failed",
            ],
            WorkloadKind::Revocations => &[
                "locks requested back",
                "holders told",
                "holds taken away",
                "untold not taken away",
            ],
        }
    }

    /// The number of workers at each member.
    fn workers(self) -> u64 {
        match self {
            WorkloadKind::Connections
            | WorkloadKind::Count
            | WorkloadKind::Counter
            | WorkloadKind::Leaders
            | WorkloadKind::Partitions => 2,
            _ => 3,
        }
    }
}

async fn play(workload: WorkloadKind, worker: &Workload) {
    match workload {
        WorkloadKind::Locks => locks::play(worker).await,
        WorkloadKind::Mutexes => mutexes::play(worker).await,
        WorkloadKind::Leaders => leaders::play(worker).await,
        WorkloadKind::ReadWrite => read_write::play(worker).await,
        WorkloadKind::Semaphore => semaphore::play(worker).await,
        WorkloadKind::Count => count::play(worker).await,
        WorkloadKind::Counter => counter::play(worker).await,
        WorkloadKind::Partitions => partitions::play(worker).await,
        WorkloadKind::Schedule => schedule::play(worker).await,
        WorkloadKind::LockValue => lock_value::play(worker).await,
        WorkloadKind::Barriers => barriers::play(worker).await,
        WorkloadKind::Connections => connections::play(worker).await,
        WorkloadKind::Revocations => revocations::play(worker).await,
    }
}

/// The workers of a member that has joined.
pub fn enter(harness: &Rc<ClusterHarness>, site: usize, member: &Member) {
    for workload in harness.plan.workloads.clone() {
        for _ in 0..workload.workers().min(harness.plan.workers) {
            let worker = Rc::new(harness.worker(site, member, workload.name()));
            let task = async move {
                play(workload, &worker).await;
                worker.harness.done(worker.number);
            };
            harness.tasks.begin(Some(site), task);
        }
    }
}

/// Checks after the healing that everything can be had at this member.
pub async fn have_all(harness: &Rc<ClusterHarness>, member: &Member) -> Result<(), String> {
    for workload in harness.plan.workloads.clone() {
        match workload {
            WorkloadKind::Locks => locks::have_all(member).await?,
            WorkloadKind::Mutexes => mutexes::have_all(member).await?,
            WorkloadKind::Leaders => leaders::have_all(member).await?,
            WorkloadKind::ReadWrite => read_write::have_all(member).await?,
            WorkloadKind::Semaphore => semaphore::have_all(member).await?,
            WorkloadKind::Count => count::have_all(member).await?,
            WorkloadKind::Counter => counter::have_all(member).await?,
            WorkloadKind::Partitions => partitions::have_all(member).await?,
            WorkloadKind::Schedule => schedule::have_all(member).await?,
            WorkloadKind::LockValue => lock_value::have_all(member).await?,
            WorkloadKind::Barriers => barriers::have_all(member).await?,
            WorkloadKind::Connections => connections::have_all(member).await?,
            WorkloadKind::Revocations => revocations::have_all(member).await?,
        }
    }
    Ok(())
}

/// One worker. Its acts are drawn from the seed and its number.
pub struct Workload {
    pub(super) harness: Rc<ClusterHarness>,
    pub(super) site: usize,
    pub(super) member: Member,
    pub(super) number: u64,
    /// The name for its beliefs: its own number, or that of another task of the same owner.
    name: u64,
    rng: RefCell<Rng>,
}

impl Workload {
    pub(super) fn new(
        harness: Rc<ClusterHarness>,
        site: usize,
        member: Member,
        number: u64,
    ) -> Workload {
        let rng = RefCell::new(Rng::new(harness.plan.luck, 1_000 + number));
        Workload { harness, site, member, number, name: number, rng }
    }

    /// Begins a task of the same process that acts in this worker's name. The beliefs of both count
    /// as one worker's.
    fn begin<F: Future<Output = ()> + 'static>(
        &self,
        plays: &str,
        act: impl FnOnce(Rc<Workload>) -> F,
    ) {
        let mut other = self.harness.worker(self.site, &self.member, plays);
        other.name = self.name;
        let other = Rc::new(other);
        let (harness, number, acts) = (self.harness.clone(), other.number, act(other));
        self.harness.tasks.begin(Some(self.site), async move {
            acts.await;
            harness.done(number);
        });
    }

    /// A service of its member, which keeps locks if the plan says so.
    async fn service(&self, name: &str) -> Result<LockService, ServiceError> {
        let service = self.member.lock_service(name).await?;
        service.keep_locks(self.harness.plan.keeps);
        Ok(service)
    }

    fn below(&self, limit: u64) -> u64 {
        self.rng.borrow_mut().below(limit)
    }

    fn millis(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.rng.borrow_mut().between(low, high))
    }

    fn pick<'a, T>(&self, these: &'a [T]) -> &'a T {
        self.rng.borrow_mut().pick(these)
    }

    /// Returns whether the worker is to begin nothing any more.
    fn is_ending(&self) -> bool {
        self.harness.checker.ending.get()
    }

    fn note(&self, line: impl FnOnce() -> String) {
        self.harness.checker.note(|| format!("{}.{} {}", self.site, self.number, line()));
    }

    fn count(&self, what: &'static str) {
        self.harness.checker.count(what);
    }

    /// Lets the worker believe in this hold from now on.
    fn claim(&self, service: &'static str, name: &str, mode: ClaimMode, belief: Belief) {
        self.claim_as(self.name, (service, name), mode, belief);
    }

    /// Makes a claim in another name than the worker's own.
    fn claim_as(
        &self,
        worker: u64,
        (service, name): (&'static str, &str),
        mode: ClaimMode,
        belief: Belief,
    ) {
        self.harness.checker.claim(worker, service, name, mode, self.by_own_clock(belief));
    }

    /// The belief reads this member's clock even when another worker evaluates it.
    fn by_own_clock(&self, belief: Belief) -> Belief {
        let clock = self.clock();
        Box::new(move || by_clock(clock, &belief))
    }

    /// The error of its member's clock, in millionths; positive: too fast.
    fn clock(&self) -> i32 {
        self.harness.plan.clocks[self.site]
    }

    /// Does nothing for a while.
    async fn rest(&self, low: u64, high: u64) {
        let span = self.millis(low, high);
        tokio::time::sleep(span).await;
    }

    /// Asks to become the grantor.
    async fn turk(&self, service: &LockService) {
        self.count("transfers asked for");
        if let Some(became) =
            self.fickle("to become grantor", service.become_grantor().into_future()).await
        {
            self.note(|| format!("asked to become grantor: {became:?}"));
        }
    }

    /// Waits for `future`, and notes its result. Now and then the worker gives up after a number of
    /// polls or some time, and drops the future as it is.
    async fn fickle<F: Future>(&self, what: &str, future: F) -> Option<F::Output> {
        let mut polls = if self.below(8) == 0 { 1 + self.below(6) } else { u64::MAX };
        let limit =
            if self.below(8) == 0 { self.millis(1, 800) } else { Duration::from_secs(1_000_000) };
        self.harness.waits(self.number, what.to_owned());
        let mut future = pin!(future);
        let mut late = pin!(tokio::time::sleep(limit));
        let output = poll_fn(|context| {
            if polls == 0 {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            polls -= 1;
            if polls == 0 {
                // The future is dropped at its next turn: an answer under way may come just before.
                context.waker().wake_by_ref();
            }
            late.as_mut().poll(context).map(|()| None)
        })
        .await;
        self.harness.waits(self.number, "nothing".to_owned());
        if output.is_none() {
            self.count("dropped futures");
            self.note(|| format!("drops {what}"));
        }
        output
    }
}

/// The result of the future at this instant; `None`: it still waits.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    // Without this, tokio makes a task yield that has done much since its last poll.
    let mut future = pin!(tokio::task::unconstrained(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Notes an error.
fn goes_on<E: Debug>(worker: &Workload, what: &str, error: &E) {
    worker.count("errors");
    worker.note(|| format!("{what}: {error:?}"));
}

/// Checks that a lock can be had and released.
async fn have(member: &Member, service: &str, name: &str) -> Result<(), String> {
    let locks = member.lock_service(service).await.map_err(|error| error.to_string())?;
    loop {
        match locks.lock(name).await {
            Ok(guard) => break guard.release().await.map_err(|error| error.to_string()),
            // The member joins again at once.
            Err(LockError::Unavailable(Unavailable::Expelled)) => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            Err(error) => break Err(format!("{service}/{name}: {error}")),
        }
    }
}

/// Checks that a share of a lock can be had, and then the lock.
async fn have_read_and_write(member: &Member, service: &str, name: &str) -> Result<(), String> {
    let locks = member.lock_service(service).await.map_err(|error| error.to_string())?;
    let share =
        locks.share(name).await.map_err(|error| format!("a share of {service}/{name}: {error}"))?;
    drop(share);
    have(member, service, name).await
}
