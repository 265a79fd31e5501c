//! Requests of service handles, and their holds: asked, awaited, reduced and released.

use super::Engine;
use super::deferred::DeferredCommand;
use super::state::{Answer, EngineState, PendingRequest, TurnEffects, closed};
use super::turn::TurnResult;
use crate::protocol::{
    Command, Input, LockName, LostReason, Outcome, OwnerId, RequestId, ServiceName, Time, Want,
};
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::local_grants::LocalGrants;
use crate::runtime::net::ConnectionReader;
use crate::runtime::sync::{AtomicBool, ThreadMutant, is_planted, lock};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

impl Engine {
    /// The local grants of a service: the same for all its handles.
    pub(crate) fn local_grants(&self, service: &ServiceName) -> Arc<LocalGrants> {
        self.turn(|state, _| {
            if let Some(local_grants) = state.local_grants.get(service).and_then(Weak::upgrade) {
                return local_grants;
            }
            // Unused entries are removed at powers of two only: a scan for each new service would
            // take long.
            if state.local_grants.len().is_power_of_two() {
                state.local_grants.retain(|_, local_grants| local_grants.strong_count() > 0);
            }
            let local_grants = Arc::new(LocalGrants::new(service.clone()));
            state.local_grants.insert(service.clone(), Arc::downgrade(&local_grants));
            local_grants
        })
    }

    /// Takes a free lock of a service that this member grants itself, or one that it keeps. This
    /// needs no turn, and other threads may take locks at the same time. [`release`](Self::release)
    /// ends the hold in every case. `None`: the request needs a turn. `destroyed`: see
    /// [`request`](Self::request).
    pub(crate) fn take(
        &self,
        local_grants: &Arc<LocalGrants>,
        name: &LockName,
        owner: OwnerId,
        destroyed: &AtomicBool,
    ) -> Option<Arc<HoldCell>> {
        if self.home.is_left() {
            return None;
        }
        // Waits for the end of another thread's turn instead of taking a turn. Otherwise the next
        // threads would meet that turn, and each would take one, too.
        let state = self.state.read().ok()?;
        if state.is_over() || state.is_muted || destroyed.load(Ordering::Acquire) {
            return None;
        }
        let now = self.now();
        if !state.node.offers(now) {
            return None;
        }
        let at = (&local_grants.service, name);
        let offer = || state.node.offer(now, at, local_grants.keeps());
        let (cell, is_first) = local_grants.take((name, owner, now), offer, |spare, token| {
            HoldCell::in_place_of(spare, None, token, Time::MAX, &state.lease)
        })?;
        if is_first {
            lock(&state.used).push(local_grants.clone());
        }
        Some(cell)
    }

    /// Releases a hold, in the local grants or in the core. Takes at most the short lock of a
    /// name's shard; callable from any context. `now`: see
    /// [`release_request`](Self::release_request).
    pub(crate) fn release(
        &self,
        local_grants: &LocalGrants,
        name: Option<&LockName>,
        cell: &Arc<HoldCell>,
        now: Time,
    ) {
        if self.home.is_left() {
            return;
        }
        if let Some(request) = cell.request() {
            return self.release_request(request, now);
        }
        let Ok(state) = self.state.try_read() else {
            self.deferred.push(DeferredCommand::Release(cell.clone()));
            return self.empty_deferred();
        };
        // With the state locked the number cannot change: the core gives a local grant its number
        // in a turn.
        let request = cell.request();
        if let (None, Some(name)) = (request, name) {
            local_grants.release(name, cell);
        }
        if let Some(request) = request {
            drop(state);
            self.release_request(request, now);
        }
    }

    /// Ends a hold as lost, unless it was lost before. Its guard releases it.
    pub(crate) fn lose(&self, request: RequestId, reason: LostReason, what: (ServiceName, Want)) {
        if !self.is_copy() {
            self.turn(|state, effects| state.on_lost(request, reason, what, effects));
        }
    }

    /// Returns the number of a hold's request. A local grant gets its number here.
    pub(crate) fn request_of(&self, cell: &HoldCell) -> RequestId {
        cell.request().unwrap_or_else(|| {
            if self.is_copy() {
                return RequestId(0);
            }
            self.turn(|_, _| ());
            cell.request().unwrap_or(RequestId(0))
        })
    }

