//! `BoundedListener`: connections for the HTTP view, few at a time, none of them silent for long.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// Connections at a time. More wait in the backlog of the system.
const MAX_CONNECTIONS: usize = 64;
/// A connection on which no byte comes, or none is taken, for this time is closed.
const IDLE: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    idle: Duration,
}

/// A connection with its place.
pub(super) struct BoundedStream {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener) -> BoundedListener {
        BoundedListener::with(listener, MAX_CONNECTIONS, IDLE)
    }

    fn with(listener: TcpListener, most: usize, idle: Duration) -> BoundedListener {
        BoundedListener { listener, places: Arc::new(Semaphore::new(most)), idle }
    }
}

impl axum::serve::Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        // Its only error is that the semaphore was closed, and no code closes it.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, addr) = axum::serve::Listener::accept(&mut self.listener).await;
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(self.idle));
        stream.set_write_timeout(Some(self.idle));
        (BoundedStream { stream: Box::pin(stream), _place: place }, addr)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(context, bytes)
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
    use tokio::io::AsyncReadExt as _;

    const GUARD: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn silent_connections_are_few_and_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let mut listener = BoundedListener::with(listener, 2, Duration::from_millis(50));
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(addr).await.expect("it listens"));
        }
        let (mut first, _) = listener.accept().await;
        let (second, _) = listener.accept().await;
        let third = tokio::time::timeout(Duration::from_millis(20), listener.accept()).await;
        assert!(third.is_err(), "two have all places");
        let silent = tokio::time::timeout(GUARD, first.read_u8()).await.expect("in time");
        assert_eq!(silent.expect_err("it is over").kind(), io::ErrorKind::TimedOut);
        drop(first);
        tokio::time::timeout(GUARD, listener.accept()).await.expect("there is room again");
        drop(second);
    }
}
