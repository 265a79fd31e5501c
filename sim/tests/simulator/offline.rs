//! The offline check accepts every record of a run, and rejects every record that was bent.

use elderlock_sim::World;
use elderlock_sim::chaos::{ChaosPlan, run_seed};
use elderlock_sim::history_checker::check;
use elderlock_sim::record::{Entry, Line, Record};
use std::collections::BTreeMap;
use std::time::Duration;

/// A record in which a lock changes hands in most of the ways there are.
fn story() -> Record {
    let mut world = World::new(1).members(4);
    world.settle();
    let first = world.hold_lock(1, "stock", "a");
    let second = world.lock(2, "stock", "a");
    world.run_for(Duration::from_millis(20));
    let third = world.lock_within(2, "stock", "a", 20_000);
    assert!(world.write(first));
    world.crash(1);
    world.granted(second);
    assert!(world.write(second));
    world.release(second);
    world.granted(third);
    assert!(world.write(third));
    let failed = world.try_lock(3, "stock", "a");
    world.run_for(Duration::from_millis(100));
    assert!(world.is_answered(failed));
    let leased = world.lock_for(3, "till", "b", 50);
    world.granted(leased);
    world.run_for(Duration::from_millis(100));
    let paused = world.hold_lock(3, "till", "b");
    world.pause(3);
    let next = world.lock(0, "till", "b");
    world.granted(next);
    world.run_for(Duration::from_millis(10));
    world.resume(3);
    world.run_for(Duration::from_millis(500));
    assert!(world.lost(paused).is_some());
    assert!(world.restore_and_demand());
    world.into_record()
}

/// The invariants that a bent record breaks.
fn broken_by(bend: impl FnOnce(&mut Vec<Line>)) -> Vec<&'static str> {
    let mut record = story();
    assert_eq!(
        check(&record).map(|findings| findings.flaws),
        Ok(vec![]),
        "{}",
        record.to_json_lines()
    );
    bend(&mut record.lines);
    let findings = check(&record).expect("it is still a record");
    let mut names: Vec<&str> = findings.flaws.into_iter().map(|flaw| flaw.invariant).collect();
    names.dedup();
    names
}

/// The n-th line for which `so` holds.
fn nth(lines: &[Line], n: usize, so: impl Fn(&Line) -> bool) -> usize {
    let mut found = lines.iter().enumerate().filter(|(_, line)| so(line)).map(|(index, _)| index);
    found.nth(n).expect("there is such a line")
}

fn is_ok(line: &Line) -> bool {
    matches!(line.entry, Entry::Ok { .. })
}

fn is_lease_end(line: &Line) -> bool {
    matches!(&line.entry, Entry::Lost { reason, .. } if reason == "lease ended")
}

/// The table of the recovery after m1, which held one lock, has ended: m2 waits twice.
fn recovered(lines: &[Line]) -> usize {
    nth(lines, 0, |line| matches!(&line.entry, Entry::Table { service, .. } if service == "stock"))
}

/// Makes the record that of a World whose clocks keep no bound: a finding that remains does not
/// depend on the bound.
fn let_clocks_go(lines: &mut [Line]) {
    let Entry::World { bounded, .. } = &mut lines[0].entry else { unreachable!() };
    *bounded = false;
}

macro_rules! bent {
    ($($(#[$doc:meta])* $name:ident, $invariant:literal, $bend:expr;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                let broken = broken_by($bend);
                assert!(broken.contains(&$invariant), "{broken:?}");
            }
        )*
    };
}

