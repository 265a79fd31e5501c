//! The rules about the bounds on the entries that one member makes others store.

use super::super::bounds::{OPENINGS, find_questions, long_hold, long_waits, object, opening};
use super::*;
use crate::protocol::locks::client::LockClient;
use crate::protocol::locks::registry::Registry;
use crate::protocol::message::RegistryMessage;
use crate::protocol::time::WallClock;

/// The number of requests that a grantor of [`small`] notes in a set for one member.
const NUMBERS: usize = 12_000 / 64;

/// A grantor in a view with ANN and BOB, which stores 12,000 bytes for a member: less than three
/// [long](long_hold) requests.
fn small(plant: &Plant, origin: Origin) -> (Node, Grantor) {
    let mut node = with_two_more();
    plant(&mut node);
    node.cluster.config.limits.link.request_bytes = 6_000;
    let mut grantor = None;
    said_in(&mut node, true, |view, cx| {
        grantor = Some(Grantor::new(service(), range(), origin, view, cx));
    });
    (node, grantor.expect("it is made"))
}

/// ANN's report to a recovery that waits for no other member.
fn report_of_ann(
    (node, grantor): &mut (Node, Grantor),
    holds: Vec<HoldReport>,
    waits: Vec<WaitReport>,
) -> Vec<Message> {
    said_in(node, true, |_, cx| {
        for from in [cx.me, BOB] {
            grantor.on_report(from, Vec::new(), (Vec::new(), Vec::new()), true, cx);
        }
        grantor.on_report(ANN, Vec::new(), (holds, waits), true, cx);
    })
}

rule!(a_recovery_keeps_so_many_bytes_of_the_waits_of_one_member, KeepAllWaits, |plant: Plant| {
    let (mut node, mut grantor) = small(&plant, Origin::Everyone);
    let before = grantor.size();
    said_in(&mut node, true, |_, cx| {
        grantor.on_report(ANN, Vec::new(), (Vec::new(), long_waits(1..=100)), false, cx);
    });
    grantor.size() - before == 3
});

rule!(an_open_object_counts_with_its_longest_value, CountPresentValues, |plant: Plant| {
    let (mut node, mut grantor) = small(&plant, Origin::Free);
    said_in(&mut node, true, |_, cx| {
        for number in 0..50 {
            let lock = opening(&format!("o{number}"));
            grantor.on_request_lock(ReceivedRequest { lock, ..asked(ANN, number) }, cx);
        }
    });
    grantor.objects().count() == OPENINGS
});

rule!(
    a_recovery_keeps_so_many_bytes_of_the_objects_of_one_member,
    TakeAllObjects,
    |plant: Plant| {
        let (mut node, mut grantor) = small(&plant, Origin::Everyone);
        said_in(&mut node, true, |_, cx| {
            let objects = (1..=100).map(|number| object(number, 1_000));
            grantor.on_report(ANN, objects.collect(), (Vec::new(), Vec::new()), false, cx);
        });
        grantor.objects().count() == 12
    }
);

rule!(a_member_is_told_of_its_holds_without_room, LeaveHoldsOut, |plant: Plant| {
    let mut grantor = small(&plant, Origin::Everyone);
    let said = report_of_ann(&mut grantor, (1..=4).map(long_hold).collect(), Vec::new());
    said.iter().any(|message| {
        matches!(message, Message::Client(ClientMessage::Supersede { request: RequestId(4), .. }))
    })
});

rule!(
    a_recovery_ends_after_each_member_has_heard_of_the_end_of_its_holds,
    ActBeforeSecondReport,
    |plant: Plant| {
        let mut grantor = small(&plant, Origin::Everyone);
        report_of_ann(&mut grantor, (1..=4).map(long_hold).collect(), Vec::new());
        !grantor.1.is_acting()
    }
);

rule!(a_member_is_told_of_its_waits_without_room, LeaveWaitsOut, |plant: Plant| {
    let mut grantor = small(&plant, Origin::Everyone);
    let said = report_of_ann(&mut grantor, Vec::new(), long_waits(1..=5));
    said.iter().any(|message| {
        matches!(message, Message::Client(ClientMessage::NotGrantor { request: RequestId(4), .. }))
    })
});

/// A grantor that revalidates BOB's hold number 40, after BOB has reported `others` further holds.
fn revalidating(plant: &Plant, others: u32) -> (Node, Grantor, usize) {
    let (mut node, mut grantor) = small(plant, Origin::Predecessor(ANN));
    let mut noted = 0;
    said_in(&mut node, true, |view, cx| {
        let table = (vec![(BOB, hold("x", 40))], Vec::new());
        grantor.on_table_chunk(ANN, Vec::new(), table, (view, true), cx);
        let before = grantor.size();
        let holds = (1..=others).map(|number| hold("y", 100 + number)).collect();
        grantor.on_report(BOB, Vec::new(), (holds, Vec::new()), false, cx);
        noted = grantor.size().abs_diff(before);
    });
    (node, grantor, noted)
}

rule!(a_revalidation_notes_so_many_requests_of_one_member, NoteAllReported, |plant: Plant| {
    revalidating(&plant, 1_000).2 == NUMBERS
});

rule!(a_revalidation_that_may_not_have_noted_all_requests_ends_none, EndUnnoted, |plant: Plant| {
    let (mut node, mut grantor, _) = revalidating(&plant, 1_000);
    said_in(&mut node, true, |_, cx| {
        grantor.on_report(BOB, Vec::new(), (Vec::new(), Vec::new()), true, cx);
    });
    grantor.held().count() == 1
});

