//! `ProcessTask`: a task of a simulated process.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The output of a task, from [`Cluster::spawn`](crate::Cluster::spawn). Dropping this value does
/// not affect the task.
///
/// # Cancel safety
/// Dropping the future loses the output and nothing else.
#[derive(Debug)]
pub struct ProcessTask<T>(pub(crate) oneshot::Receiver<T>);

impl<T> Future for ProcessTask<T> {
    type Output = Result<T, ProcessEnded>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| ProcessEnded(()))
    }
}

/// The error of a task without output: its process has ended, or none was running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessEnded(());

impl std::fmt::Display for ProcessEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the process of the task has ended before the task")
    }
}

impl std::error::Error for ProcessEnded {}