bent! {
    /// A second process believes in a lock before the first has ceased to.
    two_holders_are_found, "exclusive_by_lease", |lines: &mut Vec<Line>| {
        let release = nth(lines, 0, |line| matches!(line.entry, Entry::Release { call: 1 }));
        let ok = nth(lines, 2, is_ok);
        let at = lines[ok].at + 1;
        lines[release].at = at;
        lines.sort_by_key(|line| line.at);
    };
    /// The lease of a stopped process does not end, and another has its lock.
    a_sleeper_that_believes_is_found, "exclusive_by_lease", |lines: &mut Vec<Line>| {
        let lease = nth(lines, 0, |line| matches!(line.entry, Entry::Lease { .. }));
        lines[lease].entry = Entry::Lease { until: None };
    };
    /// One token is granted twice.
    a_token_given_twice_is_found, "token_belongs_to_one_hold", |lines: &mut Vec<Line>| {
        let first = nth(lines, 0, is_ok);
        let Entry::Ok { token: first, .. } = lines[first].entry else { unreachable!() };
        let last = nth(lines, 1, is_ok);
        let Entry::Ok { token, .. } = &mut lines[last].entry else { unreachable!() };
        *token = first;
    };
    /// A later hold with a lower token.
    a_token_that_falls_is_found, "tokens_rise", |lines: &mut Vec<Line>| {
        let second = nth(lines, 1, is_ok);
        let Entry::Ok { token, .. } = &mut lines[second].entry else { unreachable!() };
        *token = 7;
    };
    /// A token of an epoch that is over.
    a_grant_of_the_past_is_found, "no_resurrected_grant", |lines: &mut Vec<Line>| {
        let second = nth(lines, 1, is_ok);
        let Entry::Ok { token, .. } = &mut lines[second].entry else { unreachable!() };
        *token = 7;
    };
    /// The loss of a living process's hold is not reported.
    a_holder_that_was_not_told_is_found, "told_before_regrant", |lines: &mut Vec<Line>| {
        let lost = nth(lines, 0, is_lease_end);
        lines.remove(lost);
    };
    /// A call that is answered twice.
    two_answers_are_found, "one_outcome_per_request", |lines: &mut Vec<Line>| {
        let fail = nth(lines, 0, |line| matches!(line.entry, Entry::Fail { .. }));
        lines.insert(fail, lines[fail].clone());
    };
    /// A call that is answered long after its limit.
    a_late_answer_is_found, "one_outcome_per_request", |lines: &mut Vec<Line>| {
        let asked = nth(lines, 0, |line| matches!(line.entry, Entry::Invoke { wait: Some(0), .. }));
        let Entry::Invoke { call, .. } = lines[asked].entry else { unreachable!() };
        let first = nth(lines, 0, |line| matches!(line.entry, Entry::Invoke { .. }));
        let mut line = lines.remove(asked);
        line.at = lines[first].at;
        lines.insert(first, line);
        assert!(call > 0);
    };
    /// The later of two waiters of one process is served first.
    a_queue_turned_around_is_found, "fifo_across_failover", |lines: &mut Vec<Line>| {
        let swap = |call: usize| match call { 1 => 2, 2 => 1, other => other };
        for line in lines.iter_mut() {
            if let Entry::Ok { call, .. } | Entry::Release { call } | Entry::Write { call, .. } =
                &mut line.entry
            {
                *call = swap(*call);
            }
        }
    };
    /// A hold is lost to a lease that runs.
    a_loss_without_a_cause_is_found, "holds_survive", |lines: &mut Vec<Line>| {
        let lost = nth(lines, 0, is_lease_end);
        let Entry::Lost { reason, .. } = &mut lines[lost].entry else { unreachable!() };
        *reason = "suspended".to_string();
    };
    /// The store takes a lower token.
    a_stale_write_that_is_taken_is_found, "stale_writes_are_refused", |lines: &mut Vec<Line>| {
        let first = nth(lines, 0, |line| matches!(line.entry, Entry::Write { .. }));
        let last = nth(lines, 2, |line| matches!(line.entry, Entry::Write { .. }));
        let again = Line { at: lines[last].at, ..lines[first].clone() };
        lines.insert(last + 1, again);
    };
    /// Two grantors in one epoch.
    two_grantors_of_an_epoch_are_found, "one_grantor_per_epoch", |lines: &mut Vec<Line>| {
        let first = nth(lines, 0, |line| matches!(line.entry, Entry::Grantor { .. }));
        let other = lines[first].site.map(|site| (site + 1) % 4);
        lines.insert(first, Line { site: other, ..lines[first].clone() });
    };
    /// A service whose epochs fall.
    an_epoch_that_falls_is_found, "epochs_rise", |lines: &mut Vec<Line>| {
        let last = nth(lines, 1, |line| matches!(&line.entry,
            Entry::Grantor { service, recovering: false, .. } if service == "stock"));
        let Entry::Grantor { epoch, .. } = &mut lines[last].entry else { unreachable!() };
        *epoch = 3;
    };
    /// Two views with one number.
    two_views_of_a_number_are_found, "views_agree", |lines: &mut Vec<Line>| {
        let second = nth(lines, 1, |line| matches!(line.entry, Entry::View { .. }));
        let Entry::View { members, .. } = &mut lines[second].entry else { unreachable!() };
        members.swap(0, 1);
    };
    /// A process that was out is back.
    a_process_that_comes_back_is_found, "views_agree", |lines: &mut Vec<Line>| {
        let first = nth(lines, 0, |line| matches!(line.entry, Entry::View { .. }));
        let Entry::View { members: all, lives: first, .. } = lines[first].entry.clone() else {
            unreachable!()
        };
        let last = nth(lines, 0, |line| matches!(&line.entry, Entry::Heal));
        for line in &mut lines[last..] {
            if let Entry::View { members, lives, .. } = &mut line.entry {
                (*members, *lives) = (all.clone(), first.clone());
            }
        }
    };
    /// A member that is not the oldest is elder.
    a_wrong_elder_is_found, "one_elder_per_view", |lines: &mut Vec<Line>| {
        let elder = nth(lines, 0, |line| matches!(&line.entry,
            Entry::Event { name } if name == "became_elder"));
        let view = nth(lines, 1, |line| matches!(line.entry, Entry::View { .. }));
        let site = lines[view].site;
        let line = Line { site, at: lines[view].at, ..lines[elder].clone() };
        lines.insert(view + 1, line);
    };
    /// A member with a lease in a second lineage.
    a_second_lineage_is_found, "one_lineage", |lines: &mut Vec<Line>| {
        let last = nth(lines, 0, |line| matches!(line.entry, Entry::Heal));
        let view = last + nth(&lines[last..], 0, |line| matches!(line.entry, Entry::View { .. }));
        let Entry::View { founder, .. } = &mut lines[view].entry else { unreachable!() };
        *founder = (3, 1);
    };
    /// A waiter without an answer.
    a_forgotten_waiter_is_found, "no_lost_wakeup", |lines: &mut Vec<Line>| {
        let fail = nth(lines, 0, |line| matches!(line.entry, Entry::Fail { .. }));
        lines.remove(fail);
    };
    /// A lock that one member cannot get any more.
    a_lock_that_is_gone_is_found, "no_leaked_hold", |lines: &mut Vec<Line>| {
        let last = lines.iter().rposition(is_ok).expect("a member got a lock");
        let Entry::Ok { call: wanted, .. } = lines[last].entry else { unreachable!() };
        lines[last].entry = Entry::Fail { call: wanted, answer: "undecided".to_string() };
        lines.retain(|line| !matches!(line.entry, Entry::Release { call } if call == wanted));
    };
    /// A grantor that has asked all members begins without one waiter.
    a_waiter_that_a_recovery_forgets_is_found, "recovered_table_is_the_union",
    |lines: &mut Vec<Line>| {
        let table = recovered(lines);
        let Entry::Table { holds, waits, .. } = &mut lines[table].entry else { unreachable!() };
        assert_eq!(holds.len() + waits.len(), 2);
        waits.clear();
    };
    /// A grantor that has asked all members begins with a hold whose process has gone.
    a_hold_that_a_recovery_brings_back_is_found, "recovered_table_is_the_union",
    |lines: &mut Vec<Line>| {
        let table = recovered(lines);
        let Entry::Table { holds, .. } = &mut lines[table].entry else { unreachable!() };
        holds.push((0, 7));
    };
    /// A grantor that has asked all members knows a hold by another token.
    a_hold_that_a_recovery_mistakes_is_found, "recovered_table_is_the_union",
    |lines: &mut Vec<Line>| {
        let table = recovered(lines);
        let Entry::Table { holds, .. } = &mut lines[table].entry else { unreachable!() };
        holds[0].1 += 1;
    };
    /// A member that was cut off from all others long ago is granted a lock.
    a_grant_without_a_quorum_is_found, "minority_is_silent", |lines: &mut Vec<Line>| {
        let cut = (0..3).flat_map(|other| [(3, other), (other, 3)]).collect();
        let story = nth(lines, 0, |line| matches!(line.entry, Entry::Invoke { .. }));
        let at = lines[story].at;
        let entry = Entry::Ways { cut, mended: Vec::new() };
        lines.insert(story, Line { at, site: None, life: 0, entry });
        // All that follows is as much later as leases take to run out.
        lines[story + 1..].iter_mut().for_each(|line| line.at += 30_000_000_000);
    };
    /// A storm of packets.
    a_storm_is_found, "cost_is_bounded", |lines: &mut Vec<Line>| {
        let sent = nth(lines, 0, |line| matches!(line.entry, Entry::Sent { .. }));
        let Entry::Sent { packets, .. } = &mut lines[sent].entry else { unreachable!() };
        *packets = 60_001;
    };
    /// A token of a view that no grantor was named in.
    a_token_of_no_epoch_is_found_whatever_the_clocks_do, "tokens_rise", |lines: &mut Vec<Line>| {
        let second = nth(lines, 1, is_ok);
        let Entry::Ok { token, .. } = &mut lines[second].entry else { unreachable!() };
        *token += 1 << 32;
        let_clocks_go(lines);
    };
    /// A token from the range of another service's grantor.
    a_token_of_another_service_is_found_whatever_the_clocks_do, "tokens_rise",
    |lines: &mut Vec<Line>| {
        let till = nth(lines, 0, |line| matches!(&line.entry,
            Entry::Grantor { service, .. } if service == "till"));
        let Entry::Grantor { epoch, .. } = lines[till].entry else { unreachable!() };
        let last = nth(lines, 2, is_ok);
        let Entry::Ok { token, .. } = &mut lines[last].entry else { unreachable!() };
        *token = epoch + 100;
        let_clocks_go(lines);
    };
    /// A site gets a lock with a lower token than before.
    a_token_that_falls_at_one_site_is_found_whatever_the_clocks_do, "tokens_rise",
    |lines: &mut Vec<Line>| {
        let tokens: BTreeMap<usize, u64> = lines.iter().filter_map(|line| match line.entry {
            Entry::Ok { call, token, .. } => Some((call, token)),
            _ => None,
        }).collect();
        for line in lines.iter_mut() {
            if let Entry::Ok { call, token, .. } | Entry::Write { call, token, .. } =
                &mut line.entry
            {
                *token = match call { 1 => tokens[&2], 2 => tokens[&1], _ => *token };
            }
        }
        let_clocks_go(lines);
    };
    /// A process grants a service again in an epoch in which it did.
    an_epoch_that_falls_at_one_process_is_found_whatever_the_clocks_do, "epochs_rise",
    |lines: &mut Vec<Line>| {
        let first = nth(lines, 0, |line| matches!(line.entry,
            Entry::Grantor { recovering: false, .. }));
        lines.insert(first, lines[first].clone());
        let_clocks_go(lines);
    };
    /// An epoch of a view that no member has.
    an_epoch_of_no_view_is_found_whatever_the_clocks_do, "epochs_rise", |lines: &mut Vec<Line>| {
        let is_grantor = |line: &Line| matches!(line.entry, Entry::Grantor { .. });
        let last = lines.iter().rposition(is_grantor).expect("there is one");
        let Entry::Grantor { epoch, .. } = &mut lines[last].entry else { unreachable!() };
        *epoch += 100 << 32;
        let_clocks_go(lines);
    };
    /// A member that is in no common view at the end.
    a_member_left_alone_is_found, "converges_after_heal", |lines: &mut Vec<Line>| {
        let heal = nth(lines, 0, |line| matches!(line.entry, Entry::Heal));
        let mut index = 0;
        lines.retain(|line| {
            index += 1;
            index <= heal || line.site != Some(3) || !matches!(line.entry, Entry::View { .. })
        });
    };
}

/// The holder of a lost answer may have it for ever: its lock may be granted on, and it may never
/// have had it.
#[test]
fn a_lost_answer_is_unknown_for_ever() {
    let mut record = story();
    let unknown = nth(&record.lines, 0, |line| matches!(line.entry, Entry::Unknown { call: 0 }));
    record.lines.retain(|line| {
        !matches!(line.entry, Entry::Ok { call: 0, .. } | Entry::Write { call: 0, .. })
    });
    assert_eq!(check(&record).map(|findings| findings.flaws), Ok(vec![]), "line {unknown}");
}

/// The records of chaos hold when they are read again, and every invariant is checked on them.
#[test]
fn records_of_chaos_hold() {
    let mut idle: Vec<&str> = elderlock_sim::history_checker::NAMES.to_vec();
    for seed in 1..=25 {
        let run = run_seed(&ChaosPlan::draw(seed, (3, 7)), |world| world);
        assert_eq!(run.world.broken(), None, "seed {seed}");
        idle.retain(|name| run.world.offline_premises()[name] == 0);
    }
    assert_eq!(idle, [""; 0], "these had nothing to say");
}
