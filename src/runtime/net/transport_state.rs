//! `TransportState`: the state that all tasks of one member's network share.
//!
//! Two locks, taken in this order: the living (this process's identity, and its peers), then the
//! queue of one peer. The engine may send while it holds its own lock, so no task calls the engine
//! while it holds one of these.

use super::connection_reader::ConnectionReader;
use super::counters::{AtomicCounters, add};
use super::death_watch::DeathWatch;
use super::peer::{self, Budget, Peer};
use super::places::{PlaceLimits, Places};
use super::poll_on_wake::seldom;
use super::rate_limit::RateLimit;
use super::security::{Security, StaticKey};
use super::transport::ConnectionTimeouts;
use super::udp::GossipInput;
use crate::protocol::{MemberInfo, Packet, ProcessId, View};
use crate::runtime::Inbox;
use crate::runtime::fork_guard::ForkGuard;
use crate::wire::{Frame, Handshake};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Addresses that may be sent to at one time: many times the largest cluster.
const MAX_PEERS: usize = 4096;
/// Connections that the flushing thread writes to; writing to more of them is their tasks' work.
const AT_ONCE: usize = 8;
/// Refusals, and answers to datagrams of strangers, in a row.
const MOST_ANSWERS: u32 = 64;
/// The same in the long run.
const ANSWERS_A_SECOND: u32 = 32;
/// Log lines that other processes cause, in a row.
const MOST_WARNINGS: u32 = 16;
/// The same in the long run.
const WARNINGS_A_SECOND: u32 = 1;
/// Addresses whose last dial error is remembered.
const MAX_ERRORS: usize = 1024;

/// One incarnation: it ends as a whole.
pub(super) struct Incarnation {
    pub(super) me: MemberInfo,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) token: CancellationToken,
    pub(super) watch: DeathWatch,
    /// Proves its process id, if the cluster has a key.
    #[cfg_attr(not(feature = "secure"), allow(dead_code))]
    pub(super) identity: Option<Arc<StaticKey>>,
}

struct IncarnationState {
    life: Arc<Incarnation>,
    peers: BTreeMap<SocketAddr, Arc<Peer>>,
    /// Connections of each process.
    open: BTreeMap<ProcessId, usize>,
    /// Peers with frames that were queued and not flushed: mostly there is one.
    fresh: (Option<Arc<Peer>>, Vec<Arc<Peer>>),
}

pub(super) struct TransportState {
    pub(super) cluster: String,
    pub(super) bound: SocketAddr,
    pub(super) advertised: SocketAddr,
    pub(super) limits: ConnectionTimeouts,
    /// How long to attend to the next packet, see [`ConnectionReader`]; zero: never.
    pub(super) busy_poll: Duration,
    pub(super) tally: AtomicCounters,
    /// Flush and end.
    pub(super) closing: CancellationToken,
    /// End now.
    pub(super) ended: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) handle: Handle,
    /// To the gossip task.
    pub(super) news: mpsc::Sender<GossipInput>,
    /// All addresses of all seeds.
    pub(super) seeds: watch::Sender<BTreeSet<SocketAddr>>,
    /// Names of seeds that do not resolve, with the reason.
    pub(super) unresolved: Mutex<Vec<(String, String)>>,
    /// Whether the member has no cluster yet.
    pub(super) seeking: watch::Sender<bool>,
    /// The identity of this process, for tasks that outlive an incarnation.
    pub(super) me: watch::Sender<Option<MemberInfo>>,
    /// The cluster's keys, if it has any.
    pub(super) security: Option<Security>,
    pub(super) places: Arc<Places>,
    budget: Arc<Budget>,
    members: Mutex<Option<BTreeSet<ProcessId>>>,
    /// The number of changes of the members. Readers ask again after each.
    members_changed: AtomicU64,
    answers: RateLimit,
    /// Of log lines that other processes cause.
    warnings: RateLimit,
    living: Mutex<Option<IncarnationState>>,
    errors: Mutex<BTreeMap<SocketAddr, String>>,
    /// The connections are its own: a copy of it does not touch them.
    pub(super) home: ForkGuard,
}

/// The parts that make a [`TransportState`].
pub(super) struct TransportParts {
    pub(super) cluster: String,
    pub(super) bound: SocketAddr,
    pub(super) advertised: SocketAddr,
    pub(super) limits: ConnectionTimeouts,
    pub(super) busy_poll: Duration,
    pub(super) security: Option<Security>,
    pub(super) stranger_memory: usize,
    pub(super) news: mpsc::Sender<GossipInput>,
    pub(super) seeds: BTreeSet<SocketAddr>,
    pub(super) unresolved: Vec<(String, String)>,
}

