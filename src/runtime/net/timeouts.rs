//! `ConnectionTimeouts`: how long each activity of a connection may take.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// The time limits of the activities of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    /// The time after which unacknowledged bytes end the connection. It must be below the member
    /// lease.
    pub(crate) user_timeout: Duration,
    /// The limit to open a connection.
    pub(crate) connect: Duration,
    /// The limit to shake hands on it.
    pub(crate) handshake: Duration,
    /// The limit to complete a frame. The longest in use have some hundred KiB: a path that is too
    /// slow for this is too slow for the lease.
    pub(crate) frame: Duration,
}

impl Default for ConnectionTimeouts {
    /// The limits that fit a member lease of 5 s.
    fn default() -> Self {
        ConnectionTimeouts::for_lease(Duration::from_secs(5))
    }
}

impl ConnectionTimeouts {
    /// The limits that fit the given member lease: a broken connection is noticed and dialled again
    /// well within it.
    pub(crate) fn for_lease(member_lease: Duration) -> Self {
        let at_least = Duration::from_millis(200);
        ConnectionTimeouts {
            user_timeout: (member_lease * 3 / 5).max(at_least),
            connect: (member_lease / 4).max(at_least),
            handshake: (member_lease / 2).max(at_least),
            frame: (member_lease / 2).max(at_least),
        }
    }

    /// Sets the limits that the system enforces.
    pub(super) fn configure(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        let second = Duration::from_secs(1);
        let keepalive = TcpKeepalive::new().with_time((self.user_timeout / 2).max(second));
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows))]
        let keepalive = keepalive.with_interval(second);
        socket.set_tcp_keepalive(&keepalive)?;
        // Bytes that are unacknowledged for this time end the connection, and so does silence after
        // a keepalive.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_user_timeout(Some(self.user_timeout))?;
        Ok(())
    }
}
