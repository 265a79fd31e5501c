//! The World: several cores, their clocks and clients, and the network between them, in virtual
//! time.
//!
//! One queue orders everything by (true time, order of scheduling), so a run is a function of its
//! seed and of the driver's steps. A World only simulates. It tells its [`Observer`] what happens,
//! and stops at the first violation that the observer finds.

mod building;
mod disk;
mod observer;
mod process;
mod time;
mod trace;
mod transit;
mod versions;

pub use disk::{Disk, DiskHealth, TornStep};
pub use observer::{Observation, Observer, PacketLoss, UnaskedOutput, Violation};
pub(crate) use time::ScheduledEvent;
pub(crate) use transit::PacketInTransit;

use crate::chance::Digest;
use crate::gossip::Gossip;
use crate::history::{Ask, Call, ClientRequest, History};
use crate::meter::Metered;
use crate::network::Network;
use crate::rule::Rule;
use crate::site::{ProcessState, Site, SiteConfig};
use crate::step::StepNames;
use crate::store::Store;
use crate::stream::{DamageCounts, Stream};
use elderlock::protocol::{Lineage, LineageId, Output, ProcessId, RequestId, Timing, View, Want};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Several cores, their clocks and clients, and the network between them.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) common: SiteConfig,
    pub(crate) now: u64,
    scheduled: u64,
    pub(crate) queue: BTreeMap<(u64, u64), ScheduledEvent>,
    pub(crate) sites: Vec<Site>,
    site_by_addr: BTreeMap<SocketAddr, usize>,
    pub(crate) network: Network,
    /// Copies of a World share the history until a client does something.
    pub(crate) history: Arc<History>,
    pub(crate) store: Store,
    observer: Option<Box<dyn Observer>>,
    /// Packets that were sent to known addresses.
    packets: u64,
    pub(crate) rules: Vec<Rule>,
    /// Packets that rules keep back, each with the index of its rule.
    pub(crate) held_packets: Vec<(usize, PacketInTransit)>,
    /// Packets that wait at the end of clogged paths, in order.
    pub(crate) clogged: BTreeMap<(usize, usize), Vec<ScheduledEvent>>,
    /// Connections that carry damaged bytes.
    pub(crate) streams: BTreeMap<(usize, usize), Stream>,
    pub(crate) damages: DamageCounts,
    /// Clients that give up this long after their answer.
    pub(crate) give_up_after: BTreeMap<Ask, Duration>,
    /// When a view was installed that is later than all before.
    pub(crate) viewed_at: u64,
    /// The number of views that were later than all before.
    pub(crate) later_views: u64,
    /// The sites to which the demands after healing apply; `None`: all.
    pub(crate) core: Option<BTreeSet<usize>>,
    /// Whether those sites had a quorum without the others when the healing began.
    pub(crate) core_suffices: bool,
    /// The gossip machines of all sites, if they run.
    pub(crate) gossip: Option<Vec<Gossip>>,
    /// The traffic of each site, if it is counted.
    pub(crate) meter: Option<Vec<Metered>>,
    /// The names that steps refer to.
    pub(crate) named: StepNames,
    started: bool,
    manual: bool,
    /// Whether clocks keep the bound of the timing.
    pub(crate) bounded: bool,
    /// Whether requests of owners are to be told of circles.
    pub(crate) detects: bool,
    /// Members may keep locks after their release.
    pub(crate) keeps: bool,
    /// Members may keep shares too.
    pub(crate) keeps_shares: bool,
    /// Members ask to grant a service if they make most of its requests.
    pub(crate) follows: bool,
    strict: bool,
    /// Whether there is only one lineage at a time.
    pub(crate) one_lineage: bool,
    tracing: bool,
    trace: VecDeque<String>,
    /// The time until which the next process that decides a view dies before it can tell any other.
    pub(crate) dies_when_deciding_until: u64,
    /// The site that proposed a view last.
    pub(crate) proposer: Option<usize>,
    /// The planned death of a process in the middle of a step.
    torn: Option<TornStep>,
    broken: Option<Violation>,
    /// Whether the digests are kept.
    digested: bool,
    pub(crate) digest: Digest,
    /// The digest of all that clients and observers of views see, and of no message behind it.
    pub(crate) outcomes: Digest,
    events: u64,
    at_once: (u64, usize, u32),
    /// Steps of a member at the instant of its preceding step.
    pub(crate) repeated: u64,
    /// Whether broken connections and gossip are noticed.
    hints: bool,
    /// The highest view installed anywhere, by lineage.
    pub(crate) latest: BTreeMap<Lineage, View>,
    /// The lineage of each process that has had a view.
    lineages: BTreeMap<ProcessId, LineageId>,
    /// The proposed views that would follow the newest view.
    pub(crate) proposed: Vec<View>,
    outputs: Vec<Output>,
}

