//! `ByteQueue`: bytes enter at the back and leave at the front, without being moved each time.

/// A buffer that keeps its allocation while it is used, and frees most of a large one when few
/// bytes are left.
#[derive(Clone, Debug, Default)]
pub struct ByteQueue {
    bytes: Vec<u8>,
    start: usize,
}

/// The capacity that an empty queue may keep: enough for a busy second of a usual peer, little
/// enough for a thousand peers.
const KEEP: usize = 64 * 1024;

impl ByteQueue {
    /// The waiting bytes, oldest first.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Returns the waiting bytes, to be changed in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// The number of waiting bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns whether no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer, to append to its end. Change no other byte: the present ones are partly
    /// consumed.
    pub fn back(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops the first `count` bytes, at most all.
    pub fn advance(&mut self, count: usize) {
        self.start = self.bytes.len().min(self.start + count);
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP);
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            // Moves at most as many bytes as were consumed since the last move.
            self.bytes.drain(..self.start);
            self.start = 0;
            // The beginning of the next frame often stays behind a long one.
            if self.bytes.len() < self.bytes.capacity() / 4 {
                self.bytes.shrink_to(KEEP.max(2 * self.bytes.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut queue = ByteQueue::default();
        let (mut written, mut read) = (0u32, 0u32);
        for round in 0..1000usize {
            for _ in 0..round % 7 {
                queue.back().extend_from_slice(&written.to_be_bytes());
                written += 1;
            }
            for _ in 0..round % 5 {
                if queue.is_empty() {
                    break;
                }
                assert_eq!(queue.as_slice()[..4], read.to_be_bytes());
                queue.advance(4);
                read += 1;
            }
            assert_eq!(queue.len(), 4 * (written - read) as usize);
        }
        assert!(read > 1000);
    }

    #[test]
    fn an_empty_queue_gives_a_large_allocation_back() {
        let mut queue = ByteQueue::default();
        queue.back().resize(10 * KEEP, 0);
        queue.advance(usize::MAX / 2);
        assert!(queue.is_empty() && queue.back().capacity() <= KEEP);
    }

    #[test]
    fn a_queue_with_few_bytes_left_gives_a_large_allocation_back() {
        let mut queue = ByteQueue::default();
        queue.back().resize(10 * KEEP, 0);
        queue.back().push(7);
        queue.advance(10 * KEEP);
        assert_eq!(queue.as_slice(), [7]);
        assert!(queue.back().capacity() <= KEEP);
    }
}
