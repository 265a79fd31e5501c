//! Discovery: joining an existing cluster, or founding one together with all other seeds.
//!
//! No process founds alone unless its configuration says so. Otherwise the first view takes *every*
//! seed: each one agrees to one founding only, and the seed with the lowest address proposes it. So
//! two foundings would need one process to agree twice. A seed list may be incomplete, where a host
//! name resolves to more addresses each second. [`Config::expect`](crate::protocol::Config) is the
//! least number of founders. If that is more than half of all processes, two foundings still have a
//! process in common.
//!
//! Before a founding a process listens for a while
//! ([`Timing::listen`](crate::protocol::timing::Timing)): members of a cluster greet the seeds all
//! the time. So seeds that all start again at once find the cluster that lives on without them. A
//! process in no view holds nothing. If it cannot know how a founding ended, it may give up and
//! start again as a new process ([`Event::Abandoned`](crate::protocol::Event::Abandoned)). That is
//! as safe as a crash.

use super::view::View;
use crate::protocol::event::{Config, LedMember, Output};
use crate::protocol::id::{Lineage, MemberInfo, ProcessId, ViewNumber};
use crate::protocol::locks::dealer::AHEAD;
use crate::protocol::message::{Affiliation, Notice, Packet};
use crate::protocol::time::{Time, WallClock, WrongClock};
use crate::protocol::vote_claim::VoteClaim;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU64;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SeedReply {
    me: MemberInfo,
    belonging: Affiliation,
    at: Time,
    /// Whether this was the answer to this process's own question at a known address.
    is_proven: bool,
}

/// A founding to which this process agreed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct AgreedFounding {
    coordinator: MemberInfo,
    attempt: u32,
    since: Time,
}

/// A founding that this process proposes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct FoundingAttempt {
    view: View,
    agreed: BTreeSet<ProcessId>,
    started: Time,
}

/// A process that is in no view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Discovery {
    /// The time before which nothing is founded.
    listens_until: Time,
    clock: WallClock,
    seeds: BTreeSet<SocketAddr>,
    contacts: BTreeSet<SocketAddr>,
    /// The most remembered contacts, and the most replies beside those of seeds and voters.
    most: usize,
    /// Addresses where other voters may be. A vote successor greets them as often as seeds.
    voters: BTreeSet<SocketAddr>,
    /// The contact that got the latest hello.
    greeted: Option<SocketAddr>,
    heard: BTreeMap<SocketAddr, SeedReply>,
    next_hello: Time,
    bound: Option<AgreedFounding>,
    /// The earliest view that this process knew when it asked to join, of the lineage that it asked
    /// last. Any view from then on may have had it.
    asked: Option<(Lineage, ViewNumber)>,
    attempt: Option<FoundingAttempt>,
    attempts: u32,
}

/// The state of a founding.
pub(crate) enum FoundingOutcome {
    /// No view is decided yet.
    Pending,
    /// The first view is decided.
    Founded(Box<View>),
    /// The outcome of the founding cannot be known.
    Abandoned,
    /// The existing or proposed cluster is too far above this machine's clock.
    Refused(WrongClock),
    /// The process was forced to start, and has heard of no cluster with an elder.
    Forced,
    /// The process was forced to start, and this member of a cluster with an elder answered.
    ForceRefused(Box<LedMember>),
}

/// The seeds of a process in discovery and their answers, as text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeedReport {
    /// Each address of a seed, and the answer from there.
    pub seeds: Vec<(SocketAddr, Option<String>)>,
    /// The number of distinct processes at these addresses that are in no view, this one included.
    pub founders: usize,
    /// The least number of founders with which this process founds.
    pub expected: usize,
    /// Whether some process has reported a view.
    pub hears_of_cluster: bool,
}

/// The next addresses after `last`, at most `most`: in order, with the first one after the last
/// one. Each process that repeats a question to many others asks a few of them at a time. Otherwise
/// the questions of a crowd would grow with its square.
pub(super) fn in_turn<'a>(
    addrs: impl Iterator<Item = &'a SocketAddr> + Clone,
    last: Option<SocketAddr>,
    most: usize,
) -> Vec<SocketAddr> {
    let is_later = move |addr: &SocketAddr| last.is_none_or(|last| *addr > last);
    let later = addrs.clone().filter(move |addr| is_later(addr));
    later.chain(addrs.filter(move |addr| !is_later(addr))).take(most).copied().collect()
}

