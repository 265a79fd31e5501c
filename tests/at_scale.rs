//! Requirements that hold with a thousand locks, waiters or names, over real members in one
//! process.
#![cfg(all(unix, feature = "tokio"))]

mod support;

use elderlock::{Grant, LockFuture, LockService, Semaphore, Token};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::leases::Leases;
use support::local::{Local, left_over, soon, until};
use support::rng::Rng;
use tokio::task::JoinHandle;

const WAITERS: usize = 1_000;
const LIMIT: u32 = 3;

/// The holds that exist now, by kind, and all grants so far.
#[derive(Default)]
struct GrantLog {
    alone: u32,
    shares: u32,
    permits: u32,
    granted: Vec<(Token, usize)>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Alone,
    Share,
    Permits(u32),
}

impl GrantLog {
    fn granted(&mut self, token: Token, number: usize, kind: Kind) {
        self.granted.push((token, number));
        *self.held(kind).0 += self.held(kind).1;
        let kinds = [self.alone > 0, self.shares > 0, self.permits > 0]
            .into_iter()
            .filter(|held| *held)
            .count();
        assert!(
            kinds == 1 && self.alone <= 1,
            "{number} {kind:?}: {} {} {}",
            self.alone,
            self.shares,
            self.permits
        );
        assert!(self.permits <= LIMIT, "{} permits", self.permits);
    }

    fn released(&mut self, kind: Kind) {
        *self.held(kind).0 -= self.held(kind).1;
    }

    fn held(&mut self, kind: Kind) -> (&mut u32, u32) {
        match kind {
            Kind::Alone => (&mut self.alone, 1),
            Kind::Share => (&mut self.shares, 1),
            Kind::Permits(count) => (&mut self.permits, count),
        }
    }
}

/// Waits until the position is known. Then a task waits for the grant and holds it for a moment.
async fn queue<G: Grant + Send + 'static>(
    board: &Arc<Mutex<GrantLog>>,
    number: usize,
    kind: Kind,
    waiting: LockFuture<G>,
    token: fn(&G) -> Token,
) -> JoinHandle<()> {
    let position = soon(waiting.position()).await.expect("the grantor answers");
    assert!(position.is_some(), "{number} does not wait");
    let board = board.clone();
    tokio::spawn(async move {
        let guard = soon(waiting).await.expect("its turn comes");
        board.lock().expect("no panic").granted(token(&guard), number, kind);
        tokio::task::yield_now().await;
        board.lock().expect("no panic").released(kind);
        drop(guard);
    })
}

/// The waiters keep their order when the granting process dies, which no rival offers. They ask for
/// locks, batches, shares, permits and suspensions, all in the queue of one name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_mixed_kinds_keep_their_order_when_the_grantor_dies() {
    // The waiters must not lose their leases while all of them ask.
    let mut local = Local::start_with(3, Leases::Long).await;
    let services = local.services("s").await;
    // Each request has its own owner. A request of an owner with a hold would pass the suspensions.
    let of_grantor = soon(services[0].lock("x").owner(u64::MAX)).await.expect("it is free");
    until(|| services[0].is_grantor()).await;
    let semaphores = [
        soon(Semaphore::open(&services[1], "x", LIMIT)).await.expect("it opens"),
        soon(Semaphore::open(&services[2], "x", LIMIT)).await.expect("it opens"),
    ];
    let board = Arc::new(Mutex::new(GrantLog::default()));
    let mut rng =
        Rng::new("a_thousand_waiters_of_mixed_kinds_keep_their_order_when_the_grantor_dies", 1);
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let of = rng.below(2) as usize;
        let (service, semaphore, owner) = (&services[1 + of], &semaphores[of], number as u64 + 1);
        tasks.push(match rng.below(20) {
            0 => {
                let waiting = service.suspend().owner(owner).start();
                queue(&board, number, Kind::Alone, waiting, |guard| guard.token()).await
            }
            1..=4 => {
                let waiting = service.lock_all(["w", "x", "y"]).owner(owner).start();
                // The batch has three consecutive tokens; `x` has the second.
                queue(&board, number, Kind::Alone, waiting, |guard| {
                    guard.tokens().nth(1).expect("three").1
                })
                .await
            }
            5..=9 => {
                let waiting = service.share("x").owner(owner).start();
                queue(&board, number, Kind::Share, waiting, |guard| guard.token()).await
            }
            10..=14 => {
                let count = 1 + rng.below(u64::from(LIMIT)) as u32;
                let waiting = semaphore.acquire(count).owner(owner).start();
                queue(&board, number, Kind::Permits(count), waiting, |guard| guard.token()).await
            }
            _ => {
                let waiting = service.lock("x").owner(owner).start();
                queue(&board, number, Kind::Alone, waiting, |guard| guard.token()).await
            }
        });
    }
    local.kill(0);
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert!(of_grantor.fence().is_err());
    let mut granted = std::mem::take(&mut board.lock().expect("no panic").granted);
    granted.sort();
    assert!(
        granted.iter().all(|(token, _)| *token > of_grantor.token()),
        "granted by the dead one"
    );
    assert!(services[1..].iter().any(LockService::is_grantor));
    let order: Vec<usize> = granted.iter().map(|(_, number)| *number).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    drop(semaphores);
    until(|| local.members[1..].iter().all(|member| left_over(member) == (0, 0))).await;
}

