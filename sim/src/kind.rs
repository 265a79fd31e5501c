//! Short names for packets, for traces and for picking one out of the stream.

use elderlock::protocol::{Message, Notice, Packet};

/// The name of what a packet carries: the variant of its notice or message. A relay is named by its inside.
pub fn kind(packet: &Packet) -> &'static str {
    match packet {
        Packet::Heir { notice, .. } => of_notice(notice),
        Packet::Notice(notice) => of_notice(notice),
        Packet::Linked { message, .. } => match message {
            Message::WhoGrants { .. } => "WhoGrants",
            Message::GrantorIs { .. } => "GrantorIs",
            Message::Name { .. } => "Name",
            Message::MoreTokens { .. } => "MoreTokens",
            Message::Tokens { .. } => "Tokens",
            Message::Inventory { .. } => "Inventory",
            Message::InventoryIs { .. } => "InventoryIs",
            Message::Ask { .. } => "Ask",
            Message::Queued { .. } => "Queued",
            Message::Grant { .. } => "Grant",
            Message::Refuse { .. } => "Refuse",
            Message::NotGrantor { .. } => "NotGrantor",
            Message::Done { .. } => "Done",
            Message::Recover { .. } => "Recover",
            Message::Report { .. } => "Report",
            Message::Revoke { .. } => "Revoke",
        },
        Packet::Ack { .. } => "Ack",
        Packet::Relay { packet, .. } => kind(packet),
    }
}

/// The variant of a notice.
fn of_notice(notice: &Notice) -> &'static str {
    match notice {
        Notice::Hello { .. } => "Hello",
        Notice::HelloIs { .. } => "HelloIs",
        Notice::Found { .. } => "Found",
        Notice::FoundOk { .. } => "FoundOk",
        Notice::Join { .. } => "Join",
        Notice::Leave => "Leave",
        Notice::Beat { .. } => "Beat",
        Notice::Pulse { .. } => "Pulse",
        Notice::Vouch { .. } => "Vouch",
        Notice::Canvass { .. } => "Canvass",
        Notice::Canvassed { .. } => "Canvassed",
        Notice::Prepare { .. } => "Prepare",
        Notice::Promise { .. } => "Promise",
        Notice::Nack { .. } => "Nack",
        Notice::Accept { .. } => "Accept",
        Notice::Accepted { .. } => "Accepted",
        Notice::Install { .. } => "Install",
        Notice::ViewIs(_) => "ViewIs",
        Notice::Fetch { .. } => "Fetch",
        Notice::Stale { .. } => "Stale",
    }
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
    "Ack",
];
