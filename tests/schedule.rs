//! `Schedule`: under tokio's paused clock, where no real time passes, and over real members whose
//! leader dies.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{
    LockService, LockValue, Member, MissedTicks, Schedule, ScheduleError, SharedCount, TermEnd,
    Tick, TokenGate,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use support::local::{Local, MS, left_open, left_over, poll_k_then_drop, soon, until};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PERIOD: Duration = Duration::from_secs(60);

/// A member and its service. The member ends with its last handle.
async fn service() -> (Member, LockService) {
    let member = Member::local().await.expect("a local member");
    let service = member.lock_service("jobs").await.expect("a good name");
    (member, service)
}

fn schedule(service: &LockService, missed: MissedTicks) -> Schedule {
    Schedule::new(service, "cron", PERIOD, "node").expect("good parameters").missed(missed)
}

/// Runs the schedule in a task. The job of a tick takes as long as `takes` returns for it.
fn run(
    schedule: Schedule,
    takes: impl Fn(&Tick) -> Duration + Send + Sync + 'static,
) -> (tokio::task::JoinHandle<ScheduleError>, UnboundedReceiver<Tick>) {
    let (began, ticks) = unbounded_channel();
    let task = tokio::spawn(async move {
        let job = |tick: Tick| work(tick.clone(), began.clone(), takes(&tick));
        schedule.run(job).await
    });
    (task, ticks)
}

async fn work(tick: Tick, began: UnboundedSender<Tick>, takes: Duration) {
    let _ = began.send(tick);
    tokio::time::sleep(takes).await;
}

async fn next(ticks: &mut UnboundedReceiver<Tick>) -> Tick {
    ticks.recv().await.expect("it runs on")
}

async fn numbers(ticks: &mut UnboundedReceiver<Tick>, count: usize) -> Vec<i64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(next(ticks).await.number());
    }
    numbers
}

#[tokio::test(start_paused = true)]
async fn each_tick_runs_once_when_it_is_due() {
    let began = tokio::time::Instant::now();
    let (_member, service) = service().await;
    let (_task, mut ticks) = run(schedule(&service, MissedTicks::RunAll), |_| PERIOD / 2);
    let first = next(&mut ticks).await;
    assert!(first.due() <= SystemTime::now() + PERIOD, "it is the next one");
    assert_eq!((first.missed(), first.fence()), (0, Ok(first.token())));
    for after in 1..=20 {
        let tick = next(&mut ticks).await;
        assert_eq!((tick.number(), tick.missed()), (first.number() + after, 0));
        assert_eq!(tick.due(), first.due() + PERIOD * after as u32);
        assert_eq!(tick.token(), first.token(), "one term");
    }
    let passed = began.elapsed();
    assert!((20 * PERIOD..22 * PERIOD).contains(&passed), "{passed:?}");
}

/// The job of the first tick takes three and a half periods.
#[tokio::test(start_paused = true)]
async fn missed_ticks_are_skipped_run_once_or_all_run() {
    for (missed, expected) in [
        (MissedTicks::Skip, [0, 4, 5, 6]),
        (MissedTicks::RunOnce, [0, 3, 4, 5]),
        (MissedTicks::RunAll, [0, 1, 2, 3]),
    ] {
        let is_first = AtomicBool::new(true);
        let takes = move |_: &Tick| match is_first.swap(false, Ordering::Relaxed) {
            true => PERIOD * 7 / 2,
            false => PERIOD / 100,
        };
        let (_member, service) = service().await;
        let (_task, mut ticks) = run(schedule(&service, missed), takes);
        let ran = numbers(&mut ticks, 4).await;
        assert_eq!(
            ran.iter().map(|tick| tick - ran[0]).collect::<Vec<_>>(),
            expected,
            "{missed:?}"
        );
    }
}

/// While no member runs the schedule, the last finished tick is known as long as a member has the
/// value open.
#[tokio::test(start_paused = true)]
async fn the_next_leader_goes_on_after_the_last_finished_tick() {
    for (missed, expected, left_out) in [
        (MissedTicks::Skip, [6, 7], 5),
        (MissedTicks::RunOnce, [5, 6], 4),
        (MissedTicks::RunAll, [1, 2], 0),
    ] {
        let (_member, service) = service().await;
        let _kept = LockValue::open(&service, "cron", "").await.expect("it opens");
        let (task, mut ticks) = run(schedule(&service, missed), |_| Duration::ZERO);
        let first = numbers(&mut ticks, 3).await[2];
        tokio::time::sleep(PERIOD / 4).await;
        task.abort();
        assert!(task.await.expect_err("it was aborted").is_cancelled());
        tokio::time::sleep(5 * PERIOD).await;
        let (_task, mut ticks) = run(schedule(&service, missed), |_| Duration::ZERO);
        let tick = next(&mut ticks).await;
        let after = next(&mut ticks).await.number();
        assert_eq!([tick.number() - first, after - first], expected, "{missed:?}");
        assert_eq!(tick.missed(), left_out, "{missed:?}");
    }
}

