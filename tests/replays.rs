//! Recorded traffic of members, sent again to real processes.
#![cfg(feature = "secure")]

mod support;

use elderlock::wire::secure::DATAGRAM_NUMBER;
use elderlock::{ClusterKey, Counters, Keyring, Member};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::cluster::Cluster;
use support::leases::Leases;
use support::rng::Rng;
use support::{child, ports, wait};

/// Not a test: the program of a child process, see `tests/README.md`.
#[test]
fn child_member() {
    child::serve();
}

/// The bytes of one connection in both directions, in the pieces in which a tap read them.
#[derive(Clone, Default)]
struct Recording {
    written: Vec<Vec<u8>>,
    answered: Vec<Vec<u8>>,
}

/// A proxy that passes connections and datagrams on and records them.
struct Tap {
    addr: SocketAddr,
    connections: Arc<Mutex<Vec<Recording>>>,
    datagrams: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Tap {
    /// A proxy in front of this address.
    fn before(to: SocketAddr) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let socket = UdpSocket::bind(addr).expect("the port is free for datagrams");
        let tap = Tap { addr, connections: Arc::default(), datagrams: Arc::default() };
        let connections = tap.connections.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(to) else { continue };
                let mut all = connections.lock().unwrap();
                let number = all.len();
                all.push(Recording::default());
                drop(all);
                pass_on(&near, &far, (&connections, number), |of| &mut of.written);
                pass_on(&far, &near, (&connections, number), |of| &mut of.answered);
            }
        });
        let datagrams = tap.datagrams.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((length, _)) = socket.recv_from(&mut bytes) {
                datagrams.lock().unwrap().push(bytes[..length].to_vec());
                let _ = socket.send_to(&bytes[..length], to);
            }
        });
        tap
    }

    fn datagrams(&self) -> Vec<Vec<u8>> {
        self.datagrams.lock().unwrap().clone()
    }
}

/// Passes one direction of a connection on, and records it.
fn pass_on(
    from: &TcpStream,
    to: &TcpStream,
    (connections, number): (&Arc<Mutex<Vec<Recording>>>, usize),
    side: fn(&mut Recording) -> &mut Vec<Vec<u8>>,
) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let connections = connections.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            side(&mut connections.lock().unwrap()[number]).push(bytes[..length].to_vec());
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// The pieces of a session as an attacker sends them again.
fn replays(pieces: &[Vec<u8>], rng: &mut Rng) -> Vec<Vec<u8>> {
    let whole = pieces.concat();
    let mut all = vec![whole.clone()];
    // Cut pieces: the end is missing, or the beginning.
    all.extend((1..pieces.len().min(8)).map(|at| pieces[..at].concat()));
    all.extend((1..pieces.len().min(8)).map(|at| pieces[at..].concat()));
    all.extend((0..8).map(|_| whole[..rng.below(whole.len() as u64) as usize].to_vec()));
    // One bit is flipped.
    all.extend((0..24).map(|_| {
        let mut flipped = whole.clone();
        flipped[rng.below(whole.len() as u64) as usize] ^= 1 << rng.below(8);
        flipped
    }));
    // Doubled pieces: the whole, and each piece.
    all.push(whole.repeat(2));
    all.push(pieces.iter().flat_map(|piece| piece.repeat(2)).collect());
    // The pieces are shuffled.
    all.extend((0..8).map(|_| {
        let mut shuffled = pieces.to_vec();
        rng.shuffle(&mut shuffled);
        shuffled.concat()
    }));
    all
}

/// How long an attacker waits for more than the answer to its first packet. A member that believed
/// a replayed connection would use it sooner, for one to renew a lease.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// Sends each replay to a member, 16 at a time. No answer may have more than `most` bytes.
fn are_refused(addr: &str, replays: &[Vec<u8>], most: usize) {
    for some in replays.chunks(16) {
        std::thread::scope(|scope| {
            for bytes in some {
                scope.spawn(move || {
                    let length = answered(addr, bytes);
                    assert!(length <= most, "{addr} answers a replay with {length} bytes");
                });
            }
        });
    }
}

/// Writes these bytes to a member. Returns the number of bytes that come back until it ends the
/// connection.
fn answered(addr: &str, bytes: &[u8]) -> usize {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(wait::HANG)).expect("a limit");
    let mut back = Vec::new();
    // A member that has refused the first packet may close before the last one is written.
    if stream.write_all(bytes).is_ok() {
        std::thread::sleep(ANSWER_LIMIT);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut back);
    }
    back.len()
}

