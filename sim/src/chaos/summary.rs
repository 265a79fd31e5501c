//! The results of many runs, counted.

use super::ChaosRun;
use crate::chance::mix;
use crate::rare::RareState;
use crate::stream::DamageCounts;
use crate::times::Timed;
use elderlock::protocol::Outcome;
use std::collections::BTreeMap;

/// The results of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of runs.
    pub seeds: u64,
    /// Inputs handled.
    pub events: u64,
    /// Virtual seconds.
    pub virtual_seconds: u64,
    /// Grants answered.
    pub grants: u64,
    /// Answers by kind.
    pub answers: BTreeMap<&'static str, u64>,
    /// Holds lost.
    pub lost: u64,
    /// Stale writes that the store refused.
    pub refused: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often the premise of each invariant held.
    pub premises: BTreeMap<&'static str, u64>,
    /// How often the premise of each invariant of the history checker held.
    pub offline: BTreeMap<&'static str, u64>,
    /// The number of runs that reached each rare state.
    pub rare: BTreeMap<&'static str, u64>,
    /// How long things took.
    pub timed: Timed,
    /// Runs that lost a quorum for good and that an operator forced to go on, by the cause of the
    /// loss.
    pub forced: BTreeMap<&'static str, u64>,
    /// Runs that show enough to count.
    pub counting: u64,
    /// Runs of which only a part was healed.
    pub parts: u64,
    /// Runs with real gossip.
    pub gossiping: u64,
    /// The numbers of damaged frames, of connections that broke because of them, and of broken
    /// connections with an unfinished frame.
    pub damages: [u64; 3],
    /// The digests of all runs, put together so that their order does not matter.
    pub digest: u64,
}

impl Summary {
    /// Adds a run.
    pub fn add(&mut self, run: &ChaosRun) {
        self.seeds += 1;
        self.events += run.world.events();
        self.virtual_seconds += run.world.seconds();
        self.grants += run.world.history().grants;
        self.refused += run.world.store.refused;
        if let Some(loss) = run.forced {
            *self.forced.entry(loss.name()).or_default() += 1;
        }
        self.counting += u64::from(run.falls_short().is_none());
        self.parts += u64::from(run.part);
        self.gossiping += u64::from(run.log.scene.gossip);
        let DamageCounts { damaged, broken, unfinished } = run.world.damages();
        for (sum, one) in self.damages.iter_mut().zip([damaged, broken, unfinished]) {
            *sum += one;
        }
        self.digest = self.digest.wrapping_add(mix(&[run.log.scene.seed, run.world.digest()]));
        for call in &run.world.history().calls {
            self.lost += u64::from(call.lost.is_some());
            let name = match &call.outcome {
                Some(Outcome::Granted { .. }) => "granted",
                Some(Outcome::Opened { .. }) => "opened",
                Some(Outcome::Written { .. }) => "written",
                Some(Outcome::Unwritten(_)) => "changed",
                Some(Outcome::NotOpen) => "not open",
                Some(Outcome::Upgraded { .. }) => "upgraded",
                Some(Outcome::Shared(_)) => "shared",
                Some(Outcome::Limit(_)) => "too few",
                Some(Outcome::TimedOut) => "timed out",
                Some(Outcome::Held(_)) => "held",
                Some(Outcome::Waited(_)) => "waited for",
                Some(Outcome::Undecided) => "undecided",
                Some(Outcome::Deadlock) => "deadlock",
                Some(Outcome::Won) => "won",
                Some(Outcome::Outbid(_)) => "superseded",
                Some(Outcome::Destroyed) => "destroyed",
                Some(Outcome::Unconfirmed) => "unconfirmed",
                Some(Outcome::Confirmed) => "confirmed",
                Some(Outcome::QueryReply(_) | Outcome::Holder(_)) => "seen",
                Some(Outcome::RevocationRequested { .. }) => "asked back",
                Some(Outcome::Revoked) => "taken back",
                Some(Outcome::HolderNotTold | Outcome::ForceNotAllowed) => "untold",
                Some(Outcome::Busy) => "busy",
                Some(Outcome::Closed(_)) => "closed",
                Some(Outcome::NotHeld) => "not held",
                Some(Outcome::Extended { .. } | Outcome::Reduced) | None => "never",
            };
            *self.answers.entry(name).or_default() += 1;
        }
        add_all(&mut self.faults, &run.faults);
        add_all(&mut self.premises, &run.world.premises());
        add_all(&mut self.offline, &run.world.offline_premises());
        let reached = run.world.rare();
        let times = |state: &RareState| u64::from(reached.contains_key(state));
        add_all(
            &mut self.rare,
            &RareState::ALL.iter().map(|state| (state.name(), times(state))).collect(),
        );
        self.timed.read(run.world.record());
    }

    /// Adds another summary.
    pub fn merge(&mut self, other: &Summary) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.virtual_seconds += other.virtual_seconds;
        self.grants += other.grants;
        self.lost += other.lost;
        self.refused += other.refused;
        add_all(&mut self.forced, &other.forced);
        self.counting += other.counting;
        self.parts += other.parts;
        self.gossiping += other.gossiping;
        for (sum, one) in self.damages.iter_mut().zip(other.damages) {
            *sum += one;
        }
        self.digest = self.digest.wrapping_add(other.digest);
        add_all(&mut self.answers, &other.answers);
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.premises, &other.premises);
        add_all(&mut self.offline, &other.offline);
        add_all(&mut self.rare, &other.rare);
        self.timed.merge(&other.timed);
    }
}

fn add_all(to: &mut BTreeMap<&'static str, u64>, from: &BTreeMap<&'static str, u64>) {
    for (name, count) in from {
        *to.entry(name).or_default() += count;
    }
}
