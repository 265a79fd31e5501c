//! Messages to the elder, which maps each service to its grantor.

use crate::protocol::id::{Epoch, ProcessId, RequestId, ServiceName, ViewNumber};
use serde::{Deserialize, Serialize};

/// Messages of members to the elder about grantors.
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
        /// The youngest epoch of the service that the sender knows: it trusts no earlier one.
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
        /// The sender's last bid.
        request: RequestId,
    },
    /// The sender has begun to act as the grantor.
    Acts {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
    },
    /// A leaving grantor proposes a successor.
    ProposeSuccessor {
        /// The service.
        service: ServiceName,
        /// The leaving grantor's epoch.
        epoch: Epoch,
        /// The proposed successor.
        to: ProcessId,
    },
    /// A grantor has ended, and its table was empty.
    Vacant {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
    },
    /// The named member will not grant in this epoch.
    Decline {
        /// The service.
        service: ServiceName,
        /// The epoch.
        epoch: Epoch,
    },
    /// A grantor's tokens run low.
    MoreTokens {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
        /// The number of tokens that the grantor asks for. If it gets fewer, it asks again.
        count: u32,
    },
    /// The answer to `Inventory`, in chunks.
    InventoryReply {
        /// The view of the `Inventory` that this answers.
        view: ViewNumber,
        /// The services that the sender knows, each with its grantor and the grantor's epoch.
        known: Vec<(ServiceName, ProcessId, Epoch)>,
        /// Whether this is the last chunk.
        last: bool,
    },
    /// Asks whether a member grants this service. The question makes no member its grantor.
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
    /// The variant name.
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
