//! Chains of waits and holds. Any member can follow one, step by step.

use super::command::CommandFuture;
use super::handle::ServiceHandle;
use super::inspect::{self, InspectError};
use crate::protocol::message::{Blocked, BlockingHold, HoldState, MAX_CHAIN, OwnerWait};
use crate::protocol::message::{Query, QueryReply};
use crate::protocol::{
    Command, HolderInfo, Outcome, OwnerId, ProcessId, RequestId, ServiceName, Token,
};
use crate::wire::{Circle, HoldLease};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The most holds of one chain.
const MAX_HOLDS: usize = 256;
/// The time after which no further question is asked.
const MAX_TIME: Duration = Duration::from_secs(10);

/// The holds that a request for a lock waits for, and those that their owners wait for, from
/// [`blockers`](crate::LockService::blockers).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Blockers {
    /// Each hold is followed by the holds that its owner waits for, which are one deeper.
    pub holds: Vec<Blocker>,
    /// Whether all questions were answered and nothing was left out.
    pub is_complete: bool,
}

/// A hold of a chain.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Blocker {
    /// Depth 0: the hold blocks the requested lock. Depth n: the hold blocks the owner of the
    /// nearest earlier hold of depth n - 1.
    pub depth: usize,
    /// The waiting request of that owner; `None` at depth 0.
    pub wait: Option<OwnerWait>,
    /// The service of the hold.
    pub service: ServiceName,
    /// The holder.
    pub holder: HolderInfo,
    /// The rest of the hold's lease, as the holder's member knows it.
    pub lease: HoldLease,
    /// Whether the wait surely lasts as long as this hold stays as it is. False behind permits,
    /// since other holders may return some, and behind a suspension.
    pub is_sure: bool,
    /// Set if the hold's owner also has an earlier hold of the chain: the chain is a circle.
    pub circle: Option<Circle>,
}

impl Blockers {
    /// Whether a circle of the chain is a [deadlock](Circle::Deadlock).
    pub fn has_deadlock(&self) -> bool {
        self.holds.iter().any(|hold| hold.circle == Some(Circle::Deadlock))
    }

    /// Removes the circles that another walk has not seen.
    fn keep_circles(&mut self, other: &Blockers) {
        let seen: BTreeSet<_> = other.circles().map(|(_, links)| links).collect();
        let doubtful: Vec<usize> = self
            .circles()
            .filter(|(_, links)| !seen.contains(links))
            .map(|(index, _)| index)
            .collect();
        for index in doubtful {
            self.holds[index].circle = None;
        }
    }

    /// The circles, each with the index of its last hold.
    fn circles(&self) -> impl Iterator<Item = (usize, Vec<LinkKey>)> {
        let ends = self.holds.iter().enumerate().filter(|(_, hold)| hold.circle.is_some());
        ends.map(|(index, last)| {
            let mut depth = last.depth + 1;
            let mut links = Vec::new();
            for hold in self.holds[..=index].iter().rev() {
                if hold.depth >= depth {
                    continue;
                }
                depth = hold.depth;
                // The first hold of the circle counts without the wait for it.
                let is_first = depth < last.depth && owner(&hold.holder) == owner(&last.holder);
                let wait = hold.wait.as_ref().filter(|_| !is_first).map(|wait| wait.request);
                links.push((wait, hold.holder.process, hold.holder.request, hold.holder.token));
                if is_first {
                    break;
                }
            }
            (index, links)
        })
    }
}

/// A wait of a circle and the hold that it waits for.
type LinkKey = (Option<RequestId>, ProcessId, RequestId, Token);

fn owner(holder: &HolderInfo) -> (ProcessId, OwnerId) {
    (holder.process, OwnerId(holder.owner))
}

/// Asks a holder's member about a hold.
pub(super) async fn ask_holder(
    service: &Arc<ServiceHandle>,
    holder: HolderInfo,
) -> Result<HoldState, InspectError> {
    let name = service.name.clone();
    let command = move |request| Command::AskHolder { request, service: name, holder };
    match CommandFuture::new(service.clone(), command).await {
        Err(Outcome::Holder(state)) => Ok(state),
        Err(outcome) => Err(outcome.into()),
        Ok(_) => unreachable!("a question is not granted"),
    }
}

/// Follows the chain of the holds that a request waits for. A chain with a circle is followed
/// twice: only the links of both walks existed at the same instant.
pub(super) async fn walk(
    service: &Arc<ServiceHandle>,
    of: Blocked,
) -> Result<Blockers, InspectError> {
    let first = Walk::new(service).run(of.clone()).await?;
    if first.holds.iter().all(|hold| hold.circle.is_none()) {
        return Ok(first);
    }
    let mut second = Walk::new(service).run(of).await?;
    second.keep_circles(&first);
    Ok(second)
}

