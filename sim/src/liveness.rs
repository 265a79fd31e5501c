//! After chaos comes healing: the network is whole, all processes are woken or started again, and
//! then the locks must work.

use crate::invariants::{
    converges_after_heal, deadlock_is_told, destroyed_is_over, last_young_turk_wins,
    no_leaked_hold, no_lost_wakeup, values_are_seen_in_order,
};
use crate::network::SECOND;
use crate::rule::RuleId;
use crate::site::{ProcessState, Site};
use crate::world::{DiskHealth, Observation, World};
use elderlock::protocol::Timing;
use std::time::Duration;

/// How long each demand may take, in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// The time for one view with all processes.
    pub converge: Duration,
    /// The time for an answer, when nothing blocks it.
    pub answer: Duration,
}

impl Demand {
    /// Twelve member leases to come together: a takeover, the leases of ghosts, and those expelled
    /// joining again, each with room for a false start.
    pub fn of(timing: &Timing) -> Demand {
        Demand { converge: timing.member_lease * 12, answer: timing.member_lease * 4 }
    }
}

impl World {
    /// Heals the network, wakes stopped processes and starts processes where none runs.
    pub fn restore(&mut self) {
        self.heal();
        (self.core, self.core_suffices) = (None, true);
        self.tell(&Observation::Heals);
        for rule in 0..self.rules.len() {
            self.drop_held(RuleId(rule));
        }
        self.bring_back(&self.sites().collect::<Vec<_>>());
    }

    /// Heals the network for these sites, and wakes or starts their processes. Faults elsewhere
    /// stay for good.
    fn restore_part(&mut self, core: &[usize]) {
        self.tell(&Observation::Heals);
        self.note(0, |_| format!("(healed, as far as {core:?} go)"));
        self.core_suffices = self.is_sufficient(core);
        self.core = Some(core.iter().copied().collect());
        for rule in 0..self.rules.len() {
            self.let_go(RuleId(rule));
        }
        self.bring_back(core);
    }

    /// Wakes or starts the processes of these sites.
    fn bring_back(&mut self, these: &[usize]) {
        for &site in these {
            self.set_disk(site, DiskHealth::Fast);
            self.resume(site);
        }
        self.dies_when_deciding_until = 0;
        self.spare_all();
        // Packets under way arrive first, and hold up later packets until then.
        self.run_for(Duration::from_nanos(self.longest_way()));
        // Leaving members leave first, so that another process can start there.
        let limit = self.common.timing.member_lease * 2;
        let leaves = |peer: &Site| peer.is_alive() && peer.leaving;
        self.run_until(|world| !these.iter().any(|site| leaves(&world.sites[*site])), limit);
        for &site in these {
            if self.sites[site].run == ProcessState::Down {
                self.start(site);
            }
        }
    }

    /// Restores these sites and demands that everything works among them.
    pub fn restore_part_and_demand(&mut self, core: &[usize]) -> bool {
        let known: Vec<usize> =
            core.iter().copied().filter(|site| *site < self.sites.len()).collect();
        self.restore_part(&known);
        self.demand_all()
    }

    /// Restores everything and demands that everything works. If a quorum was lost for good, no
    /// member may go on until an operator forces one. Then everything is demanded all the same.
    pub fn restore_and_demand(&mut self) -> bool {
        self.restore();
        self.demand_all()
    }

    fn demand_all(&mut self) -> bool {
        let demand = Demand::of(&self.common.timing);
        let all_hold = converges_after_heal::demand(self, &demand)
            && self.outlast_expulsions(&demand)
            && deadlock_is_told::demand(self)
            && no_lost_wakeup::demand(self, &demand)
            && values_are_seen_in_order::demand(self, &demand)
            && last_young_turk_wins::demand(self, &demand)
            && no_leaked_hold::demand(self, &demand)
            && destroyed_is_over::demand(self, &demand);
        if all_hold {
            self.tell(&Observation::Rests);
        }
        all_hold
    }

    /// Beyond the clock bound a member may believe in its lease when the elder knows that it is
    /// over. So it may be expelled just after the cluster converged: it joins again.
    fn outlast_expulsions(&mut self, demand: &Demand) -> bool {
        if self.bounded {
            return true;
        }
        self.run_for(self.common.timing.member_lease);
        converges_after_heal::demand(self, demand)
    }

    /// Virtual seconds so far.
    pub fn seconds(&self) -> u64 {
        self.now / SECOND
    }
}
