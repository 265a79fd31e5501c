//! The signals that a member by hand follows, on each system.

#[cfg(unix)]
mod unix {
    use std::io::Result;
    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// Asks for the keys to be read again.
    pub(crate) type Hangup = Signal;

    pub(crate) fn terminate() -> Result<Signal> {
        signal(SignalKind::terminate())
    }

    pub(crate) fn interrupt() -> Result<Signal> {
        signal(SignalKind::interrupt())
    }

    pub(crate) fn hangup() -> Result<Hangup> {
        signal(SignalKind::hangup())
    }
}

#[cfg(windows)]
mod windows {
    use std::io::Result;
    use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

    /// Windows has no SIGHUP. Ctrl-Break asks for the keys to be read again.
    pub(crate) type Hangup = CtrlBreak;

    /// The console closes. The system ends the process some seconds later.
    pub(crate) fn terminate() -> Result<CtrlClose> {
        ctrl_close()
    }

    pub(crate) fn interrupt() -> Result<CtrlC> {
        ctrl_c()
    }

    pub(crate) fn hangup() -> Result<Hangup> {
        ctrl_break()
    }
}

#[cfg(unix)]
pub(crate) use unix::{Hangup, hangup, interrupt, terminate};
#[cfg(windows)]
pub(crate) use windows::{Hangup, hangup, interrupt, terminate};
