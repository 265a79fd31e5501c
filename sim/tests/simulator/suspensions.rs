//! Stories of suspensions and of batches: their order of waiting, and their survival of a change of
//! grantor.

use crate::scenes::{answered, ms, soon, with_grantor};
use elderlock::protocol::Query;
use elderlock::protocol::{LostReason, Outcome, OwnerId, QueryReply, Wait, Want};
use elderlock_sim::World;
use elderlock_sim::history::{Ask, ClientRequest};
use std::time::Duration;

fn suspend_within(w: &mut World, site: usize, owner: u64, wait: Wait) -> Ask {
    w.want(site, "s", ClientRequest::Hold(Want::Suspension), OwnerId(owner), wait, None)
}

/// Mistake 20: the waiter before the suspension, the suspension, and then the requests after it.
#[test]
fn lockers_and_suspenders_are_served_in_the_order_of_asking() {
    let (mut w, order) = with_grantor(1, 4);
    let held = w.hold_lock(order[0], "s", "x");
    let waiter = w.lock(order[2], "s", "x");
    soon(&mut w);
    let suspension = w.suspend(order[3], "s");
    soon(&mut w);
    let after = w.lock(order[1], "s", "y");
    soon(&mut w);
    assert!(
        !w.is_granted(suspension) && !w.is_granted(after),
        "y is free, and its turn has not come"
    );
    w.release(held);
    w.granted(waiter);
    soon(&mut w);
    assert!(!w.is_granted(suspension) && !w.is_granted(after));
    w.release(waiter);
    w.granted(suspension);
    soon(&mut w);
    assert!(!w.is_granted(after));
    w.release(suspension);
    w.granted(after);
}

/// A holder may still take other locks while a suspension waits (common mistake 20).
#[test]
fn a_holder_takes_further_locks_before_a_suspension_that_waits() {
    let (mut w, order) = with_grantor(2, 4);
    let held = w.hold_lock(order[0], "s", "x");
    let suspension = w.suspend(order[3], "s");
    soon(&mut w);
    let more = w.lock(order[0], "s", "y");
    let other = w.lock(order[2], "s", "z");
    w.granted(more);
    soon(&mut w);
    assert!(!w.is_granted(suspension) && !w.is_granted(other));
    w.release(held);
    w.release(more);
    w.granted(suspension);
    w.release(suspension);
    w.granted(other);
}

/// Mistake 21, Geode's defect P1: a holder of x that suspends waits for the others only.
#[test]
fn a_holder_upgrades_to_the_suspension_and_keeps_its_lock() {
    let (mut w, order) = with_grantor(3, 4);
    let own = w.hold_lock(order[0], "s", "x");
    let other = w.hold_lock(order[2], "s", "y");
    let suspension = w.suspend(order[0], "s");
    soon(&mut w);
    assert!(!w.is_granted(suspension));
    w.release(other);
    w.granted(suspension);
    assert!(w.fence(own).is_some(), "and keeps x");
    let within = w.lock(order[0], "s", "z");
    w.granted(within);
}

/// Two holders that would both suspend wait for each other: the second is told so at once.
#[test]
fn two_upgrades_at_once_do_not_wait_for_each_other() {
    let (mut w, order) = with_grantor(4, 4);
    let first = w.hold_lock(order[0], "s", "x");
    let second = w.hold_lock(order[2], "s", "y");
    let one = w.suspend(order[0], "s");
    soon(&mut w);
    let two = w.suspend(order[2], "s");
    assert_eq!(answered(&mut w, two), Outcome::Deadlock);
    w.release(second);
    w.granted(one);
    assert!(w.fence(first).is_some());
}

/// Mistake 22, Geode's defect P2: the suspension times out, the waiter behind it goes on, and the
/// holder is not disturbed.
#[test]
fn waiters_behind_a_suspension_go_on_when_it_times_out() {
    let (mut w, order) = with_grantor(5, 4);
    let held = w.hold_lock(order[0], "s", "x");
    let suspension = suspend_within(&mut w, order[3], 0, Wait::AtMost(ms(1_000)));
    soon(&mut w);
    let behind = w.lock(order[2], "s", "y");
    soon(&mut w);
    assert!(!w.is_granted(behind));
    assert_eq!(answered(&mut w, suspension), Outcome::TimedOut);
    w.expect_within("it goes on at once", ms(50), |w| w.is_granted(behind));
    assert!(w.fence(held).is_some());
    w.release(held);
    w.release(behind);
    w.expect("nothing is left", World::is_empty_everywhere);
}

