//! Stories of locks that members keep after their release.

use crate::scenes::soon;
use elderlock::protocol::{Limits, LinkLimits, LockName, LostReason, Outcome, OwnerId, Wait, Want};
use elderlock_sim::World;
use elderlock_sim::history::{Ask, ClientRequest};
use std::time::Duration;

/// Three members that may keep locks, oldest first. The first grants "s".
fn cluster(seed: u64) -> (World, [usize; 3]) {
    settled(World::new(seed).members(3).keeping())
}

fn settled(mut w: World) -> (World, [usize; 3]) {
    w.settle();
    let [elder, keeper, other] = w.in_view()[..] else { panic!("three members") };
    let first = w.hold_lock(elder, "s", "first");
    w.release(first);
    (w, [elder, keeper, other])
}

/// The member locks the name until it keeps the lock. Returns the last hold.
fn keep(w: &mut World, keeper: usize, name: &str) -> Ask {
    for _ in 0..2 {
        let ask = w.hold_lock(keeper, "s", name);
        w.release(ask);
        soon(w);
    }
    let ask = w.hold_lock(keeper, "s", name);
    assert_eq!(w.kept_at(keeper), [true], "it holds the lock that it keeps");
    ask
}

fn name(text: &str) -> LockName {
    LockName::new(text.as_bytes()).expect("a good name")
}

fn want(w: &mut World, member: usize, want: Want, owner: u64) -> Ask {
    w.want(member, "s", ClientRequest::Hold(want), OwnerId(owner), Wait::Forever, None)
}

#[test]
fn a_kept_lock_is_granted_without_a_message_with_rising_tokens() {
    let (mut w, [_, keeper, _]) = cluster(1);
    let mut last = keep(&mut w, keeper, "x");
    let mut fetched = 0;
    for _ in 0..1000 {
        w.release(last);
        let next = w.lock(keeper, "s", "x");
        if !w.is_granted(next) {
            fetched += 1;
            w.granted(next);
        }
        assert!(w.token(next) > w.token(last));
        last = next;
    }
    // The first range has 64 tokens, the next ones a quarter of what the grantor has to spare.
    assert!((1..=3).contains(&fetched), "{fetched}");
}

#[test]
fn another_member_gets_a_free_keep_with_a_higher_token() {
    let (mut w, [_, keeper, other]) = cluster(2);
    let last = keep(&mut w, keeper, "x");
    w.release(last);
    let next = w.lock(other, "s", "x");
    w.granted(next);
    assert!(w.token(next) > w.token(last));
    assert!(w.kept_at(keeper).is_empty());
    let again = w.lock(keeper, "s", "x");
    soon(&mut w);
    assert!(!w.is_answered(again), "it is not kept any more");
}

#[test]
fn a_lock_that_is_recalled_in_use_goes_on_with_its_release() {
    let (mut w, [_, keeper, other]) = cluster(3);
    let held = keep(&mut w, keeper, "x");
    let next = w.lock(other, "s", "x");
    soon(&mut w);
    assert!(!w.is_answered(next));
    assert!(w.fence(held).is_some() && w.kept_at(keeper).is_empty());
    w.release(held);
    w.granted(next);
    assert!(w.token(next) > w.token(held));
}

#[test]
fn a_try_elsewhere_gets_a_lock_that_is_kept_free_and_no_lock_in_use() {
    let (mut w, [_, keeper, other]) = cluster(4);
    let held = keep(&mut w, keeper, "x");
    let refused = w.try_lock(other, "s", "x");
    soon(&mut w);
    let Some(Outcome::Held(holder)) = w.outcome(refused) else { panic!("it is held") };
    assert_eq!((holder.request, Some(holder.token)), (w.call(held).request, w.token(held)));
    w.release(held);
    soon(&mut w);
    let held = keep(&mut w, keeper, "y");
    w.release(held);
    let taken = w.try_lock(other, "s", "y");
    w.granted(taken);
}