/// The number of locks that one member holds, unless `ELDERLOCK_TEST_HELD` gives another.
const HELD: usize = 50_000;

/// A process outside the cluster asks a member for its status again and again. The member keeps its
/// lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_holds_very_much_is_asked_for_its_status_and_keeps_its_lease() {
    let held =
        std::env::var("ELDERLOCK_TEST_HELD").map_or(HELD, |held| held.parse().expect("a number"));
    let local = Local::start(3).await;
    let grantor = &local.members[1];
    let service = grantor.lock_service("stock").await.expect("a good name");
    let mut guards = Vec::with_capacity(held);
    for number in 0..held {
        guards.push(soon(service.lock(format!("lock-{number}"))).await.expect("it is free"));
    }
    let addr = grantor.addr().to_string();
    let (mut longest, mut whole) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..20 {
        let start = Instant::now();
        let status = elderlock::query_status(&addr, grantor.cluster()).await.expect("it answers");
        longest = longest.max(start.elapsed());
        let stock =
            status.services.iter().find(|of| of.service.as_str() == "stock").expect("it grants it");
        assert_eq!((stock.held_here, stock.locks.len() + stock.more_locks), (held, held));
    }
    for _ in 0..2 {
        let start = Instant::now();
        let status = grantor.status();
        whole = whole.max(start.elapsed());
        assert_eq!(status.services.iter().map(|of| of.locks.len()).sum::<usize>(), held);
    }
    println!("{held} held: asked from outside {longest:?}, whole {whole:?} (longest)");
    // A member that lost its lease would have lost its guards for good.
    assert!(guards.iter().all(|guard| guard.fence().is_ok()));
}

/// Measures how long other calls at a member wait while a step has its engine.
struct TurnWatch {
    longest: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TurnWatch {
    /// `service` is a handle of the measured member.
    fn start(service: &LockService) -> TurnWatch {
        let (longest, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (own, ends, service) = (longest.clone(), is_over.clone(), service.clone());
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let asked = Instant::now();
                service.is_grantor();
                own.fetch_max(asked.elapsed().as_millis() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        TurnWatch { longest, is_over, thread: Some(thread) }
    }

    /// The longest wait since the last call of this method.
    fn longest(&self) -> Duration {
        // A wait that has already begun still belongs to the measured span.
        std::thread::sleep(Duration::from_millis(20));
        Duration::from_millis(self.longest.swap(0, Ordering::Relaxed))
    }
}

impl Drop for TurnWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The steps that grow with a member's holds: how long other calls at the member wait for them.
/// `ELDERLOCK_TEST_HELD=1000000` in a release build measures them with a million holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_visit_all_holds_of_a_member_lose_none_before_its_lease_is_over() {
    let given = std::env::var("ELDERLOCK_TEST_HELD").ok();
    let held = given.map_or(HELD / 5, |held| held.parse().expect("a number"));
    // A step with very many holds must not cost the lease that the next step needs.
    let mut local = Local::start_with(3, Leases::Long).await;
    let services = local.services("stock").await;
    let turns: Vec<TurnWatch> = services.iter().map(TurnWatch::start).collect();
    let mut guards = Vec::with_capacity(held);
    for number in 0..held {
        guards.push(soon(services[1].lock(format!("lock-{number}"))).await.expect("it is free"));
    }
    turns.iter().for_each(|turn| _ = turn.longest());

    soon(services[2].become_grantor()).await.expect("it becomes the grantor");
    println!(
        "{held} held, a transfer: {:?} at the former grantor, {:?} at the next one",
        turns[1].longest(),
        turns[2].longest()
    );
    assert!(guards.iter().all(|guard| guard.fence().is_ok()));

    local.kill(2);
    let other = soon(services[0].lock("another")).await.expect("it is free");
    println!(
        "{held} held, a recovery: {:?} at the member that reports, {:?} at the next grantor",
        turns[1].longest(),
        turns[0].longest()
    );
    assert!(guards.iter().all(|guard| guard.fence().is_ok()));
    drop(other);

    // The releases of the dropped guards are deferred while the other thread has the engine.
    let kept = guards.split_off(held / 2);
    let dropped = Instant::now();
    let moving = tokio::spawn({
        let next = services[1].clone();
        async move { next.become_grantor().await }
    });
    let dropping = std::thread::spawn(move || drop(guards));
    soon(moving).await.expect("no panic").expect("it becomes the grantor");
    dropping.join().expect("no panic");
    println!(
        "{} released in {:?} during a transfer: {:?} at the holder, {:?} at the former grantor",
        held / 2,
        dropped.elapsed(),
        turns[1].longest(),
        turns[0].longest()
    );

    local.kill(0);
    until(|| kept.iter().all(|guard| guard.fence().is_err())).await;
    let lost = turns[1].longest();
    until(|| left_over(&local.members[1]) == (0, 0)).await;
    let ended = turns[1].longest();
    println!("{} held, the end of the lease: {:?}", kept.len(), lost.max(ended));
}
