//! `Occupancy`: the holders of one name of a table.

use super::request::RequestKey;
use crate::protocol::id::{ProcessId, RequestId, Want};
use std::collections::BTreeSet;

/// The holders of a name: one lock, any number of shares, or any number of permits. The type is
/// small, because each held lock has one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Occupancy {
    /// The request that holds, and the [first bits](beginning) of its process's number. The rest of
    /// the [table](super::Table::holder) tells the process.
    Lock(RequestId, u32),
    #[allow(clippy::box_collection)] // one word
    Shares(Box<BTreeSet<RequestKey>>),
    Permits(Box<PermitHolders>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PermitHolders {
    pub(super) keys: BTreeSet<RequestKey>,
    /// The sum of the permits that are held.
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

    /// Returns whether a hold of this want may exist beside the present holds, at any limit.
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
