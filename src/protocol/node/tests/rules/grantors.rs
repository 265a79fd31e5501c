//! The rules about the epochs that members take from each other.

use super::*;
use crate::protocol::locks::registry::Registry;
use crate::protocol::message::RegistryMessage;
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
        Message::Client(ClientMessage::Recover { service: service(), epoch: later })
    })
});

rule!(a_table_is_not_requested_in_an_epoch_that_no_elder_dealt, BelieveAnyEpoch, |plant: Plant| {
    still_has_ann(&plant, |_, later| {
        Message::Grantor(GrantorMessage::RequestTable { service: service(), epoch: later })
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
        kept = locks.early_requests.len();
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
