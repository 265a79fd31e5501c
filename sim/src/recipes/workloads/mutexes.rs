//! `ReentrantMutex`, `Mutex` and `MultiLock` on the same locks: owners enter again, and all others
//! wait.

use super::{Workload, goes_on, have};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{
    EnterError, LockError, LockService, Lost, Member, MultiGuard, MultiLock, Mutex, Owner,
    ReentrantGuard, ReentrantMutex, Token,
};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Two services, so that a multi lock has something to put in order.
const SERVICES: [&str; 2] = ["goods", "orders"];
const NAMES: [&str; 2] = ["a", "b"];

pub(super) async fn play(worker: &Workload) {
    let owner = Owner::new();
    while !worker.is_ending() {
        worker.rest(1, 200).await;
        let service = *worker.pick(&SERVICES);
        let Ok(locks) = worker.service(service).await else { return };
        match worker.below(100) {
            0..=34 => reentrant(worker, service, &locks, owner).await,
            35..=49 => pair(worker, service, &locks).await,
            50..=69 => plain(worker, service, &locks).await,
            70..=94 => several(worker, owner).await,
            _ => worker.turk(&locks).await,
        }
    }
}

async fn reentrant(worker: &Workload, service: &'static str, locks: &LockService, owner: Owner) {
    let name = *worker.pick(&NAMES);
    let mutex = ReentrantMutex::new(locks, name);
    let mut guards = Vec::new();
    for depth in 1..=1 + worker.below(3) {
        let mut request = mutex.acquire(owner);
        if worker.below(3) == 0 {
            request = request.wait(worker.millis(1, 1_500));
        }
        if worker.below(4) == 0 {
            request = request.lease(worker.millis(20, 400));
        }
        match worker.fickle("enter", request.into_future()).await {
            Some(Ok(guard)) => {
                worker.note(|| {
                    format!("has {service}/{name} by {:?} at depth {depth}", guard.token())
                });
                if depth > 1 {
                    worker.count("locks entered again");
                }
                let guard = Rc::new(guard);
                held(worker, service, name, &guard, |guard| guard.fence());
                guards.push(guard);
            }
            Some(Err(EnterError::Lock(LockError::TimedOut))) | None => break,
            Some(Err(error)) => {
                goes_on(worker, name, &error);
                break;
            }
        }
        worker.rest(1, 40).await;
        // The mutex knows whether an owner has the lock or has lost it.
        if guards.iter().any(|guard| guard.fence().is_ok()) != mutex.is_held_by(owner) {
            let what = format!(
                "worker {} and its mutex disagree whether it has {service}/{name}",
                worker.number
            );
            return worker.harness.checker.fail("owners_know_what_they_hold", what);
        }
    }
    // The guards end in any order, and the last one releases the lock.
    while !guards.is_empty() {
        let next = worker.below(guards.len() as u64) as usize;
        drop(guards.swap_remove(next));
        worker.rest(1, 20).await;
    }
}

/// Two tasks of one owner, as they see each other.
#[derive(Default)]
struct Pair {
    /// Whether each task waits to enter.
    asks: [Cell<bool>; 2],
    /// The guards of the two tasks.
    guards: [RefCell<Weak<ReentrantGuard>>; 2],
    /// The other task has ended.
    is_over: Cell<bool>,
}

/// A task asks beside another task of the same owner.
async fn pair(worker: &Workload, service: &'static str, locks: &LockService) {
    let name = *worker.pick(&NAMES);
    let (mutex, owner, pair) =
        (ReentrantMutex::new(locks, name), Owner::new(), Rc::new(Pair::default()));
    let (same, both) = (mutex.clone(), pair.clone());
    worker.begin("a second task", move |other| async move {
        one_of_two(&other, (service, name), &same, owner, (&both, 1)).await;
        both.is_over.set(true);
    });
    one_of_two(worker, (service, name), &mutex, owner, (&pair, 0)).await;
    while !pair.is_over.get() {
        worker.rest(5, 5).await;
    }
}

