//! Members of a simulation: the service, the engine and the core that ship, on one thread. The
//! simulation provides the network, the time and the chance. For `elderlock-testing`; outside of
//! semver.

use super::guard::Guard;
use super::member::Member;
use super::member_builder::{MemberBuilder, until_ready};
use crate::protocol::{Config, Input, Limits, LostReason, MemberInfo, Packet, ProcessId};
use crate::runtime::engine::{Engine, EngineClosed, EngineOptions};
use crate::runtime::inbox::Inbox;
use crate::runtime::member_clock::MemberClock;
use crate::runtime::network::{Network, Outbox};
use crate::runtime::observed_hold;
use crate::runtime::process_id::draw_process;
use crate::runtime::{clock, simulated};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

pub use crate::runtime::mutant::{RuntimeMutant, plant};
pub use crate::runtime::observed_hold::{BegunHold, HoldChange, HoldObserver, LeaseEnd};

/// Runs `act` by a clock that is this many millionths too fast: that of the called member.
pub fn by_clock<T>(ppm: i32, act: impl FnOnce() -> T) -> T {
    simulated::by_clock(ppm, act)
}

/// Polls a future, each time by a clock that is this many millionths too fast.
pub async fn paced<F: Future>(ppm: i32, future: F) -> F::Output {
    simulated::paced(ppm, future).await
}

/// Ends the hold of a guard for this reason, as if its member had learned of the end. The grantor
/// gets the release.
pub fn lose(guard: &Guard, reason: LostReason) {
    let hold = guard.hold();
    let (engine, request) = (&hold.service.engine, hold.request());
    hold.cell.mark_lost(reason);
    engine.release_request(request, engine.now());
    hold.cell.tell();
}

/// Gives this thread simulated time and simulated chance while the value lives. Make it in a tokio
/// runtime of this thread whose clock is paused.
#[derive(Debug)]
pub struct Simulation(());

impl Simulation {
    /// Begins a simulation that draws all chance from `seed`.
    pub fn new(seed: u64) -> Simulation {
        simulated::begin(seed);
        Simulation(())
    }

    /// Reports holds that begin from now on to `observer`.
    pub fn observe_holds(&self, observer: HoldObserver) {
        observed_hold::observe_holds(Some(observer));
    }

    /// Nanoseconds by a clock that is neither fast nor slow.
    pub fn now(&self) -> u64 {
        simulated::by_clock(0, clock::now).as_nanos()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        observed_hold::observe_holds(None);
        simulated::end();
    }
}

/// A packet that a member sends.
#[derive(Debug)]
pub struct SimulatedPacket {
    /// The sender, in its present incarnation.
    pub from: MemberInfo,
    /// The address of the receiver.
    pub to: SocketAddr,
    /// The only process that the packet is for, if there is one.
    pub process: Option<ProcessId>,
    /// The packet itself.
    pub packet: Packet,
}

/// Takes the packets that a member sends. Called under the engine's lock: it stores the packet and
/// calls no member.
pub type PacketSender = Arc<dyn Fn(SimulatedPacket) + Send + Sync>;

/// A member of a simulation. It makes progress only when it is polled.
pub struct Simulated {
    /// The member, as every program has it. It has not joined yet.
    pub member: Member,
    /// The timer task of the member: poll it, and drop it when the process ends.
    pub timer: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The inbox for arriving packets.
    pub inbox: SimulatedInbox,
}

/// Receives packets for a member. Does not keep the member alive.
#[derive(Clone)]
pub struct SimulatedInbox {
    /// How many millionths too fast the member's clock is.
    ppm: i32,
    engine: Weak<Engine>,
}

impl SimulatedInbox {
    /// The present process of the member; `None`: it has ended.
    pub fn process(&self) -> Option<ProcessId> {
        let engine = self.engine.upgrade()?;
        engine.phase().borrow().closed.is_none().then(|| engine.process())
    }

    /// Gives the member an input.
    pub fn input(&self, input: Input) {
        if let Some(engine) = self.engine.upgrade() {
            simulated::by_clock(self.ppm, || Inbox::input(&*engine, input));
        }
    }

    /// Waits until the member has joined. `false`: it has not joined within `limit`, or has left.
    pub async fn joined(&self, limit: Duration) -> bool {
        match self.engine.upgrade() {
            Some(engine) => until_ready(&engine, limit).await,
            None => false,
        }
    }

    /// Ends the process, without a message to any other.
    pub fn kill(&self) {
        if let Some(engine) = self.engine.upgrade() {
            simulated::by_clock(self.ppm, || engine.close(EngineClosed::Broken));
        }
    }
}

impl MemberBuilder {
    /// Sets the member up at `addr`, in a [`Simulation`], with a clock that is too fast by `ppm`
    /// millionths. Calls to the member and polls of its timer must run [by that clock](by_clock).
    /// Its seeds are addresses.
    pub fn simulate(
        &self,
        addr: SocketAddr,
        ppm: i32,
        limits: Limits,
        send_packet: PacketSender,
    ) -> Simulated {
        // On a thread without a simulation the system draws the id, which has never failed so far.
        let process = draw_process().unwrap_or(ProcessId(u128::from(addr.port())));
        let me = MemberInfo::new(process, addr);
        let seeds: BTreeSet<SocketAddr> =
            self.seeds_given().iter().filter_map(|seed| seed.parse().ok()).collect();
        let config = Config { limits, ..self.config(me.clone(), seeds) };
        let network = Arc::new(Wire { me: Mutex::new(me), send_packet });
        let clock = MemberClock::machine();
        let options = EngineOptions { config, network, disk: None, clock };
        let engine = simulated::by_clock(ppm, || Engine::new(options));
        let timer = Box::pin(engine.run(async {}));
        let inbox = SimulatedInbox { ppm, engine: Arc::downgrade(&engine) };
        Simulated { member: Member::new(self.cluster().to_owned(), engine, None), timer, inbox }
    }
}

struct Wire {
    me: Mutex<MemberInfo>,
    send_packet: PacketSender,
}

impl Outbox for Wire {
    fn send(&self, to: SocketAddr, process: Option<ProcessId>, packet: Packet) {
        let from = self.me.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.send_packet)(SimulatedPacket { from, to, process, packet });
    }
}

impl Network for Wire {
    fn reborn(&self, me: MemberInfo) {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = me;
    }
}
