//! The World: several cores, their clocks and clients, and the network between them, in virtual time.
//!
//! One queue orders everything by (true time, order of scheduling), so a run is a function of its seed and of what
//! the driver does to it. After every step the [invariants](crate::invariants) look at what happened.

use crate::chance::{Digest, mix};
use crate::clock::Clock;
use crate::gossip::{Gossip, Word};
use crate::history::{Ask, History};
use crate::invariants::{Break, Fact, Judge};
use crate::kind::kind;
use crate::network::{MS, Network, Route, SECOND};
use crate::peer::{Common, Peer, Run};
use crate::rare::{Rare, State};
use crate::record::Entry;
use crate::rule::{Fate, Flight, Rule};
use crate::scribe::Scribe;
use crate::step::Named;
use crate::store::Store;
use crate::stream::{Damages, Stream};
use elderlock::protocol::{Command, Event, Hint, Input, Lineage, Outcome, Output, Packet, ProcessId, Timing, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Trace lines kept.
const TRACE_LINES: usize = 4_000;
/// Steps of one member at one instant before it is called a livelock.
const MAX_STEPS_AT_ONCE: u32 = 20_000;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// A packet arrives at a place.
    Packet(Arc<Parcel>),
    /// A process notices something.
    Hint { to: usize, process: ProcessId, hint: Hint },
    /// An expelled process starts again as a new one.
    Rebirth { to: usize, process: ProcessId },
    /// A client gives up what it asked for.
    GiveUp { ask: Ask },
    /// Something of the gossip machines arrives at a place.
    Gossip { from: usize, to: usize, word: Word },
    /// The frame that has begun then on a damaged connection has to have ended.
    FrameEnds { from: usize, to: usize, begun: u64 },
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// Its number in this run.
    pub(crate) number: u64,
    /// What tells it from others, once that was looked for.
    pub(crate) print: OnceLock<u64>,
    pub(crate) from: usize,
    pub(crate) sender: ProcessId,
    pub(crate) to: usize,
    pub(crate) wanted: Option<ProcessId>,
    pub(crate) packet: Packet,
    /// When it was sent.
    pub(crate) sent: u64,
    /// The connection that carries it.
    pub(crate) connection: u32,
    /// What damages it, if it is damaged.
    pub(crate) damage: Option<u64>,
}

/// Several cores, their clocks and clients, and the network between them.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) common: Common,
    pub(crate) now: u64,
    scheduled: u64,
    pub(crate) queue: BTreeMap<(u64, u64), Due>,
    pub(crate) peers: Vec<Peer>,
    places: BTreeMap<SocketAddr, usize>,
    pub(crate) network: Network,
    /// Copies of a World share it until a client does something.
    pub(crate) history: Arc<History>,
    pub(crate) store: Store,
    pub(crate) scribe: Scribe,
    rare: Option<Box<Rare>>,
    pub(crate) judge: Judge,
    pub(crate) rules: Vec<Rule>,
    pub(crate) held: Vec<(usize, Parcel)>,
    /// What waits at the end of clogged ways, in order.
    pub(crate) clogged: BTreeMap<(usize, usize), Vec<Due>>,
    /// Connections that carry damaged bytes.
    pub(crate) streams: BTreeMap<(usize, usize), Stream>,
    pub(crate) damages: Damages,
    /// Clients that give up so long after they are answered.
    pub(crate) fickle: BTreeMap<Ask, Duration>,
    /// A recovery has begun, for drivers that wait for one.
    pub(crate) stirred: bool,
    /// When a view was installed that is later than all before.
    pub(crate) viewed_at: u64,
    /// Those of whom everything is demanded after healing; `None`: everybody.
    pub(crate) core: Option<BTreeSet<usize>>,
    /// The gossip machines of all places, if they run.
    pub(crate) gossip: Option<Vec<Gossip>>,
    /// What steps refer to by name.
    pub(crate) named: Named,
    started: bool,
    manual: bool,
    /// Whether clocks keep the bound that the timing states, so that what needs it is checked.
    pub(crate) bounded: bool,
    strict: bool,
    /// Whether there is only one lineage at a time, so that what needs it is checked.
    pub(crate) one_lineage: bool,
    tracing: bool,
    trace: VecDeque<String>,
    /// Until then the next process to decide a view dies before it can tell anyone.
    pub(crate) doomed_until: u64,
    broken: Option<Break>,
    pub(crate) digest: Digest,
    events: u64,
    at_once: (u64, usize, u32),
    /// Steps of a member at the instant of its step before.
    repeated: u64,
    /// Whether broken connections and gossip are noticed.
    hints: bool,
    /// The highest view installed anywhere, by lineage.
    pub(crate) latest: BTreeMap<Lineage, View>,
    outputs: Vec<Output>,
}