/// `owners_enter_together`: while one of the two has the lock, the other does not wait for it, and
/// both have the same hold.
async fn one_of_two(
    worker: &Workload,
    (service, name): (&'static str, &'static str),
    mutex: &ReentrantMutex,
    owner: Owner,
    (pair, me): (&Pair, usize),
) {
    let other = 1 - me;
    let fail = |invariant, what: &str| {
        worker
            .harness
            .checker
            .fail(invariant, format!("worker {} of {service}/{name}: {what}", worker.number));
    };
    for _ in 0..1 + worker.below(3) {
        worker.rest(1, 60).await;
        let mut request = mutex.acquire(owner);
        if worker.below(3) == 0 {
            request = request.wait(worker.millis(1, 1_500));
        }
        if worker.below(6) == 0 {
            request = request.lease(worker.millis(20, 400));
        }
        pair.asks[me].set(true);
        let entered = worker.fickle("enter beside another task", request.into_future()).await;
        pair.asks[me].set(false);
        let guard = match entered {
            Some(Ok(guard)) => Rc::new(guard),
            Some(Err(EnterError::Lock(LockError::TimedOut))) | None => continue,
            Some(Err(error)) => {
                goes_on(worker, name, &error);
                continue;
            }
        };
        worker.note(|| format!("has {service}/{name} by {:?}, as one of two", guard.token()));
        held(worker, service, name, &guard, |guard| guard.fence());
        *pair.guards[me].borrow_mut() = Rc::downgrade(&guard);
        worker.rest(1, 60).await;
        let theirs = pair.guards[other].borrow().upgrade();
        let beside = theirs.as_ref().and_then(|guard| guard.fence().ok());
        if let (Ok(mine), Some(beside)) = (guard.fence(), beside) {
            worker.count("locks held by two tasks");
            if mine != beside {
                fail(
                    "owners_enter_together",
                    &format!("has {mine:?}, and the other task {beside:?}"),
                );
            }
        }
        if (guard.fence().is_ok() || beside.is_some()) != mutex.is_held_by(owner) {
            fail("owners_know_what_they_hold", "its mutex disagrees whether its owner has it");
        }
        drop(theirs);
        // The waiting task is woken at the same instant, and has entered by the next look, also if
        // the process was stopped in between.
        let mut looks = 0;
        while pair.asks[other].get() && guard.fence().is_ok() && looks < 3 {
            looks += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if looks == 3 {
            fail(
                "owners_enter_together",
                "has the lock while the other task of its owner waits for it",
            );
        }
    }
}

fn held<G: 'static>(
    worker: &Workload,
    service: &'static str,
    name: &'static str,
    guard: &Rc<G>,
    fence: fn(&G) -> Result<Token, Lost>,
) {
    let seen = Rc::downgrade(guard);
    worker.claim(service, name, ClaimMode::Lock, Box::new(move || fence(&*seen.upgrade()?).ok()));
}

async fn plain(worker: &Workload, service: &'static str, locks: &LockService) {
    let name = *worker.pick(&NAMES);
    let mutex = Mutex::new(locks, name);
    let mut request = mutex.acquire();
    if worker.below(3) == 0 {
        request = request.wait(worker.millis(1, 1_500));
    }
    match worker.fickle("acquire", request.into_future()).await {
        Some(Ok(guard)) => {
            let guard = Rc::new(guard);
            held(worker, service, name, &guard, |guard| guard.fence());
            worker.rest(1, 100).await;
            if mutex.is_acquired() != guard.fence().is_ok() {
                let what = format!(
                    "worker {} and its mutex disagree whether it has {service}/{name}",
                    worker.number
                );
                worker.harness.checker.fail("owners_know_what_they_hold", what);
            }
        }
        Some(Err(LockError::TimedOut)) | None => {}
        Some(Err(error)) => goes_on(worker, name, &error),
    }
}

async fn several(worker: &Workload, owner: Owner) {
    let mut wanted: Vec<(&'static str, &'static str)> = Vec::new();
    for service in SERVICES {
        for name in NAMES {
            if worker.below(2) == 0 {
                wanted.push((service, name));
            }
        }
    }
    // The locks of a multi lock may be named in any order.
    if worker.below(2) == 0 {
        wanted.reverse();
    }
    let mut several = MultiLock::new();
    for (service, name) in &wanted {
        let Ok(locks) = worker.service(service).await else { return };
        several = several.with(&locks, [name]);
    }
    let is_owned = worker.below(2) == 0;
    let mut request = several.acquire();
    if is_owned {
        request = request.owner(owner);
    }
    if worker.below(3) == 0 {
        request = request.wait(worker.millis(1, 2_000));
    }
    match worker.fickle("several", request.into_future()).await {
        Some(Ok(guard)) => {
            worker.count("multi locks held");
            worker.note(|| format!("has {wanted:?}"));
            let guard = Rc::new(guard);
            for (service, name) in wanted.clone() {
                let seen = Rc::downgrade(&guard);
                worker.claim(
                    service,
                    name,
                    ClaimMode::Lock,
                    Box::new(move || seen.upgrade()?.fence(service, name).ok()),
                );
            }
            worker.rest(1, 100).await;
            if is_owned {
                enter_again(worker, &several, &wanted, &guard, owner).await;
            }
        }
        Some(Err(error)) if !error.is_timeout() && !wanted.is_empty() => {
            goes_on(worker, "several", &error)
        }
        _ => {}
    }
}

/// `owners_enter_together`: an owner enters a lock that it has, by a multi lock or by a mutex,
/// without waiting.
async fn enter_again(
    worker: &Workload,
    several: &MultiLock,
    wanted: &[(&'static str, &'static str)],
    guard: &MultiGuard,
    owner: Owner,
) {
    let soon = Duration::from_millis(20);
    let (service, name) = *worker.pick(wanted);
    let Ok(locks) = worker.service(service).await else { return };
    let again = several.acquire().owner(owner).wait(soon).await.map_err(|error| error.to_string());
    let again =
        again.and_then(|again| again.fence(service, name).map_err(|error| error.to_string()));
    let inner = ReentrantMutex::new(&locks, name)
        .acquire(owner)
        .wait(soon)
        .await
        .map_err(|error| error.to_string());
    let inner = inner.and_then(|inner| inner.fence().map_err(|error| error.to_string()));
    match guard.fence(service, name) {
        Ok(token) if again != Ok(token) || inner != Ok(token) => {
            let what =
                format!("has {service}/{name} by {token:?}, and enters it: {again:?}, {inner:?}");
            worker
                .harness
                .checker
                .fail("owners_enter_together", format!("worker {} {what}", worker.number));
        }
        Ok(_) => worker.count("multi locks entered again"),
        Err(_) => {}
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for service in SERVICES {
        for name in NAMES {
            have(member, service, name).await?;
        }
    }
    Ok(())
}
