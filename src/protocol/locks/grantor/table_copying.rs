//! `TableCopying`: the copy of a grantor's table at another member, and `CopyOffer`.

use crate::protocol::id::ProcessId;
use crate::protocol::time::Time;

/// A copy of the table, as its grantor knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct TableCopying {
    /// The member that copies the table.
    pub(super) to: ProcessId,
    /// That member's number of the copy.
    pub(super) copy: u64,
    /// The most entries of a part. As many noted ones make a part due when the copy is whole.
    pub(super) slice: u32,
    /// The number of parts sent.
    pub(super) sent: u64,
    /// The number of parts that the member has taken.
    pub(super) taken: u64,
    /// The number of parts sent when the walk through the table was over.
    pub(super) walked: Option<u64>,
    /// The number of the first part that said that the copy is whole.
    pub(super) whole: Option<u64>,
}

/// The offer of a copy to a successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct CopyOffer {
    pub(super) to: ProcessId,
    pub(super) since: Time,
    /// The number of parts that the successor had taken by the last look.
    pub(super) taken: u64,
}

impl TableCopying {
    pub(super) fn is(&self, to: ProcessId, copy: u64) -> bool {
        (self.to, self.copy) == (to, copy)
    }

    /// Returns whether the member has taken a part that said that the copy is whole.
    pub(super) fn is_taken(&self) -> bool {
        self.whole.is_some_and(|whole| whole <= self.taken)
    }
}
