//! A site of the World: an address at which processes run one after the other.

use crate::chance::mix;
use crate::clock::Clock;
use crate::world::Disk;
use elderlock::protocol::{
    Command, Config, Host, Input, Limits, MemberInfo, Node, ProcessId, Slot, Time, Timing,
    Versions, VoteSecret,
};
use elderlock::wire::VERSIONS;
use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// The time of wall clocks when the World begins, in Unix milliseconds.
const WALL_START: u64 = 1_800_000_000_000;
/// The origin of slots.
const WALL_ORIGIN: u64 = WALL_START - 1_000;

/// Whether the process runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessState {
    /// There is no process.
    Down,
    /// The process runs.
    Up,
    /// The process is stopped: its clock goes on, and all inputs wait for its waking.
    Paused,
}

/// A site of the World.
#[derive(Clone, Debug)]
pub struct Site {
    /// The address of its processes.
    pub addr: SocketAddr,
    /// Sites with the same number share a kernel.
    pub host: u32,
    /// Whether the machine answers at all.
    pub host_up: bool,
    /// How many processes have run here.
    pub incarnation: u64,
    /// Its clock.
    pub clock: Clock,
    /// How far its wall clock is off, in milliseconds. Only foundings and the generations of gossip
    /// use it.
    pub wall: i64,
    /// Whether the present process runs.
    pub run: ProcessState,
    /// The present process, or the last one. Copies of a World share the processes in which nothing
    /// happened since.
    pub node: Option<Arc<Node>>,
    /// The process has been told to leave.
    pub leaving: bool,
    /// The process has left, and whether its goodbye was heard.
    pub heard: Option<bool>,
    /// The inputs that came while it was stopped.
    pub inbox: VecDeque<Input>,
    /// The process was stopped before it could begin anew, and does so as soon as it goes on.
    pub overdue: bool,
    /// How often it was stopped.
    pub pauses: u64,
    /// Requests made by the present process.
    pub requests: u64,
    /// When its timer is due, in true time.
    pub due: Option<u64>,
    /// When the timer of its gossip is due, in true time.
    pub gossip_due: Option<u64>,
    /// The seeds it is started with.
    pub seeds: BTreeSet<SocketAddr>,
    /// The core's configuration for its next incarnation, after it was expelled or gave itself up.
    pub next_incarnation: Option<Config>,
    /// Its processes hold locks for programs that are not members.
    pub serves_sessions: bool,
    /// The versions of its first process, if that is of an earlier release.
    pub older: Option<Versions>,
    /// Operators may end holds of its processes that are not revocable.
    pub allows_force: bool,
    /// The process founds a cluster alone.
    pub found_alone: bool,
    /// Its data directory.
    pub disk: Disk,
}

/// The settings that all sites share.
#[derive(Clone, Copy, Debug)]
pub struct SiteConfig {
    /// The run's seed.
    pub seed: u64,
    /// The times to found with.
    pub timing: Timing,
    /// Council size to found with.
    pub council: u8,
    /// The least number of founders.
    pub expect: usize,
    /// The operator trusts refused connections.
    pub trust_refused: bool,
    /// The cluster has no key, so strangers reach its members.
    pub keyless: bool,
    /// The number of sites whose addresses every process is configured with, beside the seeds.
    pub contacts: usize,
    /// Every site has a data directory.
    pub durable: bool,
    /// Processes have ranges of versions, and packets pass the codec.
    pub has_versions: bool,
    /// Bounds and sizes.
    pub limits: Limits,
    /// A planted break of every core.
    #[cfg(elderlock_mutants)]
    pub mutant: Option<elderlock::protocol::mutant::ProtocolMutant>,
}

/// The secret of a process's vote. It is not a draw of the run, so that runs with and without
/// directories are otherwise alike.
pub(crate) fn secret_of(process: ProcessId) -> VoteSecret {
    let parts = [process.0 as u64, (process.0 >> 64) as u64];
    let mut bytes = [0; 32];
    for (part, eight) in bytes.chunks_exact_mut(8).enumerate() {
        let number = part as u64;
        eight.copy_from_slice(&mix(&[0x5ec2e7, number, parts[0], parts[1]]).to_be_bytes());
    }
    VoteSecret::new(bytes)
}

/// The address of a site.
fn address(site: usize) -> SocketAddr {
    let octets = (site as u16 + 1).to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 0, octets[0], octets[1]), 7400))
}

