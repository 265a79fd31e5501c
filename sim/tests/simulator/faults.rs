//! Every fault has its effect: one small story each.

use crate::scenes::ms;
use elderlock::protocol::{LostReason, Outcome, Packet, Timing, ViewNumber};
use elderlock::wire::{self, Decoder, Frame};
use elderlock_sim::chaos::{ChaosPlan, ChaosRun, run_seed};
use elderlock_sim::fault::{
    ConcurrentFault, CutOffGroup, ElderTakeover, Fault, FaultKind, LatePackets, Target,
};
use elderlock_sim::network::{LinkConditions, MS, NarrowPath, SECOND};
use elderlock_sim::quorum::QuorumLoss;
use elderlock_sim::record::{Entry, Line};
use elderlock_sim::stream::damage;
use elderlock_sim::{Ask, World};
use std::time::Duration;

/// Members that have met, in a World that writes down its packets.
fn met(members: usize) -> World {
    let mut world = World::new(11).members(members).with_messages();
    world.settle();
    world
}

/// The packets of one way since true time `since`: when sent, whether lost at once, and when
/// arrived.
fn packets(world: &World, from: usize, to: usize, since: u64) -> Vec<(u64, bool, Option<u64>)> {
    let lines = &world.record().lines;
    let sent = lines.iter().filter(|line| line.at >= since && line.site == Some(from));
    let arrival = |packet: u64| {
        let arrives =
            |entry: &Entry| matches!(entry, Entry::Arrive { packet: one } if *one == packet);
        lines.iter().find(|line| line.site == Some(to) && arrives(&line.entry)).map(|line| line.at)
    };
    sent.filter_map(|line| match &line.entry {
        Entry::Send { packet, to: at, lost, .. } if *at == to => {
            Some((line.at, lost.is_some(), arrival(*packet)))
        }
        _ => None,
    })
    .collect()
}

fn now(world: &World) -> u64 {
    world.elapsed().as_nanos() as u64
}

/// A process that is stopped as soon as it knows that it was expelled begins anew when it goes on,
/// and not before.
#[test]
fn a_stopped_process_does_not_begin_anew_before_it_wakes() {
    let mut world = met(3);
    let before = world.process(2);
    world.pause(2);
    world
        .expect("it is expelled", |world| world.view(0).is_some_and(|view| !view.contains(before)));
    world.resume(2);
    while world.view(2).is_some_and(|view| view.contains(before)) {
        world.run_for(Duration::from_micros(100));
    }
    world.pause(2);
    world.run_for(ms(1_000));
    assert_eq!(world.process(2), before);
    world.resume(2);
    world.settle();
    assert_ne!(world.process(2), before);
}

/// A packet that waits at the end of a clogged way arrives when the way is unclogged. Packets
/// arrive in the order of sending, and nothing is lost.
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
    let clogged: Vec<_> = packets(&world, 0, 1, since)
        .into_iter()
        .filter(|(sent, ..)| *sent < until - 5 * MS)
        .collect();
    assert!(clogged.len() > 3, "there is something to wait: {clogged:?}");
    assert!(
        clogged.iter().all(|(_, lost, arrived)| !lost && *arrived >= Some(until)),
        "{clogged:?}"
    );
    assert!(clogged.iter().map(|(.., arrived)| arrived).is_sorted(), "{clogged:?}");
    assert!(
        packets(&world, 1, 0, since)
            .iter()
            .any(|(.., arrived)| arrived.is_some_and(|at| at < until))
    );
}

/// A reset loses everything that is on its way between two members, and both notice. The first form
/// of it loses packets both ways, the second form one way only.
#[test]
fn a_reset_loses_packets_in_flight_and_both_ends_notice() {
    for both in [true, false] {
        let mut world = met(3);
        world.hold_lock(0, "stock", "a");
        let since = now(&world);
        // Both members have something under way: a request, and the answer to an earlier request.
        let asks: Vec<Ask> =
            (1..3).map(|member| world.lock_within(member, "stock", "b", 5_000)).collect();
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
        let before = |of: Vec<(u64, bool, Option<u64>)>| {
            of.into_iter().filter(|(sent, ..)| *sent <= cut).collect::<Vec<_>>()
        };
        let lost = before(packets(&world, 1, 0, since))
            .iter()
            .filter(|(.., arrived)| arrived.is_none())
            .count();
        assert_eq!(lost, in_flight, "packets on their way are lost, and nothing else");
        world.granted(ask);
        world.expect("they have found each other again", |world| {
            !suspects(world, 0, 1) && !suspects(world, 1, 0)
        });
    }
}

