//! `Reception`: the part of a transport's state that its readers need.

use super::admission::origin;
use super::begun_frames::BegunFrames;
use super::counters::AtomicCounters;
use super::rate_limit::{RateLimit, SharedRate};
use super::stranger_budget::{MEMBER_BYTES, StrangerBudget};
use super::timeouts::ConnectionTimeouts;
use crate::protocol::ProcessId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc};

/// Log lines that other processes cause, in a row.
const MOST_WARNINGS: u32 = 16;
/// Log lines that other processes cause, in the long run.
const WARNINGS_A_SECOND: u32 = 1;

/// Frames of processes outside the view, in a row: hundreds may join at one time.
pub(super) const MOST_STRANGE: u32 = 4096;
/// Frames of processes outside the view, in the long run.
pub(super) const STRANGE_A_SECOND: u32 = 1024;
/// The frames of one address are at most one in `STRANGE_PART` of both limits.
pub(super) const STRANGE_PART: u32 = 4;

/// The most bytes of all incomplete frames of members with a vote.
const BEGUN_OF_VOTERS: usize = 256 * 1024 * 1024;

/// Datagrams from addresses outside the view and the seeds, in a row: those of hundreds that join
/// at one time.
pub(super) const MOST_GOSSIP: u32 = 4096;
/// Datagrams from such addresses, in the long run.
const GOSSIP_A_SECOND: u32 = 2048;

/// The longest [busy polling](crate::MemberBuilder::busy_poll): for so long a thread may be kept
/// from its other tasks.
pub const MAX_BUSY_POLL: Duration = Duration::from_millis(1);

/// The connections' input for the gossip machine.
pub(super) enum GossipInput {
    /// The whole state of another member's gossip machine.
    State(Vec<u8>),
    /// The process at the end of a connection to that address asks for the whole state.
    Wanted(SocketAddr, ProcessId),
}

/// The part of a transport's state that its readers share.
pub(super) struct Reception {
    pub(super) timeouts: ConnectionTimeouts,
    /// How long to poll for the next packet, see
    /// [`ConnectionReader`](super::connection_reader::ConnectionReader); zero: never.
    pub(super) busy_poll: Duration,
    pub(super) counters: AtomicCounters,
    /// The bytes that wait to be written to strangers: half of the memory for them.
    pub(super) budget: Arc<StrangerBudget>,
    /// The bytes of strangers' incomplete frames: the other half of that memory. So they take no
    /// room from the bytes to be written.
    pub(super) begun: Arc<BegunFrames>,
    /// The incomplete frames of members with a vote.
    pub(super) begun_of_voters: Arc<BegunFrames>,
    /// The bytes that wait to be written to all other processes, beyond the share of each peer.
    pub(super) total: Arc<StrangerBudget>,
    /// The way to the gossip task.
    gossip: mpsc::Sender<GossipInput>,
    /// The processes of the view, if there is a view.
    members: Mutex<Option<BTreeMap<ProcessId, KnownMember>>>,
    /// The number of changes of the members. After each change readers look their processes up
    /// again.
    members_changed: AtomicU64,
    /// Notified of each change of the members.
    has_new_members: Notify,
    /// The limit of log lines that other processes cause.
    warnings: RateLimit,
    /// The limit of datagrams from unknown addresses, without a key.
    gossips: RateLimit,
    /// The limit of frames of processes outside the view: each takes a turn of the engine, and its
    /// answer may be the whole view.
    strangers: SharedRate,
}

/// A process of the view.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownMember {
    pub(super) addr: SocketAddr,
    /// Whether the member is a learner.
    pub(super) is_learner: bool,
}

impl Reception {
    pub(super) fn new(
        timeouts: ConnectionTimeouts,
        busy_poll: Duration,
        stranger_memory: usize,
        gossip: mpsc::Sender<GossipInput>,
    ) -> Self {
        Reception {
            timeouts,
            busy_poll,
            counters: AtomicCounters::default(),
            budget: Arc::new(StrangerBudget::new(stranger_memory / 2)),
            begun: Arc::new(BegunFrames::new(stranger_memory / 2)),
            begun_of_voters: Arc::new(BegunFrames::new(BEGUN_OF_VOTERS)),
            total: Arc::new(StrangerBudget::new(MEMBER_BYTES)),
            gossip,
            members: Mutex::new(None),
            members_changed: AtomicU64::new(0),
            has_new_members: Notify::new(),
            warnings: RateLimit::new(MOST_WARNINGS, WARNINGS_A_SECOND),
            gossips: RateLimit::new(MOST_GOSSIP, GOSSIP_A_SECOND),
            strangers: SharedRate::new(MOST_STRANGE, STRANGE_A_SECOND, STRANGE_PART),
        }
    }

