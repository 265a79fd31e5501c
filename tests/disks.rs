//! Disks that are slow, and disks that are full. Members continue without their vote, and locks
//! keep their promises.
#![cfg(all(target_os = "linux", feature = "tokio"))]

mod support;

use elderlock::{ConnectionStatus, DataDirError, Guard, JoinError, LockError, Member, MemberEvent};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::leases::Leases;
use support::{ports, wait};
use tokio::runtime::Runtime;

/// Set in the process with a slow disk: the directory for all files of the test.
const SLOW: &str = "ELDERLOCK_TEST_SLOW";

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("elderlock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A member on a runtime of its own, so that it can end without a goodbye.
struct IsolatedMember {
    runtime: Runtime,
    member: Member,
}

impl IsolatedMember {
    fn lock(&self, name: &str) -> Guard {
        let service = self.runtime.block_on(self.member.lock_service("stock")).expect("a service");
        self.runtime.block_on(async { service.lock(name).await }).expect("a lock")
    }

    fn members(&self) -> usize {
        self.member.status().view.map_or(0, |view| view.members.len())
    }
}

fn builder(addr: SocketAddr, seeds: &[SocketAddr], dir: &Path) -> elderlock::MemberBuilder {
    Member::builder("disks")
        .bind(addr.to_string())
        .seeds(seeds.iter().map(ToString::to_string))
        .timing(Leases::Short.timing())
        .data_dir(dir)
        .join_limit(wait::HANG)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn start(addrs: &[SocketAddr], dirs: &[PathBuf]) -> Vec<IsolatedMember> {
    let joins: Vec<_> = addrs
        .iter()
        .zip(dirs)
        .map(|(addr, dir)| {
            let runtime = runtime();
            let join = runtime.spawn(builder(*addr, addrs, dir).join());
            (runtime, join)
        })
        .collect();
    let waiting = runtime();
    let mut members = Vec::new();
    for (runtime, join) in joins {
        let member = waiting.block_on(join).expect("the task ends").expect("it joins");
        members.push(IsolatedMember { runtime, member });
    }
    waiting.shutdown_background();
    members
}

/// The longest pauses between two ticks: of a task that has nothing to do with locks, and of a
/// plain thread. The second one is the control: a pause of the whole machine is in both.
struct Ticks {
    task: Arc<AtomicU64>,
    thread: Arc<AtomicU64>,
}

/// The time between two ticks.
const TICK: Duration = Duration::from_millis(10);

impl Ticks {
    /// The task is one of this runtime. Both end with the process.
    fn start(runtime: &Runtime) -> Ticks {
        let ticks = Ticks { task: Arc::default(), thread: Arc::default() };
        let (task, thread, mut last) = (ticks.task.clone(), ticks.thread.clone(), Instant::now());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(TICK);
                Ticks::note(&thread, &mut last);
            }
        });
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                Ticks::note(&task, &mut last);
            }
        });
        ticks
    }

    /// Notes the pause since the last tick.
    fn note(longest: &AtomicU64, last: &mut Instant) {
        longest.fetch_max(last.elapsed().as_millis() as u64, Ordering::Relaxed);
        *last = Instant::now();
    }

    /// The longest pause of the control.
    fn control(&self) -> Duration {
        Duration::from_millis(self.thread.load(Ordering::Relaxed))
    }

    /// The part of the task's longest pause that the machine does not explain.
    fn pause(&self) -> Duration {
        let longest = Duration::from_millis(self.task.load(Ordering::Relaxed));
        longest.saturating_sub(self.control())
    }
}

/// The longest pause of a runtime and the longest delay of a call beyond its limit that a slow disk
/// may cost. It is below the delay of the disk.
const PAUSE: Duration = Duration::from_millis(700);

/// The elder needs a second for each fsync while another member is removed. Then a member whose
/// disk is as slow joins on the runtime of a holder. Calls keep their limits, both programs
/// continue, and no member loses a lock.
#[test]
fn a_slow_disk_at_the_elder_holds_up_nothing_but_its_vote() {
    let scratch = Scratch::new("slow-test");
    let library = scratch.0.join("slow.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/slow.c");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("cc can be started").success(), "cc builds tests/support/slow.c");
    let output = Command::new(std::env::current_exe().expect("the test knows its own binary"))
        .args(["--exact", "with_a_slow_disk", "--nocapture", "--test-threads=1"])
        .env(SLOW, &scratch.0)
        .env("SLOW_DISK_ON", scratch.0.join("on"))
        .env("SLOW_DISK_DELAYS", scratch.0.join("delays"))
        .env("LD_PRELOAD", &library)
        .output()
        .expect("the test binary can be started");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("with a slow disk: done"), "{text}");
}

