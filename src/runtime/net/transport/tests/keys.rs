//! Transports with a cluster key.

use super::*;
use crate::protocol::Versions;
use crate::protocol::{Slot, Timing, View};
use crate::runtime::net::security::entropy;
use crate::runtime::net::transport_state::{ANSWERS_A_SECOND, MOST_ANSWERS};
use crate::runtime::{OrderReports, QueryError, query_status_with};
use crate::wire::secure::{
    ClusterKey, HandshakeSetup, Initiator, Keyring, OpenedDatagram, Purpose, Responder,
    SealedGossip, Sealer, Session, StaticKey,
};
use crate::wire::{
    GOSSIP_VERSION, HandshakeRefusal, MAX_HELLO, Order, OrderReport, PROTOCOL_VERSION, Role,
    VERSIONS,
};
use std::net::SocketAddr;
use tokio::net::TcpListener;

fn key(seed: u8) -> ClusterKey {
    let mut bytes = [seed; 32];
    bytes[0] = !seed;
    ClusterKey::from_bytes(&bytes).unwrap()
}

fn ring(keys: &[u8]) -> Keyring {
    let (first, more) = keys.split_first().unwrap();
    more.iter().fold(Keyring::new(key(*first)), |ring, seed| ring.with(key(*seed)).unwrap())
}

async fn keyed(cluster: &str, keys: &[u8]) -> TestPeer {
    let options = TransportOptions {
        keyring: Some(ring(keys)),
        ..TransportOptions::new(cluster, "127.0.0.1:0")
    };
    let transport = Arc::new(Transport::bind(options).await.expect("it can be bound"));
    let (process, static_key) = transport.draw_identity().expect("random bytes");
    let me = MemberInfo { static_key, ..MemberInfo::new(process, transport.advertised()) };
    let letters = Arc::new(Letters::default());
    transport.start(letters.clone(), me.clone());
    TestPeer { transport, letters, me }
}

/// Lets one dial to `other` fail, and returns the recorded reason.
async fn refused(peer: &TestPeer, other: &TestPeer) -> String {
    peer.send(other, numbered(1));
    peer.letters.hint(Hint::Unreachable(other.me.process)).await;
    assert!(numbers(&other.letters.inputs.lock().unwrap(), peer.me.process).is_empty());
    peer.transport.last_error(other.me.addr).expect("it has failed")
}

