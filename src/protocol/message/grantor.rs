//! Messages to the grantor of a service.

use super::blockers::Probe;
use super::lock_request::{HoldReport, LockRequest, WaitReport};
use super::query::Query;
use super::table_seal::TableSeal;
use crate::protocol::content::{Content, Edit};
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName, Token, Want};
use crate::protocol::versioned::Since;
use serde::{Deserialize, Serialize};

/// Messages of members to a grantor, and of another grantor that sends its table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GrantorMessage {
    /// Asks for the receiver's table. The answer ends every older epoch at the receiver.
    RequestTable {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
        /// The number of the sender's whole copy of the table, if it has one.
        #[serde(with = "Since::<13>")]
        copy: Option<u64>,
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
        /// Whether members may keep some of the holds.
        #[serde(with = "Since::<13>")]
        kept: bool,
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
        /// The requester's number of the request; a repeated request is granted once.
        request: RequestId,
        /// The names, the owner and the options.
        lock: LockRequest,
        /// Whether the request is refused, and not queued, if it cannot be granted at once.
        only_if_free: bool,
        /// The number of tokens beyond that of the grant that the requester wants, to keep the
        /// lock. 0: it does not keep the lock.
        #[serde(with = "Since::<13>")]
        keep: u32,
    },
    /// The request is over: released or cancelled, or its grant is unwanted.
    Release {
        /// The service.
        service: ServiceName,
        /// The request.
        request: RequestId,
    },
    /// The hold of a request continues with less: a share in place of its lock, or fewer permits.
    /// No answer follows, as with `Release`.
    Reduce {
        /// The service.
        service: ServiceName,
        /// The newest epoch that the holder knows. A grantor of a later epoch asks for all holds
        /// when it begins, and may have upgraded this one since.
        epoch: Epoch,
        /// The request.
        request: RequestId,
        /// The want that the hold has from now on.
        want: Want,
        /// The token of the hold as the holder knows it: the grantor may have given another one
        /// since.
        token: Token,
    },
    /// Asks the grantor to turn a share into the lock.
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
        /// The requester's number of the upgrade; a repeated upgrade is done once.
        request: RequestId,
        /// The request that has the share.
        hold: RequestId,
    },
    /// Writes into an object that the sender has open.
    ///
    /// ```text
    /// W ->[Write] G     G ->[Value] all that have it open; to W with its request
    /// ```
    Write {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the writer knows it.
        epoch: Epoch,
        /// The writer's number of the write; a repeated write is made once.
        request: RequestId,
        /// The object.
        name: LockName,
        /// The edit.
        edit: Box<Edit>,
    },
    /// The answer to `Recover`, in chunks.
    Report {
        /// The service.
        service: ServiceName,
        /// The epoch of the `Recover` that this answers.
        epoch: Epoch,
        /// The objects that the sender has open, with the contents that it knows. All of them come
        /// before all holds.
        objects: Box<[(LockName, Content)]>,
        /// Holds of the sender.
        holds: Vec<HoldReport>,
        /// Waits of the sender.
        waits: Vec<WaitReport>,
        /// Whether this is the last chunk.
        last: bool,
        /// The number of parts that are complete with this chunk; `None`: the report is in the
        /// order of the requests.
        #[serde(with = "Since::<13>")]
        parts: Option<u16>,
    },
    /// Asks for a confirmation as soon as the grantor has nothing of the sender's requests left in
    /// the destroyed service.
    ConfirmDestroy {
        /// The service.
        service: ServiceName,
        /// The requester's number of the question.
        request: RequestId,
    },
    /// A query of the grantor's table.
    Query {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch as the requester knows it.
        epoch: Epoch,
        /// The requester's number of the query.
        request: RequestId,
        /// The question.
        at: Box<Query>,
    },
    /// A probe that is to be forwarded to the holders for which a request of the sender waits.
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
    /// Kept locks are in use. From now on the requests that use the lock have ordinary holds, in
    /// place of the granted request. The lock is no longer kept.
    KeepInUse {
        /// The service.
        service: ServiceName,
        /// The latest epoch that the sender knows. A grantor of a later epoch learns of these holds
        /// from the sender's report.
        epoch: Epoch,
        /// The request for which the lock was granted to be kept. If it is not among the holds, it
        /// is over.
        place: RequestId,
        /// The holds: one of the lock, or up to 64 of its shares. Their tokens are of the range
        /// that came with the grant.
        holds: Box<[HoldReport]>,
    },
    /// Asks for the next parts of a copy of the receiver's table. It ends no epoch.
    ///
    /// ```text
    /// T ->[CopyTable] P   P ->[CopyPart] T   ...   P ->[CopyPart, whole] T
    /// T ->[RequestTable, with the copy] P    P ->[CopyPart] T    P ->[TableRest] T
    /// ```
    CopyTable {
        /// The service.
        service: ServiceName,
        /// The receiver's epoch as the sender knows it.
        epoch: Epoch,
        /// The sender's number of the copy, which is never used again.
        copy: u64,
        /// The number of parts that the sender has taken. 0: the copy begins.
        taken: u64,
    },
    /// A part of a copy. Each request replaces its earlier state.
    CopyPart {
        /// The service.
        service: ServiceName,
        /// The number of the copy.
        copy: u64,
        /// The number of the part, from 1.
        part: u64,
        /// Objects. `None`: the object is closed.
        objects: Box<[(LockName, Option<Content>)]>,
        /// Holds and open objects, with their members.
        holds: Vec<(ProcessId, HoldReport)>,
        /// Waits, with their members.
        waits: Vec<(ProcessId, WaitReport)>,
        /// Requests that are over.
        over: Box<[(ProcessId, RequestId)]>,
        /// Whether the copy is whole, except for later changes.
        whole: bool,
    },
    /// The copy is over: its sender has no table, or its receiver does not need it.
    NoCopy {
        /// The service.
        service: ServiceName,
        /// The number of the copy.
        copy: u64,
    },
    /// The sender leaves: the receiver may copy its table and succeed it.
    OfferCopy {
        /// The service.
        service: ServiceName,
        /// The sender's epoch.
        epoch: Epoch,
    },
    /// The end of a table whose copy the new grantor has. All changes came before it.
    TableRest {
        /// The service.
        service: ServiceName,
        /// The new grantor's epoch.
        epoch: Epoch,
        /// The number of the copy.
        copy: u64,
        /// The sizes and the digest of the table.
        seal: TableSeal,
        /// Whether members may keep some of the holds.
        #[serde(with = "Since::<13>")]
        kept: bool,
    },
}

impl GrantorMessage {
    /// The variant name.
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
            GrantorMessage::CopyTable { .. } => "CopyTable",
            GrantorMessage::CopyPart { .. } => "CopyPart",
            GrantorMessage::NoCopy { .. } => "NoCopy",
            GrantorMessage::OfferCopy { .. } => "OfferCopy",
            GrantorMessage::TableRest { .. } => "TableRest",
        }
    }
}