    /// Sets the processes of the view; `None`: this process is in no view.
    pub(super) fn set_members(&self, members: Option<BTreeMap<ProcessId, KnownMember>>) {
        *self.members() = members;
        self.members_changed.fetch_add(1, Relaxed);
        self.has_new_members.notify_waiters();
    }

    /// Completes with the next change of the members, after this is enabled.
    pub(super) fn new_members(&self) -> Notified<'_> {
        self.has_new_members.notified()
    }

    /// The number of changes of the members.
    pub(super) fn members_changed(&self) -> u64 {
        self.members_changed.load(Relaxed)
    }

    /// Returns whether a process is outside this member's view. Without a view no process is.
    pub(super) fn is_stranger(&self, process: ProcessId) -> bool {
        self.members().as_ref().is_some_and(|members| !members.contains_key(&process))
    }

    /// Returns whether a process is in this member's view. Without a view no process is.
    pub(super) fn is_member(&self, process: ProcessId) -> bool {
        self.members().as_ref().is_some_and(|members| members.contains_key(&process))
    }

    /// The account of a process's incomplete frames. A learner has sent one notice, like any
    /// stranger may.
    pub(super) fn begun_of(&self, process: ProcessId) -> &Arc<BegunFrames> {
        let members = self.members();
        let member = members.as_ref().and_then(|members| members.get(&process));
        match member.is_some_and(|member| !member.is_learner || planted!(BeginAsVoter)) {
            true => &self.begun_of_voters,
            false => &self.begun,
        }
    }

    /// Returns whether a process of the view has another address there.
    pub(super) fn is_elsewhere(&self, process: ProcessId, addr: SocketAddr) -> bool {
        let members = self.members();
        members
            .as_ref()
            .and_then(|members| members.get(&process))
            .is_some_and(|own| own.addr != addr && !planted!(BelieveAnyAddress))
    }

    /// Returns whether a process of the view has this address. Without a view none has: also
    /// strangers name addresses at which this process then seeks its cluster.
    pub(super) fn has_member_at(&self, addr: SocketAddr) -> bool {
        self.members().iter().flat_map(BTreeMap::values).any(|own| own.addr == addr)
    }

    /// The process of the view that has this address. Of several, one that is not a learner.
    pub(super) fn member_at(&self, addr: SocketAddr) -> Option<KnownMember> {
        let members = self.members();
        let at = members.iter().flat_map(BTreeMap::values).filter(|own| own.addr == addr);
        at.min_by_key(|own| own.is_learner).copied()
    }

    /// The address of a process of the view.
    pub(super) fn addr_of(&self, process: ProcessId) -> Option<SocketAddr> {
        Some(self.members().as_ref()?.get(&process)?.addr)
    }

    /// The addresses of the processes of the view.
    pub(super) fn member_addrs(&self) -> BTreeSet<SocketAddr> {
        self.members().iter().flat_map(BTreeMap::values).map(|own| own.addr).collect()
    }

    /// Returns whether a process of the view has an address of this host.
    pub(super) fn has_member_on(&self, ip: IpAddr) -> bool {
        let members = self.members();
        members.as_ref().is_some_and(|members| members.values().any(|own| own.addr.ip() == ip))
    }

    fn members(&self) -> MutexGuard<'_, Option<BTreeMap<ProcessId, KnownMember>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a log line that another process causes may be written, with the number of lines that
    /// were left out before it.
    pub(super) fn may_warn(&self) -> Option<u64> {
        self.warnings.pass().or(planted!(WarnAlways).then_some(0))
    }

    /// The part of the strangers' rate for a connection from `ip`. Each connection of the loopback
    /// has a part of its own, as its processes are of many users.
    pub(super) fn strange_part(&self, ip: IpAddr) -> Arc<RateLimit> {
        self.strangers.part(Some(origin(ip)).filter(|_| !ip.is_loopback()))
    }

    /// Returns whether one more frame of a process outside the view is taken.
    pub(super) fn may_take_strange(&self, part: &RateLimit) -> bool {
        self.strangers.pass(part) || planted!(TakeAllFrames)
    }

    /// Returns whether one more datagram from an address outside the view and the seeds is taken.
    pub(super) fn may_take_gossip(&self) -> bool {
        self.gossips.pass().is_some() || planted!(TakeAllGossip)
    }

    /// Logs that input from this address was refused, within the limit of such lines.
    pub(super) fn log_refused(&self, addr: Option<SocketAddr>, reason: &dyn Display) {
        if let Some(left_out) = self.may_warn() {
            let addr = addr.map(tracing::field::display);
            tracing::warn!(target: "elderlock", addr, %reason, left_out, "refused");
        }
    }

    /// Gives input to the gossip task. A full queue drops it, since gossip repeats everything.
    pub(super) fn gossip(&self, input: GossipInput) {
        let _ = self.gossip.try_send(input);
    }
}
