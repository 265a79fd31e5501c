//! Timers of calls that the application awaits: the timer task wakes them, so a caller needs no
//! tokio runtime of its own.

use crate::protocol::Time;
use crate::runtime::application_code::call_each;
use crate::runtime::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

/// The timers of one engine.
#[derive(Default)]
pub(super) struct Alarms(pub(super) Mutex<AlarmTable>);

#[derive(Default)]
pub(super) struct AlarmTable {
    pub(super) wakers: BTreeMap<AlarmKey, Waker>,
    pub(super) next: u64,
    /// Whether the timer task has ended, or is about to.
    pub(super) closed: bool,
}

/// The time of an alarm, and its number among the alarms at that time.
pub(super) type AlarmKey = (Time, u64);

impl Alarms {
    /// Returns the time at which the next alarm is due.
    pub(super) fn due(&self) -> Time {
        lock(&self.0).wakers.first_key_value().map_or(Time::MAX, |((until, _), _)| *until)
    }

    /// Wakes the alarms that are due.
    pub(super) fn ring(&self, now: Time) {
        let due = {
            let mut kept = lock(&self.0);
            let later = kept.wakers.split_off(&(now + Duration::from_nanos(1), 0));
            std::mem::replace(&mut kept.wakers, later)
        };
        call_each(due.into_values(), Waker::wake);
    }

    /// Wakes all alarms, and refuses new ones from now on.
    pub(super) fn close(&self) {
        let all = {
            let mut kept = lock(&self.0);
            kept.closed = true;
            std::mem::take(&mut kept.wakers)
        };
        call_each(all.into_values(), Waker::wake);
    }
}
