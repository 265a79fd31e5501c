//! `values_are_seen_in_order`: a client with an open object sees its versions rise, and all clients
//! that see a version see the same value.
//!
//! - A writer whose write is confirmed sees that version, or a later one, from that very instant
//!   on. A write is made once. A write that is conditional on a version directly follows that
//!   version.
//! - An addition to a number is made once: to the version before it, and only if the sum fits in 32
//!   bits.
//! - A value that is not marked as maybe stale is the last one that any process was told before its
//!   grantor began to act. A value is marked so if, and only if, some grantor had to ask the
//!   members for it since it was written.
//!
//! Once all is healed, all clients with the object open see the same.
//!
//! The value must be the last one only inside the clock bound. All else must always hold.

use super::{Count, Invariant, Verdict, last_state};
use crate::history::{Ask, Call, ClientRequest, Key, ObjectView, lock_name};
use crate::liveness::Demand;
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Content, Epoch, Event, GrantorState, LastWrite, Message, Outcome, Packet,
    ProcessId, RequestId, ServiceName, Token, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the invariant.
const NAME: &str = "values_are_seen_in_order";

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ValuesAreSeenInOrder {
    /// The value of each version that any process was told.
    told: BTreeMap<Key, BTreeMap<Token, Value>>,
    /// The clients that have seen each version.
    seen: BTreeMap<(Key, Token), BTreeSet<Ask>>,
    /// The latest version when the grantor of each epoch began to act.
    before: BTreeMap<(Key, Epoch), Token>,
    /// Epochs that began with a recovery, and epochs with an unknown beginning.
    asked: BTreeSet<(ServiceName, Epoch)>,
    unclear: BTreeSet<(ServiceName, Epoch)>,
    /// The versions that each write was told to have made.
    made: BTreeMap<(Key, ProcessId, RequestId), BTreeSet<Token>>,
    wrong: Option<Key>,
    premises: Count,
}

/// Demands, once all is healed, that all clients with the same object open see the same. False if
/// they do not.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let differ = |world: &World| {
        let is_demanded = |ask: &Ask| world.demanded().any(|site| site == world.call(*ask).member);
        world.history().objects().into_iter().find_map(|key| {
            let sights: Vec<_> = world
                .history()
                .opened_of(&key)
                .filter(is_demanded)
                .map(|ask| world.call(ask).sight.clone())
                .collect();
            sights.windows(2).any(|two| two[0] != two[1]).then_some((key, sights))
        })
    };
    if world.run_until(|world| differ(world).is_none(), demand.answer) {
        return true;
    }
    if let Some((key, sights)) = differ(world) {
        world.fail_about(NAME, Some(lock_name(&key)), format!("not all see the same: {sights:?}"));
    }
    false
}

/// Returns whether no client writes the value twice: it is not a limit.
fn is_unique(value: &Value) -> bool {
    value.as_bytes().len() > 4
}

impl ValuesAreSeenInOrder {
    /// Notes the grantors that have asked for the contents, and tell them before they act: their
    /// first part is open.
    fn note_open(&mut self, world: &World, service: &ServiceName) {
        for node in world.sites.iter().filter_map(|site| site.node.as_ref()) {
            if node.open_parts(service) > Some(0) {
                let of_it = node.grantors().filter(|(of, ..)| *of == service);
                self.asked.extend(of_it.map(|(of, epoch, _)| (of.clone(), epoch)));
            }
        }
    }

    fn on_version(&mut self, key: &Key, version: Token, value: &Value) -> Verdict {
        let told = self.told.entry(key.clone()).or_default();
        let known = told.entry(version).or_insert_with(|| value.clone());
        if known != value {
            return Err(format!("{version:?} is {known:?} and {value:?}"));
        }
        Ok(())
    }

    /// A write that was lost with its grantor may be made again. But it is not made again if a
    /// process that the next grantor has asked knew of it.
    fn on_second(&mut self, world: &World, key: &Key, version: Token, value: &Value) -> Verdict {
        let view = world.latest.values().max_by_key(|view| view.number);
        let is_member =
            |ask: &Ask| view.is_some_and(|view| view.contains(world.call(*ask).process));
        let earlier = self
            .told
            .get(key)
            .into_iter()
            .flatten()
            .find(|(other, known)| **other < version && *known == value);
        if is_unique(value)
            && world.bounded
            && let Some((other, _)) = earlier
            && let Some(ask) = self
                .seen
                .get(&(key.clone(), *other))
                .into_iter()
                .flatten()
                .find(|ask| world.call(**ask).is_claim() && is_member(ask))
        {
            return Err(format!(
                "{value:?} is written as {version:?}, and {ask:?} has seen it as {other:?}"
            ));
        }
        Ok(())
    }

