//! `ReadWriteLock` over real members, mostly three in one process with sockets on the loopback
//! interface. The cases of Curator's own tests of `InterProcessReadWriteLock` are here, each test
//! with their name.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{EnterError, LockError, LockService, LostReason, Mode, MultiLock, MultiLockError};
use elderlock::{Owner, ReadGuard, ReadWriteLock, ReentrantMutex, UpgradeError, WriteGuard};
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;
use support::gauge::Gauge;
use support::local::{
    Local, MS, nothing_is_left, poll_a_wait_then_drop, poll_k_then_drop, poll_once, soon, until,
};
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

/// The numbers of readers, writers, waiting readers and waiting writers.
async fn in_line(service: &LockService, name: &str) -> (usize, usize, usize, usize) {
    in_line_or_none(service, name).await.expect("the grantor answers")
}

/// TestInterProcessReadWriteLock.testGetParticipantNodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_in_the_queue_are_seen_from_every_member() {
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

/// TestInterProcessReadWriteLock.testBasic: many owners read at once, and one writes alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_read_at_once_and_one_writes_alone() {
    let local = Local::start(3).await;
    let locks = locks(&local.services("s").await, "x");
    let (reading, writing) = (Arc::new(Gauge::default()), Arc::new(Gauge::default()));
    let mut rng = Rng::new("many_read_at_once_and_one_writes_alone", 1);
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let (lock, reading, writing) =
                (locks[number % 3].clone(), reading.clone(), writing.clone());
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
/// waits for ever. Here its upgrade is refused at once beside other readers, and otherwise
/// succeeds.
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

        // A writer that already waits keeps waiting.
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

/// Two readers both want to upgrade, and neither waits for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_readers_that_upgrade_do_not_wait_for_each_other() {
    let local = Local::start(3).await;
    let locks = locks(&local.services("s").await, "x");
    let (one, two) = (read(&locks[1]).await, read(&locks[2]).await);
    let (one, two) = soon(async { tokio::join!(one.upgrade(), two.upgrade()) }).await;
    assert!(one.is_err() && two.is_err(), "each of them saw the other");
}

/// TestInterProcessReadWriteLock.testThatDowngradingRespectsThreads: no other member reads beside a
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

/// TestInterProcessReadWriteLock.testContendingDowngrading: a waiting writer is not granted in
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

/// TestInterProcessReadWriteLock.testLockPath: the lock of a writer is free when its session is
/// killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_dies_makes_way_for_readers() {
    let mut local = Local::start_mortal(3).await;
    let locks = locks(&local.services("s").await, "x");
    read(&locks[0]).await.release().await.expect("it was held");
    let writer = write(&locks[2]).await;
    local.kill(2);
    let readers = [read(&locks[0]).await, read(&locks[1]).await];
    assert!(writer.fence().is_err(), "told before it is given on");
    assert!(readers.iter().all(|reader| reader.token() > writer.token()));
}

/// The lock is fair: a reader that asks after a writer waits behind it.
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

/// When a writer gives up, the readers behind it read beside the present reader.
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
    let mut local = Local::start_mortal(3).await;
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
    soon(async {
        while in_line_or_none(&services[1], "x").await != Some((2, 0, 1, 1)) {
            tokio::time::sleep(MS).await;
        }
    })
    .await;
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

