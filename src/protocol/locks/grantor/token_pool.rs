//! The tokens that a grantor has left, and the time at which it asks the elder for more.
//!
//! The pool asks for more when half of the number that it last asked for is left. It asks for twice
//! as many if the last range was used up within a member lease. So in the long run the remaining
//! half lasts for half a member lease. During that time the grantor can continue while another
//! elder takes over from a dead one.

use crate::protocol::id::Token;
use crate::protocol::message::TokenRange;
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The tokens that the grantor can grant with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct TokenPool {
    pub(super) ranges: VecDeque<TokenRange>,
    /// The last token of the newest range, which may be used up.
    pub(super) newest: Token,
    /// Whether the grantor has asked for more tokens and has not got them yet.
    pub(super) asked: bool,
    /// The number of tokens that the pool asks for at a time.
    size: u32,
    /// The time at which the pool had `size` tokens; `None`: it has had fewer since it asked.
    filled_at: Option<Time>,
}

impl TokenPool {
    /// The pool of a new epoch. The first token of the range names the epoch and is never granted.
    pub(super) fn new(range: TokenRange, now: Time) -> TokenPool {
        let size = u32::try_from(range.len()).unwrap_or(u32::MAX);
        let newest = range.last;
        let ranges = VecDeque::from([range]);
        let mut pool = TokenPool { ranges, newest, asked: false, size, filled_at: Some(now) };
        pool.take(1);
        pool
    }

    pub(super) fn left(&self) -> u64 {
        self.ranges.iter().map(TokenRange::len).sum()
    }

    /// Returns whether the pool has `count` tokens in a row.
    pub(super) fn has(&self, count: u32) -> bool {
        self.ranges.iter().any(|range| range.len() >= u64::from(count))
    }

    /// Takes `count` tokens in a row and returns the first of them. Ranges that are too short are
    /// dropped.
    pub(super) fn take(&mut self, count: u32) -> Option<Token> {
        if !self.has(count) {
            return None;
        }
        let count = u64::from(count);
        while self.ranges.front().is_some_and(|range| range.len() < count) {
            self.ranges.pop_front();
        }
        let range = self.ranges.front_mut()?;
        let token = range.first;
        if range.len() == count {
            self.ranges.pop_front();
        } else {
            range.first = token.plus(count);
        }
        Some(token)
    }

    /// The number of tokens in a row that may be used before the pool asks for more.
    pub(super) fn spare(&self) -> u64 {
        let spare = self.left().saturating_sub(self.low());
        self.ranges.front().map_or(0, TokenRange::len).min(spare)
    }

    /// Adds a range of tokens.
    pub(super) fn add(&mut self, range: TokenRange, now: Time) {
        self.newest = range.last;
        self.ranges.push_back(range);
        // If short ranges fill the pool only just above the limit of asking, it asks again after
        // one more token. That says nothing about the rate of use.
        if self.left() >= u64::from(self.size) {
            self.filled_at = Some(now);
        }
    }

    /// The number of tokens to ask the elder for now, if any. `wanted`: the number in a row that a
    /// waiting request needs.
    pub(super) fn ask(&mut self, wanted: u32, cx: &StepContext) -> Option<u32> {
        let is_short = wanted > 0 && !self.has(wanted);
        if self.asked || (self.left() >= self.low().max(1) && !is_short) {
            return None;
        }
        self.asked = true;
        Some(self.next_size(cx.now, cx.timing.member_lease, cx.limits.max_range).max(wanted))
    }

    fn next_size(&mut self, now: Time, lease: Duration, most: u32) -> u32 {
        // A pool that is short only of tokens in a row keeps its size.
        if self.left() < self.low().max(1)
            && self.filled_at.take().is_some_and(|at| now < at + lease)
        {
            self.size = self.size.saturating_mul(2).min(most);
        }
        self.size
    }

