//! Panics of runs that are expected to fail: they are kept with their place, and not printed.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `act` without printing the panics of this thread. Also returns the place of the first
/// panic in the sources.
pub(crate) fn quietly<T>(act: impl FnOnce() -> T) -> (T, Option<String>) {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                return loud(panic);
            }
            let place = panic.location().map(|place| place.to_string());
            PLACE.with_borrow_mut(|first| *first = first.take().or(place));
        }));
    });
    PLACE.set(None);
    IS_QUIET.set(true);
    let came = act();
    IS_QUIET.set(false);
    (came, PLACE.take())
}
