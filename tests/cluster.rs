//! Members as real processes on the loopback interface. The tests kill, stop and restart them,
//! start many at once, and send them garbage.
#![cfg(all(unix, feature = "tokio"))]

mod support;

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use support::cluster::{Cluster, agree};
use support::leases::Leases;
use support::ports;
use support::process::{Grant, Peer, Pending, Process};
use support::rng::Rng;
use support::wait::{self, now};

/// Not a test: the program of a child process. Without the environment variable of a child it does
/// nothing.
#[test]
fn child_member() {
    support::child::serve();
}

/// How often each role is hit. The delay before the fault differs each time.
const MOMENTS: usize = 24;

#[test]
fn a_killed_holder_is_followed_by_the_next_waiter() {
    hit_again_and_again("a_killed_holder", 1, Role::Holder, Exit::Kill, MOMENTS);
}

#[test]
fn a_killed_waiter_is_passed_over() {
    hit_again_and_again("a_killed_waiter", 2, Role::Waiter, Exit::Kill, MOMENTS);
}

#[test]
fn a_killed_grantor_is_recovered_from() {
    hit_again_and_again("a_killed_grantor", 3, Role::Grantor, Exit::Kill, MOMENTS);
}

#[test]
fn a_killed_elder_is_taken_over_from() {
    hit_again_and_again("a_killed_elder", 4, Role::Elder, Exit::Kill, MOMENTS);
}

#[test]
fn elder_and_grantor_killed_together_cost_the_others_nothing() {
    hit_again_and_again("elder_and_grantor_killed", 5, Role::ElderAndGrantor, Exit::Kill, MOMENTS);
}

/// ElderMemberDistributedTest.elderIsCorrectAfterKillingMultipleLocators: all members agree that
/// the third oldest is the elder.
#[test]
fn the_two_oldest_killed_at_once_leave_the_third_as_elder() {
    let mut rng = Rng::new("the_two_oldest", 11);
    let mut cluster = Cluster::start(5, Leases::Short, &mut rng);
    for round in 0..5 {
        cluster.agree();
        let members = cluster.peers[round].status().members;
        let number = |addr: &String| {
            cluster.peers.iter().position(|peer| peer.addr == *addr).expect("one of them")
        };
        let by_age: Vec<usize> = members.iter().map(|(_, addr, _)| number(addr)).collect();
        let kept = cluster.peers[by_age[4]].lock("stock", &format!("kept-{round}"));
        let oldest = [by_age[0], by_age[1]];
        oldest.iter().for_each(|number| cluster.peers[*number].process.kill());
        assert_eq!(cluster.agree(), by_age[2]);
        assert_eq!(cluster.peers[by_age[4]].fence(&kept), Ok(kept.token));
        cluster.peers[by_age[4]].release(&kept).expect("it is held");
        let joins = oldest.map(|number| cluster.restart(number, &mut rng));
        joins
            .into_iter()
            .for_each(|join| _ = join.wait().unwrap_or_else(|error| panic!("restart: {error}")));
    }
}

#[test]
fn a_leaving_member_costs_the_others_nothing() {
    for role in [Role::Holder, Role::Waiter, Role::Grantor, Role::Elder] {
        hit_again_and_again("whoever_leaves", 6, role, Exit::Leave, 3);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Holder,
    Waiter,
    Grantor,
    Elder,
    ElderAndGrantor,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exit {
    Kill,
    Leave,
}

/// A cluster of five. Again and again the member (or two) with a given role ends after another
/// delay, and is started again in place.
fn hit_again_and_again(test: &str, seed: u64, role: Role, exit: Exit, moments: usize) {
    let mut rng = Rng::new(test, seed);
    let mut cluster = Cluster::start(5, Leases::Short, &mut rng);
    let mut times: Vec<Duration> =
        (0..moments).map(|moment| hit(&mut cluster, moment, role, exit, &mut rng)).collect();
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "{role:?} {exit:?}: next grant after {median:.1?} (median), {:.1?} (longest)",
        times[times.len() - 1]
    );
}

/// The exchange that is under way when members are killed or leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingExchange {
    /// The holder has the lock, and a first waiter asks.
    Waiting,
    /// The holder releases, and two waiters are queued.
    Release,
    /// The later holder asks, and no other member does yet.
    Grant,
}

