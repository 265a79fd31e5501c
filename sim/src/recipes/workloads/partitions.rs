//! `Partitions`: claimants come and go, owners finish in time or not. When all have come to rest,
//! each partition has an owner and the shares are even.

use super::{Workload, goes_on, have};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{LockService, Member, PartitionGuard, Partitions};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "shards";
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The time for which all claimants rest after the healing. Each looks a little earlier.
const REST: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(17);

pub(super) async fn play(worker: &Workload) {
    let mut number = 0;
    while !worker.is_ending() {
        worker.rest(1, 200).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        number += 1;
        let Some(partitions) = claim(worker, &service, number) else { return };
        let rounds = 4 + worker.below(30);
        for _ in 0..rounds {
            if worker.is_ending() || !serve_next(worker, &partitions).await {
                break;
            }
        }
        // Half of the claims are closed, and the others end when they are dropped.
        if worker.below(2) == 0 {
            worker.harness.waits(worker.number, "close".to_owned());
            let closed = worker.fickle("close", partitions.close()).await;
            worker.note(|| format!("closed its claim: {closed:?}"));
        }
    }
    settle(worker).await;
}

fn claim(worker: &Workload, service: &LockService, number: u64) -> Option<Partitions> {
    let id = format!("{}.{number}", worker.number);
    let partitions = Partitions::new(service, NAMES, id).ok()?;
    let partitions = partitions.grace(worker.millis(1, 400)).every(worker.millis(20, 120));
    partitions.start().ok()?;
    worker.count("claims begun");
    Some(partitions)
}

/// Takes the next partition and serves it in a task of its own; false: the claim is over.
async fn serve_next(worker: &Workload, partitions: &Partitions) -> bool {
    let next = tokio::time::timeout(worker.millis(1, 600), partitions.next());
    match worker.fickle("a partition", next).await {
        Some(Ok(Ok(partition))) => serve(worker, partition),
        Some(Ok(Err(error))) => {
            goes_on(worker, "partitions", &error);
            return false;
        }
        Some(Err(_)) | None => {}
    }
    true
}

fn serve(worker: &Workload, partition: PartitionGuard) {
    let name = name_of(&partition);
    worker.note(|| format!("owns {name} by {:?}", partition.token()));
    let partition = Rc::new(partition);
    worker.begin("a partition", move |next| async move {
        let seen = Rc::downgrade(&partition);
        // Two claims of one worker exclude each other as those of two workers do.
        next.claim_as(
            next.number,
            (SERVICE, name),
            ClaimMode::Lock,
            Box::new(move || seen.upgrade()?.fence().ok()),
        );
        next.count("partitions owned");
        if next.below(4) == 0 {
            // The claimant ends as a task that fails.
            return next.rest(1, 400).await;
        }
        let mut asked = pin!(partition.release_requested());
        while partition.fence().is_ok() {
            if next.is_ending() || tokio::time::timeout(TURN, asked.as_mut()).await.is_ok() {
                break;
            }
        }
        if partition.is_release_requested() {
            next.count("partitions asked for");
            // The release comes within the grace period, or later.
            next.rest(1, 300).await;
        }
    });
}

/// How often a task that serves a partition looks whether all come to their end.
const TURN: Duration = Duration::from_millis(200);

fn name_of(partition: &PartitionGuard) -> &'static str {
    NAMES.into_iter().find(|name| name.as_bytes() == partition.name()).unwrap_or_default()
}

/// `partitions_are_shared_out`: of claimants that rest, each owns its share, and each partition has
/// an owner.
async fn settle(worker: &Workload) {
    let Ok(service) = worker.service(SERVICE).await else { return };
    let Ok(partitions) = Partitions::new(&service, NAMES, format!("{}.last", worker.number)) else {
        return;
    };
    if let Err(error) = partitions.start() {
        return goes_on(worker, "start", &error);
    }
    worker.harness.waits(worker.number, "to settle".to_owned());
    let mut kept: BTreeMap<&str, PartitionGuard> = BTreeMap::new();
    let mut over = pin!(tokio::time::sleep(REST));
    let mut look = pin!(tokio::time::sleep(LOOK));
    let mut has_looked = false;
    loop {
        tokio::select! {
            biased;
            () = &mut over => break,
            () = &mut look, if !has_looked => {
                has_looked = true;
                kept.retain(|_, partition| partition.fence().is_ok());
                judge(worker, &partitions).await;
            }
            next = partitions.next() => match next {
                Ok(partition) => _ = kept.insert(name_of(&partition), partition),
                Err(error) => return goes_on(worker, "settling", &error),
            },
            () = tokio::time::sleep(TURN) => {
                kept.retain(|_, partition| !partition.is_release_requested());
            }
        }
    }
}

async fn judge(worker: &Workload, partitions: &Partitions) {
    let Ok(seen) = partitions.owners().await else { return };
    worker.count("settled shares seen");
    let mut counts: BTreeMap<&str, usize> =
        seen.claimants.keys().map(|id| (id.as_str(), 0)).collect();
    let fail = |what: &str| {
        let what = format!("worker {} sees {what}: {seen:?}", worker.number);
        worker.harness.checker.fail("partitions_are_shared_out", what);
    };
    for owner in seen.owners.values() {
        let Some(owner) = owner else { return fail("a free partition") };
        match counts.get_mut(owner.id.as_str()) {
            Some(count) => *count += 1,
            None => return fail("an owner that claims nothing"),
        }
    }
    let (least, most) = (counts.values().min(), counts.values().max());
    if most > least.map(|least| least + 1).as_ref() {
        fail("uneven shares");
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, &format!("partition/{name}")).await?;
    }
    Ok(())
}
