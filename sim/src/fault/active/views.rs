//! Faults at a moment of the membership: packets that come late beside another fault, takeovers of
//! the elder, removals and goodbyes.

use super::*;

impl FaultPlanner<'_> {
    pub(super) fn late(&mut self, packets: LatePackets) -> Option<()> {
        let LatePackets { kind, from, to, blow } = packets;
        let from = match from {
            Some(target) => Some(self.find(target)?),
            None => None,
        };
        let packets = PacketFilter { from, to, kind: Some(kind) };
        self.plot.pair(Step::Hold(packets), Step::LetGo(packets));
        let victim = match blow {
            Some(ConcurrentFault::GrantorLeaves) => {
                self.find(Target::Grantor).filter(|site| Some(*site) != to)
            }
            _ => from.or_else(|| self.world.find_elder()),
        };
        let (Some(blow), Some(site)) = (blow, victim) else { return Some(()) };
        self.plot.now = self.now + self.fault.lasts / 8;
        match blow {
            ConcurrentFault::Crash => self.end(&[site], ShutdownPlan::Dead, Step::Crash),
            ConcurrentFault::Leave => self.end(&[site], ShutdownPlan::Gone, Step::Leave),
            ConcurrentFault::GrantorLeaves => {
                (self.plot.now, self.plot.until) = (self.until - 5 * MS, self.until + SECOND);
                self.end(&[site], ShutdownPlan::Gone, Step::Leave)
            }
            ConcurrentFault::Isolate => {
                self.cut_off(site);
                Some(())
            }
        }
    }

    pub(super) fn elder_takeover(&mut self, takeover: ElderTakeover) -> Option<()> {
        let ElderTakeover { candidate, deaf, loyal, restart } = takeover;
        let elder = self.world.find_elder()?;
        let candidate = self.find(Target::Council(candidate)).filter(|site| *site != elder)?;
        let holder = self.world.holder(loyal, elder, Some(candidate));
        let loyal = loyal.with(elder, holder, Some(candidate));
        // The holder has the lock when the elder is cut off, and the candidate wants it.
        let service = crate::chaos::SERVICES[0];
        let crown = || ClientWant::Lock("crown".to_string());
        if let Some(holder) = holder {
            self.plot.ask(holder, service, crown());
        }
        self.plot.until = self.now + deaf;
        self.cut_off(candidate);
        self.plot.now = self.plot.until;
        self.plot.until = self.plot.now + self.fault.lasts;
        self.plot.ask(candidate, service, crown());
        self.cut_apart(&loyal);
        if restart && self.world.common.durable {
            let rest: Vec<usize> =
                self.sites().filter(|site| *site != candidate && !loyal(site)).collect();
            if let Some(rest) = self.spared(&rest, ShutdownPlan::Dead) {
                let until = std::mem::replace(&mut self.plot.until, self.plot.now + 5 * MS);
                self.plot.down(&rest, Step::Crash, Step::Start);
                self.plot.until = until;
            }
        }
        Some(())
    }

    pub(super) fn split_view(&mut self, loyal: CutOffGroup) -> Option<()> {
        let elder = self.world.find_elder().filter(|_| self.world.viewed_at == self.now)?;
        self.cut_apart(loyal.with(elder, self.world.holder(loyal, elder, None), None));
        Some(())
    }

    pub(super) fn reprieve(&mut self, removal: DelayedRemoval) -> Option<()> {
        let DelayedRemoval { target, cut, pending } = removal;
        let elder = self.world.find_elder()?;
        let site = self.find(target).filter(|site| *site != elder && self.world.is_up(*site))?;
        self.plot.until = self.now + cut;
        self.cut_off(site);
        // Packets from before the cut are not kept back.
        self.plot.now = self.now + cut * 9 / 10;
        self.plot.until = self.now + cut + pending;
        self.plot.hold(None, Some(elder), "Accepted");
        self.plot.until = self.until;
        self.plot.hold(None, Some(site), "Install");
        self.plot.hold(None, Some(site), "FullView");
        Some(())
    }

    pub(super) fn turncoat(&mut self, number: usize, luck: u64) -> Option<()> {
        let elder = self.world.find_elder()?;
        let site = self.find(Target::Council(number))?;
        let spared = self.spared(&[site], ShutdownPlan::Gone)?;
        let mut others: Vec<usize> =
            self.sites().filter(|other| ![elder, site].contains(other)).collect();
        others.sort_by_key(|other| mix(&[luck, *other as u64]));
        let (untold, told) = others.split_at(others.len().div_ceil(2));
        let told: Vec<usize> = told.iter().copied().chain([elder]).collect();
        for &a in untold {
            told.iter().for_each(|&b| self.plot.both(a, b, Step::Cut, Step::Mend));
        }
        self.plot.down(&spared, Step::Leave, Step::Start);
        let turns = self.now + 10 * MS + luck % (100 * MS);
        self.plot.until = turns;
        untold.iter().for_each(|&a| self.plot.both(a, site, Step::Cut, Step::Mend));
        (self.plot.now, self.plot.until) = (turns, self.until);
        told.iter().for_each(|&b| self.plot.both(b, site, Step::Cut, Step::Mend));
        Some(())
    }
}