rule!(
    a_grantor_that_does_not_act_forgets_the_releases_of_the_departed,
    KeepWordOfTheGone,
    |plant: Plant| {
        let (mut node, mut grantor) = small(&plant, Origin::Everyone);
        let before = grantor.size();
        said_in(&mut node, true, |view, cx| {
            (0..50).for_each(|number| grantor.on_release(BOB, RequestId(number), cx));
            let mut next = view.clone();
            next.members.retain(|member| member.info.process != BOB);
            grantor.on_view(&next, &[BOB], &[], cx);
        });
        // BOB is not awaited any more, either.
        grantor.size() + 1 == before
    }
);

/// A part of ANN's table that has more of BOB's holds than a grantor stores.
fn long_part(view: &View, grantor: &mut Grantor, cx: &mut StepContext) {
    let holds = (1..=100).map(|number| (BOB, long_hold(number))).collect();
    grantor.on_table_chunk(ANN, Vec::new(), (holds, Vec::new()), (view, false), cx);
}

rule!(a_table_with_more_than_a_grantor_keeps_is_refused, TakeAnyTable, |plant: Plant| {
    let (mut node, mut grantor) = small(&plant, Origin::Predecessor(ANN));
    said_in(&mut node, true, |view, cx| long_part(view, &mut grantor, cx));
    grantor.held().count() == 0
});

rule!(the_rest_of_a_refused_table_counts_for_nothing, TakeRestOfTable, |plant: Plant| {
    let (mut node, mut grantor) = small(&plant, Origin::Predecessor(ANN));
    said_in(&mut node, true, |view, cx| {
        long_part(view, &mut grantor, cx);
        grantor.on_table_chunk(ANN, Vec::new(), (Vec::new(), Vec::new()), (view, true), cx);
    });
    !grantor.is_acting()
});

rule!(a_name_that_an_elder_may_have_refused_is_asked_for_again, AskRefusedOnce, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    node.cluster.config.limits.link.names = 0;
    let call = lock_call(RequestId(1), want("x"));
    let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
        locks.client.lock(call, Duration::ZERO, |_| false, cx);
        cx.now = cx.now + cx.timing.retry;
        locks.client.on_timer(cx);
    });
    find_questions(outbox).len() == 2
});

rule!(
    an_elder_keeps_a_request_for_tokens_until_the_inventory_is_complete,
    DropTokensOfInventory,
    |plant: Plant| {
        let mut node = with_two_more();
        plant(&mut node);
        node.cluster.config.limits.link.names = 0;
        let mut token_requests = 0;
        said_in(&mut node, true, |view, cx| {
            let clock = WallClock::new(NOW, view.tenure);
            let mut registry = Registry::new(view, true, (clock, clock), cx);
            let message = RegistryMessage::MoreTokens {
                service: service(),
                epoch: Epoch(token(1)),
                count: 1,
            };
            registry.on_message(ANN, message, cx);
            token_requests = registry.token_requests();
        });
        token_requests == 1
    }
);

/// A member that has got a request of 2,500 bytes for each of 100 services, from ANN and from BOB.
fn with_early_requests(plant: &Plant) -> Node {
    let mut node = with_two_more();
    plant(&mut node);
    node.cluster.config.limits.early = 4;
    let view = node.cluster.view.clone().expect("it has founded");
    // This member is the elder, and names no grantor of that epoch.
    let epoch = Epoch(Token::new(Slot(view.end_slot().0 - 1), 9));
    for from in [ANN, BOB] {
        for number in 1..=100 {
            let ReceivedRequest { request, lock, only_if_free, keep, .. } = asked(from, number);
            let metadata = Metadata::new(&[7; 2_500]).expect("not too long");
            let lock = LockRequest { metadata, ..lock };
            let service = ServiceName::new(&format!("s{number}")).expect("a good name");
            let message =
                GrantorMessage::RequestLock { service, epoch, request, lock, only_if_free, keep };
            node.cx(NOW, &mut Vec::new(), |locks, cx| locks.on_message(from, message.into(), cx));
        }
    }
    node
}

rule!(a_member_keeps_so_many_bytes_of_requests_for_unknown_epochs, KeepAllEarly, |plant: Plant| {
    let mut node = with_early_requests(&plant);
    let early = &node.locks.early_requests;
    let is_bounded = early.bytes() <= 16 << 10 && node.sizes(NOW).early == 6;
    if is_bounded {
        let service = ServiceName::new("s1").expect("a good name");
        let release = GrantorMessage::Release { service, request: RequestId(1) };
        node.cx(NOW, &mut Vec::new(), |locks, cx| locks.on_message(ANN, release.into(), cx));
        let of_ann = node.sizes(NOW).early - 3;
        let bytes = node.locks.early_requests.bytes();
        assert!(of_ann == 2 && bytes < 14_000, "{of_ann} requests, {bytes} bytes");
    }
    is_bounded
});

rule!(a_member_asks_for_so_many_bytes_of_locks, AskWithoutRoom, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let mut limits = node.cluster.config.limits;
    limits.link.request_bytes = 1;
    node.locks.client = LockClient::new(&limits);
    let mut out = Vec::new();
    node.cx(NOW, &mut out, |locks, cx| {
        for request in [RequestId(1), RequestId(2)] {
            locks.client.lock(lock_call(request, want("x")), Duration::ZERO, |_| false, cx);
        }
    });
    let answers = out.iter().filter_map(|output| match output {
        Output::Answer { request, outcome } => Some((*request, outcome)),
        _ => None,
    });
    answers.eq([(RequestId(2), &Outcome::Busy)])
});
