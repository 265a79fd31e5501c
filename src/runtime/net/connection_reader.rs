//! `ConnectionReader`: the reading half of a connection.
//!
//! Its task reads the packets. For short times another thread reads and **attends**: it looks at
//! the socket again and again and does not let its thread sleep. Sleeping and waking takes longer
//! than most answers on a fast network. So a caller attends to the answer, and the task attends to
//! the next question when it has answered one. That costs a processor that may have other work. So
//! there is a limit, about the cost of sleeping and waking, and [`SpinBackoff`]: where attending
//! was in vain, it is tried more and more seldom.
//!
//! There is one [`ReadHalf`], and the reading thread has it. So frames are heard in the order in
//! which they came. Only the task waits for it, and is woken when it is put back.
//!
//! Spinning for as long as a block would cost: Karlin, Li, Manasse, Owicki, "Empirical studies of
//! competitive spinning for a shared-memory multiprocessor" (SOSP 1991). Linux's `SO_BUSY_POLL`
//! does it below the socket.

use super::counters::add;
use super::places::Place;
use super::transport_state::{Incarnation, TransportState};
use super::udp::GossipInput;
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
/// Bytes that an attending thread reads at once: many times an answer.
const SHORT_READ: usize = 1024;
/// Packets handed to the engine in one go. It keeps its lock for so long.
const MAX_HEARD: usize = 64;
/// One task asks no more than this in one go. Where more frames come, there are other askers, and
/// the woken task reads in larger pieces.
const FEW: usize = 4;
/// So many questions in a row are answered before other tasks run on the thread.
const STRETCH: usize = 16;
/// At least one chance in two to the power of this is tried.
const LEAST: u32 = 8;

/// How a connection ended.
pub(super) enum ConnectionEnd {
    /// The other side closed it.
    Closed,
    /// It broke, timed out, or carried invalid data.
    Broken,
    /// This side closed it.
    Ours,
}

/// The reading half of a connection.
pub(crate) struct ConnectionReader {
    shared: Arc<TransportState>,
    life: Arc<Incarnation>,
    /// The other side's address, as this member knows it.
    addr: SocketAddr,
    /// The other side, from the handshake.
    info: MemberInfo,
    place: Mutex<ReadHalfSlot>,
    /// Of the asking callers.
    asking: SpinBackoff,
    /// Of the task when it has answered.
    answering: SpinBackoff,
}

/// The place of the hearing while no thread reads.
struct ReadHalfSlot {
    hearing: Option<ReadHalf>,
    /// The task, as it was polled last.
    task: Option<Waker>,
    /// The task has looked for the hearing meanwhile.
    is_wanted: bool,
    /// The connection has ended.
    is_over: bool,
}

/// The right to read, and its buffers.
struct ReadHalf {
    half: OwnedReadHalf,
    decoder: Decoder,
    /// By when the frame must end whose beginning waits in the decoder.
    due: Option<Instant>,
    /// Reused from one read to the next.
    packets: Vec<Input>,
    /// How it ended, where it was not the task that saw it.
    ending: Option<ConnectionEnd>,
    /// The place of an accepted connection.
    seat: Option<Place>,
    /// Whether the other side is outside the view, and the count of view changes at that answer.
    strange: (bool, u64),
}

/// The result of one read.
#[derive(Clone, Copy, Default)]
struct ReadSummary {
    packets: usize,
    /// It was answered, and no caller of this member waited for it.
    is_answered: bool,
}

impl ConnectionReader {
    pub(super) fn new(
        shared: Arc<TransportState>,
        life: Arc<Incarnation>,
        addr: SocketAddr,
        info: MemberInfo,
        half: OwnedReadHalf,
        decoder: Decoder,
        seat: Option<Place>,
    ) -> Self {
        let hearing = ReadHalf {
            half,
            decoder,
            due: None,
            packets: Vec::new(),
            ending: None,
            seat,
            strange: (false, 0),
        };
        let place =
            ReadHalfSlot { hearing: Some(hearing), task: None, is_wanted: false, is_over: false };
        let place = Mutex::new(place);
        ConnectionReader {
            shared,
            life,
            addr,
            info,
            place,
            asking: SpinBackoff::default(),
            answering: SpinBackoff::default(),
        }
    }

