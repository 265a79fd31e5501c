//! Builds a World: its members and settings before the run.

use super::World;
use crate::clock::Clock;
use crate::site::Site;
use elderlock::protocol::{Limits, Timing};
use std::collections::BTreeSet;
use std::net::SocketAddr;

impl World {
    /// Members that are all seeds and found the cluster together, each on a host of its own.
    pub fn members(mut self, count: usize) -> World {
        self.sites.extend((0..count).map(|_| Site::new(0)));
        for site in 0..self.sites.len() {
            self.sites[site] = Site::new(site);
        }
        let seeds: BTreeSet<SocketAddr> = self.sites.iter().map(|peer| peer.addr).collect();
        for peer in &mut self.sites {
            peer.seeds = seeds.clone();
        }
        self.site_by_addr =
            self.sites.iter().enumerate().map(|(site, peer)| (peer.addr, site)).collect();
        self
    }

    /// Sites for members that know the seeds and are not seeds. Nothing runs there until
    /// [`start`](Self::start).
    pub fn joiners(mut self, count: usize) -> World {
        let seeds: BTreeSet<SocketAddr> = self.sites.iter().map(|peer| peer.addr).collect();
        for site in self.sites.len()..self.sites.len() + count {
            let peer = Site { seeds: seeds.clone(), ..Site::new(site) };
            self.site_by_addr.insert(peer.addr, site);
            self.sites.push(peer);
        }
        self
    }

    /// The times to found with; [`Timing::fast`] unless said otherwise.
    pub fn timing(mut self, timing: Timing) -> World {
        self.common.timing = timing;
        self
    }

    /// Bounds and sizes of each member; [`SMALL_PARTS`](crate::limits::SMALL_PARTS) unless said
    /// otherwise.
    pub fn limits(mut self, limits: Limits) -> World {
        self.common.limits = limits;
        self
    }

    /// The council size to found with.
    pub fn council(mut self, size: u8) -> World {
        self.common.council = size;
        self
    }

    /// No process founds with fewer members, itself included.
    pub fn expect_founders(mut self, members: usize) -> World {
        self.common.expect = members;
        self
    }

    /// The cluster has no key.
    pub fn keyless(mut self) -> World {
        self.common.keyless = true;
        self
    }

    /// Each process is configured with the addresses of all sites: without a key it believes a
    /// later view only from known addresses.
    pub fn with_contacts(mut self) -> World {
        self.common.contacts = self.sites.len();
        self
    }

    /// The processes at these sites let operators end holds that are not revocable.
    pub fn allowing_forced_revokes(mut self, sites: &[usize]) -> World {
        for site in sites {
            self.sites[*site].allows_force = true;
        }
        self
    }

    /// The operator trusts refused connections.
    pub fn trust_refused(mut self) -> World {
        self.common.trust_refused = true;
        self
    }

    /// Every site has a data directory, which outlives its processes.
    pub fn durable(mut self) -> World {
        self.common.durable = true;
        self
    }

    /// The member at `site` founds alone; it is the only seed of the others.
    pub fn found_alone(mut self, site: usize) -> World {
        let addr = self.sites[site].addr;
        self.sites[site].found_alone = true;
        for peer in &mut self.sites {
            peer.seeds = BTreeSet::from([addr]);
        }
        self
    }

    /// Sets the host of each site.
    pub fn hosts(mut self, hosts: &[u32]) -> World {
        for (peer, host) in self.sites.iter_mut().zip(hosts) {
            peer.host = *host;
        }
        self
    }

    /// The processes at these sites hold locks for programs that are not members.
    pub fn serving_sessions(mut self, sites: &[usize]) -> World {
        for site in sites {
            self.sites[*site].serves_sessions = true;
        }
        self
    }

    /// How much the clock at `site` runs fast, in parts per million.
    pub fn clock(mut self, site: usize, ppm: i32) -> World {
        self.sites[site].clock.ppm = ppm;
        self
    }

    /// The reading of the clock at `site` when the World begins.
    pub fn clock_offset(mut self, site: usize, nanos: u64) -> World {
        let Clock { ppm, .. } = self.sites[site].clock;
        self.sites[site].clock = Clock { offset: nanos, ppm, since: 0 };
        self
    }

    /// Clocks do not keep their bound. Observers do not demand what needs it.
    pub fn unbounded_clocks(mut self) -> World {
        self.bounded = false;
        self
    }

    /// Requests of owners are to be told of circles.
    pub fn detecting(mut self) -> World {
        self.detects = true;
        self
    }

    /// Members may keep plain locks without metadata after their release. Such locks are not
    /// revocable.
    pub fn keeping(mut self) -> World {
        self.keeps = true;
        self
    }

    /// Members may keep plain locks and plain shares without metadata after their release.
    pub fn keeping_shares(mut self) -> World {
        self.keeps_shares = true;
        self.keeping()
    }

    /// Members ask to grant a service if they make most of its requests.
    pub fn following(mut self) -> World {
        self.follows = true;
        self
    }

    /// No process is started until [`start`](Self::start).
    pub fn asleep(mut self) -> World {
        self.manual = true;
        self
    }

    /// No member notices broken connections: only the protocol's timers detect failures.
    pub fn without_hints(mut self) -> World {
        self.hints = false;
        self
    }

    /// Lets a broken invariant stop the World instead of panicking, for drivers.
    pub fn lenient(mut self) -> World {
        self.strict = false;
        self
    }

    /// Two lineages may live at once, and each other's grants are then not compared: cut off seeds
    /// found again.
    pub fn two_lineages_may_meet(mut self) -> World {
        self.one_lineage = false;
        self.bounded = false;
        self
    }

    /// No trace is kept.
    pub fn untraced(mut self) -> World {
        self.tracing = false;
        self
    }

    /// The digests are not kept up from here on.
    pub fn undigested(mut self) -> World {
        self.digested = false;
        self
    }

    /// Every process has this planted break.
    #[cfg(elderlock_mutants)]
    pub fn mutant(mut self, mutant: elderlock::protocol::mutant::ProtocolMutant) -> World {
        self.common.mutant = Some(mutant);
        self
    }
}
