//! Handshakes, records, sealed gossip and sealed relays on a network that belongs to an attacker.
//!
//! The attacker keeps every packet. It delivers each to any process, as often as it likes, whole,
//! cut, changed, or joined from two. Some processes lie too. An insider has the cluster key and
//! claims the id of a member. An operator has an operator's key and wants to be a member. A third
//! process is of another cluster under the same key, and a fourth has a key of its own. The values
//! of `elderlock::wire::secure` do all the rest, as they do in a member, and a seed decides the
//! run.
//!
//! | invariant | demand |
//! |---|---|
//! | `agreement` | a handshake ends well only with the very packets that its other side made for it, and each of these packets counts once |
//! | `identity` | the process at the other end has the static key of the id that it claims |
//! | `role` | the key of a dialler allows the purpose that its session has |
//! | `version` | both sides speak the highest version that both offer |
//! | `records` | each side opens what the other has sealed: all of it, once, in order, and nothing else |
//! | `datagrams` | a datagram is opened by the process that it is for, once, and as its sender sealed it |
//! | `relays` | A relayed packet is opened by the process that it is for, once, and as its origin sealed it. An origin has the static key of its id |
//! | `honest_is_heard` | a packet that is whole, and comes where and when it should, is accepted |

use crate::chance::{Rng, mix};
use elderlock::Role;
use elderlock::protocol::{MemberInfo, Packet, ProcessId, Versions, ViewNumber};
use elderlock::wire::PROTOCOL_VERSION;
use elderlock::wire::secure::{
    ClusterKey, HandshakeSetup, Initiator, Keyring, OpenedDatagram, Opener, Purpose, Responder,
    SealedGossip, SealedRelays, SecureError, Session, StaticKey, WINDOW,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Steps of a run.
const STEPS: u64 = 300;
/// The number of packets in a million that are delivered as they are, and where they belong.
const HONEST_PPM: u32 = 550_000;
/// The bytes in which a datagram has its number.
const NUMBER: std::ops::Range<usize> = 39..47;

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeViolation {
    /// Its name, from the table of the module.
    pub invariant: &'static str,
    /// The observation that breaks it.
    pub what: String,
}

/// The acts of a run, each with its number.
pub type HandshakeCounts = BTreeMap<&'static str, u64>;

/// The acts that a batch of runs has to show, so that its silence says something.
pub const ACTS: [&str; 11] = [
    "datagrams opened",
    "datagrams refused",
    "impostors refused",
    "orders",
    "records opened",
    "records refused",
    "relays opened",
    "relays refused",
    "responds refused",
    "roles refused",
    "sessions",
];

type AttackVerdict = Result<(), HandshakeViolation>;

fn ensure(holds: bool, invariant: &'static str, what: impl FnOnce() -> String) -> AttackVerdict {
    if holds { Ok(()) } else { Err(HandshakeViolation { invariant, what: what() }) }
}

/// The index of the accepted packet among the packets that processes made. `None` breaks the
/// invariant: no process made the packet.
fn expect(
    made: Option<usize>,
    invariant: &'static str,
    what: &str,
) -> Result<usize, HandshakeViolation> {
    made.ok_or_else(|| HandshakeViolation { invariant, what: what.to_owned() })
}

/// Both sides speak the highest version that both offer.
fn check_version(session: &Session, dialler: &Endpoint, listener: &Endpoint) -> AttackVerdict {
    let version = dialler.versions.common(listener.versions);
    ensure(version == Some(session.version), "version", || {
        format!("{} is spoken, and {version:?} is the best", session.version)
    })
}

/// One process, honest or not.
struct Endpoint {
    cluster: &'static str,
    identity: StaticKey,
    /// The id that the process claims.
    claims: ProcessId,
    versions: Versions,
    /// The keys with which the process opens packets.
    ring: Keyring,
    /// The key with which the process dials.
    key: ClusterKey,
    purpose: Purpose,
    gossip: SealedGossip,
    relays: SealedRelays,
}

impl Endpoint {
    fn setup(&self, entropy: [u8; 32]) -> HandshakeSetup<'_> {
        let Endpoint { cluster, identity, versions, .. } = self;
        HandshakeSetup { cluster, versions: *versions, identity, entropy }
    }

    /// Returns whether a handshake that `dialler` begins here comes to an end.
    fn fits(&self, dialler: &Endpoint) -> bool {
        self.cluster == dialler.cluster
            && self.has(&dialler.key)
            && self.versions.common(dialler.versions).is_some()
            && self.is_truthful()
            && dialler.is_truthful()
            && dialler.key.role() >= dialler.purpose.role()
    }

    fn has(&self, key: &ClusterKey) -> bool {
        let derived = |own: &ClusterKey| own.derive(key.role()).is_ok_and(|own| own == *key);
        self.ring.keys().iter().any(derived)
    }

    fn is_truthful(&self) -> bool {
        self.claims == self.identity.process()
    }
}

