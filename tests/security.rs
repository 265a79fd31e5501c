//! Members with a cluster key, as real processes, and attackers that have another key or none.
#![cfg(feature = "secure")]

#[allow(dead_code, reason = "the bench's test of the rate uses the rest")]
#[path = "support/attacks.rs"]
mod attacks;
mod support;

use attacks::crowd::{Crowd, CrowdOpening, MemoryMeter};
use attacks::{Attacks, ContestedLock, Load, assert_undisturbed, bytes_of, new_key, runtime, size};
use elderlock::protocol::{Notice, Packet, Versions, ViewNumber};
use elderlock::wire::secure::{HandshakeSetup, Initiator, Purpose, StaticKey};
use elderlock::wire::{Decoder, Frame, Handshake, HandshakeRefusal, VERSIONS};
use elderlock::{JoinError, Keyring, Member, MemberInfo, ProcessId, QueryError, View};
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::cluster::{Cluster, agree};
use support::leases::Leases;
use support::process::{Grant, Peer, Pending, Process};
use support::rng::Rng;
use support::{child, ports, wait};

/// Not a test: the program of a child process, see `tests/README.md`.
#[test]
fn child_member() {
    child::serve();
}

/// How long the load runs before and during each step.
const STEP: Duration = Duration::from_millis(700);

#[test]
fn keys_are_rotated_under_load_without_a_failed_lock_and_the_old_key_is_refused() {
    let mut rng = Rng::new("rotation", 1);
    let (old, new) = (new_key(), new_key());
    let cluster = Cluster::start_with(3, &old, Leases::Long, &mut rng);
    let load = Load::start(&cluster.peers);
    load.until_more(50);
    for step in [format!("{old},{new}"), format!("{new},{old}"), new.clone()] {
        for peer in &cluster.peers {
            peer.ask(&format!("rekey {step}")).expect("it has a keyring");
            std::thread::sleep(STEP / 10);
        }
        load.until_more(50);
    }
    assert!(load.stop() > 200);
    assert_undisturbed(&cluster.peers);
    cluster.agree();
    let seed = &cluster.seeds[0];
    let asked = |key: &str| {
        let ring = Keyring::parse(key).expect("a key");
        runtime().block_on(elderlock::query_status_with(seed, &cluster.name, &ring))
    };
    assert!(asked(&new).is_ok());
    let error = asked(&old).expect_err("the old key is refused");
    assert!(
        matches!(&error, QueryError::Refused { .. }) && error.to_string().contains("key"),
        "{error}"
    );
}

