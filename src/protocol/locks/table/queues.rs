//! The queue of each name of a table. A waiting request misses a name unless it is the first in the
//! name's queue and fits beside the name's holders.

use super::*;

impl Table {
    pub(super) fn head(&self, name: &LockName) -> Option<QueueRank> {
        self.queues.get(name).and_then(|queue| queue.first().copied())
    }

    /// Returns the first request in a queue, and whether it fits beside the holders; `None`: the
    /// queue is empty.
    fn head_fits(&self, name: &LockName) -> Option<(QueueRank, bool)> {
        let rank = self.head(name)?;
        Some((rank, self.get(rank.1).is_some_and(|request| self.fits(name, &request.entry.want))))
    }

    /// Changes the holds of a name, or its limit, and then checks whether the first request in its
    /// queue fits.
    pub(super) fn reconsider<R>(
        &mut self,
        name: &LockName,
        change: impl FnOnce(&mut Table) -> R,
    ) -> R {
        if self.queues.is_empty() {
            return change(self);
        }
        let before = self.head_fits(name);
        let result = change(self);
        if let Some((rank, fitted)) = before {
            match (fitted, self.head_fits(name)) {
                (true, Some((_, false))) => self.misses_one(rank),
                (false, Some((_, true))) => self.misses_one_less(rank),
                _ => {}
            }
        }
        result
    }

    pub(super) fn enter(&mut self, name: &LockName, rank: QueueRank, want: &Want) {
        let before = self.head_fits(name);
        self.queues.entry(name.clone()).or_default().insert(rank);
        if before.is_some_and(|(head, _)| head < rank) {
            return;
        }
        if let Some((head, true)) = before {
            self.misses_one(head);
        }
        if self.fits(name, want) {
            self.misses_one_less(rank);
        }
    }

    pub(super) fn leave(&mut self, name: &LockName, rank: QueueRank) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let was_head = queue.first() == Some(&rank);
        queue.remove(&rank);
        if queue.is_empty() {
            self.queues.remove(name);
        } else if was_head && let Some((head, true)) = self.head_fits(name) {
            self.misses_one_less(head);
        }
    }

    pub(super) fn misses_one(&mut self, rank: QueueRank) {
        if let Some(TableRequest { state: TableRequestState::Waits { missing, .. }, .. }) =
            self.get_mut(rank.1)
        {
            *missing += 1;
            self.ready.remove(&rank);
        }
    }

    pub(super) fn misses_one_less(&mut self, rank: QueueRank) {
        if let Some(TableRequest { state: TableRequestState::Waits { missing, .. }, .. }) =
            self.get_mut(rank.1)
        {
            *missing -= 1;
            if *missing == 0 {
                self.ready.insert(rank);
            }
        }
    }
}
