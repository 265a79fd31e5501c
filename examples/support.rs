//! The common parts of the examples with several processes.

#[path = "../tests/support/ports.rs"]
mod ports;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Child;

pub(crate) type ExampleResult<T = ()> = Result<T, Box<dyn Error>>;

/// A child process that does not outlive its parent.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A temporary directory, removed at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn make(name: &str) -> ExampleResult<Directory> {
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

/// The file with the cluster key of the processes that share this table.
pub(crate) fn key_beside(table: impl AsRef<Path>) -> PathBuf {
    table.as_ref().with_extension("key")
}

/// Loopback addresses whose ports are free.
pub(crate) fn free_addrs(count: usize) -> Vec<String> {
    ports::free(count).iter().map(ToString::to_string).collect()
}