/// Building.
impl World {
    /// An empty World. Everything in it that is left to chance follows from the seed.
    pub fn new(seed: u64) -> World {
        World {
            common: Common {
                seed,
                timing: Timing::fast(),
                council: 7,
                trust_refused: false,
                durable: false,
                #[cfg(elderlock_mutants)]
                mutant: None,
            },
            now: 0,
            scheduled: 0,
            queue: BTreeMap::new(),
            peers: Vec::new(),
            places: BTreeMap::new(),
            network: Network::new(seed),
            history: Arc::default(),
            store: Store::default(),
            scribe: Scribe::default(),
            rare: Some(Box::default()),
            judge: Judge::default(),
            rules: Vec::new(),
            held: Vec::new(),
            clogged: BTreeMap::new(),
            streams: BTreeMap::new(),
            damages: Damages::default(),
            fickle: BTreeMap::new(),
            stirred: false,
            viewed_at: 0,
            core: None,
            gossip: None,
            named: Named::default(),
            started: false,
            manual: false,
            bounded: true,
            strict: true,
            one_lineage: true,
            tracing: true,
            trace: VecDeque::new(),
            doomed_until: 0,
            broken: None,
            digest: Digest(seed),
            events: 0,
            at_once: (0, 0, 0),
            repeated: 0,
            hints: true,
            latest: BTreeMap::new(),
            outputs: Vec::new(),
        }
    }

    /// Members that are all seeds and found the cluster together, each on a host of its own.
    pub fn members(mut self, count: usize) -> World {
        self.peers.extend((0..count).map(|_| Peer::new(0)));
        for place in 0..self.peers.len() {
            self.peers[place] = Peer::new(place);
        }
        let seeds: BTreeSet<SocketAddr> = self.peers.iter().map(|peer| peer.addr).collect();
        for peer in &mut self.peers {
            peer.seeds = seeds.clone();
        }
        self.places = self.peers.iter().enumerate().map(|(place, peer)| (peer.addr, place)).collect();
        self
    }

    /// Places for members that know the seeds but are none. Nothing runs there until [`start`](Self::start).
    pub fn joiners(mut self, count: usize) -> World {
        let seeds: BTreeSet<SocketAddr> = self.peers.iter().map(|peer| peer.addr).collect();
        for place in self.peers.len()..self.peers.len() + count {
            let peer = Peer { seeds: seeds.clone(), ..Peer::new(place) };
            self.places.insert(peer.addr, place);
            self.peers.push(peer);
        }
        self
    }

    /// The times to found with; [`Timing::fast`] unless said otherwise.
    pub fn timing(mut self, timing: Timing) -> World {
        self.common.timing = timing;
        self
    }

    /// The council size to found with.
    pub fn council(mut self, size: u8) -> World {
        self.common.council = size;
        self
    }

    /// The operator trusts refused connections.
    pub fn trust_refused(mut self) -> World {
        self.common.trust_refused = true;
        self
    }

    /// Every place has a data directory, which outlives its processes.
    pub fn durable(mut self) -> World {
        self.common.durable = true;
        self
    }

    /// The member at `place` founds alone; the others have only it as their seed.
    pub fn found_alone(mut self, place: usize) -> World {
        let addr = self.peers[place].addr;
        self.peers[place].found_alone = true;
        for peer in &mut self.peers {
            peer.seeds = BTreeSet::from([addr]);
        }
        self
    }

    /// Which host each place is on.
    pub fn hosts(mut self, hosts: &[u32]) -> World {
        for (peer, host) in self.peers.iter_mut().zip(hosts) {
            peer.host = *host;
        }
        self
    }

    /// How much the clock at `place` runs fast, in parts per million.
    pub fn clock(mut self, place: usize, ppm: i32) -> World {
        self.peers[place].clock.ppm = ppm;
        self
    }

    /// What the clock at `place` shows when the World begins.
    pub fn clock_offset(mut self, place: usize, nanos: u64) -> World {
        let Clock { ppm, .. } = self.peers[place].clock;
        self.peers[place].clock = Clock { offset: nanos, ppm, since: 0 };
        self
    }

