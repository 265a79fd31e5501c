//! `MemberSlot`: the member of a view, which may not exist yet.

use super::last_events::{LastEvents, ShownEvent};
use crate::service::member::Member;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The member that a view shows: that of the latest join.
pub(in crate::service) struct MemberSlot(Mutex<SlotState>);

struct SlotState {
    /// The number of the latest join. Zero: no join has begun.
    latest: u64,
    content: SlotContent,
}

enum SlotContent {
    /// The member has no identity yet: it binds its address, or opens its data directory.
    Starting,
    /// The member joins, or has joined.
    There(Member, LastEvents),
    /// The join has failed or was cancelled.
    Over,
}

/// A join whose member a view shows. Dropping this removes the member from its view: a view keeps
/// no member whose join has failed or was cancelled. The member of a later join stays.
pub(in crate::service) struct ShownJoin {
    slot: Arc<MemberSlot>,
    ordinal: u64,
    is_kept: bool,
}

impl MemberSlot {
    /// The slot of a member that does not exist yet.
    pub(in crate::service) fn starting() -> Arc<MemberSlot> {
        MemberSlot::with(SlotContent::Starting)
    }

    /// The slot of this member, with its events from now on.
    pub(super) fn of(member: &Member) -> Arc<MemberSlot> {
        MemberSlot::with(SlotContent::there(member))
    }

    fn with(content: SlotContent) -> Arc<MemberSlot> {
        Arc::new(MemberSlot(Mutex::new(SlotState { latest: 0, content })))
    }

    /// Shows a join that begins, in place of any earlier one.
    pub(in crate::service) fn begin(self: Arc<Self>) -> ShownJoin {
        let mut state = self.lock();
        state.latest += 1;
        let ordinal = state.latest;
        let before = std::mem::replace(&mut state.content, SlotContent::Starting);
        drop(state);
        // The value is dropped without the lock: dropping the last handle of a member makes it
        // leave.
        drop(before);
        ShownJoin { slot: self, ordinal, is_kept: false }
    }

    /// The member. `Err`: why there is none.
    pub(super) fn member(&self) -> Result<Member, NoMember> {
        match &self.lock().content {
            SlotContent::There(member, _) => Ok(member.clone()),
            SlotContent::Starting => Err(NoMember::Starting),
            SlotContent::Over => Err(NoMember::Over),
        }
    }

    /// The last events, the latest first.
    pub(super) fn last_events(&self) -> Vec<ShownEvent> {
        match &mut self.lock().content {
            SlotContent::There(member, events) => events.catch_up(member),
            SlotContent::Starting | SlotContent::Over => Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a slot has no member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoMember {
    /// The join has begun, without an identity of the member so far.
    Starting,
    /// The join has failed or was cancelled.
    Over,
}

impl SlotContent {
    fn there(member: &Member) -> SlotContent {
        SlotContent::There(member.clone(), LastEvents::of(member))
    }
}

impl ShownJoin {
    /// Shows this member, unless a later join has begun.
    pub(in crate::service) fn fill(&self, member: &Member) {
        self.set(SlotContent::there(member));
    }

    /// Keeps the member in the view: it has joined.
    pub(in crate::service) fn keep(mut self) {
        self.is_kept = true;
    }

    fn set(&self, mut content: SlotContent) {
        let mut state = self.slot.lock();
        if state.latest == self.ordinal {
            std::mem::swap(&mut state.content, &mut content);
        }
        drop(state);
        // The value is dropped without the lock: dropping the last handle of a member makes it
        // leave.
        drop(content);
    }
}

impl Drop for ShownJoin {
    fn drop(&mut self) {
        if !self.is_kept {
            self.set(SlotContent::Over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_shows_the_join_that_began_last() {
        let slot = MemberSlot::starting();
        let [first, second] =
            [Member::local().await.expect("it joins"), Member::local().await.expect("so does it")];
        let shown = || slot.member().map(|member| member.process());
        let earlier = slot.clone().begin();
        earlier.fill(&first);
        assert_eq!(shown(), Ok(first.process()));

        let later = slot.clone().begin();
        assert_eq!(shown(), Err(NoMember::Starting));
        earlier.fill(&first);
        assert_eq!(shown(), Err(NoMember::Starting));
        later.fill(&second);
        drop(earlier);
        assert_eq!(shown(), Ok(second.process()));
        later.keep();
        assert_eq!(shown(), Ok(second.process()));

        // A join without a member removes the earlier member from the view too.
        drop(slot.clone().begin());
        assert_eq!(shown(), Err(NoMember::Over));
    }
}
