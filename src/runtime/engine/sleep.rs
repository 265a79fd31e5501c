//! `Sleep`: a wait that the timer task of a member ends.

use super::Engine;
use super::alarms::AlarmKey;
use crate::protocol::Time;
use crate::runtime::sync::lock;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Why a [`Sleep`] has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SleepEnd {
    /// The time is over.
    InTime,
    /// The member has left, and its timer task has ended. Every further call is answered at once.
    Closed,
}

/// Completes after a while, or when the member has left.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Sleep {
    engine: Arc<Engine>,
    until: Time,
    /// The key under which the engine keeps the alarm.
    key: Option<AlarmKey>,
}

impl Engine {
    /// Sleeps for `span`, from now on.
    pub(crate) fn sleep(self: &Arc<Self>, span: Duration) -> Sleep {
        Sleep { engine: self.clone(), until: self.now() + span, key: None }
    }
}

impl Sleep {
    /// Keeps the waker. Returns whether the timer task must look again; `None`: the task has ended.
    fn keep(&mut self, waker: Waker) -> Option<bool> {
        let mut kept = lock(&self.engine.alarms.0);
        if kept.closed {
            return None;
        }
        let key = *self.key.get_or_insert_with(|| {
            kept.next += 1;
            (self.until, kept.next)
        });
        let before = kept.wakers.insert(key, waker);
        let is_first = before.is_none()
            && kept.wakers.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(kept);
        // The waker is dropped after unlocking, because it is user code.
        drop(before);
        Some(is_first)
    }
}

impl Future for Sleep {
    type Output = SleepEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<SleepEnd> {
        if self.engine.now() >= self.until {
            return Poll::Ready(SleepEnd::InTime);
        }
        // Cloned before locking: a waker is user code.
        match self.keep(context.waker().clone()) {
            None => Poll::Ready(SleepEnd::Closed),
            Some(is_first) => {
                if is_first {
                    self.engine.rearm.notify_one();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let kept = self.key.and_then(|key| lock(&self.engine.alarms.0).wakers.remove(&key));
        // The waker is dropped after unlocking, because it is user code.
        drop(kept);
    }
}
