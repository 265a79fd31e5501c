//! The rules about the epochs, grants and contents that members take from each other.

use super::*;
use crate::protocol::locks::registry::Registry;
use crate::protocol::message::{Blocked, RegistryMessage};
use crate::protocol::node::tests::reports;
use crate::protocol::time::WallClock;

/// An epoch above all that elders deal in the view of [`with_two_more`].
fn undealt(node: &Node) -> Epoch {
    let view = node.cluster.view.as_ref().expect("it has founded");
    Epoch(Token::new(view.end_slot(), 0))
}

fn dealt(node: &Node) -> Epoch {
    Epoch(node.cluster.view.as_ref().expect("it has founded").first_token())
}

/// Whether the member still has ANN as the grantor after a message of BOB with an epoch that no
/// elder dealt.
fn still_has_ann(plant: &Plant, message: impl FnOnce(Epoch, Epoch) -> Message) -> bool {
    let mut node = with_two_more();
    plant(&mut node);
    let (epoch, later) = (dealt(&node), undealt(&node));
    let mut known = (None, None);
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        locks.client.on_grantor_is(&service(), ANN, epoch, cx);
        locks.on_message(BOB, message(epoch, later), cx);
        known = locks.client.grantor(&service());
    });
    known.1 == Some(epoch) && known.0 != Some(BOB)
}

rule!(a_recovery_in_an_epoch_that_no_elder_dealt_is_not_heard, BelieveAnyEpoch, |plant: Plant| {
    still_has_ann(&plant, |_, later| {
        Message::Client(ClientMessage::Recover { service: service(), epoch: later, by_part: true })
    })
});

rule!(a_table_is_not_requested_in_an_epoch_that_no_elder_dealt, BelieveAnyEpoch, |plant: Plant| {
    still_has_ann(&plant, |_, later| {
        let (service, epoch, copy) = (service(), later, None);
        Message::Grantor(GrantorMessage::RequestTable { service, epoch, copy })
    })
});

rule!(a_grantor_of_an_epoch_that_no_elder_dealt_is_not_asked, BelieveAnyEpoch, |plant: Plant| {
    still_has_ann(&plant, |epoch, later| {
        Message::Client(ClientMessage::NotGrantor {
            service: service(),
            epoch,
            request: RequestId(1),
            instead: Some((BOB, later)),
        })
    })
});

rule!(a_recovery_does_not_end_for_an_epoch_that_no_elder_dealt, BelieveAnyEpoch, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let epoch = undealt(&node);
    let mut goes_on = false;
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        let view = cx.view.expect("it has founded").clone();
        let grantor = Grantor::new(service(), range(), Origin::Everyone, &view, cx);
        locks.grantors.insert(service(), grantor);
        let deposed = ClientMessage::Deposed { service: service(), by: Some(BOB), epoch };
        locks.on_message(BOB, deposed.into(), cx);
        goes_on = locks.grantors.contains_key(&service());
    });
    goes_on
});

rule!(a_request_for_an_epoch_that_no_elder_dealt_is_not_kept, BelieveAnyEpoch, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let epoch = undealt(&node);
    let mut kept = 0;
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        let ReceivedRequest { from, request, lock, only_if_free, keep } = asked(ANN, 1);
        let service = service();
        let message =
            GrantorMessage::RequestLock { service, epoch, request, lock, only_if_free, keep };
        locks.on_message(from, message.into(), cx);
        kept = locks.early_requests.bytes();
    });
    kept == 0
});

/// The number of times that an elder names a grantor for one question, after another member's
/// message about an epoch that no elder dealt.
fn namings(plant: &Plant, message: impl Fn(ViewNumber, Epoch) -> RegistryMessage) -> usize {
    let mut node = with_two_more();
    plant(&mut node);
    let later = undealt(&node);
    let said = said_in(&mut node, true, |view, cx| {
        let clock = WallClock::new(NOW, view.tenure);
        let mut registry = Registry::new(view, true, (clock, clock), cx);
        let reply =
            |known| RegistryMessage::InventoryReply { view: view.number, known, last: true };
        let acts = vec![(service(), cx.me, Epoch(view.first_token()))];
        registry.on_message(cx.me, reply(acts), cx);
        registry.on_message(BOB, message(view.number, later), cx);
        registry.on_message(BOB, reply(Vec::new()), cx);
        registry.on_message(ANN, reply(Vec::new()), cx);
        let question = RegistryMessage::FindGrantor { service: service(), heard: None };
        registry.on_message(ANN, question, cx);
        registry.answer(true, cx);
    });
    let is_naming =
        |message: &&Message| matches!(message, Message::Member(MemberMessage::NameGrantor { .. }));
    said.iter().filter(is_naming).count()
}