    /// A write is not made again if a process that the next grantor has asked knows of it.
    fn on_made(&mut self, world: &World, key: &Key, content: &Content) -> Verdict {
        let view = world.latest.values().max_by_key(|view| view.number);
        let is_member =
            |ask: &Ask| view.is_some_and(|view| view.contains(world.call(*ask).process));
        for (process, last) in &content.writes {
            let made = self.made.entry((key.clone(), *process, last.request)).or_default();
            made.insert(last.version);
            let earlier = made.range(..last.version).next_back();
            let knows = |ask: &&Ask| world.call(**ask).is_claim() && is_member(ask);
            // A grantor forgets the last write of a member that has closed the object. The
            // service's own calls keep it open while they write; a client of this simulation may
            // close it, and open it anew.
            let is_closed = || {
                let written =
                    world.history().find(*process, last.request).map(|ask| world.call(ask));
                written.is_some_and(|written| {
                    let mut calls =
                        world.history().calls.iter().filter(|call| call.opens() && call.released);
                    let of = |call: &Call| {
                        (call.process, &call.object) == (written.process, &written.object)
                    };
                    calls.any(|call| of(call) && call.released_at >= written.asked)
                })
            };
            if let Some(earlier) = earlier.filter(|_| world.bounded && !is_closed())
                && let Some(ask) =
                    self.seen.get(&(key.clone(), *earlier)).into_iter().flatten().find(knows)
            {
                let LastWrite { request, version, .. } = last;
                return Err(format!(
                    "{request:?} of {process:?} made {earlier:?}, {ask:?} has seen it, and \
                     {version:?}"
                ));
            }
        }
        Ok(())
    }

    /// An addition must be made to the version before.
    fn on_added(&self, key: &Key, by: i32, (version, sum): (Token, Option<i32>)) -> Verdict {
        let number = |value: &Value| value.as_bytes().try_into().map(i32::from_le_bytes).ok();
        let Some(told) = self.told.get(key) else { return Ok(()) };
        if told.get(&version).and_then(number) != sum {
            return Err(format!(
                "{version:?} is said to be {sum:?}, and is {:?}",
                told.get(&version)
            ));
        }
        let Some((before, value)) = told.range(..version).next_back() else { return Ok(()) };
        let is_between = |(of, epoch): &&(ServiceName, Epoch)| {
            *of == key.0 && epoch.0 > *before && epoch.0 <= version
        };
        // The last writes of a former grantor may be lost with it.
        if self.asked.iter().chain(&self.unclear).any(|entry| is_between(&entry)) {
            return Ok(());
        }
        if number(value).and_then(|number| number.checked_add(by)) != sum {
            return Err(format!(
                "{by} was added to {value:?} of {before:?}, and {version:?} is {sum:?}"
            ));
        }
        Ok(())
    }

    /// Returns whether a grantor had to ask the members for the value of this version, in an epoch
    /// up to `upto`.
    fn was_asked_for(&self, service: &ServiceName, version: Token, upto: Option<Epoch>) -> bool {
        let of_it = self.asked.iter().filter(|(of, epoch)| of == service && epoch.0 > version);
        of_it.clone().any(|(_, epoch)| upto.is_none_or(|upto| *epoch <= upto))
    }

    /// A grantor sends a content to a process.
    fn on_told(&mut self, world: &World, key: &Key, epoch: Epoch, content: &Content) -> Verdict {
        let Content { version, value, maybe_stale, .. } = content;
        self.on_version(key, *version, value)?;
        self.on_made(world, key, content)?;
        self.premises += 1;
        let is_between =
            |(of, made): &(ServiceName, Epoch)| *of == key.0 && made.0 > *version && *made <= epoch;
        if !self.unclear.iter().any(is_between)
            && *maybe_stale != self.was_asked_for(&key.0, *version, Some(epoch))
        {
            return Err(format!("{epoch:?} tells of {version:?} as maybe stale: {maybe_stale}"));
        }
        if let Some(last) = self.before.get(&(key.clone(), epoch))
            && world.bounded
            && !maybe_stale
            && last > version
        {
            return Err(format!("{epoch:?} tells of {version:?}, and {last:?} was told before"));
        }
        Ok(())
    }

