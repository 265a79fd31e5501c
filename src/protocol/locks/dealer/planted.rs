//! Planted breaks of a dealer, see `mutant.rs`.

use super::Dealer;
use crate::protocol::id::{Slot, Token};
use crate::protocol::message::TokenRange;
use crate::protocol::mutant::ProtocolMutant;

impl Dealer {
    /// No range waits for the limit.
    pub(crate) fn without_limit(mut self, mutant: Option<ProtocolMutant>) -> Dealer {
        if ProtocolMutant::DealBeyondLimit.is_planted(mutant) {
            self.founded = Slot::MAX;
        }
        self
    }

    /// The next range is this range again.
    pub(crate) fn deal_again(&mut self, range: TokenRange) {
        self.next = range.first;
    }

    /// Goes on with the tokens of a view that this elder has only heard of.
    pub(crate) fn deal_in_next(&mut self) {
        self.next = Token::new(self.end.plus(Slot::TOKENS - 1).slot(), 0);
        self.end = self.next.plus(Slot::TOKENS);
    }
}
