//! `Role`: the rights of the holder of a key.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The rights of the holder of a key. Each role has all rights of the one before it.
///
/// The cluster key is the key of [`Role::Member`]. The keys of the other roles are derived from
/// it, see `ClusterKey::derive`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To ask members for their status.
    Observer,
    /// To give members orders: to revoke locks, to become a grantor, to leave, to continue without
    /// a quorum.
    Operator,
    /// To be a member, with all that members do.
    Member,
}

impl Role {
    /// All roles, beginning with the role that has the fewest rights.
    pub const ALL: [Role; 3] = [Role::Observer, Role::Operator, Role::Member];

    /// Returns the name of the role: `observer`, `operator` or `member`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Observer => "observer",
            Role::Operator => "operator",
            Role::Member => "member",
        }
    }

    /// The use of a key of this role.
    pub(crate) fn allows(self) -> &'static str {
        match self {
            Role::Observer => "may ask for the status, and do nothing else",
            Role::Operator => "may ask for the status and give orders, and cannot be a member",
            Role::Member => "may do everything",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
