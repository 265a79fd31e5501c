//! Threads that poll a connection for the answer to the message that they wrote.

use super::*;

/// Sends a message that is written at once; returns the connection on which the answer arrives.
fn ask(from: &TestPeer, to: &MemberInfo, number: u64) -> Option<Arc<ConnectionReader>> {
    from.transport.send(to.addr, Some(to.process), numbered(number));
    from.transport.flush(true)
}

/// A peer that polls for as long as a test may wait.
async fn patient(process: u128) -> TestPeer {
    let busy_poll = Duration::from_millis(20);
    TestPeer::with(
        process,
        TransportOptions { busy_poll, ..TransportOptions::new("shop", "127.0.0.1:0") },
    )
    .await
}

#[tokio::test]
async fn a_poll_reads_packets_before_any_task_runs() {
    let (a, b) = (patient(1).await, TestPeer::new(2).await);
    a.meet(&b).await;
    b.meet(&a).await;
    let reader = ask(&a, &b.me, 1).expect("it is written, to one connection");
    ask(&b, &a.me, 1);
    let heard = || numbers(&a.letters.inputs.lock().unwrap(), b.me.process);
    let counted =
        || (a.transport.counters().busy_poll_hits, a.transport.counters().busy_poll_misses);
    assert_eq!(heard(), [0]);
    assert!(reader.busy_poll());
    assert_eq!((heard(), counted()), (vec![0, 1], (1, 0)));
    // Nothing comes, and the next poll is not tried.
    assert!(!reader.busy_poll());
    ask(&b, &a.me, 2);
    assert!(!reader.busy_poll());
    assert_eq!((heard(), counted()), (vec![0, 1], (1, 1)));
    a.letters.until(|inputs| (numbers(inputs, b.me.process) == [0, 1, 2]).then_some(())).await;
    // With messages to two peers there is no single connection for the answer.
    let c = TestPeer::new(3).await;
    a.meet(&c).await;
    a.transport.send(b.me.addr, Some(b.me.process), numbered(2));
    assert!(ask(&a, &c.me, 1).is_none());
}

#[tokio::test]
async fn a_limit_of_zero_polls_never() {
    let options = TransportOptions {
        busy_poll: Duration::ZERO,
        ..TransportOptions::new("shop", "127.0.0.1:0")
    };
    let (a, b) = (TestPeer::with(1, options).await, TestPeer::new(2).await);
    a.letters.answers.store(true, Ordering::Relaxed);
    a.meet(&b).await;
    b.meet(&a).await;
    let reader = ask(&a, &b.me, 1).expect("it is written");
    ask(&b, &a.me, 1);
    assert!(!reader.busy_poll());
    a.letters.until(|inputs| (numbers(inputs, b.me.process) == [0, 1]).then_some(())).await;
    let counters = a.transport.counters();
    assert_eq!((counters.busy_poll_hits, counters.busy_poll_misses), (0, 0));
}

#[tokio::test]
async fn a_task_polls_for_the_next_question_after_an_answer() {
    let (a, b) = (TestPeer::new(1).await, patient(2).await);
    b.letters.answers.store(true, Ordering::Relaxed);
    a.meet(&b).await;
    // The task polls before another task has the thread, so it finds nothing.
    until("it has busy_poll_hits", || b.transport.counters().busy_poll_misses == 1).await;
    b.letters.answers.store(false, Ordering::Relaxed);
    for number in 1..10 {
        ask(&a, &b.me, number);
    }
    b.letters.until(|inputs| numbers(inputs, a.me.process).ends_with(&[9]).then_some(())).await;
    assert_eq!(b.transport.counters().busy_poll_misses, 1, "these were not questions");
}

/// A reading thread runs the wakers of other tasks. If one panics, the connection does not stay
/// open unread: it ends, and another one is opened.
#[tokio::test]
async fn a_panic_while_polling_ends_the_connection() {
    let (a, b) = (patient(1).await, TestPeer::new(2).await);
    a.meet(&b).await;
    b.meet(&a).await;
    let reader = ask(&a, &b.me, 1).expect("it is written");
    ask(&b, &a.me, 1);
    a.letters.panics.store(true, Ordering::Relaxed);
    let polling = std::panic::AssertUnwindSafe(|| reader.busy_poll());
    assert!(std::panic::catch_unwind(polling).is_err());
    a.letters.hint(Hint::Unreachable(b.me.process)).await;
    b.send(&a, numbered(2));
    a.letters.until(|inputs| numbers(inputs, b.me.process).ends_with(&[2]).then_some(())).await;
}

/// A member with a connection of this test's own, and the reader of its answers.
async fn with_a_member_by_hand(
    limits: ConnectionTimeouts,
) -> (TestPeer, MemberInfo, TcpStream, Vec<u8>, Arc<ConnectionReader>) {
    let options = TransportOptions { limits, ..TransportOptions::new("shop", "127.0.0.1:0") };
    let a = TestPeer::with(1, TransportOptions { busy_poll: Duration::from_millis(20), ..options })
        .await;
    let me = MemberInfo::new(ProcessId(7), "127.0.0.1:9".parse().unwrap());
    let (greeting, packet) = greeting_and_packet(&me);
    let mut stream = TcpStream::connect(a.me.addr).await.unwrap();
    stream.write_all(&greeting).await.unwrap();
    a.letters.hint(Hint::Connected(me.process)).await;
    let mut reader = None;
    // The peer's task takes the connection over first.
    until("it can be written to", || {
        reader = ask(&a, &me, 1);
        reader.is_some()
    })
    .await;
    (a, me, stream, packet, reader.unwrap())
}

#[tokio::test]
async fn a_frame_that_begins_during_a_poll_has_to_end_as_well() {
    let limits =
        ConnectionTimeouts { frame: Duration::from_millis(100), ..ConnectionTimeouts::default() };
    let (a, me, mut stream, packet, reader) = with_a_member_by_hand(limits).await;
    stream.write_all(&packet[..9]).await.unwrap();
    assert!(reader.busy_poll(), "something came");
    // From here on the task has the incomplete frame.
    stream.write_all(&packet[9..12]).await.unwrap();
    assert!(!reader.busy_poll());
    a.letters.hint(Hint::Unreachable(me.process)).await;
    assert_eq!(a.transport.counters().unfinished, 1);
    assert!(!reader.busy_poll(), "it is over");
}

#[tokio::test]
async fn an_end_that_a_poll_sees_is_told_as_any_other() {
    let (a, me, stream, _, reader) = with_a_member_by_hand(ConnectionTimeouts::default()).await;
    drop(stream);
    assert!(!reader.busy_poll());
    a.letters.hint(Hint::Unreachable(me.process)).await;
    let (a, me, mut stream, packet, reader) =
        with_a_member_by_hand(ConnectionTimeouts::default()).await;
    let mut damaged = packet.clone();
    *damaged.last_mut().unwrap() ^= 1;
    stream.write_all(&[packet, damaged].concat()).await.unwrap();
    assert!(!reader.busy_poll());
    assert_eq!(
        numbers(&a.letters.inputs.lock().unwrap(), me.process),
        [7],
        "the packet before it was heard"
    );
    a.letters.hint(Hint::Unreachable(me.process)).await;
    assert_eq!(a.transport.counters().damaged, 1);
}
