//! Stories of chains and circles of owners: the answers of holders' members, and probes that find a
//! circle.

use crate::scenes::{answered, soon};
use elderlock::protocol::{
    Batch, Blocked, HoldState, HolderInfo, LockName, Outcome, OwnerId, Query, QueryReply, Wait,
    Want,
};
use elderlock_sim::World;
use elderlock_sim::history::{Ask, ClientRequest};
use elderlock_sim::kind::kind;
use std::time::Duration;

fn name(name: &str) -> LockName {
    LockName::new(name.as_bytes()).expect("a good name")
}

/// Four members, oldest first.
fn cluster(seed: u64) -> (World, Vec<usize>) {
    with_services(World::new(seed).members(4).detecting())
}

/// The second member of `w` grants "s", the first grants "t".
fn with_services(mut w: World) -> (World, Vec<usize>) {
    w.settle();
    let order = w.in_view();
    for (site, service) in [(order[1], "s"), (order[0], "t")] {
        let first = w.hold_lock(site, service, "first");
        w.release(first);
        assert_eq!(w.grantor(service), site);
    }
    (w, order)
}

/// An owner waits for a lock for ever.
fn want(w: &mut World, (site, owner): (usize, u64), service: &str, lock: &str) -> Ask {
    let request = ClientRequest::Hold(Want::Lock(name(lock)));
    w.want(site, service, request, OwnerId(owner), Wait::Forever, None)
}

/// An owner takes a free lock.
fn hold(w: &mut World, owner: (usize, u64), service: &str, lock: &str) -> Ask {
    let ask = want(w, owner, service, lock);
    w.granted(ask);
    ask
}

/// The holds that a request waits for.
#[track_caller]
fn blockers(w: &mut World, site: usize, service: &str, of: Blocked) -> Vec<(HolderInfo, bool)> {
    let asked = w.look(site, service, Query::Blockers(of));
    let Outcome::QueryReply(QueryReply::Blockers { holds, .. }) = answered(w, asked) else {
        panic!("no answer")
    };
    holds.into_iter().map(|hold| (hold.holder, hold.is_sure)).collect()
}

/// Asks the holder's member.
fn ask_holder(w: &mut World, site: usize, service: &str, holder: HolderInfo) -> Ask {
    let request = ClientRequest::AskHolder(holder);
    w.want(site, service, request, OwnerId::default(), Wait::Try, None)
}

#[test]
fn a_member_outside_walks_a_chain_of_two_services() {
    let (mut w, order) = cluster(1);
    let (one, two) = ((order[2], 1), (order[3], 2));
    hold(&mut w, one, "s", "x");
    let held = hold(&mut w, two, "t", "y");
    let waits = want(&mut w, one, "t", "y");
    soon(&mut w);
    let first = blockers(&mut w, order[0], "s", Blocked::Name(name("x")));
    let [(holder, true)] = &first[..] else { panic!("{first:?}") };
    let asked = ask_holder(&mut w, order[0], "s", holder.clone());
    let Outcome::Holder(HoldState::Held { lease_left: None, waits: found, more: 0, .. }) =
        answered(&mut w, asked)
    else {
        panic!("no answer")
    };
    let [wait] = &found[..] else { panic!("{found:?}") };
    assert_eq!((wait.service.as_str(), &wait.name), ("t", &Some(name("y"))));
    assert_eq!(wait.request, w.call(waits).request);
    let of = Blocked::Request(holder.process, wait.request);
    let next = blockers(&mut w, order[0], "t", of.clone());
    let [(next, true)] = &next[..] else { panic!("{next:?}") };
    assert_eq!((next.process, next.owner), (w.process(order[3]), 2));
    w.release(held);
    w.granted(waits);
    let gone = w.look(order[0], "t", Query::Blockers(of));
    assert_eq!(answered(&mut w, gone), Outcome::QueryReply(QueryReply::Unknown));
    let gone = ask_holder(&mut w, order[0], "t", next.clone());
    assert_eq!(answered(&mut w, gone), Outcome::Holder(HoldState::NotHeld));
}

