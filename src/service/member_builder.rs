//! `MemberBuilder`: how a member is set up, checked and joined.

use super::member::{MAX_SERVICES, Member};
use super::orders;
use crate::protocol::{
    Command, Config, Input, InvalidTiming, MemberInfo, Packet, ProcessId, SeedReport, Status,
    Timing, VoteSecret,
};
use crate::runtime::disk::Disk;
use crate::runtime::engine::{Engine, EngineClosed, EngineOptions};
use crate::runtime::inbox::{Inbox, OrderExchange, OrderWork};
use crate::runtime::member_clock::MemberClock;
use crate::runtime::net::death_watch;
use crate::runtime::net::timeouts::ConnectionTimeouts;
use crate::runtime::net::transport::{BindError, Transport, TransportOptions};
use crate::runtime::network::{Network, Outbox};
use crate::runtime::process_id::{draw_process, draw_vote_secret};
use crate::runtime::vote_writer::VoteStorage;
use crate::runtime::{DataDirError, QueryError};
#[cfg(feature = "secure")]
use crate::wire::secure::Keyring;
use crate::wire::{Order, Role};
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle as Runtime;

/// The longest cluster name, in bytes: it is in front of every datagram.
const MAX_CLUSTER_NAME: usize = 64;

/// The largest council: each of its members takes part in each decision about views.
const MAX_COUNCIL: u8 = 31;

/// A council that is large enough for three losses and small enough to ask.
const COUNCIL: u8 = 7;

/// About the cost of letting a thread sleep, and of waking it.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// How often a process that joins logs the seeds that it waits for.
const WAITING: Duration = Duration::from_secs(3);

/// Seeds that such a line names.
const MOST_SEEDS: usize = 8;

/// The bytes that may wait for strangers.
const STRANGER_MEMORY: usize = 64 * 1024 * 1024;

/// The longest that a thread may be kept from its other tasks.
const LONGEST_BUSY_POLL: Duration = Duration::from_millis(1);

/// Sets up a member, from [`Member::builder`]. Needs an address to [bind](MemberBuilder::bind), and
/// [seeds](MemberBuilder::seeds) or the order to [found](MemberBuilder::found).
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `join` is awaited"]
pub struct MemberBuilder {
    cluster: String,
    bind: String,
    advertise: Option<String>,
    seeds: Vec<String>,
    timing: Timing,
    council: u8,
    found: bool,
    expect: usize,
    insecure: bool,
    trust_refused: bool,
    serves_sessions: bool,
    data_dir: Option<PathBuf>,
    force: bool,
    join_limit: Duration,
    busy_poll: Duration,
    stranger_memory: usize,
    max_services: usize,
    #[cfg(feature = "secure")]
    keyring: Option<Keyring>,
}

impl Member {
    /// Begins to join the cluster named `cluster`: 1 to 64 bytes, the same for all members.
    ///
    /// Geode: `DistributedSystem.connect`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{JoinError, Member};
    /// let error = Member::builder("shop").bind("127.0.0.1:7400").join().await.unwrap_err();
    /// assert!(matches!(error, JoinError::NoSeeds));
    /// # Ok(()) }
    /// ```
    pub fn builder(cluster: impl Into<String>) -> MemberBuilder {
        MemberBuilder::new(cluster.into())
    }

    /// A cluster of one, within this process and without sockets: for tests and for trying things
    /// out. Each call makes a cluster of its own.
    ///
    /// Its leases and waits go by the clock of this tokio runtime, also where a test pauses and
    /// advances it. That clock stands still while the machine sleeps.
    ///
    /// # Errors
    /// [`JoinError::NoRuntime`] outside a tokio runtime; [`JoinError::NoRandomness`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// assert!(member.is_elder());
    /// # Ok(()) }
    /// ```
    pub async fn local() -> Result<Member, JoinError> {
        let runtime = Runtime::try_current().map_err(|_| JoinError::NoRuntime)?;
        let process = draw_process().map_err(|_| JoinError::NoRandomness)?;
        let builder = Member::builder("local").found();
        // No process dials it: nothing listens on port 0.
        let me = MemberInfo::new(process, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let engine = Engine::new(EngineOptions {
            config: builder.config(me, BTreeSet::new()),
            network: Arc::new(NullNetwork),
            disk: None,
            clock: MemberClock::of_runtime(&runtime),
        });
        let member = Member::new(builder.cluster.clone(), engine.clone(), None);
        engine.start(&runtime, async {});
        if until_ready(&engine, builder.join_limit).await {
            return Ok(member);
        }
        engine.close(EngineClosed::Unheard);
        Err(JoinError::NoCluster {
            cluster: builder.cluster,
            waited: builder.join_limit,
            needed: 1,
            answered: Vec::new(),
            missing: Vec::new(),
            unresolved: Vec::new(),
        })
    }
}

impl MemberBuilder {
    fn new(cluster: String) -> Self {
        MemberBuilder {
            cluster,
            bind: "127.0.0.1:0".into(),
            advertise: None,
            seeds: Vec::new(),
            timing: Timing::default(),
            council: COUNCIL,
            found: false,
            expect: 1,
            insecure: false,
            trust_refused: false,
            serves_sessions: false,
            data_dir: None,
            force: false,
            join_limit: Duration::from_secs(30),
            busy_poll: if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
                BUSY_POLL
            } else {
                Duration::ZERO
            },
            stranger_memory: STRANGER_MEMORY,
            max_services: MAX_SERVICES,
            #[cfg(feature = "secure")]
            keyring: None,
        }
    }

