//! `SessionCount`: how many locks a member holds for programs that are not members. The member
//! leaves when all of them are over.

use super::Engine;
use crate::runtime::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};
use tokio_util::sync::CancellationToken;

/// The open sessions of a member; they keep it from leaving.
#[derive(Default)]
pub(crate) struct SessionCount {
    table: Mutex<SessionTable>,
    /// Cancelled when the member is to leave.
    closing: CancellationToken,
}

#[derive(Default)]
struct SessionTable {
    open: usize,
    /// The member leaves as soon as none is open.
    leaves: bool,
}

/// A session that is open until this is dropped.
pub(crate) struct CountedSession {
    engine: Arc<Engine>,
}

impl SessionCount {
    fn table(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all sessions to end. `true`: none is open.
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

    /// Opens one. `None`: the member leaves.
    pub(crate) fn open(engine: &Arc<Engine>) -> Option<CountedSession> {
        let mut table = engine.sessions.table();
        let stays = !table.leaves;
        table.open += usize::from(stays);
        drop(table);
        stays.then(|| CountedSession { engine: engine.clone() })
    }
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        let mut table = self.engine.sessions.table();
        table.open -= 1;
        let was_last = table.leaves && table.open == 0;
        drop(table);
        if was_last {
            self.engine.leave_now();
        }
    }
}
