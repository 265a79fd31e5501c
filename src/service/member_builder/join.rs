//! The start of a member: it listens, opens its data directory, and waits for its first view.

use super::MemberBuilder;
use super::network_inbox::NetworkInbox;
use crate::protocol::{
    InvalidMemberName, LedMember, MAX_MEMBER_NAME, MemberInfo, MemberName, Status, Timing, View,
    VoteSecret,
};
use crate::runtime::disk::Disk;
use crate::runtime::engine::{Engine, EngineClosed, EngineOptions};
use crate::runtime::member_clock::MemberClock;
use crate::runtime::net::death_watch;
use crate::runtime::net::timeouts::ConnectionTimeouts;
use crate::runtime::net::transport::{Transport, TransportOptions};
use crate::runtime::network::Network;
use crate::runtime::process_id::draw_vote_secret;
use crate::runtime::vote_writer::VoteStorage;
#[cfg(feature = "http")]
use crate::service::http::MemberSlot;
use crate::service::join_error::JoinError;
use crate::service::member::Member;
use crate::service::waiting::Waiting;
use crate::wire::VERSIONS;
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle as Runtime;

/// The interval in which a joining process logs the seeds that it waits for.
const WAITING: Duration = Duration::from_secs(3);

impl MemberBuilder {
    /// Joins the cluster, or founds it with the other seeds, and completes when this member may
    /// hold locks. A slow disk under the [data directory](MemberBuilder::data_dir) does not hold up
    /// the runtime: a thread opens the directory.
    ///
    /// # Errors
    /// [`JoinError`]. Nothing is left behind: the port is free again, and no other member counts
    /// this process as a member for longer than its lease.
    ///
    /// # Cancel safety
    /// Dropping the future makes the member leave, in the background. The data directory is free
    /// again as soon as the disk has answered the call under way, and its vote is intact.
    pub async fn join(self) -> Result<Member, JoinError> {
        // The view is told first, so that it shows the failure of any join.
        #[cfg(feature = "http")]
        let shown = self.shown.upgrade().map(MemberSlot::begin);
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
                let opening = Disk::open_in_thread(path.clone(), self.cluster.clone());
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
        let (serves_sessions, name) = (self.serves_sessions, self.member_name(addr)?);
        let me = MemberInfo {
            process,
            addr,
            host,
            vote_key,
            static_key,
            serves_sessions,
            name,
            versions: VERSIONS,
        };
        let mut config = self.config(me.clone(), transport.known_seeds());
        if !transport.has_key() {
            let nonce = SysRng.try_next_u64().map_err(|_| JoinError::NoRandomness)?;
            config.nonce = Some(NonZeroU64::new(nonce).unwrap_or(NonZeroU64::MIN));
        }
        config.vote_secret = vote_secret;
        let stored_view = stored.as_ref().map(|stored| stored.view.clone());
        config.stored = stored;
        let clock = MemberClock::machine();
        let engine = Engine::new(EngineOptions { config, network: transport.clone(), disk, clock });
        let member = Member::with_services(
            self.cluster.clone(),
            engine.clone(),
            Some(transport.clone()),
            self.max_services,
        );
        #[cfg(feature = "http")]
        if let Some(shown) = &shown {
            shown.fill(&member);
        }
        transport.start(Arc::new(NetworkInbox { engine: Arc::downgrade(&engine) }), me);
        engine.start(&runtime, {
            let transport = transport.clone();
            async move { transport.shutdown().await }
        });
        let mut has_warned = self.log_low_expect(&transport);
        loop {
            let left = self.join_limit.saturating_sub(started.elapsed());
            let is_ready = until_ready(&engine, left.min(WAITING)).await;
            // Names may resolve to more seeds by now.
            has_warned = has_warned || self.log_low_expect(&transport);
            if is_ready {
                self.log_surprises(&engine.status(), stored_view);
                #[cfg(feature = "http")]
                if let Some(shown) = shown {
                    shown.keep();
                }
                return Ok(member);
            }
            if left <= WAITING || engine.phase().borrow().closed.is_some() {
                break;
            }
            tracing::info!(target: "elderlock", "joining: {}", Waiting::of(&engine, &transport));
        }
        let error = self.failure(&engine, &transport);
        engine.close(EngineClosed::Unheard);
        let mut phase = engine.phase();
        // Waits until the transport has stopped, so that the port is free when the caller gets the
        // error. The sender lives as long as the engine.
        let _ = phase.wait_for(|phase| phase.stopped).await;
        Err(error)
    }

    /// Why the process did not become a member.
    fn failure(&self, engine: &Engine, transport: &Transport) -> JoinError {
        let cluster = || self.cluster.clone();
        if let Some(ahead) = wrong_clock(engine) {
            return JoinError::Clock { cluster: cluster(), ahead };
        }
        if let Some(led) = engine.refusing_member() {
            let LedMember { info, view, elder, .. } = *led;
            return JoinError::QuorumLives {
                cluster: cluster(),
                member: info.name,
                addr: info.addr,
                view,
                elder: elder.addr,
            };
        }
        match (&self.data_dir, engine.disk_trouble()) {
            (Some(path), Some((kind, reason))) => {
                JoinError::DataDir { path: path.clone(), why: io::Error::new(kind, reason).into() }
            }
            _ => self.no_cluster(engine, transport),
        }
    }

