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

/// A holder as people know it: its process, where that is, its owner, token, and own text.
pub(crate) fn who(holder: &ReportedHolder) -> String {
    let ReportedHolder { info, addr, .. } = holder;
    let token = format!(" with token {}", info.token);
    process(info.process, *addr, info.owner) + &token + &own_text(&info.metadata)
}

/// A process, where it is, and the owner within it.
pub(crate) fn process(process: ProcessId, addr: Option<SocketAddr>, owner: u64) -> String {
    let owner = if owner == 0 { String::new() } else { format!("owner {owner} of ") };
    let at = addr.map_or(String::new(), |addr| format!(" at {addr}"));
    format!("{owner}process {process}{at}")
}

/// The text that a holder or waiter gave with its request, in parentheses.
pub(crate) fn own_text(metadata: &Metadata) -> String {
    if metadata.as_bytes().is_empty() {
        return String::new();
    }
    format!(" ({})", String::from_utf8_lossy(metadata.as_bytes()).escape_debug())
}
