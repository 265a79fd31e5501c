//! The acts of a driver on a [`World`], as values: they can be logged, replayed, removed one by one
//! and searched.
//!
//! A step is concrete: it names sites and calls, never roles, so that it means the same on its
//! own. An impossible step (no such process, no such call) is skipped. So a log stays useful when
//! earlier steps are removed or the core behaves otherwise.

use crate::history::{Ask, ClientRequest, HoldMode};
use crate::kind::kind;
use crate::network::{LinkConditions, NarrowPath};
use crate::rule::{PacketDescription, RuleId};
use crate::world::{DiskHealth, Observation, TornStep, World};
use elderlock::protocol::{
    Batch, Blocked, ForceOrder, Hint, HolderInfo, LockName, Metadata, OpenRequest, Outcome,
    OwnerId, Permits, Query, QueryReply, RevokeCommand, Token, Value, Wait, Want,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// An act of a driver on a World, at one instant. Only [`Restore`](Step::Restore) and
/// [`RestorePart`](Step::RestorePart) take time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A client asks for something. Later steps name the request by `call`.
    Ask {
        /// The number by which later steps name it.
        call: usize,
        /// The site.
        site: usize,
        /// The service.
        service: String,
        /// The client's want.
        wanted: ClientWant,
        /// The owner; zero: the whole member.
        owner: u64,
        /// Its metadata.
        says: String,
        /// How it waits.
        wait: Wait,
        /// How long it may hold, on its member's clock.
        lease: Option<Duration>,
    },
    /// The client releases the lock.
    Release(usize),
    /// The client no longer waits for the lock.
    Cancel(usize),
    /// The client drops its future or its guard after this time.
    GiveUp(usize, Duration),
    /// The client drops its future, or the guard that came of it, this long after the answer.
    GiveUpAnswered(usize, Duration),
    /// The client extends its hold to at least this time from now.
    Extend(usize, Duration),
    /// The client returns this many of its permits.
    ReturnPermits(usize, u32),
    /// The client's lock becomes a share.
    Downgrade(usize),
    /// The client asks the guard for its token and keeps it for later.
    Fence(usize),
    /// The client writes to the protected resource, if the guard gives its token now.
    Write(usize),
    /// A write with the token that the guard gave earlier arrives; its client may be gone.
    WriteEarlier(usize),

    /// A process starts at the site.
    Start(usize),
    /// The process is killed; its host goes on.
    Crash(usize),
    /// The host fails, with every process on it.
    Vanish(usize),
    /// The process is stopped. Its clock goes on.
    Pause(usize),
    /// The process goes on.
    Wake(usize),
    /// The member says goodbye.
    Leave(usize),
    /// An operator forces the member to go on without a quorum.
    Force(usize),
    /// The content of the site's data directory is lost. No process runs there.
    LoseDisk(usize),
    /// The data directory of the site has this health from now on.
    Disk(usize, DiskHealth),
    /// A process dies in the middle of one of its next steps.
    Tear(TornStep),
    /// The next process that decides a view dies before it can tell any other, if that happens
    /// before this instant.
    DieDeciding {
        /// True time in nanoseconds.
        until: u64,
    },

    /// Nothing sent from the first site arrives at the second any more. Each cut needs a `Mend` of
    /// its own.
    Cut(usize, usize),
    /// Takes back one cut; a pair that reaches each other again notices.
    Mend(usize, usize),
    /// Everything sent from the first site to the second takes this much longer.
    Slow(usize, usize, Duration),
    /// Packets from the first site wait at the end of their way to the second. Each clog needs an
    /// `Unclog` of its own.
    Clog(usize, usize),
    /// Takes back one clog; the waiting packets arrive, in order.
    Unclog(usize, usize),
    /// The way from the first site to the second is narrow; `None`: it has no limit.
    Narrow(usize, usize, Option<NarrowPath>),
    /// The connection between the two breaks; packets under way in both directions are lost.
    Reset(usize, usize),
    /// The connection between the two breaks; only packets under way from the first to the second
    /// are lost.
    ResetHalf(usize, usize),
    /// A cut, where the first site is told that no process listens at the second.
    Reject(usize, usize),
    /// Takes back one rejection.
    Accept(usize, usize),
    /// Datagrams between the two get lost. Each such step needs an `Undeafen` of its own.
    Deafen(usize, usize),
    /// Takes back one `Deafen`.
    Undeafen(usize, usize),
    /// The clock of a site runs fast by this rate from now on, in parts per million.
    TurnClock(usize, i32),
    /// The wall clock of a site jumps by this many milliseconds.
    StepWallClock(usize, i64),
    /// The names of the seeds of a site resolve to these sites from now on.
    Resolve(usize, Vec<usize>),
    /// The weather from now on.
    Weather(LinkConditions),
    /// All sites reach each other again, in fair weather.
    Heal,
    /// Packets like these are kept back from now on.
    Hold(PacketFilter),
    /// The kept packets of this filter go on their way, and no more are kept back.
    LetGo(PacketFilter),
    /// The kept packets of this filter are dropped, and no more are kept back.
    DropHeld(PacketFilter),
    /// The next packet like these is dropped.
    DropNext(PacketFilter),

    /// The process at `at` gets a hint about the process that runs or last ran at `about`.
    Notice {
        /// The site.
        at: usize,
        /// The site of that process.
        about: usize,
        /// The hint.
        what: OutsideHint,
    },

    /// A process outside the cluster lies to the one at the site; the number draws the lie.
    Lie(usize, u64),

    /// Everything is healed, all processes are woken or started again, and everything must work.
    Restore,
    /// Sites that are woken or started again and must work. The others are left as they are, and
    /// nothing is demanded of them.
    RestorePart(Vec<usize>),

    /// The following steps are a fault of a plan; this step is for the record only.
    Fault {
        /// Its number in the plan.
        fault: usize,
        /// Its kind.
        kind: String,
        /// The sites that it hits.
        sites: Vec<usize>,
    },
    /// That fault ends with the following steps; this step is for the record only.
    Mended {
        /// Its number in the plan.
        fault: usize,
    },

    /// The packet with this number, among those under way in the order of their arrival, arrives
    /// now.
    Deliver(usize),
    /// The packet with this number is lost.
    Lose(usize),
    /// The packet with this number is under way twice.
    Double(usize),
    /// The timer of the member goes off at the time for which it was set.
    Timer(usize),
}

