//! Votes on disk: restarts of all members, directories lost and put back, lineages that meet, and
//! `force`.

use crate::scenes::ms;
use elderlock::protocol::{LostReason, Timing};
use elderlock_sim::World;
use std::time::Duration;

fn three() -> World {
    let mut w = World::new(1).members(3).durable();
    w.settle();
    w
}

fn kill_all(w: &mut World) {
    for site in w.sites() {
        w.crash(site);
    }
}

fn start_all(w: &mut World) {
    for site in w.sites() {
        if !w.is_alive(site) {
            w.start(site);
        }
    }
}

/// A restart of all members continues the lineage: views and tokens rise, no lock is left.
#[test]
fn a_restart_of_all_members_goes_on_with_the_lineage() {
    for count in 1..=5 {
        let mut w = World::new(10 + count as u64).members(count).durable();
        w.settle();
        let before = w.latest_view().cloned().expect("a view");
        let held = w.hold_lock(0, "s", "x");
        let first = w.token(held);
        kill_all(&mut w);
        w.run_for(ms(300));
        start_all(&mut w);
        let again = w.lock(count - 1, "s", "x");
        w.granted(again);
        assert!(w.token(again) > first);
        w.settle();
        let after = w.latest_view().expect("a view");
        assert_eq!(after.lineage, before.lineage);
        assert!(after.number > before.number);
        assert_eq!(after.members.len(), count, "the former processes are gone");
    }
}

/// The former processes stay as ghosts until their leases are surely over: one of them may only be
/// cut off.
#[test]
fn the_former_processes_are_awaited_as_ghosts() {
    let mut w = three();
    kill_all(&mut w);
    start_all(&mut w);
    w.expect("a view of the vote successors", |w| w.is_ready(0));
    let view = w.view(0).expect("a view");
    assert_eq!(view.members.iter().filter(|member| member.ghost).count(), 3);
    let x = w.lock(1, "s", "x");
    w.run_for(Timing::fast().member_lease / 2);
    assert!(!w.is_granted(x), "no member can tell yet which one held it");
    w.granted(x);
}

/// Only the coordinator of a founding has stored the first view when all founders die. Its vote
/// successor waits a member lease, gives its vote up, and all found anew, with higher tokens.
#[test]
fn a_founding_that_only_its_coordinator_stored_is_given_up() {
    let mut w = World::new(227).members(3).durable();
    w.expect("the coordinator has stored the first view", |w| w.disk(0).is_some());
    let lost = w.disk(0).expect("stored").view;
    kill_all(&mut w);
    w.put_back_disk(1, None);
    w.put_back_disk(2, None);
    start_all(&mut w);
    w.run_for(Timing::fast().member_lease);
    assert!(w.latest_view().is_none_or(|view| view.lineage == lost.lineage), "a lease may run");
    let again = w.lock(2, "s", "x");
    w.granted(again);
    w.settle();
    let after = w.latest_view().expect("a view");
    assert!(after.lineage > lost.lineage && after.first_slot > lost.end_slot());
    assert_eq!(after.members.len(), 3);
    // The next processes continue it: the directory has the new lineage's vote.
    let lineage = after.lineage;
    kill_all(&mut w);
    start_all(&mut w);
    w.settle();
    assert_eq!(w.latest_view().expect("a view").lineage, lineage);
}

/// A first view is not given up while a founder may live, or while a quorum of its votes is there.
#[test]
fn a_first_view_that_can_go_on_is_not_given_up() {
    let mut w = three();
    let before = w.latest_view().cloned().expect("a view");
    w.crash(0);
    w.crash(1);
    w.put_back_disk(1, None);
    w.isolate(2);
    w.start(0);
    w.start(1);
    w.run_for(Timing::fast().member_lease * 4);
    assert_eq!(w.latest_view().expect("a view").lineage, before.lineage);
    w.heal();
    w.settle();
    assert_eq!(w.latest_view().expect("a view").lineage, before.lineage);

    let mut w = three();
    kill_all(&mut w);
    w.put_back_disk(2, None);
    start_all(&mut w);
    w.settle();
    assert_eq!(w.latest_view().expect("a view").lineage, before.lineage, "two of three votes");
}

/// Without data directories all members start anew: another lineage, with higher tokens.
#[test]
fn without_directories_a_restart_of_all_members_founds_anew() {
    let mut w = World::new(2).members(3);
    w.settle();
    let before = w.latest_view().cloned().expect("a view");
    let held = w.hold_lock(0, "s", "x");
    kill_all(&mut w);
    w.run_for(ms(300));
    start_all(&mut w);
    w.settle();
    let again = w.hold_lock(1, "s", "x");
    assert_ne!(w.latest_view().map(|view| view.lineage), Some(before.lineage));
    assert!(w.token(again) > w.token(held));
}

