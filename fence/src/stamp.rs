//! `Stamp`: a token and its lineage, as one value that can be sent and stored.

use elderlock::{Fenced, InvalidLineage, InvalidToken, LineageId, Lost, Token, TokenGate};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The token of a grant and the lineage that dealt it. A writer shows it to a resource.
///
/// As text it is `token-lineage`: decimal digits, a hyphen, and 16 hexadecimal digits. A stamp is
/// [`Fenced`], so a program can pass a stamp from a holder in another process to every call of this
/// crate. A stamp does not know whether the hold still exists; the resource decides.
///
/// ```
/// use elderlock_fence::Stamp;
/// let stamp: Stamp = "4294967303-fffffffffffffffd".parse()?;
/// assert_eq!((stamp.token.as_i64(), stamp.lineage.as_i64()), (4294967303, -3));
/// assert_eq!(stamp.to_string(), "4294967303-fffffffffffffffd");
/// # Ok::<(), elderlock_fence::InvalidStamp>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Stamp {
    /// The token.
    pub token: Token,
    /// The lineage of the token.
    pub lineage: LineageId,
}

impl Stamp {
    /// The stamp of a present hold.
    ///
    /// # Errors
    /// [`Lost`]: the hold is over. The call changes nothing.
    pub fn of(holder: &(impl Fenced + ?Sized)) -> Result<Stamp, Lost> {
        Ok(Stamp { token: holder.fence()?, lineage: holder.lineage() })
    }

    /// Returns whether a writer with this stamp may write after the writer with `stored`, as a
    /// [`TokenGate`] decides. A higher token may, and so may an equal stamp.
    pub fn admits_after(self, stored: Stamp) -> bool {
        TokenGate::with_highest(stored.token, stored.lineage)
            .admit(self.token, self.lineage)
            .is_ok()
    }

    /// Refuses this stamp at `resource` if it may not come after the stored stamp, if any.
    #[cfg(any(feature = "files", feature = "object-store"))]
    pub(crate) fn check_after(
        self,
        stored: Option<Stamp>,
        resource: impl FnOnce() -> String,
    ) -> Result<(), Stale> {
        match stored {
            Some(stored) if !self.admits_after(stored) => {
                Err(Stale { resource: resource(), shown: self, stored: Some(stored) })
            }
            _ => Ok(()),
        }
    }

    /// Reads a stamp from two `BIGINT` columns, as the [statements](crate::sql) store them. `None`
    /// if the first is not a token.
    pub fn from_columns(token: i64, lineage: i64) -> Option<Stamp> {
        Some(Stamp { token: Token::from_i64(token)?, lineage: LineageId::from_i64(lineage) })
    }
}

impl Fenced for Stamp {
    /// Never fails: a stamp does not know whether the hold still exists.
    fn fence(&self) -> Result<Token, Lost> {
        Ok(self.token)
    }

    fn lineage(&self) -> LineageId {
        self.lineage
    }

    fn is_shared(&self) -> bool {
        false
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.token, self.lineage)
    }
}

impl FromStr for Stamp {
    type Err = InvalidStamp;

    fn from_str(text: &str) -> Result<Stamp, InvalidStamp> {
        let (token, lineage) = text.split_once('-').ok_or(InvalidStamp::NoLineage)?;
        Ok(Stamp { token: token.parse()?, lineage: lineage.parse()? })
    }
}

/// A text that is not a [`Stamp`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStamp {
    /// There is no hyphen, and so no lineage.
    #[error("a stamp is `token-lineage`, as in 4294967303-fffffffffffffffd; this has no hyphen")]
    NoLineage,
    /// The part before the hyphen is not a token.
    #[error(transparent)]
    Token(#[from] InvalidToken),
    /// The part behind the hyphen is not a lineage.
    #[error(transparent)]
    Lineage(#[from] InvalidLineage),
}

/// The error of a holder that may no longer write. A later holder was admitted, or a holder with an
/// equal token of another lineage.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{resource} refuses {shown} as stale: {} was admitted before; do not write, and take the lock \
     again",
    .stored.map_or_else(|| "a later holder".to_owned(), |stored| stored.to_string())
)]
#[non_exhaustive]
pub struct Stale {
    /// The name of the resource.
    pub resource: String,
    /// The stamp that was shown.
    pub shown: Stamp,
    /// The stamp that was admitted before. `None` if it cannot be read, for example because a
    /// policy of the table hides it.
    pub stored: Option<Stamp>,
}

/// The reason why a holder has no stamp to show.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoStamp {
    /// The guard is lost. Nothing was sent to the resource.
    #[error("{0}; nothing was sent to the resource: take the lock again")]
    Lost(#[from] Lost),
    /// The guard is a share, or permits: others hold the same name, and the order of their tokens
    /// means nothing. Nothing was sent to the resource.
    #[error(
        "the guard is a share or permits, whose tokens order no writes; fence with an exclusive \
         lock of the resource"
    )]
    Shared,
    /// The name of the resource is empty, longer than [`MAX_RESOURCE`] bytes, or has a zero byte.
    #[error(
        "a resource name must have 1 to {MAX_RESOURCE} bytes and no zero byte; it has {length} \
         bytes"
    )]
    InvalidResource {
        /// The length of the name in bytes.
        length: usize,
    },
}

/// The longest name of a resource, in bytes. Every supported database can index it.
pub const MAX_RESOURCE: usize = 1024;

/// The stamp that `holder` shows to `resource`, or the reason why there is none.
pub(crate) fn stamp_for(resource: &str, holder: &(impl Fenced + ?Sized)) -> Result<Stamp, NoStamp> {
    check_resource(resource)?;
    exclusive_stamp(holder)
}

/// The stamp of an exclusive holder.
pub(crate) fn exclusive_stamp(holder: &(impl Fenced + ?Sized)) -> Result<Stamp, NoStamp> {
    if holder.is_shared() {
        return Err(NoStamp::Shared);
    }
    Ok(Stamp::of(holder)?)
}

pub(crate) fn check_resource(resource: &str) -> Result<(), NoStamp> {
    let length = resource.len();
    let is_valid = (1..=MAX_RESOURCE).contains(&length) && !resource.contains('\0');
    if is_valid { Ok(()) } else { Err(NoStamp::InvalidResource { length }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(token: i64, lineage: i64) -> Stamp {
        Stamp::from_columns(token, lineage).expect("a token is positive")
    }

    #[test]
    fn a_later_token_or_the_same_stamp_is_admitted() {
        assert!(stamp(8, 1).admits_after(stamp(7, 1)));
        assert!(stamp(8, 1).admits_after(stamp(7, 2)));
        assert!(stamp(7, 1).admits_after(stamp(7, 1)));
        assert!(!stamp(7, 2).admits_after(stamp(7, 1)));
        assert!(!stamp(6, 1).admits_after(stamp(7, 1)));
    }

    #[test]
    fn a_text_that_is_no_stamp_is_refused() {
        let wrong = [
            "",
            "7",
            "7-",
            "-7-0000000000000001",
            "7-1",
            "0-0000000000000001",
            "7 -0000000000000001",
        ];
        for text in wrong {
            assert!(text.parse::<Stamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_that_no_database_could_index_is_refused() {
        let holder = stamp(7, 1);
        assert!(stamp_for(&"x".repeat(MAX_RESOURCE), &holder).is_ok());
        for wrong in [String::new(), "x".repeat(MAX_RESOURCE + 1), "a\0b".to_owned()] {
            let error = stamp_for(&wrong, &holder).unwrap_err();
            assert_eq!(error, NoStamp::InvalidResource { length: wrong.len() });
        }
    }
}
