//! `ConnectionReader`: the reading half of a connection.
//!
//! A task of its own reads the packets. For short times another thread may **busy-poll** the
//! connection. That thread reads the socket again and again and does not sleep, since sleeping and
//! waking takes longer than most answers on a fast network. So a caller polls for the answer to its
//! question, and the task polls for the next question after it has answered one. Polling uses a
//! processor that may have other work. So it has a limit of about the cost of sleeping and waking,
//! and a [`SpinBackoff`]. A connection whose polls find nothing is polled less and less often.
//!
//! There is one [`ReadHalf`], and the reading thread has it. So frames are read in the order in
//! which they came. Only the task waits for the read half, and is woken when it is put back.
//!
//! Spinning for as long as a block would cost: Karlin, Li, Manasse, Owicki, "Empirical studies of
//! competitive spinning for a shared-memory multiprocessor" (SOSP 1991). Linux's `SO_BUSY_POLL`
//! does it below the socket.

use super::admission::{Admission, ConnectionOpening};
use super::begun_frames::BegunShare;
use super::counters::add;
use super::incarnation::Incarnation;
use super::rate_limit::RateLimit;
use super::reception::{GossipInput, Reception};
use crate::protocol::{Input, MemberInfo};
use crate::wire::{Decoder, Frame};
use socket2::SockRef;
use std::future::{Future as _, poll_fn};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout_at};

/// Bytes read at once; this is the cost of an idle connection.
const READ: usize = 8 * 1024;
/// Bytes that a polling thread reads at once: many times the length of an answer.
const SHORT_READ: usize = 1024;
/// The most packets that the engine gets at once. It holds its lock until it has handled them.
const MAX_PACKETS: usize = 64;
/// The most frames that one task of the other side sends at once. More frames come from several
/// tasks. They are left to the connection's task, which reads larger pieces.
const FRAMES_OF_ONE_TASK: usize = 4;
/// Questions answered in a row before other tasks run.
const MAX_QUESTIONS_IN_A_ROW: usize = 16;
/// Backoff bound: at least one in 2^MIN_CHANCE_LOG2 polls is tried.
const MIN_CHANCE_LOG2: u32 = 8;

/// How a connection ended.
pub(super) enum ConnectionEnd {
    /// The other side closed the connection.
    Closed,
    /// The connection broke, timed out, or carried invalid data.
    Broken,
    /// This side closed the connection.
    Ours,
}

/// The reading half of a connection.
pub(crate) struct ConnectionReader {
    reception: Arc<Reception>,
    incarnation: Arc<Incarnation>,
    /// The other side's address, as this member knows it.
    addr: SocketAddr,
    /// The other side, from the handshake.
    info: MemberInfo,
    slot: Mutex<ReadHalfSlot>,
    /// The backoff of the asking callers.
    asking: SpinBackoff,
    /// The backoff of the task after it has answered.
    answering: SpinBackoff,
}

/// Holds the read half while no thread reads.
struct ReadHalfSlot {
    read_half: Option<ReadHalf>,
    /// The waker of the task's latest poll.
    task: Option<Waker>,
    /// The task has asked for the read half and waits for it.
    is_wanted: bool,
    /// The connection has ended.
    is_over: bool,
}

/// The right to read, and its buffers.
struct ReadHalf {
    half: OwnedReadHalf,
    decoder: Decoder,
    /// The time by which the frame must end whose beginning waits in the decoder.
    due: Option<Instant>,
    /// The bytes of the incomplete frame, if the other side is not in the view.
    share: BegunShare,
    /// The packets of one read. The memory is kept from one read to the next.
    packets: Vec<Input>,
    /// How the connection ended, if a polling thread has seen the end.
    ending: Option<ConnectionEnd>,
    admission: Admission,
    standing: PeerStanding,
    /// The other side's part of the rate of strangers, once it is a stranger.
    part: Option<Arc<RateLimit>>,
}

