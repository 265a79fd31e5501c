//! Answers to questions about a table.

use super::*;

#[test]
fn a_waiting_batch_keeps_its_position_at_each_name() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let pair = story.ask(BOB, batch(&["x", "y"]));
    assert_eq!(story.try_as(CYD, lock("y")), Err(Refusal::Waited(Some(name("y")))));
    assert_eq!(
        story.try_as(CYD, batch(&["a", "y"])),
        Err(Refusal::Waited(Some(name("y")))),
        "not a, for which no member waits"
    );
    let later = [story.locks(CYD, "y"), story.locks(CYD, "x")];
    assert_eq!(story.grants(), []);
    assert_eq!(story.release(x), [pair]);
    assert_eq!(story.release(pair), later);
}

#[test]
fn a_query_lists_holders_and_waiters_in_order() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let waiters = [story.locks(BOB, "x"), story.suspends(CYD), story.locks(DAN, "x")];
    let seen = |story: &TableScript, at: &Query| story.table.answer(ProcessId(ANN), at, NOW);
    let waiter = |process: u128| WaiterInfo {
        process: ProcessId(process),
        owner: process as u64,
        mode: if process == CYD { Mode::Suspension } else { Mode::Lock },
        metadata: Metadata::default(),
        request: waiters.iter().find(|(of, _)| *of == ProcessId(process)).map(|(_, one)| *one),
    };
    let seen_lock = |holders, waiters| QueryReply::Lock {
        holders,
        more_holders: 0,
        permits: 0,
        content: None,
        opener_count: 0,
        waiters,
        more: 0,
    };
    let expected = seen_lock(vec![info(Some("x"), x, 1)], [BOB, CYD, DAN].map(waiter).into());
    assert_eq!(seen(&story, &Query::Lock(name("x"))), expected);
    let expected = seen_lock(Vec::new(), [CYD].map(waiter).into());
    assert_eq!(seen(&story, &Query::Suspension), expected);
    assert_eq!(
        seen(&story, &Query::Lock(name("idle"))),
        expected,
        "a later request waits for the suspension, too"
    );
    assert_eq!(story.position(waiters[0]), Some((0, 1, None)));
    assert_eq!(story.position(waiters[1]), Some((1, 1, None)));
    assert_eq!(story.position(waiters[2]), Some((2, 1, Some(ProcessId(CYD)))));
    assert_eq!(story.position(x), None);
    let later =
        story.table.answer(ProcessId(ANN), &Query::Held(None), NOW + Duration::from_secs(3));
    let QueryReply::Held { holders, last: true } = later else { panic!("{later:?}") };
    assert_eq!(holders[0].held_for, Duration::from_secs(3));
    let (status, is_end) = story.table.status(NOW, None, usize::MAX);
    assert!(is_end);
    assert_eq!(story.table.listed(), status.len());
    assert_eq!(
        status.iter().map(|lock| (lock.name.is_some(), lock.waiter_count)).collect::<Vec<_>>(),
        [(false, 1), (true, 2)]
    );
    let waited = |story: &TableScript, after| {
        let (status, _) = story.table.status(NOW + after, None, usize::MAX);
        status.iter().map(|lock| lock.next_waits).collect::<Vec<_>>()
    };
    let three = Duration::from_secs(3);
    assert_eq!(waited(&story, three), [Some(three); 2]);
    waiters.into_iter().for_each(|key| story.table.release(key));
    story.table.check();
    assert_eq!(waited(&story, three), [None]);
}

/// Suspensions are counted first, and each queue costs one look.
#[test]
fn requests_before_a_position_are_counted_up_to_a_limit() {
    let mut story = TableScript::new();
    story.table.bounds.counted = 3;
    story.locks(ANN, "x");
    for process in [CYD, DAN] {
        story.suspends(process);
    }
    let waiters = [BOB; 5].map(|process| story.locks(process, "x"));
    assert_eq!(story.position(waiters[0]), Some((2, 1, Some(ProcessId(CYD)))));
    assert_eq!(story.position(waiters[4]), Some((3, 1, Some(ProcessId(CYD)))), "of 6");

    let mut story = TableScript::new();
    story.table.bounds.counted = 5;
    for text in ["x", "y", "z"] {
        for process in [ANN, BOB, CYD] {
            story.locks(process, text);
        }
    }
    let suspension = story.suspends(DAN);
    assert_eq!(story.position(suspension), Some((3, 3, None)), "of 6");

    let mut story = TableScript::new();
    story.suspends(ANN);
    let waiter = story.locks(BOB, "x");
    assert_eq!(
        story.position(waiter),
        Some((0, 1, Some(ProcessId(ANN)))),
        "the suspension has to end first"
    );
}

