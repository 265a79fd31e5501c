//! A simulation's replacements for the machine: time, by clocks of different rates, and the source
//! of process ids. They exist only with the feature `simulated`, and only on a thread that has
//! begun a simulation. Every other thread has the machine's own.

use crate::protocol::{ProcessId, Slot, Time};
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The first instant: any but zero, which the engine reads as "never".
const FIRST: Time = Time::from_nanos(1_000_000_000);

/// The wall clock's reading when a simulation begins.
const FIRST_SLOT: Slot = Slot(1_000 * Slot::PER_SECOND);

thread_local! {
    static SIMULATION: Cell<Option<SimulationState>> = const { Cell::new(None) };
    /// The rate of the clock that is read now: that of the acting member. In millionths that the
    /// clock is too fast.
    static RATE: Cell<i32> = const { Cell::new(0) };
}

#[derive(Clone, Copy)]
struct SimulationState {
    began: Instant,
    seed: u64,
    drawn: u64,
}

/// Begins a simulation on this thread. The thread is in a tokio runtime of its own whose clock is
/// paused.
pub(crate) fn begin(seed: u64) {
    SIMULATION.set(Some(SimulationState { began: Instant::now(), seed, drawn: 0 }));
    RATE.set(0);
}

/// Ends the simulation on this thread.
pub(crate) fn end() {
    SIMULATION.set(None);
}

/// The present instant, by the clock of the acting member.
pub(crate) fn now() -> Option<Time> {
    let simulation = SIMULATION.get()?;
    let ran = scale(simulation.began.elapsed(), rate(), MILLION);
    Some(FIRST + ran)
}

/// The instant since the simulation began, by the clock that showed `shown`; `None`: never.
pub(crate) fn elapsed_at(shown: Time) -> Option<Duration> {
    let nanos = shown.as_nanos().saturating_sub(FIRST.as_nanos());
    (shown != Time::MAX).then(|| Duration::from_nanos(nanos))
}

/// How long a span of the acting member's clock takes in the simulation.
pub(crate) fn span(span: Duration) -> Duration {
    scale(span, MILLION, rate())
}

const MILLION: u128 = 1_000_000;

fn rate() -> u128 {
    (1_000_000 + i64::from(RATE.get())).max(1) as u128
}

fn scale(span: Duration, by: u128, of: u128) -> Duration {
    Duration::from_nanos(u64::try_from((span.as_nanos() * by).div_ceil(of)).unwrap_or(u64::MAX))
}

/// Runs `act` by a clock that is this many millionths too fast.
pub(crate) fn by_clock<T>(ppm: i32, act: impl FnOnce() -> T) -> T {
    let before = RATE.replace(ppm);
    let came = act();
    RATE.set(before);
    came
}

/// A future that is polled and dropped by a clock that is this many millionths too fast. The drop
/// counts as well, since guards in the future use their member's clock. The runtime drops the
/// future of an aborted task outside all other tasks.
pub(crate) fn paced<F: Future>(ppm: i32, future: F) -> impl Future<Output = F::Output> {
    Paced { ppm, future: Some(Box::pin(future)) }
}

struct Paced<F> {
    ppm: i32,
    /// The future; `None` after its drop.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let ppm = self.ppm;
        let future = self.future.as_mut().expect("a future is not polled after its drop");
        by_clock(ppm, || future.as_mut().poll(context))
    }
}

impl<F> Drop for Paced<F> {
    fn drop(&mut self) {
        by_clock(self.ppm, || drop(self.future.take()));
    }
}

/// A future that keeps the clock of the task that begins it.
pub(crate) fn kept<F: Future>(future: F) -> impl Future<Output = F::Output> {
    paced(RATE.get(), future)
}

/// The present slot of the wall clock.
pub(crate) fn slot() -> Option<Slot> {
    let simulation = SIMULATION.get()?;
    Some(FIRST_SLOT.plus(Slot::count(simulation.began.elapsed())))
}

/// The wall clock: the time since slot 0.
pub(crate) fn wall() -> Option<Duration> {
    let simulation = SIMULATION.get()?;
    Some(Slot::span(FIRST_SLOT.0) + simulation.began.elapsed())
}

/// A number for an owner, counted within the simulation: earlier runs must not change it.
pub(crate) fn draw_owner() -> Option<u64> {
    let mut simulation = SIMULATION.get()?;
    simulation.drawn += 1;
    SIMULATION.set(Some(simulation));
    Some((1 << 63) + simulation.drawn)
}

/// A process id from the seed. Each call returns another one.
pub(crate) fn draw_process() -> Option<ProcessId> {
    let mut simulation = SIMULATION.get()?;
    simulation.drawn += 1;
    SIMULATION.set(Some(simulation));
    // Ids decide the order of members in places, so they must not rise with the time of birth.
    let mixed =
        (simulation.seed ^ simulation.drawn.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Some(ProcessId(u128::from(mixed) << 64 | u128::from(simulation.drawn)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    /// Records the time of its drop.
    struct DropRecorder(Arc<Mutex<Option<Time>>>);

    impl Drop for DropRecorder {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = now();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_task_drops_its_guards_by_its_own_clock() {
        begin(1);
        let dropped = Arc::new(Mutex::new(None));
        let guard = DropRecorder(dropped.clone());
        let task = tokio::spawn(paced(-500_000, async move {
            let _guard = guard;
            pending::<()>().await
        }));
        tokio::time::sleep(Duration::from_secs(10)).await;
        task.abort();
        task.await.unwrap_err();
        end();
        let time = dropped.lock().unwrap().unwrap();
        assert_eq!(time, FIRST + Duration::from_secs(5));
    }
}
