//! The messages of the bench's processes. Times are nanoseconds of the machine's monotonic clock,
//! which all processes share.

use crate::spans::Spans;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A message from the parent to a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchOrder {
    /// Take a number of free locks. Answered `Holding`.
    Hold {
        /// The number of the first.
        first: u32,
        /// The number of locks.
        count: u32,
    },
    /// Take a number of free locks and release each, 64 at a time. Answered `Did`.
    Pass {
        /// The number of the first.
        first: u32,
        /// The number of locks.
        count: u32,
    },
    /// Report the held locks. Answered `Holding`.
    Check,
    /// Take the locks that others are to queue for. Answered `Done`.
    HoldQueues(u32),
    /// Release the locks of the queues. Answered `Done`.
    FreeQueues,
    /// Wait for locks that are held, and release each as soon as it is granted. Answered `Served`
    /// when all have been granted.
    Wait(Vec<QueuedWaiter>),
    /// Query the grantor for the holds, and for the waiters of this many queues. Answered `Seen`.
    Look(u32),
    /// Take and release a free lock repeatedly from now on. Answered `Done`.
    Probe,
    /// Stop the probes. Answered `Probed`.
    Rest,
    /// Take this many free locks at the same time, and release them. Answered `Probed`.
    Spread(u32),
    /// Become the grantor. Answered `Did`.
    Become,
    /// Keep locks after their release from now on, or no longer. Answered `Done`.
    Keep(bool),
    /// Serve the member's page over HTTP from now on, and load it once. Answered `Done`.
    ServeHttp,
    /// Repeat an operation. Answered `Ran`.
    Run {
        /// The load.
        load: Load,
        /// The time.
        window: Window,
    },
    /// Send back all data sent to an address. Answered `Listens`.
    Echo(bool),
    /// Pass the data of each of this many connections on to the next one. Answered `Listens`.
    Hub(u32),
    /// Start or stop counting allocations. Answered `Done`.
    Count(bool),
    /// Take and release a free lock this many times, or a share of it, and count allocations and
    /// messages. Answered `Took`.
    Take {
        /// How many times the lock is taken.
        times: u64,
        /// Whether a share is taken.
        shared: bool,
    },
    /// Let this many requests wait for one lock, give up from the middle, and be granted. Answered
    /// `Queued`.
    Queue(u32),
    /// Report the resources that the process uses. Answered `Using`.
    Usage,
    /// Leave the cluster and end. Answered `Did`.
    Leave,
}

/// A waiter of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct QueuedWaiter {
    /// The number of the queue.
    pub(crate) queue: u32,
    /// The waiter's number.
    pub(crate) waiter: u32,
}

/// An operation that is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// Take a lock and release it.
    Locks {
        /// The number of tasks at the same time.
        tasks: u32,
        /// The names that the tasks take.
        names: Names,
        /// Whether each lock is timed.
        timed: bool,
    },
    /// Floor L.
    Table {
        /// The number of tasks at the same time.
        tasks: u32,
        /// The names that the tasks take.
        names: Names,
    },
    /// Locks, shares or entries of floor L on several threads, each with its own runtime and names.
    Threads {
        /// The number of threads at the same time.
        threads: u32,
        /// The number of names of each thread.
        names: u32,
        /// The round. Each round uses other names, which share shards by chance.
        round: u32,
        /// The kind of things that the threads take and release.
        takes: Taken,
    },
    /// Take and release the member's own names, and now and then a name that the next keeper keeps.
    Recalls(Affinity),
    /// Floor R.
    PingPong {
        /// The process that answers.
        at: SocketAddr,
        /// The number of frames in flight.
        in_flight: u32,
        /// Whether all frames of one read go into one write.
        together: bool,
    },
    /// Floor R, with one frame each millisecond.
    PacedPing {
        /// The process that answers.
        at: SocketAddr,
        /// The number of this process.
        keeper: u32,
    },
    /// Floor H.
    Spoke {
        /// The address of the hub.
        at: SocketAddr,
        /// Whether this spoke starts with the frame.
        brings: bool,
    },
}

/// A kind of things that a load on threads takes and releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Taken {
    /// Locks.
    Lock,
    /// Shares of locks.
    Share,
    /// Entries of floor L.
    Floor,
}

/// The names of a member that keeps locks, and how often it wants another keeper's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Affinity {
    /// The number of names of each keeper.
    pub(crate) names: u32,
    /// The number of this keeper, from 1 on, and the number of all keepers.
    pub(crate) keeper: u32,
    pub(crate) keepers: u32,
    /// The locks of 100 whose name the next keeper keeps.
    pub(crate) percent: u32,
    /// Whether the keeper takes some locks each millisecond, and sleeps meanwhile. Otherwise it
    /// takes one after the other.
    pub(crate) paced: bool,
}

