//! Suspensions of a service, and the owners that pass them.

use super::super::holders::MAX_SEARCHED;
use super::*;

#[test]
fn a_suspension_waits_for_earlier_holds_and_later_requests_wait_for_it() {
    // Geode scenario 20.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let waiter = story.locks(BOB, "x");
    let suspension = story.suspends(CYD);
    let later = story.locks(DAN, "y");
    assert!(story.waits(later), "although no member holds y");
    assert_eq!(story.position(later), Some((1, 0, Some(ProcessId(CYD)))));
    assert_eq!(story.position(suspension), Some((1, 1, None)));
    let nested = story.locks(ANN, "z");
    assert!(story.holds(nested), "an owner with a hold may take others");
    assert_eq!(story.release(nested), []);
    assert_eq!(story.release(x), [waiter]);
    assert_eq!(story.release(waiter), [suspension]);
    let own = story.locks(CYD, "y");
    assert!(story.holds(own), "the owner of the suspension may lock");
    assert_eq!(story.release(suspension), [], "later still waits for y");
    assert_eq!(story.release(own), [later]);
}

#[test]
fn a_holder_suspends_as_soon_as_only_its_own_locks_are_left() {
    // Geode scenario 21, defect P1.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let y = story.locks(BOB, "y");
    let upgrade = story.suspends(ANN);
    assert_eq!(story.release(y), [upgrade]);
    assert!(story.holds(x));
    assert_eq!(story.try_as(BOB, lock("y")), Err(Refusal::Held(info(None, upgrade, 3))));
}

#[test]
fn a_holder_suspends_before_the_waiters_for_its_own_lock() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let y = story.locks(BOB, "y");
    let for_x = story.locks(CYD, "x");
    let pair = story.ask(CYD, batch(&["x", "z"]));
    let behind = story.locks(DAN, "z");
    let for_y = story.locks(DAN, "y");
    let upgrade = story.suspends(ANN);
    assert_eq!(story.release(y), [for_y], "it was there before");
    assert_eq!(
        story.release(for_y),
        [upgrade],
        "the others wait for x, and its holder for the suspension"
    );
    assert_eq!(story.release(x), [], "no other member holds anything while it is suspended");
    assert_eq!(story.release(upgrade), [for_x]);
    assert_eq!(story.release(for_x), [pair]);
    assert_eq!(story.release(pair), [behind]);
}

#[test]
fn a_holder_that_suspends_passes_the_suspension_that_waits_for_it() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let waiting = story.suspends(BOB);
    let upgrade = story.suspends(ANN);
    assert!(story.holds(upgrade));
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(upgrade), [waiting]);
}

#[test]
fn two_holders_that_both_suspend_do_not_wait_for_each_other() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let y = story.locks(BOB, "y");
    let upgrade = story.suspends(ANN);
    assert_eq!(story.try_as(BOB, Want::Suspension), Err(Refusal::Deadlock));
    assert_eq!(story.ask_as(BOB, BOB as u64, Want::Suspension), Err(Refusal::Deadlock));
    let patient = story.suspends(CYD);
    assert!(story.waits(patient), "an owner without a hold may wait");
    assert_eq!(story.release(y), [upgrade]);
}

#[test]
fn a_holder_passes_a_suspension_but_not_the_waiters_for_the_name() {
    let mut story = TableScript::new();
    let [x, y] = [story.locks(ANN, "x"), story.locks(BOB, "y")];
    let early = story.locks(CYD, "y");
    let suspension = story.suspends(DAN);
    let late = story.locks(CYD, "y");
    let passer = story.locks(ANN, "y");
    assert_eq!(story.release(y), [early]);
    assert_eq!(story.release(early), [passer]);
    assert_eq!(story.release(passer), []);
    assert_eq!(story.release(x), [suspension]);
    assert_eq!(story.release(suspension), [late]);
}

#[test]
fn of_requests_that_passed_the_first_is_granted_first() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let y = story.locks(ANN, "y");
    story.suspends(DAN);
    let passers: Vec<RequestKey> = (0..3).map(|_| story.locks(ANN, "y")).collect();
    assert_eq!(story.release(y), [passers[0]]);
    assert_eq!(story.release(passers[0]), [passers[1]]);
    assert_eq!(story.release(passers[1]), [passers[2]]);

    let mut story = TableScript::new();
    let [.., z] =
        [(ANN, "x"), (DAN, "y"), (CYD, "z")].map(|(process, text)| story.locks(process, text));
    story.suspends(BOB);
    let [first, second] = [DAN, ANN].map(|process| story.locks(process, "z"));
    assert_eq!(story.release(z), [first], "the numbers of the members do not count");
    assert_eq!(story.release(first), [second]);
}

