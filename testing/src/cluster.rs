//! `Cluster`: the running members of a test, and the faults that it causes.

use crate::fault_plan::FaultPlan;
use crate::process_task::ProcessTask;
use crate::run::RunPlan;
use crate::simulation::chance::{Rng, mix};
use crate::simulation::faults::FaultHost;
use crate::simulation::sites::{JOIN_LIMIT, Sites, SitesPlan};
use crate::simulation::tasks::Tasks;
use crate::story::Story;
use crate::verdict::Verdict;
use elderlock::protocol::Limits;
use elderlock::simulated::{self, HoldObserver};
use elderlock::{
    BecomeError, GrantorState, Guard, LostReason, Member, MemberEvent, ProcessId, ServiceError,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The kind of the test's fault that a later fault of this kind at the same member replaces.
pub(crate) const SLOW: &str = "slow network";

/// The interval at which a wait for a member checks it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

type Program = Rc<dyn Fn(usize, Member) -> Pin<Box<dyn Future<Output = Option<String>>>>>;

/// The state of a run.
pub(crate) struct ClusterState {
    pub(crate) sites: Rc<Sites>,
    pub(crate) tasks: Tasks,
    story: Rc<Story>,
    seed: u64,
    rng: RefCell<Rng>,
    programs: RefCell<Vec<Program>>,
    chaos: Option<FaultPlan>,
    /// Whether all drawn faults are over; a member may still be away.
    faults_over: Cell<bool>,
    /// Whether all drawn faults are over and every member is back.
    healed: Cell<bool>,
    heals: Notify,
    /// Whether a quorum was lost for good, so that the run shows nothing.
    pub(crate) without_quorum: Cell<bool>,
}

impl ClusterState {
    pub(crate) fn new(plan: &RunPlan, story: Rc<Story>, tasks: Tasks) -> Rc<ClusterState> {
        let sites = SitesPlan {
            cluster: "testing",
            timing: plan.timing,
            clocks: vec![0; plan.members],
            limits: Limits::DEFAULT,
            luck: mix(&[plan.luck, 2]),
        };
        Rc::new(ClusterState {
            sites: Sites::new(sites, story.clone(), tasks.clone()),
            tasks,
            story,
            seed: plan.seed,
            rng: RefCell::new(Rng::new(plan.seed, 3)),
            programs: RefCell::default(),
            faults_over: Cell::new(false),
            healed: Cell::new(plan.chaos.is_none()),
            chaos: plan.chaos.clone(),
            heals: Notify::new(),
            without_quorum: Cell::new(false),
        })
    }

    /// Starts every member.
    pub(crate) fn begin(self: &Rc<Self>) {
        self.tasks.begin(None, self.sites.clone().pump());
        for site in 0..self.sites.count() {
            self.start(site);
        }
    }

    /// Begins the drawn faults, if there are any.
    pub(crate) fn begin_chaos(self: &Rc<Self>) {
        let Some(chaos) = self.chaos.clone() else { return };
        self.story.record(|record, at| record.begins(at));
        for fault in chaos.faults.iter().copied() {
            let state = self.clone();
            self.tasks.begin(None, async move {
                tokio::time::sleep(fault.at).await;
                if !state.faults_over.get() {
                    let sites = state.sites.clone();
                    let (number, kind) = (Some(fault.number), fault.fault.kind());
                    let hit = fault.fault.hit(sites.count());
                    let drawn =
                        state.story.record(|record, at| record.fault_begins(at, number, kind, hit));
                    sites.disturb(&state, fault.fault, fault.lasts, chaos.vouched).await;
                    if let Some(drawn) = drawn {
                        state.story.record(|record, at| record.fault_ends(at, drawn));
                    }
                }
            });
        }
        let state = self.clone();
        self.tasks.begin(None, async move {
            tokio::time::sleep(chaos.span).await;
            state.story.add("all faults end");
            state.story.record(|record, at| record.faults_end(at));
            state.faults_over.set(true);
            state.sites.heal();
            if state.sites.all_joined().await && state.all_connected().await {
                state.story.add("every member is back");
                state.healed.set(true);
                state.heals.notify_waiters();
            } else if state.sites.is_quorum_lost() {
                state.story.add("a quorum is lost for good");
                state.without_quorum.set(true);
                state.tasks.close();
            } else {
                state.fail("a member has not joined again after all faults".to_owned());
            }
        });
    }

    /// Waits until one view has exactly the running members, and each of them has a lease. A
    /// process that was expelled meanwhile joins again first. Returns whether that happened in
    /// time.
    async fn all_connected(&self) -> bool {
        let is_connected = || {
            let members = self.sites.members();
            let processes = members.iter().map(|(_, member)| member.process());
            let processes: BTreeSet<ProcessId> = processes.collect();
            members.iter().all(|(_, member)| {
                let status = member.status();
                let view = status.view.filter(|_| status.leased);
                view.is_some_and(|view| {
                    let there = view.members.iter().map(|member| member.info.process);
                    there.collect::<BTreeSet<_>>() == processes
                })
            })
        };
        let all = async {
            while !is_connected() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(JOIN_LIMIT, all).await.is_ok()
    }

    /// Ends the run as failed.
    pub(crate) fn fail(&self, why: String) {
        self.story.fail(why);
        self.story.end_record();
        self.tasks.close();
    }

    /// Ends every process, and drops the programs, which may own the cluster.
    pub(crate) fn end(&self) {
        for site in 0..self.sites.count() {
            self.sites.kill(site);
        }
        self.programs.borrow_mut().clear();
    }

    /// Runs the program in the process at the site.
    fn enter(self: &Rc<Self>, site: usize, member: &Member, program: &Program) {
        let (state, program) = (self.clone(), program(site, member.clone()));
        self.tasks.begin(Some(site), async move {
            if let Some(why) = program.await {
                state.fail(format!("the program of member {site}: {why}"));
            }
        });
    }

    /// Adds the holds of all members to the record.
    pub(crate) fn hold_observer(&self) -> HoldObserver {
        // The observer outlives the sites.
        let (story, sites) = (self.story.clone(), Rc::downgrade(&self.sites));
        Rc::new(move |number, change| {
            let site_of = |process| {
                let members = sites.upgrade()?.members();
                members.iter().find(|(_, member)| member.process() == process).map(|(at, _)| *at)
            };
            story.record(|record, at| record.hold_changed(number, at, change, site_of));
        })
    }

    /// Notes that a fault of the test begins.
    fn test_disturbs(&self, kind: &str, hit: Vec<usize>) {
        self.story.record(|record, at| record.fault_begins(at, None, kind, hit));
    }

    /// Adds the member's events to the story.
    fn watch(self: &Rc<Self>, site: usize, member: &Member) {
        let (state, mut events) = (self.clone(), member.events());
        self.tasks.begin(Some(site), async move {
            while let Some(event) = events.next().await {
                let words = words(&event);
                state.story.add(&format!("member {site}: {words}"));
                let process = state.sites.member(site).map(|member| member.process());
                state.story.record(|record, at| record.event(site, at, &event, process, words));
            }
        });
    }
}

impl FaultHost for ClusterState {
    fn start(self: &Rc<Self>, site: usize) {
        let state = self.clone();
        self.sites.start(site, move |member| {
            state.watch(site, member);
            let programs = state.programs.borrow().clone();
            for program in &programs {
                state.enter(site, member, program);
            }
        });
    }

    fn ended(&self, _: usize) {}

    fn begins(&self, _: &'static str) {}

    fn is_over(&self) -> bool {
        self.faults_over.get()
    }
}

/// The event as text.
fn words(event: &MemberEvent) -> String {
    match event {
        MemberEvent::ViewInstalled(view) => {
            let site = |octets: [u8; 4]| octets[3].saturating_sub(1);
            let sites = view.members.iter().filter_map(|member| match member.info.addr {
                std::net::SocketAddr::V4(addr) => Some(site(addr.ip().octets())),
                std::net::SocketAddr::V6(_) => None,
            });
            format!("view {} of members {:?}", view.number, sites.collect::<Vec<_>>())
        }
        MemberEvent::BecameGrantor { service, .. } => format!("grants the locks of {service}"),
        MemberEvent::NoLongerGrantor { service, .. } => {
            format!("no longer grants the locks of {service}")
        }
        MemberEvent::Missed { count, .. } => format!("{count} events were missed"),
        event => format!("{event:?}"),
    }
}

/// The running members of a test, numbered from 0 on, and the faults that the test causes. The
/// handle is cheap to clone into tasks.
///
/// Code of the program under test belongs in the processes of the members, by
/// [`spawn`](Cluster::spawn) and [`run_on_each`](Cluster::run_on_each). A [crash](Cluster::crash)
/// ends it, and a [stop](Cluster::stop) stops it at its present await. Code of the test itself is
/// outside of these processes.
///
/// # Panics
/// Each method with a member's number panics if there is no such member.
#[derive(Clone)]
pub struct Cluster(pub(crate) Rc<ClusterState>);

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("seed", &self.seed())
            .field("members", &self.size())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// The number of members of the cluster, running or not.
    pub fn size(&self) -> usize {
        self.0.sites.count()
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// A number below `limit`, from a stream of the seed: for delays and choices of the test. Zero
    /// for a limit of zero.
    ///
    /// ```
    /// elderlock_testing::cluster(1).seed(7).run(|cluster| async move {
    ///     assert!(cluster.random_below(6) < 6);
    /// });
    /// ```
    pub fn random_below(&self, limit: u64) -> u64 {
        self.0.rng.borrow_mut().below(limit)
    }

    /// A digest of every event and every packet so far. Equal runs have equal digests.
    pub fn digest(&self) -> u64 {
        self.0.story.digest()
    }

    /// Adds a line to the story of the run, which is printed if the run fails.
    pub fn note(&self, line: impl fmt::Display) {
        let line = line.to_string();
        self.0.story.add(&line);
        self.0.story.record(|record, at| record.noted(at, line));
    }

    fn check(&self, member: usize) {
        assert!(
            member < self.size(),
            "there is no member {member}: they are 0 to {}",
            self.size() - 1
        );
    }

    // Members and their processes.

    /// The member with this number.
    ///
    /// # Panics
    /// If it was [crashed](Cluster::crash) and not [restarted](Cluster::restart).
    pub fn member(&self, member: usize) -> Member {
        self.check(member);
        let running = self.0.sites.member(member);
        running.unwrap_or_else(|| panic!("member {member} does not run: restart it first"))
    }

    /// Returns whether the member's process runs. A stopped process counts as running.
    pub fn is_running(&self, member: usize) -> bool {
        self.check(member);
        self.0.sites.is_up(member)
    }

    /// Waits until the member's process runs and has joined, and returns the member.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn joined(&self, member: usize) -> Member {
        self.check(member);
        loop {
            let running = self.0.sites.member(member);
            if let Some(running) = running.filter(|_| self.0.sites.has_joined(member)) {
                return running;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Runs a task in the process of the member. The task ends with the process, and pauses while
    /// the process is stopped. `tokio::spawn` begins tasks outside of all processes.
    ///
    /// ```
    /// use std::time::Duration;
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let sleeper = cluster.spawn(1, tokio::time::sleep(Duration::from_secs(5)));
    ///     assert_eq!(cluster.spawn(1, async { 7 }).await, Ok(7));
    ///     cluster.crash(1);
    ///     assert!(sleeper.await.is_err());
    /// });
    /// ```
    pub fn spawn<F>(&self, member: usize, task: F) -> ProcessTask<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.check(member);
        let (sender, receiver) = oneshot::channel();
        if self.0.sites.is_up(member) {
            self.0.tasks.begin(Some(member), async move {
                // The test may have dropped the receiver.
                let _ = sender.send(task.await);
            });
        }
        ProcessTask(receiver)
    }

    /// Runs the program in the process of each member, now and whenever a restarted process has
    /// joined. The program gets the number of the member and the member. A program that ends with
    /// an error fails the run. A program that runs for ever ends with the run.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let starts = Rc::new(Cell::new(0));
    ///     cluster.run_on_each({
    ///         let starts = starts.clone();
    ///         move |_, member| {
    ///             starts.set(starts.get() + 1);
    ///             async move { member.lock_service("inventory").await.map(drop) }
    ///         }
    ///     });
    ///     cluster.crash(2);
    ///     cluster.restart(2);
    ///     cluster.joined(2).await;
    ///     tokio::task::yield_now().await;
    ///     assert_eq!(starts.get(), 4);
    /// });
    /// ```
    pub fn run_on_each<F>(&self, program: impl Fn(usize, Member) -> F + 'static)
    where
        F: Future + 'static,
        F::Output: Verdict,
    {
        let program: Program = Rc::new(move |site, member| {
            let program = program(site, member);
            Box::pin(async move { program.await.failure() })
        });
        self.0.programs.borrow_mut().push(program.clone());
        for (site, member) in self.0.sites.members() {
            if self.0.sites.has_joined(site) {
                self.0.enter(site, &member, &program);
            }
        }
    }

    // Faults of processes.

    /// Kills the member's process, with all its tasks and without a message. The other members
    /// notice its silence, as if its host had failed. Does nothing if the process does not run.
    ///
    /// ```
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let stock = cluster.member(0).lock_service("inventory").await.unwrap();
    ///     let guard = stock.lock("sku-42").await.unwrap();
    ///     cluster.crash(0);
    ///     let other = cluster.member(1).lock_service("inventory").await.unwrap();
    ///     assert!(other.lock("sku-42").await.unwrap().token() > guard.token());
    /// });
    /// ```
    pub fn crash(&self, member: usize) {
        self.check(member);
        if self.0.sites.is_up(member) {
            self.0.story.add(&format!("member {member} is killed"));
            self.0.sites.kill(member);
        }
    }

    /// Starts a process in the place of a killed one. [`joined`](Cluster::joined) waits for it.
    /// Does nothing if the process runs.
    pub fn restart(&self, member: usize) {
        self.check(member);
        if !self.0.sites.is_up(member) {
            self.0.start(member);
        }
    }

    /// Stops the member's process for `span`, like a suspended virtual machine: none of its tasks
    /// runs, and packets to it wait. A task is stopped at its present await. Does nothing if the
    /// process does not run, or is stopped already.
    ///
    /// ```
    /// use elderlock::LostReason;
    /// use std::time::Duration;
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let member = cluster.member(0);
    ///     let holder = cluster.spawn(0, async move {
    ///         let stock = member.lock_service("inventory").await.unwrap();
    ///         let guard = stock.lock("sku-42").await.unwrap();
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///         guard.fence().unwrap_err().reason
    ///     });
    ///     tokio::time::sleep(Duration::from_millis(500)).await;
    ///     cluster.stop(0, Duration::from_secs(12));
    ///     assert_eq!(holder.await, Ok(LostReason::Suspended));
    /// });
    /// ```
    pub fn stop(&self, member: usize, span: Duration) {
        self.check(member);
        let sites = self.0.sites.clone();
        if !sites.is_up(member) || sites.is_frozen(member) {
            return;
        }
        let life = sites.life(member);
        sites.freeze(member);
        self.0.tasks.begin(None, async move {
            tokio::time::sleep(span).await;
            if sites.life(member) == life && sites.is_up(member) && sites.is_frozen(member) {
                sites.thaw(member);
            }
        });
    }

    // Faults of the network.

    /// Cuts both directions between two members, until [`heal`](Cluster::heal).
    ///
    /// ```
    /// use std::time::Duration;
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     cluster.cut(0, 1);
    ///     // Each of them reaches member 2, and through it the other.
    ///     let stock = cluster.member(0).lock_service("inventory").await.unwrap();
    ///     let guard = stock.lock("sku-42").await.unwrap();
    ///     tokio::time::sleep(Duration::from_secs(60)).await;
    ///     assert!(guard.fence().is_ok());
    /// });
    /// ```
    pub fn cut(&self, one: usize, other: usize) {
        self.check(one);
        self.check(other);
        self.0.test_disturbs("cut", vec![one, other]);
        self.0.sites.cut(&[(one, other), (other, one)]);
    }

    /// Cuts the direction from one member to another: no packet that `from` sends reaches `to`,
    /// until [`heal`](Cluster::heal). The other direction stays open.
    ///
    /// ```
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     cluster.cut_one_way(0, 1);
    ///     cluster.heal();
    /// });
    /// ```
    pub fn cut_one_way(&self, from: usize, to: usize) {
        self.check(from);
        self.check(to);
        self.0.test_disturbs("cut one way", vec![from, to]);
        self.0.sites.cut(&[(from, to)]);
    }

    /// Cuts all paths to and from a member, until [`heal`](Cluster::heal).
    pub fn isolate(&self, member: usize) {
        self.check(member);
        self.0.test_disturbs("isolation", vec![member]);
        let ways = self.0.sites.ways(|from, to| from == member || to == member);
        self.0.sites.cut(&ways);
    }

    /// Delays each packet to or from the member by `by`, until [`heal`](Cluster::heal). Zero ends
    /// the delay.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let one = cluster.member(0).lock_service("inventory").await.unwrap();
    ///     one.lock("sku-42").await.unwrap().release().await.unwrap();
    ///     let grantor = cluster.grantor("inventory").unwrap();
    ///     cluster.slow(grantor, Duration::from_millis(300));
    ///     let other = cluster.member((grantor + 1) % 3).lock_service("inventory").await.unwrap();
    ///     let asked = Instant::now();
    ///     let guard = other.lock("sku-42").await.unwrap();
    ///     assert!(asked.elapsed() > Duration::from_millis(600));
    /// });
    /// ```
    pub fn slow(&self, member: usize, by: Duration) {
        self.check(member);
        self.0.story.record(|record, at| record.test_quickens(at, member));
        if !by.is_zero() {
            self.0.test_disturbs(SLOW, vec![member]);
        }
        self.0.sites.slow(member, u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Ends every cut and every delay of the network, and resumes stopped processes.
    pub fn heal(&self) {
        self.0.story.add("the test heals the network");
        self.0.story.record(|record, at| record.test_heals(at));
        self.0.sites.heal();
    }

    /// Waits until the faults that [`chaos`](crate::chaos()) has drawn are over and every member is
    /// back, with a lease. Without chaos it returns at once. Programs continue meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn healed(&self) {
        let healing = self.0.heals.notified();
        if !self.0.healed.get() {
            healing.await;
        }
    }

    // Grantors and losses.

    /// The member that grants the locks of the service now.
    pub fn grantor(&self, service: &str) -> Option<usize> {
        let members = self.0.sites.members();
        let grants = |member: &Member| {
            let services = member.status().services;
            services.iter().any(|status| {
                status.service.as_str() == service && status.granting == Some(GrantorState::Acting)
            })
        };
        members.iter().find(|(_, member)| grants(member)).map(|(site, _)| *site)
    }

    /// The elder: the member that renews the leases of the others.
    pub fn elder(&self) -> Option<usize> {
        self.0.sites.members().iter().find(|(_, member)| member.is_elder()).map(|(site, _)| *site)
    }

    /// Makes the member the grantor of the service, by a transfer of the present table. Waits until
    /// the member grants.
    ///
    /// # Errors
    /// [`MoveError`]: the member may not have become the grantor. Holds and waiters stay unchanged.
    ///
    /// # Cancel safety
    /// If the future is dropped, the member may still become the grantor.
    ///
    /// ```
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let stock = cluster.member(0).lock_service("inventory").await.unwrap();
    ///     let guard = stock.lock("sku-42").await.unwrap();
    ///     cluster.move_grantor(2, "inventory").await.unwrap();
    ///     assert_eq!(cluster.grantor("inventory"), Some(2));
    ///     assert!(guard.fence().is_ok());
    /// });
    /// ```
    pub async fn move_grantor(&self, member: usize, service: &str) -> Result<(), MoveError> {
        let service =
            self.member(member).lock_service(service).await.map_err(MoveError::Service)?;
        service.become_grantor().await.map_err(MoveError::Become)
    }

    /// Ends the hold of the guard at once, for this reason, as if its member had been told. The
    /// grantor then grants the lock to the next waiter. Other guards of the same hold end too.
    /// Other holds of the member stay, although a real suspension or expulsion would end them.
    ///
    /// [`isolate`](Cluster::isolate), [`stop`](Cluster::stop) and [`slow`](Cluster::slow) cause a
    /// real loss of the member's holds. Some reasons have no fault that surely causes them:
    /// [`LostReason::Superseded`] needs the loss of a grantor and its table at the right moment.
    ///
    /// # Panics
    /// For [`LostReason::Released`], which no holder gets.
    ///
    /// ```
    /// use elderlock::LostReason;
    /// elderlock_testing::cluster(3).run(|cluster| async move {
    ///     let stock = cluster.member(0).lock_service("inventory").await.unwrap();
    ///     let guard = stock.lock("sku-42").await.unwrap();
    ///     cluster.lose(&guard, LostReason::Superseded);
    ///     assert_eq!(guard.fence().unwrap_err().reason, LostReason::Superseded);
    /// });
    /// ```
    pub fn lose(&self, guard: &Guard, reason: LostReason) {
        assert!(reason != LostReason::Released, "a holder that released it is told of no loss");
        self.note(format_args!("{guard:?} is lost: {reason:?}"));
        simulated::lose(guard, reason);
    }
}

/// The error of a move, after which the member may not be the grantor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveError {
    /// The service could not be opened.
    Service(ServiceError),
    /// The bid failed: another member is the grantor, or none was found.
    Become(BecomeError),
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveError::Service(error) => error.fmt(f),
            MoveError::Become(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MoveError {}
