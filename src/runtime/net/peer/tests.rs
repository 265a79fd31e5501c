//! Tests of the queues of a peer, and of their bounds.

use super::queue::{BULK, PEER_SHARE, QueueLoad, STRANGER_BYTES};
use super::*;
use crate::protocol::{Notice, ViewNumber};
use crate::runtime::net::stranger_budget::{LONE_FRAMES, MEMBER_BYTES};
use crate::runtime::net::write_half::BATCH;
use crate::wire::{self, ByteQueue, PROTOCOL_VERSION};

fn ack(ack: u64) -> Frame {
    Frame::Packet(Packet::Ack { view: ViewNumber(1), ack, again: false })
}

fn peer() -> Peer {
    Peer::new(
        "127.0.0.1:7400".parse().unwrap(),
        Arc::new(StrangerBudget::new(3 * STRANGER_BYTES)),
        Arc::new(StrangerBudget::new(MEMBER_BYTES)),
    )
}

#[test]
fn each_queue_is_bounded_for_itself() {
    let peer = peer();
    for number in 0..BULK.frames as u64 {
        assert!(peer.push(Some(ProcessId(u128::from(number % 3))), &ack(number), false, None));
    }
    assert!(!peer.push(Some(ProcessId(9)), &ack(0), false, None));
    assert!(!peer.push(None, &ack(0), false, None));
    // Notices still pass.
    assert!(peer.push(None, &Frame::Packet(Packet::from(Notice::Leave)), false, None));
    let (processes, frames) = peer.queue().give_up(&[]);
    assert_eq!(processes, [ProcessId(0), ProcessId(1), ProcessId(2)]);
    assert_eq!(frames, BULK.frames + 1);
    assert!(peer.is_idle());
    let queue = peer.queue();
    assert_eq!(
        [queue.bulk.frames, queue.bulk.bytes, queue.notices.frames, queue.notices.bytes],
        [0; 4]
    );
}

#[test]
fn bytes_are_bounded_too() {
    let peer = peer();
    let frame = Frame::Gossip(vec![0; 1024 * 1024]);
    let taken = (0..100).filter(|_| peer.push(None, &frame, false, None)).count();
    assert_eq!(taken, BULK.bytes / (1024 * 1024));
}

#[test]
fn all_peers_together_have_a_bound_beyond_the_share_of_each() {
    let (budget, total) = (3 * STRANGER_BYTES, 8 * PEER_SHARE);
    let budget = Arc::new(StrangerBudget::new(budget));
    let total = Arc::new(StrangerBudget::new(total));
    let peers: Vec<Peer> = (1..=20)
        .map(|port| Peer::new(([127, 0, 0, 1], port).into(), budget.clone(), total.clone()))
        .collect();
    let frame = Frame::Gossip(vec![0; PEER_SHARE / 4]);
    let fill = |peer: &Peer| (0..100).filter(|_| peer.push(None, &frame, false, None)).count();
    let taken: Vec<usize> = peers.iter().map(fill).collect();
    // A frame is a little longer than its content.
    assert_eq!(taken[0], 36, "the first has the share of each and all of the total");
    assert_eq!(taken[1..], [3; 19], "the others have the share of each");
    let long = Frame::Gossip(vec![0; 4 * PEER_SHARE]);
    assert!(!peers[1].push(None, &long, false, None), "it is longer than the rest of the share");
    assert_eq!(peers[1].queue().give_up(&[]).1, 3, "and it left nothing in the queue");
    assert!(peers[1].push(None, &long, false, None), "a peer that reads gets it");
    assert!(!peers[1].push(None, &ack(1), false, None), "and nothing beside it");
    peers[1].queue().give_up(&[]);
    let leave = Frame::Packet(Packet::from(Notice::Leave));
    assert!(!peers[0].push(None, &leave, false, None), "not even a sign of life");
    assert_eq!(peers[0].queue().give_up(&[]).1, 36);
    assert_eq!(fill(&peers[0]), 36, "the others have no more than their shares");
    drop(peers);
    assert_eq!(total.used(), 0);
}

#[test]
fn peers_that_read_nothing_keep_one_long_frame_each_up_to_a_bound() {
    let budget = Arc::new(StrangerBudget::new(3 * STRANGER_BYTES));
    let total = Arc::new(StrangerBudget::new(8 * PEER_SHARE));
    let peers: Vec<Peer> = (1..=100)
        .map(|port| Peer::new(([127, 0, 0, 1], port).into(), budget.clone(), total.clone()))
        .collect();
    let long = Frame::Gossip(vec![0; 4 * PEER_SHARE]);
    let short = Frame::Gossip(vec![0; PEER_SHARE / 2]);
    let took: Vec<bool> = peers.iter().map(|peer| peer.push(None, &long, false, None)).collect();
    let taken = took.iter().filter(|took| **took).count();
    let most = (1 + LONE_FRAMES) * 8 * PEER_SHARE + 4 * PEER_SHARE;
    assert!(took[..taken].iter().all(|took| *took) && total.used() <= most, "{taken} are kept");
    assert!((3 * taken..4 * taken).contains(&(total.used() / PEER_SHARE)));
    let last = peers.last().expect("a peer");
    assert!(last.push(None, &short, false, None), "each has its share");
    last.queue().give_up(&[]);
    assert!(!last.push(None, &long, false, None));
    peers[0].queue().give_up(&[]);
    assert!(last.push(None, &long, false, None), "the bytes of another one are free");
    drop(peers);
    assert_eq!(total.used(), 0);
}

