//! The program of a child process: members that follow the lines on standard input.
//!
//! The child reads `SEQ MEMBER VERB ARGUMENTS`, and writes `@ SEQ ok TEXT` or `@ SEQ err TEXT`. In
//! between it writes events, `@ ! MEMBER EVENT`. Each command runs in a task of its own, so a
//! waiting lock does not delay the others. The child ends when its standard input does: it never
//! outlives the test.

use super::leases::Leases;
use super::wait::{HANG, now};
use super::{keys, status};
use elderlock::{
    Guard, LatchEvent, LatchEvents, LeaderLatch, LockService, Member, MemberEvent, Term,
};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Set in a child's environment: "one" or "many", the threads of its runtime.
pub(crate) const THREADS: &str = "ELDERLOCK_TEST_CHILD";

/// Serves if this process was started as a child, and does nothing otherwise. The test
/// `child_member` of each test file calls it.
pub(crate) fn serve() {
    let Ok(threads) = std::env::var(THREADS) else { return };
    let mut builder = match threads.as_str() {
        "one" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    // The bound is the number of commands that a test sends at once.
    let (lines, mut commands) = tokio::sync::mpsc::channel::<String>(4096);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    runtime.block_on(async {
        let state = Arc::new(State::default());
        // A new line first: the test runner has begun a line of its own.
        say("\n@ ! 0 up".into());
        while let Some(line) = commands.recv().await {
            tokio::spawn(obey(state.clone(), line));
        }
    });
}

#[derive(Default)]
struct State {
    members: Mutex<HashMap<u64, Member>>,
    guards: Mutex<HashMap<u64, Arc<Kept>>>,
    latches: Mutex<HashMap<u64, LeaderLatch>>,
}

/// A guard, or `None` after its release.
type Kept = Mutex<Option<Guard>>;

/// Set in a process that was forked off a child. A copy answers nothing, and marks its events.
static IS_COPY: AtomicBool = AtomicBool::new(false);

fn say(mut line: String) {
    if IS_COPY.load(Ordering::Relaxed) {
        let Some(event) = line.strip_prefix("@ ! ") else { return };
        line = format!("@ ! copy {event}");
    }
    line.push('\n');
    // If the write fails, the test has ended.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
    let _ = std::io::stdout().lock().flush();
}

async fn obey(state: Arc<State>, line: String) {
    let words: Vec<&str> = line.split(' ').collect();
    let seq: u64 = words[0].parse().unwrap();
    let answer = match act(&state, seq, words[1].parse().unwrap(), words[2], &words[3..]).await {
        Ok(text) => format!("@ {seq} ok {text}"),
        Err(text) => format!("@ {seq} err {}", text.replace('\n', " ")),
    };
    say(answer);
}

async fn act(
    state: &State,
    seq: u64,
    index: u64,
    verb: &str,
    words: &[&str],
) -> Result<String, String> {
    if verb == "join" {
        let member = join(index, words).await?;
        let text = format!("{:032x} {}", member.process().0, member.addr());
        state.members.lock().unwrap().insert(index, member);
        return Ok(text);
    }
    if verb == "drain" {
        return drain(words[0]).await.map_err(|error| error.to_string());
    }
    if verb == "memory" {
        let text =
            std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        return Ok(line.split_whitespace().nth(1).ok_or("no figure")?.into());
    }
    // The limit is set before the join: a member looks at it when it binds.
    if verb == "limit-files" {
        let most = words[0].parse().ok();
        let limit = rustix::process::Rlimit { current: most, maximum: most };
        return rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
            .map(|()| String::new())
            .map_err(|error| error.to_string());
    }
    if verb == "open-files" {
        let count: usize = words[0].parse().map_err(|_| "no number")?;
        let files: Result<Vec<_>, _> =
            (0..count).map(|_| std::fs::File::open("/proc/self/status")).collect();
        return files.map(|files| files.len().to_string()).map_err(|error| error.to_string());
    }
    let member = state.members.lock().unwrap().get(&index).cloned().ok_or("no such member")?;
    match verb {
        "rekey" => keys::rekey(&member, words[0]),
        "counters" => {
            let counted = member.counters();
            let refused = counted.garbage
                + counted.unknown_key
                + counted.keyless
                + counted.forged
                + counted.silent;
            let (impostors, evicted, oversized) =
                (counted.impostors, counted.evicted, counted.oversized);
            Ok(format!("{refused} {impostors} {evicted} {oversized}"))
        }
        "status" => Ok(status::write(&member.status())),
        "leave" => {
            state.members.lock().unwrap().remove(&index);
            member.leave().await.map(|()| String::new()).map_err(|error| error.to_string())
        }
        "lock" | "try" => {
            let service = member.lock_service(words[0]).await.map_err(|error| error.to_string())?;
            let guard = if verb == "try" {
                service.try_lock(words[1]).await.map_err(|error| format!("{error:?}"))?
            } else {
                let mut request = service.lock(words[1]);
                if let Some(wait) = millis(words[2]) {
                    request = request.wait(wait);
                }
                if let Some(lease) = millis(words[3]) {
                    request = request.lease(lease);
                }
                request.await.map_err(|error| format!("{error:?}"))?
            };
            let token = guard.token();
            let kept = Arc::new(Mutex::new(Some(guard)));
            state.guards.lock().unwrap().insert(seq, kept.clone());
            // The process can be stopped at any line. So the belief begins between two readings of
            // the clock. The watch counts from the first reading, and the test is given the second.
            let asked = now();
            let believed = kept.lock().unwrap().as_ref().map(|guard| guard.fence());
            let at = now();
            tokio::spawn(watch(index, seq, kept, asked));
            match believed {
                Some(Ok(_)) => Ok(format!("{seq} {token} {at}")),
                _ => Err("granted, and lost at once".into()),
            }
        }
        "fence" => {
            with_guard(state, words[0], |guard| guard.fence().map(|token| token.to_string()))
        }
        "extend" => with_guard(state, words[0], |guard| {
            guard.extend(millis(words[1]).unwrap_or_default()).map(|()| String::new())
        }),
        "release" => {
            let kept = kept(state, words[0])?;
            let guard = kept.lock().unwrap().take().ok_or("released before")?;
            guard.release().await.map(|()| String::new()).map_err(|error| format!("{error:?}"))
        }
        // Threads that take locks without end, so that one of them has the engine at a fork.
        "busy" => {
            let service = member.lock_service(words[0]).await.map_err(|error| error.to_string())?;
            for name in ["1", "2", "3"] {
                let service = service.clone();
                tokio::spawn(async move {
                    // Two locks at a time: only the second needs the engine.
                    while let Ok(_held) = service.lock(name).await {
                        let _ = service.try_lock(name).await;
                    }
                });
            }
            Ok(String::new())
        }
        #[cfg(target_os = "linux")]
        "fork" => {
            // The handle is made before the fork: a copy gets no new one.
            let service = match words.get(2) {
                Some(name) => member.lock_service(name).await.ok(),
                None => None,
            };
            // The copy has only this thread: a mutex that another thread had locked would stay
            // locked for ever.
            let forked = {
                let _output = std::io::stdout().lock();
                let _guards = state.guards.lock().unwrap();
                super::fork::fork()?
            };
            match forked {
                super::fork::Side::Parent => Ok(String::new()),
                super::fork::Side::Copy => {
                    be_copy(state, (&member, service.as_ref()), index, words).await
                }
            }
        }
        "look" => {
            let service = member.lock_service(words[0]).await.map_err(|error| error.to_string())?;
            service
                .inspect(words[1])
                .await
                .map(|_| String::new())
                .map_err(|error| error.to_string())
        }
        "latch" => {
            let service = member.lock_service(words[0]).await.map_err(|error| error.to_string())?;
            let latch = LeaderLatch::new(&service, words[1], words[2])
                .map_err(|error| error.to_string())?;
            tokio::spawn(tell_terms(index, seq, latch.events()));
            latch.start().map_err(|error| error.to_string())?;
            state.latches.lock().unwrap().insert(seq, latch);
            Ok(seq.to_string())
        }
        "close" => {
            let key: u64 = words[0].parse().map_err(|_| "no number")?;
            let latch = state.latches.lock().unwrap().remove(&key).ok_or("no such latch")?;
            latch.close().await.map(|()| String::new()).map_err(|error| format!("{error:?}"))
        }
        _ => Err(format!("unknown verb {verb}")),
    }
}

/// Reads and drops all bytes that arrive at this address, and answers nothing.
async fn drain(addr: &str) -> std::io::Result<String> {
    let listener = tokio::net::TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    // Another process may have the same port for datagrams.
    if let Ok(datagrams) = tokio::net::UdpSocket::bind(addr).await {
        tokio::spawn(async move {
            let mut bytes = [0; 2048];
            while datagrams.recv_from(&mut bytes).await.is_ok() {}
        });
    }
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    Ok(addr.to_string())
}

/// The time after which a copy ends. Its test is over by then, or has failed.
#[cfg(target_os = "linux")]
const COPY: Duration = Duration::from_secs(15);

/// The command of a copy for a guard. The copy checks the guard's fence (`believe`), drops it
/// (`drop`) or tries a lock (`try`). Or it makes the calls that need the engine (`calls`), or
/// continues with its runtime (`go`).
#[cfg(target_os = "linux")]
async fn be_copy(
    state: &State,
    (member, service): (&Member, Option<&LockService>),
    index: u64,
    words: &[&str],
) -> Result<String, String> {
    IS_COPY.store(true, Ordering::Relaxed);
    std::thread::spawn(|| {
        std::thread::sleep(COPY);
        std::process::exit(0);
    });
    let key: u64 = words[0].parse().map_err(|_| "no number")?;
    let kept = kept(state, words[0])?;
    match words[1] {
        "believe" => {
            let guard = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let guard = guard.as_ref().ok_or("released before")?;
            let mut believed = 0;
            loop {
                let at = now();
                if let Err(lost) = guard.fence() {
                    say(format!("@ ! {index} guard-lost {key} {believed} {:?}", lost.reason));
                    break;
                }
                if believed == 0 {
                    say(format!("@ ! {index} believes {key} {at}"));
                }
                believed = at;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        "drop" => {
            drop(kept.lock().unwrap_or_else(PoisonError::into_inner).take());
            // A request leaves at once, together with all messages before it.
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let mut attempt = std::pin::pin!(async {
                let service =
                    member.lock_service(words[2]).await.map_err(|error| format!("{error:?}"))?;
                service.try_lock("another").await.map_err(|error| format!("{error:?}"))
            });
            let _ = attempt.as_mut().poll(&mut context);
            say(format!("@ ! {index} dropped {key}"));
        }
        "try" => {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            // No thread of the runtime is left to wake the task, so it is polled by hand.
            let mut attempt = std::pin::pin!(async {
                let service =
                    member.lock_service(words[2]).await.map_err(|error| format!("{error:?}"))?;
                service
                    .try_lock(words[3])
                    .await
                    .map(|guard| guard.fence())
                    .map_err(|error| format!("{error:?}"))
            });
            let answer = attempt.as_mut().poll(&mut context);
            say(format!("@ ! {index} tried {answer:?}"));
        }
        "calls" => {
            let service = service.ok_or("no service")?;
            let status = member.status();
            say(format!(
                "@ ! {index} calls {} {} {:?} {} {}",
                member.is_elder(),
                service.is_grantor(),
                member.connection_status(),
                status.leased,
                status.me.process == member.process(),
            ));
        }
        _ => {
            say(format!("@ ! {index} goes on"));
            // The await gives the runtime of the copy its turns.
            std::future::pending::<()>().await;
        }
    }
    // The copy ends as a daemon does, without dropping its values.
    std::thread::sleep(COPY);
    std::process::exit(0);
}

/// Writes an event for each term of a latch: the number of the latch, the token, and an instant.
async fn tell_terms(index: u64, seq: u64, mut events: LatchEvents) {
    while let Some(event) = events.next().await {
        match event {
            LatchEvent::IsLeader(term) => {
                say(format!("@ ! {index} leads {seq} {} {}", term.token(), now()));
                tokio::spawn(watch_term(index, seq, term));
            }
            LatchEvent::NotLeader { token, .. } => {
                say(format!("@ ! {index} not-leader {seq} {token} {}", now()))
            }
            other => say(format!("@ ! {index} {other:?}")),
        }
    }
}

/// Notes the last instant at which a term was believed, and writes it when the term is over.
async fn watch_term(index: u64, seq: u64, term: Term) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut believed = 0;
    loop {
        ticks.tick().await;
        let at = now();
        if term.fence().is_err() {
            return say(format!("@ ! {index} term-over {seq} {} {believed}", term.token()));
        }
        believed = at;
    }
}

async fn join(index: u64, words: &[&str]) -> Result<Member, String> {
    let given: HashMap<&str, &str> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let leases = match given.get("leases") {
        Some(name) => Leases::named(name).ok_or("no such leases")?,
        None => Leases::Short,
    };
    let builder = Member::builder(given["cluster"]).bind(given["bind"]);
    let mut builder = builder.timing(leases.timing()).join_limit(HANG);
    if let Some(seeds) = given.get("seeds") {
        builder = builder.seeds(seeds.split(','));
    }
    if let Some(limit) = given.get("limit").and_then(|text| millis(text)) {
        builder = builder.join_limit(limit);
    }
    if given.contains_key("insecure") {
        builder = builder.insecure();
    }
    if let Some(keys) = given.get("keys") {
        builder = keys::give(builder, keys)?;
    }
    let member = builder.join().await.map_err(|error| error.to_string())?;
    let mut events = member.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            say(format!("@ ! {index} {}", describe(&event)));
        }
    });
    Ok(member)
}

