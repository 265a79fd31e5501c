//! `Ear`: the reading half of a connection.
//!
//! Its task reads what comes. For short whiles somebody else does, who **attends**: it looks at the socket again and again and
//! does not let its thread sleep. To sleep and to be woken takes longer than most answers take on a fast network, so
//! whoever has asked waits for the answer like that, and the task for the next question when it has answered one. That
//! costs a processor that may have other work, so there is a limit, which is about what sleeping and waking costs, and [`Patience`]:
//! where it was in vain it is tried more and more seldom.
//!
//! There is one [`Hearing`], and whoever reads has it: so frames are heard in the order in which they came. Nobody waits
//! for it but the task, which is woken when it is put back.
//!
//! Spinning for as long as a block would cost: Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning
//! for a shared-memory multiprocessor" (SOSP 1991). Linux's `SO_BUSY_POLL` does it below the socket.

use super::counters::add;
use super::places::Place;
use super::shared::{Life, Shared};
use super::udp::News;
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

/// Read at once; what an idle connection costs.
const READ: usize = 8 * 1024;
/// Read at once by whoever attends: many times an answer.
const SHORT_READ: usize = 1024;
/// Packets handed to the engine in one go. It keeps its lock for so long.
const MAX_HEARD: usize = 64;
/// What one task asks in one go is no more than this. Where more comes there are others, and it is read in larger pieces by
/// whoever is woken for it.
const FEW: usize = 4;
/// So many questions in a row are answered before other tasks have a turn of the thread.
const STRETCH: usize = 16;
/// One in two to the power of this is tried at least.
const LEAST: u32 = 8;

/// How a connection ended.
pub(super) enum Ending {
    /// The other side closed it.
    Closed,
    /// It broke, timed out, or carried what it must not.
    Broken,
    /// This side wanted it.
    Ours,
}

/// The reading half of a connection.
pub(crate) struct Ear {
    shared: Arc<Shared>,
    life: Arc<Life>,
    /// The address that the other side is known by here.
    addr: SocketAddr,
    /// The other side, as it said.
    info: MemberInfo,
    place: Mutex<Slot>,
    /// Of those who have asked.
    asking: Patience,
    /// Of the task when it has answered.
    answering: Patience,
}

/// Where the hearing lies while nobody reads.
struct Slot {
    hearing: Option<Hearing>,
    /// The task, as it was polled last.
    task: Option<Waker>,
    /// The task has looked for the hearing meanwhile.
    is_wanted: bool,
    /// The connection has ended.
    is_over: bool,
}

/// The right to read, and what it takes.
struct Hearing {
    half: OwnedReadHalf,
    decoder: Decoder,
    /// By when the frame must end whose beginning waits in the decoder.
    due: Option<Instant>,
    /// Reused from one read to the next.
    packets: Vec<Input>,
    /// How it ended, where it was not the task that saw it.
    ending: Option<Ending>,
    /// Of an accepted connection.
    seat: Option<Place>,
    /// The other side is outside the view, as of so many changes of the view.
    strange: (bool, u64),
}

/// What came of one read.
#[derive(Clone, Copy, Default)]
struct Heard {
    packets: usize,
    /// It was answered, and nobody of this member waited for it.
    is_answered: bool,
}

impl Ear {
    pub(super) fn new(
        shared: Arc<Shared>,
        life: Arc<Life>,
        addr: SocketAddr,
        info: MemberInfo,
        half: OwnedReadHalf,
        decoder: Decoder,
        seat: Option<Place>,
    ) -> Self {
        let hearing =
            Hearing { half, decoder, due: None, packets: Vec::new(), ending: None, seat, strange: (false, 0) };
        let place = Slot { hearing: Some(hearing), task: None, is_wanted: false, is_over: false };
        let place = Mutex::new(place);
        Ear { shared, life, addr, info, place, asking: Patience::default(), answering: Patience::default() }
    }

