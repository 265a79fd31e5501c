//! The traffic of each site, in bytes on the wire, and the number of its inputs.

use crate::world::World;
use elderlock::protocol::Packet;
use elderlock::wire::{self, Frame};
use std::ops::Sub;

/// The traffic and the inputs of one site since the World began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Metered {
    /// Frames of the protocol that it sent.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
    /// Datagrams of the gossip that it sent.
    pub datagrams: u64,
    /// Their bytes, without the headers of the network.
    pub datagram_bytes: u64,
    /// Inputs that its core was given.
    pub inputs: u64,
}

impl Metered {
    /// Bytes of all kinds.
    pub fn bytes(&self) -> u64 {
        self.frame_bytes + self.datagram_bytes
    }

    /// The average of several sites, rounded down.
    pub fn mean(of: &[Metered]) -> Metered {
        let mean =
            |what: fn(&Metered) -> u64| of.iter().map(what).sum::<u64>() / of.len().max(1) as u64;
        Metered {
            frames: mean(|one| one.frames),
            frame_bytes: mean(|one| one.frame_bytes),
            datagrams: mean(|one| one.datagrams),
            datagram_bytes: mean(|one| one.datagram_bytes),
            inputs: mean(|one| one.inputs),
        }
    }
}

impl Sub for Metered {
    type Output = Metered;

    fn sub(self, before: Metered) -> Metered {
        Metered {
            frames: self.frames - before.frames,
            frame_bytes: self.frame_bytes - before.frame_bytes,
            datagrams: self.datagrams - before.datagrams,
            datagram_bytes: self.datagram_bytes - before.datagram_bytes,
            inputs: self.inputs - before.inputs,
        }
    }
}

impl World {
    /// Counts the traffic of each site. It costs time: every frame is encoded.
    pub fn metered(mut self) -> World {
        self.meter = Some(Vec::new());
        self
    }

    /// The traffic and the inputs of the site; zero if they are not counted.
    pub fn meter(&self, site: usize) -> Metered {
        self.meter.as_ref().and_then(|meter| meter.get(site)).copied().unwrap_or_default()
    }

    pub(crate) fn meter_frame(&mut self, site: usize, packet: &Packet) {
        self.meter_at(site, |metered| {
            let mut bytes = Vec::new();
            // A packet that is too long for a frame would not be sent either.
            if wire::encode(&Frame::Packet(packet.clone()), wire::PROTOCOL_VERSION, &mut bytes)
                .is_ok()
            {
                metered.frames += 1;
                metered.frame_bytes += bytes.len() as u64;
            }
        });
    }

    pub(crate) fn meter_datagram(&mut self, site: usize, bytes: usize) {
        self.meter_at(site, |metered| {
            metered.datagrams += 1;
            metered.datagram_bytes += bytes as u64;
        });
    }

    pub(crate) fn meter_input(&mut self, site: usize) {
        self.meter_at(site, |metered| metered.inputs += 1);
    }

    fn meter_at(&mut self, site: usize, note: impl FnOnce(&mut Metered)) {
        let Some(meter) = &mut self.meter else { return };
        if meter.len() <= site {
            meter.resize(site + 1, Metered::default());
        }
        note(&mut meter[site]);
    }
}
