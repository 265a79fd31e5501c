//! `TableObject`: an open object of a table.

use crate::protocol::content::Content;
use crate::protocol::id::ProcessId;
use std::collections::BTreeMap;

/// An object that a member has open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct TableObject {
    pub(super) content: Content,
    /// The members that have the object open, and how often.
    pub(super) openers: BTreeMap<ProcessId, usize>,
    /// Whether a member or a grantor reported the object while its openers are not all known. See
    /// [`drop_unopened`](super::Table::drop_unopened).
    pub(super) adopted: bool,
}
