//! The data directory: one file with the vote of this member, replaced as a whole, and a lock that
//! keeps a second process out. It is written when views change, never for a lock.

use super::fork_guard::ForkGuard;
use crate::protocol::StoredVote;
use crate::wire::{VoteError, read_vote, write_vote};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// The name of the file with the vote.
const VOTE: &str = "vote";
/// The name of the new file, which is written before it replaces the old one.
const NEXT: &str = "vote.next";
/// Bytes that are written to `NEXT` at the start: as many as a vote of a few members has.
const PROBE: [u8; 4096] = [0; 4096];
/// The name of the file that a process locks while it uses the directory.
const LOCK: &str = "lock";

/// Opens files for their owner alone and follows no symbolic link. In a directory that other users
/// may write to, a link could lead a write anywhere.
fn private() -> OpenOptions {
    #[allow(unused_mut, reason = "other systems have neither modes nor links")]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options
}

/// Opens and locks the file that is locked while a process uses the directory.
#[cfg(unix)]
fn lock(path: &Path) -> Result<File, DataDirError> {
    use rustix::fs::{FlockOperation, flock};
    let file = private().create(true).truncate(false).write(true).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DataDirError::InUse),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Windows has no such lock: a file that is opened without sharing can be opened only once.
#[cfg(windows)]
fn lock(path: &Path) -> Result<File, DataDirError> {
    use std::os::windows::fs::OpenOptionsExt as _;
    const SHARING_VIOLATION: i32 = 32;
    let mut options = private();
    options.create(true).truncate(false).write(true).share_mode(0);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(SHARING_VIOLATION) => DataDirError::InUse,
        _ => error.into(),
    })
}

/// Opens the directory, to make a replaced name durable. `None` on Windows, where the file system
/// alone decides how durable a name is.
fn open_directory(path: &Path) -> io::Result<Option<File>> {
    if cfg!(windows) { Ok(None) } else { File::open(path).map(Some) }
}

/// Makes a directory for its owner alone. An existing directory keeps its mode, which may be the
/// operator's choice.
fn make_directory(path: &Path) -> io::Result<()> {
    #[allow(unused_mut, reason = "other systems have no modes")]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    private().read(true).open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates the file that is renamed to the vote. A file that an earlier process left there is
/// removed.
fn create_next(next: &Path) -> io::Result<File> {
    match std::fs::remove_file(next) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    private().write(true).create_new(true).open(next)
}

/// A data directory in use.
#[derive(Debug)]
pub(crate) struct Disk {
    cluster: String,
    path: PathBuf,
    /// Synced after each rename to make it durable. `None` on systems without directory sync.
    directory: Option<File>,
    _lock: File,
    home: ForkGuard,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The directory cannot be made, read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A running process uses the directory.
    #[error("another process uses it")]
    InUse,
    /// The vote in the directory cannot be used. To start without it, and so without its vote for
    /// good, remove the file.
    #[error("the file `vote` in it cannot be used: {0}")]
    Vote(#[from] VoteError),
}

impl Disk {
    /// [Opens](Disk::open) a directory in a thread of its own: a slow disk holds up neither the
    /// caller's runtime nor the end of that runtime.
    ///
    /// # Cancel safety
    /// The thread finishes the call that it is in. It frees the directory when no caller waits.
    pub(crate) async fn open_in_thread(
        path: PathBuf,
        cluster: String,
    ) -> Result<(Disk, Option<StoredVote>), DataDirError> {
        let (answer, opened) = oneshot::channel();
        let open = move || {
            if !answer.is_closed() {
                let _ = answer.send(Disk::open(&path, &cluster));
            }
        };
        std::thread::Builder::new().name("elderlock-disk".to_owned()).spawn(open)?;
        opened.await.unwrap_or_else(|_| Err(io::Error::other("the opening thread died").into()))
    }

    /// Opens a directory, made if need be, and reads the vote that an earlier process left.
    fn open(path: &Path, cluster: &str) -> Result<(Disk, Option<StoredVote>), DataDirError> {
        make_directory(path)?;
        let lock = lock(&path.join(LOCK))?;
        let stored = match read_private(&path.join(VOTE)) {
            Ok(bytes) => Some(read_vote(cluster, &bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let directory = open_directory(path)?;
        let home = ForkGuard::here();
        // A full disk shows here, and not later by a member that never gets its vote.
        let next = path.join(NEXT);
        let written = |mut probe: File| probe.write_all(&PROBE).and_then(|()| probe.sync_all());
        let probed = create_next(&next).and_then(written);
        let removed = std::fs::remove_file(&next);
        probed?;
        removed?;
        let disk = Disk {
            cluster: cluster.to_owned(),
            path: path.to_owned(),
            directory,
            _lock: lock,
            home,
        };
        Ok((disk, stored))
    }

    /// Replaces the vote. When this returns, the new vote is durable.
    pub(crate) fn store(&self, vote: &StoredVote) -> io::Result<()> {
        if self.home.is_left() {
            return Err(io::Error::other(
                "this process was forked off the one that uses the directory",
            ));
        }
        let bytes = write_vote(&self.cluster, vote).map_err(io::Error::other)?;
        let next = self.path.join(NEXT);
        let mut file = create_next(&next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&next, self.path.join(VOTE))?;
        self.directory.as_ref().map_or(Ok(()), File::sync_all)
    }
}
