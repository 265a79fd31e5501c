//! The rules about copies of tables: the changes that the copy hears of, and its authority.

use super::*;
use crate::protocol::node::tests::copies::{
    Said, act, bidding_at, copied, granting_at, hear, member, named,
};

/// A grantor, and a turk that has a copy of its table.
fn with_copy(plant: &Plant) -> (Node, Node) {
    let planted = || {
        let mut node = member();
        plant(&mut node);
        node
    };
    let mut grantor = granting_at(planted());
    let (mut turk, said) = bidding_at(planted());
    copied(&mut grantor, &mut turk, said);
    (grantor, turk)
}

/// Whether the turk has the table of the grantor in the end, although a request ends after the
/// copy is whole.
fn has_the_table(plant: &Plant) -> bool {
    let (mut grantor, mut turk) = with_copy(plant);
    act(&mut grantor, |locks, cx| {
        let grantor = locks.grantors.get_mut(&service()).expect("it grants");
        grantor.on_release(BOB, RequestId(3), cx);
    });
    let own = grantor.contents(&service(), NOW);
    let asks = named(&mut turk);
    for (_, message) in of_grantor(hear(&mut grantor, asks)) {
        hear(&mut turk, message);
    }
    turk.contents(&service(), NOW) == own
}

fn of_grantor(said: Said) -> impl Iterator<Item = (ProcessId, Message)> {
    said.into_iter().filter(|(_, message)| matches!(message, Message::Grantor(_)))
}

rule!(a_copy_hears_of_requests_that_end, ForgetCopiedEndings, |plant: Plant| {
    has_the_table(&plant)
});

rule!(a_copy_hears_of_each_change_behind_the_walk, ForgetCopiedChanges, |plant: Plant| {
    has_the_table(&plant)
});

rule!(a_table_ends_with_the_last_changes_for_its_copy, KeepLastChanges, |plant: Plant| {
    has_the_table(&plant)
});

rule!(a_copy_with_another_seal_is_no_table, TrustAnySeal, |plant: Plant| {
    let (mut grantor, mut turk) = with_copy(&plant);
    let asks = named(&mut turk);
    for (_, mut message) in of_grantor(hear(&mut grantor, asks)) {
        if let Message::Grantor(GrantorMessage::TableRest { seal, .. }) = &mut message {
            seal.sum = seal.sum.wrapping_add(1);
        }
        hear(&mut turk, message);
    }
    turk.load(&service()).is_none()
});

rule!(a_copy_is_no_authority, ActOnCopy, |plant: Plant| {
    let (_, mut turk) = with_copy(&plant);
    named(&mut turk);
    turk.load(&service()).is_none()
});
