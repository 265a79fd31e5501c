use super::*;
use crate::protocol::{
    Hint, Input, Message, Notice, RegistryMessage, ServiceName, Slot, Status, Timing, View,
    ViewNumber,
};
use crate::runtime::inbox::{OrderExchange, OrderWork};
use crate::runtime::net::death_watch;
use crate::runtime::{QueryError, query_status};
use crate::wire::{self, Decoder, Frame, Handshake, Order, OrderReport};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

mod busy_poll;
mod garbage;
#[cfg(feature = "secure")]
mod keys;
mod strangers;

/// Hang guard: far longer than any awaited event takes. With planted breaks many tests await an
/// event that does not come.
const GUARD: Duration = Duration::from_secs(if cfg!(elderlock_mutants) { 10 } else { 120 });

/// Processes in a long status, of some 16 bytes each.
const LONG_STATUS: u128 = 200_000;

/// An inbox that keeps everything.
#[derive(Default)]
struct Letters {
    inputs: Mutex<Vec<Input>>,
    arrived: Notify,
    /// Whether to take all inputs for questions, which are answered.
    answers: AtomicBool,
    /// Whether orders are never carried out.
    waits_with_orders: AtomicBool,
    /// Whether the status is longer than the system buffers for a slow reader.
    is_long: AtomicBool,
    /// Whether the next input panics, as the code of an application may.
    panics: AtomicBool,
    /// Whether the next hint of a connection panics.
    panics_at_connection: AtomicBool,
}

impl Inbox for Letters {
    fn input(&self, input: Input) {
        if matches!(input, Input::Hint(Hint::Connected(_))) {
            assert!(!self.panics_at_connection.swap(false, Ordering::Relaxed), "on purpose");
        }
        self.inputs.lock().unwrap().push(input);
        self.arrived.notify_waiters();
    }

    fn deliver(&self, packets: &mut Vec<Input>) -> bool {
        assert!(packets.is_empty() || !self.panics.swap(false, Ordering::Relaxed), "on purpose");
        packets.drain(..).for_each(|packet| self.input(packet));
        self.answers.load(Ordering::Relaxed)
    }

    fn carry_out(&self, order: Order, exchange: OrderExchange) -> OrderWork {
        let waits = self.waits_with_orders.load(Ordering::Relaxed);
        Box::pin(async move {
            if waits {
                std::future::pending::<()>().await;
            }
            let reason = format!("no member carries out {} here", order.kind());
            let _ = exchange.reports.send(OrderReport::Failed(reason)).await;
        })
    }

    fn status(&self, _: usize) -> Option<Status> {
        Some(Status {
            me: MemberInfo::new(ProcessId(7), ([127, 0, 0, 1], 7).into()),
            view: None,
            elder: None,
            leased: true,
            services: Vec::new(),
            more_services: 0,
            suspected: match self.is_long.load(Ordering::Relaxed) {
                true => (0..LONG_STATUS).map(|number| ProcessId(u128::MAX - number)).collect(),
                false => Vec::new(),
            },
        })
    }
}

impl Letters {
    /// Waits until `found` returns a value.
    async fn until<T>(&self, found: impl Fn(&[Input]) -> Option<T>) -> T {
        let search = async {
            loop {
                let arrived = self.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                if let Some(value) = found(&self.inputs.lock().unwrap()) {
                    return value;
                }
                arrived.await;
            }
        };
        match tokio::time::timeout(GUARD, search).await {
            Ok(value) => value,
            Err(_) => panic!("did not come: {:?}", self.inputs.lock().unwrap()),
        }
    }

    async fn hint(&self, hint: Hint) {
        self.until(|inputs| inputs.contains(&Input::Hint(hint.clone())).then_some(())).await;
    }

    fn count(&self, wanted: &Input) -> usize {
        self.inputs.lock().unwrap().iter().filter(|input| *input == wanted).count()
    }
}