/// The locks that the tasks of a load take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Names {
    /// All tasks take the same lock.
    One,
    /// Each task takes a lock of its own.
    Own,
    /// Each task takes names one after the other, scattered among held names.
    Scattered {
        /// The number of held locks.
        held: u32,
    },
}

/// The beginning and the end of a measurement, so that several processes begin and end together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The result of a load.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadResult {
    /// The number of locks that were taken and released, or of frames that came back.
    pub(crate) taken: u64,
    /// The time of all operations, for the task with the longest time.
    pub(crate) nanos: u64,
    /// The time of each operation, if the load was timed.
    pub(crate) spans: Spans,
}

impl LoadResult {
    /// Adds the result of a load that ran at the same time.
    pub(crate) fn join(&mut self, other: LoadResult) {
        self.taken += other.taken;
        self.nanos = self.nanos.max(other.nanos);
        self.spans.join(&other.spans);
    }

    /// The number of operations in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.taken as f64 * 1e9 / self.nanos.max(1) as f64
    }
}

/// The resources that a process has used since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The time of this measurement, in nanoseconds.
    pub(crate) at: u64,
    /// Nanoseconds on a processor, of all threads.
    pub(crate) busy: u64,
    /// Bytes in memory.
    pub(crate) resident: u64,
    /// Bytes allocated since counting began, without the list of guards.
    pub(crate) allocated: i64,
    /// Messages to other members.
    pub(crate) frames_out: u64,
    /// Messages from other members.
    pub(crate) frames_in: u64,
    /// Bytes to and from other members, with 100 bytes for each datagram.
    pub(crate) traffic: u64,
}

/// The grant to a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// The waiter.
    pub(crate) waiter: QueuedWaiter,
    /// The token of the grant.
    pub(crate) token: i64,
    /// The time of the grant.
    pub(crate) at: u64,
}

/// A message from a member to its parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchReport {
    /// The member has joined; this is its process id.
    Joined(String),
    /// The order is carried out.
    Done,
    /// The member believes in all these holds.
    Holding(Holdings),
    /// The member's waits are over.
    Served(Vec<Served>),
    /// The grantor's answer to a query.
    Seen {
        /// The locks that belong to no queue and no probe.
        holdings: Holdings,
        /// The waiters of each queue, in order.
        queues: Vec<Vec<u32>>,
    },
    /// The times at which each probe asked and was granted.
    Probed(Vec<(u64, u64)>),
    /// A longer operation is done.
    Did {
        /// The time at which the operation began.
        from: u64,
        /// The time at which the operation was done.
        to: u64,
    },
    /// The member has run the load, with this result.
    Ran(LoadResult),
    /// The member listens at this address.
    Listens(SocketAddr),
    /// The allocations and messages while locks were taken.
    Took {
        /// The number of allocations.
        allocations: u64,
        /// The number of messages sent.
        frames: u64,
    },
    /// The times of waiters, in nanoseconds for each.
    Queued {
        /// The time until a waiter was queued.
        join: u64,
        /// The time until a waiter had given up.
        cancel: u64,
        /// The time from the preceding release until a waiter had the lock.
        grant: u64,
    },
    /// The resources that the process uses.
    Using(Usage),
    /// An event at the member.
    Event {
        /// The time at which it was reported.
        at: u64,
        /// The event itself.
        event: Event,
    },
    /// The order cannot be carried out, or a guarantee is broken.
    Failed(String),
}

impl BenchReport {
    /// The beginning and the end of a longer operation.
    pub(crate) fn did(&self) -> Option<(u64, u64)> {
        match self {
            BenchReport::Did { from, to } => Some((*from, *to)),
            _ => None,
        }
    }

    /// Whether the order is carried out.
    pub(crate) fn done(&self) -> Option<()> {
        (*self == BenchReport::Done).then_some(())
    }

    /// The reported holds.
    pub(crate) fn holding(&self) -> Option<Holdings> {
        match self {
            BenchReport::Holding(holdings) => Some(*holdings),
            _ => None,
        }
    }
}

/// The number of locks, with a sum over their tokens that identifies them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Holdings {
    /// The number of locks.
    pub(crate) count: u32,
    /// The wrapping sum of their tokens.
    pub(crate) tokens: u64,
}

impl Holdings {
    /// Adds one more lock.
    pub(crate) fn add(&mut self, token: i64) {
        self.count += 1;
        self.tokens = self.tokens.wrapping_add(token.cast_unsigned());
    }

    /// Adds the locks of another member.
    pub(crate) fn join(&mut self, other: Holdings) {
        self.count += other.count;
        self.tokens = self.tokens.wrapping_add(other.tokens);
    }
}

/// An event at a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// The member has a new view, of these processes.
    View(Vec<String>),
    /// The member has become a grantor.
    BecameGrantor,
}