/// The wants of clients.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClientWant {
    /// A lock.
    Lock(String),
    /// Several locks, all or nothing.
    Batch(Vec<String>),
    /// The suspension of the service.
    Suspension,
    /// A share of a lock.
    Share(String),
    /// A number of permits of an object.
    Permits(String, u32),
    /// An object, which gets this value if no other client has it open.
    Open(String, String),
    /// Give the object that a call has open this value.
    Put(usize, String),
    /// Give the object this value, if it still has the value that the client sees now.
    PutIf(usize, String),
    /// Add this much to the number in the object that a call has open.
    Add(usize, i32),
    /// Make the share that a call has the lock.
    Upgrade(usize),
    /// Make the client's member the grantor.
    Become,
    /// End the whole part of the client's member in the service.
    Destroy,
    /// Query the holders and the waiters of the lock.
    SeeLock(String),
    /// Query the holder of the service's suspension.
    SeeSuspension,
    /// Query the position of a call in the queue.
    SeePosition(usize),
    /// Query all holds.
    SeeHeld,
    /// Query all waiters of the lock, in any number.
    SeeWaiting(String),
    /// Query the holds that the request of a call waits for.
    SeeBlockers(usize),
    /// Ask about the first hold in the answer to a query of this call, at that hold's member.
    SeeOwner(usize),
    /// Request a revocation: the holder of the lock is told.
    RequestRevocation(String),
    /// Revoke a hold by force: the first hold in the answer to a query or a revocation
    /// request of this call.
    ForceRevoke(usize),
    /// End a hold by an operator's order: the first hold in the answer to a query of this call.
    EndByForce(usize),
}

impl ClientWant {
    /// Returns whether the want is something to hold.
    pub fn is_hold(&self) -> bool {
        matches!(
            self,
            ClientWant::Lock(_)
                | ClientWant::Batch(_)
                | ClientWant::Suspension
                | ClientWant::Share(_)
                | ClientWant::Permits(..)
        )
    }

    /// The call that the want is about.
    pub(crate) fn about_mut(&mut self) -> Option<&mut usize> {
        match self {
            ClientWant::SeePosition(call)
            | ClientWant::Put(call, _)
            | ClientWant::PutIf(call, _)
            | ClientWant::Add(call, _)
            | ClientWant::Upgrade(call)
            | ClientWant::SeeBlockers(call)
            | ClientWant::SeeOwner(call)
            | ClientWant::ForceRevoke(call)
            | ClientWant::EndByForce(call) => Some(call),
            _ => None,
        }
    }