/// Damaged frames break connections; when the damage ends all members go on.
#[test]
fn damaged_frames_break_connections_and_nothing_else() {
    let mut world = World::new(5).members(3);
    world.settle();
    let held = world.hold_lock(1, "stock", "a");
    world.weather(LinkConditions { garble: 50_000, ..LinkConditions::FAIR });
    world.run_for(ms(3_000));
    let damages = world.damages();
    assert!(damages.damaged > 10 && damages.broken > 1, "{damages:?}");
    world.heal();
    world.settle();
    world.release(held);
    world.hold_lock(2, "stock", "a");
}

/// A damaged frame is never read as another frame, for any kind of damage.
#[test]
fn no_damaged_frame_says_something_else() {
    let mut whole = Vec::new();
    let frame = Frame::Packet(Packet::Ack { view: ViewNumber(900), ack: 12, again: true });
    wire::encode(&frame, wire::PROTOCOL_VERSION, &mut whole).unwrap();
    for luck in 0..20_000 {
        let mut bytes = whole.clone();
        damage(&mut bytes, luck);
        let mut decoder = Decoder::new();
        decoder.open();
        decoder.back().extend_from_slice(&bytes);
        // A whole frame follows, from which a damaged length may take bytes.
        decoder.back().extend_from_slice(&whole);
        if let Ok(Some(read)) = decoder.next() {
            // The damage changed nothing, or the decoder read the whole frame behind the damaged
            // one.
            assert_eq!(read, frame, "{luck}");
        }
    }
}

/// A damaged length swallows the bytes that follow it. Half a member lease ends that, though
/// nothing is healed.
#[test]
fn a_frame_that_does_not_end_breaks_its_connection() {
    let unfinished = (0..40)
        .map(|seed| {
            let mut world = World::new(seed).members(3);
            world.settle();
            world.weather(LinkConditions { garble: 50_000, ..LinkConditions::FAIR });
            world.run_for(ms(1_000));
            world.weather(LinkConditions::FAIR);
            world.run_for(ms(20_000));
            // No fault was healed, and all members are heard again.
            world.hold_lock(1, "stock", "a");
            world.damages().unfinished
        })
        .sum::<u64>();
    assert!(unfinished > 1, "{unfinished} frames did not end");
}

/// A way that is too narrow for its packets drops some of them, whole bursts at a time, and
/// delivers the rest.
#[test]
fn a_narrow_way_drops_packets_beyond_its_buffer() {
    let mut world = met(3);
    let since = now(&world);
    world.narrow(1, 0, Some(NarrowPath { each: 100 * MS, room: 2 }));
    let asks: Vec<Ask> = (0..6).map(|_| world.lock_within(1, "stock", "a", 1_000)).collect();
    world.run_for(ms(1_500));
    let sent = packets(&world, 1, 0, since);
    assert!(sent.iter().filter(|(_, lost, _)| *lost).count() > 5, "{sent:?}");
    assert!(sent.iter().filter(|(.., arrived)| arrived.is_some()).count() > 5, "{sent:?}");
    world.narrow(1, 0, None);
    world.settle();
    assert!(asks.iter().all(|ask| world.is_answered(*ask)));
}

/// A wall that refuses connections makes a living member look dead. Only an operator that trusts
/// refusals believes it.
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

/// Wall clocks may jump, and a process may start again after its wall clock was set back. This has
/// no effect.
#[test]
fn a_wall_clock_that_is_set_back_has_no_effect() {
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

/// A client may drop its future at any moment, and its guard right after: nothing stays held or
/// queued.
#[test]
fn a_future_dropped_at_any_moment_leaves_nothing_behind() {
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
        world.expect("both are over", |world| {
            world.call(ask).released && world.call(fickle).released
        });
        assert!(world.is_granted(fickle));
        granted += u32::from(world.is_granted(ask));
    }
    assert!(
        (1..40).contains(&granted),
        "some are dropped before the grant and some after: {granted}"
    );
    world.expect("nothing is left", |world| {
        let status = world.sites().filter_map(|site| world.status(site));
        let mut services = status.flat_map(|status| status.services);
        services.all(|of| of.waiting_here == 0 && of.locks.len() <= 1)
    });
}

