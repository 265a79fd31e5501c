//! `SharedCount`: workers read it, set it, add to it and follow its changes.

use super::{Workload, goes_on};
use elderlock::{CountError, Member, SharedCount, VersionedCount};

const SERVICE: &str = "stats";
const NAME: &str = "visits";

pub(super) async fn play(worker: &Workload) {
    'anew: while !worker.is_ending() {
        worker.rest(1, 100).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        let opened = worker.fickle("open", SharedCount::open(&service, NAME, 0)).await;
        let Some(Ok(count)) = opened else { continue };
        let Ok(mut changes) = count.changes() else { continue };
        // The last version that this handle has seen, or that a write of its own returned.
        let mut last = None;
        for _ in 0..4 + worker.below(30) {
            if worker.is_ending() {
                return;
            }
            worker.rest(1, 150).await;
            let seen = match worker.below(100) {
                0..=19 => count.get(),
                20..=34 => {
                    match worker
                        .fickle(
                            "changes",
                            tokio::time::timeout(worker.millis(1, 1_000), changes.next()),
                        )
                        .await
                    {
                        Some(Ok(seen)) => {
                            // Each value of the stream is no older than the one before, and may be
                            // older than this worker's own later writes.
                            if let Ok(seen) = &seen {
                                worker.harness.checker.value(
                                    SERVICE,
                                    NAME,
                                    seen.version,
                                    seen.count,
                                );
                            }
                            continue;
                        }
                        _ => continue,
                    }
                }
                35..=64 => match worker.fickle("add", count.add(1)).await {
                    Some(added) => {
                        worker.count("counts added to");
                        added
                    }
                    None => continue,
                },
                65..=74 => {
                    let to = worker.below(100) as i32;
                    match worker.fickle("set", count.set(to)).await {
                        Some(version) => {
                            version.and_then(|version| written(worker, &count, version, to))
                        }
                        None => continue,
                    }
                }
                75..=89 => {
                    let Ok(before) = count.get() else { continue 'anew };
                    let to = before.count.wrapping_add(10);
                    match worker.fickle("try_set", count.try_set(before.version, to)).await {
                        Some(Ok(version)) => {
                            let checker = &worker.harness.checker;
                            checker.value(SERVICE, NAME, before.version, before.count);
                            checker.value_replaced(SERVICE, NAME, before.version, version);
                            written(worker, &count, version, to)
                        }
                        Some(Err(CountError::Changed(now))) => {
                            worker.count("counts changed meanwhile");
                            Ok(now)
                        }
                        Some(Err(error)) => Err(error),
                        None => continue,
                    }
                }
                90..=96 => match worker.fickle("read", count.read()).await {
                    Some(seen) => seen,
                    None => continue,
                },
                _ => {
                    worker.turk(&service).await;
                    continue;
                }
            };
            match seen {
                Ok(seen) => {
                    worker.note(|| format!("sees {} of {:?}", seen.count, seen.version));
                    worker.harness.checker.value(SERVICE, NAME, seen.version, seen.count);
                    if last.is_some_and(|last| last > seen.version) {
                        let what = format!(
                            "worker {} saw {:?} after {last:?}",
                            worker.number, seen.version
                        );
                        return worker.harness.checker.fail("values_are_seen_in_order", what);
                    }
                    last = Some(seen.version);
                }
                Err(error) => {
                    goes_on(worker, "count", &error);
                    continue 'anew;
                }
            }
        }
    }
}

/// A worker whose write is confirmed sees that value, or a later one.
fn written(
    worker: &Workload,
    count: &SharedCount,
    version: elderlock::Token,
    to: i32,
) -> Result<VersionedCount, CountError> {
    worker.count("counts set");
    worker.harness.checker.value(SERVICE, NAME, version, to);
    let now = count.get()?;
    if now.version < version {
        let what =
            format!("worker {} wrote {version:?} and then saw {:?}", worker.number, now.version);
        worker.harness.checker.fail("values_are_seen_in_order", what);
    }
    Ok(now)
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let count = SharedCount::open(&service, NAME, 0).await.map_err(|error| error.to_string())?;
    count.add(1).await.map(drop).map_err(|error| error.to_string())
}