async fn in_line_or_none(
    service: &LockService,
    name: &str,
) -> Option<(usize, usize, usize, usize)> {
    let seen = soon(service.inspect(name)).await.ok()?;
    let holders = |mode| seen.holders.iter().filter(|holder| holder.mode == mode).count();
    let waiters = |mode| seen.waiters.iter().filter(|waiter| waiter.mode == mode).count();
    Some((holders(Mode::Share), holders(Mode::Lock), waiters(Mode::Share), waiters(Mode::Lock)))
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

/// A call that is dropped at any poll leaves nothing held or queued.
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

/// The guard of an owner that enters its hold or is granted the lock.
async fn read_for(lock: &ReadWriteLock, owner: Owner) -> ReadGuard {
    soon(lock.read_for(owner)).await.expect("it is granted")
}

async fn write_for(lock: &ReadWriteLock, owner: Owner) -> WriteGuard {
    soon(lock.write_for(owner)).await.expect("it is granted")
}

const REFUSED: EnterError = EnterError::Lock(LockError::Deadlock);

/// TestInterProcessReadWriteLock.testDowngrading, with Curator's calls: the writer takes the read
/// lock, releases the write lock, and keeps reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_writes_enters_as_reader_and_reads_on() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for (lock, other) in [(0, 1), (1, 0)].map(|(a, b)| (&services[a], &services[b])) {
        let (lock, other) = (ReadWriteLock::new(lock, "x"), ReadWriteLock::new(other, "x"));
        let owner = Owner::new();
        let writer = write_for(&lock, owner).await;
        let reader = read_for(&lock, owner).await;
        assert!(lock.is_written_by(owner) && lock.is_read_by(owner));
        assert_eq!((reader.fence(), reader.token()), (writer.fence(), writer.token()));
        assert!(soon(other.try_read()).await.is_err(), "its owner writes");
        let waiting = other.read().start();
        soon(waiting.position()).await.expect("the grantor answers");
        writer.release().await.expect("it was held");
        assert!(!lock.is_written_by(owner) && lock.is_read_by(owner));
        let beside = soon(waiting).await.expect("its owner only reads now");
        assert!(soon(other.try_write()).await.is_err(), "it is read");
        reader.fence().expect("it reads on");
        drop((reader, beside));
        write(&other).await.release().await.expect("it was held");
    }
    nothing_is_left(&local).await;
}

/// The write lock is a reentrant mutex, like Curator's. It is free when the last guard is gone, in
/// any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_writes_enters_as_writer() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    for of in &locks {
        let owner = Owner::new();
        let outer = write_for(of, owner).await;
        let inner = soon(of.write_for(owner).wait(Duration::ZERO)).await.expect("it has it");
        let third = read_for(of, owner).await;
        assert_eq!(outer.token(), inner.token());
        outer.release().await.expect("it was held");
        let refused = soon(locks[0].read().wait(20 * MS)).await;
        assert!(refused.expect_err("its owner writes").is_timeout());
        let reader = inner.downgrade().expect("it is held");
        drop(soon(locks[1].read()).await.expect("its owner only reads"));
        drop((reader, third));
        write(&locks[0]).await.release().await.expect("it was held");
    }
    nothing_is_left(&local).await;
}

/// TestInterProcessReadWriteLock.testThatUpgradingIsDisallowed, with Curator's calls: there the
/// write lock is not granted within the limit. Here it is refused at once, because the wait could
/// not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_only_reads_is_refused_to_write() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for service in &services {
        let (lock, owner) = (ReadWriteLock::new(service, "x"), Owner::new());
        let reader = read_for(&lock, owner).await;
        assert_eq!(soon(lock.write_for(owner)).await.unwrap_err(), REFUSED);
        let mutex = ReentrantMutex::new(service, "x");
        assert_eq!(soon(mutex.acquire(owner)).await.unwrap_err(), REFUSED);
        assert!(
            !mutex.is_held() && !mutex.is_held_by(owner),
            "a reader is not a holder of a mutex"
        );
        let several = MultiLock::new().with(service, ["w", "x"]);
        let refused = soon(several.acquire().owner(owner)).await.unwrap_err();
        let MultiLockError::Lock { error, .. } = refused else { panic!("{refused}") };
        assert_eq!(error, LockError::Deadlock);
        let waited = soon(lock.write_for(Owner::new()).wait(20 * MS)).await;
        assert!(waited.unwrap_err().is_timeout(), "another owner waits");

        // Two calls succeed instead: an upgrade of the reader, or a write after its release.
        let writer = soon(reader.upgrade()).await.expect("it is the only reader");
        drop(write_for(&lock, owner).await);
        drop(writer);
        write_for(&lock, owner).await.release().await.expect("it was held");
    }
    nothing_is_left(&local).await;
}

