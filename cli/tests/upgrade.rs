//! A rolling upgrade of real processes under load. Five members of the release before are replaced
//! one by one, with their data directories. One of them is downgraded in between. No lock fails,
//! and no hold through a remaining member is lost. `.ci/run upgrade` builds the release before and
//! gives its command in `ELDERLOCK_OLDER`.
#![cfg(unix)]

#[path = "support/running.rs"]
mod running;

use elderlock::wire::{PROTOCOL_VERSION, VERSIONS};
use elderlock::{
    LockName, ServiceName, SessionGuard, SessionRequest, View, hold_through, query_status,
};
use running::{Running, free_addr};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of members.
const MEMBERS: usize = 5;
/// The number of locks that the load takes by turns.
const NAMES: usize = 3;
/// A guard against hangs, far above the time of a replacement.
const HANG: Duration = Duration::from_secs(120);

fn request(name: &str) -> SessionRequest {
    let service = ServiceName::new("stock").expect("a good name");
    let name = LockName::new(name.as_bytes()).expect("a good name");
    SessionRequest::new(service, name).wait(Duration::from_secs(60))
}

/// The members at their addresses.
struct Cluster {
    older: PathBuf,
    directory: PathBuf,
    addrs: Vec<String>,
    nodes: Vec<Option<Running>>,
}

impl Cluster {
    fn command(&self, at: usize, is_older: bool) -> Command {
        let today = Path::new(env!("CARGO_BIN_EXE_elderlock"));
        let mut command = Command::new(if is_older { &self.older } else { today });
        command.env_clear().env("PATH", "/usr/bin:/bin").arg("node");
        command.args(["--serve-sessions", "--bind", &self.addrs[at]]);
        command.args(["--seed", &self.addrs.join(",")]);
        command.arg("--data-dir").arg(self.directory.join(at.to_string()));
        let log = File::options().create(true).append(true).open(self.log(at));
        command.stderr(log.expect("it can be written"));
        command
    }

    /// The file with the logs of the members at this address.
    fn log(&self, at: usize) -> PathBuf {
        self.directory.join(format!("{at}.log"))
    }

