//! The end of a large table: its memory is freed a little at a time. To free a million entries at
//! once would take longer than any other step.

use super::*;

/// Removes entries while `left` allows it. `pop`: removes an entry, and returns whether there was
/// one.
fn shed(left: &mut usize, mut pop: impl FnMut() -> bool) {
    while *left > 0 && pop() {
        *left -= 1;
    }
}

impl Table {
    /// Removes about `most` entries of a table that is used no more. Returns whether some are left.
    pub(crate) fn shed(&mut self, most: usize) -> bool {
        let mut left = most;
        let left = &mut left;
        self.trace = None;
        while *left > 0
            && let Some(mut part) = self.parts.first_entry()
        {
            let MemberRequests { requests, waiting, owners, .. } = part.get_mut();
            *left -= requests.shed(*left);
            shed(left, || waiting.pop_first().is_some());
            shed(left, || owners.pop_first().is_some());
            if requests.is_empty() && waiting.is_empty() && owners.is_empty() {
                part.remove();
            }
        }
        self.held.shed(left);
        while *left > 0
            && let Some(mut queue) = self.queues.first_entry()
        {
            shed(left, || queue.get_mut().pop_first().is_some());
            if queue.get().is_empty() {
                queue.remove();
            }
        }
        for ranks in [&mut self.suspensions, &mut self.ready, &mut self.opening] {
            shed(left, || ranks.pop_first().is_some());
        }
        shed(left, || self.objects.pop_first().is_some());
        *left == 0
    }
}