    /// Where to listen, `host:port`, for TCP and UDP. Port 0 takes a free one (then no seed list
    /// can name this member). Default: a free port of 127.0.0.1. Outside the loopback only with a
    /// keyring, or with [`insecure`](MemberBuilder::insecure).
    pub fn bind(mut self, addr: impl Into<String>) -> Self {
        self.bind = addr.into();
        self
    }

    /// The address that others dial, `host:port`, if it is not the bound one.
    pub fn advertise(mut self, addr: impl Into<String>) -> Self {
        self.advertise = Some(addr.into());
        self
    }

    /// Where to look for the cluster, `host:port` each; replaces earlier ones. Host names are
    /// resolved again each time, and all their addresses are used.
    ///
    /// Seeds that name each other found the cluster together, when all of them are there. A list
    /// that names only this member founds it alone. A member that is not among its seeds never
    /// founds.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds = seeds.into_iter().map(Into::into).collect();
        self
    }

    /// The times to found with: [`Timing::lan`] unless set. A joining member adopts the cluster's,
    /// and logs a warning if they are others.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// How many of the oldest members decide about views, 1 to 31; 7 unless set. A joining member
    /// adopts the cluster's.
    pub fn council(mut self, size: u8) -> Self {
        self.council = size;
        self
    }

    /// Founds the cluster alone, now, with any seeds. Use it once in a cluster's life: used twice,
    /// it makes two clusters, unless a [data directory](MemberBuilder::data_dir) remembers the
    /// first.
    pub fn found(mut self) -> Self {
        self.found = true;
        self
    }

    /// The least number of members with which this process founds a cluster, itself included; 1
    /// unless set. A founding takes all seeds that are known, and at least this many distinct
    /// processes. A member that joins a running cluster is not held up.
    ///
    /// For seeds that are one host name, such as that of a headless service: a process that
    /// resolves only itself for some seconds waits for the others and does not found alone. Give
    /// all members the same number, **more than half of the replicas**, best all of them: then two
    /// foundings always have a member in common, and a process takes part in one only. At most half
    /// of the known seeds is logged as a warning.
    ///
    /// Zero, and more than 1 beside [`found`](MemberBuilder::found), are errors of
    /// [`join`](MemberBuilder::join). [`force`](MemberBuilder::force) founds without regard to it.
    ///
    /// Consul: `bootstrap_expect`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// use elderlock::Member;
    /// let here = "127.0.0.1:7450";
    /// let alone = Member::builder("shop").bind(here).seeds([here]).expect(3);
    /// let error = alone.join_limit(Duration::from_secs(2)).join().await.unwrap_err();
    /// assert!(error.to_string().contains("it takes 3 members to found"));
    /// # Ok(()) }
    /// ```
    pub fn expect(mut self, members: usize) -> Self {
        self.expect = members;
        self
    }

    /// The cluster's keys. This member speaks only to processes that hold one of them: connections
    /// and gossip are sealed, and each process proves its id. All members have keys, or none has.
    ///
    /// Without a keyring every process that reaches the port is a member. On loopback these are all
    /// local users.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{ClusterKey, Keyring, Member};
    /// let ring = Keyring::new(ClusterKey::generate()?);
    /// let member = Member::builder("shop").keyring(ring).found().join().await?;
    /// member.leave().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn keyring(mut self, ring: Keyring) -> Self {
        self.keyring = Some(ring);
        self
    }

    /// Allows addresses outside loopback without a key: every process that reaches the port is a
    /// member. With a keyring it is an error.
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Vouches that a member whose address refuses connections is dead, here and on every machine
    /// of the cluster: its locks are then given away at once instead of after its lease. Wrong
    /// where a firewall may answer for a living process.
    ///
    /// One member that is refused is not enough: a second one has to be refused as well, or not to
    /// reach it, and no member may hear it meanwhile. So a view of two members gains nothing. If
    /// another process answers at the address, as after a restart, that is no refusal: the former
    /// member's lease is waited for, unless its death is vouched for.
    pub fn trust_refused(mut self, trust: bool) -> Self {
        self.trust_refused = trust;
        self
    }

    /// Where this member keeps its vote on the next view, so that it outlives the process. A
    /// directory of its own for each member, on a file system with working locks; it is made if it
    /// is not there.
    ///
    /// With directories a restart of all members goes on where the cluster ended. The members find
    /// together again, tokens rise, and no lock is granted before the leases of the former
    /// processes are surely over. Without them a restart of all members founds anew. The directory
    /// is written, and awaited, when views change, and never for a lock.
    ///
    /// Never put back an older copy of it, and never give a copy to a second member: it would vote
    /// twice.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Declares, as the operator, that every member of the last cluster that does not answer is
    /// dead for ever, and goes on without a quorum. The member founds anew, above the last view
    /// that its data directory knows. For when too many members or directories are lost. If a
    /// member that was declared dead lives after all, both sides may hold the same lock until they
    /// meet. Then the later founding goes on and the members of the other lose their holds.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// How long [`join`](MemberBuilder::join) tries: 30 s unless set, more than zero.
    pub fn join_limit(mut self, limit: Duration) -> Self {
        self.join_limit = limit;
        self
    }

    /// How long a thread stays awake for the next messages of other members, from zero, which is
    /// never, to 1 ms. Unless set it is 50 µs, about the cost of letting a thread sleep and of
    /// waking it. It is zero where the process has one processor only.
    ///
    /// The poll that asks another member for a lock looks for the answer for so long before it is
    /// pending. When the grantor's reading task has answered a question, it looks for the next one
    /// for so long. On a fast network most answers come within it, and a lock takes half as long.
    /// Where they do not, it is tried less often, down to once in 256 times. Meanwhile the thread
    /// does nothing else: set it to zero if its other tasks cannot wait for so long, or if each
    /// microsecond of a processor counts. [`counters`](Member::counters) tell how often it was of
    /// use.
    ///
    /// Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning" (SOSP 1991); Linux:
    /// `SO_BUSY_POLL`.
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.busy_poll = limit;
        self
    }

    /// The most bytes that may wait to be written to processes outside the view, over all of them:
    /// 64 MiB by default. Beyond it the frames of the largest user are dropped. A joining process
    /// repeats its lost messages.
    pub fn stranger_memory(mut self, bytes: usize) -> Self {
        self.stranger_memory = bytes;
        self
    }

    /// Whether programs that are no members may hold locks through this member: by
    /// [`hold_through`](crate::hold_through), or by `elderlock lock`. `false` by default. Such a
    /// program may live on when this process is killed. So others wait for the end of its member
    /// lease before they grant what it held, and before they replace it as a grantor, where
    /// otherwise a death that a process of the same host has seen ends both at once.
    pub fn serve_sessions(mut self, serve: bool) -> Self {
        self.serves_sessions = serve;
        self
    }

    /// How many lock services this member may use, [`MAX_SERVICES`] by default. A call of
    /// [`lock_service`](Member::lock_service) for one more fails. Names of services are kept by
    /// other members too, so a service for each key or for each user is a mistake: locks cost
    /// nothing once they are idle.
    pub fn max_services(mut self, count: usize) -> Self {
        self.max_services = count;
        self
    }

    /// Joins the cluster, or founds it with the other seeds, and completes when this member may
    /// hold locks. A slow disk under the [data directory](MemberBuilder::data_dir) does not hold up
    /// the runtime: a thread opens the directory.
    ///
    /// # Errors
    /// [`JoinError`]. Nothing is left behind: the port is free again, and no other member counts
    /// this process as a member for longer than its lease.
    ///
    /// # Cancel safety
    /// Dropping the future leaves again, in the background. The data directory is free again as
    /// soon as the disk has answered the call under way, and its vote is whole.
    pub async fn join(self) -> Result<Member, JoinError> {
        let runtime = Runtime::try_current().map_err(|_| JoinError::NoRuntime)?;
        self.check()?;
        let started = tokio::time::Instant::now();
        let transport = Arc::new(
            Transport::bind(TransportOptions {
                cluster: self.cluster.clone(),
                bind: self.bind.clone(),
                advertise: self.advertise.clone(),
                seeds: self.seeds.clone(),
                insecure: self.insecure,
                limits: ConnectionTimeouts::for_lease(self.timing.member_lease),
                busy_poll: self.busy_poll,
                stranger_memory: self.stranger_memory,
                #[cfg(feature = "secure")]
                keyring: self.keyring.clone(),
            })
            .await?,
        );
        let (disk, stored) = match &self.data_dir {
            Some(path) => {
                let left = self.join_limit.saturating_sub(started.elapsed());
                let opening = Disk::open_aside(path.clone(), self.cluster.clone());
                let opened = tokio::time::timeout(left, opening).await;
                let (disk, stored) = opened
                    .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
                    .map_err(|why| JoinError::DataDir { path: path.clone(), why })?;
                (Some(Box::new(disk) as Box<dyn VoteStorage>), stored)
            }
            None => (None, None),
        };
        let (process, static_key) =
            transport.draw_identity().map_err(|_| JoinError::NoRandomness)?;
        let vote_secret = match &disk {
            Some(_) => Some(draw_vote_secret().map_err(|_| JoinError::NoRandomness)?),
            None => None,
        };
        let vote_key = vote_secret.as_ref().map(VoteSecret::key);
        let (addr, host) = (transport.advertised(), death_watch::here());
        let serves_sessions = self.serves_sessions;
        let me = MemberInfo { process, addr, host, vote_key, static_key, serves_sessions };
        let mut config = self.config(me.clone(), known_seeds(&transport, transport.seeds()));
        if !transport.has_key() {
            let nonce = SysRng.try_next_u64().map_err(|_| JoinError::NoRandomness)?;
            config.nonce = Some(NonZeroU64::new(nonce).unwrap_or(NonZeroU64::MIN));
        }
        config.vote_secret = vote_secret;
        config.stored = stored;
        let clock = MemberClock::machine();
        let engine = Engine::new(EngineOptions { config, network: transport.clone(), disk, clock });
        let member = Member::with_services(
            self.cluster.clone(),
            engine.clone(),
            Some(transport.clone()),
            self.max_services,
        );
        transport.start(
            Arc::new(NetworkInbox {
                engine: Arc::downgrade(&engine),
                transport: Arc::downgrade(&transport),
            }),
            me,
        );
        engine.start(&runtime, {
            let transport = transport.clone();
            async move { transport.shutdown().await }
        });
        if self.force {
            engine.force();
        }
        self.log_low_expect(&transport);
        loop {
            let left = self.join_limit.saturating_sub(started.elapsed());
            if until_ready(&engine, left.min(WAITING)).await {
                self.log_surprises(&engine.status());
                return Ok(member);
            }
            if left <= WAITING || engine.phase().borrow().closed.is_some() {
                break;
            }
            self.log_waiting(&engine, &transport);
        }
        let error = match (wrong_clock(&engine), &self.data_dir, engine.disk_trouble()) {
            (Some(ahead), ..) => JoinError::Clock { cluster: self.cluster.clone(), ahead },
            (None, Some(path), Some((kind, reason))) => {
                JoinError::DataDir { path: path.clone(), why: io::Error::new(kind, reason).into() }
            }
            _ => self.no_cluster(&engine, &transport),
        };
        engine.close(EngineClosed::Unheard);
        let mut phase = engine.phase();
        // So that the port is free when the error is seen. The sender lives as long as the engine.
        let _ = phase.wait_for(|phase| phase.stopped).await;
        Err(error)
    }

    /// Logs what the member found and its operator may not expect.
    fn log_surprises(&self, status: &Status) {
        let Some(view) = &status.view else { return };
        if view.timing != self.timing {
            tracing::warn!(
                target: "elderlock", cluster = ?view.timing, own = ?self.timing,
                "the cluster was founded with other times; this member keeps the cluster's"
            );
        }
        // The other processes behind a name may not be resolved yet.
        let names: Vec<&str> = self
            .seeds
            .iter()
            .map(String::as_str)
            .filter(|seed| seed.parse::<SocketAddr>().is_err())
            .collect();
        let has_founded = view.lineage.founder == status.me.process;
        if view.members.len() == 1 && has_founded && !names.is_empty() && !self.force {
            tracing::warn!(
                target: "elderlock", seeds = names.join(", "),
                "founded alone: the seeds resolve to this member only; if they are to name others, \
                 two clusters may run"
            );
        }
    }

    /// Logs an [`expect`](MemberBuilder::expect) with which two groups of seeds may each found.
    fn log_low_expect(&self, transport: &Transport) {
        let seeds = self.seeds.len().max(transport.seeds().len());
        if self.expect > 1 && self.expect * 2 <= seeds {
            tracing::warn!(
                target: "elderlock", expect = self.expect, seeds,
                "expects at most half of its seeds: two groups of them may each found a cluster; \
                 expect more than half"
            );
        }
    }

    /// All errors that can be found before anything is done.
    fn check(&self) -> Result<(), JoinError> {
        let length = self.cluster.len();
        if length == 0 || length > MAX_CLUSTER_NAME {
            return Err(JoinError::InvalidCluster { length });
        }
        address("bind", &self.bind, true)?;
        if let Some(advertise) = &self.advertise {
            address("advertise", advertise, false)?;
        }
        for seed in &self.seeds {
            address("seed", seed, false)?;
        }
        if self.seeds.is_empty() && !self.found && !self.force {
            return Err(JoinError::NoSeeds);
        }
        if self.expect == 0 {
            return Err(JoinError::ZeroExpected);
        }
        if self.found && self.expect > 1 {
            return Err(JoinError::FoundsAlone { expected: self.expect });
        }
        self.timing.check()?;
        if self.council == 0 || self.council > MAX_COUNCIL {
            return Err(JoinError::InvalidCouncil { given: self.council });
        }
        if self.join_limit.is_zero() {
            return Err(JoinError::ZeroLimit);
        }
        if self.busy_poll > LONGEST_BUSY_POLL {
            return Err(JoinError::LongBusyPoll { given: self.busy_poll });
        }
        #[cfg(feature = "secure")]
        if self.insecure && self.keyring.is_some() {
            return Err(JoinError::InsecureWithKey);
        }
        #[cfg(feature = "secure")]
        if let Some(role) = self.keyring.as_ref().and_then(Keyring::lower_role) {
            return Err(JoinError::RoleKey { role });
        }
        Ok(())
    }

    /// Logs the seeds that have not answered, and why as far as it is known.
    fn log_waiting(&self, engine: &Engine, transport: &Transport) {
        let SeedReport { seeds, founders, hears_of_cluster } = engine.seeking();
        let me = transport.advertised();
        let missing = seeds.iter().filter(|(addr, answer)| answer.is_none() && *addr != me);
        let missing = missing.map(|(addr, _)| match transport.last_error(*addr) {
            Some(error) => format!("{addr} ({error})"),
            None => format!("{addr} (no answer)"),
        });
        let unresolved = transport.unresolved();
        let unknown = unresolved.iter().map(|(name, error)| format!("{name} ({error})"));
        let all = seeds.len() + unresolved.len();
        let (expected, missing) = (self.expect, missing.chain(unknown).collect());
        let founders = if hears_of_cluster { expected } else { founders };
        let waiting = Waiting { expected, founders, all, missing };
        tracing::info!(target: "elderlock", "joining: {waiting}");
    }

    pub(super) fn config(&self, me: MemberInfo, seeds: BTreeSet<SocketAddr>) -> Config {
        Config {
            council_size: self.council,
            seeds,
            found_alone: self.found,
            expect: self.expect,
            trust_refused: self.trust_refused,
            ..Config::new(me, self.timing)
        }
    }

    #[cfg(feature = "simulated")]
    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    #[cfg(feature = "simulated")]
    pub(super) fn seeds_given(&self) -> &[String] {
        &self.seeds
    }

    fn no_cluster(&self, engine: &Engine, transport: &Transport) -> JoinError {
        let me = transport.advertised();
        let mut answered = Vec::new();
        let mut missing = Vec::new();
        for (addr, answer) in engine.seeking().seeds {
            match answer {
                Some(answer) => answered.push((addr, answer)),
                None if addr == me => answered.push((addr, "this member".into())),
                None => missing
                    .push((addr, transport.last_error(addr).unwrap_or_else(|| "no answer".into()))),
            }
        }
        let unresolved = transport.unresolved();
        let founder = transport.seeds().contains(&me);
        let all = answered.len() + missing.len() + unresolved.len();
        JoinError::NoCluster {
            cluster: self.cluster.clone(),
            waited: self.join_limit,
            needed: if founder { all.max(self.expect) } else { 1 },
            unresolved,
            answered,
            missing,
        }
    }
}

