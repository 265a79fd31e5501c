//! The values of objects.

use super::name::BytesVisitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The longest value of an object, in bytes.
pub const MAX_VALUE: usize = 1024;

/// The value of an object: up to [`MAX_VALUE`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(Arc<[u8]>);

impl Value {
    /// Checks the length; empty is allowed.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidValue> {
        if bytes.len() > MAX_VALUE {
            Err(InvalidValue { length: bytes.len() })
        } else {
            Ok(Value(bytes.into()))
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, shared.
    pub fn share(&self) -> Arc<[u8]> {
        self.0.clone()
    }

    /// The limit of permits of an object with this value: a signed number of 32 bits, little
    /// endian; below zero there are none. A value of any other length than four bytes is a limit of
    /// zero.
    pub fn limit(&self) -> u32 {
        self.0.as_ref().try_into().map_or(0, i32::from_le_bytes).max(0) as u32
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(&self.0.escape_ascii());
        }
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(Value::new))
    }
}

/// The error of a value that is too long.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a value must have at most {MAX_VALUE} bytes, not {length}")]
pub struct InvalidValue {
    /// The length of the value in bytes.
    pub length: usize,
}
