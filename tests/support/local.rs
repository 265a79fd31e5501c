//! Several members in the test's own process, with sockets on the loopback interface.

use elderlock::{BindError, JoinError, LockService, Member, View};
use std::future::IntoFuture;
use std::time::Duration;
use tokio::runtime::Runtime;

#[path = "leases.rs"]
pub(crate) mod leases;
#[path = "poll.rs"]
mod poll;
#[path = "ports.rs"]
pub(crate) mod ports;
pub(crate) use leases::Leases;
#[allow(unused_imports, reason = "each test file uses a part of it")]
pub(crate) use poll::{poll_a_wait_then_drop, poll_k_then_drop, poll_once};

/// A guard against hangs, far above the time of any step here.
pub(crate) const HANG: Duration = Duration::from_secs(120);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Members that are in one view. Each has a runtime of its own, so that a test can kill it.
pub(crate) struct Local {
    pub(crate) members: Vec<Member>,
    runtimes: Vec<Option<Runtime>>,
}

impl Local {
    /// `count` members in one view, for tests that kill none of them.
    pub(crate) async fn start(count: usize) -> Local {
        Local::start_with(count, Leases::Long).await
    }

    /// Like [`Local::start`], for tests that kill a member and wait until its lease is over.
    pub(crate) async fn start_mortal(count: usize) -> Local {
        Local::start_with(count, Leases::Short).await
    }

    /// Like [`Local::start`], with these leases.
    pub(crate) async fn start_with(count: usize, leases: Leases) -> Local {
        let local = loop {
            // A port that was free a moment ago may be taken by now: try once more with others.
            if let Some(local) = join(
                &ports::free(count).iter().map(ToString::to_string).collect::<Vec<_>>(),
                leases,
            )
            .await
            {
                break local;
            }
        };
        local.agree(count).await;
        local
    }

    /// Handles of one service at all members.
    pub(crate) async fn services(&self, name: &str) -> Vec<LockService> {
        let mut services = Vec::new();
        for member in &self.members {
            services.push(member.lock_service(name).await.expect("a good name"));
        }
        services
    }

    /// Ends a member in the middle of any work, without a goodbye. The others notice when its lease
    /// has run out.
    pub(crate) fn kill(&mut self, index: usize) {
        self.runtimes[index].take().expect("it was not killed before").shutdown_background();
    }

    /// Returns the members that were not killed.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .zip(&self.runtimes)
            .filter(|(_, runtime)| runtime.is_some())
            .map(|(member, _)| member)
    }

    /// Waits until all living members are in one view of `count` members, each with a vote.
    pub(crate) async fn agree(&self, count: usize) {
        until(|| self.alive().all(|member| sees(member, count))).await;
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        for runtime in self.runtimes.iter_mut().filter_map(Option::take) {
            runtime.shutdown_background();
        }
    }
}

fn sees(member: &Member, count: usize) -> bool {
    let status = member.status();
    // A view with learners has fewer voters, and may have too few after a kill.
    let is_whole = |view: &View| view.members.len() == count && view.has_promoted_all();
    status.leased && status.view.is_some_and(|view| is_whole(&view))
}

/// Members at these addresses, of one cluster. `None` if an address is taken.
///
/// The first one founds the cluster alone, and the others join it one by one. Seeds that found
/// together would first listen for a quarter of a member lease.
async fn join(addrs: &[String], leases: Leases) -> Option<Local> {
    let mut local = Local { members: Vec::new(), runtimes: Vec::new() };
    for addr in addrs {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let builder = Member::builder("local").bind(addr).timing(leases.timing()).seeds(addrs);
        let builder = builder.join_limit(HANG);
        let builder = if local.members.is_empty() { builder.found() } else { builder };
        match runtime.spawn(builder.join()).await.expect("no panic") {
            Ok(member) => {
                local.members.push(member);
                local.runtimes.push(Some(runtime));
            }
            Err(error) => {
                runtime.shutdown_background();
                assert!(matches!(error, JoinError::Bind(BindError::Taken { .. })), "{error}");
                return None;
            }
        }
    }
    Some(local)
}

/// Waits until the condition holds.
pub(crate) async fn until(mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(MS).await;
        }
    };
    tokio::time::timeout(HANG, wait).await.expect("it never came");
}

/// Awaits a future that has to complete within [`HANG`].
pub(crate) async fn soon<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(HANG, what.into_future()).await.expect("it never came")
}

/// The numbers of holds and of waiting requests of a member, in all services.
pub(crate) fn left_over(member: &Member) -> (usize, usize) {
    let services = member.status().services;
    let held = services.iter().map(|service| service.held_here).sum();
    let waiting = services.iter().map(|service| service.waiting_here).sum();
    (held, waiting)
}

/// Like [`left_over`], with the number of objects that the member has open.
pub(crate) fn left_open(member: &Member) -> (usize, usize, usize) {
    let (held, waiting) = left_over(member);
    (held, waiting, member.status().services.iter().map(|service| service.open_here).sum())
}

/// Waits until no member holds, requests or has open anything.
pub(crate) async fn nothing_is_left(local: &Local) {
    until(|| local.members.iter().all(|member| left_open(member) == (0, 0, 0))).await;
}
