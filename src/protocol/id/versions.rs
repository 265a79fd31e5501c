//! `Versions`: the versions of the wire that a process speaks, as plain numbers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A range of versions of the wire, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Versions {
    /// The lowest version.
    pub lowest: u16,
    /// The highest version.
    pub highest: u16,
}

impl Versions {
    /// Every version, for a process whose messages are not encoded.
    pub const ALL: Versions = Versions { lowest: 0, highest: u16::MAX };

    /// Returns whether the range has the version.
    pub fn contains(self, version: u16) -> bool {
        (self.lowest..=self.highest).contains(&version)
    }

    /// The highest version that both ranges have.
    pub fn common(self, other: Versions) -> Option<u16> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }

    /// The version in which a process with these versions encodes a message. It is that of its
    /// view, and without a view its lowest one. A `peer` that does not speak that version is
    /// outside the view, and gets the nearest version that both speak.
    pub fn to_encode(self, view: Option<u16>, peer: Option<Versions>) -> u16 {
        let wanted = view.unwrap_or(self.lowest).clamp(self.lowest, self.highest);
        match peer {
            Some(peer) if self.common(peer).is_some() => {
                wanted.clamp(self.lowest.max(peer.lowest), self.highest.min(peer.highest))
            }
            _ => wanted,
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lowest == self.highest {
            write!(f, "{}", self.highest)
        } else {
            write!(f, "{} to {}", self.lowest, self.highest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lowest: u16, highest: u16) -> Versions {
        Versions { lowest, highest }
    }

    #[test]
    fn a_message_is_encoded_in_the_version_of_the_view() {
        let own = of(11, 12);
        for peer in [None, Some(of(11, 12)), Some(of(10, 13))] {
            assert_eq!(own.to_encode(Some(11), peer), 11);
            assert_eq!(own.to_encode(Some(12), peer), 12);
            assert_eq!(own.to_encode(None, peer), 11, "without a view");
        }
    }

    #[test]
    fn a_peer_outside_the_view_gets_a_version_that_it_speaks() {
        let own = of(11, 12);
        assert_eq!(own.to_encode(Some(12), Some(of(11, 11))), 11, "left before the raise");
        assert_eq!(own.to_encode(Some(11), Some(of(12, 13))), 12, "joins too early");
        assert_eq!(own.to_encode(None, Some(of(12, 13))), 12, "founds with this one");
        assert_eq!(own.to_encode(Some(12), Some(of(13, 14))), 12, "none is common");
        // A member that leaves may decide the view that its departure raises.
        assert_eq!(of(11, 11).to_encode(Some(12), Some(own)), 11);
    }
}
