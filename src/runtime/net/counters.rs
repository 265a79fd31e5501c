//! The network's counters.

use crate::wire::{DatagramError, FrameError};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lists each counter once, in the order of the reports. The middle group is refused input.
macro_rules! counters {
    (
        traffic { $($(#[$of_traffic:meta])* $traffic:ident,)* }
        refused { $($(#[$of_refused:meta])* $refused:ident,)* }
        others { $($(#[$of_other:meta])* $other:ident,)* }
    ) => {
        /// The network's counts since it was bound. Totals only rise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$of_traffic])* pub $traffic: u64,)*
            $($(#[$of_refused])* pub $refused: u64,)*
            $($(#[$of_other])* pub $other: u64,)*
        }

        impl Counters {
            /// The counts of refused input by reason. The reasons are the names of the fields.
            #[cfg(any(feature = "http", feature = "metrics"))]
            pub(crate) fn refused(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($refused), self.$refused)),*]
            }
        }

        /// [`Counters`] that several tasks count in.
        #[derive(Debug, Default)]
        pub(super) struct AtomicCounters {
            $(pub(super) $traffic: AtomicU64,)*
            $(pub(super) $refused: AtomicU64,)*
            $(pub(super) $other: AtomicU64,)*
        }

        impl AtomicCounters {
            /// Reads the counters one by one: their values are not of one instant.
            pub(super) fn read(&self) -> Counters {
                Counters {
                    $($traffic: self.$traffic.load(Relaxed),)*
                    $($refused: self.$refused.load(Relaxed),)*
                    $($other: self.$other.load(Relaxed),)*
                }
            }
        }
    };
}

counters! {
    traffic {
        /// Frames received after the handshake.
        frames_in,
        /// Frames written to a connection.
        frames_out,
        /// Bytes read from connections.
        bytes_in,
        /// Bytes written to connections.
        bytes_out,
        /// Datagrams of this cluster.
        datagrams_in,
        /// Datagrams sent.
        datagrams_out,
    }
    refused {
        /// Refused: no frame, handshake or datagram of elderlock.
        garbage,
        /// Refused: a frame whose checksum is wrong. Hardware or a device on the way changes bytes.
        damaged,
        /// Refused: a frame that had begun and did not end in time.
        unfinished,
        /// Refused: of another cluster.
        foreign_cluster,
        /// Refused: of another protocol version.
        other_version,
        /// Refused: longer than allowed.
        oversized,
        /// Refused: more connections, questions or bytes of strangers than this member takes.
        busy,
        /// Refused: a stranger that did not finish its handshake in time.
        silent,
        /// Refused: a handshake under a key that this member does not have.
        unknown_key,
        /// Refused: a handshake without a key, though this member has one.
        keyless,
        /// Refused: a handshake, record, datagram or relayed packet that was changed or repeated,
        /// or made without the key.
        forged,
        /// Refused: a datagram or relayed packet that was opened before, or a datagram for an
        /// earlier process of this address.
        repeated,
        /// Refused: a process with the key that claimed the id of another one.
        impostors,
        /// Refused: a packet of a process that claimed the vote of a member without a proof.
        vote_claims,
        /// Refused: a member of another lineage of this cluster. Two clusters of one name run.
        other_lineage,
        /// Refused: frames of processes outside the view, beyond the rate of all of them. Without a
        /// key also datagrams from addresses outside the view, beyond theirs.
        throttled,
        /// Refused: a process that wants more than its key's role allows, or gives an order from
        /// another host to a cluster without a key.
        above_role,
    }
    others {
        /// Connections of which both sides finished the handshake, with a key if the cluster has
        /// one.
        connected,
        /// Orders of operators that were carried out, or begun.
        orders,
        /// Orders that force: a revocation or a new lineage.
        forced_orders,
        /// Closed: connections of strangers, to make room for others or because they were silent.
        evicted,
        /// Packets that were not sent: the queue of the peer was full, or there are too many peers.
        overflowed,
        /// Packets that were not sent: the peer was not reached, or another process answered there.
        undelivered,
        /// Busy polls that found packets, see [`busy_poll`](crate::MemberBuilder::busy_poll).
        busy_poll_hits,
        /// Busy polls that found no packet within the limit.
        busy_poll_misses,
    }
}

impl AtomicCounters {
    /// Counts a refused frame by its reason.
    pub(super) fn refuse_frame(&self, error: &FrameError) {
        match error {
            FrameError::Oversized(_) => add(&self.oversized, 1),
            FrameError::Versions(_) => add(&self.other_version, 1),
            FrameError::Damaged => add(&self.damaged, 1),
            FrameError::Garbage => add(&self.garbage, 1),
            FrameError::Forged => add(&self.forged, 1),
        }
    }

    /// Counts a refused datagram by its reason.
    pub(super) fn refuse_datagram(&self, error: &DatagramError) {
        match error {
            DatagramError::Oversized(_) => add(&self.oversized, 1),
            DatagramError::Version(_) => add(&self.other_version, 1),
            DatagramError::ForeignCluster => add(&self.foreign_cluster, 1),
            DatagramError::Garbage => add(&self.garbage, 1),
        }
    }
}

/// Adds to a counter. No other memory depends on it, so relaxed order is enough.
pub(super) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}

#[cfg(all(test, any(feature = "http", feature = "metrics")))]
mod tests {
    use super::*;

    /// The documents name the counters of refused input by the word "refused".
    #[test]
    fn the_refused_group_has_the_counters_that_are_described_as_refused() {
        let source = include_str!("counters.rs").split("\ncounters! {").nth(1);
        let lines = source.expect("the counters").split("\n}\n").next().expect("its end").lines();
        let mut is_refused = false;
        let mut described = Vec::new();
        for line in lines.map(str::trim) {
            match line.strip_suffix(',').filter(|_| !line.starts_with("///")) {
                Some(field) if std::mem::take(&mut is_refused) => described.push(field),
                Some(_) => {}
                None => is_refused |= line.starts_with("/// Refused: "),
            }
        }
        let refused = Counters::default().refused();
        assert_eq!(refused.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), described);
    }
}