/// A fault that lurks for a member that a recovery waits for finds it before it has answered.
#[test]
fn a_fault_hits_the_member_that_a_recovery_waits_for() {
    let mut found = 0;
    for seed in 1..=6 {
        let crash = |at, target| Fault { at, lasts: 2 * SECOND, what: FaultKind::Crash(target) };
        let pause = |at, target| Fault { at, lasts: SECOND, what: FaultKind::Pause(target) };
        let faults = vec![crash(8 * SECOND, Target::Grantor), pause(8 * SECOND, Target::Awaited)];
        let plan = ChaosPlan {
            faults,
            kept: vec![0, 1],
            span: 20 * SECOND,
            partial: false,
            joiners: 0,
            founders: 5,
            ..ChaosPlan::draw(seed, (5, 5))
        };
        let run = run_seed(&plan, |world| world);
        assert_eq!(run.world.broken(), None);
        found += run.faults.get("pause").copied().unwrap_or(0);
    }
    assert!(found >= 3, "a recovery that waits for a member was met {found} times");
}

/// A plan of five members with these faults and no others.
fn only(seed: u64, faults: Vec<Fault>) -> ChaosPlan {
    let drawn = ChaosPlan::draw(seed, (5, 5));
    ChaosPlan {
        kept: (0..faults.len()).collect(),
        faults,
        founders: 5,
        joiners: 0,
        council: 7,
        timing: Timing::fast(),
        clocks: vec![0; 5],
        bounded: true,
        hosts: (0..5).collect(),
        reckless: false,
        durable: false,
        gossip: false,
        trust_refused: false,
        keyless: false,
        partial: false,
        span: 16 * SECOND,
        pace: 10 * MS,
        ..drawn
    }
}

/// A plan run with its packets; returns when its faults of one kind began and ended, and where.
fn tell(plan: &ChaosPlan, kind: &str) -> (ChaosRun, Vec<(u64, u64, Vec<usize>)>) {
    let run = run_seed(plan, World::with_messages);
    assert_eq!(run.world.broken(), None);
    let mut spans = Vec::new();
    for line in &run.world.record().lines {
        match &line.entry {
            Entry::Fault { fault, kind: of, sites } if of == kind => {
                spans.push((*fault, line.at, 0, sites.clone()))
            }
            Entry::Mended { fault } => {
                spans
                    .iter_mut()
                    .filter(|(number, ..)| number == fault)
                    .for_each(|(_, _, until, _)| *until = line.at);
            }
            _ => {}
        }
    }
    (run, spans.into_iter().map(|(_, from, until, sites)| (from, until, sites)).collect())
}

/// The packets of a kind that left within a span: from where, when, and when they arrived.
fn sent(world: &World, kind: &str, span: (u64, u64)) -> Vec<(usize, u64, Option<u64>)> {
    let lines = &world.record().lines;
    let within = lines.iter().filter(|line| (span.0..span.1).contains(&line.at));
    within
        .filter_map(|line| match &line.entry {
            Entry::Send { packet, kind: of, .. } if of == kind => {
                Some((line.site?, line.at, *packet))
            }
            _ => None,
        })
        .map(|(site, at, packet)| {
            let arrives =
                |entry: &Entry| matches!(entry, Entry::Arrive { packet: one } if *one == packet);
            (site, at, lines.iter().find(|line| arrives(&line.entry)).map(|line| line.at))
        })
        .collect()
}

