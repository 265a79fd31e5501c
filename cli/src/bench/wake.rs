//! What a release costs in messages when somebody waits.

use super::message::{Order, Place, Report, Usage};
use super::sheet::{Figure, Sheet, Unit};
use super::stage::{Stage, Step};
use super::{BenchArgs, Progress};
use std::path::Path;

const GRANTOR: usize = 0;
const HOLDER: usize = 1;
const WAITER: usize = 2;
/// How many wait, all at one member: each release is told by it, or by the holder, and wakes the next.
const WAITERS: u32 = 1000;
/// A message that gives the lock back, and one that grants it.
const MESSAGES: f64 = 2.0;
/// What members say to each other all the time may add so much, and what acknowledges.
const BESIDE: f64 = 0.1;

pub(crate) fn wake(args: &BenchArgs, logs: &Path, progress: &Progress, sheet: &mut Sheet) -> Step<()> {
    let mut stage = Stage::set(3, logs.to_owned())?;
    stage.ask(GRANTOR, &Order::Become, Report::did)?;
    for round in 1..=args.rounds {
        progress.say(&format!("round {round} of {}", args.rounds));
        stage.ask(HOLDER, &Order::HoldQueues(1), Report::done)?;
        let places = (0..WAITERS).map(|waiter| Place { queue: 0, waiter }).collect();
        stage.order(WAITER, &Order::Wait(places));
        stage.stand_in_line(GRANTOR, WAITERS)?;

        let before = usages(&mut stage)?;
        stage.ask(HOLDER, &Order::FreeQueues, Report::done)?;
        stage.any_report("for those who wait to be served", |_, report| match report {
            Report::Served(_) => Some(()),
            _ => None,
        })?;
        let after = usages(&mut stage)?;

        // The last release wakes nobody.
        let each = |count: u64| count as f64 / f64::from(WAITERS);
        let sent = |usages: &[Usage]| usages.iter().map(|usage| usage.frames_out).sum::<u64>();
        let messages = each(sent(&after) - sent(&before));
        let heard = each(after[WAITER].frames_in - before[WAITER].frames_in);
        sheet.note(WAITERS, Figure::new("messages of a release", Unit::Count).at_most(MESSAGES + BESIDE), messages);
        sheet.note(WAITERS, Figure::new("messages to those who wait", Unit::Count).at_most(1.0 + BESIDE), heard);
        if messages > MESSAGES + BESIDE || heard > 1.0 + BESIDE {
            sheet.problems.push(format!(
                "a release that wakes one of {WAITERS} costs {messages} messages, {heard} of them to those who wait"
            ));
        }
        progress.step();
    }
    Ok(())
}

fn usages(stage: &mut Stage) -> Step<Vec<Usage>> {
    [GRANTOR, HOLDER, WAITER].into_iter().map(|place| stage.usage(place)).collect()
}
