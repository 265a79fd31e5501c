//! Files that are replaced only by a holder that is not stale.
//!
//! [`FencedFile`] keeps three files beside the file that it guards, here `stock.json`:
//!
//! | file | contents |
//! |---|---|
//! | `.stock.json.fence` | the stamp of the last holder that read or wrote by this module |
//! | `.stock.json.lock` | nothing; each call locks it for its duration |
//! | `.stock.json.new` | the new content during a call; the next call replaces a left-over one |
//!
//! Each call locks the lock file (`flock`), compares the stamps, and records its own. No lock is
//! kept between calls. A writer that stops between its read and its write blocks no other, and is
//! refused when it resumes. A writer that stops *within* a call keeps the lock, and others get
//! [`FileError::Locked`] after their limit.
//!
//! A file, and its fence, are replaced by a rename: written under another name, synchronised,
//! renamed, and the directory synchronised. After a crash there is the old content or the new one.
//! The fence is recorded before the content, so no crash lets an earlier holder in again.
//!
//! A rename replaces a symbolic link itself, not the file that it points to.
//!
//! All processes must reach the file by the same path in the same file system, and `flock` must
//! work between them. It works on local file systems. On NFS it works between machines only where
//! the server and all clients support locks. The calls block: in async code use
//! `tokio::task::spawn_blocking`.

use crate::stamp::{NoStamp, Stale, Stamp, exclusive_stamp};
use elderlock::{Fenced, Lost};
use rustix::fs::{FlockOperation, flock};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file whose content is read and replaced under a fence.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock_fence::files::FencedFile;
/// # let folder = std::env::temp_dir().join(format!("elderlock-doc-files-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let member = elderlock::Member::local().await?;
/// let stock = member.lock_service("inventory").await?;
/// let file = FencedFile::new(folder.join("stock.json"));
///
/// let slow = stock.lock("stock.json").await?;
/// let stamp = elderlock_fence::Stamp::of(&slow)?; // here it sleeps past its lease
/// slow.release().await?;
///
/// let guard = stock.lock("stock.json").await?;
/// assert_eq!(file.read(&guard)?, None); // first: it shuts earlier holders out
/// file.replace(&guard, b"[41]")?;
/// assert!(file.replace(&stamp, b"[99]").unwrap_err().is_lost());
/// assert_eq!(file.read(&guard)?.as_deref(), Some(&b"[41]"[..]));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FencedFile {
    path: PathBuf,
    wait: Duration,
}

/// The default time that a call waits for the call of another process.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The pause between two attempts to lock the lock file. `flock` cannot wait with a limit.
const PAUSE: Duration = Duration::from_millis(2);

impl FencedFile {
    /// A fence for the file at `path`. The file need not exist; its directory must. No file is
    /// touched.
    pub fn new(path: impl Into<PathBuf>) -> FencedFile {
        FencedFile { path: path.into(), wait: DEFAULT_WAIT }
    }