/// Late packets of one kind and of one sender wait for the end of the fault, and no other packets
/// do. If the sender is killed on the way they arrive all the same, as packets of a dead process.
#[test]
fn late_packets_arrive_when_the_fault_ends_also_from_a_dead_sender() {
    let (mut late, mut posthumous) = (0, 0);
    for (seed, blow) in
        (1..=8).map(|seed| (seed, (seed % 2 == 0).then_some(ConcurrentFault::Crash)))
    {
        let what = FaultKind::Late(LatePackets {
            kind: "Grant",
            from: Some(Target::Grantor),
            to: None,
            blow,
        });
        let (run, spans) =
            tell(&only(seed, vec![Fault { at: 6 * SECOND, lasts: 2 * SECOND, what }]), "late");
        let [(from, until, _)] = spans[..] else {
            panic!("seed {seed}: it begins once: {spans:?}")
        };
        let record = run.world.record();
        let grantor = record.lines.iter().rev().filter(|line| line.at <= from).find_map(|line| {
            match &line.entry {
                Entry::Grantor { service, .. } if service == "stock" => line.site,
                _ => None,
            }
        });
        let grantor = grantor.expect("a member grants");
        // The grantor may leave in order meanwhile.
        let ended = record.lines.iter().find_map(|line| match &line.entry {
            Entry::End { how }
                if how != "left" && line.site == Some(grantor) && line.at >= from =>
            {
                Some(line.at)
            }
            _ => None,
        });
        assert_eq!(ended.is_some_and(|at| at < until), blow.is_some());
        let (kept, others): (Vec<_>, Vec<_>) = sent(&run.world, "Grant", (from + 1, until))
            .into_iter()
            .partition(|(site, ..)| *site == grantor);
        // The next process of the site may run by then, and the rule holds its packets as well.
        assert!(kept.iter().all(|(.., arrived)| arrived.is_none_or(|at| at >= until)), "{kept:?}");
        late += kept.iter().filter(|(.., arrived)| arrived.is_some()).count();
        posthumous +=
            kept.iter().filter(|(_, at, arrived)| ended > Some(*at) && *arrived > ended).count();
        assert!(
            others
                .iter()
                .all(|(_, at, arrived)| arrived.is_none_or(|arrived| arrived < at + SECOND)),
            "{others:?}"
        );
        // Other packets of the same sender are not late.
        let beats = sent(&run.world, "Pulse", (from + 1, until));
        assert!(
            beats
                .iter()
                .filter(|(_, at, arrived)| arrived.is_some_and(|arrived| arrived < at + SECOND))
                .count()
                > 5
        );
    }
    assert!(late > 40 && posthumous > 5, "{late} came late, {posthumous} of them from the dead");
}

/// The elder is cut off alone.
const ALONE: CutOffGroup = CutOffGroup { sites: 0, holder: false };

/// A replaced elder is cut off while another elder is chosen. The new elder received nothing for
/// an elder lease before. With votes on disk the voters are killed and start again at that moment.
#[test]
fn a_replaced_elder_runs_on_while_a_member_that_received_nothing_takes_over() {
    let (mut replaced, mut restarted) = (0, 0);
    for (seed, restart) in (1..=8).map(|seed| (seed, seed % 2 == 0)) {
        let (member_lease, deaf) =
            (Timing::fast().member_lease, Timing::fast().elder_lease * 11 / 10);
        let takeover =
            ElderTakeover { candidate: 0, deaf: deaf.as_nanos() as u64, loyal: ALONE, restart };
        let lasts = member_lease.as_nanos() as u64 * 2;
        let fault = Fault { at: 6 * SECOND, lasts, what: FaultKind::ElderTakeover(takeover) };
        let plan = ChaosPlan { durable: restart, ..only(seed, vec![fault]) };
        let (run, spans) = tell(&plan, "elder takeover");
        let [(from, until, _)] = spans[..] else { panic!("it begins once: {spans:?}") };
        let lines = &run.world.record().lines;
        let elder_at = |at: u64| {
            let named =
                |entry: &Entry| matches!(entry, Entry::Event { name } if name == "became_elder");
            lines
                .iter()
                .rev()
                .filter(|line| line.at <= at)
                .find(|line| named(&line.entry))
                .and_then(|line| line.site)
        };
        let elder = elder_at(from).expect("there is an elder");
        let cut = from + takeover.deaf;
        let ended = |site: usize| {
            let ends = |entry: &Entry| matches!(entry, Entry::End { .. });
            lines
                .iter()
                .filter(|line| line.site == Some(site) && ends(&line.entry))
                .map(|line| line.at)
                .collect::<Vec<_>>()
        };
        // The elder is still there, and its messages to the others are lost.
        assert!(ended(elder).iter().all(|at| *at > until));
        assert!(
            sent(&run.world, "Pulse", (cut + 50 * MS, until))
                .iter()
                .all(|(site, _, arrived)| *site != elder || arrived.is_none())
        );
        let killed = run
            .world
            .sites()
            .filter(|site| ended(*site).iter().any(|at| (cut..cut + SECOND).contains(at)))
            .count();
        // A voter may have been down at the time.
        assert!(if restart { killed >= 2 } else { killed == 0 }, "{killed} were killed");
        restarted += killed;
        replaced += u32::from(elder_at(until) != Some(elder));
    }
    assert!(replaced >= 6 && restarted >= 10, "{replaced} elders were replaced");
}

