//! Several members in the test's own process, with sockets on the loopback interface.

use elderlock::{BindError, JoinError, LockService, Member, Timing};
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

#[path = "poll.rs"]
mod poll;
#[path = "ports.rs"]
pub(crate) mod ports;
#[allow(unused_imports, reason = "each test file uses a part of it")]
pub(crate) use poll::{poll_a_wait_then_drop, poll_k_then_drop, poll_once};

/// A guard against hanging, far above the time of any step here.
pub(crate) const HANG: Duration = Duration::from_secs(120);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// On a busy machine a grantor that is there may take long to answer a try or a question. One that
/// is not is waited for as long.
const TIMING: Timing = Timing { answer: Timing::fast().member_lease, ..Timing::fast() };

/// Members that are in one view. Each has a runtime of its own, so that it can be killed.
pub(crate) struct Local {
    pub(crate) members: Vec<Member>,
    runtimes: Vec<Option<Runtime>>,
}

impl Local {
    /// `count` members in one view.
    pub(crate) async fn start(count: usize) -> Local {
        Local::start_with(count, TIMING).await
    }

    /// The same, with other leases: long ones for tests in which no member dies, on a busy machine.
    pub(crate) async fn start_with(count: usize, timing: Timing) -> Local {
        let local = loop {
            // A port that was free a moment ago may be taken by now: once more with others then.
            if let Some(local) = join(
                &ports::free(count).iter().map(ToString::to_string).collect::<Vec<_>>(),
                timing,
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

    /// Ends a member in the middle of any work, without a goodbye. The others find out when its
    /// lease has run out.
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

    /// Waits until they are in one view of `count` members.
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
    status.leased && status.view.is_some_and(|view| view.members.len() == count)
}

/// Members at these addresses that found a cluster; none if an address is taken.
async fn join(addrs: &[String], timing: Timing) -> Option<Local> {
    let mut joins = JoinSet::new();
    for (index, addr) in addrs.iter().enumerate() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let builder = Member::builder("local").bind(addr).timing(timing).seeds(addrs);
        let joined = runtime.spawn(builder.join());
        joins.spawn(async move { (index, joined.await.expect("no panic"), runtime) });
    }
    let mut parts = BTreeMap::new();
    let mut taken = false;
    while let Some(joined) = joins.join_next().await {
        match joined.expect("no panic") {
            (index, Ok(member), runtime) => _ = parts.insert(index, (member, Some(runtime))),
            (_, Err(JoinError::Bind(BindError::Taken { .. })), runtime) => {
                runtime.shutdown_background();
                taken = true;
            }
            (_, Err(error), _) => panic!("{error}"),
        }
    }
    let (members, runtimes) = parts.into_values().unzip();
    let local = Local { members, runtimes };
    (!taken).then_some(local)
}

/// Waits until it is so.
pub(crate) async fn until(mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(MS).await;
        }
    };
    tokio::time::timeout(HANG, wait).await.expect("it never came");
}

/// Awaits something that has to come.
pub(crate) async fn soon<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(HANG, what.into_future()).await.expect("it never came")
}

/// Requests that wait and holds, of all services, as a member that has asked for them sees it.
pub(crate) fn left_over(member: &Member) -> (usize, usize) {
    let services = member.status().services;
    let held = services.iter().map(|service| service.held_here).sum();
    let waiting = services.iter().map(|service| service.waiting_here).sum();
    (held, waiting)
}

/// The same, with the objects that it has open.
pub(crate) fn left_open(member: &Member) -> (usize, usize, usize) {
    let (held, waiting) = left_over(member);
    (held, waiting, member.status().services.iter().map(|service| service.open_here).sum())
}

/// Waits until no member holds, wants or has open anything.
pub(crate) async fn nothing_is_left(local: &Local) {
    until(|| local.members.iter().all(|member| left_open(member) == (0, 0, 0))).await;
}