impl Site {
    /// An empty site.
    pub fn new(site: usize) -> Site {
        Site {
            addr: address(site),
            host: site as u32,
            host_up: true,
            incarnation: 0,
            // The clocks are far apart, so that comparing two of them is useless.
            clock: Clock { offset: (site as u64 * 7 + 1) * 3_600_000_000_000, ppm: 0, since: 0 },
            wall: 0,
            run: ProcessState::Down,
            node: None,
            leaving: false,
            heard: None,
            inbox: VecDeque::new(),
            overdue: false,
            pauses: 0,
            requests: 0,
            due: None,
            gossip_due: None,
            seeds: BTreeSet::new(),
            next_incarnation: None,
            serves_sessions: false,
            older: None,
            allows_force: false,
            found_alone: false,
            disk: Disk::default(),
        }
    }

    /// Returns whether the process has been told to leave, also if it is stopped and does not know
    /// yet.
    pub fn will_leave(&self) -> bool {
        self.leaving || self.inbox.contains(&Input::Command(Command::Leave))
    }

    /// Puts a new process here.
    pub fn start(&mut self, site: usize, common: &SiteConfig, now: u64) {
        self.incarnation += 1;
        self.requests = 0;
        self.inbox.clear();
        self.overdue = false;
        self.leaving = false;
        self.heard = None;
        self.run = ProcessState::Up;
        self.host_up = true;
        let ask = |part| mix(&[common.seed, 0x70, site as u64, self.incarnation, part]);
        let process = ProcessId(u128::from(ask(0)) << 64 | u128::from(ask(1)));
        let me = MemberInfo {
            host: Some(Host {
                boot: u128::from(self.host) + 1,
                namespace: 1,
                pid: site as u32 + 1,
                started: self.incarnation,
            }),
            serves_sessions: self.serves_sessions,
            versions: match (common.has_versions, self.older.filter(|_| self.incarnation == 1)) {
                (false, _) => Versions::ALL,
                (true, Some(older)) => older,
                (true, None) => VERSIONS,
            },
            ..MemberInfo::new(process, self.addr)
        };
        let fresh = || Config {
            council_size: common.council,
            seeds: self.seeds.clone(),
            found_alone: self.found_alone,
            expect: common.expect,
            stored: self.disk.vote.clone(),
            trust_refused: common.trust_refused,
            forced_revokes: self.allows_force,
            contacts: (0..common.contacts).map(address).collect(),
            nonce: NonZeroU64::new(ask(2)).filter(|_| common.keyless),
            limits: common.limits,
            #[cfg(elderlock_mutants)]
            mutant: common.mutant,
            ..Config::new(me.clone(), common.timing)
        };
        let mut config = self.next_incarnation.take().unwrap_or_else(fresh);
        config.me = me.clone();
        config.vote_secret = common.durable.then(|| secret_of(me.process));
        let began = self.clock.local(now);
        config.clock = self.slot(now);
        self.node = Some(Arc::new(Node::new(config, began)));
        self.due = Some(now);
    }

    /// The wall clock, in milliseconds: it may be set back and forth while everything else goes on.
    pub fn wall_millis(&self, now: u64) -> u64 {
        (WALL_START + now / 1_000_000).saturating_add_signed(self.wall)
    }

    /// The slot that its wall clock shows.
    pub fn slot(&self, now: u64) -> Slot {
        let ahead =
            i128::from(self.wall) * 1_000_000 + i128::from(WALL_START - WALL_ORIGIN) * 1_000_000;
        let nanos = u64::try_from(i128::from(now) + ahead).unwrap_or(0);
        Slot(Slot::count(Duration::from_nanos(nanos)))
    }

    /// The present process, or the last one.
    pub fn process(&self) -> Option<ProcessId> {
        self.node.as_deref().map(Node::process)
    }

    /// Returns whether a process is here, running or stopped.
    pub fn is_alive(&self) -> bool {
        self.run != ProcessState::Down
    }

    /// Returns whether `process` is the process that is here now.
    pub fn is(&self, process: ProcessId) -> bool {
        self.is_alive() && self.process() == Some(process)
    }

    /// The end of its member lease.
    pub fn lease_end(&self) -> Time {
        self.node.as_deref().map_or(Time::ZERO, Node::lease_end)
    }

    /// Returns the time at which the first of its timers is due.
    pub fn next(&self) -> Option<u64> {
        match (self.due, self.gossip_due) {
            (Some(due), Some(gossip)) => Some(due.min(gossip)),
            (due, gossip) => due.or(gossip),
        }
    }

    /// Looks up when the timer is due.
    pub fn reschedule(&mut self) {
        if let Some(node) = &self.node {
            let [wake_by, deadline] =
                [node.wake_by(), node.deadline()].map(|at| at.unwrap_or(Time::MAX));
            assert!(wake_by <= deadline, "the engine would wake it too late");
        }
        self.due =
            self.node.as_deref().and_then(Node::deadline).and_then(|local| self.clock.when(local));
    }
}
