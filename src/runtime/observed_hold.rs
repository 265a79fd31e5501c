//! `ObservedHold`: reports to a simulation when a hold of one of its members begins, changes and
//! ends. Without the feature `simulated` it does nothing.

use crate::protocol::{LostReason, Time, Token};
#[cfg(feature = "simulated")]
use {
    super::simulated::elapsed_at,
    crate::protocol::{ProcessId, ServiceName, Want},
    std::cell::{Cell, RefCell},
    std::rc::Rc,
    std::sync::atomic::{AtomicU64, Ordering},
    std::time::Duration,
};

/// The number of a hold that was reported to an observer.
#[derive(Default)]
pub(crate) struct ObservedHold {
    /// The number; 0 if the hold was not reported.
    #[cfg(feature = "simulated")]
    number: AtomicU64,
}

/// A hold that begins.
#[cfg(feature = "simulated")]
pub struct BegunHold {
    /// The process that has the hold.
    pub process: ProcessId,
    /// The lock service.
    pub service: ServiceName,
    /// The locks of the hold.
    pub want: Want,
    /// The first token.
    pub token: Token,
    /// The time of the request, since the simulation began.
    pub asked: Duration,
    /// The time at which the lock's lease ends; `None`: the lock has no lease.
    pub until: Option<Duration>,
    /// The lease of the member.
    pub lease_end: LeaseEnd,
}

/// Returns when a member's lease ends if nothing renews it, since the simulation began.
#[cfg(feature = "simulated")]
pub type LeaseEnd = Box<dyn Fn() -> Option<Duration>>;

/// A change of a hold.
#[cfg(feature = "simulated")]
pub enum HoldChange {
    /// The program has the hold from now on.
    Begun(BegunHold),
    /// The lock's lease has a new end; `None`: it has none.
    Extended(Option<Duration>),
    /// A share has become the lock, with this token.
    Upgraded(Token),
    /// The hold is over.
    Over(LostReason),
}

/// Receives the holds of a simulation, each with a number. It may be called under the engine's
/// lock, so it must call no member.
#[cfg(feature = "simulated")]
pub type HoldObserver = Rc<dyn Fn(u64, HoldChange)>;

#[cfg(feature = "simulated")]
thread_local! {
    static OBSERVER: RefCell<Option<HoldObserver>> = const { RefCell::new(None) };
    /// The number of holds that were reported so far.
    static OBSERVED: Cell<u64> = const { Cell::new(0) };
}

/// Reports holds that begin on this thread from now on to this observer; `None`: to none.
#[cfg(feature = "simulated")]
pub(crate) fn observe_holds(observer: Option<HoldObserver>) {
    OBSERVED.set(0);
    OBSERVER.set(observer);
}

#[cfg(feature = "simulated")]
impl ObservedHold {
    /// Tells the observer that the hold begins.
    pub(crate) fn begin(&self, hold: impl FnOnce() -> BegunHold) {
        if OBSERVER.with_borrow(Option::is_some) {
            OBSERVED.set(OBSERVED.get() + 1);
            self.number.store(OBSERVED.get(), Ordering::Relaxed);
            self.tell(HoldChange::Begun(hold()));
        }
    }

    fn tell(&self, change: HoldChange) {
        let number = self.number.load(Ordering::Relaxed);
        // A guard may be dropped while its thread ends.
        let observer = OBSERVER.try_with(|observer| observer.borrow().clone()).ok().flatten();
        if number != 0
            && let Some(observer) = observer
        {
            observer(number, change);
        }
    }

    /// Reports a new end of the hold's lease.
    pub(crate) fn extend(&self, until: Time) {
        self.tell(HoldChange::Extended(elapsed_at(until)));
    }

    /// Reports that a share became the lock.
    pub(crate) fn upgrade(&self, token: Token) {
        self.tell(HoldChange::Upgraded(token));
    }

    /// Reports that the hold is over; without a reason, reports nothing.
    pub(crate) fn end(&self, reason: Option<LostReason>) {
        if let Some(reason) = reason {
            self.tell(HoldChange::Over(reason));
            self.number.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(not(feature = "simulated"))]
impl ObservedHold {
    pub(crate) fn extend(&self, _: Time) {}
    pub(crate) fn upgrade(&self, _: Token) {}
    pub(crate) fn end(&self, _: Option<LostReason>) {}
}