/// Once no member has the value open, the ticks in between are lost, unless the program gives the
/// last one.
#[tokio::test(start_paused = true)]
async fn without_a_known_tick_it_begins_with_the_next() {
    let (_member, service) = service().await;
    let (task, mut ticks) = run(schedule(&service, MissedTicks::RunAll), |_| Duration::ZERO);
    let first = next(&mut ticks).await.number();
    task.abort();
    assert!(task.await.expect_err("it was aborted").is_cancelled());
    tokio::time::sleep(4 * PERIOD).await;
    let (task, mut ticks) = run(schedule(&service, MissedTicks::RunAll), |_| Duration::ZERO);
    let tick = next(&mut ticks).await;
    assert_eq!((tick.number() - first, tick.missed()), (5, 0));
    task.abort();
    assert!(task.await.expect_err("it was aborted").is_cancelled());
    let resumed = schedule(&service, MissedTicks::RunAll).resume_after(first);
    let (_task, mut ticks) = run(resumed, |_| Duration::ZERO);
    assert_eq!(numbers(&mut ticks, 3).await, [first + 1, first + 2, first + 3]);
}

/// When a leader is dropped in the middle of a job, the next waiter runs that tick.
#[tokio::test(start_paused = true)]
async fn a_tick_whose_job_was_dropped_runs_again() {
    let (_member, service) = service().await;
    let (task, mut ticks) = run(schedule(&service, MissedTicks::RunAll), |_| 10 * PERIOD);
    let tick = next(&mut ticks).await;
    let (_next, mut others) = run(schedule(&service, MissedTicks::RunAll), |_| Duration::ZERO);
    // The follower is in line and has the value open.
    while service.inspect("cron").await.expect("it answers").waiters.is_empty() {
        tokio::time::sleep(MS).await;
    }
    task.abort();
    assert!(task.await.expect_err("it was aborted").is_cancelled());
    assert_eq!(tick.fence(), Err(TermEnd::GivenUp));
    let again = next(&mut others).await;
    // The follower knows of no finished tick, because the first was not finished.
    assert!(again.number() > tick.number() && again.token() > tick.token());
}

/// An unfinished tick after a finished one runs again, with a higher token.
#[tokio::test(start_paused = true)]
async fn an_unfinished_tick_runs_again_after_a_finished_one() {
    let (_member, service) = service().await;
    let is_first = AtomicBool::new(true);
    let takes = move |_: &Tick| match is_first.swap(false, Ordering::Relaxed) {
        true => Duration::ZERO,
        false => 10 * PERIOD,
    };
    let (task, mut ticks) = run(schedule(&service, MissedTicks::RunOnce), takes);
    let unfinished = [next(&mut ticks).await, next(&mut ticks).await];
    let (_next, mut others) = run(schedule(&service, MissedTicks::RunOnce), |_| Duration::ZERO);
    while service.inspect("cron").await.expect("it answers").waiters.is_empty() {
        tokio::time::sleep(MS).await;
    }
    task.abort();
    let again = next(&mut others).await;
    assert_eq!((again.number(), again.missed()), (unfinished[1].number(), 0));
    assert!(again.token() > unfinished[1].token());
}

#[tokio::test(start_paused = true)]
async fn a_schedule_ends_with_its_service_and_its_member_and_its_job_with_it() {
    struct Dropped(Arc<Mutex<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = true;
        }
    }
    for leaves in [false, true] {
        let member = Member::local().await.expect("a local member");
        let service = member.lock_service("jobs").await.expect("a good name");
        let schedule = schedule(&service, MissedTicks::Skip);
        let dropped = Arc::new(Mutex::new(false));
        let (began, mut ticks) = unbounded_channel();
        let over = dropped.clone();
        let task = tokio::spawn(async move {
            let job = |tick: Tick| {
                let (began, dropped) = (began.clone(), Dropped(over.clone()));
                async move {
                    let _ = (began.send(tick), &dropped);
                    std::future::pending::<()>().await;
                }
            };
            schedule.run(job).await
        });
        let tick = next(&mut ticks).await;
        let expected = match leaves {
            true => {
                member.leave().await.expect("it leaves");
                ScheduleError::Left
            }
            false => {
                service.destroy().await.expect("once");
                ScheduleError::Destroyed
            }
        };
        assert_eq!(soon(task).await.expect("no panic"), expected);
        assert!(*dropped.lock().unwrap() && tick.fence().is_err());
    }
}

