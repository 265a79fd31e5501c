//! `ConnectionWriter`: the sending half of a connection.

use super::connection_reader::ConnectionReader;
use crate::protocol::{ProcessId, Versions};
use crate::wire::secure::Sealer;
use std::sync::Arc;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The sending half of a connection.
pub(super) struct ConnectionWriter {
    /// The process at the other end, from the handshake.
    pub(super) process: ProcessId,
    /// The versions that the process speaks, from the handshake.
    pub(super) versions: Versions,
    pub(super) writer: OwnedWriteHalf,
    /// Seals what is written, if the cluster has a key.
    pub(super) sealer: Option<Sealer>,
    pub(super) reader: Arc<ConnectionReader>,
    /// Cancelled when either half has ended, to end the other half.
    pub(super) closed: CancellationToken,
    /// Cancelled to close a connection that is intact but not needed.
    pub(super) redundant: CancellationToken,
    /// Whether this member has dialled the connection.
    pub(super) dialled: bool,
    /// Whether both sides use this one of two connections that crossed. So a caller knows where its
    /// answer arrives.
    pub(super) is_preferred: bool,
    pub(super) opened: Instant,
}

impl ConnectionWriter {
    /// Returns whether the connection leads to the wanted process, or to any process at the
    /// address. An accepted connection of a stranger does not lead to its address: the process
    /// claims the address without a proof.
    pub(super) fn leads_to(&self, want: Option<ProcessId>) -> bool {
        match want {
            Some(process) => process == self.process,
            None => self.dialled || self.reader.is_of_member() || planted!(LeadToAnyClaim),
        }
    }
}

/// The newest live connection to the wanted process. A connection that both sides prefer comes
/// first.
pub(super) fn route(links: &[ConnectionWriter], want: Option<ProcessId>) -> Option<usize> {
    let fits = |link: &ConnectionWriter| !link.closed.is_cancelled() && link.leads_to(want);
    let preferred = links.iter().rposition(|link| link.is_preferred && fits(link));
    preferred.or_else(|| links.iter().rposition(fits))
}