    /// Logs what a forced founding gives up: the view of the data directory, if there was one.
    fn log_forced(now: &View, before: Option<View>) {
        let lineage = now.lineage;
        match before {
            Some(View { lineage: before, number, members, .. }) => tracing::warn!(
                target: "elderlock", %lineage, %before, view = number.0, members = members.len(),
                "forced: founded a new lineage without a quorum, and gave up the view of the data \
                 directory with all locks that were held in it"
            ),
            None => tracing::warn!(
                target: "elderlock", %lineage,
                "forced: founded a new lineage without a quorum; no former view is known here"
            ),
        }
    }

    /// Logs properties of the cluster that its operator may not expect. `stored`: the view that the
    /// data directory had at the start.
    fn log_surprises(&self, status: &Status, stored: Option<View>) {
        let Some(view) = &status.view else { return };
        let has_founded = view.lineage.founder == status.me.process;
        if self.force && has_founded {
            Self::log_forced(view, stored);
        }
        if view.timing != self.timing {
            tracing::warn!(
                target: "elderlock",
                cluster = %TimingWords { timing: &view.timing, other: &self.timing },
                own = %TimingWords { timing: &self.timing, other: &view.timing },
                "the cluster was founded with other times than this member was given; this member \
                 keeps the cluster's"
            );
        }
        // Other processes behind a name may not have resolved yet.
        let names: Vec<&str> = self
            .seeds
            .iter()
            .map(String::as_str)
            .filter(|seed| seed.parse::<SocketAddr>().is_err())
            .collect();
        if view.members.len() == 1 && has_founded && !names.is_empty() && !self.force {
            tracing::warn!(
                target: "elderlock", seeds = names.join(", "),
                "founded alone: the seeds resolve to this member only; if they are to name others, \
                 two clusters may run: give expect() or --expect the number of members"
            );
        }
    }

    /// The configured name, or one made of the host's name and the port.
    fn member_name(&self, addr: SocketAddr) -> Result<MemberName, InvalidMemberName> {
        if let Some(name) = &self.name {
            return MemberName::new(name);
        }
        let port = format!(":{}", addr.port());
        let of_host = host_name().and_then(|mut host| {
            host.truncate(MAX_MEMBER_NAME - port.len());
            MemberName::new(&(host + &port)).ok()
        });
        Ok(of_host.unwrap_or_else(|| MemberName::of_addr(addr)))
    }

    /// Logs an [`expect`](MemberBuilder::expect) with which two groups of seeds may each found.
    /// Returns whether it has logged.
    fn log_low_expect(&self, transport: &Transport) -> bool {
        let seeds = self.seeds.len().max(transport.seeds().len());
        // These found alone at an operator's word, whichever number is expected.
        let is_ordered = self.found || self.force;
        let low = self.expect.filter(|expect| !is_ordered && *expect <= seeds / 2);
        if let Some(expect) = low {
            tracing::warn!(
                target: "elderlock", expect, seeds,
                "expects at most half of its seeds: two groups of them may each found a cluster; \
                 expect more than half"
            );
        }
        low.is_some()
    }

    fn no_cluster(&self, engine: &Engine, transport: &Transport) -> JoinError {
        let me = transport.advertised();
        let mut answered = Vec::new();
        let mut missing = Vec::new();
        for (addr, answer) in engine.seed_report().seeds {
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
            needed: if founder { all.max(self.expected()) } else { 1 },
            unresolved,
            answered,
            missing,
        }
    }
}

/// The times of one timing that differ from another one's, in words. The leases are always told.
struct TimingWords<'a> {
    timing: &'a Timing,
    other: &'a Timing,
}

impl fmt::Display for TimingWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimingWords { timing, other } = self;
        let seconds = |span: Duration| format!("{} s", span.as_secs_f64());
        let (member, elder) = (seconds(timing.member_lease), seconds(timing.elder_lease));
        write!(f, "leases of {member} and {elder}")?;
        for (name, span, other) in [
            ("beat", timing.beat, other.beat),
            ("retry", timing.retry, other.retry),
            ("stagger", timing.stagger, other.stagger),
            ("answer", timing.answer, other.answer),
        ] {
            if span != other {
                write!(f, ", {name} of {}", seconds(span))?;
            }
        }
        if timing.clock_error_ppm != other.clock_error_ppm {
            write!(f, ", clock error of {} ppm", timing.clock_error_ppm)?;
        }
        Ok(())
    }
}

pub(in crate::service) async fn until_ready(engine: &Engine, limit: Duration) -> bool {
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

/// The name of this host, if the system has one of ASCII characters.
fn host_name() -> Option<String> {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").ok()?;
    (!name.is_empty() && name.is_ascii()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_words_and_only_leases_if_they_are_equal() {
        let (lan, fast) = (Timing::lan(), Timing::fast());
        let text = |timing, other| TimingWords { timing, other }.to_string();
        assert_eq!(text(&lan, &lan), "leases of 5 s and 2 s");
        assert_eq!(
            text(&fast, &lan),
            "leases of 2.5 s and 1 s, beat of 0.12 s, retry of 0.08 s, stagger of 0.02 s, \
             answer of 0.25 s"
        );
        let exact = Timing { clock_error_ppm: 500, ..lan };
        assert_eq!(text(&exact, &lan), "leases of 5 s and 2 s, clock error of 500 ppm");
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