/// The place of the other side in this member's view.
struct PeerStanding {
    is_member: bool,
    /// Whether the other side is outside the view. Without a view no process is.
    is_strange: bool,
    /// The number of changes of the view when this was looked up.
    changed: u64,
}

/// The result of one read.
#[derive(Clone, Copy, Default)]
struct ReadSummary {
    packets: usize,
    /// Whether the packets were answered while no caller of this member waited for them.
    is_answered: bool,
}

impl ConnectionReader {
    /// Returns whether the other side is in this member's view.
    pub(super) fn is_of_member(&self) -> bool {
        self.reception.is_member(self.info.process)
    }

    pub(super) fn new(
        reception: Arc<Reception>,
        incarnation: Arc<Incarnation>,
        addr: SocketAddr,
        info: MemberInfo,
        half: OwnedReadHalf,
        decoder: Decoder,
        admission: Admission,
    ) -> Self {
        let read_half = ReadHalf {
            half,
            decoder,
            due: None,
            share: BegunShare::new(&reception.begun, info.addr, admission.end.clone()),
            packets: Vec::new(),
            ending: None,
            admission,
            standing: PeerStanding { is_member: false, is_strange: false, changed: u64::MAX },
            part: None,
        };
        let slot = ReadHalfSlot {
            read_half: Some(read_half),
            task: None,
            is_wanted: false,
            is_over: false,
        };
        let slot = Mutex::new(slot);
        ConnectionReader {
            reception,
            incarnation,
            addr,
            info,
            slot,
            asking: SpinBackoff::default(),
            answering: SpinBackoff::default(),
        }
    }

    fn slot(&self) -> MutexGuard<'_, ReadHalfSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the packets until the end of the connection. Only the task runs this.
    ///
    /// An incomplete frame must be complete in time, or the connection counts as broken. A damaged
    /// length would otherwise swallow all later bytes, up to the longest frame, and neither side
    /// would notice. Bytes that are already there are read before the time is checked, so that a
    /// stopped process does not blame the other side.
    pub(super) async fn listen(&self) -> ConnectionEnd {
        let (mut due, mut answered) = (None, 0);
        loop {
            let until = due;
            let read = poll_fn(|context| self.poll_read(context, &mut due));
            let read = match until {
                None => read.await,
                Some(until) => match timeout_at(until, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        let MemberInfo { process, addr, .. } = &self.info;
                        if let Some(left_out) = self.reception.may_warn() {
                            tracing::warn!(
                                %process, %addr, left_out,
                                "a process did not finish a frame"
                            );
                        }
                        add(&self.reception.counters.unfinished, 1);
                        return ConnectionEnd::Broken;
                    }
                },
            };
            match read {
                Ok(read) => {
                    answered += self.poll_on(read);
                    if answered >= MAX_QUESTIONS_IN_A_ROW {
                        answered = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Err(ending) => return ending,
            }
        }
    }

    /// Polls for the next question as long as questions come one by one; returns how many did.
    fn poll_on(&self, mut read: ReadSummary) -> usize {
        for answered in 0..MAX_QUESTIONS_IN_A_ROW {
            if !read.is_answered || read.packets > FRAMES_OF_ONE_TASK {
                return answered;
            }
            match self.poll_for(&self.answering) {
                Some(next) => read = next,
                None => return answered,
            }
        }
        MAX_QUESTIONS_IN_A_ROW
    }

    /// Polls for the answer to the message just written; returns whether a packet came.
    pub(crate) fn busy_poll(&self) -> bool {
        self.poll_for(&self.asking).is_some()
    }

    /// Ends all reading.
    pub(super) fn close(&self) {
        let mut slot = self.slot();
        slot.is_over = true;
        let read_half = slot.read_half.take();
        drop(slot);
        drop(read_half);
    }

    /// Reads for the task. `due`: the deadline that the task waits for, and then the present one.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        due: &mut Option<Instant>,
    ) -> Poll<Result<ReadSummary, ConnectionEnd>> {
        let Some(mut read_half) = self.take_for(context.waker()) else { return Poll::Pending };
        let read = self.poll_read_half(&mut read_half, context, *due);
        *due = read_half.due;
        read
    }

