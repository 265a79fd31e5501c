//! The scopes that are searched.

use crate::check::scope::{LOCK, Leaps, SERVICE, Scope};
use crate::world::World;
use std::collections::BTreeSet;
use std::time::Duration;

/// Three members in one view, on one host, and nothing under way.
fn three(world: World) -> World {
    let mut world = world.members(3).joiners(1).hosts(&[0; 4]);
    // Who joins knows one seed, and not the elder: there is less talk, and it is passed on.
    world.peers[3].seeds = BTreeSet::from([world.peers[1].addr]);
    at_rest(world)
}

fn at_rest(mut world: World) -> World {
    world.settle();
    world.run_for(Duration::from_secs(1));
    rest(&mut world);
    world
}

/// Goes on until nothing is under way.
fn rest(world: &mut World) {
    let more = |world: &World| world.under_way().next().is_some();
    assert!(world.run_until(|world| !more(world), Duration::from_secs(1)), "it does not come to rest");
}

/// [`three`], and the member at `place` is the grantor of the lock's service. The elder is m0.
fn with_grantor(world: World, place: usize) -> World {
    let mut world = three(world);
    let first = world.hold_lock(place, SERVICE, LOCK);
    world.release(first);
    world.run_for(Duration::from_millis(500));
    rest(&mut world);
    assert_eq!((world.elder(), world.grantor(SERVICE)), (0, place));
    world
}

fn elder_grants(world: World) -> World {
    with_grantor(world, 0)
}

fn another_grants(world: World) -> World {
    with_grantor(world, 1)
}

/// What keeps leases and links alive, and changes nothing else: not so much depends on its order.
fn upkeep(_: usize, _: usize, kind: &str) -> bool {
    ["Beat", "Pulse", "Ack"].contains(&kind)
}

/// Views: a joiner and a crash.
pub const VIEWS: Scope = Scope {
    name: "views",
    about: "three members, one joiner, one crash of anybody, seen by those on its host",
    start: three,
    crashes: 1,
    mortal: &[0, 1, 2, 3],
    joiners: &[3],
    at_once: upkeep,
    ..Scope::STILL
};

/// Elder and grantor are one, and may die.
pub const TAKEOVER: Scope = Scope {
    name: "takeover",
    about: "the elder, which is the grantor, or another is killed; two requests for one lock; two packets lost or doubled",
    start: elder_grants,
    crashes: 1,
    mortal: &[0, 1, 2],
    asks: &[1, 2],
    releases: true,
    faults: 2,
    leaps: &[80],
    leaps_when: Leaps::AtRest,
    at_once: upkeep,
    ..Scope::STILL
};

/// The grantor is not the elder, and may die.
pub const RECOVERY: Scope =
    Scope { name: "recovery", start: another_grants, asks: &[0, 2], ..TAKEOVER };

/// All of them.
pub const ALL: &[Scope] = &[VIEWS, TAKEOVER, RECOVERY];
