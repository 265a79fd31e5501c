//! The gossip of one member.

use super::effects::Effects;
use super::identity::SwimId;
use super::timers::Timers;
use crate::protocol::{Hint, MemberInfo, ProcessId, Time};
use foca::{Codec, Config, Error, Foca, Member, Message, NoCustomBroadcast, State};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU32, NonZeroUsize};
use std::time::Duration;

/// The longest packet, in bytes, before the runtime frames it. A datagram of 1400 bytes passes
/// every usual network unfragmented; the frame may take 64 of them and the cluster's name up to 64
/// more.
pub const MAX_PACKET: usize = 1400 - 64 - 64;

/// The most addresses remembered, and the most entries in a full state. Far above the number that
/// gossip by single packets serves well, and a few megabytes.
pub const MAX_MEMBERS: usize = 10_000;

/// The gossip of one member, as a pure state machine. [`step`](Swim::step) takes each input with
/// its time, and returns packets and hints. [`deadline`](Swim::deadline) is the time of the next
/// step.
///
/// The outputs depend on the seed and on the steps alone.
pub struct Swim<C> {
    foca: Foca<SwimId, C, StdRng, NoCustomBroadcast>,
    /// A second codec, since foca does not lend its own.
    codec: C,
    effects: Effects,
    timers: Timers,
    seeds: BTreeSet<SocketAddr>,
    /// The sum of the hints so far: for each known address, its process and whether it is up.
    told: BTreeMap<SocketAddr, ReportedState>,
    announcing: Announcing,
    renewing: Renewing,
    /// Whether foca takes part in gossip. If not, it waits for a packet from a peer.
    connected: bool,
    left: bool,
    refused: u64,
    /// Sends every TurnUndead packet, including those that foca sends by mistake.
    #[cfg(test)]
    pub(super) unfiltered: bool,
}

/// An input of a [`Swim`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwimInput<'a> {
    /// A packet of a peer arrived, without its frame.
    Datagram(&'a [u8]),
    /// A peer's [`Swim::state`] arrived.
    State(&'a [u8]),
    /// The present addresses of all seeds. They replace the former ones.
    Seeds(BTreeSet<SocketAddr>),
    /// The deadline was reached, or may have been.
    Timer,
    /// This member leaves for good: it tells a few peers, and has no output after that.
    Leave,
}

/// An output of a [`Swim`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwimOutput {
    /// Send this packet, framed, by UDP. It may get lost.
    Send {
        /// The address of the receiver.
        to: SocketAddr,
        /// The receiving process. `None`: any process at the address.
        process: Option<ProcessId>,
        /// At most [`MAX_PACKET`] bytes.
        data: Vec<u8>,
    },
    /// [`Hint::Contact`] when a process is newly up, [`Hint::Unreachable`] when a process is newly
    /// down or replaced at its address. Once per change.
    Hint(Hint),
}

/// The process at an address, and whether it is up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReportedState {
    process: ProcessId,
    is_up: bool,
}

/// Rounds of announcing. Without them, members that have lost each other would stay apart.
#[derive(Default)]
struct Announcing {
    last: Option<Time>,
    next: Option<Time>,
    /// The positions at which the next round continues, if there are more seeds or others than one
    /// round takes.
    seed: usize,
    other: usize,
}

/// The recent changes of identity.
#[derive(Default)]
struct Renewing {
    last: Option<Time>,
    /// The number of changes in quick succession.
    streak: u32,
}

impl Renewing {
    fn is_within(&self, now: Time, span: Duration) -> bool {
        self.last.is_some_and(|last| now.since(last) < span)
    }

    /// Returns whether another change would come too soon after several others.
    fn is_hasty(&self, now: Time) -> bool {
        self.streak >= 2 && self.is_within(now, RENEWAL_GAP)
    }
}

