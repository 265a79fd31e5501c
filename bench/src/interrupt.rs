//! Ctrl-C ends the measurement, after all started processes have been stopped.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

static HAS_COME: AtomicBool = AtomicBool::new(false);
/// A second signal ends the bench at once.
const IMPATIENT: i32 = 130;

/// Lets [`check`] report Ctrl-C and SIGTERM from now on.
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

/// An error after the signal.
pub(crate) fn check() -> Result<(), String> {
    if HAS_COME.load(Relaxed) { Err("interrupted".to_owned()) } else { Ok(()) }
}
