//! `TransportState`: the state that all tasks of one member's network share.
//!
//! Two locks, taken in this order: the current incarnation (this process's identity, and its
//! peers), then the queue of one peer. The engine may send while it holds its own lock, so no task
//! calls the engine while it holds one of these.

use super::admission::{AdmissionLimits, Admissions};
use super::connection_reader::ConnectionReader;
use super::connection_writer::ConnectionWriter;
use super::counters::add;
use super::death_watch::DeathWatch;
use super::incarnation::Incarnation;
use super::peer::Peer;
use super::poll_on_wake::on_wake;
use super::rate_limit::RateLimit;
use super::reception::{KnownMember, Reception};
use super::security::{Relays, Security};
use super::stranger_budget::StrangerBudget;
use crate::protocol::{MemberInfo, Packet, ProcessId, View};
use crate::runtime::fork_guard::ForkGuard;
use crate::runtime::inbox::Inbox;
use crate::wire::{Frame, Handshake, VERSIONS};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most addresses that may be sent to at one time: many times the largest cluster.
const MAX_PEERS: usize = 4096;
/// The number of them for all processes. The others are reserved for members of the view and seeds.
pub(super) const FREE_PEERS: usize = MAX_PEERS / 4 * 3;
/// The number of strangers' peers that make room at a time.
const FORGOTTEN: usize = 64;
/// The most connections that the flushing thread writes to. Further ones are left to their tasks.
const AT_ONCE: usize = 8;
/// Refusals, and answers to datagrams of strangers, in a row.
pub(super) const MOST_ANSWERS: u32 = 64;
/// Refusals, and answers to datagrams of strangers, in the long run.
pub(super) const ANSWERS_A_SECOND: u32 = 32;
/// The most orders that a member carries out at a time: operators are few.
const MAX_ORDERS: usize = 8;
/// Status questions that are answered in a row. Each is a short turn of the engine.
const MOST_QUESTIONS: u32 = 256;
/// Status questions that are answered in the long run.
const QUESTIONS_A_SECOND: u32 = 128;
/// Status questions that are passed on to other members at a time. This is far below the handshakes
/// that one address may begin at a member: this member's own connections need those.
const MAX_PASSED_ON: usize = 4;
/// The most addresses whose last dial error is remembered.
const MAX_ERRORS: usize = 1024;

/// Starts the task of a new peer. The task dials, and a dial needs the state that starts it: so the
/// function is passed as a value.
pub(super) type DrivePeer = fn(
    Arc<TransportState>,
    Arc<Incarnation>,
    Arc<Peer>,
) -> Pin<Box<dyn Future<Output = ()> + Send>>;

struct IncarnationState {
    incarnation: Arc<Incarnation>,
    peers: BTreeMap<SocketAddr, Arc<Peer>>,
    /// The number of connections of each process.
    open: BTreeMap<ProcessId, usize>,
    /// Peers with frames that were queued and not flushed: mostly there is one.
    fresh: (Option<Arc<Peer>>, Vec<Arc<Peer>>),
}

pub(super) struct TransportState {
    pub(super) cluster: String,
    pub(super) bound: SocketAddr,
    pub(super) advertised: SocketAddr,
    /// The part that readers share.
    pub(super) reception: Arc<Reception>,
    /// Cancelled to flush and end.
    pub(super) closing: CancellationToken,
    /// Cancelled to end at once.
    pub(super) ended: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) handle: Handle,
    /// All addresses of all seeds.
    pub(super) seeds: watch::Sender<BTreeSet<SocketAddr>>,
    /// Names of seeds that do not resolve, with the reason.
    pub(super) unresolved: Mutex<Vec<(String, String)>>,
    /// Whether the member has no cluster yet.
    pub(super) in_discovery: watch::Sender<bool>,
    /// The identity of this process, for tasks that outlive an incarnation.
    pub(super) me: watch::Sender<Option<MemberInfo>>,
    /// The cluster's keys, if it has any.
    pub(super) security: Option<Security>,
    pub(super) admissions: Arc<Admissions>,
    /// Room for the orders that are carried out at a time.
    pub(super) orders: Semaphore,
    /// Room for the locks that programs hold, or wait for, at a time.
    pub(super) sessions: Semaphore,
    drive: DrivePeer,
    /// The limit of answers to processes that prove no key.
    answers: RateLimit,
    /// The limit of answers to processes that prove a key.
    key_answers: RateLimit,
    /// The limit of answers to questions for the process id.
    id_answers: RateLimit,
    /// The limit of answers to datagrams for another process. A replayed recording has thousands of
    /// them, and must leave the answers above to others.
    stray_answers: RateLimit,
    questions: RateLimit,
    /// Room for the questions that are passed on at a time.
    pub(super) questions_passed_on: Semaphore,
    /// Room for dials of addresses that neither the view nor the seeds name.
    pub(super) dials: Semaphore,
    /// Room for dials of learners: a process without a key may join under any address, and never
    /// answer there.
    pub(super) learner_dials: Semaphore,
    current: Mutex<Option<IncarnationState>>,
    /// The version of the view, with a marker bit above it; zero without a view.
    spoken: AtomicU32,
    errors: Mutex<BTreeMap<SocketAddr, String>>,
    /// The process that owns the connections: a forked copy does not touch them.
    pub(super) home: ForkGuard,
}

