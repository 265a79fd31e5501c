//! Damaged bytes on a connection, as the receiver meets them: through the very decoder that ships.
//!
//! A damaged packet is written as a frame, damaged, and read again. What follows it on the connection goes the same way
//! until the decoder is in step again, for a damaged length swallows or cuts what comes behind it. Four things come of
//! damage:
//!
//! - the decoder refuses the frame: the connection breaks, and all that was on its way is lost;
//! - the decoder waits for more than was sent, and swallows what follows, until that is enough;
//! - the frame is as it was, because the damage undid itself or hit nothing that counts;
//! - the frame says something else. A frame has no checksum of its own, so nothing in this house would notice. TCP's
//!   does, but for one damaged segment in 65,536: what it drops it sends again. So what says something else is counted
//!   and lost, unless the World is [`credulous`](World::credulous).

use crate::chance::mix;
use crate::world::{Parcel, World};
use elderlock::protocol::Packet;
use elderlock::wire::{self, Decoder, Frame};
use std::collections::VecDeque;

/// A connection that carries damaged bytes.
#[derive(Debug)]
pub(crate) struct Stream {
    decoder: Decoder,
    /// What was put in and has not come out.
    sent: VecDeque<Parcel>,
}

/// What came of damaged frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damages {
    /// Frames that were damaged.
    pub damaged: u64,
    /// Connections that broke because of it.
    pub broken: u64,
    /// Frames that said something else.
    pub different: u64,
}

impl Default for Stream {
    fn default() -> Stream {
        let mut decoder = Decoder::new();
        // The handshake was long ago.
        decoder.open();
        Stream { decoder, sent: VecDeque::new() }
    }
}

/// What the receiver gets of a stream.
enum Got {
    AsSent(Parcel),
    Other(Option<Packet>),
    Broken,
}

impl Stream {
    fn put(&mut self, parcel: Parcel) {
        let mut bytes = Vec::new();
        if wire::encode(&Frame::Packet(parcel.packet.clone()), &mut bytes).is_err() {
            return;
        }
        if let Some(luck) = parcel.damage {
            damage(&mut bytes, luck);
        }
        self.decoder.back().extend_from_slice(&bytes);
        self.sent.push_back(parcel);
    }

    fn get(&mut self) -> Option<Got> {
        match self.decoder.next() {
            Err(_) => Some(Got::Broken),
            Ok(None) => None,
            Ok(Some(Frame::Packet(packet))) => match self.sent.iter().position(|parcel| parcel.packet == packet) {
                Some(at) => self.sent.drain(..=at).next_back().map(Got::AsSent),
                None => Some(Got::Other(Some(packet))),
            },
            Ok(Some(_)) => Some(Got::Other(None)),
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
    pub(crate) fn read_damaged(&mut self, parcel: Parcel) {
        let way = (parcel.from, parcel.to);
        let (from, to) = way;
        let like = parcel.clone();
        self.damages.damaged += u64::from(parcel.damage.is_some());
        let mut stream = self.streams.remove(&way).unwrap_or_default();
        stream.put(parcel);
        while let Some(got) = stream.get() {
            match got {
                Got::AsSent(parcel) => self.hand_over(parcel),
                Got::Other(packet) => {
                    self.damages.different += 1;
                    self.note(to, |_| format!("    damaged on its way from m{from}, and says something else"));
                    if let Some(packet) = packet.filter(|_| self.credulous) {
                        self.hand_over(Parcel { packet, ..like.clone() });
                    }
                }
                Got::Broken => {
                    self.damages.broken += 1;
                    self.note(to, |_| format!("    breaks the connection with m{from}: it carries nonsense"));
                    self.reset(from, to);
                    return;
                }
            }
        }
        if !stream.decoder.is_empty() {
            self.streams.insert(way, stream);
        }
    }

    /// What came of damaged frames.
    pub fn damages(&self) -> Damages {
        self.damages
    }
}
