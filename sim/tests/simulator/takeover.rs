//! How the elder is replaced: removal, takeovers and their crash points, ghosts, minorities.

use crate::scenes::ms;
use elderlock::protocol::{Hint, LostReason, Timing};
use elderlock_sim::World;
use elderlock_sim::kind::kind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A leaving elder takes members for silent that it does not hear. It proposes a view of the only
/// member that it hears, and leaves. That member leaves too. The next candidate must not finish the
/// proposal: its view would be empty.
#[test]
fn an_elder_that_goes_unheard_leaves_no_view_behind_without_the_others() {
    let mut w = World::new(9).members(5);
    w.settle();
    let order = w.in_view();
    let (elder, near) = (order[0], order[1]);
    // The messages of the others do not reach the elder, nor the member beside it.
    for other in order[2..].iter().copied() {
        for deaf in [elder, near] {
            w.cut_one_way(other, deaf);
        }
    }
    w.run_for(Timing::fast().beat * 10);
    w.leave(elder);
    w.expect("it has gone", |w| !w.is_alive(elder));
    w.vanish(near);
    w.heal();
    w.expect_within("three of five go on", Timing::fast().member_lease * 6, |w| {
        order[2..].iter().all(|site| w.is_ready(*site))
    });
}

/// Ordinary removal waits for the member lease, and then frees the member's holds.
#[test]
fn a_member_that_vanishes_is_removed_after_its_lease_and_not_before() {
    let mut w = World::new(1).members(3);
    w.settle();
    let [_, middle, youngest] = w.in_view()[..] else { panic!("three members") };
    let a = w.hold_lock(middle, "s", "x");
    let b = w.lock(youngest, "s", "x");
    w.vanish(middle);
    w.run_for(ms(2_000));
    assert!(!w.is_granted(b), "its lease may still run");
    w.expect_within("the next waiter has it", ms(1_500), |w| w.is_granted(b));
    assert!(w.token(a) < w.token(b));
    w.settle();
}

/// A process killed on a host that another member can vouch for: the next waiter within 10 ms.
#[test]
fn a_vouched_death_is_quick() {
    let mut w = World::new(2).members(3).hosts(&[0, 0, 0]).timing(Timing::lan());
    w.settle();
    let [elder, middle, youngest] = w.in_view()[..] else { panic!("three members") };
    let _first = w.hold_lock(elder, "s", "y");
    let a = w.hold_lock(middle, "s", "x");
    let b = w.lock(youngest, "s", "x");
    w.run_for(ms(100));
    w.crash(middle);
    w.expect_within("the next waiter has it", ms(15), |w| w.is_granted(b));
    assert!(w.token(a) < w.token(b));
}

/// A killed grantor within 25 ms, elder and grantor together within 75 ms.
#[test]
fn a_vouched_death_of_elder_and_grantor_is_quick() {
    let mut w = World::new(3).members(5).hosts(&[0, 0, 0, 0, 0]).timing(Timing::lan());
    w.settle();
    let order = w.in_view();
    let held = w.hold_lock(order[2], "s", "x");
    let grantor = w.grantor("s");
    w.crash(order[0]);
    if grantor != order[0] {
        w.crash(grantor);
    }
    let requester = order[3];
    let b = w.lock(requester, "s", "y");
    w.expect_within("a lock of the service is granted", ms(100), |w| w.is_granted(b));
    let _ = held;
}

/// `trust_refused` waives the wait only where the operator says so.
#[test]
fn a_refused_connection_is_proof_only_where_the_operator_trusts_it() {
    for trust in [false, true] {
        let world = World::new(4).members(3).timing(Timing::lan());
        let mut w = if trust { world.trust_refused() } else { world };
        w.settle();
        let [_, middle, youngest] = w.in_view()[..] else { panic!("three members") };
        w.hold_lock(middle, "s", "x");
        let b = w.lock(youngest, "s", "x");
        w.run_for(ms(50));
        w.crash(middle);
        w.run_for(ms(1_000));
        assert_eq!(w.is_granted(b), trust);
    }
}

