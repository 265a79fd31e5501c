//! A run in words: the events of clients, members and grantors, in sites and short names. Nothing
//! in it depends on process ids, on the numbers of views or on how tokens are dealt. So it changes
//! only when the events change.

use crate::history::Ask;
use crate::network::SECOND;
use crate::record::{Entry, Line, RecordedRequest};
use crate::world::World;
use std::collections::BTreeMap;

/// The told part of a run so far.
#[derive(Debug, Default)]
pub struct Transcript {
    told: usize,
    /// Views in the order in which they were first installed anywhere.
    views: Vec<((usize, u64), u64)>,
    /// Epochs of each service in the order of their beginning.
    epochs: BTreeMap<String, Vec<u64>>,
    /// Tokens of each lock in the order of granting.
    tokens: BTreeMap<String, Vec<u64>>,
}

/// The number of `one` among those seen, from 1, and whether it is new.
fn rank<T: PartialEq>(seen: &mut Vec<T>, one: T) -> (usize, bool) {
    match seen.iter().position(|seen| *seen == one) {
        Some(index) => (index + 1, false),
        None => {
            seen.push(one);
            (seen.len(), true)
        }
    }
}

/// Sites for people.
fn sites(sites: &[usize]) -> String {
    sites.iter().map(|site| format!("m{site}")).collect::<Vec<_>>().join(" ")
}

