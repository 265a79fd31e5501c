//! `MemberClock`: the clock by which one member counts its leases and waits.

use super::clock;
use crate::protocol::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// This machine's [clock](clock::now), or that of a tokio runtime.
#[derive(Clone)]
pub(crate) struct MemberClock(Option<Arc<RuntimeClock>>);

/// The clock of a tokio runtime, which a test may pause and advance.
struct RuntimeClock {
    runtime: Handle,
    /// One instant by both clocks.
    origin: (Instant, Time),
    /// The wall clock at that instant, as the time after the Unix epoch.
    wall: Duration,
    /// The latest reading, in nanoseconds.
    latest: AtomicU64,
}

impl MemberClock {
    /// Returns this machine's clock, the only one that the members of a cluster share.
    pub(crate) fn machine() -> MemberClock {
        MemberClock(None)
    }

    /// Returns the clock of this task's runtime, for a member that is alone in its cluster.
    pub(crate) fn of_runtime(runtime: &Handle) -> MemberClock {
        let origin = (Instant::now(), clock::now());
        let latest = AtomicU64::new(origin.1.as_nanos());
        let runtime = runtime.clone();
        MemberClock(Some(Arc::new(RuntimeClock { runtime, origin, wall: clock::wall(), latest })))
    }

    /// Returns whether this is the machine's clock.
    pub(crate) fn is_machine(&self) -> bool {
        self.0.is_none()
    }

    /// The present instant by this clock.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        match &self.0 {
            None => clock::now(),
            Some(runtime) => runtime.now(),
        }
    }

    /// The time since the Unix epoch, by the machine's wall clock. With the clock of a runtime: the
    /// wall clock when the member was made, advanced by that clock.
    pub(crate) fn wall(&self) -> Duration {
        match &self.0 {
            None => clock::wall(),
            Some(runtime) => runtime.wall + runtime.now().since(runtime.origin.1),
        }
    }
}

impl RuntimeClock {
    #[cold]
    fn now(&self) -> Time {
        // A thread that is about to end can enter no runtime.
        let is_ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        if !is_ending {
            // Any thread may call this, and outside the runtime tokio has another clock.
            let _entered = self.runtime.enter();
            let (instant, time) = self.origin;
            let now = time + Instant::now().duration_since(instant);
            self.latest.fetch_max(now.as_nanos(), Ordering::AcqRel);
        }
        Time::from_nanos(self.latest.load(Ordering::Acquire))
    }
}