/// A reader upgrades if its owner has no other reader. Beside a writer of its owner it upgrades at
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_an_owner_upgrades_if_it_is_alone_or_its_owner_writes() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    for of in &locks {
        let owner = Owner::new();
        let (one, two) = (read_for(of, owner).await, read_for(of, owner).await);
        assert_eq!(one.token(), two.token(), "one hold");
        let (error, one) = soon(one.upgrade()).await.expect_err("its owner has another reader");
        assert!(matches!(error, UpgradeError::Shared { others: 1 }), "{error:?}");
        let one = one.expect("it still reads");
        two.release().await.expect("it was held");
        let before = one.token();
        let writer = soon(one.upgrade()).await.expect("it is alone");
        assert!(writer.token() > before, "a new token");
        let reader = read_for(of, owner).await;
        let second = soon(reader.upgrade()).await.expect("its owner writes");
        assert_eq!(second.fence(), writer.fence());
        writer.release().await.expect("it was held");
        assert!(soon(locks[1].try_read()).await.is_err(), "the second one writes");
        second.release().await.expect("it was held");
    }
    nothing_is_left(&local).await;
}

/// TestInterProcessReadWriteLock.testThatDowngradingRespectsThreads: only the owner of a writer
/// reads beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owner_of_a_writer_reads_beside_it() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    let (owner, other) = (Owner::new(), Owner::new());
    let writer = write_for(&locks[0], owner).await;
    drop(read_for(&locks[0], owner).await);
    for lock in &locks {
        let read = soon(lock.read_for(other).wait(30 * MS)).await;
        let write = soon(lock.write_for(other).wait(30 * MS)).await;
        assert!(read.expect_err("it is written").is_timeout());
        assert!(write.expect_err("it is written").is_timeout());
        assert!(soon(lock.try_read()).await.is_err());
    }
    writer.release().await.expect("it was held");
    let readers = [read_for(&locks[0], other).await, read_for(&locks[1], owner).await];
    assert!(readers.iter().all(|reader| reader.fence().is_ok()));
}

/// TestInterProcessReadWriteLock.testContendingDowngrading, with Curator's calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_writer_comes_between_a_writer_and_the_reader_of_its_owner() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let (locks, owner) = (locks(&services, "x"), Owner::new());
    let writer = write_for(&locks[1], owner).await;
    let mut waiting = locks[0].write().start();
    soon(waiting.position()).await.expect("the grantor answers");
    let reader = read_for(&locks[1], owner).await;
    drop(writer);
    soon(async { while in_line(&services[0], "x").await != (1, 0, 0, 1) {} }).await;
    // The owner enters ahead of the waiting writer.
    let again = soon(locks[1].read_for(owner).wait(Duration::ZERO)).await.expect("its owner reads");
    drop(reader);
    assert!(poll_once(std::pin::Pin::new(&mut waiting)).is_pending());
    drop(again);
    drop(soon(waiting).await.expect("its turn comes"));
    nothing_is_left(&local).await;
}

/// An owner enters across kinds: a mutex, a multi lock and a writer of one name share one hold.
/// When only readers are left, the hold becomes a share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_enters_across_mutexes_multi_locks_and_writers() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for service in &services {
        let (lock, owner) = (ReadWriteLock::new(service, "x"), Owner::new());
        let mutex = ReentrantMutex::new(service, "x");
        let both = MultiLock::new().with(service, ["w", "x"]);
        let writer = write_for(&lock, owner).await;
        let inner = soon(mutex.acquire(owner)).await.expect("it has it");
        let several = soon(both.acquire().owner(owner)).await.expect("it has one of them");
        assert_eq!((inner.fence(), several.fence("s", "x")), (writer.fence(), Ok(writer.token())));
        let reader = read_for(&lock, owner).await;
        assert_eq!(mutex.depth(owner), 3, "readers do not count");
        drop((writer, inner));
        assert!(soon(services[0].try_share("x")).await.is_err(), "the multi lock has it");
        drop(several);
        drop(soon(services[0].share("x")).await.expect("it is only read"));
        drop(reader);

        // No lock of a batch becomes a share.
        let several = soon(both.acquire().owner(owner)).await.expect("they are free");
        let reader = read_for(&lock, owner).await;
        drop(several);
        assert!(soon(services[1].try_share("x")).await.is_err(), "the batch is held as a whole");
        drop(write_for(&lock, owner).await);
        drop(reader);
        drop(soon(services[1].lock("x")).await.expect("it is free"));
    }
    nothing_is_left(&local).await;
}

