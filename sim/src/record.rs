//! The record of a run: its events as values that can be written as JSON lines, checked again and
//! drawn.
//!
//! A record speaks in sites (`m0`, `m1`, ...), numbers of calls and true time, never in process
//! ids: equal runs have equal records.

use serde::{Deserialize, Serialize};

/// An event at one instant of true time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Nanoseconds of true time since the World began.
    pub at: u64,
    /// The site where it happened, if it happened at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<usize>,
    /// How many processes have run at that site by then: 1 is the first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub life: u64,
    /// The recorded event.
    #[serde(flatten)]
    pub entry: Entry,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_none(number: &usize) -> bool {
    *number == 0
}

fn is_no_permit(number: &u32) -> bool {
    *number == 0
}

fn is_first(index: &usize) -> bool {
    *index == 0
}

fn is_lock(kind: &RecordedRequest) -> bool {
    *kind == RecordedRequest::Lock
}

/// The request of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedRequest {
    /// A lock, or several, all or nothing.
    #[default]
    Lock,
    /// The suspension of the service.
    Suspend,
    /// A share of a lock.
    Share,
    /// Permits of an object.
    Permits,
    /// Have an object open.
    Open,
    /// Change the value of an object.
    Put,
    /// Make a share the lock.
    Upgrade,
    /// Become the grantor.
    Become,
    /// End the member's part in the service.
    Destroy,
    /// Query the grantor.
    See,
    /// Request a revocation, or force it.
    Revoke,
}

impl RecordedRequest {
    /// Returns whether the request is for something to hold.
    pub fn is_hold(self) -> bool {
        matches!(
            self,
            RecordedRequest::Lock
                | RecordedRequest::Suspend
                | RecordedRequest::Share
                | RecordedRequest::Permits
        )
    }

    /// Returns whether two holds of these kinds may stand beside each other.
    pub fn suffers(self, other: RecordedRequest) -> bool {
        self == other && matches!(self, RecordedRequest::Share | RecordedRequest::Permits)
    }
}

