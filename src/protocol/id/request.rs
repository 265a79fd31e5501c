//! Requests: their numbers, owners and metadata.

use super::name::{BytesVisitor, InvalidName, check};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The longest metadata that a holder may attach, in bytes.
pub const MAX_METADATA: usize = 4096;

/// A request for a lock, numbered by the member that makes it. Never reused in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// The owner of a request, within its member. An owner with a hold passes a waiting suspension.
/// Zero is the whole member.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct OwnerId(pub u64);

/// The metadata of a holder: up to [`MAX_METADATA`] bytes that other members can read. Empty
/// metadata takes no memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Metadata(Option<Arc<Box<[u8]>>>); // one word, since most have none

impl Metadata {
    /// Checks the length; empty is allowed.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidName> {
        if bytes.is_empty() {
            return Ok(Metadata(None));
        }
        check("metadata", bytes.len(), MAX_METADATA)?;
        Ok(Metadata(Some(Arc::new(bytes.into()))))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| bytes)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(&self.as_bytes().escape_ascii());
        }
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(Metadata::new))
    }
}