fn describe(event: &MemberEvent) -> String {
    match event {
        MemberEvent::ViewInstalled(view) => {
            let ghosts = view.members.iter().filter(|member| member.ghost).count();
            format!("view {} of {} members, {ghosts} ghosts", view.number, view.members.len())
        }
        MemberEvent::BecameElder => "elder".into(),
        MemberEvent::BecameGrantor { service, epoch } => format!("grantor {service} {epoch}"),
        MemberEvent::NoLongerGrantor { service, epoch } => format!("no grantor {service} {epoch}"),
        MemberEvent::Suspended => format!("suspended {}", now()),
        MemberEvent::Resumed => format!("resumed {}", now()),
        MemberEvent::Expelled => "expelled".into(),
        MemberEvent::Rejoined { process } => format!("rejoined {:032x}", process.0),
        MemberEvent::Left => "left".into(),
        MemberEvent::Missed { count, .. } => format!("missed {count}"),
        _ => "unknown".into(),
    }
}

/// Notes the last instant at which a guard was believed to hold, and writes it when the hold is
/// over. `believed` is an instant before the first one.
async fn watch(index: u64, seq: u64, kept: Arc<Kept>, mut believed: u64) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    loop {
        ticks.tick().await;
        let at = now();
        let Some(fence) =
            kept.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|guard| guard.fence())
        else {
            return;
        };
        match fence {
            Ok(_) => believed = at,
            Err(lost) => {
                return say(format!("@ ! {index} guard-lost {seq} {believed} {:?}", lost.reason));
            }
        }
    }
}

fn kept(state: &State, word: &str) -> Result<Arc<Kept>, String> {
    let key: u64 = word.parse().map_err(|_| "no number")?;
    state.guards.lock().unwrap().get(&key).cloned().ok_or_else(|| "no such guard".into())
}

fn with_guard<E: std::fmt::Debug>(
    state: &State,
    word: &str,
    act: impl FnOnce(&Guard) -> Result<String, E>,
) -> Result<String, String> {
    let kept = kept(state, word)?;
    let guard = kept.lock().unwrap();
    act(guard.as_ref().ok_or("released before")?).map_err(|error| format!("{error:?}"))
}

fn millis(word: &str) -> Option<Duration> {
    word.parse().ok().map(Duration::from_millis)
}
