use super::handshake::process_of;
use super::*;
use crate::protocol::{MemberInfo, Packet, ProcessId, StaticPublicKey, Versions, ViewNumber};
use crate::wire::version::FROZEN;
use crate::wire::{MAX_HELLO, PROTOCOL_VERSION, Role, VERSIONS, codec};
use std::net::SocketAddr;
use std::sync::Arc;

fn key(seed: u8) -> ClusterKey {
    let mut bytes = [seed; 32];
    bytes[0] = !seed;
    ClusterKey::from_bytes(&bytes).unwrap()
}

fn identity(seed: u8) -> StaticKey {
    StaticKey::new([seed; 32])
}

/// A process with this key that claims this id.
fn info(identity: &StaticKey, process: ProcessId) -> MemberInfo {
    let info = MemberInfo::new(process, SocketAddr::from(([127, 0, 0, 1], 7400)));
    MemberInfo { static_key: Some(identity.public()), ..info }
}

/// One side of a handshake.
struct Side {
    cluster: &'static str,
    versions: Versions,
    ring: Keyring,
    identity: StaticKey,
    claims: ProcessId,
    entropy: [u8; 32],
}

impl Side {
    fn new(seed: u8) -> Side {
        let identity = identity(seed);
        let claims = identity.process();
        Side {
            cluster: "shop",
            versions: VERSIONS,
            ring: Keyring::new(key(1)),
            identity,
            claims,
            entropy: [seed + 100; 32],
        }
    }

    fn setup(&self) -> HandshakeSetup<'_> {
        let Side { cluster, versions, identity, entropy, .. } = self;
        HandshakeSetup { cluster, versions: *versions, identity, entropy: *entropy }
    }

    fn start(&self) -> (Initiator, Vec<u8>) {
        Initiator::start(self.ring.first(), &self.setup()).unwrap()
    }

    fn answer(&self, initiate: &[u8]) -> Result<(Responder, Vec<u8>), SecureError> {
        Responder::answer(&self.ring, &self.setup(), &info(&self.identity, self.claims), initiate)
    }

    fn purpose(&self) -> Purpose {
        Purpose::Member(info(&self.identity, self.claims))
    }
}

/// Shakes hands, and returns the sessions of both sides.
fn shake(dialler: &Side, listener: &Side) -> Result<(Session, Session), SecureError> {
    let (initiator, initiate) = dialler.start();
    let (responder, respond) = listener.answer(&initiate)?;
    let (ours, confirm) = initiator.finish(&respond, &dialler.purpose())?;
    Ok((ours, responder.finish(&confirm)?))
}

fn sealed(sealer: &mut Sealer, frames: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    sealer.seal(frames, &mut out).unwrap();
    out
}

fn opened(opener: &mut Opener, record: &[u8]) -> Result<Vec<u8>, Forged> {
    let mut record = record.to_vec();
    opener.open(&mut record).map(<[u8]>::to_vec)
}

#[test]
fn both_sides_know_each_other_and_open_what_the_other_seals() {
    let (dialler, listener) = (Side::new(1), Side::new(2));
    let (mut ours, mut theirs) = shake(&dialler, &listener).unwrap();
    assert_eq!(ours.purpose, listener.purpose());
    assert_eq!(theirs.purpose, dialler.purpose());
    assert_eq!((ours.key, theirs.key), (key(1).name(), key(1).name()));
    for text in [&b"first"[..], b"second"] {
        let record = sealed(&mut ours.sealer, text);
        assert!(!record.windows(text.len()).any(|part| part == text));
        assert_eq!(opened(&mut theirs.opener, &record).unwrap(), text);
        let record = sealed(&mut theirs.sealer, text);
        assert_eq!(opened(&mut ours.opener, &record).unwrap(), text);
    }
}

#[test]
fn every_mismatch_has_an_error_of_its_own() {
    let (dialler, listener) = (Side::new(1), Side::new(2));
    let refused = |dialler: &Side| shake(dialler, &listener).map(|_| ()).unwrap_err();
    assert_eq!(
        refused(&Side { ring: Keyring::new(key(9)), ..Side::new(1) }),
        SecureError::UnknownKey
    );
    assert_eq!(refused(&Side { cluster: "shed", ..Side::new(1) }), SecureError::OtherCluster);
    let newer = Versions { lowest: VERSIONS.highest + 1, highest: VERSIONS.highest + 3 };
    assert_eq!(refused(&Side { versions: newer, ..Side::new(1) }), SecureError::Versions(newer));
    let claimed = ProcessId(7);
    assert_eq!(
        refused(&Side { claims: claimed, ..Side::new(1) }),
        SecureError::Impostor { claimed }
    );
    let liar = Side { claims: claimed, ..Side::new(2) };
    assert_eq!(shake(&dialler, &liar).map(|_| ()).unwrap_err(), SecureError::Impostor { claimed });
}

