//! `LockValue`: read and written by the holder of the lock of its name.

use super::{Workload, goes_on, have};
use elderlock::{Guard, LockError, LockService, LockValue, LockValueError, Member, Token};

const SERVICE: &str = "shelf";
const NAMES: [&str; 2] = ["left", "right"];

pub(super) async fn play(player: &Workload) {
    while !player.is_ending() {
        player.rest(1, 100).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        let name = *player.pick(&NAMES);
        let Some(Ok(value)) = player.fickle("open", LockValue::open(&service, name, "0")).await
        else {
            continue;
        };
        for _ in 0..4 + player.below(20) {
            if player.is_ending() {
                return;
            }
            player.rest(1, 150).await;
            let done = match player.below(100) {
                0..=9 => value.get().map(|seen| {
                    seen_at(player, name, seen.version, &seen.value);
                }),
                10..=14 => {
                    player.turk(&service).await;
                    Ok(())
                }
                _ => hold(player, &service, name, &value).await,
            };
            if let Err(error) = done {
                goes_on(player, "value", &error);
                if !error.is_lock_lost() {
                    break;
                }
            }
        }
    }
}

/// Takes the lock, reads and writes.
async fn hold(
    player: &Workload,
    service: &LockService,
    name: &'static str,
    value: &LockValue,
) -> Result<(), LockValueError> {
    // Often so short that the lease ends while a call is under way.
    let wish = service.lock(name).wait(player.millis(1, 2_000)).lease(player.millis(1, 300));
    let guard: Guard = match player.fickle(name, wish.into_future()).await {
        Some(Ok(guard)) => guard,
        Some(Err(LockError::TimedOut)) | None => return Ok(()),
        Some(Err(error)) => {
            goes_on(player, name, &error);
            return Ok(());
        }
    };
    let board = &player.stage.board;
    let token = guard.token();
    let mut number = 0;
    // A player that has read nothing knows of no earlier version.
    let mut since = None;
    if player.below(8) > 0 {
        let Some(seen) = player.fickle("read", value.read(&guard)).await else { return Ok(()) };
        let seen = seen?;
        number = seen_at(player, name, seen.version, &seen.value);
        board.value_touched(SERVICE, name, token, (seen.version, seen.version));
        player.count("values read under the lock");
        since = Some(seen.version);
    }
    for _ in 0..player.below(3) {
        if player.below(2) == 0 {
            player.rest(1, 200).await;
        }
        number += 1;
        let Some(version) = player.fickle("write", value.write(&guard, number.to_string())).await
        else {
            return Ok(());
        };
        let version = version?;
        player.note(|| format!("wrote {number} into {name} as {version:?} by {token:?}"));
        board.value(SERVICE, name, version, number);
        board.value_touched(SERVICE, name, token, (since.unwrap_or(version), version));
        player.count("values written under the lock");
        since = Some(version);
    }
    Ok(())
}

/// All players see the same number under a version.
fn seen_at(player: &Workload, name: &'static str, version: Token, value: &[u8]) -> i32 {
    let Some(number) = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) else {
        player
            .stage
            .board
            .fail("values_are_seen_in_order", format!("{name} of {version:?} is {value:?}"));
        return 0;
    };
    player.note(|| format!("sees {number} in {name} of {version:?}"));
    player.stage.board.value(SERVICE, name, version, number);
    number
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, name).await?;
    }
    Ok(())
}