/// Mistake 23, Geode's defect P3: the last lock ends with its lease, and the suspension is granted
/// and reported.
#[test]
fn a_suspension_is_granted_when_the_last_lease_ends() {
    let (mut w, order) = with_grantor(6, 4);
    let held = w.lock_for(order[0], "s", "x", 500);
    w.granted(held);
    let suspension = suspend_within(&mut w, order[3], 0, Wait::AtMost(ms(1_000)));
    w.granted(suspension);
    assert_eq!(w.lost(held), Some(LostReason::LeaseEnded));
}

/// Mistake 23 again: the last holder dies.
#[test]
fn a_suspension_is_granted_when_the_last_holder_dies() {
    let (mut w, order) = with_grantor(7, 4);
    w.hold_lock(order[0], "s", "x");
    let suspension = w.suspend(order[3], "s");
    soon(&mut w);
    w.crash(order[0]);
    w.granted(suspension);
}

/// Mistake 23, Geode's defect P4: the suspender that waits dies, and the waiter behind it goes on.
#[test]
fn waiters_behind_a_suspender_that_dies_go_on() {
    let (mut w, order) = with_grantor(8, 4);
    let held = w.hold_lock(order[0], "s", "x");
    w.suspend(order[3], "s");
    soon(&mut w);
    let behind = w.lock(order[2], "s", "y");
    soon(&mut w);
    w.crash(order[3]);
    w.granted(behind);
    assert!(w.fence(held).is_some());
}

/// Geode's defect P7: a try during a suspension is told at once of the hold that stands in its way.
#[test]
fn a_try_during_a_suspension_is_told_of_it_at_once() {
    let (mut w, order) = with_grantor(9, 4);
    let suspension = w.suspend(order[3], "s");
    w.granted(suspension);
    let tried = w.try_lock(order[2], "s", "x");
    w.expect_within("it is answered", ms(50), |w| w.is_answered(tried));
    let Some(Outcome::Held(holder)) = w.outcome(tried) else { panic!("{:?}", w.outcome(tried)) };
    assert_eq!((holder.process, &holder.name), (w.process(order[3]), &None));
}

/// Geode's defect P18: destroying the service frees a caller that a suspension holds back.
#[test]
fn destroying_a_service_answers_the_waiters_behind_a_suspension() {
    let (mut w, order) = with_grantor(10, 4);
    let suspension = w.suspend(order[3], "s");
    w.granted(suspension);
    let held_back = w.lock(order[2], "s", "x");
    soon(&mut w);
    let gone = w.destroy(order[2], "s");
    assert_eq!(w.outcome(held_back), Some(&Outcome::Closed(LostReason::Destroyed)));
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert!(w.fence(suspension).is_some());
}

/// Geode's defects P19 and P20, and "suspend held across grantor failover": the suspension is
/// reported, and no member gets a lock beside it.
#[test]
fn a_suspension_survives_the_crash_of_the_grantor() {
    let (mut w, order) = with_grantor(11, 4);
    let own = w.hold_lock(order[3], "s", "mine");
    let suspension = w.suspend(order[3], "s");
    w.granted(suspension);
    let behind = w.lock(order[2], "s", "x");
    soon(&mut w);
    let second = w.suspend(order[0], "s");
    soon(&mut w);
    w.crash(order[1]);
    w.expect("another member grants", |w| w.find_grantor("s").is_some_and(|site| site != order[1]));
    soon(&mut w);
    assert!(w.fence(suspension).is_some() && w.fence(own).is_some() && !w.is_granted(behind));
    w.release(suspension);
    w.release(own);
    w.granted(behind);
    soon(&mut w);
    assert!(!w.is_granted(second));
    w.release(behind);
    w.granted(second);
}