/// One end of a session.
struct SessionEnd {
    /// The index of the other end: of the answer if this is a dial's end, and of the dial
    /// otherwise.
    peer: usize,
    session: Session,
    sent: Vec<Vec<u8>>,
    records: Vec<Vec<u8>>,
    /// The number of the other end's frames that were opened.
    opened: usize,
    /// This end has refused a record, so its connection is closed.
    is_over: bool,
}

impl SessionEnd {
    fn new(peer: usize, session: Session) -> SessionEnd {
        let (sent, records) = (Vec::new(), Vec::new());
        SessionEnd { peer, session, sent, records, opened: 0, is_over: false }
    }
}

struct Dial {
    by: usize,
    waiting: Option<Initiator>,
    initiate: Vec<u8>,
    confirm: Vec<u8>,
    end: Option<SessionEnd>,
}

struct Answer {
    by: usize,
    waiting: Option<Responder>,
    /// The dial that is answered.
    dial: usize,
    respond: Vec<u8>,
    end: Option<SessionEnd>,
}

struct Datagram {
    from: usize,
    to: usize,
    payload: Vec<u8>,
    bytes: Vec<u8>,
    /// The key of the seal: the first key of the sender's keyring.
    key: ClusterKey,
}

struct RelayedPacket {
    from: usize,
    to: usize,
    /// The relay before it was sealed.
    plain: Packet,
    sealed: Packet,
}

/// The processes and their packets, and the attacker's notes of them.
struct AttackedNetwork {
    rng: Rng,
    endpoints: Vec<Endpoint>,
    dials: Vec<Dial>,
    answers: Vec<Answer>,
    datagrams: Vec<Datagram>,
    /// The datagrams that each process has opened.
    heard: BTreeSet<(usize, usize)>,
    /// The highest number that each process has opened of another.
    highest: BTreeMap<(usize, usize), u64>,
    relayed: Vec<RelayedPacket>,
    /// The relayed packets that were opened.
    opened: BTreeSet<usize>,
    counts: HandshakeCounts,
}

/// Runs a seed.
///
/// # Errors
/// The first broken invariant.
pub fn run(seed: u64) -> Result<HandshakeCounts, HandshakeViolation> {
    let mut network = AttackedNetwork::new(seed);
    for _ in 0..STEPS {
        match network.rng.below(19) {
            0 | 1 => network.dial(),
            2 | 3 => network.answer()?,
            4 | 5 => network.finish_dial()?,
            6 | 7 => network.finish_answer()?,
            8 | 9 => network.seal_record(),
            10..=12 => network.open_record()?,
            13 => network.send_datagram(),
            14 => network.open_datagram()?,
            15 | 16 => network.send_relay(),
            _ => network.open_relay()?,
        }
    }
    Ok(network.counts)
}

fn key(number: u8) -> ClusterKey {
    let mut bytes = [number; 32];
    bytes[0] = !number;
    ClusterKey::from_bytes(&bytes).expect("its bytes differ")
}

/// A process with this key, which claims this id.
fn info(identity: &StaticKey, process: ProcessId) -> MemberInfo {
    let info = MemberInfo::new(process, ([127, 0, 0, 1], 7400).into());
    MemberInfo { static_key: Some(identity.public()), ..info }
}

