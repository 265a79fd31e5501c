//! Messages to the elder, which maps each service to its grantor.

use crate::protocol::id::{Epoch, ProcessId, RequestId, ServiceName, ViewNumber};
use serde::{Deserialize, Serialize};

/// Members ask the elder for grantors, and tell it of their own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RegistryMessage {
    /// Asks for the grantor of this service. The first member that asks becomes the grantor.
    ///
    /// ```text
    /// M ->[FindGrantor] E    E ->[GrantorIs] M    or, to the new grantor: E ->[NameGrantor] M
    /// ```
    FindGrantor {
        /// The service.
        service: ServiceName,
        /// The youngest epoch of it that the member has heard of: it believes in no earlier one.
        heard: Option<Epoch>,
    },
    /// A young turk's bid to become grantor.
    ///
    /// ```text
    /// T ->[Become] E         E ->[NameGrantor from G] T
    /// T ->[RequestTable] G   G ->[TableChunk ...] T
    /// T ->[Acts] E           T ->[Recover] those in it
    /// ```
    Become {
        /// The service.
        service: ServiceName,
        /// The sender's last such request.
        request: RequestId,
    },
    /// A grantor has begun to act.
    Acts {
        /// The service.
        service: ServiceName,
        /// Its epoch.
        epoch: Epoch,
    },
    /// A leaving grantor proposes this member as its successor.
    ProposeSuccessor {
        /// The service.
        service: ServiceName,
        /// The leaving grantor's epoch.
        epoch: Epoch,
        /// The successor.
        to: ProcessId,
    },
    /// A grantor is over, and its table was empty.
    Vacant {
        /// The service.
        service: ServiceName,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The named member will not grant in that epoch.
    Decline {
        /// The service.
        service: ServiceName,
        /// The epoch that it declines.
        epoch: Epoch,
    },
    /// The grantor's tokens run low.
    MoreTokens {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The number of tokens that it asks for. It may get fewer, and asks again.
        count: u32,
    },
    /// The answer, in chunks.
    InventoryReply {
        /// The view of the `Inventory` that this answers.
        view: ViewNumber,
        /// Services with the grantor known to the sender and its epoch.
        known: Vec<(ServiceName, ProcessId, Epoch)>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// Asks whether a member grants this service. No member becomes its grantor by it.
    ///
    /// ```text
    /// M ->[FindService] E    E ->[QueryReply] M
    /// ```
    FindService {
        /// The service.
        service: ServiceName,
        /// The number of the question.
        request: RequestId,
    },
}

impl RegistryMessage {
    /// The name of its variant.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            RegistryMessage::FindGrantor { .. } => "FindGrantor",
            RegistryMessage::Become { .. } => "Become",
            RegistryMessage::Acts { .. } => "Acts",
            RegistryMessage::ProposeSuccessor { .. } => "ProposeSuccessor",
            RegistryMessage::Vacant { .. } => "Vacant",
            RegistryMessage::Decline { .. } => "Decline",
            RegistryMessage::MoreTokens { .. } => "MoreTokens",
            RegistryMessage::InventoryReply { .. } => "InventoryReply",
            RegistryMessage::FindService { .. } => "FindService",
        }
    }
}