/// hazelcast#17436: all seeds restart without their disks, and a member that lives on goes on with
/// them. (If it is a seed itself the others wait for it, and it for an operator:
/// `an_orphan_says_so_and_goes_on_when_forced`.)
#[test]
fn a_surviving_member_joins_the_others_when_they_have_founded_anew_without_directories() {
    let mut w = World::new(67).members(3).joiners(1).two_lineages_may_meet();
    w.settle();
    let alone = 3;
    w.start(alone);
    w.settle();
    let held = w.hold_lock(alone, "s", "x");
    let process = w.process(alone);
    for seed in 0..3 {
        w.crash(seed);
    }
    for seed in 0..3 {
        w.start(seed);
    }
    w.settle();
    assert!(w.lost(held).is_some() && w.process(alone) != process);
    let again = w.hold_lock(alone, "s", "x");
    assert!(w.token(again) > w.token(held));
}

/// Trace 11: all others restart within a second while a cut-off member still holds under its old
/// lease.
#[test]
fn all_others_restart_while_one_that_is_cut_off_still_holds() {
    let mut w = World::new(3).members(4).durable();
    w.settle();
    let [a, b, c, d] = w.in_view()[..] else { panic!("four members") };
    let held = w.hold_lock(d, "s", "x");
    w.isolate(d);
    for site in [a, b, c] {
        w.crash(site);
    }
    w.run_for(ms(200));
    for site in [a, b, c] {
        w.start(site);
    }
    let x = w.lock(a, "s", "x");
    w.expect("the holder's lease is over", |w| w.fence(held).is_none());
    assert!(!w.is_granted(x), "not before it is surely over");
    w.granted(x);
    assert_eq!(w.lost(held), Some(LostReason::Suspended));
    assert!(w.token(x) > w.token(held));
    w.heal();
    w.settle();
}

/// Trace 10, with directories: a seed restarts cut off from the others and meets one that never was
/// a member. The seed does not found again with it.
#[test]
fn a_seed_that_restarts_cut_off_with_its_directory_founds_nothing() {
    let mut w = three();
    let [elder, other, lone] = w.in_view()[..] else { panic!("three members") };
    let lineage = w.view(elder).map(|view| view.lineage);
    let held = w.hold_lock(other, "s", "x");
    w.crash(lone);
    w.crash(elder);
    w.lose_disk(elder);
    w.isolate(other);
    w.start(lone);
    w.start(elder); // with an empty directory: a newcomer that would found
    w.run_for(Duration::from_secs(20));
    assert!(
        w.view(lone).is_none() && w.view(elder).is_none(),
        "no quorum of the old view, and no new founding"
    );
    assert!(w.fence(held).is_none());
    w.heal();
    w.settle();
    assert_eq!(w.view(elder).map(|view| view.lineage), lineage);
}

/// A surviving member and the vote successors of the others are a quorum together.
#[test]
fn a_surviving_member_goes_on_with_the_vote_successors_of_the_others() {
    for survivor in 0..3 {
        let mut w = World::new(20 + survivor).members(3).durable();
        w.settle();
        let order = w.in_view();
        let lineage = w.view(0).map(|view| view.lineage);
        let survivor = order[survivor as usize];
        let held = w.hold_lock(survivor, "s", "x");
        for site in order.iter().copied().filter(|site| *site != survivor) {
            w.crash(site);
            w.run_for(ms(20));
            w.start(site);
        }
        w.settle();
        assert_eq!(w.view(survivor).map(|view| view.lineage), lineage);
        assert!(w.fence(held).is_some(), "its lease was kept all the time");
    }
}

/// The elder alone lives on, and goes on with the votes of vote successors. When it takes those in,
/// the votes of their former processes have no owner any more, so the next view must not count on
/// them.
#[test]
fn a_lone_elder_takes_vote_successors_in_and_does_not_count_on_the_dead() {
    for count in 3..=7 {
        let mut w = World::new(40 + count as u64).members(count).durable();
        w.settle();
        let elder = w.elder();
        let lineage = w.view(elder).map(|view| view.lineage);
        for site in w.sites().filter(|site| *site != elder) {
            w.crash(site);
        }
        w.run_for(Timing::fast().member_lease * 2);
        start_all(&mut w);
        w.settle();
        assert_eq!(w.view(elder).map(|view| view.lineage), lineage);
    }
}

/// A minority of the vote successors waits, as a minority of members does.
#[test]
fn a_minority_of_vote_successors_decides_nothing() {
    let mut w = three();
    let order = w.in_view();
    kill_all(&mut w);
    w.start(order[2]);
    w.run_for(Duration::from_secs(30));
    assert!(w.view(order[2]).is_none());
    w.start(order[1]);
    w.expect("two of three are enough", |w| w.is_ready(order[1]) && w.is_ready(order[2]));
}

/// Vote successors crash at every moment while they meet: their own successors still have the vote,
/// and contradict no earlier vote.
#[test]
fn vote_successors_may_die_at_any_moment_and_have_successors() {
    for at in 0..120 {
        let mut w = World::new(3_000 + at).members(3).durable();
        w.settle();
        let lineage = w.view(0).map(|view| view.lineage);
        kill_all(&mut w);
        start_all(&mut w);
        w.run_for(ms(900) + Duration::from_micros(at * 15_000));
        let victim = at as usize % 3;
        w.crash(victim);
        w.run_for(ms(40));
        w.start(victim);
        w.settle();
        assert_eq!(w.view(0).map(|view| view.lineage), lineage);
    }
}