    /// The request for the World. `None` if the want is meaningless: an invalid name, or a call
    /// that does not exist.
    fn to_request(&self, world: &World) -> Option<ClientRequest> {
        let lock = |name: &String| LockName::new(name.as_bytes()).ok();
        Some(match self {
            ClientWant::Lock(name) => ClientRequest::Hold(Want::Lock(lock(name)?)),
            ClientWant::Batch(names) => {
                let names: Option<Vec<LockName>> = names.iter().map(lock).collect();
                ClientRequest::Hold(Want::Batch(Batch::new(names?).ok()?))
            }
            ClientWant::Suspension => ClientRequest::Hold(Want::Suspension),
            ClientWant::Share(name) => ClientRequest::Hold(Want::Share(lock(name)?)),
            ClientWant::Permits(name, count) => {
                ClientRequest::Hold(Want::Permits(lock(name)?, Permits::new(*count).ok()?))
            }
            ClientWant::Open(name, initial) => {
                ClientRequest::Hold(Want::Open(OpenRequest::new(lock(name)?, value(initial)?)))
            }
            ClientWant::Put(call, to) => ClientRequest::Put(world.named(*call)?, value(to)?, None),
            ClientWant::PutIf(call, to) => {
                let open = world.named(*call)?;
                ClientRequest::Put(open, value(to)?, Some(world.call(open).sight.as_ref()?.version))
            }
            ClientWant::Add(call, by) => ClientRequest::Add(world.named(*call)?, *by),
            ClientWant::Upgrade(call) => ClientRequest::Upgrade(world.named(*call)?),
            ClientWant::Become => ClientRequest::Become,
            ClientWant::Destroy => ClientRequest::Destroy,
            ClientWant::SeeLock(name) => ClientRequest::Query(Query::Lock(lock(name)?)),
            ClientWant::SeeSuspension => ClientRequest::Query(Query::Suspension),
            ClientWant::SeePosition(call) => {
                ClientRequest::Query(Query::Position(world.call(world.named(*call)?).request))
            }
            ClientWant::SeeHeld => ClientRequest::Query(Query::Held(None)),
            ClientWant::SeeWaiting(name) => ClientRequest::Query(Query::Waiting(lock(name)?, None)),
            ClientWant::SeeBlockers(call) => {
                let call = world.call(world.named(*call)?);
                let of = Blocked::Request(call.process, call.request);
                ClientRequest::Query(Query::Blockers(of))
            }
            ClientWant::SeeOwner(call) => ClientRequest::AskHolder(first_holder(world, *call)?),
            ClientWant::RequestRevocation(name) => ClientRequest::Revoke(RevokeCommand::Ask {
                name: Some(lock(name)?),
                metadata: Metadata::default(),
            }),
            ClientWant::ForceRevoke(call) => match world.outcome(world.named(*call)?)? {
                Outcome::RevocationRequested { told: holders, .. }
                | Outcome::QueryReply(QueryReply::Lock { holders, .. }) => {
                    ClientRequest::Revoke(RevokeCommand::Take(holders.first()?.clone()))
                }
                _ => return None,
            },
            ClientWant::EndByForce(call) => {
                let holder = first_holder(world, *call)?;
                let says = |text: &str| Metadata::new(text.as_bytes()).ok();
                let order = ForceOrder { operator: says("chaos")?, reason: says("drawn")? };
                ClientRequest::Revoke(RevokeCommand::Force(holder, order))
            }
        })
    }
}

/// The first hold in the answer to a query of this call.
pub(crate) fn first_holder(world: &World, call: usize) -> Option<HolderInfo> {
    match world.outcome(world.named(call)?)? {
        Outcome::QueryReply(QueryReply::Lock { holders, .. }) => holders.first().cloned(),
        Outcome::QueryReply(QueryReply::Blockers { holds, .. }) => {
            holds.first().map(|hold| hold.holder.clone())
        }
        _ => None,
    }
}

/// A value as a script writes it: a number is a number of permits.
fn value(text: &str) -> Option<Value> {
    match text.parse::<u32>() {
        Ok(limit) => Value::new(&limit.to_le_bytes()),
        Err(_) => Value::new(text.as_bytes()),
    }
    .ok()
}

