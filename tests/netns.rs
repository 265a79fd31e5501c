//! Members in network namespaces that lose some packets. The tests need root and the command `ip`;
//! otherwise they print `skipped:`.
#![cfg(all(unix, feature = "tokio", feature = "secure"))]

mod support;

use elderlock::ClusterKey;
use std::time::{Duration, Instant};
use support::cluster::Cluster;
use support::leases::Leases;
use support::network::Network;
use support::process::{Grant, Peer};
use support::rng::Rng;
use support::wait;

/// The longest wait for a lock, beside the usual ones. Detours that are tried one after the other
/// take longer.
const GRANTED: Duration = Duration::from_secs(10);
/// The number of locks that are taken at least while some members cannot reach each other.
const LOCKS: usize = 20;

/// Not a test: the program of a child process. Without the environment variable of a child it does
/// nothing.
#[test]
fn child_member() {
    support::child::serve();
}

/// Five members in namespaces of their own. Their leases are short.
fn start(test: &str, seed: u64) -> Option<(Network, Cluster, Rng)> {
    start_many(test, seed, 5, "", Leases::Short)
}

/// `count` members in namespaces of their own, with the cluster keys `keys`.
fn start_many(
    test: &str,
    seed: u64,
    count: usize,
    keys: &str,
    leases: Leases,
) -> Option<(Network, Cluster, Rng)> {
    let network = match Network::new(count) {
        Ok(network) => network,
        Err(reason) => {
            // `.ci/run` reads this line and compares it with the skips that are allowed.
            println!("skipped: network namespaces: {test}: {reason}");
            return None;
        }
    };
    let mut rng = Rng::new(test, seed);
    let namespaces = &network.namespaces;
    let cluster = Cluster::start_at(&network.addrs, 3, namespaces, keys, leases, &mut rng);
    Some((network, cluster.unwrap_or_else(|error| panic!("{error}")), rng))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Plain,
    Grantor,
    Elder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// No packet arrives or leaves.
    Whole,
    /// The member receives the others' packets, but they receive none of its own.
    Dumb,
    /// The others receive the member's packets, and it receives none.
    Deaf,
}

#[test]
fn a_member_cut_off_gives_up_its_lock_before_another_gets_it() {
    cut_off("cut_off_plain", 21, Role::Plain, Cut::Whole);
}

#[test]
fn a_grantor_cut_off_gives_up_its_lock_before_another_gets_it() {
    cut_off("cut_off_grantor", 22, Role::Grantor, Cut::Whole);
}

#[test]
fn an_elder_cut_off_gives_up_its_lock_before_another_gets_it() {
    cut_off("cut_off_elder", 23, Role::Elder, Cut::Whole);
}

#[test]
fn a_member_that_hears_and_is_not_heard_gives_up_its_lock_before_another_gets_it() {
    cut_off("dumb", 24, Role::Plain, Cut::Dumb);
}

#[test]
fn an_elder_that_is_heard_and_does_not_hear_gives_up_its_lock_before_another_gets_it() {
    cut_off("deaf", 25, Role::Elder, Cut::Deaf);
}

