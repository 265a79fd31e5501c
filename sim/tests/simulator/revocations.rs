//! Stories of revocations: other exchanges under way, and lost processes, while a caller wants a
//! hold back.

use crate::scenes::{answered, soon, with_grantor};
use elderlock::protocol::{
    ForceOrder, HolderInfo, LockName, LostReason, Metadata, Outcome, OwnerId, Query, QueryReply,
    RevokeCommand, Wait,
};
use elderlock_sim::World;
use elderlock_sim::history::{Ask, ClientRequest};
use elderlock_sim::kind::kind;

/// Four members, oldest first. The second is the grantor of "s", and the third holds its lock "x".
fn with_holder(seed: u64) -> (World, Vec<usize>, Ask) {
    let (mut w, order) = with_grantor(seed, 4);
    let held = w.hold_lock(order[2], "s", "x");
    (w, order, held)
}

/// A caller wants "x" back, and waits for ever.
fn request_revocation(w: &mut World, site: usize) -> Ask {
    let name = Some(LockName::new(b"x").expect("a good name"));
    let request = ClientRequest::Revoke(RevokeCommand::Ask { name, metadata: Metadata::default() });
    w.want(site, "s", request, OwnerId::default(), Wait::Forever, None)
}

fn force_revoke(w: &mut World, site: usize, holder: HolderInfo) -> Ask {
    w.want(
        site,
        "s",
        ClientRequest::Revoke(RevokeCommand::Take(holder)),
        OwnerId::default(),
        Wait::Forever,
        None,
    )
}

