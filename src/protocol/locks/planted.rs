//! Planted breaks of the lock side of a member, see `mutant.rs`.

use super::Locks;
use super::grantor::Grantor;
use crate::protocol::id::{ProcessId, ServiceName};
use crate::protocol::step_context::StepContext;

/// The member that won the bid against this one.
pub(super) fn winner(by: ProcessId, cx: &StepContext) -> ProcessId {
    cx.elder.filter(|_| planted!(cx.mutant, CallTheElderWinner)).unwrap_or(by)
}

/// Returns whether the copy of a table counts as whole in any case.
pub(super) fn trusts_any_seal(cx: &StepContext) -> bool {
    planted!(cx.mutant, TrustAnySeal)
        || planted!(cx.mutant, ForgetCopiedEndings)
        || planted!(cx.mutant, ForgetCopiedChanges)
        || planted!(cx.mutant, KeepLastChanges)
}

impl Locks {
    /// Lets a named turk act on its copy at once.
    pub(super) fn act_on_copy(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let Some(view) = cx.view else { return };
        if let Some((source, table)) = self.copies.take_table(service)
            && let Some(grantor) = self.grantors.get_mut(service)
        {
            grantor.on_copied_table(source, table, view, cx);
        }
    }

    /// Releases all requests of a process.
    pub(in crate::protocol) fn free_all_of(&mut self, process: ProcessId) {
        self.grantors.values_mut().for_each(|grantor| grantor.free_all_of(process));
    }

    /// Lets a grantor that transfers its table continue to grant.
    pub(super) fn keep_grantor(&mut self, service: &ServiceName, grantor: &Grantor) {
        self.grantors.insert(service.clone(), grantor.clone());
    }

    /// Deals the tokens of the next view.
    pub(in crate::protocol) fn deal_in_next(&mut self) {
        if let Some(registry) = &mut self.registry {
            registry.dealer.deal_in_next();
        }
    }
}
