//! The network's counters.

use crate::wire::{DatagramError, FrameError};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The network's counts since it was bound. Totals only rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Frames taken in after the handshake.
    pub frames_in: u64,
    /// Frames written to a connection.
    pub frames_out: u64,
    /// Bytes read from connections.
    pub bytes_in: u64,
    /// Bytes written to connections.
    pub bytes_out: u64,
    /// Datagrams of this cluster.
    pub datagrams_in: u64,
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Refused: no frame, handshake or datagram of elderlock.
    pub garbage: u64,
    /// Refused: a frame whose checksum is wrong. Hardware or something on the way changes bytes.
    pub damaged: u64,
    /// Refused: a frame that had begun and did not end in time.
    pub unfinished: u64,
    /// Refused: of another cluster.
    pub foreign_cluster: u64,
    /// Refused: of another protocol version.
    pub other_version: u64,
    /// Refused: longer than allowed.
    pub oversized: u64,
    /// Refused: more connections than this member takes.
    pub busy: u64,
    /// Refused: a stranger that did not finish its handshake in time.
    pub silent: u64,
    /// Refused: a handshake under a key that this member does not have.
    pub unknown_key: u64,
    /// Refused: a handshake without a key, though this member has one.
    pub keyless: u64,
    /// Refused: a handshake, record, datagram or relayed packet that was changed or repeated, or
    /// made without the key.
    pub forged: u64,
    /// Refused: a datagram or relayed packet that was opened before, or a datagram for an earlier
    /// process of this address.
    pub repeated: u64,
    /// Refused: a process with the key that claimed the id of another one.
    pub impostors: u64,
    /// Refused: a packet of a process that claimed the vote of a member without a proof.
    pub vote_claims: u64,
    /// Refused: a process that wants more than the role of its key allows.
    pub above_role: u64,
    /// Orders of operators that were carried out, or begun.
    pub orders: u64,
    /// Closed: connections of strangers, to make room for others or because they were silent.
    pub evicted: u64,
    /// Not sent: the queue of the peer was full, or there are too many peers.
    pub overflowed: u64,
    /// Not sent: the peer could not be reached, or another process answered there.
    pub undelivered: u64,
    /// Read by a thread that waited for it awake, see
    /// [`busy_poll`](crate::MemberBuilder::busy_poll).
    pub busy_poll_hits: u64,
    /// Waited for with a thread awake, to the limit, and in vain.
    pub busy_poll_misses: u64,
}

macro_rules! counters {
    ($($field:ident),* $(,)?) => {
        /// [`Counters`] that many tasks count in.
        #[derive(Debug, Default)]
        pub(super) struct AtomicCounters {
            $(pub(super) $field: AtomicU64,)*
        }

        impl AtomicCounters {
            /// As of now; the counters are read one by one.
            pub(super) fn read(&self) -> Counters {
                Counters { $($field: self.$field.load(Relaxed),)* }
            }
        }
    };
}

counters!(
    frames_in,
    frames_out,
    bytes_in,
    bytes_out,
    datagrams_in,
    datagrams_out,
    garbage,
    damaged,
    unfinished,
    foreign_cluster,
    other_version,
    oversized,
    busy,
    silent,
    unknown_key,
    keyless,
    forged,
    repeated,
    impostors,
    vote_claims,
    above_role,
    orders,
    evicted,
    overflowed,
    undelivered,
    busy_poll_hits,
    busy_poll_misses,
);

impl AtomicCounters {
    /// Counts something refused.
    pub(super) fn refuse_frame(&self, error: &FrameError) {
        match error {
            FrameError::Oversized(_) => add(&self.oversized, 1),
            FrameError::Version(_) => add(&self.other_version, 1),
            FrameError::Damaged => add(&self.damaged, 1),
            FrameError::Garbage => add(&self.garbage, 1),
            FrameError::Forged => add(&self.forged, 1),
        }
    }

    /// Counts a datagram refused.
    pub(super) fn refuse_datagram(&self, error: &DatagramError) {
        match error {
            DatagramError::Oversized(_) => add(&self.oversized, 1),
            DatagramError::Version(_) => add(&self.other_version, 1),
            DatagramError::ForeignCluster => add(&self.foreign_cluster, 1),
            DatagramError::Garbage => add(&self.garbage, 1),
        }
    }
}

/// Counts; nothing else depends on it, so no order with other memory is asked for.
pub(super) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}
