//! The names of services and of locks.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The longest service name, in bytes.
pub const MAX_SERVICE_NAME: usize = 255;
/// The longest lock name, in bytes.
pub const MAX_LOCK_NAME: usize = 4096;

/// The error of a name that is empty or too long.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a {what} must have 1 to {limit} bytes, not {length}")]
pub struct InvalidName {
    /// The kind of name: "service name" or "lock name".
    pub what: &'static str,
    /// The length of the name in bytes.
    pub length: usize,
    /// The longest allowed, in bytes.
    pub limit: usize,
}

/// The name of a lock service: 1 to [`MAX_SERVICE_NAME`] bytes of text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// Checks the length.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        check("service name", name.len(), MAX_SERVICE_NAME)?;
        Ok(ServiceName(name.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ServiceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ServiceNameVisitor;
        impl Visitor<'_> for ServiceNameVisitor {
            type Value = ServiceName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a service name")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ServiceName, E> {
                ServiceName::new(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(ServiceNameVisitor)
    }
}

/// The name of a lock: 1 to [`MAX_LOCK_NAME`] bytes of any value. Up to 23 bytes are stored inline,
/// without an allocation: most names are short, and tables have several copies of each.
#[derive(Clone)]
pub struct LockName(NameBytes);

/// Takes 24 bytes.
#[derive(Clone)]
enum NameBytes {
    /// A name that is stored inline. The bytes behind its end are zero.
    Short {
        end: ShortLength,
        bytes: [u8; SHORT],
    },
    Long(Arc<[u8]>),
}

/// The longest name that is stored inline.
const SHORT: usize = 23;

/// The length of a short name. The compiler uses the missing values to tell the two kinds of names
/// apart.
#[rustfmt::skip]
#[derive(Clone, Copy)]
enum ShortLength {
    L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15, L16, L17, L18, L19, L20, L21,
    L22, L23,
}

impl ShortLength {
    #[rustfmt::skip]
    const ALL: [ShortLength; SHORT] = {
        use ShortLength::*;
        [
            L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15, L16, L17, L18, L19,
            L20, L21, L22, L23,
        ]
    };

    fn length(self) -> usize {
        self as usize + 1
    }
}

impl LockName {
    /// Checks the length.
    pub fn new(name: &[u8]) -> Result<Self, InvalidName> {
        check("lock name", name.len(), MAX_LOCK_NAME)?;
        Ok(LockName(match ShortLength::ALL.get(name.len() - 1) {
            Some(&end) => {
                let mut bytes = [0; SHORT];
                bytes[..name.len()].copy_from_slice(name);
                NameBytes::Short { end, bytes }
            }
            None => NameBytes::Long(name.into()),
        }))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            NameBytes::Short { end, bytes } => &bytes[..end.length()],
            NameBytes::Long(bytes) => bytes,
        }
    }
}

/// The order is that of the bytes.
impl Ord for LockName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Of two names that differ only in zeros behind the end, the shorter one is lower. No
            // function for bytes of any length is called here: most of the work of a table's search
            // is this comparison.
            (
                NameBytes::Short { end, bytes },
                NameBytes::Short { end: other_end, bytes: other },
            ) => words(bytes).cmp(&words(other)).then(end.length().cmp(&other_end.length())),
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// Numbers whose order is that of the bytes.
fn words(bytes: &[u8; SHORT]) -> [u64; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = *bytes;
    [
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes([i, j, k, l, m, n, o, p]),
        u64::from_be_bytes([q, r, s, t, u, v, w, 0]),
    ]
}

impl PartialOrd for LockName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for LockName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for LockName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(LockName::new))
    }
}

/// Builds a value from bytes, in any form in which a serde format passes them. The text form is for
/// people only. The bytes are copied once: tables of many names are read in this way.
pub(super) struct BytesVisitor<T, F>(pub(super) fn(&[u8]) -> Result<T, F>);

impl<T, F: fmt::Display> Visitor<'_> for BytesVisitor<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        self.0(bytes).map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        self.visit_bytes(text.as_bytes())
    }
}

pub(super) fn check(what: &'static str, length: usize, limit: usize) -> Result<(), InvalidName> {
    if length == 0 || length > limit { Err(InvalidName { what, length, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::DefaultHasher;

    #[test]
    fn names_are_as_their_bytes_whether_they_are_stored_inline_or_not() {
        let mut texts: Vec<Vec<u8>> = vec![
            b"a".to_vec(),
            b"a\0".to_vec(),
            b"a\0\0".to_vec(),
            b"\xff".to_vec(),
            b"b".to_vec(),
        ];
        for length in [7, 8, 9, 16, 22, 23, 24, 25, 4096] {
            texts.push(vec![b'a'; length]);
            texts.push([vec![b'a'; length - 1], vec![0]].concat());
            texts.push([vec![b'a'; length - 1], vec![0xff]].concat());
        }
        let print = |what: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            what(&mut hasher);
            hasher.finish()
        };
        for one in &texts {
            let name = LockName::new(one).unwrap();
            assert_eq!(name.as_bytes(), one);
            assert_eq!(
                print(&|hasher| name.hash(hasher)),
                print(&|hasher| one.as_slice().hash(hasher))
            );
            for other in &texts {
                let other_name = LockName::new(other).unwrap();
                assert_eq!(name.cmp(&other_name), one.cmp(other), "{name} {other_name}");
                assert_eq!(name == other_name, one == other);
            }
        }
        assert_eq!((size_of::<LockName>(), size_of::<Option<LockName>>()), (24, 24));
    }
}
