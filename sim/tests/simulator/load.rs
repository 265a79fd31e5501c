//! Stories of members that follow the load of a service.

use crate::scenes::ms;
use elderlock_sim::World;
use elderlock_sim::history::Ask;

/// Three members that follow the load, oldest first. The first one grants "s".
fn cluster(seed: u64) -> (World, [usize; 3]) {
    let mut w = World::new(seed).members(3).following();
    w.settle();
    let [elder, first, other] = w.in_view()[..] else { panic!("three members") };
    let ask = w.hold_lock(elder, "s", "first");
    w.release(ask);
    assert_eq!(w.grantor("s"), elder);
    (w, [elder, first, other])
}

/// Each of the members locks a name of its own so often, with a pause after each round. Ends when
/// `until` grants the service. Returns whether it does.
fn load(w: &mut World, members: &[(usize, usize)], rounds: usize, until: Option<usize>) -> bool {
    (0..rounds).any(|_| {
        for &(member, times) in members {
            for _ in 0..times {
                let ask: Ask = w.hold_lock(member, "s", &format!("of{member}"));
                w.release(ask);
            }
        }
        w.run_for(ms(10));
        until.is_some() && w.find_grantor("s") == until
    })
}

#[test]
fn the_grantor_moves_to_each_member_that_makes_most_requests() {
    let (mut w, members) = cluster(1);
    for member in [members[1], members[2], members[0], members[1]] {
        assert!(load(&mut w, &[(member, 3), (members[0], 1)], 1_000, Some(member)), "m{member}");
    }
}

#[test]
fn members_with_equal_shares_do_not_move_the_grantor() {
    let (mut w, [elder, first, other]) = cluster(2);
    load(&mut w, &[(first, 2), (other, 2)], 500, None);
    assert_eq!(w.grantor("s"), elder);
}

#[test]
fn load_that_alternates_within_three_windows_moves_nothing() {
    let (mut w, [elder, first, other]) = cluster(3);
    // A window of these times lasts for at least 625 ms, and thirty rounds for about 500 ms.
    for member in [first, other].into_iter().cycle().take(40) {
        load(&mut w, &[(member, 3)], 30, None);
    }
    assert_eq!(w.grantor("s"), elder);
}

#[test]
fn members_that_do_not_follow_the_load_never_move_the_grantor() {
    let mut w = World::new(4).members(3);
    w.settle();
    let [elder, first, _] = w.in_view()[..] else { panic!("three members") };
    let ask = w.hold_lock(elder, "s", "first");
    w.release(ask);
    load(&mut w, &[(first, 3)], 500, None);
    assert_eq!(w.grantor("s"), elder);
}

#[test]
fn a_bid_that_is_lost_with_its_elder_is_made_again() {
    let (mut w, [elder, first, other]) = cluster(5);
    // The second member grants, so that the elder can die without the service.
    assert!(load(&mut w, &[(first, 3)], 1_000, Some(first)));
    w.crash(elder);
    assert!(load(&mut w, &[(other, 3)], 3_000, Some(other)));
}
