//! `Occupancy`: the holders of one name of a table.

use super::request::RequestKey;
use crate::protocol::id::{ProcessId, RequestId, Want};
use std::collections::BTreeSet;

/// The holders of a name: one lock, or any number of shares, or any number of permits. Small,
/// because one exists for each held lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Occupancy {
    /// The holding request, and how the number of its process [begins](beginning). The process
    /// follows from the rest of the [table](super::Table::holder).
    Lock(RequestId, u32),
    #[allow(clippy::box_collection)] // one word
    Shares(Box<BTreeSet<RequestKey>>),
    Permits(Box<PermitHolders>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PermitHolders {
    pub(super) keys: BTreeSet<RequestKey>,
    /// How many permits they have together.
    pub(super) sum: u64,
}

impl Occupancy {
    pub(super) fn len(&self) -> usize {
        match self {
            Occupancy::Lock(..) => 1,
            Occupancy::Shares(keys) => keys.len(),
            Occupancy::Permits(permitted) => permitted.keys.len(),
        }
    }

    /// Returns whether a hold of this want may exist beside these, at any limit.
    pub(super) fn is_beside(&self, want: &Want) -> bool {
        matches!(
            (self, want),
            (Occupancy::Shares(_), Want::Share(_)) | (Occupancy::Permits(..), Want::Permits(..))
        )
    }
}

/// The first 32 bits of a process's number.
pub(super) fn beginning(process: ProcessId) -> u32 {
    (process.0 >> 96) as u32
}
