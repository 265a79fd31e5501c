//! What the examples with several processes have in common.

use std::error::Error;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Child;

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

/// A child, which does not outlive its parent.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A temporary directory, taken away at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn make(name: &str) -> Done<Directory> {
        let path = std::env::temp_dir().join(format!("elderlock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Addresses whose ports are free; all are held until all are found, so they differ.
pub(crate) fn free_addrs(count: usize) -> Done<Vec<String>> {
    let mut held = Vec::new();
    while held.len() < count {
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let addr = tcp.local_addr()?;
        if let Ok(udp) = UdpSocket::bind(addr) {
            held.push((addr.to_string(), tcp, udp));
        }
    }
    Ok(held.into_iter().map(|(addr, ..)| addr).collect())
}
