//! The end of a large table: its memory is freed a little at a time. To free a million entries at
//! once would take longer than any other step.

use super::*;

/// Removes entries of a map while `left` allows it.
fn shed<K: Ord, V>(map: &mut BTreeMap<K, V>, left: &mut usize) {
    while *left > 0 && map.pop_first().is_some() {
        *left -= 1;
    }
}

impl Table {
    /// Removes about `most` entries of a table that is used no more. Returns whether some are left.
    pub(crate) fn shed(&mut self, most: usize) -> bool {
        let mut left = most;
        let left = &mut left;
        self.trace = None;
        self.holds = 0;
        while *left > 0
            && let Some(mut part) = self.parts.first_entry()
        {
            let MemberRequests { requests, owners, holds, opens, .. } = part.get_mut();
            // The rest counts as waiting.
            (*holds, *opens) = (0, 0);
            *left -= requests.shed(*left);
            shed(owners, left);
            if requests.is_empty() && owners.is_empty() {
                part.remove();
            }
        }
        self.held.shed(left);
        while *left > 0
            && let Some(mut queue) = self.queues.first_entry()
        {
            match queue.get_mut().pop_first() {
                Some(_) => *left -= 1,
                None => drop(queue.remove()),
            }
        }
        for ranks in [&mut self.suspensions, &mut self.ready, &mut self.opening] {
            while *left > 0 && ranks.pop_first().is_some() {
                *left -= 1;
            }
        }
        shed(&mut self.objects, left);
        *left == 0
    }
}
