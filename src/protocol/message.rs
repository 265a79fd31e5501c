//! The messages of the protocol: everything that members send to each other.
//!
//! There are two kinds. A [`Notice`] is about membership. A notice may be lost, duplicated or late,
//! and its sender repeats it by a timer of its own. A [`Message`] is about locks. It travels on a
//! link (`link.rs`), which delivers it exactly once and in order while both processes live.
//!
//! Messages are grouped by the role that handles them. The messages to the elder are in
//! `registry.rs`, and those from the elder to a member in `member.rs`. The messages to a grantor
//! are in `grantor.rs`, and those to a lock client in `client.rs`.

mod blockers;
mod client;
mod grantor;
mod lock_request;
mod member;
mod notice;
mod query;
mod registry;
mod revocation;
mod table_seal;
mod token_range;

pub(crate) use blockers::PROBE_BUDGET;
pub use blockers::{ChainLink, HoldState, MAX_CHAIN, OwnerWait, Probe};
pub use client::{ClientMessage, ObjectReply, Refusal};
pub use grantor::GrantorMessage;
pub(crate) use lock_request::kept_weight;
pub use lock_request::{HoldReport, LockRequest, WaitReport};
pub use member::{MemberMessage, Origin};
pub use notice::{Affiliation, Ballot, Notice};
pub use query::{Blocked, BlockingHold, HolderInfo, Query, QueryReply, QueuePosition, WaiterInfo};
pub use registry::RegistryMessage;
pub use revocation::{ForceOrder, RevocationAnswer, RevocationDemand};
pub use table_seal::TableSeal;
pub use token_range::TokenRange;

use super::content::{Content, Edit};
use super::id::{Lineage, LockName, MemberInfo, ProcessId, ViewNumber};
use super::vote_claim::VoteClaim;
use serde::{Deserialize, Serialize};

/// The content of one frame on a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Packet {
    /// A notice, which may be lost, duplicated or late.
    Notice(Box<Notice>),
    /// The `seq`-th message from the sender to the receiver.
    Linked {
        /// The sender's view. If it is newer than the receiver's own, the receiver first fetches
        /// it.
        view: ViewNumber,
        /// The number of the message, from 1 for each pair of processes.
        seq: u64,
        /// The number of the last message of the other direction up to which all have arrived.
        ack: u64,
        /// The message.
        message: Message,
    },
    /// A separate acknowledgement.
    Ack {
        /// The sender's view.
        view: ViewNumber,
        /// The number of the last message up to which all have arrived.
        ack: u64,
        /// Whether a message is missing: the receiver then sends the unacknowledged ones again at
        /// once.
        again: bool,
    },
    /// A packet that the receiver passes on from `from` to `to`, for pairs that cannot reach each
    /// other.
    Relay {
        /// The sender of the inner packet.
        from: Box<MemberInfo>,
        /// The destination of the inner packet.
        to: ProcessId,
        /// Whether the sender itself has trouble with the direct path, and asks for answers by a
        /// detour too. Those answers do not ask for it: otherwise two members would keep each other
        /// on detours for ever.
        troubled: bool,
        /// The member through which the sender lately heard the destination: packets through that
        /// member arrive.
        heard: Option<ProcessId>,
        /// The inner packet, which is never itself a relay.
        packet: Box<Packet>,
    },
    /// The inner packet of a relay in a cluster with a key, while it passes the relay. Drivers seal
    /// and open it; the core passes it on.
    Sealed {
        /// Whether the sealed packet is a notice.
        is_notice: bool,
        /// The sealed bytes of the packet.
        bytes: Vec<u8>,
    },
    /// A notice of a vote successor that asks for votes, or gives the vote that it has taken over.
    VoteSuccessor {
        /// The claim to that vote.
        claim: Box<VoteClaim>,
        /// The vote successor.
        me: Box<MemberInfo>,
        /// The lineage of the latest view that the vote successor knows.
        lineage: Lineage,
        /// The notice itself.
        notice: Box<Notice>,
    },
}

/// A statement about locks. It is delivered exactly once and in order while both processes live.
/// Messages are grouped by the role that handles them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A message to the elder, which maps each service to its grantor.
    Registry(RegistryMessage),
    /// A message from the elder to a member.
    Member(MemberMessage),
    /// A message to the grantor of a service, or to a member that the sender takes for the grantor.
    Grantor(GrantorMessage),
    /// A message to the lock client of a member.
    Client(ClientMessage),
}

impl From<RegistryMessage> for Message {
    fn from(message: RegistryMessage) -> Message {
        Message::Registry(message)
    }
}

impl From<MemberMessage> for Message {
    fn from(message: MemberMessage) -> Message {
        Message::Member(message)
    }
}

impl From<GrantorMessage> for Message {
    fn from(message: GrantorMessage) -> Message {
        Message::Grantor(message)
    }
}

impl From<ClientMessage> for Message {
    fn from(message: ClientMessage) -> Message {
        Message::Client(message)
    }
}

impl From<Notice> for Packet {
    fn from(notice: Notice) -> Packet {
        Packet::Notice(Box::new(notice))
    }
}

