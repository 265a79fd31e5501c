//! `Schedule`: a job runs once per tick, by one worker at a time.

use super::{Workload, goes_on, have};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{LockService, Member, MissedTicks, Schedule, Tick};
use std::cell::Cell;
use std::time::Duration;

const SERVICE: &str = "clockwork";
const NAME: &str = "report";
const PERIOD: Duration = Duration::from_millis(250);

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 300).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        if worker.below(20) == 0 {
            worker.turk(&service).await;
        }
        run(worker, &service).await;
    }
}

/// Runs the schedule for a while, and drops it when it is between two ticks; now and then at any
/// time.
async fn run(worker: &Workload, service: &LockService) {
    let id = worker.number.to_string();
    let Ok(schedule) = Schedule::new(service, NAME, PERIOD, id) else { return };
    let policies = [MissedTicks::Skip, MissedTicks::RunOnce, MissedTicks::RunAll];
    let schedule = schedule.missed(*worker.pick(&policies));
    // The last tick that this worker has begun.
    let begun = Cell::new(None);
    let runs = schedule.run(|tick| work(worker, tick, &begun));
    let is_rude = worker.below(4) == 0;
    let stops = async {
        worker.rest(300, 4_000).await;
        while !worker.is_ending() && !is_rude && schedule.finished() != begun.get() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    worker.harness.waits(worker.number, "a tick".to_owned());
    tokio::select! {
        biased;
        error = runs => goes_on(worker, "schedule", &error),
        () = stops => {}
    }
    if schedule.finished() != begun.get() {
        // The next leader does not know of this tick.
        worker.harness.checker.tick_dropped(begun.get());
    }
    worker.harness.waits(worker.number, "nothing".to_owned());
}

async fn work(worker: &Workload, tick: Tick, begun: &Cell<Option<i64>>) {
    let number = tick.number();
    worker.note(|| format!("runs tick {number} by {:?}", tick.token()));
    worker.count("ticks run");
    begun.set(Some(number));
    let believed = tick.clone();
    worker.claim(SERVICE, NAME, ClaimMode::Lead, Box::new(move || believed.fence().ok()));
    worker.harness.checker.tick_runs(worker.number, number);
    // The job is seldom longer than a period.
    worker.rest(1, 300).await;
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    have(member, SERVICE, NAME).await
}