#[test]
fn a_listener_opens_with_each_key_of_its_ring_and_says_which() {
    let both = Keyring::new(key(1)).with(key(2)).unwrap();
    let listener = Side { ring: both, ..Side::new(2) };
    for seed in [1, 2] {
        let dialler = Side { ring: Keyring::new(key(seed)), ..Side::new(1) };
        let (ours, theirs) = shake(&dialler, &listener).unwrap();
        assert_eq!((ours.key, theirs.key), (key(seed).name(), key(seed).name()));
    }
}

#[test]
fn the_highest_common_version_is_chosen_and_a_lower_one_is_noticed() {
    let wide = |seed| Side { versions: Versions { lowest: 3, highest: 9 }, ..Side::new(seed) };
    let narrow = Side { versions: Versions { lowest: 5, highest: 7 }, ..Side::new(2) };
    assert_eq!(shake(&wide(1), &narrow).unwrap().0.version, 7);
    // The range is lowered on the way: the tag covers it, and so does the transcript behind the
    // tag.
    let (_, mut initiate) = wide(1).start();
    initiate[..2].copy_from_slice(&5_u16.to_be_bytes());
    assert_eq!(wide(2).answer(&initiate).map(|_| ()).unwrap_err(), SecureError::UnknownKey);
    let (initiator, initiate) = wide(1).start();
    let (_, mut respond) = narrow.answer(&initiate).unwrap();
    respond[..2].copy_from_slice(&5_u16.to_be_bytes());
    let noticed = initiator.finish(&respond, &Purpose::Status(None)).map(|_| ()).unwrap_err();
    assert_eq!(noticed, SecureError::Downgraded(7));
}

#[test]
fn no_packet_is_taken_cut_or_with_a_bit_turned_over() {
    let (dialler, listener) = (Side::new(1), Side::new(2));
    let (_, initiate) = dialler.start();
    let (_, respond) = listener.answer(&initiate).unwrap();
    let (initiator, _) = dialler.start();
    let (_, confirm) = initiator.finish(&respond, &dialler.purpose()).unwrap();
    for (number, packet) in [&initiate, &respond, &confirm].into_iter().enumerate() {
        let takes = |packet: &[u8]| match number {
            0 => listener.answer(packet).is_ok(),
            1 => dialler.start().0.finish(packet, &dialler.purpose()).is_ok(),
            _ => listener.answer(&initiate).unwrap().0.finish(packet).is_ok(),
        };
        assert!(takes(packet), "the whole packet {number} is taken");
        for cut in 0..packet.len() {
            assert!(!takes(&packet[..cut]), "packet {number} cut to {cut}");
        }
        for turned in 0..packet.len() {
            let mut other = packet.clone();
            other[turned] ^= 1 << (turned % 8);
            assert!(!takes(&other), "packet {number} with byte {turned} changed");
        }
        assert!(!takes(&[packet.as_slice(), &[0]].concat()), "packet {number} with a byte more");
    }
}

#[test]
fn a_recorded_session_adopts_nothing() {
    let (dialler, listener) = (Side::new(1), Side::new(2));
    let (initiator, initiate) = dialler.start();
    let (_, respond) = listener.answer(&initiate).unwrap();
    let (_, confirm) = initiator.finish(&respond, &dialler.purpose()).unwrap();
    // The same listener in another handshake, with another ephemeral key.
    let later = Side { entropy: [77; 32], ..Side::new(2) };
    let (responder, _) = later.answer(&initiate).unwrap();
    assert_eq!(responder.finish(&confirm).map(|_| ()).unwrap_err(), SecureError::Forged);
    let again = Side { entropy: [78; 32], ..Side::new(1) };
    assert_eq!(
        again.start().0.finish(&respond, &Purpose::Status(None)).map(|_| ()).unwrap_err(),
        SecureError::Forged
    );
}

