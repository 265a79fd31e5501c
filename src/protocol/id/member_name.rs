//! `MemberName`: the name of a member for people.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The longest name of a member, in bytes.
pub const MAX_MEMBER_NAME: usize = 63;

/// The error of a name that no member may have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a member name must have 1 to {MAX_MEMBER_NAME} printable ASCII characters without spaces, \
     not {given:?}"
)]
pub struct InvalidMemberName {
    /// The name as the caller gave it.
    pub given: String,
}

/// The name of a member: 1 to [`MAX_MEMBER_NAME`] printable ASCII characters without spaces.
///
/// The name is for people. The protocol knows members by their process ids, and names need not be
/// unique.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct MemberName(Arc<str>);

impl MemberName {
    /// Checks length and characters.
    pub fn new(name: &str) -> Result<Self, InvalidMemberName> {
        let is_short = (1..=MAX_MEMBER_NAME).contains(&name.len());
        if is_short && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(MemberName(name.into()))
        } else {
            Err(InvalidMemberName { given: name.to_owned() })
        }
    }

    /// The name of a member without a configured one.
    pub fn of_addr(addr: SocketAddr) -> Self {
        // The longest address, of IPv6 with a scope, has 58 characters.
        MemberName(addr.to_string().into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for MemberName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberNameVisitor;
        impl serde::de::Visitor<'_> for MemberNameVisitor {
            type Value = MemberName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MemberName, E> {
                MemberName::new(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(MemberNameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_63_printable_characters_without_spaces() {
        let longest = "a".repeat(MAX_MEMBER_NAME);
        for name in ["pod-0", "db.example:7400", "[::1]:7400", &longest] {
            assert_eq!(MemberName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "a b", "a\n", "\u{1b}[2J", "bücher", &format!("{longest}a")] {
            assert!(MemberName::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn each_address_is_a_name() {
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1%4294967295]:65535";
        let addr = MemberName::of_addr(longest.parse().unwrap());
        assert_eq!(MemberName::new(longest).unwrap(), addr);
    }
}
