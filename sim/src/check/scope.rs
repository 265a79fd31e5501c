//! A scope: the start of a search, and the bounds within which it is exhaustive.

use crate::check::future::StateFingerprint;
use crate::kind::kind;
use crate::site::ProcessState;
use crate::step::{ClientWant, OutsideHint, Step};
use crate::world::{PacketInTransit, World};
use elderlock::protocol::Wait;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The service of the lock that all clients of a scope want.
pub(super) const SERVICE: &str = "s";
/// The lock that all clients of a scope want.
pub(super) const LOCK: &str = "x";

/// How packets of one pair overtake each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeliveryOrder {
    /// The packets of a pair arrive in order, as over TCP. Pairs are independent.
    InOrder,
    /// All packets arrive in any order.
    AnyOrder,
}

/// When time may leap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeLeaps {
    /// At any moment, with packets under way and timers due.
    Anytime,
    /// When nothing is under way and no timer is due. Timers go off meanwhile when they are due.
    /// The leap ends when a member sends a packet that does not arrive at once.
    AtRest,
}

/// Some packets: by the sites from and to which they go, and their name.
pub type PacketPredicate = fn(from: usize, to: usize, kind: &str) -> bool;

/// The start of a search, and its bounds.
#[derive(Clone)]
pub struct Scope {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description for people.
    pub about: &'static str,
    /// Whether its quick form takes seconds.
    pub small: bool,
    /// The World at rest, in which all ways begin.
    pub start: fn(World) -> World,
    /// The order of delivery.
    pub network: DeliveryOrder,
    /// The highest number of killed processes.
    pub crashes: u8,
    /// Sites where processes may be killed.
    pub mortal: &'static [usize],
    /// Whether a member on the same host sees the end of a killed one: any one of them, at any
    /// later moment. The others hear of it from that member.
    pub vouched: bool,
    /// The highest number of lost or doubled packets.
    pub faults: u8,
    /// Sites at which a process starts at any moment.
    pub joiners: &'static [usize],
    /// Sites at which a process starts again at any moment after the former one has ended, once
    /// for each time that they are named.
    pub restarts: &'static [usize],
    /// Sites whose data directory may be lost while no process runs there, once for each time that
    /// they are named.
    pub forgetful: &'static [usize],
    /// Members that say goodbye at any moment.
    pub leavers: &'static [usize],
    /// Members that are stopped at any moment, and wake at any moment later.
    pub sleepers: &'static [usize],
    /// Members at which a client makes the request of `wants` at any moment, once for each time
    /// that they are named.
    pub asks: &'static [usize],
    /// The requests of those clients, in the order in which their members are named.
    pub wants: fn(usize) -> ClientWant,
    /// Members that ask to become grantor at any moment, once for each time that they are named.
    pub turks: &'static [usize],
    /// Whether clients release their holds.
    pub releases: bool,
    /// Whether clients give up waiting. Needs `releases`, too.
    pub cancels: bool,
    /// Pairs: gossip may tell the first member at any moment that the second is unreachable.
    pub rumours: &'static [(usize, usize)],
    /// Leaps of time, in milliseconds; each once, in this order.
    pub leaps: &'static [u64],
    /// When the leaps may happen.
    pub leaps_when: TimeLeaps,
    /// Packets that arrive at once.
    pub at_once: PacketPredicate,
    /// Packets that may be under way while everything else is at rest.
    pub late: PacketPredicate,
    /// The additions of the large form, beyond those that all large forms have.
    pub larger: fn(Scope) -> Scope,
    /// Its reductions in the quick form.
    pub smaller: fn(Scope) -> Scope,
}

impl Scope {
    /// A scope in which nothing happens.
    pub const STILL: Scope = Scope {
        name: "",
        about: "",
        small: true,
        start: |world| world,
        network: DeliveryOrder::InOrder,
        crashes: 0,
        mortal: &[],
        vouched: true,
        faults: 0,
        joiners: &[],
        restarts: &[],
        forgetful: &[],
        leavers: &[],
        sleepers: &[],
        asks: &[],
        wants: |_| ClientWant::Lock(LOCK.to_string()),
        turks: &[],
        releases: false,
        cancels: false,
        rumours: &[],
        leaps: &[],
        leaps_when: TimeLeaps::AtRest,
        at_once: |_, _, _| false,
        late: |_, _, _| false,
        larger: |scope| scope,
        smaller: |scope| scope,
    };