/// Holders and waiters of a suspended service keep their positions in a transfer.
#[test]
fn a_suspension_survives_a_transfer() {
    let (mut w, order) = with_grantor(12, 4);
    let held = w.hold_lock(order[0], "s", "x");
    let suspension = w.suspend(order[3], "s");
    soon(&mut w);
    let behind = w.lock(order[2], "s", "y");
    soon(&mut w);
    for turk in [order[2], order[0]] {
        let ask = w.become_grantor(turk, "s");
        assert_eq!(answered(&mut w, ask), Outcome::Won);
        soon(&mut w);
        assert!(!w.is_granted(suspension) && !w.is_granted(behind));
    }
    w.release(held);
    w.granted(suspension);
    let ask = w.become_grantor(order[1], "s");
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    soon(&mut w);
    assert!(w.fence(suspension).is_some() && !w.is_granted(behind));
    w.release(suspension);
    w.granted(behind);
}

/// Locks of one owner do not stand beside another owner's suspension, though both are of one
/// member.
#[test]
fn owners_of_one_member_are_told_apart() {
    let (mut w, order) = with_grantor(13, 4);
    let lock = |w: &mut World, owner, name: &str| {
        let name = elderlock::protocol::LockName::new(name.as_bytes()).expect("a good name");
        w.want(
            order[2],
            "s",
            ClientRequest::Hold(Want::Lock(name)),
            OwnerId(owner),
            Wait::Forever,
            None,
        )
    };
    let held = lock(&mut w, 1, "x");
    w.granted(held);
    let suspension = suspend_within(&mut w, order[2], 2, Wait::Forever);
    soon(&mut w);
    assert!(!w.is_granted(suspension));
    w.release(held);
    w.granted(suspension);
    let (own, other) = (lock(&mut w, 2, "y"), lock(&mut w, 1, "z"));
    w.granted(own);
    soon(&mut w);
    assert!(!w.is_granted(other));
    w.release(own);
    w.release(suspension);
    w.granted(other);
}

/// A batch takes all of its locks or none, and no later request gets one of them before it.
#[test]
fn a_batch_is_granted_whole_and_in_its_turn() {
    let (mut w, order) = with_grantor(14, 4);
    let held = w.hold_lock(order[0], "s", "b");
    let batch = w.lock_all(order[2], "s", &["c", "a", "b"]);
    soon(&mut w);
    let later = w.lock(order[3], "s", "a");
    soon(&mut w);
    assert!(
        !w.is_granted(batch) && !w.is_granted(later),
        "a is free, and the batch stands before it"
    );
    w.release(held);
    let first = w.granted(batch);
    let tokens: Vec<_> =
        w.call(batch).tokens().map(|(key, token)| (key.1.clone(), token)).collect();
    assert_eq!(tokens.len(), 3);
    assert!(
        tokens[0].1 == first && tokens.is_sorted_by_key(|(name, token)| (name.clone(), *token))
    );
    assert!(!w.is_granted(later));
    w.release(batch);
    w.granted(later);
}

/// Batches that want the same locks in other orders do not wait for each other in a circle.
#[test]
fn batches_do_not_deadlock() {
    let (mut w, order) = with_grantor(15, 4);
    let mut asks: Vec<Ask> = Vec::new();
    for _ in 0..5 {
        for (site, names) in [(0, ["a", "b"]), (2, ["b", "c"]), (3, ["c", "a"])] {
            asks.push(w.lock_all(order[site], "s", &names));
        }
    }
    while !asks.is_empty() {
        w.expect("one is served", |w| asks.iter().any(|ask| w.is_granted(*ask)));
        let (served, rest): (Vec<Ask>, Vec<Ask>) = asks.iter().partition(|ask| w.is_granted(**ask));
        assert_eq!(served.len(), 1, "two of them never hold at once: they share a lock");
        served.into_iter().for_each(|ask| w.release(ask));
        asks = rest;
    }
}