/// The interval of announcements to seeds, which never end. By measurement the members then merge
/// about two seconds after a cut is healed. Foca's own means take minutes, and never merge a
/// cluster of two.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
/// The interval while no member is known to be up: there is no other to disturb.
const ANNOUNCE_EVERY_ALONE: Duration = Duration::from_secs(1);
/// The shortest distance of two rounds, even of rounds "at once": two members that keep calling
/// each other down would flood otherwise.
const ANNOUNCE_GAP: Duration = Duration::from_millis(250);
/// The most announcements of a round to seeds. Each is answered by a full packet.
const ANNOUNCE_WIDTH: usize = 8;
/// The most new seeds that are announced to at once.
const NEW_SEEDS: usize = 64;
/// Renewals that are further apart than this are independent.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);
/// The distance that renewals keep after the second in a row. Two processes that claim one address
/// call each other down for as long as both live, as fast as packets travel.
const RENEWAL_GAP: Duration = Duration::from_millis(100);
/// No renewal skips more generations than 2 to the power of this: 50 days of milliseconds.
const RENEWAL_DOUBLINGS: u32 = 32;

impl<C> Swim<C>
where
    C: Codec<SwimId> + Clone,
    C::Error: StdError + Send,
{
    /// The gossip of the process `me`, which knows no other process yet.
    ///
    /// `generation` is higher than that of any former process at this address: Unix milliseconds,
    /// or more if more was seen. A generation that is too low is corrected within seconds. `seed`
    /// determines all random choices of the machine. `cluster_size_hint` is the expected number of
    /// members: in large clusters suspicions last longer.
    pub fn new(
        me: &MemberInfo,
        generation: u64,
        seed: u64,
        codec: C,
        cluster_size_hint: u32,
    ) -> Self {
        Self::with_config(me, generation, seed, codec, config(cluster_size_hint))
    }

    pub(super) fn with_config(
        me: &MemberInfo,
        generation: u64,
        seed: u64,
        codec: C,
        config: Config,
    ) -> Self {
        // Generation 0 is that of the placeholder.
        let id = SwimId { generation: generation.max(1), process: me.process.0, addr: me.addr };
        Swim {
            foca: Foca::new(id, config, StdRng::seed_from_u64(seed), codec.clone()),
            codec,
            effects: Effects::default(),
            timers: Timers::default(),
            seeds: BTreeSet::new(),
            told: BTreeMap::new(),
            announcing: Announcing::default(),
            renewing: Renewing::default(),
            connected: false,
            left: false,
            refused: 0,
            #[cfg(test)]
            unfiltered: false,
        }
    }

    /// Takes an input at `now` and adds the resulting outputs to `out`.
    pub fn step(&mut self, now: Time, input: SwimInput<'_>, out: &mut Vec<SwimOutput>) {
        if self.left {
            return;
        }
        match input {
            SwimInput::Datagram(data) => self.on_datagram(now, data),
            SwimInput::State(data) => self.on_state(data),
            SwimInput::Seeds(seeds) => self.on_seeds(seeds),
            SwimInput::Timer => self.on_timer(now, out),
            SwimInput::Leave => self.on_leave(),
        }
        self.settle(now, out);
        if !self.left && self.announcing.next.is_none_or(|next| now >= next) {
            self.announce(now);
            self.settle(now, out);
        }
        if std::mem::take(&mut self.effects.changed) {
            self.tell(out);
        }
    }

    /// Returns the latest time for a [`step`](Swim::step) with [`SwimInput::Timer`]. `None` before
    /// the first step and after leaving.
    pub fn deadline(&self) -> Option<Time> {
        if self.left {
            return None;
        }
        self.timers.next().into_iter().chain(self.announcing.next).min()
    }

    /// The whole known state, at most [`MAX_MEMBERS`] entries, as a peer takes it by
    /// [`SwimInput::State`]. Its length has no bound, so it is sent on a stream.
    pub fn state(&self) -> Vec<u8> {
        // Members that are up come first, since entries of members that are down can be left out.
        let is_down = |member: &&Member<SwimId>| member.state() == State::Down;
        let me = Member::alive(*self.foca.identity());
        let members = std::iter::once(&me)
            .chain(self.foca.iter_members())
            .chain(self.foca.iter_membership_state().filter(is_down))
            .take(MAX_MEMBERS);
        let mut codec = self.codec.clone();
        let (mut body, mut count) = (Vec::new(), 0_u32);
        for member in members {
            let end = body.len();
            match codec.encode_member(member, &mut body) {
                Ok(()) => count += 1,
                Err(_) => body.truncate(end),
            }
        }
        let mut state = count.to_be_bytes().to_vec();
        state.append(&mut body);
        state
    }

    /// The addresses of all other members that are believed up.
    pub fn contacts(&self) -> Vec<SocketAddr> {
        self.told.iter().filter(|(_, told)| told.is_up).map(|(&addr, _)| addr).collect()
    }

    /// The present identity of this member for its peers. Its generation rises each time that a
    /// peer calls it down.
    pub fn identity(&self) -> SwimId {
        *self.foca.identity()
    }

    /// The number of packets and states that were refused: as garbage, as too long, or for more
    /// entries than can be remembered.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn on_datagram(&mut self, now: Time, data: &[u8]) {
        let mut rest = data;
        let Ok(mut header) = self.codec.decode_header(&mut rest) else {
            self.refused += 1;
            return;
        };
        if header.message == Message::TurnUndead && self.renewing.is_hasty(now) {
            return; // Dropped as if lost: the sender repeats it at the next announcement.
        }
        if self.told.len() >= MAX_MEMBERS && !self.knows_all(&header.src, rest) {
            self.refused += 1;
            return;
        }
        let me = *self.foca.identity();
        let mut readdressed = Vec::new();
        let data = if header.message == Message::Announce
            && header.dst.is_placeholder()
            && header.dst.addr != me.addr
        {
            // A seed is often known by another address than the one that it advertises, such as the
            // second one of a name. foca would ignore the packet, though it is meant for this
            // member.
            header.dst = me;
            if self.codec.encode_header(&header, &mut readdressed).is_err() {
                self.refused += 1;
                return;
            }
            readdressed.extend_from_slice(rest);
            &readdressed
        } else {
            data
        };
        match self.foca.handle_data(data, &mut self.effects) {
            // A seed list may name this member by an address that the member does not know to be
            // its own.
            Ok(()) | Err(Error::DataFromOurselves) => {}
            Err(_) => self.refused += 1,
        }
    }

    /// Returns whether a packet tells of no new member. Called only when no more can be remembered.
    fn knows_all(&mut self, src: &SwimId, mut updates: &[u8]) -> bool {
        let me = self.foca.identity().addr;
        let knows = |addr: &SocketAddr| *addr == me || self.told.contains_key(addr);
        if !knows(&src.addr) {
            return false;
        }
        let Some((count, members)) = updates.split_first_chunk::<2>() else {
            return true;
        };
        updates = members;
        (0..u16::from_be_bytes(*count)).all(|_| {
            self.codec.decode_member(&mut updates).is_ok_and(|member| knows(&member.id().addr))
        })
    }

    fn on_state(&mut self, data: &[u8]) {
        let Some(members) = self.decode_state(data) else {
            self.refused += 1;
            return;
        };
        let mut room = MAX_MEMBERS.saturating_sub(self.told.len());
        let (me, told) = (self.foca.identity().addr, &self.told);
        let fitting = members.into_iter().filter(|member| {
            if member.id().addr == me || told.contains_key(&member.id().addr) {
                return true;
            }
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        });
        // The state is not spread further: the peer and the members that it knows have it already.
        // A joiner that repeated the whole cluster to the whole cluster would be busy for minutes.
        // The only possible error is that of encoding, for spreading.
        let _ = self.foca.apply_many(fitting, false, &mut self.effects);
    }

    fn decode_state(&mut self, data: &[u8]) -> Option<Vec<Member<SwimId>>> {
        let (count, mut rest) = data.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_be_bytes(*count))
            .ok()
            .filter(|&count| count <= MAX_MEMBERS)?;
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(self.codec.decode_member(&mut rest).ok()?);
        }
        rest.is_empty().then_some(members)
    }

    fn on_seeds(&mut self, mut seeds: BTreeSet<SocketAddr>) {
        seeds.remove(&self.foca.identity().addr);
        let former = std::mem::replace(&mut self.seeds, seeds);
        let new: Vec<_> = self.seeds.difference(&former).take(NEW_SEEDS).copied().collect();
        self.announce_to(new);
    }

    fn on_timer(&mut self, now: Time, out: &mut Vec<SwimOutput>) {
        for timer in self.timers.take_due(now) {
            // An error reports a timer at an unexpected moment, which foca has already handled.
            let _ = self.foca.handle_timer(timer, &mut self.effects);
            self.settle(now, out);
        }
    }

    fn on_leave(&mut self) {
        self.left = true;
        // This fails only if a member cannot be encoded; then no peer is told, as with a lost
        // packet.
        let _ = self.foca.leave_cluster(&mut self.effects);
    }

    /// Carries out foca's requests, until there are no more.
    fn settle(&mut self, now: Time, out: &mut Vec<SwimOutput>) {
        loop {
            for (timer, after) in std::mem::take(&mut self.effects.timers) {
                self.timers.start(now + after, timer);
            }
            for (to, data) in std::mem::take(&mut self.effects.sends) {
                if self.is_meant(&to, &data) {
                    let process = (!to.is_placeholder()).then_some(ProcessId(to.process));
                    out.push(SwimOutput::Send { to: to.addr, process, data });
                }
            }
            let rejoined = std::mem::take(&mut self.effects.rejoined);
            let defunct = std::mem::take(&mut self.effects.defunct);
            let connected = self.effects.connected.take();
            self.connected = connected.unwrap_or(self.connected);
            if rejoined || defunct || connected == Some(false) {
                self.announce_at_once(now);
            }
            if self.left || !(rejoined || defunct) {
                return;
            }
            if rejoined {
                self.on_rejoined(now);
            } else {
                // There is no higher generation. The member can only continue as before until the
                // others have forgotten it.
                let _ = self.foca.reuse_down_identity();
            }
            // A new identity starts idle, even if other members are known to be up: an empty update
            // activates it.
            let _ = self.foca.apply_many(std::iter::empty(), false, &mut self.effects);
        }
    }

    /// Returns whether foca means to send this packet.
    ///
    /// When a suspicion ends, foca 2.0.0 (and every release before) tells the suspect that it is
    /// down, without checking whether it is. A suspect that has refuted the suspicion meanwhile is
    /// told too, and changes its identity for nothing.
    fn is_meant(&mut self, to: &SwimId, mut data: &[u8]) -> bool {
        #[cfg(test)]
        if self.unfiltered {
            return true;
        }
        let is_turn_undead = self
            .codec
            .decode_header(&mut data)
            .is_ok_and(|header| header.message == Message::TurnUndead);
        !(is_turn_undead && self.foca.iter_members().any(|member| member.id() == to))
    }

    /// Handles foca's change to the next generation. If such changes repeat, a peer remembers a
    /// much higher generation: the clock was set back between two runs. Single steps would take as
    /// many round trips as the clock was set back milliseconds: so the steps double.
    fn on_rejoined(&mut self, now: Time) {
        let is_again = self.renewing.last.is_some_and(|last| now.since(last) < RENEWAL_PAUSE);
        self.renewing.last = Some(now);
        self.renewing.streak =
            if is_again { (self.renewing.streak + 1).min(RENEWAL_DOUBLINGS) } else { 0 };
        // A healed cut costs one renewal, and sometimes two.
        if self.renewing.streak >= 2 {
            let me = *self.foca.identity();
            let generation = me.generation.saturating_add(1 << self.renewing.streak);
            // This fails if there is no higher generation: then the present generation stays.
            let _ = self.foca.change_identity(SwimId { generation, ..me }, &mut self.effects);
        }
    }

    /// Brings the next round forward: once per loss of contact, not once per step while the loss
    /// lasts.
    fn announce_at_once(&mut self, now: Time) {
        let at = self.announcing.last.map_or(now, |last| last + ANNOUNCE_GAP);
        self.announcing.next = self.announcing.next.map(|next| next.min(at));
    }

    /// Sends one round of announcements. It goes to the seeds, and to one member that is down: a
    /// cut may have healed where there is no seed. If no member is up, the round goes to all
    /// members that were ever known.
    fn announce(&mut self, now: Time) {
        let is_alone = !self.connected || self.foca.num_members() == 0;
        let seeds: Vec<_> = self.seeds.iter().copied().collect();
        let others = self.told.iter().filter(|(_, told)| is_alone || !told.is_up);
        let others: Vec<_> = others.map(|(&addr, _)| addr).collect();
        let mut targets = take_turns(&seeds, &mut self.announcing.seed, ANNOUNCE_WIDTH);
        targets.extend(take_turns(
            &others,
            &mut self.announcing.other,
            if is_alone { ANNOUNCE_WIDTH } else { 1 },
        ));
        self.announce_to(targets);
        self.announcing.last = Some(now);
        self.announcing.next =
            Some(now + if is_alone { ANNOUNCE_EVERY_ALONE } else { ANNOUNCE_EVERY });
    }

    fn announce_to(&mut self, targets: impl IntoIterator<Item = SocketAddr>) {
        for addr in targets {
            // This fails only if a header cannot be encoded; the next round tries again.
            let _ = self.foca.announce(SwimId::placeholder(addr), &mut self.effects);
        }
    }

    /// Compares foca's table with the reported states, and reports the differences.
    fn tell(&mut self, out: &mut Vec<SwimOutput>) {
        let me = *self.foca.identity();
        let mut hint = |hint| out.push(SwimOutput::Hint(hint));
        let mut former = std::mem::take(&mut self.told);
        for member in self.foca.iter_membership_state() {
            let id = member.id();
            // Former identities of this member are in the table too.
            if id.addr != me.addr && id.process != me.process {
                let told = ReportedState {
                    process: ProcessId(id.process),
                    is_up: member.state() != State::Down,
                };
                self.told.insert(id.addr, told);
            }
        }
        for (&addr, told) in &self.told {
            let before = former.remove(&addr);
            if before == Some(*told) {
                continue;
            }
            if let Some(before) = before
                && before.is_up
                && before.process != told.process
            {
                hint(Hint::Unreachable(before.process));
            }
            hint(if told.is_up { Hint::Contact(addr) } else { Hint::Unreachable(told.process) });
        }
        for gone in former.into_values().filter(|gone| gone.is_up) {
            hint(Hint::Unreachable(gone.process));
        }
    }

    /// The number of waiting timers.
    #[cfg(test)]
    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }
}

