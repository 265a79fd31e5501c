//! The handshake with a key: any bytes in place of each of its three packets, and the right packets
//! with bytes changed. Nothing but the packets themselves is taken; nothing panics.
#![no_main]

use elderlock::protocol::MemberInfo;
use elderlock::wire::VERSIONS;
use elderlock::wire::secure::{
    ClusterKey, HandshakeSetup, Initiator, Keyring, Purpose, Responder, SecureError, StaticKey,
};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// Both sides, and the packets of a handshake between them.
struct Scene {
    ring: Keyring,
    dialler: StaticKey,
    listener: StaticKey,
    packets: [Vec<u8>; 3],
}

fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(|| {
        let key = ClusterKey::from_bytes(&std::array::from_fn(|number| number as u8));
        let key = key.expect("its bytes differ");
        let ring = Keyring::new(key.clone());
        let (dialler, listener) = (StaticKey::new([1; 32]), StaticKey::new([2; 32]));
        let (initiator, initiate) = Initiator::start(&key, &setup(&dialler)).expect("a good name");
        let (_, respond) = answer(&ring, &listener, &initiate).expect("it fits");
        let purpose = Purpose::Member(info(&dialler));
        let (_, confirm) = initiator.finish(&respond, &purpose).expect("it fits");
        Scene { ring, dialler, listener, packets: [initiate, respond, confirm] }
    })
}

fn answer(
    ring: &Keyring,
    listener: &StaticKey,
    packet: &[u8],
) -> Result<(Responder, Vec<u8>), SecureError> {
    Responder::answer(ring, &setup(listener), &info(listener), packet)
}

fn setup(identity: &StaticKey) -> HandshakeSetup<'_> {
    HandshakeSetup { cluster: "shop", versions: VERSIONS, identity, entropy: [3; 32] }
}

fn info(identity: &StaticKey) -> MemberInfo {
    let info = MemberInfo::new(identity.process(), ([127, 0, 0, 1], 7400).into());
    MemberInfo { static_key: Some(identity.public()), ..info }
}

// The first byte chooses the packet. It also tells whether the rest stands in the place of that
// packet, or says where and how the right packet is changed.
fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    let scene = scene();
    let number = usize::from(how % 3);
    let right = &scene.packets[number];
    let packet = if how & 0x80 == 0 {
        rest.to_vec()
    } else {
        let mut packet = right.clone();
        for change in rest.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % packet.len();
            packet[at] ^= change[2];
        }
        packet
    };
    let started = || Initiator::start(scene.ring.first(), &setup(&scene.dialler));
    let answer = |packet: &[u8]| answer(&scene.ring, &scene.listener, packet);
    let is_taken = match number {
        0 => answer(&packet).is_ok(),
        1 => started().expect("a good name").0.finish(&packet, &Purpose::Status(None)).is_ok(),
        _ => answer(&scene.packets[0]).expect("it fits").0.finish(&packet).is_ok(),
    };
    assert_eq!(is_taken, packet == *right, "packet {number}");
});