fn cut_off(test: &str, seed: u64, role: Role, cut: Cut) {
    let Some((network, cluster, mut rng)) = start(test, seed) else { return };
    let elder = cluster.agree();
    let mut others: Vec<usize> = (0..5).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    let (away, grantor) = match role {
        Role::Plain => (others[1], others[0]),
        Role::Grantor => (others[0], others[0]),
        Role::Elder => (elder, others[0]),
    };
    let victim = &cluster.peers[away];
    let waiter = &cluster.peers[others[2]];
    let bystander = &cluster.peers[others[3]];
    let process = victim.status().process;

    let first = cluster.peers[grantor].lock("stock", "first");
    let kept = bystander.lock("stock", "kept");
    let grant = victim.lock("stock", "x");
    let second = victim.lock("stock", "y");
    let pending = waiter.begin_lock("stock", "x");
    cluster.peers[grantor].until_waiting("stock", "x", 1);

    let cut_at = Instant::now();
    match cut {
        Cut::Whole => network.split(&[away]),
        Cut::Dumb => {
            (0..5).filter(|other| *other != away).for_each(|other| network.silence(away, other))
        }
        Cut::Deaf => {
            (0..5).filter(|other| *other != away).for_each(|other| network.silence(other, away))
        }
    }
    let next = pending.wait().unwrap_or_else(|error| panic!("{error}; {:#?}", waiter.events()));
    let next = Grant::read(&next);
    println!("{role:?} {cut:?}: its lock was given on after {:.1?}", cut_at.elapsed());
    assert!(next.token > grant.token);
    // The victim has suspended itself. Its last belief in the lock was before the next holder had
    // it.
    let fence = victim.fence(&grant);
    assert!(fence.is_err(), "the one cut off believes in {fence:?} while {next:?} is held");
    assert!(victim.last_belief(&grant) < next.at);
    assert!(victim.last_belief(&second) < next.at);
    wait::until("the victim is suspended", || {
        let events = victim.events();
        let is_told = events.iter().any(|event| event.starts_with("suspended "));
        if is_told { Ok(()) } else { Err(format!("{events:#?}")) }
    });
    assert_eq!(waiter.fence(&next), Ok(next.token));
    assert_eq!(bystander.fence(&kept), Ok(kept.token), "{:#?}", bystander.events());

    network.heal();
    let healed_at = Instant::now();
    wait::until("a new process at the old address", || {
        let status = victim.status();
        let told = victim.events().iter().any(|event| event.starts_with("rejoined "));
        if status.process != process && status.leased && told {
            return Ok(());
        }
        Err(format!("{status:?} {:#?}", victim.events()))
    });
    cluster.agree();
    println!("{role:?} {cut:?}: it was a member again {:.1?} after healing", healed_at.elapsed());
    for old in [&grant, &second] {
        assert!(victim.fence(old).is_err(), "an old guard stays lost");
    }
    assert_eq!(bystander.fence(&kept), Ok(kept.token), "{:#?}", bystander.events());
    waiter.release(&next).expect("it is held");
    let again = victim.lock("stock", "x");
    assert!(again.token > next.token);
    if grantor != away {
        assert_eq!(cluster.peers[grantor].fence(&first), Ok(first.token));
    }
}

#[test]
fn a_cut_shorter_than_the_lease_costs_nothing() {
    let started = start_many("short_cut", 28, 5, "", Leases::Long);
    let Some((network, cluster, mut rng)) = started else { return };
    let elder = cluster.agree();
    let mut others: Vec<usize> = (0..5).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    let (grantor, peers) = (others[0], &cluster.peers);
    let first = peers[grantor].lock("stock", "first");
    // First the grantor is cut off, then a member that only holds.
    for away in [grantor, others[1]] {
        let view = peers[elder].status().view;
        let held = peers[others[1]].lock("stock", "x");
        let waiting = peers[others[2]].begin_lock("stock", "x");
        peers[grantor].until_waiting("stock", "x", 1);
        network.split(&[away]);
        // The lock is requested, released and requested again while no packet arrives.
        let asked = peers[others[3]].begin_lock("stock", "y");
        peers[others[1]].release(&held).expect("it is held");
        let again = peers[others[1]].begin_lock("stock", "x");
        // An eighth to a third of the lease: on a busy machine the cut lasts longer.
        std::thread::sleep(Duration::from_millis(1800 + rng.below(3000)));
        network.heal();
        let next = Grant::read(&waiting.wait().expect("it was released"));
        assert!(next.token > held.token);
        assert!(again.poll().is_none(), "one at a time");
        let other = Grant::read(&asked.wait().expect("it is free"));
        peers[others[3]].release(&other).expect("it is held");
        peers[others[2]].release(&next).expect("it is held");
        let last = Grant::read(&again.wait().expect("it was released"));
        assert!(last.token > next.token);
        peers[others[1]].release(&last).expect("it is held");
        assert_eq!(peers[grantor].fence(&first), Ok(first.token), "{:#?}", peers[grantor].events());
        assert_eq!(peers[elder].status().view, view, "no member was given up");
    }
}