impl Discovery {
    pub(crate) fn new(config: &Config, now: Time) -> Discovery {
        Discovery {
            listens_until: now + config.timing.listen(),
            clock: WallClock::new(now, config.clock),
            seeds: config.founding_seeds(),
            contacts: config.known_addrs(),
            most: config.limits.contacts as usize,
            voters: BTreeSet::new(),
            greeted: None,
            heard: BTreeMap::new(),
            next_hello: now,
            bound: None,
            asked: None,
            attempt: None,
            attempts: 0,
        }
    }

    pub(crate) fn deadline(&self) -> Time {
        self.next_hello
    }

    pub(crate) fn set_voters(&mut self, voters: BTreeSet<SocketAddr>) {
        self.voters = voters;
    }

    pub(crate) fn set_seeds(&mut self, seeds: BTreeSet<SocketAddr>) {
        self.seeds = seeds;
    }

    pub(crate) fn add_contact(&mut self, addr: SocketAddr) {
        if self.contacts.len() < self.most {
            self.contacts.insert(addr);
        }
    }

    pub(crate) fn belonging(&self) -> Affiliation {
        Affiliation::Discovery { seeds: self.seeds.clone(), bound: self.bound.is_some() }
    }

    /// Sends hello to all addresses, asks to join where there is a cluster, and continues a
    /// founding.
    pub(crate) fn on_timer(
        &mut self,
        config: &Config,
        now: Time,
        belonging: Affiliation,
        out: &mut Vec<Output>,
    ) -> FoundingOutcome {
        if config.forced_start && now >= self.listens_until {
            return FoundingOutcome::Forced;
        }
        let alone = self.seeds.iter().eq([&config.me.addr]) && self.may_found(now);
        if config.found_alone || (alone && suffices(config, 1) && !config.forced_start) {
            let view = self.first_view(config, now, vec![config.me.clone()]);
            return match self.clock.check(now, view.first_slot) {
                Ok(()) => FoundingOutcome::Founded(Box::new(view)),
                Err(wrong) => FoundingOutcome::Refused(wrong),
            };
        }
        if now < self.next_hello {
            return FoundingOutcome::Pending;
        }
        self.next_hello = now + config.timing.retry;
        let stale = config.timing.retry * 4;
        self.heard.retain(|_, heard| heard.at + stale > now);
        if self.bound.as_ref().is_some_and(|bound| bound.since + config.timing.member_lease <= now)
        {
            return FoundingOutcome::Abandoned;
        }
        if self
            .attempt
            .as_ref()
            .is_some_and(|attempt| attempt.started + config.timing.member_lease / 2 <= now)
        {
            self.attempt = None;
        }
        // The seeds are greeted each time, the others one at a time, in turn. In a crowd in
        // discovery, gossip reports every process to every other one.
        let often: BTreeSet<SocketAddr> = self.seeds.union(&self.voters).copied().collect();
        // Remembered members that had a vote come first: the answer of a learner is no proof.
        let others = self.contacts.difference(&often).filter(|addr| **addr != config.me.addr);
        let with_vote: BTreeSet<SocketAddr> =
            config.last_view().into_iter().flat_map(View::voter_addrs).collect();
        let (first, rest): (Vec<SocketAddr>, Vec<SocketAddr>) =
            others.partition(|addr| with_vote.contains(addr));
        let others = [first, rest].concat();
        let last = others.iter().position(|addr| Some(*addr) == self.greeted);
        let next = last.and_then(|last| others.get(last + 1)).or(others.first());
        self.greeted = next.copied();
        let own = config.nonce.map_or(0, NonZeroU64::get);
        for &addr in often.iter().chain(&self.greeted) {
            if addr == config.me.addr {
                continue;
            }
            let nonce = if self.knows(config, addr) { own } else { 0 };
            let (me, belonging) = (config.me.clone(), belonging.clone());
            let hello = Notice::Hello { me, asked: addr, belonging, nonce };
            out.push(Output::Send { to: addr, process: None, packet: hello.into() });
        }
        if config.forced_start {
            return FoundingOutcome::Pending;
        }
        self.ask_to_join(config, out);
        if let Some(attempt) = &self.attempt {
            self.propose(attempt, config, out);
        }
        self.try_to_found(config, now, out)
    }