/// Trace 12: a firewall starts to answer REJECT for a living holder.
#[test]
fn a_firewall_that_rejects_for_a_living_holder_frees_nothing() {
    let mut w = World::new(5).members(3);
    w.settle();
    let [elder, middle, youngest] = w.in_view()[..] else { panic!("three members") };
    let a = w.hold_lock(middle, "s", "x");
    let b = w.lock(youngest, "s", "x");
    w.run_for(ms(100));
    let process = w.process(middle);
    for _ in 0..40 {
        w.give_hint(elder, Hint::Refused(process));
        w.give_hint(youngest, Hint::Refused(process));
        w.run_for(ms(100));
    }
    assert!(w.fence(a).is_some(), "it lives and is renewed");
    assert!(!w.is_granted(b));
}

/// Membership 2.4: gossip declares healthy members down.
#[test]
fn gossip_that_calls_all_members_down_changes_nothing() {
    let mut w = World::new(6).members(4);
    w.settle();
    let view = w.latest_view().cloned();
    let a = w.hold_lock(2, "s", "x");
    for at in 0..4 {
        for about in (0..4).filter(|about| *about != at) {
            w.give_hint(at, Hint::Unreachable(w.process(about)));
        }
    }
    w.run_for(Duration::from_secs(10));
    assert_eq!(w.latest_view(), view.as_ref());
    assert!(w.fence(a).is_some());
}

/// Issue: elder takeover; geode 6 number 18: the new elder learns of exactly one grantor.
#[test]
fn when_the_elder_vanishes_the_next_oldest_takes_over_and_knows_the_grantor() {
    let mut w = World::new(7).members(4);
    w.settle();
    let order = w.in_view();
    let a = w.hold_lock(order[2], "s", "x");
    let grantor = w.grantor("s");
    w.vanish(order[0]);
    w.expect_within("there is another elder", ms(2_500), |w| w.find_elder() == Some(order[1]));
    let b = w.hold_lock(order[3], "s", "y");
    assert_eq!(w.grantor("s"), grantor);
    assert!(w.fence(a).is_some(), "a hold survives the takeover");
    assert!(w.token(a) < w.token(b));
    w.settle();
}

/// Geode's documentation: a new elder asks every member which services it grants. The first member
/// of a cluster need not ask, as no member was the elder before it. Unlike Geode's, a new elder
/// does so at once and not when another member asks it.
#[test]
fn a_new_elder_asks_all_members_at_once_for_their_grants_and_a_founder_asks_none() {
    let mut w = World::new(33).members(4);
    let asked: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    let heard = asked.clone();
    w.hold(move |flight| {
        if kind(flight.packet) == "Inventory" {
            heard.lock().expect("no panic").push((flight.from, flight.to));
        }
        false
    });
    w.settle();
    let order = w.in_view();
    w.hold_lock(order[2], "s", "x");
    w.run_for(ms(500));
    assert!(asked.lock().expect("no panic").is_empty(), "no member was the elder before");
    w.vanish(order[0]);
    w.expect("there is another elder", |w| w.find_elder() == Some(order[1]));
    w.run_for(ms(20));
    // The member that is gone is asked as well, in vain, so it does not matter how often each is
    // asked.
    let asked = asked.lock().expect("no panic");
    assert!(order[2..].iter().all(|other| asked.contains(&(order[1], *other))), "{asked:?}");
}

/// Unlike in Geode's documentation, a member that is asked as the elder does not take itself for
/// it. It answers when it has the view in which it is the elder.
#[test]
fn a_member_that_is_asked_as_the_elder_before_it_has_that_view_names_no_grantor() {
    let mut w = World::new(34).members(3);
    w.settle();
    let [elder, next, requester] = w.in_view()[..] else { panic!("three members") };
    let news = w.hold(move |flight| {
        flight.to == next
            && ["Install", "FullView", "Fetch", "StaleVote"].contains(&kind(flight.packet))
    });
    w.leave(elder);
    w.expect("the requester has the next view", |w| {
        w.view(requester).is_some_and(|view| view.members.len() == 2)
    });
    assert!(w.view(next).is_some_and(|view| view.members.len() == 3));
    let asked = w.hold_kind(requester, next, "FindGrantor");
    let named = w.hold(move |flight| {
        flight.from == next && ["NameGrantor", "GrantorIs"].contains(&kind(flight.packet))
    });
    let ask = w.lock(requester, "s", "x");
    w.expect("the next elder is asked", |w| w.matched(asked) > 0);
    w.let_go(asked);
    w.run_for(ms(50));
    assert_eq!((w.matched(named), w.is_answered(ask)), (0, false));
    w.let_go(named);
    w.let_go(news);
    w.granted(ask);
    assert_eq!((w.elder(), w.grantor("s")), (next, requester));
}

