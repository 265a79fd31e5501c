//! What the bench's processes say to each other. Times are nanoseconds of the machine's monotonic
//! clock, which all processes share.

use super::spans::Spans;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// From the parent to a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchOrder {
    /// Take so many locks that are free. Answered `Holding`.
    Hold {
        /// The number of the first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Take so many locks that are free, and give each back, 64 at the same time. Answered `Did`.
    Pass {
        /// The number of the first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Say what is held by that. Answered `Holding`.
    Check,
    /// Take the locks that others are to queue for. Answered `Release`.
    HoldQueues(u32),
    /// Give them back. Answered `Release`.
    FreeQueues,
    /// Wait for locks that somebody holds, and give each back as soon as it is granted. Answered
    /// `Served` when all have been granted.
    Wait(Vec<Place>),
    /// Ask the grantor for the holds, and for the waiters of so many queues. Answered `QueryReply`.
    Look(u32),
    /// From now on take and give back a free lock, again and again. Answered `Release`.
    Probe,
    /// No more of that. Answered `Probed`.
    Rest,
    /// Become the grantor. Answered `Did`.
    Become,
    /// Do something again and again. Answered `Ran`.
    Run {
        /// What.
        load: Load,
        /// When.
        window: Window,
    },
    /// Send back what is sent to an address. Answered `Listens`.
    Echo(bool),
    /// Pass on what each of so many sends to the next of them. Answered `Listens`.
    Hub(u32),
    /// Count what is allocated, or no more. Answered `Release`.
    Count(bool),
    /// Take and give back a free lock so often, and count what is allocated and sent meanwhile.
    /// Answered `Turned`.
    Turn(u64),
    /// Have so many wait for one lock, give up from the middle, and be granted it. Answered
    /// `Queued`.
    Queue(u32),
    /// Say what the process uses. Answered `Using`.
    Usage,
    /// Leave the cluster and end. Answered `Did`.
    Leave,
}

/// A place that somebody is to have in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Which queue.
    pub(crate) queue: u32,
    /// The waiter's number.
    pub(crate) waiter: u32,
}

/// What is done again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// Take a lock and give it back.
    Locks {
        /// At the same time.
        tasks: u32,
        /// Which.
        names: Names,
        /// Count how long each took.
        timed: bool,
    },
    /// Floor L.
    Table {
        /// At the same time.
        tasks: u32,
        /// Which.
        names: Names,
    },
    /// Either of them on threads of their own, each with a runtime of its own and names of its own.
    Threads {
        /// At the same time.
        threads: u32,
        /// Of each.
        names: u32,
        /// Other names each time: which of them lie in one shard is chance.
        round: u32,
        /// Floor L, or our locks.
        floor: bool,
    },
    /// Floor R.
    PingPong {
        /// The process that answers.
        at: SocketAddr,
        /// Frames in flight.
        in_flight: u32,
        /// What one read brings is written in one go.
        together: bool,
    },
    /// Floor H.
    Spoke {
        /// The hub.
        at: SocketAddr,
        /// Whether this one brings the frame.
        brings: bool,
    },
}

/// Which locks the tasks of a load take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Names {
    /// All the same.
    One,
    /// Each its own.
    Own,
    /// One after the other, among so many that are held.
    Scattered {
        /// How many.
        held: u32,
    },
}

/// From when to when, so that several begin and end together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What a load came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// How often it was done.
    pub(crate) turns: u64,
    /// In how long; of the task that took the longest.
    pub(crate) nanos: u64,
    /// How long each took, if that was wanted.
    pub(crate) spans: Spans,
}

impl Ran {
    /// What was done beside it, too.
    pub(crate) fn join(&mut self, other: Ran) {
        self.turns += other.turns;
        self.nanos = self.nanos.max(other.nanos);
        self.spans.join(&other.spans);
    }

    /// In a second.
    pub(crate) fn rate(&self) -> f64 {
        self.turns as f64 * 1e9 / self.nanos.max(1) as f64
    }
}

/// What a process uses, from its beginning on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// When it was asked.
    pub(crate) at: u64,
    /// Nanoseconds on a processor, of all threads.
    pub(crate) busy: u64,
    /// Bytes in memory.
    pub(crate) resident: u64,
    /// Bytes allocated since they are counted, what the list of guards takes apart.
    pub(crate) allocated: i64,
    /// Messages to other members.
    pub(crate) frames_out: u64,
    /// Messages from them.
    pub(crate) frames_in: u64,
    /// Bytes to and from them, and the datagrams, each as if it had 100.
    pub(crate) traffic: u64,
}

/// A waiter was granted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Where it waited.
    pub(crate) place: Place,
    /// With which token.
    pub(crate) token: i64,
    /// When.
    pub(crate) at: u64,
}

/// From a member to its parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchReport {
    /// It is a member, and this is its process.
    Joined(String),
    /// That is done.
    Done,
    /// It holds so many locks, and believes in all of them.
    Holding(Holdings),
    /// Its waits are over.
    Served(Vec<Served>),
    /// What the grantor sees.
    Seen {
        /// Of the locks that are no queue's and no probe's.
        holdings: Holdings,
        /// The waiters of each queue, in order.
        queues: Vec<Vec<u32>>,
    },
    /// When each probe asked, and when it was granted.
    Probed(Vec<(u64, u64)>),
    /// What took a while is done.
    Did {
        /// When it began.
        from: u64,
        /// When it was done.
        to: u64,
    },
    /// It has done it so often.
    Ran(Ran),
    /// There.
    Listens(SocketAddr),
    /// That was allocated, and sent, while locks were taken.
    Turned {
        /// So often memory was asked for.
        allocations: u64,
        /// So many messages were sent.
        frames: u64,
    },
    /// Nanoseconds for each waiter.
    Queued {
        /// Until it stood in line.
        join: u64,
        /// Until it had given up.
        cancel: u64,
        /// Until it had the lock, from the release before it on.
        grant: u64,
    },
    /// It uses that.
    Using(Usage),
    /// Something happened to the member.
    Event {
        /// When it was told.
        at: u64,
        /// What.
        event: Event,
    },
    /// What was ordered cannot be done, or something went wrong that must not.
    Failed(String),
}

impl BenchReport {
    /// From when to when it did what was ordered.
    pub(crate) fn did(&self) -> Option<(u64, u64)> {
        match self {
            BenchReport::Did { from, to } => Some((*from, *to)),
            _ => None,
        }
    }

    /// Whether it is done.
    pub(crate) fn done(&self) -> Option<()> {
        (*self == BenchReport::Done).then_some(())
    }

    /// What it holds.
    pub(crate) fn holding(&self) -> Option<Holdings> {
        match self {
            BenchReport::Holding(holdings) => Some(*holdings),
            _ => None,
        }
    }
}

/// Locks, and a sum over their tokens, so that none can be taken for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Holdings {
    /// How many.
    pub(crate) count: u32,
    /// The sum of their tokens, over and over.
    pub(crate) tokens: u64,
}

impl Holdings {
    /// One more.
    pub(crate) fn add(&mut self, token: i64) {
        self.count += 1;
        self.tokens = self.tokens.wrapping_add(token.cast_unsigned());
    }

    /// Those of another, too.
    pub(crate) fn join(&mut self, other: Holdings) {
        self.count += other.count;
        self.tokens = self.tokens.wrapping_add(other.tokens);
    }
}

/// What happens to a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// It has a new view, of these processes.
    View(Vec<String>),
    /// It grants.
    BecameGrantor,
}