impl TransportState {
    pub(super) fn new(parts: TransportParts) -> Self {
        TransportState {
            cluster: parts.cluster,
            bound: parts.bound,
            advertised: parts.advertised,
            limits: parts.limits,
            busy_poll: parts.busy_poll,
            tally: AtomicCounters::default(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            handle: Handle::current(),
            news: parts.news,
            seeds: watch::Sender::new(parts.seeds),
            unresolved: Mutex::new(parts.unresolved),
            seeking: watch::Sender::new(true),
            me: watch::Sender::new(None),
            security: parts.security,
            budget: Arc::new(Budget::new(parts.stranger_memory)),
            places: Places::new(PlaceLimits::here()),
            members: Mutex::new(None),
            members_changed: AtomicU64::new(0),
            answers: RateLimit::new(MOST_ANSWERS, ANSWERS_A_SECOND),
            warnings: RateLimit::new(MOST_WARNINGS, WARNINGS_A_SECOND),
            living: Mutex::new(None),
            errors: Mutex::default(),
            home: ForkGuard::here(),
        }
    }

    fn living(&self) -> MutexGuard<'_, Option<IncarnationState>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present incarnation.
    pub(super) fn life(&self) -> Option<Arc<Incarnation>> {
        self.living().as_ref().map(|living| living.life.clone())
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
        let life = Arc::new(Incarnation { me: me.clone(), inbox, token, watch, identity });
        self.set_members(None);
        let living = IncarnationState {
            life,
            peers: BTreeMap::new(),
            open: BTreeMap::new(),
            fresh: Default::default(),
        };
        let before = self.living().replace(living);
        if let Some(before) = before {
            before.life.token.cancel();
        }
        self.me.send_replace(Some(me));
    }

    /// Ends the present incarnation and lets go of its inbox.
    pub(super) fn end(&self) {
        self.ended.cancel();
        // The inbox may be dropped with it, and must not find the lock taken.
        let before = self.living().take();
        drop(before);
    }

    /// The view that was installed: processes outside it are strangers.
    pub(super) fn set_view(&self, view: &View) {
        self.set_members(Some(view.members.iter().map(|member| member.info.process).collect()));
    }

    fn set_members(&self, members: Option<BTreeSet<ProcessId>>) {
        self.places.set_members(members.clone().unwrap_or_default());
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
        self.members_changed.fetch_add(1, Relaxed);
    }

    /// Rises with each change of the members.
    pub(super) fn members_changed(&self) -> u64 {
        self.members_changed.load(Relaxed)
    }

    /// Whether a process is outside this member's view. Without a view no process is.
    pub(super) fn is_stranger(&self, process: ProcessId) -> bool {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.as_ref().is_some_and(|members| !members.contains(&process))
    }

    /// Whether one more stranger may be answered: [`MOST_ANSWERS`] in a row, then
    /// [`ANSWERS_A_SECOND`].
    pub(super) fn may_answer(&self) -> bool {
        self.answers.pass().is_some()
    }

    /// Whether a log line that another process causes may be written, with the number of lines that
    /// were left out before it.
    pub(super) fn may_warn(&self) -> Option<u64> {
        self.warnings.pass()
    }

    /// Runs `task` until it or the incarnation ends.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        life: &Incarnation,
        task: F,
    ) {
        let mut over = seldom(Box::pin(life.token.clone().cancelled_owned()));
        let task = async move {
            tokio::select! {
                biased;
                () = &mut over => {}
                () = task => {}
            }
        };
        self.tasks.spawn_on(self.home.keep(task), &self.handle);
    }

    /// The handshake of this process.
    pub(super) fn handshake(&self, life: &Incarnation) -> Handshake {
        Handshake { cluster: self.cluster.clone(), me: life.me.clone(), reserved: Vec::new() }
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
        let mut living = self.living();
        let Some(living) = living.as_mut() else { return };
        let Some(peer) = self.push(living, to, process, &Frame::Packet(packet)) else { return };
        let (first, more) = &mut living.fresh;
        match more.last().or(first.as_ref()) {
            None => *first = Some(peer),
            Some(last) if !Arc::ptr_eq(last, &peer) => more.push(peer),
            Some(_) => {}
        }
    }

