//! How much a member keeps, and how much it sends at a time.

/// The largest council ([`MemberBuilder::council`](crate::MemberBuilder::council)): each of its
/// members takes part in each decision about views.
pub const MAX_COUNCIL: u8 = 31;

/// Bounds and sizes of one member. They decide which requests are refused, and which messages are
/// dropped and sent again. They also decide into how many chunks a long message is cut. They never
/// decide the grants. Members of one cluster may have different limits, except the room of tickets,
/// which a table keeps in a transfer.
///
/// Programs use the [`Default`]. The simulator draws small limits, so that situations that
/// otherwise take thousands of requests occur in each of its runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// The approximate number of bytes of a table or a report in one message.
    pub part_bytes: u32,
    /// The most entries in one part of an inventory.
    pub inventory_part: u32,
    /// The most holders or waiters that are listed in one answer.
    pub listed: u32,
    /// The most requests and holds that are counted before a position.
    pub counted: u32,
    /// The most messages on their way to one member. Beyond them, new requests are answered
    /// [`Busy`](super::Outcome::Busy): a member that does not answer must not fill this member's
    /// memory until its lease is over. [`LinkLimits::kept_bytes`] is their limit in bytes.
    pub backlog: u32,
    /// The most requests of this member at a time. More are answered
    /// [`Busy`](super::Outcome::Busy).
    pub requests: u32,
    /// The most requests of a service that are kept for an epoch which this member does not know
    /// yet. Later requests are told to ask the elder. The kept ones have at most 1 KiB each on the
    /// average. One member may have twice as many in all services, and all members four times as
    /// many.
    pub early: u32,
    /// The most requests that a grantor keeps while it does not act yet. Later requests are told to
    /// ask again. The kept ones have at most 1 KiB each on the average.
    pub parked: u32,
    /// The most revocation requests that are reported to the holder of one hold.
    pub wanted: u32,
    /// The most work of each kind in one step; the next steps do the rest. The kinds are grants of
    /// one grantor, ends of requests of departed members, queue positions that are reported, and
    /// requests whose limit is reached. Further kinds are entries of a report, of a copy, and of a
    /// table that is used no more.
    pub slice: u32,
    /// The limits of the link to each other process, and of the memory for that process.
    pub link: LinkLimits,
    /// The most processes that join with one view. Further ones wait for the next view, so that a
    /// crowd that arrives together and dies together cannot outvote the earlier members.
    pub joins: u32,
    /// The most addresses, beside those of the seeds, that a process which seeks its cluster
    /// remembers.
    pub contacts: u32,
    /// The most remembered deaths of processes that are in no view yet.
    pub dead: u32,
    /// The number of tokens of a grantor's first range.
    pub first_range: u32,
    /// The number of tokens of the longest range. A grantor that uses up a range within a member
    /// lease asks for twice as many.
    pub max_range: u32,
    /// The most tokens that an elder deals in one view, though its slots may have more. At least as
    /// many as one request may need.
    pub view_tokens: u32,
    /// The positions in a block of tickets, for arriving requests and for requests that pass a
    /// suspension; at most 2^30.
    pub ticket_room: u32,
    /// The block from which on tickets have no room in blocks, so that numbers never run out: no
    /// request passes a suspension that waits there. At most 2^31.
    pub ticket_blocks: u32,
}

/// The limits of a link, and of the memory that one member may take at another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LinkLimits {
    /// How far a message of one member may be ahead of its turn and still be kept. The bound is as
    /// many messages as a reordering network may plausibly swap. Messages further ahead are
    /// dropped, and that member sends them again.
    pub early: u32,
    /// The approximate number of bytes of these messages. A single message with more is kept if no
    /// other is.
    pub early_bytes: u32,
    /// The approximate number of bytes on their way to one member that calls of the program cause.
    /// Beyond them, new requests are answered [`Busy`](super::Outcome::Busy), as beyond
    /// [`Limits::backlog`]. Parts of tables, reports and inventories do not count.
    pub kept_bytes: u32,
    /// The approximate bytes of the requests of this member; an open object counts with the longest
    /// value. Beyond that number a further request is answered [`Busy`](super::Outcome::Busy). A
    /// grantor keeps at most twice as many bytes for one member, because local grants and a long
    /// batch may come on top. It tells the member to ask again. It leaves out the rest of the
    /// member's report, and tells the member that the holds in there are over.
    pub request_bytes: u32,
    /// The most names of services that an elder keeps for one member: those that the member asked
    /// for first and may still use. The elder ignores a question for a further name. A member that
    /// knows more services asks again after [`Timing::retry`](super::Timing::retry), and is
    /// answered when one of the names is over. A member whose limit is higher than the elder's asks
    /// again in the next view only. All learners together, and those that have left the view since,
    /// have a quarter of this number.
    pub names: u32,
    /// The most locks of each service that this member keeps after their release. Each is a hold at
    /// the grantor. The member remembers four times as many names that it has locked lately.
    pub kept_locks: u32,
    /// The most messages that are sent again at once. The others follow when these are
    /// acknowledged.
    pub burst: u32,
    /// The number of messages after which an acknowledgement is sent at once, so that the other
    /// side need not keep more.
    pub ack_every: u32,
    /// The most different notices to one process that are sent through the whole council in a
    /// quarter of `retry`. They are sent so while no relay is known to deliver.
    pub detour_notices: u32,
}

impl Limits {
    /// The limits of programs.
    pub const DEFAULT: Limits = Limits {
        part_bytes: 64 << 10,
        inventory_part: 512,
        listed: 256,
        counted: 1 << 14,
        backlog: 1 << 16,
        requests: 1 << 22,
        early: 1 << 16,
        parked: 1 << 20,
        wanted: 64,
        slice: 512,
        link: LinkLimits {
            early: 256,
            early_bytes: 1 << 20,
            kept_bytes: 64 << 20,
            request_bytes: 1 << 30,
            names: 1 << 18,
            kept_locks: 1 << 10,
            burst: 1024,
            ack_every: 64,
            detour_notices: 8,
        },
        joins: 64,
        contacts: 64,
        dead: 256,
        first_range: 1 << 12,
        max_range: 1 << 26,
        view_tokens: u32::MAX,
        ticket_room: 1 << 30,
        ticket_blocks: 1 << 31,
    };
}

impl Limits {
    /// The approximate bytes of one member's requests that a grantor keeps.
    pub(crate) fn member_bytes(&self) -> usize {
        2 * self.link.request_bytes as usize
    }

    /// The approximate bytes of one member's requests in a table that another grantor sends. The
    /// other grantor has [half of that](Limits::member_bytes), and one request more. Its own member
    /// may have taken further locks by local grants, and a member that keeps locks may have more
    /// uses of them.
    pub(crate) fn table_bytes(&self) -> usize {
        2 * self.member_bytes()
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