impl Network for NullNetwork {}

/// The packets that the network receives, on their way to the engine. Keeps neither of them alive.
struct NetworkInbox {
    engine: Weak<Engine>,
    transport: Weak<Transport>,
}

impl Inbox for NetworkInbox {
    fn input(&self, input: Input) {
        let (Some(engine), Some(transport)) = (self.engine.upgrade(), self.transport.upgrade())
        else {
            return;
        };
        engine.input(match input {
            Input::Command(Command::Seeds(seeds)) => {
                Input::Command(Command::Seeds(known_seeds(&transport, seeds)))
            }
            input => input,
        });
    }

    fn deliver(&self, packets: &mut Vec<Input>) -> bool {
        match self.engine.upgrade() {
            Some(engine) => engine.deliver(packets),
            None => {
                packets.clear();
                false
            }
        }
    }

    fn status(&self, most: usize) -> Option<Status> {
        Inbox::status(&*self.engine.upgrade()?, most)
    }

    fn carry_out(&self, order: Order, exchange: OrderExchange) -> OrderWork {
        let engine = self.engine.clone();
        Box::pin(async move {
            if let Some(engine) = engine.upgrade() {
                orders::carry_out(engine, order, exchange).await;
            }
        })
    }
}

/// The seeds to look for. While the name of one does not resolve, this member does not count itself
/// as a seed: it would found the cluster without the missing one, or even alone.
fn known_seeds(transport: &Transport, mut seeds: BTreeSet<SocketAddr>) -> BTreeSet<SocketAddr> {
    if !transport.unresolved().is_empty() {
        seeds.remove(&transport.advertised());
    }
    seeds
}

