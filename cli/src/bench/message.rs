//! What the bench's processes say to each other. Times are nanoseconds of the machine's monotonic clock, which all
//! processes share.

use serde::{Deserialize, Serialize};

/// From the parent to a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Take so many locks that are free. Answered `Holding`.
    Hold {
        /// The number of the first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Say what is held by that. Answered `Holding`.
    Count,
    /// Take the locks that others are to queue for. Answered `Done`.
    HoldQueues(u32),
    /// Give them back. Answered `Done`.
    FreeQueues,
    /// Wait for locks that somebody holds, and give each back as soon as it is granted. Answered `Served` when all
    /// have been granted.
    Wait(Vec<Place>),
    /// Ask the grantor what is held, and who waits for the locks of so many queues. Answered `Seen`.
    Look(u32),
    /// From now on take and give back a free lock, again and again. Answered `Done`.
    Probe,
    /// No more of that. Answered `Probed`.
    Rest,
    /// Become the grantor. Answered `Did`.
    Become,
    /// Leave the cluster and end. Answered `Did`.
    Leave,
}

/// A place that somebody is to have in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Which queue.
    pub(crate) queue: u32,
    /// The number of the one who waits.
    pub(crate) waiter: u32,
}

/// From a member to its parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// It is a member, and this is its process.
    Joined(String),
    /// That is done.
    Done,
    /// It holds so many locks, and believes in all of them.
    Holding(Holdings),
    /// Its waits are over: who was granted which queue's lock, with which token.
    Served(Vec<(Place, i64)>),
    /// What the grantor sees.
    Seen {
        /// Of the locks that are no queue's and no probe's.
        holdings: Holdings,
        /// For each queue who waits, in order.
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
