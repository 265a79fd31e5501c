//! Faults of the network: ways that are cut, slow or narrow, connections that break, and lies.

use super::*;

impl FaultPlanner<'_> {
    pub(super) fn slow_way(&mut self, from: usize, to: usize, by: u64) -> Option<()> {
        self.plot.pair(
            Step::Slow(from, to, Duration::from_nanos(by)),
            Step::Slow(from, to, Duration::ZERO),
        );
        Some(())
    }

    pub(super) fn cut_one_way(&mut self, from: usize, to: usize) -> Option<()> {
        self.plot.pair(Step::Cut(from, to), Step::Mend(from, to));
        Some(())
    }

    pub(super) fn cut(&mut self, a: usize, b: usize) -> Option<()> {
        self.plot.both(a, b, Step::Cut, Step::Mend);
        Some(())
    }

    pub(super) fn isolate(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        self.cut_off(site);
        Some(())
    }

    pub(super) fn split(&mut self, mask: u32) -> Option<()> {
        self.cut_apart(|site| mask >> site & 1 == 1);
        Some(())
    }

    pub(super) fn one_neighbour(&mut self, target: Target, luck: u64) -> Option<()> {
        let site = self.find(target)?;
        let mut others: Vec<usize> = self.sites().filter(|other| *other != site).collect();
        others.sort_by_key(|other| mix(&[luck, *other as u64]));
        for other in others.into_iter().skip(1) {
            self.plot.both(site, other, Step::Cut, Step::Mend);
        }
        Some(())
    }

    pub(super) fn ring(&mut self, luck: u64) -> Option<()> {
        let mut ring: Vec<usize> = self.sites().collect();
        ring.sort_by_key(|site| mix(&[luck, *site as u64]));
        // With more than five sites, sites at distance two are neighbours too.
        let reach = if ring.len() > 5 { 2 } else { 1 };
        for (here, a) in ring.iter().enumerate() {
            for (there, b) in ring.iter().enumerate().skip(here + 1) {
                if (there - here).min(ring.len() - (there - here)) > reach {
                    self.plot.both(*a, *b, Step::Cut, Step::Mend);
                }
            }
        }
        Some(())
    }

    pub(super) fn one_way_ring(&mut self, luck: u64) -> Option<()> {
        let all = || self.sites();
        let mut ways = self.ways();
        ways.sort_by_key(|(a, b)| mix(&[luck, *a as u64, *b as u64]));
        let mut cut = BTreeSet::new();
        for way in ways {
            cut.insert(way);
            let is_bridged = |(a, b): &(usize, usize)| {
                all().any(|relay| {
                    relay != *a
                        && relay != *b
                        && !cut.contains(&(*a, relay))
                        && !cut.contains(&(relay, *b))
                })
            };
            if !cut.iter().all(is_bridged) {
                cut.remove(&way);
            }
        }
        cut.into_iter().for_each(|(a, b)| self.plot.pair(Step::Cut(a, b), Step::Mend(a, b)));
        Some(())
    }

    pub(super) fn swizzle(&mut self, luck: u64) -> Option<()> {
        let draw =
            |way: &(usize, usize), question| mix(&[luck, way.0 as u64, way.1 as u64, question]);
        let third = (self.fault.lasts / 3).max(1);
        for way in self.ways().into_iter().filter(|way| draw(way, 0) % 100 < luck % 80 + 10) {
            self.plot.add(self.now + draw(&way, 1) % third, Step::Clog(way.0, way.1));
            self.plot.add(self.until - draw(&way, 2) % third, Step::Unclog(way.0, way.1));
        }
        Some(())
    }

    /// The ways between each two sites.
    fn ways(&self) -> Vec<(usize, usize)> {
        let pairs = self.sites().flat_map(|a| self.sites().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
    }

    pub(super) fn narrow_way(&mut self, from: usize, to: usize, narrow: NarrowPath) -> Option<()> {
        self.plot.pair(Step::Narrow(from, to, Some(narrow)), Step::Narrow(from, to, None));
        Some(())
    }

    pub(super) fn resets(&mut self, luck: u64, times: u32) -> Option<()> {
        let sites = self.sites().len();
        for number in 0..u64::from(times) {
            let draw = |question, below| Self::draw([luck, number, question], below);
            let from = draw(0, sites as u64) as usize;
            let to = (from + 1 + draw(1, sites as u64 - 1) as usize) % sites;
            let both = draw(2, 2) == 0;
            let step = if both { Step::Reset(from, to) } else { Step::ResetHalf(from, to) };
            self.plot.add(self.now + draw(3, self.fault.lasts), step);
        }
        Some(())
    }

    pub(super) fn reject(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        for other in self.sites().filter(|other| *other != site) {
            self.plot.both(site, other, Step::Reject, Step::Accept);
        }
        Some(())
    }

    pub(super) fn reject_pair(&mut self, target: Target, other: usize) -> Option<()> {
        let site = self.find(target).filter(|site| *site != other)?;
        ["Install", "FullView", "HelloReply"]
            .into_iter()
            .for_each(|kind| self.plot.hold(None, Some(site), kind));
        self.plot.both(site, other, Step::Reject, Step::Accept);
        let (at, lasts) = (self.fault.at, self.fault.lasts);
        // A connection of a third member that breaks meanwhile is not a second refusal.
        for third in self.sites().filter(|third| ![site, other].contains(third)) {
            let draw = |question, below| mix(&[at, third as u64, question]) % below;
            for number in 0..draw(0, 6) {
                self.plot.add(self.now + draw(number + 1, lasts), Step::Reset(third, site));
            }
            // Connections to the first member break again and again while it learns that it is
            // refused.
            let times = if at.is_multiple_of(2) { 10 } else { 0 };
            for number in 0..times {
                self.plot.add(self.now + number * MS, Step::Reset(third, site));
            }
        }
        Some(())
    }

    pub(super) fn deafen(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        for other in self.sites().filter(|other| *other != site) {
            self.plot.pair(Step::Cut(other, site), Step::Mend(other, site));
        }
        Some(())
    }

    pub(super) fn no_datagrams(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        for other in self.sites().filter(|other| *other != site) {
            self.plot.pair(Step::Deafen(site, other), Step::Undeafen(site, other));
        }
        Some(())
    }

    pub(super) fn false_alarm(&mut self, at: usize, about: Target) -> Option<()> {
        let about = self.find(about).filter(|about| *about != at)?;
        self.world.sites[about].process()?;
        self.plot.add(self.now, Step::Notice { at, about, what: OutsideHint::Unreachable });
        Some(())
    }

    pub(super) fn lying_stranger(
        &mut self,
        target: Option<Target>,
        luck: u64,
        lies: u32,
    ) -> Option<()> {
        let target = match target {
            Some(target) => Some(self.find(target)?),
            None => None,
        };
        for number in 0..u64::from(lies) {
            let draw = |question, below| Self::draw([luck, number, question], below);
            let site = target.unwrap_or(draw(0, self.sites().len() as u64) as usize);
            let lie = Step::Lie(site, mix(&[luck, number, 2]));
            self.plot.add(self.now + draw(1, self.fault.lasts), lie);
        }
        Some(())
    }
}
