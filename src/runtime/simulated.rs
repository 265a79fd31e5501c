//! What a simulation puts in place of the machine: time, and where process ids come from. Only with the feature
//! `simulated`, and only on a thread that has begun one; every other thread has the machine's own.

use crate::protocol::{ProcessId, Time, ViewNumber};
use std::cell::Cell;
use tokio::time::Instant;

/// The first instant: any but zero, which the engine takes for "never".
const FIRST: Time = Time::from_nanos(1_000_000_000);

/// The number of the first founding; each later one is as many seconds later.
const FIRST_FOUNDING: u32 = 1_000;

thread_local! {
    static PRESENT: Cell<Option<Present>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Present {
    began: Instant,
    seed: u64,
    drawn: u64,
}

/// Begins a simulation on this thread, which is in a tokio runtime of its own whose clock is paused.
pub(crate) fn begin(seed: u64) {
    PRESENT.set(Some(Present { began: Instant::now(), seed, drawn: 0 }));
}

/// Ends it.
pub(crate) fn end() {
    PRESENT.set(None);
}

pub(crate) fn now() -> Option<Time> {
    let present = PRESENT.get()?;
    Some(FIRST + present.began.elapsed())
}

pub(crate) fn founding_number() -> Option<ViewNumber> {
    let present = PRESENT.get()?;
    let seconds = present.began.elapsed().as_secs();
    Some(ViewNumber(FIRST_FOUNDING.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX))))
}

/// A number for an owner, counted within the simulation: another run must not show in it.
pub(crate) fn draw_owner() -> Option<u64> {
    let mut present = PRESENT.get()?;
    present.drawn += 1;
    PRESENT.set(Some(present));
    Some((1 << 63) + present.drawn)
}

/// A process id that the seed gives, another one each time.
pub(crate) fn draw_process() -> Option<ProcessId> {
    let mut present = PRESENT.get()?;
    present.drawn += 1;
    PRESENT.set(Some(present));
    // Ids order members here and there, so they must not rise with the time of birth.
    let mixed = (present.seed ^ present.drawn.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Some(ProcessId(u128::from(mixed) << 64 | u128::from(present.drawn)))
}