impl AttackedNetwork {
    fn new(seed: u64) -> AttackedNetwork {
        let mut rng = Rng::new(seed, 0x5ea1);
        let two = || Keyring::new(key(1)).with(key(2)).expect("two keys");
        let other_way = || Keyring::new(key(2)).with(key(1)).expect("two keys");
        let rings = [Keyring::new(key(1)), two(), other_way()];
        let ranges = [(3, 9), (5, 7), (5, 9)].map(|(lowest, highest)| Versions { lowest, highest });
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for number in 0..7_u64 {
            let mut bytes = [0; 32];
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = mix(&[seed, number, at as u64]) as u8;
            }
            let identity = StaticKey::new(bytes);
            let mut claims = identity.process();
            let mut ring = rng.pick(&rings).clone();
            let mut cluster = "shop";
            match number {
                3 => claims = endpoints[0].claims,
                5 => cluster = "shed",
                6 => ring = Keyring::new(key(9)),
                _ => {}
            }
            let mut key = ring.first().clone();
            let mut purpose = Purpose::Member(info(&identity, claims));
            if number == 4 {
                let role = *rng.pick(&[Role::Observer, Role::Operator]);
                key = key.derive(role).expect("a cluster key derives all");
                let purposes = [Purpose::Status(None), Purpose::Order, purpose];
                purpose = rng.pick(&purposes).clone();
            }
            let gossip = SealedGossip::new(cluster, claims, ring.clone());
            let versions = *rng.pick(&ranges);
            let relays = match number {
                3 => StaticKey::of_impostor(bytes, claims),
                _ => StaticKey::new(bytes),
            };
            let relays = SealedRelays::new(Arc::new(relays));
            let endpoint = Endpoint {
                cluster,
                identity,
                claims,
                versions,
                ring,
                key,
                purpose,
                gossip,
                relays,
            };
            endpoints.push(endpoint);
        }
        let truthful = endpoints.iter().filter(|endpoint| endpoint.is_truthful());
        let members: Vec<MemberInfo> =
            truthful.map(|endpoint| info(&endpoint.identity, endpoint.claims)).collect();
        endpoints.iter_mut().for_each(|endpoint| endpoint.relays.set_members(members.iter()));
        AttackedNetwork {
            rng,
            endpoints,
            dials: Vec::new(),
            answers: Vec::new(),
            datagrams: Vec::new(),
            heard: BTreeSet::new(),
            highest: BTreeMap::new(),
            relayed: Vec::new(),
            opened: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, act: &'static str) {
        *self.counts.entry(act).or_default() += 1;
    }

    fn entropy(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.fill_with(|| self.rng.roll() as u8);
        bytes
    }

    /// The packet as the attacker delivers it: mostly changed, and sometimes joined with another of
    /// its kind.
    fn forge(&mut self, packet: &[u8], other: &[u8]) -> Vec<u8> {
        let mut forged = packet.to_vec();
        let at = self.rng.below(packet.len().max(1) as u64) as usize;
        match self.rng.below(6) {
            0 => forged.truncate(at),
            1 | 2 if !forged.is_empty() => forged[at] ^= 1 << self.rng.below(8),
            3 => forged.splice(at.., other.iter().skip(at).copied()).for_each(drop),
            // The versions of a handshake stand in front.
            4 if forged.len() > 1 => forged[1] = self.rng.between(1, 9) as u8,
            _ => {}
        }
        forged
    }

    fn is_honest(&mut self) -> bool {
        self.rng.chance(HONEST_PPM)
    }

    fn index(&mut self, length: usize) -> usize {
        self.rng.below(length as u64) as usize
    }

    fn dial(&mut self) {
        let by = self.index(self.endpoints.len());
        let entropy = self.entropy();
        let endpoint = &self.endpoints[by];
        let started = Initiator::start(&endpoint.key, &endpoint.setup(entropy));
        let (initiator, initiate) = started.expect("a short name");
        let dial = Dial { by, waiting: Some(initiator), initiate, confirm: Vec::new(), end: None };
        self.dials.push(dial);
    }