/// A process that wants the lock, holds it, or has held it.
struct Contender {
    number: usize,
    pending: Option<Pending>,
    grant: Option<Grant>,
}

fn hit(cluster: &mut Cluster, moment: usize, role: Role, exit: Exit, rng: &mut Rng) -> Duration {
    let service = format!("service-{moment}");
    let exchanges = [PendingExchange::Waiting, PendingExchange::Release, PendingExchange::Grant];
    let exchange = exchanges[moment % 3];
    let elder = cluster.agree();
    let mut others: Vec<usize> =
        (0..cluster.peers.len()).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    let [grantor, holder, first, second] = others[..] else { panic!("five members") };
    let victims = match role {
        Role::Holder => vec![holder],
        Role::Waiter => vec![first],
        Role::Grantor => vec![grantor],
        Role::Elder => vec![elder],
        Role::ElderAndGrantor if rng.below(2) == 0 => vec![elder, grantor],
        Role::ElderAndGrantor => vec![grantor, elder],
    };
    let peers = &cluster.peers;

    // The first member that asks becomes the grantor. Each process also holds a lock of its own.
    let mut own = vec![(grantor, peers[grantor].lock(&service, "own-grantor"))];
    for number in [elder, holder, first, second] {
        own.push((number, peers[number].lock(&service, &format!("own-{number}"))));
    }

    let ask = |number: usize| Contender {
        number,
        pending: Some(peers[number].begin_lock(&service, "x")),
        grant: None,
    };
    let mut contenders = Vec::new();
    let mut tokens = Vec::new();
    let mut release = None;
    match exchange {
        PendingExchange::Waiting => {
            let grant = peers[holder].lock(&service, "x");
            contenders.push(Contender { number: holder, pending: None, grant: Some(grant) });
            contenders.push(ask(first));
        }
        PendingExchange::Release => {
            let grant = peers[holder].lock(&service, "x");
            tokens.push(grant.token);
            for (waiters, number) in [first, second].into_iter().enumerate() {
                contenders.push(ask(number));
                peers[grantor].until_waiting(&service, "x", waiters + 1);
                // `look` is answered after the member is told its position.
                peers[number].ask(&format!("look {service} x")).expect("there is a grantor");
            }
            release = Some(peers[holder].begin(&format!("release {}", grant.guard)));
        }
        PendingExchange::Grant => contenders.push(ask(holder)),
    }
    std::thread::sleep(rng.moment());

    // The fault happens here.
    let start = Instant::now();
    match exit {
        Exit::Kill => victims.iter().for_each(|number| peers[*number].process.kill()),
        Exit::Leave => {
            for number in &victims {
                peers[*number]
                    .ask("leave")
                    .unwrap_or_else(|error| panic!("{role:?} leaves: {error}"));
                peers[*number].process.kill();
            }
        }
    }
    if let Some(release) = release.filter(|_| !victims.contains(&holder)) {
        release.wait().expect("the holder lives and had not lost its lock");
    }
    contenders.retain(|contender| {
        // The test may have read a grant of a victim; such a grant still counts for the order of
        // tokens.
        let heard = contender.pending.as_ref().and_then(Pending::poll).and_then(Result::ok);
        let gone = victims.contains(&contender.number);
        if gone {
            tokens.extend(contender.grant.iter().map(|grant| grant.token));
            tokens.extend(heard.map(|text| Grant::read(&text).token));
        }
        !gone
    });
    for number in [first, second] {
        let asked = contenders.iter().any(|contender| contender.number == number);
        if !asked && !victims.contains(&number) {
            contenders.push(ask(number));
        }
    }

    // All remaining processes get the lock one after the other, with rising tokens.
    let (order, next_grant) = take_turns(peers, &mut contenders, &mut tokens, start);
    assert!(
        tokens.is_sorted_by(|a, b| a < b),
        "{role:?} at {exchange:?}: tokens of one lock rise: {tokens:?}"
    );
    if exchange == PendingExchange::Release && role != Role::Waiter {
        assert_eq!(order, [first, second], "{role:?}: positions in the queue are kept");
    }
    for (number, grant) in own.iter().filter(|(number, _)| !victims.contains(number)) {
        let fence = peers[*number].fence(grant);
        assert_eq!(
            fence,
            Ok(grant.token),
            "{role:?}: the lock of {number}, which lives; {:#?}",
            peers[*number].events()
        );
        peers[*number].release(grant).expect("it is held");
    }

    // Each ended process is started again in place, with a new process id.
    let joins: Vec<_> =
        victims.iter().map(|number| (*number, cluster.restart(*number, rng))).collect();
    for (number, join) in joins {
        join.wait().unwrap_or_else(|error| panic!("restart of {number} ({role:?}): {error}"));
    }
    cluster.agree();
    next_grant
}