    /// Clocks do not keep their bound: what needs it is not checked.
    pub fn unbounded_clocks(mut self) -> World {
        self.bounded = false;
        self
    }

    /// No process is started until [`start`](Self::start).
    pub fn asleep(mut self) -> World {
        self.manual = true;
        self
    }

    /// Nobody notices broken connections: only the protocol's own clocks tell.
    pub fn without_hints(mut self) -> World {
        self.hints = false;
        self
    }

    /// For drivers: a broken invariant stops the World rather than the test.
    pub fn lenient(mut self) -> World {
        self.strict = false;
        self
    }

    /// As [`lenient`](Self::lenient), for a World that has been run to where a search begins; it writes nothing down
    /// from here on.
    pub(crate) fn lenient_from_here(&mut self) {
        self.strict = false;
        self.put_the_pen_down();
    }

    /// Two lineages may live at once, and each other's grants are then not compared: cut off seeds found again.
    pub fn two_lineages_may_meet(mut self) -> World {
        self.one_lineage = false;
        self.bounded = false;
        self
    }

    /// No trace is kept.
    pub fn untraced(mut self) -> World {
        self.tracing = false;
        self
    }

    /// Every process has this planted defect.
    #[cfg(elderlock_mutants)]
    pub fn mutant(mut self, mutant: elderlock::protocol::mutant::Mutant) -> World {
        self.common.mutant = Some(mutant);
        self
    }
}