fn numbers(inputs: &[Input], from: ProcessId) -> Vec<u64> {
    let number = |input: &Input| match input {
        Input::Received { from: sender, packet: Packet::Linked { seq, .. }, .. }
            if *sender == from =>
        {
            Some(*seq)
        }
        _ => None,
    };
    inputs.iter().filter_map(number).collect()
}

struct TestPeer {
    transport: Arc<Transport>,
    letters: Arc<Letters>,
    me: MemberInfo,
}

impl TestPeer {
    async fn with(process: u128, options: TransportOptions) -> TestPeer {
        let transport = Arc::new(Transport::bind(options).await.expect("it can be bound"));
        let me = MemberInfo {
            host: death_watch::here(),
            ..MemberInfo::new(ProcessId(process), transport.advertised())
        };
        let letters = Arc::new(Letters::default());
        transport.start(letters.clone(), me.clone());
        TestPeer { transport, letters, me }
    }

    async fn new(process: u128) -> TestPeer {
        TestPeer::with(process, TransportOptions::new("shop", "127.0.0.1:0")).await
    }

    fn send(&self, to: &TestPeer, packet: Packet) {
        // The sender writes some frames here and now, and the task writes the others.
        let is_urgent = matches!(packet, Packet::Linked { seq, .. } if seq % 3 == 0);
        let polls = matches!(packet, Packet::Linked { seq, .. } if seq % 21 == 0);
        self.transport.send(to.me.addr, Some(to.me.process), packet);
        if let Some(reader) = self.transport.flush(is_urgent).filter(|_| polls) {
            reader.busy_poll();
        }
    }

    /// Puts the peer in a view with another process.
    fn in_view_with(&self, other: &MemberInfo) {
        let members = vec![self.me.clone(), other.clone()];
        self.transport.installed(&View::first(Slot(9), members, Timing::lan(), 7));
    }

    /// Waits until both peers know each other.
    async fn meet(&self, other: &TestPeer) {
        self.send(other, numbered(0));
        other
            .letters
            .until(|inputs| (!numbers(inputs, self.me.process).is_empty()).then_some(()))
            .await;
    }
}

fn numbered(seq: u64) -> Packet {
    let service = ServiceName::new("inventory").unwrap();
    let message = Message::Registry(RegistryMessage::FindGrantor { service, heard: None });
    Packet::Linked { view: ViewNumber(1), seq, ack: 0, message }
}