    fn answer(&mut self) -> AttackVerdict {
        if self.dials.is_empty() {
            return Ok(());
        }
        let [dial, other] = [(); 2].map(|()| self.index(self.dials.len()));
        let mut packet = self.dials[dial].initiate.clone();
        if !self.is_honest() {
            let other = self.dials[other].initiate.clone();
            packet = self.forge(&packet, &other);
        }
        let by = self.index(self.endpoints.len());
        let entropy = self.entropy();
        let endpoint = &self.endpoints[by];
        let me = info(&endpoint.identity, endpoint.claims);
        let answered = Responder::answer(&endpoint.ring, &endpoint.setup(entropy), &me, &packet);
        let made = self.dials.iter().position(|dial| dial.initiate == packet);
        let fits = made.is_some_and(|made| endpoint.fits(&self.endpoints[self.dials[made].by]));
        match answered {
            Ok((responder, respond)) => {
                let dial =
                    expect(made, "agreement", "a first packet that no process made is answered")?;
                let dialler = &self.endpoints[self.dials[dial].by];
                ensure(endpoint.cluster == dialler.cluster, "agreement", || {
                    "a process of another cluster is answered".to_owned()
                })?;
                ensure(endpoint.has(&dialler.key), "agreement", || {
                    "a process with an unknown key is answered".to_owned()
                })?;
                let waiting = Some(responder);
                self.answers.push(Answer { by, waiting, dial, respond, end: None });
                Ok(())
            }
            Err(error) => ensure(!fits, "honest_is_heard", || format!("first packet: {error}")),
        }
    }

    fn finish_dial(&mut self) -> AttackVerdict {
        let waiting: Vec<usize> = (0..self.answers.len())
            .map(|answer| self.answers[answer].dial)
            .filter(|dial| self.dials[*dial].waiting.is_some())
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let dial = *self.rng.pick(&waiting);
        let own: Vec<usize> =
            (0..self.answers.len()).filter(|answer| self.answers[*answer].dial == dial).collect();
        let other = self.index(self.answers.len());
        let mut packet = self.answers[*self.rng.pick(&own)].respond.clone();
        if !self.is_honest() {
            let other = self.answers[other].respond.clone();
            packet = if self.rng.below(2) == 0 { other } else { self.forge(&packet, &other) };
        }
        let Dial { by, waiting, .. } = &mut self.dials[dial];
        let by = *by;
        let Some(initiator) = waiting.take() else { return Ok(()) };
        let made = own.into_iter().find(|answer| self.answers[*answer].respond == packet);
        let dialler = &self.endpoints[by];
        match initiator.finish(&packet, &dialler.purpose) {
            Ok((session, confirm)) => {
                let answer = expect(
                    made,
                    "agreement",
                    "an answer that was not made for the dial is believed",
                )?;
                let listener = &self.endpoints[self.answers[answer].by];
                let identity = &listener.identity;
                let info = Purpose::Member(info(identity, identity.process()));
                ensure(session.purpose == info, "identity", || {
                    format!("{:?} is not {info:?}", session.purpose)
                })?;
                check_version(&session, dialler, listener)?;
                self.dials[dial].confirm = confirm;
                self.dials[dial].end = Some(SessionEnd::new(answer, session));
                Ok(())
            }
            Err(error) => {
                self.count("responds refused");
                if let SecureError::Impostor { .. } = error {
                    self.count("impostors refused");
                }
                let fits = made.is_some_and(|answer| {
                    self.endpoints[self.answers[answer].by].fits(&self.endpoints[by])
                });
                ensure(!fits, "honest_is_heard", || format!("second packet: {error}"))
            }
        }
    }