rule!(
    an_elder_hears_no_question_about_an_epoch_that_no_elder_dealt,
    BelieveAnyEpoch,
    |plant: Plant| {
        namings(&plant, |_, later| RegistryMessage::FindGrantor {
            service: service(),
            heard: Some(later),
        }) == 0
    }
);

rule!(
    an_elder_takes_no_epoch_that_no_elder_dealt_from_an_inventory,
    BelieveAnyEpoch,
    |plant: Plant| {
        namings(&plant, |view, later| RegistryMessage::InventoryReply {
            view,
            known: vec![(service(), ProcessId(0), later)],
            last: false,
        }) == 0
    }
);

/// The outputs of a member that waits for the lock `x` of ANN, and has the object open.
fn after(
    plant: &Plant,
    opened: impl FnOnce(&View) -> ObjectReply,
    from: ProcessId,
    message: impl FnOnce(&View) -> ClientMessage,
) -> Vec<Output> {
    let mut node = with_two_more();
    plant(&mut node);
    let view = node.cluster.view.clone().expect("it has founded");
    let (epoch, mut out) = (dealt(&node), Vec::new());
    node.cx(NOW, &mut out, |locks, cx| {
        cx.standing.leased = true;
        let opening = Want::Open(OpenRequest::new(object(), value("red")));
        for (number, want) in [(1, want("x")), (2, opening)] {
            let call = lock_call(RequestId(number), want);
            locks.client.lock(call, Duration::ZERO, |_| false, cx);
        }
        locks.client.on_grantor_is(&service(), ANN, epoch, cx);
        let reply = Some((RequestId(2), opened(&view)));
        locks.on_message(ANN, content_of(&view, 0, reply).into(), cx);
        locks.client.write((RequestId(3), RequestId(2)), set("blue", None), |_| false, cx);
        locks.on_message(from, message(&view).into(), cx);
    });
    out
}

fn well_opened(view: &View) -> ObjectReply {
    ObjectReply::Opened(view.first_token())
}

fn is_answered(out: &[Output], number: u64) -> bool {
    out.iter().any(
        |output| matches!(output, Output::Answer { request, .. } if *request == RequestId(number)),
    )
}

/// Whether the application was told a content with another version than the first.
fn tells_next(out: &[Output], view: &View) -> bool {
    out.iter().any(|output| {
        matches!(output, Output::Value { content, .. } if content.version != view.first_token())
    })
}

/// The message with the content of the object, with a version so far above the first token.
fn content_of(
    view: &View,
    version: u64,
    answers: Option<(RequestId, ObjectReply)>,
) -> ClientMessage {
    let version = view.first_token().plus(version);
    let content = Box::new(Content { version, writes: BTreeMap::new(), ..content() });
    let (epoch, name) = (Epoch(view.first_token()), object());
    ClientMessage::Value { service: service(), epoch, name, content, answers }
}

fn grant(view: &View) -> ClientMessage {
    let (epoch, token) = (Epoch(view.first_token()), view.first_token().plus(1));
    ClientMessage::Grant { service: service(), epoch, request: RequestId(1), token, kept: 0 }
}

/// A token above all that elders deal in this view, as a distance from its first.
fn beyond(view: &View) -> u64 {
    Token::new(view.end_slot(), 0).get() - view.first_token().get()
}

rule!(a_grant_of_an_epoch_counts_from_its_grantor_only, HearAnyGrantor, |plant: Plant| {
    assert!(is_answered(&after(&plant, well_opened, ANN, grant), 1), "it is of the grantor");
    !is_answered(&after(&plant, well_opened, BOB, grant), 1)
});

rule!(a_content_of_an_epoch_counts_from_its_grantor_only, HearAnyGrantor, |plant: Plant| {
    let view = with_two_more().cluster.view.clone().expect("it has founded");
    let told = |from| {
        let out = after(&plant, well_opened, from, |view| content_of(view, 1, None));
        tells_next(&out, &view)
    };
    assert!(told(ANN), "it is of the grantor");
    !told(BOB)
});

