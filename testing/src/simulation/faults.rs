//! Faults at sites and in the network between them.

use super::network::{LinkConditions, MS};
use super::sites::{FAIR_WEATHER, Sites};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// A fault with a duration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SiteFault {
    /// The process at this site ends; another one is started there later.
    Crash(usize),
    /// The member at this site says goodbye, and another one joins later.
    Leave(usize),
    /// The process at this site is stopped, and resumes later.
    Pause(usize),
    /// No packet reaches or leaves this site.
    Isolate(usize),
    /// No packet from the first site reaches the second.
    OneWay(usize, usize),
    /// Sites in the mask and the other sites do not reach each other.
    Split(u32),
    /// The network has these worse conditions.
    Storm(LinkConditions),
    /// Each packet to or from this site takes this many milliseconds longer.
    Slow(usize, u64),
}

impl fmt::Display for SiteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SiteFault::Crash(site) => write!(f, "crash of member {site}"),
            SiteFault::Leave(site) => write!(f, "goodbye of member {site}"),
            SiteFault::Pause(site) => write!(f, "stop of member {site}"),
            SiteFault::Isolate(site) => write!(f, "isolation of member {site}"),
            SiteFault::OneWay(from, to) => write!(f, "cut from member {from} to member {to}"),
            SiteFault::Split(mask) => {
                let side: Vec<u32> = (0..32).filter(|site| mask >> site & 1 == 1).collect();
                write!(f, "split between members {side:?} and the others")
            }
            SiteFault::Storm(weather) => {
                let LinkConditions { loss, duplicate, reorder, slowest, .. } = weather;
                write!(
                    f,
                    "bad network: of a million packets {loss} lost, {duplicate} doubled, \
                     {reorder} overtaken; up to {} ms each",
                    slowest / MS
                )
            }
            SiteFault::Slow(site, by) => {
                write!(f, "slow network: {by} ms more to and from member {site}")
            }
        }
    }
}

impl SiteFault {
    /// The kind of the fault in one word or two.
    pub fn kind(self) -> &'static str {
        match self {
            SiteFault::Crash(_) => "crash",
            SiteFault::Leave(_) => "goodbye",
            SiteFault::Pause(_) => "stop",
            SiteFault::Isolate(_) => "isolation",
            SiteFault::OneWay(..) => "cut one way",
            SiteFault::Split(_) => "split",
            SiteFault::Storm(_) => "bad network",
            SiteFault::Slow(..) => "slow network",
        }
    }

    /// The sites that the fault affects, of `sites` sites. For a split these are the sites in the
    /// mask.
    pub fn hit(self, sites: usize) -> Vec<usize> {
        match self {
            SiteFault::Crash(site)
            | SiteFault::Leave(site)
            | SiteFault::Pause(site)
            | SiteFault::Isolate(site)
            | SiteFault::Slow(site, _) => vec![site],
            SiteFault::OneWay(from, to) => vec![from, to],
            SiteFault::Split(mask) => (0..sites).filter(|site| mask >> site & 1 == 1).collect(),
            SiteFault::Storm(_) => (0..sites).collect(),
        }
    }

    /// Returns whether the fault is possible with `sites` sites.
    pub fn is_among(self, sites: usize) -> bool {
        match self {
            SiteFault::Crash(site)
            | SiteFault::Leave(site)
            | SiteFault::Pause(site)
            | SiteFault::Isolate(site)
            | SiteFault::Slow(site, _) => site < sites,
            SiteFault::OneWay(from, to) => from < sites && to < sites,
            SiteFault::Split(mask) => ![0, (1 << sites) - 1].contains(&(mask & ((1 << sites) - 1))),
            SiteFault::Storm(_) => true,
        }
    }
}