impl Step {
    /// The call whose client does the step.
    pub fn call(&self) -> Option<usize> {
        match self {
            Step::Ask { call, .. } => Some(*call),
            Step::Release(call) | Step::Cancel(call) | Step::Extend(call, _) => Some(*call),
            Step::GiveUp(call, _) | Step::GiveUpAnswered(call, _) => Some(*call),
            Step::ReturnPermits(call, _) | Step::Downgrade(call) => Some(*call),
            Step::Fence(call) | Step::Write(call) | Step::WriteEarlier(call) => Some(*call),
            _ => None,
        }
    }

    pub(crate) fn call_mut(&mut self) -> Option<&mut usize> {
        match self {
            Step::Ask { call, .. } => Some(call),
            Step::Release(call) | Step::Cancel(call) | Step::Extend(call, _) => Some(call),
            Step::GiveUp(call, _) | Step::GiveUpAnswered(call, _) => Some(call),
            Step::ReturnPermits(call, _) | Step::Downgrade(call) => Some(call),
            Step::Fence(call) | Step::Write(call) | Step::WriteEarlier(call) => Some(call),
            _ => None,
        }
    }

    /// Returns whether the step lasts until everything works again.
    pub fn takes_time(&self) -> bool {
        matches!(self, Step::Restore | Step::RestorePart(_))
    }

    /// Returns whether the step is for the record only.
    pub fn is_remark(&self) -> bool {
        matches!(self, Step::Fault { .. } | Step::Mended { .. })
    }
}

/// A hint about a process from outside the protocol; see [`Hint`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OutsideHint {
    /// Gossip calls the process unreachable, or a connection to it broke.
    Unreachable,
    /// The address of the process refuses connections.
    Refused,
    /// Another process answers at the address of the process.
    Replaced,
    /// A member on the host of the process saw its end. The hint is certain, and so only allowed
    /// for dead processes.
    Dead,
    /// A connection to the process was opened.
    Connected,
}

/// The packets of a rule; a field that is `None` matches any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketFilter {
    /// The site that the packets come from.
    pub from: Option<usize>,
    /// The site that the packets go to.
    pub to: Option<usize>,
    /// The name of the packets, one of [`KINDS`](crate::kind::KINDS).
    pub kind: Option<&'static str>,
}

impl PacketFilter {
    /// Returns whether the filter matches this packet.
    pub fn contain(&self, flight: &PacketDescription<'_>) -> bool {
        self.from.is_none_or(|from| from == flight.from)
            && self.to.is_none_or(|to| to == flight.to)
            && self.kind.is_none_or(|name| name == kind(flight.packet))
    }
}

/// The names that steps refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepNames {
    /// Calls by the number that the log gives them.
    calls: BTreeMap<usize, Ask>,
    names: BTreeMap<Ask, usize>,
    /// Tokens that guards gave.
    tokens: BTreeMap<usize, Token>,
    /// Rules in force.
    rules: Vec<(PacketFilter, RuleId)>,
}

impl Step {
    /// The sites that the step names.
    pub fn sites(&self) -> Vec<usize> {
        match self {
            Step::Ask { site, .. }
            | Step::Start(site)
            | Step::Crash(site)
            | Step::Vanish(site)
            | Step::Pause(site)
            | Step::Wake(site)
            | Step::Leave(site)
            | Step::Force(site)
            | Step::LoseDisk(site)
            | Step::Disk(site, _)
            | Step::Tear(TornStep { site, .. })
            | Step::Timer(site)
            | Step::Lie(site, _)
            | Step::TurnClock(site, _)
            | Step::StepWallClock(site, _)
            | Step::Resolve(site, _) => vec![*site],
            Step::Cut(a, b)
            | Step::Mend(a, b)
            | Step::Slow(a, b, _)
            | Step::Clog(a, b)
            | Step::Unclog(a, b)
            | Step::Narrow(a, b, _)
            | Step::Reset(a, b)
            | Step::ResetHalf(a, b)
            | Step::Reject(a, b)
            | Step::Accept(a, b)
            | Step::Deafen(a, b)
            | Step::Undeafen(a, b)
            | Step::Notice { at: a, about: b, .. } => vec![*a, *b],
            Step::Fault { sites, .. } | Step::RestorePart(sites) => sites.clone(),
            _ => Vec::new(),
        }
    }
}