    fn place(&self) -> MutexGuard<'_, Slot> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's part: takes what comes, to the end of the connection.
    ///
    /// A frame that has begun has to end in time, or the connection is broken: if its length was damaged, it swallows all
    /// that follows, up to the longest frame, and neither side would notice. What has come already is read before the time is
    /// looked at, so that a process that was stopped does not blame the other side.
    pub(super) async fn listen(&self) -> Ending {
        let (mut due, mut answered) = (None, 0);
        loop {
            let until = due;
            let heard = poll_fn(|context| self.poll_hear(context, &mut due));
            let heard = match until {
                None => heard.await,
                Some(until) => match timeout_at(until, heard).await {
                    Ok(heard) => heard,
                    Err(_) => {
                        tracing::warn!(process = %self.info.process, addr = %self.info.addr, "a member did not finish a frame");
                        add(&self.shared.tally.unfinished, 1);
                        return Ending::Broken;
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

    /// Attends to what comes next as long as questions come one by one; says how many did.
    fn go_on(&self, mut heard: Heard) -> usize {
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

    /// Attends to the answer to what was just written; whether something came.
    pub(crate) fn attend(&self) -> bool {
        self.attend_to(&self.asking).is_some()
    }

    /// Nobody reads any more.
    pub(super) fn close(&self) {
        let mut place = self.place();
        place.is_over = true;
        let hearing = place.hearing.take();
        drop(place);
        drop(hearing);
    }

    /// The task's look; `due`: as it knows it, and as it is.
    fn poll_hear(&self, context: &mut Context<'_>, due: &mut Option<Instant>) -> Poll<Result<Heard, Ending>> {
        let Some(mut hearing) = self.take_for(context.waker()) else { return Poll::Pending };
        let heard = self.poll_hearing(&mut hearing, context, *due);
        *due = hearing.due;
        heard
    }

    fn poll_hearing(
        &self,
        hearing: &mut Hearing,
        context: &mut Context<'_>,
        due: Option<Instant>,
    ) -> Poll<Result<Heard, Ending>> {
        if let Some(ending) = hearing.ending.take() {
            return Poll::Ready(Err(ending));
        }
        // What came with the handshake.
        if hearing.due.is_none() && !hearing.decoder.is_empty() {
            return Poll::Ready(self.hear(hearing));
        }
        // Another time to wait for.
        if hearing.due != due {
            return Poll::Ready(Ok(Heard::default()));
        }
        hearing.decoder.back().reserve(READ);
        let read = ready!(pin!(hearing.half.read_buf(hearing.decoder.back())).poll(context));
        Poll::Ready(self.take_in(hearing, read))
    }

    /// Looks for what comes as long as the limit and patience allow. `None`: nothing was heard.
    fn attend_to(&self, patience: &Patience) -> Option<Heard> {
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

    /// The hearing, for who attends. `None`: somebody reads, or has left something to the task.
    fn take(&self) -> Option<Taken<'_>> {
        let mut place = self.place();
        let is_empty = |hearing: &Hearing| hearing.ending.is_none() && hearing.decoder.is_empty();
        let hearing = place.hearing.take_if(|hearing| is_empty(hearing));
        drop(place);
        Some(Taken { ear: self, hearing: Some(hearing?), is_tasks: false })
    }

    /// The hearing, for the task. `None`: it is woken when the hearing is back.
    fn take_for(&self, task: &Waker) -> Option<Taken<'_>> {
        // Cloned, and the old one dropped, without the lock.
        let mut task = Some(task.clone());
        let mut place = self.place();
        std::mem::swap(&mut place.task, &mut task);
        place.is_wanted = place.hearing.is_none();
        let hearing = place.hearing.take();
        drop(place);
        Some(Taken { ear: self, hearing: Some(hearing?), is_tasks: false })
    }

    /// `is_tasks`: there is something in it for the task.
    fn put(&self, hearing: Hearing, is_tasks: bool) {
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

    fn take_in(&self, hearing: &mut Hearing, read: io::Result<usize>) -> Result<Heard, Ending> {
        match read {
            Ok(0) => Err(Ending::Closed),
            Ok(count) => {
                add(&self.shared.tally.bytes_in, count);
                self.hear(hearing)
            }
            Err(_) => Err(Ending::Broken),
        }
    }

    /// Hands on the frames that are whole.
    fn hear(&self, hearing: &mut Hearing) -> Result<Heard, Ending> {
        let Hearing { decoder, due, packets, seat, strange, .. } = hearing;
        let Ear { shared, life, info, .. } = self;
        let changed = shared.members_changed();
        if strange.1 != changed {
            *strange = (shared.is_stranger(info.process), changed);
            // A connection that this member dialled may bring a long view from a member of a later one.
            decoder.set_strange(strange.0 && seat.is_some());
        }
        if strange.0
            && let Some(seat) = seat
        {
            seat.hear();
        }
        let mut heard = Heard::default();
        loop {
            let next = decoder.next();
            if packets.len() == MAX_HEARD || !matches!(next, Ok(Some(Frame::Packet(_)))) {
                if !packets.is_empty() && life.token.is_cancelled() {
                    return Err(Ending::Ours);
                }
                heard.packets += packets.len();
                heard.is_answered = life.inbox.hear(packets);
            }
            match next {
                Ok(Some(frame)) => {
                    *due = None;
                    add(&shared.tally.frames_in, 1);
                    match frame {
                        Frame::Packet(packet) => {
                            packets.push(Input::Received { from: info.process, addr: info.addr, packet });
                        }
                        frame => self.take_news(frame),
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(process = %info.process, addr = %info.addr, %error, "a member sent nonsense");
                    shared.tally.refuse_frame(&error);
                    return Err(Ending::Broken);
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
            Frame::GossipWanted => News::Wanted(self.addr, self.info.process),
            Frame::Gossip(state) => News::State(state),
            // The decoder lets no handshake through, and packets are the engine's.
            _ => return,
        };
        // Gossip says everything again: what finds the queue full is dropped.
        let _ = self.shared.news.try_send(news);
    }
}

/// The hearing, until it is put back. Who hears runs others' code: if that panics, the connection ends, and is not deaf.
struct Taken<'a> {
    ear: &'a Ear,
    hearing: Option<Hearing>,
    /// There is something in it for the task.
    is_tasks: bool,
}

impl Deref for Taken<'_> {
    type Target = Hearing;

    fn deref(&self) -> &Hearing {
        self.hearing.as_ref().expect("it is taken until it is dropped")
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Hearing {
        self.hearing.as_mut().expect("it is taken until it is dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Some(mut hearing) = self.hearing.take() else { return };
        if std::thread::panicking() {
            hearing.ending = Some(Ending::Broken);
            self.is_tasks = true;
        }
        self.ear.put(hearing, self.is_tasks);
    }
}

impl Hearing {
    /// Reads what comes within `limit`, and does not sleep. `None`: nothing did.
    fn look(&mut self, limit: Duration) -> Option<io::Result<usize>> {
        // Past the runtime, which knows only what it has asked the system for.
        let socket = SockRef::from(self.half.as_ref());
        let back = self.decoder.back();
        let before = back.len();
        back.resize(before + SHORT_READ, 0);
        let until = std::time::Instant::now() + limit;
        let read = loop {
            match (&*socket).read(&mut back[before..]) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
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

/// How often to try what is sometimes in vain: the more seldom, the more often it was.
#[derive(Default)]
struct Patience {
    /// How much more often it was in vain of late than not, up to [`LEAST`].
    failures: AtomicU32,
    /// So many chances are let go by.
    skip: AtomicU32,
}

impl Patience {
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
        let patience = Patience::default();
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