#[test]
fn records_repeated_left_out_exchanged_cut_or_changed_are_refused() {
    let records: Vec<Vec<u8>> = {
        let mut sealer = Sealer::at([3; 32], 0);
        (0..4_u8).map(|number| sealed(&mut sealer, &[number; 100])).collect()
    };
    let opener = || Opener::at([3; 32], 0);
    let all = |order: &[usize]| -> Vec<bool> {
        let mut opener = opener();
        order.iter().map(|number| opened(&mut opener, &records[*number]).is_ok()).collect()
    };
    assert_eq!(all(&[0, 1, 2, 3]), [true; 4]);
    assert_eq!(all(&[0, 0]), [true, false]);
    assert_eq!(all(&[1]), [false]);
    assert_eq!(all(&[0, 2]), [true, false]);
    for turned in 0..records[0].len() {
        let mut other = records[0].clone();
        other[turned] ^= 4;
        let is_whole = Opener::length(&other) == Ok(Some(other.len()));
        assert!(!is_whole || opened(&mut opener(), &other).is_err(), "byte {turned}");
    }
    for cut in 2..records[0].len() {
        assert!(opened(&mut opener(), &records[0][..cut]).is_err());
    }
    assert!(opened(&mut Opener::at([4; 32], 0), &records[0]).is_err(), "another key");
    for length in [0, TAG as u16, (TAG + MAX_RECORD + 1) as u16, u16::MAX] {
        assert_eq!(Opener::length(&length.to_be_bytes()), Err(Forged), "{length}");
    }
    assert_eq!(Opener::length(&[0]), Ok(None));
}

#[test]
fn long_writes_share_records_and_keys_are_replaced_in_step() {
    let start = REKEY_AFTER - 2;
    let (mut sealer, mut opener) = (Sealer::at([3; 32], start), Opener::at([3; 32], start));
    let frames: Vec<u8> = (0..5 * MAX_RECORD + 17).map(|number| number as u8).collect();
    let mut stream = sealed(&mut sealer, &frames);
    let (mut out, mut rest, mut records) = (Vec::new(), stream.as_mut_slice(), 0);
    while let Some(length) = Opener::length(rest).unwrap() {
        let (record, behind) = rest.split_at_mut(length);
        out.extend_from_slice(opener.open(record).unwrap());
        (rest, records) = (behind, records + 1);
    }
    assert_eq!((out, records), (frames, 6));
    // The old key opens no record of the new key.
    let mut old = Opener::at([3; 32], REKEY_AFTER + 1);
    let mut sealer = Sealer::at([3; 32], REKEY_AFTER);
    sealed(&mut sealer, b"first under the new key");
    assert!(opened(&mut old, &sealed(&mut sealer, b"second")).is_err());
}

#[test]
fn a_batch_of_any_length_is_sealed_in_place_behind_the_bytes_before_it() {
    let most = MAX_RECORD;
    for length in [1, 100, most - 1, most, most + 1, 2 * most, 2 * most + 1, 5 * most + 17] {
        let frames: Vec<u8> = (0..length).map(|number| (number * 7) as u8).collect();
        let mut one_by_one = Sealer::at([3; 32], 0);
        let records: Vec<u8> =
            frames.chunks(most).flat_map(|part| sealed(&mut one_by_one, part)).collect();
        let mut bytes = [&b"before"[..], &frames].concat();
        Sealer::at([3; 32], 0).seal_from(6, &mut bytes).unwrap();
        assert!(bytes == [&b"before"[..], &records].concat(), "{length} bytes");
    }
    let mut bytes = b"before".to_vec();
    Sealer::at([3; 32], 0).seal_from(6, &mut bytes).unwrap();
    assert_eq!(bytes, b"before", "no frames make no record");
    // The first record has the last number.
    let mut bytes = [&b"before"[..], &vec![5; most + 1]].concat();
    assert_eq!(Sealer::at([3; 32], u64::MAX - 1).seal_from(6, &mut bytes), Err(Exhausted));
    assert_eq!(bytes, b"before", "nothing leaves unsealed");
}

#[test]
fn no_number_is_used_twice_at_the_end() {
    let mut sealer = Sealer::at([3; 32], u64::MAX - 1);
    sealed(&mut sealer, b"last");
    assert_eq!(sealer.seal(b"none", &mut Vec::new()), Err(Exhausted));
    assert_eq!(sealer.seal(b"none", &mut Vec::new()), Err(Exhausted));
}

