//! `Peer`: the frames and connections for one address, and the work of the task that serves them.
//!
//! A peer is an address. Only a handshake shows which process lives there. So queued frames are
//! sorted by the process that they are meant for. They leave on any live connection with that
//! process, whichever side opened it. Without one, the address is dialled, and there are three
//! cases:
//!
//! - the wanted process answers: its queue is sent;
//! - another process answers, or the connection is refused: the queue is dropped, and the core gets
//!   a hint for each process;
//! - no process answers in time: the queue is dropped too, with a weaker hint.
//!
//! Dropping is right: the core sends again all that still matters, and no stale frames flood a peer
//! that comes back. Two connections that cross are both kept. Both sides send on the connection
//! that the lesser process has dialled.
//!
//! Mostly the task does not write. A thread that has queued an awaited frame writes it itself,
//! after all frames that were queued before. It writes as much as the connection takes at once.
//! Waking the task first would take longer. The **write half** keeps the frames in order. There is
//! one, and the thread that writes has it. When the thread puts it back, either all frames are
//! written, or the thread wakes the task.

mod queue;

use super::connection_reader::ConnectionReader;
use super::connection_writer::ConnectionWriter;
use super::counters::{AtomicCounters, add};
use super::dial_error::DialError;
use super::stranger_budget::{BudgetShare, StrangerBudget};
use super::write_half::{PartialWrite, SlowWrite, WriteHalf};
use crate::protocol::{Packet, ProcessId};
use crate::wire::{Frame, VERSIONS};
use queue::{BULK, NOTICES, NextWrite, PeerQueue, QueueState, STRANGER_BYTES, StalledConnection};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::time::Instant;

pub(super) struct Peer {
    pub(super) addr: SocketAddr,
    pub(super) born: Instant,
    queue: Mutex<PeerQueue>,
}

/// The work that the task finds, with the right to write.
pub(super) struct TaskWork {
    pub(super) write_half: WriteHalf,
    /// New connections.
    pub(super) offered: Vec<ConnectionWriter>,
    /// Connections that were set aside, and are back.
    pub(super) returned: Vec<ConnectionWriter>,
    /// The result of the latest dial, if it has ended.
    pub(super) dialled: Option<Result<ProcessId, DialError>>,
}

impl Peer {
    /// `budget`: counts the bytes for strangers; `total`: counts those for all other processes.
    pub(super) fn new(
        addr: SocketAddr,
        budget: Arc<StrangerBudget>,
        total: Arc<StrangerBudget>,
    ) -> Self {
        Peer { addr, born: Instant::now(), queue: Mutex::new(PeerQueue::new(budget, total)) }
    }

    fn queue(&self) -> MutexGuard<'_, PeerQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame; `false`: dropped. Nothing leaves before [`write`](Self::write) or
    /// [`wake`](Self::wake). `is_strange`: the process is outside the view. `view`:
    /// the version of the view.
    pub(super) fn push(
        &self,
        want: Option<ProcessId>,
        frame: &Frame,
        is_strange: bool,
        view: Option<u16>,
    ) -> bool {
        let mut queue = self.queue();
        let frame = (frame, VERSIONS.to_encode(view, queue.versions));
        // Move the bytes of the queued frames to the right budget before this frame is judged.
        let PeerQueue { wants, budget, strange, .. } = &mut *queue;
        let queues = wants.entry(want).or_default();
        if std::mem::replace(&mut queues.is_strange, is_strange) != is_strange {
            queues.count(budget, strange);
            queue.count();
        }
        let most = if is_strange { usize::MAX } else { queue.longest_frame() };
        let PeerQueue { wants, notices, bulk, budget, strange, .. } = &mut *queue;
        let queues = wants.entry(want).or_default();
        let is_full = queues.len() >= STRANGER_BYTES || budget.is_spent();
        if is_strange && !queues.is_empty() && is_full && !planted!(QueueAllForStrangers) {
            return false;
        }
        let pushed = if is_notice(frame.0) {
            notices.push(&mut queues.notices, frame, &NOTICES, most)
        } else {
            bulk.push(&mut queues.bulk, frame, &BULK, most)
        };
        queues.count(budget, strange);
        queue.count();
        drop(queue);
        pushed.unwrap_or_else(|error| {
            tracing::error!(%error, "a frame cannot be written");
            false
        })
    }

