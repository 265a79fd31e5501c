//! The timer task: it runs the timers of the core and of calls, and its end closes the engine.

use super::event_readers::ConnectionStatus;
use super::{Engine, EngineClosed};
use crate::protocol::{Input, Time};
use crate::runtime::application_code::call_once;
use crate::runtime::clock;
use crate::runtime::clock_watch::{EVERY, Reading};
use crate::runtime::inbox::Inbox as _;
use crate::runtime::telemetry::Sampler;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// The longest wait of an ending member for a write that is under way.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// The longest time for which the timer task waits without reading the clock. Tokio's clock stands
/// still while the machine sleeps, and the core's continues.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

impl Engine {
    /// Starts the core and spawns the timer task on `runtime`. `shutdown` is run when the member
    /// has left.
    pub(crate) fn start<F>(self: &Arc<Self>, runtime: &tokio::runtime::Handle, shutdown: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        runtime.spawn(self.run(shutdown));
    }

    /// Starts the core. The owner of the returned timer task polls it until it ends.
    pub(crate) fn run<F>(self: &Arc<Self>, shutdown: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // The guard is made before the task, so that a runtime that drops the task without ever
        // polling it closes the engine too.
        let guard = TimerGuard(self.clone());
        self.start_writer();
        self.input(Input::Timer);
        let engine = self.clone();
        let time = self.home.keep(async move {
            guard.0.keep_time().await;
            shutdown.await;
            if let Some(mut written) = guard.0.written.get().cloned() {
                // The directory is free when the last write there has ended. A disk that hangs is
                // not waited for.
                let now = guard.0.now();
                tokio::select! {
                    biased;
                    _ = written.changed() => {}
                    () = clock::sleep(now, now + LAST_WRITE) => {}
                }
            }
            guard.0.phase.send_modify(|phase| phase.stopped = true);
        });
        async move {
            tokio::select! {
                biased;
                () = engine.until_copied() => {}
                () = time => {}
            }
        }
    }

    /// Completes in a forked copy of this process if a runtime polls it there: so no task waits for
    /// ever.
    async fn until_copied(&self) {
        std::future::poll_fn(|_| if self.home.is_left() { Poll::Ready(()) } else { Poll::Pending })
            .await;
        if let Some(state) = self.try_enter() {
            self.turn_with(state, |state, effects| {
                state.fail("this process is a copy of the one that joined", effects)
            });
        }
    }

    #[cfg(not(test))]
    fn read_clocks(&self) -> Option<Reading> {
        clock::all()
    }

    #[cfg(test)]
    fn read_clocks(&self) -> Option<Reading> {
        if self.clocks_are_tests.load(Ordering::Relaxed) { None } else { clock::all() }
    }

    /// Checks whether the clock is still to be trusted, or is so again.
    pub(crate) fn look_at_clocks(&self, reading: Reading) {
        self.turn(|state, effects| state.look_at_clocks(reading, effects));
    }

    /// Runs the core's timers until the member has left.
    async fn keep_time(&self) {
        let mut sampler = Sampler::new();
        let mut clocks_due = Time::ZERO;
        loop {
            // The clocks are read together with other work, and with a beat at the latest.
            if self.now() >= clocks_due {
                clocks_due = self.now() + EVERY;
                if let Some(reading) = self.read_clocks() {
                    self.look_at_clocks(reading);
                }
            }
            let (deadline, sample) = self.turn(|state, _| {
                state.armed = state.deadline();
                let is_open = state.phase.closed.is_none();
                let now = self.now();
                let sample = (sampler.is_due(now) || !is_open).then(|| {
                    let is_connected = state.stands() == ConnectionStatus::Connected;
                    Sampler::read(&state.node, is_connected, &mut state.packet_counts, now)
                });
                (is_open.then_some(state.armed), sample)
            });
            if let Some(sample) = sample {
                call_once(|| sampler.tell(sample, self.network.counters(), self.now()));
            }
            let Some(deadline) = deadline else { return };
            let now = self.now();
            self.alarms.ring(now);
            if now >= deadline {
                self.input(Input::Timer);
                // A core that always has something due must not keep the thread for itself.
                tokio::task::yield_now().await;
                continue;
            }
            let until = deadline.min(sampler.due()).min(self.alarms.due());
            let sleep = async {
                if until == Time::MAX {
                    std::future::pending::<()>().await;
                }
                // Wakers that have rung may have taken long.
                let now = self.now();
                clock::sleep(now, until.min(now + LONGEST_SLEEP)).await;
            };
            tokio::select! {
                // The order of these branches does not matter, so no randomness is needed.
                biased;
                () = self.rearm.notified() => {}
                () = sleep => {}
            }
        }
    }
}

/// Closes the engine when its timer task ends, or is dropped with its runtime: no lease would be
/// renewed any more.
struct TimerGuard(Arc<Engine>);

impl Drop for TimerGuard {
    fn drop(&mut self) {
        self.0.close(EngineClosed::Broken);
        // The runtime may have ended, so that no task can wait for the write: this thread does.
        if !self.0.is_copy()
            && let Some(written) = self.0.written.get()
        {
            let began = std::time::Instant::now();
            while written.has_changed().is_ok() && began.elapsed() < LAST_WRITE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.0.phase.send_modify(|phase| phase.stopped = true);
    }
}
