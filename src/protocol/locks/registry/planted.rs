//! Planted breaks of a registry, see `mutant.rs`.

use super::*;

impl Registry {
    /// Drops hearsay of a service without a known grantor. Returns whether it was dropped.
    pub(super) fn plant_hearsay(&mut self, service: &ServiceName, cx: &StepContext) -> bool {
        let drops = planted!(cx.mutant, IgnoreHearsay)
            && self.entries.get(service).is_none_or(|entry| entry.grantor.is_none());
        if drops {
            self.entries.remove(service);
        }
        drops
    }

    /// Marks a service as vacant, whichever grantor said so.
    pub(super) fn plant_vacancy(&mut self, service: &ServiceName) {
        if let Some(entry) = self.entries.get_mut(service) {
            *entry = RegistryEntry { vacant: true, ..RegistryEntry::default() };
        }
    }
}
