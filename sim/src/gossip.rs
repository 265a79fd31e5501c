//! Real gossip: each place runs the [`Swim`] that ships beside its node, over the simulated
//! network.
//!
//! It is wired as `src/runtime/net/udp.rs` wires it: a new machine for each life, whose generation
//! is the wall clock or more than the last life's of the same process; datagrams in the frame of
//! `wire`; a seed is asked once for its whole state; hints go straight into the core; a leaving
//! process announces it. Without it the World invents the hints of gossip.

use crate::chance::mix;
use crate::network::Delivery;
use crate::site::ProcessState;
use crate::stream::damage;
use crate::world::{ScheduledEvent, World};
use elderlock::gossip::{Swim, SwimInput, SwimOutput};
use elderlock::protocol::{Input, MemberInfo, ProcessId, Time};
use elderlock::wire::{self, GossipCodec};
use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash as _;

/// The cluster's name in datagrams.
const CLUSTER: &str = "sim";
/// As in the runtime.
const SIZE_HINT: u32 = 10;
/// Datagrams that the system keeps for a stopped process.
const MAX_WAITING: usize = 128;

/// A message between gossip machines.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum GossipMessage {
    /// By UDP.
    Datagram(Vec<u8>),
    /// By TCP: a request for the whole state, from this process at that place.
    Wanted { at: usize, process: ProcessId },
    /// By TCP: the sender's whole state, for this process.
    State { to: ProcessId, state: Vec<u8> },
}

/// The gossip of one place.
#[derive(Default)]
pub(crate) struct Gossip {
    swim: Option<Swim<GossipCodec>>,
    /// The process that it belongs to.
    process: Option<ProcessId>,
    /// The last one given to a machine of the same process of the system.
    generation: u64,
    /// The messages that came while it was stopped.
    waiting: VecDeque<GossipMessage>,
    out: Vec<SwimOutput>,
}

impl Clone for Gossip {
    /// foca's machines cannot be copied; copied Worlds have no gossip.
    fn clone(&self) -> Self {
        unreachable!("a World with gossip in it is not copied")
    }
}

impl fmt::Debug for Gossip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gossip({:?})", self.swim.as_ref().map(Swim::identity))
    }
}

impl World {
    /// Each place runs the real gossip machine, and the World invents no gossip.
    pub fn with_gossip(mut self) -> World {
        self.gossip = Some(Vec::new());
        self
    }

    /// The places of the members that the gossip at `place` believes to be up; empty without
    /// gossip.
    pub fn contacts(&self, place: usize) -> Vec<usize> {
        let swim = self.gossip.as_ref().and_then(|gossip| gossip.get(place)?.swim.as_ref());
        let contacts = swim.map(Swim::contacts).unwrap_or_default();
        self.places().filter(|place| contacts.contains(&self.peers[*place].addr)).collect()
    }

    fn gossip_at(&mut self, place: usize) -> Option<&mut Gossip> {
        let gossip = self.gossip.as_mut()?;
        if gossip.len() <= place {
            gossip.resize_with(place + 1, Gossip::default);
        }
        gossip.get_mut(place)
    }

    /// A process starts at `place`: a machine of its own begins with it.
    pub(crate) fn gossip_begins(&mut self, place: usize) {
        if self.gossip.is_none() || self.peers[place].run != ProcessState::Up {
            return;
        }
        let peer = &self.peers[place];
        let Some(process) = peer.process() else { return };
        let (wall, seeds, addr) = (peer.wall_millis(self.now), peer.seeds.clone(), peer.addr);
        let me = MemberInfo { process, addr, host: None };
        let seed = mix(&[self.common.seed, 0x905512, place as u64, peer.incarnation]);
        let Some(gossip) = self.gossip_at(place) else { return };
        gossip.generation = wall.max(gossip.generation.saturating_add(1));
        gossip.swim = Some(Swim::new(&me, gossip.generation, seed, GossipCodec, SIZE_HINT));
        gossip.process = Some(process);
        gossip.waiting.clear();
        // A seed may know more: it is asked once, on the first connection with it.
        for to in self
            .places()
            .filter(|to| *to != place && seeds.contains(&self.peers[*to].addr))
            .collect::<Vec<_>>()
        {
            let way = self.network.route(self.now, place, to);
            self.send_word(place, to, way, GossipMessage::Wanted { at: place, process });
        }
        self.gossip_steps(place, SwimInput::Seeds(seeds));
    }

