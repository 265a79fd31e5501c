//! Shrinking: reduces a broken run to the parts that the break needs. First it leaves out faults of
//! the plan, then steps of the log, as long as the same invariant breaks. If the invariant is about
//! a lock, it must be the same lock. Otherwise shrinking would slip to another break.

use crate::chance::mix;
use crate::chaos::{ChaosPlan, run_seed};
use crate::log::Log;
use crate::reduce::reduce;
use crate::step::Step;
use crate::world::{Violation, World};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Runs spent on the faults at most.
const MAX_PLANS: usize = 200;
/// Runs spent on the steps at most.
const MAX_LOGS: usize = 1_000;
/// The number of lucks of the network with which a part of a log is tried.
const LUCKS: u64 = 4;

/// Returns whether this run broke as that run did.
fn is_same(found: Option<&Violation>, as_this: &Violation) -> bool {
    found.is_some_and(|found| found.invariant == as_this.invariant && found.lock == as_this.lock)
}

/// Leaves out the faults of a plan that the break does not need.
pub fn shrink(plan: &ChaosPlan, found: &Violation, prepare: impl Fn(World) -> World) -> ChaosPlan {
    let mut runs = MAX_PLANS;
    let kept = reduce(&plan.kept, &mut runs, |kept| {
        is_same(run_seed(&plan.only(kept), &prepare).world.broken(), found)
    });
    plan.only(&kept)
}

/// Leaves out the steps of a log that the break does not need: first clients' calls with all their
/// steps, then single steps. Returns the log as it is if it does not break in this way.
///
/// A log without a call has fewer packets, and those after it have another luck; a break that
/// depends on a race would be missed. So the remainder is tried with some other lucks as well, and
/// the log keeps the luck with which it breaks.
pub fn shrink_log(log: &Log, found: &Violation, prepare: impl Fn(World) -> World) -> Log {
    let replay = |log: &Log| log.replay(prepare(log.scene.world().untraced()));
    let whole = replay(log);
    if !is_same(whole.broken(), found) {
        return log.clone();
    }
    let mut small = log.clone();
    small.steps.retain(|(at, step)| *at <= whole.now && !step.is_remark());
    let farewell = small.steps.split_off(begin_of_farewell(&small.steps));
    let mut runs = MAX_LOGS;
    let left = std::cell::Cell::new(MAX_LOGS);
    let luck = std::cell::Cell::new(log.scene.seed);
    let breaks = |steps: Vec<(u64, Step)>| {
        let mut small = Log { steps: [steps, farewell.clone()].concat(), ..log.clone() };
        let lucks = (0..LUCKS).map(|n| if n == 0 { luck.get() } else { mix(&[log.scene.seed, n]) });
        let found =
            lucks.take_while(|_| left.replace(left.get().saturating_sub(1)) > 0).find(|seed| {
                small.scene.seed = *seed;
                let world = replay(&small);
                is_same(world.broken(), found) && world.core_suffices
            });
        luck.set(found.unwrap_or(luck.get()));
        found.is_some()
    };
    let silent =
        |step: &Step| matches!(step, Step::Fence(_) | Step::Write(_) | Step::WriteEarlier(_));
    let loud: Vec<_> = small.steps.iter().filter(|(_, step)| !silent(step)).cloned().collect();
    if breaks(loud.clone()) {
        small.steps = loud;
    }
    let calls: BTreeSet<usize> = small.steps.iter().filter_map(|(_, step)| step.call()).collect();
    let calls: Vec<usize> = calls.into_iter().collect();
    let calls = reduce(&calls, &mut runs, |kept| breaks(only_calls(&small.steps, kept)));
    small.steps = only_calls(&small.steps, &calls);
    left.set(MAX_LOGS / 2);
    small.steps = reduce(&small.steps, &mut runs, |kept| breaks(kept.to_vec()));
    small.steps.extend(farewell);
    small.scene.seed = luck.get();
    small.steps = with_remarks(&small.steps, log.steps.iter().filter(|(_, step)| step.is_remark()));
    rename(&mut small.steps);
    small.end = replay(&small).now;
    small
}

/// The index of the first step of a log that abandons all but some members, before everything is
/// demanded of these. These steps stay, for a member that is not abandoned would take part, and
/// nothing could be demanded.
fn begin_of_farewell(steps: &[(u64, Step)]) -> usize {
    match steps.last() {
        Some((_, Step::RestorePart(_))) => {
            steps.iter().rposition(|(_, step)| *step == Step::Heal).unwrap_or(steps.len())
        }
        _ => steps.len(),
    }
}

/// The steps without those of other calls.
fn only_calls(steps: &[(u64, Step)], calls: &[usize]) -> Vec<(u64, Step)> {
    let stays = |step: &Step| step.call().is_none_or(|call| calls.binary_search(&call).is_ok());
    steps.iter().filter(|(_, step)| stays(step)).cloned().collect()
}

