//! `Incarnation`: one identity of this process on the network.

use super::death_watch::DeathWatch;
use super::security::{Relays, StaticKey};
use crate::protocol::MemberInfo;
use crate::runtime::inbox::Inbox;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// One identity of this process, with its tasks. They end together.
pub(super) struct Incarnation {
    pub(super) me: MemberInfo,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) token: CancellationToken,
    pub(super) watch: DeathWatch,
    /// The key that proves the process id, if the cluster has a key.
    #[cfg_attr(not(feature = "secure"), allow(dead_code))]
    pub(super) identity: Option<Arc<StaticKey>>,
    /// Seals the packets that other members relay, if the cluster has a key.
    pub(super) relays: Option<Relays>,
}