    /// Handles a hello, or the answer to one. `asked` is the address that this process dialled, if
    /// it is an answer.
    pub(crate) fn on_hello(
        &mut self,
        config: &Config,
        now: Time,
        me: MemberInfo,
        (asked, is_proven): (Option<SocketAddr>, bool),
        belonging: Affiliation,
        out: &mut Vec<Output>,
    ) -> FoundingOutcome {
        if let Some(bound) = &self.bound
            && is_proven
            && bound.coordinator.addr == me.addr
            && bound.coordinator.process != me.process
        {
            return FoundingOutcome::Abandoned;
        }
        let is_member = matches!(belonging, Affiliation::Member { .. });
        // A hello from a seed's own address is from that seed. An alias is known only by its
        // answer.
        let addr = asked.unwrap_or(me.addr);
        let known = self
            .heard
            .get(&addr)
            .is_some_and(|heard| heard.belonging == belonging && heard.me == me);
        let matters = asked.is_some() || self.seeds.contains(&addr) || is_member;
        // A stranger can name any address. A proven reply from that address is kept.
        let is_doubtful = !is_proven && self.heard.get(&addr).is_some_and(|heard| heard.is_proven);
        if matters && !is_doubtful && self.make_room(addr, is_proven && is_member) {
            self.heard.insert(addr, SeedReply { me, belonging, at: now, is_proven });
        }
        if config.forced_start {
            let refused = self.led_member().map(Box::new).map(FoundingOutcome::ForceRefused);
            return refused.unwrap_or(FoundingOutcome::Pending);
        }
        if known {
            return FoundingOutcome::Pending;
        }
        if is_member {
            if let Some(wrong) = self.wrong_clock(now) {
                return FoundingOutcome::Refused(wrong);
            }
            self.ask_to_join(config, out);
        }
        self.try_to_found(config, now, out)
    }

    /// Returns whether the reply from an address may be remembered. A crowd in discovery takes no
    /// room from the replies of seeds and voters. The proven reply of a member replaces one that is
    /// of neither.
    fn make_room(&mut self, addr: SocketAddr, is_proven_member: bool) -> bool {
        let Discovery { heard, seeds, voters, most, .. } = self;
        let is_expected = |addr: &SocketAddr| seeds.contains(addr) || voters.contains(addr);
        let others = || heard.iter().filter(|(addr, _)| !is_expected(addr));
        if is_expected(&addr) || heard.contains_key(&addr) || others().count() < *most {
            return true;
        }
        let is_less = |reply: &SeedReply| {
            !reply.is_proven || !matches!(reply.belonging, Affiliation::Member { .. })
        };
        let less = others().find(|(_, reply)| is_less(reply)).map(|(addr, _)| *addr);
        is_proven_member && less.is_some_and(|less| heard.remove(&less).is_some())
    }

    /// Handles the proposal of a founding by another seed.
    pub(crate) fn on_found(
        &mut self,
        config: &Config,
        now: Time,
        from: ProcessId,
        attempt: u32,
        view: &View,
        out: &mut Vec<Output>,
    ) -> FoundingOutcome {
        let Some(first) = view.members.first() else { return FoundingOutcome::Pending };
        // The whole information is compared: the key of its vote could be another process's.
        let own = view.member(config.me.process);
        let in_it = own.is_some_and(|own| own.info == config.me) && view.is_sound();
        let known = self.knows_a_cluster();
        // Without authentication only a seed that was asked proves that it is one.
        let is_seed = config.nonce.is_none()
            || planted!(config.mutant, FoundForAny)
            || self.heard.get(&first.info.addr).is_some_and(|heard| {
                heard.is_proven && heard.me.process == from && self.seeds.contains(&first.info.addr)
            });
        if first.info.process != from
            || !is_seed
            || view.lineage.founder != from
            || !in_it
            || !suffices(config, view.members.len())
            || known
            || config.forced_start
            || self.attempt.is_some()
        {
            return FoundingOutcome::Pending;
        }
        if let Err(wrong) = self.clock.check(now, view.first_slot) {
            return FoundingOutcome::Refused(wrong);
        }
        if view.first_slot <= config.found_above {
            // The proposer's clock is behind. It proposes again later.
            return FoundingOutcome::Pending;
        }
        let agreed = match &self.bound {
            None => true,
            Some(_) if planted!(config.mutant, AgreeTwice) => true,
            Some(bound) => bound.coordinator.process == from && bound.attempt <= attempt,
        };
        if agreed {
            let since = self.bound.as_ref().map_or(now, |bound| bound.since);
            self.bound = Some(AgreedFounding { coordinator: first.info.clone(), attempt, since });
            let packet = Packet::from(Notice::FoundOk { attempt });
            out.push(Output::Send { to: first.info.addr, process: Some(from), packet });
        }
        FoundingOutcome::Pending
    }

