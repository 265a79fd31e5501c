//! `QueueRank`: a position in the line of a table.

use super::request::RequestKey;
use crate::protocol::id::Ticket;

/// The mask of the position within a block: the lower half of a ticket's number.
pub(super) const POSITION: u64 = u32::MAX as u64;

/// A position in the line. The key makes it unique, even if members report equal tickets.
pub(super) type QueueRank = (Ticket, RequestKey);
