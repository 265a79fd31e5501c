//! `Peer`: everything on its way to one address, and the task that brings it there.
//!
//! A peer is an address. Only an answer shows which process lives there. So queued frames are
//! sorted by the process that they are meant for. They leave on any live connection with that
//! process, whichever side opened it. Without one, the address is dialled, and the handshake tells
//! the truth:
//!
//! - the wanted process answers: its queue goes out;
//! - another one answers, or the connection is refused: the queue is dropped and the core gets a
//!   hint for each;
//! - no process answers in time: likewise, with a weaker hint.
//!
//! Dropping is right: the core sends again all that still matters, and nothing stale floods a peer
//! that comes back. Two connections that cross are both kept. Both sides send on the connection
//! that the lesser process has dialled.
//!
//! Mostly the task does not write. A thread that has queued an awaited frame writes it itself,
//! after all frames that were queued before. It writes as much as the connection takes at once. To
//! wake the task first would take longer. The **write half** keeps the frames in order. There is
//! one, and the thread that writes has it. When the thread puts it back, either all frames are
//! written, or the thread wakes the task.

use super::connection_reader::ConnectionReader;
use super::counters::{AtomicCounters, add};
use super::stranger_budget::{BudgetShare, StrangerBudget};
use crate::protocol::{Packet, ProcessId, Versions};
use crate::wire::secure::Sealer;
use crate::wire::{self, ByteQueue, Frame, VERSIONS};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A peer gets a few notices in a second. Thousands mean that it has not read for long.
const NOTICES: QueueLimit = QueueLimit { frames: 4 * 1024, bytes: 4 * 1024 * 1024 };
/// Locks: a busy member's messages of about a second; more is late anyway.
const BULK: QueueLimit = QueueLimit { frames: 64 * 1024, bytes: 16 * 1024 * 1024 };
/// Notices and bulk together for a process outside the view: several views. Messages about locks do
/// not go there.
const STRANGER_BYTES: usize = 1024 * 1024;
/// Bulk in one write: a notice waits for no more than this.
const BATCH: usize = 256 * 1024;

struct QueueLimit {
    frames: usize,
    bytes: usize,
}

/// The sending half of a connection.
pub(super) struct ConnectionWriter {
    /// The process at the other end, from the handshake.
    pub(super) process: ProcessId,
    /// The versions that it speaks, from the handshake.
    pub(super) versions: Versions,
    pub(super) writer: OwnedWriteHalf,
    /// Seals what is written, if the cluster has a key.
    pub(super) sealer: Option<Sealer>,
    pub(super) reader: Arc<ConnectionReader>,
    /// Cancelled when either half has ended; ends the other.
    pub(super) closed: CancellationToken,
    /// Cancelled to close a connection that is not needed, with which nothing is wrong.
    pub(super) redundant: CancellationToken,
    /// The handshake's dialler was this member.
    pub(super) dialled: bool,
    /// Both sides use this one of two connections that crossed. So a caller knows where its
    /// answer arrives.
    pub(super) is_preferred: bool,
    pub(super) opened: Instant,
}

/// Why an address was not reached.
#[derive(Debug)]
pub(super) enum DialError {
    /// The address refuses connections.
    Refused,
    /// Something answers that is not a member of this cluster.
    Stranger(String),
    /// Nothing answers, or it went away.
    Unreachable(String),
}

impl DialError {
    pub(super) fn text(&self) -> String {
        match self {
            DialError::Refused => "connection refused".into(),
            DialError::Stranger(why) | DialError::Unreachable(why) => why.clone(),
        }
    }
}

pub(super) struct Peer {
    pub(super) addr: SocketAddr,
    pub(super) born: Instant,
    queue: Mutex<PeerQueue>,
}

struct PeerQueue {
    budget: Arc<StrangerBudget>,
    /// The versions of the process that answered at the address last.
    versions: Option<Versions>,
    /// The queues by the process that the frames are meant for; `None`: any process at the address.
    wants: BTreeMap<Option<ProcessId>, OutboundQueues>,
    notices: QueueLoad,
    bulk: QueueLoad,
    /// New connections, for the task to take over.
    offered: Vec<ConnectionWriter>,
    /// The connections that are set aside: the frames for their processes wait.
    aside: BTreeMap<u64, AsideConnection>,
    next_aside: u64,
    /// The peer has made room for another one, and its task ends.
    is_retired: bool,
    /// Connections that were [set aside](WriteHalf::set_aside) and have taken their bytes.
    returned: Vec<ConnectionWriter>,
    /// How the dial that was under way has ended.
    dialled: Option<Result<ProcessId, DialError>>,
    /// Connections have come or gone, or a dial has ended.
    changed: bool,
    /// `None`: a thread writes.
    write_half: Option<WriteHalf>,
    /// The task has found no write half, and waits for it.
    wanted: bool,
    /// The task is to look, or does, and has not done so yet.
    woken: bool,
    /// The task, while it waits to be woken.
    task: Option<Waker>,
}