/// Issue: each crash point of a takeover. The taker is killed when it has sent its first packet of
/// a kind.
#[test]
fn a_taker_that_is_killed_at_any_step_is_replaced() {
    for step in ["PreVote", "Prepare", "Accept", "Install"] {
        for held_back in [true, false] {
            let mut w = World::new(8).members(5);
            w.settle();
            let order = w.in_view();
            let a = w.hold_lock(order[4], "s", "x");
            let taker = order[1];
            // With messages held back, no other member gets a message that the taker sends at that
            // step. Otherwise one member gets it.
            let lucky = order[2];
            let rule = w.hold(move |flight| {
                flight.from == taker
                    && kind(flight.packet) == step
                    && (held_back || flight.to != lucky)
            });
            w.vanish(order[0]);
            w.expect(&format!("the taker gets as far as {step}"), |w| w.matched(rule) > 0);
            w.run_for(ms(if held_back { 0 } else { 1 }));
            w.vanish(taker);
            w.drop_held(rule);
            w.settle();
            assert_eq!(w.in_view(), order[2..], "{step}");
            assert!(w.fence(a).is_some(), "{step}: a hold survives both");
        }
    }
}

/// As above, but the taker only stops, and wakes when others have gone on without it.
#[test]
fn a_taker_that_stops_at_any_step_and_wakes_does_no_harm() {
    for step in ["PreVote", "Prepare", "Accept", "Install"] {
        let mut w = World::new(9).members(5);
        w.settle();
        let order = w.in_view();
        let taker = order[1];
        let rule = w.hold(move |flight| flight.from == taker && kind(flight.packet) == step);
        w.vanish(order[0]);
        w.expect(&format!("the taker gets as far as {step}"), |w| w.matched(rule) > 0);
        w.pause(taker);
        w.run_for(Duration::from_secs(8));
        w.let_go(rule);
        w.resume(taker);
        w.settle();
        assert!(w.restore_and_demand());
    }
}

/// Issue: two takers at once.
#[test]
fn of_two_takers_at_once_one_wins_and_both_see_the_same_view() {
    for seed in 0..20 {
        let mut w = World::new(100 + seed).members(5).without_hints();
        w.settle();
        let order = w.in_view();
        // The younger taker does not hear of the older one's attempt in time.
        let (first, second) = (order[1], order[2]);
        let rule = w.hold(move |flight| {
            flight.from == first
                && flight.to == second
                && ["PreVote", "Prepare", "Accept"].contains(&kind(flight.packet))
        });
        w.vanish(order[0]);
        w.expect("there is another elder", |w| {
            w.find_elder().is_some_and(|elder| elder != order[0])
        });
        w.let_go(rule);
        w.settle();
    }
}

/// Issue: a join that races a takeover.
#[test]
fn a_join_that_races_a_takeover_comes_in() {
    for after in [0, 200, 500, 900, 1_000, 1_020, 1_040, 1_100, 2_000] {
        let mut w = World::new(10).members(3).joiners(1);
        w.settle();
        let elder = w.elder();
        w.vanish(elder);
        w.run_for(ms(after));
        w.start(3);
        w.settle();
        assert_eq!(w.in_view().len(), 3);
    }
}

/// Issue: an expelled process that comes back as a new one, with every old guard lost.
#[test]
fn an_expelled_process_comes_back_as_a_new_one_with_its_old_guards_lost() {
    let mut w = World::new(11).members(3);
    w.settle();
    let youngest = w.in_view()[2];
    let before = w.process(youngest);
    let a = w.hold_lock(youngest, "s", "x");
    w.isolate(youngest);
    w.expect("its guard is lost", |w| w.lost(a).is_some());
    assert_eq!(w.lost(a), Some(LostReason::Suspended));
    let other = w.in_view()[0];
    let b = w.hold_lock(other, "s", "x");
    w.heal();
    w.settle();
    assert_ne!(w.process(youngest), before);
    assert!(w.token(a) < w.token(b));
    let c = w.hold_lock(youngest, "s", "y");
    assert!(w.fence(c).is_some());
}