/// Lets each contender have the lock and release it. Returns their order, and the time of the first
/// grant to a contender that had not held the lock before.
fn take_turns(
    peers: &[Peer],
    contenders: &mut Vec<Contender>,
    tokens: &mut Vec<u64>,
    start: Instant,
) -> (Vec<usize>, Duration) {
    let mut order = Vec::new();
    let mut next_grant = None;
    while !contenders.is_empty() {
        let holder = wait::until("a member gets the lock", || {
            for (index, contender) in contenders.iter_mut().enumerate() {
                if let Some(answer) = contender.pending.as_ref().and_then(Pending::poll) {
                    let text = answer
                        .unwrap_or_else(|error| panic!("lock at {}: {error}", contender.number));
                    contender.pending = None;
                    contender.grant = Some(Grant::read(&text));
                    next_grant.get_or_insert(start.elapsed());
                }
                if contender.grant.is_some() {
                    return Ok(index);
                }
            }
            let states: Vec<_> =
                contenders.iter().map(|c| (c.number, peers[c.number].status().services)).collect();
            Err(format!("{states:#?}"))
        });
        let contender = contenders.remove(holder);
        let grant = contender.grant.expect("just looked at");
        let peer = &peers[contender.number];
        assert_eq!(peer.fence(&grant), Ok(grant.token), "the holder lives: {:#?}", peer.events());
        for other in contenders.iter() {
            let answer = other.pending.as_ref().and_then(Pending::poll);
            assert!(
                answer.is_none(),
                "{} has the lock, and {} was told {answer:?}",
                contender.number,
                other.number
            );
        }
        tokens.push(grant.token);
        order.push(contender.number);
        peer.release(&grant).expect("it is held");
    }
    (order, next_grant.unwrap_or_default())
}

#[test]
fn a_holder_stopped_past_its_lease_wakes_up_without_its_lock() {
    stopped_past_its_lease("stopped_holder", 7, Role::Holder);
}

#[test]
fn a_holder_that_is_grantor_too_wakes_up_without_both() {
    stopped_past_its_lease("stopped_grantor", 8, Role::Grantor);
}

#[test]
fn a_holder_that_is_elder_too_wakes_up_without_both() {
    stopped_past_its_lease("stopped_elder", 9, Role::Elder);
}

/// Stops the process that holds a lock and has this role (SIGSTOP), until another process has the
/// lock.
fn stopped_past_its_lease(test: &str, seed: u64, role: Role) {
    let mut rng = Rng::new(test, seed);
    let cluster = Cluster::start(5, Leases::Short, &mut rng);
    let elder = cluster.agree();
    let mut others: Vec<usize> = (0..5).filter(|number| *number != elder).collect();
    rng.shuffle(&mut others);
    let (stopped, grantor) = match role {
        Role::Elder => (elder, others[0]),
        Role::Grantor => (others[0], others[0]),
        _ => (others[1], others[0]),
    };
    let waiter = &cluster.peers[others[2]];
    let bystander = &cluster.peers[others[3]];
    let old = &cluster.peers[stopped];
    let before = old.status().process;

    let first = cluster.peers[grantor].lock("stock", "first");
    let kept = bystander.lock("stock", "kept");
    let grant = old.lock("stock", "x");
    let pending = waiter.begin_lock("stock", "x");
    cluster.peers[grantor].until_waiting("stock", "x", 1);
    old.process.stop();
    let start = Instant::now();
    let next = Grant::read(&pending.wait().expect("the lock of a stopped process is given on"));
    println!("{role:?} stopped: its lock was given on after {:.1?}", start.elapsed());
    assert!(next.token > grant.token, "{next:?} after {grant:?}");
    // The check of the fence is the first thing that the process does when it wakes up.
    let fence = old.begin(&format!("fence {}", grant.guard));
    old.process.resume();
    let fence = fence.wait();
    assert!(
        fence.is_err(),
        "the one that was stopped believes in {fence:?} while {next:?} is held"
    );
    assert!(
        old.last_belief(&grant) < next.at,
        "the former holder believed in the lock when the next one had it"
    );
    assert_eq!(waiter.fence(&next), Ok(next.token));
    assert_eq!(bystander.fence(&kept), Ok(kept.token), "{:#?}", bystander.events());

    // The member joins again with a new process id, and everything works.
    rejoined(old, &before);
    cluster.agree();
    assert!(old.fence(&grant).is_err());
    waiter.release(&next).expect("it is held");
    let again = old.lock("stock", "x");
    assert!(again.token > next.token);
    if grantor != stopped {
        assert_eq!(cluster.peers[grantor].fence(&first), Ok(first.token));
    }
}