#[test]
fn a_batch_on_its_way_counts_beyond_its_usual_length_until_it_is_written() {
    let budget = Arc::new(StrangerBudget::new(3 * STRANGER_BYTES));
    let total = Arc::new(StrangerBudget::new(PEER_SHARE));
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), budget, total.clone());
    for (own, counted) in [(BATCH, 0), (BATCH + 7 * PEER_SHARE, 7 * PEER_SHARE)] {
        peer.queue().note_batch(own);
        assert_eq!(total.used(), counted);
    }
    let long = Frame::Gossip(vec![0; 4 * PEER_SHARE]);
    assert!(!peer.push(None, &long, false, None), "a peer that reads nothing gets no more");
    peer.queue().note_batch(0);
    assert_eq!(total.used(), 0);
    assert!(peer.push(None, &long, false, None));
    peer.queue().note_batch(BATCH + 1);
    drop(peer);
    assert_eq!(total.used(), 0);
}

#[test]
fn bytes_for_strangers_are_bounded_for_each_and_for_all() {
    let budget = Arc::new(StrangerBudget::new(3 * STRANGER_BYTES));
    let peers = [1, 2, 3, 4].map(|port| {
        let total = Arc::new(StrangerBudget::new(MEMBER_BYTES));
        Peer::new(([127, 0, 0, 1], port).into(), budget.clone(), total)
    });
    let frame = Frame::Gossip(vec![0; STRANGER_BYTES / 4]);
    let fill = |peer: &Peer| {
        (0..100).filter(|_| peer.push(Some(ProcessId(7)), &frame, true, None)).count()
    };
    assert_eq!(peers.each_ref().map(fill), [4, 4, 4, 1], "the last is let in where nothing waits");
    assert!(
        budget.is_spent() && peers[0].push(Some(ProcessId(8)), &frame, false, None),
        "a member has bounds of its own"
    );
    assert_eq!(peers[0].drop_strange(), 4);
    assert_eq!(fill(&peers[3]), 3);
    // A stranger that becomes a member leaves the budget with its next frame.
    assert!(peers[1].push(Some(ProcessId(7)), &ack(0), false, None));
    assert_eq!(peers[1].strange_bytes(), 0);
    drop(peers);
    assert_eq!(budget.used(), 0);
}

#[test]
fn bytes_for_strangers_leave_the_total_to_members_and_move_with_their_process() {
    let budget = Arc::new(StrangerBudget::new(64 * STRANGER_BYTES));
    let total = Arc::new(StrangerBudget::new(2 * PEER_SHARE));
    let [first, second] =
        [1, 2].map(|port| Peer::new(([127, 0, 0, 1], port).into(), budget.clone(), total.clone()));
    let frame = Frame::Gossip(vec![0; PEER_SHARE]);
    let push = |peer: &Peer, process, is_strange| {
        peer.push(Some(ProcessId(process)), &frame, is_strange, None)
    };
    assert!((0..8).all(|_| push(&first, 7, true)));
    assert_eq!((total.used(), first.strange_bytes() > 8 * PEER_SHARE), (0, true));
    assert_eq!((0..9).filter(|_| push(&second, 8, false)).count(), 3, "members have it all");
    // The total has no room for a frame of the new member, whose earlier ones now count there.
    assert!(total.is_spent() && !push(&first, 7, false));
    assert!(total.used() > 8 * PEER_SHARE && first.strange_bytes() == 0);
    assert_eq!(budget.used(), 0);
    // The process leaves the view again, and has the bound of a stranger for its old and new
    // frames.
    assert_eq!((0..9).filter(|_| push(&first, 7, true)).count(), 8, "of 16 that it may have");
    assert!(first.strange_bytes() >= STRANGER_BYTES && total.used() <= 3 * PEER_SHARE);
    drop((first, second));
    assert_eq!((budget.used(), total.used()), (0, 0));
}

#[test]
fn whole_frames_are_taken_in_order() {
    let (mut load, mut waiting) = (QueueLoad::default(), ByteQueue::default());
    for number in 0..1000 {
        let frame = (&ack(number), PROTOCOL_VERSION);
        assert!(load.push(&mut waiting, frame, &BULK, usize::MAX).unwrap());
    }
    let mut decoder = wire::Decoder::new();
    decoder.open();
    let mut frames = 0;
    while !waiting.is_empty() {
        let mut batch = Vec::new();
        frames += load.take(&mut waiting, 100, &mut batch);
        decoder.back().extend_from_slice(&batch);
    }
    assert_eq!((frames, load.frames, load.bytes), (1000, 0, 0));
    for number in 0..1000 {
        assert_eq!(decoder.next(), Ok(Some(ack(number))));
    }
}