#[tokio::test]
async fn members_with_the_key_exchange_thousands_both_ways() {
    let (a, b) = (keyed("shop", &[1]).await, keyed("shop", &[2, 1]).await);
    b.letters.answers.store(true, Ordering::Relaxed);
    a.meet(&b).await;
    for seq in 1..3000 {
        a.send(&b, numbered(seq));
        b.send(&a, numbered(seq));
        if seq % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for (at, from) in [(&a, &b), (&b, &a)] {
        let arrived = at.letters.until(|inputs| {
            let numbers = numbers(inputs, from.me.process);
            (numbers.last() == Some(&2999)).then_some(numbers)
        });
        let arrived = arrived.await;
        assert!(arrived.windows(2).all(|pair| pair[0] < pair[1]), "in order and once");
        assert_eq!(at.transport.counters().forged, 0);
    }
}

#[tokio::test]
async fn each_side_says_what_does_not_fit() {
    let b = keyed("shop", &[1]).await;
    let text = refused(&keyed("shop", &[9]).await, &b).await;
    assert!(text.contains("does not have the key"), "{text}");
    assert_eq!(b.transport.counters().unknown_key, 1);
    let text = refused(&keyed("shed", &[1]).await, &b).await;
    assert!(text.contains("cluster of another name"), "{text}");
    assert_eq!(b.transport.counters().foreign_cluster, 1);
    let keyless = TestPeer::new(5).await;
    let text = refused(&keyed("shop", &[1]).await, &keyless).await;
    assert!(text.contains("it has no cluster key"), "{text}");
    keyless.send(&b, numbered(1));
    keyless.letters.hint(Hint::Replaced(b.me.process)).await;
    let text = keyless.transport.last_error(b.me.addr).expect("it has failed");
    assert!(text.contains("speaks only to processes with the cluster key"), "{text}");
    assert_eq!(b.transport.counters().keyless, 1);
}

#[tokio::test]
async fn an_order_ends_when_its_key_is_removed() {
    let b = keyed("shop", &[1, 2]).await;
    b.letters.waits_with_orders.store(true, Ordering::Relaxed);
    let mut old = give(&b, key(1), Order::Leave).await.expect("it is given");
    let mut new = give(&b, key(2), Order::Leave).await.expect("it is given");
    until("both are carried out", || b.transport.counters().orders == 2).await;
    assert_eq!(b.transport.set_keyring(ring(&[2])), Some(1));
    let ended = tokio::time::timeout(GUARD, old.next()).await.expect("it ends");
    assert!(matches!(ended, Err(QueryError::Closed { .. })), "{ended:?}");
    let next = tokio::time::timeout(Duration::from_millis(20), new.next()).await;
    assert!(next.is_err(), "it goes on: {next:?}");
}

#[tokio::test]
async fn a_status_is_told_to_holders_of_the_key_alone() {
    let b = keyed("shop", &[1]).await;
    let addr = b.me.addr.to_string();
    let status = query_status_with(&addr, "shop", &ring(&[1])).await.expect("it answers");
    assert_eq!(status.me.process, ProcessId(7));
    for (cluster, keys, why) in
        [("shop", [9], "does not have the key"), ("shed", [1], "another name")]
    {
        let error = query_status_with(&addr, cluster, &ring(&keys)).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = query_status(&addr, "shop").await.unwrap_err().to_string();
    assert!(error.contains("speaks only to processes with the cluster key"), "{error}");
}

/// A connection of an attacker.
struct Attacker {
    stream: TcpStream,
    decoder: Decoder,
}

impl Attacker {
    async fn dial(addr: SocketAddr) -> Attacker {
        Attacker {
            stream: TcpStream::connect(addr).await.expect("it listens"),
            decoder: Decoder::new(),
        }
    }

    async fn write(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        wire::encode(frame, PROTOCOL_VERSION, &mut bytes).unwrap();
        let _ = self.stream.write_all(&bytes).await;
    }

    /// The next frame of a handshake; `None` at the end.
    async fn read(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next().expect("a frame") {
                return Some(frame);
            }
            let read = tokio::time::timeout(GUARD, self.stream.read_buf(self.decoder.back()));
            if !matches!(read.await.expect("an answer or the end"), Ok(1..)) {
                return None;
            }
        }
    }

    /// Shakes hands with the key 1 as `info`. Returns this side's session and packets.
    async fn shake(&mut self, identity: &StaticKey, info: MemberInfo) -> (Session, Vec<Frame>) {
        self.shake_under(&key(1), identity, Purpose::Member(info)).await
    }

    async fn shake_under(
        &mut self,
        key: &ClusterKey,
        identity: &StaticKey,
        purpose: Purpose,
    ) -> (Session, Vec<Frame>) {
        let setup = HandshakeSetup {
            cluster: "shop",
            versions: VERSIONS,
            identity,
            entropy: *entropy().unwrap(),
        };
        let (initiator, initiate) = Initiator::start(key, &setup).unwrap();
        let initiate = Frame::Initiate(initiate);
        self.write(&initiate).await;
        let Some(Frame::Respond(respond)) = self.read().await else { panic!("no answer") };
        let (session, confirm) = initiator.finish(&respond, &purpose).unwrap();
        let confirm = Frame::Confirm(confirm);
        self.write(&confirm).await;
        (session, vec![initiate, confirm])
    }
}

/// A process with this key that claims this id.
fn attacker_info(identity: &StaticKey, process: ProcessId) -> MemberInfo {
    let static_key = Some(identity.public());
    MemberInfo { static_key, ..MemberInfo::new(process, ([127, 0, 0, 1], 9).into()) }
}

fn sealed(sealer: &mut Sealer, packet: Packet) -> Vec<u8> {
    let (mut frame, mut records) = (Vec::new(), Vec::new());
    wire::encode(&Frame::Packet(packet), PROTOCOL_VERSION, &mut frame).unwrap();
    sealer.seal(&frame, &mut records).unwrap();
    records
}

#[tokio::test]
async fn a_borrowed_id_with_the_right_key_is_refused() {
    let (a, b) = (keyed("shop", &[1]).await, keyed("shop", &[1]).await);
    let mut attacker = Attacker::dial(b.me.addr).await;
    let identity = StaticKey::new([5; 32]);
    attacker.shake(&identity, attacker_info(&identity, a.me.process)).await;
    assert_eq!(attacker.read().await, None, "the connection is closed");
    assert_eq!(b.transport.counters().impostors, 1);
    let is_connected =
        |inputs: &[Input]| inputs.contains(&Input::Hint(Hint::Connected(a.me.process)));
    assert!(!is_connected(&b.letters.inputs.lock().unwrap()));
}

/// The key is removed between the handshake and the use of the connection.
#[tokio::test]
async fn a_dial_under_a_key_that_is_removed_meanwhile_has_failed() {
    let a = keyed("shop", &[1]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let identity = StaticKey::new([5; 32]);
    let info = MemberInfo { addr, ..attacker_info(&identity, identity.process()) };
    a.transport.send(addr, Some(info.process), numbered(1));
    a.transport.flush(false);
    let (stream, _) = listener.accept().await.expect("it dials");
    let mut responder = Attacker { stream, decoder: Decoder::new() };
    let Some(Frame::Initiate(initiate)) = responder.read().await else { panic!("no handshake") };
    let setup = HandshakeSetup {
        cluster: "shop",
        versions: VERSIONS,
        identity: &identity,
        entropy: *entropy().unwrap(),
    };
    let (_, respond) = Responder::answer(&ring(&[1]), &setup, &info, &initiate).unwrap();
    a.transport.set_keyring(ring(&[2])).expect("it has a key");
    responder.write(&Frame::Respond(respond)).await;
    a.letters.hint(Hint::Unreachable(info.process)).await;
    // So the next packet dials once more.
    a.transport.send(addr, Some(info.process), numbered(2));
    a.transport.flush(false);
    let accepted = tokio::time::timeout(GUARD, listener.accept()).await;
    accepted.expect("it dials again").expect("a connection");
}

/// The relayed packets that have come.
fn relayed(inputs: &[Input]) -> Vec<Packet> {
    let packet = |input: &Input| match input {
        Input::Received { packet, .. } if matches!(packet, Packet::Relay { .. }) => {
            Some(packet.clone())
        }
        _ => None,
    };
    inputs.iter().filter_map(packet).collect()
}

#[tokio::test]
async fn a_relay_passes_on_what_it_cannot_read_or_change() {
    let (a, relay, b) =
        (keyed("shop", &[1]).await, keyed("shop", &[1]).await, keyed("shop", &[1]).await);
    let members = [&a, &relay, &b].map(|peer| peer.me.clone()).to_vec();
    let view = View::first(Slot(9), members, Timing::fast(), 7);
    [&a, &relay, &b].iter().for_each(|peer| peer.transport.installed(&view));
    let plain = |from: &TestPeer, seq: u64| {
        let (from, packet) = (Box::new(from.me.clone()), Box::new(numbered(seq)));
        Packet::Relay { from, to: b.me.process, troubled: false, heard: None, packet }
    };
    a.send(&relay, plain(&a, 7));
    let sealed = relay.letters.until(|inputs| relayed(inputs).pop()).await;
    let Packet::Relay { packet, .. } = &sealed else { panic!("{sealed:?}") };
    assert!(matches!(**packet, Packet::Sealed { is_notice: false, .. }), "{sealed:?}");

    // A packet that the relay has changed, or made in the name of the other member, is refused. The
    // connection lives.
    let mut changed = sealed.clone();
    if let Packet::Relay { troubled, .. } = &mut changed {
        *troubled = true;
    }
    relay.send(&b, changed);
    relay.send(&b, plain(&a, 8));
    relay.send(&b, sealed.clone());
    relay.send(&b, sealed);
    relay.send(&b, numbered(9));
    b.letters.until(|inputs| numbers(inputs, relay.me.process).pop()).await;
    assert_eq!(relayed(&b.letters.inputs.lock().unwrap()), [plain(&a, 7)]);
    let counters = b.transport.counters();
    assert_eq!((counters.forged, counters.repeated), (2, 1));
    // A packet of the relay's own is accepted.
    relay.send(&b, plain(&relay, 10));
    b.letters.until(|inputs| (relayed(inputs).len() == 2).then_some(())).await;
}

#[tokio::test]
async fn an_observer_and_an_operator_are_told_the_status_and_refused_as_members() {
    let b = keyed("shop", &[1]).await;
    for (refused, role) in [(1, Role::Observer), (2, Role::Operator)] {
        let derived = key(1).derive(role).unwrap();
        let ring = Keyring::new(derived.clone());
        let status = query_status_with(&b.me.addr.to_string(), "shop", &ring).await;
        assert_eq!(status.expect("it answers").me.process, ProcessId(7));
        let identity = StaticKey::new([5; 32]);
        let mut attacker = Attacker::dial(b.me.addr).await;
        let purpose = Purpose::Member(attacker_info(&identity, identity.process()));
        attacker.shake_under(&derived, &identity, purpose).await;
        assert_eq!(attacker.read().await, Some(Frame::Refused(HandshakeRefusal::Role(role))));
        assert_eq!(attacker.read().await, None, "the connection is closed");
        assert_eq!(b.transport.counters().above_role, refused);
        assert_eq!(b.letters.count(&Input::Hint(Hint::Connected(identity.process()))), 0);
    }
}

#[tokio::test]
async fn an_order_under_an_observer_key_is_refused_and_not_carried_out() {
    let b = keyed("shop", &[1]).await;
    let observer = key(1).derive(Role::Observer).unwrap();
    let mut attacker = Attacker::dial(b.me.addr).await;
    attacker.shake_under(&observer, &StaticKey::new([5; 32]), Purpose::Order).await;
    let refusal = HandshakeRefusal::Role(Role::Observer);
    assert_eq!(attacker.read().await, Some(Frame::Refused(refusal)));
    assert_eq!(attacker.read().await, None, "the connection is closed");
    let counters = b.transport.counters();
    assert_eq!((counters.above_role, counters.orders), (1, 0));
    // The operator's own side refuses at once.
    let asked = give(&b, observer, Order::Leave).await;
    let error = asked.expect_err("it is refused").to_string();
    assert!(error.contains("an observer key: it may ask for the status"), "{error}");
}

async fn give(peer: &TestPeer, key: ClusterKey, order: Order) -> Result<OrderReports, QueryError> {
    let addr = peer.me.addr.to_string();
    crate::runtime::give_order_with(&addr, "shop", &Keyring::new(key), order).await
}

#[tokio::test]
async fn an_order_reaches_the_member_under_an_operator_key_and_under_the_cluster_key() {
    let b = keyed("shop", &[1]).await;
    for role in [Role::Operator, Role::Member] {
        let mut reports =
            give(&b, key(1).derive(role).unwrap(), Order::Leave).await.expect("it is given");
        let report = reports.next().await.expect("it is told");
        // This member has no engine.
        let expected = "no member carries out leave here".to_owned();
        assert_eq!(report, Some(OrderReport::Failed(expected)));
        assert_eq!(reports.next().await.expect("it is over"), None);
    }
    let mut forced = give(&b, key(1), Order::Force).await.expect("it is given");
    assert!(forced.next().await.expect("it is told").is_some());
    let counters = b.transport.counters();
    assert_eq!((counters.orders, counters.forced_orders, counters.connected), (3, 1, 0));
    keyed("shop", &[1]).await.meet(&b).await;
    assert_eq!(b.transport.counters().connected, 1);
}

#[tokio::test]
async fn an_order_of_another_cluster_or_without_the_key_is_not_carried_out() {
    let b = keyed("shop", &[1]).await;
    let addr = b.me.addr.to_string();
    let without = crate::runtime::give_order(&addr, "shop", Order::Leave).await;
    let error = without.expect("it was sent").next().await.expect_err("it is refused");
    assert!(error.to_string().contains("give this process the key file"), "{error}");
    let other = key(2).derive(Role::Operator).unwrap();
    let error = give(&b, other, Order::Leave).await.expect_err("it is refused");
    assert!(error.to_string().contains("does not have the key"), "{error}");
    assert_eq!(b.transport.counters().orders, 0);
}

#[tokio::test]
async fn the_warnings_about_impostors_are_rate_limited() {
    let b = keyed("shop", &[1]).await;
    let began = Instant::now();
    for seed in 1..30 {
        let mut attacker = Attacker::dial(b.me.addr).await;
        let identity = StaticKey::new([seed; 32]);
        attacker.shake(&identity, attacker_info(&identity, ProcessId(9))).await;
        assert_eq!(attacker.read().await, None, "the connection is closed");
    }
    assert_eq!(b.transport.counters().impostors, 29);
    // These packets have used up the log lines that other processes may cause in a row. Each second
    // gives back one of them.
    let may_warn = || b.transport.shared.reception.may_warn().is_some();
    let left = (0..100).take_while(|_| may_warn()).count() as u64;
    let gained = began.elapsed().as_secs() + 1;
    assert!(left <= gained, "{left} lines are left");
}

#[tokio::test]
async fn an_older_version_under_the_right_key_is_told_which_one_is_spoken() {
    let b = keyed("shop", &[1]).await;
    let older = Versions { lowest: 1, highest: VERSIONS.lowest - 1 };
    let identity = &StaticKey::new([5; 32]);
    let setup =
        HandshakeSetup { cluster: "shop", versions: older, identity, entropy: *entropy().unwrap() };
    let (_, initiate) = Initiator::start(&key(1), &setup).unwrap();
    let mut attacker = Attacker::dial(b.me.addr).await;
    attacker.write(&Frame::Initiate(initiate)).await;
    let refusal = HandshakeRefusal::Versions(VERSIONS);
    assert_eq!(attacker.read().await, Some(Frame::Refused(refusal)));
    assert_eq!(b.transport.counters().other_version, 1);
}

#[tokio::test]
async fn a_recorded_session_replayed_whole_cut_flipped_doubled_or_shuffled_adopts_nothing() {
    let b = keyed("shop", &[1]).await;
    let identity = StaticKey::new([5; 32]);
    let mut attacker = Attacker::dial(b.me.addr).await;
    let (mut session, mut packets) =
        attacker.shake(&identity, attacker_info(&identity, identity.process())).await;
    let records = sealed(&mut session.sealer, numbered(1));
    attacker.stream.write_all(&records).await.unwrap();
    b.letters.until(|inputs| (!numbers(inputs, identity.process()).is_empty()).then_some(())).await;
    drop(attacker);
    let adopted = b.letters.count(&Input::Hint(Hint::Connected(identity.process())));
    assert_eq!(adopted, 1);

    let whole = |packets: &[Frame]| {
        let mut bytes = Vec::new();
        packets
            .iter()
            .for_each(|packet| wire::encode(packet, PROTOCOL_VERSION, &mut bytes).unwrap());
        bytes.extend_from_slice(&records);
        bytes
    };
    let recorded = whole(&packets);
    let mut tries =
        vec![recorded.clone(), recorded[..recorded.len() / 2].to_vec(), recorded.repeat(2)];
    for turned in (0..recorded.len()).step_by(7) {
        let mut other = recorded.clone();
        other[turned] ^= 8;
        tries.push(other);
    }
    packets.reverse();
    tries.push(whole(&packets));
    for bytes in tries {
        let mut stream = TcpStream::connect(b.me.addr).await.unwrap();
        // The connection may be closed meanwhile.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let _ =
            tokio::time::timeout(GUARD, stream.read_to_end(&mut rest)).await.expect("it is closed");
    }
    assert_eq!(b.letters.count(&Input::Hint(Hint::Connected(identity.process()))), adopted);
    assert_eq!(numbers(&b.letters.inputs.lock().unwrap(), identity.process()), [1]);
    assert!(b.transport.counters().forged > 0);
}

#[tokio::test]
async fn a_forged_record_ends_the_connection_and_nothing_of_it_is_heard() {
    let b = keyed("shop", &[1]).await;
    let identity = StaticKey::new([5; 32]);
    let mut attacker = Attacker::dial(b.me.addr).await;
    let (mut session, _) =
        attacker.shake(&identity, attacker_info(&identity, identity.process())).await;
    let mut stream = sealed(&mut session.sealer, numbered(1));
    let mut forged = sealed(&mut session.sealer, numbered(2));
    let end = forged.len() - 1;
    forged[end] ^= 1;
    stream.extend_from_slice(&forged);
    attacker.stream.write_all(&stream).await.unwrap();
    b.letters.hint(Hint::Unreachable(identity.process())).await;
    assert_eq!(numbers(&b.letters.inputs.lock().unwrap(), identity.process()), [1]);
    assert_eq!(b.transport.counters().forged, 1);
}

#[tokio::test]
async fn a_refusal_is_never_longer_than_its_cause_and_rate_limited() {
    let b = keyed("shop", &[1]).await;
    let (began, mut answered) = (Instant::now(), 0);
    for length in (1..64).chain([200; 300]) {
        let mut stream = TcpStream::connect(b.me.addr).await.unwrap();
        let mut bytes = (length as u32).to_be_bytes().to_vec();
        bytes.resize(4 + length, 0);
        bytes.truncate(MAX_HELLO);
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(GUARD, stream.read_to_end(&mut answer))
            .await
            .expect("it is closed");
        assert!(answer.len() <= bytes.len(), "{} bytes for {}", answer.len(), bytes.len());
        answered += u64::from(!answer.is_empty());
    }
    let gained = u64::from(ANSWERS_A_SECOND) * (began.elapsed().as_secs() + 1);
    let most = u64::from(MOST_ANSWERS) + gained;
    assert!((1..=most).contains(&answered), "{answered} of 363, at most {most}");
}

#[tokio::test]
async fn a_connection_under_a_removed_key_is_closed_and_dialled_again() {
    let (a, b) = (keyed("shop", &[1]).await, keyed("shop", &[1]).await);
    a.meet(&b).await;
    for (first, second) in [(&a, &b), (&b, &a)] {
        first.transport.set_keyring(ring(&[1, 2])).unwrap();
        second.transport.set_keyring(ring(&[1, 2])).unwrap();
    }
    a.transport.set_keyring(ring(&[2, 1])).unwrap();
    b.transport.set_keyring(ring(&[2, 1])).unwrap();
    assert!(a.transport.set_keyring(ring(&[2])).unwrap() >= 1, "it was opened under the first key");
    b.transport.set_keyring(ring(&[2])).unwrap();
    let mut seq = 1;
    until("a packet under the new key", || {
        seq += 1;
        a.send(&b, numbered(seq));
        numbers(&b.letters.inputs.lock().unwrap(), a.me.process)
            .last()
            .is_some_and(|last| *last > 1)
    })
    .await;
    let text = refused(&keyed("shop", &[1]).await, &b).await;
    assert!(text.contains("does not have the key"), "{text}");
}

#[tokio::test]
async fn a_process_id_is_proven_by_a_fresh_key_in_each_incarnation() {
    let (a, b) = (keyed("shop", &[1]).await, keyed("shop", &[1]).await);
    a.meet(&b).await;
    let (process, static_key) = a.transport.draw_identity().unwrap();
    assert_ne!(process, a.me.process);
    let me = MemberInfo { process, static_key, ..a.me.clone() };
    a.transport.reborn(me.clone());
    let again = TestPeer { me, ..a };
    again.meet(&b).await;
    assert_eq!(b.transport.counters().impostors, 0);
}

#[tokio::test]
async fn without_a_key_of_the_ring_no_datagram_is_taken() {
    let b = keyed("shop", &[1]).await;
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut open = Vec::new();
    assert!(wire::seal("shop", b"gossip without a key", &mut open));
    let mut forged = b"EldS".to_vec();
    forged.extend_from_slice(&GOSSIP_VERSION.to_be_bytes());
    forged.resize(100, 1);
    for datagram in [&open, &forged] {
        socket.send_to(datagram, b.me.addr).await.unwrap();
    }
    until("both are refused", || {
        let counters = b.transport.counters();
        (counters.garbage, counters.datagrams_in) == (2, 0)
    })
    .await;
}

#[tokio::test]
async fn recorded_datagrams_for_another_process_leave_answers_to_questions_for_the_id() {
    let b = keyed("shop", &[1]).await;
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let gossip = |process| SealedGossip::new("shop", ProcessId(process), ring(&[1]));
    let (mut recorded, mut asker, mut datagram) = (gossip(50), gossip(60), Vec::new());
    for number in 1..=200 {
        assert!(recorded.seal(ProcessId(51), b"news", &mut datagram));
        socket.send_to(&datagram, b.me.addr).await.unwrap();
        if number % 20 == 0 {
            until("they are refused", || b.transport.counters().repeated == number).await;
        }
    }
    // The rate may have allowed more answers meanwhile, even between two lines.
    for _ in 0..3 {
        while b.transport.shared.may_answer_datagram(false) {}
        assert!(b.transport.shared.may_answer_datagram(true), "questions have a rate of their own");
    }
    asker.ask_id(&mut datagram);
    socket.send_to(&datagram, b.me.addr).await.unwrap();
    let answered = async {
        let mut answer = [0; 1024];
        loop {
            let (length, _) = socket.recv_from(&mut answer).await.unwrap();
            if let Ok(OpenedDatagram::IdAnswer(process)) = asker.open(&mut answer[..length]) {
                return process;
            }
        }
    };
    assert_eq!(tokio::time::timeout(GUARD, answered).await.expect("an answer"), b.me.process);
}
