//! The envelope of each datagram of gossip, since gossip itself knows no cluster.
//!
//! ```text
//! magic 4 | version 2 | length of cluster name 1 | cluster name | payload
//! ```

use super::handshake::MAX_CLUSTER;
use super::version::GOSSIP_VERSION;

/// The longest gossip payload.
pub const MAX_PAYLOAD: usize = 1400;
/// The longest datagram, with the longest cluster name.
pub const MAX_DATAGRAM: usize = MAX_PAYLOAD + HEAD + MAX_CLUSTER;

/// The first bytes of every datagram.
const MAGIC: [u8; 4] = *b"EldG";
const HEAD: usize = MAGIC.len() + 2 + 1;

/// Why a datagram is not for this member.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatagramError {
    /// The bytes are not a datagram of elderlock.
    #[error("not a datagram of elderlock")]
    Garbage,
    /// The datagram is longer than any of elderlock's.
    #[error("a datagram of {0} bytes is too long: its payload has at most {MAX_PAYLOAD}")]
    Oversized(usize),
    /// The datagram has another version.
    #[error("a datagram of version {0}; this member reads {GOSSIP_VERSION}")]
    Version(u16),
    /// The datagram belongs to another cluster.
    #[error("the datagram belongs to another cluster")]
    ForeignCluster,
}

/// Writes a datagram into `out`, replacing its content. `false` if the payload is too long: nothing
/// is written.
pub fn seal(cluster: &str, payload: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let Ok(length) = u8::try_from(cluster.len()) else { return false };
    if payload.len() > MAX_PAYLOAD {
        return false;
    }
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&GOSSIP_VERSION.to_be_bytes());
    out.push(length);
    out.extend_from_slice(cluster.as_bytes());
    out.extend_from_slice(payload);
    true
}

/// The payload of a datagram of this cluster.
pub fn open<'a>(cluster: &str, datagram: &'a [u8]) -> Result<&'a [u8], DatagramError> {
    if datagram.len() > MAX_DATAGRAM {
        return Err(DatagramError::Oversized(datagram.len()));
    }
    let rest = datagram.strip_prefix(&MAGIC).ok_or(DatagramError::Garbage)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(DatagramError::Garbage)?;
    let version = u16::from_be_bytes(*version);
    if version != GOSSIP_VERSION {
        return Err(DatagramError::Version(version));
    }
    let (length, rest) = rest.split_first().ok_or(DatagramError::Garbage)?;
    let (name, payload) =
        rest.split_at_checked(usize::from(*length)).ok_or(DatagramError::Garbage)?;
    if name != cluster.as_bytes() {
        return Err(DatagramError::ForeignCluster);
    }
    if payload.len() > MAX_PAYLOAD {
        return Err(DatagramError::Oversized(datagram.len()));
    }
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(cluster: &str, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![1, 2, 3];
        assert!(seal(cluster, payload, &mut out));
        out
    }

    #[test]
    fn a_payload_comes_out_as_it_went_in() {
        for payload in [&b""[..], b"x", &[7; MAX_PAYLOAD]] {
            let datagram = sealed("shop", payload);
            assert!(datagram.len() <= MAX_DATAGRAM);
            assert_eq!(open("shop", &datagram), Ok(payload));
        }
        assert!(!seal("shop", &[0; MAX_PAYLOAD + 1], &mut Vec::new()));
    }

    #[test]
    fn foreign_magic_version_and_cluster_are_told_apart() {
        let datagram = sealed("shop", b"payload");
        assert_eq!(open("shed", &datagram), Err(DatagramError::ForeignCluster));
        assert_eq!(open("shop2", &datagram), Err(DatagramError::ForeignCluster));
        let mut other = datagram.clone();
        other[0] ^= 1;
        assert_eq!(open("shop", &other), Err(DatagramError::Garbage));
        let mut other = datagram.clone();
        other[5] ^= 2;
        assert_eq!(open("shop", &other), Err(DatagramError::Version(GOSSIP_VERSION ^ 2)));
        let length = MAX_DATAGRAM + 1;
        assert_eq!(open("shop", &vec![0; length]), Err(DatagramError::Oversized(length)));
        let short = sealed("s", &[0; MAX_PAYLOAD]);
        let longer = [short, vec![0]].concat();
        assert_eq!(open("s", &longer), Err(DatagramError::Oversized(longer.len())));
    }

    #[test]
    fn a_truncated_head_is_garbage() {
        let datagram = sealed("shop", b"");
        for cut in 0..datagram.len() {
            assert_eq!(open("shop", &datagram[..cut]), Err(DatagramError::Garbage), "{cut}");
        }
    }
}