#[test]
fn a_minority_grants_nothing_and_the_rest_goes_on() {
    let Some((network, cluster, mut rng)) = start("minority", 26) else { return };
    let elder = cluster.agree();
    let mut others: Vec<usize> = (0..5).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    // The elder and the grantor are on one side, three members on the other.
    let (small, large) = ([elder, others[0]], &others[1..]);
    let peers = &cluster.peers;
    let held = peers[others[0]].lock("stock", "x");
    network.split(&small);
    let next = peers[large[0]].lock("stock", "x");
    assert!(peers[others[0]].last_belief(&held) < next.at);
    assert!(next.token > held.token);
    for number in small {
        let error =
            peers[number].ask("lock stock free 300 -").expect_err("a minority grants nothing");
        assert!(error.contains("TimedOut"), "{error}");
        let error = peers[number].ask("try stock free").expect_err("a minority grants nothing");
        assert!(error.contains("Undecided"), "{error}");
    }
    let free = peers[large[1]].lock("stock", "free");
    network.heal();
    cluster.agree();
    assert_eq!(peers[large[0]].fence(&next), Ok(next.token), "{:#?}", peers[large[0]].events());
    assert_eq!(peers[large[1]].fence(&free), Ok(free.token), "{:#?}", peers[large[1]].events());
    let pending = peers[elder].begin_lock("stock", "x");
    peers[large[0]].release(&next).expect("it is held");
    let last = Grant::read(&pending.wait().expect("it is a member again"));
    assert!(last.token > next.token);
}

#[test]
fn two_members_that_cannot_reach_each_other_work_on_through_the_others() {
    // The relayed packets are sealed.
    let key = ClusterKey::generate().expect("there is randomness").to_base64();
    let Some((network, cluster, mut rng)) = start_many("relay", 27, 5, &key, Leases::Short) else {
        return;
    };
    let elder = cluster.agree();
    let mut others: Vec<usize> = (0..5).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    // First a member cannot reach the elder, then a member cannot reach its grantor.
    for (round, (one, other)) in
        [(others[0], elder), (others[1], others[2])].into_iter().enumerate()
    {
        let view = cluster.peers[elder].status().view;
        let service = format!("stock-{round}");
        let (near, far): (&Peer, &Peer) = (&cluster.peers[one], &cluster.peers[other]);
        let first = far.lock(&service, "first");
        let kept = near.lock(&service, "kept");
        let limit = longest_wait(near, &service);
        network.silence(one, other);
        network.silence(other, one);
        // The loop takes longer than a member lease; otherwise it would not show that the lease is
        // renewed.
        let (start, mut last, mut count) = (Instant::now(), 0, 0);
        while start.elapsed() < lease() * 3 / 2 || count < LOCKS {
            let grant = lock_once(near, &service, limit);
            assert!(grant.token > last);
            last = grant.token;
            count += 1;
        }
        println!("{count} locks through others in {:?}", start.elapsed());
        assert_most_were_granted_at_once(start, count, limit);
        for (peer, grant) in [(far, &first), (near, &kept)] {
            assert_eq!(peer.fence(grant), Ok(grant.token), "round {round}: {:#?}", peer.events());
        }
        assert_eq!(cluster.peers[elder].status().view, view, "no member was given up");
        network.heal();
    }
}

#[test]
fn a_member_with_one_good_neighbour_of_five_keeps_its_locks() {
    one_neighbour("one_neighbour", 29, 5);
}

/// The council has seven members, and each of them may relay the packets.
#[test]
fn a_member_with_one_good_neighbour_of_seven_keeps_its_locks() {
    one_neighbour("one_neighbour_of_seven", 31, 7);
}

/// The member lease of the tests with short leases.
fn lease() -> Duration {
    Leases::Short.timing().member_lease
}

