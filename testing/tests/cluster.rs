//! Each loss that a lock may have, caused by a test, and the rules of clusters in tests.

use elderlock::{
    Guard, LockError, LockService, LostReason, MemberEvent, SharedCount, TryLockError, Unavailable,
};
use elderlock_testing::{Cluster, cluster};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

async fn stock(cluster: &Cluster, member: usize) -> LockService {
    cluster.member(member).lock_service("inventory").await.expect("a running member")
}

async fn lock(cluster: &Cluster, member: usize) -> Guard {
    stock(cluster, member).await.lock("sku-42").await.expect("a grant")
}

#[test]
fn a_member_that_is_cut_off_is_suspended_and_the_lock_granted_to_another() {
    cluster(3).seed(1).run(|cluster| async move {
        let guard = lock(&cluster, 0).await;
        let mut events = cluster.member(0).events();
        cluster.isolate(0);
        assert_eq!(guard.lost().await, LostReason::Suspended);
        assert_eq!(events.next().await, Some(MemberEvent::Suspended));
        let next = lock(&cluster, 1).await;
        assert!(next.token() > guard.token());
        cluster.heal();
        assert!(guard.fence().is_err() && next.fence().is_ok());
    });
}

#[test]
fn a_member_that_is_cut_off_for_long_is_expelled_and_joins_again() {
    cluster(3).seed(2).run(|cluster| async move {
        let holder = lock(&cluster, 1).await;
        let waiting = stock(&cluster, 0).await;
        let waiting = cluster.spawn(0, async move { waiting.lock("sku-42").await });
        sleep(SECOND).await;
        let (before, mut events) = (cluster.member(0).process(), cluster.member(0).events());
        cluster.isolate(0);
        sleep(20 * SECOND).await;
        cluster.heal();
        let waiting = waiting.await.expect("its process runs");
        assert!(matches!(waiting, Err(LockError::Unavailable(Unavailable::Expelled))));
        while events.next().await != Some(MemberEvent::Expelled) {}
        while !matches!(events.next().await, Some(MemberEvent::Rejoined { .. })) {}
        assert_ne!(cluster.member(0).process(), before);
        assert!(holder.fence().is_ok());
    });
}

#[test]
fn a_stopped_process_wakes_without_its_lock() {
    cluster(3).seed(3).run(|cluster| async move {
        let service = stock(&cluster, 0).await;
        let holder = cluster.spawn(0, async move {
            let guard = service.lock("sku-42").await.unwrap();
            let (stopped, before) = (Instant::now(), guard.token());
            sleep(2 * SECOND).await;
            (stopped.elapsed(), before, guard.fence())
        });
        sleep(SECOND).await;
        cluster.stop(0, 12 * SECOND);
        let next = lock(&cluster, 1).await;
        let (took, before, fence) = holder.await.unwrap();
        assert!(took >= 12 * SECOND && next.token() > before);
        assert_eq!(fence.unwrap_err().reason, LostReason::Suspended);
    });
}

#[test]
fn a_short_stop_costs_no_lock() {
    cluster(3).run(|cluster| async move {
        let guard = lock(&cluster, 0).await;
        cluster.stop(0, SECOND);
        sleep(5 * SECOND).await;
        assert!(guard.fence().is_ok());
    });
}

/// Each reason of a loss is caused at once, and then another member can have the lock.
#[test]
fn a_hold_is_lost_for_each_reason() {
    for reason in [
        LostReason::LeaseEnded,
        LostReason::Suspended,
        LostReason::Expelled,
        LostReason::Superseded,
        LostReason::Left,
        LostReason::Destroyed,
        LostReason::Revoked,
        LostReason::Forked,
        LostReason::SessionEnded,
    ] {
        cluster(3).seed(4).run(move |cluster| async move {
            // One guard is at the grantor's own member, where the core does not know it. Another
            // guard is at another member.
            for member in [0, 2] {
                let guard = lock(&cluster, member).await;
                let waiting = stock(&cluster, 1).await;
                let waiting = cluster.spawn(1, async move { waiting.lock("sku-42").await });
                sleep(SECOND).await;
                cluster.lose(&guard, reason);
                assert_eq!(guard.fence().unwrap_err().reason, reason);
                assert_eq!(timeout(SECOND, guard.lost()).await, Ok(reason));
                let next = waiting.await.unwrap().expect("the grantor has heard of it");
                assert!(next.token() > guard.token());
                assert!(guard.release().await.is_err());
                assert!(next.fence().is_ok(), "the release of a lost hold ends no other");
            }
        });
    }
}