    fn finish_answer(&mut self) -> AttackVerdict {
        // Dials with an answer that still waits.
        let ready: Vec<usize> = (0..self.dials.len())
            .filter(|dial| {
                let end = self.dials[*dial].end.as_ref();
                end.is_some_and(|end| self.answers[end.peer].waiting.is_some())
            })
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        let dial = *self.rng.pick(&ready);
        let Some(end) = &self.dials[dial].end else { return Ok(()) };
        let mut answer = end.peer;
        let mut packet = self.dials[dial].confirm.clone();
        if !self.is_honest() {
            let other = self.dials[*self.rng.pick(&ready)].confirm.clone();
            if self.rng.below(2) == 0 {
                packet = self.forge(&packet, &other);
            } else {
                answer = self.index(self.answers.len());
            }
        }
        let Answer { by, waiting, .. } = &mut self.answers[answer];
        let by = *by;
        let Some(responder) = waiting.take() else { return Ok(()) };
        let is_made = |dial: &Dial| {
            dial.confirm == packet && dial.end.as_ref().is_some_and(|end| end.peer == answer)
        };
        let made = self.dials.iter().position(is_made);
        match responder.finish(&packet) {
            Ok(session) => {
                let dial = expect(
                    made,
                    "agreement",
                    "a last packet that was not made for the answer is believed",
                )?;
                let dialler = &self.endpoints[self.dials[dial].by];
                ensure(session.purpose == dialler.purpose, "agreement", || {
                    format!("{:?} became {:?}", dialler.purpose, session.purpose)
                })?;
                ensure(dialler.key.role() >= session.purpose.role(), "role", || {
                    format!("{:?} with the key of an {}", session.purpose, dialler.key.role())
                })?;
                let is_proven = match &session.purpose {
                    Purpose::Member(info) => info.process == dialler.identity.process(),
                    Purpose::Status(_) | Purpose::Order => true,
                };
                ensure(is_proven, "identity", || format!("{:?} is believed", session.purpose))?;
                check_version(&session, dialler, &self.endpoints[by])?;
                let act = if session.purpose == Purpose::Order { "orders" } else { "sessions" };
                self.answers[answer].end = Some(SessionEnd::new(dial, session));
                self.count(act);
                Ok(())
            }
            Err(error) => {
                match error {
                    SecureError::Role(_) => self.count("roles refused"),
                    SecureError::Impostor { .. } => self.count("impostors refused"),
                    _ => {}
                }
                let fits = made.is_some_and(|dial| {
                    self.endpoints[by].fits(&self.endpoints[self.dials[dial].by])
                });
                ensure(!fits, "honest_is_heard", || format!("last packet: {error}"))
            }
        }
    }

    /// The ends of whole sessions: whether each is a dial's, and its index.
    fn ends(&self) -> Vec<(bool, usize)> {
        let whole = |(index, answer): (usize, &Answer)| Some((index, answer.end.as_ref()?.peer));
        let answers = self.answers.iter().enumerate().filter_map(whole);
        answers.flat_map(|(answer, dial)| [(false, answer), (true, dial)]).collect()
    }

    fn end(&mut self, (is_dial, index): (bool, usize)) -> &mut SessionEnd {
        let end =
            if is_dial { self.dials[index].end.as_mut() } else { self.answers[index].end.as_mut() };
        end.expect("it is an end of a whole session")
    }

    fn seal_record(&mut self) {
        let ends = self.ends();
        if ends.is_empty() {
            return;
        }
        let which = *self.rng.pick(&ends);
        let frames = vec![self.rng.roll() as u8; self.rng.between(1, 300) as usize];
        let end = self.end(which);
        let mut record = Vec::new();
        end.session.sealer.seal(&frames, &mut record).expect("numbers are left");
        end.sent.push(frames);
        end.records.push(record);
    }

