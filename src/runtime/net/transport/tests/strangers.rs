//! The limits of strangers: places, bytes, dials and turns of the engine.

use super::*;
use crate::protocol::LockName;
use crate::runtime::net::reception::{MOST_GOSSIP, MOST_STRANGE, STRANGE_A_SECOND, STRANGE_PART};
use crate::runtime::net::transport_state::FREE_PEERS;
use crate::wire::{HandshakeRefusal, SessionRequest, StatusQuery, VERSIONS};
use tokio::net::{TcpListener, UdpSocket};

/// Limits that end no connection, however busy the machine is.
fn patient_limits() -> ConnectionTimeouts {
    ConnectionTimeouts {
        user_timeout: GUARD * 60,
        handshake: GUARD * 60,
        frame: GUARD * 60,
        ..ConnectionTimeouts::default()
    }
}

/// A member in a view with another one, and that other member.
async fn member() -> (TestPeer, TestPeer) {
    let options = TransportOptions::new("shop", "127.0.0.1:0");
    let options = TransportOptions { limits: patient_limits(), ..options };
    let (a, b) = (TestPeer::with(5, options).await, TestPeer::new(6).await);
    a.in_view_with(&b.me);
    (a, b)
}

/// A connection of a stranger that claims the address of `of` and has little room for bytes.
async fn claim_address_of(of: &TestPeer, at: &TestPeer, process: ProcessId) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2048).expect("a small buffer");
    let mut stream = socket.connect(at.me.addr).await.expect("it listens");
    let (greeting, _) = greeting_and_packet(&MemberInfo::new(process, of.me.addr));
    stream.write_all(&greeting).await.expect("it reads");
    at.letters.hint(Hint::Connected(process)).await;
    stream
}

#[tokio::test]
async fn a_packet_for_any_process_at_an_address_goes_to_no_stranger_that_claims_it() {
    // The lesser process dials the connection that both prefer.
    let (a, b) = (TestPeer::new(5).await, TestPeer::new(6).await);
    for in_view in [false, true] {
        if in_view {
            a.in_view_with(&b.me);
        }
        let _claim = claim_address_of(&b, &a, ProcessId(1)).await;
        let question = Packet::Ack { view: ViewNumber(1), ack: u64::from(in_view), again: false };
        a.transport.send(b.me.addr, None, question.clone());
        a.transport.flush(false);
        let received = Input::Received { from: a.me.process, addr: a.me.addr, packet: question };
        b.letters.until(|inputs| inputs.contains(&received).then_some(())).await;
    }
}

#[tokio::test]
async fn a_stranger_that_reads_nothing_holds_up_no_member_at_the_address_that_it_claims() {
    let (a, b) = member().await;
    let claim = claim_address_of(&b, &a, ProcessId(1)).await;
    let service = ServiceName::new(&"x".repeat(250)).expect("a good name");
    // Frames are sent until neither the system nor the queue takes more for the stranger.
    let (mut written, mut rounds) = (0, 0);
    while rounds < 20 {
        for seq in 0..1000 {
            let message = RegistryMessage::FindGrantor { service: service.clone(), heard: None };
            let message = Message::Registry(message);
            let packet = Packet::Linked { view: ViewNumber(1), seq, ack: 0, message };
            a.transport.send(b.me.addr, Some(ProcessId(1)), packet);
        }
        a.transport.flush(false);
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now = a.transport.counters().frames_out;
        rounds = if now == written { rounds + 1 } else { 0 };
        written = now;
    }
    assert!(a.transport.counters().overflowed > 0);
    a.send(&b, numbered(1));
    b.letters.until(|inputs| (numbers(inputs, a.me.process) == [1]).then_some(())).await;
    // With the limits of a member the system ends that connection some seconds later.
    assert_eq!(a.letters.count(&Input::Hint(Hint::Unreachable(ProcessId(1)))), 0);
    drop(claim);
}

