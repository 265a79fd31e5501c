//! The gossip task: it alone owns the datagram socket and the gossip machine, and runs every timer
//! of the machine.

use super::counters::add;
use super::reception::GossipInput;
use super::security::{self, Datagrams};
use super::transport_state::TransportState;
use crate::gossip::{Swim, SwimInput, SwimOutput};
use crate::protocol::{Input, MemberInfo, ProcessId, Time};
use crate::runtime::clock;
use crate::wire::{self, Frame, GossipCodec, MAX_DATAGRAM};
use rand::TryRng as _;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};

/// The most inputs that wait for the task. Further ones are a crowd that asks for the same.
pub(super) const INPUTS: usize = 64;
/// From this many members on, the contents of a datagram spread too slowly, and whole states are
/// exchanged at random.
const CROWD: usize = 100;
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(10);
/// The longest time for which the task waits without reading the clock: tokio's clock stands still
/// while the machine sleeps, and the member's continues.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The size to assume for a cluster of unknown size.
const SIZE_HINT: u32 = 10;

/// The machine of one incarnation, and the state that outlives the incarnation.
struct Gossip {
    shared: Arc<TransportState>,
    socket: UdpSocket,
    swim: Option<Swim<GossipCodec>>,
    /// Seals the datagrams, if the cluster has a key.
    sealed: Option<Datagrams>,
    /// The generation of the latest machine.
    generation: u64,
    out: Vec<SwimOutput>,
    datagram: Vec<u8>,
    /// The answer to a datagram.
    reply: Vec<u8>,
    /// The addresses of the view, as of this number of its changes.
    members: (u64, BTreeSet<SocketAddr>),
}

/// Gossips until the end.
pub(super) async fn gossip(
    shared: Arc<TransportState>,
    socket: UdpSocket,
    mut inputs: mpsc::Receiver<GossipInput>,
) {
    let mut me = shared.me.subscribe();
    let mut seeds = shared.seeds.subscribe();
    let mut gossip = Gossip {
        shared: shared.clone(),
        socket,
        swim: None,
        sealed: None,
        generation: 0,
        out: Vec::new(),
        datagram: Vec::new(),
        reply: Vec::new(),
        members: (u64::MAX, BTreeSet::new()),
    };
    let mut rings = shared.security.as_ref().map(|security| security.subscribe());
    me.mark_changed();
    // The buffer has one byte more than the longest datagram: a longer one is cut to a length that
    // is refused.
    let mut buffer = vec![0; MAX_DATAGRAM + 1];
    let mut exchange = tokio::time::interval(EXCHANGE_INTERVAL);
    exchange.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let sleep = gossip.until_deadline();
        tokio::select! {
            () = shared.ended.cancelled() => return,
            () = shared.closing.cancelled() => {
                // A member that said goodbye need not be found dead.
                gossip.step(SwimInput::Leave).await;
                return;
            }
            changed = me.changed() => {
                if changed.is_err() {
                    return;
                }
                let info = me.borrow_and_update().clone();
                if let Some(info) = info {
                    gossip.be_born(&info);
                    let now = seeds.borrow_and_update().clone();
                    gossip.step(SwimInput::Seeds(now)).await;
                }
            }
            changed = seeds.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = seeds.borrow_and_update().clone();
                gossip.step(SwimInput::Seeds(now)).await;
            }
            () = tokio::time::sleep(sleep) => {}
            received = gossip.socket.recv_from(&mut buffer) => match received {
                Ok((length, from)) => gossip.receive(from, &mut buffer[..length]).await,
                Err(error) => {
                    // On some platforms this error is the answer of another host to an earlier
                    // datagram.
                    tracing::debug!(%error, "cannot receive a datagram");
                    tokio::task::yield_now().await;
                }
            },
            Some(input) = inputs.recv() => match input {
                GossipInput::State(state) => gossip.step(SwimInput::State(&state)).await,
                GossipInput::Wanted(addr, process) => gossip.tell(addr, process),
            },
            _ = exchange.tick() => gossip.exchange(),
            Some(ring) = next_ring(&mut rings) => {
                if let Some(sealed) = &mut gossip.sealed {
                    sealed.set_keyring(ring);
                }
            }
        }
        // The timer is checked in each round, so that arriving datagrams do not starve it.
        if gossip
            .swim
            .as_ref()
            .and_then(Swim::deadline)
            .is_some_and(|deadline| deadline <= clock::now())
        {
            gossip.step(SwimInput::Timer).await;
        }
    }
}

/// The next keyring. Never ready without a keyring.
async fn next_ring<T: Clone>(rings: &mut Option<watch::Receiver<T>>) -> Option<T> {
    match rings {
        Some(rings) => rings.changed().await.ok().map(|()| rings.borrow_and_update().clone()),
        None => std::future::pending().await,
    }
}

