//! Real gossip: each site runs the [`Swim`] that ships beside its node, over the simulated
//! network.
//!
//! The gossip is wired as `src/runtime/net/udp.rs` wires it. Each life has a new machine, whose
//! generation is the wall clock, or more than that of the same process's last life. Datagrams have
//! the frame of `wire`. A seed is asked once for its whole state. Hints go straight into the core.
//! A leaving process announces its end. A World without real gossip invents the hints itself.

use crate::chance::mix;
use crate::network::Delivery;
use crate::site::ProcessState;
use crate::stream::damage;
use crate::world::{ScheduledEvent, World};
use elderlock::gossip::{Swim, SwimInput, SwimOutput};
use elderlock::protocol::{Input, MemberInfo, ProcessId, Time};
use elderlock::wire::{self, GossipCodec};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::hash::Hash as _;
use std::net::SocketAddr;

/// The cluster's name in datagrams.
const CLUSTER: &str = "sim";
/// The size hint of the runtime.
const SIZE_HINT: u32 = 10;
/// Datagrams that the system keeps for a stopped process.
const MAX_WAITING: usize = 128;

/// A message between gossip machines.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum GossipMessage {
    /// A datagram, by UDP.
    Datagram(Vec<u8>),
    /// A request for the whole state by TCP, from this process at that site.
    Wanted { at: usize, process: ProcessId },
    /// The sender's whole state by TCP, for this process.
    State { to: ProcessId, state: Vec<u8> },
}

/// The gossip of one site.
#[derive(Default)]
pub(crate) struct Gossip {
    swim: Option<Swim<GossipCodec>>,
    /// The process that it belongs to.
    process: Option<ProcessId>,
    /// The last generation that a machine of this operating system process got.
    generation: u64,
    /// The messages that came while the process was stopped.
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
    /// Each site runs the real gossip machine, and the World invents no gossip.
    pub fn with_gossip(mut self) -> World {
        self.gossip = Some(Vec::new());
        self
    }

    /// The sites of the members that the gossip at `site` believes to be up; empty without
    /// gossip.
    pub fn contacts(&self, site: usize) -> Vec<usize> {
        let swim = self.gossip.as_ref().and_then(|gossip| gossip.get(site)?.swim.as_ref());
        let contacts = swim.map(Swim::contacts).unwrap_or_default();
        self.sites().filter(|site| contacts.contains(&self.sites[*site].addr)).collect()
    }

    fn gossip_at(&mut self, site: usize) -> Option<&mut Gossip> {
        let gossip = self.gossip.as_mut()?;
        if gossip.len() <= site {
            gossip.resize_with(site + 1, Gossip::default);
        }
        gossip.get_mut(site)
    }

    /// A process starts at `site`: a machine of its own begins with it.
    pub(crate) fn gossip_begins(&mut self, site: usize) {
        if self.gossip.is_none() || self.sites[site].run != ProcessState::Up {
            return;
        }
        let peer = &self.sites[site];
        let Some(process) = peer.process() else { return };
        let (wall, seeds, addr) = (peer.wall_millis(self.now), peer.seeds.clone(), peer.addr);
        let me = MemberInfo::new(process, addr);
        let seed = mix(&[self.common.seed, 0x905512, site as u64, peer.incarnation]);
        let Some(gossip) = self.gossip_at(site) else { return };
        gossip.generation = wall.max(gossip.generation.saturating_add(1));
        gossip.swim = Some(Swim::new(&me, gossip.generation, seed, GossipCodec, SIZE_HINT));
        gossip.process = Some(process);
        gossip.waiting.clear();
        // A seed may know more: it is asked once, on the first connection with it.
        for to in self
            .sites()
            .filter(|to| *to != site && seeds.contains(&self.sites[*to].addr))
            .collect::<Vec<_>>()
        {
            let way = self.network.route(self.now, site, to);
            self.send_word(site, to, way, GossipMessage::Wanted { at: site, process });
        }
        self.gossip_steps(site, SwimInput::Seeds(seeds));
    }

    /// The names of the seeds at `site` resolve to these addresses from now on. A stopped process
    /// learns of them when it starts anew.
    pub(crate) fn gossip_resolves(&mut self, site: usize, seeds: BTreeSet<SocketAddr>) {
        if self.sites[site].run == ProcessState::Up {
            self.gossip_steps(site, SwimInput::Seeds(seeds));
        }
    }

