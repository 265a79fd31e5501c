//! Planted breaks of a lock client, see `mutant.rs`.

use super::load_meter::LoadMeter;
use super::*;
use crate::protocol::locks::name_part::highest_part;
use crate::protocol::message::{LockRequest, OwnerWait};

/// Returns whether the grantor is not told that a request has ended, though it may still grant it.
pub(super) fn is_kept(entry: &ClientRequest, cx: &StepContext) -> bool {
    planted!(cx.mutant, KeepUnwantedGrant)
        && !matches!(entry.state, ClientRequestState::Held { .. })
}

/// The last bid of this member that another member's bid ended.
pub(super) fn outbid(last: RequestId, cx: &StepContext) -> RequestId {
    if planted!(cx.mutant, HeedOldOutbids) { RequestId(u64::MAX) } else { last }
}

/// A request as it appears in a report.
pub(super) fn reported(lock: LockRequest, cx: &StepContext) -> LockRequest {
    let is_blank = planted!(cx.mutant, ReportNoOwners);
    LockRequest { owner: if is_blank { OwnerId::default() } else { lock.owner }, ..lock }
}

/// The part of the names in which a hold is reported.
pub(super) fn part_of_hold(part: u16, want: &Want, cx: &StepContext) -> u16 {
    if planted!(cx.mutant, ReportBatchLate) { highest_part(want) } else { part }
}

/// Returns whether a report leaves a hold out.
pub(super) fn is_unreported(entry: &ClientRequest, cx: &StepContext) -> bool {
    match entry.state {
        ClientRequestState::Won(..) => planted!(cx.mutant, ReportNoWonHold),
        ClientRequestState::Held { .. } => {
            entry.want == Want::Suspension && planted!(cx.mutant, KeepSuspensionToItself)
        }
        _ => false,
    }
}

/// Tells the kept locks of the planted break: some of their steps have no context.
pub(super) fn note_mutant(kept: &mut KeptLocks, cx: &StepContext) {
    kept.mutant = cx.mutant;
}

/// The first token of a grant, as the load meter counts it.
pub(super) fn metered(meter: &LoadMeter, token: Token, cx: &StepContext) -> Token {
    match &meter.window {
        Some(window) if planted!(cx.mutant, MeterOwnOnly) => window.first.plus(window.own),
        _ => token,
    }
}

impl ServiceState {
    /// Tells the grantor, and not the holder, that a hold is released.
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

impl LockClient {
    /// The waits of a holder's owner, true or not.
    pub(super) fn plant_waits(&self, waits: Vec<OwnerWait>, cx: &StepContext) -> Vec<OwnerWait> {
        if !planted!(cx.mutant, TellAllWaits) {
            return waits;
        }
        let requests = self.states.values().flat_map(|state| state.requests.values());
        let owners: BTreeSet<OwnerId> = requests.map(|entry| entry.owner).collect();
        owners.into_iter().flat_map(|owner| self.list_waits(owner).0).collect()
    }
}
