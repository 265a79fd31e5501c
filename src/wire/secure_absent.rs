//! Replaces `secure` in a build without that feature: connections are never sealed.

use std::convert::Infallible;

pub use {NoForged as Forged, NoOpener as Opener, NoSealer as Sealer};

/// Has no value.
#[derive(Debug)]
pub struct NoOpener(Infallible);

/// Has no value.
#[derive(Debug)]
pub struct NoSealer(Infallible);

/// Has no value: no record is ever opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoForged(Infallible);

impl NoOpener {
    /// Is never called, because there is no value of the type.
    pub fn length(_bytes: &[u8]) -> Result<Option<usize>, NoForged> {
        Ok(None)
    }

    /// Is never called, because there is no value of the type.
    pub fn open<'a>(&mut self, _record: &'a mut [u8]) -> Result<&'a [u8], NoForged> {
        match self.0 {}
    }
}

impl NoSealer {
    /// Is never called, because there is no value of the type.
    pub fn seal(&mut self, _frames: &[u8], _out: &mut Vec<u8>) -> Result<(), Infallible> {
        match self.0 {}
    }

    /// Is never called, because there is no value of the type.
    pub fn seal_from(&mut self, _start: usize, _bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        match self.0 {}
    }
}
