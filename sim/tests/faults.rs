//! Every fault does what it says: one small story each.

use elderlock::protocol::{LostReason, Outcome, Packet, Timing, ViewNumber};
use elderlock::wire::{self, Decoder, Frame};
use elderlock_sim::chaos::{Plan, run_seed};
use elderlock_sim::fault::{Fault, Target, What};
use elderlock_sim::network::{MS, Narrow, SECOND, Weather};
use elderlock_sim::record::Entry;
use elderlock_sim::stream::damage;
use elderlock_sim::{Ask, World};
use std::time::Duration;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Members that have met, in a World that writes down its packets.
fn met(members: usize) -> World {
    let mut world = World::new(11).members(members).with_messages();
    world.settle();
    world
}

/// The packets of one way since true time `since`: when sent, whether lost at once, and when arrived.
fn packets(world: &World, from: usize, to: usize, since: u64) -> Vec<(u64, bool, Option<u64>)> {
    let lines = &world.record().lines;
    let sent = lines.iter().filter(|line| line.at >= since && line.place == Some(from));
    let arrival = |packet: u64| {
        let arrives = |entry: &Entry| matches!(entry, Entry::Arrive { packet: one } if *one == packet);
        lines.iter().find(|line| line.place == Some(to) && arrives(&line.entry)).map(|line| line.at)
    };
    sent.filter_map(|line| match &line.entry {
        Entry::Send { packet, to: at, lost, .. } if *at == to => Some((line.at, lost.is_some(), arrival(*packet))),
        _ => None,
    })
    .collect()
}

fn now(world: &World) -> u64 {
    world.elapsed().as_nanos() as u64
}

/// What waits at the end of a clogged way arrives when it is unclogged, in the order of sending, and nothing is lost.
#[test]
fn a_clogged_way_delivers_late_and_in_order() {
    let mut world = met(3);
    let since = now(&world) + 5 * MS;
    world.run_for(ms(5));
    world.clog(0, 1);
    world.run_for(ms(400));
    let until = now(&world);
    world.unclog(0, 1);
    world.run_for(ms(100));
    let clogged: Vec<_> =
        packets(&world, 0, 1, since).into_iter().filter(|(sent, ..)| *sent < until - 5 * MS).collect();
    assert!(clogged.len() > 3, "there is something to wait: {clogged:?}");
    assert!(clogged.iter().all(|(_, lost, arrived)| !lost && *arrived >= Some(until)), "{clogged:?}");
    assert!(clogged.iter().map(|(.., arrived)| arrived).is_sorted(), "{clogged:?}");
    assert!(packets(&world, 1, 0, since).iter().any(|(.., arrived)| arrived.is_some_and(|at| at < until)));
}

/// A reset loses everything that is on its way between the two, one of them both ways, and both notice.
#[test]
fn a_reset_loses_what_was_in_flight_and_both_ends_notice() {
    for both in [true, false] {
        let mut world = met(3);
        world.hold_lock(0, "stock", "a");
        let since = now(&world);
        // Both have something under way: a request, and the answer to one that came before.
        let asks: Vec<Ask> = (1..3).map(|member| world.lock_within(member, "stock", "b", 5_000)).collect();
        world.run_until(|world| asks.iter().any(|ask| world.is_answered(*ask)), ms(20));
        let ask = world.lock_within(1, "stock", "c", 5_000);
        let (to_elder, cut) = (packets(&world, 1, 0, since), now(&world));
        if both {
            world.reset(1, 0);
        } else {
            world.reset_half(1, 0);
        }
        let in_flight = to_elder.iter().filter(|(.., arrived)| arrived.is_none()).count();
        assert!(in_flight > 0, "nothing was on its way");
        world.run_for(ms(2));
        let suspects = |world: &World, at: usize, of: usize| {
            world.status(at).is_some_and(|status| status.suspected.contains(&world.process(of)))
        };
        assert!(suspects(&world, 0, 1) && suspects(&world, 1, 0));
        let before =
            |of: Vec<(u64, bool, Option<u64>)>| of.into_iter().filter(|(sent, ..)| *sent <= cut).collect::<Vec<_>>();
        let lost = before(packets(&world, 1, 0, since)).iter().filter(|(.., arrived)| arrived.is_none()).count();
        assert_eq!(lost, in_flight, "what was on its way is lost, and nothing else");
        world.granted(ask);
        world.expect("they have found each other again", |world| !suspects(world, 0, 1) && !suspects(world, 1, 0));
    }
}

