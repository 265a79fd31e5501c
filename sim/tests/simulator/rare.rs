//! Rare states are counted when they are reached, and only then.

use elderlock_sim::World;
use elderlock_sim::rare::RareState;
use std::collections::BTreeSet;
use std::time::Duration;

/// Names tell states apart.
#[test]
fn every_rare_state_has_a_name_of_its_own_and_a_reason() {
    let names: BTreeSet<&str> = RareState::ALL.iter().map(|state| state.name()).collect();
    assert!(names.len() == RareState::ALL.len() && names.len() >= 30);
    assert!(RareState::ALL.iter().all(|state| state.why().ends_with('.')));
}

/// A run in which nothing goes wrong is not rare.
#[test]
fn a_quiet_run_reaches_no_rare_state() {
    let mut world = World::new(1).members(3);
    world.settle();
    let first = world.hold_lock(1, "stock", "a");
    let second = world.lock(2, "stock", "a");
    world.run_for(Duration::from_millis(50));
    world.release(first);
    world.granted(second);
    world.release(second);
    world.run_for(Duration::from_secs(5));
    assert!(world.rare().is_empty(), "{:?}", world.rare());
}

/// A holder is stopped, its lock moves on, it wakes and writes.
#[test]
fn a_sleeper_whose_lock_moved_on_is_counted() {
    let mut world = World::new(1).members(3);
    world.settle();
    let old = world.hold_lock(1, "stock", "a");
    let token = world.token(old).expect("it is granted");
    world.pause(1);
    let new = world.lock(2, "stock", "a");
    world.granted(new);
    assert!(world.write(new));
    world.run_for(Duration::from_millis(10));
    assert!(!world.rare().contains_key(&RareState::SleeperRobbed));
    world.resume(1);
    assert_eq!(world.rare()[&RareState::SleeperRobbed], 1);
    assert!(!world.write_with(old, token));
    assert_eq!(world.rare()[&RareState::StaleWrite], 1);
}

/// A grant is under way while its grantor ends and the next one recovers; it arrives after that.
#[test]
fn a_grant_in_flight_at_a_takeover_is_counted() {
    let mut world = World::new(1).members(3);
    world.settle();
    let first = world.hold_lock(1, "stock", "a");
    let grantor = world.grantor("stock");
    let second = world.lock((grantor + 1) % 3, "stock", "a");
    world.run_for(Duration::from_millis(50));
    let kept = world.hold_kind(grantor, (grantor + 1) % 3, "Grant");
    world.release(first);
    world.run_for(Duration::from_millis(20));
    assert_eq!(world.matched(kept), 1);
    world.crash(grantor);
    world.granted(second);
    world.let_go(kept);
    world.run_for(Duration::from_millis(50));
    assert_eq!(world.rare()[&RareState::GrantInFlightAtTakeover], 1);
    assert_eq!(world.rare()[&RareState::OldGrantRefused], 1);
}