/// Running.
impl World {
    /// Lets the World go on for a while.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span.as_nanos() as u64;
        while self.tick(until) {}
    }

    /// Lets the World go on until it is this late, in true nanoseconds, with all that is due then. If it is that late
    /// already nothing happens: what a step makes due at its own instant waits for the other steps of that instant.
    pub fn run_to(&mut self, at: u64) {
        if at > self.now {
            while self.tick(at) {}
        }
    }

    /// Lets the World go on for a while, or until a recovery begins.
    pub(crate) fn run_or_stir(&mut self, span: Duration) {
        self.stirred = false;
        self.run_until(|world| world.stirred, span);
    }

    /// Lets the World go on until something is so. False if it is not so in time.
    pub fn run_until(&mut self, so: impl Fn(&World) -> bool, limit: Duration) -> bool {
        self.begin();
        let until = self.now + limit.as_nanos() as u64;
        loop {
            if so(self) {
                return true;
            }
            if !self.tick(until) {
                return so(self);
            }
        }
    }

    /// As [`run_until`](Self::run_until) with half a minute; panics with the trace if it does not come about.
    #[track_caller]
    pub fn expect(&mut self, what: &str, so: impl Fn(&World) -> bool) {
        self.expect_within(what, Duration::from_secs(30), so);
    }

    /// As [`expect`](Self::expect) with another limit.
    #[track_caller]
    pub fn expect_within(&mut self, what: &str, limit: Duration, so: impl Fn(&World) -> bool) {
        if !self.run_until(so, limit) {
            panic!("{}\nnot within {limit:?}: {what}", self.story(120));
        }
    }

    /// Lets the World go on until all running processes are in one view of exactly them, and their leases run.
    #[track_caller]
    pub fn settle(&mut self) {
        self.expect_within("one view with everybody who runs", Duration::from_secs(60), World::is_settled);
    }

    /// Of whom everything is demanded after healing: everybody, or those of the part that was healed.
    pub fn demanded(&self) -> impl Iterator<Item = usize> + '_ {
        self.places().filter(|place| self.core.as_ref().is_none_or(|core| core.contains(place)))
    }

    /// Whether all running processes (of the healed part) are in one view of exactly them, and their leases run.
    pub fn is_settled(&self) -> bool {
        let running: Vec<&Peer> =
            self.demanded().map(|place| &self.peers[place]).filter(|peer| peer.run == Run::Up).collect();
        let Some(view) = running.first().and_then(|peer| peer.node.as_ref()).and_then(|node| node.view()) else {
            return false;
        };
        let processes: BTreeSet<ProcessId> = running.iter().filter_map(|peer| peer.process()).collect();
        view.members.iter().all(|member| !member.ghost)
            && view.members.iter().map(|member| member.info.process).collect::<BTreeSet<_>>() == processes
            && running.iter().all(|peer| {
                peer.node
                    .as_ref()
                    .is_some_and(|node| node.is_ready(peer.clock.local(self.now)) && node.view() == Some(view))
            })
    }

    /// Does the next thing that is due up to `until`. False, and it is `until`, if there is none.
    pub(crate) fn tick(&mut self, until: u64) -> bool {
        self.begin();
        if self.broken.is_some() {
            return false;
        }
        let timer = self
            .peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| peer.run == Run::Up)
            .filter_map(|(place, peer)| Some((peer.next()?, place)))
            .min();
        let first = self.queue.first_key_value().map(|(key, _)| *key);
        match (first, timer) {
            (Some((at, order)), timer) if at <= until && timer.is_none_or(|(due, _)| at <= due) => {
                self.now = self.now.max(at);
                if let Some(due) = self.queue.remove(&(at, order)) {
                    self.happen(due);
                }
            }
            (_, Some((due, place))) if due <= until => {
                self.now = self.now.max(due);
                if self.peers[place].due == Some(due) {
                    self.feed(place, Input::Timer);
                } else {
                    self.gossip_timer(place);
                }
            }
            _ => {
                self.now = self.now.max(until);
                return false;
            }
        }
        true
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.started, true) || self.manual {
            return;
        }
        for place in 0..self.peers.len() {
            if self.peers[place].seeds.contains(&self.peers[place].addr) {
                self.start(place);
            }
        }
    }

    /// Puts a new process at `place` and sets it going.
    pub fn start(&mut self, place: usize) {
        assert!(!self.peers[place].is_alive(), "a process runs at m{place}");
        let common = self.common;
        self.peers[place].start(place, &common, self.now);
        self.note(place, |peer| format!("starts as {:?}", peer.process()));
        self.record_start(place);
        // Connections are between processes: a new one has none.
        self.streams.retain(|(from, to), _| *from != place && *to != place);
        self.feed(place, Input::Timer);
        self.gossip_begins(place);
    }

    pub(crate) fn schedule(&mut self, after: u64, due: Due) {
        self.scheduled += 1;
        self.queue.insert((self.now + after, self.scheduled), due);
    }

    /// Where the packet with this number stands in the queue.
    fn nth(&self, number: usize) -> Option<(u64, u64)> {
        let packets = self.queue.iter().filter(|(_, due)| matches!(due, Due::Packet(_)));
        packets.map(|(key, _)| *key).nth(number)
    }

    /// The packet with this number arrives now.
    pub(crate) fn deliver_nth(&mut self, number: usize) -> bool {
        let due = self.nth(number).and_then(|key| self.queue.remove(&key));
        due.map(|due| self.happen(due)).is_some()
    }

    /// The packet with this number is lost.
    pub(crate) fn lose_nth(&mut self, number: usize) -> bool {
        self.nth(number).and_then(|key| self.queue.remove(&key)).is_some()
    }

    /// The packet with this number is under way twice.
    pub(crate) fn double_nth(&mut self, number: usize) -> bool {
        let due = self.nth(number).map(|key| (key.0, self.queue[&key].clone()));
        due.map(|(at, due)| self.schedule(at.saturating_sub(self.now), due)).is_some()
    }

    /// The timer of the member at `place` goes off.
    pub(crate) fn ring(&mut self, place: usize) -> bool {
        let Some(due) = self.peers[place].due.filter(|_| self.peers[place].run == Run::Up) else { return false };
        self.now = self.now.max(due);
        self.feed(place, Input::Timer);
        true
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Packet(parcel) => self.deliver(Arc::unwrap_or_clone(parcel)),
            Due::Hint { to, process, hint } => {
                if self.peers[to].is(process) {
                    self.feed(to, Input::Hint(hint));
                }
            }
            Due::Rebirth { to, process } => {
                if self.peers[to].is(process) {
                    let next = self.peers[to]
                        .node
                        .as_ref()
                        .map(|node| node.next_life(process, self.peers[to].founding_number(self.now)));
                    self.end_process(to, "reborn");
                    self.peers[to].next_life = next;
                    self.start(to);
                }
            }
            Due::GiveUp { ask } => self.give_up(ask),
            Due::FrameEnds { from, to, begun } => self.end_unfinished(from, to, begun),
            Due::Gossip { from, to, word } => {
                if self.network.is_clogged(from, to) {
                    self.clogged.entry((from, to)).or_default().push(Due::Gossip { from, to, word });
                } else {
                    if !matches!(word, Word::Datagram(_)) {
                        self.network.arrived(from, to);
                    }
                    self.gossip_hears(to, word);
                }
            }
        }
    }

    /// A packet comes to the end of its way.
    fn deliver(&mut self, parcel: Parcel) {
        let (from, to) = (parcel.from, parcel.to);
        if !self.network.is_open(from, to, parcel.connection) {
            return self.note(from, |_| format!("    lost with its connection: {} to m{to}", kind(&parcel.packet)));
        }
        if self.network.is_clogged(from, to) {
            self.clogged.entry((from, to)).or_default().push(Due::Packet(Arc::new(parcel)));
            return;
        }
        self.network.arrived(from, to);
        if parcel.damage.is_some() || self.streams.contains_key(&(from, to)) {
            self.read_damaged(parcel);
        } else {
            self.hand_over(parcel);
        }
    }

    /// A packet comes out of its connection.
    pub(crate) fn hand_over(&mut self, parcel: Parcel) {
        let Parcel { number, from, sender, to, wanted, packet, .. } = parcel;
        let peer = &self.peers[to];
        let here = peer.is_alive() && wanted.is_none_or(|wanted| peer.process() == Some(wanted));
        if here {
            self.record_arrival(to, number);
            let addr = self.peers[from].addr;
            self.feed(to, Input::Received { from: sender, addr, packet });
        } else if let Some(wanted) = wanted
            && peer.host_up
            && self.hints
            && !self.network.is_cut(to, from)
        {
            self.schedule(MS / 5, Due::Hint { to: from, process: sender, hint: Hint::Refused(wanted) });
        }
    }

    /// What waited at the end of a clogged way arrives now, in order.
    pub(crate) fn flush(&mut self, from: usize, to: usize) {
        for due in self.clogged.remove(&(from, to)).unwrap_or_default() {
            if let Due::Packet(parcel) = &due {
                self.network.longest = self.network.longest.max(self.now - parcel.sent);
            }
            self.schedule(0, due);
        }
    }

    /// Gives an input to the process at `place`, or keeps it for its waking.
    pub(crate) fn feed(&mut self, place: usize, input: Input) {
        if self.broken.is_some() {
            return;
        }
        let peer = &mut self.peers[place];
        match peer.run {
            Run::Down => return,
            Run::Paused => {
                if input != Input::Timer {
                    peer.inbox.push_back(input);
                }
                return;
            }
            Run::Up => {}
        }
        if input == Input::Command(Command::Leave) {
            peer.leaving = true;
            self.record_here(place, Entry::Leave);
        }
        if self.tracing {
            self.trace_input(place, &input);
        }
        self.events += 1;
        if !self.scribe.is_silent() {
            (self.now, place, &input).hash(&mut self.digest);
        }
        if let Some(process) = self.peers[place].process() {
            self.look_for_rare(|rare, world| rare.begins(world, place, process, &input));
        }
        let peer = &mut self.peers[place];
        let local = peer.clock.local(self.now);
        let Some(node) = peer.node.as_mut().map(Arc::make_mut) else { return };
        let process = node.process();
        let mut outputs = std::mem::take(&mut self.outputs);
        node.step(local, input, &mut outputs);
        let dies = self.dies_deciding(place, &outputs);
        for output in outputs.drain(..) {
            if !(dies && matches!(output, Output::Send { .. })) {
                self.carry_out(place, process, output);
            }
        }
        self.record_recoveries(place);
        if dies {
            self.doomed_until = 0;
            self.crash(place);
        }
        self.outputs = outputs;
        if self.peers[place].is(process) {
            self.peers[place].reschedule();
        }
        self.at_once = match self.at_once {
            (at, who, steps) if at == self.now && who == place => (at, who, steps + 1),
            _ => (self.now, place, 0),
        };
        self.repeated += u64::from(self.at_once.2 > 0);
        if self.at_once.2 > MAX_STEPS_AT_ONCE {
            self.fail("time_goes_on", format!("m{place} has something due at one instant again and again"));
        }
        self.tell(&Fact::Stepped { place });
    }

    /// Whether the process at `place` has just decided a view, first of all, and is to die before it can tell anyone.
    /// Also one that decides a view without itself: it is about to go, and those who stay may not know yet.
    fn dies_deciding(&self, place: usize, outputs: &[Output]) -> bool {
        let is_first = |output: &Output| match output {
            Output::Event(Event::ViewInstalled(view)) => {
                self.latest.get(&view.lineage).is_some_and(|latest| latest.number < view.number)
            }
            _ => false,
        };
        self.now < self.doomed_until && outputs.iter().any(is_first) && self.can_spare(&[place], false)
    }

    fn carry_out(&mut self, place: usize, process: ProcessId, output: Output) {
        match output {
            Output::Send { to, process: wanted, packet } => self.send(place, process, to, wanted, packet),
            Output::Answer { request, outcome } => {
                self.note(place, |_| format!("answers {request:?}: {outcome:?}"));
                let Some(ask) = self.history.find(process, request) else {
                    return self.fail("one_outcome_per_request", format!("m{place} answers unknown {request:?}"));
                };
                self.record_answer(ask, &outcome);
                match outcome {
                    Outcome::Extended { until } => Arc::make_mut(&mut self.history).extend(ask, until),
                    Outcome::NotHeld => {}
                    outcome => {
                        self.tell(&Fact::Answers { ask, outcome: &outcome });
                        Arc::make_mut(&mut self.history).answer(ask, outcome, self.now);
                        self.tell(&Fact::Answered { ask });
                        if let Some(after) = self.fickle.remove(&ask) {
                            self.give_up_after(ask, after);
                        }
                    }
                }
            }
            Output::Lost { request, reason } => {
                self.note(place, |_| format!("lost {request:?}: {reason:?}"));
                let Some(ask) = self.history.find(process, request) else {
                    return self.fail("one_outcome_per_request", format!("m{place} loses unknown {request:?}"));
                };
                self.record_lost(ask, reason);
                self.tell(&Fact::Loses { ask, reason });
                Arc::make_mut(&mut self.history).lose(ask, reason);
            }
            Output::Event(event) => self.on_event(place, process, event),
            Output::Store(stored) => self.peers[place].disk = Some(*stored),
        }
    }

    fn send(&mut self, from: usize, sender: ProcessId, to: SocketAddr, wanted: Option<ProcessId>, packet: Packet) {
        self.tell(&Fact::Sent { place: from, process: sender, to: wanted, packet: &packet });
        let Some(&to) = self.places.get(&to) else { return };
        let sent = self.now;
        let mut parcel = Parcel {
            number: 0,
            print: OnceLock::new(),
            from,
            sender,
            to,
            wanted,
            packet,
            sent,
            connection: 0,
            damage: None,
        };
        let flight = Flight { from, to, packet: &parcel.packet };
        let matching = self.rules.iter().position(|rule| rule.fate != Fate::Over && (rule.test)(&flight));
        if let Some(index) = matching {
            let rule = &mut self.rules[index];
            rule.matched += 1;
            let fate = rule.fate;
            match fate {
                Fate::Hold => {
                    self.note(from, |_| format!("    held back: {} to m{to}", kind(&parcel.packet)));
                    parcel.number = self.record_send(from, to, kind(&parcel.packet), None);
                    self.held.push((index, parcel));
                    return;
                }
                Fate::Drop(left) => {
                    rule.fate = if left > 1 { Fate::Drop(left - 1) } else { Fate::Over };
                    self.note(from, |_| format!("    dropped: {} to m{to}", kind(&parcel.packet)));
                    self.record_send(from, to, kind(&parcel.packet), Some("dropped"));
                    return;
                }
                Fate::Over => {}
            }
        }
        let Route { arrivals, connection, damage } = self.network.route(self.now, from, to);
        (parcel.connection, parcel.damage) = (connection, damage);
        if arrivals[0].is_none() {
            self.look_for_rare(|rare, _| rare.loses(&parcel.packet));
        }
        let why = if self.network.is_cut(from, to) { "cut" } else { "lost" };
        parcel.number = self.record_send(from, to, kind(&parcel.packet), arrivals[0].is_none().then_some(why));
        if arrivals[0].is_none() {
            self.note(from, |_| format!("    lost: {} to m{to}", kind(&parcel.packet)));
            if let Some(wanted) = wanted.filter(|_| self.hints && self.network.is_refused(self.now, from, to)) {
                self.schedule(MS / 5, Due::Hint { to: from, process: sender, hint: Hint::Refused(wanted) });
            }
        }
        let parcel = Arc::new(parcel);
        for arrival in arrivals.into_iter().flatten() {
            self.schedule(arrival - self.now, Due::Packet(Arc::clone(&parcel)));
        }
    }

    fn on_event(&mut self, place: usize, process: ProcessId, event: Event) {
        self.note(place, |_| match &event {
            Event::ViewInstalled(view) => format!("installs {}", show(view)),
            other => format!("event {other:?}"),
        });
        if let Event::ViewInstalled(view) = &event
            && self.latest.get(&view.lineage).is_none_or(|latest| latest.number < view.number)
        {
            self.latest.insert(view.lineage, view.clone());
            (self.viewed_at, self.stirred) = (self.now, true);
        }
        self.record_event(place, &event);
        self.tell(&Fact::Event { place, process, event: &event });
        if event == Event::Left && self.peers[place].leaving {
            self.count_premise("who_leaves_has_left");
        }
        if event == Event::Expelled && self.peers[place].leaving {
            self.fail("who_leaves_has_left", format!("m{place} was told to leave and calls itself expelled"));
        }
        match event {
            Event::Expelled | Event::Abandoned | Event::Forced => {
                self.schedule(MS, Due::Rebirth { to: place, process })
            }
            Event::Left => {
                self.end_process(place, "left");
                self.peers[place].run = Run::Down;
            }
            _ => {}
        }
    }

    /// The process at `place` is no more; `how`: as in [`Entry::End`].
    pub(crate) fn end_process(&mut self, place: usize, how: &str) {
        self.gossip_ends(place, how);
        if let Some(process) = self.peers[place].process() {
            self.tell(&Fact::Ends { place, process });
            let unknown = Arc::make_mut(&mut self.history).end_process(process);
            self.record_end(place, how, &unknown);
        }
        let peer = &mut self.peers[place];
        peer.run = Run::Down;
        peer.due = None;
        peer.inbox.clear();
        peer.next_life = None;
    }

    /// Wakes a stopped process: what came meanwhile and its timer are handled in an order left to chance.
    pub(crate) fn wake(&mut self, place: usize) {
        let peer = &mut self.peers[place];
        peer.run = Run::Up;
        let waiting = std::mem::take(&mut peer.inbox);
        self.record_here(place, Entry::Wake);
        self.look_for_rare(|rare, world| rare.wakes(world, place));
        let timer_first = mix(&[self.common.seed, 0x3a, place as u64, self.peers[place].pauses]) & 1 == 0;
        if timer_first {
            self.feed(place, Input::Timer);
        }
        for input in waiting {
            self.feed(place, input);
        }
        self.gossip_wakes(place);
    }

    /// Tells `to` of something after a while, if hints are given at all.
    pub(crate) fn hint(&mut self, after: u64, to: usize, hint: Hint) {
        if self.hints
            && let Some(process) = self.peers[to].process()
        {
            self.schedule(after, Due::Hint { to, process, hint });
        }
    }

    /// Lets the invariants look at a fact.
    pub(crate) fn tell(&mut self, fact: &Fact<'_>) {
        if self.broken.is_some() {
            return;
        }
        if Rare::minds(fact) {
            self.look_for_rare(|rare, world| rare.hear(world, fact));
        }
        let mut judge = std::mem::take(&mut self.judge);
        let verdict = judge.hear(self, fact);
        self.judge = judge;
        if let Err(found) = verdict {
            self.fail_about(found.invariant, found.lock, found.what);
        }
    }

    fn look_for_rare(&mut self, look: impl FnOnce(&mut Rare, &World)) {
        if let Some(mut rare) = self.rare.take() {
            look(&mut rare, self);
            self.rare = Some(rare);
        }
    }

    /// A rare state is reached.
    pub(crate) fn reach(&mut self, state: State) {
        self.look_for_rare(|rare, _| rare.reach(state));
    }

    /// An invariant is broken that is about no single lock.
    pub(crate) fn fail(&mut self, invariant: &'static str, what: String) {
        self.fail_about(invariant, None, what);
    }

    /// An invariant is broken.
    pub(crate) fn fail_about(&mut self, invariant: &'static str, lock: Option<String>, what: String) {
        if self.broken.is_some() {
            return;
        }
        if self.strict {
            panic!("{}\n{invariant} is broken at {}: {what}", self.story(80), seconds(self.now));
        }
        self.note_line(format!("{invariant} is broken: {what}"));
        let (name, words) = (invariant.to_string(), what.clone());
        self.record_line(None, Entry::Break { invariant: name, lock: lock.clone(), words });
        self.broken = Some(Break { invariant, lock, what, at: self.now });
    }

    /// A panic is a break like any other.
    pub(crate) fn fail_with(&mut self, panic: &(dyn std::any::Any + Send)) {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        self.fail("no_panic", text.unwrap_or_default());
    }

    /// An invariant whose premise held is checked outside the steps.
    pub(crate) fn count_premise(&mut self, invariant: &'static str) {
        self.judge.count(invariant);
    }
}