/// foca's settings for a local network, except those that have proved wrong.
pub(super) fn config(cluster_size_hint: u32) -> Config {
    let mut config = Config::new_lan(NonZeroU32::new(cluster_size_hint).unwrap_or(NonZeroU32::MIN));
    // How often a member repeats a piece of news. foca computes 3 for five members, which are spent
    // within a second. A suspect that is cut off for longer would never hear of the suspicion, and
    // could not refute it. It would be declared down long after it has come back. News of a
    // suspicion must last as long as the suspicion. Gossip goes to 3 members 5 times a second, and
    // suspicions last 4 s or more. The price is about 40 bytes more in packets that are sent
    // anyway.
    let spread = config.suspect_to_down_after.as_millis() * 15 / 1_000;
    config.max_transmissions =
        u8::try_from(spread).ok().and_then(NonZeroU8::new).unwrap_or(NonZeroU8::MAX);
    config.max_packet_size = const { NonZeroUsize::new(MAX_PACKET).unwrap() };
    // How long dead members are remembered. This is longer than any outdated report that they live,
    // and long enough for announcements to where a cut may heal. foca's day would fill the table
    // where addresses change with each start.
    config.remove_down_after = Some(Duration::from_secs(60 * 60));
    config
}

/// The next `width` addresses, round robin.
fn take_turns(addrs: &[SocketAddr], turn: &mut usize, width: usize) -> BTreeSet<SocketAddr> {
    let start = *turn;
    *turn = turn.wrapping_add(width);
    addrs
        .iter()
        .cycle()
        .skip(start % addrs.len().max(1))
        .take(width.min(addrs.len()))
        .copied()
        .collect()
}