fn rejoined(peer: &Peer, before: &str) {
    wait::until("a new process at the old address", || {
        let status = peer.status();
        let events = peer.events();
        let told = events.iter().any(|event| event.starts_with("rejoined "));
        if status.process != before && status.leased && told {
            Ok(())
        } else {
            Err(format!("{status:?} {events:#?}"))
        }
    });
}

#[test]
fn a_restart_in_place_does_not_bring_an_old_hold_back() {
    let mut rng = Rng::new("restart_in_place", 10);
    let mut cluster = Cluster::start(4, Leases::Short, &mut rng);
    for round in 0..6 {
        let elder = cluster.agree();
        let mut numbers: Vec<usize> = (0..4).filter(|number| *number != elder).collect();
        rng.shuffle(&mut numbers);
        // By turns the rounds kill a plain member, the grantor and the elder.
        let (killed, grantor) = match round % 3 {
            0 => (numbers[0], numbers[1]),
            1 => (numbers[0], numbers[0]),
            _ => (elder, numbers[1]),
        };
        let service = format!("stock-{round}");
        let first = cluster.peers[grantor].lock(&service, "first");
        let grant = cluster.peers[killed].lock(&service, "x");
        let before = cluster.peers[killed].status().process;
        cluster.peers[killed].process.kill();
        // The new process starts at once, so that it meets members that do not know of the end of
        // the old one.
        let join = cluster.restart(killed, &mut rng);
        join.wait().unwrap_or_else(|error| panic!("restart in place, round {round}: {error}"));
        cluster.agree();
        let status = cluster.peers[killed].status();
        assert_ne!(status.process, before, "every start is a new process");
        let held: usize = status.services.iter().map(|service| service.held_here).sum();
        assert_eq!(held, 0, "round {round}: the new process holds nothing: {status:?}");
        let next = cluster.peers[numbers[2]].lock(&service, "x");
        assert!(next.token > grant.token);
        let own = cluster.peers[killed].begin_lock(&service, "x");
        cluster.peers[numbers[2]].release(&next).expect("it is held");
        let own = Grant::read(&own.wait().expect("the new process gets it in its turn"));
        assert!(own.token > next.token);
        cluster.peers[killed].release(&own).expect("it is held");
        if grantor != killed {
            cluster.peers[grantor].release(&first).expect("it is held");
        }
    }
}

#[test]
fn ten_members_started_at_once_are_one_cluster() {
    let mut rng = Rng::new("ten_at_once", 11);
    let mut times = Vec::new();
    for round in 0..20 {
        // By turns the seeds are all ten addresses, three of them, or one.
        let seeds = [10, 3, 1][round % 3];
        let start = Instant::now();
        let cluster = wait::until("ten free ports", || {
            let addrs: Vec<String> = ports::free(10).iter().map(ToString::to_string).collect();
            let cluster = Cluster::start_at(&addrs, seeds, &[], "", Leases::Short, &mut rng);
            cluster.inspect_err(|error| {
                // Another process has taken a port meanwhile.
                assert!(error.contains("is taken"), "round {round}, {seeds} seeds: {error}");
            })
        });
        times.push(start.elapsed());
        // All are in one cluster: a lock that one member holds is refused to another.
        let grant = cluster.peers[9].lock("stock", "x");
        let refused =
            cluster.peers[rng.below(9) as usize].ask("try stock x").expect_err("it is held");
        assert!(refused.contains("Held"), "round {round}: {refused}");
        assert_eq!(cluster.peers[9].fence(&grant), Ok(grant.token));
    }
    times.sort();
    println!(
        "ten members in one view after {:.1?} (median), {:.1?} (longest)",
        times[10], times[19]
    );
}

