//! Locks, their holders and processes as text for people.

use clap::Args;
use elderlock::{
    InvalidName, LockName, MemberName, Metadata, ProcessId, ReportedHolder, ServiceName,
};
use std::net::SocketAddr;

/// The lock, or the suspension, that a command is about.
#[derive(Args)]
pub(crate) struct LockTarget {
    /// Name of the lock, of the semaphore or of the leadership.
    #[arg(required_unless_present = "suspension")]
    name: Option<String>,
    /// The suspension of the service, in place of a lock.
    #[arg(long, conflicts_with = "name")]
    suspension: bool,
    /// Name of the lock service.
    #[arg(long, default_value = "default")]
    pub(crate) service: String,
}

impl LockTarget {
    /// The name of the lock's service.
    pub(crate) fn service(&self) -> Result<ServiceName, InvalidName> {
        ServiceName::new(&self.service)
    }

    /// The name of the lock. `None` for the suspension.
    pub(crate) fn name(&self) -> Result<Option<LockName>, InvalidName> {
        self.name.as_ref().map(|name| LockName::new(name.as_bytes())).transpose()
    }

    /// Returns the text that people read.
    pub(crate) fn text(&self) -> String {
        lock(&self.service, self.name.as_deref())
    }
}

/// A lock, or the suspension of its service.
pub(crate) fn lock(service: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{} of {}", name.escape_debug(), service.escape_debug()),
        None => format!("the suspension of {}", service.escape_debug()),
    }
}

/// A holder as text: its member, its process, its host, its owner, its token, and its metadata.
pub(crate) fn holder_text(holder: &ReportedHolder) -> String {
    let ReportedHolder { info, addr, member, .. } = holder;
    let token = format!(" with token {}", info.token);
    process(info.process, (member.as_ref(), *addr), info.owner) + &token + &own_text(&info.metadata)
}

/// A process with the name of its member, its host, and the owner within it.
pub(crate) fn process(
    process: ProcessId,
    (member, addr): (Option<&MemberName>, Option<SocketAddr>),
    owner: u64,
) -> String {
    let owner = if owner == 0 { String::new() } else { format!("owner {owner} of ") };
    let at = addr.map_or(String::new(), |addr| format!(" at {addr}"));
    let member = member.map_or(String::new(), |member| format!("{member}, "));
    format!("{owner}{member}process {process}{at}")
}

/// The metadata that a holder or waiter gave with its request, in parentheses.
pub(crate) fn own_text(metadata: &Metadata) -> String {
    if metadata.as_bytes().is_empty() {
        return String::new();
    }
    format!(" ({})", String::from_utf8_lossy(metadata.as_bytes()).escape_debug())
}