#[test]
fn a_window_takes_each_number_once_in_any_order_within_its_width() {
    let mut window = ReplayWindow::default();
    // The numbers come in groups, and in reverse order within each group.
    for group in 0..50 {
        for number in (group * 100..(group + 1) * 100).rev() {
            assert!(window.is_fresh(number) && window.note(number), "{number}");
            assert!(!window.is_fresh(number) && !window.note(number), "{number} again");
        }
    }
    let highest = 4999;
    assert!(window.note(highest + WINDOW));
    assert!(!window.note(highest), "noted before");
    assert!(window.note(highest + 1), "the oldest within the window");
    assert!(!window.is_fresh(highest + WINDOW));
    let far = 1 << 40;
    assert!(window.note(far) && !window.note(far - WINDOW) && window.note(far - WINDOW + 1));
    assert!(!window.note(u64::MAX), "the last number is none");
}

#[test]
fn the_text_of_keys_is_checked_and_never_printed() {
    let text = key(1).to_base64();
    assert_eq!(text.parse::<ClusterKey>().unwrap(), key(1));
    assert_eq!("no key!".parse::<ClusterKey>().unwrap_err(), KeyError::NotBase64);
    assert_eq!("c2hvcnQ=".parse::<ClusterKey>().unwrap_err(), KeyError::Length(5));
    assert_eq!(ClusterKey::from_bytes(&[5; 32]).unwrap_err(), KeyError::Weak);
    let ring =
        Keyring::parse(&format!("# new\n{}\n\n  {} \n", &*key(2).to_base64(), &*text)).unwrap();
    assert_eq!(ring.names().collect::<Vec<_>>(), [key(2).name(), key(1).name()]);
    assert_eq!(Keyring::parse("# none\n").unwrap_err(), KeyError::Empty);
    assert_eq!(ring.clone().with(key(1)).unwrap_err(), KeyError::Twice(key(1).name()));
    let full = (3..9).try_fold(ring.clone(), |ring, seed| ring.with(key(seed))).unwrap();
    assert_eq!(full.with(key(10)).unwrap_err(), KeyError::TooMany);
    let shown = format!("{ring:?} {:?} {:?} {:?}", key(1), Sealer::at([5; 32], 0), identity(1));
    assert!(!shown.contains(text.as_str()) && !shown.contains("5, 5"));
    assert!(shown.contains(&key(1).name().to_string()));
}

fn ring(keys: &[u8]) -> Keyring {
    let (first, more) = keys.split_first().unwrap();
    more.iter().fold(Keyring::new(key(*first)), |ring, seed| ring.with(key(*seed)).unwrap())
}

/// A member's gossip under a ring of these keys.
fn gossip(seed: u8, keys: &[u8]) -> SealedGossip {
    SealedGossip::new("shop", ProcessId(u128::from(seed)), ring(keys))
}

fn payload(from: &mut SealedGossip, to: u8, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(from.seal(ProcessId(u128::from(to)), text, &mut out));
    out
}

