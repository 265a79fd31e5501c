//! `Semaphore`: several permits at once, some returned early, and a limit that changes meanwhile.

use super::{Workload, goes_on};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{
    Lease, LockError, LockService, Member, Mode as Held, PermitGuard, Semaphore, Token,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "pool";
const NAME: &str = "connections";
/// The initial limit, which comes back when no member has the object open any more.
const INITIAL: u32 = 1;
const HIGHEST: u64 = 4;

pub(super) async fn play(player: &Workload) {
    player.stage.board.limit_begins(SERVICE, INITIAL);
    'anew: while !player.is_ending() {
        player.rest(1, 100).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        let opened = player.fickle("open", Semaphore::open(&service, NAME, INITIAL)).await;
        let Some(Ok(semaphore)) = opened else { continue };
        for _ in 0..4 + player.below(30) {
            if player.is_ending() {
                return;
            }
            player.rest(1, 150).await;
            // The limit may sink for good below the wanted number, so the wait has an end.
            let asked = 1 + player.below(3) as u32;
            match player.below(100) {
                0..=74 => {
                    let began = player.stage.board.now();
                    let wish = semaphore.acquire(asked).wait(player.millis(20, 3_000));
                    match player.fickle("permits", wish.into_future()).await {
                        Some(Ok(guard)) => hold(player, &service, guard, began).await,
                        Some(Err(LockError::TimedOut)) | None => {}
                        Some(Err(error)) => {
                            goes_on(player, "permits", &error);
                            continue 'anew;
                        }
                    }
                }
                75..=82 => {
                    let began = player.stage.board.now();
                    let attempt = semaphore.try_acquire(asked).into_future();
                    if let Some(Ok(guard)) = player.fickle("try permits", attempt).await {
                        hold(player, &service, guard, began).await;
                    }
                }
                83..=94 => {
                    let limit = 1 + player.below(HIGHEST) as u32;
                    player.note(|| format!("sets the limit to {limit}"));
                    player.stage.waits(player.number, "set".to_owned());
                    let write = player.stage.board.limit_asked(SERVICE, limit);
                    match semaphore.limit().set(limit as i32).await {
                        Ok(_) => {
                            player.count("limits set");
                            player.stage.board.limit_set(SERVICE, write);
                        }
                        Err(error) => {
                            goes_on(player, "set", &error);
                            continue 'anew;
                        }
                    }
                }
                _ => player.turk(&service).await,
            }
        }
    }
}

async fn hold(player: &Workload, service: &LockService, guard: PermitGuard, began: u64) {
    player.note(|| format!("has {} permits by {:?}", guard.permits(), guard.token()));
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
    player.claim(SERVICE, NAME, ClaimMode::Permits { many, asked: began }, belief);
    player.rest(1, 150).await;
    if player.below(3) == 0 && guard.borrow().permits() > 1 {
        player.count("permits given back early");
        let given = guard.borrow_mut().return_permits(1);
        player.note(|| format!("gave one back: {given:?}"));
        player.rest(1, 100).await;
    }
    if player.below(3) == 0
        && let Some(guard) = Rc::into_inner(guard)
    {
        apart(player, service, guard.into_inner(), began).await;
    }
}

/// Permits split into leases: each passes from task to task, and ends by itself.
async fn apart(player: &Workload, service: &LockService, guard: PermitGuard, began: u64) {
    let (hold, many) = (guard.token(), guard.permits());
    player.count("permits taken apart");
    player.note(|| format!("takes {many} permits of {hold:?} apart"));
    let left = Rc::new(Cell::new(many));
    let mut leases: Vec<Rc<Lease>> = guard.into_leases().into_iter().map(Rc::new).collect();
    for lease in &leases {
        let seen = Rc::downgrade(lease);
        let belief = Box::new(move || seen.upgrade()?.fence().ok());
        let believed = Rc::downgrade(lease);
        let many = Box::new(move || believed.upgrade().map_or(0, |_| 1));
        player.claim(SERVICE, NAME, ClaimMode::Permits { many, asked: began }, belief);
    }
    let kept = leases.pop();
    for lease in leases {
        hand_on(player, lease, left.clone());
    }
    player.rest(1, 100).await;
    while let Some(lease) = kept.as_ref().filter(|_| left.get() > 1 || player.below(2) > 0) {
        if lease.fence().is_err() || player.is_ending() || !player.stage.board.is_undisturbed() {
            break;
        }
        look(player, service, hold, &left).await;
    }
    left.set(left.get() - 1);
}

/// Another task of the process takes the lease, and may hand it on.
fn hand_on(player: &Workload, lease: Rc<Lease>, left: Rc<Cell<u32>>) {
    player.begin("a lease", move |next| async move {
        next.rest(1, 150).await;
        if next.below(3) == 0 {
            next.count("permits handed on");
            return hand_on(&next, lease, left);
        }
        next.note(|| format!("ends the lease {:?}", lease.token()));
        if next.below(2) == 0
            && let Some(lease) = Rc::into_inner(lease)
        {
            let _ = lease.release().await;
        }
        left.set(left.get() - 1);
    });
}

/// `leases_end_one_by_one`: without faults the grantor knows within a second how many of the
/// leases are left.
async fn look(player: &Workload, service: &LockService, hold: Token, left: &Cell<u32>) {
    let before = left.get();
    player.rest(1_000, 1_000).await;
    let Ok(seen) = service.inspect(NAME).await else { return };
    if left.get() != before || !player.stage.board.is_undisturbed() {
        return;
    }
    for holder in seen.holders.iter().filter(|holder| holder.token == hold) {
        player.count("leases looked up");
        if holder.mode != Held::Permits(before) {
            let what = format!(
                "{before} leases of {hold:?} are left, and the grantor has {:?}",
                holder.mode
            );
            player.stage.board.fail("leases_end_one_by_one", what);
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
