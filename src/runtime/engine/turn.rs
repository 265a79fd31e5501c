//! A turn: the work of one thread that has the engine state, and its effects after unlocking.

use super::deferred::DeferredCommand;
use super::state::{EngineState, TurnEffects};
use super::{Engine, EnginePhase};
use crate::protocol::Command;
use crate::runtime::application_code::{call_each, call_once};
use crate::runtime::net::ConnectionReader;
use crate::runtime::sync::{
    MutexGuard, RwLockWriteGuard, ThreadMutant, is_planted, is_poisoned, lock, seam, spin_loop,
    try_lock,
};
use crate::runtime::telemetry::TelemetryNote;
use std::sync::{Arc, PoisonError, TryLockError};

/// How often a thread that must not wait tries to get past the readers of the core. A try takes
/// some hundred nanoseconds.
const TRIES: usize = if cfg!(elderlock_shuttle) { 1 } else { 100 };

/// The result of a turn.
pub(super) struct TurnResult<R> {
    pub(super) result: R,
    /// The connection on which the answer arrives, if the turn has written the messages itself.
    pub(super) reader: Option<Arc<ConnectionReader>>,
    /// Whether the turn has woken a waiting caller.
    pub(super) has_woken: bool,
}

/// The right to change the engine state.
type EngineAccess<'a> = (RwLockWriteGuard<'a, EngineState>, MutexGuard<'a, ()>);

impl Engine {
    /// Takes one turn: runs `work` under the lock, and its effects after unlocking.
    pub(super) fn turn<R>(&self, work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R) -> R {
        self.turned(work).result
    }

    /// Like [`turn`](Self::turn), with all results of the turn.
    pub(super) fn turned<R>(
        &self,
        work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R,
    ) -> TurnResult<R> {
        let turned = self.turn_with(self.enter(), work);
        if !is_planted(ThreadMutant::DeferredQueueStays) {
            self.empty_deferred();
        }
        turned
    }

    pub(super) fn turn_with<R>(
        &self,
        access: EngineAccess<'_>,
        work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R,
    ) -> TurnResult<R> {
        let mut effects = TurnEffects::default();
        // If the core panics, the state is unlocked before the effects wake their callers.
        let (mut state, writer) = access;
        // This comes first: the core must know the local grants before any step.
        let is_broken = is_poisoned(&self.state);
        if !is_planted(ThreadMutant::LocalGrantsStay) {
            state.absorb(is_broken, || self.next_request());
        }
        if is_broken {
            // The core panicked in an earlier turn and is not to be trusted any more.
            state.break_down(&mut effects);
        }
        // Deferred commands come next: a thread that has dropped a guard and asks for its lock
        // again must not meet its own hold.
        for command in self.deferred.take() {
            let command = match command {
                DeferredCommand::Command(command) => Some(command),
                DeferredCommand::Release(cell) => {
                    cell.request().map(|request| Command::Release { request })
                }
                DeferredCommand::Reduce(cell, want) => {
                    cell.request().map(|request| Command::Reduce { request, want })
                }
            };
            if let Some(command) = command {
                state.obey(command, self.now(), &mut effects);
            }
        }
        let result = work(&mut state, &mut effects);
        if effects.stepped || !effects.at_once {
            state.finish_turn(&mut effects);
        }
        if effects.phase {
            state.phase.changes += 1;
            *lock(&self.me) = state.config.me.clone();
        }
        let announced = !effects.announcements.is_empty();
        if announced {
            lock(&self.announcements).extend(effects.announcements.drain(..));
        }
        let phase = state.phase;
        drop(state);
        drop(writer);

        let reader = if effects.sent { self.network.flush(effects.is_urgent) } else { None };
        seam();
        if effects.phase {
            call_once(|| {
                self.phase.send_modify(|seen| {
                    // The changes of two turns may arrive here in either order.
                    if seen.changes < phase.changes || is_planted(ThreadMutant::PhaseGoesBack) {
                        *seen = EnginePhase { stopped: seen.stopped, ..phase };
                    }
                });
            });
        }
        seam();
        let has_woken = !effects.wakers.is_empty();
        effects.wake_callers();
        seam();
        if effects.rearm {
            self.rearm.notify_one();
        }
        if announced || phase.closed.is_some() {
            self.announce();
        }
        if phase.closed.is_some() {
            self.alarms.close();
        }
        call_each(effects.notes.drain(..), TelemetryNote::tell);
        call_each(effects.trash.drain(..), drop);
        TurnResult { result, reader, has_woken }
    }

    /// Empties the deferred queue. If another thread has the engine state, that thread does so
    /// after unlocking.
    pub(super) fn empty_deferred(&self) {
        while !self.deferred.is_empty() {
            let Some(state) = self.try_enter_past_readers() else { return };
            self.turn_with(state, |_, _| ());
            if is_planted(ThreadMutant::LooksOnce) {
                return;
            }
        }
    }

    /// Takes the engine state, past readers. `None`: another thread changes the core, or is about
    /// to, and checks the deferred queue afterwards. A reader does not check the queue, but ends
    /// soon: so there are some tries. After them the timer task is asked to take a turn.
    fn try_enter_past_readers(&self) -> Option<EngineAccess<'_>> {
        let mut writer = self.try_writer_lock()?;
        for _ in 0..TRIES {
            match self.try_state(writer) {
                Ok(entered) => return Some(entered),
                Err(kept) => writer = kept,
            }
            spin_loop();
        }
        drop(writer);
        if !is_planted(ThreadMutant::ReaderKeepsDeferred) {
            self.rearm.notify_one();
        }
        None
    }

    pub(super) fn enter(&self) -> EngineAccess<'_> {
        let writer = lock(&self.writer_lock);
        // The turn itself checks for poison.
        (self.state.write().unwrap_or_else(PoisonError::into_inner), writer)
    }

    /// Takes the engine state. `None`: another thread has it, or reads it.
    pub(super) fn try_enter(&self) -> Option<EngineAccess<'_>> {
        self.try_state(self.try_writer_lock()?).ok()
    }

    fn try_writer_lock(&self) -> Option<MutexGuard<'_, ()>> {
        try_lock(&self.writer_lock)
    }

    fn try_state<'a>(
        &'a self,
        writer: MutexGuard<'a, ()>,
    ) -> Result<EngineAccess<'a>, MutexGuard<'a, ()>> {
        match self.state.try_write() {
            Ok(state) => Ok((state, writer)),
            Err(TryLockError::Poisoned(poisoned)) => Ok((poisoned.into_inner(), writer)),
            Err(TryLockError::WouldBlock) => Err(writer),
        }
    }
}