/// redisson#3194: a member that is connected again is renewed for as long as it holds, also as a
/// new process.
#[test]
fn a_reconnected_member_is_renewed_for_as_long_as_it_holds() {
    let lease = Timing::fast().member_lease;
    let mut w = World::new(28).members(3);
    w.settle();
    let [elder, _, youngest] = w.in_view()[..] else { panic!("three members") };
    let (held, wanted) = (w.hold_lock(youngest, "s", "x"), w.lock(elder, "s", "x"));
    w.isolate(youngest);
    w.run_for(lease / 3);
    w.heal();
    w.run_for(lease * 10);
    assert!(w.fence(held).is_some() && !w.is_granted(wanted));

    w.isolate(youngest);
    w.granted(wanted);
    w.heal();
    w.settle();
    let held = w.hold_lock(youngest, "s", "y");
    let wanted = w.lock(elder, "s", "y");
    w.run_for(lease * 10);
    assert!(w.fence(held).is_some() && !w.is_granted(wanted));
}

/// Mistake 25, P7: a minority grants nothing once its leases have run out.
#[test]
fn a_minority_grants_nothing_and_its_grantor_neither() {
    let mut w = World::new(12).members(5);
    w.settle();
    let order = w.in_view();
    let grantor = order[4];
    w.hold_lock(grantor, "s", "x");
    assert_eq!(w.grantor("s"), grantor);
    w.split(&order[3..]);
    w.run_for(ms(4_000));
    let inside = w.lock_within(order[3], "s", "y", 3_000);
    let at_grantor = w.try_lock(grantor, "s", "z");
    let majority = w.lock(order[0], "s", "x");
    w.expect("the majority goes on", |w| w.is_granted(majority));
    w.run_for(ms(4_000));
    assert!(!w.is_granted(inside) && !w.is_granted(at_grantor));
    assert!(w.is_answered(inside) && w.is_answered(at_grantor));
    w.heal();
    w.settle();
}

/// P7: of two equal halves the elder's goes on.
#[test]
fn an_even_split_is_won_by_the_half_of_the_elder() {
    let mut w = World::new(13).members(4);
    w.settle();
    let order = w.in_view();
    w.split(&order[..2]);
    w.run_for(ms(6_000));
    let ours = w.lock(order[0], "s", "x");
    let theirs = w.lock_within(order[2], "s", "x", 3_000);
    w.expect("the elder's half grants", |w| w.is_granted(ours));
    w.run_for(ms(4_000));
    assert!(!w.is_granted(theirs));
    assert_eq!(w.in_view(), order[..2]);
    w.heal();
    w.settle();
}

/// A pair survives the loss of the younger, not of the elder.
#[test]
fn a_pair_survives_the_loss_of_the_younger_and_not_of_the_elder() {
    for (lost, survives) in [(1, true), (0, false)] {
        let mut w = World::new(14).members(2);
        w.settle();
        let order = w.in_view();
        w.vanish(order[lost]);
        w.run_for(Duration::from_secs(10));
        let a = w.lock_within(order[1 - lost], "s", "x", 3_000);
        w.run_for(ms(4_000));
        assert_eq!(w.is_granted(a), survives);
    }
}

/// Ghosts still hold. A member cut off at a takeover that is back within its lease keeps its lock.
#[test]
fn a_ghost_that_is_back_within_its_lease_keeps_its_lock() {
    let mut w = World::new(15).members(5);
    w.settle();
    let order = w.in_view();
    let holder = order[4];
    let a = w.hold_lock(holder, "s", "x");
    w.run_for(ms(500));
    w.vanish(order[0]);
    w.run_for(ms(300));
    w.isolate(holder);
    w.expect("there is another elder", |w| w.find_elder() == Some(order[1]));
    let is_ghost =
        w.latest_view().is_some_and(|view| view.members.iter().any(|member| member.ghost));
    assert!(is_ghost, "the unreachable stay as ghosts");
    let b = w.lock(order[2], "s", "x");
    w.run_for(ms(200));
    w.heal();
    w.run_for(ms(400));
    assert!(w.fence(a).is_some(), "it was back in time");
    assert!(!w.is_granted(b));
    w.release(a);
    w.granted(b);
    w.settle();
}

