//! The protocol as a pure state machine. DESIGN.md tells it; this room does it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

/// Whether a deliberate break is planted. In a build for use it never is, and the code is as if this were not there.
macro_rules! planted {
    ($mutant:expr, $name:ident) => {{
        #[cfg(elderlock_mutants)]
        let planted = $crate::protocol::mutant::Mutant::$name.is_planted($mutant);
        #[cfg(not(elderlock_mutants))]
        let planted = false;
        planted
    }};
}

#[cfg(test)]
mod chance;
mod decision;
pub mod edit;
mod elder;
pub mod event;
mod founding;
mod grantor;
mod heir;
mod holder;
pub mod id;
mod lease;
pub(crate) mod ledger;
mod limits;
mod link;
pub mod message;
#[cfg(elderlock_mutants)]
pub mod mutant;
pub mod node;
mod registry;
mod table;
pub mod time;
pub mod timing;
mod touch;
mod turn;
pub mod view;

pub use edit::{Edit, Step};
pub use event::{
    Command, Config, Event, GrantorState, Hint, Input, Load, LockStatus, LostReason, Outcome, Output,
    RevocationRequest, Revoke, ServiceStatus, Sizes, Status, Wait,
};
pub use heir::StoredVote;
pub use id::{
    Batch, Epoch, Host, InvalidBatch, InvalidName, InvalidPermits, InvalidValue, Lineage, LockName, MemberInfo,
    Metadata, Mode, Opening, Owner, Permits, ProcessId, RequestId, ServiceName, Ticket, Token, Value, ViewNumber, Want,
};
pub use limits::Limits;
pub use message::{
    Belonging, Content, Heard, HoldReport, HolderInfo, LastWrite, Look, Message, Notice, Packet, Refusal, Seen,
    WaitReport, WaiterInfo,
};
#[cfg(feature = "tokio")]
pub(crate) use node::AtOnce;
pub use node::{Node, Taken};
pub use table::Contents;
pub use time::Time;
pub use timing::{InvalidTiming, Timing};
pub use view::{Change, Member, View};
