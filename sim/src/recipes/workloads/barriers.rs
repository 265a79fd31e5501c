//! `Barrier`, `DoubleBarrier` and `CountDownLatch`: no player passes too early, and all players
//! pass in the end.

use super::{Workload, goes_on};
use elderlock::{
    Barrier, BarrierError, CountDownLatch, CountError, DoubleBarrier, LockError, LockService,
    LostReason, Member,
};
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "gates";
const GATE: &str = "gate";
const ROUNDS: &str = "rounds";
/// The number of players that begin a round.
const TOGETHER: u32 = 2;
/// The number of count-downs that open a latch.
const COUNTS: u32 = 3;
/// How long a latch is used before the next one.
const LATCH_FOR: u64 = 3_000_000_000;

pub(super) async fn play(player: &Workload) {
    while !player.is_ending() {
        player.rest(1, 200).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        match player.below(100) {
            0..=39 => gate(player, &service).await,
            40..=69 => round(player, &service).await,
            70..=94 => latch(player, &service).await,
            _ => player.turk(&service).await,
        }
    }
}

async fn gate(player: &Workload, service: &LockService) {
    let Some(Ok(barrier)) = player.fickle("open", Barrier::open(service, GATE)).await else {
        return;
    };
    for _ in 0..1 + player.below(6) {
        if player.is_ending() {
            return;
        }
        player.rest(1, 100).await;
        let done: Result<(), BarrierError> = match player.below(3) {
            0 => player
                .fickle("set", barrier.set())
                .await
                .unwrap_or(Ok(()))
                .map_err(BarrierError::from),
            1 => {
                let (board, began) = (&player.stage.board, player.stage.board.now());
                board.gate_opens(player.number);
                player.stage.waits(player.number, "remove".to_owned());
                let removed = barrier.remove().await;
                board.gate_opened(player.number, began, removed.is_ok());
                // Waiting players go on, though the barrier is set again at once.
                match removed {
                    Ok(()) if player.below(2) == 0 => {
                        barrier.set().await.map_err(BarrierError::from)
                    }
                    removed => removed.map_err(BarrierError::from),
                }
            }
            _ => {
                // A player that has seen it set passes only if a removal has begun since.
                let removals = player.stage.board.removals();
                let Some(Ok(is_set)) = player.fickle("is_set", barrier.is_set()).await else {
                    continue;
                };
                let since = player.stage.board.now();
                let waited =
                    player.fickle("gate", barrier.wait_within(player.millis(1, 4_000))).await;
                if waited == Some(Err(BarrierError::TimedOut)) {
                    player.stage.board.gate_stayed(player.number, since);
                }
                if is_set && matches!(waited, Some(Ok(()))) {
                    player.count("gates passed");
                    if removals.is_some() && player.stage.board.removals() == removals {
                        let what = format!(
                            "player {} passed, and no player had removed the barrier",
                            player.number
                        );
                        player.stage.board.fail("barrier_opens_once", what);
                    }
                }
                waited.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = done
            && !error.is_timeout()
        {
            return goes_on(player, "gate", &error);
        }
    }
}

async fn round(player: &Workload, service: &LockService) {
    let Some(Ok(barrier)) =
        player.fickle("open", DoubleBarrier::open(service, ROUNDS, TOGETHER)).await
    else {
        return;
    };
    let board = &player.stage.board;
    let (stay, began) = (board.enters(player.number), board.now());
    // Some players wait until all faults of the time are over, with their consequences.
    let limit = if player.below(4) == 0 {
        player.millis(15_000, 30_000)
    } else {
        player.millis(100, 4_000)
    };
    let entered = player.fickle("enter", barrier.enter_within(limit)).await;
    let inside = match entered {
        Some(Ok(inside)) => inside,
        other => {
            // Its share ends then, and it takes another one.
            if let Some(Err(BarrierError::Count(CountError::Lost(lost)))) = &other
                && lost.reason == LostReason::Suspended
            {
                let what =
                    format!("player {} waits no more for a round: it was suspended", player.number);
                board.fail("barrier_opens_for_all", what);
            }
            board.goes_out(stay);
            if let Some(Err(error)) = other
                && !error.is_timeout()
            {
                goes_on(player, "enter", &error);
            }
            return;
        }
    };
    player.note(|| "has entered the round".to_owned());
    let inside = Rc::new(inside);
    let seen = Rc::downgrade(&inside);
    let belief = player.by_own_clock(Box::new(move || seen.upgrade()?.fence().ok()));
    board.entered(stay, began, TOGETHER, belief);
    player.rest(1, 150).await;
    let Some(inside) = Rc::into_inner(inside) else { return };
    let was_inside = inside.fence().is_ok();
    let others = board.begins_to_leave(stay);
    let left = player.fickle("leave", inside.leave_within(Duration::from_secs(8))).await;
    player.note(|| format!("has left the round: {left:?}"));
    if was_inside && matches!(left, Some(Ok(()))) {
        player.count("rounds left");
        board.left(player.number, &others);
    }
    board.goes_out(stay);
}

async fn latch(player: &Workload, service: &LockService) {
    let board = &player.stage.board;
    let name = format!("latch {}", board.now() / LATCH_FOR);
    let opened = player.fickle("open", CountDownLatch::open(service, &name, COUNTS)).await;
    let Some(Ok(latch)) = opened else { return };
    let latch = Rc::new(latch);
    let since = board.now();
    for _ in 0..1 + player.below(3) {
        if player.is_ending() {
            return;
        }
        player.rest(1, 300).await;
        board.counts_down(&name);
        match player.fickle("count_down", latch.count_down()).await {
            Some(Ok(left)) => {
                player.count("latches counted down");
                player.note(|| format!("counted {name} down to {left}"));
                let kept = Rc::downgrade(&latch);
                let is_open =
                    Box::new(move || kept.upgrade().is_some_and(|latch| latch.count().is_ok()));
                board.counted_down(player.number, &name, left, since, is_open);
            }
            Some(Err(error)) => return goes_on(player, "count_down", &error),
            None => {}
        }
    }
    match player.fickle("latch", latch.wait_within(player.millis(1, 2_000))).await {
        Some(Ok(())) => {
            player.count("latches passed");
            if board.count_downs(&name) < u64::from(COUNTS) {
                let what = format!(
                    "player {} passed {name} before {COUNTS} had counted down",
                    player.number
                );
                board.fail("barrier_opens_once", what);
            }
        }
        Some(Err(BarrierError::TimedOut)) | None => {}
        Some(Err(error)) => goes_on(player, "latch", &error),
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let barrier =
        Barrier::open(&service, GATE).await.map_err(|error: LockError| error.to_string())?;
    let opens = |error: CountError| error.to_string();
    barrier.set().await.map_err(opens)?;
    let waits = async { barrier.wait().await.map_err(|error| error.to_string()) };
    // It is set again at once: players that wait by then go on all the same.
    let removes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        barrier.remove().await.map_err(opens)?;
        barrier.set().await.map_err(opens)
    };
    let (waited, removed) = tokio::join!(waits, removes);
    waited.and(removed)?;
    barrier.remove().await.map_err(opens)?;
    barrier.wait().await.map_err(|error| error.to_string())?;
    let rounds =
        DoubleBarrier::open(&service, ROUNDS, TOGETHER).await.map_err(|error| error.to_string())?;
    // A full round of the remaining players.
    let fails = |error: BarrierError| error.to_string();
    let (one, two) = tokio::join!(rounds.enter(), rounds.enter());
    let (one, two) = tokio::join!(one.map_err(fails)?.leave(), two.map_err(fails)?.leave());
    one.and(two).map_err(fails)
}