/// A guard against hangs, far above the time that the test takes.
const SIXTY: Duration = Duration::from_secs(600);

/// Sixty members that have joined, in six processes.
fn sixty(rng: &mut Rng, start: Instant) -> Result<Vec<Peer>, String> {
    let addrs: Vec<String> = ports::free(60).iter().map(ToString::to_string).collect();
    let processes: Vec<_> = (0..6).map(|number| Process::start(number, None)).collect();
    let peers: Vec<Peer> = addrs
        .iter()
        .enumerate()
        .map(|(number, addr)| Peer {
            process: processes[number % 6].clone(),
            index: number / 6,
            addr: addr.clone(),
        })
        .collect();
    let name = format!("sixty-{}-{}", std::process::id(), start.elapsed().as_nanos());
    let mut order: Vec<usize> = (0..60).collect();
    rng.shuffle(&mut order);
    let (seeds, limit) = (addrs[..3].join(","), SIXTY.as_millis());
    // In a debug build each member gets a tenth of a processor and loses the leases of `lan` while
    // it connects. Then its join starts again.
    let join = |number: &usize| {
        let peer: &Peer = &peers[*number];
        let addr = &peer.addr;
        peer.begin(&format!(
            "join cluster={name} bind={addr} seeds={seeds} leases=Slow limit={limit}"
        ))
    };
    let joins: Vec<Pending> = order.iter().map(join).collect();
    joins.iter().try_for_each(|join| join.wait_at_most(SIXTY).map(drop))?;
    Ok(peers)
}

#[test]
fn sixty_members_meet_in_one_view() {
    let mut rng = Rng::new("sixty_members", 12);
    let start = Instant::now();
    let peers = wait::until_at_most(SIXTY, "sixty free ports", || {
        sixty(&mut rng, start).inspect_err(|error| {
            // Another process has taken a port meanwhile.
            assert!(error.contains("is taken"), "one of sixty: {error}");
        })
    });
    let joined = start.elapsed();
    agree(&peers.iter().collect::<Vec<_>>());
    println!(
        "60 members in 6 processes joined within {joined:.1?}, and all saw one view after {:.1?}",
        start.elapsed()
    );
    // The lock passes through all members.
    let mut last = 0;
    for peer in &peers {
        let grant = peer.lock("stock", "x");
        assert!(grant.token > last, "tokens rise");
        last = grant.token;
        peer.release(&grant).expect("it is held");
    }
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let process = Process::start(0, None);
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (index, taken) in
        [tcp.local_addr().unwrap(), udp.local_addr().unwrap()].into_iter().enumerate()
    {
        let peer = Peer { process: process.clone(), index, addr: taken.to_string() };
        let error = peer
            .ask(&format!("join cluster=taken bind={taken} seeds={taken}"))
            .expect_err("the port is taken");
        assert!(error.contains(&taken.to_string()) && error.contains("taken"), "{error}");
    }
}

#[test]
fn seeds_that_do_not_answer_are_named() {
    let [here, missing] = ports::free(2)[..] else { panic!("two ports") };
    let process = Process::start(0, None);
    let peer = Peer { process, index: 0, addr: here.to_string() };
    // On a busy machine a limit may end before the missing seed has refused a connection.
    let error = wait::until("the missing seed refuses", || {
        let start = Instant::now();
        let error = peer
            .ask(&format!("join cluster=lonely bind={here} seeds={here},{missing} limit=700"))
            .expect_err("one of two seeds cannot found");
        assert!(start.elapsed() >= Duration::from_millis(700), "not before the limit: {error}");
        if error.contains("refused") { Ok(error) } else { Err(error) }
    });
    let (answered, rest) =
        error.split_once("missing").unwrap_or_else(|| panic!("no missing seeds: {error}"));
    assert!(answered.contains(&here.to_string()) && rest.contains(&missing.to_string()), "{error}");
    assert!(error.contains("1 of 2"), "{error}");
    // The failed join leaves nothing behind: a second join founds when the other seed is there.
    let other = Peer { process: Process::start(1, None), index: 0, addr: missing.to_string() };
    let joins = [&peer, &other].map(|peer| {
        peer.begin(&format!("join cluster=lonely bind={} seeds={here},{missing}", peer.addr))
    });
    joins.iter().for_each(|join| assert!(join.wait().is_ok()));
    agree(&[&peer, &other]);
}

