//! Forking without `unsafe`: a library does it that is preloaded into the child process, see
//! `fork.c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// In a process with the library, creating this directory forks the process.
const FORK: &str = "/elderlock/fork";

/// The library, built with the compiler that Rust links with.
///
/// # Panics
/// If there is no such compiler.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fork-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fork.c");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("cc can be started").success(), "cc builds tests/support/fork.c");
        library
    })
}

/// The two processes after a fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Parent,
    Copy,
}

/// Forks this process. The copy has only the calling thread.
pub(crate) fn fork() -> Result<Side, String> {
    match std::fs::create_dir(FORK) {
        Ok(()) => Ok(Side::Parent),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CHILD.raw_os_error()) => {
            Ok(Side::Copy)
        }
        Err(error) => Err(format!("cannot fork: {error}")),
    }
}
