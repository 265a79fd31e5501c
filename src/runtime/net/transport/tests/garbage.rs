//! Bytes that are no frame or datagram of a member are counted, and harm nothing.

use super::*;
use crate::wire::HandshakeRefusal;

#[tokio::test]
async fn garbage_on_a_connection_is_counted_and_harmless() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    let addr = b.me.addr;
    let hello = Frame::Hello(Box::new(Handshake {
        cluster: "shop".into(),
        me: a.me.clone(),
        reserved: vec![],
    }));
    let mut greeting = Vec::new();
    wire::encode(&hello, 0, &mut greeting).unwrap();

    let refused = |reason| Some(Frame::Refused(reason));
    assert_eq!(
        answer_to(addr, b"GET / HTTP/1.1\r\n\r\n").await.or(refused(HandshakeRefusal::Garbage)),
        refused(HandshakeRefusal::Garbage)
    );
    assert_eq!(b.transport.counters().oversized, 1);
    let mut garbage = greeting.clone();
    garbage[5] ^= 0xff;
    assert_eq!(answer_to(addr, &garbage).await, refused(HandshakeRefusal::Garbage));
    assert_eq!(b.transport.counters().garbage, 1);
    let mut version = greeting.clone();
    // The highest version in the packet is too old.
    version[9..11].copy_from_slice(&(wire::VERSIONS.lowest - 1).to_be_bytes());
    assert_eq!(
        answer_to(addr, &version).await,
        refused(HandshakeRefusal::Versions(wire::VERSIONS))
    );
    assert_eq!(b.transport.counters().other_version, 1);

    // Nonsense after the handshake ends a connection as well.
    let mut nonsense = greeting.clone();
    nonsense.extend_from_slice(&[0, 0, 0, 6, 99, 99]);
    let sum = crc32fast::hash(&nonsense[greeting.len()..]);
    nonsense.extend_from_slice(&sum.to_be_bytes());
    assert!(matches!(answer_to(addr, &nonsense).await, Some(Frame::Welcome(_))));
    let endless = [&greeting[..], &[0xff; 8]].concat();
    assert!(matches!(answer_to(addr, &endless).await, Some(Frame::Welcome(_))));
    until("counted", || {
        let counters = b.transport.counters();
        (counters.garbage, counters.oversized) == (2, 2)
    })
    .await;
    // The transport still works.
    a.meet(&b).await;
}

#[tokio::test]
async fn a_damaged_frame_is_counted_and_breaks_its_connection() {
    let b = TestPeer::new(2).await;
    let me = MemberInfo::new(ProcessId(7), "127.0.0.1:9".parse().unwrap());
    let (greeting, packet) = greeting_and_packet(&me);
    let mut damaged = packet.clone();
    damaged[10] ^= 1;
    let stream = [&greeting[..], &packet, &damaged, &packet].concat();
    assert!(matches!(answer_to(b.me.addr, &stream).await, Some(Frame::Welcome(_))));
    b.letters.hint(Hint::Unreachable(me.process)).await;
    assert_eq!(
        numbers(&b.letters.inputs.lock().unwrap(), me.process),
        [7],
        "the packet before it, nothing after it"
    );
    assert_eq!(b.transport.counters().damaged, 1);
    // A damaged hello is not answered: its sender did nothing wrong and must not be told that it is
    // a stranger.
    let mut damaged = greeting;
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(answer_to(b.me.addr, &damaged).await, None);
    assert_eq!(b.transport.counters().damaged, 2);
}

#[tokio::test]
async fn a_frame_that_has_begun_and_does_not_end_breaks_its_connection() {
    let limits =
        ConnectionTimeouts { frame: Duration::from_millis(300), ..ConnectionTimeouts::default() };
    let me = MemberInfo::new(ProcessId(7), "127.0.0.1:9".parse().unwrap());
    let (greeting, packet) = greeting_and_packet(&me);
    let mut tries = 0..100;
    let (b, mut stream) = loop {
        tries.next().expect("two pieces take less than the limit of a frame");
        let options = TransportOptions::new("shop", "127.0.0.1:0");
        let b = TestPeer::with(2, TransportOptions { limits, ..options }).await;
        let mut stream = TcpStream::connect(b.me.addr).await.unwrap();
        stream.write_all(&greeting).await.unwrap();
        b.letters.hint(Hint::Connected(me.process)).await;
        // Returns whether both pieces were written in time: on a busy machine the second one may be
        // late.
        let in_two_pieces = async |stream: &mut TcpStream| {
            let (began, before) = (Instant::now(), b.transport.counters().bytes_in);
            stream.write_all(&packet[..9]).await.unwrap();
            until("the first piece is there", || b.transport.counters().bytes_in == before + 9)
                .await;
            stream.write_all(&packet[9..]).await.is_ok() && began.elapsed() < limits.frame / 2
        };
        // Silence between frames is allowed, and so is a frame in two pieces.
        if !in_two_pieces(&mut stream).await {
            continue;
        }
        tokio::time::sleep(limits.frame * 2).await;
        assert_eq!(b.transport.counters().unfinished, 0);
        // A packet that came while this process was stopped is read, too.
        if !in_two_pieces(&mut stream).await {
            continue;
        }
        std::thread::sleep(limits.frame * 2);
        break (b, stream);
    };
    b.letters.until(|inputs| (numbers(inputs, me.process) == [7, 7]).then_some(())).await;
    assert_eq!(b.transport.counters().unfinished, 0);
    assert_eq!(b.letters.count(&Input::Hint(Hint::Unreachable(me.process))), 0);
    // A damaged length swallows the bytes that follow, and the other side cannot notice.
    let mut endless = packet.clone();
    endless[1] |= 0x02;
    stream.write_all(&endless).await.unwrap();
    let ended = async {
        while stream.write_all(&packet).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(GUARD, ended).await.expect("it closes");
    b.letters.hint(Hint::Unreachable(me.process)).await;
    assert_eq!(b.transport.counters().unfinished, 1);
    assert_eq!(numbers(&b.letters.inputs.lock().unwrap(), me.process), [7, 7]);
}

#[tokio::test]
async fn a_stranger_that_says_nothing_is_closed() {
    let limits = ConnectionTimeouts {
        handshake: Duration::from_millis(30),
        ..ConnectionTimeouts::default()
    };
    let b = TestPeer::with(
        2,
        TransportOptions { limits, ..TransportOptions::new("shop", "127.0.0.1:0") },
    )
    .await;
    assert_eq!(answer_to(b.me.addr, b"\0\0").await, None);
    assert_eq!(b.transport.counters().silent, 1);
}

#[tokio::test]
async fn garbage_in_datagrams_is_counted_and_harmless() {
    let b = TestPeer::new(2).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut foreign = Vec::new();
    assert!(wire::seal("shed", b"hello", &mut foreign));
    let mut version = foreign.clone();
    version[4] ^= 0xff;
    let mut noise = Vec::new();
    assert!(wire::seal("shop", b"no gossip at all", &mut noise));
    for datagram in [&b""[..], b"garbage", &foreign, &version, &vec![0; 9000], &noise] {
        socket.send_to(datagram, b.me.addr).await.unwrap();
    }
    until("counted", || {
        let counters = b.transport.counters();
        (
            counters.garbage,
            counters.foreign_cluster,
            counters.other_version,
            counters.oversized,
            counters.datagrams_in,
        ) == (2, 1, 1, 1, 1)
    })
    .await;
    let a = TestPeer::new(1).await;
    a.meet(&b).await;
}
