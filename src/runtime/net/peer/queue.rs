//! `PeerQueue`: the frames that wait for one address, sorted by their processes.

use crate::protocol::{ProcessId, Versions};
use crate::runtime::net::connection_writer::{ConnectionWriter, route};
use crate::runtime::net::dial_error::DialError;
use crate::runtime::net::stranger_budget::{BudgetShare, StrangerBudget};
use crate::runtime::net::write_half::{BATCH, WriteHalf};
use crate::wire::{self, ByteQueue, Frame, FrameError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use tokio_util::sync::CancellationToken;

/// The limit of notices. A peer gets a few in a second: with thousands waiting it has not read for
/// long.
pub(super) const NOTICES: QueueLimit = QueueLimit { frames: 4 * 1024, bytes: 4 * 1024 * 1024 };
/// The limit of messages about locks: those of a busy member for about a second. Later ones would
/// be late anyway.
pub(super) const BULK: QueueLimit = QueueLimit { frames: 64 * 1024, bytes: 16 * 1024 * 1024 };
/// The bytes that each peer may queue, however many wait for other peers: some hundred messages.
pub(super) const PEER_SHARE: usize = 64 * 1024;
/// The limit of all frames for a process outside the view: several views. No messages about locks
/// are sent there.
pub(super) const STRANGER_BYTES: usize = 1024 * 1024;

pub(super) struct QueueLimit {
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

pub(super) struct PeerQueue {
    pub(super) budget: Arc<StrangerBudget>,
    /// Counts the bytes of all peers beyond the share of each, without those for strangers.
    total: Arc<StrangerBudget>,
    /// The bytes of this peer in `total`.
    excess: usize,
    /// The bytes that wait here for strangers, which `budget` counts.
    pub(super) strange: usize,
    /// The bytes of the present batch beyond [`BATCH`], without those for strangers.
    pub(super) on_way: usize,
    /// The versions of the process that answered at the address last.
    pub(super) versions: Option<Versions>,
    /// The queues, by the process of the frames; `None`: any process at the address.
    pub(super) wants: BTreeMap<Option<ProcessId>, OutboundQueues>,
    pub(super) notices: QueueLoad,
    pub(super) bulk: QueueLoad,
    /// New connections, which the task takes over.
    pub(super) offered: Vec<ConnectionWriter>,
    /// The connections that are set aside: the frames for their processes wait.
    pub(super) stalled: BTreeMap<u64, StalledConnection>,
    pub(super) next_aside: u64,
    /// Whether the peer has made room for another one. Its task ends then.
    pub(super) is_retired: bool,
    /// Connections that were [set aside](WriteHalf::take_stalled) and have taken their bytes.
    pub(super) returned: Vec<ConnectionWriter>,
    /// The result of the latest dial, until the task takes it.
    pub(super) dialled: Option<Result<ProcessId, DialError>>,
    /// Whether connections have come or gone, or a dial has ended.
    pub(super) changed: bool,
    /// The write half; `None` while a thread writes.
    pub(super) write_half: Option<WriteHalf>,
    /// Whether the task has found no write half, and waits for it.
    pub(super) wanted: bool,
    /// Whether the task was woken and has not checked the queue since.
    pub(super) woken: bool,
    /// The waker of the task, while the task waits.
    pub(super) task: Option<Waker>,
}

/// A connection that is set aside, as its peer keeps it.
pub(super) struct StalledConnection {
    pub(super) process: ProcessId,
    /// The bytes of its batch, as the budget counts them.
    pub(super) share: BudgetShare,
    /// Ends the connection.
    pub(super) closed: CancellationToken,
}

#[derive(Default)]
pub(super) struct OutboundQueues {
    pub(super) notices: ByteQueue,
    pub(super) bulk: ByteQueue,
    /// Whether the process was outside the view when the latest frame was queued.
    pub(super) is_strange: bool,
    /// The bytes of these queues that the budget counts.
    pub(super) counted: usize,
}

/// The waiting frames of one kind, over all processes.
#[derive(Default)]
pub(super) struct QueueLoad {
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

impl OutboundQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.bulk.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.notices.len() + self.bulk.len()
    }

    /// Updates the budget, and `strange`: the sum over all processes of the peer.
    pub(super) fn count(&mut self, budget: &StrangerBudget, strange: &mut usize) {
        let counted = if self.is_strange { self.len() } else { 0 };
        let before = std::mem::replace(&mut self.counted, counted);
        budget.replace(before, counted);
        *strange = *strange - before + counted;
    }
}

impl Drop for PeerQueue {
    fn drop(&mut self) {
        let counted: usize = self.wants.values().map(|queues| queues.counted).sum();
        self.budget.replace(counted, 0);
        self.total.replace(self.excess, 0);
    }
}

impl QueueLoad {
    /// Appends `frame` to `waiting` if the bound allows, and it has at most `most` bytes. Returns
    /// whether it did, or why the frame cannot be written.
    pub(super) fn push(
        &mut self,
        waiting: &mut ByteQueue,
        (frame, version): (&Frame, u16),
        bound: &QueueLimit,
        most: usize,
    ) -> Result<bool, FrameError> {
        if self.frames >= bound.frames || self.bytes >= bound.bytes {
            return Ok(false);
        }
        let before = waiting.len();
        wire::encode(frame, version, waiting.back())?;
        let length = waiting.len() - before;
        if length > most {
            let back = waiting.back();
            back.truncate(back.len() - length);
            back.shrink_to(2 * back.len());
            return Ok(false);
        }
        self.frames += 1;
        self.bytes += length;
        Ok(true)
    }

    /// Moves whole frames of about `budget` bytes, at least one, to `batch`; returns their number.
    pub(super) fn take(
        &mut self,
        waiting: &mut ByteQueue,
        budget: usize,
        batch: &mut Vec<u8>,
    ) -> usize {
        let bytes = waiting.as_slice();
        let (mut end, mut frames) = (0, 0);
        while end < budget.min(bytes.len()) {
            // The queue has only whole frames.
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

    /// Drops all frames in `waiting`; returns their number.
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

/// The state in which the task finds the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueState {
    /// No frames wait: mostly another thread has written them.
    Empty,
    /// Frames wait to be written.
    Queued,
    /// Connections have changed, or a dial has ended.
    Changed,
}

/// The task's next step.
pub(super) struct NextWrite {
    /// The connection that the batch is for.
    pub(super) write: Option<usize>,
    /// The number of frames in the batch.
    pub(super) frames: usize,
    /// Whether frames wait for a process without a connection.
    pub(super) dial: bool,
}

impl PeerQueue {
    pub(super) fn new(budget: Arc<StrangerBudget>, total: Arc<StrangerBudget>) -> Self {
        PeerQueue {
            budget,
            total,
            excess: 0,
            strange: 0,
            on_way: 0,
            versions: None,
            wants: BTreeMap::new(),
            notices: QueueLoad::default(),
            bulk: QueueLoad::default(),
            offered: Vec::new(),
            stalled: BTreeMap::new(),
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

    pub(super) fn is_empty(&self) -> bool {
        self.wants.values().all(OutboundQueues::is_empty)
    }

    /// The bytes that wait here, without those for strangers.
    fn own_bytes(&self) -> usize {
        self.notices.bytes + self.bulk.bytes - self.strange
    }

    /// The longest frame that may be queued for a process in the view.
    ///
    /// While the total is spent, a peer has its share only. But a frame may be longer than the
    /// share, and other peers may keep the total spent for as long as they like. So an empty queue
    /// takes any frame: a peer that reads gets its frames one by one. A peer that reads nothing
    /// keeps one such frame at most. Thousands of such peers would keep thousands of these frames,
    /// so there is a [bound](StrangerBudget::is_overdrawn) for them, too.
    pub(super) fn longest_frame(&self) -> usize {
        match self.own_bytes() {
            _ if planted!(QueueAllForMembers) => usize::MAX,
            bytes if bytes > 0 && self.total.is_spent() => PEER_SHARE.saturating_sub(bytes),
            0 if self.total.is_overdrawn() => PEER_SHARE,
            _ => usize::MAX,
        }
    }

    /// Updates the total. A peer that reads has no excess, and changes nothing.
    pub(super) fn count(&mut self) {
        let excess = self.own_bytes().saturating_sub(PEER_SHARE) + self.on_way;
        let before = std::mem::replace(&mut self.excess, excess);
        self.total.replace(before, excess);
    }

    /// Counts a batch with `own` bytes for processes in the view, in place of the previous batch.
    /// A frame that is longer than a batch leaves its queue with the batch. Without the count a
    /// peer that reads nothing would then get another long frame.
    pub(super) fn note_batch(&mut self, own: usize) {
        self.on_way = own.saturating_sub(BATCH);
        self.count();
    }

    /// Drops the frames of the fitting queues; returns their number.
    pub(super) fn drop_frames(&mut self, fits: impl Fn(&OutboundQueues) -> bool) -> usize {
        let PeerQueue { wants, notices, bulk, budget, strange, .. } = self;
        let mut frames = 0;
        for queues in wants.values_mut().filter(|queues| fits(queues)) {
            frames += notices.drop_all(&mut queues.notices) + bulk.drop_all(&mut queues.bulk);
            queues.count(budget, strange);
        }
        self.count();
        frames
    }

    /// Takes the write half, for the task. `None`: the task is woken when the write half is back.
    pub(super) fn take_write_half(&mut self) -> Option<WriteHalf> {
        self.wanted = self.write_half.is_none();
        self.write_half.take()
    }

    /// Returns the state in which the task finds the queue, and marks the check as done.
    pub(super) fn look(&mut self) -> QueueState {
        self.woken = false;
        if self.changed {
            QueueState::Changed
        } else if self.is_empty() {
            QueueState::Empty
        } else {
            QueueState::Queued
        }
    }

    pub(super) fn plan(&mut self, links: &[ConnectionWriter], batch: &mut Vec<u8>) -> NextWrite {
        let mut plan = NextWrite { write: None, frames: 0, dial: false };
        let mut own = 0;
        // An empty queue is removed if no connection leads to its process.
        self.wants.retain(|want, queues| !queues.is_empty() || route(links, *want).is_some());
        let stalled: BTreeSet<_> =
            self.stalled.values().map(|stalled| Some(stalled.process)).collect();
        for (want, queues) in &mut self.wants {
            if queues.is_empty() {
                continue;
            }
            match route(links, *want) {
                None if stalled.contains(want) => {}
                None => plan.dial = true,
                Some(link) if plan.write.is_none_or(|chosen| chosen == link) => {
                    plan.write = Some(link);
                    let before = batch.len();
                    plan.frames += self.notices.take(&mut queues.notices, usize::MAX, batch);
                    plan.frames +=
                        self.bulk.take(&mut queues.bulk, BATCH.saturating_sub(batch.len()), batch);
                    own += if queues.is_strange { 0 } else { batch.len() - before };
                    queues.count(&self.budget, &mut self.strange);
                }
                // The next batch takes these frames.
                Some(_) => {}
            }
        }
        self.note_batch(own);
        plan
    }

    /// Drops the frames for processes without a connection. Returns those processes, and the number
    /// of frames.
    pub(super) fn give_up(&mut self, links: &[ConnectionWriter]) -> (Vec<ProcessId>, usize) {
        let (mut processes, mut frames) = (Vec::new(), 0);
        let stalled: BTreeSet<_> =
            self.stalled.values().map(|stalled| Some(stalled.process)).collect();
        for (want, queues) in &mut self.wants {
            if !queues.is_empty() && !stalled.contains(want) && route(links, *want).is_none() {
                frames += self.notices.drop_all(&mut queues.notices)
                    + self.bulk.drop_all(&mut queues.bulk);
                queues.count(&self.budget, &mut self.strange);
                processes.extend(*want);
            }
        }
        self.count();
        (processes, frames)
    }
}
