//! One frame of each kind, with messages and notices of each kind.

use crate::protocol::content::LastWrite;
use crate::protocol::content::{Edit, NumberEdit};
use crate::protocol::id::{MAX_PERMITS, MAX_VALUE};
use crate::protocol::message::{
    self, Ballot, Blocked, BlockingHold, ChainLink, ForceOrder, HoldReport, HoldState, LockRequest,
    MAX_CHAIN, ObjectReply, Origin, OwnerWait, Probe, RevocationAnswer, RevocationDemand,
    TokenRange, WaitReport,
};
use crate::protocol::{
    Affiliation, Batch, Change, ClientMessage, Content, Epoch, GrantorMessage, HolderInfo, Host,
    Lineage, LockName, MemberInfo, MemberMessage, MemberName, Message, Metadata, Mode, Notice,
    OpenRequest, OwnerId, Permits, ProcessId, Query, QueryReply, RegistryMessage, RequestId,
    ServiceName, Slot, StaticPublicKey, Ticket, Timing, Token, Value, View, ViewNumber, VoteClaim,
    VoteSecret, WaiterInfo, Want,
};
use crate::wire::frame::*;
use crate::wire::{Order, Role, VERSIONS};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

pub(super) fn info(process: u128) -> MemberInfo {
    let host =
        Host { boot: u128::MAX - process, namespace: 4_026_531_836, pid: 77, started: 1 << 40 };
    let addr = if process.is_multiple_of(2) { "10.0.0.5:7400" } else { "[2001:db8::5]:7400" };
    MemberInfo {
        process: ProcessId(process),
        addr: addr.parse().unwrap(),
        host: Some(host),
        vote_key: Some(VoteSecret::new([7; 32]).key()),
        static_key: Some(StaticPublicKey([6; 32])),
        serves_sessions: process.is_multiple_of(3),
        name: MemberName::new("pod-0").unwrap(),
        // The range is fixed, as all values here: otherwise the recorded frames would change with
        // each version.
        versions: Versions { lowest: 11, highest: 11 },
    }
}

fn notices() -> Vec<Notice> {
    let addr: SocketAddr = "127.0.0.1:7400".parse().unwrap();
    let view = View::first(Slot(900), vec![info(1), info(2)], Timing::lan(), 7);
    let change = Change {
        join: vec![info(3)],
        remove: [ProcessId(1)].into(),
        ghost: [ProcessId(2)].into(),
        revive: BTreeSet::new(),
        promote: [ProcessId(3)].into(),
        longer: true,
        takeover: false,
    };
    let instance = ViewNumber(901);
    let ballot = Ballot { round: 3, process: ProcessId(2) };
    let dead: BTreeSet<_> = [ProcessId(9)].into();
    let belonging = Affiliation::Member {
        lineage: Lineage { founded: Slot(900), founder: ProcessId(1) },
        view: instance,
        elder: info(1),
        version: 11,
        led: true,
        kept: true,
        settled: true,
    };
    let me = info(4);
    vec![
        Notice::Hello {
            me: me.clone(),
            asked: addr,
            belonging: Affiliation::Discovery { seeds: [addr].into(), bound: true },
            nonce: 17,
        },
        Notice::HelloReply { me: me.clone(), asked: addr, belonging, nonce: 17 },
        Notice::HelloReply {
            me: me.clone(),
            asked: addr,
            belonging: Affiliation::VoteSuccessor {
                claim: VoteClaim::new(&VoteSecret::new([2; 32]), ProcessId(2), view.lineage, &me),
                lineage: view.lineage,
                view: view.number,
            },
            nonce: 17,
        },
        Notice::Found { attempt: 2, view: view.clone() },
        Notice::FoundOk { attempt: 2 },
        Notice::Join { me, heard: ViewNumber(3) },
        Notice::Leave,
        Notice::Beat { view: instance, beat: 5, pulse: 6, confirmed: 4, kept: true },
        Notice::Pulse { view: instance, pulse: 7, renews: 5, again: true, settled: true },
        Notice::Vouch { dead: ProcessId(9) },
        Notice::SuspectDead { process: ProcessId(9) },
        Notice::Alive { process: ProcessId(9) },
        Notice::PreVote { instance, ballot, dead: dead.clone() },
        Notice::PreVoteReply { instance, ballot, willing: true },
        Notice::Prepare { instance, ballot, dead },
        Notice::Promise { instance, ballot, accepted: Some((ballot, change.clone())) },
        Notice::Nack { instance, promised: ballot },
        Notice::Accept { instance, ballot, change: change.clone() },
        Notice::Accepted { instance, ballot },
        Notice::Install {
            lineage: Lineage { founded: Slot(900), founder: ProcessId(1) },
            instance,
            change,
            nonce: u64::MAX,
        },
        Notice::FullView { view, nonce: 0 },
        Notice::StaleVote { voter: ProcessId(4), nonce: 3 },
        Notice::Fetch {
            lineage: Lineage { founded: Slot(900), founder: ProcessId(1) },
            have: instance,
            nonce: 17,
        },
    ]
}