fn heard(by: &mut SealedGossip, datagram: &[u8]) -> Result<Vec<u8>, GossipError> {
    match by.open(&mut datagram.to_vec())? {
        OpenedDatagram::Payload(payload) => Ok(payload.to_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_datagram_is_heard_once_by_the_process_that_it_is_for() {
    let (mut one, mut two, mut three) = (gossip(1, &[1]), gossip(2, &[1]), gossip(3, &[1]));
    let datagram = payload(&mut one, 2, b"news");
    assert_eq!(heard(&mut three, &datagram), Err(GossipError::Misaddressed { from: ProcessId(1) }));
    assert_eq!(heard(&mut three, &datagram), Err(GossipError::Repeated));
    assert_eq!(heard(&mut two, &datagram).unwrap(), b"news");
    assert_eq!(heard(&mut two, &datagram), Err(GossipError::Repeated));
    let mut shed = SealedGossip::new("shed", ProcessId(2), Keyring::new(key(1)));
    assert_eq!(heard(&mut shed, &datagram), Err(GossipError::Forged));
    assert_eq!(heard(&mut gossip(2, &[9]), &datagram), Err(GossipError::Forged));
    // Another receiver starts later at the same address.
    assert!(matches!(
        heard(&mut gossip(4, &[1]), &datagram),
        Err(GossipError::Misaddressed { .. })
    ));
}

#[test]
fn no_datagram_is_heard_cut_or_with_a_bit_turned_over() {
    let datagram = payload(&mut gossip(1, &[1]), 2, b"news");
    for cut in 0..datagram.len() {
        assert!(gossip(2, &[1]).open(&mut datagram[..cut].to_vec()).is_err(), "{cut}");
    }
    for turned in 0..datagram.len() {
        let mut other = datagram.clone();
        other[turned] ^= 2;
        assert!(gossip(2, &[1]).open(&mut other).is_err(), "{turned}");
    }
}

#[test]
fn datagrams_are_heard_in_any_order_within_the_window_and_not_before_it() {
    let (mut one, mut two) = (gossip(1, &[1]), gossip(2, &[1]));
    let sent: Vec<_> = (0..=WINDOW).map(|_| payload(&mut one, 2, b"news")).collect();
    let newest = sent.len() - 1;
    assert!(heard(&mut two, &sent[newest]).is_ok());
    assert_eq!(heard(&mut two, &sent[0]), Err(GossipError::Repeated), "older than the window");
    for number in (1..newest).rev() {
        assert!(heard(&mut two, &sent[number]).is_ok(), "{number}");
    }
    for datagram in &sent {
        assert_eq!(heard(&mut two, datagram), Err(GossipError::Repeated));
    }
}

/// The result of a check on a planted break: an error if the check fails.
type Verdict = Result<(), &'static str>;

fn ensure(holds: bool, what: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(what) }
}

fn a_forged_high_number_does_not_move_the_window() -> Verdict {
    let (mut one, mut two) = (gossip(1, &[1]), gossip(2, &[1]));
    let mut forged = payload(&mut one, 2, b"news");
    forged[39..47].copy_from_slice(&(1_u64 << 40).to_be_bytes());
    ensure(heard(&mut two, &forged) == Err(GossipError::Forged), "a forged number is taken")?;
    ensure(heard(&mut two, &payload(&mut one, 2, b"more")).is_ok(), "the window has moved")
}

fn a_borrowed_id_is_refused_with_the_right_key() -> Verdict {
    let claimed = Side::new(3).claims;
    let result = shake(&Side { claims: claimed, ..Side::new(1) }, &Side::new(2));
    ensure(
        result.is_err_and(|error| error == SecureError::Impostor { claimed }),
        "an id is borrowed",
    )
}

fn a_packet_without_a_known_key_is_refused_before_curve_work() -> Verdict {
    let dialler = Side { ring: Keyring::new(key(9)), ..Side::new(1) };
    let answer = Side::new(2).answer(&dialler.start().1).map(|_| ());
    ensure(answer == Err(SecureError::UnknownKey), "the tag is not checked")
}

fn a_datagram_for_an_earlier_process_is_refused() -> Verdict {
    let recorded = payload(&mut gossip(1, &[1]), 2, b"news");
    ensure(heard(&mut gossip(4, &[1]), &recorded).is_err(), "a later process hears it")
}

fn a_lower_version_in_front_is_noticed() -> Verdict {
    let (dialler, listener) = (Side::new(1), Side::new(2));
    let (initiator, initiate) = dialler.start();
    let (_, mut respond) = listener.answer(&initiate).expect("it fits");
    respond[1] ^= 1;
    ensure(initiator.finish(&respond, &dialler.purpose()).is_err(), "a changed version is believed")
}

/// Shakes hands under `key` for this purpose, and returns the purpose that the listener sees.
fn purpose_under(key: ClusterKey, purpose: &Purpose) -> Result<Purpose, SecureError> {
    let (dialler, member) = (Side { ring: Keyring::new(key), ..Side::new(1) }, Side::new(2));
    let (initiator, initiate) = dialler.start();
    let (responder, respond) = member.answer(&initiate)?;
    let (_, confirm) = initiator.finish(&respond, purpose)?;
    responder.finish(&confirm).map(|session| session.purpose)
}

fn the_key_of_a_role_opens_no_more_than_the_role_allows() -> Verdict {
    let member = Side::new(1).purpose();
    for role in Role::ALL {
        let key = key(1).derive(role).expect("a cluster key derives all");
        let of = Some(ProcessId(7));
        let wants = [
            (Role::Observer, Purpose::Status(None)),
            (Role::Observer, Purpose::Status(of)),
            (Role::Operator, Purpose::Order),
        ];
        for (needed, purpose) in wants.into_iter().chain([(Role::Member, member.clone())]) {
            let result = purpose_under(key.clone(), &purpose);
            let expected = if role >= needed { Ok(purpose) } else { Err(SecureError::Role(role)) };
            ensure(result == expected, "a role does more or less than it allows")?;
        }
    }
    Ok(())
}

/// The member was added at the end of the form.
#[test]
fn a_status_question_of_an_older_process_is_for_the_member_that_hears_it() {
    let bytes_of = |purpose: &Purpose| {
        let mut bytes = Vec::new();
        codec::write(purpose, FROZEN, &mut bytes).unwrap();
        bytes
    };
    let newer = bytes_of(&Purpose::Status(None));
    let older = &newer[..newer.len() - 1];
    let read = codec::read_front::<Purpose, MAX_HELLO>(older, FROZEN).unwrap();
    assert_eq!(read.0, Purpose::Status(None));
    assert!(bytes_of(&Purpose::Status(Some(ProcessId(7)))).starts_with(older));
}

#[test]
fn the_key_of_a_role_is_a_key_of_its_own_that_members_do_not_take_for_theirs() {
    for role in [Role::Observer, Role::Operator] {
        let derived = key(1).derive(role).unwrap();
        assert_eq!((derived.role(), key(1).role()), (role, Role::Member));
        assert!(derived.name() != key(1).name());
        assert_eq!(derived.derive(role).unwrap(), derived);
        for other in Role::ALL.into_iter().filter(|other| *other != role) {
            assert_eq!(derived.derive(other), Err(KeyError::NotDerived(role, other)));
            assert!(key(1).derive(other).unwrap().name() != derived.name());
        }
        let text = derived.to_base64();
        assert_eq!(text.parse::<ClusterKey>().unwrap(), derived);
        // The same secret, read as a cluster key.
        let bare: ClusterKey = text.split_once(':').unwrap().1.parse().unwrap();
        assert!(bare != derived && bare.role() == Role::Member);
        for key in [derived, bare] {
            let ring = Keyring::new(key);
            let (dialler, member) = (Side { ring: ring.clone(), ..Side::new(1) }, Side::new(2));
            assert_eq!(shake(&dialler, &member).map(|_| ()).unwrap_err(), SecureError::Role(role));
            let dialled = dialler.answer(&member.start().1).map(|_| ());
            assert_eq!(dialled, Err(SecureError::UnknownKey), "it answers no member");
            let mut gossiper = SealedGossip::new("shop", ProcessId(1), ring);
            let heard = heard(&mut gossip(2, &[1]), &payload(&mut gossiper, 2, b"news"));
            assert_eq!(heard, Err(GossipError::Forged));
        }
    }
    assert_eq!("observer".parse::<ClusterKey>(), Err(KeyError::Length(6)));
    assert_eq!("operator:".parse::<ClusterKey>(), Err(KeyError::Length(0)));
}

/// The packets that relays carry in these tests.
fn inner(seq: u64) -> Packet {
    Packet::Ack { view: ViewNumber(seq), ack: seq, again: false }
}

/// Two members, and the relays of each.
struct TwoEnds {
    one: MemberInfo,
    two: MemberInfo,
    ones: SealedRelays,
    twos: SealedRelays,
}

impl TwoEnds {
    fn new() -> TwoEnds {
        let (one, two) = (identity(1), identity(2));
        let of = |identity: &StaticKey| info(identity, identity.process());
        let (one_info, two_info) = (of(&one), of(&two));
        let relays = |identity| {
            let mut relays = SealedRelays::new(Arc::new(identity));
            relays.set_members([&one_info, &two_info].into_iter());
            relays
        };
        TwoEnds { ones: relays(one), twos: relays(two), one: one_info.clone(), two: two_info }
    }

    fn plain(&self, packet: Packet) -> Packet {
        let (from, packet) = (Box::new(self.one.clone()), Box::new(packet));
        let heard = Some(ProcessId(3));
        Packet::Relay { from, to: self.two.process, troubled: true, heard, packet }
    }

    /// A sealed packet from the first member to the second.
    fn seal(&mut self, seq: u64) -> Packet {
        let plain = self.plain(inner(seq));
        self.ones.seal(plain, PROTOCOL_VERSION).expect("the view has the key of the destination")
    }
}

/// The relay with one part changed, for each part that its seal covers.
fn changed(relay: &Packet) -> Vec<Packet> {
    let mut all = Vec::new();
    for part in 0..4 {
        let mut relay = relay.clone();
        let Packet::Relay { from, troubled, heard, packet, .. } = &mut relay else { return all };
        let Packet::Sealed { is_notice, .. } = &mut **packet else { return all };
        match part {
            0 => *troubled = false,
            1 => *heard = None,
            2 => from.addr.set_port(7401),
            _ => *is_notice = true,
        }
        all.push(relay);
    }
    let Packet::Relay { from, to, troubled, heard, packet } = relay else { return all };
    let Packet::Sealed { is_notice, bytes } = &**packet else { return all };
    let with = |bytes: Vec<u8>| {
        let packet = Box::new(Packet::Sealed { is_notice: *is_notice, bytes });
        Packet::Relay { from: from.clone(), to: *to, troubled: *troubled, heard: *heard, packet }
    };
    all.extend((0..bytes.len()).map(|length| with(bytes[..length].to_vec())));
    all.extend((0..bytes.len() * 8).map(|bit| {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        with(bytes)
    }));
    all
}

#[test]
fn a_relayed_packet_is_read_by_its_destination_alone_and_as_its_origin_sealed_it() {
    let mut ends = TwoEnds::new();
    let relay = ends.seal(5);
    let text = format!("{relay:?}");
    assert!(!text.contains("Ack"), "the packet is hidden: {text}");
    // A third member passes the packet on, and cannot open it.
    let mut third = SealedRelays::new(Arc::new(identity(3)));
    third.set_members([&ends.one, &ends.two].into_iter());
    assert_eq!(third.open(relay.clone(), false), Ok(relay.clone()));
    assert_eq!(third.seal(relay.clone(), PROTOCOL_VERSION), Some(relay.clone()));
    let forged = RelayError::Forged(ends.one.process);
    for changed in changed(&relay) {
        assert_eq!(ends.twos.open(changed.clone(), false), Err(forged), "{changed:?}");
    }
    assert_eq!(ends.twos.open(relay, false), Ok(ends.plain(inner(5))));
    let mut back = TwoEnds::new();
    std::mem::swap(&mut back.one, &mut back.two);
    std::mem::swap(&mut back.ones, &mut back.twos);
    let relay = back.seal(6);
    assert_eq!(back.twos.open(relay, false), Ok(back.plain(inner(6))));
}

#[test]
fn relayed_packets_are_opened_in_any_order_within_the_window_and_not_before_it() {
    let mut ends = TwoEnds::new();
    let relays: Vec<Packet> = (0..WINDOW + 2).map(|seq| ends.seal(seq)).collect();
    let last = relays.len() - 1;
    let repeated = RelayError::Repeated(ends.one.process);
    for number in [3, 1, last, 5] {
        let opened = ends.twos.open(relays[number].clone(), false);
        assert_eq!(opened, Ok(ends.plain(inner(number as u64))), "{number}");
    }
    for number in [3, 1, last, 5, 0] {
        assert_eq!(ends.twos.open(relays[number].clone(), false), Err(repeated), "{number}");
    }
}

#[test]
fn no_relay_is_sealed_for_a_process_without_a_key_that_proves_its_id() {
    let mut ends = TwoEnds::new();
    for static_key in [None, ends.one.static_key, Some(StaticPublicKey([0; 32]))] {
        let two = MemberInfo { static_key, ..ends.two.clone() };
        ends.ones.set_members([&ends.one, &two].into_iter());
        assert_eq!(ends.ones.seal(ends.plain(inner(1)), PROTOCOL_VERSION), None, "{static_key:?}");
    }
    let (public, purpose) = (StaticPublicKey([0; 32]), "a point of low order");
    let id = process_of(&public.0);
    let low = MemberInfo { static_key: Some(public), ..MemberInfo::new(id, ends.two.addr) };
    ends.ones.set_members([&low].into_iter());
    let mut plain = ends.plain(inner(1));
    if let Packet::Relay { to, .. } = &mut plain {
        *to = id;
    }
    assert_eq!(ends.ones.seal(plain, PROTOCOL_VERSION), None, "{purpose}");
    assert_eq!(identity(1).agree(&public.0), None, "{purpose}");
}

fn a_relayed_packet_without_a_seal_is_refused() -> Verdict {
    let mut ends = TwoEnds::new();
    let plain = ends.plain(inner(1));
    let refused = Err(RelayError::Unsealed(ends.one.process));
    ensure(ends.twos.open(plain, false) == refused, "a relay speaks for another member")
}

fn a_relayed_packet_is_opened_once() -> Verdict {
    let mut ends = TwoEnds::new();
    let relay = ends.seal(1);
    ensure(ends.twos.open(relay.clone(), false).is_ok(), "it is refused")?;
    let repeated = Err(RelayError::Repeated(ends.one.process));
    ensure(ends.twos.open(relay, false) == repeated, "a relayed packet is repeated")
}

fn a_relay_cannot_seal_in_the_name_of_another() -> Verdict {
    let mut ends = TwoEnds::new();
    // The relay seals with its own key, and names the first member as the origin.
    let impostor = StaticKey::of_impostor([3; 32], ends.one.process);
    let from = Box::new(info(&impostor, ends.one.process));
    let mut third = SealedRelays::new(Arc::new(impostor));
    third.set_members([&ends.two].into_iter());
    let (to, packet) = (ends.two.process, Box::new(inner(1)));
    let relay = Packet::Relay { from, to, troubled: false, heard: None, packet };
    let Some(forged) = third.seal(relay, PROTOCOL_VERSION) else { return Err("it does not seal") };
    let refused = Err(RelayError::Impostor(ends.one.process));
    ensure(ends.twos.open(forged, false) == refused, "a relay seals for another member")
}

const CHECKS: [fn() -> Verdict; 9] = [
    a_forged_high_number_does_not_move_the_window,
    a_borrowed_id_is_refused_with_the_right_key,
    a_packet_without_a_known_key_is_refused_before_curve_work,
    a_datagram_for_an_earlier_process_is_refused,
    a_lower_version_in_front_is_noticed,
    the_key_of_a_role_opens_no_more_than_the_role_allows,
    a_relayed_packet_without_a_seal_is_refused,
    a_relayed_packet_is_opened_once,
    a_relay_cannot_seal_in_the_name_of_another,
];

#[test]
fn every_check_of_the_planted_breaks_holds() {
    for check in CHECKS {
        assert_eq!(check(), Ok(()));
    }
}

#[cfg(elderlock_mutants)]
#[test]
fn every_planted_break_is_found() {
    for planted in mutant::KeyMutant::ALL {
        mutant::plant(Some(planted));
        let found = CHECKS.iter().any(|check| check().is_err());
        mutant::plant(None);
        assert!(found, "{planted:?} is not found");
    }
}

#[test]
fn gossip_goes_on_while_keys_are_rotated() {
    let (mut one, mut two) = (gossip(1, &[1]), gossip(2, &[1]));
    let mut talk = |ours: Option<&[u8]>, theirs: Option<&[u8]>| {
        ours.into_iter().for_each(|keys| one.set_keyring(ring(keys)));
        theirs.into_iter().for_each(|keys| two.set_keyring(ring(keys)));
        let (there, back) = (payload(&mut one, 2, b"a"), payload(&mut two, 1, b"b"));
        (heard(&mut two, &there).is_ok(), heard(&mut one, &back).is_ok())
    };
    assert_eq!(talk(None, None), (true, true));
    assert_eq!(talk(Some(&[1, 2]), None), (true, true));
    assert_eq!(talk(None, Some(&[1, 2])), (true, true));
    assert_eq!(talk(Some(&[2, 1]), None), (true, true));
    assert_eq!(talk(None, Some(&[2, 1])), (true, true));
    assert_eq!(talk(Some(&[2]), None), (true, true));
    assert_eq!(talk(None, Some(&[2])), (true, true));
    assert_eq!(talk(Some(&[1]), None), (false, false), "the old key is refused");
}

#[test]
fn a_question_for_the_process_at_an_address_is_answered_once_each() {
    let (mut one, mut two) = (gossip(1, &[1]), gossip(2, &[1]));
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    assert!(one.ask_id(&mut question));
    assert_eq!(two.open(&mut question.clone()), Ok(OpenedDatagram::IdQuestion(ProcessId(1))));
    assert_eq!(two.open(&mut question.clone()), Err(GossipError::Repeated));
    assert!(two.answer_id(ProcessId(1), &mut answer));
    assert!(answer.len() <= question.len(), "an answer is no longer than its question");
    assert_eq!(one.open(&mut answer), Ok(OpenedDatagram::IdAnswer(ProcessId(2))));
}
