//! `last_young_turk_wins`: several members may be named grantor of a service while its table is
//! under way. The last one acts, and the others pass the table on. Each bid is answered truthfully:
//! its young turk acts, or the answer names a later young turk.
//!
//! The rules, for a young turk T and its epoch e:
//! - **Acting.** T begins in e only under three conditions. No later young turk waits for the
//!   table. T has given neither table nor report to a later one. Since it heard of e, T has not
//!   been told that another turk came after it.
//! - **Won** is answered only while T acts.
//! - **Superseded by Q** is answered when Q has been named after T. Q's epoch is then above one
//!   that T has, or is still to hear of. The answer is also given when the elder has told T that Q
//!   asked after the request that gets this answer. Each such message counts once.
//! - **Outbid.** The elder sends it to T only when Q has asked: to each T at most as often as Q
//!   did. From then on Q, or a member that asks after Q, is the next to be named, unless that
//!   member leaves or grants already. The member that was named last may be named once more before,
//!   if the table that it waits for does not come.
//!
//! An elder's messages to itself are in no packet. So of an elder that bids itself only the bid is
//! known.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, Call, ClientRequest};
use crate::liveness::Demand;
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Event, GrantorMessage, GrantorState, MemberMessage, Message, Outcome,
    Packet, ProcessId, RegistryMessage, RequestId, ServiceName,
};
use std::collections::{BTreeMap, BTreeSet};

/// The highest number of requests of one member.
const ASKS: u32 = 3;

/// Demands, when all is healed, that each member that asks to become grantor becomes it, one after
/// the other. Of two members that ask at once, one must be told that it has won, and the other must
/// not wait for ever. False if this is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let services: BTreeSet<ServiceName> =
        world.history().keys().into_iter().map(|(service, _)| service).collect();
    let sites: Vec<usize> = world.demanded().filter(|site| world.is_up(*site)).collect();
    for service in services {
        let service = service.as_str();
        for &site in sites.iter().rev().take(2) {
            let (ask, acts) = ask_to_grant(world, site, service, demand);
            if world.outcome(ask) != Some(&Outcome::Won) || !acts {
                let (said, grantor) = (world.outcome(ask), world.find_grantor(service));
                world.fail(
                    NAME,
                    format!(
                        "m{site} asks to grant {service}, hears {said:?}, and {grantor:?} does"
                    ),
                );
                return false;
            }
            world.count_premise(NAME);
        }
        let asks: Vec<Ask> =
            sites.iter().take(3).map(|site| world.become_grantor(*site, service)).collect();
        world.run_until(|world| asks.iter().all(|ask| world.is_answered(*ask)), demand.answer * 2);
        let winners = asks.iter().filter(|ask| world.outcome(**ask) == Some(&Outcome::Won)).count();
        if winners == 0 || asks.iter().any(|ask| !world.is_answered(*ask)) {
            let said: Vec<_> = asks.iter().map(|ask| world.outcome(*ask)).collect();
            world.fail(NAME, format!("several ask at once to grant {service} and hear {said:?}"));
            return false;
        }
        world.count_premise(NAME);
    }
    true
}

/// A member asks to become grantor of a service. Returns its last request, and whether it grants.
fn ask_to_grant(world: &mut World, site: usize, service: &str, demand: &Demand) -> (Ask, bool) {
    let mut asks = 0;
    loop {
        asks += 1;
        let ask = world.become_grantor(site, service);
        world.run_until(|world| world.is_answered(ask), demand.answer);
        // Where bounds are drawn tiny, open objects leave no room.
        let opened = world.history().opened().find(|open| world.call(*open).member == site);
        if let Some(open) =
            opened.filter(|_| world.outcome(ask) == Some(&Outcome::Busy) && asks < ASKS)
        {
            world.release(open);
            continue;
        }
        // Another member's request from before the healing may come after this request.
        if matches!(world.outcome(ask), Some(Outcome::Outbid(_))) && asks < ASKS {
            continue;
        }
        // If the member was stopped, the healing may come at the last instant of its lease.
        let acts =
            world.run_until(|world| world.find_grantor(service) == Some(site), demand.answer);
        let is_expelled = world.sites[site].process() != Some(world.call(ask).process);
        if !is_expelled || asks == ASKS {
            return (ask, acts);
        }
    }
}

/// The name of the invariant.
pub const NAME: &str = "last_young_turk_wins";

