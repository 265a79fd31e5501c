//! `CountedSession`: one lock that a member holds for a program. A member that is to leave does so
//! when its last session ends.

use super::Engine;
use super::session_count::SessionCount;
use std::sync::Arc;

/// One open session. It ends when this is dropped.
pub(crate) struct CountedSession {
    engine: Arc<Engine>,
}

impl SessionCount {
    /// Opens a session. `None`: the member leaves.
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