    fn place(&self) -> MutexGuard<'_, ReadHalfSlot> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's part: reads the packets, to the end of the connection.
    ///
    /// A frame that has begun has to end in time, or the connection is broken. With a damaged
    /// length it would swallow all later bytes, up to the longest frame, and neither side would
    /// notice. Bytes that are already there are read before the time is checked, so that a stopped
    /// process does not blame the other side.
    pub(super) async fn listen(&self) -> ConnectionEnd {
        let (mut due, mut answered) = (None, 0);
        loop {
            let until = due;
            let heard = poll_fn(|context| self.poll_hear(context, &mut due));
            let heard = match until {
                None => heard.await,
                Some(until) => match timeout_at(until, heard).await {
                    Ok(heard) => heard,
                    Err(_) => {
                        let MemberInfo { process, addr, .. } = &self.info;
                        if let Some(left_out) = self.shared.may_warn() {
                            tracing::warn!(%process, %addr, left_out, "a process did not finish a frame");
                        }
                        add(&self.shared.tally.unfinished, 1);
                        return ConnectionEnd::Broken;
                    }
                },
            };
            match heard {
                Ok(heard) => {
                    answered += self.go_on(heard);
                    if answered >= STRETCH {
                        answered = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Err(ending) => return ending,
            }
        }
    }

    /// Attends to the next question as long as questions come one by one; returns how many did.
    fn go_on(&self, mut heard: ReadSummary) -> usize {
        for answered in 0..STRETCH {
            if !heard.is_answered || heard.packets > FEW {
                return answered;
            }
            match self.attend_to(&self.answering) {
                Some(next) => heard = next,
                None => return answered,
            }
        }
        STRETCH
    }

    /// Attends to the answer to the message just written; returns whether a packet came.
    pub(crate) fn busy_poll(&self) -> bool {
        self.attend_to(&self.asking).is_some()
    }

    /// No thread reads any more.
    pub(super) fn close(&self) {
        let mut place = self.place();
        place.is_over = true;
        let hearing = place.hearing.take();
        drop(place);
        drop(hearing);
    }

    /// The task's look; `due`: as it knows it, and as it is.
    fn poll_hear(
        &self,
        context: &mut Context<'_>,
        due: &mut Option<Instant>,
    ) -> Poll<Result<ReadSummary, ConnectionEnd>> {
        let Some(mut hearing) = self.take_for(context.waker()) else { return Poll::Pending };
        let heard = self.poll_hearing(&mut hearing, context, *due);
        *due = hearing.due;
        heard
    }

    fn poll_hearing(
        &self,
        hearing: &mut ReadHalf,
        context: &mut Context<'_>,
        due: Option<Instant>,
    ) -> Poll<Result<ReadSummary, ConnectionEnd>> {
        if let Some(ending) = hearing.ending.take() {
            return Poll::Ready(Err(ending));
        }
        // The bytes that came with the handshake.
        if hearing.due.is_none() && !hearing.decoder.is_empty() {
            return Poll::Ready(self.deliver(hearing));
        }
        // Another time to wait for.
        if hearing.due != due {
            return Poll::Ready(Ok(ReadSummary::default()));
        }
        hearing.decoder.back().reserve(READ);
        let read = ready!(pin!(hearing.half.read_buf(hearing.decoder.back())).poll(context));
        Poll::Ready(self.take_in(hearing, read))
    }

    /// Looks for packets as long as the limit and patience allow. `None`: nothing was heard.
    fn attend_to(&self, patience: &SpinBackoff) -> Option<ReadSummary> {
        let limit = self.shared.busy_poll;
        if limit.is_zero() || !patience.may_try() {
            return None;
        }
        let mut hearing = self.take()?;
        let found = hearing.look(limit);
        patience.learn(found.is_some());
        let tally = &self.shared.tally;
        add(if found.is_some() { &tally.attended } else { &tally.attended_in_vain }, 1);
        let heard = self.take_in(&mut hearing, found?);
        hearing.is_tasks = heard.is_err() || hearing.due.is_some();
        heard.map_err(|ending| hearing.ending = Some(ending)).ok()
    }

    /// The hearing, for an attending thread. `None`: another thread reads, or has left packets to
    /// the task.
    fn take(&self) -> Option<BorrowedReadHalf<'_>> {
        let mut place = self.place();
        let is_empty = |hearing: &ReadHalf| hearing.ending.is_none() && hearing.decoder.is_empty();
        let hearing = place.hearing.take_if(|hearing| is_empty(hearing));
        drop(place);
        Some(BorrowedReadHalf { ear: self, hearing: Some(hearing?), is_tasks: false })
    }

    /// The hearing, for the task. `None`: it is woken when the hearing is back.
    fn take_for(&self, task: &Waker) -> Option<BorrowedReadHalf<'_>> {
        // Cloned, and the old one dropped, without the lock.
        let mut task = Some(task.clone());
        let mut place = self.place();
        std::mem::swap(&mut place.task, &mut task);
        place.is_wanted = place.hearing.is_none();
        let hearing = place.hearing.take();
        drop(place);
        Some(BorrowedReadHalf { ear: self, hearing: Some(hearing?), is_tasks: false })
    }

