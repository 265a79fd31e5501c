//! Grantors that leave: the member that follows, and how many holds and waits it has.

use super::{A_TURK, ENDS, at_any_moment, granting, with_settled_grantor};
use crate::scenes::{answered, ms};
use elderlock::protocol::{GrantorState, Outcome, Timing};
use elderlock_sim::World;
use std::time::Duration;

/// The seed's successor: the member with most holds, with the table and without a recovery.
#[test]
fn a_leaving_grantor_transfers_its_table_to_the_member_with_most_holds() {
    // The oldest waits for more than the member with more holds.
    assert_is_followed_by(2, &[(0, 1, 3), (2, 2, 0), (3, 1, 1)]);
}

/// The member with most waits follows, of those with equally many holds.
#[test]
fn among_equal_holds_the_successor_has_the_most_waits() {
    assert_is_followed_by(3, &[(0, 1, 0), (2, 1, 1), (3, 1, 2)]);
}

/// The oldest member follows, of those with equally many holds and waits.
#[test]
fn among_equal_holds_and_waits_the_successor_is_the_oldest() {
    assert_is_followed_by(2, &[(0, 0, 3), (2, 1, 1), (3, 1, 1)]);
}

/// The grantor leaves and is followed by the member of age `successor`. `shares` has the ages of
/// the other members, each with its numbers of holds and waits.
#[track_caller]
fn assert_is_followed_by(successor: usize, shares: &[(usize, usize, usize)]) {
    let (mut w, order) = with_settled_grantor(5, 4);
    let grantor = order[1];
    let own = w.hold_lock(grantor, "s", "own");
    let (mut holds, mut waits) = (Vec::new(), Vec::new());
    for &(age, held, _) in shares {
        holds.extend(
            (0..held).map(|number| w.hold_lock(order[age], "s", &format!("{age} {number}"))),
        );
    }
    // All wait for a lock that the first of them holds: a lock that the grantor holds itself is
    // granted before it goes.
    let (first, ..) = shares.iter().find(|(_, held, _)| *held > 0).expect("a member with a hold");
    for &(age, _, waited) in shares {
        waits.extend((0..waited).map(|_| w.lock(order[age], "s", &format!("{first} 0"))));
    }
    w.run_for(ms(20));
    let recovers = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "Report");
    w.leave(grantor);
    w.expect("the successor acts", |w| granting(w, order[successor]) == Some(GrantorState::Acting));
    w.let_go(recovers);
    w.expect("it has left", |w| !w.is_alive(grantor));
    assert_eq!(w.grantor("s"), order[successor]);
    assert!(holds.iter().all(|ask| w.fence(*ask).is_some()));
    assert!(w.fence(own).is_none());
    // The queues go on, one after the other.
    w.release(holds[0]);
    for served in 0..waits.len() {
        w.expect("the next is served", |w| {
            waits.iter().filter(|ask| w.is_granted(**ask)).count() == served + 1
        });
        let holder = waits
            .iter()
            .copied()
            .find(|ask| w.fence(*ask).is_some())
            .expect("another member has it");
        w.release(holder);
    }
}

/// While the elder renews its lease, a member can take over a leaving member's service: the leaving
/// member waits for that, however long it takes.
#[test]
fn a_leaving_member_waits_until_its_work_is_in_other_hands() {
    let (mut w, order) = with_settled_grantor(7, 4);
    let grantor = order[1];
    let held = w.hold_lock(order[2], "s", "x");
    // The table is held on any way.
    let late = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "TableChunk");
    let recovers = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "Report");
    w.leave(grantor);
    w.run_for(Timing::fast().member_lease * 3);
    assert!(w.is_alive(grantor) && w.matched(late) > 0);
    w.let_go(late);
    w.expect("it has left", |w| !w.is_alive(grantor));
    assert_eq!(w.was_heard(grantor), Some(true));
    assert_eq!((w.matched(recovers), w.grantor("s")), (0, order[2]));
    assert!(w.fence(held).is_some());
}

