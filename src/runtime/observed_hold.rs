//! `ObservedHold`: tells a simulation when a hold of one of its members begins, changes and ends.
//! Without the feature `simulated` it is nothing.

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

/// The number of a hold that an observer was told of.
#[derive(Default)]
pub(crate) struct ObservedHold {
    /// 0: it was told of none.
    #[cfg(feature = "simulated")]
    number: AtomicU64,
}

/// A hold that begins.
#[cfg(feature = "simulated")]
pub struct BegunHold {
    /// The process that holds.
    pub process: ProcessId,
    /// The lock service.
    pub service: ServiceName,
    /// Its locks.
    pub want: Want,
    /// The first token.
    pub token: Token,
    /// When it was asked for, since the simulation began.
    pub asked: Duration,
    /// When the lock's lease ends; `None`: it has none.
    pub until: Option<Duration>,
    /// The lease of the member.
    pub lease_end: LeaseEnd,
}

/// Reads when a member's lease ends if nothing renews it, since the simulation began.
#[cfg(feature = "simulated")]
pub type LeaseEnd = Box<dyn Fn() -> Option<Duration>>;

/// A change of a hold.
#[cfg(feature = "simulated")]
pub enum HoldChange {
    /// The program has it from now on.
    Begun(BegunHold),
    /// The lock's lease ends then.
    Extended(Option<Duration>),
    /// A share has become the lock, with this token.
    Upgraded(Token),
    /// The hold is over.
    Over(LostReason),
}

/// Is told of the holds of a simulation, each with a number. It may be called under the engine's
/// lock: it calls no member.
#[cfg(feature = "simulated")]
pub type HoldObserver = Rc<dyn Fn(u64, HoldChange)>;

#[cfg(feature = "simulated")]
thread_local! {
    static OBSERVER: RefCell<Option<HoldObserver>> = const { RefCell::new(None) };
    /// How many holds it was told of.
    static OBSERVED: Cell<u64> = const { Cell::new(0) };
}

/// Holds that begin on this thread from now on are told to this observer; `None`: to none.
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
        // A guard may be dropped with its thread.
        let observer = OBSERVER.try_with(|observer| observer.borrow().clone()).ok().flatten();
        if number != 0
            && let Some(observer) = observer
        {
            observer(number, change);
        }
    }

    /// Its lease ends then.
    pub(crate) fn extend(&self, until: Time) {
        self.tell(HoldChange::Extended(elapsed_at(until)));
    }

    /// A share became the lock.
    pub(crate) fn upgrade(&self, token: Token) {
        self.tell(HoldChange::Upgraded(token));
    }

    /// Tells the observer that the hold is over; without a reason, tells nothing.
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