#[test]
fn a_status_is_told_in_pages() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.locks(BOB, "x");
    story.ask(DAN, limit("o", 1));
    let page = |story: &TableScript, after: Option<Option<&LockName>>, most: usize| {
        let (status, is_end) = story.table.status(NOW, after, most);
        (
            status
                .iter()
                .map(|lock| (lock.holder_count, lock.opener_count, lock.waiter_count))
                .collect::<Vec<_>>(),
            is_end,
        )
    };
    let [suspension, o, x] = [(0, 0, 1), (0, 1, 0), (1, 0, 1)];
    assert_eq!(page(&story, None, 2), (vec![o, x], true));
    story.suspends(CYD);
    assert_eq!(page(&story, None, 3), (vec![suspension, o, x], true));
    assert_eq!(page(&story, None, 2), (vec![suspension, o], false));
    assert_eq!(page(&story, Some(None), 2), (vec![o, x], true));
    assert_eq!(page(&story, Some(Some(&name("o"))), 2), (vec![x], true));

    let mut story = TableScript::new();
    story.suspends(CYD);
    assert_eq!(page(&story, None, 1), (vec![(1, 0, 0)], true));
    assert_eq!(page(&story, None, 0), (vec![], false));
    assert_eq!(page(&TableScript::new(), None, 0), (vec![], true));
}

#[test]
fn lists_are_told_in_pages() {
    let mut story = TableScript::new();
    for n in 0..300 {
        story.locks(ANN, &format!("{n:03}"));
        story.locks(if n % 2 == 0 { BOB } else { CYD }, "000");
    }
    story.suspends(DAN);
    let mut after = None;
    let mut names = Vec::new();
    loop {
        let QueryReply::Held { holders, last } =
            story.table.answer(ProcessId(ANN), &Query::Held(after), NOW)
        else {
            panic!()
        };
        assert!(holders.len() <= story.table.bounds.listed);
        names.extend(holders.into_iter().filter_map(|holder| holder.name));
        after = names.last().cloned();
        if last {
            break;
        }
    }
    assert_eq!(names, (0..300).map(|n| name(&format!("{n:03}"))).collect::<Vec<_>>());
    let QueryReply::Lock { waiters, more, .. } =
        story.table.answer(ProcessId(ANN), &Query::Lock(name("000")), NOW)
    else {
        panic!()
    };
    assert_eq!((waiters.len(), more), (256, 301 - 256));

    let mut after = None;
    let mut waiters = Vec::new();
    loop {
        let at = Query::Waiting(name("000"), after);
        let QueryReply::Waiting { waiters: page, last } =
            story.table.answer(ProcessId(ANN), &at, NOW)
        else {
            panic!()
        };
        assert!(page.len() <= story.table.bounds.listed);
        waiters.extend(page.into_iter().map(|waiter| waiter.process.0));
        after = last;
        if last.is_none() {
            break;
        }
    }
    let expected = (0..300).map(|n| if n % 2 == 0 { BOB } else { CYD }).chain([DAN]);
    assert_eq!(waiters, expected.collect::<Vec<_>>());
}

#[test]
fn the_member_with_most_is_known() {
    let mut story = TableScript::new();
    story.ask(ANN, batch(&["x", "y"]));
    story.locks(ANN, "z");
    story.locks(BOB, "z");
    let shares = BTreeMap::from([(ProcessId(ANN), (2, 0)), (ProcessId(BOB), (0, 1))]);
    assert_eq!(story.table.shares(), shares);
}