#[test]
fn a_question_to_a_holders_member_ends_with_that_member() {
    let (mut w, order) = cluster(2);
    hold(&mut w, (order[2], 1), "s", "x");
    let found = blockers(&mut w, order[3], "s", Blocked::Name(name("x")));
    let holder = found[0].0.clone();
    w.isolate(order[2]);
    let asked = ask_holder(&mut w, order[3], "s", holder.clone());
    assert_eq!(answered(&mut w, asked), Outcome::Undecided);
    let process = holder.process;
    w.expect("it leaves the view", |w| w.view(order[3]).is_some_and(|v| !v.contains(process)));
    let asked = ask_holder(&mut w, order[3], "s", holder);
    assert_eq!(answered(&mut w, asked), Outcome::Holder(HoldState::NotHeld));
}

#[test]
fn a_lease_is_told_by_the_holders_member() {
    let (mut w, order) = cluster(3);
    let lock = ClientRequest::Hold(Want::Lock(name("x")));
    let lease = Some(Duration::from_secs(3));
    let held = w.want(order[2], "s", lock, OwnerId(1), Wait::Forever, lease);
    w.granted(held);
    w.run_for(Duration::from_secs(1));
    let found = blockers(&mut w, order[3], "s", Blocked::Name(name("x")));
    let asked = ask_holder(&mut w, order[3], "s", found[0].0.clone());
    let Outcome::Holder(HoldState::Held { lease_left: Some(left), .. }) = answered(&mut w, asked)
    else {
        panic!("no answer")
    };
    assert!((1_800..2_001).contains(&left.as_millis()), "{left:?}");
}

/// A circle of four members, two services and four owners. One of the requests is told.
#[test]
fn one_request_of_a_circle_is_told() {
    let (mut w, order) = cluster(4);
    let locks = [("s", "a"), ("t", "b"), ("s", "c"), ("t", "d")];
    let owners: Vec<_> = (0..4).map(|site| (order[site], site as u64 + 1)).collect();
    for (owner, (service, lock)) in owners.iter().zip(locks) {
        hold(&mut w, *owner, service, lock);
    }
    let waits: Vec<Ask> = (0..4)
        .map(|at| {
            let (service, lock) = locks[(at + 1) % 4];
            want(&mut w, owners[at], service, lock)
        })
        .collect();
    w.expect("one is told", |w| waits.iter().any(|ask| w.is_answered(*ask)));
    w.run_for(Duration::from_secs(12));
    let told: Vec<_> = waits.iter().filter(|ask| w.is_answered(**ask)).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(w.outcome(*told[0]), Some(&Outcome::Deadlock));
    let open = waits.iter().map(|ask| (w.call(*ask).process, w.call(*ask).request));
    assert_eq!(open.max(), Some((w.call(*told[0]).process, w.call(*told[0]).request)));
}

#[test]
fn an_owner_that_waits_for_its_own_hold_is_told() {
    let (mut w, order) = cluster(5);
    hold(&mut w, (order[2], 1), "s", "x");
    let waits = want(&mut w, (order[2], 1), "s", "x");
    assert_eq!(answered(&mut w, waits), Outcome::Deadlock);
}

/// The whole member, permits and a wait without a circle are not a deadlock.
#[test]
fn no_request_is_told_without_a_sure_circle() {
    let (mut w, order) = cluster(6);
    let whole = (order[2], 0);
    hold(&mut w, whole, "s", "x");
    hold(&mut w, (order[3], 1), "s", "y");
    let waits = [want(&mut w, whole, "s", "y"), want(&mut w, (order[3], 1), "s", "x")];
    let chain = [want(&mut w, (order[0], 3), "s", "x"), want(&mut w, (order[1], 4), "s", "y")];
    w.run_for(Duration::from_secs(20));
    assert!(waits.iter().chain(&chain).all(|ask| !w.is_answered(*ask)));
}

/// A probe passes the edge from two to three. Then two gives up that wait, and three begins to
/// wait for one: the edges of the chain never stood at one instant.
#[test]
fn edges_of_different_instants_are_no_circle() {
    let (mut w, order) = cluster(7);
    let (one, two, three) = ((order[0], 1), (order[2], 2), (order[3], 3));
    hold(&mut w, one, "s", "x");
    hold(&mut w, two, "s", "y");
    hold(&mut w, three, "s", "z");
    let passed = want(&mut w, two, "s", "z");
    let to = order[3];
    let late = w.hold(move |flight| flight.to == to && kind(flight.packet) == "ProbeHold");
    let waits = want(&mut w, one, "s", "y");
    w.expect("the probe is on its way", |w| w.matched(late) > 0);
    w.cancel(passed);
    let last = want(&mut w, three, "s", "x");
    soon(&mut w);
    w.let_go(late);
    w.run_for(Duration::from_secs(20));
    assert!(!w.is_answered(waits) && !w.is_answered(last), "there is no circle");
    let closing = want(&mut w, two, "s", "z");
    w.expect("it is told", |w| [waits, last, closing].iter().any(|ask| w.is_answered(*ask)));
}

