//! `ReadWriteLock` over real members, three or so in one process with sockets on the loopback
//! interface. The cases of Curator's own tests of `InterProcessReadWriteLock` are here, each test
//! with their name.
#![cfg(all(unix, feature = "tokio"))]
#![allow(clippy::async_yields_async, reason = "futures are made by others, to be dropped at any poll")]

mod support;

use elderlock::{LockService, Mode, ReadGuard, ReadWriteLock, UpgradeError, WriteGuard};
use std::future::IntoFuture;
use std::sync::Arc;
use support::gauge::Gauge;
use support::local::{Local, MS, nothing_is_left, poll_a_wait_then_drop, poll_k_then_drop, poll_once, soon, until};
use support::rng::Rng;

async fn read(lock: &ReadWriteLock) -> ReadGuard {
    soon(lock.read()).await.expect("it is granted")
}

async fn write(lock: &ReadWriteLock) -> WriteGuard {
    soon(lock.write()).await.expect("it is granted")
}

fn locks(services: &[LockService], name: &str) -> Vec<ReadWriteLock> {
    services.iter().map(|service| ReadWriteLock::new(service, name)).collect()
}

/// How many read, write and wait.
async fn in_line(service: &LockService, name: &str) -> (usize, usize, usize, usize) {
    let seen = soon(service.inspect(name)).await.expect("the grantor answers");
    let holders = |mode| seen.holders.iter().filter(|holder| holder.mode == mode).count();
    let waiters = |mode| seen.waiters.iter().filter(|waiter| waiter.mode == mode).count();
    (holders(Mode::Share), holders(Mode::Lock), waiters(Mode::Share), waiters(Mode::Lock))
}

/// TestInterProcessReadWriteLock.testGetParticipantNodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_in_line_are_seen_from_every_member() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    let mut readers = Vec::new();
    for number in 0..20 {
        readers.push(read(&locks[number % 3]).await);
    }
    let mut writers = Vec::new();
    for number in 0..8 {
        let waiting = locks[number % 3].write().start();
        soon(waiting.position()).await.expect("the grantor answers");
        writers.push(waiting);
    }
    for service in &services {
        assert_eq!(in_line(service, "x").await, (20, 0, 0, 8));
    }
    drop(readers);
    for writer in writers {
        soon(writer).await.expect("its turn comes").release().await.expect("it was held");
    }
}

/// TestInterProcessReadWriteLock.testBasic: many read at once, and one writes alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_read_at_once_and_one_writes_alone() {
    let local = Local::start(3).await;
    let locks = locks(&local.services("s").await, "x");
    let (reading, writing) = (Arc::new(Gauge::default()), Arc::new(Gauge::default()));
    let mut rng = Rng::new("many_read_at_once_and_one_writes_alone", 1);
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let (lock, reading, writing) = (locks[number % 3].clone(), reading.clone(), writing.clone());
            let writes: Vec<bool> = (0..50).map(|_| rng.below(10) == 0).collect();
            tokio::spawn(async move {
                for write_it in writes {
                    if write_it {
                        let guard = write(&lock).await;
                        writing.enter(1);
                        assert_eq!(reading.now(), 0, "a reader beside a writer");
                        tokio::time::sleep(MS).await;
                        assert_eq!(reading.now(), 0, "a reader beside a writer");
                        writing.leave(1);
                        guard.release().await.expect("it was held");
                    } else {
                        let guard = read(&lock).await;
                        reading.enter(1);
                        assert_eq!(writing.now(), 0, "a writer beside a reader");
                        tokio::time::sleep(MS).await;
                        reading.leave(1);
                        guard.release().await.expect("it was held");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert!(reading.most() > 1, "no two readers were inside at once");
    assert!(writing.most() <= 1, "{} wrote at once", writing.most());
    nothing_is_left(&local).await;
}

/// TestInterProcessReadWriteLock.testThatUpgradingIsDisallowed: there a reader that asks to write
/// waits for ever. Here it is refused at once beside other readers, and otherwise writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_succeeds_or_fails_at_once() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    for of in [&locks[0], &locks[1]] {
        let (one, two) = (read(of).await, read(&locks[0]).await);
        let (error, one) = soon(one.upgrade()).await.expect_err("there is another reader");
        assert!(matches!(error, UpgradeError::Shared { others: 1 }), "{error:?}");
        let one = one.expect("it still reads");
        one.fence().expect("it still reads");
        two.release().await.expect("it was held");
        soon(async { while in_line(&services[0], "x").await.0 > 1 {} }).await;

        // A writer that waits already goes on waiting.
        let waiting = locks[0].write().start();
        soon(waiting.position()).await.expect("the grantor answers");
        let before = one.token();
        let writer = soon(one.upgrade()).await.expect("no other owner reads");
        assert!(writer.fence().expect("it is held") > before, "a new token");
        assert_eq!(in_line(&services[1], "x").await, (0, 1, 0, 1));
        assert!(soon(of.try_read()).await.is_err());
        writer.release().await.expect("it was held");
        soon(waiting).await.expect("its turn comes").release().await.expect("it was held");
    }
    nothing_is_left(&local).await;
}

/// As above, two readers that both want to write: neither waits for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_readers_that_upgrade_do_not_wait_for_each_other() {
    let local = Local::start(3).await;
    let locks = locks(&local.services("s").await, "x");
    let (one, two) = (read(&locks[1]).await, read(&locks[2]).await);
    let (one, two) = soon(async { tokio::join!(one.upgrade(), two.upgrade()) }).await;
    assert!(one.is_err() && two.is_err(), "each of them saw the other");
}