/// The network of a cluster of one.
struct NullNetwork;

impl Outbox for NullNetwork {
    fn send(&self, _to: SocketAddr, _process: Option<ProcessId>, _packet: Packet) {}
}

pub(super) async fn until_ready(engine: &Engine, limit: Duration) -> bool {
    let mut phase = engine.phase();
    let ready = phase.wait_for(|phase| phase.ready || phase.closed.is_some());
    matches!(tokio::time::timeout(limit, ready).await, Ok(Ok(phase)) if phase.ready)
}

/// How far the cluster is ahead of this machine's clock, if that was the reason for the end.
fn wrong_clock(engine: &Engine) -> Option<Duration> {
    match engine.phase().borrow().closed {
        Some(EngineClosed::WrongClock { ahead }) => Some(ahead),
        _ => None,
    }
}

/// `host:port`, where the host is a name or an address; IPv6 addresses in brackets.
fn address(what: &'static str, given: &str, zero_allowed: bool) -> Result<(), JoinError> {
    let wrong = |why| Err(JoinError::InvalidAddress { what, given: given.to_owned(), why });
    let port = match given.parse::<SocketAddr>() {
        Ok(addr) => addr.port(),
        Err(_) => {
            let Some((host, port)) = given.rsplit_once(':') else {
                return wrong("it has no port: host:port is wanted");
            };
            if host.is_empty() {
                return wrong("it has no host: host:port is wanted");
            }
            if host.contains(':') {
                return wrong("an IPv6 address goes in brackets: [::1]:7400");
            }
            if host.contains(|c: char| c.is_whitespace() || c == '/' || c == '[' || c == ']') {
                return wrong(
                    "this is no host name: host:port is wanted, without a scheme or a path",
                );
            }
            match port.parse::<u16>() {
                Ok(port) => port,
                Err(_) => return wrong("the port is no number from 0 to 65535"),
            }
        }
    };
    if port == 0 && !zero_allowed {
        return wrong("port 0 cannot be dialled");
    }
    Ok(())
}