/// A message of an elder: the elder, and the message's number on the link to its receiver.
type ElderMessage = (ProcessId, u64);

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct LastYoungTurkWins {
    /// The latest epoch for which each process was named, or in which it was seen.
    named: BTreeMap<(ServiceName, ProcessId), Epoch>,
    /// Epochs for which a process was named. It has neither begun to set them up nor declined, as
    /// far as is known.
    unheard: BTreeMap<(ServiceName, ProcessId), BTreeMap<Epoch, ElderMessage>>,
    /// The epochs of each process, acting or not, after its last step.
    epochs: BTreeMap<ProcessId, BTreeMap<ServiceName, Epoch>>,
    /// Epochs that ended in this step.
    ended: BTreeSet<(ServiceName, ProcessId, Epoch)>,
    /// How often each turk has asked each elder.
    bids: BTreeMap<(ServiceName, ProcessId, ProcessId), u64>,
    /// How often an elder has told a turk that another turk outbid it. The key is in this order:
    /// the service, the turk that outbid, the elder, the other turk.
    spent: BTreeMap<(ServiceName, ProcessId, ProcessId, ProcessId), u64>,
    /// Turks that were told of a later bid and have not yet told their clients. Each message has
    /// the later bidder and the turk's last request that had arrived at the elder by then.
    outbid: BTreeMap<(ServiceName, ProcessId), BTreeMap<ElderMessage, (ProcessId, RequestId)>>,
    /// The messages of `outbid` that were used in this step.
    used: BTreeSet<(ServiceName, ProcessId, ElderMessage)>,
    /// The last bidder that waits at an elder, if the elder has told another turk of it.
    next: BTreeMap<(ServiceName, ProcessId), ProcessId>,
    /// The process that an elder has named last.
    last: BTreeMap<(ServiceName, ProcessId), ProcessId>,
    /// The last relevant message from one process to another: a retransmission is not news.
    said: BTreeMap<(ProcessId, ProcessId), u64>,
    /// The latest epoch to which each process has given its table, or a report.
    answered: BTreeMap<(ServiceName, ProcessId), Epoch>,
    /// Epochs in which a process has been told that another turk came after it.
    lost: BTreeSet<(ServiceName, ProcessId, Epoch)>,
    /// Processes that were asked, in an earlier step than the present one, for a table that they
    /// still wait for.
    passing: BTreeSet<(ServiceName, ProcessId, Epoch)>,
    /// The services whose grantor began to act in this step.
    began: BTreeSet<ServiceName>,
    /// The processes that have bid for a service because of its load.
    followers: BTreeSet<(ServiceName, ProcessId)>,
    premises: Count,
}

impl LastYoungTurkWins {
    fn name(&mut self, service: &ServiceName, process: ProcessId, epoch: Epoch) {
        let latest = self.named.entry((service.clone(), process)).or_insert(epoch);
        *latest = (*latest).max(epoch);
    }

    /// Returns whether the message is sent for the first time.
    fn is_news(&mut self, from: ProcessId, to: ProcessId, seq: u64) -> bool {
        let last = self.said.entry((from, to)).or_default();
        let is_news = *last < seq;
        *last = (*last).max(seq);
        is_news
    }

    /// The elder names a process, for the first time in that epoch.
    fn hear_name(
        &mut self,
        world: &World,
        elder: ProcessId,
        of: (ServiceName, ProcessId),
        word: (Epoch, u64),
    ) -> Verdict {
        let (epoch, seq) = word;
        self.unheard.entry(of.clone()).or_default().insert(epoch, (elder, seq));
        let (service, process) = of;
        let again = self.last.insert((service.clone(), elder), process) == Some(process);
        if again && self.next.get(&(service.clone(), elder)) != Some(&process) {
            return Ok(());
        }
        let Some(next) = self.next.remove(&(service.clone(), elder)) else { return Ok(()) };
        let present = |process| world.present_site_of(process).map(|site| &world.sites[site]);
        // A leaving member is forgotten, and a member that grants already need not be named. An
        // elder's messages to itself are not seen.
        let waits = present(next)
            .filter(|site| site.is_alive() && !site.leaving && next != elder)
            .is_some_and(|site| {
                let grants = site
                    .node
                    .as_ref()
                    .is_some_and(|node| node.grantors().any(|(of, ..)| *of == service));
                let elders =
                    present(elder).and_then(|site| site.node.as_ref()).and_then(|node| node.view());
                !grants && elders.is_some_and(|view| view.contains(next))
            });
        if waits {
            self.premises += 1;
            if next != process {
                return Err(format!(
                    "{process} is named for {service} in {epoch:?} before {next}, for which \
                     others were outbid"
                ));
            }
        }
        Ok(())
    }