    /// Handles a seed's agreement to this process's founding.
    pub(crate) fn on_found_ok(&mut self, from: ProcessId, number: u32) -> FoundingOutcome {
        let Some(attempt) = &mut self.attempt else { return FoundingOutcome::Pending };
        if number != self.attempts || !attempt.view.contains(from) {
            return FoundingOutcome::Pending;
        }
        attempt.agreed.insert(from);
        if attempt.agreed.len() == attempt.view.members.len() {
            return FoundingOutcome::Founded(Box::new(attempt.view.clone()));
        }
        FoundingOutcome::Pending
    }

    /// The answer from each seed, as text.
    pub(crate) fn report(&self, config: &Config) -> SeedReport {
        let me = &config.me;
        let describe = |heard: &SeedReply| match &heard.belonging {
            Affiliation::Discovery { seeds, .. } if *seeds != self.seeds => {
                "seeks too, but with other seeds".to_string()
            }
            Affiliation::Discovery { bound: true, .. } => {
                "is about to be founded with others".to_string()
            }
            Affiliation::Discovery { .. } => "seeks too".to_string(),
            Affiliation::Member { version, .. } if !me.versions.contains(*version) => format!(
                "is in a cluster that speaks version {version} of the wire; this one speaks {}: \
                 take another release of elderlock",
                me.versions
            ),
            Affiliation::Member { view, elder, led: true, .. } => {
                format!("is in view {view} of elder {}", elder.addr)
            }
            Affiliation::Member { view, .. } => {
                format!("is in view {view}, but no elder has a quorum there")
            }
            Affiliation::VoteSuccessor { claim: VoteClaim { voter, .. }, view, .. } => {
                format!("has the stored vote of {voter} in view {view}, and seeks a quorum of it")
            }
        };
        let answer = |addr: &SocketAddr| {
            if *addr == me.addr {
                Some("this member".to_string())
            } else {
                self.heard.get(addr).map(describe)
            }
        };
        let is_in_discovery = |heard: &&SeedReply| match heard.belonging {
            Affiliation::Discovery { .. } => true,
            Affiliation::Member { .. } | Affiliation::VoteSuccessor { .. } => false,
        };
        let at_seeds = self.seeds.iter().filter_map(|addr| self.heard.get(addr));
        let others = at_seeds.filter(is_in_discovery).map(|heard| heard.me.process);
        let founders: BTreeSet<ProcessId> = others.chain([me.process]).collect();
        let mut all = self.heard.values();
        SeedReport {
            founders: founders.len(),
            expected: config.expect,
            hears_of_cluster: all
                .any(|heard| matches!(heard.belonging, Affiliation::Member { .. })),
            seeds: self.seeds.iter().map(|addr| (*addr, answer(addr))).collect(),
        }
    }

    /// The process that answers at an address, and its affiliation.
    pub(crate) fn answer_from(&self, addr: SocketAddr) -> Option<(ProcessId, &Affiliation)> {
        self.heard.get(&addr).map(|heard| (heard.me.process, &heard.belonging))
    }

