//! `SessionCount`: the number of locks that a member holds for programs that are not members. A
//! member that is to leave waits until all of them have ended.

use crate::runtime::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
use tokio_util::sync::CancellationToken;

/// The open sessions of a member. They keep it from leaving.
#[derive(Default)]
pub(crate) struct SessionCount {
    table: Mutex<SessionTable>,
    /// Cancelled when the member is to leave.
    closing: CancellationToken,
}

#[derive(Default)]
pub(super) struct SessionTable {
    pub(super) open: usize,
    /// Whether the member leaves as soon as no session is open.
    pub(super) leaves: bool,
}

impl SessionCount {
    pub(super) fn table(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all sessions to end. Returns whether none is open.
    pub(super) fn close(&self) -> bool {
        let mut table = self.table();
        table.leaves = true;
        let is_empty = table.open == 0;
        drop(table);
        self.closing.cancel();
        is_empty
    }

    /// Cancelled when the member is to leave.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }
}
