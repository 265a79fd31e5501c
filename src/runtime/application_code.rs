//! Calls of the application's code on the member's threads: wakers, log subscribers and metrics
//! recorders. Such code should not panic. If it does, the member and its other callers go on.

#[cfg(not(elderlock_shuttle))]
use std::any::Any;
#[cfg(not(elderlock_shuttle))]
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `call` for each item, in order. A call that panics is logged, and the next ones follow:
/// they may wake callers that would wait for ever.
pub(crate) fn call_each<T>(items: impl IntoIterator<Item = T>, mut call: impl FnMut(T)) {
    let mut items = items.into_iter();
    #[cfg(not(elderlock_shuttle))]
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| items.by_ref().for_each(&mut call))) {
        log_panic(&*panic);
    }
    // Under shuttle a panic ends the test.
    #[cfg(elderlock_shuttle)]
    items.for_each(&mut call);
}

/// Runs `call`. A panic is logged.
pub(crate) fn call_once(call: impl FnOnce()) {
    call_each([call], |call| call());
}

/// Logs a panic. The subscriber may be what panicked: then nothing is logged.
#[cfg(not(elderlock_shuttle))]
#[cold]
fn log_panic(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no text");
    let _ = catch_unwind(|| {
        tracing::error!(
            target: "elderlock",
            panic = text,
            "the program's code panicked in a waker, a log subscriber or a metrics recorder: this \
             member goes on without that call"
        );
    });
}
