//! Lineages and the numbers of their views.

use super::process::ProcessId;
use super::token::{Slot, shortened};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The number of a view. The first view of a lineage has the number of its founding slot; 0 stands
/// for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ViewNumber(pub u64);

impl ViewNumber {
    /// The number after this one.
    pub fn next(self) -> ViewNumber {
        ViewNumber(self.0 + 1)
    }
}

impl fmt::Display for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The identity of a lineage: 64 of the random bits of its founder's id. Displayed as 16
/// hexadecimal digits.
///
/// In JSON and other text formats it is the string that [`Display`](fmt::Display) writes: many
/// readers would change a number above 2^53. Binary formats have the number.
///
/// ```
/// use elderlock::LineageId;
/// let lineage = LineageId::from_i64(-3);
/// assert_eq!(lineage.to_string(), "fffffffffffffffd");
/// assert_eq!("fffffffffffffffd".parse(), Ok(lineage));
/// assert_eq!(LineageId::from_be_bytes(lineage.to_be_bytes()), lineage);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineageId(pub u64);

impl LineageId {
    /// Returns the same bits as a signed integer, for SQL `BIGINT` columns. Half of these are
    /// negative, and their order has no meaning.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// The lineage that [`as_i64`](LineageId::as_i64) returned.
    pub const fn from_i64(number: i64) -> Self {
        LineageId(number as u64)
    }

    /// The 8 bytes, most significant first.
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The lineage that [`to_be_bytes`](LineageId::to_be_bytes) returned.
    pub const fn from_be_bytes(bytes: [u8; 8]) -> Self {
        LineageId(u64::from_be_bytes(bytes))
    }
}

impl From<i64> for LineageId {
    fn from(number: i64) -> Self {
        LineageId::from_i64(number)
    }
}

impl FromStr for LineageId {
    type Err = InvalidLineage;

    /// Reads the 16 hexadecimal digits that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, InvalidLineage> {
        let is_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(LineageId).ok_or_else(|| InvalidLineage { text: shortened(text) })
    }
}

impl Serialize for LineageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        serializer.serialize_newtype_struct("LineageId", &self.0)
    }
}

impl<'de> Deserialize<'de> for LineageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
            return text.parse().map_err(D::Error::custom);
        }
        u64::deserialize(deserializer).map(LineageId)
    }
}

/// A text that is not a [`LineageId`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a lineage has 16 hexadecimal digits, as its Display writes them, not {text:?}")]
#[non_exhaustive]
pub struct InvalidLineage {
    /// The text, at most its first 40 characters.
    pub text: String,
}

impl fmt::Display for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All views that follow one founding. Of two lineages the later founded one is the higher.
/// Displayed as its [`id`](Lineage::id), which guards and all JSON have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lineage {
    /// The first slot of the lineage's first view.
    pub founded: Slot,
    /// The process that proposed the lineage's first view.
    pub founder: ProcessId,
}

impl Lineage {
    /// Returns the random bits of the lineage: a process founds once.
    pub const fn id(self) -> LineageId {
        LineageId((self.founder.0 >> 64) as u64 ^ self.founder.0 as u64)
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id())
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.founder, self.founded)
    }
}