/// What happened.
impl World {
    /// The first broken invariant.
    pub fn broken(&self) -> Option<&Break> {
        self.broken.as_ref()
    }

    /// A number that is equal for equal runs.
    pub fn digest(&self) -> u64 {
        self.digest.0
    }

    /// Inputs handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How often the premise of each invariant held.
    pub fn premises(&self) -> BTreeMap<&'static str, u64> {
        let mut premises = self.judge.premises();
        premises.insert("time_goes_on", self.repeated);
        premises.insert("no_panic", self.events);
        premises.entry("who_leaves_has_left").or_default();
        premises
    }

    /// How often each rare state was reached.
    pub fn rare(&self) -> BTreeMap<State, u64> {
        self.rare.as_ref().map(|rare| rare.counts().clone()).unwrap_or_default()
    }

    /// The requests and answers of all clients.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// True time since the World began.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Whether the trace has a line of the place with these words.
    pub fn said_at(&self, place: usize, words: &str) -> bool {
        let who = format!(" m{place} ");
        self.trace.iter().any(|line| line.contains(&who) && line.contains(words))
    }

    /// The last lines of the trace.
    pub fn story(&self, lines: usize) -> String {
        let skip = self.trace.len().saturating_sub(lines);
        self.trace.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }

    /// The trace is kept, and begins here.
    pub(crate) fn trace_from_here(&mut self) {
        self.tracing = true;
        self.trace.clear();
    }

    /// The trace since it was last taken.
    pub(crate) fn take_trace(&mut self) -> VecDeque<String> {
        std::mem::take(&mut self.trace)
    }

    pub(crate) fn note(&mut self, place: usize, text: impl FnOnce(&Peer) -> String) {
        if self.tracing {
            let line = format!("{} m{place} {}", seconds(self.now), text(&self.peers[place]));
            self.note_line(line);
        }
    }

    fn note_line(&mut self, line: String) {
        if self.tracing {
            if self.trace.len() == TRACE_LINES {
                self.trace.pop_front();
            }
            self.trace.push_back(line);
        }
    }

    fn trace_input(&mut self, place: usize, input: &Input) {
        let text = match input {
            Input::Received { from, packet, .. } => {
                let from = self.place_of(*from).map_or_else(|| format!("({from})"), |place| format!("m{place}"));
                format!("<- {from} {}", show_packet(packet))
            }
            Input::Command(command) => format!("** {command:?}"),
            Input::Hint(hint) => format!("?? {hint:?}"),
            Input::Timer => return,
        };
        self.note(place, |_| text);
    }

    /// The place with this address.
    pub(crate) fn place_at(&self, addr: SocketAddr) -> Option<usize> {
        self.places.get(&addr).copied()
    }

    /// Where the process runs or ran last.
    pub fn place_of(&self, process: ProcessId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.process() == Some(process))
    }

    /// Everything under way arrives within this time, held back packets apart.
    pub(crate) fn longest_way(&self) -> u64 {
        self.network.longest.max(SECOND / 100)
    }
}

