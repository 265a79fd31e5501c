//! The names and numbers of the protocol: processes, services, locks, requests, views, epochs,
//! tokens.

mod lineage;
mod member_name;
mod name;
mod process;
mod request;
mod token;
mod value;
mod versions;
mod want;

pub use lineage::{InvalidLineage, Lineage, LineageId, ViewNumber};
pub use member_name::{InvalidMemberName, MAX_MEMBER_NAME, MemberName};
pub use name::{InvalidName, LockName, MAX_LOCK_NAME, MAX_SERVICE_NAME, ServiceName};
pub use process::{Host, MemberInfo, ProcessId, StaticPublicKey};
pub use request::{MAX_METADATA, Metadata, OwnerId, RequestId};
pub use token::{Epoch, InvalidToken, Slot, Ticket, Token};
pub use value::{InvalidValue, MAX_VALUE, Value};
pub use versions::Versions;
pub use want::{
    Batch, InvalidBatch, InvalidPermits, MAX_BATCH, MAX_BATCH_NAMES, MAX_PERMITS, Mode,
    OpenRequest, Permits, Want,
};