    fn poll_read_half(
        &self,
        read_half: &mut ReadHalf,
        context: &mut Context<'_>,
        due: Option<Instant>,
    ) -> Poll<Result<ReadSummary, ConnectionEnd>> {
        if let Some(ending) = read_half.ending.take() {
            return Poll::Ready(Err(ending));
        }
        // The bytes that came with the handshake are already in the decoder.
        if read_half.due.is_none() && !read_half.decoder.is_empty() {
            return Poll::Ready(self.deliver(read_half));
        }
        // The deadline has changed: the task has to wait for another time.
        if read_half.due != due {
            return Poll::Ready(Ok(ReadSummary::default()));
        }
        read_half.decoder.back().reserve(READ);
        let read = ready!(pin!(read_half.half.read_buf(read_half.decoder.back())).poll(context));
        Poll::Ready(self.take_bytes(read_half, read))
    }

    /// Polls for packets as long as the limit and the backoff allow. `None`: none came.
    fn poll_for(&self, backoff: &SpinBackoff) -> Option<ReadSummary> {
        let limit = self.reception.busy_poll;
        if limit.is_zero() || !backoff.may_try() {
            return None;
        }
        let mut read_half = self.take()?;
        let found = read_half.look(limit);
        backoff.learn(found.is_some());
        let counters = &self.reception.counters;
        add(if found.is_some() { &counters.busy_poll_hits } else { &counters.busy_poll_misses }, 1);
        let read = self.take_bytes(&mut read_half, found?);
        read_half.is_tasks = read.is_err() || read_half.due.is_some();
        read.map_err(|ending| read_half.ending = Some(ending)).ok()
    }

