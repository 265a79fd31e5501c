//! Members at their sites, and the network between them.

use super::network::{LinkConditions, MS, Network};
use super::tasks::Tasks;
use elderlock::protocol::Limits;
use elderlock::protocol::Packet;
use elderlock::protocol::event::{Hint, Input};
use elderlock::simulated::{Simulated, SimulatedInbox, SimulatedPacket, by_clock, paced};
use elderlock::{Member, ProcessId, Status, Timing};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The time after which a member counts as unable to join. It is many times the duration of a
/// take-over.
pub const JOIN_LIMIT: Duration = Duration::from_secs(60);

/// The interval between two attempts to dial a connection that is refused or does not open.
const DIAL_EVERY: u64 = 200 * MS;

/// The conditions of a local network: delays of some milliseconds, and no losses.
pub const FAIR_WEATHER: LinkConditions = LinkConditions {
    loss: 0,
    duplicate: 0,
    reorder: 0,
    fastest: MS,
    slowest: 4 * MS,
    spike: 10_000,
    spike_by: 40 * MS,
    garble: 0,
};

/// Records the events at the sites, in order, and provides the time.
pub trait Journal {
    /// The nanoseconds of a clock with the true rate.
    fn now(&self) -> u64;
    /// A line for readers.
    fn note(&self, line: &dyn Fn() -> String);
    /// Called after a change of the process at a site.
    fn site_changed(&self, _site: usize, _change: SiteChange) {}
    /// Called when a packet arrives at a site. `is_wanted` tells whether the packet's addressee
    /// runs there.
    fn arrived(&self, from: usize, to: usize, is_wanted: bool, packet: &Packet);
}

/// A change of the process at a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteChange {
    /// The process starts.
    Started,
    /// The member of the process has joined.
    Joined,
    /// The member of the process says goodbye.
    Leaves,
    /// The process ends, with all its tasks.
    Ended,
    /// The process is stopped.
    Stopped,
    /// The process resumes.
    GoesOn,
}

/// The setup of the members at all sites, before they start.
#[derive(Clone, Debug)]
pub struct SitesPlan {
    /// The cluster's name.
    pub cluster: &'static str,
    /// The times of each member.
    pub timing: Timing,
    /// The error of each site's clock in millionths; positive if it is too fast. There is one for
    /// each site.
    pub clocks: Vec<i32>,
    /// The limits of each member.
    pub limits: Limits,
    /// The seed of the fate of packets.
    pub luck: u64,
}

/// A site, at which members run one after the other.
struct MemberSlot {
    addr: SocketAddr,
    member: Option<Member>,
    inbox: Option<SimulatedInbox>,
    frozen: bool,
    /// Packets that arrived while the process was frozen: its operating system keeps them.
    mailbox: Vec<PacketInFlight>,
    /// The number of the present process at this site.
    life: u64,
    /// Whether the started process has joined.
    joined: bool,
}

/// Packets that members have sent, until the pump takes them.
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

/// The members at all sites, and the network between them.
pub struct Sites {
    plan: SitesPlan,
    journal: Rc<dyn Journal>,
    tasks: Tasks,
    /// The network between the sites.
    pub network: RefCell<Network>,
    slots: RefCell<Vec<MemberSlot>>,
    postbox: Arc<Mutex<Outgoing>>,
    flying: RefCell<BTreeMap<(u64, u64), PacketInFlight>>,
    flights: Cell<u64>,
    dials: RefCell<BTreeMap<(usize, usize), u64>>,
}

impl Sites {
    /// Empty sites. No packet arrives until the task [`pump`](Sites::pump) runs.
    pub fn new(plan: SitesPlan, journal: Rc<dyn Journal>, tasks: Tasks) -> Rc<Sites> {
        let slots = (0..plan.clocks.len())
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
        let mut network = Network::new(plan.luck);
        network.set_weather(FAIR_WEATHER);
        Rc::new(Sites {
            plan,
            journal,
            tasks,
            network: RefCell::new(network),
            slots: RefCell::new(slots),
            postbox: Arc::default(),
            flying: RefCell::default(),
            flights: Cell::new(0),
            dials: RefCell::default(),
        })
    }

    /// The number of sites.
    pub fn count(&self) -> usize {
        self.plan.clocks.len()
    }

    // Processes.

