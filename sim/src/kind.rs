//! Short names for packets, for traces and for picking one out of the stream.

use elderlock::protocol::{Message, Packet};

/// The name of what a packet carries, see [`Packet::kind`].
pub fn kind(packet: &Packet) -> &'static str {
    packet.kind()
}

/// The message in a packet, also in a relayed one.
pub fn message(packet: &Packet) -> Option<&Message> {
    match packet {
        Packet::Linked { message, .. } => Some(message),
        Packet::Relay { packet, .. } => message(packet),
        Packet::Notice(_) | Packet::Heir { .. } | Packet::Ack { .. } => None,
    }
}

/// Every name that [`kind`] gives.
pub const KINDS: &[&str] = &[
    "Hello",
    "HelloIs",
    "Found",
    "FoundOk",
    "Join",
    "Leave",
    "Beat",
    "Pulse",
    "Vouch",
    "Canvass",
    "Canvassed",
    "Prepare",
    "Promise",
    "Nack",
    "Accept",
    "Accepted",
    "Install",
    "ViewIs",
    "Fetch",
    "Stale",
    "WhoGrants",
    "GrantorIs",
    "Name",
    "MoreTokens",
    "Tokens",
    "Inventory",
    "InventoryIs",
    "Ask",
    "Queued",
    "Grant",
    "Refuse",
    "NotGrantor",
    "Done",
    "Recover",
    "Report",
    "Revoke",
    "Become",
    "Outbid",
    "Acts",
    "Yield",
    "Vacant",
    "Decline",
    "Declined",
    "Hand",
    "Table",
    "NoTable",
    "Deposed",
    "Settle",
    "Settled",
    "Unsettled",
    "Look",
    "Seen",
    "Narrow",
    "Upgrade",
    "Upgraded",
    "Write",
    "Value",
    "AskBack",
    "AskedBack",
    "Ack",
    "Doubt",
    "Lives",
];

/// So many of them, the first, are drawn for packets that are late: plans stay what they were when there are more.
pub const DRAWN: usize = 60;