    fn open_record(&mut self) -> AttackVerdict {
        let ends = self.ends();
        if ends.is_empty() {
            return Ok(());
        }
        let which = *self.rng.pick(&ends);
        let SessionEnd { peer, opened, is_over, .. } = *self.end(which);
        if is_over {
            return Ok(());
        }
        let sender = (!which.0, peer);
        let other = *self.rng.pick(&ends);
        let other = self.end(other).records.last().cloned().unwrap_or_default();
        let due = self.end(sender).records.get(opened).cloned();
        let mut record = due.clone().unwrap_or_else(|| other.clone());
        if !self.is_honest() {
            record = if self.rng.below(3) == 0 { other } else { self.forge(&record, &other) };
        }
        let is_due = due.as_ref() == Some(&record);
        let frames = self.end(sender).sent.get(opened).cloned();
        // The decoder asks for the length first.
        let is_whole = Opener::length(&record) == Ok(Some(record.len()));
        let end = self.end(which);
        match end.session.opener.open(&mut record) {
            Ok(bytes) => {
                ensure(frames.as_deref() == Some(bytes), "records", || {
                    "frames that were not due are opened".to_owned()
                })?;
                end.opened += 1;
                self.count("records opened");
                ensure(is_due || !is_whole, "records", || "a changed record is opened".to_owned())
            }
            Err(error) => {
                end.is_over = true;
                self.count("records refused");
                ensure(!is_due, "honest_is_heard", || format!("the record that was due: {error}"))
            }
        }
    }

    fn send_datagram(&mut self) {
        let [from, to] = [(); 2].map(|()| self.index(self.endpoints.len()));
        let payload = self.entropy().to_vec();
        let process = self.endpoints[to].claims;
        let mut bytes = Vec::new();
        let endpoint = &mut self.endpoints[from];
        assert!(endpoint.gossip.seal(process, &payload, &mut bytes), "it is short");
        let key = endpoint.ring.first().clone();
        self.datagrams.push(Datagram { from, to, payload, bytes, key });
    }