#[test]
fn a_suspension_ends_all_keeps_and_waits_for_those_in_use() {
    let (mut w, [_, keeper, other]) = cluster(5);
    let free = keep(&mut w, keeper, "x");
    w.release(free);
    let suspension = w.suspend(other, "s");
    w.granted(suspension);
    assert!(w.kept_at(keeper).is_empty());
    let waits = w.lock(keeper, "s", "x");
    soon(&mut w);
    assert!(!w.is_answered(waits));
    w.release(suspension);
    w.granted(waits);
}

#[test]
fn a_keep_that_is_not_used_goes_back() {
    let (mut w, [_, keeper, _]) = cluster(6);
    let last = keep(&mut w, keeper, "x");
    w.release(last);
    w.expect("it is given back", |w| w.kept_at(keeper).is_empty());
    w.expect("nothing is left of it", World::is_empty_everywhere);
}

#[test]
fn a_used_keep_survives_its_grantor_and_a_free_one_does_not() {
    for is_used in [true, false] {
        let (mut w, [elder, keeper, other]) = cluster(7);
        let held = keep(&mut w, keeper, "x");
        if !is_used {
            w.release(held);
        }
        w.crash(elder);
        let next = w.lock(other, "s", "x");
        w.expect("another member grants", |w| w.find_grantor("s").is_some_and(|at| at != elder));
        if is_used {
            w.run_for(Duration::from_secs(1));
            assert!(w.fence(held).is_some() && !w.is_answered(next));
            w.release(held);
        }
        w.granted(next);
        assert!(w.token(next) > w.token(held));
    }
}

#[test]
fn a_used_keep_moves_with_the_table() {
    let (mut w, [_, keeper, other]) = cluster(8);
    let held = keep(&mut w, keeper, "x");
    let turk = w.become_grantor(other, "s");
    w.expect("it grants", |w| w.is_answered(turk) && w.find_grantor("s") == Some(other));
    let next = w.lock(other, "s", "x");
    w.run_for(Duration::from_secs(1));
    assert!(w.fence(held).is_some() && !w.is_answered(next));
    w.release(held);
    w.granted(next);
}

#[test]
fn a_keeper_that_becomes_the_grantor_keeps_nothing_of_its_own() {
    let (mut w, [_, keeper, other]) = cluster(9);
    let held = keep(&mut w, keeper, "x");
    let turk = w.become_grantor(keeper, "s");
    w.expect("it grants", |w| w.is_answered(turk) && w.find_grantor("s") == Some(keeper));
    assert!(w.fence(held).is_some());
    w.release(held);
    soon(&mut w);
    assert!(w.kept_at(keeper).is_empty());
    let next = w.lock(other, "s", "x");
    w.granted(next);
}

#[test]
fn a_name_is_free_for_others_after_its_keepers_death() {
    let (mut w, [_, keeper, other]) = cluster(10);
    let last = keep(&mut w, keeper, "x");
    w.release(last);
    w.crash(keeper);
    let next = w.lock(other, "s", "x");
    w.expect("it is granted", |w| w.is_granted(next));
    assert!(w.token(next) > w.token(last));
}

#[test]
fn a_member_without_a_lease_keeps_nothing() {
    let (mut w, [_, keeper, _]) = cluster(11);
    let held = keep(&mut w, keeper, "x");
    w.isolate(keeper);
    w.expect("its hold is lost", |w| w.lost(held) == Some(LostReason::Suspended));
    assert!(w.kept_at(keeper).is_empty());
    let next = w.lock(keeper, "s", "x");
    w.run_for(Duration::from_millis(100));
    assert!(!w.is_granted(next));
}

#[test]
fn a_lock_with_words_for_others_is_never_kept() {
    let (mut w, [_, keeper, _]) = cluster(12);
    for _ in 0..4 {
        let ask = w.lock_saying(keeper, "s", "x", "till 3");
        w.granted(ask);
        assert!(w.kept_at(keeper).is_empty());
        w.release(ask);
        soon(&mut w);
    }
}