    /// Returns a number for a request. No request of this member has it, in any of its
    /// incarnations.
    pub(super) fn next_request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives `command` of a service handle to the core. The request gets its number here, in the
    /// turn: a member's requests are numbered in the order in which the core receives them. Without
    /// an answer the caller waits with [`poll`](Self::poll). In every case
    /// [`release_request`](Self::release_request) ends the request. `waker`: as for `poll`, if a
    /// task polls already. Also returns the connection on which the answer arrives, if the question
    /// has been written.
    ///
    /// `destroyed` belongs to the handle and is set, in the same turn, by the command that destroys
    /// its service. So no request of the handle outlives the destruction.
    pub(crate) fn request(
        &self,
        command: &mut Command,
        destroyed: &AtomicBool,
        waker: Option<&Waker>,
    ) -> (RequestId, Option<Answer>, Option<Arc<ConnectionReader>>) {
        if self.home.is_left() {
            return (self.next_request(), Some(closed(LostReason::Left)), None);
        }
        // Cloned before locking: a waker is user code.
        let waker = waker.cloned();
        let TurnResult { result: (request, answer), reader, .. } = self.turned(|state, effects| {
            let request = self.next_request();
            command.number(request);
            (request, state.request((request, waker), command, destroyed, effects))
        });
        (request, answer, reader)
    }

    /// Takes the answer to a waiting request. Until there is one, keeps `waker` to wake it.
    pub(crate) fn poll(&self, request: RequestId, waker: &Waker) -> Option<Answer> {
        if self.home.is_left() {
            return Some(closed(LostReason::Left));
        }
        // Cloned before locking: a waker is user code.
        let waker = waker.clone();
        let look = |state: &mut EngineState, effects: &mut TurnEffects| match state
            .pending
            .get_mut(&request)
        {
            Some(PendingRequest::Waiting(Some(_))) if is_planted(ThreadMutant::OldWaker) => None,
            Some(PendingRequest::Waiting(kept)) => {
                effects.trash.push(PendingRequest::Waiting(kept.replace(waker)));
                None
            }
            Some(PendingRequest::Answered(_)) => match state.pending.remove(&request) {
                Some(PendingRequest::Answered(answer)) => Some(answer),
                _ => None,
            },
            // A request that was made and not released is pending. Otherwise no answer would
            // ever come.
            None => Some(closed(LostReason::Left)),
        };
        self.turn(|state, effects| {
            effects.at_once = true;
            look(state, effects)
        })
    }

    /// Lets a hold end no earlier than `lease` from now; returns whether it is still held.
    pub(crate) fn extend(&self, request: RequestId, lease: Duration) -> bool {
        !self.home.is_left()
            && self.turn(|state, effects| {
                if state.phase.closed.is_some() {
                    return false;
                }
                let answer = state.step(
                    Input::Command(Command::Extend { request, lease }),
                    Some(request),
                    effects,
                );
                matches!(answer, Some(Err(outcome)) if matches!(*outcome, Outcome::Extended { .. }))
            })
    }

    /// Reduces a hold; returns whether it is still held.
    pub(crate) fn reduce(&self, request: RequestId, want: Want) -> bool {
        !self.home.is_left()
            && self.turn(|state, effects| {
                if state.phase.closed.is_some() {
                    return false;
                }
                let is_share = matches!(want, Want::Share(_));
                let answer = state.step(
                    Input::Command(Command::Reduce { request, want }),
                    Some(request),
                    effects,
                );
                let reduced = matches!(answer, Some(Err(outcome)) if *outcome == Outcome::Reduced);
                if let Some(hold) = state.holds.get(&request).filter(|_| reduced && is_share) {
                    hold.share();
                }
                reduced
            })
    }

    /// Like [`reduce`](Self::reduce), for callers that need no answer. Never blocks; callable from
    /// any context.
    pub(crate) fn reduce_unheard(&self, cell: &Arc<HoldCell>, want: Want) {
        self.reduce_later(cell, want);
        self.catch_up();
    }

    /// Like [`reduce_unheard`](Self::reduce_unheard), without a turn: [`catch_up`](Self::catch_up)
    /// must follow. A later request reaches the core after the reduction, also before the
    /// `catch_up`.
    pub(crate) fn reduce_later(&self, cell: &Arc<HoldCell>, want: Want) {
        if !self.home.is_left() {
            self.deferred.push(DeferredCommand::Reduce(cell.clone(), want));
        }
    }

    /// Carries out the deferred work, or leaves it to the thread that has the engine state. Never
    /// blocks; callable from any context.
    pub(crate) fn catch_up(&self) {
        if !self.home.is_left() {
            self.empty_deferred();
        }
    }

    /// Ends the request, whether it waits or holds. Never blocks; callable from any context. `now`:
    /// a recent time of the clock.
    pub(crate) fn release_request(&self, request: RequestId, now: Time) {
        if self.home.is_left() {
            return;
        }
        let command = Command::Release { request };
        let Some(state) = self.try_enter() else {
            self.deferred.push(DeferredCommand::Command(command));
            return self.empty_deferred();
        };
        self.turn_with(state, |state, effects| state.obey(command, now, effects));
        if !is_planted(ThreadMutant::LooksOnce) {
            self.empty_deferred();
        }
    }
}
