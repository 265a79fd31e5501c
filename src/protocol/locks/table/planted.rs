//! Access to a table for planted breaks of its grantor, see `mutant.rs`.

use super::{LockRequest, RequestKey, Table};
use crate::protocol::id::{LockName, Mode, ProcessId};
use crate::protocol::mutant::ProtocolMutant;

impl Table {
    pub(crate) fn has_content(&self, name: &LockName) -> bool {
        self.content(name).is_some()
    }

    /// The approximate bytes of the requests of a process, with the present values.
    pub(crate) fn present_bytes_of(&self, process: ProcessId) -> usize {
        let requests = self.parts.get(&process).into_iter().flat_map(|part| part.requests.iter());
        requests.map(|(_, request)| request.entry.entry_weight()).sum()
    }

    /// Plants another break, or none.
    pub(crate) fn plant(&mut self, mutant: Option<ProtocolMutant>) {
        self.mutant = mutant;
    }

    /// Returns whether no request waits for the name.
    pub(crate) fn is_unqueued(&self, name: &LockName) -> bool {
        self.head(name).is_none()
    }

    /// The mode in which a name is held, if it is.
    pub(crate) fn mode_of(&self, name: &LockName) -> Option<Mode> {
        let key = self.holders_of(name).next()?;
        self.get(key).map(|request| request.entry.want.mode())
    }

    /// A request's own properties.
    pub(crate) fn entry(&self, key: RequestKey) -> Option<&LockRequest> {
        self.get(key).map(|request| &request.entry)
    }
}
