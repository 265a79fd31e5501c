//! Packets as bytes. [`Packet`] may contain itself (a relay), and a few kilobytes of such nesting
//! could overflow the stack of a decoder that follows it. So the wire has a flat packet, and a
//! relay of one flat packet.

use super::codec::{self, CodecError};
use super::limits::MAX_FRAME;
#[cfg(feature = "secure")]
use super::version::FROZEN;
use crate::protocol::{
    Lineage, MemberInfo, MemberMessage, Message, Notice, Packet, ProcessId, ViewNumber, VoteClaim,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
enum FlatPacketRef<'a> {
    Notice(&'a Notice),
    Linked {
        view: ViewNumber,
        seq: u64,
        ack: u64,
        message: &'a Message,
    },
    Ack {
        view: ViewNumber,
        ack: u64,
        again: bool,
    },
    VoteSuccessor {
        // The claim of `me`.
        claim: &'a VoteClaim,
        me: &'a MemberInfo,
        lineage: Lineage,
        notice: &'a Notice,
    },
    Sealed {
        is_notice: bool,
        bytes: &'a [u8],
    },
}

/// The form in which [`FlatPacketRef`] is read: same order, same fields.
#[derive(Deserialize)]
enum FlatPacket {
    Notice(Box<Notice>),
    Linked {
        view: ViewNumber,
        seq: u64,
        ack: u64,
        message: Message,
    },
    Ack {
        view: ViewNumber,
        ack: u64,
        again: bool,
    },
    VoteSuccessor {
        claim: Box<VoteClaim>,
        me: Box<MemberInfo>,
        lineage: Lineage,
        notice: Box<Notice>,
    },
    Sealed {
        is_notice: bool,
        bytes: Vec<u8>,
    },
}

impl FlatPacket {
    /// The packet, if its content is valid by itself.
    fn into_packet(self) -> Option<Packet> {
        match self {
            FlatPacket::Notice(notice) => {
                let is_sound = match &*notice {
                    Notice::Found { view, .. } | Notice::FullView { view, .. } => view.is_sound(),
                    _ => true,
                };
                is_sound.then_some(Packet::Notice(notice))
            }
            FlatPacket::Linked {
                message:
                    Message::Member(MemberMessage::NameGrantor { range, .. })
                    | Message::Member(MemberMessage::Tokens { range, .. }),
                ..
            } if !range.is_sound() => None,
            FlatPacket::Linked { view, seq, ack, message } => {
                Some(Packet::Linked { view, seq, ack, message })
            }
            FlatPacket::Ack { view, ack, again } => Some(Packet::Ack { view, ack, again }),
            FlatPacket::VoteSuccessor { claim, me, lineage, notice } => {
                Some(Packet::VoteSuccessor { claim, me, lineage, notice })
            }
            FlatPacket::Sealed { is_notice, bytes } => Some(Packet::Sealed { is_notice, bytes }),
        }
    }
}

/// The flat form; `None` for a relay.
fn flat(packet: &Packet) -> Option<FlatPacketRef<'_>> {
    Some(match packet {
        Packet::Notice(notice) => FlatPacketRef::Notice(notice),
        Packet::Linked { view, seq, ack, message } => {
            FlatPacketRef::Linked { view: *view, seq: *seq, ack: *ack, message }
        }
        Packet::Ack { view, ack, again } => {
            FlatPacketRef::Ack { view: *view, ack: *ack, again: *again }
        }
        Packet::VoteSuccessor { claim, me, lineage, notice } => {
            FlatPacketRef::VoteSuccessor { claim, me, lineage: *lineage, notice }
        }
        Packet::Sealed { is_notice, bytes } => {
            FlatPacketRef::Sealed { is_notice: *is_notice, bytes }
        }
        Packet::Relay { .. } => return None,
    })
}

/// Appends a packet that is not in a relay. `None`: it is a relay, or may only be in one.
pub(super) fn write_flat(
    packet: &Packet,
    version: u16,
    out: &mut Vec<u8>,
) -> Option<Result<(), CodecError>> {
    if matches!(packet, Packet::Sealed { .. }) {
        return None;
    }
    Some(codec::write(&flat(packet)?, version, out))
}

/// The parts of a relay before its packet, which a seal of the packet covers. They are in the
/// frozen form, because a relay on the way may speak a lower version than both ends.
#[cfg(feature = "secure")]
pub(super) fn relay_head(
    from: &MemberInfo,
    (to, troubled, heard): (ProcessId, bool, Option<ProcessId>),
    is_notice: bool,
) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    codec::write(&(from, to, troubled, heard, is_notice), FROZEN, &mut head).ok()?;
    Some(head)
}

/// Appends a relay. `None`: the packet in it is a relay.
pub(super) fn write_relay(
    from: &MemberInfo,
    (to, troubled, heard): (ProcessId, bool, Option<ProcessId>),
    packet: &Packet,
    version: u16,
    out: &mut Vec<u8>,
) -> Option<Result<(), CodecError>> {
    Some(codec::write(&(from, to, troubled, heard, flat(packet)?), version, out))
}

/// The front of a linked packet, as in [`FlatPacket`], without the message.
#[derive(Deserialize)]
enum PacketHead {
    Notice,
    Linked { view: ViewNumber, _seq: u64, ack: u64 },
}

/// Reads a packet. Of a stranger's linked packet only the head is read: the view number may lead to
/// a newer view. The message counts as lost, and its link sends it again.
pub(super) fn read_flat(bytes: &[u8], version: u16, is_strange: bool) -> Option<Packet> {
    if is_strange
        && let Ok((PacketHead::Linked { view, ack, .. }, _)) =
            codec::read_front::<PacketHead, MAX_FRAME>(bytes, version)
    {
        return Some(Packet::Ack { view, ack, again: false });
    }
    let packet = codec::read::<FlatPacket, MAX_FRAME>(bytes, version).ok()?.into_packet()?;
    (!matches!(packet, Packet::Sealed { .. })).then_some(packet)
}

/// Reads a relay. A linked packet that a stranger relays is read like one of the stranger's own.
pub(super) fn read_relay(bytes: &[u8], version: u16, is_strange: bool) -> Option<Packet> {
    type RelayHead = (MemberInfo, ProcessId, bool, Option<ProcessId>, PacketHead);
    type RelayFields = (MemberInfo, ProcessId, bool, Option<ProcessId>, FlatPacket);
    if is_strange && let Ok((head, _)) = codec::read_front::<RelayHead, MAX_FRAME>(bytes, version) {
        let (from, to, troubled, heard, head) = head;
        if let PacketHead::Linked { view, ack, .. } = head {
            let packet = Box::new(Packet::Ack { view, ack, again: false });
            return Some(Packet::Relay { from: Box::new(from), to, troubled, heard, packet });
        }
    }
    let (from, to, troubled, heard, flat) =
        codec::read::<RelayFields, MAX_FRAME>(bytes, version).ok()?;
    Some(Packet::Relay {
        from: Box::new(from),
        to,
        troubled,
        heard,
        packet: Box::new(flat.into_packet()?),
    })
}