    fn open_datagram(&mut self) -> AttackVerdict {
        if self.datagrams.is_empty() {
            return Ok(());
        }
        let [index, other] = [(); 2].map(|()| self.index(self.datagrams.len()));
        let Datagram { from, to, ref bytes, ref key, .. } = self.datagrams[index];
        let (mut bytes, key) = (bytes.clone(), key.clone());
        let mut by = to;
        if !self.is_honest() {
            match self.rng.below(3) {
                0 => by = self.index(self.endpoints.len()),
                1 => bytes[NUMBER].copy_from_slice(&(1_u64 << 40).to_be_bytes()),
                _ => {
                    let other = self.datagrams[other].bytes.clone();
                    bytes = self.forge(&bytes, &other);
                }
            }
        }
        let made = self.datagrams.iter().position(|datagram| datagram.bytes == bytes);
        let number =
            |bytes: &[u8]| bytes.get(NUMBER).and_then(|bytes| bytes.first_chunk().copied());
        let number = number(&bytes).map(u64::from_be_bytes);
        // The insider's own gossip has the id that it claims, and so the numbers of two processes.
        let is_twofold = [from, by].iter().any(|at| !self.endpoints[*at].is_truthful())
            || self.endpoints[from].claims == self.endpoints[3].claims;
        let receiver = &mut self.endpoints[by];
        let is_known = receiver.cluster == "shop" && receiver.ring.has(key.name());
        let claims = receiver.claims;
        let opened = match receiver.gossip.open(&mut bytes) {
            Ok(OpenedDatagram::Payload(payload)) => Ok(payload.to_vec()),
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let highest = self.highest.get(&(by, from)).copied();
        match opened {
            Ok(payload) => {
                let index =
                    expect(made, "datagrams", "a datagram that no process sealed is opened")?;
                let datagram = &self.datagrams[index];
                ensure(datagram.payload == payload, "datagrams", || "it changed".to_owned())?;
                ensure(self.endpoints[datagram.to].claims == claims, "datagrams", || {
                    "a datagram for another process is opened".to_owned()
                })?;
                ensure(self.heard.insert((by, index)), "datagrams", || {
                    "a datagram is opened twice".to_owned()
                })?;
                let number = number.unwrap_or_default();
                self.highest.insert((by, from), highest.map_or(number, |high| high.max(number)));
                self.count("datagrams opened");
                Ok(())
            }
            Err(error) => {
                self.count("datagrams refused");
                let is_fresh = highest.is_none_or(|high| number.unwrap_or(0) + WINDOW > high);
                let is_due = made.is_some_and(|made| {
                    let datagram = &self.datagrams[made];
                    datagram.from == from
                        && self.endpoints[datagram.to].claims == claims
                        && self.endpoints[from].cluster == "shop"
                        && !self.heard.contains(&(by, made))
                });
                ensure(!(is_due && is_known && is_fresh) || is_twofold, "honest_is_heard", || {
                    format!("a datagram that is due: {error}")
                })
            }
        }
    }

    fn send_relay(&mut self) {
        let [from, to] = [(); 2].map(|()| self.index(self.endpoints.len()));
        let ack = self.rng.roll();
        let packet = Box::new(Packet::Ack { view: ViewNumber(ack), ack, again: false });
        let (troubled, to_id) = (self.rng.below(2) == 0, self.endpoints[to].claims);
        let Endpoint { identity, claims, relays, .. } = &mut self.endpoints[from];
        let from_info = Box::new(info(identity, *claims));
        let plain =
            Packet::Relay { from: from_info, to: to_id, troubled, heard: Some(to_id), packet };
        let sealed = relays
            .seal(plain.clone(), PROTOCOL_VERSION)
            .expect("all truthful processes are members");
        self.relayed.push(RelayedPacket { from, to, plain, sealed });
    }

    /// A relayed packet as a lying relay delivers it, and the process that gets it.
    fn pass_on(&mut self, index: usize) -> (usize, Packet) {
        let RelayedPacket { to, ref plain, ref sealed, .. } = self.relayed[index];
        let (plain, mut relay) = (plain.clone(), sealed.clone());
        if self.is_honest() {
            return (to, relay);
        }
        let by = self.index(self.endpoints.len());
        let other = self.index(self.relayed.len());
        let other = self.relayed[other].sealed.clone();
        let what = self.rng.below(6);
        let Packet::Relay { from, to: to_id, troubled, packet, .. } = &mut relay else {
            return (by, relay);
        };
        match (what, other) {
            (0, _) => return (by, relay),
            (1, _) => return (to, plain),
            (2, _) => *troubled = !*troubled,
            (3, Packet::Relay { from: other, .. }) => *from = other,
            (4, _) => {
                *to_id = self.endpoints[by].claims;
                return (by, relay);
            }
            (_, Packet::Relay { packet: other, .. }) => {
                if let (Packet::Sealed { bytes, .. }, Packet::Sealed { bytes: other, .. }) =
                    (&mut **packet, *other)
                {
                    *bytes = self.forge(&bytes.clone(), &other);
                }
            }
            _ => {}
        }
        (to, relay)
    }

    fn open_relay(&mut self) -> AttackVerdict {
        if self.relayed.is_empty() {
            return Ok(());
        }
        let index = self.index(self.relayed.len());
        let (by, relay) = self.pass_on(index);
        let made = self.relayed.iter().position(|made| made.sealed == relay);
        let receiver = &mut self.endpoints[by];
        let is_due_here = receiver.is_truthful();
        let is_for_receiver = matches!(&relay, Packet::Relay { to, .. } if *to == receiver.claims);
        match receiver.relays.open(relay.clone(), false) {
            Ok(opened) if !is_for_receiver => ensure(opened == relay, "relays", || {
                "a packet for another process does not stay as it is".to_owned()
            }),
            Ok(opened) => {
                let index =
                    expect(made, "relays", "a relayed packet that no process sealed is opened")?;
                let made = &self.relayed[index];
                ensure(made.plain == opened, "relays", || "it changed".to_owned())?;
                ensure(self.endpoints[made.from].is_truthful(), "relays", || {
                    "a process seals in the name of another".to_owned()
                })?;
                ensure(self.opened.insert(index), "relays", || {
                    "a relayed packet is opened twice".to_owned()
                })?;
                self.count("relays opened");
                Ok(())
            }
            Err(error) => {
                self.count("relays refused");
                let is_due = made.is_some_and(|made| {
                    self.endpoints[self.relayed[made].from].is_truthful()
                        && !self.opened.contains(&made)
                });
                ensure(!(is_due && is_due_here), "honest_is_heard", || {
                    format!("a relayed packet that is due: {error}")
                })
            }
        }
    }
}
