//! Fields that only some versions of an encoding have.
//!
//! A field of version N is written and read from version N on. Below N it takes no bytes and has
//! its default. With [`in_version`] the codec sets the version that it encodes or decodes, since
//! serde cannot hand it to a nested value. The rules for such fields are in
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
    /// Outside the codec every field is present.
    static VERSION: Cell<u16> = const { Cell::new(u16::MAX) };
}

/// Runs `work` with the fields of this version.
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

/// For `#[serde(with = "Since::<N>")]`: the field exists from version N on.
#[derive(Debug)]
pub struct Since<const N: u16>;

impl<const N: u16> Since<N> {
    /// Writes the field, or nothing below version N.
    ///
    /// # Errors
    /// The serializer's errors about the field.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if VERSION.get() >= N {
            value.serialize(serializer)
        } else {
            // A unit takes no bytes in the codec's format.
            serializer.serialize_unit()
        }
    }

    /// Reads the field, or takes its default below version N.
    ///
    /// # Errors
    /// The deserializer's errors about the field.
    pub fn deserialize<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        if VERSION.get() >= N { T::deserialize(deserializer) } else { Ok(T::default()) }
    }
}

/// For `#[serde(with = "Trailing")]` on the last field of a frozen form. Writers of older releases
/// leave the field out, and it then has its default.
#[derive(Debug)]
pub struct Trailing;

impl Trailing {
    /// Writes the field.
    ///
    /// # Errors
    /// The serializer's errors about the field.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    /// Reads the field, or uses its default if the form ends before it.
    ///
    /// # Errors
    /// None: the codec cannot tell a form that ends early from a damaged one. A checksum or a seal
    /// protects each form.
    pub fn deserialize<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Ok(T::deserialize(deserializer).unwrap_or_default())
    }
}