/// The parts that make a [`TransportState`].
pub(super) struct TransportParts {
    pub(super) cluster: String,
    pub(super) bound: SocketAddr,
    pub(super) advertised: SocketAddr,
    pub(super) reception: Reception,
    pub(super) drive: DrivePeer,
    pub(super) security: Option<Security>,
    pub(super) seeds: BTreeSet<SocketAddr>,
    pub(super) unresolved: Vec<(String, String)>,
}

impl TransportState {
    pub(super) fn new(parts: TransportParts) -> Self {
        let handshake = parts.reception.timeouts.handshake;
        let limits = AdmissionLimits::here();
        TransportState {
            cluster: parts.cluster,
            bound: parts.bound,
            advertised: parts.advertised,
            reception: Arc::new(parts.reception),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            handle: Handle::current(),
            seeds: watch::Sender::new(parts.seeds),
            unresolved: Mutex::new(parts.unresolved),
            in_discovery: watch::Sender::new(true),
            me: watch::Sender::new(None),
            security: parts.security,
            drive: parts.drive,
            admissions: Admissions::new(limits, handshake),
            orders: Semaphore::new(MAX_ORDERS),
            sessions: Semaphore::new(limits.sessions()),
            answers: RateLimit::new(MOST_ANSWERS, ANSWERS_A_SECOND),
            key_answers: RateLimit::new(MOST_ANSWERS, ANSWERS_A_SECOND),
            id_answers: RateLimit::new(MOST_ANSWERS, ANSWERS_A_SECOND),
            stray_answers: RateLimit::new(MOST_ANSWERS, ANSWERS_A_SECOND),
            questions: RateLimit::new(MOST_QUESTIONS, QUESTIONS_A_SECOND),
            questions_passed_on: Semaphore::new(MAX_PASSED_ON),
            dials: Semaphore::new(limits.unfinished()),
            learner_dials: Semaphore::new(limits.unfinished()),
            current: Mutex::new(None),
            spoken: AtomicU32::new(0),
            errors: Mutex::default(),
            home: ForkGuard::here(),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<IncarnationState>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seeds for the engine. While the name of a seed does not resolve, this member does not
    /// count itself as a seed. Otherwise it would found the cluster without the missing seed, or
    /// even alone.
    pub(super) fn known_seeds(&self) -> BTreeSet<SocketAddr> {
        let mut seeds = self.seeds.borrow().clone();
        if !self.unresolved.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            seeds.remove(&self.advertised);
        }
        seeds
    }

    /// The present incarnation.
    pub(super) fn incarnation(&self) -> Option<Arc<Incarnation>> {
        self.current().as_ref().map(|current| current.incarnation.clone())
    }

    /// Begins an incarnation, and ends the one before.
    pub(super) fn begin(&self, inbox: Arc<dyn Inbox>, me: MemberInfo) {
        if self.closing.is_cancelled() {
            return;
        }
        let token = self.ended.child_token();
        let watch = DeathWatch::new(me.host);
        let security = self.security.as_ref();
        let identity = security.and_then(|security| security.take_identity(me.process));
        let relays = identity.clone().map(Relays::new);
        let incarnation =
            Arc::new(Incarnation { me: me.clone(), inbox, token, watch, identity, relays });
        self.set_members(None);
        self.spoken.store(0, Ordering::Relaxed);
        let current = IncarnationState {
            incarnation,
            peers: BTreeMap::new(),
            open: BTreeMap::new(),
            fresh: Default::default(),
        };
        let before = self.current().replace(current);
        if let Some(before) = before {
            before.incarnation.token.cancel();
        }
        self.me.send_replace(Some(me));
    }

    /// Ends the present incarnation and drops its inbox.
    pub(super) fn end(&self) {
        self.ended.cancel();
        // Dropping the incarnation may drop the inbox, which must not find the lock taken.
        let before = self.current().take();
        drop(before);
    }

    /// Notes the installed view: processes outside it are strangers.
    pub(super) fn set_view(&self, view: &View) {
        if let Some(incarnation) = self.incarnation()
            && let Some(relays) = &incarnation.relays
        {
            relays.set_view(view);
        }
        self.spoken.store(1 << 16 | u32::from(view.version), Ordering::Relaxed);
        let members = view.members.iter().map(|member| {
            let known = KnownMember { addr: member.info.addr, is_learner: member.learner };
            (member.info.process, known)
        });
        self.set_members(Some(members.collect()));
    }

    fn set_members(&self, members: Option<BTreeMap<ProcessId, KnownMember>>) {
        self.admissions
            .set_members(members.iter().flatten().map(|(process, _)| *process).collect());
        self.reception.set_members(members);
    }

    /// The version of the view.
    pub(super) fn spoken(&self) -> Option<u16> {
        let spoken = self.spoken.load(Ordering::Relaxed);
        (spoken != 0).then_some(spoken as u16)
    }

    /// The bytes that wait to be written to strangers.
    pub(super) fn budget(&self) -> &Arc<StrangerBudget> {
        &self.reception.budget
    }

    /// Waits for the turn of a dial of this address. A stranger can name any address for its
    /// answers, and so can a joiner: such dials are few at a time. `None`: no turn is needed.
    pub(super) async fn dial_permit(&self, addr: SocketAddr) -> Option<SemaphorePermit<'_>> {
        while let Some(room) = self.dial_room(addr) {
            let turn = room.acquire();
            tokio::pin!(turn);
            // The address may become a member's meanwhile.
            let is_same = || self.dial_room(addr).is_some_and(|now| std::ptr::eq(now, room));
            loop {
                let changed = self.reception.new_members();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if !is_same() {
                    break;
                }
                tokio::select! {
                    turn = &mut turn => return turn.ok(),
                    () = changed => {}
                }
            }
        }
        None
    }