    /// The number of bytes that wait here for strangers.
    pub(super) fn strange_bytes(&self) -> usize {
        let queue = self.queue();
        let queued: usize = queue.wants.values().map(|queues| queues.counted).sum();
        queued + queue.stalled.values().map(|stalled| stalled.share.bytes()).sum::<usize>()
    }

    /// Drops the frames that wait here for strangers, and returns their number. Frames that are set
    /// aside end with their connections.
    pub(super) fn drop_strange(&self) -> usize {
        let mut queue = self.queue();
        for stalled in queue.stalled.values_mut() {
            stalled.closed.cancel();
            // The task of the connection frees the batch as soon as it runs.
            stalled.share.forget();
        }
        queue.drop_frames(|queues| queues.is_strange)
    }

    /// Ends this peer if it has no connection: drops its frames, and returns their number. The
    /// caller then forgets the peer. `None`: there is a connection.
    pub(super) fn make_room(&self) -> Option<usize> {
        let mut queue = self.queue();
        let has_links = !queue.offered.is_empty()
            || !queue.returned.is_empty()
            || !queue.stalled.is_empty()
            || queue.write_half.as_ref().is_none_or(WriteHalf::is_in_use);
        if has_links {
            return None;
        }
        let frames = queue.drop_frames(|_| true);
        queue.is_retired = true;
        queue.changed = true;
        self.wake_from(queue);
        Some(frames)
    }

    /// Whether this peer has [made room](Self::make_room).
    pub(super) fn is_retired(&self) -> bool {
        self.queue().is_retired
    }

    /// Writes queued frames, as much as a connection takes at once. All other work is left to the
    /// task, as are the remaining frames. Returns the connection on which the answer arrives, if
    /// all frames were written to it.
    pub(super) fn write(&self, counters: &AtomicCounters) -> Option<Arc<ConnectionReader>> {
        let mut reader = None;
        let mut queue = self.queue();
        // The thread with the write half checks the queue again before it puts the write half back.
        let mut write_half = queue.write_half.take()?;
        if write_half.begun.is_none() {
            write_half.batch.clear();
            let NextWrite { write, frames, .. } =
                queue.plan(&write_half.links, &mut write_half.batch);
            if let Some(link) = write {
                drop(queue);
                write_half.seal(link);
                // The task notices a broken connection when it writes the rest.
                let written =
                    write_half.links[link].writer.try_write(&write_half.batch).unwrap_or(0);
                if written == write_half.batch.len() {
                    add(&counters.frames_out, frames);
                    add(&counters.bytes_out, written);
                    reader = Some(write_half.links[link].reader.clone());
                    write_half.clear_batch();
                } else {
                    write_half.begun = Some(PartialWrite { link, written, frames });
                }
                queue = self.queue();
            }
        }
        if queue.on_way > 0 && write_half.begun.is_none() {
            queue.note_batch(0);
        }
        queue.changed |= std::mem::take(&mut queue.wanted) || write_half.begun.is_some();
        queue.write_half = Some(write_half);
        if queue.changed || !queue.is_empty() {
            self.wake_from(queue);
        }
        reader
    }

    /// A connection that may carry frames to this peer.
    pub(super) fn offer(&self, link: ConnectionWriter) {
        let mut queue = self.queue();
        queue.versions = Some(link.versions);
        if link.dialled {
            queue.dialled = Some(Ok(link.process));
        }
        queue.offered.push(link);
        queue.changed = true;
        self.wake_from(queue);
    }

    /// Notes that the frames for the process of this connection wait until it is
    /// [back](Self::return_link). Returns the number under which it returns.
    pub(super) fn note_stalled(&self, slow: &SlowWrite) -> u64 {
        let mut queue = self.queue();
        let share = BudgetShare::new(&queue.budget, slow.batch.len());
        let (process, closed) = (slow.link.process, slow.link.closed.clone());
        let number = queue.next_aside;
        queue.next_aside += 1;
        queue.stalled.insert(number, StalledConnection { process, share, closed });
        number
    }

    /// Takes back a connection that was set aside. `None`: it is closed.
    pub(super) fn return_link(&self, number: u64, link: Option<ConnectionWriter>) {
        let mut queue = self.queue();
        queue.stalled.remove(&number);
        queue.returned.extend(link);
        queue.changed = true;
        self.wake_from(queue);
    }

