//! `MemberSlot`: the member of a view, which may not be there yet.

use super::last_events::{LastEvents, ShownEvent};
use crate::service::member::Member;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The member that a view shows: that of the join that began last.
pub(in crate::service) struct MemberSlot(Mutex<SlotState>);

struct SlotState {
    /// The ordinal of the join that began last. Zero: none has begun.
    latest: u64,
    content: SlotContent,
}

enum SlotContent {
    /// It has no identity yet: it binds its address, or opens its data directory.
    Starting,
    /// It joins, or it has joined.
    There(Member, LastEvents),
    /// It has not become a member.
    Over,
}

/// A join whose member a view shows. Dropping this takes the member out of its view: a view keeps
/// no member whose join has failed or was given up. A join that began later keeps its own.
pub(in crate::service) struct ShownJoin {
    slot: Arc<MemberSlot>,
    ordinal: u64,
    is_kept: bool,
}

impl MemberSlot {
    /// The slot of a member that is not there yet.
    pub(in crate::service) fn starting() -> Arc<MemberSlot> {
        MemberSlot::with(SlotContent::Starting)
    }

    /// The slot of this member. It has the events from now on.
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
        // Without the lock: the last handle of a member leaves.
        drop(before);
        ShownJoin { slot: self, ordinal, is_kept: false }
    }

    /// The member. `Err` says why there is none: whether it is over.
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
    /// It starts.
    Starting,
    /// It has not become a member, and tries no more.
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

    /// The member has joined: the view keeps it.
    pub(in crate::service) fn keep(mut self) {
        self.is_kept = true;
    }

    fn set(&self, mut content: SlotContent) {
        let mut state = self.slot.lock();
        if state.latest == self.ordinal {
            std::mem::swap(&mut state.content, &mut content);
        }
        drop(state);
        // Without the lock: the last handle of a member leaves.
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

        // A join without a member takes the earlier member out of the view too.
        drop(slot.clone().begin());
        assert_eq!(shown(), Err(NoMember::Over));
    }
}
