//! Questions whether a service exists: the elder answers, and no member becomes a grantor by it.

use elderlock::protocol::Outcome;
use elderlock::protocol::message::{Query, QueryReply};
use elderlock_sim::World;
use std::time::Duration;

/// Four members, oldest first.
fn four(seed: u64) -> (World, [usize; 4]) {
    let mut w = World::new(seed).members(4);
    w.settle();
    let members = w.in_view().try_into().expect("four members");
    (w, members)
}

/// The answer at that member.
fn exists(w: &mut World, site: usize) -> QueryReply {
    let ask = w.look(site, "s", Query::Service);
    w.expect("it is answered", |w| w.outcome(ask).is_some());
    match w.outcome(ask) {
        Some(Outcome::QueryReply(seen)) => seen.clone(),
        Some(Outcome::Undecided) => QueryReply::Undecided,
        other => panic!("{other:?}"),
    }
}

const NO: QueryReply = QueryReply::Service(false);
const YES: QueryReply = QueryReply::Service(true);

#[test]
fn a_service_exists_from_its_first_request_until_its_grantor_destroys_it_unused() {
    let (mut w, members) = four(71);
    let [elder, first, other, _] = members;
    // One member asks twice: the question itself makes no service.
    for site in [other, first, elder, other] {
        assert_eq!(exists(&mut w, site), NO, "at {site}");
    }
    let held = w.hold_lock(first, "s", "a");
    for site in members {
        assert_eq!(exists(&mut w, site), YES, "at {site}");
    }
    w.release(held);
    assert_eq!(exists(&mut w, other), YES);
    assert_eq!(w.grantor("s"), first);
    let gone = w.destroy(first, "s");
    w.expect("the service is destroyed", |w| w.outcome(gone) == Some(&Outcome::Destroyed));
    assert_eq!(exists(&mut w, first), NO);
    assert_eq!(exists(&mut w, other), NO);
}

#[test]
fn a_service_exists_after_its_grantor_died_and_for_the_next_elder() {
    let (mut w, [elder, first, other, last]) = four(72);
    w.hold_lock(first, "s", "a");
    let held = w.hold_lock(other, "s", "b");
    w.crash(first);
    w.expect("the view is without it", |w| w.in_view() == [elder, other, last]);
    assert_eq!(exists(&mut w, last), YES);
    w.crash(elder);
    w.expect("another is the elder", |w| w.in_view() == [other, last]);
    assert_eq!(exists(&mut w, last), YES);
    assert!(w.fence(held).is_some());
}

/// The former elder cannot answer, and the next one knows when it has heard all members.
#[test]
fn a_question_is_asked_again_when_another_member_is_the_elder() {
    let (mut w, [elder, first, other, last]) = four(73);
    w.hold_lock(first, "s", "a");
    let lost = w.hold_kind(last, elder, "FindService");
    let ask = w.look(last, "s", Query::Service);
    w.expect("the question is on its way", |w| w.matched(lost) > 0);
    w.leave(elder);
    w.expect("another is the elder", |w| w.in_view() == [first, other, last]);
    w.expect("it is answered", |w| w.outcome(ask).is_some());
    assert_eq!(w.outcome(ask), Some(&Outcome::QueryReply(YES)));
}

#[test]
fn a_member_without_an_elder_is_told_nothing() {
    let (mut w, [_, first, other, _]) = four(74);
    w.hold_lock(first, "s", "a");
    w.isolate(other);
    w.run_for(Duration::from_secs(1));
    assert_eq!(exists(&mut w, other), QueryReply::Undecided);
    w.heal();
    w.settle();
    assert_eq!(exists(&mut w, other), YES);
}