/// The longest wait for a lock of this member while it lacks some paths, by the locks that it takes
/// now, with all paths.
fn longest_wait(peer: &Peer, service: &str) -> Duration {
    let waits = (0..10).map(|_| {
        let asked = Instant::now();
        lock_once(peer, service, wait::HANG);
        asked.elapsed()
    });
    GRANTED + 20 * waits.max().unwrap_or_default()
}

/// Takes the lock and releases it. A service that waits for detours one after the other takes
/// longer than the limit.
fn lock_once(peer: &Peer, service: &str, limit: Duration) -> Grant {
    let asked = Instant::now();
    let grant = peer.lock(service, "x");
    assert!(asked.elapsed() < limit, "granted after {:?} of {limit:?}", asked.elapsed());
    peer.release(&grant).expect("it is held");
    grant
}

/// Asserts that these locks took a tenth of the longest wait on average. A service that waits for a
/// lease to end at each lock takes longer.
fn assert_most_were_granted_at_once(start: Instant, locks: usize, limit: Duration) {
    let took = start.elapsed();
    assert!(took < limit / 10 * locks as u32, "{locks} locks in {took:?}");
}

fn one_neighbour(test: &str, seed: u64, count: usize) {
    let started = start_many(test, seed, count, "", Leases::Short);
    let Some((network, cluster, mut rng)) = started else { return };
    let elder = cluster.agree();
    let mut others: Vec<usize> = (0..count).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    let (far, neighbour, grantor) = (others[0], others[1], others[2]);
    let peers = &cluster.peers;
    let first = peers[grantor].lock("stock", "first");
    let kept = peers[far].lock("stock", "kept");
    let limit = longest_wait(&peers[far], "stock");
    let view = peers[elder].status().view;
    for other in (0..count).filter(|other| ![far, neighbour].contains(other)) {
        network.silence(far, other);
        network.silence(other, far);
    }
    // The loop takes longer than two leases; otherwise it would not show that they are renewed.
    let (start, mut locks) = (Instant::now(), 0);
    while start.elapsed() < lease() * 11 / 5 || locks < LOCKS {
        lock_once(&peers[far], "stock", limit);
        locks += 1;
    }
    println!("{locks} locks through one neighbour in {:?}", start.elapsed());
    assert_most_were_granted_at_once(start, locks, limit);
    assert_eq!(peers[far].fence(&kept), Ok(kept.token), "{:#?}", peers[far].events());
    assert_eq!(peers[grantor].fence(&first), Ok(first.token), "{:#?}", peers[grantor].events());
    assert_eq!(peers[elder].status().view, view, "no member was given up");
    network.heal();
}

#[test]
fn members_that_reach_only_two_neighbours_keep_their_locks_and_are_granted_more() {
    let Some((network, cluster, mut rng)) = start("ring", 30) else { return };
    let elder = cluster.agree();
    let mut ring: Vec<usize> = (0..5).collect();
    rng.shuffle(&mut ring);
    let peers = &cluster.peers;
    let held: Vec<Grant> =
        ring.iter().map(|number| peers[*number].lock("stock", &format!("own-{number}"))).collect();
    let limits: Vec<Duration> =
        ring.iter().map(|number| longest_wait(&peers[*number], "stock")).collect();
    let view = peers[elder].status().view;
    for here in 0..5 {
        for step in [2, 3] {
            network.silence(ring[here], ring[(here + step) % 5]);
        }
    }
    let (start, mut locks) = (Instant::now(), 0);
    while start.elapsed() < lease() * 11 / 5 || locks < LOCKS {
        for (number, limit) in ring.iter().zip(&limits) {
            lock_once(&peers[*number], "stock", *limit);
            locks += 1;
        }
    }
    println!("{locks} locks in a ring in {:?}", start.elapsed());
    assert_most_were_granted_at_once(start, locks, limits.into_iter().min().expect("five"));
    for (number, grant) in ring.iter().zip(&held) {
        assert_eq!(peers[*number].fence(grant), Ok(grant.token), "{:#?}", peers[*number].events());
    }
    assert_eq!(peers[elder].status().view, view, "no member was given up");
    network.heal();
}
