//! Messages to the grantor of a service.

use super::blockers::Probe;
use super::lock_request::{HoldReport, LockRequest, WaitReport};
use super::query::Query;
use crate::protocol::content::{Content, Edit};
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName, Token, Want};
use crate::protocol::versioned::Since;
use serde::{Deserialize, Serialize};

/// Members ask a grantor and report to it, and another grantor sends it a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GrantorMessage {
    /// Asks for the receiver's table. The answer ends every older epoch at the receiver.
    RequestTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
    },
    /// The table, in chunks.
    TableChunk {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
        /// Objects. All of them come before all holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds, with their members.
        holds: Vec<(ProcessId, HoldReport)>,
        /// Waits, with their members, in ticket order.
        waits: Vec<(ProcessId, WaitReport)>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// The sender has no table to transfer: the new grantor asks every member.
    NoTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
    },
    /// Asks for a lock.
    ///
    /// ```text
    /// free:                   H ->[RequestLock] G  G ->[Grant] H  H ->[Release] G
    /// held for a moment only: the same
    /// held for longer:        H ->[RequestLock] G  G ->[Queued] H  G ->[Grant] H  H ->[Release] G
    /// ```
    RequestLock {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the requester knows it.
        epoch: Epoch,
        /// The requester's number for it; a repeated request is granted once.
        request: RequestId,
        /// The names, the owner and the options.
        lock: LockRequest,
        /// Do not queue: refuse unless free.
        only_if_free: bool,
        /// How many tokens the requester wants behind that of the grant, to keep the lock; 0: it
        /// does not keep it.
        #[serde(with = "Since::<13>")]
        keep: u32,
    },
    /// The request is over: released, cancelled, or an unwanted grant that is returned.
    Release {
        /// The service.
        service: ServiceName,
        /// The request.
        request: RequestId,
    },
    /// The request that holds goes on with less: a share in place of its lock, or fewer permits.
    /// One-way, as `Release` is.
    Reduce {
        /// The service.
        service: ServiceName,
        /// The newest epoch of which the holder has heard. A grantor of a later epoch asks for all
        /// holds when it begins, and may have enlarged this one since.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The want that it holds from now on.
        want: Want,
        /// The token of the hold: the grantor may have given another, of which the holder has not
        /// heard.
        token: Token,
    },
    /// Asks that a share become the lock.
    ///
    /// ```text
    /// H ->[Upgrade] G     G ->[Upgraded] H      (no other share)
    /// H ->[Upgrade] G     G ->[Refuse] H        (others; or it cannot say yet)
    /// ```
    Upgrade {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the requester knows it.
        epoch: Epoch,
        /// The requester's number for it; a repeated upgrade is done once.
        request: RequestId,
        /// The request that has the share.
        hold: RequestId,
    },
    /// A write into an object that the sender has open.
    ///
    /// ```text
    /// W ->[Write] G     G ->[Value] all that have it open; to W with its request
    /// ```
    Write {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the writer knows it.
        epoch: Epoch,
        /// The writer's number for it; a repeated write is made once.
        request: RequestId,
        /// The object.
        name: LockName,
        /// The edit.
        edit: Box<Edit>,
    },
    /// The answer, in chunks.
    Report {
        /// The service.
        service: ServiceName,
        /// The epoch of the `Recover` that this answers.
        epoch: Epoch,
        /// Objects that the sender has open, as far as it has heard. All of them come before all
        /// holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds of the sender.
        holds: Vec<HoldReport>,
        /// Waits of the sender.
        waits: Vec<WaitReport>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// Asks for a confirmation as soon as the grantor has nothing left of the sender's in the
    /// destroyed service.
    ConfirmDestroy {
        /// The service.
        service: ServiceName,
        /// The requester's number for it.
        request: RequestId,
    },
    /// A question about the grantor's table.
    Query {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the requester knows it.
        epoch: Epoch,
        /// The requester's number for it.
        request: RequestId,
        /// The question.
        at: Box<Query>,
    },
    /// A probe for the holders of all holds that a request of the sender waits for.
    ///
    /// ```text
    /// M ->[ProbeWait] G   G ->[ProbeHold] H, for each hold   H ->[ProbeWait] G', for each wait
    /// ```
    ProbeWait {
        /// The service.
        service: ServiceName,
        /// The sender's waiting request.
        request: RequestId,
        /// The probe.
        probe: Box<Probe>,
    },
    /// A kept lock is in use. From now on its uses are ordinary holds, in place of the one that was
    /// granted. The lock is kept no longer.
    KeepInUse {
        /// The service.
        service: ServiceName,
        /// The latest epoch that the sender knows. A grantor of a later one has this in the
        /// sender's report.
        epoch: Epoch,
        /// The request that was granted the lock to keep. If it is not among the holds, it is over.
        place: RequestId,
        /// The holds: one of the lock, or up to 64 of its shares. Their tokens are of the range
        /// that came with the grant.
        holds: Box<[HoldReport]>,
    },
}

impl GrantorMessage {
    /// The name of its variant.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            GrantorMessage::RequestTable { .. } => "RequestTable",
            GrantorMessage::TableChunk { .. } => "TableChunk",
            GrantorMessage::NoTable { .. } => "NoTable",
            GrantorMessage::RequestLock { .. } => "RequestLock",
            GrantorMessage::Release { .. } => "Release",
            GrantorMessage::Reduce { .. } => "Reduce",
            GrantorMessage::Upgrade { .. } => "Upgrade",
            GrantorMessage::Write { .. } => "Write",
            GrantorMessage::Report { .. } => "Report",
            GrantorMessage::ConfirmDestroy { .. } => "ConfirmDestroy",
            GrantorMessage::Query { .. } => "Query",
            GrantorMessage::ProbeWait { .. } => "ProbeWait",
            GrantorMessage::KeepInUse { .. } => "KeepInUse",
        }
    }
}
