//! The messages of the demo's processes: one JSON object per line, on stdin and stdout of the
//! worker.

use serde::{Deserialize, Serialize};

/// A message from a worker to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerReport {
    /// The worker's view of the cluster; sent when it changes.
    Sees(ClusterSnapshot),
    /// The worker sold one piece, and the sale is in the file.
    Sale {
        /// The article.
        article: u32,
        /// The token; 0 without locks.
        token: i64,
    },
    /// The worker has stopped between `fence()` and the write, and waits for `WorkerOrder::Go`.
    Standing {
        /// The article whose lock the worker holds.
        article: u32,
        /// The token of the lock.
        token: i64,
        /// The worker's view of the cluster at that moment.
        sight: ClusterSnapshot,
    },
    /// The table refused the worker's write: a worker with a higher token wrote before.
    Refused {
        /// The article.
        article: u32,
        /// The token.
        token: i64,
    },
    /// A task of the worker did not get its lock, or lost it before the sale.
    Unserved(String),
    /// The worker became the grantor, as ordered, and its service confirms that.
    Became(ClusterSnapshot),
    /// The worker suspended the service and counted.
    Counted {
        /// Sales in the books when the service was suspended.
        before: i64,
        /// Sales in the books just before it was resumed.
        after: i64,
        /// Pieces by which stock and sales differed at that moment.
        missing: i64,
        /// The time for which the worker waited until no lock was held.
        waited_milliseconds: f64,
    },
    /// The worker cannot carry out its order.
    Failed(String),
    /// An unexpected failure.
    Trouble(String),
}

/// The cluster as a worker sees it. Processes have their number in hexadecimal.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ClusterSnapshot {
    /// The worker's own process.
    pub(crate) me: String,
    /// The number of the worker's view.
    pub(crate) view: u64,
    /// The living members of that view, oldest first.
    pub(crate) members: Vec<String>,
    /// The number of ghosts in the view.
    pub(crate) ghosts: usize,
    /// The elder.
    pub(crate) elder: Option<String>,
    /// The grantor of the stock.
    pub(crate) grantor: Option<String>,
    /// Whether the worker's member lease runs.
    pub(crate) leased: bool,
    /// Whether the worker's tasks hold nothing and ask for nothing.
    pub(crate) idle: bool,
}

/// A message from the parent to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerOrder {
    /// Start to sell.
    Open,
    /// Stop between `fence()` and the write at the next sale, and report it.
    Stand,
    /// Continue with the write.
    Go,
    /// Become the grantor.
    Become,
    /// Suspend the service and count the stock and the sales in the books.
    Count,
    /// Ask for no locks until `Open`.
    Rest,
    /// Finish the present work, leave the cluster, exit.
    Finish,
}
