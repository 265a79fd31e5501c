//! Dealing tokens: the next token that an elder deals in its view, and the last one that it may
//! deal.
//!
//! ```text
//! slots:   | founded ...          | view: first_slot ... end_slot | the next view's ...
//! dealt:   | ranges of grantors, each once ... next -> ... limit  |
//! ```
//! - A view has slots of its own, agreed with it, and no range leaves them. So no token is dealt in
//!   two views, and no member needs to know the tokens of the view before.
//! - No slot is dealt beyond the **limit**: the elder's own clock and a second. A founding begins
//!   above its own clock and a second, so above all earlier tokens, if the clocks agree. An elder
//!   whose clock is behind would have to wait until the clock has caught up. Therefore it may also
//!   deal as time passes, counted from the slot at which it joined the lineage. Ranges wait for the
//!   limit, views never do.

#[cfg(elderlock_mutants)]
mod planted;

use crate::protocol::cluster::view::View;
use crate::protocol::id::{MAX_PERMITS, Slot, Token};
use crate::protocol::limits::Limits;
use crate::protocol::message::TokenRange;
use crate::protocol::time::{Time, WallClock};
use std::time::Duration;

/// The distance above its own clock up to which an elder deals, and at which a founding begins.
pub(crate) const AHEAD: u64 = Slot::count(Duration::from_secs(1));

/// The tokens that an elder may deal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Dealer {
    clock: WallClock,
    limits: Limits,
    /// A clock that starts at the slot before this process's first view.
    pace: WallClock,
    founded: Slot,
    /// The lowest token that is not dealt yet.
    next: Token,
    /// The end of the tokens of this view, exclusive.
    end: Token,
    /// Whether the view's tokens end at its last slot, and not earlier at the most that one elder
    /// deals in a view.
    is_whole: bool,
}

impl Dealer {
    pub(crate) fn new(
        (clock, pace): (WallClock, WallClock),
        view: &View,
        limits: Limits,
    ) -> Dealer {
        let first = view.first_token();
        let founded = view.lineage.founded;
        let mut dealer =
            Dealer { clock, limits, pace, founded, next: first, end: first, is_whole: true };
        dealer.on_view(view);
        dealer
    }

    /// Starts with the tokens of a new view of the same elder.
    pub(crate) fn on_view(&mut self, view: &View) {
        let first = view.first_token();
        let most = u64::from(self.limits.view_tokens).max(2 * self.least());
        let all = u64::from(view.slots) * Slot::TOKENS;
        self.next = first;
        self.is_whole = all <= most.saturating_add(1);
        self.end = first.plus(if self.is_whole { all } else { most });
    }

    /// Returns whether all slots of the view are used up. `false` if only the most that an elder
    /// deals in a view is.
    pub(crate) fn wants_more_slots(&self) -> bool {
        self.is_whole && self.is_exhausted()
    }