/// A view is installed, and at that very step the elder that installed it is cut off from all
/// members outside its group.
#[test]
fn a_split_view_cuts_the_elder_off_at_the_step_in_which_a_view_is_installed() {
    let mut splits = 0;
    for seed in 1..=6 {
        let crash =
            Fault { at: 5 * SECOND, lasts: 4 * SECOND, what: FaultKind::Crash(Target::Council(2)) };
        let split = Fault { at: 6 * SECOND, lasts: 3 * SECOND, what: FaultKind::SplitView(ALONE) };
        let (run, spans) = tell(&only(seed, vec![crash, split]), "split view");
        for (from, until, sites) in spans {
            splits += 1;
            let lines = &run.world.record().lines;
            let installs = |entry: &Entry| matches!(entry, Entry::View { .. });
            let view = lines
                .iter()
                .find(|line| line.at == from && installs(&line.entry))
                .expect("a view is installed");
            let elder = view.site.expect("somewhere");
            assert_eq!(sites, (0..5).collect::<Vec<_>>());
            let said = sent(&run.world, "Pulse", (from + 1, until));
            let said: Vec<_> = said.into_iter().filter(|(site, ..)| *site == elder).collect();
            assert!(
                !said.is_empty() && said.iter().all(|(.., arrived)| arrived.is_none()),
                "{said:?}"
            );
        }
    }
    assert!(splits >= 5, "a view was split {splits} times");
}

/// A part that has a quorum goes on without the rest, which stays cut off, stopped and dead. A part
/// without a quorum does not.
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
        // Two of five that are cut off from the others wait for an operator's order, and go on
        // then.
        let mut world = broken(seed).with_messages();
        world.cut(0, 1);
        world.cut(0, 2);
        assert!(world.restore_part_and_demand(&[1, 2]), "{}", world.story(40));
        let forced =
            |line: &&Line| matches!(&line.entry, Entry::Event { name } if name == "forced");
        assert_eq!(world.record().lines.iter().filter(forced).count(), 1);
        assert_eq!(QuorumLoss::of(world.record(), 7), Some(QuorumLoss::Ended));
    }
}

/// Four members keep their leases in all ways to cut them from each other, in either direction. In
/// each of these ways one member relays between each two that are cut.
#[test]
fn members_keep_their_leases_by_every_detour() {
    const MEMBERS: usize = 4;
    let pairs: Vec<(usize, usize)> = (0..MEMBERS)
        .flat_map(|from| (0..MEMBERS).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let mut ways = 0;
    for set in 1..1_u32 << pairs.len() {
        let is_cut = |pair: (usize, usize)| {
            pairs.iter().position(|one| *one == pair).is_none_or(|bit| set >> bit & 1 == 1)
        };
        let goes_round = |(from, to): (usize, usize)| {
            (0..MEMBERS).any(|relay| !is_cut((from, relay)) && !is_cut((relay, to)))
        };
        let cut: Vec<_> = pairs.iter().copied().filter(|pair| is_cut(*pair)).collect();
        if !cut.iter().all(|pair| goes_round(*pair)) {
            continue;
        }
        ways += 1;
        // Without optimization all ways take a minute, so every fourth way runs.
        if ways % 4 != 0 {
            continue;
        }
        let mut world = World::new(u64::from(set)).members(MEMBERS);
        world.settle();
        for (from, to) in &cut {
            world.cut_one_way(*from, *to);
        }
        world.run_for(Timing::fast().member_lease * 5);
        let lost: Vec<usize> = (0..MEMBERS).filter(|site| !world.is_ready(*site)).collect();
        assert!(lost.is_empty(), "{lost:?} have no lease with {cut:?}");
    }
    assert_eq!(ways, 711);
}

/// The World is "at rest" when its members have just met and have asked for nothing.
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
