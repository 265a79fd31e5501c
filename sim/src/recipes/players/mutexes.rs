//! `ReentrantMutex`, `Mutex` and `MultiLock` on the same locks: owners enter again, and everybody else waits.

use super::{Player, goes_on, have};
use crate::recipes::board::Mode;
use elderlock::{EnterError, LockError, LockService, Lost, Member, MultiLock, Mutex, Owner, ReentrantMutex, Token};
use std::rc::Rc;

/// Two services, so that a multi lock has something to put in order.
const SERVICES: [&str; 2] = ["goods", "orders"];
const NAMES: [&str; 2] = ["a", "b"];

pub(super) async fn play(player: &Player) {
    let owner = Owner::new();
    while !player.is_ending() {
        player.rest(1, 200).await;
        let service = *player.pick(&SERVICES);
        let Ok(locks) = player.member.lock_service(service).await else { return };
        match player.below(100) {
            0..=44 => reentrant(player, service, &locks, owner).await,
            45..=69 => plain(player, service, &locks).await,
            70..=94 => several(player).await,
            _ => player.turk(&locks).await,
        }
    }
}

async fn reentrant(player: &Player, service: &'static str, locks: &LockService, owner: Owner) {
    let name = *player.pick(&NAMES);
    let mutex = ReentrantMutex::new(locks, name);
    let mut guards = Vec::new();
    for depth in 1..=1 + player.below(3) {
        let mut wish = mutex.acquire(owner);
        if player.below(3) == 0 {
            wish = wish.wait(player.millis(1, 1_500));
        }
        if player.below(4) == 0 {
            wish = wish.lease(player.millis(20, 400));
        }
        match player.fickle("enter", wish.into_future()).await {
            Some(Ok(guard)) => {
                player.note(|| format!("has {service}/{name} by {:?} at depth {depth}", guard.token()));
                if depth > 1 {
                    player.count("locks entered again");
                }
                let guard = Rc::new(guard);
                held(player, service, name, &guard, |guard| guard.fence());
                guards.push(guard);
            }
            Some(Err(EnterError::Lock(LockError::TimedOut))) | None => break,
            Some(Err(error)) => {
                goes_on(player, name, &error);
                break;
            }
        }
        player.rest(1, 40).await;
        // The owner who has the lock is told so, and one who has lost it is not.
        if guards.iter().any(|guard| guard.fence().is_ok()) != mutex.is_held_by(owner) {
            let what = format!("player {} and its mutex disagree whether it has {service}/{name}", player.number);
            return player.stage.board.fail("owners_know_what_they_hold", what);
        }
    }
    // In any order: the last one gives the lock back.
    while !guards.is_empty() {
        let next = player.below(guards.len() as u64) as usize;
        drop(guards.swap_remove(next));
        player.rest(1, 20).await;
    }
}

fn held<G: 'static>(
    player: &Player,
    service: &'static str,
    name: &'static str,
    guard: &Rc<G>,
    fence: fn(&G) -> Result<Token, Lost>,
) {
    let seen = Rc::downgrade(guard);
    player.claim(service, name, Mode::Lock, Box::new(move || fence(&*seen.upgrade()?).ok()));
}

async fn plain(player: &Player, service: &'static str, locks: &LockService) {
    let name = *player.pick(&NAMES);
    let mutex = Mutex::new(locks, name);
    let mut wish = mutex.acquire();
    if player.below(3) == 0 {
        wish = wish.wait(player.millis(1, 1_500));
    }
    match player.fickle("acquire", wish.into_future()).await {
        Some(Ok(guard)) => {
            let guard = Rc::new(guard);
            held(player, service, name, &guard, |guard| guard.fence());
            player.rest(1, 100).await;
            if mutex.is_acquired() != guard.fence().is_ok() {
                let what = format!("player {} and its mutex disagree whether it has {service}/{name}", player.number);
                player.stage.board.fail("owners_know_what_they_hold", what);
            }
        }
        Some(Err(LockError::TimedOut)) | None => {}
        Some(Err(error)) => goes_on(player, name, &error),
    }
}

async fn several(player: &Player) {
    let mut wanted: Vec<(&'static str, &'static str)> = Vec::new();
    for service in SERVICES {
        for name in NAMES {
            if player.below(2) == 0 {
                wanted.push((service, name));
            }
        }
    }
    // Named in any order.
    if player.below(2) == 0 {
        wanted.reverse();
    }
    let mut several = MultiLock::new();
    for (service, name) in &wanted {
        let Ok(locks) = player.member.lock_service(service).await else { return };
        several = several.with(&locks, [name]);
    }
    let mut wish = several.acquire();
    if player.below(3) == 0 {
        wish = wish.wait(player.millis(1, 2_000));
    }
    match player.fickle("several", wish.into_future()).await {
        Some(Ok(guard)) => {
            player.count("multi locks held");
            player.note(|| format!("has {wanted:?}"));
            let guard = Rc::new(guard);
            for (service, name) in wanted {
                let seen = Rc::downgrade(&guard);
                player.claim(service, name, Mode::Lock, Box::new(move || seen.upgrade()?.fence(service, name).ok()));
            }
            player.rest(1, 100).await;
        }
        Some(Err(error)) if !error.is_timeout() && !wanted.is_empty() => goes_on(player, "several", &error),
        _ => {}
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