/// Geode's batches do not survive their grantor. Batches here do, by transfer and by recovery.
#[test]
fn a_batch_survives_its_grantor() {
    for crash in [false, true] {
        let (mut w, order) = with_grantor(16, 4);
        let batch = w.lock_all(order[2], "s", &["a", "b"]);
        let token = w.granted(batch);
        let waiting = w.lock_all(order[3], "s", &["b", "c"]);
        soon(&mut w);
        if crash {
            w.crash(order[1]);
        } else {
            let ask = w.become_grantor(order[0], "s");
            assert_eq!(answered(&mut w, ask), Outcome::Won);
        }
        for name in ["a", "b"] {
            let tried = w.lock_within(order[0], "s", name, 2_000);
            assert_eq!(answered(&mut w, tried), Outcome::TimedOut);
        }
        assert_eq!(w.fence(batch), Some(token));
        assert!(!w.is_granted(waiting));
        w.release(batch);
        w.granted(waiting);
    }
}

/// TXLockServiceDUnitTest.testTXGrantorMigration: a batch is released while its grantor changes, at
/// any moment. The release waits for no answer, and the change goes on.
#[test]
fn a_batch_that_is_released_while_its_grantor_changes_is_free_at_the_next() {
    for crash in [false, true] {
        for at in 0..30 {
            let (mut w, order) = with_grantor(20, 4);
            let batch = w.lock_all(order[2], "s", &["a", "b"]);
            w.granted(batch);
            let bid = (!crash).then(|| w.become_grantor(order[0], "s"));
            if crash {
                w.crash(order[1]);
            }
            w.run_for(Duration::from_micros(at * 100));
            w.release(batch);
            let next = w.lock_all(order[3], "s", &["b", "a"]);
            w.granted(next);
            if let Some(bid) = bid {
                assert_eq!(answered(&mut w, bid), Outcome::Won, "at {at}");
            }
            w.release(next);
            w.expect("nothing is left", World::is_empty_everywhere);
        }
    }
}

/// A try for a batch names the lock that stands in its way.
#[test]
fn a_try_for_a_batch_names_the_held_lock() {
    let (mut w, order) = with_grantor(17, 4);
    w.hold_lock(order[0], "s", "b");
    let batch = elderlock::protocol::Batch::new(
        ["a", "b"]
            .map(|name| elderlock::protocol::LockName::new(name.as_bytes()).expect("a good name"))
            .into(),
    );
    let want = Want::Batch(batch.expect("a good batch"));
    let tried =
        w.want(order[2], "s", ClientRequest::Hold(want), OwnerId::default(), Wait::Try, None);
    let Outcome::Held(holder) = answered(&mut w, tried) else { panic!("{:?}", w.outcome(tried)) };
    assert_eq!(holder.name.map(|name| name.as_bytes().to_vec()), Some(b"b".to_vec()));
    assert_eq!(holder.process, w.process(order[0]));
    let free = w.try_lock(order[3], "s", "a");
    w.granted(free);
}

/// The holders, and the waiters in their order, can be read from any member.
#[test]
fn the_table_can_be_read_from_every_member() {
    let (mut w, order) = with_grantor(18, 4);
    let held = w.hold_lock(order[0], "s", "x");
    for site in [order[3], order[2]] {
        w.lock(site, "s", "x");
        soon(&mut w);
    }
    let name = elderlock::protocol::LockName::new(b"x").expect("a good name");
    for site in order.clone() {
        let look = w.look(site, "s", Query::Lock(name.clone()));
        let Outcome::QueryReply(QueryReply::Lock { holders, waiters, more, .. }) =
            answered(&mut w, look)
        else {
            panic!("{:?}", w.outcome(look))
        };
        let holder = holders.first().expect("a member holds it");
        assert_eq!((holder.process, Some(holder.token)), (w.process(order[0]), w.token(held)));
        let processes: Vec<_> = waiters.iter().map(|waiter| waiter.process).collect();
        assert_eq!((processes, more), (vec![w.process(order[3]), w.process(order[2])], 0));
    }
}

/// Geode's free_resources needs no call: ten thousand names that were locked and freed leave
/// nothing.
#[test]
fn idle_names_cost_nothing() {
    let (mut w, order) = with_grantor(19, 4);
    for number in 0..10_000 {
        let ask = w.hold_lock(order[number % 4], "s", &format!("name {number}"));
        w.release(ask);
    }
    w.expect("nothing is left", World::is_empty_everywhere);
    w.expect("and the members keep nothing", World::is_at_rest);
}