impl World {
    /// Applies a step: the only entry for drivers. False if the step was impossible.
    pub fn apply(&mut self, step: &Step) -> bool {
        let done = self.take(step);
        self.tell(&Observation::Applied);
        done
    }

    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Ask { call, site, service, wanted, owner, says, wait, lease } => {
                if !self.has(*site) || !self.is_alive(*site) {
                    return false;
                }
                let Some(request) = wanted.to_request(self) else { return false };
                let Ok(metadata) = Metadata::new(says.as_bytes()) else { return false };
                // The call may be answered at once, and then logs use this name.
                let ask = Ask(self.history.calls.len());
                self.named.calls.insert(*call, ask);
                self.named.names.insert(ask, *call);
                self.want_as(*site, service, request, (OwnerId(*owner), metadata), *wait, *lease);
                true
            }
            Step::Release(call) => self.with(*call, |world, ask| world.release(ask)),
            Step::Cancel(call) => self.with(*call, |world, ask| world.cancel(ask)),
            Step::GiveUp(call, after) => {
                self.with(*call, |world, ask| world.give_up_after(ask, *after))
            }
            Step::GiveUpAnswered(call, after) => {
                self.with(*call, |world, ask| world.give_up_when_answered(ask, *after))
            }
            Step::Extend(call, lease) => {
                self.with(*call, |world, ask| world.extend(ask, lease.as_millis() as u64))
            }
            Step::ReturnPermits(call, count) => {
                self.named(*call).is_some_and(|ask| self.return_permits(ask, *count))
            }
            Step::Downgrade(call) => self.named(*call).is_some_and(|ask| self.downgrade(ask)),
            Step::Fence(call) => {
                let writes = |ask: &Ask| self.call(*ask).mode == HoldMode::Alone;
                let token = self.named(*call).filter(writes).and_then(|ask| self.fence(ask));
                self.named.tokens.extend(token.map(|token| (*call, token)));
                token.is_some()
            }
            Step::Write(call) => self.named(*call).is_some_and(|ask| self.write(ask)),
            Step::WriteEarlier(call) => {
                let earlier = self.named.tokens.get(call).copied();
                let write = self.named(*call).zip(earlier);
                write.map(|(ask, token)| self.write_with(ask, token)).is_some()
            }
            Step::Start(site) => self.at(*site, |world, site| !world.is_alive(site), World::start),
            Step::Crash(site) => self.at(*site, World::is_alive, World::crash),
            Step::Vanish(site) => self.at(*site, World::is_alive, World::vanish),
            Step::Pause(site) => self.at(*site, World::is_up, World::pause),
            Step::Wake(site) => self.at(*site, |world, site| world.is_paused(site), World::resume),
            Step::Leave(site) => self.at(*site, World::is_alive, World::leave),
            Step::Force(site) => self.at(*site, World::is_alive, World::force),
            Step::LoseDisk(site) => {
                self.at(*site, |world, site| !world.is_alive(site), World::lose_disk)
            }
            Step::Disk(site, health) => {
                self.between(*site, *site, |world, site, _| world.set_disk(site, *health))
            }
            Step::Tear(tear) => self.between(tear.site, tear.site, |world, _, _| world.tear(*tear)),
            Step::DieDeciding { until } => {
                self.dies_when_deciding_until = *until;
                true
            }
            Step::Cut(from, to) => self.between(*from, *to, World::cut_one_way),
            Step::Mend(from, to) => self.between(*from, *to, World::mend_one_way),
            Step::Slow(from, to, by) => {
                let by = by.as_nanos() as u64;
                self.between(*from, *to, |world, from, to| world.network.slow(from, to, by))
            }
            Step::Clog(from, to) => self.between(*from, *to, World::clog),
            Step::Unclog(from, to) => self.between(*from, *to, World::unclog),
            Step::Narrow(from, to, narrow) => {
                self.between(*from, *to, |world, from, to| world.narrow(from, to, *narrow))
            }
            Step::Reset(a, b) => self.between(*a, *b, World::reset),
            Step::ResetHalf(from, to) => self.between(*from, *to, World::reset_half),
            Step::Reject(from, to) => self.between(*from, *to, World::reject_one_way),
            Step::Accept(from, to) => self.between(*from, *to, World::accept_one_way),
            Step::Deafen(a, b) => self.between(*a, *b, World::deafen),
            Step::Undeafen(a, b) => self.between(*a, *b, World::undeafen),
            Step::TurnClock(site, ppm) => {
                self.between(*site, *site, |world, site, _| world.turn_clock(site, *ppm))
            }
            Step::StepWallClock(site, by) => {
                self.between(*site, *site, |world, site, _| world.step_wall_clock(site, *by))
            }
            Step::Resolve(site, to) => {
                let can = self.has(*site) && to.iter().all(|to| self.has(*to));
                if can {
                    self.resolve(*site, to);
                }
                can
            }
            Step::Weather(weather) => {
                self.weather(*weather);
                true
            }
            Step::Heal => {
                self.heal();
                true
            }
            Step::Hold(packets) => {
                let these = *packets;
                let rule = self.hold(move |flight| these.contain(flight));
                self.named.rules.push((these, rule));
                true
            }
            Step::LetGo(packets) => self.end_rules(packets, World::let_go),
            Step::DropHeld(packets) => self.end_rules(packets, World::drop_held),
            Step::DropNext(packets) => {
                let these = *packets;
                self.drop_next_of(move |flight| these.contain(flight));
                true
            }
            Step::Notice { at, about, what } => {
                let process = if self.has(*at) && self.has(*about) {
                    self.sites[*about].process()
                } else {
                    None
                };
                let Some(process) = process.filter(|_| self.is_alive(*at)) else { return false };
                let hint = match what {
                    OutsideHint::Unreachable => Hint::Unreachable(process),
                    OutsideHint::Refused => Hint::Refused(process),
                    OutsideHint::Replaced => Hint::Replaced(process),
                    OutsideHint::Dead => Hint::Dead(process),
                    OutsideHint::Connected => Hint::Connected(process),
                };
                self.give_hint(*at, hint);
                true
            }
            Step::Lie(site, luck) => self.lie(*site, *luck),
            Step::Restore => self.restore_and_demand(),
            Step::RestorePart(core) => self.restore_part_and_demand(core),
            Step::Fault { fault, kind, sites } => {
                self.tell(&Observation::Fault { fault: *fault, kind, sites });
                true
            }
            Step::Mended { fault } => {
                self.tell(&Observation::Mended { fault: *fault });
                true
            }
            Step::Deliver(number) => self.deliver_nth(*number),
            Step::Lose(number) => self.lose_nth(*number),
            Step::Double(number) => self.double_nth(*number),
            Step::Timer(site) => self.has(*site) && self.ring(*site),
        }
    }

    /// The number by which steps name this call.
    pub fn name_of(&self, ask: Ask) -> Option<usize> {
        self.named.names.get(&ask).copied()
    }

    /// How many packets of this filter a step has kept back.
    pub fn held_of(&self, packets: &PacketFilter) -> usize {
        let rules = self.named.rules.iter().filter(|(these, _)| these == packets);
        rules.map(|(_, rule)| self.matched(*rule)).sum()
    }

    /// The call that steps name by this number.
    pub fn named(&self, call: usize) -> Option<Ask> {
        self.named.calls.get(&call).copied()
    }

    pub(crate) fn has(&self, site: usize) -> bool {
        site < self.sites.len()
    }

    fn with(&mut self, call: usize, act: impl FnOnce(&mut World, Ask)) -> bool {
        let Some(ask) = self.named(call) else { return false };
        let there = self.sites[self.call(ask).member].is(self.call(ask).process);
        if there {
            act(self, ask);
        }
        there
    }

    fn at(
        &mut self,
        site: usize,
        if_so: fn(&World, usize) -> bool,
        act: fn(&mut World, usize),
    ) -> bool {
        let can = self.has(site) && if_so(self, site);
        if can {
            act(self, site);
        }
        can
    }

    fn between(
        &mut self,
        from: usize,
        to: usize,
        act: impl FnOnce(&mut World, usize, usize),
    ) -> bool {
        let can = self.has(from) && self.has(to);
        if can {
            act(self, from, to);
        }
        can
    }

    fn end_rules(&mut self, packets: &PacketFilter, end: fn(&mut World, RuleId)) -> bool {
        let rules = std::mem::take(&mut self.named.rules);
        let (over, going_on): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|(these, _)| these == packets);
        self.named.rules = going_on;
        for (_, rule) in &over {
            end(self, *rule);
        }
        !over.is_empty()
    }
}