#[test]
#[should_panic(expected = "is told of no loss")]
fn a_released_hold_is_no_loss() {
    cluster(1).run(|cluster| async move {
        let guard = lock(&cluster, 0).await;
        cluster.lose(&guard, LostReason::Released);
    });
}

#[test]
fn a_slow_grantor_leaves_a_try_undecided() {
    cluster(3).seed(5).run(|cluster| async move {
        lock(&cluster, 0).await.release().await.unwrap();
        let grantor = cluster.grantor("inventory").expect("it has granted");
        cluster.slow(grantor, 2 * SECOND);
        let other = stock(&cluster, (grantor + 1) % 3).await;
        let tried = other.try_lock("sku-42").await;
        assert!(matches!(tried, Err(TryLockError::Undecided)), "{tried:?}");
        cluster.slow(grantor, Duration::ZERO);
        sleep(10 * SECOND).await;
        assert!(other.try_lock("sku-42").await.is_ok());
    });
}

/// The grantor answers too late, and then it is cut off.
#[test]
fn an_opening_ends_at_its_limit_and_nothing_stays_open() {
    cluster(3).seed(11).run(|cluster| async move {
        lock(&cluster, 0).await.release().await.unwrap();
        let grantor = cluster.grantor("inventory").expect("it has granted");
        let here = stock(&cluster, grantor).await;
        let there = stock(&cluster, (grantor + 1) % 3).await;
        for is_cut in [false, true] {
            match is_cut {
                false => cluster.slow(grantor, 2 * SECOND),
                true => cluster.isolate(grantor),
            }
            let asked = Instant::now();
            let opened = SharedCount::open(&there, "count", 1).wait(SECOND).await;
            assert_eq!(opened.map(drop), Err(LockError::TimedOut));
            assert!(asked.elapsed() < 2 * SECOND, "{:?}", asked.elapsed());
            cluster.heal();
            sleep(10 * SECOND).await;
            let count = SharedCount::open(&here, "count", 2).await.expect("a grantor answers");
            assert_eq!(count.get().expect("it is open").count, 2, "no opening is left");
            count.close().await.expect("a grantor answers");
        }
    });
}

#[test]
fn a_lost_grantor_is_replaced_and_holds_stay() {
    cluster(3).seed(6).run(|cluster| async move {
        lock(&cluster, 0).await.release().await.unwrap();
        let grantor = cluster.grantor("inventory").expect("it has granted");
        let (holder, waiter) = ((grantor + 1) % 3, (grantor + 2) % 3);
        let guard = lock(&cluster, holder).await;
        cluster.crash(grantor);
        let next = stock(&cluster, waiter).await;
        assert!(next.lock("sku-42").wait(20 * SECOND).await.unwrap_err().is_timeout());
        assert!(guard.fence().is_ok());
        assert_ne!(cluster.grantor("inventory"), Some(grantor));
        guard.release().await.unwrap();
        assert!(next.lock("sku-42").await.is_ok());
        cluster.restart(grantor);
        cluster.joined(grantor).await;
        assert!(lock(&cluster, grantor).await.fence().is_ok());
    });
}

#[test]
fn a_stopped_grantor_is_replaced() {
    cluster(3).seed(7).run(|cluster| async move {
        lock(&cluster, 0).await.release().await.unwrap();
        let grantor = cluster.grantor("inventory").expect("it has granted");
        cluster.stop(grantor, 60 * SECOND);
        let asked = Instant::now();
        let guard = lock(&cluster, (grantor + 1) % 3).await;
        assert!(asked.elapsed() < 20 * SECOND, "{:?}", asked.elapsed());
        assert!(guard.fence().is_ok());
    });
}