fn messages() -> Vec<Message> {
    let service = ServiceName::new("inventory").unwrap();
    let token = Token::new(Slot(900), 17);
    let epoch = Epoch(token);
    let request = RequestId(8);
    let name = LockName::new(&[0xff; 4096]).unwrap();
    let metadata = Metadata::new(b"till 3").unwrap();
    let ticket = Ticket { epoch, number: 3 };
    let range = TokenRange { first: token, last: Token::new(Slot(900), u32::MAX) };
    let held_for = Duration::from_micros(1_500_001);
    let owner = OwnerId(u64::MAX);
    let want = Want::Lock(name.clone());
    let batch = Batch::new(vec![name.clone(), LockName::new(b"till").unwrap()]).unwrap();
    let holder = |name| {
        let (process, request, metadata) = (ProcessId(2), RequestId(1 << 40), metadata.clone());
        let mode = Mode::Permits(u32::MAX);
        HolderInfo {
            name,
            process,
            request,
            owner: owner.0,
            token,
            mode,
            revocable: true,
            metadata,
            held_for,
        }
    };
    let value = Value::new(&[0xff; MAX_VALUE]).unwrap();
    let writes = BTreeMap::from([(
        ProcessId(u128::MAX),
        LastWrite { request, version: token, number: Some(-7) },
    )]);
    let content = Content { value: value.clone(), version: token, maybe_stale: true, writes };
    let objects: Box<[_]> = Box::from([(name.clone(), content.clone())]);
    let wants = [
        want.clone(),
        Want::Batch(batch.clone()),
        Want::Suspension,
        Want::Share(name.clone()),
        Want::Permits(name.clone(), Permits::new(MAX_PERMITS).unwrap()),
        Want::Open(OpenRequest::new(name.clone(), value.clone())),
    ];
    let hold = |want| {
        let (owner, metadata) = (OwnerId::default(), Metadata::default());
        HoldReport {
            request,
            token,
            held_for,
            lock: LockRequest { want, owner, revocable: true, metadata },
        }
    };
    let wait = |want, ticket| {
        let metadata = metadata.clone();
        WaitReport { request, ticket, lock: LockRequest { want, owner, revocable: true, metadata } }
    };
    let waiter = WaiterInfo {
        process: ProcessId(2),
        owner: owner.0,
        mode: Mode::Suspension,
        metadata: metadata.clone(),
        request: Some(RequestId(3)),
    };
    let mut messages = vec![
        Message::Registry(RegistryMessage::FindGrantor { service: service.clone(), heard: None }),
        Message::Member(MemberMessage::GrantorIs {
            service: service.clone(),
            grantor: ProcessId(1),
            epoch,
        }),
        Message::Registry(RegistryMessage::FindService { service: service.clone(), request }),
        Message::Registry(RegistryMessage::Become {
            service: service.clone(),
            request: RequestId(7),
        }),
        Message::Member(MemberMessage::Outbid {
            service: service.clone(),
            request: RequestId(7),
            by: ProcessId(1),
        }),
        Message::Registry(RegistryMessage::Acts { service: service.clone(), epoch }),
        Message::Registry(RegistryMessage::ProposeSuccessor {
            service: service.clone(),
            epoch,
            to: ProcessId(1),
        }),
        Message::Registry(RegistryMessage::Vacant { service: service.clone(), epoch }),
        Message::Registry(RegistryMessage::Decline { service: service.clone(), epoch }),
        Message::Member(MemberMessage::SuccessorDeclined {
            service: service.clone(),
            by: ProcessId(1),
        }),
        Message::Grantor(GrantorMessage::RequestTable {
            service: service.clone(),
            epoch,
            copy: None,
        }),
        Message::Grantor(GrantorMessage::TableChunk {
            service: service.clone(),
            epoch,
            objects: objects.clone(),
            holds: vec![(ProcessId(1), hold(want.clone())), (ProcessId(2), hold(Want::Suspension))],
            waits: vec![(ProcessId(2), wait(Want::Batch(batch.clone()), Some(ticket)))],
            last: true,
            kept: true,
        }),
        Message::Grantor(GrantorMessage::NoTable { service: service.clone(), epoch }),
        Message::Client(ClientMessage::Deposed {
            service: service.clone(),
            by: Some(ProcessId(1)),
            epoch,
        }),
        Message::Registry(RegistryMessage::MoreTokens {
            service: service.clone(),
            epoch,
            count: 4096,
        }),
        Message::Member(MemberMessage::Tokens { service: service.clone(), epoch, range }),
        Message::Member(MemberMessage::Inventory { view: ViewNumber(900) }),
        Message::Registry(RegistryMessage::InventoryReply {
            view: ViewNumber(900),
            known: vec![(service.clone(), ProcessId(1), epoch)],
            last: true,
        }),
        Message::Client(ClientMessage::Queued { service: service.clone(), epoch, request, ticket }),
        Message::Client(ClientMessage::Grant {
            service: service.clone(),
            epoch,
            request,
            token,
            kept: 64,
        }),
        Message::Client(ClientMessage::NotGrantor {
            service: service.clone(),
            epoch,
            request,
            instead: None,
        }),
        Message::Client(ClientMessage::NotGrantor {
            service: service.clone(),
            epoch,
            request,
            instead: Some((ProcessId(1), epoch)),
        }),
        Message::Grantor(GrantorMessage::Release { service: service.clone(), request }),
        Message::Client(ClientMessage::Recover { service: service.clone(), epoch, by_part: true }),
        Message::Grantor(GrantorMessage::Report {
            service: service.clone(),
            epoch,
            objects,
            holds: vec![hold(Want::Batch(batch.clone()))],
            waits: vec![wait(want.clone(), None)],
            last: false,
            parts: Some(7),
        }),
        Message::Client(ClientMessage::Supersede { service: service.clone(), epoch, request }),
        Message::Grantor(GrantorMessage::Reduce {
            service: service.clone(),
            epoch,
            request,
            want: Want::Share(name.clone()),
            token,
        }),
        Message::Grantor(GrantorMessage::Upgrade {
            service: service.clone(),
            epoch,
            request,
            hold: RequestId(7),
        }),
        Message::Client(ClientMessage::Upgraded {
            service: service.clone(),
            epoch,
            request,
            token,
        }),
        Message::Grantor(GrantorMessage::ConfirmDestroy { service: service.clone(), request }),
        Message::Client(ClientMessage::DestroyConfirmed { service: service.clone(), request }),
        Message::Client(ClientMessage::DestroyUnconfirmed {
            service: service.clone(),
            request,
            instead: Some(ProcessId(1)),
        }),
    ];
    messages.extend([Origin::Free, Origin::Everyone, Origin::Predecessor(ProcessId(1))].map(
        |origin| {
            Message::Member(MemberMessage::NameGrantor {
                service: service.clone(),
                range,
                origin,
                asked: (origin != Origin::Free).then_some(request),
            })
        },
    ));
    let written =
        [None, Some(-7)].map(|number| Some(ObjectReply::Written { version: token, number }));
    let told = [
        None,
        Some(ObjectReply::Opened(token)),
        written[0],
        written[1],
        Some(ObjectReply::Unwritten),
    ];
    messages.extend(told.map(|told| {
        Message::Client(ClientMessage::Value {
            service: service.clone(),
            epoch,
            name: name.clone(),
            content: Box::new(content.clone()),
            answers: told.map(|told| (request, told)),
        })
    }));
    let steps = [
        NumberEdit::Add(-7),
        NumberEdit::CountDown,
        NumberEdit::SetParity { odd: true },
        NumberEdit::Reset(7),
    ];
    let mut edits = steps.map(|step| Edit::Step { step, tail: value.clone() }).to_vec();
    edits.extend([None, Some(token)].map(|expect| Edit::Set { value: value.clone(), expect }));
    messages.extend(edits.into_iter().map(|edit| {
        Message::Grantor(GrantorMessage::Write {
            service: service.clone(),
            epoch,
            request,
            name: name.clone(),
            edit: Box::new(edit),
        })
    }));
    messages.extend(wants.map(|want| {
        Message::Grantor(GrantorMessage::RequestLock {
            service: service.clone(),
            epoch,
            request,
            only_if_free: true,
            keep: 64,
            lock: LockRequest { want, owner, revocable: true, metadata: metadata.clone() },
        })
    }));
    let refusals = [
        message::Refusal::Held(holder(Some(name.clone()))),
        message::Refusal::Waited(Some(name.clone())),
        message::Refusal::Waited(None),
        message::Refusal::Undecided,
        message::Refusal::Deadlock,
        message::Refusal::NotOpen,
        message::Refusal::Limit(3),
        message::Refusal::Shared(1 << 40),
    ];
    messages.extend(refusals.map(Box::new).map(|refusal| {
        Message::Client(ClientMessage::Refuse { service: service.clone(), epoch, request, refusal })
    }));
    let looks = [
        Query::Lock(name.clone()),
        Query::Suspension,
        Query::Position(request),
        Query::Held(None),
        Query::Held(Some(name.clone())),
        Query::Waiting(name.clone(), None),
        Query::Waiting(name.clone(), Some((ticket, ProcessId(1), request))),
        Query::Service,
        Query::Blockers(Blocked::Name(name.clone())),
        Query::Blockers(Blocked::Suspension),
        Query::Blockers(Blocked::Request(ProcessId(1), request)),
    ];
    messages.extend(looks.map(Box::new).map(|at| {
        Message::Grantor(GrantorMessage::Query { service: service.clone(), epoch, request, at })
    }));
    let seen = [
        QueryReply::Lock {
            holders: vec![holder(None)],
            more_holders: 1 << 40,
            permits: 1 << 40,
            content: Some(content),
            opener_count: 2,
            waiters: vec![waiter.clone()],
            more: 1 << 40,
        },
        QueryReply::Position { before: 3, holds: 2, suspension: None },
        QueryReply::Position { before: 3, holds: 2, suspension: Some(waiter.clone()) },
        QueryReply::Blockers {
            holds: vec![BlockingHold { holder: holder(Some(name.clone())), is_sure: true }],
            more: true,
        },
        QueryReply::Held { holders: vec![holder(Some(name.clone()))], last: true },
        QueryReply::Waiting { waiters: vec![waiter.clone()], last: None },
        QueryReply::Waiting { waiters: Vec::new(), last: Some((ticket, ProcessId(1), request)) },
        QueryReply::Unknown,
        QueryReply::Undecided,
        QueryReply::Service(true),
    ];
    messages.extend(seen.map(Box::new).map(|seen| {
        Message::Client(ClientMessage::QueryReply { service: service.clone(), request, seen })
    }));
    messages.extend(blocker_messages(&service, name, request, token));
    let order = ForceOrder { operator: metadata.clone(), reason: metadata.clone() };
    let demands =
        [RevocationDemand::Ask(metadata), RevocationDemand::Take, RevocationDemand::Force(order)];
    messages.extend(demands.map(|demand| {
        Message::Client(ClientMessage::RequestRevocation {
            service: service.clone(),
            request,
            hold: RequestId(1 << 40),
            token,
            demand,
        })
    }));
    let heard = [
        RevocationAnswer::HolderTold,
        RevocationAnswer::Revoked,
        RevocationAnswer::HolderNotTold,
        RevocationAnswer::NotRevocable,
        RevocationAnswer::ForceNotAllowed,
        RevocationAnswer::TryAgain,
        RevocationAnswer::NotHeld,
    ];
    messages.extend(heard.map(|heard| {
        Message::Client(ClientMessage::RevocationReply {
            service: service.clone(),
            request,
            token,
            heard,
        })
    }));
    messages
}

