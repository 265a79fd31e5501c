//! The rules about the parts of the names that a recovering grantor opens before the whole.

use super::super::bounds::long_hold;
use super::*;
use crate::protocol::id::Batch;
use crate::protocol::locks::name_part::{ALL_PARTS, part_of};

/// Names in the order of their parts, all in different ones.
fn in_order_of_parts() -> Vec<LockName> {
    let mut names = names(2_000);
    names.sort_by_key(part_of);
    names.dedup_by_key(|name| part_of(name));
    names
}

/// Reports of members up to a number of complete parts.
type Reports<'a> = &'a [(ProcessId, u16, Vec<HoldReport>, Vec<WaitReport>)];

/// A grantor that recovers in a view with ANN and BOB.
fn recovering(plant: &Plant) -> (Node, Grantor) {
    let mut node = with_two_more();
    plant(&mut node);
    let mut grantor = None;
    said_in(&mut node, true, |view, cx| {
        let mut named = Grantor::new(service(), range(), Origin::Everyone, view, cx);
        named.on_report(cx.me, Vec::new(), (Vec::new(), Vec::new()), true, cx);
        grantor = Some(named);
    });
    (node, grantor.expect("it is made"))
}

fn hears((node, grantor): &mut (Node, Grantor), reports: Reports<'_>) -> Vec<Message> {
    said_in(node, true, |_, cx| {
        for (from, parts, holds, waits) in reports {
            let (entries, is_last) = ((holds.clone(), waits.clone()), *parts == ALL_PARTS);
            grantor.on_part_of_report(*from, Vec::new(), entries, (is_last, Some(*parts)), cx);
        }
    })
}

/// The answers to a request that ANN makes meanwhile.
fn asks((node, grantor): &mut (Node, Grantor), request: u64, want: Want) -> Vec<Message> {
    said_in(node, true, |_, cx| {
        let lock = LockRequest { want, ..asked(ANN, request).lock };
        grantor.on_request_lock(ReceivedRequest { lock, ..asked(ANN, request) }, cx);
    })
}

fn waits(request: u64, want: Want, number: u64) -> WaitReport {
    let lock = LockRequest { want, ..asked(ANN, request).lock };
    let ticket = Some(Ticket { epoch: Epoch(token(1)), number });
    WaitReport { request: RequestId(request), lock, ticket }
}

/// The requests that are granted.
fn granted(said: &[Message]) -> Vec<u64> {
    let granted = said.iter().filter_map(|message| match message {
        Message::Client(ClientMessage::Grant { request, .. }) => Some(request.0),
        _ => None,
    });
    granted.collect()
}

rule!(a_part_opens_when_every_member_has_reported_it, OpenBeforeSilentMembers, |plant: Plant| {
    let names = in_order_of_parts();
    let [low, high] = [&names[0], &names[1]];
    let mut grantor = recovering(&plant);
    hears(&mut grantor, &[(ANN, part_of(high), Vec::new(), Vec::new())]);
    let before = asks(&mut grantor, 1, Want::Lock(low.clone()));
    let said = hears(&mut grantor, &[(BOB, part_of(low) + 1, Vec::new(), Vec::new())]);
    let beside = asks(&mut grantor, 2, Want::Lock(high.clone()));
    assert!(!grantor.1.is_acting() && granted(&beside).is_empty());
    granted(&before).is_empty() && granted(&said) == [1]
});

rule!(
    no_further_part_opens_before_a_new_member_has_reported_it,
    OpenBeforeJoiners,
    |plant: Plant| {
        let mut grantor = recovering(&plant);
        let until = |parts| [ANN, BOB].map(|from| (from, parts, Vec::new(), Vec::new()));
        hears(&mut grantor, &until(5));
        said_in(&mut grantor.0, true, |view, cx| {
            let info = MemberInfo { process: CYD, ..view.members[0].info.clone() };
            let next = view.next(&Change { join: vec![info], ..Change::default() });
            grantor.1.on_view(&next, &[], &[CYD], cx);
        });
        hears(&mut grantor, &until(9));
        let before = grantor.1.open_parts();
        hears(&mut grantor, &[(CYD, 7, Vec::new(), Vec::new())]);
        assert!(before > Some(5) || grantor.1.open_parts() == Some(7));
        before == Some(5)
    }
);