#[test]
fn a_grantor_moves_to_each_member_and_holds_stay() {
    cluster(3).seed(8).run(|cluster| async move {
        let guard = lock(&cluster, 0).await;
        for member in [2, 1, 0] {
            cluster.move_grantor(member, "inventory").await.unwrap();
            assert_eq!(cluster.grantor("inventory"), Some(member));
        }
        assert!(guard.fence().is_ok());
    });
}

#[test]
fn a_crashed_elder_is_succeeded() {
    cluster(3).seed(9).run(|cluster| async move {
        let elder = cluster.elder().expect("a cluster that was founded has one");
        cluster.crash(elder);
        assert!(!cluster.is_running(elder));
        sleep(20 * SECOND).await;
        assert!(cluster.elder().is_some_and(|next| next != elder));
    });
}

/// The task of a killed process ends, and its lock is free again.
#[test]
fn a_crash_ends_the_tasks_of_the_process() {
    cluster(3).seed(10).run(|cluster| async move {
        let (service, beats) = (stock(&cluster, 0).await, Rc::new(Cell::new(0)));
        let task = cluster.spawn(0, {
            let beats = beats.clone();
            async move {
                let _guard = service.lock("sku-42").await.unwrap();
                loop {
                    beats.set(beats.get() + 1);
                    sleep(SECOND).await;
                }
            }
        });
        sleep(3 * SECOND).await;
        cluster.crash(0);
        let seen = beats.get();
        assert!(seen >= 3);
        let _next = lock(&cluster, 1).await;
        sleep(10 * SECOND).await;
        assert_eq!(beats.get(), seen);
        let ended: Result<(), _> = task.await;
        assert!(ended.is_err());
        assert!(cluster.spawn(0, async {}).await.is_err(), "there is no process");
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let digest = cluster(3).seed(seed).run({
            let order = order.clone();
            move |cluster| async move {
                let tasks: Vec<_> = (0..3)
                    .flat_map(|member| [member; 3])
                    .map(|member| {
                        let (order, handle) = (order.clone(), cluster.clone());
                        cluster.spawn(member, async move {
                            let guard = lock(&handle, member).await;
                            order.borrow_mut().push(member);
                            sleep(Duration::from_millis(handle.random_below(500))).await;
                            drop(guard);
                        })
                    })
                    .collect();
                cluster.cut_one_way(0, 1);
                cluster.stop(2, SECOND);
                for task in tasks {
                    task.await.unwrap();
                }
                cluster.digest()
            }
        });
        (digest, order.take())
    };
    let orders: Vec<_> = (1..=5).map(run).collect();
    assert_eq!(orders, (1..=5).map(run).collect::<Vec<_>>());
    let mut different = orders.clone();
    different.dedup();
    assert_eq!(different.len(), 5, "{orders:?}");
}

#[test]
#[should_panic(expected = "the program of member 1: sold out")]
fn a_program_that_ends_with_an_error_fails_the_run() {
    cluster(3).run(|cluster| async move {
        cluster.run_on_each(|number, _| async move {
            sleep(SECOND).await;
            if number == 1 { Err("sold out") } else { Ok(()) }
        });
        sleep(10 * SECOND).await;
    });
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn an_assertion_in_a_process_fails_the_run() {
    cluster(3).run(|cluster| async move {
        cluster.spawn(2, async { assert_eq!(1, 2) });
        sleep(10 * SECOND).await;
    });
}

#[test]
#[should_panic(expected = "the test still runs after 60s of simulated time")]
fn a_test_that_waits_for_ever_fails() {
    cluster(3).time_limit(60 * SECOND).run(|_| async move { std::future::pending::<()>().await });
}

#[test]
#[should_panic(expected = "there is no member 3: they are 0 to 2")]
fn a_member_that_does_not_exist_is_named() {
    cluster(3).run(|cluster| async move { cluster.crash(3) });
}