#[tokio::test]
async fn a_flood_of_a_stranger_is_throttled_and_frames_of_a_member_are_not() {
    const FLOOD: usize = 20_000;
    let (a, b) = member().await;
    let me = MemberInfo::new(ProcessId(7), "127.0.0.1:9".parse().expect("an address"));
    let (greeting, packet) = greeting_and_packet(&me);
    let mut stream = TcpStream::connect(a.me.addr).await.expect("it listens");
    stream.write_all(&greeting).await.expect("it reads");
    a.letters.hint(Hint::Connected(me.process)).await;
    let began = Instant::now();
    stream.write_all(&packet.repeat(FLOOD)).await.expect("it reads");
    let counters = || a.transport.counters();
    until("all are read", || counters().throttled + counters().frames_in >= FLOOD as u64).await;
    // One connection has a part of the rate, and leaves the rest to other strangers.
    let gained = u64::from(STRANGE_A_SECOND) * (began.elapsed().as_secs() + 1);
    let most = (u64::from(MOST_STRANGE) + gained) / u64::from(STRANGE_PART);
    let taken = a.letters.inputs.lock().expect("no test panics").len() as u64;
    assert!((1..=most).contains(&taken), "{taken} of {FLOOD} frames");
    // The member's frames are taken in the midst of the flood.
    stream.write_all(&packet.repeat(FLOOD)).await.expect("it reads");
    b.send(&a, numbered(1));
    a.letters.until(|inputs| (numbers(inputs, b.me.process) == [1]).then_some(())).await;
}

#[tokio::test]
async fn strangers_at_thousands_of_addresses_leave_room_for_members_and_seeds() {
    let (seed, member) = (TestPeer::new(5).await, TestPeer::new(6).await);
    let mut options = TransportOptions::new("shop", "127.0.0.1:0");
    options.seeds = vec![seed.me.addr.to_string()];
    let a = TestPeer::with(7, options).await;
    a.in_view_with(&member.me);
    // No process listens there, and a dial takes its time.
    let far = |number: u128| format!("[100::{number:x}]:9").parse().expect("an address");
    for number in 1..=FREE_PEERS as u128 + 10 {
        a.transport.send(far(number), Some(ProcessId(1000 + number)), numbered(1));
    }
    assert!(a.transport.counters().overflowed >= 10);
    for (peer, process) in [(&member, Some(member.me.process)), (&seed, None)] {
        a.transport.send(peer.me.addr, process, numbered(2));
        a.transport.flush(false);
        peer.letters.until(|inputs| (numbers(inputs, a.me.process) == [2]).then_some(())).await;
    }
    // A joiner takes the place of an address without a connection.
    let joiner = TestPeer::new(8).await;
    joiner.send(&a, numbered(3));
    a.letters.hint(Hint::Connected(joiner.me.process)).await;
    a.send(&joiner, numbered(4));
    joiner.letters.until(|inputs| (numbers(inputs, a.me.process) == [4]).then_some(())).await;
}

#[tokio::test]
async fn the_ninth_order_is_refused_and_ends_none_before_it() {
    let a = TestPeer::new(1).await;
    a.letters.waits_with_orders.store(true, Ordering::Relaxed);
    let addr = a.me.addr.to_string();
    let give = || crate::runtime::give_order(&addr, "shop", Order::Leave);
    let mut running = Vec::new();
    for _ in 0..8 {
        running.push(give().await.expect("it is given"));
    }
    until("eight are carried out", || a.transport.counters().orders == 8).await;
    let refused = give().await.expect("it is given").next().await.expect("an answer");
    assert!(matches!(refused, Some(OrderReport::Failed(_))), "{refused:?}");
    for order in &mut running {
        let next = tokio::time::timeout(Duration::from_millis(20), order.next()).await;
        assert!(next.is_err(), "it goes on: {next:?}");
    }
}

#[tokio::test]
async fn a_process_in_no_view_takes_no_long_frame_of_a_connection_that_it_accepted() {
    let a = TestPeer::new(1).await;
    let me = MemberInfo::new(ProcessId(7), "127.0.0.1:9".parse().expect("an address"));
    let (greeting, _) = greeting_and_packet(&me);
    for (length, is_taken) in [(wire::MAX_UNKNOWN_FRAME, true), (wire::MAX_FRAME, false)] {
        let mut stream = TcpStream::connect(a.me.addr).await.expect("it listens");
        stream.write_all(&greeting).await.expect("it reads");
        a.letters.hint(Hint::Connected(me.process)).await;
        let begun = [&(length as u32).to_be_bytes()[..], &[3; 1000]].concat();
        let before = a.transport.counters().oversized;
        stream.write_all(&begun).await.expect("it reads");
        if is_taken {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(a.transport.counters().oversized, before);
        } else {
            until("it is refused", || a.transport.counters().oversized > before).await;
        }
        a.letters.inputs.lock().expect("no test panics").clear();
    }
}