    /// Starts a process at the site. `on_join` is called when its member has joined.
    pub fn start(self: &Rc<Self>, site: usize, on_join: impl FnOnce(&Member) + 'static) {
        let addrs: Vec<String> =
            self.slots.borrow().iter().map(|slot| slot.addr.to_string()).collect();
        let addr = self.slots.borrow()[site].addr;
        let life = self.slots.borrow()[site].life + 1;
        let postbox = self.postbox.clone();
        let deliver = Arc::new(move |parcel: SimulatedPacket| {
            let mut postbox = postbox.lock().unwrap_or_else(PoisonError::into_inner);
            postbox.parcels.push_back((site, life, parcel));
            if let Some(pump) = postbox.pump.take() {
                pump.wake();
            }
        });
        let builder = Member::builder(self.plan.cluster).timing(self.plan.timing).seeds(addrs);
        let Simulated { member, timer, inbox } =
            builder.simulate(addr, self.plan.clocks[site], self.plan.limits, deliver);
        self.note(|| format!("member {site} starts as {}", member.process()));
        self.journal.site_changed(site, SiteChange::Started);
        {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[site];
            (slot.member, slot.inbox, slot.frozen) =
                (Some(member.clone()), Some(inbox.clone()), false);
            (slot.life, slot.joined) = (life, false);
        }
        self.tasks.begin(Some(site), timer);
        let sites = self.clone();
        self.tasks.begin(Some(site), async move {
            if inbox.joined(JOIN_LIMIT).await {
                sites.note(|| format!("member {site} has joined"));
                sites.journal.site_changed(site, SiteChange::Joined);
                sites.slots.borrow_mut()[site].joined = true;
                on_join(&member);
            }
        });
    }