#[test]
fn a_lost_grantor_and_a_transfer_delay_a_probe() {
    for transfer in [false, true] {
        let (mut w, order) = cluster(8);
        let (one, two) = ((order[2], 1), (order[3], 2));
        hold(&mut w, one, "s", "x");
        hold(&mut w, two, "s", "y");
        let late = w.hold(|flight| kind(flight.packet) == "ProbeHold");
        let waits = [want(&mut w, one, "s", "y"), want(&mut w, two, "s", "x")];
        w.expect("a probe is on its way", |w| w.matched(late) > 0);
        if transfer {
            let turk = w.become_grantor(order[0], "s");
            assert_eq!(answered(&mut w, turk), Outcome::Won);
        } else {
            w.crash(order[1]);
        }
        w.drop_held(late);
        w.expect("one is told", |w| waits.iter().any(|ask| w.is_answered(*ask)));
        assert!(w.restore_and_demand(), "{:?}", w.broken());
    }
}

/// Owners at four members take two locks each, in any order, while members crash and grantors
/// move. An owner that is told of a deadlock releases its locks and begins anew. All of them get
/// done, so every circle is found; the invariant sees that no other request is told.
#[test]
fn owners_that_give_up_when_they_are_told_get_done() {
    let mut told = 0;
    for seed in 0..24 {
        told += story_of_owners(seed);
    }
    assert!(told > 24, "only {told} circles");
}

/// One owner's work: the locks that it takes, and what it has.
struct Worker {
    owner: (usize, u64),
    locks: Vec<(&'static str, &'static str)>,
    asks: Vec<Ask>,
    rounds: usize,
}

fn story_of_owners(seed: u64) -> usize {
    let (mut w, order) = cluster(100 + seed);
    let all = [("s", "a"), ("s", "b"), ("t", "a"), ("t", "b")];
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % below as u64) as usize
    };
    let mut workers: Vec<Worker> = (0..8)
        .map(|number| Worker {
            owner: (order[number % 4], number as u64 + 1),
            locks: Vec::new(),
            asks: Vec::new(),
            rounds: 3,
        })
        .collect();
    let mut told = 0;
    let mut crashed = None;
    for tick in 0..4_000 {
        if workers.iter().all(|worker| worker.rounds == 0) {
            assert!(w.restore_and_demand(), "seed {seed}: {:?}", w.broken());
            return told;
        }
        if tick == 40 + draw(40) {
            let site = order[draw(2)];
            if w.is_up(site) && crashed.is_none() {
                w.crash(site);
                crashed = Some(site);
            }
        }
        if tick == 200
            && let Some(site) = crashed
        {
            w.restart(site);
        }
        if tick % 50 == 7 && w.is_ready(order[2 + draw(2)]) {
            w.become_grantor(order[2], ["s", "t"][draw(2)]);
        }
        for worker in &mut workers {
            told += work(&mut w, worker, &all, &mut draw);
        }
        w.run_for(Duration::from_millis(25));
    }
    panic!("seed {seed}: not done after {} s, {told} were told", w.seconds())
}

