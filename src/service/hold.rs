//! `HoldHandle`: the common part of held locks, batches, suspensions, objects and permits.

use super::command::CommandFuture;
use super::handle::ServiceHandle;
use super::lock_error::{ExtendError, InvalidLease, Lost, ReleaseError};
use super::owners::OwnedHold;
use super::revocation::Revocation;
use crate::protocol::{Command, LineageId, LostReason, Outcome, RequestId, Time, Token, Want};
use crate::runtime::hold_cell::{HoldCell, OnlyShared};
use crate::runtime::planted;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A guard's part in a hold. The last part of a hold releases it.
pub struct HoldHandle {
    pub(super) service: Arc<ServiceHandle>,
    pub(super) want: Want,
    pub(super) cell: Arc<HoldCell>,
    /// The index of the guard's name: 0, except for an owner that enters another lock of its batch.
    /// The grantor takes the tokens of one grant from one range, in the order of the names.
    index: u32,
    /// Whether the handle was released before its drop.
    released: bool,
    /// Whether the guard only reads; other guards of its owner may write.
    reads: bool,
}

impl Clone for HoldHandle {
    fn clone(&self) -> Self {
        // This guard exists, so the last guard of the hold is not gone.
        if self.reads {
            let _ = self.cell.enter_again(true);
        } else {
            self.cell.enter();
        }
        let HoldHandle { service, want, cell, index, reads, .. } = self;
        let (service, want, cell) = (service.clone(), want.clone(), cell.clone());
        HoldHandle { service, want, cell, index: *index, released: false, reads: *reads }
    }
}

impl Drop for HoldHandle {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if self.leave() {
            let _ = self.end();
        } else if planted!(ReleaseWithFirst) {
            self.release_hold(self.cell.fence_now().1);
        }
    }
}

impl HoldHandle {
    /// The first guard of a hold.
    pub(super) fn new(service: Arc<ServiceHandle>, want: Want, cell: Arc<HoldCell>) -> HoldHandle {
        if let Want::Share(_) = want {
            cell.share();
        }
        HoldHandle { service, want, cell, index: 0, released: false, reads: false }
    }

    /// A further guard, which the cell has counted already.
    fn part(service: &Arc<ServiceHandle>, held: &OwnedHold, reads: bool) -> HoldHandle {
        let OwnedHold { want, cell, index } = held.clone();
        HoldHandle { service: service.clone(), want, cell, index, released: false, reads }
    }

    /// A further guard of a hold that is not over, for one of its names. `reads`: it only reads,
    /// and does not have the lock itself. `None`: the last guard is gone.
    pub(super) fn enter(
        service: &Arc<ServiceHandle>,
        held: &OwnedHold,
        reads: bool,
    ) -> Result<Option<HoldHandle>, OnlyShared> {
        let entered = held.cell.enter_again(reads)?;
        Ok(entered.then(|| HoldHandle::part(service, held, reads)))
    }

    /// Returns how long the hold stays good without further events.
    pub(super) fn left(&self) -> Duration {
        self.cell.left()
    }

    /// Removes a guard. Returns whether it was the last one. If all other guards only read, the
    /// lock becomes a share.
    fn leave(&self) -> bool {
        let is_last = if self.reads { self.cell.leave_as_reader() } else { self.cell.leave() };
        if !is_last {
            self.leave_to_readers();
        }
        is_last
    }

    fn leave_to_readers(&self) {
        // A lock of a batch never becomes a share.
        let (Want::Lock(name) | Want::Share(name)) = &self.want else { return };
        let (engine, cell) = (&self.service.engine, &self.cell);
        if cell.leave_to_readers(|| engine.reduce_later(cell, Want::Share(name.clone()))) {
            engine.catch_up();
        }
    }

    /// Lets this guard only read from now on. It is lost when the other guards are.
    pub(crate) fn read_on(&mut self) -> Result<(), Lost> {
        self.fence()?;
        if !self.reads {
            self.cell.read_on();
            self.reads = true;
            self.leave_to_readers();
        }
        self.fence().map(drop)
    }

    /// Lets this guard write from now on, if the hold is the lock. `Err`: the hold is a share, and
    /// has this many other guards.
    pub(crate) fn write_on(&mut self) -> Result<(), usize> {
        self.cell.write_on(self.reads)?;
        self.reads = false;
        Ok(())
    }

    /// Ends the hold with its last clone. Returns whether it was held until now.
    fn end(&self) -> Result<Token, LostReason> {
        // Only the clock can decide whether the release was in time.
        let (held, now) = self.cell.fence_now();
        // A lost hold is released as well: the core may not have noticed a loss that the clock has
        // shown to a guard.
        if !planted!(KeepDroppedHold) {
            self.release_hold(now);
        }
        // The span ends after the release: the application's recorder must not be able to keep a
        // lock.
        self.cell.end(held.err());
        held
    }

    fn release_hold(&self, now: Time) {
        self.service.engine.release(
            &self.service.local_grants,
            self.want.names().first(),
            &self.cell,
            now,
        );
    }

    /// Reports the hold to a simulation.
    #[cfg(feature = "simulated")]
    pub(super) fn observe(&self, asked: Time) {
        let ServiceHandle { engine, name, .. } = &*self.service;
        self.cell.observe(engine.process(), name, &self.want, asked);
    }

    /// The number of the hold's request.
    pub(super) fn request(&self) -> RequestId {
        self.service.engine.request_of(&self.cell)
    }