    /// Ends the process at the site, with all its tasks and without a message.
    pub fn kill(&self, site: usize) -> Option<ProcessId> {
        if self.is_up(site) {
            self.journal.site_changed(site, SiteChange::Ended);
        }
        let (member, inbox) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[site];
            slot.joined = false;
            slot.frozen = false;
            slot.mailbox.clear();
            (slot.member.take(), slot.inbox.take())
        };
        let process = inbox.as_ref().and_then(SimulatedInbox::process);
        // The engine is closed first, so that later drops send no message.
        if let Some(inbox) = inbox {
            inbox.kill();
        }
        drop(member);
        self.tasks.end(site);
        process
    }

    /// Tells the other members for certain that the process has ended.
    pub fn vouch(&self, site: usize, process: ProcessId) {
        for other in (0..self.count()).filter(|other| *other != site) {
            self.hint(other, Hint::Dead(process));
        }
    }

    /// Lets the member say goodbye. Returns whether its process still runs then: another fault may
    /// have ended it.
    pub async fn leave(&self, site: usize, member: Member) -> bool {
        let life = self.life(site);
        self.note(|| format!("member {site} leaves"));
        self.journal.site_changed(site, SiteChange::Leaves);
        self.slots.borrow_mut()[site].joined = false;
        let left = paced(self.clock(site), member.leave()).await;
        drop(member);
        self.note(|| format!("member {site} has left: {left:?}"));
        self.life(site) == life && self.is_up(site)
    }

    /// Stops the process at the site: none of its tasks runs.
    pub fn freeze(&self, site: usize) {
        self.note(|| format!("member {site} is stopped"));
        self.journal.site_changed(site, SiteChange::Stopped);
        self.slots.borrow_mut()[site].frozen = true;
        self.tasks.freeze(site);
    }

    /// Resumes a stopped process, with the packets that arrived meanwhile.
    pub fn thaw(&self, site: usize) {
        self.note(|| format!("member {site} goes on"));
        self.journal.site_changed(site, SiteChange::GoesOn);
        let kept = {
            let mut slots = self.slots.borrow_mut();
            slots[site].frozen = false;
            std::mem::take(&mut slots[site].mailbox)
        };
        self.tasks.thaw(site);
        for flight in kept {
            self.fly(self.now(), flight);
        }
        self.wake_pump();
    }

    /// Returns whether the process at the site is stopped.
    pub fn is_frozen(&self, site: usize) -> bool {
        self.slots.borrow()[site].frozen
    }

    /// Returns whether a process runs at the site.
    pub fn is_up(&self, site: usize) -> bool {
        self.slots.borrow()[site].member.is_some()
    }

    /// Returns whether the member at the site has joined.
    pub fn has_joined(&self, site: usize) -> bool {
        self.slots.borrow()[site].joined
    }

    /// The number of the present process at the site.
    pub fn life(&self, site: usize) -> u64 {
        self.slots.borrow()[site].life
    }

    /// The member at the site.
    pub fn member(&self, site: usize) -> Option<Member> {
        self.slots.borrow()[site].member.clone()
    }

    /// The error of the site's clock in millionths; positive if it is too fast.
    pub fn clock(&self, site: usize) -> i32 {
        self.plan.clocks[site]
    }

    /// The number of sites whose member is away or has not joined again.
    pub fn away(&self) -> usize {
        self.slots.borrow().iter().filter(|slot| !slot.joined).count()
    }

    /// The running members, with their sites.
    pub fn members(&self) -> Vec<(usize, Member)> {
        let slots = self.slots.borrow();
        let members =
            slots.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.member.clone()?)));
        members.collect()
    }

    /// The status by the member's own clock.
    pub fn status(&self, site: usize, member: &Member) -> Status {
        by_clock(self.clock(site), || member.status())
    }

    /// Returns whether too many voters of the last known view have died. Then no process can join,
    /// which is correct.
    pub fn is_quorum_lost(&self) -> bool {
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

    /// Waits until every member has joined. Returns whether that happened within [`JOIN_LIMIT`].
    pub async fn all_joined(&self) -> bool {
        let all = async {
            while self.away() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(JOIN_LIMIT, all).await.is_ok()
    }

    // The network.

    /// The ways between different sites for which `is_among` holds.
    pub fn ways(&self, is_among: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
        let sites = self.count();
        let ways = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
        ways.filter(|(from, to)| from != to && is_among(*from, *to)).collect()
    }

    /// Cuts these ways.
    pub fn cut(&self, ways: &[(usize, usize)]) {
        self.note(|| format!("cut: {ways:?}"));
        for (from, to) in ways {
            self.network.borrow_mut().cut(*from, *to);
        }
    }

    /// Ends one cut of each of these ways.
    pub fn mend(&self, ways: &[(usize, usize)]) {
        self.note(|| format!("mended: {ways:?}"));
        for (from, to) in ways {
            self.network.borrow_mut().mend(*from, *to);
        }
    }

    fn now(&self) -> u64 {
        self.journal.now()
    }

    pub(super) fn note(&self, line: impl Fn() -> String) {
        self.journal.note(&line);
    }

    fn wake_pump(&self) {
        if let Some(pump) = self.postbox.lock().unwrap_or_else(PoisonError::into_inner).pump.take()
        {
            pump.wake();
        }
    }

    /// Delivers packets, one in each turn.
    pub async fn pump(self: Rc<Self>) {
        loop {
            self.collect();
            let now = self.now();
            let next = self.flying.borrow().first_key_value().map(|(at, _)| *at);
            match next {
                Some(at) if at.0 <= now => {
                    let flight = self.flying.borrow_mut().remove(&at);
                    if let Some(flight) = flight {
                        self.deliver(flight);
                    }
                    // Other tasks run between two deliveries.
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
            if self.slots.borrow()[from].life != life {
                continue;
            }
            let Some(to) = self.slots.borrow().iter().position(|slot| slot.addr == parcel.to)
            else {
                continue;
            };
            let now = self.now();
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
            let mut slots = self.slots.borrow_mut();
            if slots[flight.to].frozen {
                let to = flight.to;
                return slots[to].mailbox.push(flight);
            }
        }
        let PacketInFlight { from, to, parcel } = flight;
        let inbox = self.slots.borrow()[to].inbox.clone();
        let there = inbox.as_ref().and_then(SimulatedInbox::process);
        let is_wanted =
            there.is_some() && parcel.process.is_none_or(|process| there == Some(process));
        self.journal.arrived(from, to, is_wanted, &parcel.packet);
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

    /// Gives the dialling member a hint that the dial failed, but not for each packet.
    fn dial_fails(&self, from: usize, to: usize, hint: Hint) {
        let now = self.now();
        let mut dials = self.dials.borrow_mut();
        let due = dials.entry((from, to)).or_insert(0);
        if now >= *due {
            *due = now + DIAL_EVERY;
            drop(dials);
            self.hint(from, hint);
        }
    }

    /// Gives a hint, a little later.
    fn hint(&self, site: usize, hint: Hint) {
        let Some(inbox) = self.slots.borrow()[site].inbox.clone() else { return };
        // The work is a task of that site, because a stopped process gets no input.
        self.tasks.begin(Some(site), async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            inbox.input(Input::Hint(hint));
        });
    }
}