rule!(a_content_has_a_version_that_elders_can_have_dealt, TakeAnyVersion, |plant: Plant| {
    let view = with_two_more().cluster.view.clone().expect("it has founded");
    let out = after(&plant, well_opened, ANN, |view| content_of(view, beyond(view), None));
    !tells_next(&out, &view)
});

rule!(
    an_object_is_opened_with_a_token_that_elders_can_have_dealt,
    TakeAnyVersion,
    |plant: Plant| {
        let opened = |view: &View| ObjectReply::Opened(Token::new(view.end_slot(), 0));
        !is_answered(&after(&plant, opened, ANN, grant), 2)
    }
);

rule!(a_write_makes_no_version_above_that_of_its_content, TakeAnyVersion, |plant: Plant| {
    let written = |version| {
        let out = after(&plant, well_opened, ANN, |view| {
            let version = view.first_token().plus(version);
            let reply = ObjectReply::Written { version, number: None };
            content_of(view, 2, Some((RequestId(3), reply)))
        });
        is_answered(&out, 3)
    };
    assert!(written(1) && written(2), "the content may be later than the write");
    !written(3)
});

/// Whether a grantor with an earlier table answers a query that tells of a holder: before the
/// report of the holder's member, and after it.
fn tells_of_holder(plant: &Plant, query: &Query, keep: u32, revocable: bool) -> [bool; 2] {
    let mut node = with_two_more();
    plant(&mut node);
    let later = TokenRange { first: token(300), last: token(400) };
    let mut told = [false; 2];
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        cx.standing.leased = true;
        let view = cx.view.expect("it has founded").clone();
        let mut grantor = Grantor::new(service(), range(), Origin::Free, &view, cx);
        let asked = asked(ANN, 1);
        let lock = LockRequest { revocable, ..asked.lock.clone() };
        grantor.on_request_lock(ReceivedRequest { lock: lock.clone(), keep, ..asked }, cx);
        let (_, _, request, token) = grantor.held().next().expect("it holds");
        let hold = HoldReport { request, lock, token, held_for: Duration::ZERO };
        let mut grantor = grantor.renew(later, cx);
        for told in &mut told {
            cx.outbox.clear();
            grantor.on_query(BOB, RequestId(8), query, cx);
            let (_, reply) = cx.outbox.iter().next().expect("it answers");
            let Message::Client(ClientMessage::QueryReply { seen, .. }) = reply else {
                panic!("another answer: {reply:?}")
            };
            *told = **seen != QueryReply::Undecided;
            grantor.on_report(ANN, Vec::new(), (vec![hold.clone()], Vec::new()), true, cx);
        }
    });
    told
}

rule!(
    a_transferred_hold_that_may_be_kept_is_told_when_its_member_has_reported,
    TellUnreportedPlace,
    |plant: Plant| {
        let told = |query| tells_of_holder(&plant, &query, 8, false);
        for (keep, revocable) in [(0, false), (8, true)] {
            assert_eq!(tells_of_holder(&plant, &Query::Held(None), keep, revocable), [true; 2]);
        }
        let name = || want("x").names()[0].clone();
        let blockers = Query::Blockers(Blocked::Name(name()));
        [Query::Held(None), Query::Lock(name()), blockers].map(told) == [[false, true]; 3]
    }
);

rule!(
    a_request_that_an_acting_grantor_refused_is_asked_again_after_the_report,
    AskBesideReport,
    |plant: Plant| {
        let (mut node, said) = reports::reporting(false);
        assert_eq!(reports::asked(&said), [50]);
        plant(&mut node);
        let (epoch, ticket) = (reports::NEW, Ticket { epoch: reports::NEW, number: 1 });
        let refused = ClientMessage::NotGrantor {
            service: service(),
            epoch,
            request: RequestId(50),
            instead: None,
        };
        let queued =
            ClientMessage::Queued { service: service(), epoch, request: RequestId(60), ticket };
        let said = reports::act(&mut node, |locks, cx| {
            locks.client.lock(lock_call(RequestId(60), want("new")), Duration::ZERO, |_| false, cx);
            cx.outbox.clear();
            locks.on_message(BOB, refused.into(), cx);
            locks.on_message(BOB, queued.into(), cx);
        });
        reports::asked(&said).is_empty()
    }
);
