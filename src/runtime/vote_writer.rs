//! A thread of its own writes votes. So a slow disk holds up neither the engine's lock nor a worker
//! of the program's runtime.

use super::disk::Disk;
use crate::protocol::{ProcessId, StoredVote};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The storage of votes. When `keep` returns, the vote is stored for good.
pub(crate) trait VoteStorage: Send + Sync {
    /// Replaces the vote.
    fn keep(&self, vote: &StoredVote) -> io::Result<()>;
}

impl VoteStorage for Disk {
    fn keep(&self, vote: &StoredVote) -> io::Result<()> {
        self.store(vote)
    }
}

/// One write of a vote to the storage.
struct WriteJob {
    /// The incarnation whose vote it is.
    process: ProcessId,
    number: u64,
    vote: Box<StoredVote>,
}

struct WriterQueue {
    /// The newest job that has not begun. A later job replaces it.
    next: Option<WriteJob>,
    /// The storage; `None` while the thread writes to it.
    storage: Option<Box<dyn VoteStorage>>,
    is_closed: bool,
}

/// The handle of the writing thread. The thread ends when this is dropped and all pending votes are
/// written.
pub(crate) struct VoteWriter {
    desk: Arc<(Mutex<WriterQueue>, Condvar)>,
    /// Closes when the thread has ended and the data directory is free.
    ended: watch::Receiver<()>,
}

impl VoteWriter {
    /// Starts the thread. `tell` gets the result of each write that was begun, with its process and
    /// its number.
    pub(crate) fn start(
        storage: Box<dyn VoteStorage>,
        tell: impl Fn(ProcessId, u64, io::Result<()>) + Send + 'static,
    ) -> io::Result<VoteWriter> {
        let desk = WriterQueue { next: None, storage: Some(storage), is_closed: false };
        let desk = Arc::new((Mutex::new(desk), Condvar::new()));
        let (end, ended) = watch::channel(());
        let own = desk.clone();
        std::thread::Builder::new().name("elderlock-votes".to_owned()).spawn(move || {
            while let Some((WriteJob { process, number, vote }, storage)) = next(&own) {
                let result = storage.keep(&vote);
                lock(&own.0).storage = Some(storage);
                tell(process, number, result);
            }
            drop((own, end));
        })?;
        Ok(VoteWriter { desk, ended })
    }

    /// Hands a vote to the thread. Never waits for the disk.
    pub(crate) fn write(&self, process: ProcessId, number: u64, vote: Box<StoredVote>) {
        let (desk, changed) = &*self.desk;
        lock(desk).next = Some(WriteJob { process, number, vote });
        changed.notify_one();
    }

    /// The receiver closes when the thread has ended.
    pub(crate) fn ended(&self) -> watch::Receiver<()> {
        self.ended.clone()
    }
}

impl Drop for VoteWriter {
    fn drop(&mut self) {
        let (desk, changed) = &*self.desk;
        let mut desk = lock(desk);
        desk.is_closed = true;
        // Unless a job still needs the storage, it is dropped at once, so that another process may
        // use the directory.
        let idle = if desk.next.is_none() { desk.storage.take() } else { None };
        drop(desk);
        drop(idle);
        changed.notify_one();
    }
}

/// Waits for the next job, and takes the storage; `None`: no more jobs will come.
fn next(
    (desk, changed): &(Mutex<WriterQueue>, Condvar),
) -> Option<(WriteJob, Box<dyn VoteStorage>)> {
    let mut desk = lock(desk);
    loop {
        match (desk.next.take(), desk.is_closed) {
            (Some(job), _) => return desk.storage.take().map(|storage| (job, storage)),
            (None, true) => return None,
            (None, false) => desk = changed.wait(desk).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn lock(desk: &Mutex<WriterQueue>) -> MutexGuard<'_, WriterQueue> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