/// Tasks of one owner that ask at the same time share one hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_owner_that_ask_at_once_enter_one_hold() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for of in &services {
        let (lock, owner) = (ReadWriteLock::new(of, "x"), Owner::new());
        let held = soon(services[0].lock("x")).await.expect("it is free");
        let ask = |_| tokio::spawn(lock.read_for(owner).into_future());
        let readers: Vec<_> = (0..4).map(ask).collect();
        soon(async { while in_line(&services[0], "x").await.2 < 4 {} }).await;
        held.release().await.expect("it was held");
        let mut guards = Vec::new();
        for reader in readers {
            guards.push(soon(reader).await.expect("no panic").expect("it is granted"));
        }
        let token = guards[0].token();
        assert!(guards.iter().all(|guard| guard.fence() == Ok(token)));
        soon(async { while in_line(&services[0], "x").await != (1, 0, 0, 0) {} }).await;
        drop(guards);

        // The writer and then the reader of one owner wait behind a holder. The writer is granted
        // first, and the reader enters.
        let held = soon(services[0].lock("x")).await.expect("it is free");
        let writer = tokio::spawn(lock.write_for(owner).into_future());
        soon(async { while in_line(&services[0], "x").await.3 < 1 {} }).await;
        let reader = tokio::spawn(lock.read_for(owner).into_future());
        soon(async { while in_line(&services[0], "x").await.2 < 1 {} }).await;
        held.release().await.expect("it was held");
        let writer = soon(writer).await.expect("no panic").expect("its turn comes");
        let reader = soon(reader).await.expect("no panic").expect("its owner writes");
        assert_eq!(reader.fence(), writer.fence());
        drop((reader, writer));
    }
    nothing_is_left(&local).await;
}

/// A writer that waits behind its sibling's reader enters when that reader upgrades.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_enters_the_hold_that_its_sibling_upgrades() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for of in &services {
        let (lock, owner) = (ReadWriteLock::new(of, "x"), Owner::new());
        let held = soon(services[0].lock("x")).await.expect("it is free");
        let reader = tokio::spawn(lock.read_for(owner).into_future());
        soon(async { while in_line(&services[0], "x").await.2 < 1 {} }).await;
        let writer = tokio::spawn(lock.write_for(owner).into_future());
        soon(async { while in_line(&services[0], "x").await.3 < 1 {} }).await;
        held.release().await.expect("it was held");
        let reader = soon(reader).await.expect("no panic").expect("its turn comes");
        assert_eq!(in_line(&services[0], "x").await, (1, 0, 0, 1));
        let upgraded = soon(reader.upgrade()).await.expect("it is alone");
        let entered = soon(writer).await.expect("no panic").expect("its owner writes");
        assert_eq!(entered.fence(), upgraded.fence());
    }
    nothing_is_left(&local).await;
}