    /// Returns the number of tokens below which the pool asks for more.
    fn low(&self) -> u64 {
        u64::from(self.size / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::id::Slot;
    use super::super::super::super::limits::Limits;
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);
    const LIMITS: Limits = Limits::DEFAULT;

    fn range(first: Token, count: u64) -> TokenRange {
        TokenRange { first, last: first.plus(count - 1) }
    }

    /// Grants `rate` tokens a second, for some leases with an elder that answers at once, then
    /// without one. Returns how often the pool asked, and how long the remaining tokens last.
    fn saturate(rate: u64) -> (u32, Duration) {
        let mut now = Time::from_nanos(1);
        let mut next = Token::new(Slot(1), 0);
        let mut pool = TokenPool::new(range(next, u64::from(LIMITS.first_range)), now);
        let (mut asked, mut shortest) = (0, Duration::MAX);
        let steps = 40 * LEASE.as_millis() as u64;
        for _ in 0..steps {
            now = now + Duration::from_millis(1);
            let mut due = rate / 1_000;
            while due > 0 {
                let count = due.min(pool.left()).min(1 << 30) as u32;
                let count = count.min(pool.ranges.front().map_or(0, |range| range.len() as u32));
                pool.take(count).expect("it asks in time");
                due -= u64::from(count);
                if pool.left() < pool.low().max(1) {
                    let count = u64::from(pool.next_size(now, LEASE, LIMITS.max_range));
                    next = next.plus(1 << 30);
                    pool.add(range(next, count), now);
                    asked += 1;
                }
            }
            // While the ranges still grow, they last for less.
            if now > Time::from_nanos(1) + LEASE * 4 {
                let left = pool.left().saturating_mul(1_000_000) / rate;
                shortest = shortest.min(Duration::from_micros(left));
            }
        }
        (asked, shortest)
    }

    /// The figure in docs/protocol/elder.md.
    #[test]
    fn saturated_grantors_have_tokens_for_half_a_member_lease_whenever_the_elder_dies() {
        for rate in [10_000, 1_000_000, 12_000_000] {
            let (asked, shortest) = saturate(rate);
            assert!(shortest >= LEASE / 2, "{rate} a second: {shortest:?}");
            assert!(asked < 70, "{rate} a second: asked {asked} times in two hundred seconds");
        }
        let (_, shortest) = saturate(24_000_000);
        assert!(shortest < LEASE / 2, "beyond that the longest range is the bound: {shortest:?}");
    }

    #[test]
    fn quiet_grantors_ask_for_no_more_than_at_first() {
        let first = u64::from(LIMITS.first_range);
        let mut now = Time::from_nanos(1);
        let mut pool = TokenPool::new(range(Token::new(Slot(1), 0), first), now);
        for round in 2..9 {
            pool.take(pool.left() as u32 - 1);
            now = now + LEASE;
            assert_eq!(u64::from(pool.next_size(now, LEASE, LIMITS.max_range)), first);
            pool.add(range(Token::new(Slot(round), 0), first), now);
        }
    }

    /// An elder whose view is nearly used up, or whose clock is behind, deals fewer tokens than
    /// asked for.
    #[test]
    fn ranges_that_are_shorter_than_asked_for_do_not_make_the_pool_ask_for_more() {
        let mut now = Time::from_nanos(1);
        let (first, short) = (LIMITS.first_range, u64::from(LIMITS.first_range) / 8);
        let mut next = Token::new(Slot(1), 0);
        let mut pool = TokenPool::new(range(next, u64::from(first)), now);
        for _ in 0..20_000 {
            now = now + Duration::from_millis(1);
            pool.take(1);
            while pool.left() < pool.low() {
                next = next.plus(1 << 20);
                pool.next_size(now, LEASE, LIMITS.max_range);
                pool.add(range(next, short), now);
            }
        }
        pool.take(pool.left() as u32 / 2);
        assert!(pool.size <= 2 * first, "it asks for {} at a time", pool.size);
    }

    #[test]
    fn tokens_in_a_row_are_of_one_range() {
        let mut pool = TokenPool::new(range(Token::new(Slot(1), 0), 4), Time::ZERO);
        assert_eq!((pool.left(), pool.has(3), pool.has(4)), (3, true, false));
        pool.add(range(Token::new(Slot(2), 7), 5), Time::ZERO);
        assert_eq!(pool.take(2), Some(Token::new(Slot(1), 1)));
        assert_eq!(
            pool.take(5),
            Some(Token::new(Slot(2), 7)),
            "the rest of the first range is lost"
        );
        assert_eq!((pool.take(1), pool.left()), (None, 0));
    }
}