/// Trace 4: a takeover drops a member with a running lease; the next elder counts only its own
/// removals.
#[test]
fn two_takeovers_in_a_row_still_wait_for_a_cut_off_holder() {
    let mut w = World::new(16).members(7);
    w.settle();
    let order = w.in_view();
    let holder = order[6];
    let a = w.hold_lock(holder, "s", "x");
    let b = w.lock(order[5], "s", "x");
    w.run_for(ms(100));
    w.isolate(holder);
    w.vanish(order[0]);
    w.expect("there is a second elder", |w| w.find_elder() == Some(order[1]));
    w.vanish(order[1]);
    w.expect("there is a third elder", |w| w.find_elder() == Some(order[2]));
    // Exclusion is looked at after every step; here it is enough that the lock is had in the end.
    w.expect("the waiter has it", |w| w.is_granted(b));
    assert_eq!(w.fence(a), None);
    w.heal();
    w.settle();
}

/// Trace 9: two members cannot reach each other, both reach the elder.
#[test]
fn two_members_that_reach_each_other_only_through_the_elder_share_a_lock() {
    let mut w = World::new(17).members(3);
    w.settle();
    let order = w.in_view();
    w.cut(order[1], order[2]);
    let a = w.hold_lock(order[2], "s", "x");
    assert_eq!(w.grantor("s"), order[2]);
    let b = w.lock(order[1], "s", "x");
    w.run_for(ms(1_500));
    w.release(a);
    w.expect_within("the elder relays the release and the grant", ms(1_500), |w| w.is_granted(b));
    w.run_for(Duration::from_secs(10));
    assert!(w.fence(b).is_some(), "no member loses its lock");
    assert_eq!(w.in_view(), order);
}

/// As above, with the grantor gone: recovery does not hang on the pair that cannot reach each
/// other.
#[test]
fn recovery_reaches_a_member_by_way_of_the_elder() {
    let mut w = World::new(18).members(4);
    w.settle();
    let order = w.in_view();
    let _grantor = w.hold_lock(order[1], "s", "own");
    assert_eq!(w.grantor("s"), order[1]);
    let a = w.hold_lock(order[3], "s", "x");
    w.cut(order[2], order[3]);
    w.run_for(ms(1_000));
    w.vanish(order[1]);
    let b = w.lock(order[2], "s", "y");
    w.expect("the lock is granted after the lease of the dead", |w| w.is_granted(b));
    assert!(w.fence(a).is_some());
    let c = w.lock(order[2], "s", "x");
    w.run_for(ms(2_000));
    assert!(!w.is_granted(c), "the other member's hold was reported");
}

/// Once the elder has proposed a removal because a lease is surely over, it must
/// not renew that lease.
#[test]
fn an_elder_that_was_not_heard_does_not_renew_a_member_with_a_pending_removal() {
    let mut w = World::new(19).members(3).without_hints();
    w.settle();
    let [elder, middle, youngest] = w.in_view()[..] else { panic!("three members") };
    let first = w.hold_lock(middle, "s", "x");
    w.release(first);
    assert_eq!(w.grantor("s"), middle);
    // The two hear the elder, but it does not hear them, and they cannot agree without it.
    w.cut(middle, youngest);
    let beats = w.hold(move |flight| flight.to == elder && kind(flight.packet) == "Beat");
    let votes = w.hold(move |flight| flight.to == elder && kind(flight.packet) != "Beat");
    w.expect("the elder proposes to remove them", |w| w.matched(votes) > 0 && !w.is_ready(middle));
    w.run_for(ms(300));
    let theirs = w.lock(middle, "s", "x");
    let ours = w.lock(elder, "s", "x");
    w.let_go(beats);
    w.run_for(ms(200));
    w.cut_one_way(elder, middle);
    w.let_go(votes);
    // The elder must not remove a member that it still renews, nor renew one that it removes:
    // exclusion is checked after every step.
    w.expect("one of them has it", |w| w.is_granted(ours) || w.is_granted(theirs));
    w.run_for(ms(500));
    w.heal();
    assert!(w.restore_and_demand());
}

