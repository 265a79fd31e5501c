//! Orders of operators, carried out by the member that was asked.

use super::blockers::Blocker;
use super::inspect::{InspectError, Inspection};
use super::lock_error::Unavailable;
use super::lock_service::LockService;
use super::member::ForceError;
use super::revocation::{self, RevokeError};
use super::sessions;
use crate::protocol::{
    ForceOrder, HoldState, HolderInfo, LockName, MemberInfo, ProcessId, WaiterInfo,
};
use crate::runtime::engine::{Engine, EngineClosed};
use crate::runtime::inbox::OrderExchange;
use crate::wire::{HoldLease, Order, OrderReport};
use crate::wire::{ReportedBlocker, ReportedHolder, ReportedWaiter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The interval between two checks whether the holders have released the lock.
const LOOK: Duration = Duration::from_millis(50);

/// The time within which a lost grantor is replaced.
const SETTLED: Duration = Duration::from_secs(30);

/// Carries out `order`, with a report on each step.
pub(super) async fn carry_out(engine: Arc<Engine>, order: Order, exchange: OrderExchange) {
    let OrderExchange { reports, messages } = exchange;
    let reporter = Reporter { engine: engine.clone(), reports };
    // A request for a misspelt service would create it, so the service must exist.
    if let Order::Revoke { service, .. }
    | Order::Inspect { service, .. }
    | Order::Held { service, .. }
    | Order::Transfer { service, .. } = &order
    {
        // The question would find no elder, and the operator would not learn that another member
        // knows.
        if engine.session_timing().is_none() {
            return reporter.tell(OrderReport::Failed(OrderReport::JOINS.into())).await;
        }
        match LockService::new(engine.clone(), service.clone()).exists().await {
            Ok(true) => {}
            Ok(false) => return reporter.tell(OrderReport::NoService).await,
            Err(error) => return reporter.tell(failed(&engine, &error)).await,
        }
    }
    if let Order::Transfer { .. } | Order::Leave | Order::Force = &order {
        let (member, process, addr) = (engine.name(), engine.process(), engine.addr());
        reporter.tell(OrderReport::CarriedOutBy { member, process, addr }).await;
    }
    let last = match order {
        Order::Revoke { service, name, metadata, operator, wait, force } => {
            let revocation = RevocationOrder {
                service: LockService::new(engine.clone(), service),
                name: name.map(|name| name.as_bytes().to_vec()),
                wait,
                order: force.then(|| ForceOrder { operator, reason: metadata.clone() }),
                reporter: &reporter,
            };
            let run = revocation.run(metadata.as_bytes()).await;
            run.unwrap_or_else(|reason| failed(&engine, &reason))
        }
        Order::Transfer { service, wait } => {
            let service = LockService::new(engine.clone(), service);
            done(&engine, service.become_grantor().wait(wait).await)
        }
        Order::Leave => leave(&engine).await,
        Order::Force if engine.force() => OrderReport::Done { complete: true },
        Order::Force => OrderReport::Failed(ForceError::NotOrphaned.to_string()),
        Order::Inspect { service, name } => {
            let service = LockService::new(engine.clone(), service);
            done(&engine, inspect(&service, name, &reporter).await)
        }
        Order::Held { service, leases } => {
            let service = LockService::new(engine.clone(), service);
            done(&engine, held(&service, leases, &reporter).await)
        }
        // The network passes such orders on itself.
        Order::PassOn { .. } => OrderReport::Failed("the order is for another member".into()),
        Order::Lock(request) => {
            sessions::serve(&engine, request, &reporter.reports, messages).await
        }
    };
    reporter.tell(last).await;
}

/// Leaves after its sessions are over. Reports before the network ends, and says whether a member
/// has confirmed the goodbye.
async fn leave(engine: &Arc<Engine>) -> OrderReport {
    let mut phase = engine.phase();
    engine.leave();
    let closed = match phase.wait_for(|phase| phase.closed.is_some()).await {
        Ok(phase) => phase.closed,
        Err(_) => Some(EngineClosed::Broken),
    };
    OrderReport::Done { complete: matches!(closed, Some(EngineClosed::Heard) | None) }
}

fn done(engine: &Engine, result: Result<(), impl ToString>) -> OrderReport {
    match result {
        Ok(()) => OrderReport::Done { complete: true },
        Err(error) => failed(engine, &error),
    }
}

fn failed(engine: &Engine, error: &impl ToString) -> OrderReport {
    OrderReport::Failed(engine.reason_for(error))
}

/// Reports the holders of a lock, or of the suspension, and the waiters.
async fn inspect(
    service: &LockService,
    name: Option<LockName>,
    reporter: &Reporter,
) -> Result<(), InspectError> {
    let seen = match &name {
        Some(name) => service.inspect(name.as_bytes()).await?,
        None => service.inspect_suspension().await?,
    };
    let blockers = match &name {
        Some(name) => service.blockers(name.as_bytes()).await,
        None => service.suspension_blockers().await,
    };
    let mut chain = blockers.ok();
    let own = chain.iter().flat_map(|chain| &chain.holds).filter(|hold| hold.depth == 0);
    let leases: BTreeMap<_, _> = own.map(|hold| (key(&hold.holder), hold.lease)).collect();
    for holder in &seen.holders {
        let lease = leases.get(&key(holder)).copied().unwrap_or_default();
        reporter.tell_of_lease(holder, lease).await;
    }
    if seen.more_holders > 0 {
        reporter.tell(OrderReport::More(seen.more_holders)).await;
    }
    match &name {
        Some(name) if seen.more > 0 => {
            let mut waiters = service.waiters(name.as_bytes())?;
            while let Some(waiter) = waiters.next().await? {
                reporter.tell_of_waiter(&waiter).await;
            }
        }
        _ => {
            for waiter in &seen.waiters {
                reporter.tell_of_waiter(waiter).await;
            }
            if seen.more > 0 {
                reporter.tell(OrderReport::MoreWaiters(seen.more)).await;
            }
        }
    }
    if chain.as_ref().is_none_or(|chain| !chain.is_complete) {
        reporter.tell(OrderReport::ChainCut).await;
    }
    for blocker in chain.take().into_iter().flat_map(|chain| chain.holds) {
        let Blocker { depth, wait, service, holder, lease, is_sure, circle } = blocker;
        let holder = ReportedHolder { lease, ..reporter.reported(&holder) };
        let (place, hold) = ((depth as u64, wait), (service, holder));
        let blocker = ReportedBlocker::new(place, hold, (is_sure, circle));
        reporter.tell(OrderReport::Blocker(Box::new(blocker))).await;
    }
    Ok(())
}

/// Reports the holds of a service.
async fn held(
    service: &LockService,
    leases: bool,
    reporter: &Reporter,
) -> Result<(), InspectError> {
    let mut held = service.held();
    while let Some(holder) = held.next().await? {
        let state = if leases { service.hold_state(&holder).await.ok() } else { None };
        // The hold was released after the grantor listed it.
        if let Some(HoldState::NotHeld) = state {
            continue;
        }
        let lease = state.as_ref().map(HoldLease::from).unwrap_or_default();
        reporter.tell_of_lease(&holder, lease).await;
    }
    Ok(())
}

struct Reporter {
    engine: Arc<Engine>,
    reports: mpsc::Sender<OrderReport>,
}

impl Reporter {
    /// Sends a report. Without a receiver the work is dropped, so a failure is ignored.
    async fn tell(&self, report: OrderReport) {
        let _ = self.reports.send(report).await;
    }

    async fn tell_of(&self, report: fn(ReportedHolder) -> OrderReport, holder: &HolderInfo) {
        self.tell(report(self.reported(holder))).await;
    }

    async fn tell_of_lease(&self, holder: &HolderInfo, lease: HoldLease) {
        let holder = ReportedHolder { lease, ..self.reported(holder) };
        self.tell(OrderReport::Holder(holder)).await;
    }

    async fn tell_of_waiter(&self, waiter: &WaiterInfo) {
        let waiter = ReportedWaiter::new(waiter.clone(), self.member(waiter.process));
        self.tell(OrderReport::Waiter(waiter)).await;
    }

    fn reported(&self, holder: &HolderInfo) -> ReportedHolder {
        ReportedHolder::new(holder.clone(), self.member(holder.process), HoldLease::Unknown)
    }

    /// The information of a process of the view.
    fn member(&self, process: ProcessId) -> Option<MemberInfo> {
        let view = self.engine.status().view?;
        view.member(process).map(|member| member.info.clone())
    }
}

/// The process and the token of a hold.
type HoldKey = (ProcessId, u64);

fn key(holder: &HolderInfo) -> HoldKey {
    (holder.process, holder.token.get())
}

/// A lock that is requested back, and revoked by force if the order says so.
struct RevocationOrder<'a> {
    service: LockService,
    name: Option<Vec<u8>>,
    wait: Duration,
    /// Set if the release of the remaining holds is forced.
    order: Option<ForceOrder>,
    reporter: &'a Reporter,
}