/// A span for people and scripts: a whole number of the largest unit that fits.
pub fn span(nanos: u64) -> String {
    let units = [(SECOND, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|(unit, _)| nanos >= *unit && nanos.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{nanos}ns"), |(unit, name)| format!("{}{name}", nanos / unit))
}

impl Transcript {
    /// The events since the last call, a line each.
    pub fn news(&mut self, world: &World) -> String {
        let lines = &world.record().lines;
        let news: Vec<String> = lines[self.told..]
            .iter()
            .filter_map(|line| {
                let text = self.line(world, line)?;
                let site = line.site.map(|site| format!("m{site} ")).unwrap_or_default();
                Some(format!("{:>7.3} {site}{text}\n", line.at as f64 / SECOND as f64))
            })
            .collect();
        self.told = lines.len();
        news.concat()
    }

    /// A line of the record in words; nothing if it has no news for people.
    fn line(&mut self, world: &World, line: &Line) -> Option<String> {
        let of = |call: usize| Some(format!("c{}", world.name_of(Ask(call))?));
        Some(match &line.entry {
            Entry::Invoke { call, service, request_kind, names, permits, wait, lease, .. } => {
                let within = match wait {
                    Some(0) | None => String::new(),
                    Some(wait) => format!(" within {}", span(*wait)),
                };
                let asks =
                    if *wait == Some(0) { "tries".to_string() } else { format!("asks{within}") };
                let lease =
                    lease.map(|lease| format!(", to hold for {}", span(lease))).unwrap_or_default();
                let words = match request_kind {
                    RecordedRequest::Lock => {
                        format!("{asks} for {service}/{}{lease}", names.join("+"))
                    }
                    RecordedRequest::Suspend => format!("{asks} to suspend {service}{lease}"),
                    RecordedRequest::Share => {
                        format!("{asks} for a share of {service}/{}{lease}", names.join("+"))
                    }
                    RecordedRequest::Permits => {
                        format!("{asks} for {permits} of {service}/{}{lease}", names.join("+"))
                    }
                    RecordedRequest::Open => format!("opens {service}/{}", names.join("+")),
                    RecordedRequest::Put => format!("writes to {service}/{}", names.join("+")),
                    RecordedRequest::Upgrade => "wants its share to become the lock".to_string(),
                    RecordedRequest::Become => format!("{asks} to become grantor of {service}"),
                    RecordedRequest::Destroy => format!("destroys {service}"),
                    RecordedRequest::See => format!("wants to know of {service}"),
                    RecordedRequest::Revoke => format!("wants something of {service} back"),
                };
                format!("{}: {words}", of(*call)?)
            }
            Entry::Ok { call, .. } if world.call(Ask(*call)).opens() => {
                format!("{}: has it open", of(*call)?)
            }
            Entry::ModeChanged { call, request_kind, token } => {
                let (lock, token) = self.token(world, *call, *token);
                let what = if *request_kind == RecordedRequest::Share { "a share of " } else { "" };
                format!("{}: has {what}{lock} with token {token} now", of(*call)?)
            }
            Entry::PermitsReturned { call, left } => {
                format!("{}: returns some, {left} are left", of(*call)?)
            }
            Entry::Sees { call, value, stale, .. } => {
                format!(
                    "{}: sees {value}{}",
                    of(*call)?,
                    if *stale { ", perhaps stale" } else { "" }
                )
            }
            Entry::Ok { call, token, .. } => {
                let (lock, token) = self.token(world, *call, *token);
                format!("{}: has {lock} with token {token}", of(*call)?)
            }
            Entry::Fail { call, answer } => format!("{}: {answer}", of(*call)?),
            Entry::Unknown { call } => format!("{}: ends with its process", of(*call)?),
            Entry::Release { call } => {
                let what = match world.call(Ask(*call)) {
                    of if of.lost.is_some() => "releases what it has lost",
                    of if of.token().is_some() && of.answered <= line.at => "releases it",
                    _ => "no longer wants it",
                };
                format!("{}: {what}", of(*call)?)
            }
            Entry::Lost { call, reason } => format!("{}: has lost it: {reason}", of(*call)?),
            Entry::Extended { call, until } => match until {
                Some(until) => {
                    format!("{}: may hold until {:.3}", of(*call)?, *until as f64 / SECOND as f64)
                }
                None => format!("{}: may hold for ever", of(*call)?),
            },
            Entry::Write { call, token, taken, .. } => {
                let (_, token) = self.token(world, *call, *token);
                let taken = if *taken { "taken" } else { "refused" };
                format!("{}: its write with token {token} is {taken}", of(*call)?)
            }
            Entry::World { .. } | Entry::Rest { .. } => return None,
            Entry::Start => "starts".to_string(),
            Entry::End { how } => match how.as_str() {
                "reborn" => "begins anew".to_string(),
                "left" => "has left".to_string(),
                "vanished" => "vanishes with its host".to_string(),
                how => format!("is {how}"),
            },
            Entry::Pause => "is stopped".to_string(),
            Entry::Wake => "goes on".to_string(),
            Entry::Leave => "says goodbye".to_string(),
            Entry::View { number, members, ghosts, learners, founder, .. } => {
                let (view, is_new) = rank(&mut self.views, (*founder, *number));
                let and = |what: &str, processes: &[(usize, u64)]| {
                    let at: Vec<usize> = processes.iter().map(|(site, _)| *site).collect();
                    if at.is_empty() { String::new() } else { format!(", {what}: {}", sites(&at)) }
                };
                let state = and("ghosts", ghosts) + &and("learners", learners);
                is_new.then(|| format!("sees view {view}: {}{state}", sites(members)))?
            }
            Entry::Event { name } => match name.as_str() {
                "became_elder" => "is elder".to_string(),
                "suspended" => "is without a lease".to_string(),
                "resumed" => "has a lease".to_string(),
                "expelled" => "is expelled".to_string(),
                "abandoned" => "gives up".to_string(),
                "orphaned" => "is orphaned".to_string(),
                "follows_load" => "asks to grant a service for its load".to_string(),
                "forced" => "is forced to go on".to_string(),
                "wrong_clock" => "is more than an hour behind".to_string(),
                _ => return None,
            },
            Entry::Grantor { service, epoch, recovering } => {
                let (number, _) = rank(self.epochs.entry(service.clone()).or_default(), *epoch);
                format!(
                    "{} {service} in epoch {number}",
                    if *recovering { "recovers" } else { "grants" }
                )
            }
            Entry::NoGrantor { service, epoch } => {
                let (number, _) = rank(self.epochs.entry(service.clone()).or_default(), *epoch);
                format!("no longer grants {service} in epoch {number}")
            }
            Entry::Fault { fault, kind, sites: hit } => {
                format!("fault {fault}: {kind} {}", sites(hit))
            }
            Entry::Mended { fault } => format!("fault {fault} is over"),
            Entry::Heal => "all is healed".to_string(),
            // The words of a violation are full of process ids.
            Entry::Break { invariant, lock, .. } => {
                let lock = lock.as_ref().map(|lock| format!(" of {lock}")).unwrap_or_default();
                format!("BROKEN {invariant}{lock}")
            }
            Entry::Lease { .. } | Entry::Send { .. } | Entry::Arrive { .. } => return None,
            // The affected members report the effects of these events.
            Entry::Tokens { .. }
            | Entry::Table { .. }
            | Entry::Ways { .. }
            | Entry::Slow { .. }
            | Entry::Sent { .. } => return None,
        })
    }

    fn token(&mut self, world: &World, call: usize, token: u64) -> (String, usize) {
        let lock = world.call(Ask(call)).lock();
        let number = rank(self.tokens.entry(lock.clone()).or_default(), token).0;
        (lock, number)
    }
}