/// A process in no view and these options, with a seed's address and another one, that of process
/// 66. It has dialled both.
async fn seeker(options: TransportOptions) -> (TestPeer, TcpStream, TcpStream) {
    let seed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let a = TestPeer::with(1, options).await;
    a.transport.shared.seeds.send_replace([seed.local_addr().expect("an address")].into());
    let (_, seed) = welcome_dial(&a, &seed).await;
    a.letters.inputs.lock().expect("no test panics").clear();
    let (_, other) = welcome_dial(&a, &other).await;
    (a, seed, other)
}

#[tokio::test]
async fn a_process_in_no_view_takes_long_frames_of_seeds_only() {
    let (a, mut seed, mut other) = seeker(TransportOptions::new("shop", "127.0.0.1:0")).await;
    let begun_bytes = a.transport.shared.reception.begun.clone();
    let begun = |length: usize| [&(length as u32).to_be_bytes()[..], &[3; 1000]].concat();
    seed.write_all(&begun(wire::MAX_FRAME)).await.expect("it reads");
    until("the bytes of the seed are counted", || begun_bytes.used() > 1000).await;
    assert_eq!(a.transport.counters().oversized, 0);
    other.write_all(&begun(wire::MAX_UNKNOWN_FRAME + 1)).await.expect("it reads");
    until("it is refused", || a.transport.counters().oversized == 1).await;
}

#[tokio::test]
async fn begun_frames_of_seeds_have_the_bound_of_strangers() {
    const BEGUN: usize = 200 * 1024;
    let limits = ConnectionTimeouts { frame: GUARD * 60, ..ConnectionTimeouts::default() };
    let options = TransportOptions {
        limits,
        // Half of the memory is for incomplete frames.
        stranger_memory: 2 * BEGUN,
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let (a, mut seed, _other) = seeker(options).await;
    let length = (wire::MAX_FRAME as u32).to_be_bytes();
    let _ = seed.write_all(&[&length[..], &vec![3; 2 * BEGUN]].concat()).await;
    until("it is refused", || a.transport.counters().busy == 1).await;
    let begun_bytes = a.transport.shared.reception.begun.clone();
    until("its bytes are free", || begun_bytes.used() == 0).await;
}

#[tokio::test]
async fn datagrams_of_strangers_have_a_rate_and_those_of_members_do_not() {
    let a = TestPeer::new(1).await;
    let [stranger, member] = [bound_socket().await, bound_socket().await];
    let info = MemberInfo::new(ProcessId(2), member.local_addr().expect("an address"));
    a.in_view_with(&info);
    let mut datagram = Vec::new();
    assert!(wire::seal("shop", b"no gossip", &mut datagram));
    let counters = || a.transport.counters();
    let taken = || counters().datagrams_in + counters().throttled;
    for round in 1..=2 * u64::from(MOST_GOSSIP) / 64 {
        for _ in 0..64 {
            stranger.send_to(&datagram, a.me.addr).await.expect("the loopback");
        }
        until("all are read", || taken() == 64 * round).await;
    }
    let before = counters();
    assert!(before.throttled > 0 && before.datagrams_in >= u64::from(MOST_GOSSIP), "{before:?}");
    for _ in 0..64 {
        stranger.send_to(&datagram, a.me.addr).await.expect("the loopback");
        member.send_to(&datagram, a.me.addr).await.expect("the loopback");
    }
    until("those of the member are taken", || counters().datagrams_in >= before.datagrams_in + 64)
        .await;
}

async fn bound_socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.expect("a port")
}

