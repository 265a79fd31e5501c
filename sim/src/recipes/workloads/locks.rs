//! Plain locks of the service: alone, in batches, whole suspensions; transfers and destructions
//! meanwhile.

use super::{Workload, goes_on, have};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{Guard, LockError, LockService, Member, TryLockError, Unavailable, WithError};
use std::rc::Rc;

const SERVICE: &str = "stock";
const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 300).await;
        let Ok(locks) = worker.service(SERVICE).await else { return };
        match worker.below(100) {
            0..=49 => one(worker, &locks).await,
            50..=59 => scoped(worker, &locks).await,
            60..=69 => attempt(worker, &locks).await,
            70..=87 => batch(worker, &locks).await,
            88..=92 => suspension(worker, &locks).await,
            93..=98 => worker.turk(&locks).await,
            _ => {
                worker.count("destructions");
                let _ = worker.fickle("destroy", locks.destroy()).await;
            }
        }
    }
}

async fn one(worker: &Workload, locks: &LockService) {
    let name = *worker.pick(&NAMES);
    let mut request = locks.lock(name).owner(worker.number);
    if worker.below(2) == 0 {
        request = request.wait(worker.millis(1, 2_000));
    }
    if worker.below(4) == 0 {
        request = request.lease(worker.millis(1, 400));
    }
    match worker.fickle(name, request.into_future()).await {
        Some(Ok(guard)) => hold(worker, name, guard).await,
        Some(Err(error)) => refused(worker, name, &error),
        None => {}
    }
}

/// Work under a lock, which is dropped where it stands when the lock is lost.
async fn scoped(worker: &Workload, locks: &LockService) {
    let name = *worker.pick(&NAMES);
    let mut request = locks.lock(name).owner(worker.number);
    if worker.below(2) == 0 {
        request = request.lease(worker.millis(1, 400));
    }
    let work = async |guard: &Guard| {
        worker.note(|| format!("works under {name} by {:?}", guard.token()));
        worker.rest(1, 150).await;
        guard.token()
    };
    match worker.fickle(name, request.with(work)).await {
        Some(Ok(token)) => {
            worker.count("scoped work done");
            worker.note(|| format!("worked under {name} by {token:?}"));
        }
        Some(Err(WithError::Lost(lost))) => {
            worker.count("scoped work lost");
            worker.note(|| format!("{lost} while it worked under {name}"));
        }
        Some(Err(WithError::NotGranted(error))) => refused(worker, name, &error),
        Some(Err(error)) => worker.note(|| format!("worked under {name} in vain: {error}")),
        None => {}
    }
}

fn refused(worker: &Workload, name: &str, error: &LockError) {
    if !matches!(error, LockError::TimedOut) {
        goes_on(worker, name, error);
    }
}

async fn attempt(worker: &Workload, locks: &LockService) {
    let mut name = *worker.pick(&NAMES);
    let checker = worker.harness.checker.clone();
    if worker.below(2) == 0
        && let Ok(released) = tokio::time::timeout(worker.millis(10, 300), checker.confirms()).await
    {
        name = released;
    }
    let asked = checker.now();
    match worker.fickle(name, locks.try_lock(name).owner(worker.number).into_future()).await {
        Some(Ok(guard)) => hold(worker, name, guard).await,
        Some(Err(TryLockError::Held(holder))) => {
            checker.refused(worker.number, asked, holder.token)
        }
        None => {}
        Some(Err(error)) => goes_on(worker, name, &error),
    }
}

async fn hold(worker: &Workload, name: &'static str, guard: Guard) {
    worker.note(|| format!("has {name} by {:?}", guard.token()));
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    worker.claim(SERVICE, name, ClaimMode::Lock, Box::new(move || seen.upgrade()?.fence().ok()));
    worker.rest(1, 150).await;
    let Some(guard) = Rc::into_inner(guard).filter(|_| worker.below(2) == 0) else { return };
    let token = guard.token();
    if worker.below(2) == 0 {
        let released = guard.release().await;
        worker.note(|| format!("released {name}: {released:?}"));
    } else if let Some(released) =
        worker.fickle("the confirmation", guard.release_and_confirm()).await
    {
        worker.note(|| format!("released {name}, and heard: {released:?}"));
        if released.is_ok() {
            worker.count("releases confirmed");
            worker.harness.checker.confirmed(name, token);
        }
    }
}

async fn batch(worker: &Workload, locks: &LockService) {
    let names = match worker.below(3) {
        0 => vec!["a", "b"],
        1 => vec!["c", "a"],
        _ => NAMES.to_vec(),
    };
    let request = locks.lock_all(&names).owner(worker.number);
    match worker.fickle("batch", request.into_future()).await {
        Some(Ok(guard)) => {
            worker.note(|| format!("has {names:?}"));
            worker.count("batches held");
            let guard = Rc::new(guard);
            for name in names {
                let seen = Rc::downgrade(&guard);
                worker.claim(
                    SERVICE,
                    name,
                    ClaimMode::Lock,
                    Box::new(move || seen.upgrade()?.fence(name).ok()),
                );
            }
            worker.rest(1, 150).await;
        }
        Some(Err(error)) => refused(worker, "batch", &error),
        None => {}
    }
}

async fn suspension(worker: &Workload, locks: &LockService) {
    let request = locks.suspend().owner(worker.number);
    match worker.fickle("suspension", request.into_future()).await {
        Some(Ok(guard)) => {
            worker.note(|| "has suspended it".to_owned());
            let guard = Rc::new(guard);
            let seen = Rc::downgrade(&guard);
            worker.claim(
                SERVICE,
                "*",
                ClaimMode::Suspension,
                Box::new(move || seen.upgrade()?.fence().ok()),
            );
            let second = locks.suspend().owner(worker.number).wait(worker.millis(1, 20)).await;
            match second {
                Err(LockError::Deadlock) => worker.count("second suspensions refused"),
                Err(LockError::Unavailable(Unavailable::Busy)) => {}
                _ if guard.fence().is_err() => {}
                second => {
                    let what = format!("worker {} suspends it twice: {second:?}", worker.number);
                    worker.harness.checker.fail("suspension_is_exclusive", what);
                }
            }
            worker.rest(1, 150).await;
        }
        Some(Err(error)) => refused(worker, "suspension", &error),
        None => {}
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, name).await?;
    }
    Ok(())
}