/// The number of writes that were delayed.
fn delays(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("delays")).map_or(0, |file| file.len())
}

/// Not a test: the program of the process with a slow disk.
#[test]
fn with_a_slow_disk() {
    let Some(dir) = std::env::var_os(SLOW).map(PathBuf::from) else { return };
    let mut addrs: Vec<SocketAddr> = ports::free(6);
    let (joining, cancelled) = (addrs.pop().expect("a sixth"), addrs.pop().expect("a fifth"));
    addrs.sort();
    // The seed with the lowest address is the elder.
    let dirs: Vec<PathBuf> = ["slow", "one", "two", "three"].map(|name| dir.join(name)).into();
    let mut members = start(&addrs, &dirs);
    wait::until("all are there", || {
        if members.iter().all(|one| one.members() == 4) { Ok(()) } else { Err(String::new()) }
    });
    assert!(members[0].member.is_elder());
    let guards = [members[1].lock("a"), members[2].lock("b"), members[0].lock("c")];
    let ticks = Ticks::start(&members[0].runtime);
    std::fs::write(dir.join("on"), "").expect("the disk can be made slow");
    let IsolatedMember { runtime, member } = members.pop().expect("a fourth");
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(member);

    let limit = Duration::from_millis(300);
    let service =
        members[0].runtime.block_on(members[0].member.lock_service("stock")).expect("a service");
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    let (mut granted_meanwhile, mut late) = (0, 0);
    while members.iter().any(|one| one.members() != 3) {
        assert!(began.elapsed() < wait::HANG, "the fourth is removed");
        let (asked, before) = (Instant::now(), delays(&dir));
        let refused = members[0].runtime.block_on(async { service.lock("a").wait(limit).await });
        assert!(matches!(refused, Err(LockError::TimedOut)), "{refused:?}");
        longest = longest.max(asked.elapsed());
        // A delay lasts for a second, and this one began during the call above.
        let is_writing = delays(&dir) > before;
        match members[0].runtime.block_on(async { service.lock("d").wait(limit).await }) {
            Ok(granted) => {
                drop(granted);
                granted_meanwhile += usize::from(is_writing && asked.elapsed() < 3 * limit);
            }
            // A busy machine may use up the limit.
            Err(error) => {
                assert!(error.is_timeout(), "{error:?}");
                late += 1;
            }
        }
    }
    println!(
        "removed after {:?}, longest call {longest:?}, {late} late, longest pause {:?} beyond {:?}",
        began.elapsed(),
        ticks.pause(),
        ticks.control()
    );
    assert!(granted_meanwhile > 0, "no lock is granted while the disk is slow: {late} late");
    let most = limit + PAUSE + ticks.control();
    assert!(longest < most, "a call took {longest:?} of {most:?}");
    assert!(ticks.pause() < PAUSE, "the program's timers stood still for {:?}", ticks.pause());

    let ticks = Ticks::start(&members[1].runtime);
    let before = delays(&dir);
    let join = builder(joining, &addrs, &dir.join("slow-too")).join();
    let join = members[1].runtime.spawn(join);
    let fifth = members[1].runtime.block_on(join).expect("the task ends").expect("it joins");
    assert_eq!(fifth.connection_status(), ConnectionStatus::Connected);
    assert!(delays(&dir) > before, "its disk is slow while it joins");
    assert!(ticks.pause() < PAUSE, "a join stopped its runtime's timers for {:?}", ticks.pause());

    // A join is dropped while its disk is slow. The next join finds the directory free.
    let third = dir.join("slow-three");
    let join = members[1].runtime.spawn(builder(cancelled, &addrs, &third).join());
    wait::until("its probe is written", || {
        if third.join("vote.next").exists() { Ok(()) } else { Err(String::new()) }
    });
    join.abort();
    let aborted = members[1].runtime.block_on(join).expect_err("its disk answers later");
    assert!(aborted.is_cancelled());
    let began = Instant::now();
    let again = loop {
        match members[1].runtime.block_on(builder(cancelled, &addrs, &third).join()) {
            Err(JoinError::DataDir { why: DataDirError::InUse, .. }) => {
                assert!(began.elapsed() < wait::HANG, "the directory is free soon");
                std::thread::sleep(Duration::from_millis(10));
            }
            joined => break joined.expect("it joins"),
        }
    };
    assert_eq!(again.connection_status(), ConnectionStatus::Connected);
    for guard in &guards {
        guard.fence().expect("no member loses a lock");
    }
    println!("with a slow disk: done");
    // Goodbyes would wait for the slow disk.
    std::process::exit(0);
}

