//! Locks that members keep after their release: how many tokens they get with them, and how the
//! locks are recalled. docs/protocol/kept-locks.md has the messages and the deaths.

use super::*;
use crate::protocol::id::OwnerId;
use crate::protocol::locks::client::speaks_of_keeping;

/// The most tokens that a member gets to keep a lock.
const MOST: u32 = 1 << 12;

/// The holds that were granted to be kept, in this epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct KeptHolds {
    /// Whether each was recalled.
    holds: BTreeMap<(ProcessId, RequestId), bool>,
    /// The tries that wait for answers to recalls.
    tries: Vec<ReceivedRequest>,
}

impl KeptHolds {
    /// Forgets the holds and tries of processes that have left.
    pub(super) fn retain(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.holds.retain(|(process, _), _| is_there(*process));
        self.tries.retain(|asked| is_there(asked.from));
    }

    pub(super) fn is_in_use(&self) -> bool {
        !self.holds.is_empty()
    }

    /// A try is over.
    pub(super) fn drop_try(&mut self, key: (ProcessId, RequestId)) {
        self.tries.retain(|asked| (asked.from, asked.request) != key);
    }
}

impl Grantor {
    /// How many tokens a request gets beside its own, if it is granted now: none, unless its member
    /// is alone with the name.
    pub(super) fn tokens_to_keep(
        &self,
        asked: (ProcessId, u32),
        want: &Want,
        cx: &StepContext,
    ) -> u32 {
        let (from, keep) = asked;
        let Want::Lock(name) = want else { return 0 };
        if keep == 0
            || from == cx.me
            || !self.is_at_rest()
            || !speaks_of_keeping(cx)
            || !self.table.is_clear(name)
        {
            return 0;
        }
        // Others need tokens too.
        let spare = u32::try_from(self.tokens.spare() / 4).unwrap_or(u32::MAX);
        let kept = keep.min(MOST).min(spare);
        if self.tokens.has(kept + 1) { kept } else { 0 }
    }

    /// A lock was granted to be kept.
    pub(super) fn note_kept(&mut self, key: (ProcessId, RequestId)) {
        self.kept.holds.insert(key, false);
    }

    /// Recalls the kept locks in the way of a want. Returns one of them whose answer is missing.
    pub(super) fn recall(
        &mut self,
        want: &Want,
        cx: &mut StepContext,
    ) -> Option<(ProcessId, RequestId)> {
        if self.kept.holds.is_empty() || want.opens() {
            return None;
        }
        let found: Vec<_> = if *want == Want::Suspension {
            self.kept.holds.keys().copied().collect()
        } else {
            want.names().iter().flat_map(|name| self.table.holders_of(name)).collect()
        };
        let mut awaited = None;
        for key in found {
            let Some(is_recalled) = self.kept.holds.get_mut(&key) else { continue };
            if !std::mem::replace(is_recalled, true) {
                let (service, request) = (self.service.clone(), key.1);
                cx.send(key.0, ClientMessage::Recall { service, request });
            }
            awaited = Some(key);
        }
        awaited
    }

    /// Recalls the kept locks that a query would tell of. Returns whether an answer is missing.
    pub(super) fn recall_for(&mut self, from: ProcessId, at: &Query, cx: &mut StepContext) -> bool {
        if self.kept.holds.is_empty() {
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

    /// Puts a request in the queue, and recalls the kept locks in its way.
    pub(super) fn queue(
        &mut self,
        key: (ProcessId, RequestId),
        entry: LockRequest,
        cx: &mut StepContext,
    ) -> Result<Ticket, Refusal> {
        self.recall(&entry.want, cx);
        self.table.queue(key, entry)
    }

    /// Recalls the kept locks in the way of a try. Returns whether an answer is missing.
    pub(super) fn recalls_for_try(&mut self, entry: &LockRequest, cx: &mut StepContext) -> bool {
        cx.leased && self.recall(&entry.want, cx).is_some()
    }

    /// A try waits for the answer to a recall.
    pub(super) fn put_off_try(&mut self, asked: ReceivedRequest) {
        self.kept.tries.push(asked);
    }

    /// A kept lock is kept no longer: tries that waited for that are answered.
    pub(super) fn end_kept(&mut self, key: (ProcessId, RequestId), cx: &mut StepContext) {
        if self.kept.holds.remove(&key).is_none() {
            return;
        }
        for asked in std::mem::take(&mut self.kept.tries) {
            self.on_request_lock(asked, cx);
        }
    }

    /// A member uses a lock that it kept: that request holds in place of the one that was granted.
    pub(crate) fn on_keep_in_use(
        &mut self,
        key: (ProcessId, RequestId),
        by: RequestId,
        (owner, token): (OwnerId, Token),
        cx: &mut StepContext,
    ) {
        if self.is_acting() {
            self.table.replace(key, by, (owner, token));
            self.end_kept(key, cx);
            self.grant(cx);
        }
    }
}
