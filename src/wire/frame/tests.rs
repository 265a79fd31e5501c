use super::*;
use crate::protocol::content::LastWrite;
use crate::protocol::content::{Edit, NumberEdit};
use crate::protocol::id::{MAX_BATCH_NAMES, MAX_PERMITS, MAX_VALUE};
use crate::protocol::message::{
    self, Ballot, Blocked, BlockingHold, ChainLink, ForceOrder, HoldReport, HoldState, LockRequest,
    MAX_CHAIN, ObjectReply, Origin, OwnerWait, Probe, RevocationAnswer, RevocationDemand,
    TokenRange, WaitReport,
};
use crate::protocol::{
    Affiliation, Batch, Change, ClientMessage, Config, Content, Epoch, GrantorMessage, HolderInfo,
    Host, Lineage, LockName, MemberInfo, MemberMessage, MemberName, Message, Metadata, Mode,
    Notice, OpenRequest, OwnerId, Permits, ProcessId, Query, QueryReply, RegistryMessage,
    RequestId, ServiceName, Slot, StaticPublicKey, Ticket, Timing, Token, Value, View, ViewNumber,
    VoteClaim, VoteSecret, WaiterInfo, Want,
};
use crate::wire::{
    Circle, HoldLease, MAX_CLUSTER, MAX_RESERVED, Order, PROTOCOL_VERSION, ReportedBlocker,
    ReportedHolder, ReportedWaiter, Role, SessionRequest, VERSIONS,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

fn info(process: u128) -> MemberInfo {
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
        // Fixed, as all values here, or the recorded frames would change with each version.
        versions: Versions { lowest: 11, highest: 11 },
    }
}

