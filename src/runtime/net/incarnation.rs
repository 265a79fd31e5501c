//! `Incarnation`: one identity of this process on the network.

use super::death_watch::DeathWatch;
use super::security::{Relays, StaticKey};
use crate::protocol::MemberInfo;
use crate::runtime::inbox::Inbox;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// One incarnation: it ends as a whole.
pub(super) struct Incarnation {
    pub(super) me: MemberInfo,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) token: CancellationToken,
    pub(super) watch: DeathWatch,
    /// Proves its process id, if the cluster has a key.
    #[cfg_attr(not(feature = "secure"), allow(dead_code))]
    pub(super) identity: Option<Arc<StaticKey>>,
    /// Seals the packets that others relay for it, if the cluster has a key.
    pub(super) relays: Option<Relays>,
}