    /// `is_tasks`: there is something in it for the task.
    fn put(&self, hearing: ReadHalf, is_tasks: bool) {
        let mut place = self.place();
        if place.is_over {
            drop(place); // before the hearing
            return;
        }
        place.hearing = Some(hearing);
        let is_wanted = std::mem::take(&mut place.is_wanted) || is_tasks;
        let task = if is_wanted { place.task.take() } else { None };
        drop(place);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn take_in(
        &self,
        hearing: &mut ReadHalf,
        read: io::Result<usize>,
    ) -> Result<ReadSummary, ConnectionEnd> {
        match read {
            Ok(0) => Err(ConnectionEnd::Closed),
            Ok(count) => {
                add(&self.shared.tally.bytes_in, count);
                self.deliver(hearing)
            }
            Err(_) => Err(ConnectionEnd::Broken),
        }
    }

    /// Hands on the frames that are whole.
    fn deliver(&self, hearing: &mut ReadHalf) -> Result<ReadSummary, ConnectionEnd> {
        let ReadHalf { decoder, due, packets, seat, strange, .. } = hearing;
        let ConnectionReader { shared, life, info, .. } = self;
        let changed = shared.members_changed();
        if strange.1 != changed {
            *strange = (shared.is_stranger(info.process), changed);
            // A dialled connection may bring the long view of a later membership.
            decoder.set_strange(strange.0 && seat.is_some());
        }
        if strange.0
            && let Some(seat) = seat
        {
            seat.hear();
        }
        let mut heard = ReadSummary::default();
        loop {
            let next = decoder.next();
            if packets.len() == MAX_HEARD || !matches!(next, Ok(Some(Frame::Packet(_)))) {
                if !packets.is_empty() && life.token.is_cancelled() {
                    return Err(ConnectionEnd::Ours);
                }
                heard.packets += packets.len();
                heard.is_answered = life.inbox.deliver(packets);
            }
            match next {
                Ok(Some(frame)) => {
                    *due = None;
                    add(&shared.tally.frames_in, 1);
                    match frame {
                        Frame::Packet(packet) => {
                            packets.push(Input::Received {
                                from: info.process,
                                addr: info.addr,
                                packet,
                            });
                        }
                        frame => self.take_news(frame),
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let MemberInfo { process, addr, .. } = info;
                    if let Some(left_out) = shared.may_warn() {
                        tracing::warn!(%process, %addr, %error, left_out, "a process sent a wrong frame");
                    }
                    shared.tally.refuse_frame(&error);
                    return Err(ConnectionEnd::Broken);
                }
            }
        }
        if !decoder.is_empty() && due.is_none() {
            *due = Some(Instant::now() + shared.limits.frame);
        }
        Ok(heard)
    }

    fn take_news(&self, frame: Frame) {
        let news = match frame {
            Frame::GossipWanted => GossipInput::Wanted(self.addr, self.info.process),
            Frame::Gossip(state) => GossipInput::State(state),
            // The decoder lets no handshake through, and packets are the engine's.
            _ => return,
        };
        // Gossip repeats everything: news is dropped while the queue is full.
        let _ = self.shared.news.try_send(news);
    }
}

/// The hearing, until it is put back. The reader runs others' code. If that panics, the connection
/// ends, so that no deaf connection remains.
struct BorrowedReadHalf<'a> {
    ear: &'a ConnectionReader,
    hearing: Option<ReadHalf>,
    /// There is something in it for the task.
    is_tasks: bool,
}

impl Deref for BorrowedReadHalf<'_> {
    type Target = ReadHalf;