/// Damaged frames break connections; when the damage ends everybody goes on.
#[test]
fn damaged_frames_break_connections_and_nothing_else() {
    let mut world = World::new(5).members(3);
    world.settle();
    let held = world.hold_lock(1, "stock", "a");
    world.weather(Weather { garble: 50_000, ..Weather::FAIR });
    world.run_for(ms(3_000));
    let damages = world.damages();
    assert!(damages.damaged > 10 && damages.broken > 1, "{damages:?}");
    world.heal();
    world.settle();
    world.release(held);
    world.hold_lock(2, "stock", "a");
}

/// What is damaged says nothing at all, whatever the damage is.
#[test]
fn no_damaged_frame_says_something_else() {
    let mut whole = Vec::new();
    let frame = Frame::Packet(Packet::Ack { view: ViewNumber(900), ack: 12, again: true });
    wire::encode(&frame, &mut whole).unwrap();
    for luck in 0..20_000 {
        let mut bytes = whole.clone();
        damage(&mut bytes, luck);
        let mut decoder = Decoder::new();
        decoder.open();
        decoder.back().extend_from_slice(&bytes);
        // Behind it, as much as it may take for its own.
        decoder.back().extend_from_slice(&whole);
        if let Ok(Some(read)) = decoder.next() {
            // Nothing was changed, or nothing was left and this is the next one, or that begins with what was cut off.
            assert_eq!(read, frame, "{luck}");
        }
    }
}

/// A damaged length swallows what follows it. Half a member lease ends that, though nothing is healed.
#[test]
fn a_frame_that_does_not_end_breaks_its_connection() {
    let unfinished = (0..40)
        .map(|seed| {
            let mut world = World::new(seed).members(3);
            world.settle();
            world.weather(Weather { garble: 50_000, ..Weather::FAIR });
            world.run_for(ms(1_000));
            world.weather(Weather::FAIR);
            world.run_for(ms(20_000));
            // Nobody healed it, and everybody is heard again.
            world.hold_lock(1, "stock", "a");
            world.damages().unfinished
        })
        .sum::<u64>();
    assert!(unfinished > 1, "{unfinished} frames did not end");
}

/// A way that is too narrow for what is sent drops some of it, whole bursts at a time, and delivers the rest.
#[test]
fn a_narrow_way_drops_what_its_buffer_has_no_room_for() {
    let mut world = met(3);
    let since = now(&world);
    world.narrow(1, 0, Some(Narrow { each: 100 * MS, room: 2 }));
    let asks: Vec<Ask> = (0..6).map(|_| world.lock_within(1, "stock", "a", 1_000)).collect();
    world.run_for(ms(1_500));
    let sent = packets(&world, 1, 0, since);
    assert!(sent.iter().filter(|(_, lost, _)| *lost).count() > 5, "{sent:?}");
    assert!(sent.iter().filter(|(.., arrived)| arrived.is_some()).count() > 5, "{sent:?}");
    world.narrow(1, 0, None);
    world.settle();
    assert!(asks.iter().all(|ask| world.is_answered(*ask)));
}

/// A wall that refuses connections makes a living member look dead. Only an operator who says so believes it.
#[test]
fn a_false_refusal_frees_nothing_unless_the_operator_trusts_it() {
    let regranted_early = |mut world: World| {
        world.settle();
        let held = world.hold_lock(2, "stock", "a");
        let next = world.lock(1, "stock", "a");
        for other in [0, 1] {
            world.reject_one_way(other, 2);
            world.reject_one_way(2, other);
        }
        world.run_until(|world| world.is_granted(next) || world.fence(held).is_none(), ms(20_000));
        world.is_granted(next) && world.fence(held).is_some()
    };
    assert!(!regranted_early(World::new(3).members(3)));
    let trusting = World::new(3).members(3).trust_refused().unbounded_clocks().lenient();
    assert!(regranted_early(trusting), "the refusal was noticed");
}

/// A clock that runs faster ends a lease earlier, and one that is put right again shows no jump.
#[test]
fn a_clock_that_turns_fast_ends_a_lease_earlier() {
    let mut world = World::new(4).members(3).unbounded_clocks();
    world.settle();
    let took = |world: &mut World, ppm: i32| {
        let ask = world.lock_for(1, "stock", "a", 1_000);
        world.granted(ask);
        let from = now(world);
        world.turn_clock(1, ppm);
        world.expect("the lease ends", |world| world.lost(ask) == Some(LostReason::LeaseEnded));
        world.turn_clock(1, 0);
        now(world) - from
    };
    assert_eq!(took(&mut world, 0) / MS, 1_000);
    assert_eq!(took(&mut world, 250_000) / MS, 800);
    assert_eq!(took(&mut world, -200_000) / MS, 1_250);
}