/// One look at a worker. Returns how many of its requests were told of a deadlock.
fn work(
    w: &mut World,
    worker: &mut Worker,
    all: &[(&'static str, &'static str)],
    draw: &mut impl FnMut(usize) -> usize,
) -> usize {
    if worker.rounds == 0 || !w.is_ready(worker.owner.0) {
        return 0;
    }
    let is_over = |w: &World, ask: &Ask| {
        let call = w.call(*ask);
        call.gone || call.lost.is_some() || (call.outcome.is_some() && !call.is_granted())
    };
    if worker.asks.iter().any(|ask| is_over(w, ask)) {
        let is_told = |ask: &&Ask| w.outcome(**ask) == Some(&Outcome::Deadlock);
        let told = worker.asks.iter().filter(is_told).count();
        worker.asks.drain(..).for_each(|ask| w.release(ask));
        return told;
    }
    match worker.asks[..] {
        [] => {
            worker.locks = vec![all[draw(4)]];
            while worker.locks.len() < 2 {
                let next = all[draw(4)];
                if !worker.locks.contains(&next) {
                    worker.locks.push(next);
                }
            }
        }
        [.., last] if !w.is_granted(last) => return 0,
        [_, _] => {
            worker.asks.drain(..).for_each(|ask| w.release(ask));
            worker.rounds -= 1;
            return 0;
        }
        _ => {}
    }
    let (service, lock) = worker.locks[worker.asks.len()];
    let ask = want(w, worker.owner, service, lock);
    worker.asks.push(ask);
    0
}

/// An owner waits for the locks of a list at once, for ever.
fn want_all(w: &mut World, (site, owner): (usize, u64), service: &str, locks: &[&str]) -> Ask {
    let names: Vec<_> = locks.iter().map(|lock| name(lock)).collect();
    let batch = Batch::new(names).expect("a batch");
    let request = ClientRequest::Hold(Want::Batch(batch));
    w.want(site, service, request, OwnerId(owner), Wait::Forever, None)
}

/// The batch waits for "y", and the request for "x" stands behind it in the queue.
fn behind_a_batch(w: &mut World, order: &[usize], owner: (usize, u64)) -> (Ask, Ask) {
    hold(w, owner, "s", "y");
    let batch = want_all(w, (order[3], 2), "s", &["x", "y"]);
    soon(w);
    let behind = want(w, owner, "s", "x");
    (batch, behind)
}

/// The batch is given up, and its release is late: its grantor takes it for waiting.
#[test]
fn a_request_behind_one_that_was_given_up_is_not_told() {
    let (mut w, order) = cluster(9);
    let late = w.hold(|flight| kind(flight.packet) == "Release");
    let (batch, behind) = behind_a_batch(&mut w, &order, (order[2], 1));
    w.cancel(batch);
    w.run_for(Duration::from_secs(4));
    assert!(!w.is_answered(behind), "{:?}", w.outcome(behind));
    w.let_go(late);
    w.granted(behind);
}

#[cfg(elderlock_mutants)]
#[test]
fn planted_belief_in_a_queue_tells_a_request_behind_one_that_was_given_up() {
    use elderlock::protocol::mutant::ProtocolMutant;
    let world = World::new(9).members(4).detecting().mutant(ProtocolMutant::BelieveOwnQueue);
    let (mut w, order) = with_services(world.lenient());
    w.hold(|flight| kind(flight.packet) == "Release");
    let (batch, behind) = behind_a_batch(&mut w, &order, (order[2], 1));
    w.cancel(batch);
    assert_eq!(answered(&mut w, behind), Outcome::Deadlock);
}

/// A fair queue grants no request before an earlier one, so this circle is a deadlock.
#[test]
fn a_request_behind_one_that_waits_for_its_owner_is_told() {
    let (mut w, order) = cluster(10);
    let (batch, behind) = behind_a_batch(&mut w, &order, (order[2], 1));
    assert_eq!(answered(&mut w, behind), Outcome::Deadlock);
    assert!(!w.is_answered(batch));
}

/// The suspension queues, because no other suspension waits, and a probe finds its circle.
#[test]
fn a_suspension_of_the_grantors_member_is_told_of_its_circle() {
    let (mut w, order) = cluster(11);
    let (grantor, other) = ((order[1], 2), (order[2], 1));
    hold(&mut w, grantor, "s", "a");
    hold(&mut w, other, "s", "b");
    let waits = want(&mut w, other, "s", "a");
    w.run_for(Duration::from_millis(500));
    let suspension = ClientRequest::Hold(Want::Suspension);
    let owner = OwnerId(grantor.1);
    let suspends = w.want(grantor.0, "s", suspension, owner, Wait::Forever, None);
    // The probe of the suspension needs no message to the grantor, so the suspension is told before
    // the other request.
    let told = [waits, suspends].map(|ask| {
        w.run_for(Duration::from_secs(3));
        w.outcome(ask).cloned() == Some(Outcome::Deadlock)
    });
    assert_eq!(told, [false, true]);
}