    /// The quick form: no packet is lost or doubled, and the reductions of `smaller` apply.
    pub fn quick(&self) -> Scope {
        (self.smaller)(Scope { faults: 0, ..self.clone() })
    }

    /// The scope with at most one packet lost or doubled.
    pub fn with_one_fault(&self) -> Scope {
        Scope { faults: self.faults.min(1), ..self.clone() }
    }

    /// The large form: packets overtake each other in any way, clients give up waiting, and the
    /// additions of `larger` apply.
    pub fn large(&self) -> Scope {
        (self.larger)(Scope {
            network: DeliveryOrder::AnyOrder,
            cancels: self.releases,
            ..self.clone()
        })
    }

    /// The bounds in words.
    pub fn bounds(&self) -> String {
        let mut bounds = vec![match self.network {
            DeliveryOrder::InOrder => "packets of a pair in order".to_string(),
            DeliveryOrder::AnyOrder => "packets in any order".to_string(),
        }];
        let mut say = |count: usize, what: &str| {
            if count > 0 {
                bounds.push(format!("{count} {what}"));
            }
        };
        say(
            usize::from(self.crashes),
            if self.vouched { "killed, seen by one" } else { "killed, seen by no member" },
        );
        say(usize::from(self.faults), "packets lost or doubled");
        say(self.joiners.len(), "joining");
        say(self.restarts.len(), "starting again");
        say(self.forgetful.len(), "directories lost");
        say(self.leavers.len(), "leaving");
        say(self.sleepers.len(), "stopped for a while");
        say(self.asks.len(), "asking for the lock");
        say(self.turks.len(), "asking to become grantor");
        say(self.rumours.len(), "wrong rumours");
        if !self.leaps.is_empty() {
            bounds.push(format!("leaps of {:?} ms", self.leaps));
        }
        bounds.join(", ")
    }

    /// The state in which every search begins; `prepare` makes the Worlds.
    pub fn first(&self, prepare: impl FnOnce(World) -> World) -> ScopeState {
        let world = (self.start)(prepare(World::new(1).untraced().without_hints()));
        let mut world = world.only_checked();
        let left = RemainingBudget {
            crashes: self.crashes,
            faults: self.faults,
            ..RemainingBudget::default()
        };
        self.settle(&mut world);
        let print = StateFingerprint::of(&world, None, self.in_order(), &left);
        ScopeState { world, left, print }
    }