    /// The frames that [`send`](Self::send) queued leave: in a hurry here and now, else with later
    /// frames. Returns where the answer comes, if that is one connection.
    pub(super) fn flush(&self, hurry: bool) -> Option<Arc<ConnectionReader>> {
        if self.home.is_left() {
            return None;
        }
        let (first, more) = std::mem::take(&mut self.living().as_mut()?.fresh);
        let mut written = 0;
        let mut ear = None;
        for peer in first.into_iter().chain(more) {
            if hurry && written < AT_ONCE {
                ear = peer.write(&self.tally);
                written += 1;
            } else {
                peer.wake();
            }
        }
        ear.filter(|_| written == 1)
    }

    /// Sends a frame other than a packet.
    pub(super) fn send_frame(
        self: &Arc<Self>,
        to: SocketAddr,
        process: Option<ProcessId>,
        frame: &Frame,
    ) {
        let mut living = self.living();
        if let Some(living) = living.as_mut()
            && let Some(peer) = self.push(living, to, process, frame)
        {
            peer.wake();
        }
    }

    /// Queues a frame, with the living held, so that the peer is not retired in between. `None`:
    /// dropped.
    fn push(
        self: &Arc<Self>,
        living: &mut IncarnationState,
        to: SocketAddr,
        process: Option<ProcessId>,
        frame: &Frame,
    ) -> Option<Arc<Peer>> {
        let is_strange = process.is_some_and(|process| self.is_stranger(process));
        if is_strange && self.budget.is_spent() {
            // The largest user first, so that a flood drops its own frames.
            let largest = living.peers.values().max_by_key(|peer| peer.strange_bytes());
            add(&self.tally.overflowed, largest.map_or(0, |peer| peer.drop_strange()));
        }
        let peer = self.peer_in(living, to).filter(|peer| peer.push(process, frame, is_strange));
        if peer.is_none() {
            add(&self.tally.overflowed, 1);
        }
        peer
    }

    /// The peer at `addr`, with its task running; `None` if there are too many.
    fn peer_in(
        self: &Arc<Self>,
        living: &mut IncarnationState,
        addr: SocketAddr,
    ) -> Option<Arc<Peer>> {
        if let Some(peer) = living.peers.get(&addr) {
            return Some(peer.clone());
        }
        if living.peers.len() >= MAX_PEERS || self.closing.is_cancelled() {
            return None;
        }
        let peer = Arc::new(Peer::new(addr, self.budget.clone()));
        living.peers.insert(addr, peer.clone());
        self.spawn(&living.life, peer::drive(self.clone(), living.life.clone(), peer.clone()));
        Some(peer)
    }

    /// Gives a new connection to the peer at `addr`. `None`: the incarnation is over, or there are
    /// too many peers.
    pub(super) fn adopt(
        self: &Arc<Self>,
        life: &Arc<Incarnation>,
        addr: SocketAddr,
        link: peer::ConnectionWriter,
    ) -> Option<Arc<Peer>> {
        let mut living = self.living();
        let living = living.as_mut().filter(|living| Arc::ptr_eq(&living.life, life))?;
        let peer = self.peer_in(living, addr)?;
        *living.open.entry(link.process).or_default() += 1;
        peer.offer(link);
        Some(peer)
    }

    /// A connection with `process` has ended; returns how many are left.
    pub(super) fn closed(&self, life: &Arc<Incarnation>, process: ProcessId) -> usize {
        let mut living = self.living();
        let Some(living) = living.as_mut().filter(|living| Arc::ptr_eq(&living.life, life)) else {
            return 0;
        };
        let Some(open) = living.open.get_mut(&process) else { return 0 };
        *open -= 1;
        let left = *open;
        if left == 0 {
            living.open.remove(&process);
        }
        left
    }

    /// Forgets an unused peer; `false` if it is used after all.
    pub(super) fn retire(&self, life: &Arc<Incarnation>, peer: &Arc<Peer>) -> bool {
        let mut living = self.living();
        let Some(living) = living.as_mut().filter(|living| Arc::ptr_eq(&living.life, life)) else {
            return true;
        };
        let idle = peer.is_idle();
        if idle {
            living.peers.remove(&peer.addr);
        }
        idle
    }

    /// Remembers why the last dial of `addr` failed; `None`: it did not.
    pub(super) fn note_dial(&self, addr: SocketAddr, error: Option<String>) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => {
                if errors.len() >= MAX_ERRORS && !errors.contains_key(&addr) {
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
