//! `ProcessTask`: a task of a simulated process.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The task's output, from [`Cluster::spawn`](crate::Cluster::spawn). Dropping it leaves the task
/// as it is.
///
/// # Cancel safety
/// Dropping it loses the output and nothing else.
#[derive(Debug)]
pub struct ProcessTask<T>(pub(crate) oneshot::Receiver<T>);

impl<T> Future for ProcessTask<T> {
    type Output = Result<T, ProcessEnded>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| ProcessEnded(()))
    }
}

/// The process of the task has ended, or none was running: the task has no output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessEnded(());

impl std::fmt::Display for ProcessEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the process of the task has ended before the task")
    }
}

impl std::error::Error for ProcessEnded {}
