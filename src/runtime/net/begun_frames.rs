//! `BegunFrames`: one limit for the bytes of all incomplete frames of a kind of processes: those
//! with a vote, and all others. Beyond it the connection with the longest incomplete frame is
//! closed. An honest frame is shorter than those of a flood, and is complete soon.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// The incomplete frames of one kind of processes, with their limit.
#[derive(Debug)]
pub(super) struct BegunFrames {
    /// The most bytes of all incomplete frames.
    limit: usize,
    table: Mutex<BegunTable>,
}

/// The incomplete frames of the open connections, in the order in which they began.
#[derive(Debug, Default)]
struct BegunTable {
    next: u64,
    used: usize,
    frames: BTreeMap<u64, BegunFrame>,
}

#[derive(Debug)]
struct BegunFrame {
    bytes: usize,
    addr: SocketAddr,
    end: CancellationToken,
}

/// The frame of one connection, counted until this is dropped.
pub(super) struct BegunShare {
    all: Arc<BegunFrames>,
    /// The address of the other side.
    addr: SocketAddr,
    /// Ends the connection.
    end: CancellationToken,
    /// The number of the incomplete frame; `None` between frames.
    number: Option<u64>,
}

impl BegunFrames {
    pub(super) fn new(limit: usize) -> Self {
        BegunFrames { limit, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, BegunTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of all connections that are not ended.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.table().used
    }
}

impl BegunTable {
    fn remove(&mut self, number: u64) -> Option<BegunFrame> {
        let frame = self.frames.remove(&number)?;
        self.used -= frame.bytes;
        Some(frame)
    }

    /// The longest frame; of equally long ones the one that began first.
    fn longest(&self) -> Option<u64> {
        let frames = self.frames.iter();
        let bytes = |frame: &BegunFrame| if planted!(EndFirstBegun) { 0 } else { frame.bytes };
        let longest = frames.max_by_key(|(number, frame)| (bytes(frame), Reverse(**number)));
        longest.map(|(number, _)| *number)
    }
}

impl BegunShare {
    /// `end` is cancelled when the connection has to make room.
    pub(super) fn new(all: &Arc<BegunFrames>, addr: SocketAddr, end: CancellationToken) -> Self {
        BegunShare { all: all.clone(), addr, end, number: None }
    }

    /// Returns whether the connection is ended.
    pub(super) fn is_ended(&self) -> bool {
        self.end.is_cancelled()
    }

    /// Counts the frame among others from now on, without those that it had.
    pub(super) fn move_to(&mut self, all: &Arc<BegunFrames>) {
        if !Arc::ptr_eq(&self.all, all) {
            if let Some(number) = self.number.take() {
                self.all.table().remove(number);
            }
            self.all = all.clone();
        }
    }

    /// Sets the bytes of the incomplete frame; zero if the frame is complete. Returns the addresses
    /// of the connections that are closed to make room. This connection may be one of them.
    pub(super) fn resize(&mut self, bytes: usize) -> Vec<SocketAddr> {
        let mut ended = Vec::new();
        if bytes == 0 && self.number.is_none() || self.is_ended() {
            return ended;
        }
        let mut table = self.all.table();
        if let Some(number) = self.number.take_if(|_| bytes == 0) {
            table.remove(number);
            return ended;
        }
        let number = *self.number.get_or_insert_with(|| {
            table.next += 1;
            table.next
        });
        let (addr, end) = (self.addr, self.end.clone());
        table.remove(number);
        table.frames.insert(number, BegunFrame { bytes, addr, end });
        table.used += bytes;
        while table.used > self.all.limit
            && !planted!(KeepAllBegun)
            && let Some(longest) = table.longest()
            && let Some(frame) = table.remove(longest)
        {
            frame.end.cancel();
            ended.push(frame.addr);
        }
        ended
    }
}

impl Drop for BegunShare {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.all.table().remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(all: &Arc<BegunFrames>, port: u16) -> BegunShare {
        BegunShare::new(all, SocketAddr::from(([127, 0, 0, 1], port)), CancellationToken::new())
    }

    /// The ports of the connections that are ended when this frame has `bytes` bytes.
    fn resize(share: &mut BegunShare, bytes: usize) -> Vec<u16> {
        share.resize(bytes).iter().map(SocketAddr::port).collect()
    }

    fn none() -> Vec<u16> {
        Vec::new()
    }

    #[test]
    fn the_connection_with_the_longest_begun_frame_is_ended_first() {
        let all = Arc::new(BegunFrames::new(100));
        let [mut first, mut second, mut third] = [1, 2, 3].map(|port| share(&all, port));
        assert_eq!((resize(&mut first, 30), resize(&mut second, 60)), (none(), none()));
        assert_eq!(resize(&mut third, 10), none(), "all that is left");
        assert_eq!(resize(&mut third, 20), [2]);
        assert_eq!([&first, &second, &third].map(BegunShare::is_ended), [false, true, false]);
        assert_eq!(all.used(), 50, "an ended one counts no more");
        assert_eq!((resize(&mut second, 70), all.used()), (none(), 50));
        // The frame that grows may be the longest one itself.
        assert_eq!(resize(&mut third, 71), [3]);
        assert_eq!(all.used(), 30);
    }

    #[test]
    fn of_equal_frames_the_one_that_began_first_goes() {
        let all = Arc::new(BegunFrames::new(100));
        let [mut first, mut second, mut third] = [1, 2, 3].map(|port| share(&all, port));
        assert_eq!((resize(&mut first, 40), resize(&mut second, 40)), (none(), none()));
        // A frame is complete, and the next one of its connection begins.
        assert_eq!((resize(&mut first, 0), resize(&mut first, 40)), (none(), none()));
        assert_eq!(resize(&mut third, 40), [2]);
    }

    #[test]
    fn one_frame_that_is_longer_than_all_others_together_goes_alone() {
        let all = Arc::new(BegunFrames::new(100));
        let mut shares: Vec<_> = (1..=10).map(|port| share(&all, port)).collect();
        for share in &mut shares {
            assert_eq!(resize(share, 10), none());
        }
        assert_eq!(resize(&mut shares[9], 101), [10]);
        assert_eq!(all.used(), 90);
        drop(shares);
        assert_eq!(all.used(), 0, "a share counts until it is dropped");
    }
}
