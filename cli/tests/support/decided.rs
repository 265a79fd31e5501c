//! Commands to members that may have no answer at the moment.

use std::time::{Duration, Instant};

/// A guard against hangs, far above the time of any answer.
const HANG: Duration = Duration::from_secs(300);

/// The outcome of a command and its text. The command is run again while no grantor or elder
/// answers in time, which happens on a busy machine.
pub(crate) fn decided<T>(mut run: impl FnMut() -> (T, String)) -> (T, String) {
    let began = Instant::now();
    loop {
        let (outcome, text) = run();
        // The errors of all calls without an answer say so.
        if !text.contains("at the moment") {
            return (outcome, text);
        }
        assert!(began.elapsed() < HANG, "{text}");
    }
}