/// TestInterProcessReadWriteLock.testThatDowngradingRespectsThreads: nobody else reads beside a
/// writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_is_inside_beside_a_writer() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    let writer = write(&locks[0]).await;
    for lock in &locks {
        assert!(soon(lock.read().wait(30 * MS)).await.expect_err("it is written").is_timeout());
        assert!(soon(lock.try_read()).await.is_err());
        assert!(soon(lock.try_write()).await.is_err());
    }
    writer.release().await.expect("it was held");
    let readers = [read(&locks[0]).await, read(&locks[1]).await];
    assert!(readers[0].token() < readers[1].token(), "each reader has a token of its own");
}

/// TestInterProcessReadWriteLock.testDowngrading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_becomes_a_reader_and_keeps_its_token() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for (lock, other) in [(0, 1), (1, 0)].map(|(a, b)| (&services[a], &services[b])) {
        let (lock, other) = (ReadWriteLock::new(lock, "x"), ReadWriteLock::new(other, "x"));
        let writer = write(&lock).await;
        let token = writer.token();
        let waiting = other.read().start();
        soon(waiting.position()).await.expect("the grantor answers");
        let reader = writer.downgrade().expect("it is held");
        assert_eq!(reader.fence(), Ok(token));
        let beside = soon(waiting).await.expect("readers may read beside it");
        assert!(soon(other.try_write()).await.is_err());
        reader.release().await.expect("it was held");
        beside.release().await.expect("it was held");
        write(&other).await.release().await.expect("it was held");
    }
}

/// TestInterProcessReadWriteLock.testContendingDowngrading: a writer that waits does not get in
/// between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_writer_comes_between_a_writer_and_the_reader_that_it_becomes() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    let writer = write(&locks[1]).await;
    let mut waiting = locks[0].write().start();
    soon(waiting.position()).await.expect("the grantor answers");
    let reader = writer.downgrade().expect("it is held");
    soon(async { while in_line(&services[0], "x").await != (1, 0, 0, 1) {} }).await;
    assert!(poll_once(std::pin::Pin::new(&mut waiting)).is_pending());
    reader.release().await.expect("it was held");
    drop(soon(waiting).await.expect("its turn comes"));
}

/// TestInterProcessReadWriteLock.testSetNodeData.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_of_a_writer_is_seen() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    let mut data = vec![1, 2, 3, 4];
    let asking = locks[1].write().metadata(&data);
    data[0] = 5;
    let _writer = soon(asking).await.expect("it is free");
    let seen = soon(services[0].inspect("x")).await.expect("the grantor answers");
    assert_eq!(seen.holders[0].metadata.as_bytes(), [1, 2, 3, 4]);
}

/// TestInterProcessReadWriteLock.testLockPath: a writer makes way when its session is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_dies_makes_way_for_readers() {
    let mut local = Local::start(3).await;
    let locks = locks(&local.services("s").await, "x");
    read(&locks[0]).await.release().await.expect("it was held");
    let writer = write(&locks[2]).await;
    local.kill(2);
    let readers = [read(&locks[0]).await, read(&locks[1]).await];
    assert!(writer.fence().is_err(), "told before it is given on");
    assert!(readers.iter().all(|reader| reader.token() > writer.token()));
}