#[tokio::test]
async fn parameters_that_cannot_be_are_refused() {
    let (_member, service) = service().await;
    for period in [Duration::ZERO, MS / 2, Duration::MAX] {
        let refused = Schedule::new(&service, "cron", period, "node").expect_err("no such period");
        assert_eq!(refused, ScheduleError::InvalidPeriod(period));
    }
    let refused = Schedule::new(&service, "", PERIOD, "node").expect_err("no name");
    assert!(matches!(refused, ScheduleError::InvalidName(_)));
    let _count = SharedCount::open(&service, "cron", 7).await.expect("it opens");
    let over = schedule(&service, MissedTicks::Skip).run(async |_| {}).await;
    assert_eq!(over, ScheduleError::OtherRecipe);
}

/// A schedule that is dropped at any poll leaves nothing held, queued or open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_dropped_at_any_poll_leaves_nothing() {
    let local = Local::start(2).await;
    let service = local.services("s").await.remove(1);
    let count = std::cell::Cell::new(0);
    let nothing =
        async |_| until(|| local.members.iter().all(|member| left_open(member) == (0, 0, 0))).await;
    poll_k_then_drop(
        async || {
            let schedule =
                Schedule::new(&service, "cron", 5 * MS, "node").expect("good parameters");
            let count = &count;
            async move {
                let (done, over) = tokio::sync::oneshot::channel::<()>();
                let mut done = Some(done);
                let job = move |_| {
                    count.set(count.get() + 1);
                    let done = done.take();
                    async move { drop(done) }
                };
                // The run lasts until the first tick begins. It is dropped just before or just
                // after that.
                tokio::select! {
                    _ = schedule.run(job) => unreachable!("it runs on"),
                    _ = over => {}
                }
            }
        },
        nothing,
    )
    .await;
    assert!(count.get() > 0);
}

/// The resource that the job writes. It refuses lower tokens, and ticks that it already has.
#[derive(Default)]
struct Books {
    gate: TokenGate,
    ticks: Vec<i64>,
    tokens: BTreeSet<elderlock::Token>,
}

impl Books {
    fn write(&mut self, tick: &Tick) {
        if self.gate.admit(tick.token(), tick.lineage()).is_ok()
            && self.ticks.last().is_none_or(|last| *last < tick.number())
        {
            self.ticks.push(tick.number());
            self.tokens.insert(tick.token());
        }
    }
}

/// The leader's process dies, and with it the grantor. Every tick takes effect once, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticks_go_on_when_the_leader_dies() {
    let mut local = Local::start_mortal(4).await;
    let services = local.services("s").await;
    let books = Arc::new(Mutex::new(Books::default()));
    let (led, tasks): (Vec<_>, Vec<_>) = services
        .iter()
        .map(|service| {
            let schedule = Schedule::new(service, "cron", 20 * MS, "node")
                .expect("good parameters")
                .missed(MissedTicks::RunAll);
            let (books, led) = (books.clone(), Arc::new(Mutex::new(0)));
            let count = led.clone();
            let task = tokio::spawn(async move {
                let job = |tick: Tick| {
                    let (books, count) = (books.clone(), count.clone());
                    async move {
                        tokio::time::sleep(3 * MS).await;
                        books.lock().unwrap().write(&tick);
                        *count.lock().unwrap() += 1;
                    }
                };
                schedule.run(job).await
            });
            (led, task)
        })
        .unzip();
    let leader = |than: &[usize]| {
        let is_led = |at: &usize| *led[*at].lock().unwrap() > 3 && !than.contains(at);
        (0..4).find(is_led)
    };
    let mut dead = Vec::new();
    until(|| leader(&dead).is_some()).await;
    let first = leader(&dead).expect("one leads");
    // The others know the ticks by then, also on a busy machine.
    until(|| local.members.iter().filter(|member| left_over(member).1 > 0).count() == 3).await;
    local.kill(first);
    dead.push(first);
    until(|| leader(&dead).is_some()).await;
    let ran = books.lock().unwrap().ticks.len();
    until(|| books.lock().unwrap().ticks.len() > ran + 5).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    let books = books.lock().unwrap();
    assert!(books.tokens.len() >= 2, "two terms");
    assert!(books.ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{:?}", books.ticks);
}
