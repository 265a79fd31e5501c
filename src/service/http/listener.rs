//! `BoundedListener`: connections for the HTTP view. It limits their number, and closes silent
//! ones.
//!
//! When all places are taken, a new connection replaces the one that has been silent longest.
//! Otherwise a few dozen connections without a request would keep every probe waiting, and the
//! failed probes would have a healthy member restarted.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The most connections that are served at a time. One more waits for the place of another one, and
/// the rest in the backlog of the system.
const MAX_CONNECTIONS: usize = 64;
/// The time after which a connection is closed if no byte arrives, or none is accepted.
const IDLE: Duration = Duration::from_secs(30);

/// A listener with a limited number of places.
pub(super) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    idle: Duration,
    /// Counts signs of life on all connections.
    signs: Arc<AtomicU64>,
    /// The connections with a place.
    open: Vec<Weak<Activity>>,
}

/// The part of a connection that the listener keeps.
struct Activity {
    /// The number of the last sign of life: a byte that arrived or was accepted, or the beginning.
    last_sign: AtomicU64,
    /// Cancelled when another connection takes the place.
    evicted: CancellationToken,
}

/// A connection with its place.
pub(super) struct BoundedStream {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    activity: Arc<Activity>,
    signs: Arc<AtomicU64>,
    /// The place is free when the connection is closed, so the number of open connections never
    /// exceeds the bound.
    _place: Option<OwnedSemaphorePermit>,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener) -> BoundedListener {
        BoundedListener::with(listener, MAX_CONNECTIONS, IDLE)
    }

    fn with(listener: TcpListener, most: usize, idle: Duration) -> BoundedListener {
        let (places, signs) = (Arc::new(Semaphore::new(most)), Arc::default());
        BoundedListener { listener, places, idle, signs, open: Vec::new() }
    }

    /// Waits for a place for one more connection.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let open = self.open.iter().filter_map(Weak::upgrade);
        let open = open.filter(|activity| !activity.evicted.is_cancelled());
        if let Some(silent) = open.min_by_key(|open| open.last_sign.load(Ordering::Relaxed)) {
            silent.evicted.cancel();
        }
        // The only error is a closed semaphore, and no code closes it.
        self.places.clone().acquire_owned().await.ok()
    }
}

impl axum::serve::Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        // The connection is accepted first, so that another one ends only for a connection that
        // exists.
        let (stream, addr) = axum::serve::Listener::accept(&mut self.listener).await;
        let place = self.place().await;
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(self.idle));
        stream.set_write_timeout(Some(self.idle));
        let (last_sign, evicted) = (AtomicU64::new(0), CancellationToken::new());
        let stream = BoundedStream {
            stream: Box::pin(stream),
            evicted: Box::pin(evicted.clone().cancelled_owned()),
            activity: Arc::new(Activity { last_sign, evicted }),
            signs: self.signs.clone(),
            _place: place,
        };
        stream.note_sign();
        self.open.retain(|open| open.strong_count() > 0);
        self.open.push(Arc::downgrade(&stream.activity));
        (stream, addr)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl BoundedStream {
    fn note_sign(&self) {
        let number = self.signs.fetch_add(1, Ordering::Relaxed);
        self.activity.last_sign.store(number, Ordering::Relaxed);
    }

    /// Fails if another connection has taken the place. Otherwise wakes the task when that happens.
    fn check_place(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.evicted.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_place(context)?;
        let before = buffer.filled().len();
        let read = self.stream.as_mut().poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.note_sign();
        }
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_place(context)?;
        let written = self.stream.as_mut().poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.note_sign();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::serve::Listener as _;
    use std::pin::pin;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    const GUARD: Duration = Duration::from_secs(120);

    /// A listener with two places, and three clients.
    async fn listener(idle: Duration) -> (BoundedListener, [TcpStream; 3]) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let connect = async || TcpStream::connect(addr).await.expect("it listens");
        let clients = [connect().await, connect().await, connect().await];
        (BoundedListener::with(listener, 2, idle), clients)
    }

    #[tokio::test]
    async fn silent_connections_are_few_and_end() {
        let (mut listener, _clients) = listener(Duration::from_millis(50)).await;
        let (mut first, _) = listener.accept().await;
        let (mut second, _) = listener.accept().await;
        let mut third = pin!(listener.accept());
        let early = timeout(Duration::from_millis(20), &mut third).await;
        assert!(early.is_err(), "two have all places");
        let evicted = timeout(GUARD, first.read_u8()).await.expect("in time");
        // On a busy machine its own time may be over first.
        let kind = evicted.expect_err("it is over").kind();
        let is_over = matches!(kind, io::ErrorKind::ConnectionAborted | io::ErrorKind::TimedOut);
        assert!(is_over, "{kind}");
        let early = timeout(Duration::from_millis(20), &mut third).await;
        assert!(early.is_err(), "the first is not closed yet");
        drop(first);
        timeout(GUARD, third).await.expect("there is room again");
        let silent = timeout(GUARD, second.read_u8()).await.expect("in time");
        assert_eq!(silent.expect_err("it is over").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_the_one_that_was_silent_longest() {
        let (mut listener, [mut speaks, mut silent, mut new]) = listener(GUARD * 10).await;
        let (mut first, _) = listener.accept().await;
        let (mut second, _) = listener.accept().await;
        speaks.write_u8(1).await.expect("it is open");
        assert_eq!(first.read_u8().await.expect("it is open"), 1);
        // The task waits for a byte, as the server of a silent connection does.
        let served = tokio::spawn(async move { second.read_u8().await });
        tokio::task::yield_now().await;
        let (mut third, _) = timeout(GUARD, listener.accept()).await.expect("at once");
        let end = timeout(GUARD, served).await.expect("in time").expect("no panic");
        assert_eq!(end.expect_err("it is over").kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(silent.read(&mut [0]).await.expect("it is closed"), 0);
        for (client, server) in [(&mut speaks, &mut first), (&mut new, &mut third)] {
            client.write_u8(2).await.expect("it is open");
            assert_eq!(server.read_u8().await.expect("it is open"), 2);
        }
    }
}
