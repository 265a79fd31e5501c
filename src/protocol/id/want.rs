//! The wants of requests: a lock, a batch of locks, a share, permits, a suspension, or an open
//! object.

use super::name::LockName;
use super::value::Value;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::sync::Arc;

/// The most locks in one batch.
pub const MAX_BATCH: usize = 1024;
/// The most bytes that the names of one batch may have together. A request must fit into a frame,
/// and so must a table chunk that ends with such a request.
pub const MAX_BATCH_NAMES: usize = 1 << 20;
/// The most permits of one request: each has a token, and a slot has four million of them.
pub const MAX_PERMITS: u32 = 1 << 16;

/// The locks of one request: 1 to [`MAX_BATCH`] names in ascending order, none of them twice, of at
/// most [`MAX_BATCH_NAMES`] bytes together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Batch(Arc<[LockName]>);

impl Batch {
    /// Sorts the names. A repeated name counts once.
    pub fn new(mut names: Vec<LockName>) -> Result<Self, InvalidBatch> {
        names.sort();
        names.dedup();
        let (count, bytes) = (names.len(), names.iter().map(|name| name.as_bytes().len()).sum());
        if count == 0 || count > MAX_BATCH || bytes > MAX_BATCH_NAMES {
            return Err(InvalidBatch { count, bytes });
        }
        Ok(Batch(names.into()))
    }

    /// The names.
    pub fn names(&self) -> &[LockName] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Batch::new(Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The error of a batch without locks, with too many, or with too long names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a batch must have 1 to {MAX_BATCH} different locks with names of at most {MAX_BATCH_NAMES} \
     bytes together, not {count} with {bytes}; take fewer locks or use shorter names"
)]
pub struct InvalidBatch {
    /// The number of different names that were given.
    pub count: usize,
    /// The total length of the names.
    pub bytes: usize,
}

/// The number of permits of a request: 1 to [`MAX_PERMITS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Permits(u32);

impl Permits {
    /// Checks the number.
    pub fn new(given: u32) -> Result<Self, InvalidPermits> {
        if given == 0 || given > MAX_PERMITS {
            Err(InvalidPermits { given })
        } else {
            Ok(Permits(given))
        }
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Permits {
    type Error = InvalidPermits;

    fn try_from(given: u32) -> Result<Self, InvalidPermits> {
        Permits::new(given)
    }
}

impl From<Permits> for u32 {
    fn from(permits: Permits) -> u32 {
        permits.0
    }
}

/// The error of a request for no permits, or for too many at once.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a request is for 1 to {MAX_PERMITS} permits, not {given}")]
pub struct InvalidPermits {
    /// The number that was requested.
    pub given: u32,
}

/// An object by its name, with its value if no member has it open yet. It takes one machine word,
/// because every [`Want`] is as large as the largest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpenRequest(Arc<(LockName, Value)>);

impl OpenRequest {
    /// A request to open the object with this name, with this value if it is new.
    pub fn new(name: LockName, value: Value) -> Self {
        OpenRequest(Arc::new((name, value)))
    }

    /// The object's name.
    pub fn name(&self) -> &LockName {
        &self.0.0
    }

    /// The value that the object has if no member has it open yet.
    pub fn value(&self) -> &Value {
        &self.0.1
    }
}

impl fmt::Debug for OpenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.name(), self.value())
    }
}

/// The want of a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Want {
    /// One lock.
    Lock(LockName),
    /// Several locks of the service, all or nothing.
    Batch(Batch),
    /// The suspension of the whole service: while it is held, no other owner holds anything.
    Suspension,
    /// A share of one lock: other requests may have shares too, but none has the lock.
    Share(LockName),
    /// A number of permits of an object at once, all or nothing. The object's value is the limit.
    Permits(LockName, Permits),
    /// An open object. It is not a lock: it waits for no request, and no request waits for it.
    Open(OpenRequest),
}

impl Want {
    /// The names of the wanted locks or object, ascending; none for a suspension.
    pub fn names(&self) -> &[LockName] {
        match self {
            Want::Lock(name) | Want::Share(name) | Want::Permits(name, _) => {
                std::slice::from_ref(name)
            }
            Want::Open(opening) => std::slice::from_ref(opening.name()),
            Want::Batch(batch) => batch.names(),
            Want::Suspension => &[],
        }
    }

    /// The name of a lock or of a share, and whether it is a share.
    pub(crate) fn lock_or_share(&self) -> Option<(&LockName, bool)> {
        match self {
            Want::Lock(name) => Some((name, false)),
            Want::Share(name) => Some((name, true)),
            _ => None,
        }
    }

    /// The number of tokens that a grant of this want takes.
    pub fn tokens(&self) -> u32 {
        match self {
            Want::Batch(batch) => batch.names().len() as u32,
            Want::Permits(_, permits) => permits.get(),
            Want::Lock(_) | Want::Suspension | Want::Share(_) | Want::Open(_) => 1,
        }
    }

    /// Returns whether the want is an open object, which is not a hold.
    pub fn opens(&self) -> bool {
        matches!(self, Want::Open(_))
    }

    /// Returns whether a hold of `has` may be reduced to this want.
    pub(crate) fn is_less_than(&self, has: &Want) -> bool {
        match (has, self) {
            (Want::Lock(name), Want::Share(other)) => name == other,
            (Want::Permits(name, before), Want::Permits(other, after)) => {
                name == other && after < before
            }
            _ => false,
        }
    }

    /// The mode of the want beside other requests for the same name.
    pub fn mode(&self) -> Mode {
        match self {
            Want::Lock(_) | Want::Batch(_) | Want::Open(_) => Mode::Lock,
            Want::Suspension => Mode::Suspension,
            Want::Share(_) => Mode::Share,
            Want::Permits(_, permits) => Mode::Permits(permits.get()),
        }
    }

    /// The approximate number of bytes in a message.
    pub(crate) fn weight(&self) -> usize {
        let value =
            if let Want::Open(opening) = self { opening.value().as_bytes().len() } else { 0 };
        value + self.names().iter().map(|name| 16 + name.as_bytes().len()).sum::<usize>()
    }
}

/// The mode of a hold, or of a wait for one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mode {
    /// Alone: a lock, or one of a batch.
    Lock,
    /// A share.
    Share,
    /// This many permits.
    Permits(u32),
    /// The suspension of the whole service.
    Suspension,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The grantor keeps a want for each held lock, and so does the holder's member.
    #[test]
    fn a_want_takes_a_name_and_a_word() {
        assert_eq!(size_of::<Want>(), 32);
    }
}