/// Puts the remarks on faults back where steps of theirs are left: at that time, the log has a step
/// that is not a client's.
fn with_remarks<'a>(
    steps: &[(u64, Step)],
    remarks: impl Iterator<Item = &'a (u64, Step)>,
) -> Vec<(u64, Step)> {
    let mut all = steps.to_vec();
    let done: BTreeSet<u64> =
        all.iter().filter(|(_, step)| step.call().is_none()).map(|(at, _)| *at).collect();
    let mut begun = BTreeSet::new();
    for (at, remark) in remarks {
        let stays = match remark {
            Step::Fault { fault, .. } if done.contains(at) => begun.insert(*fault),
            Step::Mended { fault } => done.contains(at) && begun.contains(fault),
            _ => false,
        };
        if stays {
            let site = all.partition_point(|(other, _)| other < at);
            all.insert(site, (*at, remark.clone()));
        }
    }
    all
}

/// Counts the calls that are left from 0. Steps about a call that is left out have no effect, and
/// are removed.
fn rename(steps: &mut Vec<(u64, Step)>) {
    let mut names = BTreeMap::new();
    for (_, step) in steps.iter_mut() {
        if let Some(call) = step.call_mut() {
            let next = names.len();
            *call = *names.entry(*call).or_insert(next);
        }
    }
    steps.retain_mut(|(_, step)| match step {
        Step::Ask { wanted, .. } => {
            let Some(of) = wanted.about_mut() else { return true };
            let name = names.get(of);
            *of = name.copied().unwrap_or_default();
            name.is_some()
        }
        _ => true,
    });
}

/// Writes the log of a break of `seed` to a file in `folder`, with its outcome and the demand that
/// everything works after it. Returns the path, or nothing if the log does not break in the same
/// way.
pub fn save(
    seed: u64,
    log: &Log,
    found: &Violation,
    prepare: impl Fn(World) -> World,
    folder: &Path,
) -> std::io::Result<Option<PathBuf>> {
    let mut log = log.clone();
    if !log.steps.last().is_some_and(|(_, step)| step.takes_time()) {
        log.steps.push((log.end, Step::Restore));
    }
    let mut runner = crate::script::ScriptRunner::new(prepare);
    let told = runner.run_script(&log.to_script())?;
    if !is_same(runner.world().broken(), found) {
        return Ok(None);
    }
    let lock = found.lock.as_ref().map(|lock| format!(" of {lock}")).unwrap_or_default();
    let file = folder.join(format!("{}-{seed}", found.invariant));
    std::fs::create_dir_all(folder)?;
    std::fs::write(
        &file,
        format!("# Seed {seed} of chaos breaks {}{lock}.\n{told}", found.invariant),
    )?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::ClientWant;

    #[test]
    fn only_the_causes_remain() {
        let all: Vec<u32> = (0..300).collect();
        let mut runs = MAX_LOGS;
        let kept =
            reduce(&all, &mut runs, |kept| [7, 8, 150, 299].iter().all(|one| kept.contains(one)));
        assert_eq!(kept, [7, 8, 150, 299]);
        assert!(MAX_LOGS - runs < 150, "{} runs", MAX_LOGS - runs);
    }

    #[test]
    fn an_observer_of_a_position_follows_its_new_number() {
        let look = |call, of| Step::Ask {
            call,
            site: 0,
            service: "till".to_string(),
            wanted: ClientWant::SeePosition(of),
            owner: 0,
            says: String::new(),
            wait: elderlock::protocol::Wait::Try,
            lease: None,
        };
        let mut steps: Vec<_> =
            [Step::Release(7), look(9, 7), look(10, 8)].into_iter().map(|step| (0, step)).collect();
        rename(&mut steps);
        assert_eq!(steps, [(0, Step::Release(0)), (0, look(1, 0))]);
    }

    #[test]
    fn a_fault_that_abandons_others_stays() {
        let steps =
            [Step::Heal, Step::Crash(0), Step::Heal, Step::Crash(1), Step::RestorePart(vec![0, 2])];
        let mut steps: Vec<_> =
            steps.into_iter().enumerate().map(|(at, step)| (at as u64, step)).collect();
        assert_eq!(begin_of_farewell(&steps), 2);
        steps.push((5, Step::Restore));
        assert_eq!(begin_of_farewell(&steps), 6);
    }

    #[test]
    fn one_that_may_go_only_after_another_goes() {
        let mut runs = MAX_LOGS;
        // 1 needs 2, and nothing else needs 2.
        let breaks = |kept: &[u32]| kept.contains(&5) && (!kept.contains(&1) || kept.contains(&2));
        assert_eq!(reduce(&[1, 2, 3, 4, 5], &mut runs, breaks), [5]);
        let mut runs = MAX_LOGS;
        let breaks = |kept: &[u32]| {
            kept.contains(&5) && (!kept.contains(&2) || kept.contains(&1) || kept.len() < 3)
        };
        assert_eq!(reduce(&[1, 2, 5], &mut runs, breaks), [5]);
    }
}
