//! `Semaphore`: several permits at once, some given back early, and a limit that changes meanwhile.

use super::{Player, goes_on};
use crate::recipes::board::Mode;
use elderlock::{LockError, Member, PermitGuard, Semaphore};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "pool";
const NAME: &str = "connections";
/// What the limit begins with, whenever nobody has it open any more.
const INITIAL: u32 = 1;
const HIGHEST: u64 = 4;

pub(super) async fn play(player: &Player) {
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
            // The limit may sink for good below what is asked for, so the wait has an end.
            let asked = 1 + player.below(3) as u32;
            match player.below(100) {
                0..=74 => {
                    let began = player.stage.board.now();
                    let wish = semaphore.acquire(asked).wait(player.millis(20, 3_000));
                    match player.fickle("permits", wish.into_future()).await {
                        Some(Ok(guard)) => hold(player, guard, began).await,
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
                        hold(player, guard, began).await;
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

async fn hold(player: &Player, guard: PermitGuard, began: u64) {
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
    player.claim(SERVICE, NAME, Mode::Permits { many, asked: began }, belief);
    player.rest(1, 150).await;
    if player.below(3) == 0 && guard.borrow().permits() > 1 {
        player.count("permits given back early");
        let given = guard.borrow_mut().give_back(1);
        player.note(|| format!("gave one back: {given:?}"));
        player.rest(1, 100).await;
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let semaphore = Semaphore::open(&service, NAME, INITIAL).await.map_err(|error| error.to_string())?;
    let limit = semaphore.limit().get().map_err(|error| error.to_string())?.count;
    let all = semaphore.acquire(limit as u32).wait(Duration::from_secs(10));
    all.await.map(drop).map_err(|error| format!("all {limit} permits: {error}"))
}
