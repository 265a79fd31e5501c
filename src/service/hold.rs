//! `HoldHandle`: the part that a held lock, batch, suspension, object and permits have in common.

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

/// A guard's part in a hold; the last one releases it.
pub struct HoldHandle {
    pub(super) service: Arc<ServiceHandle>,
    pub(super) want: Want,
    pub(super) cell: Arc<HoldCell>,
    /// The index of the guard's name: the first, except for an owner that enters one of several
    /// that it has. The grantor takes the tokens of one grant from one range, in the order of the
    /// names.
    index: u32,
    /// The handle was released before it is dropped.
    released: bool,
    /// The guard only reads; other guards of its owner may write.
    reads: bool,
}

impl Clone for HoldHandle {
    fn clone(&self) -> Self {
        // This guard is here, so the last guard of the hold has not gone.
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

    /// One more, that the cell counts already.
    fn part(service: &Arc<ServiceHandle>, held: &OwnedHold, reads: bool) -> HoldHandle {
        let OwnedHold { want, cell, index } = held.clone();
        HoldHandle { service: service.clone(), want, cell, index, released: false, reads }
    }

    /// One more, of a hold that is not over and of one of its names, which only `reads` or has the
    /// lock. `None`: its last guard is gone.
    pub(super) fn enter(
        service: &Arc<ServiceHandle>,
        held: &OwnedHold,
        reads: bool,
    ) -> Result<Option<HoldHandle>, OnlyShared> {
        let entered = held.cell.enter_again(reads)?;
        Ok(entered.then(|| HoldHandle::part(service, held, reads)))
    }

    /// Returns how long it is good from now on, if nothing happens.
    pub(super) fn left(&self) -> Duration {
        self.cell.left()
    }

    /// One guard less. Returns whether it was the last one. If the others only read, the lock is a
    /// share from now on.
    fn leave(&self) -> bool {
        let is_last = if self.reads { self.cell.leave_as_reader() } else { self.cell.leave() };
        if !is_last {
            self.leave_to_readers();
        }
        is_last
    }

    fn leave_to_readers(&self) {
        // No lock of a batch becomes a share.
        let (Want::Lock(name) | Want::Share(name)) = &self.want else { return };
        let (engine, cell) = (&self.service.engine, &self.cell);
        if cell.leave_to_readers(|| engine.narrow_later(cell, Want::Share(name.clone()))) {
            engine.catch_up();
        }
    }

    /// Lets this guard only read from now on. The guard is lost like the others.
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
        // Only the clock can tell whether that was in time.
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

    /// A simulation is told of it from now on.
    #[cfg(feature = "simulated")]
    pub(super) fn observe(&self, asked: Time) {
        let ServiceHandle { engine, name, .. } = &*self.service;
        self.cell.observe(engine.process(), name, &self.want, asked);
    }

    /// The number of its request.
    pub(super) fn request(&self) -> RequestId {
        self.service.engine.request_of(&self.cell)
    }

    /// How many guards the hold has.
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
        // First by the clock: a hold that a guard was told to be over stays over.
        self.fence()?;
        let held = self.service.engine.extend(self.request(), lease);
        self.fence()?;
        if held { Ok(()) } else { Err(ExtendError::Lost(Lost { reason: LostReason::LeaseEnded })) }
    }

    /// Ends one of its guards.
    pub(crate) fn release(mut self) -> Result<(), ReleaseError> {
        self.let_go()?;
        Ok(())
    }

    /// Ends one of its guards, and returns whether it was the last one.
    fn let_go(&mut self) -> Result<bool, ReleaseError> {
        self.released = true;
        let is_last = self.leave();
        let held = if is_last { self.end() } else { self.cell.fence() };
        held.map(|_| is_last).map_err(ReleaseError::Lost)
    }

    /// Ends one of its guards. If it was the last one, the returned future waits until the grantor
    /// has heard of that.
    pub(crate) fn release_confirmed(
        mut self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        // The number is read while the lock is held: afterwards it has no owner.
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

/// Waits until the grantor has heard that a request is over, or how much of its hold is left.
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

/// Tells whether a hold is over, without keeping it, from [`Guard::watch`](crate::Guard::watch).
///
/// The watch outlives the guard. It permits nothing: a task that acts on the lock has the guard and
/// asks it for [`fence`](crate::Guard::fence).
#[derive(Clone)]
pub struct LossWatch {
    cell: Arc<HoldCell>,
    index: u32,
}

impl LossWatch {
    /// Why the hold is over; `None` while it is held at this instant. Once over it stays so, for
    /// the first reason. [`LostReason::Released`]: all its guards were released in time.
    pub fn reason(&self) -> Option<LostReason> {
        self.cell.fence().err()
    }

    /// Completes when the hold is over, with the reason.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; an end in between is told by the next call.
    pub async fn lost(&self) -> LostReason {
        self.cell.lost().await
    }

    /// The token of the hold as a number for logs, without a claim that it is still held.
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