#[test]
fn recorded_sessions_and_datagrams_are_taken_by_no_member_whole_or_changed() {
    let mut rng = Rng::new("replays", 1);
    let key = ClusterKey::generate().expect("random bytes").to_base64().to_string();
    let cluster = Cluster::start_with(3, &key, Leases::Long, &mut rng);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // A fourth member. The taps record its connection to the first member, and all that reaches it.
    let bind = ports::free(1)[0];
    let (out, back) = (Tap::before(cluster.seeds[0].parse().unwrap()), Tap::before(bind));
    let joined = runtime.block_on(async {
        let member = Member::builder(&cluster.name)
            .seeds(&[out.addr.to_string()])
            .bind(bind.to_string())
            .advertise(back.addr.to_string())
            .keyring(Keyring::parse(&key).expect("a key"))
            .timing(Leases::Long.timing())
            .join_limit(wait::HANG);
        let member = member.join().await.expect("it joins through the tap");
        let stock = member.lock_service("stock").await.expect("a good name");
        for number in 0..20 {
            drop(stock.lock(format!("early-{number}")).await.expect("it is free"));
        }
        let guard = stock.lock("held").await.expect("it is free");
        (member, guard)
    });
    let (member, guard) = &joined;
    wait::until("datagrams are recorded", || match back.datagrams().len() {
        16.. => Ok(()),
        count => Err(format!("{count}")),
    });
    let views = || cluster.peers.iter().map(|peer| peer.status().view).collect::<Vec<_>>();
    let before = views();

    let sessions = out.connections.lock().unwrap().clone();
    let session = sessions.iter().max_by_key(|of| of.written.concat().len()).expect("it dialled");
    assert!(session.written.len() > 2, "a handshake and records");
    // A replay may be answered with at most the listener's first packet.
    let most = session.answered[0].len();
    for peer in &cluster.peers {
        are_refused(&peer.addr, &replays(&session.written, &mut rng), most);
    }
    // The connections of the other members to the fourth member, in the same way. None of the
    // replays may be refused because the member is busy: that would be no judgement of it.
    let out_of_room = || member.counters().busy + member.counters().evicted;
    let were_out_of_room = out_of_room();
    let sessions = back.connections.lock().unwrap().clone();
    for session in sessions.iter().filter(|of| of.written.len() > 1 && !of.answered.is_empty()) {
        let replays = replays(&session.written, &mut rng);
        are_refused(&bind.to_string(), &replays, session.answered[0].len());
    }
    assert_eq!(out_of_room(), were_out_of_room);
    assert!(guard.fence().is_ok(), "the hold goes on");

    // Each datagram is sent again. Then changed datagrams with high numbers are sent.
    let counts = |of: fn(Counters) -> u64| of(member.counters());
    let (repeated, forged) = (counts(|of| of.repeated), counts(|of| of.forged));
    let attacker = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let recorded = back.datagrams();
    let sealed: Vec<_> =
        recorded.iter().filter(|bytes| bytes.len() > DATAGRAM_NUMBER.end + 16).collect();
    for bytes in &sealed {
        attacker.send_to(bytes, bind).expect("the loopback");
    }
    wait::until("all are refused as repeated", || {
        let refused = counts(|of| of.repeated) - repeated;
        if refused >= sealed.len() as u64 { Ok(()) } else { Err(format!("{refused}")) }
    });
    for bytes in &sealed {
        let mut high = bytes.to_vec();
        high[DATAGRAM_NUMBER].fill(0x7f);
        attacker.send_to(&high, bind).expect("the loopback");
    }
    wait::until("all are refused as forged", || {
        let refused = counts(|of| of.forged) - forged;
        if refused >= sealed.len() as u64 { Ok(()) } else { Err(format!("{refused}")) }
    });
    // The window has not moved: further datagrams of members are accepted.
    let (repeated, taken) = (counts(|of| of.repeated), counts(|of| of.datagrams_in));
    wait::until("datagrams are taken", || {
        let more = counts(|of| of.datagrams_in) - taken;
        if more >= 8 { Ok(()) } else { Err(format!("{more}")) }
    });
    assert_eq!(counts(|of| of.repeated), repeated);
    assert_eq!(views(), before, "the view is the same");
    assert!(guard.fence().is_ok(), "the hold goes on");
    runtime.block_on(member.leave()).expect("it is heard");
}