#[test]
fn a_second_request_of_the_member_waits_in_line() {
    let (mut w, [_, keeper, other]) = cluster(13);
    let held = keep(&mut w, keeper, "x");
    let second = w.lock(keeper, "s", "x");
    soon(&mut w);
    let third = w.lock(other, "s", "x");
    soon(&mut w);
    w.release(held);
    w.granted(second);
    assert!(!w.is_answered(third));
    w.release(second);
    w.granted(third);
}

#[test]
fn a_used_keep_that_becomes_a_share_moves_with_the_table() {
    for is_late in [false, true] {
        let (mut w, [elder, keeper, other]) = cluster(14);
        let held = keep(&mut w, keeper, "x");
        if is_late {
            w.clog(keeper, elder);
        }
        assert!(w.downgrade(held));
        let turk = w.become_grantor(other, "s");
        w.run_for(Duration::from_millis(20));
        w.unclog(keeper, elder);
        w.expect("it grants", |w| w.is_answered(turk) && w.find_grantor("s") == Some(other));
        let share = want(&mut w, other, Want::Share(name("x")), 1);
        w.granted(share);
        let next = w.lock(elder, "s", "x");
        soon(&mut w);
        assert!(w.fence(held).is_some() && !w.is_answered(next), "late: {is_late}");
        w.release(held);
        w.release(share);
        w.granted(next);
    }
}

#[test]
fn an_owner_that_uses_a_keep_passes_a_suspension_while_the_table_moves() {
    for is_late in [false, true] {
        let (mut w, [elder, keeper, other]) = cluster(15);
        let first = keep(&mut w, keeper, "x");
        w.release(first);
        let held = want(&mut w, keeper, Want::Lock(name("x")), 7);
        assert!(w.is_granted(held), "by the member itself");
        if is_late {
            w.clog(elder, keeper);
        }
        let suspension = w.suspend(other, "s");
        soon(&mut w);
        let turk = w.become_grantor(other, "s");
        let second = want(&mut w, keeper, Want::Lock(name("y")), 7);
        w.run_for(Duration::from_millis(20));
        w.unclog(elder, keeper);
        w.expect("it grants", |w| w.is_answered(turk) && w.find_grantor("s") == Some(other));
        w.granted(second);
        assert!(w.fence(held).is_some() && !w.is_answered(suspension), "late: {is_late}");
        w.release(second);
        w.release(held);
        w.granted(suspension);
    }
}

#[test]
fn a_member_keeps_no_more_locks_of_a_service_than_its_limit() {
    let link = LinkLimits { kept_locks: 2, ..Limits::DEFAULT.link };
    let limits = Limits { link, ..Limits::DEFAULT };
    let (mut w, [elder, keeper, _]) = settled(World::new(21).members(3).keeping().limits(limits));
    let first = w.hold_lock(elder, "t", "first");
    w.release(first);
    for service in ["s", "t"] {
        for name in ["x", "y", "z"] {
            for _ in 0..2 {
                let ask = w.hold_lock(keeper, service, name);
                w.release(ask);
            }
        }
    }
    assert_eq!(w.kept_at(keeper), [false; 4], "two of each service are kept, and free");
}

#[test]
fn a_member_whose_limit_is_zero_keeps_nothing() {
    let link = LinkLimits { kept_locks: 0, ..Limits::DEFAULT.link };
    let limits = Limits { link, ..Limits::DEFAULT };
    let (mut w, [_, keeper, _]) = settled(World::new(22).members(3).keeping().limits(limits));
    for _ in 0..3 {
        let ask = w.hold_lock(keeper, "s", "x");
        w.release(ask);
        soon(&mut w);
    }
    assert!(w.kept_at(keeper).is_empty());
}