/// The right to write, and its buffers.
#[derive(Default)]
pub(super) struct WriteHalf {
    links: Vec<ConnectionWriter>,
    /// The bytes to write, reused from one batch to the next.
    batch: Vec<u8>,
    /// The frames of a batch before sealing, reused likewise.
    frames: Vec<u8>,
    /// The rest of a batch that was not taken whole. It goes before all else.
    begun: Option<PartialWrite>,
}

/// A batch on its way.
struct PartialWrite {
    /// Index of its link.
    link: usize,
    /// How many of its bytes are written.
    written: usize,
    frames: usize,
}

/// A stranger's connection with the rest of a batch, apart from its peer.
pub(super) struct SlowWrite {
    link: ConnectionWriter,
    batch: Vec<u8>,
    written: usize,
    frames: usize,
}

/// A connection that is set aside, as its peer knows it.
struct AsideConnection {
    process: ProcessId,
    /// Of its batch.
    share: BudgetShare,
    /// Ends the connection.
    closed: CancellationToken,
}

impl SlowWrite {
    /// Writes the rest within `limit`. `None`: it was not taken, and the connection is closed.
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

#[derive(Default)]
struct OutboundQueues {
    notices: ByteQueue,
    bulk: ByteQueue,
    /// The process was outside the view when the latest frame was queued.
    is_strange: bool,
    /// The bytes of it that the budget counts.
    counted: usize,
}

/// The frames of one kind that wait, over all processes.
#[derive(Default)]
struct QueueLoad {
    frames: usize,
    bytes: usize,
}

impl OutboundQueues {
    fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.bulk.is_empty()
    }

    fn len(&self) -> usize {
        self.notices.len() + self.bulk.len()
    }

    /// Updates the budget.
    fn count(&mut self, budget: &StrangerBudget) {
        let counted = if self.is_strange { self.len() } else { 0 };
        let before = std::mem::replace(&mut self.counted, counted);
        budget.replace(before, counted);
    }
}

impl Drop for PeerQueue {
    fn drop(&mut self) {
        let counted: usize = self.wants.values().map(|queues| queues.counted).sum();
        self.budget.replace(counted, 0);
    }
}

impl QueueLoad {
    /// Appends `frame` to `waiting` if the bound allows.
    fn push(
        &mut self,
        waiting: &mut ByteQueue,
        (frame, version): (&Frame, u16),
        bound: &QueueLimit,
    ) -> bool {
        if self.frames >= bound.frames || self.bytes >= bound.bytes {
            return false;
        }
        let before = waiting.len();
        if let Err(error) = wire::encode(frame, version, waiting.back()) {
            tracing::error!(%error, "a frame cannot be written");
            return false;
        }
        self.frames += 1;
        self.bytes += waiting.len() - before;
        true
    }

    /// Moves whole frames of about `budget` bytes, at least one, to `batch`; returns how many.
    fn take(&mut self, waiting: &mut ByteQueue, budget: usize, batch: &mut Vec<u8>) -> usize {
        let bytes = waiting.as_slice();
        let (mut end, mut frames) = (0, 0);
        while end < budget.min(bytes.len()) {
            // Only whole frames were put in.
            let Some(length) = wire::frame_length(&bytes[end..]) else { break };
            end += length;
            frames += 1;
        }
        batch.extend_from_slice(&bytes[..end]);
        waiting.advance(end);
        self.frames -= frames;
        self.bytes -= end;
        frames
    }

    /// Forgets all frames in `waiting`; returns how many there were.
    fn drop_all(&mut self, waiting: &mut ByteQueue) -> usize {
        let mut frames = 0;
        while let Some(length) = wire::frame_length(waiting.as_slice()) {
            waiting.advance(length);
            self.bytes -= length;
            frames += 1;
        }
        self.frames -= frames;
        frames
    }
}

/// The state that the task finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueState {
    /// Nothing is queued: mostly another thread has written it.
    Empty,
    /// Something is to be written.
    Queued,
    /// There is something else to do.
    Changed,
}

