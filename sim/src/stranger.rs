//! A lying stranger: a process outside the cluster that reaches a member. It knows all that a
//! member tells of the view, it has ids and addresses of its own, and it says anything.
//!
//! It borrows no member's id and claims no member's vote. Only a cluster key proves ids, so without
//! one a process that lies about its id is that member for all others (docs/internals/security.md).

use crate::chance::mix;
use crate::world::World;
use elderlock::protocol::message::Ballot;
use elderlock::protocol::{
    Affiliation, Change, ClientMessage, Epoch, GrantorMessage, Input, Lineage, MemberInfo, Message,
    Notice, Packet, ProcessId, RequestId, ServiceName, Slot, Token, View, ViewNumber,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

/// The number of kinds of lies.
const KINDS: u64 = 25;

/// The draws of one lie.
struct Luck(u64);

impl Luck {
    fn draw(&self, question: u64, below: u64) -> u64 {
        mix(&[self.0, question]) % below.max(1)
    }

    /// A process of the stranger, a new one with each lie: ids do not come back.
    fn info(&self) -> MemberInfo {
        let bits = |part| u128::from(mix(&[self.0, 0x11e, part]));
        let last = (self.0 % 200) as u8 + 20;
        MemberInfo {
            process: ProcessId(bits(0) << 64 | bits(1)),
            addr: SocketAddr::from((Ipv4Addr::new(10, 66, 0, last), 7400)),
            host: None,
        }
    }
}

impl World {
    /// The process at `site` receives a lie. False: there is no such process, or the cluster has a
    /// key, so that strangers do not get through.
    pub(crate) fn lie(&mut self, site: usize, luck: u64) -> bool {
        if !self.has(site) || !self.is_alive(site) || !self.common.keyless {
            return false;
        }
        let luck = Luck(luck);
        let stranger = luck.info();
        let known = self.view(site).or_else(|| self.latest_view());
        let Some(packet) = known.map(|view| packet(&luck, &stranger, view)) else { return false };
        let (from, addr) = (stranger.process, stranger.addr);
        self.feed(site, Input::Received { from, addr, packet });
        true
    }
}

fn packet(luck: &Luck, stranger: &MemberInfo, view: &View) -> Packet {
    let me = stranger.clone();
    let member = &view.members[luck.draw(2, view.members.len() as u64) as usize].info;
    let dead = member.process;
    let later = ViewNumber(view.number.0 + 1 + luck.draw(3, 3) * luck.draw(4, 1 << 20));
    // A guess of a proof, or none.
    let nonce = if luck.draw(5, 2) == 0 { 0 } else { luck.draw(6, u64::MAX) };
    let ballot = Ballot { round: luck.draw(7, 1 << 30) as u32, process: me.process };
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
        led: true,
        kept: true,
        settled: true,
    };
    let younger = Lineage { founded: Slot(view.first_slot.0 + 1), founder: me.process };
    let service = || ServiceName::new("stock").expect("a valid name");
    let linked = |message: Message| Packet::Linked {
        view: view.number,
        seq: 1 + luck.draw(8, 400),
        ack: luck.draw(9, 400),
        message,
    };
    let epoch = Epoch(Token::new(view.first_slot, luck.draw(10, 1 << 22) as u32));
    let request = RequestId(1 + luck.draw(11, 300));
    let notice = match luck.draw(0, KINDS) {
        0 => return forged(&|_| true),
        1 => return forged(&|process| process == dead),
        2 => return forged(&|process| process != dead),
        3 => {
            let remove = BTreeSet::from([dead]);
            let change = Change { remove, ..Change::default() };
            Notice::Install { lineage: view.lineage, instance, change, nonce }
        }
        // Learners that never show themselves.
        4..=6 => Notice::Join { me, heard: view.number },
        7 => {
            let me = MemberInfo { addr: member.addr, ..me };
            Notice::Join { me, heard: view.number }
        }
        8 => {
            let belonging = belonging(younger, ViewNumber(younger.founded.0));
            Notice::Hello { me, asked: member.addr, belonging, nonce }
        }
        9 => {
            let belonging = belonging(view.lineage, later);
            Notice::HelloReply { me, asked: member.addr, belonging, nonce }
        }
        10 => Notice::Leave,
        11 => Notice::Vouch { dead },
        12 => Notice::SuspectDead { process: dead },
        13 => {
            let grant = ClientMessage::Grant {
                service: service(),
                epoch,
                request,
                token: Token::new(view.first_slot, luck.draw(12, 1 << 22) as u32),
            };
            return linked(Message::Client(grant));
        }
        14 => {
            let release = GrantorMessage::Release { service: service(), request };
            return linked(Message::Grantor(release));
        }
        15 => Notice::PreVote { instance, ballot, dead: BTreeSet::from([dead]) },
        16 => Notice::Prepare { instance, ballot, dead: BTreeSet::from([dead]) },
        17 => {
            let remove = BTreeSet::from([dead]);
            let change = Change { remove, ..Change::default() };
            Notice::Accept { instance, ballot, change }
        }
        18 => Notice::StaleVote { voter: dead, nonce },
        19 => Notice::Beat {
            view: later,
            beat: luck.draw(13, 1 << 20),
            pulse: luck.draw(14, 1 << 20),
            confirmed: 0,
            kept: true,
        },
        20 => Notice::Pulse {
            view: if luck.draw(15, 2) == 0 { view.number } else { later },
            pulse: luck.draw(16, 1 << 20),
            renews: luck.draw(17, 1 << 10),
            again: true,
            settled: true,
        },
        // A first view, of itself and a member, above all that was dealt or just above its own.
        21 => {
            let ahead = 1 + luck.draw(19, 2) * luck.draw(20, 1 << 16);
            let founders = vec![me, member.clone()];
            let first = Slot(view.end_slot().0 + ahead);
            let view = View::first(first, founders, view.timing, 7);
            Notice::Found { attempt: luck.draw(21, 8) as u32, view }
        }
        22 => Notice::FoundOk { attempt: luck.draw(22, 8) as u32 },
        // The successor of a vote that no member of the view has: it inherits nothing.
        23 => {
            let accepted = luck.draw(23, 2) == 0;
            let notice = match accepted {
                true => Notice::Accepted { instance, ballot },
                false => Notice::Prepare { instance, ballot, dead: BTreeSet::from([dead]) },
            };
            return Packet::VoteSuccessor {
                voter: ProcessId(me.process.0 ^ 1),
                me: Box::new(me),
                lineage: view.lineage,
                notice: Box::new(notice),
            };
        }
        // As if a member spoke through the stranger.
        _ => {
            return Packet::Relay {
                from: Box::new(member.clone()),
                to: view.members[luck.draw(18, view.members.len() as u64) as usize].info.process,
                troubled: false,
                heard: None,
                packet: Box::new(Packet::from(Notice::Leave)),
            };
        }
    };
    Packet::from(notice)
}