/// The member shares the name until it keeps a share. Returns the last share.
fn keep_share(w: &mut World, keeper: usize, text: &str) -> Ask {
    for _ in 0..2 {
        let ask = share(w, keeper, text);
        w.granted(ask);
        w.release(ask);
        soon(w);
    }
    let ask = share(w, keeper, text);
    assert!(w.is_granted(ask), "by the member itself");
    assert_eq!(w.kept_at(keeper), [true]);
    ask
}

fn share(w: &mut World, member: usize, text: &str) -> Ask {
    want(w, member, Want::Share(name(text)), 0)
}

fn cluster_of_readers(seed: u64) -> (World, [usize; 3]) {
    settled(World::new(seed).members(3).keeping_shares())
}

#[test]
fn readers_of_several_members_keep_their_shares_and_a_writer_waits_for_all() {
    let (mut w, [elder, keeper, other]) = cluster_of_readers(31);
    let mut held = Vec::new();
    for reader in [keeper, other] {
        held.push(keep_share(&mut w, reader, "x"));
        for _ in 0..3 {
            let ask = share(&mut w, reader, "x");
            assert!(w.is_granted(ask), "without a message");
            held.push(ask);
        }
    }
    assert_eq!([w.kept_at(keeper), w.kept_at(other)], [[true], [true]]);
    let writer = w.lock(elder, "s", "x");
    for ask in held {
        soon(&mut w);
        assert!(!w.is_answered(writer) && w.fence(ask).is_some());
        w.release(ask);
    }
    w.granted(writer);
    let late = share(&mut w, keeper, "x");
    soon(&mut w);
    assert!(!w.is_answered(late), "it is not kept any more");
    w.release(writer);
    w.granted(late);
}

#[test]
fn a_writer_gets_a_lock_whose_shares_are_kept_free() {
    for is_try in [false, true] {
        let (mut w, [_, keeper, other]) = cluster_of_readers(32);
        let shares: Vec<_> = (0..3).map(|_| keep_share_again(&mut w, keeper)).collect();
        let highest = shares.iter().map(|ask| w.token(*ask)).max().expect("three shares");
        let writer = if is_try { w.try_lock(other, "s", "x") } else { w.lock(other, "s", "x") };
        w.granted(writer);
        assert!(w.token(writer) > highest);
        assert!(w.kept_at(keeper).is_empty());
    }
}

/// A share that is kept, and free again.
fn keep_share_again(w: &mut World, keeper: usize) -> Ask {
    let ask = if w.kept_at(keeper).is_empty() {
        keep_share(w, keeper, "x")
    } else {
        share(w, keeper, "x")
    };
    w.release(ask);
    ask
}

#[test]
fn used_shares_survive_their_grantor_and_free_ones_do_not() {
    for used in 0..=2 {
        let (mut w, [elder, keeper, other]) = cluster_of_readers(33);
        let mut shares = vec![keep_share(&mut w, keeper, "x")];
        shares.push(share(&mut w, keeper, "x"));
        for ask in shares.split_off(used) {
            w.release(ask);
        }
        w.crash(elder);
        let writer = w.lock(other, "s", "x");
        w.expect("another member grants", |w| w.find_grantor("s").is_some_and(|at| at != elder));
        w.run_for(Duration::from_secs(1));
        assert_eq!(w.is_answered(writer), used == 0);
        for ask in shares {
            assert!(w.fence(ask).is_some() && !w.is_answered(writer), "{used} in use");
            w.release(ask);
            soon(&mut w);
        }
        w.granted(writer);
    }
}