/// A file system of 1 MiB and 40 files.
struct Tmpfs(Scratch);

impl Tmpfs {
    fn mount(name: &str) -> Option<Tmpfs> {
        let scratch = Scratch::new(name);
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m,nr_inodes=40", "tmpfs"])
            .arg(&scratch.0)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs(scratch)),
            other => {
                println!("skipped: no tmpfs can be mounted here: {other:?}");
                None
            }
        }
    }

    /// Fills the file system up.
    fn fill(&self) -> PathBuf {
        let path = self.0.0.join("filler");
        let full =
            std::fs::write(&path, vec![1; 2 << 20]).expect_err("it has room for one megabyte");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).status();
    }
}

/// Three members share a full disk, and a fourth wants to join. No member ends, and the fourth
/// joins when there is room again.
#[test]
fn a_full_disk_keeps_a_member_out_and_ends_no_other() {
    let Some(tmpfs) = Tmpfs::mount("full") else { return };
    let elsewhere = Scratch::new("full-elsewhere");
    let addrs: Vec<SocketAddr> = ports::free(4);
    let dirs: Vec<PathBuf> = (0..3).map(|member| tmpfs.0.0.join(member.to_string())).collect();
    let members = start(&addrs[..3], &dirs);
    let guards: Vec<Guard> =
        members.iter().zip(["a", "b", "c"]).map(|(one, name)| one.lock(name)).collect();
    let mut events: Vec<_> = members.iter().map(|one| one.member.events()).collect();
    let filler = tmpfs.fill();

    let runtime = runtime();
    let join = runtime.spawn(builder(addrs[3], &addrs[..3], &elsewhere.0).join());
    for (one, events) in members.iter().zip(&mut events) {
        let reason = one.runtime.block_on(async {
            loop {
                match events.next().await.expect("the stream goes on") {
                    MemberEvent::VoteNotStored { reason } => return reason,
                    MemberEvent::Left | MemberEvent::Failed { .. } => {
                        panic!("a full disk ends no running member")
                    }
                    _ => {}
                }
            }
        });
        assert!(reason.contains("space"), "{reason}");
    }
    // Longer than a member lease.
    std::thread::sleep(Leases::Short.timing().member_lease * 6 / 5);
    assert!(guards.iter().all(|guard| guard.fence().is_ok()), "no member loses a lock");
    assert!(!join.is_finished());
    std::fs::remove_file(filler).expect("room can be made");
    let fourth = runtime.block_on(join).expect("the task ends").expect("it joins");
    wait::until("all are there", || {
        let view = fourth.status().view;
        if view.as_ref().is_some_and(|view| view.members.len() == 4) {
            Ok(())
        } else {
            Err(format!("{view:?}"))
        }
    });
    assert!(guards.iter().all(|guard| guard.fence().is_ok()), "no member loses a lock");
    for IsolatedMember { runtime, member } in members {
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop(member);
    }
}

#[test]
fn a_start_on_a_full_disk_names_the_disk() {
    let Some(tmpfs) = Tmpfs::mount("full-start") else { return };
    std::fs::create_dir(tmpfs.0.0.join("data")).expect("a directory");
    tmpfs.fill();
    let addr = ports::free(1)[0];
    let path = tmpfs.0.0.join("data");
    let error = runtime()
        .block_on(builder(addr, &[addr], &path).join())
        .expect_err("there is no room for a vote");
    assert!(matches!(&error, JoinError::DataDir { why: DataDirError::Io(_), .. }), "{error:?}");
    assert!(error.to_string().contains("data") && error.to_string().contains("space"), "{error}");
}

/// A disk may have room for bytes, but not for another file.
#[test]
fn a_start_on_a_disk_without_room_for_a_file_names_the_disk() {
    let Some(tmpfs) = Tmpfs::mount("no-files") else { return };
    let path = tmpfs.0.0.join("data");
    std::fs::create_dir(&path).expect("a directory");
    let addr = ports::free(1)[0];
    // The first start makes the lock file of the directory.
    runtime().block_on(async {
        let member = builder(addr, &[addr], &path).join().await.expect("there is room");
        member.leave().await.expect("it is alone");
    });
    let file = |number: u32| std::fs::write(tmpfs.0.0.join(number.to_string()), []);
    let full = (0..).find_map(|number| file(number).err()).expect("it has forty inodes");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let error = runtime()
        .block_on(builder(addr, &[addr], &path).join())
        .expect_err("there is no room for a vote");
    assert!(matches!(&error, JoinError::DataDir { why: DataDirError::Io(_), .. }), "{error:?}");
    assert!(error.to_string().contains("space"), "{error}");
}
