//! `MemberBuilder`: the configuration of a member. The checks of its options, the join and the
//! member without a network have files of their own.

mod check;
mod join;
mod local_member;
mod network_inbox;

use super::member::{MAX_SERVICES, Member};
use crate::protocol::{Config, Limits, LinkLimits, MemberInfo, Timing};
#[cfg(feature = "http")]
use crate::service::http::{HttpView, MemberSlot};
#[cfg(feature = "secure")]
use crate::wire::secure::Keyring;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "simulated")]
pub(super) use join::until_ready;

/// The default size of the council: large enough for three losses, small enough to ask.
const COUNCIL: u8 = 7;

/// The default limit of busy polling: about the cost of letting a thread sleep, and of waking it.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// The default of the bytes that may wait for strangers.
const STRANGER_MEMORY: usize = 64 * 1024 * 1024;

/// The most locks of a service that a member can be told to [keep](MemberBuilder::kept_locks).
pub const MAX_KEPT_LOCKS: usize = 1 << 16;

/// Configures a member, from [`Member::builder`]. Needs an address to [bind](MemberBuilder::bind),
/// and [seeds](MemberBuilder::seeds) or the order to [found](MemberBuilder::found).
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `join` is awaited"]
pub struct MemberBuilder {
    cluster: String,
    bind: String,
    advertise: Option<String>,
    name: Option<String>,
    seeds: Vec<String>,
    timing: Timing,
    council: u8,
    found: bool,
    /// The number given to `expect`; `None`: 1.
    expect: Option<usize>,
    insecure: bool,
    trust_refused: bool,
    forced_revokes: bool,
    serves_sessions: bool,
    data_dir: Option<PathBuf>,
    force: bool,
    join_limit: Duration,
    busy_poll: Duration,
    stranger_memory: usize,
    max_services: usize,
    kept_locks: u32,
    #[cfg(feature = "secure")]
    keyring: Option<Keyring>,
    /// The view that shows the member while it joins, if there is one.
    #[cfg(feature = "http")]
    shown: std::sync::Weak<MemberSlot>,
}

impl Member {
    /// Begins the configuration of a member of the cluster `cluster`: 1 to 64 bytes, the same for
    /// all members.
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
}

impl MemberBuilder {
    fn new(cluster: String) -> Self {
        MemberBuilder {
            cluster,
            bind: "127.0.0.1:0".into(),
            advertise: None,
            name: None,
            seeds: Vec::new(),
            timing: Timing::default(),
            council: COUNCIL,
            found: false,
            expect: None,
            insecure: false,
            trust_refused: false,
            forced_revokes: false,
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
            kept_locks: Limits::DEFAULT.link.kept_locks,
            #[cfg(feature = "secure")]
            keyring: None,
            #[cfg(feature = "http")]
            shown: std::sync::Weak::new(),
        }
    }

    /// Sets the address to listen on, `host:port`, for TCP and UDP. Port 0 takes a free one (then
    /// no seed list can name this member). Default: a free port of 127.0.0.1. An address outside
    /// the loopback needs a keyring, or [`insecure`](MemberBuilder::insecure).
    pub fn bind(mut self, addr: impl Into<String>) -> Self {
        self.bind = addr.into();
        self
    }

    /// Sets the address that other members dial, `host:port`, if it is not the bound one.
    pub fn advertise(mut self, addr: impl Into<String>) -> Self {
        self.advertise = Some(addr.into());
        self
    }