/// A lost directory costs the vote, and nothing else.
#[test]
fn a_lost_directory_costs_one_vote() {
    let mut w = three();
    let lineage = w.view(0).map(|view| view.lineage);
    kill_all(&mut w);
    w.lose_disk(1);
    start_all(&mut w);
    w.settle();
    assert!(w.sites().all(|site| w.view(site).map(|view| view.lineage) == lineage));
}

/// With too many directories lost no member goes on by itself: the others may still be there. An
/// operator may order it.
#[test]
fn when_too_many_directories_are_lost_only_an_operator_goes_on() {
    let mut w = three();
    w.run_for(Timing::fast().member_lease);
    let before = w.latest_view().cloned().expect("a view");
    let held = w.hold_lock(0, "s", "x");
    kill_all(&mut w);
    w.lose_disk(0);
    w.lose_disk(1);
    start_all(&mut w);
    w.run_for(Duration::from_secs(30));
    assert!(w.sites().all(|site| w.view(site).is_none()));
    w.force(2);
    w.settle();
    let after = w.latest_view().expect("a view");
    assert!(after.lineage > before.lineage);
    let again = w.hold_lock(1, "s", "x");
    assert!(w.token(again) > w.token(held));
}

/// A directory that was put back from a copy has an older vote than its process had. Where that can
/// be known its vote counts for nothing, and the process joins as a new one.
#[test]
fn a_directory_that_was_put_back_has_no_vote_where_that_can_be_known() {
    let mut w = World::new(4).members(3).joiners(1).durable();
    w.settle();
    let [_, _, youngest] = w.in_view()[..] else { panic!("three members") };
    let copy = w.disk(youngest);
    w.start(3);
    w.settle();
    w.run_for(Duration::from_secs(2));
    w.crash(youngest);
    w.put_back_disk(youngest, copy);
    w.start(youngest);
    w.expect("it is told that its vote is stale", |w| w.said_at(youngest, "StaleVote"));
    w.settle();
}

/// An orphaned member reports it, and goes on when it is forced; the others join the lineage that
/// goes on.
#[test]
fn an_orphan_says_so_and_goes_on_when_forced() {
    let mut w = World::new(5).members(3).joiners(1);
    w.settle();
    w.start(3);
    w.settle();
    let order = w.in_view();
    let held = w.hold_lock(order[3], "s", "x");
    let before = w.latest_view().cloned().expect("a view");
    for site in &order[..2] {
        w.crash(*site);
    }
    w.crash(order[2]);
    w.force(order[3]);
    assert!(w.fence(held).is_some(), "whose lease runs is not forced");
    w.run_for(Duration::from_secs(12));
    assert!(w.said_at(order[3], "Orphaned"));
    w.force(order[3]);
    w.expect("it goes on", |w| w.is_ready(order[3]));
    let after = w.view(order[3]).cloned().expect("a view");
    assert!(after.lineage > before.lineage && after.number > before.number);
    let again = w.hold_lock(order[3], "s", "x");
    assert!(w.token(again) > w.token(held));
    for site in &order[..3] {
        w.start(*site);
    }
    w.settle();
}

/// Two lineages that meet: the one founded later has the higher tokens and goes on. The members of
/// the other are told that their holds are lost, and join the later one.
#[test]
fn of_two_lineages_that_meet_the_later_one_goes_on() {
    let mut w = World::new(6).members(3).joiners(4).two_lineages_may_meet();
    w.settle();
    for joiner in 3..7 {
        w.start(joiner);
    }
    w.settle();
    let old = w.view(6).map(|view| view.lineage);
    let held = w.hold_lock(6, "s", "x");
    // All seeds start again while they are cut off from the members that live on.
    w.split(&[0, 1, 2]);
    for seed in 0..3 {
        w.crash(seed);
    }
    w.run_for(ms(100));
    for seed in 0..3 {
        w.start(seed);
    }
    w.expect("a second lineage", |w| w.is_ready(0) && w.view(0).map(|view| view.lineage) != old);
    w.run_for(Duration::from_secs(8));
    assert!(w.fence(held).is_some(), "four of seven live on");
    let second = w.hold_lock(0, "s", "x");
    assert!(w.token(second) > w.token(held));
    w.heal();
    w.settle();
    assert_eq!(w.lost(held), Some(LostReason::Expelled));
    assert!(w.fence(second).is_some());
    assert!(w.view(6).map(|view| view.lineage) > old);
}

/// With a council smaller than the cluster the vote successors hear no member of the last view. The
/// oldest member outside the council, dead as all others, must not become the elder.
#[test]
fn vote_successors_of_a_small_council_put_no_unheard_member_at_the_head() {
    for council in 1..4 {
        let mut w = World::new(30 + u64::from(council)).members(5).council(council).durable();
        w.settle();
        let lineage = w.view(0).map(|view| view.lineage);
        kill_all(&mut w);
        start_all(&mut w);
        w.settle();
        assert_eq!(w.view(0).map(|view| view.lineage), lineage);
    }
}
