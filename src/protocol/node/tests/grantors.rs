//! Single steps of a grantor that simulated runs rarely reach, or whose result the runs do not
//! check.

use super::*;
use crate::protocol::event::GrantorState;
use crate::protocol::id::Permits;
use crate::protocol::limits::Limits;
use crate::protocol::locks::grantor::ReceivedRequest;
use crate::protocol::message::LockRequest;
use crate::protocol::message::WaitReport;
use crate::protocol::part_of;

const OLD: Epoch = Epoch(token(1));
const RANGE: TokenRange = TokenRange { first: token(100), last: token(200) };

fn asked(from: ProcessId, request: u64, want: Want) -> ReceivedRequest {
    ReceivedRequest {
        keep: 0,
        from,
        request: RequestId(request),
        only_if_free: false,
        lock: LockRequest {
            want,
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    }
}

fn wait(request: u64, want: Want, ticket: Option<u64>) -> WaitReport {
    WaitReport {
        request: RequestId(request),
        ticket: ticket.map(|number| Ticket { epoch: OLD, number }),
        lock: LockRequest {
            want,
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    }
}

fn open(name: &str, text: &[u8]) -> Want {
    let name = LockName::new(name.as_bytes()).expect("a good name");
    Want::Open(OpenRequest::new(name, Value::new(text).expect("a short value")))
}

fn permits(name: &str, count: u32) -> Want {
    let name = LockName::new(name.as_bytes()).expect("a good name");
    Want::Permits(name, Permits::new(count).expect("a good number"))
}

/// A grantor with a table from `ANN` that has these holds and waits.
fn with_table(
    holds: Vec<(ProcessId, HoldReport)>,
    waits: Vec<(ProcessId, WaitReport)>,
    view: &View,
    cx: &mut StepContext,
) -> Grantor {
    let mut grantor = Grantor::new(service(), RANGE, Origin::Predecessor(ANN), view, cx);
    grantor.on_table_chunk(ANN, Vec::new(), (holds, waits), (view, true), cx);
    assert!(grantor.is_acting());
    cx.outbox.clear();
    grantor
}

/// The messages of a grantor that acts in a view of three.
fn acting(act: impl FnOnce(&mut Grantor, &View, &mut StepContext)) -> Vec<(ProcessId, Message)> {
    said(Origin::Free, act)
}

/// All requests of a member in the table.
fn requests_of(grantor: &Grantor, process: ProcessId) -> Vec<u64> {
    grantor.requests().filter(|(of, ..)| *of == process).map(|(_, request, _)| request.0).collect()
}

fn is_granted(said: &[(ProcessId, Message)], to: ProcessId, request: u64) -> bool {
    said.iter().any(|(process, message)| {
        let Message::Client(ClientMessage::Grant { request: told, .. }) = message else {
            return false;
        };
        (*process, told.0) == (to, request)
    })
}

/// Holds of this member in the transferred table may be over, and would let its request pass the
/// suspension.
#[test]
fn a_holder_that_has_not_answered_the_check_asks_again_where_it_might_pass() {
    let said = said(Origin::Free, |_, view, cx| {
        let (holds, waits) = (
            vec![(BOB, hold("x", 40))],
            vec![(ANN, wait(50, Want::Suspension, Some(u32::MAX.into())))],
        );
        let mut grantor = with_table(holds, waits, view, cx);
        grantor.on_request_lock(asked(BOB, 60, want("y")), cx);
        grantor.on_request_lock(asked(ANN, 61, want("y")), cx);
    });
    let sent_on = said.iter().filter(|(_, message)| {
        matches!(message, Message::Client(ClientMessage::NotGrantor { .. }))
    });
    assert_eq!(
        sent_on.map(|(to, _)| *to).collect::<Vec<_>>(),
        [BOB],
        "ANN has no hold, and waits here"
    );
    let queued = said
        .iter()
        .filter(|(_, message)| matches!(message, Message::Client(ClientMessage::Queued { .. })));
    assert_eq!(queued.map(|(to, _)| *to).collect::<Vec<_>>(), [ANN]);
}

#[test]
fn permits_that_wait_without_their_object_are_granted_when_it_is_opened() {
    let said = acting(|grantor, _, cx| {
        grantor.on_request_lock(asked(BOB, 40, open("pool", &1u32.to_le_bytes())), cx);
        grantor.on_request_lock(asked(BOB, 41, permits("pool", 1)), cx);
        grantor.on_request_lock(asked(BOB, 42, permits("pool", 1)), cx);
        grantor.on_release(BOB, RequestId(40), cx);
        grantor.on_release(BOB, RequestId(41), cx);
        assert_eq!(requests_of(grantor, BOB), [42], "there is no object, so there are no permits");
        cx.outbox.clear();
        grantor.on_request_lock(asked(ANN, 50, open("pool", &2u32.to_le_bytes())), cx);
    });
    assert!(is_granted(&said, BOB, 42), "{said:?}");
}

#[test]
fn a_grantor_that_gets_tokens_of_no_use_asks_again() {
    let said = said(Origin::Free, |_, view, cx| {
        let few = TokenRange { first: token(100), last: token(103) };
        let mut grantor = Grantor::new(service(), few, Origin::Free, view, cx);
        grantor.on_request_lock(asked(ANN, 1, want("x")), cx);
        grantor.on_request_lock(asked(ANN, 2, want("y")), cx);
        assert!(cx.outbox.iter().any(|(_, message)| matches!(
            message,
            Message::Registry(RegistryMessage::MoreTokens { .. })
        )));
        cx.outbox.clear();
        grantor.on_tokens(TokenRange { first: token(50), last: token(60) }, cx);
    });
    assert!(
        said.iter().any(|(_, message)| matches!(
            message,
            Message::Registry(RegistryMessage::MoreTokens { .. })
        )),
        "{said:?}"
    );
}

#[test]
fn waits_that_were_reported_end_with_their_member() {
    said(Origin::Everyone, |grantor, view, cx| {
        let me = cx.me;
        grantor.on_report(ANN, Vec::new(), (Vec::new(), vec![wait(2, want("x"), None)]), true, cx);
        let mut next = view.clone();
        next.members.retain(|member| member.info.process != ANN);
        grantor.on_view(&next, &[ANN], &[], cx);
        for process in [BOB, me] {
            grantor.on_report(process, Vec::new(), (Vec::new(), Vec::new()), true, cx);
        }
        assert!(grantor.is_acting());
        assert_eq!(requests_of(grantor, ANN), [0; 0]);
    });
}

/// Otherwise the request would wait behind the suspension, and the suspension for the hold of its
/// owner.
#[test]
fn a_holder_without_an_acknowledged_position_passes_a_suspension_that_is_reported_later() {
    let said = said(Origin::Everyone, |grantor, _, cx| {
        let me = cx.me;
        grantor.on_report(
            ANN,
            Vec::new(),
            (vec![hold("x", 40)], vec![wait(51, want("y"), None)]),
            true,
            cx,
        );
        grantor.on_report(
            BOB,
            Vec::new(),
            (Vec::new(), vec![wait(52, Want::Suspension, Some(u32::MAX.into()))]),
            true,
            cx,
        );
        grantor.on_report(me, Vec::new(), (Vec::new(), Vec::new()), true, cx);
    });
    assert!(is_granted(&said, ANN, 51), "{said:?}");
}

#[test]
fn a_wait_that_gets_its_position_by_a_later_one_is_told() {
    let said = said(Origin::Everyone, |grantor, _, cx| {
        let (me, waits) = (cx.me, vec![wait(2, want("x"), None), wait(3, want("x"), Some(1))]);
        grantor.on_report(ANN, Vec::new(), (Vec::new(), waits), true, cx);
        grantor.on_report(BOB, Vec::new(), (vec![hold("x", 40)], Vec::new()), true, cx);
        grantor.on_report(me, Vec::new(), (Vec::new(), Vec::new()), true, cx);
    });
    let queued = said.iter().filter_map(|(to, message)| match message {
        Message::Client(ClientMessage::Queued { request, ticket, .. }) => {
            Some((*to, request.0, *ticket))
        }
        _ => None,
    });
    assert_eq!(queued.collect::<Vec<_>>(), [(ANN, 2, Ticket { epoch: OLD, number: 1 })]);
}

#[test]
fn of_two_that_wait_for_a_table_the_earlier_hears_that_it_gets_none() {
    let said = said(Origin::Predecessor(ANN), |grantor, _, cx| {
        let me = cx.me;
        assert!(!grantor.on_request_table((BOB, Epoch(token(300))), cx));
        assert!(!grantor.on_request_table((me, Epoch(token(400))), cx));
    });
    let refused = said
        .iter()
        .filter(|(_, message)| matches!(message, Message::Grantor(GrantorMessage::NoTable { .. })));
    assert_eq!(refused.map(|(to, _)| *to).collect::<Vec<_>>(), [BOB]);
}

#[test]
fn a_hold_that_waits_in_the_transferred_table_is_superseded_and_waits_no_more() {
    let said = said(Origin::Free, |_, view, cx| {
        let (holds, waits) =
            (vec![(ANN, hold("x", 41))], vec![(BOB, wait(40, want("x"), Some(1)))]);
        let mut grantor = with_table(holds, waits, view, cx);
        grantor.on_report(BOB, Vec::new(), (vec![hold("x", 40)], Vec::new()), true, cx);
        assert_eq!(requests_of(&grantor, BOB), [0; 0]);
    });
    assert_eq!(said, [(BOB, revoke(40))]);
}

#[test]
fn a_member_that_is_named_again_goes_on_in_the_new_epoch() {
    let said = said(Origin::Free, |_, view, cx| {
        let mut grantor = with_table(vec![(BOB, hold("x", 40))], Vec::new(), view, cx);
        let way = grantor.load().and_then(|load| load.way).map(|(state, _)| state);
        assert_eq!(way, Some(GrantorState::Receiving));
        grantor.on_release(BOB, RequestId(40), cx);
        assert_eq!(
            grantor.confirms_destruction(BOB, RequestId(99)),
            Err(None),
            "BOB has not answered the check"
        );
        cx.outbox.clear();
        let mut grantor = grantor.renew(TokenRange { first: token(300), last: token(400) }, cx);
        assert_eq!(grantor.load().and_then(|load| load.way), None, "it acts at once");
        assert_eq!(
            grantor.confirms_destruction(BOB, RequestId(99)),
            Ok(()),
            "the answer would be for the epoch before"
        );
        grantor.on_request_lock(asked(ANN, 1, want("y")), cx);
        grantor.on_request_lock(asked(BOB, 2, want("y")), cx);
    });
    let told = said.iter().filter_map(|(to, message)| match message {
        Message::Client(ClientMessage::Grant { request, token, .. }) => {
            Some((*to, request.0, *token))
        }
        Message::Client(ClientMessage::Queued { request, ticket, .. }) => {
            Some((*to, request.0, ticket.epoch.0))
        }
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(ANN, 1, token(301)), (BOB, 2, token(300))]);
}

/// A chunk of any size is complete with its last entry, and not before.
#[test]
fn a_table_is_transferred_in_chunks_of_the_configured_size() {
    let fill = |view: &View, cx: &mut StepContext| {
        let mut grantor = Grantor::new(service(), RANGE, Origin::Free, view, cx);
        for n in 0..6 {
            let name = format!("o{n}");
            grantor.on_request_lock(asked(ANN, 10 + n, open(&name, b"text")), cx);
            grantor.on_request_lock(asked(ANN, 20 + n, want(&format!("n{n}"))), cx);
            grantor.on_request_lock(asked(BOB, 30 + n, want(&format!("n{n}"))), cx);
        }
        cx.outbox.clear();
        grantor
    };
    let mut size = 0;
    let mut whole = false;
    while !whole {
        size += 1;
        let limits = Limits { part_bytes: size, ..Limits::DEFAULT };
        let said = acting(|_, view, cx| {
            let inner = &mut StepContext {
                now: cx.now,
                standing: cx.standing,
                out: cx.out,
                outbox: VecDeque::new(),
                unfinished: Vec::new(),
            };
            inner.standing.limits = &limits;
            fill(view, inner).transfer((BOB, Epoch(token(300))), None, inner);
            cx.outbox = std::mem::take(&mut inner.outbox);
        });
        let (mut entries, mut parts) = (0, 0);
        for (_, message) in &said {
            let Message::Grantor(GrantorMessage::TableChunk {
                objects, holds, waits, last, ..
            }) = message
            else {
                continue;
            };
            let mut weights: Vec<usize> =
                objects.iter().map(|(name, content)| content.weight(name)).collect();
            weights.extend(holds.iter().map(|(_, hold)| hold.lock.entry_weight()));
            weights.extend(waits.iter().map(|(_, wait)| wait.lock.entry_weight()));
            let (all, size) = (weights.iter().sum::<usize>(), size as usize);
            let before = all - weights.last().copied().unwrap_or_default();
            assert!(before < size && (*last || all >= size), "{weights:?} in a chunk of {size}");
            assert!(
                !last || all < size,
                "a full chunk is followed by another: {weights:?}, {size}"
            );
            entries += weights.len();
            parts += 1;
        }
        assert_eq!(entries, 24, "6 objects, which ANN has open, 6 locks, and 6 waits for them");
        whole = parts == 1;
    }
}

/// No member that has reported has a table. If one sends a table, it has none any more.
#[test]
fn a_table_that_arrives_after_a_part_has_opened_is_dropped_and_its_sender_is_asked_again() {
    let said = said(Origin::Everyone, |grantor, view, cx| {
        let none = || (Vec::new(), Vec::new());
        for process in [cx.me, ANN, BOB] {
            grantor.on_part_of_report(
                process,
                Vec::new(),
                none(),
                (process == cx.me, Some(300)),
                cx,
            );
        }
        assert!(!grantor.is_acting() && grantor.open_parts() > Some(0));
        cx.outbox.clear();
        let table = (vec![(ANN, hold("x", 40))], Vec::new());
        grantor.on_table_chunk(ANN, Vec::new(), table, (view, true), cx);
        assert_eq!((grantor.state(), grantor.held().count()), (GrantorState::Recovering, 0));
    });
    let recover =
        ClientMessage::Recover { service: service(), epoch: Epoch(RANGE.first), by_part: true };
    assert_eq!(said, [(ANN, recover.into())]);
}

/// A free lock of an open part is granted, and the epoch goes on to recover the others.
#[test]
fn a_try_of_an_open_part_is_answered_and_one_of_another_part_is_undecided() {
    let names = names(100);
    let low = names.iter().min_by_key(|name| part_of(name)).expect("there are names");
    let high = names.iter().max_by_key(|name| part_of(name)).expect("there are names");
    let said = said(Origin::Everyone, |grantor, _, cx| {
        let none = || (Vec::new(), Vec::new());
        let open = part_of(low) + 1;
        for process in [cx.me, ANN, BOB] {
            grantor.on_part_of_report(process, Vec::new(), none(), (false, Some(open)), cx);
        }
        cx.outbox.clear();
        for (request, name) in [(1, low), (2, high)] {
            let asked = asked(ANN, request, Want::Lock(name.clone()));
            grantor.on_request_lock(ReceivedRequest { only_if_free: true, ..asked }, cx);
        }
    });
    assert!(is_granted(&said, ANN, 1), "{said:?}");
    let is_undecided = |(_, message): &(ProcessId, Message)| {
        let Message::Client(ClientMessage::Refuse { request, refusal, .. }) = message else {
            return false;
        };
        *request == RequestId(2) && **refusal == Refusal::Undecided
    };
    assert!(said.iter().any(is_undecided), "{said:?}");
}
