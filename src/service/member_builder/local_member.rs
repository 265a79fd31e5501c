//! A member without a network.

use super::join::until_ready;
use crate::protocol::{MemberInfo, Packet, ProcessId};
use crate::runtime::engine::{Engine, EngineClosed, EngineOptions};
use crate::runtime::member_clock::MemberClock;
use crate::runtime::network::{Network, Outbox};
use crate::runtime::process_id::draw_process;
use crate::service::join_error::JoinError;
use crate::service::member::Member;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::runtime::Handle as Runtime;

impl Member {
    /// A cluster of one, within this process and without sockets: for tests and experiments. Each
    /// call makes a cluster of its own.
    ///
    /// The member's leases and waits count by the clock of this tokio runtime, also where a test
    /// pauses and advances it. That clock stands still while the machine sleeps.
    ///
    /// # Errors
    /// [`JoinError::NoRuntime`] outside a tokio runtime; [`JoinError::NoRandomness`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// assert!(member.is_elder());
    /// # Ok(()) }
    /// ```
    pub async fn local() -> Result<Member, JoinError> {
        let runtime = Runtime::try_current().map_err(|_| JoinError::NoRuntime)?;
        let process = draw_process().map_err(|_| JoinError::NoRandomness)?;
        let builder = Member::builder("local").found();
        // No process dials the member: nothing listens on port 0.
        let me = MemberInfo::new(process, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let engine = Engine::new(EngineOptions {
            config: builder.config(me, BTreeSet::new()),
            network: Arc::new(NullNetwork),
            disk: None,
            clock: MemberClock::of_runtime(&runtime),
        });
        let member = Member::new(builder.cluster.clone(), engine.clone(), None);
        engine.start(&runtime, async {});
        if until_ready(&engine, builder.join_limit).await {
            return Ok(member);
        }
        engine.close(EngineClosed::Unheard);
        Err(JoinError::NoCluster {
            cluster: builder.cluster,
            waited: builder.join_limit,
            needed: 1,
            answered: Vec::new(),
            missing: Vec::new(),
            unresolved: Vec::new(),
        })
    }
}

/// The network of a cluster of one.
struct NullNetwork;

impl Network for NullNetwork {}

impl Outbox for NullNetwork {
    fn send(&self, _to: SocketAddr, _process: Option<ProcessId>, _packet: Packet) {}
}
