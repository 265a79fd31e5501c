//! `LatestHold`: the latest hold that a recipe was granted.

use crate::protocol::Token;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A hold that knows by itself whether it is over.
pub(super) trait TrackedHold: Clone {
    fn token(&self) -> Token;

    /// Returns whether the hold is over. The first call that finds so wakes the tasks that wait
    /// for the end.
    fn is_over(&self) -> bool;
}

/// The latest hold that a recipe was granted. Clones of the recipe share it.
///
/// The mutex is never locked while a hold is asked whether it is over. That question wakes tasks of
/// the application, and such a task may ask the recipe.
pub(super) struct LatestHold<T>(Mutex<Option<T>>);

impl<T> Default for LatestHold<T> {
    fn default() -> Self {
        LatestHold(Mutex::default())
    }
}

impl<T: TrackedHold> LatestHold<T> {
    /// The latest hold, if it is not over.
    pub(super) fn get(&self) -> Option<T> {
        self.latest().filter(|hold| !hold.is_over())
    }

    /// Notes a granted hold. A task that is polled late may note it after a later hold: then this
    /// hold is over, and the later one stays.
    pub(super) fn note(&self, hold: T) {
        let token = |hold: &T| hold.token();
        loop {
            let known = self.latest();
            if known.as_ref().is_some_and(|known| known.token() > hold.token() && !known.is_over())
            {
                return;
            }
            let mut latest = self.lock();
            if latest.as_ref().map(token) == known.as_ref().map(token) {
                let former = latest.replace(hold);
                drop((latest, former));
                return;
            }
        }
    }

    fn latest(&self) -> Option<T> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for LatestHold<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatestHold").finish_non_exhaustive()
    }
}