/// The work that the task finds, with the right to write.
pub(super) struct TaskWork {
    pub(super) write_half: WriteHalf,
    /// New connections.
    pub(super) offered: Vec<ConnectionWriter>,
    /// Connections that are back.
    pub(super) returned: Vec<ConnectionWriter>,
    /// How the dial that was under way has ended.
    pub(super) dialled: Option<Result<ProcessId, DialError>>,
}

/// The task's next step.
struct NextWrite {
    /// The batch is for this link.
    write: Option<usize>,
    /// Frames in the batch.
    frames: usize,
    /// Something waits for a process that no link leads to.
    dial: bool,
}

impl PeerQueue {
    fn new(budget: Arc<StrangerBudget>) -> Self {
        PeerQueue {
            budget,
            versions: None,
            wants: BTreeMap::new(),
            notices: QueueLoad::default(),
            bulk: QueueLoad::default(),
            offered: Vec::new(),
            aside: BTreeMap::new(),
            next_aside: 0,
            is_retired: false,
            returned: Vec::new(),
            dialled: None,
            changed: false,
            write_half: Some(WriteHalf::default()),
            wanted: false,
            woken: false,
            task: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.wants.values().all(OutboundQueues::is_empty)
    }

    /// Drops the frames of the fitting queues; returns how many.
    fn drop_frames(&mut self, fits: impl Fn(&OutboundQueues) -> bool) -> usize {
        let PeerQueue { wants, notices, bulk, budget, .. } = self;
        let mut frames = 0;
        for queues in wants.values_mut().filter(|queues| fits(queues)) {
            frames += notices.drop_all(&mut queues.notices) + bulk.drop_all(&mut queues.bulk);
            queues.count(budget);
        }
        frames
    }

    /// Takes the write half, for the task. `None`: the task is woken when the write half is back.
    fn take_write_half(&mut self) -> Option<WriteHalf> {
        self.wanted = self.write_half.is_none();
        self.write_half.take()
    }

    /// Returns the state that the task finds.
    fn look(&mut self) -> QueueState {
        self.woken = false;
        if self.changed {
            QueueState::Changed
        } else if self.is_empty() {
            QueueState::Empty
        } else {
            QueueState::Queued
        }
    }

    fn plan(&mut self, links: &[ConnectionWriter], batch: &mut Vec<u8>) -> NextWrite {
        let mut plan = NextWrite { write: None, frames: 0, dial: false };
        // A queue is dropped if no link leads to its process and no frame waits in it.
        self.wants.retain(|want, queues| !queues.is_empty() || route(links, *want).is_some());
        let aside: BTreeSet<_> = self.aside.values().map(|aside| Some(aside.process)).collect();
        for (want, queues) in &mut self.wants {
            if queues.is_empty() {
                continue;
            }
            match route(links, *want) {
                None if aside.contains(want) => {}
                None => plan.dial = true,
                Some(link) if plan.write.is_none_or(|chosen| chosen == link) => {
                    plan.write = Some(link);
                    plan.frames += self.notices.take(&mut queues.notices, usize::MAX, batch);
                    plan.frames +=
                        self.bulk.take(&mut queues.bulk, BATCH.saturating_sub(batch.len()), batch);
                    queues.count(&self.budget);
                }
                // Its turn comes with the next batch.
                Some(_) => {}
            }
        }
        plan
    }

    /// Drops the frames for processes that no link leads to. Returns those processes, and how many
    /// frames.
    fn give_up(&mut self, links: &[ConnectionWriter]) -> (Vec<ProcessId>, usize) {
        let (mut processes, mut frames) = (Vec::new(), 0);
        let aside: BTreeSet<_> = self.aside.values().map(|aside| Some(aside.process)).collect();
        for (want, queues) in &mut self.wants {
            if !queues.is_empty() && !aside.contains(want) && route(links, *want).is_none() {
                frames += self.notices.drop_all(&mut queues.notices)
                    + self.bulk.drop_all(&mut queues.bulk);
                queues.count(&self.budget);
                processes.extend(*want);
            }
        }
        (processes, frames)
    }
}

impl ConnectionWriter {
    /// Returns whether it leads to the wanted process, or to any process at the address. An
    /// accepted connection of a stranger does not: its process claims that address, and shows
    /// nothing.
    pub(super) fn leads_to(&self, want: Option<ProcessId>) -> bool {
        match want {
            Some(process) => process == self.process,
            None => self.dialled || self.reader.is_of_member(),
        }
    }
}

/// The newest live link with the wanted process, one that both prefer before all others.
fn route(links: &[ConnectionWriter], want: Option<ProcessId>) -> Option<usize> {
    let fits = |link: &ConnectionWriter| !link.closed.is_cancelled() && link.leads_to(want);
    let preferred = links.iter().rposition(|link| link.is_preferred && fits(link));
    preferred.or_else(|| links.iter().rposition(fits))
}

impl Peer {
    pub(super) fn new(addr: SocketAddr, budget: Arc<StrangerBudget>) -> Self {
        Peer { addr, born: Instant::now(), queue: Mutex::new(PeerQueue::new(budget)) }
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
        let PeerQueue { wants, notices, bulk, budget, .. } = &mut *queue;
        let queues = wants.entry(want).or_default();
        queues.is_strange = is_strange;
        if is_strange && !queues.is_empty() && (queues.len() >= STRANGER_BYTES || budget.is_spent())
        {
            return false;
        }
        let pushed = if is_notice(frame.0) {
            notices.push(&mut queues.notices, frame, &NOTICES)
        } else {
            bulk.push(&mut queues.bulk, frame, &BULK)
        };
        queues.count(budget);
        pushed
    }