/// Wall clocks may jump and a process may start again by one that was set back: nobody notices.
#[test]
fn a_wall_clock_that_is_set_back_matters_to_nobody() {
    let mut world = World::new(6).members(3).with_gossip();
    world.settle();
    let held = world.hold_lock(0, "stock", "a");
    let before = world.token(held);
    world.step_wall_clock(1, -900_000);
    world.step_wall_clock(2, 5_000_000);
    world.crash(1);
    world.run_for(ms(50));
    world.restart(1);
    world.settle();
    world.expect("gossip knows the new one", |world| world.contacts(0).contains(&1));
    world.release(held);
    let next = world.hold_lock(1, "stock", "a");
    assert!(world.token(next) > before);
}

/// A client may drop its future at any moment, and its guard right after: nothing stays held or queued.
#[test]
fn whoever_drops_a_future_at_any_moment_leaves_nothing_behind() {
    let mut world = World::new(8).members(3);
    world.settle();
    world.hold_lock(0, "stock", "elsewhere");
    let mut granted = 0;
    for micros in (0..4_000).step_by(100) {
        let member = micros as usize / 100 % 3;
        let ask = world.lock(member, "stock", "a");
        world.give_up_after(ask, Duration::from_micros(micros));
        let fickle = world.lock(member, "stock", "b");
        world.give_up_when_answered(fickle, Duration::from_micros(micros % 300));
        world.expect("both are over", |world| world.call(ask).released && world.call(fickle).released);
        assert!(world.is_granted(fickle));
        granted += u32::from(world.is_granted(ask));
    }
    assert!((1..40).contains(&granted), "some are dropped before the grant and some after: {granted}");
    world.expect("nothing is left", |world| {
        let status = world.places().filter_map(|place| world.status(place));
        let mut services = status.flat_map(|status| status.services);
        services.all(|of| of.waiting_here == 0 && of.locks.len() <= 1)
    });
}

/// A fault that lurks for a member that a recovery waits for finds it before it has answered.
#[test]
fn a_fault_hits_the_member_that_a_recovery_waits_for() {
    let mut found = 0;
    for seed in 1..=6 {
        let crash = |at, target| Fault { at, lasts: 2 * SECOND, what: What::Crash(target) };
        let pause = |at, target| Fault { at, lasts: SECOND, what: What::Pause(target) };
        let faults = vec![crash(8 * SECOND, Target::Grantor), pause(8 * SECOND, Target::Awaited)];
        let plan = Plan {
            faults,
            kept: vec![0, 1],
            span: 20 * SECOND,
            partial: false,
            joiners: 0,
            founders: 5,
            ..Plan::draw(seed, (5, 5))
        };
        let run = run_seed(&plan, |world| world);
        assert_eq!(run.world.broken(), None);
        found += run.faults.get("pause").copied().unwrap_or(0);
    }
    assert!(found >= 3, "a recovery that waits for somebody was met {found} times");
}

/// A part that has a quorum goes on without the rest, which stays cut off, stopped and dead; one that has none does not.
#[test]
fn a_part_with_a_quorum_comes_to_rest_without_the_others() {
    let broken = |seed| {
        let mut world = World::new(seed).members(5).lenient();
        world.settle();
        for member in 0..5 {
            world.lock(member, "stock", "a");
            world.lock(member, "till", "b");
        }
        world.run_for(ms(300));
        world.isolate(4);
        world.pause(3);
        world
    };
    for seed in 1..=5 {
        let mut world = broken(seed);
        assert!(world.is_sufficient(&[0, 1, 2]) && !world.is_sufficient(&[1, 2]));
        assert!(world.restore_part_and_demand(&[0, 1, 2]), "{}", world.story(40));
        let mut left = world.in_view();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2], "one view of exactly those");
        let mut world = broken(seed);
        world.cut(0, 1);
        world.cut(0, 2);
        assert!(!world.restore_part_and_demand(&[1, 2]));
    }
}

/// A World whose members have just met and asked for nothing is what "at rest" means.
#[test]
fn members_that_have_just_met_are_at_rest_and_those_that_ask_are_not() {
    for members in [2, 3, 5] {
        let mut world = World::new(2).members(members);
        world.settle();
        world.run_for(Timing::fast().member_lease);
        assert!(world.is_at_rest(), "{:?}", world.sizes(0));
        let ask = world.hold_lock(1, "stock", "a");
        assert!(!world.is_at_rest());
        world.release(ask);
        world.run_for(Timing::fast().member_lease);
        assert!(world.is_at_rest(), "{:?}", world.sizes(0));
        assert!(matches!(world.outcome(ask), Some(Outcome::Granted { .. })));
    }
}