rule!(no_part_opens_beside_a_reported_suspension, OpenBesideSuspension, |plant: Plant| {
    let mut grantor = recovering(&plant);
    let suspension = waits(9, Want::Suspension, u32::MAX.into());
    hears(&mut grantor, &[(ANN, ALL_PARTS - 1, Vec::new(), vec![suspension])]);
    hears(&mut grantor, &[(BOB, ALL_PARTS - 1, vec![hold("held", 40)], Vec::new())]);
    grantor.1.open_parts() == Some(0)
});

rule!(
    no_further_part_opens_beside_a_suspension_that_is_asked_for,
    OpenBesideSuspension,
    |plant: Plant| {
        let names = in_order_of_parts();
        let mut grantor = recovering(&plant);
        let open = part_of(&names[0]) + 1;
        let until = |parts| [ANN, BOB].map(|from| (from, parts, Vec::new(), Vec::new()));
        hears(&mut grantor, &until(open));
        assert_eq!(granted(&asks(&mut grantor, 1, Want::Lock(names[0].clone()))), [1]);
        asks(&mut grantor, 2, Want::Suspension);
        // The open part grants nothing more, since a later request stands behind the suspension.
        let said =
            said_in(&mut grantor.0, true, |_, cx| grantor.1.on_release(ANN, RequestId(1), cx));
        let later = asks(&mut grantor, 3, Want::Lock(names[0].clone()));
        assert!(granted(&said).is_empty() && granted(&later).is_empty());
        hears(&mut grantor, &until(ALL_PARTS - 1));
        grantor.1.open_parts() == Some(open)
    }
);

rule!(
    a_batch_is_granted_when_all_its_parts_are_open_and_keeps_its_queues_before,
    GrantHalfOpenBatch,
    |plant: Plant| {
        let names = in_order_of_parts();
        let [low, high] = [&names[0], &names[6]];
        let mut grantor = recovering(&plant);
        let batch = Want::Batch(Batch::new(vec![low.clone(), high.clone()]).expect("a good batch"));
        let waits = vec![waits(8, Want::Lock(low.clone()), 8), waits(7, batch, 7)];
        let first = hears(
            &mut grantor,
            &[
                (ANN, part_of(low) + 1, Vec::new(), waits),
                (BOB, part_of(low) + 1, Vec::new(), Vec::new()),
            ],
        );
        let last = hears(
            &mut grantor,
            &[
                (ANN, part_of(high) + 1, Vec::new(), Vec::new()),
                (BOB, part_of(high) + 1, Vec::new(), Vec::new()),
            ],
        );
        assert!(!granted(&first).contains(&8), "the batch has the earlier position");
        granted(&first).is_empty() && granted(&last) == [7]
    }
);

rule!(
    a_part_without_a_hold_opens_after_the_holder_has_heard_of_its_end,
    OpenBesideLeftOutHolds,
    |plant: Plant| {
        let mut grantor = recovering(&plant);
        grantor.0.cluster.config.limits.link.request_bytes = 6_000;
        let holds = (1..=4).map(long_hold).collect();
        hears(&mut grantor, &[(ANN, ALL_PARTS - 1, holds, Vec::new())]);
        hears(&mut grantor, &[(BOB, ALL_PARTS, Vec::new(), Vec::new())]);
        let before = grantor.1.open_parts();
        hears(&mut grantor, &[(ANN, ALL_PARTS, Vec::new(), Vec::new())]);
        assert!(!grantor.1.is_acting());
        // The second report.
        let holds = (1..=3).map(long_hold).collect();
        hears(&mut grantor, &[(ANN, ALL_PARTS - 1, holds, Vec::new())]);
        assert_eq!(grantor.1.open_parts(), Some(ALL_PARTS - 1));
        before == Some(0)
    }
);