#[test]
fn used_shares_move_with_the_table() {
    for is_late in [false, true] {
        let (mut w, [elder, keeper, other]) = cluster_of_readers(34);
        let shares = [keep_share(&mut w, keeper, "x"), share(&mut w, keeper, "x")];
        if is_late {
            w.clog(keeper, elder);
        }
        let writer = w.lock(elder, "s", "x");
        w.run_for(Duration::from_millis(5));
        let turk = w.become_grantor(other, "s");
        w.run_for(Duration::from_millis(20));
        w.unclog(keeper, elder);
        w.expect("it grants", |w| w.is_answered(turk) && w.find_grantor("s") == Some(other));
        for ask in shares {
            soon(&mut w);
            assert!(w.fence(ask).is_some() && !w.is_answered(writer), "late: {is_late}");
            w.release(ask);
        }
        w.granted(writer);
    }
}

#[test]
fn a_share_becomes_the_lock_beside_shares_that_others_keep_free() {
    let (mut w, [_, keeper, other]) = cluster_of_readers(35);
    let kept = keep_share(&mut w, keeper, "x");
    w.release(kept);
    let reader = share(&mut w, other, "x");
    w.granted(reader);
    let turning = ClientRequest::Upgrade(reader);
    let upgrade = w.want(other, "s", turning, OwnerId::default(), Wait::Try, None);
    w.expect("it is answered", |w| w.is_answered(upgrade));
    let outcome = w.outcome(upgrade);
    assert!(matches!(outcome, Some(Outcome::Upgraded { .. })), "{outcome:?}");
    assert!(w.kept_at(keeper).is_empty());
}

#[test]
fn a_suspension_waits_for_the_uses_of_a_kept_share() {
    let (mut w, [_, keeper, other]) = cluster_of_readers(36);
    let shares = [keep_share(&mut w, keeper, "x"), share(&mut w, keeper, "x")];
    let suspension = w.suspend(other, "s");
    for ask in shares {
        soon(&mut w);
        assert!(!w.is_answered(suspension));
        w.release(ask);
    }
    w.granted(suspension);
}

/// A share that was granted to be kept, and is held.
fn share_to_keep(w: &mut World, keeper: usize) -> Ask {
    let first = share(w, keeper, "x");
    w.granted(first);
    w.release(first);
    soon(w);
    let second = share(w, keeper, "x");
    w.granted(second);
    second
}

#[test]
fn a_share_survives_the_end_of_its_place_while_the_table_moves() {
    for delay in 0..16 {
        let (mut w, [elder, keeper, other]) = cluster_of_readers(37);
        let place = share_to_keep(&mut w, keeper);
        let held = share(&mut w, keeper, "x");
        assert!(w.is_granted(held), "by the member itself");
        let turk = w.become_grantor(other, "s");
        w.run_for(Duration::from_micros(400 * delay));
        w.release(place);
        let writer = w.lock(elder, "s", "x");
        w.expect("it grants", |w| w.is_answered(turk) && w.find_grantor("s") == Some(other));
        w.run_for(Duration::from_secs(1));
        assert!(w.fence(held).is_some() && !w.is_answered(writer), "after {delay} times 0.4 ms");
        w.release(held);
        w.granted(writer);
    }
}

#[test]
fn a_recall_that_crosses_an_upgrade_leaves_the_lock() {
    for delay in 0..8 {
        let (mut w, [elder, keeper, other]) = cluster_of_readers(38);
        let held = share_to_keep(&mut w, keeper);
        let writer = w.try_lock(other, "s", "x");
        w.run_for(Duration::from_micros(200 * delay));
        let turning = ClientRequest::Upgrade(held);
        let upgrade = w.want(keeper, "s", turning, OwnerId::default(), Wait::Try, None);
        w.expect("it is answered", |w| w.is_answered(upgrade) && w.is_answered(writer));
        assert!(matches!(w.outcome(upgrade), Some(Outcome::Upgraded { .. })));
        let reader = share(&mut w, elder, "x");
        soon(&mut w);
        assert!(!w.is_answered(reader) && w.fence(held).is_some(), "after {delay} times 0.2 ms");
        w.release(held);
        w.granted(reader);
    }
}
