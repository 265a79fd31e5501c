//! Locks and shares that members keep after their release, over real members with sockets on the
//! loopback interface.

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{LockService, Token, TryLockError};
use local::{Local, nothing_is_left, soon, until};
use std::time::Instant;

/// Three members. The first grants the locks of "inventory", and the second keeps them.
async fn three() -> (Local, Vec<LockService>) {
    let local = Local::start(3).await;
    let services = local.services("inventory").await;
    soon(services[0].become_grantor()).await.expect("it grants");
    services[1].keep_locks(true);
    (local, services)
}

/// The frames that members may send since this instant while they use kept locks. Beats and gossip
/// go on for as long as a busy machine takes.
fn most_frames(since: Instant) -> u64 {
    1_000 + 100 * since.elapsed().as_secs()
}

/// Takes the lock and releases it `times` times. Returns the tokens.
async fn use_lock(service: &LockService, name: &str, times: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    for _ in 0..times {
        let guard = soon(service.lock(name)).await.expect("granted");
        tokens.push(guard.fence().expect("held"));
        soon(guard.release()).await.expect("held");
    }
    tokens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_uses_a_lock_that_it_keeps_without_messages() {
    let (local, services) = three().await;
    let keeper = local.alive().nth(1).expect("three");
    use_lock(&services[1], "x", 3).await;
    let (start, before) = (Instant::now(), keeper.counters().frames_out);
    let tokens = use_lock(&services[1], "x", 10_000).await;
    let frames = keeper.counters().frames_out - before;
    assert!(tokens.is_sorted() && tokens.windows(2).all(|two| two[0] != two[1]), "tokens rise");
    assert!(frames < most_frames(start), "{frames} frames for 10,000 locks");
    let counts = || {
        let services = keeper.status().services;
        let of = services.iter().find(|of| of.service.as_str() == "inventory").expect("it uses it");
        (of.kept_here, of.kept_in_use_here)
    };
    assert_eq!(counts(), (1, 0));
    let guard = soon(services[1].lock("x")).await.expect("granted");
    assert_eq!(counts(), (1, 1));
    soon(guard.release()).await.expect("held");

    let guard = soon(services[2].lock("x")).await.expect("granted");
    assert!(guard.fence().expect("held") > tokens[tokens.len() - 1]);
    soon(guard.release()).await.expect("held");
    nothing_is_left(&local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_use_is_waited_for_and_a_free_keep_is_not() {
    let (local, services) = three().await;
    use_lock(&services[1], "x", 3).await;
    let held = soon(services[1].lock("x")).await.expect("granted");
    match soon(services[2].try_lock("x")).await {
        Err(TryLockError::Held(holder)) => {
            assert_eq!(holder.token, held.fence().expect("held"), "the holder of now");
        }
        other => panic!("{other:?}"),
    }
    let waiting = services[2].lock("x").start();
    soon(held.release()).await.expect("held");
    let guard = soon(waiting).await.expect("granted");
    soon(guard.release()).await.expect("held");

    use_lock(&services[1], "y", 3).await;
    let taken = soon(services[2].try_lock("y")).await.expect("it was kept free");
    drop(taken);
    nothing_is_left(&local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_read_the_same_name_keep_their_shares_until_another_writes() {
    let (local, services) = three().await;
    services[2].keep_locks(true);
    let frames = || local.alive().map(|member| member.counters().frames_out).sum::<u64>();
    let mut highest = None;
    for reader in [1, 2, 1, 2] {
        for _ in 0..3 {
            let guard = soon(services[reader].share("x")).await.expect("granted");
            soon(guard.release()).await.expect("held");
        }
    }
    let (start, before) = (Instant::now(), frames());
    for _ in 0..1_000 {
        for reader in [1, 2] {
            let one = soon(services[reader].share("x")).await.expect("granted");
            let two = soon(services[reader].share("x")).await.expect("granted");
            let tokens = [&one, &two].map(|guard| guard.fence().expect("held"));
            assert!(tokens[0] < tokens[1], "{tokens:?}");
            highest = highest.max(Some(tokens[1]));
            soon(one.release()).await.expect("held");
            soon(two.release()).await.expect("held");
        }
    }
    let sent = frames() - before;
    assert!(sent < most_frames(start), "{sent} frames for 4,000 shares");
    let guard = soon(services[2].lock("x")).await.expect("granted");
    assert!(Some(guard.fence().expect("held")) > highest);
    soon(guard.release()).await.expect("held");
    nothing_is_left(&local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_no_longer_keeps_locks_gives_them_back() {
    let (local, services) = three().await;
    use_lock(&services[1], "x", 3).await;
    services[1].keep_locks(false);
    use_lock(&services[1], "x", 1).await;
    let keeper = local.alive().nth(1).expect("three");
    let before = keeper.counters().frames_out;
    use_lock(&services[1], "x", 100).await;
    assert!(keeper.counters().frames_out - before >= 100, "each asks the grantor");
    until(|| local::left_over(keeper) == (0, 0)).await;
}
