//! The record of a run: its content, and that it survives being written and read.

use elderlock_sim::World;
use elderlock_sim::chaos::{ChaosPlan, run_seed};
use elderlock_sim::record::{Entry, Record};

/// A lock that passes from a killed holder to a waiter, told by its record.
#[test]
fn the_record_has_requests_holds_and_kills() {
    let mut world = World::new(1).members(3).with_messages();
    world.settle();
    let first = world.hold_lock(1, "stock", "a");
    let second = world.lock(2, "stock", "a");
    world.run_for(std::time::Duration::from_millis(50));
    world.crash(1);
    world.granted(second);
    world.release(second);
    let at = |wanted: &dyn Fn(&Entry) -> bool| {
        let found = world.record().lines.iter().position(|line| wanted(&line.entry));
        found.unwrap_or_else(|| {
            panic!("it is not in the record:\n{}", world.record().to_json_lines())
        })
    };
    let story = [
        at(&|entry| matches!(entry, Entry::Start)),
        at(&|entry| matches!(entry, Entry::View { members, .. } if members.len() == 3)),
        at(&|entry| matches!(entry, Entry::Invoke { call, .. } if *call == first.0)),
        at(&|entry| matches!(entry, Entry::Send { kind, to: 0, .. } if kind == "FindGrantor")),
        at(&|entry| matches!(entry, Entry::Grantor { recovering: false, .. })),
        at(&|entry| matches!(entry, Entry::Ok { call, .. } if *call == first.0)),
        at(&|entry| matches!(entry, Entry::Invoke { call, .. } if *call == second.0)),
        at(&|entry| matches!(entry, Entry::Unknown { call } if *call == first.0)),
        at(&|entry| matches!(entry, Entry::End { how } if how == "killed")),
        at(&|entry| matches!(entry, Entry::Grantor { recovering: true, .. })),
        at(&|entry| matches!(entry, Entry::View { members, .. } if members.len() == 2)),
        at(&|entry| matches!(entry, Entry::Ok { call, .. } if *call == second.0)),
        at(&|entry| matches!(entry, Entry::Release { call } if *call == second.0)),
    ];
    assert!(story.is_sorted(), "{story:?}\n{}", world.record().to_json_lines());
}

/// Written as JSON lines and read again, a record of chaos is the same.
#[test]
fn a_record_that_is_written_and_read_is_the_same() {
    for seed in [2, 5] {
        let run = run_seed(&ChaosPlan::draw(seed, (3, 5)), |world| world.with_messages());
        let record = run.world.into_record();
        assert!(record.lines.len() > 1_000);
        let text = record.to_json_lines();
        assert_eq!(Record::from_json_lines(&text), Ok(record));
        let wrong = text.replacen("\"what\":\"invoke\"", "\"what\":\"invoice\"", 1);
        assert!(Record::from_json_lines(&wrong).is_err_and(|error| error.contains("line ")));
    }
}

/// Writing down packets, or nothing of them, changes nothing in a run.
#[test]
fn the_record_does_not_disturb_the_run() {
    let plan = ChaosPlan::draw(11, (3, 5));
    let without = run_seed(&plan, |world| world);
    let with = run_seed(&plan, |world| world.with_messages());
    assert_eq!(without.world.digest(), with.world.digest());
    let is_packet = |entry: &Entry| matches!(entry, Entry::Send { .. } | Entry::Arrive { .. });
    let mut lines = with.world.record().lines.clone();
    lines.retain(|line| !is_packet(&line.entry));
    assert_eq!(lines, without.world.record().lines);
}
