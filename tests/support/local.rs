//! Several members in the test's own process, with sockets on the loopback interface.

use elderlock::{BindError, JoinError, LockService, Member, Timing};
use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::net::{TcpListener, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// A guard against hanging, far above what anything takes here.
pub(crate) const HANG: Duration = Duration::from_secs(60);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Members that are in one view. Each has a runtime of its own, so that it can be killed.
pub(crate) struct Local {
    pub(crate) members: Vec<Member>,
    runtimes: Vec<Option<Runtime>>,
}

impl Local {
    /// So many members in one view.
    pub(crate) async fn start(count: usize) -> Local {
        let local = loop {
            // A port that was free a moment ago may be taken by now: once more with others then.
            if let Some(local) = join(&(0..count).map(|_| free_addr()).collect::<Vec<_>>()).await {
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

    /// Ends a member in the middle of whatever it does, without a goodbye. The others find out when its lease has run out.
    pub(crate) fn kill(&mut self, index: usize) {
        self.runtimes[index].take().expect("it was not killed before").shutdown_background();
    }

    /// Waits until those that were not killed are in one view of so many.
    pub(crate) async fn agree(&self, count: usize) {
        let alive = || self.members.iter().zip(&self.runtimes).filter(|(_, runtime)| runtime.is_some());
        until(|| alive().all(|(member, _)| sees(member, count))).await;
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

/// An address that is free for both protocols.
fn free_addr() -> String {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        let addr = listener.local_addr().expect("it is bound");
        if UdpSocket::bind(addr).is_ok() {
            return addr.to_string();
        }
    }
}

/// Members at these addresses that found a cluster; none if an address is taken.
async fn join(addrs: &[String]) -> Option<Local> {
    let mut joins = JoinSet::new();
    for (index, addr) in addrs.iter().enumerate() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let builder = Member::builder("local").bind(addr).timing(Timing::fast()).seeds(addrs);
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

/// Polls once, without anybody to be woken.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Makes the future, polls it `k` times and drops it, for every `k` until it completes; `after` each. The `k` it took.
pub(crate) async fn poll_k_then_drop<F: Future>(
    mut make: impl AsyncFnMut() -> F,
    mut after: impl AsyncFnMut(usize),
) -> usize {
    for k in 0.. {
        let mut done = false;
        {
            let mut future = std::pin::pin!(make().await);
            for _ in 0..k {
                if poll_once(future.as_mut()).is_ready() {
                    done = true;
                    break;
                }
                // Lets timers and other tasks bring the future on, so that it completes for some k.
                tokio::time::sleep(MS).await;
            }
        }
        after(k).await;
        if done {
            return k;
        }
    }
    unreachable!()
}