    /// Sets the time for which a call waits while a call of another process or thread has the lock
    /// file. Default: 10 s.
    pub fn wait(mut self, limit: Duration) -> FencedFile {
        self.wait = limit;
        self
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the content, or returns `None` if there is no such file. From then on earlier holders
    /// are refused, so call it before the work that ends with [`replace`](FencedFile::replace).
    ///
    /// # Errors
    /// [`FileError`]. The content is unchanged; earlier holders may or may not be refused.
    pub fn read(&self, holder: &(impl Fenced + ?Sized)) -> Result<Option<Vec<u8>>, FileError> {
        let admitted = self.admit(holder)?;
        let content = match std::fs::read(&self.path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.path, error)),
        };
        drop(admitted);
        content
    }

    /// Replaces the content, if no later holder has read or replaced it. After a crash there is the
    /// old content or the new one.
    ///
    /// # Errors
    /// [`FileError`]. After [`FileError::Io`] the content is the old one or the new one, never a
    /// mixture: replace it again. After any other error the content is unchanged.
    pub fn replace(
        &self,
        holder: &(impl Fenced + ?Sized),
        content: &[u8],
    ) -> Result<(), FileError> {
        let admitted = self.admit(holder)?;
        let replaced = self.put(&self.path, content);
        drop(admitted);
        replaced
    }

    /// Compares the stamps and records the holder's. The returned file keeps the lock file locked.
    fn admit(&self, holder: &(impl Fenced + ?Sized)) -> Result<File, FileError> {
        let shown = exclusive_stamp(holder)?;
        let lock = self.lock()?;
        let fence = self.beside("fence")?;
        let stored = match std::fs::read_to_string(&fence) {
            Ok(text) => Some(text.trim_end().parse::<Stamp>().map_err(|error| {
                FileError::Damaged { path: fence.clone(), reason: error.to_string() }
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read", &fence, error)),
        };
        shown
            .check_after(stored, || self.path.to_string_lossy().into_owned())
            .map_err(FileError::Stale)?;
        if stored != Some(shown) {
            self.put(&fence, format!("{shown}\n").as_bytes())?;
        }
        Ok(lock)
    }

    /// Locks the lock file until the returned file is dropped.
    fn lock(&self) -> Result<File, FileError> {
        let path = self.beside("lock")?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| failed("open", &path, error))?;
        let begin = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("lock", &path, error.into())),
            }
            let left = self.wait.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(FileError::Locked { path, waited: self.wait });
            }
            std::thread::sleep(PAUSE.min(left));
        }
    }

    /// Writes a file beside `target`, and renames it to `target`. Only with the lock file locked.
    fn put(&self, target: &Path, content: &[u8]) -> Result<(), FileError> {
        let new = self.beside("new")?;
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            if let Ok(old) = std::fs::metadata(target) {
                file.set_permissions(old.permissions())?;
            }
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&new, target)?;
            // Without this sync, a crash may undo the rename.
            File::open(self.directory())?.sync_all()
        };
        write().map_err(|error| failed("replace", target, error))
    }

    fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    fn beside(&self, end: &str) -> Result<PathBuf, FileError> {
        let no_name = || {
            failed(
                "open",
                &self.path,
                io::Error::new(io::ErrorKind::InvalidInput, "it names no file"),
            )
        };
        let name: &OsStr = self.path.file_name().ok_or_else(no_name)?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".");
        hidden.push(end);
        Ok(self.directory().join(hidden))
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError::Io { action, path: path.to_owned(), source }
}

/// Why a [`FencedFile`] is not read or replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The guard was lost before. Nothing was touched. Take the lock again.
    #[error("{0}; the file was not touched: take the lock again")]
    Lost(Lost),
    /// The guard is a share or permits. Nothing was touched.
    #[error(transparent)]
    NoStamp(NoStamp),
    /// A later holder has read or replaced the file. Nothing was changed: take the lock again.
    #[error(transparent)]
    Stale(Stale),
    /// A call of another process has the lock file, and the limit ran out: that process is slow, or
    /// stopped within a call. Nothing was changed. Try again if the guard is still held.
    #[error("{} was locked by another process for {waited:?}; try again", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The limit that ran out.
        waited: Duration,
    },
    /// The fence is not a stamp, so the latest writer is unknown. Nothing was changed. Stop all
    /// writers, then remove the file, or write the highest stamp into it.
    #[error(
        "the fence {} is damaged: {reason}; stop all writers, then remove it, or write the highest \
         stamp into it",
        path.display()
    )]
    Damaged {
        /// The file of the fence.
        path: PathBuf,
        /// The error in its content.
        reason: String,
    },
    /// The operating system failed. The content is the old one or the new one, whole.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl FileError {
    /// Returns whether the holder has lost the lock: it must take it again.
    pub fn is_lost(&self) -> bool {
        matches!(self, FileError::Lost(_) | FileError::Stale(_))
    }
}

impl From<NoStamp> for FileError {
    fn from(error: NoStamp) -> Self {
        match error {
            NoStamp::Lost(lost) => FileError::Lost(lost),
            other => FileError::NoStamp(other),
        }
    }
}
