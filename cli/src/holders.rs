//! Locks, their holders and processes as people read them.

use elderlock::{Metadata, ProcessId, ReportedHolder};
use std::net::SocketAddr;

/// A lock, or the suspension of its service.
pub(crate) fn lock(service: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{} of {}", name.escape_debug(), service.escape_debug()),
        None => format!("the suspension of {}", service.escape_debug()),
    }
}

/// A holder as people know it: its process, where that is, its token, and its own text.
pub(crate) fn who(holder: &ReportedHolder) -> String {
    let ReportedHolder { info, addr, .. } = holder;
    let token = format!(" with token {}", info.token);
    process(info.process, *addr) + &token + &own_text(&info.metadata)
}

/// A process, and where it is.
pub(crate) fn process(process: ProcessId, addr: Option<SocketAddr>) -> String {
    match addr {
        Some(addr) => format!("process {process} at {addr}"),
        None => format!("process {process}"),
    }
}

/// The text that a holder or waiter gave with its request, in parentheses.
pub(crate) fn own_text(metadata: &Metadata) -> String {
    if metadata.as_bytes().is_empty() {
        return String::new();
    }
    format!(" ({})", String::from_utf8_lossy(metadata.as_bytes()).escape_debug())
}