    /// The process at `site` is about to end.
    pub(crate) fn gossip_ends(&mut self, site: usize, how: &str) {
        if how == "left" {
            // A member that said goodbye need not be found dead.
            self.gossip_steps(site, SwimInput::Leave);
        }
        let Some(gossip) = self.gossip_at(site) else { return };
        gossip.swim = None;
        gossip.waiting.clear();
        if how != "reborn" {
            gossip.generation = 0;
        }
        self.sites[site].gossip_due = None;
    }

    /// The timer of the gossip at `site` is due.
    pub(crate) fn gossip_timer(&mut self, site: usize) {
        self.gossip_steps(site, SwimInput::Timer);
    }

    /// A message arrives for the gossip at `site`.
    pub(crate) fn gossip_hears(&mut self, site: usize, word: GossipMessage) {
        let run = self.sites[site].run;
        let Some(gossip) = self.gossip_at(site) else { return };
        match run {
            ProcessState::Down => {}
            ProcessState::Paused if gossip.waiting.len() < MAX_WAITING => {
                gossip.waiting.push_back(word)
            }
            ProcessState::Paused => {}
            ProcessState::Up => self.gossip_reads(site, word),
        }
    }

    fn gossip_reads(&mut self, site: usize, word: GossipMessage) {
        (self.now, site, &word).hash(&mut self.digest);
        match word {
            GossipMessage::Datagram(bytes) => {
                if let Ok(payload) = wire::open(CLUSTER, &bytes) {
                    self.gossip_steps(site, SwimInput::Datagram(payload));
                }
            }
            GossipMessage::Wanted { at, process } => {
                let state =
                    self.gossip_at(site).and_then(|gossip| Some(gossip.swim.as_ref()?.state()));
                if let Some(state) = state {
                    let way = self.network.route(self.now, site, at);
                    self.send_word(site, at, way, GossipMessage::State { to: process, state });
                }
            }
            GossipMessage::State { to, state } => {
                if self.sites[site].is(to) {
                    self.gossip_steps(site, SwimInput::State(&state));
                }
            }
        }
    }

    /// A stopped process wakes: its gossip reads the datagrams that the system kept.
    pub(crate) fn gossip_wakes(&mut self, site: usize) {
        let waiting = self
            .gossip_at(site)
            .map(|gossip| std::mem::take(&mut gossip.waiting))
            .unwrap_or_default();
        for word in waiting {
            if self.sites[site].run == ProcessState::Up {
                self.gossip_reads(site, word);
            }
        }
    }

    fn gossip_steps(&mut self, site: usize, input: SwimInput<'_>) {
        let now = self.sites[site].clock.local(self.now);
        let Some(gossip) = self.gossip_at(site) else { return };
        let Some(swim) = &mut gossip.swim else { return };
        let mut out = std::mem::take(&mut gossip.out);
        let process = gossip.process;
        swim.step(now, input, &mut out);
        self.gossip_reschedules(site);
        for output in out.drain(..) {
            match output {
                SwimOutput::Send { to, data, .. } => {
                    let mut datagram = Vec::new();
                    if let Some(to) = self.site_at(to)
                        && wire::seal(CLUSTER, &data, &mut datagram)
                    {
                        self.meter_datagram(site, datagram.len());
                        let way = self.network.route_datagram(self.now, site, to);
                        if let Some(luck) = way.damage {
                            damage(&mut datagram, luck);
                        }
                        self.send_word(site, to, way, GossipMessage::Datagram(datagram));
                    }
                }
                // The core may have ended while these outputs were carried out.
                SwimOutput::Hint(hint)
                    if process.is_some_and(|process| self.sites[site].is(process)) =>
                {
                    self.feed(site, Input::Hint(hint));
                }
                SwimOutput::Hint(_) => {}
            }
        }
        if let Some(gossip) = self.gossip_at(site) {
            gossip.out = out;
        }
    }

    /// Looks up when the timer of the gossip at `site` is due.
    pub(crate) fn gossip_reschedules(&mut self, site: usize) {
        let deadline: Option<Time> =
            self.gossip_at(site).and_then(|gossip| gossip.swim.as_ref()?.deadline());
        let peer = &mut self.sites[site];
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
