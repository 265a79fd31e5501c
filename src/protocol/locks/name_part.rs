//! The parts in which a recovery goes through the names of a service.
//!
//! A member reports its holds part by part, and the grantor grants the names of a part as soon as
//! every member has reported it. `docs/protocol/recovery.md` has the rules.
//!
//! The part of a name follows from its bytes alone. All members of a cluster must agree on it, with
//! any build and any processor. So it is a part of the protocol.

use crate::protocol::id::{LockName, Want};

/// The first version of the wire in which a grantor asks for reports by part.
pub(crate) const VERSION: u16 = 13;

/// The part before all names: the objects, the suspensions and the waits.
pub(crate) const FIRST_PART: u16 = 0;

/// The end of each part of names, in 256ths of all names.
const ENDS: [u16; 7] = [1, 4, 16, 64, 136, 196, ALL_NAMES];

const ALL_NAMES: u16 = 1 << u8::BITS;

/// The number of all parts: the first one, and those of names.
pub const ALL_PARTS: u16 = 1 + ENDS.len() as u16;

/// An odd number with mixed bits: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The part of a name, from 1 on.
///
/// The first parts are small, so that they open early. The first has one in 256 of all names, and
/// each of the next three is four times as large as the one before. Holds of one part are reported
/// in the order of their requests. In small parts they are far apart in the memory of the member
/// and of the grantor. So most names are in the last three parts. The first of these ends a little
/// behind the half of all names.
pub fn part_of(name: &LockName) -> u16 {
    let hash = name.as_bytes().chunks(8).fold(MIX, |hash, chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let mixed = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(MIX);
        mixed ^ mixed >> 32
    });
    let drawn = (hash.wrapping_mul(MIX) >> (u64::BITS - u8::BITS)) as u16;
    1 + ENDS.iter().filter(|end| **end <= drawn).count() as u16
}

/// The lowest part of the names of a want. Objects and suspensions are in the first part.
pub(crate) fn lowest_part(want: &Want) -> u16 {
    let names = if want.opens() { &[] } else { want.names() };
    names.iter().map(part_of).min().unwrap_or(FIRST_PART)
}

/// The highest part of the names of a want.
pub(crate) fn highest_part(want: &Want) -> u16 {
    let names = if want.opens() { &[] } else { want.names() };
    names.iter().map(part_of).max().unwrap_or(FIRST_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::id::Batch;

    fn name(bytes: &[u8]) -> LockName {
        LockName::new(bytes).expect("a good name")
    }

    /// A cluster may have members of several releases. Another answer here needs a new version of
    /// the protocol.
    #[test]
    fn the_part_of_a_name_is_the_same_in_each_release() {
        let names: [&[u8]; 5] = [b"a", b"b", b"x", b"a name of 24 bytes here!", &[0; 9]];
        assert_eq!(names.map(|bytes| part_of(&name(bytes))), [6, 5, 5, 2, 6]);
    }

    #[test]
    fn names_spread_over_the_parts_by_their_sizes() {
        let sizes = [0, 1, 3, 12, 48, 72, 60, 60];
        assert_eq!((sizes.len(), sizes.iter().sum()), (usize::from(ALL_PARTS), 256));
        let mut counts = [0_u32; ALL_PARTS as usize];
        let numbers = 0..1000 * 256;
        numbers.for_each(|n| counts[usize::from(part_of(&name(format!("{n}").as_bytes())))] += 1);
        let is_even = |(count, size): (u32, u32)| count.abs_diff(1000 * size) <= 100 * size;
        assert!(counts.into_iter().zip(sizes).all(is_even), "{counts:?}");
    }

    #[test]
    fn a_batch_has_the_lowest_and_the_highest_part_of_its_names() {
        let names: Vec<LockName> = (0..20_u8).map(|n| name(&[n])).collect();
        let parts: Vec<u16> = names.iter().map(part_of).collect();
        let batch = Want::Batch(Batch::new(names).expect("a good batch"));
        assert_eq!(Some(lowest_part(&batch)), parts.iter().copied().min());
        assert_eq!(Some(highest_part(&batch)), parts.iter().copied().max());
        assert_eq!(lowest_part(&Want::Suspension), FIRST_PART);
    }
}
