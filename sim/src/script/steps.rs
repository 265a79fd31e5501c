//! A step as a line of a script, written and read.

use super::words::write_rate;
use super::words::{
    Parsed, call, number, numbered, read_ppm, read_rate, read_span, read_time, site, sites, time,
    word,
};
use crate::kind::KINDS;
use crate::network::{LinkConditions, MS, NarrowPath};
use crate::step::{ClientWant, OutsideHint, PacketFilter, Step};
use crate::transcript::span;
use crate::world::{DiskHealth, TornStep};
use elderlock::protocol::{LockName, Metadata, ServiceName, Value, Wait};
use goldenscript::{Argument, ArgumentConsumer};
use std::error::Error;
use std::time::Duration;

/// A step as a line of a script.
pub fn write_step(step: &Step) -> String {
    let quoted = |text: &str| Argument::Positional(text.to_string()).to_string();
    let nanos = |span: &Duration| span.as_nanos() as u64;
    match step {
        Step::Ask { call, site, service, wanted, owner, says, wait, lease } => {
            let (verb, names): (&str, Vec<String>) = match wanted {
                ClientWant::Lock(name) => ("lock", vec![quoted(name)]),
                ClientWant::Batch(names) => {
                    ("lock-all", names.iter().map(|name| quoted(name)).collect())
                }
                ClientWant::Suspension => ("suspend", Vec::new()),
                ClientWant::Share(name) => ("share", vec![quoted(name)]),
                ClientWant::Permits(name, count) => {
                    ("permits", vec![quoted(name), count.to_string()])
                }
                ClientWant::Open(name, initial) => ("open", vec![quoted(name), quoted(initial)]),
                ClientWant::Put(call, to) => ("put", vec![format!("c{call}"), quoted(to)]),
                ClientWant::PutIf(call, to) => ("put-if", vec![format!("c{call}"), quoted(to)]),
                ClientWant::Add(call, by) => {
                    ("add", vec![format!("c{call}"), quoted(&by.to_string())])
                }
                ClientWant::Upgrade(call) => ("upgrade", vec![format!("c{call}")]),
                ClientWant::Become => ("become", Vec::new()),
                ClientWant::Destroy => ("destroy", Vec::new()),
                ClientWant::SeeLock(name) => ("see", vec![quoted(name)]),
                ClientWant::SeeSuspension => ("see-suspension", Vec::new()),
                ClientWant::SeePosition(call) => ("see-position", vec![format!("c{call}")]),
                ClientWant::SeeHeld => ("see-held", Vec::new()),
                ClientWant::SeeWaiting(name) => ("see-waiting", vec![quoted(name)]),
                ClientWant::SeeBlockers(call) => ("see-blockers", vec![format!("c{call}")]),
                ClientWant::SeeOwner(call) => ("see-owner", vec![format!("c{call}")]),
                ClientWant::RequestRevocation(name) => ("request-revocation", vec![quoted(name)]),
                ClientWant::ForceRevoke(call) => ("force-revoke", vec![format!("c{call}")]),
                ClientWant::EndByForce(call) => ("end-by-force", vec![format!("c{call}")]),
            };
            let verb = if *wait == Wait::Try {
                TRIES.iter().find(|(of, _)| *of == verb).map_or(verb, |(_, to)| to)
            } else {
                verb
            };
            let mut text = format!("{verb} c{call} m{site} {}", quoted(service));
            names.iter().for_each(|name| text += &format!(" {name}"));
            if let Wait::AtMost(limit) = wait {
                text += &format!(" wait={}", span(nanos(limit)));
            }
            if let Some(lease) = lease {
                text += &format!(" lease={}", span(nanos(lease)));
            }
            if *owner != 0 {
                text += &format!(" owner={owner}");
            }
            if !says.is_empty() {
                text += &format!(" {}", Argument::KeyValue("says".to_string(), says.clone()));
            }
            text
        }
        Step::Release(call) => format!("release c{call}"),
        Step::Cancel(call) => format!("cancel c{call}"),
        Step::GiveUp(call, after) => format!("give-up c{call} after={}", span(nanos(after))),
        Step::GiveUpAnswered(call, after) => {
            format!("give-up-answered c{call} after={}", span(nanos(after)))
        }
        Step::Extend(call, lease) => format!("extend c{call} {}", span(nanos(lease))),
        Step::ReturnPermits(call, count) => format!("return-permits c{call} {count}"),
        Step::Downgrade(call) => format!("downgrade c{call}"),
        Step::Fence(call) => format!("fence c{call}"),
        Step::Write(call) => format!("write c{call}"),
        Step::WriteEarlier(call) => format!("write-earlier c{call}"),
        Step::Start(site) => format!("start m{site}"),
        Step::Crash(site) => format!("crash m{site}"),
        Step::Vanish(site) => format!("vanish m{site}"),
        Step::Pause(site) => format!("pause m{site}"),
        Step::Wake(site) => format!("wake m{site}"),
        Step::Leave(site) => format!("leave m{site}"),
        Step::Force(site) => format!("force m{site}"),
        Step::LoseDisk(site) => format!("lose-disk m{site}"),
        Step::Disk(site, DiskHealth::Fast) => format!("disk m{site} fast"),
        Step::Disk(site, DiskHealth::Slow(takes)) => {
            format!("disk m{site} slow takes={}", span(nanos(takes)))
        }
        Step::Disk(site, DiskHealth::Failing) => format!("disk m{site} failing"),
        Step::Tear(TornStep { site, after, votes, until }) => {
            let what = if *votes { "votes" } else { "anything" };
            format!("tear m{site} {what} {after} until={}", time(*until))
        }
        Step::DieDeciding { until } => format!("die-deciding until={}", time(*until)),
        Step::Cut(from, to) => format!("cut m{from} m{to}"),
        Step::Mend(from, to) => format!("mend m{from} m{to}"),
        Step::Slow(from, to, by) => format!("slow m{from} m{to} by={}", span(nanos(by))),
        Step::Clog(from, to) => format!("clog m{from} m{to}"),
        Step::Unclog(from, to) => format!("unclog m{from} m{to}"),
        Step::Narrow(from, to, None) => format!("widen m{from} m{to}"),
        Step::Narrow(from, to, Some(NarrowPath { each, room })) => {
            format!("narrow m{from} m{to} each={} room={room}", span(*each))
        }
        Step::Reset(a, b) => format!("reset m{a} m{b}"),
        Step::ResetHalf(from, to) => format!("reset-half m{from} m{to}"),
        Step::Reject(from, to) => format!("reject m{from} m{to}"),
        Step::Accept(from, to) => format!("accept m{from} m{to}"),
        Step::Lie(site, luck) => format!("lie m{site} {luck}"),
        Step::Deafen(a, b) => format!("deafen m{a} m{b}"),
        Step::Undeafen(a, b) => format!("undeafen m{a} m{b}"),
        Step::TurnClock(site, ppm) => format!("turn-clock m{site}{}", write_rate(*ppm)),
        Step::StepWallClock(site, ms) => {
            let way = if *ms < 0 { "back" } else { "on" };
            format!("step-wall-clock m{site} {way}={}", span(ms.unsigned_abs() * MS))
        }
        Step::Resolve(site, to) => {
            to.iter().fold(format!("resolve m{site}"), |text, to| text + &format!(" m{to}"))
        }
        Step::Weather(weather) => write_weather(weather),
        Step::Heal => "heal".to_string(),
        Step::Hold(packets) => format!("hold{}", write_packets(packets)),
        Step::LetGo(packets) => format!("let-go{}", write_packets(packets)),
        Step::DropHeld(packets) => format!("drop-held{}", write_packets(packets)),
        Step::DropNext(packets) => format!("drop-next{}", write_packets(packets)),
        Step::Notice { at, about, what } => {
            let what = RUMOURS.iter().find(|(of, _)| of == what).map_or("", |(_, name)| name);
            format!("notice m{at} {what} m{about}")
        }
        Step::Restore => "restore".to_string(),
        Step::RestorePart(sites) => {
            sites.iter().fold("restore-part".to_string(), |text, site| text + &format!(" m{site}"))
        }
        Step::Fault { fault, kind, sites } => {
            sites.iter().fold(format!("fault {fault} {}", quoted(kind)), |text, site| {
                text + &format!(" m{site}")
            })
        }
        Step::Mended { fault } => format!("mended {fault}"),
        Step::Deliver(number) => format!("deliver {number}"),
        Step::Lose(number) => format!("lose {number}"),
        Step::Double(number) => format!("double {number}"),
        Step::Timer(site) => format!("timer m{site}"),
    }
}

