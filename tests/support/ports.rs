//! Free ports of the loopback interface.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// The first port. The range is below the ports that the system gives to outgoing connections (on
/// Linux from 32768). So none is taken between the check and the use.
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// The number of ports that a process claims together.
const BLOCK: u32 = 100;
const BLOCKS: u32 = COUNT / BLOCK;

/// The progress of this process.
struct Search {
    /// The next port, counted from the first one of the start block.
    next: u32,
    /// The blocks that this process has claimed.
    own: [bool; BLOCKS as usize],
}

/// `count` addresses whose ports are free for TCP and UDP. This process returns none of them twice.
/// On Linux no other process returns one of them before this one ends.
pub(crate) fn free(count: usize) -> Vec<SocketAddr> {
    static SEARCH: Mutex<Search> = Mutex::new(Search { next: 0, own: [false; BLOCKS as usize] });
    let mut search = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
    // Two test binaries rarely begin with the same block.
    let start = std::process::id().wrapping_mul(379) % BLOCKS;
    let mut found = Vec::new();
    for _ in 0..COUNT {
        if found.len() == count {
            return found;
        }
        let block = (start + search.next / BLOCK) % BLOCKS;
        let index = block as usize;
        search.own[index] = search.own[index] || claim(block);
        if !search.own[index] {
            search.next = (search.next / BLOCK + 1) * BLOCK % COUNT;
            continue;
        }
        let port = FIRST + block * BLOCK + search.next % BLOCK;
        search.next = (search.next + 1) % COUNT;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        if TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok() {
            found.push(addr);
        }
    }
    panic!("{count} free ports wanted, {} found", found.len());
}

/// Claims a block until this process ends. Returns false if another process has it: that process
/// may be about to bind one of its ports.
#[cfg(target_os = "linux")]
fn claim(block: u32) -> bool {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    // The name is in no file system, and the system frees it with the process.
    let name = SocketAddr::from_abstract_name(format!("elderlock-ports-{block}"));
    match name.and_then(|name| UnixListener::bind_addr(&name)) {
        Ok(claim) => {
            std::mem::forget(claim);
            true
        }
        Err(error) => error.kind() != std::io::ErrorKind::AddrInUse,
    }
}

/// No other system has such names.
#[cfg(not(target_os = "linux"))]
fn claim(_: u32) -> bool {
    true
}