#[tokio::test]
async fn an_address_that_a_stranger_claims_tells_nothing_of_a_member() {
    let (a, b) = member().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = closed.local_addr().expect("an address");
    drop(closed);
    for process in [b.me.process, ProcessId(66)] {
        a.transport.send(addr, Some(process), numbered(1));
        a.transport.flush(false);
    }
    a.letters.hint(Hint::Refused(ProcessId(66))).await;
    assert_eq!(a.letters.count(&Input::Hint(Hint::Refused(b.me.process))), 0);
}

#[tokio::test]
async fn a_stranger_that_was_dialled_has_the_limits_of_strangers() {
    let (a, _b) = member().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (_, mut stream) = welcome_dial(&a, &listener).await;
    let long = (wire::MAX_STRANGE_FRAME as u32 + 1).to_be_bytes();
    stream.write_all(&[&long[..], &[3; 1000]].concat()).await.expect("it reads");
    until("it is refused", || a.transport.counters().oversized == 1).await;
}

/// The member `a` dials this address and shakes hands with process 66 there.
async fn welcome_dial(a: &TestPeer, listener: &TcpListener) -> (MemberInfo, TcpStream) {
    let me = MemberInfo::new(ProcessId(66), listener.local_addr().expect("an address"));
    a.transport.send(me.addr, Some(me.process), numbered(1));
    a.transport.flush(false);
    let (mut stream, _) = listener.accept().await.expect("it dials");
    let welcome = Handshake { cluster: "shop".into(), me: me.clone(), reserved: Vec::new() };
    let mut bytes = Vec::new();
    wire::encode(&Frame::Welcome(Box::new(welcome)), 0, &mut bytes).expect("it is short");
    stream.write_all(&bytes).await.expect("it reads");
    a.letters.hint(Hint::Connected(me.process)).await;
    (me, stream)
}

#[tokio::test]
async fn a_dialled_member_that_leaves_the_view_has_the_limits_of_strangers() {
    let (a, b) = member().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let me = MemberInfo::new(ProcessId(66), listener.local_addr().expect("an address"));
    a.in_view_with(&me);
    let (_, mut stream) = welcome_dial(&a, &listener).await;
    let (_, packet) = greeting_and_packet(&me);
    stream.write_all(&packet).await.expect("it reads");
    a.letters.until(|inputs| (numbers(inputs, me.process) == [7]).then_some(())).await;
    a.in_view_with(&b.me);
    let long = (wire::MAX_STRANGE_FRAME as u32 + 1).to_be_bytes();
    stream.write_all(&[&long[..], &[3; 1000]].concat()).await.expect("it reads");
    until("it is refused", || a.transport.counters().oversized == 1).await;
}

/// Gives `a` a view of `a`, `b` and these learners, of which the `promoted` ones have a vote.
fn install_learners(a: &TestPeer, b: &TestPeer, learners: &[MemberInfo], promoted: &[ProcessId]) {
    let members = [&[a.me.clone(), b.me.clone()], learners].concat();
    let mut view = View::first(Slot(9), members, Timing::lan(), 7);
    for member in &mut view.members[2..] {
        member.learner = !promoted.contains(&member.info.process);
    }
    a.transport.installed(&view);
}

#[tokio::test]
async fn learners_that_answer_nothing_take_few_dials_and_none_of_members() {
    let limits = ConnectionTimeouts { handshake: GUARD * 60, ..ConnectionTimeouts::default() };
    let options = TransportOptions { limits, ..TransportOptions::new("shop", "127.0.0.1:0") };
    let (a, b) = (TestPeer::with(5, options).await, TestPeer::new(6).await);
    let dials = a.transport.shared.learner_dials.available_permits();
    let (mut listeners, mut learners) = (Vec::new(), Vec::new());
    for number in 0..2 * dials as u128 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        learners.push(MemberInfo::new(ProcessId(1000 + number), addr));
        listeners.push(listener);
    }
    install_learners(&a, &b, &learners, &[]);
    for learner in &learners {
        a.transport.send(learner.addr, Some(learner.process), numbered(1));
    }
    a.transport.flush(false);
    let free = || a.transport.shared.learner_dials.available_permits();
    until("as many as may be are dialled", || free() == 0).await;
    let (mut dialled, mut waiting) = (Vec::new(), Vec::new());
    for (listener, learner) in listeners.iter().zip(&learners) {
        match tokio::time::timeout(Duration::from_millis(1), listener.accept()).await {
            Ok(accepted) => dialled.push(accepted.expect("it dials")),
            Err(_) => waiting.push((listener, learner.process)),
        }
    }
    assert!(dialled.len() <= dials, "{} of {dials}", dialled.len());
    a.send(&b, numbered(1));
    b.letters.until(|inputs| (numbers(inputs, a.me.process) == [1]).then_some(())).await;
    // A learner that gets its vote meanwhile waits no more.
    let (listener, process) = waiting.last().expect("some wait");
    install_learners(&a, &b, &learners, &[*process]);
    let accepted = tokio::time::timeout(GUARD, listener.accept()).await;
    accepted.expect("it is dialled in time").expect("it is dialled");
}