/// Messages about chains of waits and holds.
fn blocker_messages(
    service: &ServiceName,
    name: LockName,
    request: RequestId,
    token: Token,
) -> Vec<Message> {
    let (hold, service) = (RequestId(1 << 40), service.clone());
    let wait = OwnerWait {
        service: service.clone(),
        request,
        name: Some(name),
        names: 3,
        mode: Mode::Permits(7),
    };
    let held = HoldState::Held {
        lease_left: Some(Duration::from_millis(7)),
        waits: vec![wait],
        more: 1 << 40,
    };
    let own = (ProcessId(1), request);
    let link = ChainLink { wait: own, hold: (ProcessId(2), hold), owner: OwnerId(7), token };
    let probe = Box::new(Probe {
        origin: own,
        owner: OwnerId(8),
        budget: 256,
        path: vec![link; MAX_CHAIN],
        confirmed: Some(3),
    });
    let mut messages: Vec<Message> = [HoldState::NotHeld, held]
        .map(|state| {
            let (service, state) = (service.clone(), Box::new(state));
            ClientMessage::HolderReply { service, request, state }.into()
        })
        .into();
    messages.extend([
        GrantorMessage::ProbeWait { service: service.clone(), request, probe: probe.clone() }
            .into(),
        ClientMessage::AskHolder { service: service.clone(), request, hold, token }.into(),
        ClientMessage::ProbeHold { service, hold, token, probe }.into(),
    ]);
    messages
}

