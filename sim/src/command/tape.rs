//! `tape`: shows the run of a tape of the fuzzer, or writes the fuzzer's initial inputs.

use elderlock::gossip::{Swim, SwimInput, SwimOutput};
use elderlock::protocol::{Host, MemberInfo, Packet, ProcessId, Time};
use elderlock::wire::{
    Frame, GossipCodec, Handshake, HandshakeRefusal, Order, OrderReport, OrderRequest,
    PROTOCOL_VERSION, StatusQuery, VERSIONS, encode, seal, write_vote,
};
use elderlock_sim::World;
use elderlock_sim::chance::Rng;
use elderlock_sim::kind::kind;
use elderlock_sim::tape::tell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// The options of `tape`.
#[derive(Debug, clap::Args)]
pub(crate) struct TapeOptions {
    /// The tape: the input that a crash of the fuzz target `world` left.
    #[arg(required_unless_present = "seeds")]
    file: Option<PathBuf>,
    /// Writes a few inputs for each fuzz target into folders below this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "file")]
    seeds: Option<PathBuf>,
}

pub(crate) fn run(options: &TapeOptions) -> ExitCode {
    let done = match (&options.file, &options.seeds) {
        (Some(file), _) => show(file),
        (None, Some(folder)) => write_seeds(folder).map(|()| ExitCode::SUCCESS),
        (None, None) => Ok(ExitCode::from(2)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

fn show(file: &Path) -> io::Result<ExitCode> {
    let tape = std::fs::read(file)?;
    let told = tell(&tape, |world| world);
    println!("{}", told.log.to_script());
    Ok(match told.world.broken() {
        Some(found) => {
            println!(
                "{} is broken at {:.6} s: {}",
                found.invariant,
                found.at as f64 / 1e9,
                found.what
            );
            ExitCode::FAILURE
        }
        None => {
            let whole = if told.complete {
                "everything works in the end"
            } else {
                "a quorum was lost for good"
            };
            println!(
                "{} events, {} grants; {whole}",
                told.world.events(),
                told.world.history().grants
            );
            ExitCode::SUCCESS
        }
    })
}

/// The number of tapes.
const TAPES: u64 = 48;

fn tape(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, 7);
    (0..rng.between(40, 160)).map(|_| rng.roll() as u8).collect()
}

/// Writes tapes of random numbers, one packet of each kind that those runs send, and a little
/// gossip.
fn write_seeds(folder: &Path) -> io::Result<()> {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder.join(target))?;
        std::fs::write(folder.join(target).join(name), bytes)
    };
    let packets: Arc<Mutex<BTreeMap<String, Packet>>> = Arc::default();
    let listening = |mut world: World| {
        let packets = packets.clone();
        world.hold(move |flight| {
            let relayed = if matches!(flight.packet, Packet::Relay { .. }) { "Relay-" } else { "" };
            let name = format!("{relayed}{}", kind(flight.packet));
            packets
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(name)
                .or_insert_with(|| flight.packet.clone());
            false
        });
        world
    };
    let mut status = None;
    for seed in 0..TAPES {
        let tape = tape(seed);
        let told = tell(&tape, listening);
        status = status.or_else(|| told.world.status(0));
        write("world", &format!("rng-{seed}"), &tape)?;
    }

    let addr = SocketAddr::from(([10, 0, 0, 5], 7401));
    let host = Some(Host { boot: 5, namespace: 6, pid: 7, started: 8 });
    let me = MemberInfo { host, ..MemberInfo::new(ProcessId(9), addr) };
    let handshake = Handshake { cluster: "shop".into(), me: me.clone(), reserved: vec![1] };
    // The first byte is the stage of the connection at which the frame comes, see
    // `fuzz/targets/frame.rs`.
    let mut frames = vec![
        (0, "Hello".to_string(), Frame::Hello(handshake.clone().into())),
        (0, "Welcome".to_string(), Frame::Welcome(handshake.into())),
        (0, "Refused".to_string(), Frame::Refused(HandshakeRefusal::ForeignCluster("shed".into()))),
        (
            0,
            "Question".to_string(),
            Frame::Question(StatusQuery {
                cluster: "shop".into(),
                versions: VERSIONS,
                reserved: Vec::new(),
                of: None,
            }),
        ),
        (
            0,
            "Order".to_string(),
            Frame::Order(Box::new(OrderRequest {
                cluster: "shop".into(),
                versions: VERSIONS,
                order: Order::Leave,
            })),
        ),
        (1, "Report".to_string(), Frame::Report(Box::new(OrderReport::Done { complete: true }))),
        (2, "GossipWanted".to_string(), Frame::GossipWanted),
        (2, "Gossip".to_string(), Frame::Gossip(vec![7; 20])),
    ];
    frames.extend(
        status.map(|status| (1, "StatusIs".to_string(), Frame::StatusIs(Box::new(status)))),
    );
    let packets = std::mem::take(&mut *packets.lock().unwrap_or_else(PoisonError::into_inner));
    frames.extend(packets.into_iter().map(|(name, packet)| (2, name, Frame::Packet(packet))));
    for (stage, name, frame) in frames {
        let mut bytes = Vec::new();
        encode(&frame, PROTOCOL_VERSION, &mut bytes).map_err(io::Error::other)?;
        // A stream with corrected checksums, and the body between length and checksum.
        write("frame", &name, &[&[stage | 8, 255][..], &bytes].concat())?;
        write(
            "frame",
            &format!("{name}-body"),
            &[&[stage | 4, 255], &bytes[4..bytes.len() - 4]].concat(),
        )?;
    }

    let mut world = World::new(7).members(3).durable();
    world.settle();
    for vote in (0..3).filter_map(|site| world.disk(site).map(|vote| (site, vote))) {
        let bytes = write_vote("shop", &vote.1).map_err(io::Error::other)?;
        // The first byte: a whole file, or only the part that its checksum covers, see
        // `fuzz/targets/vote.rs`.
        write("vote", &format!("file-{}", vote.0), &[&[0][..], &bytes].concat())?;
        write("vote", &format!("body-{}", vote.0), &[&[1][..], &bytes[20..]].concat())?;
    }

    for (number, payload) in gossip(&me).iter().enumerate() {
        // The first byte: the payload of a datagram, or a whole datagram, see
        // `fuzz/targets/datagram.rs`.
        write("datagram", &format!("gossip-{number}"), &[&[1][..], payload].concat())?;
        let mut datagram = Vec::new();
        if seal("shop", payload, &mut datagram) {
            write("datagram", &format!("datagram-{number}"), &[&[0][..], &datagram].concat())?;
        }
    }
    Ok(())
}

/// The gossip of two members in their first seconds.
fn gossip(me: &MemberInfo) -> Vec<Vec<u8>> {
    let other = MemberInfo::new(ProcessId(7), SocketAddr::from(([10, 0, 0, 5], 7400)));
    let mut swims = [me, &other].map(|member| Swim::new(member, 3, 5, GossipCodec, 5));
    let mut said: Vec<Vec<u8>> = Vec::new();
    let mut out = Vec::new();
    swims[0].step(Time::from_nanos(1), SwimInput::Seeds(BTreeSet::from([other.addr])), &mut out);
    for round in 0..40 {
        let now = Time::from_nanos(1 + round * 100_000_000);
        let mut arriving: Vec<(usize, Vec<u8>)> = Vec::new();
        for (at, swim) in swims.iter_mut().enumerate() {
            swim.step(now, SwimInput::Timer, &mut out);
            for output in out.drain(..) {
                if let SwimOutput::Send { data, .. } = output {
                    arriving.push((1 - at, data));
                }
            }
        }
        for (at, data) in arriving {
            swims[at].step(now, SwimInput::Datagram(&data), &mut out);
            if said.len() < 16 && !said.contains(&data) {
                said.push(data);
            }
        }
    }
    said
}