/// Fair, unlike readers that overtake: a reader that asks after a writer waits behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_does_not_overtake_a_writer_that_waits() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    let first = read(&locks[0]).await;
    let writer = locks[1].write().start();
    soon(writer.position()).await.expect("the grantor answers");
    let late = [locks[0].read().start(), locks[1].read().start()];
    for reader in &late {
        soon(reader.position()).await.expect("the grantor answers");
    }
    assert!(soon(locks[0].try_read()).await.is_err(), "a writer was there first");
    first.release().await.expect("it was held");
    let writer = soon(writer).await.expect("its turn comes");
    assert_eq!(in_line(&services[0], "x").await, (0, 1, 2, 0));
    writer.release().await.expect("it was held");
    for reader in late {
        drop(soon(reader).await.expect("its turn comes"));
    }
}

/// A writer that gives up wakes the readers behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_behind_a_writer_that_gives_up_read_beside_the_first() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    let first = read(&locks[0]).await;
    let writer = locks[1].write().start();
    soon(writer.position()).await.expect("the grantor answers").expect("a share is held");
    let late = [locks[0].read().start(), locks[1].read().start()];
    for reader in &late {
        soon(reader.position()).await.expect("the grantor answers").expect("a writer was first");
    }
    drop(writer);
    for reader in late {
        drop(soon(reader).await.expect("no writer is left"));
    }
    first.fence().expect("it reads all the time");
}

/// Readers, writers and their order survive the death of the grantor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_survive_a_killed_grantor() {
    let mut local = Local::start(3).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    read(&locks[0]).await.release().await.expect("it was held");
    until(|| services[0].is_grantor()).await;
    let of_dead = read(&locks[0]).await;
    let readers = [read(&locks[1]).await, read(&locks[2]).await];
    let writer = locks[1].write().start();
    soon(writer.position()).await.expect("the grantor answers");
    let late = locks[2].read().start();
    soon(late.position()).await.expect("the grantor answers");
    local.kill(0);
    local.agree(2).await;
    soon(async { while in_line_or_none(&services[1], "x").await != Some((2, 0, 1, 1)) {} }).await;
    assert!(of_dead.fence().is_err());
    for reader in readers {
        reader.release().await.expect("it was held all the time");
    }
    let writer = soon(writer).await.expect("its turn comes");
    // The downgraded hold stays a read lock.
    let reader = writer.downgrade().expect("it is held");
    drop(soon(late).await.expect("beside the reader"));
    reader.release().await.expect("it was held");
}

async fn in_line_or_none(service: &LockService, name: &str) -> Option<(usize, usize, usize, usize)> {
    tokio::time::sleep(MS).await;
    soon(service.inspect(name)).await.ok()?;
    Some(in_line(service, name).await)
}

/// No reader, writer or waiter notices a transfer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_survive_a_transfer() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let locks = locks(&services, "x");
    let one = read(&locks[0]).await;
    let two = read(&locks[1]).await;
    let writer = locks[2].write().start();
    soon(writer.position()).await.expect("the grantor answers");
    soon(services[2].become_grantor()).await.expect("no other member asks");
    assert_eq!(in_line(&services[0], "x").await, (2, 0, 0, 1));
    one.release().await.expect("it was held");
    soon(async { while in_line(&services[0], "x").await.0 > 1 {} }).await;
    let two = soon(two.upgrade()).await.expect("it is the only reader");
    soon(services[1].become_grantor()).await.expect("no other member asks");
    assert_eq!(in_line(&services[0], "x").await, (0, 1, 0, 1));
    two.release().await.expect("it was held");
    drop(soon(writer).await.expect("its turn comes"));
}

/// Interrupted anywhere, nothing stays held or queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_writing_and_upgrading_dropped_at_any_poll_leave_nothing() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    let nothing = async |_| nothing_is_left(&local).await;
    for of in [&locks[0], &locks[1]] {
        poll_k_then_drop(async || of.read().into_future(), nothing).await;
        poll_k_then_drop(async || of.write().into_future(), nothing).await;
        poll_k_then_drop(async || of.try_read().into_future(), nothing).await;
        poll_k_then_drop(async || of.try_write().into_future(), nothing).await;
        poll_k_then_drop(
            async || {
                let guard = read(of).await;
                async move { guard.upgrade().await.map(drop) }
            },
            nothing,
        )
        .await;
        poll_a_wait_then_drop(
            async || {
                let held = soon(locks[0].write().lease(10 * MS)).await.expect("it is free");
                let waiting = of.read().into_future();
                async move {
                    let guard = waiting.await;
                    drop(held);
                    guard
                }
            },
            nothing,
        )
        .await;
        poll_k_then_drop(async || read(of).await.release(), nothing).await;
        poll_k_then_drop(async || write(of).await.release(), nothing).await;
        write(of).await.release().await.expect("it is free");
        nothing(0).await;
    }
}