    /// The read half, for a polling thread. `None`: another thread reads, or has left packets to
    /// the task.
    fn take(&self) -> Option<BorrowedReadHalf<'_>> {
        let mut slot = self.slot();
        let is_empty =
            |read_half: &ReadHalf| read_half.ending.is_none() && read_half.decoder.is_empty();
        let read_half = slot.read_half.take_if(|read_half| is_empty(read_half));
        drop(slot);
        Some(BorrowedReadHalf { reader: self, read_half: Some(read_half?), is_tasks: false })
    }

    /// The read half, for the task. `None`: it is woken when the read half is back.
    fn take_for(&self, task: &Waker) -> Option<BorrowedReadHalf<'_>> {
        // The waker is cloned, and the old one dropped, without the lock.
        let mut task = Some(task.clone());
        let mut slot = self.slot();
        std::mem::swap(&mut slot.task, &mut task);
        slot.is_wanted = slot.read_half.is_none();
        let read_half = slot.read_half.take();
        drop(slot);
        Some(BorrowedReadHalf { reader: self, read_half: Some(read_half?), is_tasks: false })
    }

    /// Puts the read half back. `is_tasks`: it has an end or a deadline for the task.
    fn put(&self, read_half: ReadHalf, is_tasks: bool) {
        let mut slot = self.slot();
        if slot.is_over {
            drop(slot); // unlocked before the read half is dropped
            return;
        }
        slot.read_half = Some(read_half);
        let is_wanted = std::mem::take(&mut slot.is_wanted) || is_tasks;
        let task = if is_wanted { slot.task.take() } else { None };
        drop(slot);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn take_bytes(
        &self,
        read_half: &mut ReadHalf,
        read: io::Result<usize>,
    ) -> Result<ReadSummary, ConnectionEnd> {
        match read {
            Ok(0) => Err(ConnectionEnd::Closed),
            Ok(count) => {
                add(&self.reception.counters.bytes_in, count);
                self.deliver(read_half)
            }
            Err(_) => Err(ConnectionEnd::Broken),
        }
    }

    /// Passes the complete frames on.
    fn deliver(&self, read_half: &mut ReadHalf) -> Result<ReadSummary, ConnectionEnd> {
        self.learn_standing(read_half);
        let ReadHalf { decoder, due, share, packets, standing, part, .. } = read_half;
        let ConnectionReader { reception, incarnation, info, .. } = self;
        let mut read = ReadSummary::default();
        loop {
            // A process that wants to join sends its frames again.
            if let Some(part) = part.as_ref().filter(|_| standing.is_strange)
                && decoder.skip_unless(|| reception.may_take_strange(part))
            {
                add(&reception.counters.throttled, 1);
                *due = None;
                continue;
            }
            let next = decoder.next();
            let unspoken = decoder.take_unspoken();
            if unspoken > 0 {
                add(&reception.counters.other_version, unspoken);
                *due = None;
            }
            if packets.len() == MAX_PACKETS || !matches!(next, Ok(Some(Frame::Packet(_)))) {
                if !packets.is_empty() && incarnation.token.is_cancelled() {
                    return Err(ConnectionEnd::Ours);
                }
                read.packets += packets.len();
                read.is_answered = incarnation.inbox.deliver(packets);
            }
            match next {
                Ok(Some(frame)) => {
                    *due = None;
                    add(&reception.counters.frames_in, 1);
                    match frame {
                        Frame::Packet(packet) => {
                            let packet = match &incarnation.relays {
                                Some(relays) => {
                                    relays.open(packet, standing.is_strange, reception, info)
                                }
                                None => Some(packet),
                            };
                            packets.extend(packet.map(|packet| Input::Received {
                                from: info.process,
                                addr: info.addr,
                                packet,
                            }));
                        }
                        frame => self.take_gossip(frame),
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let MemberInfo { process, addr, .. } = info;
                    if let Some(left_out) = reception.may_warn() {
                        tracing::warn!(
                            %process, %addr, %error, left_out,
                            "a process sent an invalid frame"
                        );
                    }
                    reception.counters.refuse_frame(&error);
                    return Err(ConnectionEnd::Broken);
                }
            }
        }
        if !decoder.is_empty() && due.is_none() {
            let limit = reception.timeouts.frame;
            *due = Some(Instant::now() + limit);
            planted!(AwaitAnyFrame => *due = Some(Instant::now() + 1000 * limit));
        }
        // A process at a seed's address counts too: it may begin a long frame and never end it.
        for addr in share.resize(decoder.len()) {
            add(&reception.counters.busy, 1);
            reception.log_refused(Some(addr), &"the memory for incomplete frames is used up");
        }
        if share.is_ended() { Err(ConnectionEnd::Ours) } else { Ok(read) }
    }

    /// Looks the other side up after each change of the view, and notes that a stranger has
    /// sent bytes.
    fn learn_standing(&self, read_half: &mut ReadHalf) {
        let ReadHalf { half, decoder, admission, standing, part, share, .. } = read_half;
        let (reception, process) = (&self.reception, self.info.process);
        let changed = reception.members_changed();
        if standing.changed != changed {
            let (is_member, is_strange) =
                (reception.is_member(process), reception.is_stranger(process));
            // The process at a member's or a seed's address may bring the long view of a later
            // membership.
            let may_be_long = match admission.opening {
                ConnectionOpening::Accepted => false,
                ConnectionOpening::Dialled { is_seed } => {
                    is_seed || reception.has_member_at(self.addr)
                }
            };
            decoder.set_strange(is_strange && !may_be_long && !planted!(TakeLongFrames));
            decoder.set_unknown(!is_member && !may_be_long && !planted!(TakeLongUnknown));
            share.move_to(reception.begun_of(process));
            *standing = PeerStanding { is_member, is_strange, changed };
            if is_strange && part.is_none() {
                let ip = half.peer_addr().unwrap_or(self.addr).ip();
                *part = Some(reception.strange_part(ip));
            }
        }
        if !standing.is_member {
            admission.note_packet();
        }
    }

    fn take_gossip(&self, frame: Frame) {
        match frame {
            Frame::GossipWanted => {
                self.reception.gossip(GossipInput::Wanted(self.addr, self.info.process));
            }
            Frame::Gossip(state) => self.reception.gossip(GossipInput::State(state)),
            // The decoder passes no handshake, and packets go to the engine.
            _ => {}
        }
    }
}

/// The read half, until it is put back. Packets may run the code of other tasks. If that code
/// panics, the connection ends: none may remain that no thread reads.
struct BorrowedReadHalf<'a> {
    reader: &'a ConnectionReader,
    read_half: Option<ReadHalf>,
    /// Whether the read half has an end or a deadline for the task.
    is_tasks: bool,
}

