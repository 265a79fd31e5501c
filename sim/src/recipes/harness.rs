//! The harness of a run: members on their sites with their workers, the faults, and the healing.

use super::belief_checker::BeliefChecker;
use super::plan::RecipePlan;
use super::workloads::{self, Workload};
use crate::chance::mix;
use crate::network::MS;
use elderlock::protocol::Packet;
use elderlock::simulated::paced;
use elderlock::{Member, ServiceStatus, Timing};
use elderlock_testing::simulation::faults::FaultHost;
use elderlock_testing::simulation::sites::{Journal, Sites, SitesPlan};
use elderlock_testing::simulation::tasks::Tasks;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The time after the healing within which every call is answered.
const REST_LIMIT: Duration = Duration::from_secs(60);
/// The time after the healing within which every lock can be had.
const LOCK_LIMIT: Duration = Duration::from_secs(20);

/// The cluster's name.
const CLUSTER: &str = "stage";

impl Journal for BeliefChecker {
    fn now(&self) -> u64 {
        BeliefChecker::now(self)
    }

    fn note(&self, line: &dyn Fn() -> String) {
        BeliefChecker::note(self, line);
    }

    fn arrived(&self, from: usize, to: usize, is_wanted: bool, packet: &Packet) {
        self.mix((self.now(), from, to, is_wanted));
        self.mix(packet);
    }
}

impl FaultHost for ClusterHarness {
    /// The workers of the process follow when its member has joined.
    fn start(self: &Rc<Self>, site: usize) {
        let harness = self.clone();
        self.sites.start(site, move |member| workloads::enter(&harness, site, member));
    }

    fn ended(&self, site: usize) {
        self.playing.borrow_mut().retain(|worker, (at, _)| {
            if *at == site {
                self.checker.killed(*worker);
            }
            *at != site
        });
    }

    fn begins(&self, kind: &'static str) {
        self.checker.count(kind);
    }

    fn is_over(&self) -> bool {
        self.checker.ending.get()
    }
}

/// See the head of the module.
pub struct ClusterHarness {
    /// The plan of the run.
    pub plan: RecipePlan,
    /// The claims of the workers.
    pub checker: Rc<BeliefChecker>,
    /// All tasks of the run.
    pub tasks: Tasks,
    sites: Rc<Sites>,
    /// Workers that have not come to their end, by their numbers: their workload, and their present
    /// wait.
    playing: RefCell<BTreeMap<u64, (usize, String)>>,
    next_worker: Cell<u64>,
}

impl ClusterHarness {
    /// An empty harness.
    pub fn new(plan: RecipePlan, checker: Rc<BeliefChecker>, tasks: Tasks) -> Rc<ClusterHarness> {
        let sites = SitesPlan {
            cluster: CLUSTER,
            timing: Timing::fast(),
            clocks: plan.clocks.clone(),
            limits: plan.limits,
            luck: mix(&[plan.luck, 2]),
        };
        Rc::new(ClusterHarness {
            plan,
            sites: Sites::new(sites, checker.clone(), tasks.clone()),
            checker,
            tasks,
            playing: RefCell::default(),
            next_worker: Cell::new(0),
        })
    }

    /// Drives the whole run and closes the tasks at its end.
    pub async fn tell(self: Rc<Self>) {
        self.tasks.begin(None, self.sites.clone().pump());
        for site in 0..self.plan.sites {
            self.start(site);
        }
        if self.sites.all_joined().await {
            let began = self.checker.now();
            for fault in &self.plan.faults {
                let harness = self.clone();
                let fault = *fault;
                self.tasks.begin(None, async move {
                    tokio::time::sleep(Duration::from_millis(fault.at)).await;
                    if !harness.checker.ending.get() {
                        harness.checker.trouble_begins();
                        let span = Duration::from_millis(fault.span);
                        let (sites, vouched) = (&harness.sites, harness.plan.vouched);
                        sites.disturb(&harness, fault.trouble, span, vouched).await;
                        harness.checker.trouble_ends();
                    }
                });
            }
            tokio::time::sleep(Duration::from_millis(self.plan.span)).await;
            self.checker.note(|| {
                format!("the healing begins after {} ms", (self.checker.now() - began) / MS)
            });
            self.heal().await;
        } else {
            self.checker
                .fail("converges_after_heal", "not every member has joined at the beginning");
        }
        self.tasks.close();
    }

    /// Ends the run as soon as something is broken.
    pub async fn watch(self: Rc<Self>) {
        while self.checker.broken().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.tasks.close();
    }

    // Workers.

    /// A worker for a member, with a number of its own.
    pub fn worker(self: &Rc<Self>, site: usize, member: &Member, plays: &str) -> Workload {
        let number = self.next_worker.get() + 1;
        self.next_worker.set(number);
        self.playing.borrow_mut().insert(number, (site, plays.to_owned()));
        Workload::new(self.clone(), site, member.clone(), number)
    }

    /// Notes the worker's present wait.
    pub fn waits(&self, worker: u64, what: String) {
        if let Some((_, waits)) = self.playing.borrow_mut().get_mut(&worker) {
            *waits = what;
        }
    }

    /// The worker has ended.
    pub fn done(&self, worker: u64) {
        self.playing.borrow_mut().remove(&worker);
    }

    // Faults and their healing.

    /// Ends all faults and waits until all members are back and all requests are answered.
    async fn heal(self: &Rc<Self>) {
        self.sites.heal();
        // The faults that ended processes start them again.
        if !self.sites.all_joined().await {
            if self.sites.is_quorum_lost() {
                self.checker.note(|| "a quorum is lost for good".to_owned());
                return self.checker.count("quorums lost");
            }
            let away: Vec<usize> =
                (0..self.plan.sites).filter(|site| !self.sites.has_joined(*site)).collect();
            return self
                .checker
                .fail("converges_after_heal", format!("these have not joined again: {away:?}"));
        }
        self.checker.ending.set(true);
        self.checker.note(|| "workers come to their end".to_owned());
        let rest = async {
            while !self.playing.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(REST_LIMIT, rest).await.is_err() {
            let playing = self.playing.borrow().clone();
            return self.checker.fail("no_lost_wakeup", format!("still unanswered: {playing:?}"));
        }
        let members = self.sites.members();
        for (site, member) in &members {
            let all = paced(self.plan.clocks[*site], workloads::have_all(self, member));
            if let Err(why) = tokio::time::timeout(LOCK_LIMIT, all)
                .await
                .unwrap_or_else(|_| Err("no answer".to_owned()))
            {
                return self.checker.fail(
                    "no_lost_wakeup",
                    format!("at {} after the healing: {why}", member.process()),
                );
            }
        }
        // The last releases are still under way.
        let kept = || {
            let services = members.iter().flat_map(|(site, member)| {
                let process = member.process();
                self.sites
                    .status(*site, member)
                    .services
                    .into_iter()
                    .map(move |service| (process, service))
            });
            let is_kept = |service: &ServiceStatus| {
                service.held_here + service.open_here + service.waiting_here + service.locks.len()
                    > 0
            };
            services.filter(|(_, service)| is_kept(service)).collect::<Vec<_>>()
        };
        let nothing = async {
            while !kept().is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(LOCK_LIMIT, nothing).await.is_err() {
            return self.checker.fail("no_leaked_hold", format!("{:?}", kept()));
        }
        self.checker.count("runs that came to rest");
    }
}
