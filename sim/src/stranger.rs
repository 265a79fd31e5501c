//! A lying stranger: a process outside the cluster that reaches a member. It knows all that a
//! member tells of the view, and it has ids and addresses of its own. It says anything: packets
//! that it makes, and packets of others that it replays.
//!
//! No connection of it has a member's id, though its packets may name one. Only a cluster key
//! proves ids, so without one a process whose handshake lies about its id is that member for all
//! others (docs/internals/security.md). It knows no secret of a vote. It claims votes with a secret
//! of its own, with a key in place of a proof, and with the proofs of others.

use crate::chance::mix;
use crate::site::secret_of;
use crate::world::{ScheduledEvent, World};
use elderlock::protocol::message::Ballot;
use elderlock::protocol::{
    Affiliation, Change, ClientMessage, Epoch, GrantorMessage, Input, Lineage, MemberInfo, Message,
    Node, Notice, Output, Packet, ProcessId, RequestId, ServiceName, Slot, Token, View, ViewNumber,
    VoteClaim, VoteProof,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

/// The number of kinds of lies that are drawn. Kinds beyond this number take the place of half of
/// another kind, so that recorded lies keep their kinds otherwise.
const KINDS: u64 = 25;

/// The kind of lie that claims votes.
const CLAIM: u64 = 23;

/// The kind of lie that answers any proposal of the process, as if the stranger were a voter.
const ANSWERS: u64 = 25;

/// The kind of lie that is a view of another lineage.
const OTHER_LINEAGE: u64 = 26;

/// The kinds of lies of which `OTHER_LINEAGE` and `ANSWERS` take half.
const SAME_VIEW: u64 = 0;
const PRE_VOTE: u64 = 15;

/// The kind of lie that is a bare `Leave`. In half of the cases it is the packet of another process
/// instead, copied on its way, if there is one.
const LEAVE: u64 = 10;

/// The random numbers of one lie.
struct LieRng(u64);

impl LieRng {
    fn draw(&self, question: u64, below: u64) -> u64 {
        mix(&[self.0, question]) % below.max(1)
    }

    /// The kind of the lie.
    fn kind(&self) -> u64 {
        match (self.draw(0, KINDS), self.draw(32, 2)) {
            (SAME_VIEW, 0) => OTHER_LINEAGE,
            (PRE_VOTE, 0) => ANSWERS,
            (kind, _) => kind,
        }
    }

    /// A process of the stranger, a new one with each lie: ids do not come back.
    fn info(&self) -> MemberInfo {
        let bits = |part| u128::from(mix(&[self.0, 0x11e, part]));
        let last = (self.0 % 200) as u8 + 20;
        MemberInfo::new(
            ProcessId(bits(0) << 64 | bits(1)),
            SocketAddr::from((Ipv4Addr::new(10, 66, 0, last), 7400)),
        )
    }
}

impl World {
    /// The process at `site` receives a lie. False: there is no such process, or the cluster has a
    /// key, so that strangers do not get through.
    pub(crate) fn lie(&mut self, site: usize, luck: u64) -> bool {
        if !self.has(site) || !self.is_alive(site) || !self.common.keyless {
            return false;
        }
        let rng = LieRng(luck);
        let stranger = rng.info();
        let Some(view) = self.view(site).or_else(|| self.latest_view()) else { return false };
        let packets = match rng.kind() {
            CLAIM => self.claims(site, &rng, &stranger, view),
            ANSWERS => self.answers(site, &rng, view),
            kind => {
                let replay = (kind == LEAVE && rng.draw(27, 2) == 0).then(|| self.replayed(&rng));
                vec![replay.flatten().unwrap_or_else(|| packet(&rng, &stranger, view))]
            }
        };
        let (from, addr) = (stranger.process, stranger.addr);
        for packet in packets {
            self.feed(site, Input::Received { from, addr, packet });
        }
        true
    }

    /// A copy of any packet that is under way, of a member or not. None: no packet is.
    fn replayed(&self, rng: &LieRng) -> Option<Packet> {
        let packets = || {
            self.queue.values().filter_map(|due| match due {
                ScheduledEvent::Packet(parcel) => Some(&parcel.packet),
                _ => None,
            })
        };
        let number = rng.draw(28, packets().count() as u64) as usize;
        packets().nth(number).cloned()
    }

    /// Answers of a voter to the ballots that the process at `site` may have. The promise names an
    /// accepted change, which removes a member.
    fn answers(&self, site: usize, rng: &LieRng, view: &View) -> Vec<Packet> {
        let Some(target) = self.sites[site].process() else { return Vec::new() };
        let instance = view.number.next();
        let members = view.members.len() as u64;
        let victim = view.members[rng.draw(29, members) as usize].info.process;
        let change = Change { remove: BTreeSet::from([victim]), ..Change::default() };
        let highest = Ballot { round: u32::MAX, process: target };
        let refused = Ballot { round: rng.draw(30, 4) as u32, process: rng.info().process };
        let mut answers = vec![Notice::Nack { instance, promised: refused }];
        for round in 0..6 {
            let ballot = Ballot { round, process: target };
            let accepted = Some((highest, change.clone()));
            answers.extend([
                Notice::PreVoteReply { instance, ballot, willing: true },
                Notice::Promise { instance, ballot, accepted },
                Notice::Accepted { instance, ballot },
            ]);
        }
        answers.into_iter().map(Packet::from).collect()
    }

    /// The stranger claims the vote of one member of the council, or of each, and gives it to
    /// any proposal of the process at `site`. So one vote goes to two candidates.
    fn claims(&self, site: usize, rng: &LieRng, stranger: &MemberInfo, view: &View) -> Vec<Packet> {
        let target = self.sites[site].process();
        let (form, copied) = (rng.draw(24, 4), self.true_claim(stranger));
        let secret = secret_of(stranger.process);
        let claim = |voter: &MemberInfo| {
            let own = VoteClaim::new(&secret, voter.process, view.lineage, stranger);
            match (form, voter.vote_key, &copied) {
                (1, Some(key), _) => {
                    let proof = VoteProof::new([*key.as_bytes(); 2]);
                    (VoteClaim { proof, ..own }, stranger.clone())
                }
                // The notice looks as if the vote successor spoke through the stranger.
                (2, _, Some((claim, theirs))) => (claim.clone(), theirs.clone()),
                (3, _, Some((claim, _))) => (claim.clone(), stranger.clone()),
                _ => (own, stranger.clone()),
            }
        };
        let others: Vec<&MemberInfo> =
            view.council().filter(|info| Some(info.process) != target).collect();
        let one = rng.draw(23, 2 * others.len() as u64) as usize;
        let voters = if one < others.len() { &others[one..=one] } else { &others[..] };
        let (lineage, instance) = (view.lineage, view.number.next());
        let mut packets = Vec::new();
        for voter in voters {
            let (claim, me) = claim(voter);
            let belonging =
                Affiliation::VoteSuccessor { claim: claim.clone(), lineage, view: view.number };
            let hello = Notice::Hello { me: me.clone(), asked: voter.addr, belonging, nonce: 0 };
            packets.push(Packet::from(hello));
            for (round, process) in (0..3).flat_map(|round| target.map(|target| (round, target))) {
                let ballot = Ballot { round, process };
                let votes = [
                    Notice::PreVoteReply { instance, ballot, willing: true },
                    Notice::Promise { instance, ballot, accepted: None },
                    Notice::Accepted { instance, ballot },
                ];
                packets.extend(votes.into_iter().map(|notice| Packet::VoteSuccessor {
                    claim: Box::new(claim.clone()),
                    me: Box::new(me.clone()),
                    lineage,
                    notice: Box::new(notice),
                }));
            }
        }
        packets
    }

    /// The claim of a true vote successor, as it answers the hello of any process.
    fn true_claim(&self, stranger: &MemberInfo) -> Option<(VoteClaim, MemberInfo)> {
        let found = Affiliation::Discovery { seeds: BTreeSet::new(), bound: false };
        self.sites().find_map(|site| {
            let peer = &self.sites[site];
            let mut node = Node::clone(peer.node.as_deref().filter(|_| peer.is_alive())?);
            let (me, asked, belonging) = (stranger.clone(), peer.addr, found.clone());
            let packet = Packet::from(Notice::Hello { me, asked, belonging, nonce: 0 });
            let (from, addr) = (stranger.process, stranger.addr);
            let mut out = Vec::new();
            let now = peer.clock.local(self.now);
            node.step(now, Input::Received { from, addr, packet }, &mut out);
            out.into_iter().find_map(|output| match output {
                Output::Send { packet: Packet::Notice(notice), .. } => match *notice {
                    Notice::HelloReply {
                        me,
                        belonging: Affiliation::VoteSuccessor { claim, .. },
                        ..
                    } => Some((claim, me)),
                    _ => None,
                },
                _ => None,
            })
        })
    }
}

fn packet(rng: &LieRng, stranger: &MemberInfo, view: &View) -> Packet {
    let me = stranger.clone();
    let member = &view.members[rng.draw(2, view.members.len() as u64) as usize].info;
    let dead = member.process;
    let later = ViewNumber(view.number.0 + 1 + rng.draw(3, 3) * rng.draw(4, 1 << 20));
    // The nonce is a guess, or none.
    let nonce = if rng.draw(5, 2) == 0 { 0 } else { rng.draw(6, u64::MAX) };
    let ballot = Ballot { round: rng.draw(7, 1 << 30) as u32, process: me.process };
    let instance = ViewNumber(view.number.0 + 1);
    let forged = |keep: &dyn Fn(ProcessId) -> bool| {
        let mut forged = view.clone();
        forged.number = later;
        forged.first_slot = view.end_slot();
        forged.tenure = forged.first_slot;
        forged.members.retain(|member| keep(member.info.process));
        if forged.members.iter().all(|member| member.ghost || member.learner) {
            forged.members.clone_from(&view.members);
        }
        Packet::from(Notice::FullView { view: forged, nonce })
    };
    let belonging = |lineage: Lineage, view: ViewNumber| Affiliation::Member {
        lineage,
        view,
        elder: me.clone(),
        version: 0,
        led: true,
        kept: true,
        settled: true,
    };
    let younger = Lineage { founded: Slot(view.first_slot.0 + 1), founder: me.process };
    let service = || ServiceName::new("stock").expect("a valid name");
    let linked = |message: Message| Packet::Linked {
        view: view.number,
        seq: 1 + rng.draw(8, 400),
        ack: rng.draw(9, 400),
        message,
    };
    let epoch = Epoch(Token::new(view.first_slot, rng.draw(10, 1 << 22) as u32));
    let request = RequestId(1 + rng.draw(11, 300));
    let notice = match rng.kind() {
        SAME_VIEW => return forged(&|_| true),
        1 => return forged(&|process| process == dead),
        2 => return forged(&|process| process != dead),
        3 => {
            let remove = BTreeSet::from([dead]);
            let change = Change { remove, ..Change::default() };
            Notice::Install { lineage: view.lineage, instance, change, nonce }
        }
        // The stranger asks to join as learners that never show themselves.
        4..=5 => Notice::Join { me, heard: view.number },
        6 => {
            let process = ProcessId(me.process.0 ^ rng.draw(26, 2) as u128);
            let me = MemberInfo { process, ..me };
            Notice::Join { me, heard: view.number }
        }
        7 => {
            let me = MemberInfo { addr: member.addr, ..me };
            Notice::Join { me, heard: view.number }
        }
        8 => {
            let belonging = belonging(younger, ViewNumber(younger.founded.0));
            // The stranger speaks as if it were a member, which no connection of its own shows.
            let process = if rng.draw(25, 2) == 0 { me.process } else { dead };
            let me = MemberInfo { process, ..me };
            Notice::Hello { me, asked: member.addr, belonging, nonce }
        }
        9 => {
            let belonging = belonging(view.lineage, later);
            Notice::HelloReply { me, asked: member.addr, belonging, nonce }
        }
        LEAVE => Notice::Leave,
        11 => Notice::Vouch { dead },
        12 => Notice::SuspectDead { process: dead },
        13 => {
            let grant = ClientMessage::Grant {
                service: service(),
                epoch,
                request,
                token: Token::new(view.first_slot, rng.draw(12, 1 << 22) as u32),
                kept: 0,
            };
            return linked(Message::Client(grant));
        }
        14 => {
            let release = GrantorMessage::Release { service: service(), request };
            return linked(Message::Grantor(release));
        }
        PRE_VOTE => Notice::PreVote { instance, ballot, dead: BTreeSet::from([dead]) },
        16 => Notice::Prepare { instance, ballot, dead: BTreeSet::from([dead]) },
        17 => {
            let remove = BTreeSet::from([dead]);
            let change = Change { remove, ..Change::default() };
            Notice::Accept { instance, ballot, change }
        }
        18 => Notice::StaleVote { voter: dead, nonce },
        19 => Notice::Beat {
            view: later,
            beat: rng.draw(13, 1 << 20),
            pulse: rng.draw(14, 1 << 20),
            confirmed: 0,
            kept: true,
        },
        20 => Notice::Pulse {
            view: if rng.draw(15, 2) == 0 { view.number } else { later },
            pulse: rng.draw(16, 1 << 20),
            renews: rng.draw(17, 1 << 10),
            again: true,
            settled: true,
        },
        // The lie is a first view with the stranger and a member. The view begins just above the
        // member's view, or far above it.
        21 => {
            let ahead = 1 + rng.draw(19, 2) * rng.draw(20, 1 << 16);
            let founders = vec![me, member.clone()];
            let first = Slot(view.end_slot().0 + ahead);
            let view = View::first(first, founders, view.timing, 7);
            Notice::Found { attempt: rng.draw(21, 8) as u32, view }
        }
        22 => Notice::FoundOk { attempt: rng.draw(22, 8) as u32 },
        // A view of a later lineage, which has all members of this one or all but one.
        OTHER_LINEAGE => {
            let mut forged = view.clone();
            forged.lineage = younger;
            forged.number = ViewNumber(later.0.max(younger.founded.0));
            forged.first_slot = view.end_slot();
            forged.tenure = forged.first_slot;
            if rng.draw(31, 2) == 0 {
                forged.departed.push((dead, forged.number));
            }
            Notice::FullView { view: forged, nonce }
        }
        // The notice looks as if a member spoke through the stranger.
        _ => {
            return Packet::Relay {
                from: Box::new(member.clone()),
                to: view.members[rng.draw(18, view.members.len() as u64) as usize].info.process,
                troubled: false,
                heard: None,
                packet: Box::new(Packet::from(Notice::Leave)),
            };
        }
    };
    Packet::from(notice)
}
