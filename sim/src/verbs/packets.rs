//! Rules for single packets: they are kept back, or lost.

use crate::kind::{KINDS, kind};
use crate::network::MS;
use crate::rule::{PacketDescription, PacketFate, Rule, RuleId};
use crate::world::{ScheduledEvent, World};
use std::sync::Arc;

impl World {
    /// Keeps back every packet that matches, until [`let_go`](Self::let_go).
    pub fn hold(
        &mut self,
        test: impl Fn(&PacketDescription<'_>) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        self.rules.push(Rule { test: Arc::new(test), fate: PacketFate::Hold, matched: 0 });
        RuleId(self.rules.len() - 1)
    }

    /// Keeps back packets of a kind from one member to another.
    #[track_caller]
    pub fn hold_kind(&mut self, from: usize, to: usize, what: &'static str) -> RuleId {
        assert!(KINDS.contains(&what), "no packet is called {what}");
        self.hold(move |flight| {
            flight.from == from && flight.to == to && kind(flight.packet) == what
        })
    }

    /// Drops the next packet of a kind from one member to another.
    #[track_caller]
    pub fn drop_next(&mut self, from: usize, to: usize, what: &'static str) -> RuleId {
        assert!(KINDS.contains(&what), "no packet is called {what}");
        self.drop_next_of(move |flight| {
            flight.from == from && flight.to == to && kind(flight.packet) == what
        })
    }

    /// Drops the next packet that matches.
    pub fn drop_next_of(
        &mut self,
        test: impl Fn(&PacketDescription<'_>) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        self.rules.push(Rule { test: Arc::new(test), fate: PacketFate::Drop(1), matched: 0 });
        RuleId(self.rules.len() - 1)
    }

    /// How many packets a rule has matched.
    pub fn matched(&self, rule: RuleId) -> usize {
        self.rules[rule.0].matched
    }

    /// Ends a rule and sends its kept packets on their way now, in order.
    pub fn let_go(&mut self, rule: RuleId) {
        self.rules[rule.0].fate = PacketFate::Over;
        let (kept, rest) = std::mem::take(&mut self.held_packets)
            .into_iter()
            .partition(|(index, _)| *index == rule.0);
        self.held_packets = rest;
        for (_, parcel) in kept {
            self.schedule(MS / 5, ScheduledEvent::Packet(Arc::new(parcel)));
        }
    }

    /// Ends a rule and drops its kept packets.
    pub fn drop_held(&mut self, rule: RuleId) {
        self.rules[rule.0].fate = PacketFate::Over;
        self.held_packets.retain(|(index, _)| *index != rule.0);
    }
}
