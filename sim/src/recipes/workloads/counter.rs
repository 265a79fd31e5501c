//! `AtomicCounter`: only added to, so that its number tells which additions were made.

use super::{Workload, goes_on};
use elderlock::{AtomicCounter, CounterError, Member};

const SERVICE: &str = "sums";
const NAME: &str = "total";
/// The last two numbers exceed, at once or soon, the 32 bits in which the grantor adds.
const DELTAS: [i64; 4] = [1, 3, 1 << 30, 1 << 40];

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 100).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        let opened = worker.fickle("open", AtomicCounter::open(&service, NAME)).await;
        let Some(Ok(counter)) = opened else { continue };
        // The counter is closed at the end only, because the number ends with the last opening.
        while !worker.is_ending() {
            worker.rest(1, 150).await;
            let done = match worker.below(100) {
                0..=69 => add(worker, &counter).await,
                70..=84 => read(worker, &counter).await,
                85..=94 => match worker.fickle("initialize", counter.initialize(0)).await {
                    Some(set) => set.map(drop),
                    None => Ok(()),
                },
                _ => {
                    worker.turk(&service).await;
                    Ok(())
                }
            };
            if let Err(error) = done {
                goes_on(worker, "counter", &error);
                if error.is_lost() {
                    break;
                }
            }
        }
    }
}

async fn add(worker: &Workload, counter: &AtomicCounter) -> Result<(), CounterError> {
    let (checker, delta) = (&worker.harness.checker, *worker.pick(&DELTAS));
    checker.sums.borrow_mut().begun += delta;
    let Some(added) = worker.fickle("add", counter.add(delta)).await else { return Ok(()) };
    let added = added?;
    worker.note(|| format!("adds {delta} to {} by {:?}", added.before, added.version));
    worker.count(if delta < 1 << 30 { "counters added to" } else { "counters added much to" });
    if added.after - added.before != delta {
        checker.fail("additions_add_up", format!("{delta} was added: {added:?}"));
    }
    checker.added(added.version, (added.before, added.after));
    Ok(())
}

/// Reads the number. Without an earlier fault, the number is a sum of additions. These are all
/// additions that were confirmed before the read began, and some of the others.
async fn read(worker: &Workload, counter: &AtomicCounter) -> Result<(), CounterError> {
    let checker = &worker.harness.checker;
    let confirmed = checker.sums.borrow().confirmed;
    let Some(seen) = worker.fickle("read", counter.read()).await else { return Ok(()) };
    let (number, begun) = (seen?.number, checker.sums.borrow().begun);
    if checker.is_untroubled() && !worker.is_ending() {
        worker.count("sums compared");
        if !(confirmed..=begun).contains(&number) {
            let what = format!("the sum is {number}, of {begun} begun and {confirmed} confirmed");
            checker.fail("additions_add_up", what);
        }
    }
    Ok(())
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let counter = AtomicCounter::open(&service, NAME).await.map_err(|error| error.to_string())?;
    let mut sum = counter.read().await.map_err(|error| error.to_string())?.number;
    for delta in DELTAS {
        sum += delta;
        let after = counter.add(delta).await.map_err(|error| error.to_string())?.after;
        if after != sum {
            return Err(format!("{delta} was added, and {after} came of it, not {sum}"));
        }
    }
    Ok(())
}