/// The names of the non-blocking variants of requests. A request without an entry never waits, or
/// always does.
const TRIES: [(&str, &str); 7] = [
    ("lock", "try"),
    ("lock-all", "try-all"),
    ("suspend", "try-suspend"),
    ("become", "try-become"),
    ("share", "try-share"),
    ("permits", "try-permits"),
    ("open", "try-open"),
];

const RUMOURS: [(OutsideHint, &str); 5] = [
    (OutsideHint::Unreachable, "unreachable"),
    (OutsideHint::Refused, "refused"),
    (OutsideHint::Replaced, "replaced"),
    (OutsideHint::Dead, "dead"),
    (OutsideHint::Connected, "connected"),
];

/// A step from the line of a script: its first word, and the rest. `None`: no step has this name.
pub(super) fn read_step(name: &str, args: &mut ArgumentConsumer<'_>) -> Parsed<Option<Step>> {
    let step = match name {
        "lock" | "try" | "lock-all" | "try-all" | "suspend" | "try-suspend" | "become"
        | "try-become" | "destroy" | "see" | "see-suspension" | "see-position" | "see-held"
        | "see-waiting" | "see-blockers" | "see-owner" | "share" | "try-share" | "permits"
        | "try-permits" | "open" | "try-open" | "put" | "put-if" | "add" | "upgrade"
        | "request-revocation" | "force-revoke" | "end-by-force" => {
            let (call, site) = (self::call(args)?, site(args)?);
            let service = word(args, "a service")?.to_string();
            ServiceName::new(&service)?;
            let verb = TRIES.iter().find(|(_, to)| *to == name).map_or(name, |(of, _)| of);
            let wait = match args.take_key("wait") {
                _ if verb != name || name.starts_with("see") || name == "upgrade" => Wait::Try,
                Some(limit) => Wait::AtMost(read_span(limit)?),
                None => Wait::Forever,
            };
            let wanted = match verb {
                "lock" => ClientWant::Lock(lock(args)?),
                "lock-all" => {
                    let mut names = vec![lock(args)?];
                    while let Some(name) = args.next_pos() {
                        LockName::new(name.as_bytes())?;
                        names.push(name.to_string());
                    }
                    ClientWant::Batch(names)
                }
                "suspend" => ClientWant::Suspension,
                "share" => ClientWant::Share(lock(args)?),
                "permits" => ClientWant::Permits(lock(args)?, u32::try_from(number(args)?)?),
                "open" => ClientWant::Open(lock(args)?, value(args)?),
                "put" => ClientWant::Put(self::call(args)?, value(args)?),
                "put-if" => ClientWant::PutIf(self::call(args)?, value(args)?),
                "add" => ClientWant::Add(self::call(args)?, word(args, "how much")?.parse()?),
                "upgrade" => ClientWant::Upgrade(self::call(args)?),
                "become" => ClientWant::Become,
                "destroy" => ClientWant::Destroy,
                "see" => ClientWant::SeeLock(lock(args)?),
                "see-suspension" => ClientWant::SeeSuspension,
                "see-position" => ClientWant::SeePosition(self::call(args)?),
                "see-waiting" => ClientWant::SeeWaiting(lock(args)?),
                "see-blockers" => ClientWant::SeeBlockers(self::call(args)?),
                "see-owner" => ClientWant::SeeOwner(self::call(args)?),
                "request-revocation" => ClientWant::RequestRevocation(lock(args)?),
                "force-revoke" => ClientWant::ForceRevoke(self::call(args)?),
                "end-by-force" => ClientWant::EndByForce(self::call(args)?),
                _ => ClientWant::SeeHeld,
            };
            let lease = args.take_key("lease").map(read_span).transpose()?;
            let owner = args.take_key("owner").map(str::parse).transpose()?.unwrap_or_default();
            let says = args.take_key("says").unwrap_or_default().to_string();
            Metadata::new(says.as_bytes())?;
            Step::Ask { call, site, service, wanted, owner, says, wait, lease }
        }
        "release" => Step::Release(call(args)?),
        "cancel" => Step::Cancel(call(args)?),
        "give-up" => {
            Step::GiveUp(call(args)?, read_span(args.take_key("after").ok_or("wants after=")?)?)
        }
        "give-up-answered" => Step::GiveUpAnswered(
            call(args)?,
            read_span(args.take_key("after").ok_or("wants after=")?)?,
        ),
        "extend" => Step::Extend(call(args)?, read_span(word(args, "a span")?)?),
        "return-permits" => Step::ReturnPermits(call(args)?, u32::try_from(number(args)?)?),
        "downgrade" => Step::Downgrade(call(args)?),
        "fence" => Step::Fence(call(args)?),
        "write" => Step::Write(call(args)?),
        "write-earlier" => Step::WriteEarlier(call(args)?),
        "start" => Step::Start(site(args)?),
        "crash" => Step::Crash(site(args)?),
        "vanish" => Step::Vanish(site(args)?),
        "pause" => Step::Pause(site(args)?),
        "wake" => Step::Wake(site(args)?),
        "leave" => Step::Leave(site(args)?),
        "force" => Step::Force(site(args)?),
        "lose-disk" => Step::LoseDisk(site(args)?),
        "disk" => {
            let site = site(args)?;
            let health = match word(args, "how it is")? {
                "fast" => DiskHealth::Fast,
                "slow" => {
                    DiskHealth::Slow(read_span(args.take_key("takes").ok_or("wants takes=")?)?)
                }
                "failing" => DiskHealth::Failing,
                _ => return Err("fast, slow or failing".into()),
            };
            Step::Disk(site, health)
        }
        "tear" => {
            let site = site(args)?;
            let votes = match word(args, "a kind of step")? {
                "votes" => true,
                "anything" => false,
                _ => return Err("votes or anything".into()),
            };
            let after = u32::try_from(number(args)?)?;
            let until = read_time(args.take_key("until").ok_or("wants until=")?)?;
            Step::Tear(TornStep { site, after, votes, until })
        }
        "die-deciding" => {
            Step::DieDeciding { until: read_time(args.take_key("until").ok_or("wants until=")?)? }
        }
        "cut" => Step::Cut(site(args)?, site(args)?),
        "mend" => Step::Mend(site(args)?, site(args)?),
        "slow" => Step::Slow(
            site(args)?,
            site(args)?,
            read_span(args.take_key("by").ok_or("wants by=")?)?,
        ),
        "clog" => Step::Clog(site(args)?, site(args)?),
        "unclog" => Step::Unclog(site(args)?, site(args)?),
        "widen" => Step::Narrow(site(args)?, site(args)?, None),
        "narrow" => {
            let each = read_span(args.take_key("each").ok_or("wants each=")?)?.as_nanos() as u64;
            let room = args.take_key("room").ok_or("wants room=")?.parse()?;
            Step::Narrow(site(args)?, site(args)?, Some(NarrowPath { each, room }))
        }
        "reset" => Step::Reset(site(args)?, site(args)?),
        "reset-half" => Step::ResetHalf(site(args)?, site(args)?),
        "reject" => Step::Reject(site(args)?, site(args)?),
        "accept" => Step::Accept(site(args)?, site(args)?),
        "lie" => Step::Lie(site(args)?, word(args, "a number")?.parse()?),
        "deafen" => Step::Deafen(site(args)?, site(args)?),
        "undeafen" => Step::Undeafen(site(args)?, site(args)?),
        "turn-clock" => Step::TurnClock(site(args)?, read_rate(args)?),
        "step-wall-clock" => {
            let site = site(args)?;
            let (way, by) = args.next_key().ok_or("wants on= or back=")?;
            let by = i64::try_from(read_span(by)?.as_millis())?;
            Step::StepWallClock(site, if way == "back" { -by } else { by })
        }
        "resolve" => Step::Resolve(site(args)?, sites(args)?),
        "weather" => Step::Weather(read_weather(args)?),
        "heal" => Step::Heal,
        "hold" => Step::Hold(read_packets(args)?),
        "let-go" => Step::LetGo(read_packets(args)?),
        "drop-held" => Step::DropHeld(read_packets(args)?),
        "drop-next" => Step::DropNext(read_packets(args)?),
        "notice" => {
            let at = site(args)?;
            let named = word(args, "a rumour")?;
            let what = RUMOURS.iter().find(|(_, name)| *name == named).ok_or("no such rumour")?.0;
            Step::Notice { at, about: site(args)?, what }
        }
        "restore" => Step::Restore,
        "restore-part" => Step::RestorePart(sites(args)?),
        "fault" => {
            let (fault, kind) = (number(args)?, word(args, "a kind")?.to_string());
            Step::Fault { fault, kind, sites: sites(args)? }
        }
        "mended" => Step::Mended { fault: number(args)? },
        "deliver" => Step::Deliver(number(args)?),
        "lose" => Step::Lose(number(args)?),
        "double" => Step::Double(number(args)?),
        "timer" => Step::Timer(site(args)?),
        _ => return Ok(None),
    };
    Ok(Some(step))
}