    /// Every move from here.
    pub fn moves(&self, state: &ScopeState) -> Vec<Move> {
        let (world, left) = (&state.world, &state.left);
        if world.broken().is_some() {
            return Vec::new();
        }
        let mut moves = Vec::new();
        let mut seen = BTreeSet::new();
        let under_way: Vec<&PacketInTransit> =
            world.under_way().map(|(_, parcel)| &**parcel).collect();
        let enabled = world.enabled();
        let is_at_rest =
            under_way.iter().all(|parcel| self.is_late(parcel)) && !enabled.iter().any(is_timer);
        for step in &enabled {
            if let Step::Deliver(number) = *step {
                let parcel = under_way[number];
                // Where packets arrive in order, only the first packet of each pair is a move.
                // Otherwise one of several equal packets is. A packet is lost or doubled when it
                // could arrive, because an earlier loss makes no difference.
                let what = if self.in_order() {
                    (parcel.from as u64, parcel.to as u64)
                } else {
                    (parcel.print(), 0)
                };
                if !seen.insert(what) {
                    continue;
                }
                if left.faults > 0 {
                    moves
                        .extend([Move::Step(Step::Lose(number)), Move::Step(Step::Double(number))]);
                }
            }
            moves.push(Move::Step(step.clone()));
        }
        let up = |site: &usize| world.is_up(*site);
        if left.crashes > 0 {
            moves.extend(
                self.mortal.iter().copied().filter(up).map(|site| Move::Step(Step::Crash(site))),
            );
        }
        if self.vouched {
            for (at, about) in self.witnesses(world) {
                if !left.told.contains(&about) {
                    moves.push(Move::Step(Step::Notice { at, about, what: OutsideHint::Dead }));
                }
            }
        }
        let wanted =
            |index| if index < self.asks.len() { (self.wants)(index) } else { ClientWant::Become };
        let clients: Vec<usize> = self.asks.iter().chain(self.turks).copied().collect();
        for (index, site) in clients.iter().enumerate() {
            // The requests of one member come in the order in which they are named.
            let earlier =
                (0..index).all(|other| clients[other] != *site || left.asked & 1 << other != 0);
            if left.asked & 1 << index == 0 && earlier && up(site) {
                moves.push(Move::Step(Step::Ask {
                    call: index,
                    site: *site,
                    service: SERVICE.to_string(),
                    wanted: wanted(index),
                    owner: 0,
                    says: String::new(),
                    wait: Wait::Forever,
                    lease: None,
                }));
            }
            if self.releases
                && let Some(ask) = world.named(index)
            {
                let call = world.call(ask);
                if call.is_claim() || (self.cancels && call.is_open()) {
                    moves.push(Move::Step(Step::Release(index)));
                }
            }
        }
        let fresh = |sites: &'static [usize], done: u8| {
            sites
                .iter()
                .enumerate()
                .filter(move |(index, _)| done & 1 << index == 0)
                .map(|(_, site)| *site)
        };
        let joiners = fresh(self.joiners, left.joined).filter(|site| !world.is_alive(*site));
        moves.extend(joiners.map(|site| Move::Step(Step::Start(site))));
        let dead = |site: &usize| !world.is_alive(*site) && world.sites[*site].node.is_some();
        moves.extend(
            fresh(self.restarts, left.restarted)
                .filter(dead)
                .map(|site| Move::Step(Step::Start(site))),
        );
        let kept = |site: &usize| dead(site) && world.sites[*site].disk.vote.is_some();
        moves.extend(
            fresh(self.forgetful, left.forgot)
                .filter(kept)
                .map(|site| Move::Step(Step::LoseDisk(site))),
        );
        moves.extend(
            fresh(self.leavers, left.gone).filter(up).map(|site| Move::Step(Step::Leave(site))),
        );
        moves.extend(
            fresh(self.sleepers, left.slept).filter(up).map(|site| Move::Step(Step::Pause(site))),
        );
        moves.extend(
            world
                .sites()
                .filter(|site| world.is_paused(*site))
                .map(|site| Move::Step(Step::Wake(site))),
        );
        for (index, &(at, about)) in self.rumours.iter().enumerate() {
            if left.told_down & 1 << index == 0 && up(&at) {
                moves.push(Move::Step(Step::Notice { at, about, what: OutsideHint::Unreachable }));
            }
        }
        if let Some(span) = self.leaps.get(usize::from(left.leaps))
            && (self.leaps_when == TimeLeaps::Anytime || is_at_rest)
        {
            moves.push(Move::Leap(Duration::from_millis(*span)));
        }
        moves
    }

    /// The state after a move.
    pub fn go(&self, state: &ScopeState, what: &Move) -> ScopeState {
        let mut left = state.left.clone();
        left.spend(self, what);
        // A panic of a core is a break, too.
        let went = catch_unwind(AssertUnwindSafe(|| {
            let mut world = state.world.clone();
            match what {
                Move::Step(step) => _ = world.apply(step),
                Move::Leap(span) if self.leaps_when == TimeLeaps::AtRest => {
                    self.wait(&mut world, *span)
                }
                Move::Leap(span) => world.pass(span.as_nanos() as u64),
            }
            self.settle(&mut world);
            world
        }));
        let world = went.unwrap_or_else(|panic| {
            let mut world = state.world.clone();
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            world.fail("no_panic", format!("{what:?}: {text}"));
            world
        });
        let print = StateFingerprint::of(
            &world,
            Some((&state.world, &state.print)),
            self.in_order(),
            &left,
        );
        ScopeState { world, left, print }
    }

    /// Lets timers go off in their order for a while, or until a packet is under way.
    fn wait(&self, world: &mut World, span: Duration) {
        let until = world.now + span.as_nanos() as u64;
        while world.under_way().all(|(_, parcel)| self.is_late(parcel))
            && world.broken().is_none()
            && world.ring_next(until)
        {
            self.settle(world);
        }
    }

    /// Delivers all packets that arrive at once, and the packets that follow from them.
    fn settle(&self, world: &mut World) {
        loop {
            world.tidy();
            let next = world
                .under_way()
                .find(|(_, parcel)| self.is_at_once(parcel))
                .map(|(number, _)| number);
            match next {
                Some(number) if world.broken().is_none() => _ = world.apply(&Step::Deliver(number)),
                _ => break,
            }
        }
    }

    fn is_late(&self, parcel: &PacketInTransit) -> bool {
        (self.late)(parcel.from, parcel.to, kind(&parcel.packet))
    }

    fn in_order(&self) -> bool {
        self.network == DeliveryOrder::InOrder
    }

    fn is_at_once(&self, parcel: &PacketInTransit) -> bool {
        (self.at_once)(parcel.from, parcel.to, kind(&parcel.packet))
    }

    /// The witnesses of killed processes: pairs of a member and a killed process.
    fn witnesses(&self, world: &World) -> impl Iterator<Item = (usize, usize)> {
        let dead = world.sites().filter(|site| {
            let peer = &world.sites[*site];
            peer.run == ProcessState::Down && peer.node.is_some()
        });
        dead.flat_map(|dead| world.sites().filter(|at| world.is_up(*at)).map(move |at| (at, dead)))
            .filter(|(at, dead)| world.sites[*at].host == world.sites[*dead].host)
    }
}