    /// A cluster with an elder that was founded too far above this machine's clock. An unproven
    /// reply does not count: it would end this process.
    fn wrong_clock(&self, now: Time) -> Option<WrongClock> {
        let mut proven = self.heard.values().filter(|heard| heard.is_proven);
        proven.find_map(|heard| match &heard.belonging {
            Affiliation::Member { lineage, led: true, .. } => {
                self.clock.check(now, lineage.founded).err()
            }
            _ => None,
        })
    }

    fn ask_to_join(&mut self, config: &Config, out: &mut Vec<Output>) {
        // A lineage that a later one has overtaken is not joined: its tokens would be lower than
        // some that were dealt.
        let is_overtaken =
            |lineage: Lineage| config.last_view().is_some_and(|last| last.lineage > lineage);
        let best = self.heard.values().filter_map(|heard| match &heard.belonging {
            Affiliation::Member { lineage, view, elder, led, version, .. }
                if !is_overtaken(*lineage) && config.me.versions.contains(*version) =>
            {
                Some(((heard.is_proven, *led, *view), *lineage, elder, &heard.me))
            }
            _ => None,
        });
        if let Some(((_, _, view), lineage, elder, via)) = best.max_by_key(|(rank, ..)| *rank) {
            let before = self.asked.filter(|(asked, _)| *asked == lineage);
            let heard = before.map_or(view, |(_, before)| before.min(view));
            self.asked = Some((lineage, heard));
            // The process that reported the cluster is asked as well: it may reach the elder where
            // this one does not.
            for info in BTreeSet::from([elder, via]) {
                let packet = Packet::from(Notice::Join { me: config.me.clone(), heard });
                out.push(Output::Send { to: info.addr, process: Some(info.process), packet });
            }
        }
    }

    fn try_to_found(
        &mut self,
        config: &Config,
        now: Time,
        out: &mut Vec<Output>,
    ) -> FoundingOutcome {
        let busy = self.bound.is_some() || self.attempt.is_some();
        if !self.seeds.contains(&config.me.addr) || busy || !self.may_found(now) {
            return FoundingOutcome::Pending;
        }
        let mut founders = BTreeMap::from([(config.me.process, config.me.clone())]);
        for addr in self.seeds.iter().filter(|addr| **addr != config.me.addr) {
            match self.heard.get(addr) {
                Some(SeedReply { me, belonging: Affiliation::Discovery { seeds, .. }, .. })
                    if *seeds == self.seeds =>
                {
                    founders.insert(me.process, me.clone());
                }
                _ if planted!(config.mutant, FoundWithoutAll) => {}
                _ => return FoundingOutcome::Pending,
            }
        }
        if !suffices(config, founders.len()) {
            return FoundingOutcome::Pending;
        }
        let mut founders: Vec<MemberInfo> = founders.into_values().collect();
        founders.sort_by_key(|info| (info.addr, info.process));
        if founders[0].process != config.me.process {
            return FoundingOutcome::Pending;
        }
        self.attempts += 1;
        let attempt = FoundingAttempt {
            view: self.first_view(config, now, founders),
            agreed: BTreeSet::from([config.me.process]),
            started: now,
        };
        if attempt.agreed.len() == attempt.view.members.len() {
            return FoundingOutcome::Founded(Box::new(attempt.view));
        }
        self.propose(&attempt, config, out);
        self.attempt = Some(attempt);
        FoundingOutcome::Pending
    }

    /// Returns whether the view shows that the id of this process is used up: an earlier view may
    /// have had it.
    pub(crate) fn is_used_up(&self, config: &Config, view: &View) -> bool {
        let asked = self.asked.filter(|(lineage, _)| *lineage == view.lineage);
        !view.contains(config.me.process)
            && !view.admits(&config.me, asked.map_or(view.number, |(_, heard)| heard))
    }

