//! `Semaphore`: several permits at once, some returned early, and a limit that changes meanwhile.

use super::{Workload, goes_on};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{
    LockError, LockService, Member, Mode as Held, Permit, PermitGuard, Semaphore, Token,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "pool";
const NAME: &str = "connections";
/// The initial limit, which comes back when no member has the object open any more.
const INITIAL: u32 = 1;
const HIGHEST: u64 = 4;

pub(super) async fn play(worker: &Workload) {
    worker.harness.checker.limit_begins(SERVICE, INITIAL);
    'anew: while !worker.is_ending() {
        worker.rest(1, 100).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        let opened = worker.fickle("open", Semaphore::open(&service, NAME, INITIAL)).await;
        let Some(Ok(semaphore)) = opened else { continue };
        for _ in 0..4 + worker.below(30) {
            if worker.is_ending() {
                return;
            }
            worker.rest(1, 150).await;
            // The limit may sink for good below the wanted number, so the wait has an end.
            let asked = 1 + worker.below(3) as u32;
            match worker.below(100) {
                0..=74 => {
                    let began = worker.harness.checker.now();
                    let request = semaphore.acquire(asked).wait(worker.millis(20, 3_000));
                    match worker.fickle("permits", request.into_future()).await {
                        Some(Ok(guard)) => hold(worker, &service, guard, began).await,
                        Some(Err(LockError::TimedOut)) | None => {}
                        Some(Err(error)) => {
                            goes_on(worker, "permits", &error);
                            continue 'anew;
                        }
                    }
                }
                75..=82 => {
                    let began = worker.harness.checker.now();
                    let attempt = semaphore.try_acquire(asked).into_future();
                    if let Some(Ok(guard)) = worker.fickle("try permits", attempt).await {
                        hold(worker, &service, guard, began).await;
                    }
                }
                83..=94 => {
                    let limit = 1 + worker.below(HIGHEST) as u32;
                    worker.note(|| format!("sets the limit to {limit}"));
                    worker.harness.waits(worker.number, "set".to_owned());
                    let write = worker.harness.checker.limit_asked(SERVICE, limit);
                    match semaphore.limit().set(limit as i32).await {
                        Ok(_) => {
                            worker.count("limits set");
                            worker.harness.checker.limit_set(SERVICE, write);
                        }
                        Err(error) => {
                            goes_on(worker, "set", &error);
                            continue 'anew;
                        }
                    }
                }
                _ => worker.turk(&service).await,
            }
        }
    }
}

async fn hold(worker: &Workload, service: &LockService, guard: PermitGuard, began: u64) {
    worker.note(|| format!("has {} permits by {:?}", guard.permits(), guard.token()));
    let guard = Rc::new(RefCell::new(guard));
    let seen = Rc::downgrade(&guard);
    let many = {
        let seen = seen.clone();
        Box::new(move || seen.upgrade().map_or(0, |guard| guard.borrow().permits()))
    };
    let belief = Box::new(move || {
        let guard = seen.upgrade()?;
        let guard = guard.borrow();
        (guard.permits() > 0).then(|| guard.fence().ok())?
    });
    worker.claim(SERVICE, NAME, ClaimMode::Permits { many, asked: began }, belief);
    worker.rest(1, 150).await;
    if worker.below(3) == 0 && guard.borrow().permits() > 1 {
        worker.count("permits returned early");
        let given = guard.borrow_mut().return_permits(1);
        worker.note(|| format!("returned one: {given:?}"));
        worker.rest(1, 100).await;
    }
    if worker.below(3) == 0
        && let Some(guard) = Rc::into_inner(guard)
    {
        apart(worker, service, guard.into_inner(), began).await;
    }
}

