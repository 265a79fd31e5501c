//! Locks that a member keeps after their release, at the two members that are concerned.

use super::*;
use crate::protocol::locks::grantor::ReceivedRequest;

const EPOCH: Epoch = Epoch(Token::new(Slot(1), 100));

fn request_to_keep(number: u64) -> ReceivedRequest {
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    let lock = LockRequest { want: want("x"), owner, revocable: false, metadata };
    let request = RequestId(number);
    ReceivedRequest { from: ANN, request, lock, only_if_free: false, keep: 8 }
}

fn command(number: u64) -> Command {
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    Command::Lock {
        detects: false,
        keeps: true,
        request: RequestId(number),
        service: service(),
        wait: Wait::Forever,
        lease: None,
        lock: LockRequest { want: want("x"), owner, revocable: false, metadata },
    }
}

/// A member that has locked `x` twice and keeps it: Ann grants it.
fn keeper() -> Node {
    let mut node = with_two_more();
    for number in 1..=2 {
        let said = act(&mut node, |locks, cx| {
            locks.client.on_grantor_is(&service(), ANN, EPOCH, cx);
            locks.on_command(command(number), &|_| false, cx);
        });
        let wished = said.iter().find_map(|message| match message {
            Message::Grantor(GrantorMessage::RequestLock { keep, .. }) => Some(*keep),
            _ => None,
        });
        assert_eq!(wished, Some(if number == 1 { 0 } else { 64 }));
        let said = act(&mut node, |locks, cx| {
            let (request, token) = (RequestId(number), token(100 + number as u32));
            locks.client.on_grant(ANN, &service(), EPOCH, request, token, cx);
            let kept = if number == 1 { 0 } else { 64 };
            locks.client.keep(&service(), EPOCH, request, (token, kept), cx);
            locks.client.release(request, cx);
        });
        assert_eq!(said.len(), usize::from(number == 1), "{said:?}");
    }
    node
}

fn act(node: &mut Node, work: impl FnOnce(&mut Locks, &mut StepContext)) -> Vec<Message> {
    let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
        cx.standing.leased = true;
        work(locks, cx);
    });
    outbox.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn a_kept_lock_is_taken_and_released_without_a_message_and_with_the_next_token() {
    let mut node = keeper();
    for number in 3..=66 {
        let said = act(&mut node, |locks, cx| {
            locks.on_command(command(number), &|_| false, cx);
            let granted = locks.client.holds(RequestId(number), cx.now);
            assert_eq!(granted, Some(token(100 + number as u32)));
            locks.client.release(RequestId(number), cx);
        });
        assert_eq!(said, []);
    }
    let said = act(&mut node, |locks, cx| locks.on_command(command(67), &|_| false, cx));
    assert!(
        matches!(
            &said[..],
            [
                Message::Grantor(GrantorMessage::Release { request: RequestId(2), .. }),
                Message::Grantor(GrantorMessage::RequestLock { keep: 4096, .. })
            ]
        ),
        "its range is used up: {said:?}"
    );
}

#[test]
fn a_recalled_lock_is_given_back_and_not_kept_again() {
    let mut node = keeper();
    let said =
        act(&mut node, |locks, cx| locks.client.on_recall(ANN, &service(), RequestId(2), cx));
    assert!(matches!(
        &said[..],
        [Message::Grantor(GrantorMessage::Release { request: RequestId(2), .. })]
    ));
    let said = act(&mut node, |locks, cx| locks.on_command(command(3), &|_| false, cx));
    assert!(matches!(&said[..], [Message::Grantor(GrantorMessage::RequestLock { keep: 0, .. })]));
}

