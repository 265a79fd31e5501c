//! Locks that members keep after their release: how many tokens a kept lock gets, and how it is
//! recalled. docs/protocol/kept-locks.md describes the messages, and the deaths of members.

use super::*;
use crate::protocol::locks::client::{MAX_USERS, speaks_of_keeping};

/// The most tokens that a member gets for a kept lock.
const MAX_KEPT_TOKENS: u32 = 1 << 12;

impl Grantor {
    /// The number of further tokens that a request gets if it is granted now, to keep the lock.
    /// None, unless its member alone uses the name, or has a share beside others.
    pub(super) fn tokens_to_keep(
        &self,
        asked: (ProcessId, u32),
        want: &Want,
        cx: &StepContext,
    ) -> u32 {
        let (from, keep) = asked;
        let Some((name, is_share)) = want.lock_or_share() else { return 0 };
        if keep == 0
            || from == cx.me
            || !self.is_at_rest()
            || !speaks_of_keeping(cx)
            || !(self.table.is_clear(name)
                || is_share && self.table.is_unwanted(name)
                || planted!(cx.mutant, KeepBesideWaiter)
                    && self.table.holders_of(name).next().is_none())
        {
            return 0;
        }
        // Most tokens stay for other requests.
        let spare = u32::try_from(self.tokens.spare() / 4).unwrap_or(u32::MAX);
        let kept = keep.min(MAX_KEPT_TOKENS).min(spare);
        if self.tokens.has(kept + 1) { kept } else { 0 }
    }

    /// Notes that a lock was granted to be kept.
    pub(super) fn note_kept(&mut self, key: (ProcessId, RequestId)) {
        self.kept.holds.insert(key, false);
    }

    /// Recalls the kept locks that exclude a want. Returns one whose answer is missing.
    pub(super) fn recall(
        &mut self,
        want: &Want,
        cx: &mut StepContext,
    ) -> Option<(ProcessId, RequestId)> {
        if self.kept.holds.is_empty() || want.opens() {
            return None;
        }
        if *want == Want::Suspension && planted!(cx.mutant, RecallForNoSuspension) {
            return None;
        }
        let for_share = matches!(want, Want::Share(_));
        let found: Vec<_> = if *want == Want::Suspension {
            self.kept.holds.keys().copied().collect()
        } else {
            // Only a lock excludes a share, and a lock has one holder.
            let most = if for_share { 1 } else { usize::MAX };
            want.names().iter().flat_map(|name| self.table.holders_of(name).take(most)).collect()
        };
        self.recall_from(found, for_share, cx)
    }

    /// Recalls those of the holds that are kept. Returns one whose answer is missing.
    fn recall_from(
        &mut self,
        holds: Vec<(ProcessId, RequestId)>,
        for_share: bool,
        cx: &mut StepContext,
    ) -> Option<(ProcessId, RequestId)> {
        let mut awaited = None;
        for key in holds {
            let is_share = matches!(self.table.held_by(key), Some(Want::Share(_)));
            if is_share && (for_share || planted!(cx.mutant, RecallNoShare)) {
                continue;
            }
            let Some(is_recalled) = self.kept.holds.get_mut(&key) else { continue };
            if !std::mem::replace(is_recalled, true) {
                let (service, request) = (self.service.clone(), key.1);
                cx.send(key.0, ClientMessage::Recall { service, request });
            }
            awaited = Some(key);
        }
        awaited
    }

    /// Recalls the kept locks that a query asks about. Returns whether an answer is missing.
    pub(super) fn recall_for(&mut self, from: ProcessId, at: &Query, cx: &mut StepContext) -> bool {
        if self.kept.holds.is_empty() || planted!(cx.mutant, TellFreeKeep) {
            return false;
        }
        let want = match at {
            Query::Service => return false,
            Query::Position(request) => match self.table.entry_status((from, *request)) {
                Some(EntryStatus::Waits(_)) => Want::Suspension,
                _ => return false,
            },
            Query::Lock(name) | Query::Waiting(name, _) => Want::Lock(name.clone()),
            Query::Suspension | Query::Held(_) | Query::Blockers(_) => Want::Suspension,
        };
        self.recall(&want, cx).is_some()
    }