pub(super) fn packets() -> Vec<Packet> {
    let view = ViewNumber(900);
    let mut packets: Vec<_> = notices().into_iter().map(Packet::from).collect();
    packets.extend(messages().into_iter().map(|message| Packet::Linked {
        view,
        seq: 1 << 50,
        ack: 12,
        message,
    }));
    packets.push(Packet::Ack { view, ack: 12, again: true });
    let lineage = Lineage { founded: Slot(900), founder: ProcessId(1) };
    let notice = Notice::PreVoteReply {
        instance: view,
        ballot: Ballot { round: 2, process: ProcessId(8) },
        willing: true,
    };
    packets.push(Packet::VoteSuccessor {
        claim: Box::new(VoteClaim::new(&VoteSecret::new([7; 32]), ProcessId(7), lineage, &info(8))),
        me: Box::new(info(8)),
        lineage,
        notice: Box::new(notice),
    });
    let sealed = Packet::Sealed { is_notice: true, bytes: vec![1, 2, 3] };
    let relays: Vec<_> = packets
        .iter()
        .chain([&sealed])
        .map(|packet| Packet::Relay {
            from: Box::new(info(5)),
            to: ProcessId(6),
            troubled: true,
            heard: Some(ProcessId(4)),
            packet: Box::new(packet.clone()),
        })
        .collect();
    packets.extend(relays);
    packets
}

