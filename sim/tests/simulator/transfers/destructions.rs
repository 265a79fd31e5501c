//! Services that are destroyed at one member, and used again there or elsewhere.

use super::{granting, with_settled_grantor};
use crate::scenes::{answered, ms};
use elderlock::protocol::{LostReason, Outcome, Timing};
use elderlock_sim::World;

/// Geode's documentation: destroying the service at its grantor ends when the table is in other
/// hands. Until then no request, release or destruction is answered, and none is lost.
#[test]
fn a_grantor_has_destroyed_the_service_when_its_table_is_in_other_hands() {
    let (mut w, order) = with_settled_grantor(23, 4);
    let (user, grantor, holder, waiter) = (order[0], order[1], order[2], order[3]);
    let used = w.hold_lock(user, "s", "used");
    let most = ["x", "y"].map(|name| w.hold_lock(holder, "s", name));
    let waiting = w.lock(waiter, "s", "x");
    w.run_for(ms(20));
    // The table is held on any way.
    let table = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "TableChunk");
    let gone = w.destroy(grantor, "s");
    w.expect("the table is on its way", |w| w.matched(table) > 0);
    w.release(most[0]);
    let free = w.lock(waiter, "s", "free");
    let also_gone = w.destroy(user, "s");
    w.run_for(Timing::fast().member_lease / 4);
    assert_eq!([gone, waiting, free, also_gone].map(|ask| w.is_answered(ask)), [false; 4]);
    w.let_go(table);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert_eq!(answered(&mut w, also_gone), Outcome::Destroyed);
    w.granted(waiting);
    w.granted(free);
    assert_eq!((w.grantor("s"), w.lost(used)), (holder, Some(LostReason::Destroyed)));
    assert!(w.fence(most[1]).is_some());
}

/// Geode's documentation: a successor may refuse, because it may have no instance of the service
/// any more. The grantor that destroys the service is then followed by the next member by the rule.
#[test]
fn a_successor_that_has_destroyed_the_service_refuses_and_the_next_follows() {
    let (mut w, order) = with_settled_grantor(24, 4);
    let (elder, grantor, next, first) = (order[0], order[1], order[2], order[3]);
    let most = ["a", "b"].map(|name| w.hold_lock(first, "s", name));
    let held = w.hold_lock(next, "s", "c");
    // The grantor has not heard yet that its successor has given everything up.
    let late = w.hold_kind(first, grantor, "Release");
    w.destroy(first, "s");
    w.expect("its holds are over", |w| w.matched(late) > 0);
    let refusal = w.hold_kind(first, elder, "Decline");
    let gone = w.destroy(grantor, "s");
    w.expect("the successor refuses", |w| w.matched(refusal) > 0);
    assert!(!w.is_answered(gone));
    w.let_go(refusal);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert_eq!((w.grantor("s"), granting(&w, first)), (next, None));
    assert!(most.iter().all(|ask| w.lost(*ask) == Some(LostReason::Destroyed)));
    assert!(w.fence(held).is_some());
    w.let_go(late);
    let free = w.lock(next, "s", "a");
    w.granted(free);
}

/// The elder has not heard yet that the table was empty. Others ask for the service at that moment:
/// the member that destroyed the service is not made its grantor once more. The destruction is over
/// there as soon as the message goes out.
#[test]
fn a_member_that_destroyed_a_service_does_not_grant_it_again_for_others() {
    let (mut w, order) = with_settled_grantor(16, 3);
    let late = w.hold_kind(order[1], order[0], "Vacant");
    let gone = w.destroy(order[1], "s");
    w.expect("the word is on its way", |w| w.matched(late) > 0);
    let ask = w.lock(order[2], "s", "x");
    w.run_for(ms(20));
    assert_eq!(w.outcome(gone), Some(&Outcome::Destroyed));
    w.let_go(late);
    w.granted(ask);
    assert_eq!((granting(&w, order[1]), w.grantor("s")), (None, order[2]));
}

/// Trace 6: the message that a table is empty comes late, when the service is used again. It counts
/// for its own epoch only.
#[test]
fn a_late_word_of_an_empty_table_says_nothing_of_a_later_one() {
    let (mut w, order) = with_settled_grantor(14, 4);
    let (elder, grantor) = (order[0], order[1]);
    let late = w.hold_kind(grantor, elder, "Vacant");
    w.destroy(grantor, "s");
    w.expect("the word is on its way", |w| w.matched(late) > 0);
    let ask = w.become_grantor(order[3], "s");
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    let held = w.hold_lock(order[2], "s", "x");
    w.let_go(late);
    w.run_for(ms(50));
    // The next grantor has to ask for the holders.
    w.crash(order[3]);
    let next = w.lock_within(elder, "s", "x", 5_000);
    assert_eq!(answered(&mut w, next), Outcome::TimedOut);
    assert_eq!(w.grantor("s"), elder);
    assert!(w.fence(held).is_some());
}