    fn on_sight(&mut self, world: &World, key: &Key, ask: Ask, sight: &ObjectView) -> Verdict {
        self.on_version(key, sight.version, &sight.value)?;
        self.on_second(world, key, sight.version, &sight.value)?;
        self.seen.entry((key.clone(), sight.version)).or_default().insert(ask);
        self.premises += 1;
        let before = world.call(ask).sight.as_ref();
        let is_older = before.is_some_and(|before| {
            before.version > sight.version
                || (before.version == sight.version && before.stale && !sight.stale)
        });
        if is_older {
            return Err(format!("{sight:?} is seen after {before:?}: {:?}", world.call(ask)));
        }
        let service = &key.0;
        let is_unclear =
            self.unclear.iter().any(|(of, epoch)| of == service && epoch.0 > sight.version);
        if sight.stale && !is_unclear && !self.was_asked_for(service, sight.version, None) {
            return Err(format!(
                "{sight:?} is marked as maybe stale, and no grantor had to ask for it"
            ));
        }
        Ok(())
    }

    /// A write is answered: checks its writer's view.
    fn on_write(
        &mut self,
        world: &World,
        key: &Key,
        ask: Ask,
        (version, number): (Token, Option<i32>),
    ) -> Verdict {
        let (open, expected) = match &world.call(ask).request_kind {
            ClientRequest::Put(open, value, expected) => {
                self.on_version(key, version, value)?;
                (open, *expected)
            }
            ClientRequest::Add(open, by) => {
                self.on_added(key, *by, (version, number))?;
                (open, None)
            }
            _ => return Ok(()),
        };
        self.premises += 1;
        if let Some(between) = expected.and_then(|expected| {
            let told = self.told.get(key)?;
            // The last writes of a former grantor may be lost with it.
            let latest = self
                .before
                .keys()
                .filter(|(of, epoch)| of == key && epoch.0 <= version)
                .map(|(_, e)| e.0)
                .max();
            let after = latest.map_or(expected, |latest| latest.max(expected));
            told.range(after..version)
                .map(|(version, _)| *version)
                .find(|version| *version > expected)
        }) {
            return Err(format!(
                "{version:?} was to follow {expected:?}, and {between:?} stands between"
            ));
        }
        let call = world.call(*open);
        if call.is_claim() && call.sight.as_ref().is_none_or(|sight| sight.version < version) {
            return Err(format!("{ask:?} has written {version:?} and sees {:?}", call.sight));
        }
        Ok(())
    }
}

impl Invariant for ValuesAreSeenInOrder {
    fn name(&self) -> &'static str {
        NAME
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.wrong.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent {
                packet:
                    Packet::Linked {
                        message:
                            Message::Client(ClientMessage::Value {
                                service, epoch, name, content, ..
                            }),
                        ..
                    },
                ..
            } => {
                let key = (service.clone(), Some(name.clone()));
                self.wrong = Some(key.clone());
                self.note_open(world, service);
                self.on_told(world, &key, *epoch, content)
            }
            Observation::Sees { ask, sight } => {
                let Some(key) = world.call(*ask).object.clone() else { return Ok(()) };
                self.wrong = Some(key.clone());
                self.note_open(world, &key.0);
                self.on_sight(world, &key, *ask, sight)
            }
            Observation::Answered { ask } => {
                let Some(Outcome::Written { version, number }) = world.call(*ask).outcome else {
                    return Ok(());
                };
                let Some(key) = world.call(*ask).object.clone() else { return Ok(()) };
                self.wrong = Some(key.clone());
                self.on_write(world, &key, *ask, (version, number))
            }
            Observation::Event { site, event: Event::BecameGrantor { service, epoch }, .. } => {
                let role = (service.clone(), *epoch);
                match last_state(world, *site, (service, *epoch)) {
                    Some(Some(GrantorState::Recovering)) => _ = self.asked.insert(role),
                    Some(_) => {}
                    None => _ = self.unclear.insert(role),
                }
                for (key, told) in self.told.iter().filter(|(key, _)| key.0 == *service) {
                    if let Some((last, _)) = told.range(..epoch.0).next_back() {
                        self.before.insert((key.clone(), *epoch), *last);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