    /// Returns whether the view's tokens are used up: the elder then makes a new view.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.end.get() < self.next.get() + self.least()
    }

    /// Returns `Ok` if a range may be dealt. Otherwise returns the time from which it may be;
    /// `None`: not before the next view.
    pub(crate) fn may_deal(&self, now: Time) -> Result<(), Option<Time>> {
        if self.is_exhausted() {
            return Err(None);
        }
        if self.room(now) < self.least() {
            let slot = self.next.plus(self.least() - 1).slot();
            let by_clock = self.clock.time_of(Slot(slot.0.saturating_sub(AHEAD)));
            return Err(Some(by_clock.min(self.pace.time_of(slot))));
        }
        Ok(())
    }

    /// Deals about `count` tokens: fewer at the end of the view, or at the limit. Call it only if
    /// the dealer [may deal](Dealer::may_deal).
    pub(crate) fn deal(&mut self, now: Time, count: u64) -> TokenRange {
        let longest = u64::from(self.limits.max_range.max(MAX_PERMITS)).min(self.room(now));
        let count = count.clamp(self.least().min(longest), longest).max(1);
        let range = TokenRange { first: self.next, last: self.next.plus(count - 1) };
        self.next = self.next.plus(count);
        range
    }

    /// The last slot that may be dealt.
    fn limit(&self, now: Time) -> Slot {
        let by_clock = self.clock.slot(now).plus(AHEAD);
        // The pace has no second on top, since each takeover would add one. A lineage's first slot
        // is above all tokens of earlier lineages.
        by_clock.max(self.pace.slot(now)).max(self.founded)
    }

    /// The number of tokens up to the limit.
    fn room(&self, now: Time) -> u64 {
        let open = Token::new(Slot(self.limit(now).0 + 1), 0);
        self.end.min(open).get().saturating_sub(self.next.get())
    }

    /// The smallest range that is worth a message.
    fn least(&self) -> u64 {
        u64::from(self.limits.first_range)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cluster::view::{Change, MAX_SLOTS};
    use super::super::super::id::{MemberInfo, ProcessId};
    use super::super::super::timing::Timing;
    use super::*;

    const LIMITS: Limits = Limits::DEFAULT;

    fn founded_at(slot: u64) -> View {
        let me = MemberInfo::new(ProcessId(1), ([127, 0, 0, 1], 7400).into());
        View::first(Slot(slot), vec![me], Timing::fast(), 7)
    }

    fn at(slots: u64) -> Time {
        Time::from_nanos(1_000_000_000) + Slot::span(slots)
    }

    /// An elder whose clock shows `showed` when the view begins.
    fn elder(showed: u64, view: &View) -> Dealer {
        Dealer::new(
            (WallClock::new(at(0), Slot(showed)), WallClock::pace(at(0), view.first_slot)),
            view,
            LIMITS,
        )
    }

    fn later(view: &View) -> View {
        let change = Change { remove: [ProcessId(9)].into(), ..Change::default() };
        view.next(&change)
    }

    #[test]
    fn founders_deal_in_their_first_slot_at_once_and_in_the_next_view_when_its_slot_has_come() {
        let view = founded_at(10_000 + AHEAD + 1);
        let mut dealer = elder(10_000, &view);
        assert_eq!(dealer.may_deal(at(0)), Ok(()));
        let range = dealer.deal(at(0), 1);
        assert_eq!((range.first, range.len()), (view.first_token(), u64::from(LIMITS.first_range)));
        dealer.on_view(&later(&view));
        assert_eq!(
            dealer.may_deal(at(0)),
            Err(Some(at(2))),
            "the clock and a second come to the first slot at one"
        );
        assert_eq!(dealer.may_deal(at(2)), Ok(()));
        assert!(dealer.deal(at(2), 1).first > range.last);
    }

    #[test]
    fn no_slot_is_dealt_beyond_the_clock_and_a_second() {
        // A view with many slots: only the first is not above the clock.
        let view = View { slots: MAX_SLOTS, ..founded_at(5_000) };
        let mut dealer = elder(5_000 - AHEAD, &view);
        dealer.founded = Slot(1);
        let range = dealer.deal(at(0), u64::MAX);
        assert_eq!(
            range.last,
            Token::new(Slot(5_000), Slot::TOKENS as u32 - 1),
            "the last token of the limit"
        );
        assert_eq!(dealer.may_deal(at(0)), Err(Some(at(1))));
        let just_before = Time::from_nanos(at(1).as_nanos() - 1);
        assert!(dealer.may_deal(just_before).is_err());
        assert_eq!(dealer.may_deal(at(1)), Ok(()));
    }

    #[test]
    fn elders_whose_clock_is_far_behind_deal_at_the_pace_of_time_from_their_view_on() {
        let view = later(&founded_at(5_000_000));
        let mut dealer = elder(1, &view);
        assert_eq!(dealer.may_deal(at(0)), Err(Some(at(1))));
        assert_eq!(dealer.deal(at(1), u64::MAX).last.slot(), view.first_slot);
        // Views that follow each other faster than time keep within their slots, too.
        let far = (0..1000).fold(view.clone(), |view, _| later(&view));
        dealer.on_view(&far);
        assert_eq!(dealer.may_deal(at(1)), Err(Some(at(1001))));
        assert_eq!(dealer.deal(at(1001), 1).first, far.first_token());
    }

    #[test]
    fn views_that_are_used_up_are_followed_by_longer_ones_and_all_others_by_shorter_ones() {
        let mut view = founded_at(1);
        let exhausted = Change { longer: true, ..Change::default() };
        for slots in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            let next = view.next(&exhausted);
            assert_eq!((next.slots, next.first_slot), (slots, view.end_slot()));
            view = next;
        }
        for slots in [512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1] {
            view = later(&view);
            assert_eq!(view.slots, slots);
        }
    }

    #[test]
    fn a_view_is_used_up_at_the_edge_of_its_tokens() {
        let view = founded_at(AHEAD + 1);
        let mut dealer = elder(0, &view);
        let ranges = Slot::TOKENS / u64::from(LIMITS.first_range);
        for number in 0..ranges {
            assert!(!dealer.is_exhausted(), "{number}");
            dealer.deal(at(0), 1);
        }
        assert!(dealer.is_exhausted());
        assert_eq!(dealer.may_deal(at(9_999)), Err(None));
        let last = TokenRange { first: dealer.next, last: dealer.next };
        assert_eq!(last.first, view.next(&Change::default()).first_token());
    }

    /// A view takes a slot, and a second has 2,048.
    #[test]
    fn a_second_has_room_for_2048_views_and_the_next_view_waits_for_one_slot() {
        let mut view = founded_at(AHEAD + 1);
        let mut dealer = elder(0, &view);
        let mut last = Token::new(Slot(0), 0);
        for slot in 1..=2_048 {
            assert_eq!(dealer.may_deal(at(slot)), Ok(()), "view {slot}");
            let range = dealer.deal(at(slot), 1);
            assert!(range.first > last, "view {slot}");
            last = range.last;
            view = later(&view);
            dealer.on_view(&view);
        }
        let second = at(0) + Duration::from_secs(1);
        assert_eq!(at(2_048), second);
        assert_eq!(dealer.may_deal(second), Err(Some(at(2_049))));
        assert_eq!(dealer.may_deal(at(2_049)), Ok(()));
    }

    /// A slot has 1,024 first ranges, and a second has 2,048 slots.
    #[test]
    fn a_second_has_room_for_2_million_first_ranges_and_the_next_range_waits_for_one_slot() {
        let mut view = founded_at(AHEAD + 1);
        let mut dealer = elder(0, &view);
        let mut next = view.first_token();
        for slot in 1..=2_048 {
            for number in 0..1_024 {
                if dealer.may_deal(at(slot)) == Err(None) {
                    assert!(dealer.wants_more_slots(), "slot {slot}, range {number}");
                    view = view.next(&Change { longer: true, ..Change::default() });
                    dealer.on_view(&view);
                }
                assert_eq!(dealer.may_deal(at(slot)), Ok(()), "slot {slot}, range {number}");
                let range = dealer.deal(at(slot), 1);
                assert_eq!((range.first, range.len()), (next, u64::from(LIMITS.first_range)));
                next = range.last.plus(1);
            }
        }
        assert_eq!(dealer.may_deal(at(2_048)), Err(Some(at(2_049))));
        assert_eq!(dealer.may_deal(at(2_049)), Ok(()));
    }

    #[test]
    fn the_last_slot_of_all_is_no_views() {
        let last = View { first_slot: Slot(Slot::MAX.0 - 2), ..founded_at(1) };
        assert!(last.is_sound());
        assert!(
            !last.next(&Change::default()).is_sound(),
            "it would have to be refused, and nothing overflows"
        );
        assert!(Token::new(Slot::MAX, Slot::TOKENS as u32 - 1).as_i64() == i64::MAX);
        let years = Slot::MAX.0 / Slot::PER_SECOND / (365 * 24 * 3600);
        assert_eq!(years, 34);
    }

    #[test]
    fn slots_are_as_long_as_the_spans_that_hold_them() {
        for slots in [0, 1, 2, 1023, 2047, 2048, 2049, 1 << 30, Slot::MAX.0] {
            let span = Slot::span(slots);
            assert_eq!(Slot::count(span), slots);
            assert!(slots == 0 || Slot::count(span - Duration::from_nanos(1)) == slots - 1);
        }
    }

    #[test]
    fn a_clock_refuses_what_is_more_than_an_hour_ahead() {
        let clock = WallClock::new(at(0), Slot(7));
        let hour = Slot::count(Duration::from_secs(3600));
        assert!(clock.check(at(0), Slot(7 + hour)).is_ok());
        assert!(clock.check(at(0), Slot(8 + hour)).is_err());
        assert!(clock.check(at(1), Slot(8 + hour)).is_ok());
    }
}
