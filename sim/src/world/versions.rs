//! Members of two versions: their packets go through the codec, each in the version in which its
//! sender encodes it.

use super::{Observation, World};
use elderlock::protocol::{Packet, ProcessId, Versions};
use elderlock::wire::{Decoder, Frame, VERSIONS, encode};

impl World {
    /// The first processes at these sites are of an earlier release, which speaks the versions up
    /// to this one. All later processes, and those of other sites, speak all versions of this
    /// build. Without such sites packets do not pass the codec.
    pub fn older(mut self, sites: &[usize], highest: u16) -> World {
        self.common.has_versions |= !sites.is_empty();
        for site in sites {
            self.sites[*site].older = Some(Versions { lowest: VERSIONS.lowest, highest });
        }
        self
    }

    /// The packet as its receiver decodes it. `None`: no process there speaks the version in which
    /// it is sent, and it is dropped.
    pub(super) fn recoded(
        &mut self,
        from: usize,
        to: usize,
        wanted: Option<ProcessId>,
        packet: Packet,
    ) -> Option<Packet> {
        let spoken = self.sites[to].node.as_ref().map(|node| node.versions());
        let node = self.sites[from].node.clone()?;
        let version = node.version_to_encode(spoken);
        // A connection is dialled first, and its handshake tells the versions of the process there.
        let spoken = spoken.unwrap_or(VERSIONS);
        let is_member = wanted
            .filter(|wanted| self.sites[to].process() == Some(*wanted))
            .is_some_and(|wanted| node.view().is_some_and(|view| view.contains(wanted)));
        if is_member {
            self.tell(&Observation::Encoded { from, to, version, spoken });
        }
        if !spoken.contains(version) {
            return None;
        }
        let mut decoder = Decoder::new();
        decoder.open();
        encode(&Frame::Packet(packet), version, decoder.back()).ok()?;
        match decoder.next() {
            Ok(Some(Frame::Packet(packet))) => Some(packet),
            _ => None,
        }
    }
}