    fn deref(&self) -> &ReadHalf {
        self.hearing.as_ref().expect("it is taken until it is dropped")
    }
}

impl DerefMut for BorrowedReadHalf<'_> {
    fn deref_mut(&mut self) -> &mut ReadHalf {
        self.hearing.as_mut().expect("it is taken until it is dropped")
    }
}

impl Drop for BorrowedReadHalf<'_> {
    fn drop(&mut self) {
        let Some(mut hearing) = self.hearing.take() else { return };
        if std::thread::panicking() {
            hearing.ending = Some(ConnectionEnd::Broken);
            self.is_tasks = true;
        }
        self.ear.put(hearing, self.is_tasks);
    }
}

impl ReadHalf {
    /// Reads bytes that come within `limit`, and does not sleep. `None`: none came.
    fn look(&mut self, limit: Duration) -> Option<io::Result<usize>> {
        // Past the runtime, which knows only its own requests to the system.
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

/// How often to try a read that is sometimes in vain: the more often it was, the more seldom.
#[derive(Default)]
struct SpinBackoff {
    /// How much more often it was in vain of late than not, up to [`LEAST`].
    failures: AtomicU32,
    /// So many chances are let go by.
    skip: AtomicU32,
}

impl SpinBackoff {
    /// Whether to try now. Threads that ask at the same time may both be told so.
    fn may_try(&self) -> bool {
        let skip = self.skip.load(Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Relaxed);
        }
        skip == 0
    }

    fn learn(&self, is_hit: bool) {
        let failures = self.failures.load(Relaxed);
        let failures = if is_hit { failures.saturating_sub(1) } else { (failures + 1).min(LEAST) };
        self.failures.store(failures, Relaxed);
        self.skip.store((1 << failures) - 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_tried_ever_more_seldom_and_again_when_it_is_not() {
        let patience = SpinBackoff::default();
        let tries = |chances: u32, is_hit: bool| {
            let mut tries = 0;
            for _ in 0..chances {
                if patience.may_try() {
                    patience.learn(is_hit);
                    tries += 1;
                }
            }
            tries
        };
        assert_eq!(tries(100, true), 100);
        // 1 + 2 + 4 + ... + 256 chances, and then one in 256.
        assert_eq!(tries(511 + 2560, false), 9 + 10);
        // Back the same way, and then each.
        assert_eq!(tries(511 + 100, true), 9 + 100);
        // In vain as often as not: neither always nor never.
        let mut tried = 0;
        for _ in 0..1000 {
            if patience.may_try() {
                patience.learn(tried % 2 == 0);
                tried += 1;
            }
        }
        assert_eq!(tried, 667);
    }
}