    /// Ends the hold as lost, unless it was lost before. Returns the reason of the loss.
    pub(crate) fn lose(&self, reason: LostReason) -> LostReason {
        if let Err(earlier) = self.cell.fence() {
            return earlier;
        }
        let ServiceHandle { engine, name, .. } = &*self.service;
        engine.lose(self.request(), reason, (name.clone(), self.want.clone()));
        self.cell.fence().err().unwrap_or(reason)
    }

    /// The number of the hold's guards.
    pub(super) fn depth(&self) -> usize {
        self.cell.guards()
    }

    pub(crate) fn watch(&self) -> LossWatch {
        LossWatch { cell: self.cell.clone(), index: self.index }
    }

    pub(crate) fn fence(&self) -> Result<Token, Lost> {
        self.cell
            .fence()
            .map(|first| first.plus(self.index.into()))
            .map_err(|reason| Lost { reason })
    }

    pub(crate) fn token(&self) -> Token {
        self.cell.token().plus(self.index.into())
    }

    pub(crate) fn lineage(&self) -> LineageId {
        self.cell.lineage()
    }

    /// The name by which the lock was taken or entered. For a batch, the first name.
    pub(crate) fn name(&self) -> &[u8] {
        self.want.names().get(self.index as usize).map_or(&[], |name| name.as_bytes())
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.cell.is_shared()
    }

    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        self.cell.cancellation_token()
    }

    pub(crate) fn service_name(&self) -> &str {
        self.service.name.as_str()
    }

    pub(crate) fn revocation(&self) -> Revocation {
        Revocation::new(self.cell.clone())
    }

    pub(crate) async fn lost(&self) -> LostReason {
        self.cell.lost().await
    }

    pub(crate) async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            reason = self.cell.lost() => Err(Lost { reason }),
            output = future => Ok(output),
        }
    }

    pub(crate) fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        let lease = InvalidLease::check(lease)?;
        // The clock is read first: a hold that a guard has found lost stays lost.
        self.fence()?;
        let held = self.service.engine.extend(self.request(), lease);
        self.fence()?;
        if held { Ok(()) } else { Err(ExtendError::Lost(Lost { reason: LostReason::LeaseEnded })) }
    }

    /// Ends this guard.
    pub(crate) fn release(mut self) -> Result<(), ReleaseError> {
        self.let_go()?;
        Ok(())
    }

    /// Ends this guard, and returns whether it was the last one.
    fn let_go(&mut self) -> Result<bool, ReleaseError> {
        self.released = true;
        let is_last = self.leave();
        let held = if is_last { self.end() } else { self.cell.fence() };
        held.map(|_| is_last).map_err(ReleaseError::Lost)
    }

    /// Ends this guard. If it was the last one, the returned future waits until the grantor knows
    /// that the hold is over.
    pub(crate) fn release_confirmed(
        mut self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        // The number is read while the guard exists: afterwards the cell may be another hold's.
        let (over, service) = (self.request(), self.service.clone());
        let is_last = self.let_go();
        drop(self);
        async move { if is_last? { confirmed(service, over).await } else { Ok(()) } }
    }

    pub(super) fn debug(&self, kind: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct(kind);
        text.field("service", &self.service.name.as_str());
        if let [name] = self.want.names() {
            text.field("name", name);
        } else {
            text.field("names", &self.want.names());
        }
        text.field("token", &self.cell.token())
            .field("lost", &self.cell.lost_reason())
            .finish_non_exhaustive()
    }
}

/// Waits until the grantor knows that a request is over, or how much of its hold is left.
pub(super) async fn confirmed(
    service: Arc<ServiceHandle>,
    over: RequestId,
) -> Result<(), ReleaseError> {
    planted!(ConfirmUnheard => return Ok(()));
    let name = service.name.clone();
    let confirm = |request| Command::Confirm { request, service: name, over };
    match CommandFuture::new(service, confirm).await {
        Err(Outcome::Confirmed) => Ok(()),
        _ => Err(ReleaseError::Unconfirmed),
    }
}

/// Reports whether a hold is over, without keeping it, from [`Guard::watch`](crate::Guard::watch).
///
/// The watch outlives the guard. It does not permit any action: a task that acts on the lock calls
/// [`fence`](crate::Guard::fence) of a guard.
#[derive(Clone)]
pub struct LossWatch {
    cell: Arc<HoldCell>,
    index: u32,
}

impl LossWatch {
    /// Why the hold is over; `None` while it is held at this instant. A hold that is over stays
    /// over, for the first reason. [`LostReason::Released`]: all its guards were released in time.
    pub fn reason(&self) -> Option<LostReason> {
        self.cell.fence().err()
    }

    /// Completes when the hold is over, with the reason.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports an end in between.
    pub async fn lost(&self) -> LostReason {
        self.cell.lost().await
    }

    /// The token of the hold as a number for logs, without a claim that the hold continues.
    pub fn token(&self) -> Token {
        self.cell.token().plus(self.index.into())
    }

    /// The lineage that dealt the token. See [`Guard::lineage`](crate::Guard::lineage).
    pub fn lineage(&self) -> LineageId {
        self.cell.lineage()
    }
}

impl std::fmt::Debug for LossWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LossWatch")
            .field("token", &self.cell.token())
            .field("reason", &self.reason())
            .finish()
    }
}
