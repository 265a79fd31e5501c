//! Messages that cross a table on its way, or each other.

use super::{granting, with_settled_grantor};
use crate::scenes::{answered, ms};
use elderlock::protocol::{GrantorState, Outcome};
use elderlock_sim::World;

/// Trace 1: the release is on its way to the old grantor while that hands its table over. The young
/// turk hears of it all the same.
#[test]
fn a_release_that_crosses_the_table_is_not_undone() {
    let (mut w, order) = with_settled_grantor(11, 4);
    let (grantor, holder, turk) = (order[1], order[2], order[3]);
    let held = w.hold_lock(holder, "s", "x");
    let late = w.hold(move |flight| {
        flight.from == holder && elderlock_sim::kind::kind(flight.packet) == "Release"
    });
    w.release(held);
    w.expect("the release is on its way", |w| w.matched(late) > 0);
    let ask = w.become_grantor(turk, "s");
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    assert_eq!(granting(&w, grantor), None);
    let next = w.lock(order[0], "s", "x");
    w.granted(next);
    w.let_go(late);
    w.run_for(ms(500));
    assert!(w.fence(next).is_some());
    w.release(next);
    w.expect("nothing comes back", World::is_empty_everywhere);
}

/// Trace 1 again: the release reaches the young turk before the table that still has the hold.
#[test]
fn a_release_that_is_there_before_the_table_is_not_undone() {
    let (mut w, order) = with_settled_grantor(12, 4);
    let (grantor, holder, turk) = (order[1], order[2], order[3]);
    let other = w.hold_lock(order[0], "s", "y");
    let held = w.hold_lock(holder, "s", "x");
    // A waiter is told where the table went, and so it releases there.
    let waiting = w.lock(holder, "s", "y");
    w.run_for(ms(20));
    let late = w.hold_kind(grantor, turk, "TableChunk");
    let ask = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(late) > 0);
    w.run_for(ms(5));
    let done = w.hold_kind(holder, turk, "Release");
    w.release(held);
    w.expect("it releases at the young turk", |w| w.matched(done) > 0);
    w.let_go(done);
    w.run_for(ms(5));
    assert_eq!(granting(&w, turk), Some(GrantorState::Receiving));
    w.let_go(late);
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    let next = w.lock(order[0], "s", "x");
    w.granted(next);
    w.release(next);
    w.release(other);
    w.granted(waiting);
    w.release(waiting);
    w.expect("nothing comes back", World::is_empty_everywhere);
}

/// Trace 2: the grant is on its way while the table lists the holder. The holder gets that very
/// grant, and does not queue behind itself.
#[test]
fn a_grant_that_is_on_its_way_while_the_table_goes_is_told_again() {
    let (mut w, order) = with_settled_grantor(13, 4);
    let (grantor, requester, turk) = (order[1], order[2], order[3]);
    let late = w.hold_kind(grantor, requester, "Grant");
    let ask = w.lock(requester, "s", "x");
    w.expect("the grant is on its way", |w| w.matched(late) > 0);
    let bid = w.become_grantor(turk, "s");
    assert_eq!(answered(&mut w, bid), Outcome::Won);
    // The young turk tells the grant, from the table that it got.
    let token = w.granted(ask);
    let next = w.lock(order[0], "s", "x");
    w.let_go(late);
    w.run_for(ms(500));
    assert_eq!(w.fence(ask), Some(token));
    assert!(!w.is_granted(next));
    w.release(ask);
    w.granted(next);
}

/// The old grantor asks for its table before that has arrived at the young turk. The last chunk
/// arrives after that request: the turk begins and passes the table on in one step.
#[test]
fn a_turk_may_begin_and_be_followed_in_one_step() {
    let (mut w, order) = with_settled_grantor(17, 4);
    let (grantor, turk) = (order[1], order[3]);
    let held = w.hold_lock(order[2], "s", "x");
    let late = w.hold_kind(grantor, turk, "TableChunk");
    let first = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(late) > 0);
    let hand = w.hold_kind(grantor, turk, "RequestTable");
    let second = w.become_grantor(grantor, "s");
    w.expect("so is the word that asks for it", |w| w.matched(hand) > 0);
    w.let_go(hand);
    w.run_for(ms(5));
    assert!(!w.is_answered(first) && !w.is_answered(second));
    w.let_go(late);
    assert_eq!(answered(&mut w, second), Outcome::Won);
    assert_eq!((answered(&mut w, first), granting(&w, turk)), (Outcome::Won, None));
    assert!(w.fence(held).is_some());
}

/// A young turk asks a recovering grantor for the table. The last report ends the recovery, and the
/// grantor passes the table on in the same step.
#[test]
fn a_recovery_may_end_and_be_followed_in_one_step() {
    let (mut w, order) = with_settled_grantor(18, 4);
    let (grantor, next, turk) = (order[1], order[2], order[3]);
    let held = w.hold_lock(turk, "s", "x");
    w.crash(grantor);
    let late = w.hold_kind(turk, next, "Report");
    let ask = w.lock(next, "s", "y");
    w.expect("the last report is on its way", |w| w.matched(late) > 0);
    let hand = w.hold_kind(turk, next, "RequestTable");
    let bid = w.become_grantor(turk, "s");
    w.expect("so is the word that asks for the table", |w| w.matched(hand) > 0);
    w.let_go(hand);
    w.run_for(ms(5));
    assert_eq!(granting(&w, next), Some(GrantorState::Recovering));
    w.let_go(late);
    assert_eq!(answered(&mut w, bid), Outcome::Won);
    w.granted(ask);
    assert!(w.fence(held).is_some());
}

/// One link keeps its order, two links do not: the younger turk asks the turk before it, which has
/// not heard of its own naming. The older turk has no table and never will, so the younger one
/// recovers.
#[test]
fn a_turk_that_is_asked_before_it_hears_of_its_naming_never_acts() {
    let (mut w, order) = with_settled_grantor(15, 4);
    let (elder, grantor, middle, last) = (order[0], order[1], order[2], order[3]);
    let held = w.hold_lock(grantor, "s", "x");
    let naming = w.hold_kind(elder, middle, "NameGrantor");
    let first = w.become_grantor(middle, "s");
    w.expect("its naming is on its way", |w| w.matched(naming) > 0);
    let second = w.become_grantor(last, "s");
    assert_eq!(answered(&mut w, second), Outcome::Won);
    assert_eq!(answered(&mut w, first), Outcome::Outbid(w.process(last)));
    w.let_go(naming);
    w.run_for(ms(500));
    assert_eq!((granting(&w, middle), w.grantor("s")), (None, last));
    assert!(w.fence(held).is_some());
    let next = w.lock(middle, "s", "x");
    w.release(held);
    w.granted(next);
}