    /// The elder tells a young turk that another turk asked after it.
    fn hear_outbid(
        &mut self,
        world: &World,
        (elder, seq): ElderMessage,
        of: (ServiceName, ProcessId),
        (by, last): (ProcessId, RequestId),
    ) -> Verdict {
        let (service, process) = of.clone();
        self.premises += 1;
        let is_true = if by == elder {
            // The elder asks itself without a packet.
            let asks = world.history().calls.iter().any(|of| {
                of.process == by
                    && of.request_kind == ClientRequest::Become
                    && of.service == service
            });
            asks || self.followers.contains(&(service.clone(), by))
        } else {
            let spent = self.spent.entry((service.clone(), by, elder, process)).or_default();
            *spent += 1;
            self.bids.get(&(service.clone(), by, elder)).is_some_and(|bids| *spent <= *bids)
        };
        if !is_true || by == process {
            return Err(format!(
                "{elder} tells {process} that {by} asked after it to grant {service}, which it \
                 did not"
            ));
        }
        self.outbid.entry(of).or_default().insert((elder, seq), (by, last));
        let grants = world.present_site_of(by).is_some_and(|site| {
            world.sites[site]
                .node
                .as_ref()
                .is_some_and(|node| node.grantors().any(|(of, ..)| *of == service))
        });
        match grants {
            true => _ = self.next.remove(&(service, elder)),
            false => _ = self.next.insert((service, elder), by),
        }
        Ok(())
    }

    /// A member answers that another turk came after it.
    fn hear_superseded(&mut self, call: &Call, by: ProcessId) -> Verdict {
        self.premises += 1;
        let of = (call.service.clone(), call.process);
        let present =
            self.epochs.get(&call.process).and_then(|epochs| epochs.get(&call.service)).copied();
        self.lost.extend(present.map(|epoch| (of.0.clone(), of.1, epoch)));
        let unheard = self.unheard.get(&of).into_iter().flat_map(|epochs| epochs.keys().copied());
        let ended =
            self.ended.iter().filter(|(service, process, _)| (service, process) == (&of.0, &of.1));
        let own = unheard.chain(present).chain(ended.map(|(.., epoch)| *epoch)).min();
        let theirs = self.named.get(&(call.service.clone(), by)).copied();
        let followed = own.is_some_and(|own| theirs > Some(own));
        // The asked member may have ceased to be the elder in this step.
        let asked_here = self.bids.contains_key(&(call.service.clone(), by, call.process));
        let counts = |(turk, last): &(ProcessId, RequestId)| *turk == by && call.request <= *last;
        let told =
            self.outbid.get(&of).and_then(|words| words.iter().find(|(_, word)| counts(word)));
        if let Some((word, _)) = told.filter(|_| !followed && !asked_here) {
            self.used.insert((of.0, of.1, *word));
        }
        if by == call.process || !(followed || told.is_some() || asked_here) {
            return Err(format!(
                "m{} is told that {by} grants {} in its place: named in {theirs:?}, itself in \
                 {own:?}, and not outbid by it",
                call.member, call.service
            ));
        }
        Ok(())
    }

    /// A member has done a step.
    fn look(&mut self, world: &World, site: usize) {
        self.began.clear();
        self.ended.clear();
        for (service, process, (elder, seq)) in std::mem::take(&mut self.used) {
            if let Some(words) = self.outbid.get_mut(&(service, process)) {
                // Links keep order: the elder's earlier messages have arrived.
                words.retain(|(from, said), _| *from != elder || *said > seq);
            }
        }
        let Some((node, process)) =
            world.sites[site].node.as_ref().zip(world.sites[site].process())
        else {
            return;
        };
        self.passing.retain(|(_, whose, _)| *whose != process);
        let passes = node.grantors().filter(|(.., state)| *state == GrantorState::PassingOn);
        self.passing.extend(passes.map(|(service, epoch, _)| (service.clone(), process, epoch)));
        let before = self.epochs.entry(process).or_default();
        let same = |((service, epoch), (of, known, _)): ((&ServiceName, &Epoch), _)| {
            (service, *epoch) == (of, known)
        };
        if before.len() == node.grantors().count() && before.iter().zip(node.grantors()).all(same) {
            return;
        }
        *before = node.grantors().map(|(service, epoch, _)| (service.clone(), epoch)).collect();
        for (service, epoch) in before.clone() {
            self.name(&service, process, epoch);
            self.forget_until((service, process), epoch);
        }
    }