    /// The semaphore for a dial of this address. `None`: members that have shown themselves, and
    /// seeds, are dialled at once.
    fn dial_room(&self, addr: SocketAddr) -> Option<&Semaphore> {
        if self.seeds.borrow().contains(&addr) {
            return None;
        }
        match self.reception.member_at(addr) {
            Some(member) if member.is_learner && !planted!(DialAllLearners) => {
                Some(&self.learner_dials)
            }
            Some(_) => None,
            None => (!planted!(DialAllStrangers)).then_some(&self.dials),
        }
    }

    /// Returns whether members of the view, or seeds, are on this host.
    pub(super) fn is_known_host(&self, ip: IpAddr) -> bool {
        self.reception.has_member_on(ip) || self.seeds.borrow().iter().any(|seed| seed.ip() == ip)
    }

    /// Returns whether one more stranger may be answered: [`MOST_ANSWERS`] in a row, then
    /// [`ANSWERS_A_SECOND`].
    pub(super) fn may_answer(&self) -> bool {
        self.answers.pass().is_some() || planted!(RefuseAlways)
    }

    /// Like [`may_answer`](Self::may_answer), for a process that proves a key.
    pub(super) fn may_answer_key(&self) -> bool {
        self.key_answers.pass().is_some()
    }

    /// Like [`may_answer`](Self::may_answer), for a datagram that asks for the process id, or is
    /// for another process.
    pub(super) fn may_answer_datagram(&self, is_question: bool) -> bool {
        let is_stray = !is_question || planted!(ShareOneAnswerRate);
        let rate = if is_stray { &self.stray_answers } else { &self.id_answers };
        rate.pass().is_some()
    }

    /// Returns whether one more question for the status may be answered: [`MOST_QUESTIONS`] in a
    /// row, then [`QUESTIONS_A_SECOND`].
    pub(super) fn may_tell_status(&self) -> bool {
        self.questions.pass().is_some()
    }

