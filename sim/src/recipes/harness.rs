//! The harness of a run: members on their sites, the network between them, and the faults.

use super::belief_checker::BeliefChecker;
use super::plan::{FAIR_WEATHER, RecipeFaultKind, RecipePlan};
use super::tasks::Tasks;
use super::workloads::{self, Workload};
use crate::chance::mix;
use crate::network::{MS, Network};
use elderlock::protocol::event::{Hint, Input};
use elderlock::simulated::{Simulated, SimulatedInbox, SimulatedPacket, by_clock, paced};
use elderlock::{Member, ProcessId, ServiceStatus, Status, Timing};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A member that has not joined after this time never will: many times the duration of a take-over.
const JOIN_LIMIT: Duration = Duration::from_secs(60);
/// After the healing every call is answered within this time.
const REST_LIMIT: Duration = Duration::from_secs(60);
/// After the healing every lock can be had within this time.
const LOCK_LIMIT: Duration = Duration::from_secs(20);
/// The interval between two attempts to dial a connection that is refused or does not open.
const DIAL_EVERY: u64 = 200 * MS;

/// The cluster's name.
const CLUSTER: &str = "stage";

/// A site, at which members run one after the other.
struct MemberSlot {
    addr: SocketAddr,
    member: Option<Member>,
    inbox: Option<SimulatedInbox>,
    frozen: bool,
    /// Packets that came while it was frozen: its operating system keeps them.
    mailbox: Vec<PacketInFlight>,
    /// The number of the present process at this site.
    life: u64,
    /// It was started and has joined.
    joined: bool,
}

/// Packets that members send, until the pump takes them.
#[derive(Default)]
struct Outgoing {
    parcels: VecDeque<(usize, u64, SimulatedPacket)>,
    pump: Option<Waker>,
}

struct PacketInFlight {
    from: usize,
    to: usize,
    parcel: Rc<SimulatedPacket>,
}

/// See the head of the module.
pub struct ClusterHarness {
    /// The plan of the run.
    pub plan: RecipePlan,
    /// The claims of the workers.
    pub checker: Rc<BeliefChecker>,
    /// All tasks of the run.
    pub tasks: Tasks,
    network: RefCell<Network>,
    sites: RefCell<Vec<MemberSlot>>,
    postbox: Arc<Mutex<Outgoing>>,
    flying: RefCell<BTreeMap<(u64, u64), PacketInFlight>>,
    flights: Cell<u64>,
    dials: RefCell<BTreeMap<(usize, usize), u64>>,
    /// Workers that have not come to their end, by their numbers: their workload, and their present
    /// wait.
    playing: RefCell<BTreeMap<u64, (usize, String)>>,
    next_worker: Cell<u64>,
}

impl ClusterHarness {
    /// An empty harness.
    pub fn new(plan: RecipePlan, checker: Rc<BeliefChecker>, tasks: Tasks) -> Rc<ClusterHarness> {
        let sites = (0..plan.sites)
            .map(|site| MemberSlot {
                addr: SocketAddr::from(([10, 0, 0, site as u8 + 1], 7400)),
                member: None,
                inbox: None,
                frozen: false,
                mailbox: Vec::new(),
                life: 0,
                joined: false,
            })
            .collect();
        let mut network = Network::new(mix(&[plan.luck, 2]));
        network.set_weather(FAIR_WEATHER);
        Rc::new(ClusterHarness {
            plan,
            checker,
            tasks,
            network: RefCell::new(network),
            sites: RefCell::new(sites),
            postbox: Arc::default(),
            flying: RefCell::default(),
            flights: Cell::new(0),
            dials: RefCell::default(),
            playing: RefCell::default(),
            next_worker: Cell::new(0),
        })
    }