/// A successor that leaves as well is followed by the next, and the leave ends when the work is in
/// other hands.
#[test]
fn a_successor_that_will_not_is_followed_by_the_next() {
    for at in 0..20 {
        let (mut w, order) = with_settled_grantor(500 + at, 4);
        let held = w.hold_lock(order[3], "s", "x");
        let other = w.hold_lock(order[0], "s", "y");
        w.run_for(ms(20));
        w.leave(order[3]);
        w.run_for(Duration::from_micros(at * 100));
        w.leave(order[1]);
        w.expect("both have left", |w| !w.is_alive(order[1]) && !w.is_alive(order[3]));
        assert!(w.fence(other).is_some() && w.fence(held).is_none());
        let next = w.lock(order[2], "s", "x");
        w.granted(next);
        let refused = w.try_lock(order[2], "s", "y");
        assert!(matches!(answered(&mut w, refused), Outcome::Held(_)));
    }
}

/// Mistake 17: a grantor goes or destroys the service, and was the only holder. It leaves an empty
/// table and names no successor. The next one begins without asking any member, and its tokens are
/// higher: numbers never begin anew.
#[test]
fn an_empty_table_is_not_recovered_and_tokens_rise_all_the_same() {
    for destroys in [false, true] {
        let (mut w, order) = with_settled_grantor(6, 3);
        let own = w.hold_lock(order[1], "s", "x");
        let not_said = ["ProposeSuccessor", "Recover", "Report"];
        let not_said =
            w.hold(move |flight| not_said.contains(&elderlock_sim::kind::kind(flight.packet)));
        if destroys {
            let gone = w.destroy(order[1], "s");
            assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
        } else {
            w.leave(order[1]);
            w.expect("it has left", |w| !w.is_alive(order[1]));
        }
        let next = w.lock(order[2], "s", "x");
        w.granted(next);
        assert_eq!((w.matched(not_said), w.grantor("s")), (0, order[2]));
        assert!(w.token(next) > w.token(own));
    }
}

/// Mistake 17 again: others hold something, and the successor that received the table goes with it,
/// or before. The next grantor has the rest, from the table or by asking all.
#[test]
fn a_successor_may_go_at_any_moment_and_the_next_takes_over() {
    let begin = |w: &mut World, order: &[usize]| {
        let held = w.hold_lock(order[0], "s", "x");
        let most = [w.hold_lock(order[3], "s", "y"), w.hold_lock(order[3], "s", "z")];
        let waiting = w.lock(order[2], "s", "x");
        w.run_for(ms(20));
        w.leave(order[1]);
        (held, most, waiting)
    };
    for fate in ENDS {
        at_any_moment(
            (700, 4, 60),
            (3, fate),
            (3, A_TURK),
            begin,
            |w, order, (held, most, waiting)| {
                w.expect("the leaver has left", |w| !w.is_alive(order[1]));
                w.expect("the successor's holds are over", |w| {
                    most.iter().all(|ask| w.fence(*ask).is_none())
                });
                assert!(w.fence(held).is_some());
                let refused = w.try_lock(order[2], "s", "x");
                assert!(!matches!(answered(w, refused), Outcome::Granted { .. }));
                w.release(held);
                w.granted(waiting);
                let after_the_gone = w.lock(order[0], "s", "y");
                w.granted(after_the_gone);
                assert!([order[0], order[2]].contains(&w.grantor("s")));
            },
        );
    }
}

/// The successor by the rule refuses, because it leaves itself: the next member by the rule is
/// asked.
#[test]
fn the_next_after_a_successor_that_refuses_is_the_next_by_the_rule() {
    let (mut w, order) = with_settled_grantor(19, 5);
    let (elder, grantor, other, next, first) = (order[0], order[1], order[2], order[3], order[4]);
    let most = ["a", "b", "c"].map(|name| w.hold_lock(first, "s", name));
    let fewer = ["d", "e"].map(|name| w.hold_lock(next, "s", name));
    let one = w.hold_lock(elder, "s", "f");
    // The first successor is leaving and cannot leave yet: it grants another service, whose table
    // is still on its way. And the grantor here has not heard that this member has given its holds
    // up.
    let own = w.hold_lock(first, "other", "x");
    let others = w.hold_lock(other, "other", "y");
    let (late, table) =
        (w.hold_kind(first, grantor, "Release"), w.hold_kind(first, other, "TableChunk"));
    w.leave(first);
    w.expect("it is going", |w| w.matched(late) > 0 && w.matched(table) > 0);
    let declines = w.hold_kind(first, elder, "Decline");
    w.leave(grantor);
    w.expect("it refuses", |w| w.matched(declines) > 0);
    w.let_go(declines);
    w.expect_within("the next is asked", ms(50), |w| {
        granting(w, next) == Some(GrantorState::Acting)
    });
    assert!(w.is_alive(first));
    w.let_go(late);
    w.let_go(table);
    w.expect("both have left", |w| !w.is_alive(grantor) && !w.is_alive(first));
    assert_eq!(w.grantor("s"), next);
    assert!(fewer.iter().chain([&one, &others]).all(|ask| w.fence(*ask).is_some()));
    assert!(most.iter().chain([&own]).all(|ask| w.fence(*ask).is_none()));
}