/// True time for people.
pub(crate) fn seconds(now: u64) -> String {
    format!("{:>4}.{:06}", now / SECOND, now % SECOND / 1_000)
}

/// A view for people.
fn show(view: &View) -> String {
    let members: Vec<String> = view
        .members
        .iter()
        .map(|member| format!("{}{}", member.info.process, if member.ghost { "(ghost)" } else { "" }))
        .collect();
    format!("v{} of {}: {}", view.number, view.lineage, members.join(" "))
}

fn show_packet(packet: &Packet) -> String {
    match packet {
        Packet::Relay { from, to, packet, .. } => format!("Relay {} -> {to}: {}", from.process, show_packet(packet)),
        Packet::Notice(elderlock::protocol::Notice::ViewIs(view)) => format!("ViewIs {}", show(view)),
        Packet::Notice(notice) => format!("{notice:?}"),
        Packet::Linked { view, seq, ack, message } => format!("[v{view} #{seq} ack {ack}] {message:?}"),
        Packet::Heir { voter, me, notice, .. } => format!("{} for {voter}: {notice:?}", me.process),
        Packet::Ack { view, ack, again } => format!("[v{view} ack {ack}{}]", if *again { " again" } else { "" }),
    }
}

/// A handle for one request, for those who only hold the World.
impl World {
    /// One request of one client.
    pub fn call(&self, ask: Ask) -> &crate::history::Call {
        self.history.call(ask)
    }
}
