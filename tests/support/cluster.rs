//! Several processes with a member each, which form one cluster.

use super::leases::Leases;
use super::ports;
use super::process::{Peer, Pending, Process};
use super::rng::Rng;
use super::status::Seen;
use super::wait;
use std::sync::atomic::{AtomicU32, Ordering};

/// A running cluster. All its processes end with it.
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) seeds: Vec<String>,
    pub(crate) peers: Vec<Peer>,
    /// The cluster keys of all peers in base64, with commas. Empty: no key.
    pub(crate) keys: String,
    /// The network namespace of each peer; empty without namespaces.
    namespaces: Vec<String>,
    leases: Leases,
}

impl Cluster {
    /// Processes on free ports of the loopback interface, with these leases. The first three are
    /// seeds.
    pub(crate) fn start(size: usize, leases: Leases, rng: &mut Rng) -> Cluster {
        Cluster::start_with(size, "", leases, rng)
    }

    /// Like [`Cluster::start`], with these cluster keys.
    pub(crate) fn start_with(size: usize, keys: &str, leases: Leases, rng: &mut Rng) -> Cluster {
        Cluster::start_limited(size, keys, None, leases, rng)
    }

    /// Like [`Cluster::start_with`], in processes that may open this number of files.
    pub(crate) fn start_limited(
        size: usize,
        keys: &str,
        files: Option<u64>,
        leases: Leases,
        rng: &mut Rng,
    ) -> Cluster {
        // Another process may have taken a port that was free; try again with other ports.
        for _ in 0..5 {
            let addrs: Vec<String> = ports::free(size).iter().map(ToString::to_string).collect();
            match Cluster::start_keyed(&addrs, 3, &[], (keys, files), leases, rng) {
                Ok(cluster) => return cluster,
                Err(error) if error.contains("is taken") => println!("once more: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no free ports");
    }

    /// Starts processes at these addresses, with these cluster keys and leases. The first `seeds`
    /// are seeds. All start at once in random order, each with the seeds in an order of its own.
    /// Returns when all are in one view.
    pub(crate) fn start_at(
        addrs: &[String],
        seeds: usize,
        namespaces: &[String],
        keys: &str,
        leases: Leases,
        rng: &mut Rng,
    ) -> Result<Cluster, String> {
        Cluster::start_keyed(addrs, seeds, namespaces, (keys, None), leases, rng)
    }

    fn start_keyed(
        addrs: &[String],
        seeds: usize,
        namespaces: &[String],
        (keys, files): (&str, Option<u64>),
        leases: Leases,
        rng: &mut Rng,
    ) -> Result<Cluster, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let seeds = addrs.iter().take(seeds).cloned().collect();
        let mut cluster = Cluster {
            name,
            seeds,
            peers: Vec::new(),
            keys: keys.to_owned(),
            namespaces: namespaces.to_vec(),
            leases,
        };
        for (number, addr) in addrs.iter().enumerate() {
            let process = Process::start(number, namespaces.get(number).map(String::as_str));
            let peer = Peer { process, index: 0, addr: addr.clone() };
            if let Some(files) = files {
                peer.ask(&format!("limit-files {files}"))?;
            }
            cluster.peers.push(peer);
        }
        let mut order: Vec<usize> = (0..addrs.len()).collect();
        rng.shuffle(&mut order);
        let joins: Vec<_> =
            order.into_iter().map(|number| (number, cluster.begin_join(number, rng))).collect();
        for (number, join) in joins {
            join.wait().map_err(|error| format!("join of {}: {error}", addrs[number]))?;
        }
        cluster.agree();
        Ok(cluster)
    }

    /// Lets a process that is not a member join.
    pub(crate) fn begin_join(&self, number: usize, rng: &mut Rng) -> Pending {
        let mut seeds = self.seeds.clone();
        rng.shuffle(&mut seeds);
        let peer = &self.peers[number];
        let is_open = !self.namespaces.is_empty() && self.keys.is_empty();
        let insecure = if is_open { " insecure=" } else { "" };
        let keys =
            if self.keys.is_empty() { String::new() } else { format!(" keys={}", self.keys) };
        peer.begin(&format!(
            "join cluster={} bind={} seeds={} leases={:?}{insecure}{keys}",
            self.name,
            peer.addr,
            seeds.join(","),
            self.leases
        ))
    }

    /// Starts a new process at the address of one that ended, and lets it join.
    pub(crate) fn restart(&mut self, number: usize, rng: &mut Rng) -> Pending {
        self.peers[number].process =
            Process::start(number, self.namespaces.get(number).map(String::as_str));
        self.begin_join(number, rng)
    }

    /// Waits until exactly the living peers are in one view, each with a running lease and a vote.
    /// Returns that view's elder.
    pub(crate) fn agree(&self) -> usize {
        let alive: Vec<&Peer> = self.peers.iter().filter(|peer| peer.process.is_alive()).collect();
        let elder = agree(&alive);
        self.peers.iter().position(|peer| peer.addr == elder).expect("the elder is one of them")
    }
}

/// Waits until exactly these peers are in one view, each with a running lease and a vote, as far as
/// the council has room. Returns the address of that view's elder.
pub(crate) fn agree(peers: &[&Peer]) -> String {
    let what = format!("{} members in one view", peers.len());
    wait::until_at_most(5 * wait::HANG, &what, || {
        let seen: Vec<Seen> = peers.iter().map(|peer| peer.status()).collect();
        let first = &seen[0];
        let mut here: Vec<&String> = seen.iter().map(|seen| &seen.process).collect();
        let mut there: Vec<&String> = first.members.iter().map(|(process, ..)| process).collect();
        here.sort();
        there.sort();
        let same = seen
            .iter()
            .all(|other| other.leased && other.view.is_some() && other.view == first.view);
        let is_alive = |(.., ghost): &(String, String, bool)| !ghost;
        let whole = here == there && first.voted && first.members.iter().all(is_alive);
        let elder =
            first.members.iter().find(|(process, ..)| Some(process) == first.elder.as_ref());
        match elder {
            Some((_, addr, _)) if same && whole => Ok(addr.clone()),
            _ => Err(summary(peers, &seen)),
        }
    })
}

fn summary(peers: &[&Peer], seen: &[Seen]) -> String {
    let mut text = String::new();
    for (peer, seen) in peers.iter().zip(seen) {
        let view = seen.view.as_ref().map(|(lineage, number)| format!("{:.8} {number}", lineage));
        let ghosts = seen.members.iter().filter(|(.., ghost)| *ghost).count();
        text += &format!(
            "\n  {} {:.8} leased {} voted {} view {view:?} elder {:?} members {} ghosts {ghosts}",
            peer.addr,
            seen.process,
            seen.leased,
            seen.voted,
            seen.elder.as_ref().map(|elder| elder[..8].to_owned()),
            seen.members.len(),
        );
    }
    text
}