fn is_timer(step: &Step) -> bool {
    matches!(step, Step::Timer(_))
}

/// A move of a search: one event of the World.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Move {
    /// A process, a client or the network does a step.
    Step(Step),
    /// Time passes without any step.
    Leap(Duration),
}

/// The remaining budget within the bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct RemainingBudget {
    crashes: u8,
    faults: u8,
    leaps: u8,
    asked: u8,
    joined: u8,
    restarted: u8,
    forgot: u8,
    gone: u8,
    slept: u8,
    told_down: u8,
    told: BTreeSet<usize>,
}

impl RemainingBudget {
    fn spend(&mut self, scope: &Scope, what: &Move) {
        let bit = |sites: &[usize], site: usize, done: u8| {
            let index =
                (0..sites.len()).find(|index| sites[*index] == site && done & 1 << index == 0);
            index.map_or(0, |index| 1 << index)
        };
        match what {
            Move::Leap(_) => self.leaps += 1,
            Move::Step(Step::Crash(_)) => self.crashes -= 1,
            Move::Step(Step::Lose(_) | Step::Double(_)) => self.faults -= 1,
            Move::Step(Step::Ask { call, .. }) => self.asked |= 1 << call,
            Move::Step(Step::Start(site)) if scope.restarts.contains(site) => {
                self.restarted |= bit(scope.restarts, *site, self.restarted);
                self.told.remove(site);
            }
            Move::Step(Step::Start(site)) => self.joined |= bit(scope.joiners, *site, self.joined),
            Move::Step(Step::LoseDisk(site)) => {
                self.forgot |= bit(scope.forgetful, *site, self.forgot)
            }
            Move::Step(Step::Leave(site)) => self.gone |= bit(scope.leavers, *site, self.gone),
            Move::Step(Step::Pause(site)) => self.slept |= bit(scope.sleepers, *site, self.slept),
            Move::Step(Step::Notice { about, what: OutsideHint::Dead, .. }) => {
                _ = self.told.insert(*about)
            }
            Move::Step(Step::Notice { at, about, .. }) => {
                let index = scope.rumours.iter().position(|rumour| rumour == &(*at, *about));
                self.told_down |= index.map_or(0, |index| 1 << index);
            }
            Move::Step(_) => {}
        }
    }
}

/// A World with its remaining budget. Two states are equal if they have the same future.
#[derive(Clone)]
pub struct ScopeState {
    /// The World.
    pub world: World,
    left: RemainingBudget,
    print: StateFingerprint,
}

impl Hash for ScopeState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.whole.hash(hasher);
    }
}

impl PartialEq for ScopeState {
    fn eq(&self, other: &ScopeState) -> bool {
        self.print.whole == other.print.whole
    }
}

impl fmt::Debug for ScopeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.print.whole)
    }
}