impl RevocationOrder<'_> {
    async fn run(&self, metadata: &[u8]) -> Result<OrderReport, String> {
        let reporter = self.reporter;
        let ask = match &self.name {
            Some(name) => self.service.revoke(name),
            None => self.service.revoke_suspension(),
        };
        let asked = match ask.metadata(metadata).await {
            Ok(asked) => asked,
            Err(RevokeError::NotHeld) => {
                reporter.tell(OrderReport::NotHeld).await;
                return Ok(OrderReport::Done { complete: true });
            }
            Err(RevokeError::NotRevocable(holder)) => {
                if let Some(order) = &self.order {
                    return self.force_all(order).await;
                }
                reporter.tell_of(OrderReport::NotRevocable, &holder).await;
                return Ok(OrderReport::Done { complete: false });
            }
            Err(error) => return Err(error.to_string()),
        };
        for holder in &asked.told {
            reporter.tell_of(OrderReport::Told, holder).await;
        }
        let mut complete = asked.not_asked == 0;
        for holder in &asked.not_revocable {
            match &self.order {
                Some(order) => complete &= self.force(holder, order).await,
                None => {
                    reporter.tell_of(OrderReport::NotRevocable, holder).await;
                    complete = false;
                }
            }
        }
        if asked.not_asked > 0 {
            reporter.tell(OrderReport::More(asked.not_asked)).await;
        }

        let known: BTreeSet<_> = asked.told.iter().chain(&asked.not_revocable).map(key).collect();
        let told: BTreeSet<_> = asked.told.iter().map(key).collect();
        let keep = self.watch(asked.told, &known).await.map_err(|error| error.to_string())?;
        for holder in keep.into_values() {
            if self.order.is_none() {
                reporter.tell_of(OrderReport::Kept, &holder).await;
                complete = false;
                continue;
            }
            match self.service.force_revoke(&holder).await {
                Ok(()) => reporter.tell_of(OrderReport::Taken, &holder).await,
                Err(RevokeError::NotHeld) => {
                    reporter.tell_of(OrderReport::Released, &holder).await;
                }
                Err(error) => {
                    let holder = reporter.reported(&holder);
                    reporter.tell(OrderReport::Unsure(holder, error.to_string())).await;
                    complete = false;
                }
            }
        }
        let seen = self.at_last().await.map_err(|error| error.to_string())?;
        // A share that became the lock has another token, and so has a second hold of the same
        // process.
        let is_later = |holder: &HolderInfo| {
            told.range(..key(holder)).any(|(process, _)| *process == holder.process)
        };
        for holder in &seen.holders {
            if is_later(holder) && !known.contains(&key(holder)) {
                reporter.tell_of(OrderReport::Later, holder).await;
                complete = false;
            }
        }
        if seen.more_holders > 0 && asked.not_asked == 0 {
            reporter.tell(OrderReport::More(seen.more_holders)).await;
            complete = false;
        }
        Ok(OrderReport::Done { complete })
    }

    /// Forces the release of all holds of the lock: none of them is revocable.
    async fn force_all(&self, order: &ForceOrder) -> Result<OrderReport, String> {
        let seen = self.at_last().await.map_err(|error| error.to_string())?;
        let mut complete = seen.more_holders == 0;
        for holder in &seen.holders {
            complete &= self.force(holder, order).await;
        }
        if seen.more_holders > 0 {
            self.reporter.tell(OrderReport::More(seen.more_holders)).await;
        }
        Ok(OrderReport::Done { complete })
    }

    /// Forces the release of a hold that is not revocable. Returns whether it is over.
    async fn force(&self, holder: &HolderInfo, order: &ForceOrder) -> bool {
        let ended = revocation::force(self.service.handle().clone(), holder.clone(), order.clone());
        match ended.await {
            Ok(()) => self.reporter.tell_of(OrderReport::Taken, holder).await,
            Err(RevokeError::NotHeld) => {
                self.reporter.tell_of(OrderReport::Released, holder).await;
            }
            Err(RevokeError::ForceNotAllowed) => {
                self.reporter.tell_of(OrderReport::ForceNotAllowed, holder).await;
                return false;
            }
            Err(error) => {
                let holder = self.reporter.reported(holder);
                self.reporter.tell(OrderReport::Unsure(holder, error.to_string())).await;
                return false;
            }
        }
        true
    }

    /// Watches the told holders until all have released the lock, or the time is over. Returns the
    /// holders that have not released it, by process and token. `known`: the holders that were
    /// reported already.
    async fn watch(
        &self,
        told: Vec<HolderInfo>,
        known: &BTreeSet<HoldKey>,
    ) -> Result<BTreeMap<HoldKey, HolderInfo>, InspectError> {
        let started = Instant::now();
        let mut left: BTreeMap<_, _> =
            told.into_iter().map(|holder| (key(&holder), holder)).collect();
        loop {
            let seen: BTreeSet<HoldKey> = match self.look().await {
                // A long list is cut: a holder that is not in it may still hold the lock.
                Ok(seen) if seen.more_holders > 0 => left.keys().copied().collect(),
                Ok(seen) => seen.holders.iter().map(key).collect(),
                // The grantor may be replaced meanwhile. Until a grantor answers, all of them count
                // as holders.
                Err(error) if is_passing(&error) => left.keys().copied().collect(),
                Err(error) => return Err(error),
            };
            let gone: Vec<_> = left.keys().filter(|key| !seen.contains(key)).copied().collect();
            for key in gone {
                let has_another = seen
                    .range(key..)
                    .any(|other| other.0 == key.0 && *other != key && !known.contains(other));
                if let Some(holder) = left.remove(&key)
                    && !has_another
                {
                    self.reporter.tell_of(OrderReport::Released, &holder).await;
                }
            }
            if left.is_empty() || started.elapsed() >= self.wait {
                return Ok(left);
            }
            tokio::time::sleep(LOOK.min(self.wait.saturating_sub(started.elapsed()))).await;
        }
    }

    /// Returns the holders as soon as a grantor answers.
    async fn at_last(&self) -> Result<Inspection, InspectError> {
        let started = Instant::now();
        loop {
            match self.look().await {
                Err(error) if is_passing(&error) && started.elapsed() < SETTLED => {
                    tokio::time::sleep(LOOK).await;
                }
                seen => return seen,
            }
        }
    }

    async fn look(&self) -> Result<Inspection, InspectError> {
        match &self.name {
            Some(name) => self.service.inspect(name).await,
            None => self.service.inspect_suspension().await,
        }
    }
}

/// Returns whether another question may be answered.
fn is_passing(error: &InspectError) -> bool {
    matches!(error, InspectError::Undecided | InspectError::Unavailable(Unavailable::Busy))
}