/// The holders that were told.
#[track_caller]
fn told(w: &mut World, ask: Ask) -> Vec<HolderInfo> {
    match answered(w, ask) {
        Outcome::RevocationRequested { told, .. } => told,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grantor_that_dies_before_it_names_the_holders_is_followed_by_one_that_does() {
    let (mut w, order, held) = with_holder(1);
    let unheard = w.hold(|flight| kind(flight.packet) == "QueryReply");
    let asked = request_revocation(&mut w, order[3]);
    soon(&mut w);
    assert!(w.matched(unheard) > 0 && !w.is_answered(asked));
    w.crash(order[1]);
    w.let_go(unheard);
    let told = told(&mut w, asked);
    assert_eq!(
        told.iter().map(|holder| holder.token).collect::<Vec<_>>(),
        [w.token(held).expect("it holds")]
    );
    assert!(w.fence(held).is_some());
}

#[test]
fn a_told_revocation_outlives_the_grantor_by_transfer_and_by_crash() {
    let (mut w, order, held) = with_holder(2);
    let asked = request_revocation(&mut w, order[3]);
    let told = told(&mut w, asked);
    let turk = w.become_grantor(order[0], "s");
    assert_eq!(answered(&mut w, turk), Outcome::Won);
    w.crash(order[0]);
    w.crash(order[1]);
    let taken = force_revoke(&mut w, order[3], told[0].clone());
    assert_eq!(answered(&mut w, taken), Outcome::Revoked);
    assert_eq!(w.lost(held), Some(LostReason::Revoked));
    assert!(w.restore_and_demand(), "{:?}", w.broken());
}

#[test]
fn a_hold_is_not_taken_without_its_member_and_its_lease_ends_it() {
    let (mut w, order, held) = with_holder(3);
    let asked = request_revocation(&mut w, order[3]);
    let told = told(&mut w, asked);
    w.isolate(order[2]);
    let next = w.lock(order[3], "s", "x");
    let taken = force_revoke(&mut w, order[3], told[0].clone());
    soon(&mut w);
    assert!(w.fence(held).is_some() && !w.is_answered(taken) && !w.is_granted(next));
    // The hold is over when its member is out of the view, and the member has known that before.
    assert_eq!(
        answered(&mut w, taken),
        Outcome::RevocationRequested { told: vec![], not_revocable: vec![], not_asked: 0 }
    );
    assert_eq!(w.lost(held), Some(LostReason::Suspended));
    w.granted(next);
}

#[test]
fn a_holder_that_is_asked_before_its_grant_arrives_is_told_when_it_has_arrived() {
    let (mut w, order, _) = with_holder(4);
    let holder = order[0];
    let late = w.hold(move |flight| flight.to == holder && kind(flight.packet) == "Grant");
    let name = LockName::new(b"x").expect("a good name");
    let own = w.history().claims().next().expect("x is held");
    w.release(own);
    let held = w.lock(holder, "s", "x");
    soon(&mut w);
    let asked = request_revocation(&mut w, order[3]);
    soon(&mut w);
    assert!(
        w.matched(late) > 0 && !w.is_granted(held) && !w.is_answered(asked),
        "{name} is granted, and no member has it"
    );
    w.let_go(late);
    let told = told(&mut w, asked);
    assert_eq!(Some(told[0].token), w.token(held));
    // A holder that released while the request was under way is left out.
    let slow = w.hold(|flight| kind(flight.packet) == "RequestRevocation");
    let asked = request_revocation(&mut w, order[3]);
    soon(&mut w);
    w.release(held);
    soon(&mut w);
    w.let_go(slow);
    assert_eq!(
        answered(&mut w, asked),
        Outcome::RevocationRequested { told: vec![], not_revocable: vec![], not_asked: 0 }
    );
}

#[test]
fn a_revocation_message_that_is_doubled_or_lost_reports_once() {
    let (mut w, order, held) = with_holder(5);
    w.drop_next(order[3], order[2], "RequestRevocation");
    w.drop_next(order[2], order[3], "RevocationReply");
    let asked = request_revocation(&mut w, order[3]);
    let told = told(&mut w, asked);
    w.drop_next(order[2], order[3], "RevocationReply");
    let taken = force_revoke(&mut w, order[3], told[0].clone());
    assert_eq!(answered(&mut w, taken), Outcome::Revoked);
    assert_eq!(w.lost(held), Some(LostReason::Revoked));
    let again = force_revoke(&mut w, order[3], told[0].clone());
    assert_eq!(
        answered(&mut w, again),
        Outcome::RevocationRequested { told: vec![], not_revocable: vec![], not_asked: 0 }
    );
    assert!(w.restore_and_demand(), "{:?}", w.broken());
}

/// An operator ends a hold whose holder was not asked, and not told.
fn force(w: &mut World, site: usize, holder: HolderInfo) -> Ask {
    let says = |text: &str| Metadata::new(text.as_bytes()).expect("it is short");
    let order = ForceOrder { operator: says("ann"), reason: says("it hangs") };
    let request = ClientRequest::Revoke(RevokeCommand::Force(holder, order));
    w.want(site, "s", request, OwnerId::default(), Wait::Forever, None)
}

/// The holder of "x", as its grantor lists it.
#[track_caller]
fn holder_of_x(w: &mut World, site: usize) -> HolderInfo {
    let asked = w.look(site, "s", Query::Lock(LockName::new(b"x").expect("a good name")));
    match answered(w, asked) {
        Outcome::QueryReply(QueryReply::Lock { holders, .. }) => holders[0].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hold_is_ended_by_force_only_where_its_member_allows_it() {
    for allowed in [false, true] {
        let world = World::new(6).members(4);
        let mut w = if allowed { world.allowing_forced_revokes(&[0, 1, 2, 3]) } else { world };
        w.settle();
        let order = w.in_view();
        // Another member is the grantor, so that the release is a packet.
        let first = w.hold_lock(order[1], "s", "first");
        w.release(first);
        let held = w.hold_lock(order[2], "s", "x");
        let next = w.lock(order[1], "s", "x");
        let holder = holder_of_x(&mut w, order[3]);
        let forced = force(&mut w, order[3], holder);
        if !allowed {
            assert_eq!(answered(&mut w, forced), Outcome::ForceNotAllowed);
            assert!(w.fence(held).is_some() && !w.is_granted(next));
            continue;
        }
        // The member's own release frees the lock, and comes after the loss.
        let late = w.hold(|flight| kind(flight.packet) == "Release");
        assert_eq!(answered(&mut w, forced), Outcome::Revoked);
        assert_eq!(w.lost(held), Some(LostReason::Revoked));
        soon(&mut w);
        assert!(!w.is_granted(next));
        w.let_go(late);
        w.granted(next);
        assert!(w.restore_and_demand(), "{:?}", w.broken());
    }
}

#[test]
fn a_forced_order_hits_no_later_hold_and_needs_the_holders_member() {
    let mut w = World::new(7).members(4).allowing_forced_revokes(&[0, 1, 2, 3]);
    w.settle();
    let order = w.in_view();
    let held = w.hold_lock(order[2], "s", "x");
    let holder = holder_of_x(&mut w, order[3]);
    w.release(held);
    let later = w.hold_lock(order[2], "s", "x");
    let forced = force(&mut w, order[3], holder);
    let none = Outcome::RevocationRequested { told: vec![], not_revocable: vec![], not_asked: 0 };
    assert_eq!(answered(&mut w, forced), none);
    assert!(w.fence(later).is_some());
    let holder = holder_of_x(&mut w, order[3]);
    w.isolate(order[2]);
    let next = w.lock(order[3], "s", "x");
    let forced = force(&mut w, order[3], holder);
    soon(&mut w);
    assert!(w.fence(later).is_some() && !w.is_answered(forced) && !w.is_granted(next));
    assert_eq!(answered(&mut w, forced), none);
    assert_eq!(w.lost(later), Some(LostReason::Suspended));
    w.granted(next);
}