    /// Asks the member until its view meets the condition, and returns the view.
    async fn until(&self, at: usize, is_so: impl Fn(&View) -> bool) -> View {
        let began = Instant::now();
        loop {
            let view = match query_status(&self.addrs[at], "elderlock").await {
                Ok(status) => status.view.filter(|_| status.leased),
                Err(_) => None,
            };
            if let Some(view) = view.filter(|view| is_so(view)) {
                return view;
            }
            assert!(began.elapsed() < HANG, "m{at} does not see the view");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns whether all members are in the view, with a vote.
    fn is_whole(view: &View) -> bool {
        let is_voter = |member: &elderlock::ViewMember| !member.ghost && !member.learner;
        view.members.len() == MEMBERS && view.members.iter().all(is_voter)
    }

    /// Ends the member with SIGTERM and starts the other release in its place.
    async fn replace(&mut self, at: usize, is_older: bool) {
        let mut node = self.nodes[at].take().expect("it runs");
        let pid = node.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().expect("kill is there").success());
        let ended = tokio::task::spawn_blocking(move || node.child.wait());
        let code = ended.await.expect("no panic").expect("it ends").code();
        assert_eq!(code, Some(0), "m{at} leaves and is heard");
        let mut node = Running::start(&mut self.command(at, is_older));
        node.line_with("joined as");
        self.nodes[at] = Some(node);
        for one in 0..MEMBERS {
            self.until(one, Self::is_whole).await;
        }
    }
}

/// The load through one member. The loads of all members share their locks.
#[derive(Default)]
struct Load {
    is_paused: [AtomicBool; MEMBERS],
    is_idle: [AtomicBool; MEMBERS],
    is_over: AtomicBool,
    /// Whether each lock is believed to be held.
    held: [AtomicBool; NAMES],
    taken: AtomicU64,
    longest: AtomicU64,
}

impl Load {
    async fn run(self: Arc<Self>, at: usize, addr: String) {
        let mut turn = at;
        while !self.is_over.load(Ordering::SeqCst) {
            let is_paused = self.is_paused[at].load(Ordering::SeqCst);
            self.is_idle[at].store(is_paused, Ordering::SeqCst);
            if is_paused {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            turn = (turn + 1) % NAMES;
            let began = Instant::now();
            let held = hold_through(&addr, "elderlock", request(&format!("load-{turn}"))).await;
            let guard = held.unwrap_or_else(|error| panic!("a lock through m{at} failed: {error}"));
            self.longest.fetch_max(began.elapsed().as_millis() as u64, Ordering::SeqCst);
            guard.fence().unwrap_or_else(|end| panic!("a hold through m{at} is lost: {end}"));
            assert!(!self.held[turn].swap(true, Ordering::SeqCst), "two hold load-{turn}");
            tokio::time::sleep(Duration::from_millis(2)).await;
            guard.fence().unwrap_or_else(|end| panic!("a hold through m{at} is lost: {end}"));
            self.held[turn].store(false, Ordering::SeqCst);
            guard.release().await.unwrap_or_else(|end| panic!("m{at} released nothing: {end}"));
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
        self.is_idle[at].store(true, Ordering::SeqCst);
    }

    async fn pause(&self, at: usize) {
        self.is_paused[at].store(true, Ordering::SeqCst);
        while !self.is_idle[at].load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn hold(addr: &str, at: usize) -> SessionGuard {
    hold_through(addr, "elderlock", request(&format!("hold-{at}"))).await.expect("it is free")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_members_are_replaced_under_load_and_no_lock_fails() {
    let Some(older) = std::env::var_os("ELDERLOCK_OLDER").map(PathBuf::from) else {
        println!("skipped: rolling upgrade: ELDERLOCK_OLDER names no command");
        return;
    };
    let directory = std::env::temp_dir().join(format!("elderlock-upgrade-{}", std::process::id()));
    let addrs: Vec<String> = (0..MEMBERS).map(|_| free_addr()).collect();
    std::fs::create_dir_all(&directory).expect("it can be made");
    let mut cluster = Cluster { older, directory: directory.clone(), addrs, nodes: Vec::new() };
    for at in 0..MEMBERS {
        let node = Running::start(&mut cluster.command(at, true));
        cluster.nodes.push(Some(node));
    }
    for node in cluster.nodes.iter_mut().flatten() {
        node.line_with("joined as");
    }
    let before = cluster.until(0, Cluster::is_whole).await.version;
    assert!(VERSIONS.contains(before) && before < PROTOCOL_VERSION, "it speaks version {before}");

    let load = Arc::new(Load::default());
    let loads = (0..MEMBERS).map(|at| load.clone().run(at, cluster.addrs[at].clone()));
    let loads: Vec<_> = loads.map(tokio::spawn).collect();
    let mut holds = Vec::new();
    for at in 0..MEMBERS {
        holds.push(Some(hold(&cluster.addrs[at], at).await));
    }
    // The second member goes back to the release before, and is replaced again.
    let order = [(0, false), (1, false), (1, true), (2, false), (1, false), (3, false), (4, false)];
    let began = Instant::now();
    for (step, (at, is_older)) in order.into_iter().enumerate() {
        load.pause(at).await;
        holds[at].take().expect("it is held").release().await.expect("it was held");
        let taken = load.taken.load(Ordering::SeqCst);
        cluster.replace(at, is_older).await;
        for (at, hold) in holds.iter().enumerate() {
            let Some(hold) = hold else { continue };
            let token = hold.fence().unwrap_or_else(|end| panic!("m{at} stayed: {end}"));
            assert_eq!(token, hold.token());
        }
        holds[at] = Some(hold(&cluster.addrs[at], at).await);
        load.is_paused[at].store(false, Ordering::SeqCst);
        assert!(loads.iter().all(|load| !load.is_finished()), "a load has failed");
        assert!(load.taken.load(Ordering::SeqCst) > taken, "no lock was taken meanwhile");
        let is_last = step == order.len() - 1;
        let version = if is_last { PROTOCOL_VERSION } else { before };
        let view = cluster.until(0, |view| view.version == version).await;
        assert!(Cluster::is_whole(&view));
    }
    let took = began.elapsed();
    load.is_over.store(true, Ordering::SeqCst);
    for one in loads {
        one.await.expect("no lock has failed");
    }
    for hold in holds.into_iter().flatten() {
        hold.release().await.expect("it was held");
    }

    // The line is written after other members can see the view.
    let raised = format!(
        "INFO the cluster speaks a later version of the wire before={before} \
         now={PROTOCOL_VERSION}"
    );
    let began = Instant::now();
    while !std::fs::read_to_string(cluster.log(0)).expect("a log").contains(&raised) {
        assert!(began.elapsed() < HANG, "{:?} has no line {raised:?}", cluster.log(0));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // The version of the view is never lowered.
    cluster.addrs.push(free_addr());
    let mut late = cluster.command(MEMBERS, true);
    let late = late.args(["--join-seconds", "5"]).stderr(Stdio::piped()).output();
    let late = late.expect("it starts");
    let said = String::from_utf8_lossy(&late.stderr);
    let expected = format!("speaks version {PROTOCOL_VERSION} of the wire");
    assert!(late.status.code() == Some(2) && said.contains(&expected), "{said}");

    println!(
        "upgrade: {} members, {} replacements in {:.1} s, {} locks, none failed, \
         longest wait {} ms",
        MEMBERS,
        order.len(),
        took.as_secs_f64(),
        load.taken.load(Ordering::SeqCst),
        load.longest.load(Ordering::SeqCst)
    );
    drop(cluster);
    let _ = std::fs::remove_dir_all(directory);
}