#[tokio::test]
async fn hundreds_that_dial_at_one_time_are_all_welcomed() {
    let peer = TestPeer::new(1).await;
    let mut streams = Vec::new();
    for number in 2..302 {
        // The bytes are written before the listener's task runs: all connections wait in its
        // backlog.
        let mut stream = std::net::TcpStream::connect(peer.me.addr).unwrap();
        let me = MemberInfo { process: ProcessId(number), ..peer.me.clone() };
        let hello = Handshake { cluster: "shop".into(), me, reserved: Vec::new() };
        let mut bytes = Vec::new();
        wire::encode(&Frame::Hello(Box::new(hello)), 0, &mut bytes).unwrap();
        std::io::Write::write_all(&mut stream, &bytes).unwrap();
        stream.set_nonblocking(true).unwrap();
        streams.push(TcpStream::from_std(stream).unwrap());
    }
    for stream in &mut streams {
        let mut decoder = Decoder::new();
        let answer = async {
            loop {
                if let Some(frame) = decoder.next().expect("a frame") {
                    return frame;
                }
                let read = stream.read_buf(decoder.back()).await.expect("an answer");
                assert!(read > 0, "it was closed without an answer");
            }
        };
        let answer = tokio::time::timeout(GUARD, answer).await.expect("an answer in time");
        assert!(matches!(answer, Frame::Welcome(_)), "{answer:?}");
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(GUARD, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn thousands_both_ways() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    b.letters.answers.store(true, Ordering::Relaxed);
    a.meet(&b).await;
    let many = 20_000;
    for number in 1..=many {
        a.send(&b, numbered(number));
        b.send(&a, numbered(number));
        if number % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let expected: Vec<u64> = (1..=many).collect();
    for (to, from) in [(&b, &a), (&a, &b)] {
        let got = to
            .letters
            .until(|inputs| {
                let got = numbers(inputs, from.me.process);
                (got.last() == Some(&many)).then_some(got)
            })
            .await;
        assert_eq!(got[got.len() - expected.len()..], expected);
    }
    let addr = b.letters.until(|inputs| {
        inputs.iter().find_map(|input| match input {
            Input::Received { addr, .. } => Some(*addr),
            _ => None,
        })
    });
    assert_eq!(addr.await, a.me.addr, "answers go to the advertised address");
    let counters = b.transport.counters();
    assert!(
        counters.frames_in > many && counters.bytes_in > many * 10 && counters.frames_out >= many
    );
    a.transport.shutdown().await;
    b.transport.shutdown().await;
}

#[tokio::test]
async fn packets_pass_both_ways_in_order_on_one_thread() {
    thousands_both_ways().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_pass_both_ways_in_order_on_several_threads() {
    thousands_both_ways().await;
}

/// The task of a connection may panic. Then its process does not write on a connection that it does
/// not read: the connection ends, and another one is opened.
#[tokio::test]
async fn a_connection_whose_task_panics_ends() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    a.letters.panics_at_connection.store(true, Ordering::Relaxed);
    a.send(&b, numbered(1));
    b.letters.hint(Hint::Connected(a.me.process)).await;
    b.letters.hint(Hint::Unreachable(a.me.process)).await;
    b.send(&a, numbered(2));
    a.letters.until(|inputs| numbers(inputs, b.me.process).ends_with(&[2]).then_some(())).await;
}

#[tokio::test]
async fn an_urgent_packet_leaves_at_once_with_all_that_were_queued_before() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    a.meet(&b).await;
    let send = |number, is_urgent| {
        a.transport.send(b.me.addr, Some(b.me.process), numbered(number));
        let _ = a.transport.flush(is_urgent);
        a.transport.counters().frames_out
    };
    let before = a.transport.counters().frames_out;
    assert_eq!([send(1, false), send(2, false), send(3, true)], [before, before, before + 3]);
    b.letters
        .until(|inputs| numbers(inputs, a.me.process).ends_with(&[1, 2, 3]).then_some(()))
        .await;
    // A frame that no caller waits for is written a little later.
    assert_eq!(send(4, false), before + 3);
    b.letters.until(|inputs| numbers(inputs, a.me.process).ends_with(&[4]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_no_more_gets_the_rest_in_order() {
    // On a busy machine the other side may read much later.
    let limits = ConnectionTimeouts { user_timeout: GUARD, ..ConnectionTimeouts::default() };
    let options = TransportOptions { limits, ..TransportOptions::new("shop", "127.0.0.1:0") };
    let a = TestPeer::with(1, options).await;
    // A member that shakes hands and then reads nothing for a while.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let slow = MemberInfo::new(ProcessId(7), addr);
    a.in_view_with(&slow);
    let send = |number| {
        let service = ServiceName::new(&"x".repeat(200)).unwrap();
        let message = Message::Registry(RegistryMessage::FindGrantor { service, heard: None });
        let packet = Packet::Linked { view: ViewNumber(1), seq: number, ack: 0, message };
        a.transport.send(addr, Some(slow.process), packet);
        a.transport.flush(number % 3 != 0);
    };
    send(0);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut decoder = Decoder::new();
    while decoder.next().expect("a hello").is_none() {
        assert!(stream.read_buf(decoder.back()).await.unwrap() > 0);
    }
    decoder.open();
    let welcome = Frame::Welcome(Box::new(Handshake {
        cluster: "shop".into(),
        me: slow.clone(),
        reserved: vec![],
    }));
    let mut bytes = Vec::new();
    wire::encode(&welcome, 0, &mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
    a.letters.hint(Hint::Connected(slow.process)).await;
    // Half of the queue's limit, and more than the system keeps for one connection.
    let many = 32_000;
    (1..many).for_each(&send);
    assert!(a.transport.counters().frames_out < many, "some of it is not written yet");
    let mut next = 0;
    while next < many {
        match decoder.next().expect("whole frames") {
            Some(Frame::Packet(Packet::Linked { seq, .. })) => {
                assert_eq!(seq, next);
                next += 1;
            }
            Some(_) => {}
            None => assert!(stream.read_buf(decoder.back()).await.unwrap() > 0),
        }
    }
    assert_eq!(a.transport.counters().overflowed, 0);
    until("all of it is counted", || a.transport.counters().frames_out == many).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_cross_lose_nothing() {
    for _ in 0..20 {
        let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
        let many = 500;
        for number in 0..many {
            a.send(&b, numbered(number));
            b.send(&a, numbered(number));
        }
        for (to, from) in [(&b, &a), (&a, &b)] {
            let mut got = to
                .letters
                .until(|inputs| {
                    let got = numbers(inputs, from.me.process);
                    (got.len() as u64 >= many).then_some(got)
                })
                .await;
            // The order may change once, when one connection takes over from the other.
            got.sort_unstable();
            assert_eq!(got, (0..many).collect::<Vec<_>>());
            assert_eq!(to.letters.count(&Input::Hint(Hint::Unreachable(from.me.process))), 0);
        }
    }
}

#[tokio::test]
async fn an_accepted_connection_carries_answers_to_a_member_that_cannot_be_dialled() {
    let b = TestPeer::new(2).await;
    // No process listens at the address that it advertises.
    let hidden = TransportOptions {
        advertise: Some("127.0.0.1:9".into()),
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let a = TestPeer::with(1, hidden).await;
    a.meet(&b).await;
    b.send(&a, numbered(7));
    a.letters.until(|inputs| (numbers(inputs, b.me.process) == [7]).then_some(())).await;
}

#[tokio::test]
async fn a_packet_for_any_process_at_the_address_arrives() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    a.transport.send(b.me.addr, None, Packet::from(Notice::Leave));
    a.transport.flush(false);
    let received = Input::Received {
        from: a.me.process,
        addr: a.me.addr,
        packet: Packet::from(Notice::Leave),
    };
    b.letters.until(|inputs| inputs.contains(&received).then_some(())).await;
    a.letters.hint(Hint::Connected(b.me.process)).await;
}

#[tokio::test]
async fn a_restart_at_the_same_address_is_told_as_replaced() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    a.meet(&b).await;
    let addr = b.me.addr;
    b.transport.shutdown().await;
    a.letters.hint(Hint::Unreachable(b.me.process)).await;
    let c = TestPeer::with(3, TransportOptions::new("shop", addr.to_string())).await;
    a.send(&b, numbered(1));
    a.letters.hint(Hint::Replaced(b.me.process)).await;
    // The new process is reached, and never gets the frames that were meant for the old one.
    a.send(&c, numbered(2));
    c.letters.until(|inputs| (numbers(inputs, a.me.process) == [2]).then_some(())).await;
    // The answer is the same while a connection with the new process is open.
    let replaced = Input::Hint(Hint::Replaced(b.me.process));
    let before = a.letters.count(&replaced);
    a.send(&b, numbered(3));
    until("told again", || a.letters.count(&replaced) > before).await;
    assert_eq!(a.letters.count(&Input::Hint(Hint::Unreachable(c.me.process))), 0);
    assert_eq!(
        c.letters.count(&Input::Hint(Hint::Unreachable(a.me.process))),
        0,
        "a probe is not a loss"
    );
}

#[tokio::test]
async fn a_refused_connection_is_told_and_remembered() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    b.transport.shutdown().await;
    a.send(&b, numbered(1));
    a.letters.hint(Hint::Refused(b.me.process)).await;
    assert_eq!(a.transport.last_error(b.me.addr).as_deref(), Some("connection refused"));
    assert_eq!(a.transport.counters().undelivered, 1);
    // The address is dialled again for the next packet, and the error is forgotten.
    let b = TestPeer::with(2, TransportOptions::new("shop", b.me.addr.to_string())).await;
    a.meet(&b).await;
    assert_eq!(a.transport.last_error(b.me.addr), None);
}

#[tokio::test]
async fn a_foreign_cluster_is_refused_by_name() {
    let a = TestPeer::new(1).await;
    let b = TestPeer::with(2, TransportOptions::new("shed", "127.0.0.1:0")).await;
    a.send(&b, numbered(1));
    a.letters.hint(Hint::Replaced(b.me.process)).await;
    assert_eq!(a.transport.last_error(b.me.addr).as_deref(), Some("it belongs to cluster 'shed'"));
    assert_eq!(b.transport.counters().foreign_cluster, 1);
    assert!(b.letters.inputs.lock().unwrap().is_empty());
}

/// The answer of the listener at `addr` to `bytes`, until it closes.
async fn answer_to(addr: SocketAddr, bytes: &[u8]) -> Option<Frame> {
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read =
        tokio::time::timeout(GUARD, stream.read_to_end(&mut answer)).await.expect("it closes");
    if let Err(error) = read {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    let mut decoder = Decoder::new();
    decoder.back().extend_from_slice(&answer);
    decoder.next().expect("a frame or nothing")
}

/// A hello, and a packet that can follow it.
fn greeting_and_packet(me: &MemberInfo) -> (Vec<u8>, Vec<u8>) {
    let hello = Frame::Hello(Box::new(Handshake {
        cluster: "shop".into(),
        me: me.clone(),
        reserved: vec![],
    }));
    let (mut greeting, mut packet) = (Vec::new(), Vec::new());
    wire::encode(&hello, 0, &mut greeting).unwrap();
    wire::encode(&Frame::Packet(numbered(7)), wire::PROTOCOL_VERSION, &mut packet).unwrap();
    (greeting, packet)
}

#[tokio::test]
async fn members_that_share_a_seed_learn_of_each_other_by_gossip() {
    let seed = TestPeer::new(1).await;
    let options = || TransportOptions {
        seeds: vec![seed.me.addr.to_string()],
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let (a, b) = (TestPeer::with(2, options()).await, TestPeer::with(3, options()).await);
    assert_eq!(a.transport.seeds(), [seed.me.addr].into());
    a.letters.hint(Hint::Contact(b.me.addr)).await;
    b.letters.hint(Hint::Contact(a.me.addr)).await;
    seed.letters.hint(Hint::Contact(a.me.addr)).await;
}

#[tokio::test]
async fn a_dialled_seed_is_asked_for_all_that_gossip_knows() {
    let seed = TestPeer::new(1).await;
    let options = TransportOptions {
        seeds: vec![seed.me.addr.to_string()],
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let a = TestPeer::with(2, options).await;
    a.send(&seed, numbered(1));
    // The seed gets the packet and the question; the state comes back.
    until("asked", || seed.transport.counters().frames_in == 2).await;
    until("told", || a.transport.counters().frames_in == 1).await;
}

#[tokio::test]
async fn a_reborn_process_shakes_hands_anew() {
    let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
    a.meet(&b).await;
    let again = MemberInfo { process: ProcessId(11), ..a.me.clone() };
    a.transport.reborn(again.clone());
    b.letters.hint(Hint::Unreachable(a.me.process)).await;
    a.send(&b, numbered(5));
    b.letters.until(|inputs| (numbers(inputs, again.process) == [5]).then_some(())).await;
    // A sender that still means the old process is told so.
    b.send(&a, numbered(6));
    b.letters.hint(Hint::Replaced(a.me.process)).await;
}

#[tokio::test]
async fn shutdown_delivers_what_is_queued() {
    let many = 5_000;
    let mut tries = 0..20;
    let (a, b) = loop {
        tries.next().expect("the queue is written within the limit");
        let (a, b) = (TestPeer::new(1).await, TestPeer::new(2).await);
        for number in 1..=many {
            a.send(&b, numbered(number));
        }
        let began = Instant::now();
        a.transport.shutdown().await;
        // On a busy machine the limit may end before all of it is written.
        if began.elapsed() < FLUSH {
            break (a, b);
        }
    };
    let got = b.letters.until(|inputs| {
        let got = numbers(inputs, a.me.process);
        (got.len() as u64 == many).then_some(got)
    });
    assert!(got.await.is_sorted());
    assert_eq!(Arc::strong_count(&a.letters), 1, "nothing of it lives on");
    assert!(
        Transport::bind(TransportOptions::new("shop", a.me.addr.to_string())).await.is_ok(),
        "the port is free"
    );
}

#[tokio::test]
async fn a_dropped_transport_ends_its_tasks() {
    let a = TestPeer::new(1).await;
    let tasks = a.transport.shared.tasks.clone();
    let TestPeer { transport, letters, me } = a;
    drop(transport);
    tasks.close();
    tokio::time::timeout(GUARD, tasks.wait()).await.expect("they end");
    assert_eq!(Arc::strong_count(&letters), 1);
    assert!(Transport::bind(TransportOptions::new("shop", me.addr.to_string())).await.is_ok());
}

#[tokio::test]
async fn the_death_of_a_neighbour_is_told_once() {
    let b = TestPeer::new(2).await;
    let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep runs");
    let Some(here) = death_watch::here() else {
        child.kill().and_then(|()| child.wait()).expect("it can be killed");
        return;
    };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
        .expect("/proc tells of a child");
    let (_, after) = stat.rsplit_once(')').expect("a name");
    let started = after.split_whitespace().nth(19).expect("22 fields").parse().expect("a number");
    // A member that claims to live in the child process. It shakes hands twice.
    let host = Some(crate::protocol::Host { pid: child.id(), started, ..here });
    let addr = "127.0.0.1:9".parse().expect("an address");
    let info = MemberInfo { host, ..MemberInfo::new(ProcessId(7), addr) };
    let mut greeting = Vec::new();
    let hello = Frame::Hello(Box::new(Handshake {
        cluster: "shop".into(),
        me: info.clone(),
        reserved: vec![],
    }));
    wire::encode(&hello, 0, &mut greeting).unwrap();
    let mut streams = Vec::new();
    for count in 1..=2 {
        let mut stream = TcpStream::connect(b.me.addr).await.unwrap();
        stream.write_all(&greeting).await.unwrap();
        let connected = Input::Hint(Hint::Connected(info.process));
        until("greeted", || b.letters.count(&connected) == count).await;
        streams.push(stream);
    }
    // The processes of the view are watched, once each.
    b.in_view_with(&info);
    // A process that has left the view is watched no more.
    b.in_view_with(&MemberInfo::new(ProcessId(8), addr));
    let incarnation = b.transport.shared.incarnation().expect("it has begun");
    assert!(incarnation.watch.hold(&info).is_some());
    b.in_view_with(&MemberInfo::new(ProcessId(8), addr));
    b.in_view_with(&info);
    b.in_view_with(&info);
    assert!(incarnation.watch.hold(&info).is_none());
    let dead = Input::Hint(Hint::Dead(info.process));
    assert_eq!(b.letters.count(&dead), 0);
    child.kill().expect("it can be killed");
    b.letters.hint(Hint::Dead(info.process)).await;
    child.wait().expect("it has ended");
    drop(streams);
    b.letters.hint(Hint::Unreachable(info.process)).await;
    assert_eq!(b.letters.count(&dead), 1);
}

#[tokio::test]
async fn addresses_that_do_not_fit_are_refused_with_the_reason() {
    let taken = TestPeer::new(1).await;
    let addr = taken.me.addr;
    let error =
        |options| async { Transport::bind(options).await.err().expect("an error").to_string() };
    let options = |bind: &str| TransportOptions::new("shop", bind);
    assert_eq!(error(options(&addr.to_string())).await, format!("TCP port {addr} is taken"));
    assert!(error(options("0.0.0.0:0")).await.contains("no key"));
    assert!(
        error(TransportOptions { insecure: true, ..options("0.0.0.0:0") })
            .await
            .contains("advertise")
    );
    assert!(error(options("nonsense")).await.contains("cannot bind 'nonsense'"));
    assert!(error(TransportOptions::new("", "127.0.0.1:0")).await.contains("1 to 64 bytes"));
    assert!(
        error(TransportOptions::new("x".repeat(65), "127.0.0.1:0")).await.contains("1 to 64 bytes")
    );
    let other = TransportOptions { advertise: Some("[::1]:7400".into()), ..options("127.0.0.1:0") };
    assert!(error(other).await.contains("family"));
    let everywhere = TransportOptions {
        insecure: true,
        advertise: Some("127.0.0.1:0".into()),
        ..options("0.0.0.0:0")
    };
    let bound = Transport::bind(everywhere).await.expect("it can be bound");
    assert_eq!(bound.advertised().port(), bound.bound().port());
}

#[tokio::test]
async fn a_port_taken_for_datagrams_only_is_told_so() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    match Transport::bind(TransportOptions::new("shop", addr.to_string())).await {
        Err(BindError::Taken { protocol, addr: told }) => {
            assert_eq!((protocol, told), ("UDP", addr))
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("bound twice"),
    }
}

#[tokio::test]
async fn members_meet_over_ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        println!("skipped: no IPv6 here");
        return;
    }
    let options = || TransportOptions::new("shop", "[::1]:0");
    let (a, b) = (TestPeer::with(1, options()).await, TestPeer::with(2, options()).await);
    assert!(a.me.addr.is_ipv6());
    a.meet(&b).await;
}

#[tokio::test]
async fn an_observer_is_told_the_status_and_a_stranger_the_reason_why_not() {
    let a = TestPeer::new(1).await;
    let addr = a.me.addr.to_string();
    let status = query_status(&addr, "shop").await.expect("an answer");
    assert!(status.leased && status.me.process == ProcessId(7));
    match query_status(&addr, "shed").await {
        Err(QueryError::Refused { reason, .. }) => assert!(reason.contains("shop"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(query_status(&addr, "").await, Err(QueryError::Refused { .. })));
    a.transport.shutdown().await;
    assert!(matches!(query_status(&addr, "shop").await, Err(QueryError::Unreachable { .. })));
}

#[tokio::test]
async fn a_question_dropped_at_any_poll_leaves_no_task_behind() {
    let a = TestPeer::new(1).await;
    let addr = a.me.addr.to_string();
    let tasks = &a.transport.shared.tasks;
    // The transport listens and gossips; there are no seeds to resolve.
    until("at rest", || tasks.len() == 2).await;
    let before = tasks.len();
    let mut done = false;
    for k in 0.. {
        let mut query = Box::pin(query_status(&addr, "shop"));
        for _ in 0..k {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if let std::task::Poll::Ready(status) = query.as_mut().poll(&mut context) {
                assert!(status.expect("an answer").leased);
                done = true;
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(query);
        until("given up", || tasks.len() == before).await;
        assert!(query_status(&addr, "shop").await.expect("an answer").leased);
        until("given up", || tasks.len() == before).await;
        if done {
            assert!(k > 1, "it never had to wait");
            break;
        }
    }
    a.transport.shutdown().await;
    assert_eq!(Arc::strong_count(&a.letters), 1, "nothing of it lives on");
}
