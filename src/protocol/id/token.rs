//! Fencing tokens and their slots, and the epochs and tickets that are numbered by tokens.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The high part of a [`Token`]: 1/2048 of a second, counted from 2026-01-01. It has 41 bits, which
/// last until 2060.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Slot(pub u64);

impl Slot {
    /// Slots in a second.
    pub const PER_SECOND: u64 = 2048;
    /// The last slot.
    pub const MAX: Slot = Slot((1 << 41) - 1);
    /// The number of tokens in one slot.
    pub const TOKENS: u64 = 1 << 22;

    /// The slot this many slots later, but not after the last one.
    pub const fn plus(self, slots: u64) -> Slot {
        let sum = self.0.saturating_add(slots);
        if sum > Slot::MAX.0 { Slot::MAX } else { Slot(sum) }
    }

    /// The number of whole slots in `span`.
    pub const fn count(span: Duration) -> u64 {
        let fraction = span.subsec_nanos() as u64 * Slot::PER_SECOND / 1_000_000_000;
        span.as_secs().saturating_mul(Slot::PER_SECOND).saturating_add(fraction)
    }

    /// The shortest span that has this many slots.
    pub const fn span(slots: u64) -> Duration {
        let nanos = (slots % Slot::PER_SECOND * 1_000_000_000).div_ceil(Slot::PER_SECOND);
        Duration::new(slots / Slot::PER_SECOND, nanos as u32)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// A fencing token: a positive number that fits a SQL `BIGINT`. No token is dealt twice in one
/// lineage. A token is higher than that of each grant from which a chain of messages leads to its
/// own.
///
/// The high 41 bits are its [`Slot`], the low 22 bits count within the slot.
///
/// In JSON and other text formats it is a string of decimal digits: many readers would change a
/// number above 2^53. A number is accepted as well. Binary formats have the number.
///
/// ```
/// use elderlock::Token;
/// let token = Token::try_from(4294967303_i64)?;
/// assert_eq!(token.to_string(), "4294967303");
/// assert_eq!("4294967303".parse(), Ok(token));
/// assert_eq!(i64::from(token), 4294967303);
/// let error = Token::try_from(0).unwrap_err();
/// let text = "a token is a whole number from 1 to 9223372036854775807, not 0";
/// assert_eq!(error.to_string(), text);
/// # Ok::<(), elderlock::InvalidToken>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token number `within` of a slot.
    pub const fn new(slot: Slot, within: u32) -> Self {
        Token(slot.0 * Slot::TOKENS + within as u64)
    }

    /// The token that [`as_i64`](Token::as_i64) returned. `None`: the number is no token.
    pub const fn from_i64(number: i64) -> Option<Self> {
        if number > 0 { Some(Token(number as u64)) } else { None }
    }

    /// The token as an unsigned integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token as a signed integer, for SQL `BIGINT` columns. Always positive.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// Returns the slot in which the token was dealt.
    pub const fn slot(self) -> Slot {
        Slot(self.0 / Slot::TOKENS)
    }

    /// Returns the number of the token within its slot.
    pub const fn within(self) -> u32 {
        (self.0 % Slot::TOKENS) as u32
    }

    /// The token with the bits that [`get`](Token::get) returned.
    #[cfg(feature = "tokio")]
    pub(crate) const fn from_bits(bits: u64) -> Token {
        Token(bits)
    }

    /// The token `count` numbers after this one: permits and batches have consecutive tokens.
    pub const fn plus(self, count: u64) -> Token {
        Token(self.0.saturating_add(count))
    }
}

impl TryFrom<i64> for Token {
    type Error = InvalidToken;

    /// The token that [`as_i64`](Token::as_i64) returned.
    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        Token::from_i64(number).ok_or_else(|| InvalidToken { text: number.to_string() })
    }
}

impl From<Token> for i64 {
    fn from(token: Token) -> i64 {
        token.as_i64()
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    /// Reads the decimal digits that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        // `parse` alone would accept a sign.
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_digits.then(|| text.parse().ok()).flatten();
        number.and_then(Token::from_i64).ok_or_else(|| InvalidToken { text: shortened(text) })
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        serializer.serialize_newtype_struct("Token", &self.0)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenVisitor;
        impl Visitor<'_> for TokenVisitor {
            type Value = Token;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token as a string of decimal digits")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Token, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Token, E> {
                Token::try_from(number).map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Token, E> {
                let invalid = || E::custom(InvalidToken { text: number.to_string() });
                i64::try_from(number).ok().and_then(Token::from_i64).ok_or_else(invalid)
            }
        }
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(TokenVisitor);
        }
        // Members also send numbers that are not tokens of users: zero, and the complements in
        // tickets.
        u64::deserialize(deserializer).map(Token)
    }
}

/// A number or a text that is not a [`Token`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a token is a whole number from 1 to {}, not {text}", i64::MAX)]
#[non_exhaustive]
pub struct InvalidToken {
    /// The given text, at most its first 40 characters.
    pub text: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.slot(), self.within())
    }
}

/// One grantor's period for one service: the first token of the first range that the elder dealt to
/// it.
///
/// Epochs of a service rise, and an epoch that has ended is never named again. Displayed as the
/// token, as all JSON has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub Token);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.{}", self.0.slot(), self.0.within())
    }
}

/// A waiter's position. Tickets of one service are served in this order, also by later grantors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// The epoch in which the position was acknowledged. A request that passes a suspension has
    /// none: its position is before those of all epochs.
    pub epoch: Epoch,
    /// The order of arrival in that epoch.
    pub number: u64,
}

impl Ticket {
    /// The position of the `pass`-th request to pass a suspension that is held with this token. It
    /// is before all tickets of any epoch, and before those of suspensions that were held earlier.
    pub(crate) fn in_front(token: Token, pass: u64) -> Ticket {
        // As a signed number the complement of a token is negative, and lower for a higher token.
        Ticket { epoch: Epoch(Token(!token.get())), number: pass }
    }

    /// Returns whether the position is before those of all epochs.
    pub(crate) fn is_in_front(self) -> bool {
        self.epoch.0.as_i64() < 0
    }
}

impl Ord for Ticket {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.epoch.0.as_i64(), self.number).cmp(&(other.epoch.0.as_i64(), other.number))
    }
}

impl PartialOrd for Ticket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.epoch, self.number)
    }
}

/// The part of a text from outside that an error shows.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