/// A hold that was found and is not examined yet.
struct Found {
    depth: usize,
    wait: Option<OwnerWait>,
    service: Arc<ServiceHandle>,
    hold: BlockingHold,
}

/// A walk along a chain.
struct Walk<'a> {
    service: &'a Arc<ServiceHandle>,
    /// The services of the chain; `None`: the service does not exist any more.
    services: BTreeMap<ServiceName, Option<Arc<ServiceHandle>>>,
    /// The holds to examine, the next one last.
    found: Vec<Found>,
    /// The owners whose waits are listed.
    listed: BTreeSet<(ProcessId, OwnerId)>,
    /// The owners on the path to the present hold, and whether each owner's wait is sure.
    path: Vec<((ProcessId, OwnerId), bool)>,
    seen: Blockers,
}

impl<'a> Walk<'a> {
    fn new(service: &'a Arc<ServiceHandle>) -> Self {
        Walk {
            service,
            services: BTreeMap::from([(service.name.clone(), Some(service.clone()))]),
            found: Vec::new(),
            listed: BTreeSet::new(),
            path: Vec::new(),
            seen: Blockers { holds: Vec::new(), is_complete: true },
        }
    }

    async fn run(mut self, of: Blocked) -> Result<Blockers, InspectError> {
        let began = self.service.engine.now();
        self.find(0, None, self.service.clone(), of).await?;
        while let Some(found) = self.found.pop() {
            let is_late = self.service.engine.now().since(began) > MAX_TIME;
            if is_late || self.seen.holds.len() >= MAX_HOLDS {
                self.seen.is_complete = false;
                break;
            }
            self.look_at(found).await;
        }
        Ok(self.seen)
    }

    /// Asks a grantor for the holds that a request waits for.
    async fn find(
        &mut self,
        depth: usize,
        wait: Option<OwnerWait>,
        service: Arc<ServiceHandle>,
        of: Blocked,
    ) -> Result<(), InspectError> {
        match inspect::look(&service, Query::Blockers(of)).await? {
            QueryReply::Blockers { holds, more } => {
                self.seen.is_complete &= !more;
                self.found.extend(holds.into_iter().rev().map(|hold| {
                    let (wait, service) = (wait.clone(), service.clone());
                    Found { depth, wait, service, hold }
                }));
                Ok(())
            }
            // The request no longer waits.
            QueryReply::Unknown => Ok(()),
            _ => Err(InspectError::Undecided),
        }
    }

    /// Lists a hold, and finds the holds that its owner waits for.
    async fn look_at(&mut self, Found { depth, wait, service, hold }: Found) {
        let BlockingHold { holder, is_sure } = hold;
        let state = ask_holder(&service, holder.clone()).await;
        if let Ok(HoldState::NotHeld) = state {
            return;
        }
        let by = owner(&holder);
        self.path.truncate(depth);
        let begin = self.path.iter().position(|(owner, _)| *owner == by);
        self.path.push((by, is_sure && by.1 != OwnerId::default()));
        let circle = begin.map(|begin| {
            let is_sure = self.path[begin + 1..].iter().all(|(_, is_sure)| *is_sure);
            if is_sure { Circle::Deadlock } else { Circle::Possible }
        });
        let lease = state.as_ref().map(HoldLease::from).unwrap_or_default();
        let name = service.name.clone();
        self.seen.holds.push(Blocker {
            depth,
            wait,
            service: name,
            holder,
            lease,
            is_sure,
            circle,
        });
        let Ok(HoldState::Held { waits, more, .. }) = state else {
            self.seen.is_complete = false;
            return;
        };
        if circle.is_some() || !self.listed.insert(by) {
            return;
        }
        self.seen.is_complete &= more == 0;
        if depth + 1 >= MAX_CHAIN {
            self.seen.is_complete &= waits.is_empty();
            return;
        }
        for wait in waits.into_iter().rev() {
            let of = Blocked::Request(by.0, wait.request);
            let service = self.service_of(&wait.service).await;
            let found = match service {
                Some(service) => self.find(depth + 1, Some(wait), service, of).await,
                None => Err(InspectError::Undecided),
            };
            self.seen.is_complete &= found.is_ok();
        }
    }

    /// The handle of a service of the chain. Asks first whether the service exists, since a
    /// question would create it.
    async fn service_of(&mut self, name: &ServiceName) -> Option<Arc<ServiceHandle>> {
        if let Some(known) = self.services.get(name) {
            return known.clone();
        }
        let engine = self.service.engine.clone();
        let service = Arc::new(ServiceHandle::new(engine, name.clone()));
        let found = matches!(inspect::exists(&service).await, Ok(true)).then_some(service);
        self.services.insert(name.clone(), found.clone());
        found
    }
}