#[test]
fn a_wrong_key_a_wrong_cluster_and_no_key_are_each_told_to_the_joiner() {
    let mut rng = Rng::new("mismatches", 2);
    let key = new_key();
    let cluster = Cluster::start_with(3, &key, Leases::Long, &mut rng);
    let runtime = runtime();
    let join = |name: &str, key: Option<&str>| {
        let mut builder = Member::builder(name).seeds(&cluster.seeds);
        if let Some(key) = key {
            builder = builder.keyring(Keyring::parse(key).expect("a key"));
        }
        match runtime.block_on(builder.join_limit(Duration::from_secs(2)).join()) {
            Err(error @ JoinError::NoCluster { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    // On a busy machine a limit may end before the reason has arrived.
    let says = |name: &str, key: Option<&str>, why: &str| {
        wait::until(why, || {
            let text = join(name, key);
            if text.contains(why) { Ok(()) } else { Err(text) }
        });
    };
    says(&cluster.name, Some(&new_key()), "does not have the key");
    says("another", Some(&key), "cluster of another name");
    says(&cluster.name, None, "speaks only to processes with the cluster key");
    let ring = Keyring::parse(&key).expect("a key");
    let insecure = Member::builder("x").found().insecure().keyring(ring.clone());
    assert!(matches!(runtime.block_on(insecure.join()), Err(JoinError::InsecureWithKey)));
    assert_undisturbed(&cluster.peers);
    // With the key a member joins.
    let member = Member::builder(&cluster.name).seeds(&cluster.seeds).keyring(ring);
    let member = runtime.block_on(member.join_limit(wait::HANG).join()).expect("it joins");
    runtime.block_on(member.leave()).expect("it is heard");
}

#[test]
fn each_lie_of_a_stranger_is_taken_in_and_changes_nothing() {
    let cluster = Cluster::start(3, Leases::Long, &mut Rng::new("lies", 9));
    let lock = ContestedLock::start(&cluster.peers, &cluster.name, None);
    let view = Attacks::seen_by(&cluster.peers[0], &cluster.name, None);
    let before: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    let attacks = Attacks { cluster: &cluster.name, view };
    for (number, lie) in attacks.lies(&lock).into_iter().enumerate() {
        let hello = attacks.hello(ProcessId(1000 + number as u128));
        // A lie may take effect at one member only: the grantor, the waiter, or any.
        for peer in &cluster.peers {
            is_taken_in(peer, &[&hello[..], &lie].concat(), number);
        }
    }
    lock.end();
    assert_undisturbed(&cluster.peers);
    let after: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    assert_eq!(after, before, "the view is the same");
}

/// Writes these bytes and a question to a member. The answer shows that it took the bytes in: a
/// refused frame ends the connection.
fn is_taken_in(peer: &Peer, lie: &[u8], number: usize) {
    let mut stream = TcpStream::connect(&peer.addr).expect("it listens");
    stream.write_all(&[lie, &bytes_of(&Frame::GossipWanted)].concat()).expect("it reads");
    stream.set_read_timeout(Some(wait::HANG)).expect("a limit");
    let (mut decoder, mut is_open) = (Decoder::new(), false);
    let is_told = |frame: &Frame| matches!(frame, Frame::Gossip(_));
    wait::until("the last frame is answered", || {
        if let Some(frame) = decoder.next().expect("whole frames") {
            if !std::mem::replace(&mut is_open, true) {
                decoder.open();
            }
            return if is_told(&frame) { Ok(()) } else { Err(format!("{frame:?}")) };
        }
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).map_err(|error| error.to_string())?;
        assert!(read > 0, "lie {number} has ended the connection");
        decoder.back().extend_from_slice(&bytes[..read]);
        Err("more is needed".into())
    });
}

#[test]
fn a_stranger_that_claims_a_members_address_is_told_no_nonce() {
    let cluster = Cluster::start(3, Leases::Long, &mut Rng::new("nonce", 10));
    let victim = &cluster.peers[0];
    let mut later = Attacks::seen_by(victim, &cluster.name, None);
    let before: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    later.number = ViewNumber(later.number.0 + 5);
    for other in &cluster.peers[1..] {
        let addr: SocketAddr = other.addr.parse().expect("an address");
        // Two members keep the connection that the one with the lower id dialled. So the stranger
        // claims a low id.
        let me = MemberInfo::new(ProcessId(1), addr);
        let (cluster, reserved) = (cluster.name.clone(), Vec::new());
        let hello = Frame::Hello(Box::new(Handshake { cluster, me, reserved }));
        let mut stream = TcpStream::connect(&victim.addr).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
        stream.write_all(&bytes_of(&hello)).expect("it reads");
        let (mut decoder, mut is_open) = (Decoder::new(), false);
        let start = Instant::now();
        let mut hints = 0;
        while start.elapsed() < Duration::from_secs(3) || !is_open || hints <= 5 {
            assert!(start.elapsed() < wait::HANG, "{hints} hints, and no answer: {is_open}");
            let hint = Packet::from(Notice::FullView { view: later.clone(), nonce: 0 });
            stream.write_all(&bytes_of(&Frame::Packet(hint))).expect("it reads");
            hints += 1;
            let mut bytes = [0; 4096];
            if let Ok(read) = stream.read(&mut bytes) {
                assert!(read > 0, "the connection has ended");
                decoder.back().extend_from_slice(&bytes[..read]);
            }
            while let Some(frame) = decoder.next().expect("whole frames") {
                if !std::mem::replace(&mut is_open, true) {
                    decoder.open();
                }
                if let Frame::Packet(Packet::Notice(notice)) = &frame {
                    assert!(!matches!(**notice, Notice::Fetch { .. }), "it is told {notice:?}");
                }
            }
        }
    }
    assert_undisturbed(&cluster.peers);
    let after: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    assert_eq!(after, before, "the view is the same");
}

fn key_word(key: Option<&str>) -> &'static str {
    if key.is_some() { "with a key" } else { "without a key" }
}

/// Lets a fourth member join. It leaves and joins again if it has been too slow: on a busy machine
/// one of some joins may be.
fn join_beside_a_crowd(cluster: &Cluster, key: Option<&str>) -> Peer {
    let process = Process::start(3, None);
    let keys = key.map(|key| format!(" keys={key}")).unwrap_or_default();
    let (name, seeds) = (&cluster.name, cluster.seeds.join(","));
    let mut times = Vec::new();
    for index in 0..5 {
        let addr = ports::free(1)[0].to_string();
        let newcomer = Peer { process: process.clone(), index, addr };
        let join = format!("join cluster={name} bind={} seeds={seeds}{keys}", newcomer.addr);
        let started = Instant::now();
        newcomer.ask(&join).expect("it joins beside the crowd");
        let took = started.elapsed();
        println!("crowd {}, a fourth member joins: {took:?}", key_word(key));
        // The limit is a promise of the documents. A join takes some tenths of a second.
        if took < Duration::from_secs(5) {
            return newcomer;
        }
        times.push(took);
        newcomer.ask("leave").expect("it is heard");
    }
    panic!("a fourth member joined after {times:?}")
}

/// Silent connections, some of them after a hello. Those take the places of strangers, the others
/// the places of unfinished handshakes.
#[test]
fn with_1024_files_silent_strangers_leave_files_for_the_program_and_a_connection_for_a_member() {
    leaves_files_for_the_program(None);
}

#[test]
fn with_1024_files_and_a_key_silent_strangers_leave_the_same() {
    leaves_files_for_the_program(Some(&new_key()));
}

fn leaves_files_for_the_program(key: Option<&str>) {
    let mut rng = Rng::new("files", 7);
    let cluster =
        Cluster::start_limited(3, key.unwrap_or_default(), Some(1024), Leases::Short, &mut rng);
    let load = Load::start(&cluster.peers);
    load.until_more(20);
    let memory = || cluster.peers.iter().map(|peer| peer.process.memory()).collect::<Vec<_>>();
    let before = memory();
    let view = Attacks::seen_by(&cluster.peers[0], &cluster.name, key);
    let attacks = Attacks { cluster: &cluster.name, view };
    // More connections than an eighth of 1024 files at each member.
    let mut crowd = Vec::new();
    for number in 0..450_u32 {
        let peer = &cluster.peers[number as usize % 3];
        let Ok(mut stream) = TcpStream::connect(&peer.addr) else { continue };
        if !number.is_multiple_of(4) {
            let _ = stream.write_all(&attacks.hello(ProcessId(1000 + u128::from(number))));
        }
        crowd.push(stream);
    }
    for peer in &cluster.peers {
        wait::until("strangers are closed to make room", || {
            let counted = peer.ask("counters").expect("it counts");
            // The counters of refused connections, impostors and evicted connections. With a key
            // each connection of the crowd is refused.
            let of_interest = if key.is_some() { 0 } else { 2 };
            let count = counted.split(' ').nth(of_interest).map(str::to_owned);
            if count.is_some_and(|count| count != "0") { Ok(()) } else { Err(counted) }
        });
        // The program opens half of all files: the member has at most the other half.
        assert_eq!(peer.ask("open-files 512"), Ok("512".to_owned()));
    }
    let newcomer = join_beside_a_crowd(&cluster, key);
    load.until_more(20);
    load.stop();
    for (before, after) in before.iter().zip(memory()) {
        assert!(after < before + 128 * 1024, "{before} KiB have become {after} KiB");
    }
    assert_undisturbed(&cluster.peers);
    let mut all: Vec<&Peer> = cluster.peers.iter().collect();
    all.push(&newcomer);
    agree(&all);
    drop(crowd);
}

/// The most memory that a crowd may cost a member, in KiB.
const MOST_MEMORY: u64 = 128 * 1024;

/// Takes locks at a member. Their names make its status long.
fn lock_long_names(peer: &Peer) -> Vec<Grant> {
    let names = (0..32).map(|number| format!("{number}-{}", "x".repeat(4000)));
    let locks: Vec<Pending> = names.map(|name| peer.begin_lock(&peer.addr, &name)).collect();
    locks.iter().map(|lock| Grant::read(&lock.wait().expect("it is free"))).collect()
}

fn withstands_a_crowd(cluster: &Cluster, key: Option<&str>, opening: CrowdOpening<'_>) {
    let held: Vec<_> = cluster.peers.iter().map(lock_long_names).collect();
    let load = Load::start(&cluster.peers);
    load.until_more(50);
    let memory = MemoryMeter::start(&cluster.peers);
    let view = Attacks::seen_by(&cluster.peers[0], &cluster.name, key);
    let attacks = Attacks { cluster: &cluster.name, view };
    let addrs: Vec<String> = cluster.peers.iter().map(|peer| peer.addr.clone()).collect();
    let mut crowd = Crowd::open(&addrs, &attacks, opening, size(900, 12_600));
    if !matches!(opening, CrowdOpening::Keyless) {
        wait::until("a question is answered", || match crowd.answered() {
            0 => Err("none is".into()),
            _ => Ok(()),
        });
    }
    println!("a crowd of {}, {} of them answered", crowd.size(), crowd.answered());
    let newcomer = join_beside_a_crowd(cluster, key);
    crowd.write_on();
    load.until_more(50);
    load.stop();
    for (before, most) in memory.stop() {
        println!("crowd {}, memory of a member: {before} KiB to {most} KiB", key_word(key));
        assert!(most < before + MOST_MEMORY, "{before} KiB have become {most} KiB");
    }
    for (peer, grants) in cluster.peers.iter().zip(&held) {
        let counted = peer.ask("counters").expect("it counts");
        assert_ne!(counted.split(' ').nth(3), Some("0"), "frames that are too long: {counted}");
        for grant in grants {
            assert_eq!(peer.fence(grant), Ok(grant.token));
        }
    }
    assert_undisturbed(&cluster.peers);
    let mut all: Vec<&Peer> = cluster.peers.iter().collect();
    all.push(&newcomer);
    agree(&all);
}

#[test]
fn crowds_without_the_key_stay_within_bounds_and_a_new_member_joins() {
    let key = new_key();
    let cluster = Cluster::start_with(3, &key, Leases::Short, &mut Rng::new("crowds", 4));
    withstands_a_crowd(&cluster, Some(&key), CrowdOpening::Keyless);
}

#[test]
fn crowds_of_strangers_stay_within_bounds_and_a_new_member_joins() {
    let cluster = Cluster::start(3, Leases::Short, &mut Rng::new("keyless crowds", 8));
    withstands_a_crowd(&cluster, None, CrowdOpening::Hello);
}

#[test]
fn crowds_with_the_key_outside_the_view_stay_within_bounds_and_a_new_member_joins() {
    let text = new_key();
    let cluster = Cluster::start_with(3, &text, Leases::Short, &mut Rng::new("keyed crowds", 13));
    let key = Keyring::parse(&text).expect("a key").first().clone();
    withstands_a_crowd(&cluster, Some(&text), CrowdOpening::Keyed(&key));
}

#[test]
fn a_member_that_dies_is_followed_as_without_a_key() {
    let mut rng = Rng::new("death", 5);
    let cluster = Cluster::start_with(4, &new_key(), Leases::Short, &mut rng);
    let elder = cluster.agree();
    let grant = cluster.peers[elder].lock("stock", "last");
    let other = &cluster.peers[(elder + 1) % 4];
    let waiting = other.begin_lock("stock", "last");
    cluster.peers[elder].until_waiting("stock", "last", 1);
    cluster.peers[elder].process.kill();
    let text = waiting.wait().expect("the next waiter has it");
    assert!(Grant::read(&text).token > grant.token);
    cluster.agree();
}

#[test]
fn four_joiners_that_fall_silent_stop_no_lock_of_a_cluster_without_a_key() {
    let cluster = Cluster::start(3, Leases::Short, &mut Rng::new("silent joiners", 11));
    let elder = &cluster.peers[cluster.agree()];
    let load = Load::start(&cluster.peers);
    load.until_more(20);
    let view = || seen_at_times(elder, &cluster.name);
    let heard = view().number;
    let joiners = (1..5).map(|number| silent_joiner(&cluster.name, &elder.addr, number, heard));
    let joiners: Vec<_> = joiners.collect();
    let in_view = || {
        let view = view();
        joiners.iter().filter(|(me, _)| view.contains(me.process)).count()
    };
    wait::until("they are in the view", || match in_view() {
        0 => Err("none is".into()),
        _ => Ok(()),
    });
    load.until_more(50);
    wait::until("they are out of the view", || match in_view() {
        0 => Ok(()),
        count => Err(format!("{count} are in it")),
    });
    load.until_more(20);
    load.stop();
    assert_undisturbed(&cluster.peers);
    cluster.agree();
}

/// The view of a member. It answers a limited number of status questions each second, so this waits
/// before it asks.
fn seen_at_times(at: &Peer, cluster: &str) -> View {
    std::thread::sleep(Duration::from_millis(20));
    Attacks::seen_by(at, cluster, None)
}

/// A process that asks a member to join, and does nothing more.
fn silent_joiner(
    cluster: &str,
    at: &str,
    number: u16,
    heard: ViewNumber,
) -> (MemberInfo, TcpStream) {
    let addr = SocketAddr::from(([127, 0, 0, 1], 8 + number));
    let me = MemberInfo::new(ProcessId(1000 + u128::from(number)), addr);
    let hello = Handshake { cluster: cluster.into(), me: me.clone(), reserved: Vec::new() };
    let mut stream = TcpStream::connect(at).expect("it listens");
    let join = Packet::from(Notice::Join { me: me.clone(), heard });
    for frame in [Frame::Hello(Box::new(hello)), Frame::Packet(join)] {
        // A member closes connections of strangers beyond their limit.
        let _ = stream.write_all(&bytes_of(&frame));
    }
    (me, stream)
}

#[test]
fn a_thousand_joiners_that_fall_silent_stop_no_lock_of_a_cluster_without_a_key() {
    const JOINERS: u16 = 1000;
    /// The most learners that have not shown themselves, see `docs/internals/security.md`.
    const UNSHOWN: usize = 64;
    let cluster = Cluster::start(3, Leases::Short, &mut Rng::new("a flood of joiners", 12));
    let elder = &cluster.peers[cluster.agree()];
    let load = Load::start(&cluster.peers);
    load.until_more(20);
    let view = || seen_at_times(elder, &cluster.name);
    let (mut open, mut most, mut seen) = (VecDeque::new(), 0, view());
    for number in 0..JOINERS {
        if number % 10 == 0 {
            seen = view();
            most = most.max(seen.members.len());
        }
        open.push_back(silent_joiner(&cluster.name, &elder.addr, number, seen.number));
        if open.len() > 100 {
            open.pop_front();
        }
    }
    assert!(most > 3 && most <= 3 + UNSHOWN, "{most} members at the same time");
    load.until_more(20);
    wait::until("they are out of the view", || match view().members.len() {
        3 => Ok(()),
        count => Err(format!("{count} are in it")),
    });
    load.until_more(20);
    load.stop();
    assert_undisturbed(&cluster.peers);
    cluster.agree();
}

/// Writes this frame of a handshake and returns the next frame that comes back. `None` if the
/// connection has ended.
fn answer_to(stream: &mut TcpStream, decoder: &mut Decoder, frame: &Frame) -> Option<Frame> {
    stream.write_all(&bytes_of(frame)).expect("it reads");
    stream.set_read_timeout(Some(wait::HANG)).expect("a limit");
    loop {
        if let Some(frame) = decoder.next().expect("a frame") {
            return Some(frame);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(read) => decoder.back().extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

#[test]
fn a_holder_of_the_key_with_an_older_version_or_the_id_of_another_is_no_member() {
    let text = new_key();
    let cluster = Cluster::start_with(3, &text, Leases::Long, &mut Rng::new("borrowed ids", 12));
    let key = Keyring::parse(&text).expect("a key").first().clone();
    let victim = &cluster.peers[0];
    let view = Attacks::seen_by(victim, &cluster.name, Some(&text));
    let identity = &StaticKey::new([7; 32]);
    let older = Versions { lowest: 1, highest: VERSIONS.lowest - 1 };
    let begin = |versions| {
        let name = cluster.name.as_str();
        let setup = HandshakeSetup { cluster: name, versions, identity, entropy: [8; 32] };
        let (initiator, initiate) = Initiator::start(&key, &setup).expect("a good name");
        let mut stream = TcpStream::connect(&victim.addr).expect("it listens");
        let mut decoder = Decoder::new();
        let answer = answer_to(&mut stream, &mut decoder, &Frame::Initiate(initiate));
        (initiator, stream, decoder, answer)
    };
    let (.., answer) = begin(older);
    assert_eq!(answer, Some(Frame::Refused(HandshakeRefusal::Versions(VERSIONS))));
    for member in &view.members {
        let (initiator, mut stream, mut decoder, answer) = begin(VERSIONS);
        let Some(Frame::Respond(respond)) = answer else { panic!("{answer:?}") };
        let static_key = Some(identity.public());
        let me = MemberInfo { static_key, ..member.info.clone() };
        let (_, confirm) = initiator.finish(&respond, &Purpose::Member(me)).expect("it fits");
        let answer = answer_to(&mut stream, &mut decoder, &Frame::Confirm(confirm));
        assert_eq!(answer, None, "the connection is closed");
    }
    let counted = victim.ask("counters").expect("it counts");
    assert_eq!(counted.split(' ').nth(1), Some("3"), "impostors: {counted}");
    assert_undisturbed(&cluster.peers);
    cluster.agree();
}
