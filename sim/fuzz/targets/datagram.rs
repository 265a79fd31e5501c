//! The datagram decoder, and gossip behind it: any bytes as a datagram, or as the payload of a good
//! one. An opened datagram is sealed to the same bytes and does not open in another cluster. A
//! decoded payload encodes and decodes to the same. A gossiping member takes any payload without a
//! panic, answers with nothing that is too long, and another member can read its state.
#![no_main]

use elderlock::gossip::{MAX_PACKET, Swim, SwimId, SwimInput, SwimOutput};
use elderlock::protocol::{MemberInfo, ProcessId, Time};
use elderlock::wire::{DatagramError, GossipCodec, open, seal};
use foca::Codec;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

const CLUSTER: &str = "shop";

// The first byte tells whether the rest is a datagram or a payload.
fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    let mut datagram = rest.to_vec();
    if how & 1 != 0 && !seal(CLUSTER, rest, &mut datagram) {
        return;
    }
    let Ok(payload) = open(CLUSTER, &datagram) else { return };
    let mut again = Vec::new();
    assert!(seal(CLUSTER, payload, &mut again) && again == datagram, "sealed to other bytes");
    for other in ["shed", "sho", "shop2"] {
        assert!(
            open(other, &datagram) == Err(DatagramError::ForeignCluster),
            "it opens in another cluster"
        );
    }
    read(payload);
    hear(payload);
});

/// Reads a payload as foca does: a header, then members.
fn read(mut payload: &[u8]) {
    let mut codec = GossipCodec;
    let Ok(header) = Codec::<SwimId>::decode_header(&mut codec, &mut payload) else { return };
    let mut written = Vec::new();
    codec.encode_header(&header, &mut written).expect("a decoded value can be encoded");
    assert_eq!(Codec::<SwimId>::decode_header(&mut codec, &written[..]).ok(), Some(header));
    while let Ok(member) = Codec::<SwimId>::decode_member(&mut codec, &mut payload) {
        written.clear();
        codec.encode_member(&member, &mut written).expect("a decoded value can be encoded");
        assert_eq!(Codec::<SwimId>::decode_member(&mut codec, &written[..]).ok(), Some(member));
    }
}

/// Gives a payload to a member that gossips already.
fn hear(payload: &[u8]) {
    let addr = |port| SocketAddr::from(([10, 0, 0, 5], port));
    let swim = |port: u16| {
        let (process, addr) = (ProcessId(port.into()), addr(port));
        let me = MemberInfo::new(process, addr);
        Swim::new(&me, 3, 5, GossipCodec, 5)
    };
    let (mut swim, mut other) = (swim(7400), swim(7402));
    let mut now = Time::from_nanos(1_000_000_000);
    let mut out = Vec::new();
    swim.step(now, SwimInput::Seeds(BTreeSet::from([addr(7401)])), &mut out);
    swim.step(now, SwimInput::Datagram(payload), &mut out);
    swim.step(now, SwimInput::State(payload), &mut out);
    for _ in 0..8 {
        let Some(deadline) = swim.deadline() else { break };
        now = deadline.max(now + Duration::from_millis(1));
        swim.step(now, SwimInput::Timer, &mut out);
    }
    other.step(now, SwimInput::State(&swim.state()), &mut Vec::new());
    assert_eq!(other.refused(), 0, "another member cannot read this member's state");
    for output in &out {
        if let SwimOutput::Send { data, .. } = output {
            assert!(data.len() <= MAX_PACKET, "{} bytes", data.len());
        }
    }
}
