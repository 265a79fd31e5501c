//! `LoadMeter`: measures whether this member makes most of a service's requests. If so, the member
//! bids for the service.
//!
//! A grantor takes the tokens of its epoch in order. So the distance between two tokens that this
//! member was granted is the number of tokens that all members got meanwhile. No message must carry
//! that number. Tokens that the grantor lost or set aside count as those of other members, which
//! can only delay a move. The tokens of a keep count as this member's, used or not.
//!
//! A bid takes [`WINDOWS`] windows of one epoch. So load moves the grantor of a service at most
//! once in that time.

use crate::protocol::id::{Epoch, Token};
use crate::protocol::time::Time;
use std::time::Duration;

/// The fewest tokens of this member's own in a window. A member that asks less often gains little.
const LEAST: u64 = 16;
/// The number of windows in a row with most of the tokens that lead to a bid.
const WINDOWS: u32 = 3;

/// The least length of a window, which ends with the first grant after that.
pub(super) fn window(member_lease: Duration) -> Duration {
    member_lease / 4
}

/// The tokens that this member and all members got from one grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct LoadMeter {
    pub(super) window: Option<LoadWindow>,
    /// The windows in a row in which this member had most of the tokens.
    most: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LoadWindow {
    epoch: Epoch,
    since: Time,
    /// The first token of the window.
    pub(super) first: Token,
    /// How many tokens of the window are this member's.
    pub(super) own: u64,
}

impl LoadMeter {
    /// Measures a grant of another member: `count` tokens from `token` on, in its `epoch`. `length`
    /// is the least length of a window. Returns whether this member should bid.
    pub(super) fn granted(
        &mut self,
        epoch: Epoch,
        (token, count): (Token, u64),
        now: Time,
        length: Duration,
    ) -> bool {
        let next = token.plus(count);
        let begun = LoadWindow { epoch, since: now, first: next, own: 0 };
        let Some(window) = self.window.as_mut().filter(|window| window.epoch == epoch) else {
            *self = LoadMeter { window: Some(begun), most: 0 };
            return false;
        };
        // A grantor repeats the grants of a table that it took over, with their older tokens.
        if token >= window.first {
            window.own += count;
        }
        if now < window.since + length {
            return false;
        }
        let all = next.get().saturating_sub(window.first.get());
        let has_most = window.own >= LEAST && window.own * 3 >= all * 2;
        // Otherwise the window ended long before this grant: the member has paused.
        let is_steady = now < window.since + length * 2;
        self.most = if has_most && is_steady { self.most + 1 } else { 0 };
        self.window = Some(begun);
        let moves = self.most >= WINDOWS;
        if moves {
            self.most = 0;
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::id::Slot;

    const LENGTH: Duration = Duration::from_secs(1);

    /// A member that gets `own` of `all` tokens of each tenth of a second, until it should grant
    /// the service. Returns the number of tenths.
    fn run(meter: &mut LoadMeter, epoch: Epoch, own: u64, all: u64, most: u64) -> Option<u64> {
        let base = Token::new(Slot(1), 0);
        (1..=most).find(|tenth| {
            let now = Time::ZERO + Duration::from_millis(100 * tenth);
            let first = base.plus((tenth - 1) * all);
            // The tokens of other members come first, then its own in a row.
            let mine = first.plus(all - own);
            own > 0 && meter.granted(epoch, (mine, own), now, LENGTH)
        })
    }

    fn epoch(number: u64) -> Epoch {
        Epoch(Token::new(Slot(number), 0))
    }

    #[test]
    fn a_member_with_most_tokens_of_three_windows_asks() {
        let mut meter = LoadMeter::default();
        assert_eq!(run(&mut meter, epoch(1), 10, 10, 100), Some(31), "the first grant begins");
        assert_eq!(run(&mut LoadMeter::default(), epoch(1), 8, 10, 100), Some(31));
    }

    #[test]
    fn a_member_with_less_than_two_thirds_never_asks() {
        assert_eq!(run(&mut LoadMeter::default(), epoch(1), 6, 10, 1_000), None);
        assert_eq!(run(&mut LoadMeter::default(), epoch(1), 1, 2, 1_000), None);
    }

    #[test]
    fn a_member_with_few_requests_never_asks() {
        assert_eq!(run(&mut LoadMeter::default(), epoch(1), 1, 1, 1_000), None);
    }

    #[test]
    fn windows_of_an_earlier_epoch_do_not_count() {
        let mut meter = LoadMeter::default();
        assert_eq!(run(&mut meter, epoch(1), 10, 10, 30), None);
        assert_eq!(run(&mut meter, epoch(2), 10, 10, 100), Some(31));
    }

    #[test]
    fn a_pause_ends_the_row() {
        let mut meter = LoadMeter::default();
        assert_eq!(run(&mut meter, epoch(1), 10, 10, 30), None);
        let (late, token) = (Time::ZERO + Duration::from_secs(6), Token::new(Slot(1), 400));
        assert!(!meter.granted(epoch(1), (token, 20), late, LENGTH), "it has paused");
        assert_eq!(meter.most, 0);
    }
}