    /// Notes that a dial has failed.
    pub(super) fn dial_failed(&self, error: DialError) {
        let mut queue = self.queue();
        queue.dialled = Some(Err(error));
        queue.changed = true;
        self.wake_from(queue);
    }

    /// Wakes the task to check its connections.
    pub(super) fn link_closed(&self) {
        let mut queue = self.queue();
        queue.changed = true;
        self.wake_from(queue);
    }

    /// Wakes the task to write the queued frames, with all that are queued until it runs.
    pub(super) fn wake(&self) {
        self.wake_from(self.queue());
    }

    fn wake_from(&self, mut queue: MutexGuard<'_, PeerQueue>) {
        queue.woken = true;
        let task = queue.task.take();
        drop(queue);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Completes when there is work for the task.
    pub(super) async fn woken(&self) {
        loop {
            match poll_fn(|context| self.poll_look(context)).await {
                QueueState::Empty => {}
                // Tasks that are about to queue more frames run first, so that one write takes them
                // all.
                QueueState::Queued => return tokio::task::yield_now().await,
                QueueState::Changed => return,
            }
        }
    }

    /// Takes the task's work. `None`: another thread writes, and wakes the task afterwards.
    pub(super) fn take_work(&self) -> Option<TaskWork> {
        let mut queue = self.queue();
        queue.changed = false;
        let write_half = queue.take_write_half()?;
        let (offered, dialled) = (std::mem::take(&mut queue.offered), queue.dialled.take());
        let returned = std::mem::take(&mut queue.returned);
        Some(TaskWork { write_half, offered, returned, dialled })
    }

    /// Begins the next batch, which [`WriteHalf::finish`] writes. Without frames to write, puts the
    /// write half back. If frames wait for a process without a connection, also returns the
    /// processes that have one.
    pub(super) fn plan(
        &self,
        mut write_half: WriteHalf,
    ) -> (Option<BTreeSet<ProcessId>>, Option<WriteHalf>) {
        let mut queue = self.queue();
        write_half.batch.clear();
        let NextWrite { write, frames, dial } =
            queue.plan(&write_half.links, &mut write_half.batch);
        // A new connection with one of these processes would not help.
        let known = |link: &&ConnectionWriter| link.leads_to(None);
        let stuck =
            dial.then(|| write_half.links.iter().filter(known).map(|link| link.process).collect());
        let Some(link) = write else {
            // The write half is put back while the queue is still locked: every frame that a thread
            // queued without a write half was seen.
            queue.write_half = Some(write_half);
            return (stuck, None);
        };
        drop(queue);
        write_half.seal(link);
        write_half.begun = Some(PartialWrite { link, written: 0, frames });
        (stuck, Some(write_half))
    }

    /// Drops the frames for processes without a connection. Returns those processes, and the number
    /// of frames.
    pub(super) fn give_up(&self, write_half: &WriteHalf) -> (Vec<ProcessId>, usize) {
        self.queue().give_up(&write_half.links)
    }

    /// Takes the write half. `None`: another thread writes, and wakes the task afterwards.
    pub(super) fn take_write_half(&self) -> Option<WriteHalf> {
        self.queue().take_write_half()
    }

    /// Puts the write half back. The task checks the queue next.
    pub(super) fn put_back(&self, write_half: WriteHalf) {
        self.queue().write_half = Some(write_half);
    }

    /// Returns the state that the woken task finds.
    fn poll_look(&self, context: &mut Context<'_>) -> Poll<QueueState> {
        let mut queue = self.queue();
        if queue.woken {
            return Poll::Ready(queue.look());
        }
        queue.task = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns whether nothing waits here.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue();
        let has_links =
            !queue.offered.is_empty() || !queue.returned.is_empty() || !queue.stalled.is_empty();
        !has_links && queue.dialled.is_none() && queue.is_empty()
    }
}

/// Whether the frame is a notice, directly or inside a relay.
fn is_notice(frame: &Frame) -> bool {
    match frame {
        Frame::Packet(Packet::Notice(_)) => true,
        Frame::Packet(Packet::Relay { packet, .. }) => {
            matches!(**packet, Packet::Notice(_) | Packet::Sealed { is_notice: true, .. })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
