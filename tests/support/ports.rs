//! Free ports of the loopback interface.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the system gives to outgoing connections (on Linux from 32768), so that
/// none is taken between the look and the use.
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

/// `count` addresses whose ports are free for TCP and UDP, none of them given out before by this
/// process. Where to begin depends on the process number, so that two test binaries at once rarely
/// look at the same ports.
pub(crate) fn free(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(379);
    let mut found = Vec::new();
    for _ in 0..COUNT {
        if found.len() == count {
            return found;
        }
        let port = FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        if TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok() {
            found.push(addr);
        }
    }
    panic!("{count} free ports wanted, {} found", found.len());
}
