//! Damaged bytes on a connection, as the receiver meets them: through the very decoder that ships.
//!
//! A damaged packet is written as a frame, damaged, and read again. A damaged length swallows or
//! cuts the following frames. So later packets of the connection go the same way until the decoder
//! is in step again. All decoded packets are accepted: the checksum must reject any changed
//! content. So damage has three outcomes:
//!
//! - the decoder refuses the frame: the connection breaks, and all packets under way are lost;
//! - the decoder waits for more bytes than were sent, and swallows the following frames. It goes on
//!   until it has enough and refuses, or until the runtime's time for a frame is over: then the
//!   connection breaks as well;
//! - the frame is as it was, because the damage changed nothing.

use crate::chance::mix;
use crate::world::{PacketInTransit, ScheduledEvent, World};
use elderlock::wire::{self, Decoder, Frame};
use std::collections::VecDeque;

/// A connection that carries damaged bytes.
#[derive(Debug)]
pub(crate) struct Stream {
    decoder: Decoder,
    /// The packets that were put in and have not come out.
    sent: VecDeque<PacketInTransit>,
    /// The beginning of the unfinished frame.
    begun: Option<u64>,
}

impl Clone for Stream {
    /// Half a frame cannot be copied; copied Worlds have no damaged connections.
    fn clone(&self) -> Self {
        unreachable!("a World with a damaged connection is not copied")
    }
}

/// The outcomes of damaged frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DamageCounts {
    /// Frames that were damaged.
    pub damaged: u64,
    /// Connections that broke because of damaged frames.
    pub broken: u64,
    /// Broken connections with a frame that did not end in time.
    pub unfinished: u64,
}

impl Default for Stream {
    fn default() -> Stream {
        let mut decoder = Decoder::new();
        // The handshake was long ago.
        decoder.open();
        Stream { decoder, sent: VecDeque::new(), begun: None }
    }
}

/// The receiver's results of a stream.
enum StreamInput {
    /// The sent packet, or the packet that was decoded in its place.
    Read(Box<PacketInTransit>),
    Broken,
}

impl Stream {
    fn put(&mut self, parcel: PacketInTransit) {
        let mut bytes = Vec::new();
        if wire::encode(&Frame::Packet(parcel.packet.clone()), wire::PROTOCOL_VERSION, &mut bytes)
            .is_err()
        {
            return;
        }
        if let Some(luck) = parcel.damage {
            damage(&mut bytes, luck);
        }
        self.decoder.back().extend_from_slice(&bytes);
        self.sent.push_back(parcel);
    }

    fn get(&mut self, like: &PacketInTransit) -> Option<StreamInput> {
        match self.decoder.next() {
            Err(_) => Some(StreamInput::Broken),
            Ok(None) => None,
            Ok(Some(Frame::Packet(packet))) => {
                match self.sent.iter().position(|parcel| parcel.packet == packet) {
                    Some(at) => self
                        .sent
                        .drain(..=at)
                        .next_back()
                        .map(|parcel| StreamInput::Read(Box::new(parcel))),
                    None => Some(StreamInput::Read(Box::new(PacketInTransit {
                        packet,
                        ..like.clone()
                    }))),
                }
            }
            Ok(Some(_)) => self.get(like),
        }
    }
}

/// Changes some of the bytes, or takes some away.
pub fn damage(bytes: &mut Vec<u8>, luck: u64) {
    if bytes.is_empty() {
        return;
    }
    let ask = |question: u64| mix(&[luck, question]) as usize;
    let at = ask(1) % bytes.len();
    match ask(0) % 8 {
        0..4 => bytes[at] ^= 1 << (ask(2) % 8),
        4 => bytes[at] = ask(2) as u8,
        5 => bytes.truncate(at),
        6 => bytes[at..].fill(0),
        _ => bytes.insert(at, ask(2) as u8),
    }
}

impl World {
    /// A packet comes to the end of a connection on which something is damaged.
    pub(crate) fn read_damaged(&mut self, parcel: PacketInTransit) {
        let way = (parcel.from, parcel.to);
        let (from, to) = way;
        let like = parcel.clone();
        self.damages.damaged += u64::from(parcel.damage.is_some());
        let mut stream = self.streams.remove(&way).unwrap_or_default();
        stream.put(parcel);
        while let Some(got) = stream.get(&like) {
            match got {
                StreamInput::Read(parcel) => {
                    stream.begun = None;
                    self.hand_over(*parcel);
                }
                StreamInput::Broken => {
                    self.damages.broken += 1;
                    self.note(to, |_| {
                        format!("    breaks the connection with m{from}: it carries nonsense")
                    });
                    self.reset(from, to);
                    return;
                }
            }
        }
        if !stream.decoder.is_empty() {
            if stream.begun.is_none() {
                stream.begun = Some(self.now);
                // The runtime has the same time limit.
                let limit = (self.common.timing.member_lease / 2).as_nanos() as u64;
                self.schedule(limit, ScheduledEvent::FrameEnds { from, to, begun: self.now });
            }
            self.streams.insert(way, stream);
        }
    }

    /// A frame's time is over. If that frame is still unfinished, its connection breaks.
    pub(crate) fn end_unfinished(&mut self, from: usize, to: usize, begun: u64) {
        if self.streams.get(&(from, to)).is_some_and(|stream| stream.begun == Some(begun)) {
            self.damages.broken += 1;
            self.damages.unfinished += 1;
            self.note(to, |_| {
                format!("    breaks the connection with m{from}: a frame does not end")
            });
            self.reset(from, to);
        }
    }

    /// The outcomes of damaged frames.
    pub fn damages(&self) -> DamageCounts {
        self.damages
    }
}