/// All services at once: the tables are on their way together, and the leave ends when each is in
/// other hands.
#[test]
fn a_member_that_leaves_hands_all_its_services_over_at_once() {
    let services = ["s", "t", "u", "v", "w"];
    let (mut w, order) = with_settled_grantor(20, 4);
    let mut held = Vec::new();
    for (number, service) in services.into_iter().enumerate() {
        let first = w.hold_lock(order[1], service, "first");
        w.release(first);
        assert_eq!(w.grantor(service), order[1]);
        held.push(w.hold_lock(order[[0, 2, 3][number % 3]], service, "x"));
    }
    let grantor = order[1];
    let yields = w.hold_kind(grantor, order[0], "ProposeSuccessor");
    let tables = w.hold(move |flight| {
        flight.from == grantor && elderlock_sim::kind::kind(flight.packet) == "TableChunk"
    });
    w.leave(grantor);
    w.run_for(ms(5));
    assert_eq!(w.matched(yields), services.len(), "it says so of all at once");
    w.let_go(yields);
    w.expect("all tables are on their way", |w| w.matched(tables) >= services.len());
    assert!(w.is_alive(grantor), "it waits until they have arrived");
    w.let_go(tables);
    w.expect("it has left", |w| !w.is_alive(grantor));
    for (number, service) in services.into_iter().enumerate() {
        assert_eq!(w.grantor(service), order[[0, 2, 3][number % 3]], "{service}");
        assert!(w.fence(held[number]).is_some(), "{service}");
    }
}

/// A young turk that asks when the leave has begun: it is named in place of the successor, or
/// follows it.
#[test]
fn a_young_turk_may_come_at_any_moment_of_a_leave() {
    let mut met = Vec::new();
    for at in 0..60 {
        let (mut w, order) = with_settled_grantor(810, 4);
        let held = w.hold_lock(order[3], "s", "x");
        let waiting = w.lock(order[0], "s", "x");
        w.run_for(ms(20));
        w.leave(order[1]);
        w.run_for(Duration::from_micros(at * 100));
        met.push(granting(&w, order[3]));
        let ask = w.become_grantor(order[2], "s");
        assert_eq!(answered(&mut w, ask), Outcome::Won, "at {at}");
        w.expect("it has left", |w| !w.is_alive(order[1]));
        assert_eq!(w.grantor("s"), order[2], "at {at}");
        assert!(w.fence(held).is_some());
        w.release(held);
        w.granted(waiting);
    }
    for state in A_TURK {
        assert!(met.contains(state), "never {state:?}: {met:?}");
    }
}

/// A young turk that asks a grantor that leaves goes before the successor that the grantor would
/// have proposed.
#[test]
fn a_young_turk_may_ask_while_the_grantor_leaves() {
    for at in 0..30 {
        let (mut w, order) = with_settled_grantor(800, 4);
        let held = w.hold_lock(order[3], "s", "x");
        let waiting = w.lock(order[0], "s", "x");
        w.run_for(ms(20));
        let ask = w.become_grantor(order[2], "s");
        w.run_for(Duration::from_micros(at * 100));
        w.leave(order[1]);
        w.expect("it has left", |w| !w.is_alive(order[1]));
        assert_eq!(answered(&mut w, ask), Outcome::Won, "at {at}");
        assert_eq!(w.grantor("s"), order[2], "at {at}");
        assert!(w.fence(held).is_some());
        w.release(held);
        w.granted(waiting);
    }
}
