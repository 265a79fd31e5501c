//! The locks that the page lists, with the times of their waits and the leases of their holds.

use super::super::blockers::ask_holder;
use super::super::handle::ServiceHandle;
use super::super::inspect::InspectError;
use super::super::status_report::LockReport;
use crate::protocol::{HoldState, HolderInfo, LockStatus, ServiceName, Status};
use crate::runtime::engine::Engine;
use crate::wire::HoldLease;
use serde::Serialize;
use std::cmp::Reverse;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The most locks on the page. The page asks for their leases every second, so they are few.
const MOST: usize = 20;

/// The longest time that a request waits for the holders' answers about leases.
const ANSWER: Duration = Duration::from_millis(300);

/// A lock in the content of `/status.json`.
#[derive(Serialize)]
pub(super) struct ShownLock {
    service: String,
    /// How long the first waiter has waited at this grantor.
    waits_for: Option<f64>,
    /// Whether the holder's member has answered in time how long the hold's lease lasts.
    lease_known: bool,
    /// The rest of that lease in seconds; `None`: it is unknown, or the hold has none.
    lease_left: Option<f64>,
    #[serde(flatten)]
    lock: LockReport,
}

/// Lists the locks that have been waited for longest, and after them those that have been held
/// longest.
pub(super) async fn list(engine: &Arc<Engine>, status: &Status) -> Vec<ShownLock> {
    let mut locks: Vec<(&ServiceName, &LockStatus)> = status
        .services
        .iter()
        .flat_map(|service| service.locks.iter().map(move |lock| (&service.service, lock)))
        .collect();
    let held_for = |lock: &LockStatus| lock.holder.as_ref().map(|holder| holder.held_for);
    locks.sort_by_key(|(_, lock)| Reverse((lock.next_waits, held_for(lock))));
    locks.truncate(MOST);
    let holders = locks.iter().map(|(service, lock)| (*service, lock.holder.as_ref()));
    let leases = ask_leases(engine, holders).await;
    let shown = locks.into_iter().zip(leases).map(|((service, lock), lease)| ShownLock {
        service: service.as_str().to_owned(),
        waits_for: lock.next_waits.map(|waited| waited.as_secs_f64()),
        lease_known: lease != HoldLease::Unknown,
        lease_left: match lease {
            HoldLease::Left(left) => Some(left.as_secs_f64()),
            _ => None,
        },
        lock: LockReport::new(status, lock),
    });
    shown.collect()
}

/// Asks all holders' members at once. A member that does not answer in time leaves its leases
/// unknown.
async fn ask_leases<'a>(
    engine: &Arc<Engine>,
    holders: impl Iterator<Item = (&'a ServiceName, Option<&'a HolderInfo>)>,
) -> Vec<HoldLease> {
    type Question = Pin<Box<dyn Future<Output = Result<HoldState, InspectError>> + Send>>;
    let ask = |service: &ServiceName, holder: &HolderInfo| -> Question {
        let service = Arc::new(ServiceHandle::new(engine.clone(), service.clone()));
        let holder = holder.clone();
        Box::pin(async move { ask_holder(&service, holder).await })
    };
    let mut asked: Vec<Option<Question>> =
        holders.map(|(service, holder)| holder.map(|holder| ask(service, holder))).collect();
    let mut leases = vec![HoldLease::Unknown; asked.len()];
    let mut limit = pin!(engine.sleep(ANSWER));
    poll_fn(|context| {
        for (question, lease) in asked.iter_mut().zip(&mut leases) {
            if let Some(future) = question
                && let Poll::Ready(state) = future.as_mut().poll(context)
            {
                *lease = state.as_ref().map(HoldLease::from).unwrap_or_default();
                *question = None;
            }
        }
        match asked.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => limit.as_mut().poll(context).map(drop),
        }
    })
    .await;
    leases
}