    /// Returns whether this process has agreed to a founding of that process.
    pub(crate) fn is_bound_to(&self, process: ProcessId) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.coordinator.process == process)
    }

    /// Addresses in a cluster, from processes at known addresses.
    pub(crate) fn proven_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.heard.values().filter(|heard| heard.is_proven).flat_map(|heard| {
            match &heard.belonging {
                Affiliation::Member { elder, .. } => vec![heard.me.addr, elder.addr],
                _ => Vec::new(),
            }
        })
    }

    /// Returns whether an answer from this address is a proof.
    pub(crate) fn knows(&self, config: &Config, addr: SocketAddr) -> bool {
        config.knows(addr)
            || self.voters.contains(&addr)
            || self.proven_addrs().any(|known| known == addr)
    }

    /// Returns the time until which this process listens for a cluster that continues without it.
    pub(crate) fn listens_until(&self) -> Time {
        self.listens_until
    }

    fn may_found(&self, now: Time) -> bool {
        now >= self.listens_until && !self.knows_a_cluster()
    }

    /// Returns whether there is a cluster with an elder. A cluster that lost its quorum is over as
    /// soon as its leases are.
    pub(crate) fn knows_a_cluster(&self) -> bool {
        self.heard.values().any(|heard| led_member(&heard.me, &heard.belonging).is_some())
    }

    /// A member of a cluster with an elder.
    fn led_member(&self) -> Option<LedMember> {
        self.heard.values().find_map(|heard| led_member(&heard.me, &heard.belonging))
    }

    fn propose(&self, attempt: &FoundingAttempt, config: &Config, out: &mut Vec<Output>) {
        for member in &attempt.view.members {
            let info = &member.info;
            if info.process != config.me.process && !attempt.agreed.contains(&info.process) {
                let found = Notice::Found { attempt: self.attempts, view: attempt.view.clone() };
                out.push(Output::Send {
                    to: info.addr,
                    process: Some(info.process),
                    packet: found.into(),
                });
            }
        }
    }

    /// Returns the first view. It begins above all tokens that an elder whose clock is not ahead of
    /// this one can have dealt until now.
    fn first_view(&self, config: &Config, now: Time, founders: Vec<MemberInfo>) -> View {
        let ahead = if planted!(config.mutant, FoundAtTheClock) { 0 } else { AHEAD };
        let first = self.clock.slot(now).plus(ahead).max(config.found_above).plus(1);
        View::first(first, founders, config.timing, config.council_size)
    }
}

/// The process with this affiliation, if its lease runs.
pub(super) fn led_member(info: &MemberInfo, belonging: &Affiliation) -> Option<LedMember> {
    match belonging {
        Affiliation::Member { lineage, view, elder, led: true, .. } => Some(LedMember {
            info: info.clone(),
            lineage: *lineage,
            view: *view,
            elder: elder.clone(),
        }),
        _ => None,
    }
}

