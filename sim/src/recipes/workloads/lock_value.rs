//! `LockValue`: read and written by the holder of the lock of its name.

use super::{Workload, goes_on, have};
use elderlock::{Guard, LockError, LockService, LockValue, LockValueError, Member, Token};

const SERVICE: &str = "shelf";
const NAMES: [&str; 2] = ["left", "right"];

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 100).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        let name = *worker.pick(&NAMES);
        let Some(Ok(value)) = worker.fickle("open", LockValue::open(&service, name, "0")).await
        else {
            continue;
        };
        for _ in 0..4 + worker.below(20) {
            if worker.is_ending() {
                return;
            }
            worker.rest(1, 150).await;
            let done = match worker.below(100) {
                0..=9 => value.get().map(|seen| {
                    seen_at(worker, name, seen.version, &seen.value);
                }),
                10..=14 => {
                    worker.turk(&service).await;
                    Ok(())
                }
                _ => hold(worker, &service, name, &value).await,
            };
            if let Err(error) = done {
                goes_on(worker, "value", &error);
                if !error.is_lock_lost() {
                    break;
                }
            }
        }
    }
}

/// Takes the lock, reads and writes.
async fn hold(
    worker: &Workload,
    service: &LockService,
    name: &'static str,
    value: &LockValue,
) -> Result<(), LockValueError> {
    // The lease is often so short that it ends while a call is under way.
    let request = service.lock(name).wait(worker.millis(1, 2_000)).lease(worker.millis(1, 300));
    let guard: Guard = match worker.fickle(name, request.into_future()).await {
        Some(Ok(guard)) => guard,
        Some(Err(LockError::TimedOut)) | None => return Ok(()),
        Some(Err(error)) => {
            goes_on(worker, name, &error);
            return Ok(());
        }
    };
    let checker = &worker.harness.checker;
    let token = guard.token();
    let mut number = 0;
    // A worker that has read nothing knows of no earlier version.
    let mut since = None;
    if worker.below(8) > 0 {
        let Some(seen) = worker.fickle("read", value.read(&guard)).await else { return Ok(()) };
        let seen = seen?;
        number = seen_at(worker, name, seen.version, &seen.value);
        checker.value_touched(SERVICE, name, token, (seen.version, seen.version));
        worker.count("values read under the lock");
        since = Some(seen.version);
    }
    for _ in 0..worker.below(3) {
        if worker.below(2) == 0 {
            worker.rest(1, 200).await;
        }
        number += 1;
        let Some(version) = worker.fickle("write", value.write(&guard, number.to_string())).await
        else {
            return Ok(());
        };
        let version = version?;
        worker.note(|| format!("wrote {number} into {name} as {version:?} by {token:?}"));
        checker.value(SERVICE, name, version, number);
        checker.value_touched(SERVICE, name, token, (since.unwrap_or(version), version));
        worker.count("values written under the lock");
        since = Some(version);
    }
    Ok(())
}

/// All workers see the same number under a version.
fn seen_at(worker: &Workload, name: &'static str, version: Token, value: &[u8]) -> i32 {
    let Some(number) = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) else {
        worker
            .harness
            .checker
            .fail("values_are_seen_in_order", format!("{name} of {version:?} is {value:?}"));
        return 0;
    };
    worker.note(|| format!("sees {number} in {name} of {version:?}"));
    worker.harness.checker.value(SERVICE, name, version, number);
    number
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, name).await?;
    }
    Ok(())
}