    /// Runs `task` until it or the incarnation ends.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        incarnation: &Incarnation,
        task: F,
    ) {
        let mut over = on_wake(Box::pin(incarnation.token.clone().cancelled_owned()));
        let task = async move {
            tokio::select! {
                biased;
                () = &mut over => {}
                () = task => {}
            }
        };
        self.tasks.spawn_on(self.home.keep(task), &self.handle);
    }

    /// Runs an order until it or the network ends. An order may end the incarnation, and still
    /// reports that.
    pub(super) fn spawn_order<F: Future<Output = ()> + Send + 'static>(&self, order: F) {
        let ended = self.ended.clone();
        let task = async move {
            tokio::select! {
                () = order => {}
                () = ended.cancelled() => {}
            }
        };
        self.tasks.spawn_on(self.home.keep(task), &self.handle);
    }

    /// This process's side of a handshake.
    pub(super) fn handshake(&self, incarnation: &Incarnation) -> Handshake {
        Handshake {
            cluster: self.cluster.clone(),
            me: incarnation.me.clone(),
            reserved: Vec::new(),
        }
    }

    /// Queues a packet. It leaves with [`flush`](Self::flush).
    pub(super) fn send(
        self: &Arc<Self>,
        to: SocketAddr,
        process: Option<ProcessId>,
        packet: Packet,
    ) {
        if self.home.is_left() {
            return;
        }
        let mut current = self.current();
        let Some(current) = current.as_mut() else { return };
        let packet = match &current.incarnation.relays {
            Some(relays) => relays.seal(packet, VERSIONS.to_encode(self.spoken(), None)),
            None => Some(packet),
        };
        let Some(packet) = packet else {
            return add(&self.reception.counters.undelivered, 1);
        };
        let Some(peer) = self.push(current, to, process, &Frame::Packet(packet)) else { return };
        let (first, more) = &mut current.fresh;
        match more.last().or(first.as_ref()) {
            None => *first = Some(peer),
            Some(last) if !Arc::ptr_eq(last, &peer) => more.push(peer),
            Some(_) => {}
        }
    }

    /// Writes the frames that [`send`](Self::send) queued: at once if `is_urgent`, else with later
    /// frames. Returns the connection on which the answer arrives, if there is just one.
    pub(super) fn flush(&self, is_urgent: bool) -> Option<Arc<ConnectionReader>> {
        if self.home.is_left() {
            return None;
        }
        let (first, more) = std::mem::take(&mut self.current().as_mut()?.fresh);
        let mut written = 0;
        let mut reader = None;
        for peer in first.into_iter().chain(more) {
            if is_urgent && written < AT_ONCE {
                reader = peer.write(&self.reception.counters);
                written += 1;
            } else {
                peer.wake();
            }
        }
        reader.filter(|_| written == 1)
    }

    /// Sends a frame other than a packet.
    pub(super) fn send_frame(
        self: &Arc<Self>,
        to: SocketAddr,
        process: Option<ProcessId>,
        frame: &Frame,
    ) {
        let mut current = self.current();
        if let Some(current) = current.as_mut()
            && let Some(peer) = self.push(current, to, process, frame)
        {
            peer.wake();
        }
    }

    /// Queues a frame, with the current incarnation locked, so that the peer is not retired in
    /// between. `None`: dropped.
    fn push(
        self: &Arc<Self>,
        current: &mut IncarnationState,
        to: SocketAddr,
        process: Option<ProcessId>,
        frame: &Frame,
    ) -> Option<Arc<Peer>> {
        let is_strange = process.is_some_and(|process| !self.reception.is_member(process));
        if is_strange && self.budget().is_spent() {
            // The peer with the most bytes goes first, so that a flood drops its own frames.
            let bytes = |peer: &Peer| if planted!(DropAny) { 0 } else { peer.strange_bytes() };
            let largest = current.peers.values().max_by_key(|peer| bytes(peer));
            add(&self.reception.counters.overflowed, largest.map_or(0, |peer| peer.drop_strange()));
        }
        let view = self.spoken();
        let peer = self.peer_in(current, to, process);
        let peer = peer.filter(|peer| peer.push(process, frame, is_strange, view));
        if peer.is_none() {
            add(&self.reception.counters.overflowed, 1);
        }
        peer
    }

    /// The peer at `addr` for frames to `process`, with its task running; `None` if there are too
    /// many peers.
    fn peer_in(
        self: &Arc<Self>,
        current: &mut IncarnationState,
        addr: SocketAddr,
        process: Option<ProcessId>,
    ) -> Option<Arc<Peer>> {
        if let Some(peer) = current.peers.get(&addr) {
            return Some(peer.clone());
        }
        let is_reserved = || {
            process.is_some_and(|process| self.reception.is_member(process))
                || self.seeds.borrow().contains(&addr)
        };
        let is_full = |peers: usize| match peers {
            0..FREE_PEERS => false,
            FREE_PEERS..MAX_PEERS => !is_reserved() && !planted!(ReserveNoPeers),
            _ => true,
        };
        if is_full(current.peers.len()) {
            self.forget_strangers(current);
        }
        if is_full(current.peers.len()) || self.closing.is_cancelled() {
            return None;
        }
        let peer = Arc::new(Peer::new(addr, self.budget().clone(), self.reception.total.clone()));
        current.peers.insert(addr, peer.clone());
        let task = (self.drive)(self.clone(), current.incarnation.clone(), peer.clone());
        self.spawn(&current.incarnation, task);
        Some(peer)
    }

    /// Ends the oldest peers without a connection whose addresses neither the view nor the seeds
    /// name. A stranger can name thousands of addresses. Several peers end at a time, since a crowd
    /// names many more.
    fn forget_strangers(&self, current: &mut IncarnationState) {
        let (members, seeds) = (self.reception.member_addrs(), self.seeds.borrow());
        let is_strange = |addr: &SocketAddr| !members.contains(addr) && !seeds.contains(addr);
        let strangers = current.peers.values().filter(|peer| is_strange(&peer.addr));
        let mut strangers: Vec<Arc<Peer>> = strangers.cloned().collect();
        strangers.sort_unstable_by_key(|peer| peer.born);
        let mut forgotten = 0;
        for peer in strangers {
            if forgotten == FORGOTTEN {
                return;
            }
            if let Some(frames) = peer.make_room() {
                current.peers.remove(&peer.addr);
                add(&self.reception.counters.overflowed, frames);
                forgotten += 1;
            }
        }
    }

    /// Gives a new connection to the peer at `addr`. `None`: the incarnation is over, or there are
    /// too many peers.
    pub(super) fn adopt(
        self: &Arc<Self>,
        incarnation: &Arc<Incarnation>,
        addr: SocketAddr,
        link: ConnectionWriter,
    ) -> Option<Arc<Peer>> {
        let mut current = self.current();
        let current =
            current.as_mut().filter(|current| Arc::ptr_eq(&current.incarnation, incarnation))?;
        let peer = self.peer_in(current, addr, Some(link.process))?;
        *current.open.entry(link.process).or_default() += 1;
        peer.offer(link);
        Some(peer)
    }

    /// Notes that a connection with `process` has ended; returns how many are left.
    pub(super) fn closed(&self, incarnation: &Arc<Incarnation>, process: ProcessId) -> usize {
        let mut current = self.current();
        let Some(current) =
            current.as_mut().filter(|current| Arc::ptr_eq(&current.incarnation, incarnation))
        else {
            return 0;
        };
        let Some(open) = current.open.get_mut(&process) else { return 0 };
        *open -= 1;
        let left = *open;
        if left == 0 {
            current.open.remove(&process);
        }
        left
    }

    /// Forgets an unused peer; `false` if it is used after all.
    pub(super) fn retire(&self, incarnation: &Arc<Incarnation>, peer: &Arc<Peer>) -> bool {
        let mut current = self.current();
        let Some(current) =
            current.as_mut().filter(|current| Arc::ptr_eq(&current.incarnation, incarnation))
        else {
            return true;
        };
        if peer.is_retired() {
            return true;
        }
        let idle = peer.is_idle();
        if idle {
            current.peers.remove(&peer.addr);
        }
        idle
    }

    /// Remembers why the last dial of `addr` failed; `None`: it did not.
    pub(super) fn note_dial(&self, addr: SocketAddr, error: Option<String>) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => {
                let is_full = errors.len() >= MAX_ERRORS && !planted!(KeepAllErrors);
                if is_full && !errors.contains_key(&addr) {
                    errors.pop_first();
                }
                errors.insert(addr, error);
            }
            None => {
                errors.remove(&addr);
            }
        }
    }

    pub(super) fn last_error(&self, addr: SocketAddr) -> Option<String> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).get(&addr).cloned()
    }
}
