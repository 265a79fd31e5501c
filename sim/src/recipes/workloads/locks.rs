//! Plain locks of the service: alone, in batches, whole suspensions; transfers and destructions
//! meanwhile.

use super::{Workload, goes_on, have};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{Guard, LockError, LockService, Member, TryLockError, Unavailable};
use std::rc::Rc;

const SERVICE: &str = "stock";
const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) async fn play(player: &Workload) {
    while !player.is_ending() {
        player.rest(1, 300).await;
        let Ok(locks) = player.member.lock_service(SERVICE).await else { return };
        match player.below(100) {
            0..=59 => one(player, &locks).await,
            60..=69 => attempt(player, &locks).await,
            70..=87 => batch(player, &locks).await,
            88..=92 => suspension(player, &locks).await,
            93..=98 => player.turk(&locks).await,
            _ => {
                player.count("destructions");
                let _ = player.fickle("destroy", locks.destroy()).await;
            }
        }
    }
}

async fn one(player: &Workload, locks: &LockService) {
    let name = *player.pick(&NAMES);
    let mut wish = locks.lock(name).owner(player.number);
    if player.below(2) == 0 {
        wish = wish.wait(player.millis(1, 2_000));
    }
    if player.below(4) == 0 {
        wish = wish.lease(player.millis(1, 400));
    }
    match player.fickle(name, wish.into_future()).await {
        Some(Ok(guard)) => hold(player, name, guard).await,
        Some(Err(error)) => refused(player, name, &error),
        None => {}
    }
}

fn refused(player: &Workload, name: &str, error: &LockError) {
    if !matches!(error, LockError::TimedOut) {
        goes_on(player, name, error);
    }
}

async fn attempt(player: &Workload, locks: &LockService) {
    let mut name = *player.pick(&NAMES);
    let board = player.stage.board.clone();
    if player.below(2) == 0
        && let Ok(released) = tokio::time::timeout(player.millis(10, 300), board.confirms()).await
    {
        name = released;
    }
    let asked = board.now();
    match player.fickle(name, locks.try_lock(name).owner(player.number).into_future()).await {
        Some(Ok(guard)) => hold(player, name, guard).await,
        Some(Err(TryLockError::Held(holder))) => board.refused(player.number, asked, holder.token),
        None => {}
        Some(Err(error)) => goes_on(player, name, &error),
    }
}

async fn hold(player: &Workload, name: &'static str, guard: Guard) {
    player.note(|| format!("has {name} by {:?}", guard.token()));
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    player.claim(SERVICE, name, ClaimMode::Lock, Box::new(move || seen.upgrade()?.fence().ok()));
    player.rest(1, 150).await;
    let Some(guard) = Rc::into_inner(guard).filter(|_| player.below(2) == 0) else { return };
    let token = guard.token();
    if player.below(2) == 0 {
        let released = guard.release().await;
        player.note(|| format!("released {name}: {released:?}"));
    } else if let Some(released) =
        player.fickle("the confirmation", guard.release_and_confirm()).await
    {
        player.note(|| format!("released {name}, and heard: {released:?}"));
        if released.is_ok() {
            player.count("releases confirmed");
            player.stage.board.confirmed(name, token);
        }
    }
}

async fn batch(player: &Workload, locks: &LockService) {
    let names = match player.below(3) {
        0 => vec!["a", "b"],
        1 => vec!["c", "a"],
        _ => NAMES.to_vec(),
    };
    let wish = locks.lock_all(&names).owner(player.number);
    match player.fickle("batch", wish.into_future()).await {
        Some(Ok(guard)) => {
            player.note(|| format!("has {names:?}"));
            player.count("batches held");
            let guard = Rc::new(guard);
            for name in names {
                let seen = Rc::downgrade(&guard);
                player.claim(
                    SERVICE,
                    name,
                    ClaimMode::Lock,
                    Box::new(move || seen.upgrade()?.fence(name).ok()),
                );
            }
            player.rest(1, 150).await;
        }
        Some(Err(error)) => refused(player, "batch", &error),
        None => {}
    }
}

async fn suspension(player: &Workload, locks: &LockService) {
    let wish = locks.suspend().owner(player.number);
    match player.fickle("suspension", wish.into_future()).await {
        Some(Ok(guard)) => {
            player.note(|| "has suspended it".to_owned());
            let guard = Rc::new(guard);
            let seen = Rc::downgrade(&guard);
            player.claim(
                SERVICE,
                "*",
                ClaimMode::Suspension,
                Box::new(move || seen.upgrade()?.fence().ok()),
            );
            let second = locks.suspend().owner(player.number).wait(player.millis(1, 20)).await;
            match second {
                Err(LockError::Deadlock) => player.count("second suspensions refused"),
                Err(LockError::Unavailable(Unavailable::Busy)) => {}
                _ if guard.fence().is_err() => {}
                second => {
                    let what = format!("player {} suspends it twice: {second:?}", player.number);
                    player.stage.board.fail("suspension_is_exclusive", what);
                }
            }
            player.rest(1, 150).await;
        }
        Some(Err(error)) => refused(player, "suspension", &error),
        None => {}
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, name).await?;
    }
    Ok(())
}
