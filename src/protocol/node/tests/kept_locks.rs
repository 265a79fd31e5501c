//! Locks that a member keeps after their release, at the two members involved.

use super::*;
use crate::protocol::locks::grantor::ReceivedRequest;

const EPOCH: Epoch = Epoch(Token::new(Slot(1), 100));

fn share() -> Want {
    Want::Share(LockName::new(b"x").expect("a good name"))
}

fn request_to_keep(number: u64) -> ReceivedRequest {
    request_to_keep_a(number, want("x"))
}

fn request_to_keep_a(number: u64, want: Want) -> ReceivedRequest {
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    let lock = LockRequest { want, owner, revocable: false, metadata };
    let request = RequestId(number);
    ReceivedRequest { from: ANN, request, lock, only_if_free: false, keep: 8 }
}

fn command(number: u64) -> Command {
    command_for(number, want("x"))
}

fn command_for(number: u64, want: Want) -> Command {
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    Command::Lock {
        detects: false,
        keeps: true,
        follows: false,
        request: RequestId(number),
        service: service(),
        wait: Wait::Forever,
        lease: None,
        lock: LockRequest { want, owner, revocable: false, metadata },
    }
}

/// A member that has locked `x` twice and keeps it; Ann is the grantor.
fn keeper() -> Node {
    keeper_of(&want("x"))
}

