//! Shares, objects and permits, on a local member.

use super::*;

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
async fn a_lock_becomes_a_share_and_back_and_nobody_gets_in_between() {
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
async fn an_object_lives_as_long_as_somebody_has_it_open() {
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
async fn permits_never_exceed_the_limit_and_the_first_in_line_is_not_overtaken() {
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
    two.give_back(1).unwrap();
    assert_eq!(two.give_back(1), Err(GiveBackError::TooMany { held: 1 }));
    let one = one.await.unwrap();
    size.set(limit(1)).await.unwrap();
    assert!(two.fence().is_ok() && three.fence().is_ok() && one.fence().is_ok(), "nothing is taken away");
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