/// The program that runs at the sites.
pub trait FaultHost {
    /// Starts a process at the site, with its tasks.
    fn start(self: &Rc<Self>, site: usize);
    /// Called when the process at the site has ended, with all its tasks.
    fn ended(&self, site: usize);
    /// Called when a fault of this kind begins.
    fn begins(&self, kind: &'static str);
    /// Returns whether all faults are over: then a cut that ends now was already mended.
    fn is_over(&self) -> bool;
}

impl Sites {
    /// Causes a fault and ends it after `span`. The fault does nothing where its victim is away, or
    /// where it would cost the quorum. `vouched`: the other members are told of the end of a
    /// process.
    pub async fn disturb(
        self: &Rc<Self>,
        host: &Rc<impl FaultHost>,
        fault: SiteFault,
        span: Duration,
        vouched: bool,
    ) {
        // Votes that are lost for good must leave a quorum.
        let may_lose = || self.away() < (self.count() - 1) / 2;
        match fault {
            SiteFault::Crash(site) => {
                if !may_lose() || !self.is_up(site) {
                    return;
                }
                host.begins("crashes");
                self.note(|| format!("member {site} is killed"));
                let process = self.kill(site);
                host.ended(site);
                if let Some(process) = process.filter(|_| vouched) {
                    self.vouch(site, process);
                }
                tokio::time::sleep(span).await;
                if !self.is_up(site) {
                    host.start(site);
                }
            }
            SiteFault::Leave(site) => {
                let is_well = self.has_joined(site) && !self.is_frozen(site);
                let member = self.member(site).filter(|_| may_lose() && is_well);
                let Some(member) = member else { return };
                host.begins("leaves");
                // If another fault killed the process meanwhile, that fault also restarts it.
                if !self.leave(site, member).await {
                    return;
                }
                self.kill(site);
                host.ended(site);
                tokio::time::sleep(span).await;
                if !self.is_up(site) {
                    host.start(site);
                }
            }
            SiteFault::Pause(site) => {
                if !self.is_up(site) || self.is_frozen(site) {
                    return;
                }
                let life = self.life(site);
                host.begins("pauses");
                self.freeze(site);
                tokio::time::sleep(span).await;
                if self.life(site) == life && self.is_up(site) {
                    self.thaw(site);
                }
            }
            SiteFault::Isolate(site) => {
                self.cut_for(host, span, |from, to| from == site || to == site).await
            }
            SiteFault::OneWay(from, to) => {
                self.cut_for(host, span, |a, b| a == from && b == to).await
            }
            SiteFault::Split(mask) => {
                self.cut_for(host, span, |a, b| (mask >> a & 1) != (mask >> b & 1)).await
            }
            SiteFault::Storm(weather) => {
                host.begins("storms");
                self.note(|| "a storm".to_owned());
                self.network.borrow_mut().set_weather(weather);
                tokio::time::sleep(span).await;
                self.network.borrow_mut().set_weather(FAIR_WEATHER);
            }
            SiteFault::Slow(site, by) => {
                host.begins("slow networks");
                self.slow(site, by * MS);
                tokio::time::sleep(span).await;
                self.slow(site, 0);
            }
        }
    }

    /// Delays each packet to or from the site by `by` nanoseconds from now on.
    pub fn slow(&self, site: usize, by: u64) {
        self.note(|| format!("packets to and from member {site} take {} ms longer", by / MS));
        for (from, to) in self.ways(|from, to| from == site || to == site) {
            self.network.borrow_mut().slow(from, to, by);
        }
    }

    async fn cut_for(
        &self,
        host: &Rc<impl FaultHost>,
        span: Duration,
        is_cut: impl Fn(usize, usize) -> bool,
    ) {
        let ways = self.ways(is_cut);
        host.begins("cuts");
        self.cut(&ways);
        tokio::time::sleep(span).await;
        if !host.is_over() {
            self.mend(&ways);
        }
    }

    /// Ends every fault of the network, and resumes stopped processes.
    pub fn heal(&self) {
        self.network.borrow_mut().mend_all();
        self.network.borrow_mut().set_weather(FAIR_WEATHER);
        let frozen: Vec<usize> = (0..self.count()).filter(|site| self.is_frozen(*site)).collect();
        for site in frozen {
            self.thaw(site);
        }
    }
}