/// Why [`MemberBuilder::join`] failed. This process is no member, and its port is free.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The cluster's name is empty or too long. Nothing was done.
    #[error("a cluster name must have 1 to 64 bytes, not {length}")]
    InvalidCluster {
        /// Its length in bytes.
        length: usize,
    },
    /// An address cannot be understood. Nothing was done.
    #[error("{what} address {given:?}: {why}")]
    InvalidAddress {
        /// Which: "bind", "advertise" or "seed".
        what: &'static str,
        /// As given.
        given: String,
        /// The defect.
        why: &'static str,
    },
    /// Neither seeds nor the order to found. Nothing was done.
    #[error(
        "no seeds: name at least one member with seeds([\"host:port\"]), \
         or start a new cluster with found() or with a \
         seed list that names only this member"
    )]
    NoSeeds,
    /// The times do not fit together. Nothing was done.
    #[error(transparent)]
    InvalidTiming(#[from] InvalidTiming),
    /// The council's size is out of range. Nothing was done.
    #[error("a council has 1 to 31 members, not {given}")]
    InvalidCouncil {
        /// As given.
        given: u8,
    },
    /// A founding of no members is expected. Nothing was done.
    #[error("expect() is at least 1, the member itself: leave it out to found with all seeds")]
    ZeroExpected,
    /// Both [`found`](MemberBuilder::found) and [`expect`](MemberBuilder::expect) were given.
    /// Nothing was done.
    #[error("found() founds alone, and expect() wants {expected} members: give one of them")]
    FoundsAlone {
        /// As given.
        expected: usize,
    },
    /// The join limit is zero. Nothing was done.
    #[error("the join limit is zero: give join_limit() more time, or leave it out for 30 s")]
    ZeroLimit,
    /// A thread would stay awake for too long. Nothing was done.
    #[error("busy_poll is at most 1ms, not {given:?}")]
    LongBusyPoll {
        /// As given.
        given: Duration,
    },
    /// Both a keyring and [`insecure`](MemberBuilder::insecure) were given. Nothing was done.
    #[error("insecure() is for a cluster without a key, and a keyring was given: give one of them")]
    InsecureWithKey,
    /// The keyring has a key of a role that is no member's. Nothing was done.
    #[error("the keyring has an {role} key, which {}: give a cluster key", .role.allows())]
    RoleKey {
        /// The role.
        role: Role,
    },
    /// Not called from within a tokio runtime. Nothing was done.
    #[error("{}", QueryError::NoRuntime)]
    NoRuntime,
    /// [`blocking::join`](crate::blocking::join) could not start the member's thread. Nothing was
    /// done.
    #[error("no thread could be started for the member: {0}")]
    NoThread(#[source] io::Error),
    /// The operating system gave no random bytes to name this process by. Nothing was done.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// The address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directory cannot be used. Nothing in it was changed.
    #[error("data directory {}: {why}", path.display())]
    DataDir {
        /// As given.
        path: PathBuf,
        /// The defect.
        #[source]
        why: DataDirError,
    },
    /// The cluster's tokens are more than an hour above the limit that this machine's clock allows,
    /// so one of the two clocks is wrong.
    #[error(
        "the tokens of cluster '{cluster}' are {ahead:?} ahead of this machine's clock, \
         and at most an hour is allowed: \
         set the clock of this machine, or of the one that founded the cluster"
    )]
    Clock {
        /// The cluster's name.
        cluster: String,
        /// How far ahead.
        ahead: Duration,
    },
    /// No cluster took this member in within the join limit, and none could be founded.
    #[error(
        "{}",
        NoCluster { cluster, waited: *waited, needed: *needed, answered, missing, unresolved }
    )]
    NoCluster {
        /// The cluster's name.
        cluster: String,
        /// The join limit.
        waited: Duration,
        /// How many members must be there to found, if this member is a seed: all seeds, and at
        /// least as many as it [expects](MemberBuilder::expect). Otherwise 1: any member of a
        /// running cluster.
        needed: usize,
        /// Seeds that answered, and their answers.
        answered: Vec<(SocketAddr, String)>,
        /// Seeds that did not, and why as far as it is known.
        missing: Vec<(SocketAddr, String)>,
        /// Names of seeds that do not resolve, and why. While there are any, this member founds
        /// nothing.
        unresolved: Vec<(String, String)>,
    },
}