/// Permits taken apart: each passes from task to task, and ends by itself.
async fn apart(worker: &Workload, service: &LockService, guard: PermitGuard, began: u64) {
    let (hold, many) = (guard.token(), guard.permits());
    worker.count("permits taken apart");
    worker.note(|| format!("takes {many} permits of {hold:?} apart"));
    let left = Rc::new(Cell::new(many));
    let mut permits: Vec<Rc<Permit>> = guard.into_permits().into_iter().map(Rc::new).collect();
    for permit in &permits {
        let seen = Rc::downgrade(permit);
        let belief = Box::new(move || seen.upgrade()?.fence().ok());
        let believed = Rc::downgrade(permit);
        let many = Box::new(move || believed.upgrade().map_or(0, |_| 1));
        worker.claim(SERVICE, NAME, ClaimMode::Permits { many, asked: began }, belief);
    }
    let kept = permits.pop();
    for permit in permits {
        hand_on(worker, service, permit, (hold, left.clone()));
    }
    worker.rest(1, 100).await;
    while let Some(permit) = kept.as_ref().filter(|_| left.get() > 1 || worker.below(2) > 0) {
        if permit.fence().is_err() || worker.is_ending() || !worker.harness.checker.is_undisturbed()
        {
            break;
        }
        look(worker, service, hold, &left).await;
    }
    left.set(left.get() - 1);
}

/// Another task of the process takes the permit, and may hand it on. The task also gets the hold's
/// token and the number of permits that are left of the hold.
fn hand_on(
    worker: &Workload,
    service: &LockService,
    permit: Rc<Permit>,
    (hold, left): (Token, Rc<Cell<u32>>),
) {
    let service = service.clone();
    worker.begin("a permit", move |next| async move {
        next.rest(1, 150).await;
        if next.below(3) == 0 {
            next.count("permits handed on");
            return hand_on(&next, &service, permit, (hold, left));
        }
        next.note(|| format!("ends the permit {:?}", permit.token()));
        let how = next.below(3);
        let mut is_confirmed = false;
        // Another permit of the hold may end meanwhile, without a confirmation.
        let most = left.get() - 1;
        if how < 2
            && let Some(permit) = Rc::into_inner(permit)
        {
            if how == 0 {
                let _ = permit.release().await;
            } else {
                let release = permit.release_and_confirm();
                is_confirmed = next.fickle("the confirmation", release).await == Some(Ok(()));
            }
        }
        left.set(left.get() - 1);
        if is_confirmed {
            next.count("releases confirmed");
            confirmed(&next, &service, hold, most).await;
        }
    });
}

/// `confirmed_is_free`: a look that begins after a confirmed release finds at most `left` permits
/// of the hold. `left` is the number of permits beside the released ones when the release began.
async fn confirmed(worker: &Workload, service: &LockService, hold: Token, left: u32) {
    let Ok(seen) = service.inspect(NAME).await else { return };
    let more = |mode: &Held| matches!(mode, Held::Permits(many) if *many > left);
    if let Some(holder) =
        seen.holders.iter().find(|holder| holder.token == hold && more(&holder.mode))
    {
        let what = format!(
            "{left} permits of {hold:?} were left when a confirmed release began, and the grantor \
             has {:?}",
            holder.mode
        );
        worker.harness.checker.fail("confirmed_is_free", what);
    }
}

/// `leases_end_one_by_one`: without faults the grantor knows within a second how many of the
/// permits are left.
async fn look(worker: &Workload, service: &LockService, hold: Token, left: &Cell<u32>) {
    let before = left.get();
    worker.rest(1_000, 1_000).await;
    let Ok(seen) = service.inspect(NAME).await else { return };
    if left.get() != before || !worker.harness.checker.is_undisturbed() {
        return;
    }
    for holder in seen.holders.iter().filter(|holder| holder.token == hold) {
        worker.count("permits looked up");
        if holder.mode != Held::Permits(before) {
            let what = format!(
                "{before} permits of {hold:?} are left, and the grantor has {:?}",
                holder.mode
            );
            worker.harness.checker.fail("leases_end_one_by_one", what);
        }
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let semaphore =
        Semaphore::open(&service, NAME, INITIAL).await.map_err(|error| error.to_string())?;
    let limit = semaphore.limit().get().map_err(|error| error.to_string())?.count;
    let all = semaphore.acquire(limit as u32).wait(Duration::from_secs(10));
    all.await.map(drop).map_err(|error| format!("all {limit} permits: {error}"))
}