pub(super) fn handshake() -> Handshake {
    Handshake { cluster: "shop".into(), me: info(1), reserved: vec![1, 2, 3] }
}

pub(super) fn request(order: Order) -> OrderRequest {
    OrderRequest { cluster: "shop".into(), versions: VERSIONS, order }
}

pub(super) fn hellos() -> Vec<Frame> {
    vec![
        Frame::Hello(Box::new(handshake())),
        Frame::Welcome(Box::new(handshake())),
        Frame::Refused(HandshakeRefusal::Versions(VERSIONS)),
        Frame::Refused(HandshakeRefusal::ForeignCluster("shed".into())),
        Frame::Refused(HandshakeRefusal::Garbage),
        Frame::Refused(HandshakeRefusal::Busy),
        Frame::Refused(HandshakeRefusal::Role(Role::Observer)),
        Frame::Order(Box::new(request(Order::Leave))),
        Frame::Order(Box::new(request(Order::Revoke {
            service: ServiceName::new("stock").unwrap(),
            name: Some(LockName::new(b"a").unwrap()),
            metadata: Metadata::new(b"why").unwrap(),
            operator: Metadata::new(b"ann").unwrap(),
            wait: Duration::from_millis(1500),
            force: true,
        }))),
        Frame::Order(Box::new(request(Order::Inspect {
            service: ServiceName::new("stock").unwrap(),
            name: Some(LockName::new(b"a").unwrap()),
        }))),
        Frame::Order(Box::new(request(Order::Held {
            service: ServiceName::new("stock").unwrap(),
            leases: true,
        }))),
    ]
}