#[test]
fn a_request_without_an_owner_is_the_whole_members() {
    let mut story = TableScript::new();
    let x = story.ask_as(ANN, 5, lock("x")).expect("free");
    let suspension = story.suspends(BOB);
    let anybody = story.ask_as(ANN, 0, lock("y")).expect("passes");
    assert!(story.holds(anybody), "its member holds x");
    let other = story.ask_as(ANN, 6, lock("z")).expect("waits");
    assert!(story.waits(other), "owner 6 holds nothing");
    let whole = story.ask_as(ANN, 0, Want::Suspension).expect("all holds are its member's");
    assert!(story.holds(whole));
    assert_eq!(story.release(whole), []);
    let part =
        story.ask_as(ANN, 5, Want::Suspension).expect("waits for y, of no owner in particular");
    assert!(story.waits(part));
    assert_eq!(story.release(anybody), [part]);
    assert_eq!(story.release(part), []);
    assert_eq!(story.release(x), [suspension]);
}

#[test]
fn a_member_whose_owners_both_suspend_is_told_so() {
    let mut story = TableScript::new();
    for (owner, text) in [(5, "x"), (6, "y")] {
        story.ask_as(ANN, owner, lock(text)).expect("free");
    }
    let first = story.ask_as(ANN, 5, Want::Suspension).expect("waits for y");
    assert_eq!(story.ask_as(ANN, 6, Want::Suspension), Err(Refusal::Deadlock));
    assert_eq!(story.ask_as(ANN, 0, Want::Suspension), Err(Refusal::Deadlock), "y is its, too");
    assert!(story.waits(first));

    let mut story = TableScript::new();
    story.ask_as(ANN, 5, lock("x")).expect("free");
    let y = story.locks(BOB, "y");
    let whole = story.ask_as(ANN, 0, Want::Suspension).expect("waits for y");
    let part =
        story.ask_as(ANN, 5, Want::Suspension).expect("the whole member does not wait for x");
    assert!(story.waits(part));
    assert_eq!(story.release(y), [part]);
    assert_eq!(story.release(part), [whole]);
}

#[test]
fn a_suspension_that_gives_up_lets_those_behind_it_go_and_the_holder_is_not_concerned() {
    // Geode scenario 22, defect P2.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let suspension = story.suspends(BOB);
    let behind = story.locks(CYD, "y");
    assert_eq!(story.release(suspension), [behind]);
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(behind), []);
    assert!(story.table.is_empty());
}

#[test]
fn a_suspension_is_granted_next_however_the_last_hold_ends() {
    // Geode scenario 23, defects P3 and P4: one hold that ends or is released is one `end`; a
    // departure ends all of them.
    for departs in [false, true] {
        let mut story = TableScript::new();
        let x = story.locks(ANN, "x");
        story.locks(ANN, "x");
        let suspension = story.suspends(BOB);
        let behind = story.locks(CYD, "y");
        if departs {
            story.table.end_all(ProcessId(ANN));
            assert_eq!(story.grants(), [suspension]);
        } else {
            let own = story.release(x);
            assert_eq!(story.release(own[0]), [suspension]);
        }
        story.table.end_all(ProcessId(BOB));
        assert_eq!(
            story.grants(),
            [behind],
            "those behind a suspension come next, however it ends"
        );
    }
}

#[test]
fn a_suspender_that_departs_while_it_waits_lets_those_behind_it_go() {
    // Geode defect P4.
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.suspends(BOB);
    let behind = story.locks(CYD, "y");
    story.table.end_all(ProcessId(BOB));
    assert_eq!(story.grants(), [behind]);
}

#[test]
fn a_try_does_not_wait_for_a_suspension() {
    // Geode defect P7.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let suspension = story.suspends(BOB);
    assert_eq!(story.try_as(CYD, lock("y")), Err(Refusal::Waited(None)));
    assert_eq!(story.try_as(CYD, lock("x")), Err(Refusal::Held(info(Some("x"), x, 1))));
    assert_eq!(story.try_as(CYD, Want::Suspension), Err(Refusal::Held(info(Some("x"), x, 1))));
    assert_eq!(story.try_as(ANN, lock("y")), Ok(()));
    assert_eq!(story.release(x), [suspension]);
    for want in [lock("y"), batch(&["x", "y"]), Want::Suspension] {
        assert_eq!(story.try_as(CYD, want), Err(Refusal::Held(info(None, suspension, 2))));
    }
    assert_eq!(story.try_as(BOB, lock("y")), Ok(()));
}