/// A ghost whose elder is gone, and that reaches only members of a view without it.
#[test]
fn a_ghost_that_was_left_behind_hears_that_it_is_out() {
    let mut w = World::new(20).members(5).without_hints();
    w.settle();
    let order = w.in_view();
    let ghost = order[4];
    let but_views = w.hold(move |flight| {
        flight.from == ghost
            || (flight.to == ghost && !["Install", "FullView"].contains(&kind(flight.packet)))
    });
    w.vanish(order[0]);
    w.expect("it knows that it is a ghost", |w| {
        w.view(ghost)
            .is_some_and(|view| view.member(w.process(ghost)).is_some_and(|member| member.ghost))
    });
    w.isolate(ghost);
    w.drop_held(but_views);
    w.vanish(order[1]);
    w.expect("the others have gone on without it", |w| w.in_view().len() == 2);
    w.heal();
    w.settle();
    assert!(w.restore_and_demand());
}

/// All members of a cut-off member's view are gone by the time it is back.
#[test]
fn a_member_that_slept_through_the_whole_turnover_of_its_cluster_comes_back() {
    let mut w = World::new(22).members(3).joiners(2).without_hints();
    w.settle();
    let order = w.in_view();
    let sleeper = order[2];
    w.isolate(sleeper);
    w.expect("it is out", |w| w.in_view().len() == 2);
    w.start(3);
    w.expect("the next is in", |w| w.in_view().len() == 3);
    w.start(4);
    w.expect("the next is in", |w| w.in_view().len() == 4);
    for old in &order[..2] {
        w.crash(*old);
        w.run_for(ms(100));
        w.restart(*old);
        w.expect("it is replaced", |w| {
            w.in_view().len() == 4 && w.in_view().contains(old) && w.is_ready(*old)
        });
    }
    w.heal();
    w.settle();
    assert_eq!(w.in_view().len(), 5);
}

/// The elder of a pair decides its own leaving alone, and the message about it is
/// lost.
#[test]
fn an_elder_of_a_pair_does_not_go_before_the_other_knows() {
    let mut w = World::new(23).members(2);
    w.settle();
    let [elder, other] = w.in_view()[..] else { panic!("two members") };
    w.drop_next(elder, other, "Install");
    w.leave(elder);
    w.expect("it is gone", |w| !w.is_alive(elder));
    w.settle();
    assert_eq!(w.elder(), other);
}

/// A process that was out of a view is never in a later one: its links have been
/// forgotten.
#[test]
fn a_joiner_that_never_heard_of_its_joining_comes_in_under_another_name() {
    let mut w = World::new(21).members(3).joiners(1);
    w.settle();
    let deaf =
        w.hold(|flight| flight.to == 3 && ["Install", "FullView"].contains(&kind(flight.packet)));
    w.start(3);
    w.expect("it is in", |w| w.latest_view().is_some_and(|view| view.members.len() == 4));
    w.expect("it is out again", |w| w.latest_view().is_some_and(|view| view.members.len() == 3));
    w.run_for(ms(1_000));
    w.drop_held(deaf);
    w.settle();
    assert_eq!(w.in_view().len(), 4);
}

/// P7, P8: a member without a lease grants nothing and still answers.
#[test]
fn a_suspended_member_answers_and_grants_nothing_until_it_is_renewed() {
    let mut w = World::new(21).members(3);
    w.settle();
    let youngest = w.in_view()[2];
    w.isolate(youngest);
    w.expect("it is suspended", |w| !w.is_ready(youngest));
    let tried = w.try_lock(youngest, "s", "x");
    w.expect_within("a try does not wait for a lease", ms(300), |w| w.is_answered(tried));
    assert!(!w.is_granted(tried));
    w.heal();
    w.settle();
    assert!(w.is_ready(youngest));
}