#[tokio::test]
async fn the_bytes_of_begun_frames_of_strangers_are_bounded() {
    const BEGUN: usize = 200 * 1024;
    // Half of the memory is for incomplete frames.
    let stranger_memory = 2 * 3 * (BEGUN + size_of::<u32>());
    let limits = ConnectionTimeouts { frame: GUARD * 60, ..ConnectionTimeouts::default() };
    let options = TransportOptions {
        limits,
        stranger_memory,
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let a = TestPeer::with(1, options).await;
    let begun_bytes = a.transport.shared.reception.begun.clone();
    let mut streams = Vec::new();
    for number in 0..4 {
        let (greeting, _) = greeting_and_packet(&MemberInfo::new(
            ProcessId(7 + number),
            "127.0.0.1:9".parse().expect("an address"),
        ));
        let mut stream = TcpStream::connect(a.me.addr).await.expect("it listens");
        stream.write_all(&greeting).await.expect("it reads");
        a.letters.hint(Hint::Connected(ProcessId(7 + number))).await;
        let length = (wire::MAX_UNKNOWN_FRAME as u32).to_be_bytes();
        let begun = [&length[..], &vec![3; BEGUN]].concat();
        let _ = stream.write_all(&begun).await;
        if number < 3 {
            let kept = (number as usize + 1) * BEGUN;
            until("its bytes are counted", || begun_bytes.used() >= kept).await;
        }
        streams.push(stream);
    }
    until("the one that began first makes room", || a.transport.counters().busy == 1).await;
    let closed = tokio::time::timeout(GUARD, streams[0].read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "it is another one");
    drop(streams);
    until("all are free", || begun_bytes.used() == 0).await;
}

/// A process becomes a learner by one notice. Its incomplete frames may be as long as those of a
/// member, and count as those of strangers until it has a vote.
#[tokio::test]
async fn the_bytes_of_begun_frames_of_learners_are_bounded_with_those_of_strangers() {
    const BEGUN: usize = 2 * 1024 * 1024;
    let limits = ConnectionTimeouts { frame: GUARD * 60, ..ConnectionTimeouts::default() };
    let options = TransportOptions {
        limits,
        // Half of the memory is for incomplete frames.
        stranger_memory: 2 * 3 * (BEGUN + size_of::<u32>()),
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let a = TestPeer::with(1, options).await;
    let reception = a.transport.shared.reception.clone();
    let (of_strangers, of_voters) = (&reception.begun, &reception.begun_of_voters);
    let view = |are_learners: bool| {
        let other = |number| MemberInfo::new(ProcessId(number), ([127, 0, 0, 1], 9).into());
        let members = [a.me.clone()].into_iter().chain((7..11).map(other)).collect();
        let mut view = View::first(Slot(9), members, Timing::lan(), 7);
        view.members.iter_mut().skip(1).for_each(|member| member.learner = are_learners);
        view
    };
    a.transport.installed(&view(true));
    let mut streams = Vec::new();
    for number in 0..4 {
        let mut stream = greet(&a, ProcessId(7 + number)).await;
        let length = (wire::MAX_FRAME as u32).to_be_bytes();
        let begun = [&length[..], &vec![3; BEGUN]].concat();
        let _ = stream.write_all(&begun).await;
        if number < 3 {
            let kept = (number as usize + 1) * BEGUN;
            until("its bytes are counted", || of_strangers.used() >= kept).await;
        }
        streams.push(stream);
    }
    until("the one that began first makes room", || a.transport.counters().busy == 1).await;
    assert_eq!(of_voters.used(), 0);

    // With a vote each has the account of members. It moves there with its next bytes.
    a.transport.installed(&view(false));
    for stream in &mut streams[1..] {
        stream.write_all(&[3]).await.expect("it is open");
    }
    until("they are members", || of_voters.used() > 3 * BEGUN && of_strangers.used() == 0).await;
    drop(streams);
    until("all are free", || of_voters.used() == 0).await;
}

#[tokio::test]
async fn a_view_is_taken_by_a_joining_process_though_strangers_use_the_memory_for_begun_frames() {
    const BEGUN: usize = 200 * 1024;
    let (limits, stranger_memory) = (
        ConnectionTimeouts { frame: GUARD * 60, ..ConnectionTimeouts::default() },
        // Half of the memory is for incomplete frames.
        2 * 3 * BEGUN,
    );
    let options = TransportOptions::new("shop", "127.0.0.1:0");
    let a = TestPeer::with(1, TransportOptions { limits, stranger_memory, ..options }).await;
    let begun_bytes = a.transport.shared.reception.begun.clone();
    let mut crowd = Vec::new();
    for number in 0..3 {
        let mut stream = greet(&a, ProcessId(7 + number)).await;
        let length = (wire::MAX_UNKNOWN_FRAME as u32).to_be_bytes();
        let begun = [&length[..], &vec![3; BEGUN - 100]].concat();
        stream.write_all(&begun).await.expect("it reads");
        let kept = (number as usize + 1) * (BEGUN - 100);
        until("its bytes are counted", || begun_bytes.used() >= kept).await;
        crowd.push(stream);
    }
    // A view of a thousand members comes in two parts.
    let member = |number| MemberInfo::new(ProcessId(number), ([127, 0, 0, 1], 9).into());
    let members = (1000..2000).map(member).collect();
    let view = View::first(Slot(9), members, Timing::lan(), 7);
    let packet = Packet::from(Notice::FullView { view, nonce: 0 });
    let mut bytes = Vec::new();
    wire::encode(&Frame::Packet(packet.clone()), wire::PROTOCOL_VERSION, &mut bytes)
        .expect("it is shorter than the longest frame");
    assert!(bytes.len() < BEGUN / 2, "{}", bytes.len());
    let mut honest = greet(&a, ProcessId(1000)).await;
    let (front, back) = bytes.split_at(bytes.len() - 1);
    honest.write_all(front).await.expect("it reads");
    until("one of the others makes room", || a.transport.counters().busy == 1).await;
    honest.write_all(back).await.expect("it is not closed");
    let is_it = |input: &Input| match input {
        Input::Received { packet: received, .. } => *received == packet,
        _ => false,
    };
    a.letters.until(|inputs| inputs.iter().any(is_it).then_some(())).await;
}

/// A connection of this process, which has shaken hands.
async fn greet(at: &TestPeer, process: ProcessId) -> TcpStream {
    let addr = "127.0.0.1:9".parse().expect("an address");
    let (greeting, _) = greeting_and_packet(&MemberInfo::new(process, addr));
    let mut stream = TcpStream::connect(at.me.addr).await.expect("it listens");
    stream.write_all(&greeting).await.expect("it reads");
    at.letters.hint(Hint::Connected(process)).await;
    stream
}

#[tokio::test]
async fn a_batch_that_is_set_aside_counts_for_the_stranger_that_reads_nothing() {
    // Neither the limit of a frame nor the system ends the connection in this test.
    let (user_timeout, frame) = (GUARD * 60, GUARD * 60);
    let limits = ConnectionTimeouts { user_timeout, frame, ..ConnectionTimeouts::default() };
    let stranger_memory = 300 * 1024;
    let options = TransportOptions {
        limits,
        stranger_memory,
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let (a, b) = (TestPeer::with(5, options).await, TestPeer::new(6).await);
    a.in_view_with(&b.me);
    let _claim = claim_address_of(&b, &a, ProcessId(1)).await;
    let service = ServiceName::new(&"x".repeat(250)).expect("a good name");
    let ended = Input::Hint(Hint::Unreachable(ProcessId(1)));
    until("the one that uses most is closed", || {
        for seq in 0..100 {
            let message = RegistryMessage::FindGrantor { service: service.clone(), heard: None };
            let message = Message::Registry(message);
            let packet = Packet::Linked { view: ViewNumber(1), seq, ack: 0, message };
            a.transport.send(b.me.addr, Some(ProcessId(1)), packet);
        }
        a.transport.flush(false);
        a.letters.count(&ended) > 0
    })
    .await;
}

#[tokio::test]
async fn the_stranger_with_the_most_waiting_bytes_makes_room() {
    let stranger_memory = 64 * 1024;
    let options =
        TransportOptions { stranger_memory, ..TransportOptions::new("shop", "127.0.0.1:0") };
    let (a, b) = (TestPeer::with(5, options).await, TestPeer::new(6).await);
    a.in_view_with(&b.me);
    // No process listens there, and the frames wait.
    let far = |number: u128| format!("[100::{number:x}]:9").parse().expect("an address");
    let send = |number: u128, frames: usize| {
        for _ in 0..frames {
            a.transport.send(far(number), Some(ProcessId(1000 + number)), numbered(1));
        }
    };
    // The one with the most is neither the first nor the last.
    (1..=3).for_each(|number| send(number, 1));
    while !a.transport.shared.budget().is_spent() {
        send(2, 1);
    }
    send(1, 1);
    assert!(a.transport.counters().overflowed > 1, "its frames are dropped");
    assert!((1..1024).contains(&a.transport.shared.budget().used()), "the others keep theirs");
}

#[tokio::test]
async fn few_strangers_are_dialled_at_a_time() {
    let (a, _b) = member().await;
    let dials = a.transport.shared.dials.available_permits();
    let mut listeners = Vec::new();
    for number in 0..2 * dials as u128 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        a.transport.send(addr, Some(ProcessId(1000 + number)), numbered(1));
        listeners.push(listener);
    }
    a.transport.flush(false);
    until("as many as may be are dialled", || a.transport.shared.dials.available_permits() == 0)
        .await;
    let mut dialled = Vec::new();
    for listener in &listeners {
        let accepted = tokio::time::timeout(Duration::from_millis(1), listener.accept()).await;
        dialled.extend(accepted.ok().and_then(Result::ok));
    }
    assert!(dialled.len() <= dials, "{} of {dials}", dialled.len());
}

#[tokio::test]
async fn a_crowd_that_begins_handshakes_leaves_room_for_the_hosts_of_members() {
    // A handshake that has begun has this whole test for its grace.
    let limits = ConnectionTimeouts { handshake: GUARD * 60, ..ConnectionTimeouts::default() };
    let options = TransportOptions { limits, ..TransportOptions::new("shop", "0.0.0.0:0") };
    let options =
        TransportOptions { advertise: Some("127.0.0.1:0".into()), insecure: true, ..options };
    let (a, b) = (TestPeer::with(5, options).await, TestPeer::new(6).await);
    a.in_view_with(&b.me);
    let mut crowd = Vec::new();
    for _ in 0..400 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("loopback is a network");
        crowd.push(socket.connect(a.me.addr).await.expect("it listens"));
    }
    until("the crowd is turned away", || a.transport.counters().busy > 0).await;
    b.send(&a, numbered(1));
    a.letters.until(|inputs| (numbers(inputs, b.me.process) == [1]).then_some(())).await;
}

#[tokio::test]
async fn the_errors_of_a_thousand_addresses_are_remembered() {
    let a = TestPeer::new(1).await;
    let addr = |port| SocketAddr::from(([10, 0, 0, 1], port));
    for port in 0..1025 {
        a.transport.shared.note_dial(addr(port), Some("it is far".into()));
    }
    let error = |port| a.transport.last_error(addr(port)).is_some();
    assert_eq!([0, 1, 1024].map(error), [false, true, true]);
}

#[tokio::test]
async fn sessions_beyond_the_limit_are_refused_and_orders_are_not() {
    let a = TestPeer::new(1).await;
    let sessions = &a.transport.shared.sessions;
    let places = u32::try_from(sessions.available_permits()).expect("hundreds");
    let all = sessions.acquire_many(places).await.expect("it is open");
    let addr = a.me.addr.to_string();
    let lock = || {
        let name = LockName::new(b"job").expect("a good name");
        Order::Lock(SessionRequest::new(ServiceName::new("shop").expect("a good name"), name))
    };
    let answer = async |order| {
        let mut reports = crate::runtime::give_order(&addr, "shop", order).await.expect("given");
        match reports.next().await.expect("an answer") {
            Some(OrderReport::Failed(reason)) => reason,
            report => panic!("{report:?}"),
        }
    };
    assert_eq!(answer(lock()).await, OrderReport::FULL);
    assert!(answer(Order::Leave).await.contains("no member carries out"));
    drop(all);
    assert!(answer(lock()).await.contains("no member carries out"));
}

#[tokio::test]
async fn questions_for_the_status_have_a_rate() {
    let a = TestPeer::new(1).await;
    let addr = a.me.addr.to_string();
    let busy = async {
        loop {
            match query_status(&addr, "shop").await {
                Ok(_) => {}
                Err(QueryError::Refused { reason, .. }) => break reason,
                Err(error) => panic!("{error}"),
            }
        }
    };
    // On a busy machine one question after the other does not reach the rate.
    let shared = a.transport.shared.clone();
    let others = tokio::spawn(async move {
        loop {
            while shared.may_tell_status() {}
            tokio::task::yield_now().await;
        }
    });
    let reason = tokio::time::timeout(GUARD, busy).await.expect("it has a rate");
    others.abort();
    assert_eq!(reason, HandshakeRefusal::Busy.to_string());
    assert!(a.transport.counters().busy >= 1);
}

#[tokio::test]
async fn answers_to_questions_for_the_status_wait_in_the_memory_for_strangers() {
    // Neither the limit of a frame nor the system ends the connection in this test.
    let (user_timeout, frame) = (GUARD * 60, GUARD * 60);
    let limits = ConnectionTimeouts { user_timeout, frame, ..ConnectionTimeouts::default() };
    let (stranger_memory, options) = (2 << 20, TransportOptions::new("shop", "127.0.0.1:0"));
    let a = TestPeer::with(5, TransportOptions { limits, stranger_memory, ..options }).await;
    a.letters.is_long.store(true, Ordering::Relaxed);
    let budget = a.transport.shared.budget().clone();
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2048).expect("a small buffer");
    let mut silent = socket.connect(a.me.addr).await.expect("it listens");
    let (cluster, reserved, mut bytes) = ("shop".to_owned(), Vec::new(), Vec::new());
    let question = Frame::Question(StatusQuery { cluster, versions: VERSIONS, reserved, of: None });
    wire::encode(&question, 0, &mut bytes).expect("it is short");
    silent.write_all(&bytes).await.expect("it reads");
    until("the answer waits for the process that reads nothing", || {
        budget.used() > LONG_STATUS as usize * 16
    })
    .await;
    let addr = a.me.addr.to_string();
    let busy = HandshakeRefusal::Busy.to_string();
    match query_status(&addr, "shop").await {
        Err(QueryError::Refused { reason, .. }) => assert_eq!(reason, busy),
        answer => panic!("{answer:?}"),
    }
    drop(silent);
    until("its memory is free", || budget.used() == 0).await;
    let status = query_status(&addr, "shop").await.expect("there is room again");
    assert_eq!(status.suspected.len(), LONG_STATUS as usize);
}

#[tokio::test]
async fn no_process_has_the_id_of_an_operator() {
    let a = TestPeer::new(1).await;
    let (greeting, _) = greeting_and_packet(&MemberInfo::new(ProcessId(0), a.me.addr));
    let answer = answer_to(a.me.addr, &greeting).await;
    assert_eq!(answer, Some(Frame::Refused(HandshakeRefusal::Garbage)));
}
