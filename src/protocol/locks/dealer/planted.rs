//! Planted breaks of a dealer, see `mutant.rs`.

use super::Dealer;
use crate::protocol::id::{Slot, Token};
use crate::protocol::message::TokenRange;
use crate::protocol::mutant::ProtocolMutant;

impl Dealer {
    /// Deals without a limit.
    pub(crate) fn without_limit(mut self, mutant: Option<ProtocolMutant>) -> Dealer {
        if ProtocolMutant::DealBeyondLimit.is_planted(mutant) {
            self.founded = Slot::MAX;
        }
        self
    }

    /// Deals this range a second time.
    pub(crate) fn deal_again(&mut self, range: TokenRange) {
        self.next = range.first;
    }

    /// Deals tokens of the next view, which this elder does not have yet.
    pub(crate) fn deal_in_next(&mut self) {
        self.next = Token::new(self.end.plus(Slot::TOKENS - 1).slot(), 0);
        self.end = self.next.plus(Slot::TOKENS);
    }
}