    /// Drives the whole run and closes the tasks at its end.
    pub async fn tell(self: Rc<Self>) {
        self.tasks.begin(None, self.clone().pump());
        for site in 0..self.plan.sites {
            self.start(site);
        }
        if self.all_joined().await {
            let began = self.checker.now();
            for fault in &self.plan.faults {
                let harness = self.clone();
                let fault = *fault;
                self.tasks.begin(None, async move {
                    tokio::time::sleep(Duration::from_millis(fault.at)).await;
                    if !harness.checker.ending.get() {
                        harness.checker.trouble_begins();
                        harness.go_wrong(fault.trouble, Duration::from_millis(fault.span)).await;
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

    // Members.

    /// Starts a process at the site; its workers follow when it has joined.
    fn start(self: &Rc<Self>, site: usize) {
        let addrs: Vec<String> =
            self.sites.borrow().iter().map(|site| site.addr.to_string()).collect();
        let addr = self.sites.borrow()[site].addr;
        let life = self.sites.borrow()[site].life + 1;
        let postbox = self.postbox.clone();
        let post = Arc::new(move |parcel: SimulatedPacket| {
            let mut postbox = postbox.lock().unwrap_or_else(PoisonError::into_inner);
            postbox.parcels.push_back((site, life, parcel));
            if let Some(pump) = postbox.pump.take() {
                pump.wake();
            }
        });
        let builder = Member::builder(CLUSTER).timing(Timing::fast()).seeds(addrs);
        let Simulated { member, timer, ears: inbox } =
            builder.simulate(addr, self.plan.clocks[site], self.plan.limits, post);
        self.checker.note(|| format!("member {site} starts as {}", member.process()));
        {
            let mut sites = self.sites.borrow_mut();
            let site = &mut sites[site];
            (site.member, site.inbox, site.frozen) =
                (Some(member.clone()), Some(inbox.clone()), false);
            (site.life, site.joined) = (life, false);
        }
        self.tasks.begin(Some(site), timer);
        let harness = self.clone();
        self.tasks.begin(Some(site), async move {
            if inbox.joined(JOIN_LIMIT).await {
                harness.checker.note(|| format!("member {site} has joined"));
                harness.sites.borrow_mut()[site].joined = true;
                workloads::enter(&harness, site, &member);
            }
        });
    }

    /// Removes the process at the site, with all its tasks.
    fn clear(&self, site: usize) -> Option<ProcessId> {
        let (member, inbox) = {
            let mut sites = self.sites.borrow_mut();
            let site = &mut sites[site];
            site.joined = false;
            site.frozen = false;
            site.mailbox.clear();
            (site.member.take(), site.inbox.take())
        };
        let process = inbox.as_ref().and_then(SimulatedInbox::process);
        // First the engine: later drops then send no message.
        if let Some(inbox) = inbox {
            inbox.kill();
        }
        drop(member);
        self.tasks.end(site);
        self.playing.borrow_mut().retain(|worker, (at, _)| {
            if *at == site {
                self.checker.killed(*worker);
            }
            *at != site
        });
        process
    }

    fn is_up(&self, site: usize) -> bool {
        self.sites.borrow()[site].member.is_some()
    }

    /// The number of sites whose member is away or has not joined again.
    fn away(&self) -> usize {
        self.sites.borrow().iter().filter(|site| !site.joined).count()
    }

    /// The running members, with their sites.
    fn members(&self) -> Vec<(usize, Member)> {
        let sites = self.sites.borrow();
        let members =
            sites.iter().enumerate().filter_map(|(at, site)| Some((at, site.member.clone()?)));
        members.collect()
    }

    /// The status by the member's own clock.
    fn status(&self, site: usize, member: &Member) -> Status {
        by_clock(self.plan.clocks[site], || member.status())
    }

    /// Whether too many voters of the last known view have died. Then no process can join, which is
    /// correct.
    fn is_quorum_lost(&self) -> bool {
        let members = self.members();
        let alive: Vec<ProcessId> = members.iter().map(|(_, member)| member.process()).collect();
        let views = members.iter().filter_map(|(site, member)| self.status(*site, member).view);
        let Some(view) = views.max_by_key(|view| view.number) else { return true };
        let weigh = |is_counted: &dyn Fn(ProcessId) -> bool| {
            let voters = view.council().enumerate();
            voters
                .filter(|(_, info)| is_counted(info.process))
                .map(|(age, _)| if age == 0 { 3 } else { 2 })
                .sum::<u32>()
        };
        2 * weigh(&|process| alive.contains(&process)) <= weigh(&|_| true)
    }

    async fn all_joined(&self) -> bool {
        let all = async {
            while self.away() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(JOIN_LIMIT, all).await.is_ok()
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

    async fn go_wrong(self: &Rc<Self>, trouble: RecipeFaultKind, span: Duration) {
        let sites = self.plan.sites;
        match trouble {
            RecipeFaultKind::Crash(site) => {
                // Votes that are lost for good must leave a quorum.
                if self.away() >= (sites - 1) / 2 || !self.is_up(site) {
                    return;
                }
                self.checker.count("crashes");
                self.checker.note(|| format!("member {site} is killed"));
                if let Some(process) = self.clear(site)
                    && self.plan.vouched
                {
                    for other in (0..sites).filter(|other| *other != site) {
                        self.hint(other, Hint::Dead(process));
                    }
                }
                tokio::time::sleep(span).await;
                self.start(site);
            }
            RecipeFaultKind::Leave(site) => {
                let (life, is_well) = {
                    let site = &self.sites.borrow()[site];
                    (site.life, site.joined && !site.frozen)
                };
                let member = self.sites.borrow()[site].member.clone();
                let Some(member) = member.filter(|_| self.away() < (sites - 1) / 2 && is_well)
                else {
                    return;
                };
                self.checker.count("leaves");
                self.checker.note(|| format!("member {site} leaves"));
                self.sites.borrow_mut()[site].joined = false;
                let left = paced(self.plan.clocks[site], member.leave()).await;
                drop(member);
                self.checker.note(|| format!("member {site} has left: {left:?}"));
                // A fault that has killed it meanwhile starts the next one.
                if self.sites.borrow()[site].life != life || !self.is_up(site) {
                    return;
                }
                self.clear(site);
                tokio::time::sleep(span).await;
                self.start(site);
            }
            RecipeFaultKind::Pause(site) => {
                if !self.is_up(site) || self.sites.borrow()[site].frozen {
                    return;
                }
                let life = self.sites.borrow()[site].life;
                self.checker.count("pauses");
                self.checker.note(|| format!("member {site} is stopped"));
                self.sites.borrow_mut()[site].frozen = true;
                self.tasks.freeze(site);
                tokio::time::sleep(span).await;
                if self.sites.borrow()[site].life == life && self.is_up(site) {
                    self.thaw(site);
                }
            }
            RecipeFaultKind::Isolate(site) => {
                self.cut(span, |from, to| from == site || to == site).await
            }
            RecipeFaultKind::OneWay(from, to) => self.cut(span, |a, b| a == from && b == to).await,
            RecipeFaultKind::Split(mask) => {
                self.cut(span, |a, b| (mask >> a & 1) != (mask >> b & 1)).await
            }
            RecipeFaultKind::Storm(weather) => {
                self.checker.count("storms");
                self.checker.note(|| "a storm".to_owned());
                self.network.borrow_mut().set_weather(weather);
                tokio::time::sleep(span).await;
                self.network.borrow_mut().set_weather(FAIR_WEATHER);
            }
        }
    }

    fn thaw(&self, site: usize) {
        self.checker.note(|| format!("member {site} goes on"));
        let kept = {
            let mut sites = self.sites.borrow_mut();
            sites[site].frozen = false;
            std::mem::take(&mut sites[site].mailbox)
        };
        self.tasks.thaw(site);
        for flight in kept {
            self.fly(self.checker.now(), flight);
        }
        self.wake_pump();
    }

    async fn cut(&self, span: Duration, is_cut: impl Fn(usize, usize) -> bool) {
        let sites = self.plan.sites;
        let ways = || (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
        let ways: Vec<_> = ways().filter(|(from, to)| from != to && is_cut(*from, *to)).collect();
        self.checker.count("cuts");
        self.checker.note(|| format!("cut: {ways:?}"));
        for (from, to) in &ways {
            self.network.borrow_mut().cut(*from, *to);
        }
        tokio::time::sleep(span).await;
        if !self.checker.ending.get() {
            self.checker.note(|| format!("mended: {ways:?}"));
            for (from, to) in &ways {
                self.network.borrow_mut().mend(*from, *to);
            }
        }
    }

    /// Ends all faults and waits until all members are back and all requests are answered.
    async fn heal(self: &Rc<Self>) {
        self.network.borrow_mut().mend_all();
        self.network.borrow_mut().set_weather(FAIR_WEATHER);
        let frozen: Vec<usize> =
            (0..self.plan.sites).filter(|site| self.sites.borrow()[*site].frozen).collect();
        for site in frozen {
            self.thaw(site);
        }
        // The faults that ended processes start them again.
        if !self.all_joined().await {
            if self.is_quorum_lost() {
                self.checker.note(|| "a quorum is lost for good".to_owned());
                return self.checker.count("quorums lost");
            }
            let away: Vec<usize> =
                (0..self.plan.sites).filter(|site| !self.sites.borrow()[*site].joined).collect();
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
        let members = self.members();
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
                self.status(*site, member)
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

    // The network.

    fn wake_pump(&self) {
        if let Some(pump) = self.postbox.lock().unwrap_or_else(PoisonError::into_inner).pump.take()
        {
            pump.wake();
        }
    }

    /// Delivers packets, one in each turn.
    async fn pump(self: Rc<Self>) {
        loop {
            self.collect();
            let now = self.checker.now();
            let next = self.flying.borrow().first_key_value().map(|(at, _)| *at);
            match next {
                Some(at) if at.0 <= now => {
                    let flight = self.flying.borrow_mut().remove(&at);
                    if let Some(flight) = flight {
                        self.deliver(flight);
                    }
                    // Other tasks run in between.
                    tokio::task::yield_now().await;
                }
                next => {
                    let sleep = async {
                        match next {
                            Some((at, _)) => {
                                tokio::time::sleep(Duration::from_nanos(at - now)).await
                            }
                            None => std::future::pending().await,
                        }
                    };
                    let mut sleep = std::pin::pin!(sleep);
                    poll_fn(|context| {
                        let mut postbox =
                            self.postbox.lock().unwrap_or_else(PoisonError::into_inner);
                        postbox.pump = Some(context.waker().clone());
                        if !postbox.parcels.is_empty() {
                            return Poll::Ready(());
                        }
                        drop(postbox);
                        sleep.as_mut().poll(context)
                    })
                    .await;
                }
            }
        }
    }

    /// Takes the sent packets and draws the arrival times.
    fn collect(&self) {
        loop {
            let taken =
                self.postbox.lock().unwrap_or_else(PoisonError::into_inner).parcels.pop_front();
            let Some((from, life, parcel)) = taken else { return };
            if self.sites.borrow()[from].life != life {
                continue;
            }
            let Some(to) = self.sites.borrow().iter().position(|site| site.addr == parcel.to)
            else {
                continue;
            };
            let now = self.checker.now();
            let route = self.network.borrow_mut().route(now, from, to);
            let is_cut = self.network.borrow().is_cut(from, to);
            let parcel = Rc::new(parcel);
            if is_cut && let Some(process) = parcel.process {
                self.dial_fails(from, to, Hint::Unreachable(process));
            }
            for at in route.arrivals.into_iter().flatten() {
                self.fly(at, PacketInFlight { from, to, parcel: parcel.clone() });
            }
        }
    }

    fn fly(&self, at: u64, flight: PacketInFlight) {
        let number = self.flights.get() + 1;
        self.flights.set(number);
        self.flying.borrow_mut().insert((at, number), flight);
    }

    fn deliver(&self, flight: PacketInFlight) {
        {
            let mut sites = self.sites.borrow_mut();
            if sites[flight.to].frozen {
                let to = flight.to;
                return sites[to].mailbox.push(flight);
            }
        }
        let PacketInFlight { from, to, parcel } = flight;
        let inbox = self.sites.borrow()[to].inbox.clone();
        let there = inbox.as_ref().and_then(SimulatedInbox::process);
        let is_wanted =
            there.is_some() && parcel.process.is_none_or(|process| there == Some(process));
        self.checker.mix((self.checker.now(), from, to, is_wanted));
        self.checker.mix(&parcel.packet);
        match inbox {
            Some(inbox) if is_wanted => {
                let packet = parcel.packet.clone();
                inbox.input(Input::Received {
                    from: parcel.from.process,
                    addr: parcel.from.addr,
                    packet,
                });
            }
            _ => {
                if let Some(process) = parcel.process {
                    let hint = if there.is_some() {
                        Hint::Replaced(process)
                    } else {
                        Hint::Refused(process)
                    };
                    self.dial_fails(from, to, hint);
                }
            }
        }
    }

    /// The dialling member gets a hint that the dial failed, but not with each packet.
    fn dial_fails(&self, from: usize, to: usize, hint: Hint) {
        let now = self.checker.now();
        let mut dials = self.dials.borrow_mut();
        let due = dials.entry((from, to)).or_insert(0);
        if now >= *due {
            *due = now + DIAL_EVERY;
            drop(dials);
            self.hint(from, hint);
        }
    }

    /// A hint, a little later.
    fn hint(&self, site: usize, hint: Hint) {
        let Some(inbox) = self.sites.borrow()[site].inbox.clone() else { return };
        // As a task of that site: a stopped process gets no input.
        self.tasks.begin(Some(site), async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            inbox.input(Input::Hint(hint));
        });
    }
}
