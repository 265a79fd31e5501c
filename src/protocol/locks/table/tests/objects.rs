//! Objects, and the permits that they limit.

use super::*;

#[test]
fn permits_are_granted_in_queue_order_up_to_the_limit() {
    let mut story = TableScript::new();
    assert_eq!(story.try_as(ANN, permits("x", 1)), Err(Refusal::NotOpen));
    let object = story.ask(ANN, limit("x", 4));
    assert_eq!(story.try_as(BOB, permits("x", 1)), Err(Refusal::NotOpen), "another has it open");
    assert_eq!(story.try_as(ANN, permits("x", 5)), Err(Refusal::Limit(4)));
    let three = story.ask(ANN, permits("x", 3));
    let two = story.ask(ANN, permits("x", 2));
    let one = story.ask(ANN, permits("x", 1));
    assert_eq!(story.grants(), [], "no request overtakes two");
    story.table.reduce(three, &permits("x", 4), token(2));
    story.table.check();
    assert_eq!(story.grants(), [], "no request gets more so");
    story.table.reduce(three, &permits("x", 1), token(2));
    story.table.check();
    assert_eq!(story.grants(), [two, one]);
    let in_use = |story: &TableScript| match story.table.answer(
        ProcessId(ANN),
        &Query::Lock(name("x")),
        NOW,
    ) {
        QueryReply::Lock { permits, .. } => permits,
        other => panic!("{other:?}"),
    };
    assert_eq!(in_use(&story), 4);
    let more = story.ask(ANN, permits("x", 2));
    story.table.write(ProcessId(ANN), &name("x"), limited(1), written(99, 50));
    story.table.check();
    assert_eq!(
        (story.release(three), story.release(two)),
        (vec![], vec![]),
        "there is one, and it is held"
    );
    story.table.write(ProcessId(ANN), &name("x"), limited(3), written(98, 51));
    story.table.check();
    assert_eq!(story.grants(), [more]);
    assert_eq!(story.table.held().count(), 2);
    story.release(object);
    assert!(story.table.content(&name("x")).is_none() && story.holds(one) && story.holds(more));
    assert_eq!((story.release(one), story.release(more)), (vec![], vec![]));
    assert_eq!(story.table.forgetful(), Table::new(Epoch(token(0))));
}

#[test]
fn an_object_is_opened_during_a_suspension_and_is_no_hold() {
    let mut story = TableScript::new();
    let suspended = story.suspends(ANN);
    let first = story.ask(BOB, limit("x", 1));
    let second = story.ask(CYD, limit("x", 2));
    assert!(story.holds(first) && story.holds(second));
    assert_eq!(
        story.table.content(&name("x")).map(|content| content.value.limit()),
        Some(1),
        "the first one's counts"
    );
    assert_eq!((story.table.load(), story.table.openers(&name("x")).count()), ((1, 0), 2));
    story.release(suspended);
    let again = story.suspends(DAN);
    assert!(story.holds(again), "an open object stands in no request's way");
    story.release(first);
    assert!(story.table.content(&name("x")).is_some());
    story.table.end_all(ProcessId(CYD));
    assert!(story.table.content(&name("x")).is_none());
}

#[test]
fn an_open_request_that_waits_is_granted_before_all_others() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let waiter = story.locks(BOB, "x");
    story.suspends(CYD);
    let key = (ProcessId(DAN), RequestId(99));
    let entry = LockRequest {
        want: limit("x", 1),
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    story.table.queue(key, entry, NOW).expect("it waits for no request");
    story.table.check();
    assert_eq!(story.grants(), [key]);
    assert!(story.waits(waiter));
}

#[test]
fn an_object_outlives_its_first_opener_until_all_members_have_reported() {
    let content = |number, text: &str| Content {
        value: Value::new(text.as_bytes()).expect("a short value"),
        version: token(number),
        maybe_stale: false,
        writes: BTreeMap::new(),
    };
    let open = || LockRequest {
        want: Want::Open(OpenRequest::new(name("x"), Value::new(b"first").expect("a short value"))),
        owner: OwnerId(0),
        revocable: true,
        metadata: Metadata::default(),
    };
    let [ann, bob] = [ANN, BOB].map(|process| (ProcessId(process), RequestId(1)));
    let mut table = Table::new(Epoch(token(0)));
    table.adopt(name("x"), content(9, "last"));
    table.enter_reported(ann, open(), token(2), NOW);
    table.end_all(ann.0);
    table.enter_reported(bob, open(), token(3), NOW);
    table.drop_unopened();
    assert_eq!(table.content(&name("x")), Some(&content(9, "last")));
    table.end_all(bob.0);
    assert_eq!(
        table.content(&name("x")),
        None,
        "no member has it open, and no member is left to tell of it"
    );

    let mut table = Table::new(Epoch(token(0)));
    table.enter_reported(ann, open(), token(2), NOW);
    table.adopt(name("x"), content(9, "last"));
    table.end_all(ann.0);
    assert_eq!(
        table.content(&name("x")),
        Some(&content(9, "last")),
        "the member that reported it may have it open"
    );
}

/// Several members report the same object: the highest version stays, and the object exists while
/// one of them has it open.
#[test]
fn the_highest_version_of_an_object_stays() {
    let content =
        |n: u32| Content {
            value: limited(n),
            version: token(n),
            maybe_stale: false,
            writes: BTreeMap::from([ANN, BOB].map(|process| {
                (ProcessId(process), LastWrite { version: token(n), ..written(9, 0) })
            })),
        };
    for versions in [[5, 7, 6], [7, 6, 5], [5, 6, 7]] {
        let mut table = Table::new(Epoch(token(0)));
        for version in versions {
            table.adopt(name("x"), content(version));
            table.adopt(name("y"), content(version));
        }
        let entry = LockRequest {
            want: limit("x", 1),
            owner: OwnerId(0),
            revocable: false,
            metadata: Metadata::default(),
        };
        table.enter_reported((ProcessId(ANN), RequestId(1)), entry, token(3), NOW);
        table.drop_unopened();
        assert!(table.content(&name("y")).is_none(), "no member has it open");
        let kept = table.content(&name("x")).expect("it is open");
        assert_eq!(
            (kept.version, kept.writes.keys().collect::<Vec<_>>()),
            (token(7), vec![&ProcessId(ANN)])
        );
    }
}