fn lock(args: &mut ArgumentConsumer<'_>) -> Parsed<String> {
    let name = word(args, "a lock")?;
    LockName::new(name.as_bytes())?;
    Ok(name.to_string())
}

fn value(args: &mut ArgumentConsumer<'_>) -> Parsed<String> {
    let value = word(args, "a value")?;
    Value::new(value.as_bytes())?;
    Ok(value.to_string())
}

/// Writes only the differences from fair weather.
fn write_weather(weather: &LinkConditions) -> String {
    let fair = LinkConditions::FAIR;
    let mut text = "weather".to_string();
    let rates = [
        ("loss", weather.loss, fair.loss),
        ("duplicate", weather.duplicate, fair.duplicate),
        ("reorder", weather.reorder, fair.reorder),
        ("spike", weather.spike, fair.spike),
        ("garble", weather.garble, fair.garble),
    ];
    for (name, rate, _) in rates.into_iter().filter(|(_, rate, fair)| rate != fair) {
        text += &format!(" {name}={rate}ppm");
    }
    let spans = [
        ("fastest", weather.fastest, fair.fastest),
        ("slowest", weather.slowest, fair.slowest),
        ("spike-by", weather.spike_by, fair.spike_by),
    ];
    for (name, nanos, _) in spans.into_iter().filter(|(_, nanos, fair)| nanos != fair) {
        text += &format!(" {name}={}", span(nanos));
    }
    text
}