/// All guards of an owner's hold fail together. The owner can enter again when they are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guards_of_an_owner_fail_together() {
    let local = Local::start(2).await;
    let locks = locks(&local.services("s").await, "x");
    for of in &locks {
        let owner = Owner::new();
        let mut tries = 0..100;
        let (writer, reader) = loop {
            tries.next().expect("it is entered");
            let writer = soon(of.write_for(owner).lease(30 * MS)).await.expect("it is free");
            // On a busy machine the lease may have ended by now.
            match soon(of.read_for(owner)).await {
                Ok(reader) => break (writer, reader),
                Err(error) => assert!(matches!(error, EnterError::Lost(_)), "{error:?}"),
            }
        };
        assert_eq!(soon(reader.lost()).await, LostReason::LeaseEnded);
        assert!(writer.fence().is_err() && !of.is_read_by(owner) && !of.is_written_by(owner));
        let (read, write) = (soon(of.read_for(owner)).await, soon(of.write_for(owner)).await);
        assert!(matches!(read, Err(EnterError::Lost(_))), "{read:?}");
        assert!(matches!(write, Err(EnterError::Lost(_))), "{write:?}");
        drop(writer);
        let (error, guard) = soon(reader.upgrade()).await.expect_err("it is lost");
        assert!(matches!(error, UpgradeError::Lost(_)) && guard.is_none(), "{error:?}");
        write_for(of, owner).await.release().await.expect("it was held");
        // A lost hold with readers only behaves alike.
        let reader = soon(of.read_for(owner).lease(30 * MS)).await.expect("it is free");
        soon(reader.lost()).await;
        assert!(matches!(soon(of.write_for(owner)).await, Err(EnterError::Lost(_))));
    }
    nothing_is_left(&local).await;
}

/// The number of guards and the share survive the grantor. So does the change from the lock to a
/// share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_reads_on_survives_a_killed_grantor() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let (locks, owner) = (locks(&services, "x"), Owner::new());
    read(&locks[0]).await.release().await.expect("it was held");
    until(|| services[0].is_grantor()).await;
    let writer = write_for(&locks[1], owner).await;
    let reader = read_for(&locks[1], owner).await;
    local.kill(0);
    drop(writer);
    let beside = soon(locks[2].read()).await.expect("its owner only reads");
    reader.fence().expect("it reads on");
    drop((reader, beside));
    write(&locks[2]).await.release().await.expect("it was held");
}

/// As `reading_writing_and_upgrading_dropped_at_any_poll_leave_nothing`, but with an owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entering_dropped_at_any_poll_leaves_the_owner_what_it_had() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for of in &services {
        let (lock, owner) = (ReadWriteLock::new(of, "x"), Owner::new());
        let nothing = async |_| nothing_is_left(&local).await;
        poll_k_then_drop(async || lock.read_for(owner).into_future(), nothing).await;
        poll_k_then_drop(async || lock.write_for(owner).into_future(), nothing).await;
        let upgrade = async || {
            let guard = read_for(&lock, owner).await;
            async move { guard.upgrade().await.map(drop) }
        };
        poll_k_then_drop(upgrade, nothing).await;
        // A dropped upgrade leaves a share if the owner has another reader.
        let kept = std::cell::RefCell::new(None);
        let upgrade = async || {
            let guard = read_for(&lock, owner).await;
            let upgrade = guard.upgrade();
            async {
                let mut upgrade = std::pin::pin!(upgrade);
                let first = poll_once(upgrade.as_mut());
                kept.replace(lock.read_for(owner).wait(Duration::ZERO).await.ok());
                match first {
                    std::task::Poll::Ready(upgraded) => upgraded.map(drop),
                    std::task::Poll::Pending => upgrade.await.map(drop),
                }
            }
        };
        let shared = async |_| {
            let reader = kept.take();
            assert!(reader.as_ref().is_none_or(|reader| reader.fence().is_ok()));
            drop(soon(services[1].share("x")).await.expect("the owner only reads"));
            drop(reader);
            nothing_is_left(&local).await;
        };
        poll_k_then_drop(upgrade, shared).await;
        let writer = write_for(&lock, owner).await;
        let still = async |_| assert!(writer.fence().is_ok());
        poll_k_then_drop(async || lock.read_for(owner).into_future(), still).await;
        poll_k_then_drop(async || lock.write_for(owner).into_future(), still).await;
        drop(writer);
        nothing(0).await;
    }
}
