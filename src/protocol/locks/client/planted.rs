//! Planted breaks of a lock client, see `mutant.rs`.

use super::*;

impl ServiceState {
    /// The grantor hears that a hold is released, and the holder does not.
    pub(super) fn release(
        &self,
        service: &ServiceName,
        request: RequestId,
        cx: &mut StepContext,
    ) -> RevocationAnswer {
        if let Some((grantor, _)) = self.grantor {
            let service = service.clone();
            cx.send(grantor, GrantorMessage::Release { service, request });
        }
        RevocationAnswer::Revoked
    }
}
