//! Planted breaks of the lock side of a member, see `mutant.rs`.

use super::Locks;
use super::grantor::Grantor;
use crate::protocol::id::{ProcessId, ServiceName};
use crate::protocol::step_context::StepContext;

/// The member that won the bid against this one.
pub(super) fn winner(by: ProcessId, cx: &StepContext) -> ProcessId {
    cx.elder.filter(|_| planted!(cx.mutant, CallTheElderWinner)).unwrap_or(by)
}

impl Locks {
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