/// An event of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Entry {
    /// The first line: the World.
    World {
        /// The seed.
        seed: u64,
        /// How many sites there are.
        sites: usize,
        /// Whether clocks keep their bound, so that invariants that need it may be demanded.
        bounded: bool,
        /// The bound within which clocks may run off, in parts per million.
        error_ppm: u32,
        /// How long a try may take, in nanoseconds.
        answer: u64,
        /// How many of the oldest members vote; zero: unknown.
        #[serde(default, skip_serializing_if = "is_none")]
        council: usize,
        /// How long the leases of members and of elders are, in nanoseconds of their clocks.
        #[serde(default)]
        leases: (u64, u64),
        /// Whether a grantor has little room for requests before it acts. It sends the rest back,
        /// to be asked again, so calls of one member may change their order.
        #[serde(default, skip_serializing_if = "is_false")]
        crowded: bool,
    },
    /// A client asks for something. Later lines name the request by `call`.
    Invoke {
        /// The number of the call in this run.
        call: usize,
        /// The service.
        service: String,
        /// The kind of the request.
        #[serde(default, skip_serializing_if = "is_lock")]
        request_kind: RecordedRequest,
        /// The lock, or the locks of a batch in their order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<String>,
        /// The owner; zero: the whole member.
        #[serde(default, skip_serializing_if = "is_zero")]
        owner: u64,
        /// How many permits; of a write, how many its value makes the limit.
        #[serde(default, skip_serializing_if = "is_no_permit")]
        permits: u32,
        /// The call whose share is to become the lock, or that has the object open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<usize>,
        /// How long it waits: `None` for ever, zero for a try. Nanoseconds.
        wait: Option<u64>,
        /// How long it may hold. Nanoseconds on its member's clock.
        lease: Option<u64>,
    },
    /// The lock is granted.
    Ok {
        /// The call.
        call: usize,
        /// The fencing token.
        token: u64,
        /// The end of the lock's lease in true time; `None`: it has none.
        until: Option<u64>,
        /// Whether the member granted the lock to itself, with a token of a keep.
        #[serde(default, skip_serializing_if = "is_false")]
        from_keep: bool,
    },
    /// The call ended without a lock, and surely has none.
    Fail {
        /// The call.
        call: usize,
        /// The answer.
        answer: String,
    },
    /// The process ended before it answered, or before the hold was over: the outcome is unknown
    /// for ever.
    Unknown {
        /// The call.
        call: usize,
    },
    /// The client releases the lock.
    Release {
        /// The call.
        call: usize,
    },
    /// The hold is told to be lost.
    Lost {
        /// The call.
        call: usize,
        /// The reason of the loss.
        reason: String,
    },
    /// The hold's lease now ends at another time.
    Extended {
        /// The call.
        call: usize,
        /// The end of the lock's lease in true time; `None`: it has none.
        until: Option<u64>,
    },
    /// A lock has become a share, or a share the lock.
    ModeChanged {
        /// The call.
        call: usize,
        /// Its present kind.
        request_kind: RecordedRequest,
        /// Its token now.
        token: u64,
    },
    /// Some of its permits are returned.
    PermitsReturned {
        /// The call.
        call: usize,
        /// How many it has left.
        left: u32,
    },
    /// A client sees another value of its open object.
    Sees {
        /// The call.
        call: usize,
        /// The version.
        version: u64,
        /// The value, for people.
        value: String,
        /// Whether a later version may have been lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stale: bool,
    },
    /// A write to the protected resource, with the token of the call.
    Write {
        /// The call.
        call: usize,
        /// The index of the lock among the call's locks.
        #[serde(default, skip_serializing_if = "is_first")]
        index: usize,
        /// The token.
        token: u64,
        /// Whether it was taken.
        taken: bool,
    },
    /// A process starts.
    Start,
    /// The process is killed, its host fails, or it left or was expelled.
    End {
        /// How: `killed`, `vanished`, `left`, `reborn`.
        how: String,
    },
    /// The process is stopped.
    Pause,
    /// When the member's lease ends in true time, as things are; `None`: it has no end. Written
    /// when a process is stopped, because it cannot report the end itself then.
    Lease {
        /// The end of the lease in true time.
        until: Option<u64>,
    },
    /// The process goes on.
    Wake,
    /// The member is told to leave.
    Leave,
    /// A view is installed at the site.
    View {
        /// Its number in its lineage.
        number: u64,
        /// The first slot whose tokens its elder deals, and how many it may deal.
        #[serde(default)]
        slots: (u64, u32),
        /// The sites of its members, oldest first; the first that is neither ghost nor learner is
        /// the elder. A site may be there twice, with the ghost of a process and the next one, in
        /// either order. Of two joiners, the later may have been heard first.
        members: Vec<usize>,
        /// The number of each member's process at its site, in the order of `members`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lives: Vec<u64>,
        /// The members that are ghosts: site and life.
        ghosts: Vec<(usize, u64)>,
        /// The members that have no vote yet: site and life.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        learners: Vec<(usize, u64)>,
        /// The lineage: site and life of the process that founded it.
        #[serde(default)]
        founder: (usize, u64),
    },
    /// The member became elder, or its lease ended or runs again, or it gave itself up: the event's
    /// name.
    Event {
        /// Its name.
        name: String,
    },
    /// The member got more tokens for a service that it grants.
    Tokens {
        /// The service.
        service: String,
        /// The first of these tokens.
        first: u64,
    },
    /// The member grants a service from now on.
    Grantor {
        /// The service.
        service: String,
        /// Its epoch.
        epoch: u64,
        /// Whether its recovery only begins.
        recovering: bool,
    },
    /// The member grants the service no longer.
    NoGrantor {
        /// The service.
        service: String,
        /// The epoch that ended.
        epoch: u64,
    },
    /// The table of a grantor after its recovery, at the end of the step in which it begins to act.
    Table {
        /// The service.
        service: String,
        /// Its epoch.
        epoch: u64,
        /// The calls that hold, with the token of each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holds: Vec<(usize, u64)>,
        /// The calls that wait.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits: Vec<usize>,
        /// The number of requests without a call.
        #[serde(default, skip_serializing_if = "is_none")]
        strange: usize,
    },
    /// No packet arrives over the ways in `cut` from now on, and packets arrive again over those in
    /// `mended`: from, to.
    Ways {
        /// The ways that are cut.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cut: Vec<(usize, usize)>,
        /// The ways that are whole again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        mended: Vec<(usize, usize)>,
    },
    /// Packets may have been under way for this long from now on, in nanoseconds. The time is
    /// rounded up, so that it is written seldom.
    Slow {
        /// The time under way, in nanoseconds.
        upto: u64,
    },
    /// How many packets all members together sent in a completed second of true time. Seconds
    /// without packets are left out.
    Sent {
        /// The number of the second.
        second: u64,
        /// The number of packets.
        packets: u64,
    },
    /// A packet leaves the site. Only in records with messages.
    Send {
        /// The number of the packet in this run.
        packet: u64,
        /// The receiving site.
        to: usize,
        /// The name of its content.
        kind: String,
        /// Why it does not arrive, if it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<String>,
    },
    /// A packet arrives at the site. Only in records with messages.
    Arrive {
        /// The number of the packet in this run.
        packet: u64,
    },
    /// A fault begins.
    Fault {
        /// The number of the fault in its plan.
        fault: usize,
        /// Its kind.
        kind: String,
        /// The sites it hits.
        sites: Vec<usize>,
    },
    /// A fault ends.
    Mended {
        /// The number of the fault in its plan.
        fault: usize,
    },
    /// Everything is healed, and everything must work from now on.
    Heal,
    /// All demands after the healing hold.
    Rest {
        /// The sites of the demanded members.
        sites: Vec<usize>,
    },
    /// An invariant is broken: the last line.
    Break {
        /// The name of the invariant.
        invariant: String,
        /// The lock, if it is about one: `service/name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lock: Option<String>,
        /// The violation in words.
        words: String,
    },
}

impl Entry {
    /// The members of a view that may vote, oldest first: site and life. All other entries have
    /// none.
    pub fn voters(&self) -> Vec<(usize, u64)> {
        let Entry::View { members, lives, ghosts, learners, .. } = self else { return Vec::new() };
        let processes = members.iter().copied().zip(lives.iter().copied());
        processes.filter(|one| !ghosts.contains(one) && !learners.contains(one)).collect()
    }
}

/// The lines of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// The lines in the order in which they happened.
    pub lines: Vec<Line>,
}

impl Record {
    /// Returns the record as JSON lines.
    pub fn to_json_lines(&self) -> String {
        let line = |line: &Line| {
            serde_json::to_string(line).expect("a line has nothing that JSON cannot say")
        };
        self.lines.iter().map(|one| line(one) + "\n").collect()
    }

    /// Reads a record from JSON lines. The error names the line.
    pub fn from_json_lines(text: &str) -> Result<Record, String> {
        let line = |(number, text)| {
            serde_json::from_str(text).map_err(|wrong| format!("line {}: {wrong}", number + 1))
        };
        text.lines().enumerate().map(line).collect::<Result<_, _>>().map(|lines| Record { lines })
    }
}