    /// Names this member for people: in the status, beside holders and waiters, and in logs.
    /// 1 to 63 printable ASCII characters without spaces. Default: the name of the host and the
    /// port, such as `db-3:7400`. The protocol does not use it, and it need not be unique.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Member;
    /// let member = Member::builder("shop").name("pod-0").found().join().await?;
    /// assert_eq!(member.name().as_str(), "pod-0");
    /// assert_eq!(member.status().me.name, member.name());
    /// # member.leave().await?;
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the addresses at which to look for the cluster, `host:port` each; replaces earlier
    /// ones. Host names are resolved again each time, and all their addresses are used.
    ///
    /// Seeds that name each other found the cluster together, when all of them are running. A list
    /// that names only this member founds it alone. A member that is not among its seeds never
    /// founds, nor does one while the name of a seed does not resolve.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds = seeds.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the timing of a cluster that this member founds: [`Timing::lan`] unless set. A joining
    /// member adopts the cluster's timing, and logs a warning if that differs.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets how many of the oldest members decide about views, 1 to
    /// [`MAX_COUNCIL`](crate::MAX_COUNCIL); 7 unless set. A joining member adopts the cluster's
    /// number.
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
    /// This call is for seeds that are one host name, such as that of a headless service. A process
    /// that resolves only itself for some seconds then waits for the others and does not found
    /// alone. Give all members the same number, **more than half of the replicas**, best all of
    /// them. Then two foundings always have a member in common, and a process takes part in one
    /// only. At most half of the known seeds is logged as a warning, also if it is 1.
    ///
    /// Zero, and more than 1 beside [`found`](MemberBuilder::found), are errors of
    /// [`join`](MemberBuilder::join). [`force`](MemberBuilder::force) ignores the number.
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
        self.expect = Some(members);
        self
    }

    /// Sets the cluster's keys. This member speaks only to processes that have one of them:
    /// connections and gossip are sealed, and each process proves its id. All members have keys, or
    /// none has.
    ///
    /// Without a keyring every process that reaches the port can be a member. On loopback these are
    /// all local users.
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

    /// Allows addresses outside loopback without a key: every process that reaches the port can be
    /// a member. Orders of operators and [sessions](crate::hold_through) of programs are still
    /// accepted from the member's own host only: from another host they need a keyring. Beside a
    /// keyring this is an error.
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Vouches that a member whose address refuses connections is dead, here and on every machine
    /// of the cluster. Its locks are then granted to other members at once instead of after its
    /// lease. Wrong where a firewall may answer for a living process.
    ///
    /// One member that is refused is not enough. A second member must be refused as well, or not
    /// reach it, and no member may hear it meanwhile. So a view of two members gains nothing. If
    /// another process answers at the address, as after a restart, that is not a refusal. The
    /// former member's lease is waited for, unless its death is vouched for.
    pub fn trust_refused(mut self, trust: bool) -> Self {
        self.trust_refused = trust;
        self
    }

    /// Sets whether an operator may revoke a lock of this member that was not requested as
    /// [revocable](crate::LockBuilder::revocable): by
    /// [`force_revoke_as`](crate::LockService::force_revoke_as), or by `elderlock revoke --force`.
    /// `false` by default. The member then loses the lock as it does by a revocation: its guards
    /// fail first. [`MemberEvent::ForcedRevoke`](crate::MemberEvent::ForcedRevoke) names the
    /// operator. Each member has its own setting, and members of one cluster may differ.
    pub fn forced_revokes(mut self, allow: bool) -> Self {
        self.forced_revokes = allow;
        self
    }

    /// Sets the directory in which this member keeps its vote on the next view, so that the vote
    /// outlives the process. Each member needs a directory of its own, on a file system with
    /// working locks. A missing directory is made.
    ///
    /// With directories a restart of all members continues where the cluster ended. The members
    /// find together again, tokens rise, and no lock is granted before the leases of the former
    /// processes are surely over. Without them a restart of all members founds anew. Changes of
    /// views write to the directory and wait for that; locks never do.
    ///
    /// Never restore an older copy of the directory, and never give a copy to a second member: it
    /// would vote twice.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Declares, as the operator, that every member of the last cluster that does not answer is
    /// dead for ever, and continues without a quorum. The member founds anew, above the last view
    /// that its data directory knows. For when too many members or directories are lost. If a
    /// member that was declared dead lives nevertheless, both sides may hold the same lock until
    /// they meet. Then the later founding continues, and the members of the other one lose their
    /// holds.
    ///
    /// The process first asks its seeds, and the members that its data directory knows, for a
    /// quarter of a member lease. If a member of a cluster that has an elder with a quorum answers,
    /// the join fails with [`JoinError::QuorumLives`](crate::JoinError::QuorumLives): start without
    /// `force` then. Name all members as seeds, so that each can answer. A forced founding logs the
    /// view that it gives up as a warning.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// The longest time that [`join`](MemberBuilder::join) may take: 30 s unless set, more than
    /// zero.
    pub fn join_limit(mut self, limit: Duration) -> Self {
        self.join_limit = limit;
        self
    }

    /// How long a thread busy-polls for the next messages of other members, from zero, which is
    /// never, to [`MAX_BUSY_POLL`](crate::MAX_BUSY_POLL). Unless set it is 50 µs, about the cost of
    /// letting a thread sleep and of waking it. It is zero where the process has one processor
    /// only.
    ///
    /// The poll that asks another member for a lock busy-polls for the answer before it is pending.
    /// When the grantor's reading task has answered a question, it busy-polls for the next one. On
    /// a fast network most answers come within that time, and a lock takes half as long. On a
    /// slower one fewer polls are tried, down to one in 256. Meanwhile the thread does nothing
    /// else. Set this time to zero if the thread's other tasks cannot wait for so long, or if each
    /// microsecond of a processor counts. [`counters`](Member::counters) shows how often polls
    /// succeed.
    ///
    /// Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning" (SOSP 1991); Linux:
    /// `SO_BUSY_POLL`.
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.busy_poll = limit;
        self
    }

    /// The most bytes that are kept for processes outside the view, over all of them: 64 MiB by
    /// default. Half of it is for frames that wait to be written. Beyond that half the frames of
    /// the process with the most bytes are dropped, and questions for the status are refused. The
    /// other half is for incomplete frames: beyond it the connection with the longest one is
    /// closed. A joining process repeats its lost messages.
    pub fn stranger_memory(mut self, bytes: usize) -> Self {
        self.stranger_memory = bytes;
        self
    }

    /// Sets whether programs that are not members may hold locks through this member: by
    /// [`hold_through`](crate::hold_through), or by `elderlock lock`. `false` by default. Such a
    /// program may live on when this process is killed. So other members grant the locks of this
    /// process, and replace it as a grantor, only when its member lease has ended. Without sessions
    /// they do both at once when a process of the same host has seen its death.
    pub fn serve_sessions(mut self, serve: bool) -> Self {
        self.serves_sessions = serve;
        self
    }

    /// The most lock services of this member, [`MAX_SERVICES`] by default. A call of
    /// [`lock_service`](Member::lock_service) for one more fails. Other members keep the names of
    /// services too. So a service for each key or for each user is a mistake: locks cost nothing
    /// once they are idle. A number above 262,144 counts as that: the elder keeps no more names for
    /// one member.
    pub fn max_services(mut self, count: usize) -> Self {
        self.max_services = count.min(Limits::DEFAULT.link.names as usize);
        self
    }

    /// The most locks of each service that this member [keeps](crate::LockService::keep_locks)
    /// after their release, 1,024 by default. With 0 it keeps none. Each costs some hundred bytes
    /// here, and a hold at its grantor. A number above [`MAX_KEPT_LOCKS`] counts as that.
    pub fn kept_locks(mut self, count: usize) -> Self {
        self.kept_locks = count.min(MAX_KEPT_LOCKS) as u32;
        self
    }

    /// The HTTP view of the member that this builder joins. It may serve before the join begins:
    /// `/live` answers 200, and `/ready` answers 503 with the seeds or members that the member
    /// waits for. Events are shown from the start. When the join fails or is dropped, both answer
    /// 503 and `over`. Of several members that clones of the builder join, it shows the one whose
    /// join began last. A later call replaces the view.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Member;
    /// let mut builder = Member::builder("shop").found();
    /// let view = builder.http_view();
    /// let served = tokio::spawn(view.serve("127.0.0.1:0".parse()?, |addr| println!("{addr}")));
    /// let member = builder.join().await?;
    /// member.leave().await?;
    /// served.abort();
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "http")]
    #[cfg_attr(docsrs, doc(cfg(feature = "http")))]
    pub fn http_view(&mut self) -> HttpView {
        let slot = MemberSlot::starting();
        self.shown = std::sync::Arc::downgrade(&slot);
        HttpView::of_slot(slot)
    }

    /// The least number of founders.
    fn expected(&self) -> usize {
        self.expect.unwrap_or(1)
    }

    pub(super) fn config(&self, me: MemberInfo, seeds: BTreeSet<SocketAddr>) -> Config {
        let link = LinkLimits { kept_locks: self.kept_locks, ..Limits::DEFAULT.link };
        Config {
            council_size: self.council,
            seeds,
            found_alone: self.found,
            forced_start: self.force,
            expect: self.expected(),
            trust_refused: self.trust_refused,
            forced_revokes: self.forced_revokes,
            limits: Limits { link, ..Limits::DEFAULT },
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_keeps_as_many_locks_as_it_is_told_up_to_a_limit() {
        let kept = |count| Member::builder("shop").kept_locks(count).kept_locks;
        assert_eq!([0, 7, MAX_KEPT_LOCKS, usize::MAX].map(kept), [0, 7, 1 << 16, 1 << 16]);
        assert_eq!(Member::builder("shop").kept_locks, 1024);
    }

    #[test]
    fn a_member_uses_no_more_services_than_an_elder_keeps_names_for_one_member() {
        let most = Limits::DEFAULT.link.names as usize;
        let used = |count| Member::builder("shop").max_services(count).max_services;
        assert_eq!([1, most, most + 1, usize::MAX].map(used), [1, most, most, most]);
    }
}
