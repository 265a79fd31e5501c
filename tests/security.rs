//! Members with a cluster key, as real processes, and attackers that have another key or none.
#![cfg(feature = "secure")]

mod support;

use elderlock::protocol::{Host, Notice, Packet, ViewNumber};
use elderlock::wire::secure::{HandshakeSetup, Initiator, StaticKey, VERSIONS};
use elderlock::wire::{Frame, Handshake, StatusQuery, encode};
use elderlock::{
    ClusterKey, JoinError, Keyring, Member, MemberInfo, ProcessId, QueryError, Timing,
};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::cluster::{Cluster, agree};
use support::process::{Peer, Process};
use support::rng::Rng;
use support::{child, ports, wait};

/// Not a test, see `tests/README.md`.
#[test]
fn child_member() {
    child::serve();
}

/// How long the load runs before and during each step.
const STEP: Duration = Duration::from_millis(700);

fn new_key() -> String {
    ClusterKey::generate().expect("random bytes").to_base64().to_string()
}

/// Takes and releases locks at all members without a pause, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    tasks: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    /// A lock of its own for each member, and one for all.
    fn start(peers: &[Peer]) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = peers.iter().enumerate().map(|(number, peer)| {
            let (peer, stop, done) = (peer.clone(), stop.clone(), done.clone());
            std::thread::spawn(move || {
                for turn in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let own = format!("own-{number}");
                    let name = if turn.is_multiple_of(2) { "shared" } else { own.as_str() };
                    let grant = peer.lock("stock", name);
                    peer.release(&grant).expect("a lock that is held is released");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let tasks = tasks.collect();
        Load { stop, done, tasks }
    }

    /// Waits until so many more locks were taken.
    fn until_more(&self, count: u64) {
        let wanted = self.done.load(Ordering::Relaxed) + count;
        wait::until("locks are taken", || {
            let done = self.done.load(Ordering::Relaxed);
            if done >= wanted { Ok(()) } else { Err(format!("{done} of {wanted}")) }
        });
    }

    /// Ends it; fails if a lock has failed.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.into_iter().for_each(|task| task.join().expect("no lock failed"));
        self.done.load(Ordering::Relaxed)
    }
}

fn is_undisturbed(peers: &[Peer]) {
    for peer in peers {
        let events = peer.events();
        let bad = ["suspended", "lost", "guard-lost", "rejoined"];
        let is_bad = |event: &&String| bad.iter().any(|word| event.starts_with(word));
        assert_eq!(events.iter().find(is_bad), None, "{} was disturbed: {events:#?}", peer.addr);
    }
}

#[test]
fn keys_are_rotated_under_load_without_a_failed_lock_and_the_old_key_is_refused() {
    let mut rng = Rng::new("rotation", 1);
    let (old, new) = (new_key(), new_key());
    let cluster = Cluster::start_with(3, &old, &mut rng);
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
    is_undisturbed(&cluster.peers);
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

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_wrong_key_a_wrong_cluster_and_no_key_are_each_told_to_the_joiner() {
    let mut rng = Rng::new("mismatches", 2);
    let key = new_key();
    let cluster = Cluster::start_with(3, &key, &mut rng);
    let runtime = runtime();
    let join = |name: &str, key: Option<&str>| {
        let mut builder = Member::builder(name).seeds(&cluster.seeds).timing(Timing::fast());
        if let Some(key) = key {
            builder = builder.keyring(Keyring::parse(key).expect("a key"));
        }
        match runtime.block_on(builder.join_limit(Duration::from_secs(2)).join()) {
            Err(error @ JoinError::NoCluster { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let says = |text: String, why: &str| assert!(text.contains(why), "{text}");
    says(join(&cluster.name, Some(&new_key())), "does not have the key");
    says(join("another", Some(&key)), "cluster of another name");
    says(join(&cluster.name, None), "speaks only to processes with the cluster key");
    let ring = Keyring::parse(&key).expect("a key");
    let insecure = Member::builder("x").found().insecure().keyring(ring.clone());
    assert!(matches!(runtime.block_on(insecure.join()), Err(JoinError::InsecureWithKey)));
    is_undisturbed(&cluster.peers);
    // With the key it joins.
    let member = Member::builder(&cluster.name).seeds(&cluster.seeds).keyring(ring);
    let member = runtime.block_on(member.timing(Timing::fast()).join()).expect("it joins");
    runtime.block_on(member.leave()).expect("it is heard");
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes).expect("it can be written");
    bytes
}

/// The packets of an attacker without the key, also after a handshake without a key.
fn attacks(cluster: &str, victim: &Peer) -> Vec<Vec<u8>> {
    let seen = victim.status();
    let id = |text: &str| ProcessId(u128::from_str_radix(text, 16).expect("an id"));
    let addr: SocketAddr = victim.addr.parse().expect("an address");
    let hello = |process| {
        let host = Some(Host { boot: 1, namespace: 1, pid: 1, started: 1 });
        let me = MemberInfo { process, addr, host };
        bytes_of(&Frame::Hello(Box::new(Handshake {
            cluster: cluster.to_owned(),
            me,
            reserved: Vec::new(),
        })))
    };
    let mut packets = vec![
        bytes_of(&Frame::Packet(Packet::from(Notice::Leave))),
        bytes_of(&Frame::Packet(Packet::Ack {
            view: ViewNumber(u64::from(u32::MAX)),
            ack: 9,
            again: true,
        })),
        bytes_of(&Frame::Gossip(vec![7; 1000])),
        bytes_of(&Frame::Question(StatusQuery {
            cluster: cluster.to_owned(),
            reserved: Vec::new(),
        })),
        // A frame of 4 MiB that begins and does not end.
        [&(4_u32 * 1024 * 1024).to_be_bytes()[..], &[3; 4000]].concat(),
        vec![0xff; 64],
    ];
    // Borrowed ids of all members, each followed by all of that.
    let all = packets.concat();
    packets.extend(
        seen.members.iter().map(|(process, ..)| [hello(id(process)), all.clone()].concat()),
    );
    packets.extend((0..4).map(|number| [hello(ProcessId(number + 1)), all.clone()].concat()));
    // A handshake under another key, whole and cut.
    let identity = &StaticKey::new([1; 32]);
    let setup = HandshakeSetup { cluster, versions: VERSIONS, identity, entropy: [2; 32] };
    let other = ClusterKey::generate().expect("random bytes");
    let (_, initiate) = Initiator::start(&other, &setup).expect("a good name");
    let initiate = bytes_of(&Frame::Initiate(initiate));
    packets.push(initiate[..initiate.len() / 2].to_vec());
    packets.push([initiate.clone(), initiate].concat());
    packets
}

#[test]
fn attackers_without_the_key_change_nothing_and_take_no_lock() {
    let mut rng = Rng::new("attacks", 3);
    let cluster = Cluster::start_with(3, &new_key(), &mut rng);
    let held =
        (0..).zip(&cluster.peers).map(|(number, peer)| peer.lock("held", &format!("{number}")));
    let held: Vec<_> = held.collect();
    let before: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    let load = Load::start(&cluster.peers);
    load.until_more(20);
    let end = Instant::now() + 4 * STEP;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    while Instant::now() < end {
        for peer in &cluster.peers {
            for attack in attacks(&cluster.name, peer) {
                let Ok(mut stream) = TcpStream::connect(&peer.addr) else { continue };
                let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
                let _ = stream.write_all(&attack);
                let _ = stream.read(&mut [0; 512]);
                let _ = socket.send_to(&attack[..attack.len().min(1000)], &peer.addr);
            }
        }
    }
    load.until_more(20);
    load.stop();
    for (peer, grant) in cluster.peers.iter().zip(&held) {
        assert_eq!(peer.fence(grant), Ok(grant.token));
        let counted = peer.ask("counters").expect("it counts");
        let refused: u64 =
            counted.split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
        assert!(refused >= 10, "{counted}");
    }
    is_undisturbed(&cluster.peers);
    let after: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    assert_eq!(after, before, "the view is the same");
}

#[test]
fn crowds_of_strangers_stay_within_bounds_and_a_new_member_joins() {
    let mut rng = Rng::new("crowds", 4);
    let key = new_key();
    let cluster = Cluster::start_with(3, &key, &mut rng);
    let memory = || cluster.peers.iter().map(|peer| peer.process.memory()).collect::<Vec<_>>();
    let load = Load::start(&cluster.peers);
    load.until_more(50);
    let before = memory();
    // Connections that stay silent, or begin a frame and do not end it, or read no answer.
    let mut crowd = Vec::new();
    for number in 0..900_usize {
        let peer = &cluster.peers[number % 3];
        let Ok(mut stream) = TcpStream::connect(&peer.addr) else { continue };
        let _ = match number / 3 % 3 {
            0 => Ok(()),
            1 => stream.write_all(&[&(4_u32 * 1024 * 1024).to_be_bytes()[..], &[3; 3000]].concat()),
            _ => stream.write_all(&vec![0; 4000]),
        };
        crowd.push(stream);
    }
    let started = Instant::now();
    let addr = ports::free(1)[0].to_string();
    let newcomer = Peer { process: Process::start(3, None), index: 0, addr };
    let joined = newcomer.ask(&format!(
        "join cluster={} bind={} seeds={} keys={key}",
        cluster.name,
        newcomer.addr,
        cluster.seeds.join(",")
    ));
    joined.expect("it joins beside the crowd");
    println!("a fourth member joined after {:?}", started.elapsed());
    load.until_more(50);
    load.stop();
    for (before, after) in before.iter().zip(memory()) {
        assert!(after < before + 128 * 1024, "{before} KiB have become {after} KiB");
    }
    is_undisturbed(&cluster.peers);
    let mut all: Vec<&Peer> = cluster.peers.iter().collect();
    all.push(&newcomer);
    agree(&all);
    drop(crowd);
}

#[test]
fn a_member_that_dies_is_followed_as_without_a_key() {
    let mut rng = Rng::new("death", 5);
    let cluster = Cluster::start_with(4, &new_key(), &mut rng);
    let elder = cluster.agree();
    let grant = cluster.peers[elder].lock("stock", "last");
    let other = &cluster.peers[(elder + 1) % 4];
    let waiting = other.begin_lock("stock", "last");
    cluster.peers[elder].until_waiting("stock", "last", 1);
    cluster.peers[elder].process.kill();
    let text = waiting.wait().expect("the next waiter has it");
    assert!(support::process::Grant::read(&text).token > grant.token);
    cluster.agree();
}
