//! Fields that only some versions of an encoding have.
//!
//! A field of version N is written and read from version N on. Below N it takes no bytes and has
//! its default. The codec says by [`in_version`] which version it encodes or decodes; serde has no
//! other way to hand it to a nested value. The rules for such fields are in
//! docs/protocol/versions.md.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! use elderlock::protocol::versioned::Since;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Pulse {
//!     number: u64,
//!     #[serde(with = "Since::<12>")]
//!     members: u32,
//! }
//! ```

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::Cell;

thread_local! {
    /// Outside of the codec each field is there.
    static VERSION: Cell<u16> = const { Cell::new(u16::MAX) };
}

/// Does the work with the fields of this version.
pub fn in_version<T>(version: u16, work: impl FnOnce() -> T) -> T {
    struct Restore(u16);
    impl Drop for Restore {
        fn drop(&mut self) {
            VERSION.set(self.0);
        }
    }
    let _before = Restore(VERSION.replace(version));
    work()
}

/// For `#[serde(with = "Since::<N>")]`: the field is there from version N on.
#[derive(Debug)]
pub struct Since<const N: u16>;

impl<const N: u16> Since<N> {
    /// Writes the field, or nothing below version N.
    ///
    /// # Errors
    /// The serializer's, on the field.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if VERSION.get() >= N {
            value.serialize(serializer)
        } else {
            // No bytes in the codec's form.
            serializer.serialize_unit()
        }
    }

    /// Reads the field, or takes its default below version N.
    ///
    /// # Errors
    /// The deserializer's, on the field.
    pub fn deserialize<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        if VERSION.get() >= N { T::deserialize(deserializer) } else { Ok(T::default()) }
    }
}

/// For `#[serde(with = "Trailing")]` on the last field of a frozen form, which writers of older
/// releases leave out: without it the field has its default.
#[derive(Debug)]
pub struct Trailing;

impl Trailing {
    /// Writes the field.
    ///
    /// # Errors
    /// The serializer's, on the field.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    /// Reads the field, or takes its default where the form ends before it.
    ///
    /// # Errors
    /// None: the codec does not tell a form that ends early from a damaged one, and a checksum or a
    /// seal lies around each.
    pub fn deserialize<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Ok(T::deserialize(deserializer).unwrap_or_default())
    }
}