fn read_weather(args: &mut ArgumentConsumer<'_>) -> Parsed<LinkConditions> {
    let mut weather = LinkConditions::FAIR;
    while let Some((name, value)) = args.next_key() {
        let nanos = || Ok::<u64, Box<dyn Error>>(read_span(value)?.as_nanos() as u64);
        match name {
            "loss" => weather.loss = read_ppm(value)?,
            "duplicate" => weather.duplicate = read_ppm(value)?,
            "reorder" => weather.reorder = read_ppm(value)?,
            "spike" => weather.spike = read_ppm(value)?,
            "garble" => weather.garble = read_ppm(value)?,
            "fastest" => weather.fastest = nanos()?,
            "slowest" => weather.slowest = nanos()?,
            "spike-by" => weather.spike_by = nanos()?,
            _ => return Err(format!("no weather has a {name:?}").into()),
        }
    }
    Ok(weather)
}

fn write_packets(packets: &PacketFilter) -> String {
    let kind = packets.kind.map(|kind| format!(" {kind}"));
    let from = packets.from.map(|from| format!(" from=m{from}"));
    let to = packets.to.map(|to| format!(" to=m{to}"));
    [kind, from, to].into_iter().flatten().collect()
}

pub(super) fn read_packets(args: &mut ArgumentConsumer<'_>) -> Parsed<PacketFilter> {
    let known = |name| KINDS.iter().copied().find(|kind| *kind == name);
    let kind = args
        .next_pos()
        .map(|name| known(name).ok_or_else(|| format!("no packet is called {name}")));
    Ok(PacketFilter {
        kind: kind.transpose()?,
        from: args.take_key("from").map(|text| numbered(text, 'm')).transpose()?,
        to: args.take_key("to").map(|text| numbered(text, 'm')).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use goldenscript::{Command, Context, Runner};

    /// Reads a script of one line.
    fn read(line: &str) -> Step {
        struct Reader(Option<Step>);
        impl Runner for Reader {
            type Command = Command;
            fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
                let mut args = command.consume_args();
                self.0 = read_step(&command.name, &mut args)?;
                args.reject_next()?;
                Ok(String::new())
            }
        }
        let mut reader = Reader(None);
        goldenscript::generate(&mut reader, &format!("{line}\n---\n")).unwrap();
        reader.0.unwrap_or_else(|| panic!("no step: {line}"))
    }

    #[test]
    fn every_step_is_read_as_it_is_written() {
        let saying = |wanted, owner, says: &str, wait, lease| Step::Ask {
            call: 7,
            site: 1,
            service: "till 2".to_string(),
            wanted,
            owner,
            says: says.to_string(),
            wait,
            lease,
        };
        let want = |wanted, owner, wait, lease| saying(wanted, owner, "", wait, lease);
        let ask =
            |wait, lease, name: &str| want(ClientWant::Lock(name.to_string()), 0, wait, lease);
        let packets = [
            PacketFilter::default(),
            PacketFilter { from: Some(1), to: None, kind: Some("Grant") },
            PacketFilter { from: None, to: Some(2), kind: None },
        ];
        let mut steps = vec![
            ask(Wait::Forever, None, "a"),
            ask(Wait::Try, Some(Duration::from_millis(70)), "a/b\"c"),
            ask(Wait::AtMost(Duration::from_micros(1_500)), None, "ä"),
            want(
                ClientWant::Batch(vec!["a".to_string(), "b c".to_string()]),
                3,
                Wait::Try,
                Some(Duration::from_secs(1)),
            ),
            want(ClientWant::Batch(vec!["a".to_string()]), 0, Wait::Forever, None),
            saying(ClientWant::Lock("a".to_string()), 0, "client12", Wait::Forever, None),
            saying(
                ClientWant::Suspension,
                4,
                "a \"b\"=\u{e4}",
                Wait::Try,
                Some(Duration::from_secs(2)),
            ),
            want(ClientWant::Suspension, 4, Wait::AtMost(Duration::from_secs(2)), None),
            want(ClientWant::Suspension, 0, Wait::Try, Some(Duration::from_secs(2))),
            want(ClientWant::Become, 0, Wait::AtMost(Duration::from_secs(2)), None),
            want(ClientWant::Become, 0, Wait::Try, None),
            want(ClientWant::Destroy, 0, Wait::Forever, None),
            want(ClientWant::SeeLock("a".to_string()), 0, Wait::Try, None),
            want(ClientWant::SeeSuspension, 0, Wait::Try, None),
            want(ClientWant::SeePosition(3), 0, Wait::Try, None),
            want(ClientWant::SeeHeld, 0, Wait::Try, None),
            want(ClientWant::SeeWaiting("a".to_string()), 0, Wait::Try, None),
            want(ClientWant::Share("a".to_string()), 1, Wait::AtMost(Duration::from_secs(2)), None),
            want(ClientWant::Share("a".to_string()), 0, Wait::Try, None),
            want(
                ClientWant::Permits("pool".to_string(), 3),
                0,
                Wait::Forever,
                Some(Duration::from_secs(2)),
            ),
            want(ClientWant::Permits("pool".to_string(), 1), 0, Wait::Try, None),
            want(ClientWant::Open("pool".to_string(), "3".to_string()), 0, Wait::Forever, None),
            want(
                ClientWant::Open("note".to_string(), "a \"b\"=ä".to_string()),
                0,
                Wait::AtMost(Duration::from_secs(2)),
                None,
            ),
            want(ClientWant::Put(4, "x".to_string()), 0, Wait::Forever, None),
            want(
                ClientWant::PutIf(4, "7".to_string()),
                0,
                Wait::AtMost(Duration::from_secs(2)),
                None,
            ),
            want(ClientWant::Add(4, -7), 0, Wait::Forever, None),
            Step::ReturnPermits(1, 2),
            want(ClientWant::Upgrade(2), 0, Wait::Try, None),
            Step::Downgrade(3),
            want(
                ClientWant::RequestRevocation("a".to_string()),
                0,
                Wait::AtMost(Duration::from_secs(2)),
                None,
            ),
            want(ClientWant::ForceRevoke(3), 0, Wait::Forever, None),
            want(ClientWant::EndByForce(3), 0, Wait::Forever, None),
            want(ClientWant::SeeBlockers(3), 0, Wait::Try, None),
            want(ClientWant::SeeOwner(3), 0, Wait::Try, None),
            Step::Release(1),
            Step::Cancel(2),
            Step::Extend(3, Duration::from_secs(2)),
            Step::Fence(4),
            Step::Write(5),
            Step::WriteEarlier(6),
            Step::Start(0),
            Step::Crash(1),
            Step::Vanish(2),
            Step::Pause(3),
            Step::Wake(4),
            Step::Leave(5),
            Step::DieDeciding { until: 12_345_678_901 },
            Step::Cut(0, 1),
            Step::Mend(1, 0),
            Step::Slow(1, 2, Duration::from_nanos(12_345)),
            Step::Weather(LinkConditions::FAIR),
            Step::Weather(LinkConditions {
                loss: 1,
                duplicate: 2,
                reorder: 3,
                fastest: 4,
                slowest: 5_000,
                spike: 6,
                spike_by: 7 * MS,
                garble: 8,
            }),
            Step::Heal,
            Step::GiveUp(8, Duration::from_millis(1)),
            Step::GiveUpAnswered(9, Duration::ZERO),
            Step::Force(1),
            Step::LoseDisk(2),
            Step::Disk(1, DiskHealth::Slow(Duration::from_millis(250))),
            Step::Disk(1, DiskHealth::Failing),
            Step::Disk(0, DiskHealth::Fast),
            Step::Tear(TornStep { site: 1, after: 3, votes: true, until: 12_345_678_901 }),
            Step::Tear(TornStep { site: 0, after: 0, votes: false, until: 12_345_678_901 }),
            Step::Clog(0, 1),
            Step::Unclog(0, 1),
            Step::Narrow(0, 1, Some(NarrowPath { each: 1_500, room: 3 })),
            Step::Narrow(0, 1, None),
            Step::Reset(0, 1),
            Step::ResetHalf(0, 1),
            Step::Reject(0, 1),
            Step::Accept(0, 1),
            Step::Lie(1, u64::MAX),
            Step::Deafen(0, 1),
            Step::Undeafen(0, 1),
            Step::TurnClock(0, -300),
            Step::TurnClock(1, 20_000),
            Step::StepWallClock(0, -1_500),
            Step::StepWallClock(1, 86_400_000),
            Step::Resolve(0, vec![0, 2]),
            Step::Resolve(1, Vec::new()),
            Step::Restore,
            Step::RestorePart(vec![0, 2]),
            Step::Fault { fault: 3, kind: "cut one way".to_string(), sites: vec![0, 2] },
            Step::Mended { fault: 3 },
            Step::Deliver(0),
            Step::Lose(1),
            Step::Double(2),
            Step::Timer(3),
        ];
        steps.extend(RUMOURS.map(|(what, _)| Step::Notice { at: 0, about: 1, what }));
        for these in packets {
            steps.extend([
                Step::Hold(these),
                Step::LetGo(these),
                Step::DropHeld(these),
                Step::DropNext(these),
            ]);
        }
        for step in steps {
            assert_eq!(read(&write_step(&step)), step, "{}", write_step(&step));
        }
    }
}