/// Mistake 3: a request from before the destruction gives no process a lock afterwards.
#[test]
fn a_service_that_is_destroyed_and_used_again_knows_nothing_of_before() {
    let (mut w, order) = with_settled_grantor(7, 3);
    let (grantor, user) = (order[1], order[2]);
    let held = w.hold_lock(order[0], "s", "x");
    let late = w.hold_kind(user, grantor, "RequestLock");
    let before = w.lock(user, "s", "x");
    let mine = w.lock(user, "s", "y");
    w.run_for(ms(10));
    let gone = w.destroy(user, "s");
    let again = w.lock(user, "s", "y");
    w.let_go(late);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    for ask in [before, mine] {
        assert_eq!(w.outcome(ask), Some(&Outcome::Closed(LostReason::Destroyed)));
    }
    w.granted(again);
    w.release(held);
    let other = w.lock(order[0], "s", "x");
    w.granted(other);
    w.release(other);
    w.release(again);
    w.expect("nothing of the old one is left", World::is_empty_everywhere);
}

/// Mistake 12: the grant is being delivered when the service is destroyed.
#[test]
fn a_grant_that_crosses_the_destruction_is_released() {
    let (mut w, order) = with_settled_grantor(8, 3);
    let (grantor, user) = (order[1], order[2]);
    let late = w.hold_kind(grantor, user, "Grant");
    let ask = w.lock(user, "s", "x");
    w.expect("the grant is on its way", |w| w.matched(late) > 0);
    let gone = w.destroy(user, "s");
    assert_eq!(w.outcome(ask), Some(&Outcome::Closed(LostReason::Destroyed)));
    w.let_go(late);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    let next = w.lock(order[0], "s", "x");
    w.granted(next);
}

/// Destroying one service does not wait for another's grantor.
#[test]
fn destroying_one_service_does_not_hold_up_another() {
    let (mut w, order) = with_settled_grantor(9, 4);
    let slow = w.hold_lock(order[3], "slow", "x");
    w.release(slow);
    assert_eq!(w.grantor("slow"), order[3]);
    let used = w.lock(order[2], "slow", "y");
    w.granted(used);
    let mine = w.hold_lock(order[2], "s", "x");
    w.cut(order[2], order[3]);
    w.cut(order[0], order[3]);
    w.cut(order[1], order[3]);
    let stuck = w.destroy(order[2], "slow");
    let quick = w.destroy(order[2], "s");
    w.expect_within("the other is destroyed", ms(100), |w| w.is_answered(quick));
    assert!(!w.is_answered(stuck));
    assert_eq!(w.lost(mine), Some(LostReason::Destroyed));
    assert_eq!(answered(&mut w, stuck), Outcome::Destroyed, "when its grantor is out of the view");
}

/// A member that reaches no grantor waits for a member lease, and is not told that nothing is left
/// there.
#[test]
fn a_destruction_that_no_grantor_hears_of_is_not_confirmed() {
    let (mut w, order) = with_settled_grantor(9, 3);
    let mine = w.hold_lock(order[2], "s", "x");
    w.isolate(order[2]);
    let gone = w.destroy(order[2], "s");
    assert_eq!(w.lost(mine), Some(LostReason::Destroyed));
    assert_eq!(answered(&mut w, gone), Outcome::Unconfirmed);
    w.heal();
    w.settle();
    w.expect("nothing of it is left", World::is_empty_everywhere);
}

/// A service that is destroyed where it is granted goes on elsewhere, with all that others have of
/// it.
#[test]
fn a_grantor_that_destroys_the_service_hands_it_over() {
    let (mut w, order) = with_settled_grantor(10, 3);
    let held = w.hold_lock(order[0], "s", "x");
    let own = w.hold_lock(order[1], "s", "y");
    let gone = w.destroy(order[1], "s");
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert_eq!(w.lost(own), Some(LostReason::Destroyed));
    assert_eq!(granting(&w, order[1]), None);
    assert!(w.fence(held).is_some());
    let next = w.lock(order[2], "s", "y");
    w.granted(next);
    let refused = w.try_lock(order[1], "s", "x");
    assert!(matches!(answered(&mut w, refused), Outcome::Held(_)), "and it is used again at once");
}