fn keeper_of(want: &Want) -> Node {
    let mut node = with_two_more();
    for number in 1..=2 {
        let said = act(&mut node, |locks, cx| {
            locks.client.on_grantor_is(&service(), ANN, EPOCH, cx);
            locks.on_command(command_for(number, want.clone()), &|_| false, cx);
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

/// Two members use a lock that they keep: one by commands, the other by its node's offers.
#[test]
fn local_grants_of_a_kept_lock_come_to_the_same_as_commands() {
    let name = LockName::new(b"x").expect("a good name");
    for (uses, is_held) in [(1, false), (1, true), (5, false), (5, true), (64, false), (64, true)] {
        let (mut commanded, mut offered) = (keeper(), keeper());
        let last = RequestId(2 + uses);
        act(&mut commanded, |locks, cx| {
            for number in 3..=last.0 {
                locks.on_command(command(number), &|_| false, cx);
                if !is_held || number < last.0 {
                    locks.client.release(RequestId(number), cx);
                }
            }
        });
        act(&mut offered, |locks, cx| {
            let range = locks.client.kept_tokens(&service(), &name).expect("it is kept free");
            assert_eq!((range.first, range.len()), (token(103), 64));
            let holder = is_held.then_some((last, OwnerId::default()));
            let used = KeptUse { name: name.clone(), spent: uses as u32, since: cx.now };
            locks.absorb_kept(&service(), used, holder);
        });
        let seen = [&mut commanded, &mut offered].map(|node| {
            let mut known = None;
            let said = act(node, |locks, cx| {
                let left = locks.client.kept_tokens(&service(), &name);
                known = Some((left, locks.client.holds(last, cx.now)));
                locks.client.on_recall(ANN, &service(), RequestId(2), cx);
                locks.client.release(last, cx);
                locks.on_command(command(100), &|_| false, cx);
            });
            (known, said)
        });
        assert_eq!(seen[0], seen[1], "{uses} uses, held: {is_held}");
        let (left, held) = seen[1].0.expect("it is asked");
        assert_eq!(left.is_some(), !is_held && uses < 64);
        assert_eq!(held, is_held.then(|| token(102 + uses as u32)));
    }
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
fn a_lock_is_kept_again_after_a_recall_only_if_its_keep_has_saved_more_than_the_recall_cost() {
    let (short, long) = (Duration::from_millis(5), Duration::from_millis(20));
    for (uses, kept_for, kept_again) in
        [(4, long, true), (3, long, false), (64, short, false), (0, long, false)]
    {
        let mut node = keeper();
        let mut keep_of_next = None;
        let outbox = node.cx(NOW + kept_for, &mut Vec::new(), |locks, cx| {
            cx.standing.leased = true;
            for number in (3..).take(uses) {
                locks.on_command(command(number), &|_| false, cx);
                locks.client.release(RequestId(number), cx);
            }
            locks.client.on_recall(ANN, &service(), RequestId(2), cx);
            locks.on_command(command(100), &|_| false, cx);
        });
        for (_, message) in outbox {
            if let Message::Grantor(GrantorMessage::RequestLock { keep, .. }) = message {
                keep_of_next = Some(keep);
            }
        }
        let expected = if kept_again { 64 } else { 0 };
        assert_eq!(keep_of_next, Some(expected), "{uses} uses in {kept_for:?}");
    }
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
                Message::Grantor(GrantorMessage::KeepInUse { place: RequestId(2), .. }),
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
            locks.client.on_recover(BOB, &service(), (later, true), cx);
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

/// The hold of request 9, which stands in for the granted request.
fn used(owner: OwnerId, token: Token) -> HoldReport {
    let (request, held_for) = (RequestId(9), Duration::ZERO);
    HoldReport { request, lock: LockRequest { owner, ..request_to_keep(9).lock }, token, held_for }
}

#[test]
fn a_grantor_carves_the_range_of_a_keep_before_anything_later_and_recalls_it_once() {
    let said = said(Origin::Free, |grantor, _, cx| {
        grantor.on_request_lock(request_to_keep(1), cx);
        for number in [2, 3] {
            let asked = ReceivedRequest { from: BOB, ..request_to_keep(number) };
            grantor.on_request_lock(asked, cx);
        }
        let holds = vec![used(OwnerId(4), token(105))];
        grantor.on_keep_in_use((ANN, RequestId(1)), holds, cx);
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
                let hold = used(OwnerId::default(), token(102));
                grantor.on_keep_in_use((ANN, RequestId(1)), vec![hold], cx);
            } else {
                grantor.on_release(ANN, RequestId(1), cx);
            }
        });
        let (_, answer) = said.iter().find(|(to, _)| *to == BOB).expect("it is answered");
        assert_eq!(matches!(answer, Message::Client(ClientMessage::Grant { .. })), !is_used);
    }
}

/// The requests that stand in for request 2 according to a message, with their tokens.
fn told_uses(message: Option<&Message>) -> Vec<(u64, Token)> {
    let Some(Message::Grantor(GrantorMessage::KeepInUse { place: RequestId(2), holds, .. })) =
        message
    else {
        panic!("it tells of no use: {message:?}")
    };
    holds.iter().map(|hold| (hold.request.0, hold.token)).collect()
}

#[test]
fn several_requests_have_a_kept_share_at_once_without_a_message() {
    let mut node = keeper_of(&share());
    let said = act(&mut node, |locks, cx| {
        for number in 3..=5 {
            locks.on_command(command_for(number, share()), &|_| false, cx);
            let granted = locks.client.holds(RequestId(number), cx.now);
            assert_eq!(granted, Some(token(100 + number as u32)));
        }
        locks.client.release(RequestId(4), cx);
        assert_eq!(locks.client.kept().collect::<Vec<_>>(), [(RequestId(2), true)]);
    });
    assert_eq!(said, []);
    let said =
        act(&mut node, |locks, cx| locks.client.on_recall(ANN, &service(), RequestId(2), cx));
    assert_eq!(told_uses(said.first()), [(3, token(103)), (5, token(105))]);
    assert_eq!(said.len(), 1);
}

#[test]
fn a_kept_share_is_no_lock_and_a_kept_lock_no_share() {
    for (kept, other) in [(share(), want("x")), (want("x"), share())] {
        let mut node = keeper_of(&kept);
        let said = act(&mut node, |locks, cx| {
            locks.on_command(command_for(3, other.clone()), &|_| false, cx);
        });
        assert!(
            matches!(
                &said[..],
                [
                    Message::Grantor(GrantorMessage::Release { request: RequestId(2), .. }),
                    Message::Grantor(GrantorMessage::RequestLock { request: RequestId(3), .. })
                ]
            ),
            "{said:?}"
        );
    }
}

#[test]
fn a_share_has_no_more_users_at_once_than_one_message_tells_of() {
    let mut node = keeper_of(&share());
    let said = act(&mut node, |locks, cx| {
        for number in 3..=66 {
            locks.on_command(command_for(number, share()), &|_| false, cx);
        }
        locks.client.release(RequestId(10), cx);
    });
    assert_eq!(said, [], "it has as many tokens as users");
    let said = act(&mut node, |locks, cx| {
        locks.on_command(command_for(67, share()), &|_| false, cx);
    });
    assert_eq!(told_uses(said.first()).len(), 63);
    assert!(
        matches!(&said[1..], [Message::Grantor(GrantorMessage::RequestLock { .. })]),
        "{said:?}"
    );
}

#[test]
fn a_later_grantor_hears_of_all_uses_of_a_share_before_the_report() {
    let mut node = keeper_of(&share());
    let later = Epoch(token(500));
    let said = act(&mut node, |locks, cx| {
        for number in 3..=4 {
            locks.on_command(command_for(number, share()), &|_| false, cx);
        }
        locks.client.on_recall(ANN, &service(), RequestId(2), cx);
        locks.client.on_recover(BOB, &service(), (later, true), cx);
    });
    let uses = [(3, token(103)), (4, token(104))];
    assert_eq!(told_uses(said.first()), uses, "to Ann");
    assert_eq!(told_uses(said.get(1)), uses, "to Bob, before the report");
}

/// A request that uses the share that Ann was granted to keep with request 1.
fn used_share(request: u64) -> HoldReport {
    HoldReport {
        request: RequestId(request),
        lock: request_to_keep_a(request, share()).lock,
        token: token(100 + request as u32),
        held_for: Duration::ZERO,
    }
}

/// The messages after Ann has kept a share, another request has arrived, and Ann has reported
/// `uses`.
fn answers_beside_a_kept_share(
    asked: &ReceivedRequest,
    uses: Option<&[u64]>,
) -> Vec<(ProcessId, Message)> {
    said(Origin::Free, |grantor, _, cx| {
        grantor.on_request_lock(request_to_keep_a(1, share()), cx);
        grantor.on_request_lock(asked.clone(), cx);
        let Some(uses) = uses else { return };
        let holds = uses.iter().map(|request| used_share(*request)).collect();
        grantor.on_keep_in_use((ANN, RequestId(1)), holds, cx);
        for request in uses {
            let is_granted = cx.outbox.iter().any(|(to, message)| {
                *to == BOB && matches!(message, Message::Client(ClientMessage::Grant { .. }))
            });
            assert!(!is_granted, "before {request} is released");
            grantor.on_release(ANN, RequestId(*request), cx);
        }
    })
}

#[test]
fn a_lock_waits_for_all_uses_of_a_kept_share() {
    for uses in [&[1][..], &[3], &[3, 4], &[1, 3, 4]] {
        let asked = ReceivedRequest { from: BOB, ..request_to_keep(9) };
        let said = answers_beside_a_kept_share(&asked, Some(uses));
        let is_recall = |(to, message): &&(ProcessId, Message)| {
            *to == ANN && matches!(message, Message::Client(ClientMessage::Recall { .. }))
        };
        assert_eq!(said.iter().filter(is_recall).count(), 1);
        let granted = said.iter().find_map(|(to, message)| match message {
            Message::Client(ClientMessage::Grant { token, .. }) if *to == BOB => Some(*token),
            _ => None,
        });
        assert_eq!(granted, Some(token(110)), "above the tokens of the share");
    }
}

#[test]
fn a_share_is_granted_and_kept_beside_a_kept_share() {
    let asked = ReceivedRequest { from: BOB, ..request_to_keep_a(9, share()) };
    let said = answers_beside_a_kept_share(&asked, None);
    let granted: Vec<_> = said
        .iter()
        .filter_map(|(to, message)| match message {
            Message::Client(ClientMessage::Grant { token, kept, .. }) => Some((*to, *token, *kept)),
            _ => None,
        })
        .collect();
    assert_eq!(granted, [(ANN, token(101), 8), (BOB, token(110), 8)]);
    assert_eq!(said.len(), 2 + said.iter().filter(|(to, _)| ![ANN, BOB].contains(to)).count());
}

#[test]
fn an_upgrade_waits_for_the_answer_to_a_recall() {
    let said = said(Origin::Free, |grantor, _, cx| {
        grantor.on_request_lock(request_to_keep_a(1, share()), cx);
        let asked = ReceivedRequest { from: BOB, keep: 0, ..request_to_keep_a(2, share()) };
        grantor.on_request_lock(asked, cx);
        for request in [3, 4] {
            grantor.on_upgrade(BOB, RequestId(request), RequestId(2), cx);
            grantor.on_release(ANN, RequestId(1), cx);
        }
    });
    let answers: Vec<_> = said
        .iter()
        .filter_map(|(to, message)| match message {
            Message::Client(ClientMessage::Refuse { request, refusal, .. }) if *to == BOB => {
                Some((request.0, Some((**refusal).clone())))
            }
            Message::Client(ClientMessage::Upgraded { request, .. }) => Some((request.0, None)),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(3, Some(Refusal::Undecided)), (4, None)]);
}

#[test]
fn a_late_answer_to_a_recall_makes_no_share_of_an_upgraded_lock() {
    let said = said(Origin::Free, |grantor, _, cx| {
        grantor.on_request_lock(request_to_keep_a(1, share()), cx);
        grantor.on_keep_in_use((ANN, RequestId(1)), vec![used_share(1)], cx);
        grantor.on_upgrade(ANN, RequestId(2), RequestId(1), cx);
        grantor.on_keep_in_use((ANN, RequestId(1)), vec![used_share(1)], cx);
        let asked = ReceivedRequest { from: BOB, keep: 0, ..request_to_keep_a(9, share()) };
        grantor.on_request_lock(asked, cx);
    });
    let is_grant = |(to, message): &(ProcessId, Message)| {
        *to == BOB && matches!(message, Message::Client(ClientMessage::Grant { .. }))
    };
    assert!(!said.iter().any(is_grant), "{said:?}");
}

#[test]
fn the_end_of_a_place_tells_of_the_requests_that_hold_in_its_place() {
    let mut node = with_two_more();
    let said = act(&mut node, |locks, cx| {
        for number in 1..=2 {
            locks.client.on_grantor_is(&service(), ANN, EPOCH, cx);
            locks.on_command(command_for(number, share()), &|_| false, cx);
            let (request, token) = (RequestId(number), token(100 + number as u32));
            locks.client.on_grant(ANN, &service(), EPOCH, request, token, cx);
            let kept = if number == 1 { 0 } else { 64 };
            locks.client.keep(&service(), EPOCH, request, (token, kept), cx);
        }
        locks.on_command(command_for(3, share()), &|_| false, cx);
        locks.client.on_recover(BOB, &service(), (Epoch(token(500)), true), cx);
        locks.client.release(RequestId(2), cx);
        locks.client.release(RequestId(3), cx);
        locks.client.release(RequestId(1), cx);
    });
    let told: Vec<_> = said
        .iter()
        .filter_map(|message| match message {
            Message::Grantor(GrantorMessage::KeepInUse { place, holds, .. }) => {
                Some((place.0, holds.iter().map(|hold| hold.request.0).collect::<Vec<_>>()))
            }
            Message::Grantor(GrantorMessage::Release { request, .. }) => Some((request.0, vec![])),
            _ => None,
        })
        .collect();
    let expected = [(2, vec![3, 2]), (2, vec![3]), (3, vec![]), (1, vec![])];
    assert_eq!(told, expected, "{said:?}");
}
