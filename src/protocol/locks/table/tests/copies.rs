//! Copies of a table that changes meanwhile.

use super::*;

/// Enters a part of a copy.
fn enter(copy: &mut Table, entries: CopiedEntries) {
    let CopiedEntries { objects, holds, waits, over, .. } = entries;
    over.into_iter().for_each(|key| copy.release(key));
    for (process, hold) in holds {
        let since = NOW.back(hold.held_for);
        copy.overwrite_hold((process, hold.request), hold.lock, hold.token, since);
    }
    for (process, wait) in waits {
        let ticket = wait.ticket.expect("a wait of a table has a position");
        copy.overwrite_wait((process, wait.request), wait.lock, ticket, NOW);
    }
    for (name, content) in objects {
        copy.overwrite_object(name, content);
    }
}

/// The copy equals its table at the end, after any changes of the table.
#[test]
fn a_copy_of_a_table_under_random_changes_is_that_table() {
    let (mut parts, mut restarts) = (0, 0);
    for seed in 1..=200_u64 {
        let mut below = draws(seed);
        let mut story = TableScript::new();
        let mut keys: Vec<RequestKey> = Vec::new();
        let before = below(60);
        for step in 0..before {
            story.act_at_random(&mut keys, &mut below, step);
            story.grants();
        }
        let mut copy = Table::new_copy(Epoch(token(0)));
        story.table.begin_copy();
        for step in before..before + 120 {
            story.act_at_random(&mut keys, &mut below, step);
            story.grants();
            match below(40) {
                0 => {
                    restarts += 1;
                    copy = Table::new_copy(Epoch(token(0)));
                    story.table.begin_copy();
                }
                1..=20 => {
                    parts += 1;
                    let most = 1 + below(3) as usize;
                    let entries = story.table.next_copied((most, usize::MAX), NOW);
                    assert!(entries.len() <= most);
                    enter(&mut copy, entries);
                }
                _ => {}
            }
        }
        while !story.table.is_walked() || story.table.noted() > 0 {
            enter(&mut copy, story.table.next_copied((2, usize::MAX), NOW));
        }
        assert_eq!(copy.seal(), story.table.seal(), "seed {seed}");
        let mut copied = copy.renew(Epoch(token(1)));
        copied.check();
        let own = story.table.clone().renew(Epoch(token(1)));
        assert_eq!(copied.export(NOW), own.export(NOW), "seed {seed}");
        assert_eq!(copied.clone().forgetful(), own.forgetful(), "seed {seed}");
        // The copy behaves as the table: everything ends.
        for (process, request, _) in copied.requests().collect::<Vec<_>>() {
            copied.release((process, request));
        }
        assert_eq!(copied.forgetful(), Table::new(Epoch(token(1))), "seed {seed}");
    }
    assert!(parts > 5_000 && restarts > 100, "{parts} parts, {restarts} restarts");
}

#[test]
fn a_request_that_comes_and_goes_behind_the_walk_is_not_sent() {
    let mut story = TableScript::new();
    let held = story.locks(ANN, "x");
    story.table.begin_copy();
    assert_eq!(story.table.next_copied((9, usize::MAX), NOW).len(), 1);
    assert!(story.table.is_walked() && story.table.noted() == 0);
    let brief = story.locks(ANN, "y");
    assert_eq!(story.table.noted(), 1);
    story.release(brief);
    assert_eq!(story.table.noted(), 0, "the copy has never had it");
    story.release(held);
    assert_eq!(story.table.next_copied((9, usize::MAX), NOW).over, [held]);
}

#[test]
fn a_seal_differs_where_one_change_is_missing() {
    let mut story = TableScript::new();
    let held = story.locks(ANN, "x");
    story.locks(BOB, "x");
    story.table.begin_copy();
    let mut copy = Table::new_copy(Epoch(token(0)));
    enter(&mut copy, story.table.next_copied((9, usize::MAX), NOW));
    assert_eq!(copy.seal(), story.table.seal());
    story.release(held);
    let entries = story.table.next_copied((9, usize::MAX), NOW);
    assert_eq!((entries.over.len(), entries.holds.len()), (1, 1));
    assert_ne!(copy.seal(), story.table.seal(), "the release is missing");
    enter(&mut copy, entries);
    assert_eq!(copy.seal(), story.table.seal());
}

/// A table that is used no more goes in slices.
#[test]
fn a_large_table_is_freed_a_little_at_a_time() {
    let mut story = TableScript::new();
    for number in 0..300 {
        story.locks(ANN + number % 3, &format!("n{number}"));
        story.locks(DAN, &format!("n{}", number % 10));
    }
    story.ask(BOB, limit("n", 3));
    story.suspends(CYD);
    let (mut steps, mut table) = (0, story.table);
    while table.shed(20) {
        steps += 1;
    }
    assert!(table.size() == 0 && steps > 40, "{steps} steps");
}