mod recorded;

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
        Message::Grantor(GrantorMessage::RequestTable { service: service.clone(), epoch }),
        Message::Grantor(GrantorMessage::TableChunk {
            service: service.clone(),
            epoch,
            objects: objects.clone(),
            holds: vec![(ProcessId(1), hold(want.clone())), (ProcessId(2), hold(Want::Suspension))],
            waits: vec![(ProcessId(2), wait(Want::Batch(batch.clone()), Some(ticket)))],
            last: true,
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
        Message::Client(ClientMessage::Grant { service: service.clone(), epoch, request, token }),
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
        Message::Client(ClientMessage::Recover { service: service.clone(), epoch }),
        Message::Grantor(GrantorMessage::Report {
            service: service.clone(),
            epoch,
            objects,
            holds: vec![hold(Want::Batch(batch.clone()))],
            waits: vec![wait(want.clone(), None)],
            last: false,
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

fn packets() -> Vec<Packet> {
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

fn handshake() -> Handshake {
    Handshake { cluster: "shop".into(), me: info(1), reserved: vec![1, 2, 3] }
}

fn request(order: Order) -> OrderRequest {
    OrderRequest { cluster: "shop".into(), versions: VERSIONS, order }
}

fn hellos() -> Vec<Frame> {
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

/// The owner was added at the end of the form. A program of an older release leaves it out.
#[test]
fn a_session_of_an_older_program_has_no_owner() {
    let order = |owner| {
        let service = ServiceName::new("stock").unwrap();
        let lock = SessionRequest::new(service, LockName::new(b"a").unwrap()).owner(owner);
        let mut bytes = Vec::new();
        request(Order::Lock(lock)).write(&mut bytes).unwrap();
        bytes
    };
    let owner_in = |bytes: &[u8]| match OrderRequest::read(bytes).map(|request| request.order) {
        Ok(Order::Lock(lock)) => lock.owner,
        other => panic!("{other:?}"),
    };
    assert_eq!(owner_in(&order(7)), 7);
    assert_eq!(owner_in(&order(u64::MAX)), u64::MAX);
    let (older, newer) = (order(0).len() - 1, order(7));
    assert_eq!(owner_in(&newer[..older]), 0);
}

fn frames() -> Vec<Frame> {
    let mut frames: Vec<_> = packets().into_iter().map(Frame::Packet).collect();
    frames.extend([Frame::GossipWanted, Frame::Gossip(vec![7; 3000]), Frame::Gossip(vec![])]);
    frames
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, PROTOCOL_VERSION, &mut bytes).unwrap();
    bytes
}

/// Puts the length in front that these bytes have, and the checksum behind that belongs to them.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = ((body.len() + CHECKSUM) as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

fn body_of(frame: &Frame) -> Vec<u8> {
    let bytes = bytes_of(frame);
    bytes[LENGTH..bytes.len() - CHECKSUM].to_vec()
}

fn decoder(opened: bool, bytes: &[u8]) -> Decoder {
    let mut decoder = Decoder::new();
    if opened {
        decoder.open();
    }
    decoder.back().extend_from_slice(bytes);
    decoder
}

#[test]
fn every_frame_comes_out_as_it_went_in() {
    for (opened, frames) in [(true, frames()), (false, hellos())] {
        for frame in frames {
            let mut decoder = decoder(opened, &bytes_of(&frame));
            assert_eq!(decoder.next(), Ok(Some(frame)));
            assert_eq!(decoder.next(), Ok(None));
            assert!(decoder.is_empty());
        }
    }
}

#[test]
fn frames_come_out_of_a_stream_that_arrives_byte_by_byte() {
    let frames = frames();
    let stream: Vec<u8> = frames.iter().flat_map(bytes_of).collect();
    let mut decoder = decoder(true, &[]);
    let mut out = Vec::new();
    for byte in stream {
        decoder.back().push(byte);
        out.extend(decoder.next().unwrap());
    }
    assert_eq!(out, frames);
}

#[test]
fn a_body_cut_at_any_byte_is_an_error() {
    for (opened, frames) in
        [(true, packets().into_iter().map(Frame::Packet).collect()), (false, hellos())]
    {
        for frame in frames {
            let whole = bytes_of(&frame);
            for cut in 0..whole.len() {
                // The names of 4096 equal bytes would take minutes in a debug build and tell
                // nothing new.
                if cut > 300 && cut + 300 < whole.len() && cut % 64 != 0 {
                    continue;
                }
                // Unfinished: more is needed.
                let mut bytes = whole[..cut].to_vec();
                assert_eq!(decoder(opened, &bytes).next(), Ok(None));
                if cut < LENGTH {
                    continue;
                }
                // Finished by its length, but short.
                bytes[..LENGTH].copy_from_slice(&((cut - LENGTH) as u32).to_be_bytes());
                let result = decoder(opened, &bytes).next();
                assert!(result.is_err(), "{frame:?} cut to {cut} bytes: {result:?}");
                // The same holds if the checksum is right.
                if cut + CHECKSUM < whole.len() {
                    let result = decoder(opened, &sealed(&whole[LENGTH..cut])).next();
                    assert!(result.is_err(), "a body of {frame:?} cut to {cut} bytes: {result:?}");
                }
            }
        }
    }
}

/// No frame comes out, at once or when the rest of the stream has come.
#[test]
fn every_flipped_bit_of_a_frame_is_seen() {
    for (opened, frames) in [(true, frames()), (false, hellos())] {
        for frame in frames {
            let whole = bytes_of(&frame);
            for at in 0..whole.len() {
                if at > 100 && at + 100 < whole.len() && at % 64 != 0 {
                    continue;
                }
                for bit in 0..8 {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << bit;
                    let mut decoder = decoder(opened, &bytes);
                    let mut result = decoder.next();
                    if let (0..LENGTH, Ok(None)) = (at, &result) {
                        // It takes the following bytes for its own.
                        let rest = frame_length(&bytes).unwrap() - bytes.len();
                        decoder.back().resize(bytes.len() + rest, 0x5a);
                        result = decoder.next();
                    }
                    assert!(result.is_err(), "bit {bit} of byte {at} of {frame:?}: {result:?}");
                }
            }
        }
    }
}

#[test]
fn a_changed_frame_is_damaged_and_not_garbage() {
    let whole = bytes_of(&Frame::GossipWanted);
    for at in LENGTH..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert_eq!(decoder(true, &bytes).next(), Err(FrameError::Damaged));
    }
    let whole = bytes_of(&Frame::Hello(Box::new(handshake())));
    let after_version = LENGTH + 1 + 4 + 2;
    for at in after_version..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert_eq!(decoder(false, &bytes).next(), Err(FrameError::Damaged));
    }
}

#[test]
fn a_frame_too_short_for_its_checksum_is_garbage() {
    for length in 0..CHECKSUM {
        let bytes = [&(length as u32).to_be_bytes()[..], &[0; 8]].concat();
        assert_eq!(decoder(true, &bytes).next(), Err(FrameError::Garbage));
        assert_eq!(decoder(false, &bytes).next(), Err(FrameError::Garbage));
    }
    assert_eq!(decoder(true, &sealed(&[])).next(), Err(FrameError::Garbage));
}

#[test]
fn an_oversized_length_is_refused_before_its_body_is_there() {
    let over = |limit: usize| ((limit + 1) as u32).to_be_bytes();
    assert_eq!(decoder(false, &over(MAX_HELLO)).next(), Err(FrameError::Oversized(MAX_HELLO + 1)));
    assert_eq!(decoder(true, &over(MAX_FRAME)).next(), Err(FrameError::Oversized(MAX_FRAME + 1)));
    assert_eq!(decoder(true, &over(MAX_HELLO)).next(), Ok(None));
    assert_eq!(
        decoder(false, b"GET / HTTP/1.1\r\n").next(),
        Err(FrameError::Oversized(0x4745_5420))
    );
    let mut out = vec![1, 2, 3];
    let state = Frame::Gossip(vec![0; MAX_FRAME]);
    assert_eq!(
        encode(&state, PROTOCOL_VERSION, &mut out),
        Err(FrameError::Oversized(MAX_FRAME + 1 + 2 + CHECKSUM))
    );
    assert_eq!(out, [1, 2, 3]);
}

/// A decoder that did not would stop its link for ever.
#[test]
fn the_largest_batch_fits_into_a_frame_behind_the_rest_of_its_part() {
    let name = |number: usize| LockName::new(format!("{number:04096}").as_bytes()).unwrap();
    let names = |count| (0..count).map(name).collect::<Vec<_>>();
    let most = MAX_BATCH_NAMES / 4096;
    let batch = Want::Batch(Batch::new(names(most)).unwrap());
    let error = Batch::new(names(most + 1)).unwrap_err();
    assert_eq!((error.count, error.bytes), (most + 1, MAX_BATCH_NAMES + 4096));
    assert!(error.to_string().contains("257 with 1052672"), "{error}");

    let token = Token::new(Slot(900), 17);
    let (metadata, owner) = (Metadata::new(&[7; 4096]).unwrap(), OwnerId(u64::MAX));
    let hold = |want| {
        let (request, held_for, metadata) = (RequestId(8), Duration::MAX, metadata.clone());
        (
            ProcessId(u128::MAX),
            HoldReport {
                request,
                token,
                held_for,
                lock: LockRequest { want, owner, revocable: true, metadata },
            },
        )
    };
    let part = Config::new(info(1), Timing::lan()).limits.part_bytes as usize;
    let mut holds: Vec<_> = (0..part / 4096).map(|number| hold(Want::Lock(name(number)))).collect();
    holds.push(hold(batch));
    let message = Message::Grantor(GrantorMessage::TableChunk {
        service: ServiceName::new(&"s".repeat(255)).unwrap(),
        epoch: Epoch(token),
        objects: Box::default(),
        holds,
        waits: Vec::new(),
        last: true,
    });
    let packet = Packet::Linked { view: ViewNumber(900), seq: u64::MAX, ack: u64::MAX, message };
    assert_eq!(encode(&Frame::Packet(packet), PROTOCOL_VERSION, &mut Vec::new()), Ok(()));
}

#[test]
fn a_stranger_is_read_no_further_than_one_hello() {
    let mut decoder = decoder(false, &[0; 1000]);
    assert_eq!(decoder.hello_room(), LENGTH + MAX_HELLO - 1000);
    decoder.back().resize(LENGTH + MAX_HELLO, 0);
    assert_eq!(decoder.hello_room(), 0);
}

#[test]
fn a_handshake_is_refused_after_the_handshake_and_everything_else_before_it() {
    for hello in hellos() {
        assert_eq!(decoder(true, &bytes_of(&hello)).next(), Err(FrameError::Garbage));
    }
    for frame in frames() {
        assert!(decoder(false, &bytes_of(&frame)).next().is_err());
    }
}

#[test]
fn one_order_follows_a_handshake_that_announces_it_and_nothing_else_does() {
    let order = Frame::Order(Box::new(request(Order::Force)));
    let after_handshake = |frame: &Frame| {
        let mut decoder = Decoder::new();
        decoder.await_order();
        decoder.back().extend_from_slice(&bytes_of(frame));
        decoder.next()
    };
    assert_eq!(after_handshake(&order), Ok(Some(order)));
    for frame in frames().into_iter().chain(hellos()) {
        let is_order = matches!(frame, Frame::Order(_));
        assert_eq!(after_handshake(&frame).is_ok(), is_order, "{frame:?}");
    }
    let nameless = OrderRequest { cluster: String::new(), ..request(Order::Leave) };
    let nameless = bytes_of(&Frame::Order(Box::new(nameless)));
    assert_eq!(decoder(false, &nameless).next(), Err(FrameError::Garbage));
}

#[test]
fn messages_of_a_session_follow_its_order_and_come_nowhere_else() {
    for message in [SessionMessage::KeepAlive(u64::MAX), SessionMessage::Release] {
        let frame = Frame::Session(message);
        let mut session = Decoder::new();
        session.await_session();
        session.back().extend_from_slice(&bytes_of(&frame));
        assert_eq!(session.next(), Ok(Some(frame.clone())));
        for is_open in [false, true] {
            assert_eq!(decoder(is_open, &bytes_of(&frame)).next(), Err(FrameError::Garbage));
        }
    }
    for frame in frames().into_iter().chain(hellos()) {
        let mut session = Decoder::new();
        session.await_session();
        session.back().extend_from_slice(&bytes_of(&frame));
        assert!(session.next().is_err(), "{frame:?}");
    }
}

#[test]
fn reports_on_an_order_come_out_as_they_went_in_and_only_as_an_answer() {
    let holder = ReportedHolder {
        info: HolderInfo {
            name: None,
            process: ProcessId(7),
            request: RequestId(3),
            owner: 7,
            token: Token::new(Slot(1), 1),
            mode: Mode::Lock,
            revocable: true,
            metadata: Metadata::new(b"till 3").unwrap(),
            held_for: Duration::from_secs(1),
        },
        addr: Some("127.0.0.1:7400".parse().unwrap()),
        member: Some(MemberName::new("pod-0").unwrap()),
        lease: HoldLease::Left(Duration::from_secs(3)),
    };
    let blocker = ReportedBlocker {
        depth: 3,
        wait: None,
        service: ServiceName::new("stock").unwrap(),
        holder: holder.clone(),
        is_sure: true,
        circle: Some(Circle::Possible),
    };
    let metadata = Metadata::new(b"till 3").unwrap();
    let waiter = ReportedWaiter {
        info: WaiterInfo {
            process: ProcessId(8),
            owner: 7,
            metadata,
            mode: Mode::Share,
            request: Some(RequestId(3)),
        },
        addr: None,
        member: None,
    };
    for report in [
        OrderReport::Told(holder.clone()),
        OrderReport::Holder(holder.clone()),
        OrderReport::Blocker(Box::new(blocker)),
        OrderReport::ChainCut,
        OrderReport::Waiter(waiter),
        OrderReport::MoreWaiters(7),
        OrderReport::Unsure(holder.clone(), "cut off".into()),
        OrderReport::More(7),
        OrderReport::ForceNotAllowed(holder.clone()),
        OrderReport::NotHeld,
        OrderReport::NoService,
        OrderReport::Done { complete: true },
        OrderReport::Failed("busy".into()),
    ] {
        let frame = Frame::Report(Box::new(report));
        let mut asking = Decoder::for_answer();
        asking.back().extend_from_slice(&bytes_of(&frame));
        assert_eq!(asking.next(), Ok(Some(frame.clone())));
        for opened in [true, false] {
            assert_eq!(decoder(opened, &bytes_of(&frame)).next(), Err(FrameError::Garbage));
        }
    }
}

#[test]
fn another_version_is_told_apart_from_garbage() {
    let version = LENGTH + 1 + 4;
    for hello in hellos() {
        let mut bytes = bytes_of(&hello);
        let other = Versions { lowest: PROTOCOL_VERSION + 1, highest: PROTOCOL_VERSION + 2 };
        bytes[version..version + 2].copy_from_slice(&other.highest.to_be_bytes());
        bytes[version + 2..version + 4].copy_from_slice(&other.lowest.to_be_bytes());
        // All following bytes are of the other version and must not matter.
        bytes[version + 4..].fill(0xff);
        assert_eq!(decoder(false, &bytes).next(), Err(FrameError::Versions(other)));
        bytes[LENGTH + 1] ^= 1;
        assert_eq!(decoder(false, &bytes).next(), Err(FrameError::Garbage));
    }
}

/// The first version had no checksum: its refusal is read all the same, and its hello is told which
/// version is here.
#[test]
fn the_version_without_checksums_is_told_apart() {
    let first = |kind: u8| [&[0, 0, 0, 9, kind][..], b"EldT", &[0, 1, 2, 3]].concat();
    let told = FrameError::Versions(Versions { lowest: 1, highest: 1 });
    for kind in [HELLO, WELCOME, REFUSED, QUESTION] {
        assert_eq!(decoder(false, &first(kind)).next(), Err(told.clone()));
    }
    let mut asking = Decoder::for_answer();
    asking.back().extend_from_slice(&first(REFUSED));
    assert_eq!(asking.next(), Err(told.clone()));
}

#[test]
fn a_handshake_without_cluster_or_with_an_address_that_cannot_be_dialled_is_garbage() {
    let port_zero = MemberInfo { addr: "10.0.0.5:0".parse().unwrap(), ..info(1) };
    let nowhere = MemberInfo { addr: "0.0.0.0:7400".parse().unwrap(), ..info(1) };
    for wrong in [
        Handshake { cluster: String::new(), ..handshake() },
        Handshake { cluster: "x".repeat(MAX_CLUSTER + 1), ..handshake() },
        Handshake { reserved: vec![0; MAX_RESERVED + 1], ..handshake() },
        Handshake { me: port_zero, ..handshake() },
        Handshake { me: nowhere, ..handshake() },
    ] {
        assert_eq!(
            decoder(false, &bytes_of(&Frame::Hello(Box::new(wrong)))).next(),
            Err(FrameError::Garbage)
        );
    }
    let full = Handshake {
        cluster: "x".repeat(MAX_CLUSTER),
        me: info(1),
        reserved: vec![0; MAX_RESERVED],
    };
    assert!(decoder(false, &bytes_of(&Frame::Hello(Box::new(full)))).next().is_ok());
}

#[test]
fn a_sealed_packet_stands_in_relays_only() {
    let sealed = Packet::Sealed { is_notice: true, bytes: vec![1, 2, 3] };
    let (from, packet) = (Box::new(info(1)), Box::new(sealed.clone()));
    let to = ProcessId(2);
    let relay = Packet::Relay { from, to, troubled: false, heard: None, packet };
    let mut out = vec![9];
    assert_eq!(
        encode(&Frame::Packet(sealed), PROTOCOL_VERSION, &mut out),
        Err(FrameError::Garbage)
    );
    assert_eq!(out, [9]);
    let of_relay = body_of(&Frame::Packet(relay));
    let mut alone = [&[FLAT][..], &PROTOCOL_VERSION.to_be_bytes()].concat();
    // The kind of the packet, the flag, and three bytes with their number.
    alone.extend_from_slice(&of_relay[of_relay.len() - 6..]);
    assert_eq!(read_body(&alone, false), Err(FrameError::Garbage));
    assert!(matches!(read_body(&of_relay, true), Ok(Frame::Packet(Packet::Relay { .. }))));
}

#[test]
fn a_relay_in_a_relay_is_neither_written_nor_read() {
    let inner = Packet::Relay {
        from: Box::new(info(1)),
        to: ProcessId(2),
        troubled: false,
        heard: None,
        packet: Box::new(Packet::from(Notice::Leave)),
    };
    let (from, packet) = (Box::new(info(1)), Box::new(inner.clone()));
    let outer = Packet::Relay { from, to: ProcessId(2), troubled: false, heard: None, packet };
    let mut out = vec![9];
    assert_eq!(encode(&Frame::Packet(outer), PROTOCOL_VERSION, &mut out), Err(FrameError::Garbage));
    assert_eq!(out, [9]);
    // A relay whose body claims the fourth kind of packet, as often as fits.
    let head = body_of(&Frame::Packet(inner));
    let mut body = head[..head.len() - 2].to_vec();
    let level: Vec<u8> = [&[3][..], &head[3..head.len() - 2]].concat();
    while body.len() + level.len() + CHECKSUM < MAX_FRAME {
        body.extend_from_slice(&level);
    }
    assert_eq!(decoder(true, &sealed(&body)).next(), Err(FrameError::Garbage));
}

#[test]
fn an_unsound_view_is_garbage() {
    let mut view = View::first(Slot(1), vec![info(1)], Timing::lan(), 7);
    view.members[0].ghost = true;
    for notice in [Notice::full_view(&view), Notice::Found { attempt: 1, view }] {
        let bytes = bytes_of(&Frame::Packet(notice.into()));
        assert_eq!(decoder(true, &bytes).next(), Err(FrameError::Garbage));
    }
}

/// xorshift64*: enough chance for garbage, the same in every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[test]
fn garbage_never_panics() {
    let mut chance = Chance(0x5eed);
    let whole: Vec<Vec<u8>> =
        frames().iter().chain(&hellos()).map(body_of).filter(|b| b.len() < 600).collect();
    let (mut refused, mut taken) = (0, 0);
    for round in 0..100_000 {
        let body = if round % 2 == 0 {
            // Noise with a kind in front, so that the decoders behind it are reached.
            let mut body: Vec<u8> =
                (0..1 + chance.below(64)).map(|_| chance.next() as u8).collect();
            body[0] %= 8;
            body
        } else {
            let mut body = whole[chance.below(whole.len())].clone();
            for _ in 0..1 + chance.below(4) {
                let at = chance.below(body.len());
                body[at] = chance.next() as u8;
            }
            body
        };
        // The stream gets the right checksum: with a wrong one nothing would be decoded.
        let bytes = sealed(&body);
        match decoder(round % 3 != 0, &bytes).next() {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    // Both ways were really taken.
    assert!(refused > 10_000 && taken > 1_000, "{refused} refused, {taken} taken");
}

#[test]
fn a_refusal_shows_the_name_of_another_cluster_escaped() {
    let text = HandshakeRefusal::ForeignCluster("shed\u{1b}[2J\n".into()).to_string();
    assert_eq!(text, "it belongs to cluster 'shed\\u{1b}[2J\\n'");
}

#[test]
fn a_strangers_frames_are_short_and_of_its_linked_packets_only_the_head_is_read() {
    let read = |frame: &Frame, is_strange: bool| {
        let mut decoder = decoder(true, &bytes_of(frame));
        decoder.set_strange(is_strange);
        decoder.next()
    };
    let service = ServiceName::new(&"x".repeat(200)).unwrap();
    let message = Message::Registry(RegistryMessage::FindGrantor { service, heard: None });
    let linked = Packet::Linked { view: ViewNumber(9), seq: 5, ack: 3, message };
    let head = Packet::Ack { view: ViewNumber(9), ack: 3, again: false };
    let relayed = |packet: &Packet| {
        let packet = Box::new(packet.clone());
        let from = Box::new(handshake().me);
        Frame::Packet(Packet::Relay {
            from,
            to: ProcessId(2),
            troubled: false,
            heard: None,
            packet,
        })
    };
    let notice = Packet::from(Notice::Leave);
    for (whole, strange) in [
        (Frame::Packet(linked.clone()), Frame::Packet(head.clone())),
        (relayed(&linked), relayed(&head)),
        (Frame::Packet(notice.clone()), Frame::Packet(notice.clone())),
        (relayed(&notice), relayed(&notice)),
    ] {
        assert_eq!(read(&whole, false), Ok(Some(whole.clone())));
        assert_eq!(read(&whole, true), Ok(Some(strange)));
    }
    let long = Frame::Gossip(vec![0; MAX_STRANGE_FRAME]);
    assert_eq!(read(&long, false), Ok(Some(long.clone())));
    assert!(matches!(read(&long, true), Err(FrameError::Oversized(_))));
}

#[test]
fn a_frame_beyond_the_rate_is_dropped_before_it_is_decoded() {
    let frames = [1, 2, 3].map(|byte| Frame::Gossip(vec![byte; 100]));
    let mut bytes = frames.each_ref().map(bytes_of);
    // It would break the connection.
    *bytes[1].last_mut().expect("it has bytes") ^= 1;
    let mut decoder = Decoder::new();
    decoder.open();
    decoder.back().extend_from_slice(&bytes.concat()[..bytes.concat().len() - 1]);
    assert!(!decoder.skip_unless(|| true));
    assert_eq!(decoder.next(), Ok(Some(frames[0].clone())));
    assert!(decoder.skip_unless(|| false));
    assert!(!decoder.skip_unless(|| unreachable!("the last frame is not whole")));
    decoder.back().extend_from_slice(&bytes[2][bytes[2].len() - 1..]);
    assert_eq!(decoder.next(), Ok(Some(frames[2].clone())));
    // One that is too long is not a frame to skip, but an error.
    decoder.back().extend_from_slice(&u32::MAX.to_be_bytes());
    assert!(!decoder.skip_unless(|| false));
    assert!(matches!(decoder.next(), Err(FrameError::Oversized(_))));
}