#[test]
fn a_foreign_cluster_is_named_and_left_alone() {
    let mut rng = Rng::new("foreign_cluster", 13);
    let cluster = Cluster::start(3, Leases::Long, &mut rng);
    let before = cluster.peers[0].status().view;
    let addr = ports::free(1)[0];
    let stranger = Peer { process: Process::start(0, None), index: 0, addr: addr.to_string() };
    let seeds = cluster.seeds.join(",");
    // On a busy machine a limit may end before the name of the cluster has arrived.
    let error = wait::until("the name of the cluster is told", || {
        let error = stranger
            .ask(&format!("join cluster=another bind={addr} seeds={seeds} limit=1000"))
            .expect_err("it is not a member of that cluster");
        if error.contains(&cluster.name) { Ok(error) } else { Err(error) }
    });
    for seed in &cluster.seeds {
        assert!(error.contains(seed), "{error}");
    }
    cluster.agree();
    assert_eq!(cluster.peers[0].status().view, before, "the cluster took no notice");
}

#[test]
fn garbage_at_both_ports_harms_no_member() {
    let mut rng = Rng::new("garbage", 14);
    let cluster = Cluster::start(3, Leases::Long, &mut rng);
    let before = cluster.peers[0].status().view;
    let memory: Vec<u64> = cluster.peers.iter().map(|peer| peer.process.memory()).collect();
    let held = cluster.peers[2].lock("stock", "held");
    // Connections that send garbage and stay open, as far as the member lets them.
    let mut open = Vec::new();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut last, mut thrown) = (0, 0);
    let start = now();
    for round in 0..150 {
        for peer in &cluster.peers {
            for _ in 0..4 {
                let garbage = garbage(&mut rng);
                thrown += garbage.len();
                // A datagram beyond the largest size would be an error of this side.
                let _ = udp.send_to(&garbage[..garbage.len().min(60_000)], &peer.addr);
            }
            if let Ok(mut stream) = TcpStream::connect(&peer.addr) {
                stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
                // The connection may be refused, or closed in the middle.
                let _ = stream.write_all(&garbage(&mut rng));
                if rng.below(3) == 0 {
                    open.push(stream);
                }
            }
        }
        let peer = &cluster.peers[round % 3];
        let grant = peer.lock("stock", "x");
        assert!(grant.token > last, "tokens rise");
        last = grant.token;
        peer.release(&grant).expect("it is held");
    }
    println!(
        "{thrown} bytes of garbage and {} open connections in {} ms",
        open.len(),
        (now() - start) / 1_000_000
    );
    assert_eq!(cluster.peers[2].fence(&held), Ok(held.token), "{:#?}", cluster.peers[2].events());
    cluster.agree();
    assert_eq!(cluster.peers[0].status().view, before, "no member was lost");
    for (peer, before) in cluster.peers.iter().zip(memory) {
        let after = peer.process.memory();
        assert!(
            after < before + 64 * 1024,
            "memory of {}: {before} kB, then {after} kB",
            peer.addr
        );
    }
}

/// Random garbage: noise, a length that promises too much, zeros, or messages of another protocol.
fn garbage(rng: &mut Rng) -> Vec<u8> {
    let length = [0, 1, 3, 4, 5, 64, 1_400, 9_000, 200_000][rng.below(9) as usize];
    let mut bytes: Vec<u8> = match rng.below(4) {
        0 => vec![0; length],
        1 => b"GET / HTTP/1.1\r\nHost: elderlock\r\n\r\n"
            .iter()
            .copied()
            .cycle()
            .take(length)
            .collect(),
        _ => (0..length).map(|_| rng.next() as u8).collect(),
    };
    if rng.below(3) == 0 && length >= 4 {
        // The first four bytes announce a frame of up to 4 GiB, in either byte order.
        bytes[..4].copy_from_slice(&(rng.next() as u32 >> rng.below(24)).to_be_bytes());
    }
    bytes
}