impl Deref for BorrowedReadHalf<'_> {
    type Target = ReadHalf;

    fn deref(&self) -> &ReadHalf {
        self.read_half.as_ref().expect("it is taken until it is dropped")
    }
}

impl DerefMut for BorrowedReadHalf<'_> {
    fn deref_mut(&mut self) -> &mut ReadHalf {
        self.read_half.as_mut().expect("it is taken until it is dropped")
    }
}

impl Drop for BorrowedReadHalf<'_> {
    fn drop(&mut self) {
        let Some(mut read_half) = self.read_half.take() else { return };
        if std::thread::panicking() {
            read_half.ending = Some(ConnectionEnd::Broken);
            self.is_tasks = true;
        }
        self.reader.put(read_half, self.is_tasks);
    }
}

impl ReadHalf {
    /// Reads bytes that come within `limit`, and does not sleep. `None`: none came.
    fn look(&mut self, limit: Duration) -> Option<io::Result<usize>> {
        // The system is called directly: the runtime knows only of its own calls.
        let socket = SockRef::from(self.half.as_ref());
        let back = self.decoder.back();
        let before = back.len();
        back.resize(before + SHORT_READ, 0);
        let until = std::time::Instant::now() + limit;
        let read = loop {
            match (&*socket).read(&mut back[before..]) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    if std::time::Instant::now() >= until {
                        break None;
                    }
                }
                read => break Some(read),
            }
            std::hint::spin_loop();
        };
        let count = read.as_ref().map_or(0, |read| *read.as_ref().unwrap_or(&0));
        back.truncate(before + count);
        read
    }
}

/// How often a poll is tried: the more often polls find nothing, the fewer are tried.
#[derive(Default)]
struct SpinBackoff {
    /// The recent failures, less the recent successes: 0 to [`MIN_CHANCE_LOG2`].
    failures: AtomicU32,
    /// The number of polls that are skipped next.
    skip: AtomicU32,
}

impl SpinBackoff {
    /// Returns whether to poll now. Threads that ask at the same time may all get `true`.
    fn may_try(&self) -> bool {
        let skip = self.skip.load(Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Relaxed);
        }
        skip == 0
    }

    fn learn(&self, is_hit: bool) {
        let failures = self.failures.load(Relaxed);
        let failures =
            if is_hit { failures.saturating_sub(1) } else { (failures + 1).min(MIN_CHANCE_LOG2) };
        self.failures.store(failures, Relaxed);
        self.skip.store((1 << failures) - 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_that_fail_are_tried_less_often_until_one_succeeds() {
        let backoff = SpinBackoff::default();
        let tries = |chances: u32, is_hit: bool| {
            let mut tries = 0;
            for _ in 0..chances {
                if backoff.may_try() {
                    backoff.learn(is_hit);
                    tries += 1;
                }
            }
            tries
        };
        assert_eq!(tries(100, true), 100);
        // 1 + 2 + 4 + ... + 256 polls for the first nine tries, and then one in 256.
        assert_eq!(tries(511 + 2560, false), 9 + 10);
        // The backoff shrinks in the same way, and then each poll is tried.
        assert_eq!(tries(511 + 100, true), 9 + 100);
        // Each second try is in vain: the backoff allows neither all chances nor none.
        let mut tried = 0;
        for _ in 0..1000 {
            if backoff.may_try() {
                backoff.learn(tried % 2 == 0);
                tried += 1;
            }
        }
        assert_eq!(tried, 667);
    }
}
