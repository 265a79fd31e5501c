//! Short names for packets, for traces and for the choice of single packets.

use elderlock::protocol::{Message, Packet};

/// The name of a packet's content, see [`Packet::kind`].
pub fn kind(packet: &Packet) -> &'static str {
    packet.kind()
}

/// The message in a packet, also in a relayed one.
pub fn message(packet: &Packet) -> Option<&Message> {
    match packet {
        Packet::Linked { message, .. } => Some(message),
        Packet::Relay { packet, .. } => message(packet),
        Packet::Notice(_)
        | Packet::VoteSuccessor { .. }
        | Packet::Ack { .. }
        | Packet::Sealed { .. } => None,
    }
}

/// Every name that [`kind`] gives.
pub const KINDS: &[&str] = &[
    "Hello",
    "HelloReply",
    "Found",
    "FoundOk",
    "Join",
    "Leave",
    "Beat",
    "Pulse",
    "Vouch",
    "PreVote",
    "PreVoteReply",
    "Prepare",
    "Promise",
    "Nack",
    "Accept",
    "Accepted",
    "Install",
    "FullView",
    "Fetch",
    "StaleVote",
    "FindGrantor",
    "GrantorIs",
    "NameGrantor",
    "MoreTokens",
    "Tokens",
    "Inventory",
    "InventoryReply",
    "RequestLock",
    "Queued",
    "Grant",
    "Refuse",
    "NotGrantor",
    "Release",
    "Recover",
    "Report",
    "Supersede",
    "Become",
    "Outbid",
    "Acts",
    "ProposeSuccessor",
    "Vacant",
    "Decline",
    "SuccessorDeclined",
    "RequestTable",
    "TableChunk",
    "NoTable",
    "Deposed",
    "ConfirmDestroy",
    "DestroyConfirmed",
    "DestroyUnconfirmed",
    "Query",
    "QueryReply",
    "Reduce",
    "Upgrade",
    "Upgraded",
    "Write",
    "Value",
    "RequestRevocation",
    "RevocationReply",
    "Ack",
    "SuspectDead",
    "Alive",
    "FindService",
    "AskHolder",
    "HolderReply",
    "ProbeWait",
    "ProbeHold",
    "KeepInUse",
    "Recall",
    "CopyTable",
    "CopyPart",
    "NoCopy",
    "OfferCopy",
    "TableRest",
    "ReportTaken",
];

/// The number of kinds, from the first, that may be drawn for late packets. It is fixed, so that
/// plans stay the same when kinds are added.
pub const DRAWN: usize = 60;