#[test]
fn a_lock_that_is_recalled_while_it_is_used_becomes_an_ordinary_hold() {
    let mut node = keeper();
    let said = act(&mut node, |locks, cx| {
        locks.on_command(command(3), &|_| false, cx);
        locks.client.on_recall(ANN, &service(), RequestId(2), cx);
        locks.client.on_recall(ANN, &service(), RequestId(2), cx);
        locks.client.release(RequestId(3), cx);
    });
    assert!(
        matches!(
            &said[..],
            [
                Message::Grantor(GrantorMessage::KeepInUse {
                    request: RequestId(2),
                    by: RequestId(3),
                    ..
                }),
                Message::Grantor(GrantorMessage::Release { request: RequestId(3), .. })
            ]
        ),
        "{said:?}"
    );
}

#[test]
fn a_report_has_the_request_that_uses_a_kept_lock_and_no_free_keep() {
    for is_used in [false, true] {
        let mut node = keeper();
        let later = Epoch(token(500));
        let said = act(&mut node, |locks, cx| {
            if is_used {
                locks.on_command(command(3), &|_| false, cx);
            }
            locks.client.on_recover(BOB, &service(), later, cx);
        });
        let reported = said.iter().find_map(|message| match message {
            Message::Grantor(GrantorMessage::Report { holds, .. }) => Some(holds.clone()),
            _ => None,
        });
        let holds = reported.expect("it reports");
        let told: Vec<_> = holds.iter().map(|hold| (hold.request, hold.token)).collect();
        let expected = if is_used { vec![(RequestId(3), token(103))] } else { vec![] };
        assert_eq!(told, expected);
        let first = said.first();
        let is_told = matches!(first, Some(Message::Grantor(GrantorMessage::KeepInUse { .. })));
        assert_eq!(is_told, is_used, "before the report: {said:?}");
    }
}

#[test]
fn a_grantor_carves_the_range_of_a_keep_before_anything_later_and_recalls_it_once() {
    let said = said(Origin::Free, |grantor, _, cx| {
        grantor.on_request_lock(request_to_keep(1), cx);
        for number in [2, 3] {
            let asked = ReceivedRequest { from: BOB, ..request_to_keep(number) };
            grantor.on_request_lock(asked, cx);
        }
        grantor.on_keep_in_use((ANN, RequestId(1)), RequestId(9), (OwnerId(4), token(105)), cx);
        let held: Vec<_> =
            grantor.held().map(|(_, by, request, token)| (by, request, token)).collect();
        assert_eq!(held, [(ANN, RequestId(9), token(105))]);
        grantor.on_release(ANN, RequestId(9), cx);
    });
    let grants: Vec<_> = said
        .iter()
        .filter_map(|(to, message)| match message {
            Message::Client(ClientMessage::Grant { token, kept, .. }) => Some((*to, *token, *kept)),
            _ => None,
        })
        .collect();
    assert_eq!(grants, [(ANN, token(101), 8), (BOB, token(110), 0)]);
    let is_recall = |(_, message): &&(ProcessId, Message)| {
        matches!(message, Message::Client(ClientMessage::Recall { .. }))
    };
    assert_eq!(said.iter().filter(is_recall).count(), 1);
}

#[test]
fn a_try_waits_for_the_answer_to_a_recall() {
    for is_used in [false, true] {
        let said = said(Origin::Free, |grantor, _, cx| {
            grantor.on_request_lock(request_to_keep(1), cx);
            let asked =
                ReceivedRequest { from: BOB, only_if_free: true, keep: 0, ..request_to_keep(2) };
            grantor.on_request_lock(asked, cx);
            let is_answered = cx.outbox.iter().any(|(to, _)| *to == BOB);
            assert!(!is_answered);
            if is_used {
                let owner = OwnerId::default();
                let (key, by) = ((ANN, RequestId(1)), RequestId(9));
                grantor.on_keep_in_use(key, by, (owner, token(102)), cx);
            } else {
                grantor.on_release(ANN, RequestId(1), cx);
            }
        });
        let (_, answer) = said.iter().find(|(to, _)| *to == BOB).expect("it is answered");
        assert_eq!(matches!(answer, Message::Client(ClientMessage::Grant { .. })), !is_used);
    }
}
