//! Inputs from outside: hints and packets. Messages about locks arrive on links.

use super::super::id::MemberInfo;
use super::*;
use std::net::SocketAddr;

impl Node {
    pub(super) fn on_hint(&mut self, now: Time, hint: Hint, out: &mut Vec<Output>) {
        let (cluster, mut step) = self.parts(out);
        cluster.on_hint(now, hint, &mut step);
    }

    pub(super) fn on_packet(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        packet: Packet,
        out: &mut Vec<Output>,
    ) {
        let (cluster, mut step) = self.parts(out);
        cluster.on_packet_of(now, from, &mut step);
        match packet {
            Packet::Notice(notice) => cluster.on_notice(now, from, addr, *notice, &mut step),
            Packet::Linked { view: theirs, seq, ack, message } => {
                if let Some(view) = cluster.known_sender(now, from, addr, theirs, &mut step) {
                    let standing = cluster.standing(now);
                    planted!(=> step.plant_repeat(now, (from, seq), &message, &standing));
                    let (first, more) = step.links.on_linked(
                        now,
                        standing.info,
                        &view,
                        from,
                        (seq, ack),
                        message,
                        step.out,
                    );
                    if let Some(message) = first {
                        step.on_message(now, from, message, &standing);
                    }
                    for message in more {
                        step.on_message(now, from, message, &standing);
                    }
                }
            }
            Packet::Ack { view: theirs, ack, again } => {
                if let Some(view) = cluster.known_sender(now, from, addr, theirs, &mut step) {
                    step.links.on_ack(now, &cluster.config().me, &view, from, ack, again, step.out);
                }
            }
            Packet::Relay { from: origin, to, troubled, heard, packet } => {
                self.on_relay(now, from, *origin, (to, troubled, heard), *packet, out);
            }
            // The driver of the destination should have opened it, so this member has no key for
            // it.
            Packet::Sealed { .. } => {}
            Packet::VoteSuccessor { claim, me, lineage, notice } => {
                let claim = (*claim, lineage);
                cluster.on_packet_of_successor(now, (from, *me), claim, *notice, &mut step);
            }
        }
    }

    /// Handles a packet that this member relays, or that came to it through another member. A
    /// packet on a detour shows that its sender has trouble with the direct path; so do the answers
    /// to it.
    fn on_relay(
        &mut self,
        now: Time,
        relay: ProcessId,
        origin: MemberInfo,
        (to, troubled, heard): (ProcessId, bool, Option<ProcessId>),
        packet: Packet,
        out: &mut Vec<Output>,
    ) {
        if matches!(packet, Packet::Relay { .. })
            || origin.process == self.process()
            || !(self.cluster.takes_relays_of(relay)
                || to != self.process() && self.cluster.is_own_relay(relay, &origin))
        {
            return;
        }
        if to == self.process() {
            if let Some(view) = self.cluster.view()
                && view.contains(origin.process)
            {
                if troubled {
                    self.links.trouble(now, origin.process, false, &view.timing);
                }
                self.links.on_relayed(now, origin.process, relay, heard, &view.timing);
            }
            self.on_packet(now, origin.process, origin.addr, packet, out);
        } else if let Some(member) = self.cluster.view().and_then(|view| view.member(to)) {
            let packet = Packet::Relay {
                from: Box::new(origin),
                to,
                troubled,
                heard,
                packet: Box::new(packet),
            };
            out.push(Output::Send { to: member.info.addr, process: Some(to), packet });
        }
    }
}
