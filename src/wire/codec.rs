//! The only place that names bincode, so that another format is a change of one file. Each value is
//! encoded in a version of the wire, see [`versioned`](crate::protocol::versioned).

use super::version::GOSSIP_VERSION;
use crate::protocol::versioned::in_version;
use bincode::config;
use bytes::{Buf, BufMut};
use foca::{Codec, Header, Identity, Member};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bytes are malformed, or a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value cannot be written.
    #[error("cannot be encoded: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// The bytes are not such a value.
    #[error("cannot be decoded: {0}")]
    Decode(#[from] bincode::error::DecodeError),
    /// The value is followed by bytes that do not belong to it.
    #[error("{0} more bytes follow the end of the value")]
    Trailing(usize),
    /// There is no room for the value.
    #[error("no room for {0} bytes")]
    Full(usize),
}

/// Appends `value` to `out`, in a version. On error `out` is as before.
pub(super) fn write<T: Serialize>(
    value: &T,
    version: u16,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let before = out.len();
    let encode = || bincode::serde::encode_into_std_write(value, &mut *out, config::standard());
    match in_version(version, encode) {
        Ok(_) => Ok(()),
        Err(error) => {
            out.truncate(before);
            Err(error.into())
        }
    }
}

/// Reads one value from the front of `bytes`, and returns the number of bytes that it took. `LIMIT`
/// bounds the decoder's allocations for lengths that the bytes claim.
pub(super) fn read_front<T: DeserializeOwned, const LIMIT: usize>(
    bytes: &[u8],
    version: u16,
) -> Result<(T, usize), CodecError> {
    let decode =
        || bincode::serde::decode_from_slice(bytes, config::standard().with_limit::<LIMIT>());
    Ok(in_version(version, decode)?)
}

/// Reads one value that is all of `bytes`.
pub(super) fn read<T: DeserializeOwned, const LIMIT: usize>(
    bytes: &[u8],
    version: u16,
) -> Result<T, CodecError> {
    let (value, length) = read_front::<T, LIMIT>(bytes, version)?;
    if length == bytes.len() { Ok(value) } else { Err(CodecError::Trailing(bytes.len() - length)) }
}

/// The longest header or member of gossip: far above the size of an identity.
const MAX_GOSSIP_ITEM: usize = 1024;

/// The encoding of gossip, for foca.
#[derive(Clone, Copy, Debug, Default)]
pub struct GossipCodec;

impl GossipCodec {
    fn put<T: Serialize>(value: &T, mut buf: impl BufMut) -> Result<(), CodecError> {
        let mut bytes = Vec::with_capacity(64);
        write(value, GOSSIP_VERSION, &mut bytes)?;
        // foca packs members until one does not fit, and expects that nothing of that member is
        // written.
        if buf.remaining_mut() < bytes.len() {
            return Err(CodecError::Full(bytes.len()));
        }
        buf.put_slice(&bytes);
        Ok(())
    }

    fn take<T: DeserializeOwned>(mut buf: impl Buf) -> Result<T, CodecError> {
        let (value, length) = read_front::<T, MAX_GOSSIP_ITEM>(buf.chunk(), GOSSIP_VERSION)?;
        buf.advance(length);
        Ok(value)
    }
}

impl<T: Identity + Serialize + DeserializeOwned> Codec<T> for GossipCodec {
    type Error = CodecError;

    fn encode_header(&mut self, header: &Header<T>, buf: impl BufMut) -> Result<(), CodecError> {
        Self::put(header, buf)
    }

    fn decode_header(&mut self, buf: impl Buf) -> Result<Header<T>, CodecError> {
        Self::take(buf)
    }

    fn encode_member(&mut self, member: &Member<T>, buf: impl BufMut) -> Result<(), CodecError> {
        Self::put(member, buf)
    }

    fn decode_member(&mut self, buf: impl Buf) -> Result<Member<T>, CodecError> {
        Self::take(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_length_beyond_the_limit_is_refused_before_it_is_allocated() {
        // The bytes are a varint of 2^60 without content: a vector that claims an absurd length.
        let mut bytes = vec![253];
        bytes.extend_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(read::<Vec<u8>, 4096>(&bytes, 11).is_err());
        assert!(read::<String, 4096>(&bytes, 11).is_err());
        assert!(read::<Vec<(u64, String)>, 4096>(&bytes, 11).is_err());
    }

    #[test]
    fn trailing_bytes_are_an_error() {
        let mut bytes = Vec::new();
        write(&7u64, 11, &mut bytes).unwrap();
        assert_eq!(read::<u64, 64>(&bytes, 11).unwrap(), 7);
        bytes.push(0);
        assert!(matches!(read::<u64, 64>(&bytes, 11), Err(CodecError::Trailing(1))));
    }

    #[test]
    fn gossip_writes_nothing_into_a_buffer_that_is_too_small() {
        let member = Member::alive(std::net::SocketAddr::from(([127, 0, 0, 1], 7400)));
        let mut room = [0u8; 64];
        let mut short = &mut room[..3];
        let mut codec = GossipCodec;
        assert!(codec.encode_member(&member, &mut short).is_err());
        assert_eq!(short.len(), 3);
        let mut bytes = Vec::new();
        codec.encode_member(&member, &mut bytes).unwrap();
        let mut rest = &bytes[..];
        assert_eq!(codec.decode_member(&mut rest).unwrap(), member);
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            let decoded: Result<Member<std::net::SocketAddr>, _> =
                codec.decode_member(&bytes[..cut]);
            assert!(decoded.is_err());
        }
    }

    #[test]
    fn a_field_takes_bytes_and_has_a_value_from_its_version_on() {
        use crate::protocol::versioned::Since;
        use serde::Deserialize;

        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        struct Inner {
            before: u16,
            #[serde(with = "Since::<12>")]
            added: Option<String>,
        }
        let value =
            vec![Inner { before: 7, added: Some("x".into()) }, Inner { before: 8, added: None }];
        let bytes = |version| {
            let mut bytes = Vec::new();
            write(&value, version, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(11), [2, 7, 8]);
        assert_eq!(bytes(12), [2, 7, 1, 1, b'x', 8, 0]);
        assert_eq!(read::<Vec<Inner>, 64>(&bytes(13), 12).unwrap(), value);
        let older: Vec<Inner> =
            value.iter().map(|inner| Inner { added: None, ..inner.clone() }).collect();
        assert_eq!(read::<Vec<Inner>, 64>(&bytes(11), 11).unwrap(), older);
        // A value that panics or fails leaves no version behind.
        assert!(read::<Vec<Inner>, 64>(&bytes(12), 11).is_err());
        assert_eq!(bytes(12).len(), 7);
    }
}
