//! On Ctrl-C the measurement ends, after all started processes have been stopped.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

static HAS_COME: AtomicBool = AtomicBool::new(false);
/// The exit code after a second signal, which ends the bench at once.
const IMPATIENT: i32 = 130;

/// From now on [`check`] reports Ctrl-C and SIGTERM.
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

/// Returns an error after such a signal.
pub(crate) fn check() -> Result<(), String> {
    if HAS_COME.load(Relaxed) { Err("interrupted".to_owned()) } else { Ok(()) }
}