    /// The process has heard that it was named in that epoch. So it has also got all earlier
    /// messages of this elder.
    fn forget_until(&mut self, of: (ServiceName, ProcessId), epoch: Epoch) {
        let Some(unheard) = self.unheard.get_mut(&of) else { return };
        if let Some((elder, seq)) = unheard.get(&epoch)
            && let Some(words) = self.outbid.get_mut(&of)
        {
            words.retain(|(from, said), _| from != elder || said > seq);
        }
        unheard.retain(|of, _| *of > epoch);
    }
}

impl Invariant for LastYoungTurkWins {
    fn name(&self) -> &'static str {
        NAME
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent {
                process,
                to: Some(to),
                packet: Packet::Linked { message, seq, .. },
                ..
            } => {
                match message {
                    Message::Member(MemberMessage::NameGrantor { service, range, .. }) => {
                        let epoch = Epoch(range.first);
                        self.name(service, *to, epoch);
                        if self.is_news(*process, *to, *seq) {
                            return self.hear_name(
                                world,
                                *process,
                                (service.clone(), *to),
                                (epoch, *seq),
                            );
                        }
                    }
                    Message::Registry(RegistryMessage::Become { service, .. })
                        if self.is_news(*process, *to, *seq) =>
                    {
                        *self.bids.entry((service.clone(), *process, *to)).or_default() += 1;
                    }
                    Message::Member(MemberMessage::Outbid { service, request, by })
                        if self.is_news(*process, *to, *seq) =>
                    {
                        return self.hear_outbid(
                            world,
                            (*process, *seq),
                            (service.clone(), *to),
                            (*by, *request),
                        );
                    }
                    // An elder names itself without a packet. Its first message as grantor shows
                    // it.
                    Message::Grantor(GrantorMessage::RequestTable { service, epoch, .. })
                    | Message::Client(ClientMessage::Recover { service, epoch, .. }) => {
                        self.name(service, *process, *epoch);
                    }
                    Message::Grantor(GrantorMessage::TableChunk { service, epoch, .. })
                    | Message::Grantor(GrantorMessage::Report { service, epoch, .. }) => {
                        let latest =
                            self.answered.entry((service.clone(), *process)).or_insert(*epoch);
                        *latest = (*latest).max(*epoch);
                    }
                    Message::Registry(RegistryMessage::Decline { service, epoch }) => {
                        self.forget_until((service.clone(), *process), *epoch);
                    }
                    _ => {}
                }
            }
            Observation::Event {
                site,
                process,
                event: Event::BecameGrantor { service, epoch },
            } => {
                self.name(service, *process, *epoch);
                self.premises += 1;
                self.began.insert(service.clone());
                let grantor = (service.clone(), *process, *epoch);
                let begins = format!("m{site} begins to grant {service} in {epoch:?} though");
                // A turk that has only heard of a later turk acts until that turk asks for the
                // table.
                if self.passing.contains(&grantor) {
                    return Err(format!("{begins} a younger one waits for its table"));
                }
                if let Some(later) =
                    self.answered.get(&(service.clone(), *process)).filter(|later| *later > epoch)
                {
                    return Err(format!("{begins} it has given what it knows to {later:?}"));
                }
                if self.lost.contains(&grantor) {
                    return Err(format!("{begins} it was told there that another came after it"));
                }
            }
            Observation::Event {
                process,
                event:
                    Event::NoLongerGrantor { service, epoch: ended }
                    | Event::GrantorAborted { service, epoch: ended },
                ..
            } => {
                self.ended.insert((service.clone(), *process, *ended));
            }
            Observation::Event { process, event: Event::FollowsLoad { service }, .. } => {
                self.followers.insert((service.clone(), *process));
            }
            // A new elder has heard no bid yet, even if it was the elder before.
            Observation::Event { process, event: Event::BecameElder(_), .. } => {
                self.next.retain(|(_, elder), _| elder != process);
            }
            Observation::Stepped { site } => self.look(world, *site),
            Observation::Answers { ask, outcome: Outcome::Won } => {
                let call = world.call(*ask);
                let node = world.sites[call.member].node.as_ref();
                let acts = |(service, _, state): (&ServiceName, Epoch, GrantorState)| {
                    *service == call.service && state == GrantorState::Acting
                };
                self.premises += 1;
                if !self.began.contains(&call.service)
                    && !node.is_some_and(|node| node.grantors().any(acts))
                {
                    return Err(format!(
                        "m{} is told that it grants {} and does not",
                        call.member, call.service
                    ));
                }
            }
            Observation::Answers { ask, outcome: Outcome::Outbid(by) } => {
                return self.hear_superseded(world.call(*ask), *by);
            }
            _ => {}
        }
        Ok(())
    }
}