impl JoinError {
    /// Whether the join limit was reached. Trying again may help.
    pub fn is_timeout(&self) -> bool {
        matches!(self, JoinError::NoCluster { .. })
    }
}

/// The wait of a process that joins, as it is logged.
struct Waiting {
    /// The least number of founders.
    expected: usize,
    /// Processes that seek too, itself included.
    founders: usize,
    /// The number of seeds.
    all: usize,
    /// Seeds that have not answered, and why.
    missing: Vec<String>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { expected, founders, all, missing } = self;
        let named = match missing.get(..MOST_SEEDS) {
            Some(some) if missing.len() > MOST_SEEDS => format!("{}, ...", some.join(", ")),
            _ => missing.join(", "),
        };
        let waited = missing.len();
        match expected.saturating_sub(*founders) {
            0 if waited == 0 => {
                write!(f, "all {all} seeds answer, waiting for an elder with a quorum")
            }
            0 => write!(f, "waiting for {waited} of {all} seeds: {named}"),
            more if waited == 0 => {
                write!(f, "waiting for {more} of {expected} members: no more seeds are known")
            }
            more => write!(f, "waiting for {more} of {expected} members, of these seeds: {named}"),
        }
    }
}

/// The text of [`JoinError::NoCluster`].
struct NoCluster<'a> {
    cluster: &'a str,
    waited: Duration,
    needed: usize,
    answered: &'a [(SocketAddr, String)],
    missing: &'a [(SocketAddr, String)],
    unresolved: &'a [(String, String)],
}

