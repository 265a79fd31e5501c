//! `ReadWriteLock`: readers beside each other, writers alone, from one to the other and back.

use super::{Workload, goes_on, have_read_and_write};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{LockError, Member, ReadGuard, ReadWriteLock, UpgradeError, WriteGuard};
use std::rc::Rc;

const SERVICE: &str = "pages";
const NAMES: [&str; 2] = ["index", "news"];

pub(super) async fn play(player: &Workload) {
    while !player.is_ending() {
        player.rest(1, 200).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        let name = *player.pick(&NAMES);
        let lock = ReadWriteLock::new(&service, name);
        match player.below(100) {
            0..=49 => {
                let mut wish = lock.read();
                if player.below(4) == 0 {
                    wish = wish.wait(player.millis(1, 1_000));
                }
                match player.fickle("read", wish.into_future()).await {
                    Some(Ok(guard)) => read(player, name, guard).await,
                    Some(Err(LockError::TimedOut)) | None => {}
                    Some(Err(error)) => goes_on(player, "read", &error),
                }
            }
            50..=84 => match player.fickle("write", lock.write().into_future()).await {
                Some(Ok(guard)) => write(player, name, guard).await,
                Some(Err(error)) => goes_on(player, "write", &error),
                None => {}
            },
            85..=92 => {
                if let Some(Ok(guard)) = player.fickle("try to read", lock.try_read().into_future()).await {
                    read(player, name, guard).await;
                }
            }
            93..=97 => {
                if let Some(Ok(guard)) = player.fickle("try to write", lock.try_write().into_future()).await {
                    write(player, name, guard).await;
                }
            }
            _ => player.turk(&service).await,
        }
    }
}

async fn read(player: &Workload, name: &'static str, guard: ReadGuard) {
    player.note(|| format!("reads {name} by {:?}", guard.token()));
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    player.claim(SERVICE, name, ClaimMode::Share, Box::new(move || seen.upgrade()?.fence().ok()));
    player.rest(1, 150).await;
    if player.below(3) != 0 {
        return;
    }
    let Some(guard) = Rc::into_inner(guard) else { return };
    match player.fickle("upgrade", guard.upgrade()).await {
        Some(Ok(guard)) => {
            player.count("upgrades");
            Box::pin(write(player, name, guard)).await;
        }
        Some(Err((UpgradeError::Shared { .. }, Some(guard)))) => {
            player.count("upgrades refused");
            player.note(|| format!("still reads {name}"));
            let guard = Rc::new(guard);
            let seen = Rc::downgrade(&guard);
            player.claim(SERVICE, name, ClaimMode::Share, Box::new(move || seen.upgrade()?.fence().ok()));
            player.rest(1, 50).await;
        }
        Some(Err((error, _))) => goes_on(player, "upgrade", &error),
        None => {}
    }
}

async fn write(player: &Workload, name: &'static str, guard: WriteGuard) {
    player.note(|| format!("writes {name} by {:?}", guard.token()));
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    player.claim(SERVICE, name, ClaimMode::Lock, Box::new(move || seen.upgrade()?.fence().ok()));
    player.rest(1, 100).await;
    if player.below(3) != 0 {
        return;
    }
    let Some(guard) = Rc::into_inner(guard) else { return };
    if let Ok(guard) = guard.downgrade() {
        player.count("downgrades");
        Box::pin(read(player, name, guard)).await;
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have_read_and_write(member, SERVICE, name).await?;
    }
    Ok(())
}
