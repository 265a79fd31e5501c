//! Shares, objects and permits: on a local member, then over members that leave and are lost.

use super::rejoin::Lan;
use super::*;
use crate::{InvalidWant, Unavailable};

fn limit(permits: u32) -> [u8; 4] {
    permits.to_le_bytes()
}

#[tokio::test]
async fn shares_are_held_beside_each_other_and_never_beside_the_lock() {
    let (member, stock) = service().await;
    let shares = [stock.share("a").await.unwrap(), stock.share("a").await.unwrap()];
    assert!(shares[0].is_shared() && shares[0].token() < shares[1].token());
    assert_eq!(stock.try_lock("a").await.unwrap_err().holder().unwrap().token, shares[0].token());
    let writing = stock.lock("a").start();
    let late = stock.share("a").start();
    assert_eq!(late.position().await.unwrap().unwrap().before, 1);
    drop(shares);
    let writer = writing.await.unwrap();
    assert!(stock.try_share("a").await.is_err());
    writer.release().await.unwrap();
    late.await.unwrap().release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn a_lock_becomes_a_share_and_back_and_no_request_gets_in_between() {
    let (member, stock) = service().await;
    let writer = stock.lock("a").await.unwrap();
    let (reading, writing) = (stock.share("a").start(), stock.lock("a").start());
    let (token, reader) = (writer.token(), writer.downgrade().unwrap());
    assert!(reader.is_shared() && reader.token() == token);
    let other = reading.await.unwrap();
    let (error, reader) = reader.upgrade().await.unwrap_err();
    assert_eq!(error, UpgradeError::Shared { others: 1 });
    drop(other);
    let writer = reader.unwrap().upgrade().await.unwrap();
    assert!(!writer.is_shared() && writer.fence().unwrap() > token);
    assert_eq!(stock.inspect("a").await.unwrap().holder.unwrap().token, writer.token());
    writer.release().await.unwrap();
    writing.await.unwrap().release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn an_object_lives_as_long_as_a_member_has_it_open() {
    let (member, stock) = service().await;
    let first = stock.open("colour", "red").await.unwrap();
    let second = stock.open("colour", "blue").await.unwrap();
    let opened = second.get().unwrap();
    assert_eq!((&*opened.value, opened.maybe_stale), (&b"red"[..], false));
    let version = first.set("green").await.unwrap();
    assert!(version > opened.version);
    assert_eq!(&*second.changed(opened.version).await.unwrap().value, b"green");
    let error = second.compare_and_set(opened.version, "blue").await.unwrap_err();
    let SetError::Changed(seen) = error else { panic!("{error}") };
    assert_eq!((&*seen.value, seen.version), (&b"green"[..], version));
    second.compare_and_set(version, "blue").await.unwrap();
    assert_eq!(&*first.get().unwrap().value, b"blue");
    drop((first, second));
    assert_eq!(left_over(&member), NOTHING);
    let again = stock.open("colour", "white").await.unwrap();
    assert_eq!(&*again.get().unwrap().value, b"white");
}

#[tokio::test]
async fn permits_never_exceed_the_limit_and_the_first_waiter_is_not_overtaken() {
    let (member, stock) = service().await;
    assert_eq!(stock.permits("pool", 1).await.unwrap_err(), LockError::NotOpen);
    assert_eq!(stock.try_permits("pool", 1).await.unwrap_err(), TryLockError::NotOpen);
    let size = stock.open("pool", limit(3)).await.unwrap();
    assert_eq!(stock.try_permits("pool", 4).await.unwrap_err(), TryLockError::Limit(3));
    let mut two = stock.permits("pool", 2).await.unwrap();
    assert_eq!(two.tokens().count(), 2);
    let three = stock.permits("pool", 3).start();
    let one = stock.permits("pool", 1).start();
    assert_eq!(one.position().await.unwrap().unwrap().before, 1);
    size.set(limit(5)).await.unwrap();
    let three = three.await.unwrap();
    assert!(one.position().await.unwrap().is_some(), "five are in use");
    two.return_permits(1).unwrap();
    assert_eq!(two.return_permits(1), Err(ReturnPermitsError::TooMany { held: 1 }));
    let one = one.await.unwrap();
    size.set(limit(1)).await.unwrap();
    assert!(
        two.fence().is_ok() && three.fence().is_ok() && one.fence().is_ok(),
        "nothing is taken away"
    );
    drop((two, three));
    assert!(stock.try_permits("pool", 1).await.is_err());
    drop(one);
    let last = stock.try_permits("pool", 1).await.unwrap();
    let waiting = stock.permits("pool", 1).start();
    drop(size);
    assert_eq!(waiting.await.unwrap_err(), LockError::NotOpen);
    assert!(last.fence().is_ok());
    drop(last);
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn an_object_is_opened_and_written_while_the_service_is_suspended() {
    let (_member, stock) = service().await;
    let suspended = stock.suspend().owner(1).await.unwrap();
    let open = stock.open("colour", "red").await.unwrap();
    open.set("green").await.unwrap();
    suspended.resume().await.unwrap();
    let suspended = stock.suspend().owner(1).wait(HANG).await.unwrap();
    assert!(open.get().is_ok());
    drop(suspended);
}

/// Three members that know each other, and their handles. The last one grants the service's locks.
async fn three() -> (Arc<Lan>, Vec<Member>, Vec<LockService>) {
    let lan = Arc::new(Lan::default());
    let first = lan.start(1);
    come(|| sees(&first, 1)).await;
    let mut members = vec![first];
    for number in [2, 3] {
        members.push(lan.start(number));
        come(|| members.iter().all(|member| sees(member, usize::from(number)))).await;
    }
    let mut services = Vec::new();
    for member in &members {
        services.push(member.lock_service("inventory").await.unwrap());
    }
    services[2].become_grantor().await.unwrap();
    (lan, members, services)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_with_an_object_open_hear_of_each_write() {
    let (_lan, members, services) = three().await;
    let mut opened = Vec::new();
    for service in &services {
        opened.push(service.open("colour", "red").await.unwrap());
    }
    for (writer, value) in [(0, "green"), (2, "blue"), (1, "white")] {
        let version = opened[writer].set(value).await.unwrap();
        assert_eq!(
            opened[writer].get().unwrap().version,
            version,
            "a member that was told so sees it"
        );
        for reader in &opened {
            come(|| reader.get().unwrap().version == version).await;
            assert_eq!(*reader.get().unwrap().value, *value.as_bytes());
        }
    }
    let seen = services[0].inspect("colour").await.unwrap();
    assert_eq!((seen.opener_count, &*seen.value.unwrap().value), (3, &b"white"[..]));
    drop(opened);
    come(|| members.iter().all(|member| left_over(member) == NOTHING)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_compare_and_set_at_once_each_counts_once() {
    let (_lan, members, services) = three().await;
    let mut tasks = Vec::new();
    for service in &services {
        let counter = service.open("counter", [0]).await.unwrap();
        for _ in 0..4 {
            let counter = counter.clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    let Versioned { value, version, .. } = counter.get().unwrap();
                    match counter.compare_and_set(version, [value[0] + 1]).await {
                        Ok(_) => return counter,
                        Err(SetError::Changed(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }));
        }
    }
    for task in tasks {
        let counter = task.await.unwrap();
        let seen = || counter.get().unwrap().value[0];
        assert!(seen() >= 1);
        drop(counter);
    }
    // Each member's closing is a message of its own.
    come(|| members.iter().all(|member| left_over(member) == NOTHING)).await;
    let counter = services[0].open("counter", [100]).await.unwrap();
    assert_eq!(
        *counter.get().unwrap().value,
        [100],
        "it went with the last member that had it open"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaving_grantor_transfers_open_objects_and_shares_and_nothing_is_stale() {
    let (_lan, members, services) = three().await;
    let size = services[0].open("pool", limit(3)).await.unwrap();
    let other = services[2].open("pool", []).await.unwrap();
    let version = other.set(limit(4)).await.unwrap();
    drop(other);
    come(|| size.get().unwrap().version == version).await;
    let mut permits = services[0].permits("pool", 3).await.unwrap();
    permits.return_permits(1).unwrap();
    let reader = services[0].share("a").await.unwrap();
    let writer = services[0].lock("b").await.unwrap().downgrade().unwrap();
    members[2].leave().await.unwrap();

    let again = services[1].open("pool", []).await.unwrap();
    let seen = again.get().unwrap();
    assert_eq!((&*seen.value, seen.version, seen.maybe_stale), (&limit(4)[..], version, false));
    assert!(!size.get().unwrap().maybe_stale);
    assert!(services[1].try_permits("pool", 3).await.is_err());
    let two = services[1].permits("pool", 2).wait(HANG).await.unwrap();
    let beside = [services[1].share("a").await.unwrap(), services[1].share("b").await.unwrap()];
    let (error, reader) = reader.upgrade().await.unwrap_err();
    assert_eq!(error, UpgradeError::Shared { others: 1 });
    assert!(again.set(limit(9)).await.unwrap() > version);
    drop((beside, two, permits, reader, writer, again, size));
    come(|| members[..2].iter().all(|member| left_over(member) == NOTHING)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_grantor_is_lost_the_highest_version_stays_and_is_marked_until_it_is_written() {
    let (lan, members, services) = three().await;
    let mine = services[0].open("colour", "red").await.unwrap();
    let others = services[1].open("colour", "red").await.unwrap();
    let version = others.set("green").await.unwrap();
    come(|| mine.get().unwrap().version == version).await;
    let mut changes = mine.changes().unwrap();
    lan.cut(&members[2]);

    // No call is needed: a member with an open object asks for a grantor by itself.
    for seen in [&mine, &others] {
        come(|| seen.get().unwrap().maybe_stale).await;
        assert_eq!(
            (&*seen.get().unwrap().value, seen.get().unwrap().version),
            (&b"green"[..], version)
        );
    }
    // A listener gets this once, though the version is the same.
    let told = tokio::time::timeout(HANG, changes.next()).await.expect("it is told").unwrap();
    assert_eq!((told.version, told.maybe_stale), (version, true));
    assert!(poll_once(pin!(changes.next())).is_pending());
    let next = mine.compare_and_set(version, "blue").await.unwrap();
    assert!(next > version);
    come(|| others.get().unwrap().version == next).await;
    assert!(!others.get().unwrap().maybe_stale && !mine.get().unwrap().maybe_stale);
    let told = changes.next().await.unwrap();
    assert_eq!((told.version, told.maybe_stale), (next, false));
}

/// A write that is under way when its grantor is lost is made by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_grantor_is_lost_is_made_once_by_the_next() {
    let (lan, members, services) = three().await;
    let mine = services[0].open("colour", "red").await.unwrap();
    let others = services[1].open("colour", "red").await.unwrap();
    let before = mine.get().unwrap().version;
    lan.cut(&members[2]);
    let version =
        tokio::time::timeout(HANG, mine.compare_and_set(before, "green")).await.unwrap().unwrap();
    come(|| others.get().unwrap().version == version).await;
    let error = others.compare_and_set(before, "blue").await.unwrap_err();
    assert!(matches!(error, SetError::Changed(seen) if seen.version == version));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_and_permits_survive_the_loss_of_their_grantor() {
    let (lan, members, services) = three().await;
    let _size = services[0].open("pool", limit(3)).await.unwrap();
    let _other = services[1].open("pool", []).await.unwrap();
    let mut permits = services[0].permits("pool", 3).await.unwrap();
    let readers = [services[0].share("a").await.unwrap(), services[1].share("a").await.unwrap()];
    let waiting = services[1].permits("pool", 2).start();
    assert_eq!(waiting.position().await.unwrap().unwrap().holds, 1);
    lan.cut(&members[2]);
    come(|| members[..2].iter().all(|member| sees(member, 2))).await;
    assert!(services[0].lock("a").wait(50 * MS).await.unwrap_err().is_timeout());
    permits.return_permits(2).unwrap();
    let two = tokio::time::timeout(HANG, waiting).await.unwrap().unwrap();
    assert!(two.token() > permits.token());
    assert!(services[1].try_permits("pool", 1).await.is_err());
    for reader in readers {
        reader.release().await.unwrap();
    }
    services[1].lock("a").wait(HANG).await.unwrap().release().await.unwrap();
}

/// An opening is not lost with the lease, as a hold is: it keeps nothing of this member from other
/// members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_stays_open_through_a_suspension_and_is_lost_with_the_member() {
    let (lan, members, services) = three().await;
    let mine = services[0].open("colour", "red").await.unwrap();
    let reader = services[0].share("a").await.unwrap();
    lan.cut(&members[0]);
    assert_eq!(reader.lost().await, LostReason::Suspended);
    assert_eq!(*mine.get().unwrap().value, *b"red");
    come(|| sees(&members[1], 2)).await;
    lan.heal();
    assert_eq!(tokio::time::timeout(HANG, mine.lost()).await.unwrap(), LostReason::Expelled);
    assert!(matches!(
        mine.set("green").await,
        Err(SetError::Lost(Lost { reason: LostReason::Expelled, .. }))
    ));
    assert!(mine.changed(reader.token()).await.is_err());
}

#[tokio::test]
async fn a_destroyed_service_takes_its_objects_with_it() {
    let (member, stock) = service().await;
    let size = stock.open("pool", limit(1)).await.unwrap();
    let held = stock.permits("pool", 1).await.unwrap();
    let waiting = stock.permits("pool", 1).start();
    stock.destroy().await.unwrap();
    assert_eq!(waiting.await.unwrap_err(), LockError::Unavailable(Unavailable::Destroyed));
    assert_eq!(size.lost().await, LostReason::Destroyed);
    assert_eq!(held.lost().await, LostReason::Destroyed);
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn an_impossible_request_is_an_error_and_is_not_sent() {
    let (member, stock) = service().await;
    assert!(matches!(
        stock.open("a", [0; 1025]).await,
        Err(LockError::InvalidWant(InvalidWant::Value(error))) if error.length == 1025
    ));
    assert!(matches!(stock.open("", []).await, Err(LockError::InvalidWant(InvalidWant::Name(_)))));
    for count in [0, 65_537] {
        let error = stock.permits("a", count).await.unwrap_err();
        let LockError::InvalidWant(InvalidWant::Permits(error)) = error else { panic!("{error}") };
        assert_eq!(error.given, count);
    }
    let value = stock.open("a", [7; 1024]).await.unwrap();
    assert!(matches!(value.set([0; 1025]).await, Err(SetError::InvalidValue(_))));
    assert_eq!(stock.try_permits("a", 1).await.unwrap_err(), TryLockError::Limit(0));
    drop(value);
    assert_eq!(left_over(&member), NOTHING);
}

/// If the future is dropped when the answer is there, the hold is a lock or gone. It is never a
/// share that keeps other shares out.
#[tokio::test]
async fn an_upgrade_that_is_dropped_leaves_the_other_guards_with_what_it_got() {
    let (member, stock) = service().await;
    let outer = stock.share("a").await.unwrap();
    let inner = outer.reenter().unwrap();
    drop(outer.upgrade());
    assert!(inner.is_shared());
    let outer = inner.reenter().unwrap();
    let upgraded = outer.upgrade().await.unwrap();
    assert!(!inner.is_shared() && inner.fence() == upgraded.fence());
    drop(upgraded);
    assert!(stock.try_share("a").await.is_err());
    let inner = inner.downgrade().unwrap();
    drop(stock.try_share("a").await.unwrap());
    drop(inner);
    assert_eq!(left_over(&member), NOTHING);
}