#[test]
fn a_suspension_and_a_lock_of_another_that_are_both_reported_are_both_kept() {
    // Geode defect P20: with wrong clocks.
    let mut story = TableScript::new();
    let suspension = story.suspends(ANN);
    let entry = |text| LockRequest {
        want: lock(text),
        owner: OwnerId(BOB as u64),
        revocable: false,
        metadata: Metadata::default(),
    };
    let x = (ProcessId(BOB), RequestId(90));
    assert_eq!(story.table.enter_reported(x, entry("x"), token(9), NOW), []);
    story.table.check();
    assert!(story.holds(suspension) && story.holds(x));
    let late = story.locks(CYD, "y");
    assert!(story.waits(late));
    assert_eq!(story.release(suspension), [late]);
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(late), []);
    assert!(story.table.is_empty());
}

#[test]
fn those_left_behind_by_one_suspension_do_not_lock_under_the_next() {
    let mut story = TableScript::new();
    let [x, y] = [story.ask_as(ANN, 5, lock("x")), story.ask_as(ANN, 6, lock("y"))]
        .map(|key| key.expect("free"));
    let whole = story.ask_as(ANN, 0, Want::Suspension).expect("all holds are its member's");
    let passer = story.ask_as(ANN, 6, lock("x")).expect("passes");
    assert!(story.holds(whole) && story.waits(passer));
    assert_eq!(story.release(whole), []);
    assert_eq!(story.release(y), []);
    let next = story.ask_as(ANN, 5, Want::Suspension).expect("only its own is held");
    assert!(story.holds(next));
    assert_eq!(story.release(x), [], "the service is suspended for others");
    let own = story.ask_as(ANN, 5, lock("x")).expect("passes");
    assert!(story.holds(own), "the owner of the suspension goes before the skipped waiters");
    assert_eq!(story.release(own), []);
    assert_eq!(story.release(next), [passer]);
}

#[test]
fn the_line_survives_recovery_also_of_a_held_suspension() {
    let mut story = TableScript::new();
    let suspension = story.suspends(ANN);
    let y = story.locks(ANN, "y");
    let next = story.suspends(BOB);
    let late = story.ask(CYD, batch(&["x", "y"]));
    let passers = [story.locks(ANN, "y"), story.locks(ANN, "y")];
    story.recover(50);
    let third = story.locks(ANN, "y");
    assert_eq!(story.release(y), [passers[0]]);
    story.recover(60);
    assert_eq!(story.release(passers[0]), [passers[1]]);
    assert_eq!(story.release(suspension), []);
    assert_eq!(story.release(passers[1]), [third]);
    assert_eq!(story.release(third), [next]);
    assert_eq!(story.release(next), [late]);
}

/// A member that holds nearly every lock tries to suspend the service.
#[test]
fn a_refused_suspension_names_another_holder_without_a_look_at_all_own_holds() {
    let mut table = Table::new(Epoch(token(0)));
    let spec = |want, owner| LockRequest {
        want,
        owner: OwnerId(owner),
        revocable: false,
        metadata: Metadata::default(),
    };
    let held = |number: u64| lock(&format!("n{number}"));
    for number in 0..50_000 {
        table.hold(
            (ProcessId(ANN), RequestId(number)),
            spec(held(number), 5),
            token(number as u32 + 1),
            NOW,
        );
    }
    let refused = |table: &Table| {
        let mut refused = Ok(());
        let suspends = spec(Want::Suspension, 5);
        let touched = touched(|| refused = table.is_free(ProcessId(ANN), &suspends, NOW));
        assert!(touched < 6 * MAX_SEARCHED, "{touched} looks");
        refused
    };
    assert_eq!(refused(&table), Ok(()), "nothing else is held");
    // The hold belongs to another owner of the same member.
    table.hold((ProcessId(ANN), RequestId(50_000)), spec(lock("y"), 0), token(60_000), NOW);
    assert_eq!(
        refused(&table),
        Err(Refusal::Waited(None)),
        "it is not found, and not granted either"
    );
    let (key, small) = ((ProcessId(BOB), RequestId(1)), (ProcessId(BOB), RequestId(2)));
    table.hold(key, spec(lock("z"), BOB as u64), token(60_001), NOW);
    assert_eq!(refused(&table), Err(Refusal::Held(info(Some("z"), key, 60_001))));
    // The lock of the first name, so it is found at once.
    table.hold(small, spec(lock("a"), BOB as u64), token(60_002), NOW);
    assert_eq!(refused(&table), Err(Refusal::Held(info(Some("a"), small, 60_002))));
}
