//! The signals that `elderlock node` follows, on each system.

#[cfg(unix)]
mod unix {
    use std::io::Result;
    use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

    pub(crate) type Terminate = SignalStream;
    pub(crate) type Interrupt = SignalStream;
    /// The signal to read the keys again.
    pub(crate) type Hangup = SignalStream;

    pub(crate) fn terminate() -> Result<Terminate> {
        signal(SignalKind::terminate())
    }

    pub(crate) fn interrupt() -> Result<Interrupt> {
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

    pub(crate) type Terminate = CtrlClose;
    pub(crate) type Interrupt = CtrlC;
    /// Windows has no SIGHUP. Ctrl-Break is the signal to read the keys again.
    pub(crate) type Hangup = CtrlBreak;

    /// The closing of the console. The system ends the process some seconds later.
    pub(crate) fn terminate() -> Result<Terminate> {
        ctrl_close()
    }

    pub(crate) fn interrupt() -> Result<Interrupt> {
        ctrl_c()
    }

    pub(crate) fn hangup() -> Result<Hangup> {
        ctrl_break()
    }
}

#[cfg(unix)]
pub(crate) use unix::{Hangup, Interrupt, Terminate, hangup, interrupt, terminate};
#[cfg(windows)]
pub(crate) use windows::{Hangup, Interrupt, Terminate, hangup, interrupt, terminate};