    /// The number of bytes that wait here for strangers.
    pub(super) fn strange_bytes(&self) -> usize {
        let queue = self.queue();
        let queued: usize = queue.wants.values().map(|queues| queues.counted).sum();
        queued + queue.aside.values().map(|aside| aside.share.bytes()).sum::<usize>()
    }

    /// Drops the frames that wait here for strangers, and returns their number. Those that are set
    /// aside end with their connections.
    pub(super) fn drop_strange(&self) -> usize {
        let mut queue = self.queue();
        for aside in queue.aside.values_mut() {
            aside.closed.cancel();
            // Its task frees the batch as soon as it runs.
            aside.share.resize(0);
        }
        queue.drop_frames(|queues| queues.is_strange)
    }

    /// Ends this peer if no connection leads here: drops its frames, and returns their number. The
    /// caller forgets it. `None`: a connection does.
    pub(super) fn make_room(&self) -> Option<usize> {
        let mut queue = self.queue();
        let has_links = !queue.offered.is_empty()
            || !queue.returned.is_empty()
            || !queue.aside.is_empty()
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
    /// task, as is the rest. Returns where the answer comes, if all of it was written.
    pub(super) fn write(&self, counters: &AtomicCounters) -> Option<Arc<ConnectionReader>> {
        let mut reader = None;
        let mut queue = self.queue();
        // The thread with the write half looks again before it puts the write half back.
        let mut write_half = queue.write_half.take()?;
        if write_half.begun.is_none() {
            write_half.batch.clear();
            let NextWrite { write, frames, .. } =
                queue.plan(&write_half.links, &mut write_half.batch);
            if let Some(link) = write {
                drop(queue);
                write_half.seal(link);
                // The task finds a broken connection when it writes the rest.
                let written =
                    write_half.links[link].writer.try_write(&write_half.batch).unwrap_or(0);
                if written == write_half.batch.len() {
                    add(&counters.frames_out, frames);
                    add(&counters.bytes_out, written);
                    reader = Some(write_half.links[link].reader.clone());
                } else {
                    write_half.begun = Some(PartialWrite { link, written, frames });
                }
                queue = self.queue();
            }
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

    /// The frames for the process of this connection wait until it is [back](Self::return_link).
    /// Returns the number under which it returns.
    pub(super) fn note_aside(&self, slow: &SlowWrite) -> u64 {
        let mut queue = self.queue();
        let share = BudgetShare::new(&queue.budget, slow.batch.len());
        let (process, closed) = (slow.link.process, slow.link.closed.clone());
        let number = queue.next_aside;
        queue.next_aside += 1;
        queue.aside.insert(number, AsideConnection { process, share, closed });
        number
    }

    /// A connection that was set aside is back, or closed.
    pub(super) fn return_link(&self, number: u64, link: Option<ConnectionWriter>) {
        let mut queue = self.queue();
        queue.aside.remove(&number);
        queue.returned.extend(link);
        queue.changed = true;
        self.wake_from(queue);
    }

    /// The dial that was under way has failed.
    pub(super) fn dial_failed(&self, error: DialError) {
        let mut queue = self.queue();
        queue.dialled = Some(Err(error));
        queue.changed = true;
        self.wake_from(queue);
    }

    /// Lets the task look at its links again.
    pub(super) fn link_closed(&self) {
        let mut queue = self.queue();
        queue.changed = true;
        self.wake_from(queue);
    }

    /// Lets the task write the queued frames, with all that are queued until it runs.
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

    /// Completes when there is something for the task to do.
    pub(super) async fn woken(&self) {
        loop {
            match poll_fn(|context| self.poll_look(context)).await {
                QueueState::Empty => {}
                // Tasks that are about to queue more run first, and all of it goes in one write.
                QueueState::Queued => return tokio::task::yield_now().await,
                QueueState::Changed => return,
            }
        }
    }

    /// The task's work. `None`: another thread writes, and the task is woken when it has.
    pub(super) fn take_work(&self) -> Option<TaskWork> {
        let mut queue = self.queue();
        queue.changed = false;
        let write_half = queue.take_write_half()?;
        let (offered, dialled) = (std::mem::take(&mut queue.offered), queue.dialled.take());
        let returned = std::mem::take(&mut queue.returned);
        Some(TaskWork { write_half, offered, returned, dialled })
    }

    /// Begins the next batch; [`WriteHalf::finish`] writes it. Without one the write half is put
    /// back. If frames wait for a process that no connection leads to, also returns the processes
    /// that connections lead to.
    pub(super) fn plan(
        &self,
        mut write_half: WriteHalf,
    ) -> (Option<BTreeSet<ProcessId>>, Option<WriteHalf>) {
        let mut queue = self.queue();
        write_half.batch.clear();
        let NextWrite { write, frames, dial } =
            queue.plan(&write_half.links, &mut write_half.batch);
        // A new connection with one of these processes would bring nothing.
        let known = |link: &&ConnectionWriter| link.leads_to(None);
        let stuck =
            dial.then(|| write_half.links.iter().filter(known).map(|link| link.process).collect());
        let Some(link) = write else {
            // The write half is put back under the lock of the look: a thread that queued a frame
            // and found no write half was seen.
            queue.write_half = Some(write_half);
            return (stuck, None);
        };
        drop(queue);
        write_half.seal(link);
        write_half.begun = Some(PartialWrite { link, written: 0, frames });
        (stuck, Some(write_half))
    }

    /// Drops the frames for processes that no connection leads to. Returns those processes, and how
    /// many frames.
    pub(super) fn give_up(&self, write_half: &WriteHalf) -> (Vec<ProcessId>, usize) {
        self.queue().give_up(&write_half.links)
    }

    /// Takes the write half. `None`: another thread writes, and the task is woken when it has.
    pub(super) fn take_write_half(&self) -> Option<WriteHalf> {
        self.queue().take_write_half()
    }

    /// Other threads may write again. The task looks at the queue next.
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
        let has_links = !queue.offered.is_empty() || !queue.returned.is_empty();
        !has_links && queue.dialled.is_none() && queue.is_empty()
    }
}

/// A relayed notice is one too: it is a sign of life for another member.
fn is_notice(frame: &Frame) -> bool {
    match frame {
        Frame::Packet(Packet::Notice(_)) => true,
        Frame::Packet(Packet::Relay { packet, .. }) => {
            matches!(**packet, Packet::Notice(_) | Packet::Sealed { is_notice: true, .. })
        }
        _ => false,
    }
}

impl WriteHalf {
    /// Turns the frames of the batch into records, if the connection is sealed. It is called once
    /// for each batch and in the order of writing, since the other side counts records.
    fn seal(&mut self, link: usize) {
        let WriteHalf { links, batch, frames, .. } = self;
        let Some(sealer) = &mut links[link].sealer else { return };
        std::mem::swap(batch, frames);
        batch.clear();
        if sealer.seal(frames, batch).is_err() {
            batch.clear();
            links[link].closed.cancel();
        }
        frames.clear();
        frames.shrink_to(BATCH);
    }

    /// Writes the rest of the batch, if there is one. A link that does not take it is closed.
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
        self.batch.clear();
        self.batch.shrink_to(BATCH);
    }

    /// Takes out the connection that has begun a batch, if it is a stranger's and does not take the
    /// rest at once. The frames for others must not wait until a stranger reads. Closes it if too
    /// many bytes wait for strangers.
    pub(super) fn set_aside(
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
            self.batch.clear();
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

    /// Takes over a connection. Those that opened within `crossing` of each other crossed.
    pub(super) fn add(&mut self, link: ConnectionWriter, crossing: Duration) {
        // A later one did not cross: the other side has opened it because the one before does not
        // do any more.
        for before in self.links.iter_mut().filter(|before| before.process == link.process) {
            before.is_preferred &= link.opened < before.opened + crossing;
        }
        self.links.push(link);
    }

    /// Drops closed connections, new ones among them: one may end before the task has looked at it.
    pub(super) fn drop_closed(&mut self) {
        self.links.retain(|link| !link.closed.is_cancelled());
    }

    pub(super) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Whether a connection lives, or a batch is on its way.
    fn is_in_use(&self) -> bool {
        self.begun.is_some() || self.links.iter().any(|link| !link.closed.is_cancelled())
    }

    /// Ends the writing. The reading halves go on until the other side has seen the end, so that
    /// nothing written is lost.
    pub(super) async fn shut_down(self) {
        for mut link in self.links {
            let _ = link.writer.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Notice, ViewNumber};
    use crate::wire::PROTOCOL_VERSION;

    fn ack(ack: u64) -> Frame {
        Frame::Packet(Packet::Ack { view: ViewNumber(1), ack, again: false })
    }

    fn peer() -> Peer {
        Peer::new(
            "127.0.0.1:7400".parse().unwrap(),
            Arc::new(StrangerBudget::new(3 * STRANGER_BYTES)),
        )
    }

    #[test]
    fn each_queue_is_bounded_for_itself() {
        let peer = peer();
        for number in 0..BULK.frames as u64 {
            assert!(peer.push(Some(ProcessId(u128::from(number % 3))), &ack(number), false, None));
        }
        assert!(!peer.push(Some(ProcessId(9)), &ack(0), false, None));
        assert!(!peer.push(None, &ack(0), false, None));
        // Signs of life still pass.
        assert!(peer.push(None, &Frame::Packet(Packet::from(Notice::Leave)), false, None));
        let (processes, frames) = peer.queue().give_up(&[]);
        assert_eq!(processes, [ProcessId(0), ProcessId(1), ProcessId(2)]);
        assert_eq!(frames, BULK.frames + 1);
        assert!(peer.is_idle());
        let queue = peer.queue();
        assert_eq!(
            [queue.bulk.frames, queue.bulk.bytes, queue.notices.frames, queue.notices.bytes],
            [0; 4]
        );
    }

    #[test]
    fn bytes_are_bounded_too() {
        let peer = peer();
        let frame = Frame::Gossip(vec![0; 1024 * 1024]);
        let taken = (0..100).filter(|_| peer.push(None, &frame, false, None)).count();
        assert_eq!(taken, BULK.bytes / (1024 * 1024));
    }

    #[test]
    fn bytes_for_strangers_are_bounded_for_each_and_for_all() {
        let budget = Arc::new(StrangerBudget::new(3 * STRANGER_BYTES));
        let peers =
            [1, 2, 3, 4].map(|port| Peer::new(([127, 0, 0, 1], port).into(), budget.clone()));
        let frame = Frame::Gossip(vec![0; STRANGER_BYTES / 4]);
        let fill = |peer: &Peer| {
            (0..100).filter(|_| peer.push(Some(ProcessId(7)), &frame, true, None)).count()
        };
        assert_eq!(
            peers.each_ref().map(fill),
            [4, 4, 4, 1],
            "the last is let in where nothing waits"
        );
        assert!(
            budget.is_spent() && peers[0].push(Some(ProcessId(8)), &frame, false, None),
            "a member has bounds of its own"
        );
        assert_eq!(peers[0].drop_strange(), 4);
        assert_eq!(fill(&peers[3]), 3);
        // A stranger that becomes a member leaves the budget with its next frame.
        assert!(peers[1].push(Some(ProcessId(7)), &ack(0), false, None));
        assert_eq!(peers[1].strange_bytes(), 0);
        drop(peers);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn whole_frames_are_taken_in_order() {
        let (mut load, mut waiting) = (QueueLoad::default(), ByteQueue::default());
        for number in 0..1000 {
            assert!(load.push(&mut waiting, (&ack(number), PROTOCOL_VERSION), &BULK));
        }
        let mut decoder = wire::Decoder::new();
        decoder.open();
        let mut frames = 0;
        while !waiting.is_empty() {
            let mut batch = Vec::new();
            frames += load.take(&mut waiting, 100, &mut batch);
            decoder.back().extend_from_slice(&batch);
        }
        assert_eq!((frames, load.frames, load.bytes), (1000, 0, 0));
        for number in 0..1000 {
            assert_eq!(decoder.next(), Ok(Some(ack(number))));
        }
    }
}