pub(super) fn frames() -> Vec<Frame> {
    let mut frames: Vec<_> = packets().into_iter().map(Frame::Packet).collect();
    frames.extend([Frame::GossipWanted, Frame::Gossip(vec![7; 3000]), Frame::Gossip(vec![])]);
    let messages = keep_messages().into_iter().chain(copy_messages()).chain([report_taken()]);
    let (view, seq, ack) = (ViewNumber(900), 7, 6);
    let packets = messages.map(|message| Packet::Linked { view, seq, ack, message });
    frames.extend(packets.map(Frame::Packet));
    frames
}

/// The messages that came with version 13.
fn keep_messages() -> [Message; 2] {
    let service = ServiceName::new("s").unwrap();
    let (place, request, owner) = (RequestId(77), RequestId(79), OwnerId(8));
    let token = Token::new(Slot(3), 4);
    let recall = ClientMessage::Recall { service: service.clone(), request: place };
    let want = Want::Lock(LockName::new(b"n").unwrap());
    let lock = LockRequest { want, owner, revocable: false, metadata: Metadata::default() };
    let held_for = Duration::from_millis(3);
    let holds = [HoldReport { request, lock, token, held_for }].into();
    let epoch = Epoch(Token::new(Slot(3), 0));
    [GrantorMessage::KeepInUse { service, epoch, place, holds }.into(), recall.into()]
}

/// A message of recoveries, which came with version 13.
fn report_taken() -> Message {
    let (service, epoch) = (ServiceName::new("s").unwrap(), Epoch(Token::new(Slot(3), 0)));
    ClientMessage::ReportTaken { service, epoch }.into()
}

/// The messages of copies, which came with version 13.
fn copy_messages() -> [Message; 6] {
    let service = ServiceName::new("s").unwrap();
    let (process, request, owner) = (ProcessId(5), RequestId(79), OwnerId(8));
    let (copy, part, token) = (3, 1 << 40, Token::new(Slot(3), 4));
    let epoch = Epoch(Token::new(Slot(3), 0));
    let name = LockName::new(b"n").unwrap();
    let want = Want::Share(name.clone());
    let lock = LockRequest { want, owner, revocable: false, metadata: Metadata::default() };
    let held_for = Duration::from_millis(3);
    let hold = HoldReport { request, lock: lock.clone(), token, held_for };
    let wait = WaitReport { request, lock, ticket: Some(Ticket { epoch, number: 1 << 33 }) };
    let content = Content {
        value: Value::new(b"v").unwrap(),
        version: token,
        maybe_stale: true,
        writes: BTreeMap::new(),
    };
    let objects = [(name.clone(), Some(content)), (name, None)].into();
    let seal = message::TableSeal { sum: u64::MAX, holds: 1, ..message::TableSeal::default() };
    [
        GrantorMessage::CopyTable { service: service.clone(), epoch, copy, taken: part }.into(),
        GrantorMessage::CopyPart {
            service: service.clone(),
            copy,
            part,
            objects,
            holds: vec![(process, hold)],
            waits: vec![(process, wait)],
            over: [(process, request)].into(),
            whole: true,
        }
        .into(),
        GrantorMessage::NoCopy { service: service.clone(), copy }.into(),
        GrantorMessage::OfferCopy { service: service.clone(), epoch }.into(),
        GrantorMessage::RequestTable { service: service.clone(), epoch, copy: Some(copy) }.into(),
        GrantorMessage::TableRest { service, epoch, copy, seal, kept: true }.into(),
    ]
}