    /// Queues a request, and recalls the kept locks in its way.
    pub(super) fn queue(
        &mut self,
        key: (ProcessId, RequestId),
        entry: LockRequest,
        cx: &mut StepContext,
    ) -> Result<Ticket, Refusal> {
        self.recall(&entry.want, cx);
        self.table.queue(key, entry, cx.now)
    }

    /// Recalls the kept locks in the way of a try. Returns whether an answer is missing.
    pub(super) fn recalls_for_try(&mut self, entry: &LockRequest, cx: &mut StepContext) -> bool {
        let is_held = match &entry.want {
            Want::Lock(name) => {
                let mut holders = self.table.holders_of(name);
                holders.any(|holder| !self.kept.holds.contains_key(&holder))
            }
            _ => false,
        };
        cx.leased
            && !is_held
            && !planted!(cx.mutant, RefuseTryForKeep)
            && self.recall(&entry.want, cx).is_some()
    }

    /// Recalls the kept shares in the way of an upgrade. Returns whether an answer is missing.
    pub(super) fn recalls_beside(
        &mut self,
        hold: (ProcessId, RequestId),
        cx: &mut StepContext,
    ) -> bool {
        let Some(Want::Share(name)) = self.table.held_by(hold) else { return false };
        if self.kept.holds.is_empty() {
            return false;
        }
        let others = self.table.holders_of(name).filter(|other| *other != hold);
        let others: Vec<_> = others.collect();
        // A recall helps only if each of the other shares is kept.
        let are_kept = others.iter().all(|other| self.kept.holds.contains_key(other));
        cx.leased && are_kept && self.recall_from(others, false, cx).is_some()
    }

    /// Lets a try wait for the answer to a recall. If too many tries wait, it is answered as
    /// undecided.
    pub(super) fn put_off_try(&mut self, asked: ReceivedRequest, cx: &mut StepContext) {
        let (key, weight) = ((asked.from, asked.request), asked.lock.entry_weight());
        if self.kept.tries.has_room(weight, cx.limits.parked) {
            self.kept.tries.push(key, weight, asked);
        } else {
            self.tell_refusal(key, Refusal::Undecided, cx);
        }
    }

    /// Answers the tries that wait for recalls as undecided, because the grantor ends.
    pub(super) fn end_tries(&mut self, cx: &mut StepContext) {
        for asked in std::mem::take(&mut self.kept.tries) {
            self.tell_refusal((asked.from, asked.request), Refusal::Undecided, cx);
        }
    }

    /// Notes that a lock is no longer kept, and answers the tries that waited for that.
    pub(super) fn end_kept(&mut self, key: (ProcessId, RequestId), cx: &mut StepContext) {
        if self.kept.holds.remove(&key).is_none() {
            return;
        }
        for asked in std::mem::take(&mut self.kept.tries) {
            self.on_request_lock(asked, cx);
        }
    }

    /// Notes that a member uses a kept lock: these requests hold in place of the granted one.
    pub(crate) fn on_keep_in_use(
        &mut self,
        key: (ProcessId, RequestId),
        mut holds: Vec<HoldReport>,
        cx: &mut StepContext,
    ) {
        // A member that follows the protocol sends no more.
        if holds.len() > MAX_USERS {
            return;
        }
        if let Some(early) = self.phase.early_mut() {
            early.keep_use(key, holds, cx.limits.parked);
        } else {
            if !self.has_room(key.0, cx) {
                for HoldReport { request, .. } in holds.drain(1.min(holds.len())..) {
                    let (service, epoch) = (self.service.clone(), self.epoch);
                    cx.send(key.0, ClientMessage::Supersede { service, epoch, request });
                }
            }
            planted!(=> let holds = self.plant_replace(key, holds, cx));
            self.table.replace(key, holds, cx.now);
            self.end_kept(key, cx);
            self.grant(cx);
        }
    }
}
