//! Ctrl-C: it ends the measurement, but only after all started processes have been stopped and
//! taken away.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

static HAS_COME: AtomicBool = AtomicBool::new(false);
/// A second signal means: do not wait.
const IMPATIENT: i32 = 130;

/// From now on it is heeded, by [`check`], and so is SIGTERM.
pub(crate) fn heed() -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(entered);
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if HAS_COME.swap(true, Relaxed) {
                    exit(IMPATIENT);
                }
            }
        });
    });
    Ok(())
}

/// An error once it has come.
pub(crate) fn check() -> Result<(), String> {
    if HAS_COME.load(Relaxed) { Err("interrupted".to_owned()) } else { Ok(()) }
}
