//! Real gossip over the simulated network: its hints reach the core, and its wrong hints harm
//! nothing.

use elderlock::protocol::Timing;
use elderlock_sim::World;
use std::time::Duration;

/// Members that know each other by gossip, too. Their leases are long, so that gossip has time to
/// report.
fn met(seed: u64, members: usize) -> World {
    let mut world = World::new(seed).members(members).timing(Timing::wan()).with_gossip();
    world.settle();
    world.expect("every member knows all others", |world| {
        world.sites().all(|site| world.contacts(site).len() == world.sites().len() - 1)
    });
    world
}

fn suspects(world: &World, at: usize, process: elderlock::protocol::ProcessId) -> bool {
    world.status(at).is_some_and(|status| status.suspected.contains(&process))
}

/// A host that fails is called down, and the core hears of it well before the member lease is over.
#[test]
fn a_member_that_vanished_is_noticed_by_gossip() {
    let mut world = met(1, 4);
    let gone = world.process(3);
    world.vanish(3);
    world.expect_within("gossip calls it down", Duration::from_secs(12), |world| {
        (0..3).all(|site| !world.contacts(site).contains(&3) && suspects(world, site, gone))
    });
    assert_eq!(world.view(0).map(|view| view.members.len()), Some(4), "a verdict is only a hint");
}

/// A cut that healed is forgotten: gossip finds all members again, within seconds.
#[test]
fn a_cut_that_healed_is_forgotten_by_gossip() {
    let mut world = met(2, 4);
    for other in 0..3 {
        world.cut(3, other);
    }
    world.expect_within("both sides call each other down", Duration::from_secs(15), |world| {
        (0..3).all(|site| !world.contacts(site).contains(&3)) && world.contacts(3).is_empty()
    });
    world.heal();
    world.expect_within("they know each other again", Duration::from_secs(10), |world| {
        world.sites().all(|site| world.contacts(site).len() == 3)
    });
}

/// A living member is called down where only datagrams are lost. It keeps its lock, and no other
/// member gets it.
#[test]
fn a_false_verdict_of_gossip_costs_no_lock() {
    let mut world = met(3, 4);
    let held = world.hold_lock(3, "stock", "a");
    let next = world.lock(0, "stock", "a");
    let me = world.process(3);
    for other in 0..3 {
        world.deafen(3, other);
    }
    world.expect_within("gossip calls it down", Duration::from_secs(12), |world| {
        suspects(world, 0, me)
    });
    world.run_for(Duration::from_secs(30));
    assert!(world.fence(held).is_some() && !world.is_granted(next));
    for other in 0..3 {
        world.undeafen(3, other);
    }
    world.expect_within("they know each other again", Duration::from_secs(15), |world| {
        world.contacts(3).len() == 3 && world.contacts(0).contains(&3)
    });
    world.release(held);
    world.granted(next);
}

/// A process that starts again, even by a wall clock that was set back, is the process that
/// gossip believes in.
#[test]
fn a_process_that_starts_again_is_known_again() {
    let mut world = met(4, 3);
    for by in [0, -3_600_000] {
        world.step_wall_clock(2, by);
        world.crash(2);
        world.run_for(Duration::from_millis(100));
        world.restart(2);
        world.expect("it is known again", |world| {
            world.contacts(2).len() == 2 && (0..2).all(|site| world.contacts(site).contains(&2))
        });
        world.settle();
    }
}

/// Two runs of a seed gossip alike.
#[test]
fn gossip_is_the_same_in_every_run_of_a_seed() {
    let run = |seed| {
        let mut world = met(seed, 3);
        world.vanish(2);
        world.run_for(Duration::from_secs(10));
        (world.digest(), world.events())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