impl Packet {
    /// The variant name of the packet's notice or message. A relay has the name of its inner
    /// packet.
    pub fn kind(&self) -> &'static str {
        match self {
            Packet::VoteSuccessor { notice, .. } => notice.kind(),
            Packet::Notice(notice) => notice.kind(),
            Packet::Linked { message, .. } => message.kind(),
            Packet::Ack { .. } => "Ack",
            Packet::Relay { packet, .. } => packet.kind(),
            Packet::Sealed { .. } => "Sealed",
        }
    }
}

impl Message {
    /// Returns whether the message changes only requests and tables.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            self,
            Message::Grantor(GrantorMessage::RequestLock { .. } | GrantorMessage::Release { .. })
                | Message::Client(
                    ClientMessage::Queued { .. }
                        | ClientMessage::Grant { .. }
                        | ClientMessage::Refuse { .. }
                )
        )
    }

    /// The approximate bytes of the message. An entry without a weight of its own counts with the
    /// most.
    pub(crate) fn weight(&self) -> usize {
        const ENTRY: usize = 512;
        let of_table = |objects: &[(LockName, Content)]| {
            objects.iter().map(|(name, content)| content.weight(name)).sum::<usize>()
        };
        let entries = match self {
            Message::Registry(RegistryMessage::InventoryReply { known, .. }) => {
                known.iter().map(|(service, ..)| 64 + service.as_str().len()).sum()
            }
            Message::Grantor(GrantorMessage::TableChunk { objects, holds, waits, .. }) => {
                of_table(objects)
                    + holds.iter().map(|(_, hold)| hold.lock.entry_weight()).sum::<usize>()
                    + waits.iter().map(|(_, wait)| wait.lock.entry_weight()).sum::<usize>()
            }
            Message::Grantor(GrantorMessage::CopyPart { objects, holds, waits, over, .. }) => {
                let weight = |(name, content): &(LockName, Option<Content>)| {
                    let content = content.as_ref().map(|content| content.weight(name));
                    content.unwrap_or(name.as_bytes().len())
                };
                objects.iter().map(weight).sum::<usize>()
                    + holds.iter().map(|(_, hold)| hold.lock.entry_weight()).sum::<usize>()
                    + waits.iter().map(|(_, wait)| wait.lock.entry_weight()).sum::<usize>()
                    + 24 * over.len()
            }
            Message::Grantor(GrantorMessage::Report { objects, holds, waits, .. }) => {
                of_table(objects)
                    + holds.iter().map(|hold| hold.lock.entry_weight()).sum::<usize>()
                    + waits.iter().map(|wait| wait.lock.entry_weight()).sum::<usize>()
            }
            Message::Grantor(GrantorMessage::KeepInUse { holds, .. }) => {
                holds.iter().map(|hold| hold.lock.entry_weight()).sum::<usize>()
            }
            Message::Grantor(GrantorMessage::RequestLock { lock, .. }) => lock.weight(),
            Message::Grantor(GrantorMessage::Reduce { want, .. }) => want.weight(),
            Message::Grantor(GrantorMessage::Write { edit, .. }) => match &**edit {
                Edit::Set { value, .. } | Edit::Step { tail: value, .. } => value.as_bytes().len(),
            },
            Message::Client(ClientMessage::Value { name, content, .. }) => content.weight(name),
            Message::Client(ClientMessage::HolderReply { state, .. }) => match &**state {
                HoldState::Held { waits, .. } => ENTRY * waits.len(),
                HoldState::NotHeld => 0,
            },
            Message::Grantor(GrantorMessage::ProbeWait { probe, .. })
            | Message::Client(ClientMessage::ProbeHold { probe, .. }) => 128 * probe.path.len(),
            Message::Client(ClientMessage::QueryReply { seen, .. }) => match &**seen {
                QueryReply::Lock { holders, waiters, content, .. } => {
                    let value =
                        content.as_ref().map_or(0, |content| content.value.as_bytes().len());
                    ENTRY * (holders.len() + waiters.len()) + value
                }
                QueryReply::Held { holders, .. } => ENTRY * holders.len(),
                QueryReply::Waiting { waiters, .. } => ENTRY * waiters.len(),
                QueryReply::Blockers { holds, .. } => ENTRY * holds.len(),
                QueryReply::Position { .. }
                | QueryReply::Service(_)
                | QueryReply::Unknown
                | QueryReply::Undecided => 0,
            },
            _ => 0,
        };
        ENTRY + entries
    }

    /// The weight of a program's call on its way to a grantor. Parts of tables and reports, and
    /// messages not for a grantor, have none.
    pub(crate) fn call_weight(&self) -> usize {
        let name = match self {
            Message::Grantor(
                GrantorMessage::TableChunk { .. }
                | GrantorMessage::CopyPart { .. }
                | GrantorMessage::Report { .. },
            ) => {
                return 0;
            }
            Message::Grantor(GrantorMessage::Write { name, .. }) => name.as_bytes().len(),
            Message::Grantor(GrantorMessage::Query { at, .. }) => match &**at {
                Query::Lock(name) | Query::Held(Some(name)) | Query::Waiting(name, _) => {
                    name.as_bytes().len()
                }
                _ => 0,
            },
            Message::Grantor(_) => 0,
            _ => return 0,
        };
        self.weight() + name
    }

    /// The variant name of the message within its group.
    fn kind(&self) -> &'static str {
        match self {
            Message::Registry(message) => message.kind(),
            Message::Member(message) => message.kind(),
            Message::Grantor(message) => message.kind(),
            Message::Client(message) => message.kind(),
        }
    }
}
