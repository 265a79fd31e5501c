mod recorded;
mod samples;

use super::*;
use crate::protocol::id::MAX_BATCH_NAMES;
use crate::protocol::message::{HoldReport, LockRequest};
use crate::protocol::{
    Batch, Config, Epoch, GrantorMessage, HolderInfo, LockName, MemberInfo, MemberName, Message,
    Metadata, Mode, Notice, OwnerId, ProcessId, RegistryMessage, RequestId, ServiceName, Slot,
    Timing, Token, View, ViewNumber, WaiterInfo, Want,
};
use crate::wire::{
    Circle, HoldLease, MAX_CLUSTER, MAX_RESERVED, Order, PROTOCOL_VERSION, ReportedBlocker,
    ReportedHolder, ReportedWaiter, SessionRequest, SessionStop, VERSIONS,
};
use samples::{frames, handshake, hellos, info, packets, request};
use std::time::Duration;

/// The member was added at the end of the form.
#[test]
fn a_question_of_an_older_program_is_for_the_member_that_hears_it() {
    let question = |of| {
        let (cluster, reserved, mut bytes) = ("shop".to_owned(), Vec::new(), Vec::new());
        let question = StatusQuery { cluster, versions: VERSIONS, reserved, of };
        question.write(&mut bytes).unwrap();
        bytes
    };
    let member_in = |bytes: &[u8]| StatusQuery::read(bytes).map(|question| question.of);
    let (newer, of) = (question(None), Some(ProcessId(7)));
    let older = &newer[..newer.len() - 1];
    assert_eq!(member_in(&question(of)), Ok(of));
    assert_eq!((member_in(&newer), member_in(older)), (Ok(None), Ok(None)));
    // A member of an older release reads the front of the question.
    assert!(question(of).starts_with(older));
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

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, PROTOCOL_VERSION, &mut bytes).unwrap();
    bytes
}

/// Puts the right length in front of these bytes, and the right checksum behind them.
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
                // The names of 4096 equal bytes would take minutes in a debug build and add no new
                // case.
                if cut > 300 && cut + 300 < whole.len() && cut % 64 != 0 {
                    continue;
                }
                // The frame is incomplete, so more bytes are needed.
                let mut bytes = whole[..cut].to_vec();
                assert_eq!(decoder(opened, &bytes).next(), Ok(None));
                if cut < LENGTH {
                    continue;
                }
                // The frame is complete by its length, but short.
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

/// No frame is decoded, at once or when the rest of the stream has come.
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
                        // The damaged frame takes the following bytes for its own.
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

/// A decoder that refused such a frame would stop its link for ever.
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
        kept: true,
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
    let stops = [SessionStop::LeaseEnds, SessionStop::Unconfirmed, SessionStop::MemberLeaves];
    let messages = [SessionMessage::KeepAlive(u64::MAX), SessionMessage::Release];
    for message in messages.into_iter().chain(stops.map(SessionMessage::Stopped)) {
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
        OrderReport::CarriedOutBy {
            member: MemberName::new("pod-0").unwrap(),
            process: ProcessId(7),
            addr: ([127, 0, 0, 1], 7400).into(),
        },
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

/// The first version had no checksum. Its refusal is read nevertheless, and its hello is answered
/// with the version that is spoken here.
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
    // A relay that begins with the fourth kind of packet, as often as fits.
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

/// xorshift64*: random enough for garbage, and the same in every run.
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
            // Random bytes behind the number of a kind, so that the decoders of all kinds are
            // reached.
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
    // Both outcomes really occurred.
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
    // The wrong checksum would break the connection, if the frame were read.
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
    // A frame that is too long is not a frame to skip, but an error.
    decoder.back().extend_from_slice(&u32::MAX.to_be_bytes());
    assert!(!decoder.skip_unless(|| false));
    assert!(matches!(decoder.next(), Err(FrameError::Oversized(_))));
}