/// Returns whether this number of distinct processes may found.
fn suffices(config: &Config, founders: usize) -> bool {
    founders >= config.expect || planted!(config.mutant, FoundWithFewer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::id::{Slot, Versions};
    use crate::protocol::timing::Timing;
    use std::time::Duration;

    fn addr(site: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, site], 7400))
    }

    fn info(site: u8) -> MemberInfo {
        MemberInfo::new(ProcessId(u128::from(site)), addr(site))
    }

    /// A process whose seeds are at these sites, after it has listened.
    fn in_discovery(me: u8, seeds: &[u8], expect: usize) -> (Config, Discovery, Time) {
        let seeds = seeds.iter().map(|site| addr(*site)).collect();
        let config = Config { seeds, expect, ..Config::new(info(me), Timing::fast()) };
        let start = Time::from_nanos(1);
        let discovery = Discovery::new(&config, start);
        let now = discovery.listens_until() + Duration::from_millis(1);
        (config, discovery, now)
    }

    /// The founders in the proposals of a process that gets `answers`: site, process.
    fn proposed(expect: usize, answers: &[(u8, u8)]) -> Vec<usize> {
        let sites: Vec<u8> = [1].into_iter().chain(answers.iter().map(|(site, _)| *site)).collect();
        let (config, mut discovery, now) = in_discovery(1, &sites, expect);
        let mut out = Vec::new();
        for (site, process) in answers {
            let belonging = discovery.belonging();
            let answer = (Some(addr(*site)), true);
            discovery.on_hello(&config, now, info(*process), answer, belonging, &mut out);
        }
        let members = out.iter().filter_map(|output| match output {
            Output::Send { packet: Packet::Notice(notice), .. } => match &**notice {
                Notice::Found { view, .. } => Some(view.members.len()),
                _ => None,
            },
            _ => None,
        });
        members.collect()
    }

    #[test]
    fn a_proposer_counts_distinct_processes_and_itself() {
        assert_eq!(proposed(1, &[(2, 2)]), [2]);
        assert_eq!(proposed(2, &[(2, 2)]), [2]);
        assert!(proposed(3, &[(2, 2)]).is_empty());
        assert_eq!(proposed(3, &[(2, 2), (3, 3)]), [3, 3]);
        assert!(proposed(3, &[(2, 2), (3, 2)]).is_empty(), "two addresses of one process");
    }

    #[test]
    fn a_process_alone_founds_only_if_it_expects_no_other() {
        let founds = |expect| {
            let (config, mut discovery, now) = in_discovery(1, &[1], expect);
            let belonging = discovery.belonging();
            let outcome = discovery.on_timer(&config, now, belonging, &mut Vec::new());
            matches!(outcome, FoundingOutcome::Founded(_))
        };
        assert_eq!([1, 2, 3].map(founds), [true, false, false]);
    }

    #[test]
    fn a_process_agrees_to_no_founding_of_fewer_members_than_it_expects_itself() {
        let agrees = |expect| {
            let (config, mut discovery, now) = in_discovery(2, &[1, 2], expect);
            let founders = vec![info(1), info(2)];
            let view = View::first(Slot(5), founders, config.timing, config.council_size);
            let mut out = Vec::new();
            discovery.on_found(&config, now, ProcessId(1), 1, &view, &mut out);
            (discovery.is_bound_to(ProcessId(1)), out.len())
        };
        assert_eq!(agrees(2), (true, 1));
        assert_eq!(agrees(3), (false, 0));
    }

    /// The affiliation of the elder at this site, of a view with this version of the wire.
    fn elder(site: u8, version: u16) -> Affiliation {
        Affiliation::Member {
            lineage: Lineage { founded: Slot(1), founder: ProcessId(u128::from(site)) },
            view: ViewNumber(1),
            elder: info(site),
            version,
            led: true,
            kept: true,
            settled: true,
        }
    }

    /// The addresses of the processes that the sender asks for its join.
    fn asked(out: &[Output]) -> BTreeSet<SocketAddr> {
        let joins = out.iter().filter_map(|output| match output {
            Output::Send { to, packet: Packet::Notice(notice), .. }
                if matches!(**notice, Notice::Join { .. }) =>
            {
                Some(*to)
            }
            _ => None,
        });
        joins.collect()
    }

    /// The sites that a process asks for its join, after replies of these members: site, proven or
    /// not. It has room for the replies of two processes that are not seeds, and three have
    /// replied.
    fn asked_in_a_crowd(members: &[(u8, bool)]) -> BTreeSet<SocketAddr> {
        let (mut config, _, now) = in_discovery(1, &[1, 2], 1);
        config.limits.contacts = 2;
        let mut discovery = Discovery::new(&config, Time::from_nanos(1));
        let mut out = Vec::new();
        for site in [3, 4, 5] {
            let belonging = discovery.belonging();
            let answer = (Some(addr(site)), true);
            discovery.on_hello(&config, now, info(site), answer, belonging, &mut out);
        }
        assert_eq!(discovery.heard.len(), 2);
        for &(site, is_proven) in members {
            let answer = (Some(addr(site)), is_proven);
            discovery.on_hello(&config, now, info(site), answer, elder(site, 0), &mut out);
        }
        assert!(discovery.heard.len() <= 3);
        asked(&out)
    }

    #[test]
    fn the_reply_of_a_member_has_room_beside_a_crowd() {
        assert_eq!(asked_in_a_crowd(&[(2, false)]), [addr(2)].into(), "a seed");
        assert_eq!(asked_in_a_crowd(&[(6, true)]), [addr(6)].into(), "another member");
        assert_eq!(asked_in_a_crowd(&[(6, false)]), [].into(), "a claim");
        let three = [(6, true), (7, true), (8, true)];
        assert_eq!(asked_in_a_crowd(&three).len(), 2, "no proven member is forgotten for another");
    }

    /// A process whose start is forced, after an answer: the outcome, and whether it sent anything.
    fn forced_after(answer: Affiliation) -> (FoundingOutcome, bool) {
        let (mut config, mut discovery, _) = in_discovery(1, &[1, 2], 1);
        config.forced_start = true;
        let (early, mut out) = (Time::from_nanos(2), Vec::new());
        let found =
            discovery.on_hello(&config, early, info(2), (Some(addr(2)), true), answer, &mut out);
        (found, !out.is_empty())
    }

    #[test]
    fn a_forced_start_is_refused_by_a_member_with_an_elder_and_asks_it_for_nothing() {
        let (FoundingOutcome::ForceRefused(member), false) = forced_after(elder(2, 0)) else {
            panic!("it goes on beside a cluster")
        };
        assert_eq!((member.info, member.elder), (info(2), info(2)));
        let mut without = elder(2, 0);
        let Affiliation::Member { led, .. } = &mut without else { panic!("a member") };
        *led = false;
        assert!(matches!(forced_after(without), (FoundingOutcome::Pending, false)));
    }

    #[test]
    fn a_forced_start_listens_first_and_agrees_to_no_founding() {
        let (mut config, mut discovery, now) = in_discovery(2, &[2], 1);
        config.forced_start = true;
        let (early, mut out) = (Time::from_nanos(2), Vec::new());
        let view = View::first(Slot(5), vec![info(1), info(2)], config.timing, 7);
        discovery.on_found(&config, early, ProcessId(1), 1, &view, &mut out);
        assert!(out.is_empty() && !discovery.is_bound_to(ProcessId(1)));
        let mut outcome_at = |time| {
            let belonging = discovery.belonging();
            discovery.on_timer(&config, time, belonging, &mut Vec::new())
        };
        assert!(matches!(outcome_at(early), FoundingOutcome::Pending));
        assert!(matches!(outcome_at(now), FoundingOutcome::Forced));
    }

    #[test]
    fn a_report_counts_the_founders_that_are_there() {
        let (config, mut discovery, now) = in_discovery(1, &[1, 2, 3], 3);
        assert_eq!(discovery.report(&config).founders, 1);
        let answer = (Some(addr(2)), true);
        let belonging = discovery.belonging();
        discovery.on_hello(&config, now, info(2), answer, belonging, &mut Vec::new());
        let report = discovery.report(&config);
        assert_eq!((report.founders, report.hears_of_cluster), (2, false));
        let answers: Vec<bool> = report.seeds.iter().map(|(_, answer)| answer.is_some()).collect();
        assert_eq!(answers, [true, true, false]);
    }

    /// The report on a seed in a view of `version`, by a process that speaks these versions. Also
    /// whether the process asks to join.
    fn report_on_version(version: u16, lowest: u16, highest: u16) -> (String, bool) {
        let (mut config, mut discovery, now) = in_discovery(1, &[1, 2], 1);
        config.me.versions = Versions { lowest, highest };
        let (answer, mut out) = ((Some(addr(2)), true), Vec::new());
        discovery.on_hello(&config, now, info(2), answer, elder(2, version), &mut out);
        let report = discovery.report(&config);
        assert!(report.hears_of_cluster);
        let told = report.seeds.into_iter().find(|(seed, _)| *seed == addr(2));
        let text = told.and_then(|(_, answer)| answer).expect("the seed has answered");
        (text, !asked(&out).is_empty())
    }

    #[test]
    fn a_process_that_lacks_the_version_of_the_view_reports_both_and_does_not_ask_to_join() {
        let refused = |version: u16, own: &str| {
            let text = format!(
                "is in a cluster that speaks version {version} of the wire; this one speaks \
                 {own}: take another release of elderlock"
            );
            (text, false)
        };
        assert_eq!(report_on_version(13, 11, 12), refused(13, "11 to 12"), "too old");
        assert_eq!(report_on_version(13, 12, 12), refused(13, "12"), "too old, of one version");
        assert_eq!(report_on_version(13, 14, 15), refused(13, "14 to 15"), "too new");
        let taken = ("is in view 1 of elder 10.0.0.2:7400".to_string(), true);
        for (lowest, highest) in [(11, 13), (13, 13), (13, 14)] {
            assert_eq!(report_on_version(13, lowest, highest), taken);
        }
    }
}
