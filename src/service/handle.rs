//! `ServiceHandle`: the state that the requests and guards of a lock service share.

use super::owners::Owners;
use crate::protocol::ServiceName;
use crate::runtime::engine::Engine;
use crate::runtime::local_grants::LocalGrants;
use crate::runtime::sync::AtomicBool;
use crate::runtime::telemetry::Meter;
use std::sync::Arc;

/// The parts that requests and guards of one handle share. The alignment keeps the counts of two
/// handles in different lines of a processor's cache: each turn writes to such a count.
#[derive(Clone)]
#[repr(align(128))]
pub(super) struct ServiceHandle {
    pub(super) engine: Arc<Engine>,
    pub(super) name: ServiceName,
    pub(super) local_grants: Arc<LocalGrants>,
    /// Only the engine changes this, in a turn.
    pub(super) destroyed: Arc<AtomicBool>,
    pub(super) meter: Meter,
    /// This member's owners of locks.
    pub(super) owners: Arc<Owners>,
}

impl ServiceHandle {
    pub(super) fn new(engine: Arc<Engine>, name: ServiceName) -> Self {
        let (meter, local_grants) = (Meter::new(&name), engine.local_grants(&name));
        ServiceHandle {
            engine,
            name,
            local_grants,
            destroyed: Arc::new(AtomicBool::new(false)),
            meter,
            owners: Arc::default(),
        }
    }
}
