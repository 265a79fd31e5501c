//! `WriteHalf`: the right to write to one address, with its connections and buffers.

use super::connection_writer::ConnectionWriter;
use super::counters::{AtomicCounters, add};
use super::stranger_budget::StrangerBudget;
use crate::protocol::ProcessId;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// The most bytes of bulk in one write: a notice waits for no more than this.
pub(super) const BATCH: usize = 256 * 1024;
/// The capacity that an empty batch may keep. Each address that is written to has a batch.
pub(super) const KEPT_BATCH: usize = 64 * 1024;

/// The right to write, and its buffers.
#[derive(Default)]
pub(super) struct WriteHalf {
    pub(super) links: Vec<ConnectionWriter>,
    /// The bytes to write, reused from one batch to the next.
    pub(super) batch: Vec<u8>,
    /// The rest of a batch that was not written whole. It goes before all else.
    pub(super) begun: Option<PartialWrite>,
}

/// A batch on its way.
pub(super) struct PartialWrite {
    /// The index of the batch's connection.
    pub(super) link: usize,
    /// How many of its bytes are written.
    pub(super) written: usize,
    pub(super) frames: usize,
}

/// A stranger's connection with the rest of a batch, apart from its peer.
pub(super) struct SlowWrite {
    pub(super) link: ConnectionWriter,
    pub(super) batch: Vec<u8>,
    written: usize,
    frames: usize,
}

impl SlowWrite {
    /// Writes the rest within `limit`. `None`: the other side did not take it, and the connection
    /// is closed.
    pub(super) async fn finish(
        mut self,
        counters: &AtomicCounters,
        limit: Duration,
    ) -> Option<ConnectionWriter> {
        let rest = &self.batch[self.written..];
        let is_written = tokio::select! {
            written = tokio::time::timeout(limit, self.link.writer.write_all(rest)) => {
                matches!(written, Ok(Ok(())))
            }
            () = self.link.closed.cancelled() => false,
        };
        if is_written {
            add(&counters.frames_out, self.frames);
            add(&counters.bytes_out, self.batch.len());
            return Some(self.link);
        }
        add(&counters.undelivered, self.frames);
        self.link.closed.cancel();
        None
    }
}

impl WriteHalf {
    /// Turns the frames of the batch into records, if the connection is sealed. Call this once for
    /// each batch and in the order of writing, since the other side counts records.
    pub(super) fn seal(&mut self, link: usize) {
        let WriteHalf { links, batch, .. } = self;
        let Some(sealer) = &mut links[link].sealer else { return };
        if sealer.seal_from(0, batch).is_err() {
            links[link].closed.cancel();
        }
    }

    /// Writes the rest of the batch, if there is one. A connection that does not take it is closed.
    pub(super) async fn finish(&mut self, counters: &AtomicCounters) {
        let Some(PartialWrite { link: index, written, frames }) = self.begun.take() else { return };
        let link = &mut self.links[index];
        let is_written = tokio::select! {
            written = link.writer.write_all(&self.batch[written..]) => written.is_ok(),
            () = link.closed.cancelled() => false,
        };
        if is_written {
            add(&counters.frames_out, frames);
            add(&counters.bytes_out, self.batch.len());
        } else {
            add(&counters.undelivered, frames);
            self.links.remove(index).closed.cancel();
        }
        self.clear_batch();
    }

    /// Empties the batch, and frees most of a large one.
    pub(super) fn clear_batch(&mut self) {
        self.batch.clear();
        self.batch.shrink_to(KEPT_BATCH);
    }

    /// Takes out the connection that has begun a batch, if it is a stranger's and does not take the
    /// rest at once. The frames for others must not wait until a stranger reads. Closes the
    /// connection if too many bytes wait for strangers.
    pub(super) fn take_stalled(
        &mut self,
        counters: &AtomicCounters,
        budget: &Arc<StrangerBudget>,
        is_member: impl Fn(ProcessId) -> bool,
    ) -> Option<SlowWrite> {
        let PartialWrite { link: index, written, frames } = self.begun.as_mut()?;
        let link = &self.links[*index];
        if is_member(link.process) {
            return None;
        }
        *written += link.writer.try_write(&self.batch[*written..]).unwrap_or(0);
        let (index, written, frames) = (*index, *written, *frames);
        self.begun = None;
        if written == self.batch.len() {
            add(&counters.frames_out, frames);
            add(&counters.bytes_out, written);
            self.clear_batch();
            return None;
        }
        let batch = std::mem::take(&mut self.batch);
        let link = self.links.remove(index);
        if budget.is_spent() {
            add(&counters.undelivered, frames);
            link.closed.cancel();
            return None;
        }
        Some(SlowWrite { link, batch, written, frames })
    }

    /// Takes over a connection. Connections that opened within `crossing` of each other crossed.
    pub(super) fn add(&mut self, link: ConnectionWriter, crossing: Duration) {
        // A later connection did not cross: the other side has opened it because the earlier one
        // failed.
        for before in self.links.iter_mut().filter(|before| before.process == link.process) {
            before.is_preferred &= link.opened < before.opened + crossing;
        }
        self.links.push(link);
    }

    /// Drops closed connections, new ones included: one may end before the task has checked it.
    pub(super) fn drop_closed(&mut self) {
        self.links.retain(|link| !link.closed.is_cancelled());
    }

    pub(super) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Returns whether a connection lives, or a batch is on its way.
    pub(super) fn is_in_use(&self) -> bool {
        self.begun.is_some() || self.links.iter().any(|link| !link.closed.is_cancelled())
    }

    /// Ends the writing. The readers continue until the other side has seen the end, so that no
    /// written bytes are lost.
    pub(super) async fn shut_down(self) {
        for mut link in self.links {
            let _ = link.writer.shutdown().await;
        }
    }
}