rule!(a_batch_is_reported_in_the_lowest_part_of_its_names, ReportBatchLate, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    node.cluster.config.limits.slice = 1;
    let names = in_order_of_parts();
    let [low, middle, high] = [&names[0], &names[3], &names[6]];
    let batch = Want::Batch(Batch::new(vec![low.clone(), high.clone()]).expect("a good batch"));
    let mut reported = Vec::new();
    let mut said = said_in(&mut node, true, |_, _| {});
    let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
        cx.standing.leased = true;
        let old = Epoch(token(100));
        locks.client.on_grantor_is(&service(), ANN, old, cx);
        for (number, want) in [(1, Want::Lock(middle.clone())), (2, batch)] {
            let call = lock_call(RequestId(number), want);
            locks.client.lock(call, Duration::ZERO, |_| false, cx);
            let token = token(200 + number as u32);
            locks.client.on_grant(ANN, &service(), old, RequestId(number), token, cx);
        }
        cx.outbox.clear();
        let (service, epoch) = (service(), Epoch(token(1_000)));
        let recover = ClientMessage::Recover { service, epoch, by_part: true };
        locks.on_message(BOB, Message::Client(recover), cx);
        while locks.is_unfinished() {
            locks.go_on(cx);
        }
    });
    said.extend(outbox.into_iter().map(|(_, message)| message));
    let mut complete = 0;
    for message in said {
        if let Message::Grantor(GrantorMessage::Report { holds, parts, .. }) = message {
            assert!(parts >= Some(complete));
            complete = parts.unwrap_or_default();
            reported.extend(holds.iter().map(|hold| (hold.request.0, complete)));
        }
    }
    assert_eq!(complete, ALL_PARTS);
    reported == [(2, part_of(middle)), (1, ALL_PARTS)]
});

#[test]
fn a_request_that_has_ended_is_held_back_no_longer() {
    let names = in_order_of_parts();
    let [low, high] = [&names[0], &names[6]];
    let mut grantor = recovering(&(Box::new(|_: &mut Node| {}) as Plant));
    let until = |parts| [ANN, BOB].map(|from| (from, parts, Vec::new(), Vec::new()));
    hears(&mut grantor, &until(part_of(low) + 1));
    assert_eq!(granted(&asks(&mut grantor, 1, Want::Lock(low.clone()))), [1]);
    let batch = Want::Batch(Batch::new(vec![low.clone(), high.clone()]).expect("a good batch"));
    assert!(granted(&asks(&mut grantor, 2, batch)).is_empty());
    // No honest member uses a number again.
    said_in(&mut grantor.0, true, |_, cx| grantor.1.on_release(ANN, RequestId(2), cx));
    assert!(granted(&asks(&mut grantor, 2, Want::Lock(low.clone()))).is_empty());
    assert!(granted(&hears(&mut grantor, &until(ALL_PARTS))).is_empty(), "request 1 has it");
}

#[test]
fn no_part_opens_while_the_waits_of_a_member_that_reports_again_are_missing() {
    let names = in_order_of_parts();
    let mut grantor = recovering(&(Box::new(|_: &mut Node| {}) as Plant));
    grantor.0.cluster.config.limits.link.request_bytes = 6_000;
    let open = part_of(&names[0]) + 1;
    let wait = waits(8, Want::Lock(names[0].clone()), 8);
    hears(&mut grantor, &[(ANN, open, Vec::new(), vec![wait.clone()])]);
    hears(&mut grantor, &[(ANN, open, (1..=4).map(long_hold).collect(), Vec::new())]);
    hears(&mut grantor, &[(ANN, ALL_PARTS, Vec::new(), Vec::new())]);
    hears(&mut grantor, &[(BOB, ALL_PARTS, Vec::new(), Vec::new())]);
    assert_eq!(grantor.1.open_parts(), Some(0));
    hears(&mut grantor, &[(ANN, open, Vec::new(), vec![wait])]);
    assert_eq!(grantor.1.open_parts(), Some(open));
}