impl Gossip {
    fn until_deadline(&self) -> Duration {
        let deadline = self.swim.as_ref().and_then(Swim::deadline).unwrap_or(Time::MAX);
        deadline.since(clock::now()).min(LONGEST_SLEEP)
    }

    /// Begins a new identity: of two at one address, gossip believes the higher generation.
    fn be_born(&mut self, me: &MemberInfo) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        self.generation = unix.max(self.generation.saturating_add(1));
        // The fallback is random too: a system without randomness could not have drawn the process
        // id.
        let seed = rand::rngs::SysRng.try_next_u64().unwrap_or(me.process.0 as u64);
        let security = self.shared.security.as_ref();
        self.sealed =
            security.map(|security| Datagrams::new(security, &self.shared.cluster, me.process));
        self.swim = Some(Swim::new(me, self.generation, seed, GossipCodec, SIZE_HINT));
    }

    async fn receive(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let shared = self.shared.clone();
        if let Some(sealed) = &mut self.sealed {
            let may_answer = |is_question| shared.may_answer_datagram(is_question);
            let opened = sealed.open(from, datagram, may_answer, &mut self.reply);
            if !self.reply.is_empty()
                && let Err(error) = self.socket.send_to(&self.reply, from).await
            {
                tracing::debug!(to = %from, %error, "a datagram was not sent");
            }
            match opened {
                Ok(Some(payload)) => {
                    add(&shared.reception.counters.datagrams_in, 1);
                    self.step(SwimInput::Datagram(payload)).await;
                }
                Ok(None) => add(&shared.reception.counters.datagrams_in, 1),
                Err(error) => security::refuse_sealed(&shared.reception, from, &error),
            }
            return;
        }
        if shared.security.is_some() {
            return;
        }
        match wire::open(&shared.cluster, &*datagram) {
            Ok(_) if !self.is_known(from) && !shared.reception.may_take_gossip() => {
                add(&shared.reception.counters.throttled, 1);
                shared.reception.log_refused(Some(from), &"too many datagrams of strangers");
            }
            Ok(payload) => {
                add(&shared.reception.counters.datagrams_in, 1);
                self.step(SwimInput::Datagram(payload)).await;
            }
            Err(error) => {
                shared.reception.counters.refuse_datagram(&error);
                shared.reception.log_refused(Some(from), &error);
            }
        }
    }

    /// Returns whether the address is that of a member or of a seed. Another sender can forge it:
    /// without a key the limit of datagrams holds back only senders that do not.
    fn is_known(&mut self, from: SocketAddr) -> bool {
        let reception = &self.shared.reception;
        let (changed, members) = &mut self.members;
        let now = reception.members_changed();
        if std::mem::replace(changed, now) != now {
            *members = reception.member_addrs();
        }
        members.contains(&from) || self.shared.seeds.borrow().contains(&from)
    }

    async fn step(&mut self, input: SwimInput<'_>) {
        let Some(swim) = &mut self.swim else { return };
        swim.step(clock::now(), input, &mut self.out);
        for output in self.out.drain(..) {
            match output {
                SwimOutput::Send { to, process, data } => {
                    let fits = match &mut self.sealed {
                        Some(sealed) => sealed.seal(to, process, &data, &mut self.datagram),
                        None => wire::seal(&self.shared.cluster, &data, &mut self.datagram),
                    };
                    if !fits {
                        tracing::error!(length = data.len(), "gossip does not fit in a datagram");
                        continue;
                    }
                    // Datagrams may be lost, and so may this one.
                    match self.socket.send_to(&self.datagram, to).await {
                        Ok(_) => add(&self.shared.reception.counters.datagrams_out, 1),
                        Err(error) => tracing::debug!(%to, %error, "a datagram was not sent"),
                    }
                }
                SwimOutput::Hint(hint) => {
                    if let Some(incarnation) = self.shared.incarnation() {
                        incarnation.inbox.input(Input::Hint(hint));
                    }
                }
            }
        }
    }

    fn tell(&self, addr: SocketAddr, process: ProcessId) {
        if let Some(swim) = &self.swim {
            self.shared.send_frame(addr, Some(process), &Frame::Gossip(swim.state()));
        }
    }

    /// In a crowd, asks some member for its whole state.
    fn exchange(&self) {
        let Some(swim) = &self.swim else { return };
        let contacts = swim.contacts();
        if contacts.len() < CROWD {
            return;
        }
        let chance = rand::rngs::SysRng.try_next_u64().unwrap_or(0);
        let chosen = contacts[(chance % contacts.len() as u64) as usize];
        self.shared.send_frame(chosen, None, &Frame::GossipWanted);
    }
}