impl World {
    /// An empty World that no observer watches; [`World::new`] has them. Everything random in it
    /// follows from the seed.
    pub fn unobserved(seed: u64) -> World {
        World {
            common: SiteConfig {
                seed,
                timing: Timing::fast(),
                council: 7,
                expect: 1,
                trust_refused: false,
                keyless: false,
                contacts: 0,
                durable: false,
                has_versions: false,
                limits: crate::limits::SMALL_PARTS,
                #[cfg(elderlock_mutants)]
                mutant: None,
            },
            now: 0,
            scheduled: 0,
            queue: BTreeMap::new(),
            sites: Vec::new(),
            site_by_addr: BTreeMap::new(),
            network: Network::new(seed),
            history: Arc::default(),
            store: Store::default(),
            observer: None,
            packets: 0,
            rules: Vec::new(),
            held_packets: Vec::new(),
            clogged: BTreeMap::new(),
            streams: BTreeMap::new(),
            damages: DamageCounts::default(),
            give_up_after: BTreeMap::new(),
            viewed_at: 0,
            later_views: 0,
            core: None,
            core_suffices: true,
            gossip: None,
            meter: None,
            named: StepNames::default(),
            started: false,
            manual: false,
            bounded: true,
            detects: false,
            keeps: false,
            keeps_shares: false,
            follows: false,
            strict: true,
            one_lineage: true,
            tracing: true,
            trace: VecDeque::new(),
            dies_when_deciding_until: 0,
            proposer: None,
            torn: None,
            broken: None,
            digested: true,
            digest: Digest::new(seed),
            outcomes: Digest::new(seed),
            events: 0,
            at_once: (0, 0, 0),
            repeated: 0,
            hints: true,
            latest: BTreeMap::new(),
            lineages: BTreeMap::new(),
            proposed: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// A number that is equal for equal runs.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// A number that is equal for runs with the same outcomes in the same order. Outcomes are the
    /// answers to each client with their tokens, the losses, the contents of objects, and each
    /// member's views. The number does not depend on messages, so a change of their form alone
    /// leaves it equal.
    pub fn outcomes(&self) -> u64 {
        self.outcomes.finish()
    }

    /// Inputs handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The requests and answers of all clients.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// One request of one client.
    pub fn call(&self, ask: Ask) -> &Call {
        self.history.call(ask)
    }

    /// Whether a member may keep the lock of a call after its release. Such a hold is not
    /// revocable. All others are.
    pub fn may_keep(&self, call: &Call) -> bool {
        let may = match &call.request_kind {
            ClientRequest::Hold(Want::Lock(_)) => self.keeps,
            ClientRequest::Hold(Want::Share(_)) => self.keeps_shares,
            _ => false,
        };
        may && call.metadata.as_bytes().is_empty()
    }

    /// Returns the request under which the grantor knows the hold of a call, if that is another
    /// request. Then the lock was granted to the other request and was kept.
    pub fn place_of(&self, call: &Call) -> Option<RequestId> {
        let site = &self.sites[call.member];
        let node = site.node.as_ref().filter(|node| node.process() == call.process);
        node.and_then(|node| node.place_of(call.request))
    }

    /// True time since the World began.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// The sites to which the demands after healing apply: all, or those of the healed part.
    pub fn demanded(&self) -> impl Iterator<Item = usize> + '_ {
        self.sites().filter(|site| self.core.as_ref().is_none_or(|core| core.contains(site)))
    }

    /// Returns whether all running processes (of the healed part) are in one view of exactly them,
    /// and their leases run.
    pub fn is_settled(&self) -> bool {
        let running: Vec<&Site> = self
            .demanded()
            .map(|site| &self.sites[site])
            .filter(|peer| peer.run == ProcessState::Up)
            .collect();
        let Some(view) =
            running.first().and_then(|peer| peer.node.as_ref()).and_then(|node| node.view())
        else {
            return false;
        };
        let processes: BTreeSet<ProcessId> =
            running.iter().filter_map(|peer| peer.process()).collect();
        view.members.iter().all(|member| !member.ghost)
            && view.has_promoted_all()
            && view.members.iter().map(|member| member.info.process).collect::<BTreeSet<_>>()
                == processes
            && running.iter().all(|peer| {
                peer.node.as_ref().is_some_and(|node| {
                    node.is_ready(peer.clock.local(self.now)) && node.view() == Some(view)
                })
            })
    }

    /// The site with this address.
    pub(crate) fn site_at(&self, addr: SocketAddr) -> Option<usize> {
        self.site_by_addr.get(&addr).copied()
    }

    /// Returns the site at which the process runs or ran last.
    pub fn site_of(&self, process: ProcessId) -> Option<usize> {
        self.sites.iter().position(|site| site.process() == Some(process))
    }

    /// Returns the site of the process, if that process is the one of its site now.
    pub fn present_site_of(&self, process: ProcessId) -> Option<usize> {
        self.site_of(process).filter(|site| self.sites[*site].is(process))
    }
}