impl fmt::Display for NoCluster<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.answered.len() + self.missing.len() + self.unresolved.len();
        write!(f, "no cluster '{}' within {:?}: ", self.cluster, self.waited)?;
        if all == 0 {
            return f.write_str("there are no seeds");
        }
        write!(f, "{} of {all} seeds answered", self.answered.len())?;
        list(f, " (", self.answered)?;
        list(f, ", missing (", self.missing)?;
        list(f, ", unknown (", self.unresolved)?;
        if self.needed > all {
            write!(
                f,
                "; it takes {} members to found a cluster together, as expect() says, and no more \
                 seeds are known; or one member of a running cluster that has an elder",
                self.needed
            )
        } else if self.needed > 1 {
            write!(
                f,
                "; it takes all {} seeds to found a cluster together, \
                 or one member of a running cluster that has an \
                 elder; found() starts one without those missing",
                self.needed
            )
        } else {
            f.write_str(
                "; it takes one member of a running cluster that has an elder, \
                 this member is no seed itself",
            )
        }
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    entries: &[(impl fmt::Display, String)],
) -> fmt::Result {
    for (index, (addr, text)) in entries.iter().enumerate() {
        write!(f, "{}{addr}: {text}", if index == 0 { open } else { ", " })?;
    }
    if entries.is_empty() { Ok(()) } else { f.write_str(")") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_are_taken() {
        for good in ["127.0.0.1:7400", "[::1]:7400", "seed.example:7400", "localhost:1"] {
            address("seed", good, false).unwrap();
        }
        address("bind", "127.0.0.1:0", true).unwrap();
    }

    #[test]
    fn bad_addresses_say_what_is_wrong() {
        for (bad, why) in [
            ("127.0.0.1", "no port"),
            ("", "no port"),
            (":7400", "no host"),
            ("::1:7400:x", "brackets"),
            ("http://seed:7400", "brackets"),
            ("a b:7400", "no host name"),
            ("seed:70000", "no number"),
            ("seed:", "no number"),
            ("seed:0", "port 0"),
        ] {
            let error = address("seed", bad, false).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn the_error_of_a_join_names_the_answering_seeds_and_the_number_needed() {
        let addr = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let error = JoinError::NoCluster {
            cluster: "shop".into(),
            waited: Duration::from_secs(30),
            needed: 3,
            answered: vec![(addr(1), "this member".into()), (addr(2), "seeking too".into())],
            missing: vec![(addr(3), "connection refused".into())],
            unresolved: Vec::new(),
        };
        let text = error.to_string();
        assert!(text.starts_with(
            "no cluster 'shop' within 30s: 2 of 3 seeds answered (127.0.0.1:1: this member, "
        ));
        assert!(
            text.contains("missing (127.0.0.1:3: connection refused); it takes all 3 seeds"),
            "{text}"
        );
        assert!(error.is_timeout());
    }

    #[test]
    fn the_error_of_a_join_names_the_number_of_members_expected() {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let error = JoinError::NoCluster {
            cluster: "shop".into(),
            waited: Duration::from_secs(30),
            needed: 3,
            answered: vec![(addr, "this member".into())],
            missing: Vec::new(),
            unresolved: Vec::new(),
        };
        let text = error.to_string();
        assert!(text.contains("1 of 1 seeds answered"), "{text}");
        assert!(
            text.contains("; it takes 3 members to found a cluster together, as exp"),
            "{text}"
        );
    }

    #[test]
    fn the_log_of_a_join_names_the_number_of_members_awaited() {
        let text = |expected, founders, missing: &[&str]| {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            Waiting { expected, founders, all: 1 + missing.len(), missing }.to_string()
        };
        assert_eq!(text(3, 1, &[]), "waiting for 2 of 3 members: no more seeds are known");
        assert_eq!(text(3, 1, &["a:1"]), "waiting for 2 of 3 members, of these seeds: a:1");
        assert_eq!(text(2, 2, &["a:1", "b:1"]), "waiting for 2 of 3 seeds: a:1, b:1");
        assert_eq!(text(1, 1, &[]), "all 1 seeds answer, waiting for an elder with a quorum");
        assert!(text(1, 1, &["a"; 8]).ends_with("9 seeds: a, a, a, a, a, a, a, a"));
        assert!(text(1, 1, &["a"; 9]).ends_with("10 seeds: a, a, a, a, a, a, a, a, ..."));
    }

    #[tokio::test]
    async fn a_wrong_setting_is_reported_before_anything_is_done() {
        let good = || Member::builder("shop").bind("127.0.0.1:0").seeds(["127.0.0.1:7400"]);
        let errors = [
            Member::builder("").found().join().await,
            Member::builder("x".repeat(65)).found().join().await,
            good().bind("nowhere").join().await,
            good().advertise("10.0.0.5:0").join().await,
            good().seeds(["seed"]).join().await,
            good().seeds([""; 0]).join().await,
            good().timing(Timing { beat: Duration::ZERO, ..Timing::lan() }).join().await,
            good().council(0).join().await,
            good().council(32).join().await,
            good().expect(0).join().await,
            good().found().expect(2).join().await,
            good().join_limit(Duration::ZERO).join().await,
            good().busy_poll(Duration::from_micros(1001)).join().await,
        ];
        let texts: Vec<String> =
            errors.into_iter().map(|error| error.unwrap_err().to_string()).collect();
        let expected = [
            "64 bytes, not 0",
            "64 bytes, not 65",
            "bind address",
            "advertise address",
            "seed address",
            "no seeds",
            "beat is at least",
            "not 0",
            "not 32",
            "expect() is at least 1",
            "expect() wants 2 members",
            "limit is zero",
            "not 1.001ms",
        ];
        for (text, expected) in texts.iter().zip(expected) {
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn outside_a_runtime_there_is_an_error_and_no_panic() {
        let mut join = Box::pin(Member::builder("shop").found().join());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(result) = join.as_mut().poll(&mut context) else {
            panic!("waits")
        };
        assert!(matches!(result, Err(JoinError::NoRuntime)));
    }
}
