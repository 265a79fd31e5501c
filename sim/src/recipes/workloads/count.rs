//! `SharedCount`: read, set, added to; its changes are followed.

use super::{Workload, goes_on};
use elderlock::{CountError, Member, SharedCount, VersionedCount};

const SERVICE: &str = "stats";
const NAME: &str = "visits";

pub(super) async fn play(player: &Workload) {
    'anew: while !player.is_ending() {
        player.rest(1, 100).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        let opened = player.fickle("open", SharedCount::open(&service, NAME, 0)).await;
        let Some(Ok(count)) = opened else { continue };
        let Ok(mut changes) = count.changes() else { continue };
        // The last version that this handle has seen, or that a write of its own returned.
        let mut last = None;
        for _ in 0..4 + player.below(30) {
            if player.is_ending() {
                return;
            }
            player.rest(1, 150).await;
            let seen = match player.below(100) {
                0..=19 => count.get(),
                20..=34 => {
                    match player
                        .fickle(
                            "changes",
                            tokio::time::timeout(player.millis(1, 1_000), changes.next()),
                        )
                        .await
                    {
                        Some(Ok(seen)) => {
                            // Each value of the stream is no older than the one before, and may be
                            // older than this player's own later writes.
                            if let Ok(seen) = &seen {
                                player.stage.board.value(SERVICE, NAME, seen.version, seen.count);
                            }
                            continue;
                        }
                        _ => continue,
                    }
                }
                35..=64 => match player.fickle("add", count.add(1)).await {
                    Some(added) => {
                        player.count("counts added to");
                        added
                    }
                    None => continue,
                },
                65..=74 => {
                    let to = player.below(100) as i32;
                    match player.fickle("set", count.set(to)).await {
                        Some(version) => {
                            version.and_then(|version| written(player, &count, version, to))
                        }
                        None => continue,
                    }
                }
                75..=89 => {
                    let Ok(before) = count.get() else { continue 'anew };
                    let to = before.count.wrapping_add(10);
                    match player.fickle("try_set", count.try_set(before.version, to)).await {
                        Some(Ok(version)) => {
                            let board = &player.stage.board;
                            board.value(SERVICE, NAME, before.version, before.count);
                            board.value_replaced(SERVICE, NAME, before.version, version);
                            written(player, &count, version, to)
                        }
                        Some(Err(CountError::Changed(now))) => {
                            player.count("counts changed meanwhile");
                            Ok(now)
                        }
                        Some(Err(error)) => Err(error),
                        None => continue,
                    }
                }
                90..=96 => match player.fickle("read", count.read()).await {
                    Some(seen) => seen,
                    None => continue,
                },
                _ => {
                    player.turk(&service).await;
                    continue;
                }
            };
            match seen {
                Ok(seen) => {
                    player.note(|| format!("sees {} of {:?}", seen.count, seen.version));
                    player.stage.board.value(SERVICE, NAME, seen.version, seen.count);
                    if last.is_some_and(|last| last > seen.version) {
                        let what = format!(
                            "player {} saw {:?} after {last:?}",
                            player.number, seen.version
                        );
                        return player.stage.board.fail("values_are_seen_in_order", what);
                    }
                    last = Some(seen.version);
                }
                Err(error) => {
                    goes_on(player, "count", &error);
                    continue 'anew;
                }
            }
        }
    }
}

/// A player whose write is confirmed sees that value, or a later one.
fn written(
    player: &Workload,
    count: &SharedCount,
    version: elderlock::Token,
    to: i32,
) -> Result<VersionedCount, CountError> {
    player.count("counts set");
    player.stage.board.value(SERVICE, NAME, version, to);
    let now = count.get()?;
    if now.version < version {
        let what =
            format!("player {} wrote {version:?} and then saw {:?}", player.number, now.version);
        player.stage.board.fail("values_are_seen_in_order", what);
    }
    Ok(now)
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let count = SharedCount::open(&service, NAME, 0).await.map_err(|error| error.to_string())?;
    count.add(1).await.map(drop).map_err(|error| error.to_string())
}
