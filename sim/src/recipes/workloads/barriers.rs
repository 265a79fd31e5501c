//! `Barrier`, `DoubleBarrier` and `CountDownLatch`: no worker passes too early, and all workers
//! pass in the end.

use super::{Workload, goes_on};
use elderlock::{
    Barrier, BarrierError, CountDownLatch, CountError, DoubleBarrier, LockError, LockService,
    LostReason, Member,
};
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "gates";
const GATE: &str = "gate";
const ROUNDS: &str = "rounds";
/// The number of workers that begin a round.
const TOGETHER: u32 = 2;
/// The number of count-downs that open a latch.
const COUNTS: u32 = 3;
/// How long a latch is used before the next one.
const LATCH_FOR: u64 = 3_000_000_000;

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 200).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        match worker.below(100) {
            0..=39 => gate(worker, &service).await,
            40..=69 => round(worker, &service).await,
            70..=94 => latch(worker, &service).await,
            _ => worker.turk(&service).await,
        }
    }
}

async fn gate(worker: &Workload, service: &LockService) {
    let Some(Ok(barrier)) = worker.fickle("open", Barrier::open(service, GATE)).await else {
        return;
    };
    for _ in 0..1 + worker.below(6) {
        if worker.is_ending() {
            return;
        }
        worker.rest(1, 100).await;
        let done: Result<(), BarrierError> = match worker.below(3) {
            0 => worker
                .fickle("set", barrier.set())
                .await
                .unwrap_or(Ok(()))
                .map_err(BarrierError::from),
            1 => {
                let (checker, began) = (&worker.harness.checker, worker.harness.checker.now());
                checker.gate_opens(worker.number);
                worker.harness.waits(worker.number, "remove".to_owned());
                let removed = barrier.remove().await;
                checker.gate_opened(worker.number, began, removed.is_ok());
                // Waiting workers go on, though the barrier is set again at once.
                match removed {
                    Ok(()) if worker.below(2) == 0 => {
                        barrier.set().await.map_err(BarrierError::from)
                    }
                    removed => removed.map_err(BarrierError::from),
                }
            }
            _ => {
                // A worker that has seen it set passes only if a removal has begun since.
                let removals = worker.harness.checker.removals();
                let Some(Ok(is_set)) = worker.fickle("is_set", barrier.is_set()).await else {
                    continue;
                };
                let since = worker.harness.checker.now();
                let waited =
                    worker.fickle("gate", barrier.wait().wait(worker.millis(1, 4_000))).await;
                if waited == Some(Err(BarrierError::TimedOut)) {
                    worker.harness.checker.gate_stayed(worker.number, since);
                }
                if is_set && matches!(waited, Some(Ok(()))) {
                    worker.count("gates passed");
                    if removals.is_some() && worker.harness.checker.removals() == removals {
                        let what = format!(
                            "worker {} passed, and no worker had removed the barrier",
                            worker.number
                        );
                        worker.harness.checker.fail("barrier_opens_once", what);
                    }
                }
                waited.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = done
            && !error.is_timeout()
        {
            return goes_on(worker, "gate", &error);
        }
    }
}

async fn round(worker: &Workload, service: &LockService) {
    let Some(Ok(barrier)) =
        worker.fickle("open", DoubleBarrier::open(service, ROUNDS, TOGETHER)).await
    else {
        return;
    };
    let checker = &worker.harness.checker;
    let (stay, began) = (checker.enters(worker.number), checker.now());
    // Some workers wait until all faults of the time are over, with their consequences.
    let limit = if worker.below(4) == 0 {
        worker.millis(15_000, 30_000)
    } else {
        worker.millis(100, 4_000)
    };
    let entered = worker.fickle("enter", barrier.enter().wait(limit)).await;
    let inside = match entered {
        Some(Ok(inside)) => inside,
        other => {
            // A suspension of the member ends the worker's share, and the barrier takes another
            // share for it.
            if let Some(Err(BarrierError::Count(CountError::Lost(lost)))) = &other
                && lost.reason == LostReason::Suspended
            {
                let what =
                    format!("worker {} waits no more for a round: it was suspended", worker.number);
                checker.fail("barrier_opens_for_all", what);
            }
            checker.goes_out(stay);
            if let Some(Err(error)) = other
                && !error.is_timeout()
            {
                goes_on(worker, "enter", &error);
            }
            return;
        }
    };
    worker.note(|| "has entered the round".to_owned());
    let inside = Rc::new(inside);
    let seen = Rc::downgrade(&inside);
    let belief = worker.by_own_clock(Box::new(move || seen.upgrade()?.fence().ok()));
    checker.entered(stay, began, TOGETHER, belief);
    worker.rest(1, 150).await;
    let Some(inside) = Rc::into_inner(inside) else { return };
    let was_inside = inside.fence().is_ok();
    let others = checker.begins_to_leave(stay);
    let left = worker.fickle("leave", inside.leave().wait(Duration::from_secs(8))).await;
    worker.note(|| format!("has left the round: {left:?}"));
    if was_inside && matches!(left, Some(Ok(()))) {
        worker.count("rounds left");
        checker.left(worker.number, &others);
    }
    checker.goes_out(stay);
}

async fn latch(worker: &Workload, service: &LockService) {
    let checker = &worker.harness.checker;
    let name = format!("latch {}", checker.now() / LATCH_FOR);
    let opened = worker.fickle("open", CountDownLatch::open(service, &name, COUNTS)).await;
    let Some(Ok(latch)) = opened else { return };
    let latch = Rc::new(latch);
    let since = checker.now();
    for _ in 0..1 + worker.below(3) {
        if worker.is_ending() {
            return;
        }
        worker.rest(1, 300).await;
        checker.counts_down(&name);
        match worker.fickle("count_down", latch.count_down()).await {
            Some(Ok(left)) => {
                worker.count("latches counted down");
                worker.note(|| format!("counted {name} down to {left}"));
                let kept = Rc::downgrade(&latch);
                let is_open =
                    Box::new(move || kept.upgrade().is_some_and(|latch| latch.count().is_ok()));
                checker.counted_down(worker.number, &name, left, since, is_open);
            }
            Some(Err(error)) => return goes_on(worker, "count_down", &error),
            None => {}
        }
    }
    match worker.fickle("latch", latch.wait().wait(worker.millis(1, 2_000))).await {
        Some(Ok(())) => {
            worker.count("latches passed");
            if checker.count_downs(&name) < u64::from(COUNTS) {
                let what = format!(
                    "worker {} passed {name} before {COUNTS} had counted down",
                    worker.number
                );
                checker.fail("barrier_opens_once", what);
            }
        }
        Some(Err(BarrierError::TimedOut)) | None => {}
        Some(Err(error)) => goes_on(worker, "latch", &error),
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let barrier =
        Barrier::open(&service, GATE).await.map_err(|error: LockError| error.to_string())?;
    let opens = |error: CountError| error.to_string();
    barrier.set().await.map_err(opens)?;
    let waits = async { barrier.wait().await.map_err(|error| error.to_string()) };
    // The barrier is set again at once: workers that wait by then go on all the same.
    let removes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        barrier.remove().await.map_err(opens)?;
        barrier.set().await.map_err(opens)
    };
    let (waited, removed) = tokio::join!(waits, removes);
    waited.and(removed)?;
    barrier.remove().await.map_err(opens)?;
    barrier.wait().await.map_err(|error| error.to_string())?;
    let rounds =
        DoubleBarrier::open(&service, ROUNDS, TOGETHER).await.map_err(|error| error.to_string())?;
    // A full round of the remaining workers.
    let fails = |error: BarrierError| error.to_string();
    let (one, two) = tokio::join!(rounds.enter(), rounds.enter());
    let (one, two) = tokio::join!(one.map_err(fails)?.leave(), two.map_err(fails)?.leave());
    one.and(two).map_err(fails)
}
