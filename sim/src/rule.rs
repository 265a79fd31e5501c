//! Rules that hold back or drop single packets of a scenario.

use elderlock::protocol::Packet;
use std::fmt;
use std::sync::Arc;

/// A packet on its way, as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct PacketDescription<'a> {
    /// The sender's site.
    pub from: usize,
    /// The site at the address it goes to.
    pub to: usize,
    /// The packet.
    pub packet: &'a Packet,
}

/// A rule's handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId(pub(crate) usize);

/// The fate of the packets that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketFate {
    /// The rule keeps the packet back until it is let go.
    Hold,
    /// The rule drops packets, this many more times.
    Drop(usize),
    /// The rule is no longer in force.
    Over,
}

type Test = Arc<dyn Fn(&PacketDescription<'_>) -> bool + Send + Sync>;

/// A rule for packets: a test and the fate of the packets that match it.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) test: Test,
    pub(crate) fate: PacketFate,
    /// Packets kept back: the sender's and receiver's site and the parcel's queue number.
    pub(crate) matched: usize,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({:?}, matched {})", self.fate, self.matched)
    }
}