    /// The process at `place` is about to end.
    pub(crate) fn gossip_ends(&mut self, place: usize, how: &str) {
        if how == "left" {
            // A member that said goodbye need not be found dead.
            self.gossip_steps(place, SwimInput::Leave);
        }
        let Some(gossip) = self.gossip_at(place) else { return };
        gossip.swim = None;
        gossip.waiting.clear();
        if how != "reborn" {
            gossip.generation = 0;
        }
        self.peers[place].gossip_due = None;
    }

    /// The timer of the gossip at `place` is due.
    pub(crate) fn gossip_timer(&mut self, place: usize) {
        self.gossip_steps(place, SwimInput::Timer);
    }

    /// A message arrives for the gossip at `place`.
    pub(crate) fn gossip_hears(&mut self, place: usize, word: GossipMessage) {
        let run = self.peers[place].run;
        let Some(gossip) = self.gossip_at(place) else { return };
        match run {
            ProcessState::Down => {}
            ProcessState::Paused if gossip.waiting.len() < MAX_WAITING => {
                gossip.waiting.push_back(word)
            }
            ProcessState::Paused => {}
            ProcessState::Up => self.gossip_reads(place, word),
        }
    }

    fn gossip_reads(&mut self, place: usize, word: GossipMessage) {
        (self.now, place, &word).hash(&mut self.digest);
        match word {
            GossipMessage::Datagram(bytes) => {
                if let Ok(payload) = wire::open(CLUSTER, &bytes) {
                    self.gossip_steps(place, SwimInput::Datagram(payload));
                }
            }
            GossipMessage::Wanted { at, process } => {
                let state =
                    self.gossip_at(place).and_then(|gossip| Some(gossip.swim.as_ref()?.state()));
                if let Some(state) = state {
                    let way = self.network.route(self.now, place, at);
                    self.send_word(place, at, way, GossipMessage::State { to: process, state });
                }
            }
            GossipMessage::State { to, state } => {
                if self.peers[place].is(to) {
                    self.gossip_steps(place, SwimInput::State(&state));
                }
            }
        }
    }

    /// A stopped process wakes: its gossip reads the datagrams that the system kept.
    pub(crate) fn gossip_wakes(&mut self, place: usize) {
        let waiting = self
            .gossip_at(place)
            .map(|gossip| std::mem::take(&mut gossip.waiting))
            .unwrap_or_default();
        for word in waiting {
            if self.peers[place].run == ProcessState::Up {
                self.gossip_reads(place, word);
            }
        }
    }

    fn gossip_steps(&mut self, place: usize, input: SwimInput<'_>) {
        let now = self.peers[place].clock.local(self.now);
        let Some(gossip) = self.gossip_at(place) else { return };
        let Some(swim) = &mut gossip.swim else { return };
        let mut out = std::mem::take(&mut gossip.out);
        let process = gossip.process;
        swim.step(now, input, &mut out);
        self.gossip_reschedules(place);
        for output in out.drain(..) {
            match output {
                SwimOutput::Send { to, data, .. } => {
                    let mut datagram = Vec::new();
                    if let Some(to) = self.place_at(to)
                        && wire::seal(CLUSTER, &data, &mut datagram)
                    {
                        self.meter_datagram(place, datagram.len());
                        let way = self.network.route_datagram(self.now, place, to);
                        if let Some(luck) = way.damage {
                            damage(&mut datagram, luck);
                        }
                        self.send_word(place, to, way, GossipMessage::Datagram(datagram));
                    }
                }
                // The core may have ended in the middle of this.
                SwimOutput::Hint(hint)
                    if process.is_some_and(|process| self.peers[place].is(process)) =>
                {
                    self.feed(place, Input::Hint(hint));
                }
                SwimOutput::Hint(_) => {}
            }
        }
        if let Some(gossip) = self.gossip_at(place) {
            gossip.out = out;
        }
    }

    /// Looks up when the timer of the gossip at `place` is due.
    pub(crate) fn gossip_reschedules(&mut self, place: usize) {
        let deadline: Option<Time> =
            self.gossip_at(place).and_then(|gossip| gossip.swim.as_ref()?.deadline());
        let peer = &mut self.peers[place];
        peer.gossip_due = deadline.and_then(|local| peer.clock.when(local));
    }

    fn send_word(&mut self, from: usize, to: usize, way: Delivery, word: GossipMessage) {
        for arrival in way.arrivals.into_iter().flatten() {
            self.schedule(
                arrival - self.now,
                ScheduledEvent::Gossip { from, to, word: word.clone() },
            );
        }
    }
}
