//! The beginnings and the waits that several files have.

use elderlock::protocol::Outcome;
use elderlock_sim::World;
use elderlock_sim::history::Ask;
use std::time::Duration;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Members, oldest first. The second is the grantor of "s" and holds nothing.
pub(crate) fn with_grantor(seed: u64, members: usize) -> (World, Vec<usize>) {
    let mut w = World::new(seed).members(members);
    w.settle();
    let order = w.in_view();
    let first = w.hold_lock(order[1], "s", "first");
    w.release(first);
    assert_eq!(w.grantor("s"), order[1]);
    (w, order)
}

/// A moment in which everything that is under way arrives.
pub(crate) fn soon(w: &mut World) {
    w.run_for(ms(50));
}

#[track_caller]
pub(crate) fn answered(w: &mut World, ask: Ask) -> Outcome {
    w.expect("it is answered", |w| w.is_answered(ask));
    w.outcome(ask).cloned().expect("it was answered")
}
