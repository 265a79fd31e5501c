//! Steps, logs and scripts as text, in the form of the crate `goldenscript`: commands, `---`, and what came of them.
//!
//! A *log* is written by a driver: a World, and steps that are taken `at` a time. A *script* is written by a person, who
//! may also wait for something to be so (`until`). Both are told to a World by a [`Teller`].

use crate::history::Ask;
use crate::kind::KINDS;
use crate::log::{Log, Scene};
use crate::network::{MS, Narrow, SECOND, Weather};
use crate::step::{Packets, Rumour, Step};
use crate::transcript::{Transcript, span};
use crate::world::World;
use elderlock::protocol::{LockName, ServiceName, Timing, Wait};
use goldenscript::{Argument, ArgumentConsumer, Command, Context, Runner};
use std::error::Error;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How long `until` and `settle` wait if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(30);

type Parsed<T> = Result<T, Box<dyn Error>>;

/// A step as a line of a script.
pub fn write_step(step: &Step) -> String {
    let quoted = |text: &str| Argument::Positional(text.to_string()).to_string();
    let nanos = |span: &Duration| span.as_nanos() as u64;
    match step {
        Step::Ask { call, place, service, name, wait, lease } => {
            let (verb, wait) = match wait {
                Wait::Try => ("try", String::new()),
                Wait::AtMost(limit) => ("lock", format!(" wait={}", span(nanos(limit)))),
                Wait::Forever => ("lock", String::new()),
            };
            let lease = lease.as_ref().map(|lease| format!(" lease={}", span(nanos(lease)))).unwrap_or_default();
            format!("{verb} c{call} m{place} {} {}{wait}{lease}", quoted(service), quoted(name))
        }
        Step::Release(call) => format!("release c{call}"),
        Step::Cancel(call) => format!("cancel c{call}"),
        Step::GiveUp(call, after) => format!("give-up c{call} after={}", span(nanos(after))),
        Step::GiveUpAnswered(call, after) => format!("give-up-answered c{call} after={}", span(nanos(after))),
        Step::Extend(call, lease) => format!("extend c{call} {}", span(nanos(lease))),
        Step::Fence(call) => format!("fence c{call}"),
        Step::Write(call) => format!("write c{call}"),
        Step::WriteEarlier(call) => format!("write-earlier c{call}"),
        Step::Start(place) => format!("start m{place}"),
        Step::Crash(place) => format!("crash m{place}"),
        Step::Vanish(place) => format!("vanish m{place}"),
        Step::Pause(place) => format!("pause m{place}"),
        Step::Wake(place) => format!("wake m{place}"),
        Step::Leave(place) => format!("leave m{place}"),
        Step::Force(place) => format!("force m{place}"),
        Step::LoseDisk(place) => format!("lose-disk m{place}"),
        Step::DieDeciding { until } => format!("die-deciding until={}", time(*until)),
        Step::Cut(from, to) => format!("cut m{from} m{to}"),
        Step::Mend(from, to) => format!("mend m{from} m{to}"),
        Step::Slow(from, to, by) => format!("slow m{from} m{to} by={}", span(nanos(by))),
        Step::Clog(from, to) => format!("clog m{from} m{to}"),
        Step::Unclog(from, to) => format!("unclog m{from} m{to}"),
        Step::Narrow(from, to, None) => format!("widen m{from} m{to}"),
        Step::Narrow(from, to, Some(Narrow { each, room })) => {
            format!("narrow m{from} m{to} each={} room={room}", span(*each))
        }
        Step::Reset(a, b) => format!("reset m{a} m{b}"),
        Step::ResetHalf(from, to) => format!("reset-half m{from} m{to}"),
        Step::Reject(from, to) => format!("reject m{from} m{to}"),
        Step::Accept(from, to) => format!("accept m{from} m{to}"),
        Step::Deafen(a, b) => format!("deafen m{a} m{b}"),
        Step::Undeafen(a, b) => format!("undeafen m{a} m{b}"),
        Step::TurnClock(place, ppm) => format!("turn-clock m{place}{}", write_rate(*ppm)),
        Step::StepWallClock(place, ms) => {
            let way = if *ms < 0 { "back" } else { "on" };
            format!("step-wall-clock m{place} {way}={}", span(ms.unsigned_abs() * MS))
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
        Step::RestorePart(places) => {
            places.iter().fold("restore-part".to_string(), |text, place| text + &format!(" m{place}"))
        }
        Step::Fault { fault, kind, places } => {
            places.iter().fold(format!("fault {fault} {}", quoted(kind)), |text, place| text + &format!(" m{place}"))
        }
        Step::Mended { fault } => format!("mended {fault}"),
        Step::Deliver(number) => format!("deliver {number}"),
        Step::Lose(number) => format!("lose {number}"),
        Step::Double(number) => format!("double {number}"),
        Step::Timer(place) => format!("timer m{place}"),
    }
}

const RUMOURS: [(Rumour, &str); 4] = [
    (Rumour::Unreachable, "unreachable"),
    (Rumour::Refused, "refused"),
    (Rumour::Dead, "dead"),
    (Rumour::Connected, "connected"),
];

/// A step from the line of a script: its first word, and the rest. `None`: no step is called so.
fn read_step(name: &str, args: &mut ArgumentConsumer<'_>) -> Parsed<Option<Step>> {
    let step = match name {
        "lock" | "try" => {
            let (call, place) = (call(args)?, place(args)?);
            let (service, lock) = (word(args, "a service")?.to_string(), word(args, "a lock")?.to_string());
            ServiceName::new(&service)?;
            LockName::new(lock.as_bytes())?;
            let wait = match args.take_key("wait") {
                _ if name == "try" => Wait::Try,
                Some(limit) => Wait::AtMost(read_span(limit)?),
                None => Wait::Forever,
            };
            let lease = args.take_key("lease").map(read_span).transpose()?;
            Step::Ask { call, place, service, name: lock, wait, lease }
        }
        "release" => Step::Release(call(args)?),
        "cancel" => Step::Cancel(call(args)?),
        "give-up" => Step::GiveUp(call(args)?, read_span(args.take_key("after").ok_or("wants after=")?)?),
        "give-up-answered" => {
            Step::GiveUpAnswered(call(args)?, read_span(args.take_key("after").ok_or("wants after=")?)?)
        }
        "extend" => Step::Extend(call(args)?, read_span(word(args, "a span")?)?),
        "fence" => Step::Fence(call(args)?),
        "write" => Step::Write(call(args)?),
        "write-earlier" => Step::WriteEarlier(call(args)?),
        "start" => Step::Start(place(args)?),
        "crash" => Step::Crash(place(args)?),
        "vanish" => Step::Vanish(place(args)?),
        "pause" => Step::Pause(place(args)?),
        "wake" => Step::Wake(place(args)?),
        "leave" => Step::Leave(place(args)?),
        "force" => Step::Force(place(args)?),
        "lose-disk" => Step::LoseDisk(place(args)?),
        "die-deciding" => Step::DieDeciding { until: read_time(args.take_key("until").ok_or("wants until=")?)? },
        "cut" => Step::Cut(place(args)?, place(args)?),
        "mend" => Step::Mend(place(args)?, place(args)?),
        "slow" => Step::Slow(place(args)?, place(args)?, read_span(args.take_key("by").ok_or("wants by=")?)?),
        "clog" => Step::Clog(place(args)?, place(args)?),
        "unclog" => Step::Unclog(place(args)?, place(args)?),
        "widen" => Step::Narrow(place(args)?, place(args)?, None),
        "narrow" => {
            let each = read_span(args.take_key("each").ok_or("wants each=")?)?.as_nanos() as u64;
            let room = args.take_key("room").ok_or("wants room=")?.parse()?;
            Step::Narrow(place(args)?, place(args)?, Some(Narrow { each, room }))
        }
        "reset" => Step::Reset(place(args)?, place(args)?),
        "reset-half" => Step::ResetHalf(place(args)?, place(args)?),
        "reject" => Step::Reject(place(args)?, place(args)?),
        "accept" => Step::Accept(place(args)?, place(args)?),
        "deafen" => Step::Deafen(place(args)?, place(args)?),
        "undeafen" => Step::Undeafen(place(args)?, place(args)?),
        "turn-clock" => Step::TurnClock(place(args)?, read_rate(args)?),
        "step-wall-clock" => {
            let place = place(args)?;
            let (way, by) = args.next_key().ok_or("wants on= or back=")?;
            let by = i64::try_from(read_span(by)?.as_millis())?;
            Step::StepWallClock(place, if way == "back" { -by } else { by })
        }
        "weather" => Step::Weather(read_weather(args)?),
        "heal" => Step::Heal,
        "hold" => Step::Hold(read_packets(args)?),
        "let-go" => Step::LetGo(read_packets(args)?),
        "drop-held" => Step::DropHeld(read_packets(args)?),
        "drop-next" => Step::DropNext(read_packets(args)?),
        "notice" => {
            let at = place(args)?;
            let named = word(args, "a rumour")?;
            let what = RUMOURS.iter().find(|(_, name)| *name == named).ok_or("no such rumour")?.0;
            Step::Notice { at, about: place(args)?, what }
        }
        "restore" => Step::Restore,
        "restore-part" => Step::RestorePart(places(args)?),
        "fault" => {
            let (fault, kind) = (number(args)?, word(args, "a kind")?.to_string());
            Step::Fault { fault, kind, places: places(args)? }
        }
        "mended" => Step::Mended { fault: number(args)? },
        "deliver" => Step::Deliver(number(args)?),
        "lose" => Step::Lose(number(args)?),
        "double" => Step::Double(number(args)?),
        "timer" => Step::Timer(place(args)?),
        _ => return Ok(None),
    };
    Ok(Some(step))
}

fn word<'a>(args: &mut ArgumentConsumer<'a>, what: &str) -> Parsed<&'a str> {
    args.next_pos().ok_or_else(|| format!("{what} is missing").into())
}

fn number(args: &mut ArgumentConsumer<'_>) -> Parsed<usize> {
    Ok(word(args, "a number")?.parse()?)
}

/// `m1` is a place, `c1` a call.
fn numbered(text: &str, letter: char) -> Parsed<usize> {
    let number = text.strip_prefix(letter).and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{text:?} is not like {letter}1").into())
}

fn place(args: &mut ArgumentConsumer<'_>) -> Parsed<usize> {
    numbered(word(args, "a place")?, 'm')
}

fn places(args: &mut ArgumentConsumer<'_>) -> Parsed<Vec<usize>> {
    std::iter::from_fn(|| args.next_pos()).map(|text| numbered(text, 'm')).collect()
}

fn call(args: &mut ArgumentConsumer<'_>) -> Parsed<usize> {
    numbered(word(args, "a call")?, 'c')
}

/// True time in seconds.
fn time(nanos: u64) -> String {
    format!("{}.{:09}", nanos / SECOND, nanos % SECOND)
}

fn read_time(text: &str) -> Parsed<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 {
        return Err(format!("{text:?} is finer than nanoseconds").into());
    }
    Ok(whole.parse::<u64>()? * SECOND + format!("{part:0<9}").parse::<u64>()?)
}

fn read_span(text: &str) -> Parsed<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => SECOND,
        "ms" => MS,
        "us" => 1_000,
        "ns" => 1,
        _ => return Err(format!("{text:?} is not like 20ms").into()),
    };
    Ok(Duration::from_nanos(digits.parse::<u64>()? * unit))
}

fn read_ppm(text: &str) -> Parsed<u32> {
    Ok(text.strip_suffix("ppm").ok_or_else(|| format!("{text:?} is not like 1000ppm"))?.parse()?)
}

/// How much a clock runs fast or slow.
fn write_rate(ppm: i32) -> String {
    let how = if ppm < 0 { "slow" } else { "fast" };
    format!(" {how}={}ppm", ppm.unsigned_abs())
}

fn read_rate(args: &mut ArgumentConsumer<'_>) -> Parsed<i32> {
    let (how, rate) = args.next_key().ok_or("wants fast= or slow=")?;
    let rate = i32::try_from(read_ppm(rate)?)?;
    match how {
        "fast" => Ok(rate),
        "slow" => Ok(-rate),
        _ => Err(format!("no clock runs {how:?}").into()),
    }
}

/// Only what is not fair is said.
fn write_weather(weather: &Weather) -> String {
    let fair = Weather::FAIR;
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

fn read_weather(args: &mut ArgumentConsumer<'_>) -> Parsed<Weather> {
    let mut weather = Weather::FAIR;
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

fn write_packets(packets: &Packets) -> String {
    let kind = packets.kind.map(|kind| format!(" {kind}"));
    let from = packets.from.map(|from| format!(" from=m{from}"));
    let to = packets.to.map(|to| format!(" to=m{to}"));
    [kind, from, to].into_iter().flatten().collect()
}

fn read_packets(args: &mut ArgumentConsumer<'_>) -> Parsed<Packets> {
    let known = |name| KINDS.iter().copied().find(|kind| *kind == name);
    let kind = args.next_pos().map(|name| known(name).ok_or_else(|| format!("no packet is called {name}")));
    Ok(Packets {
        kind: kind.transpose()?,
        from: args.take_key("from").map(|text| numbered(text, 'm')).transpose()?,
        to: args.take_key("to").map(|text| numbered(text, 'm')).transpose()?,
    })
}

/// A World as the first lines of a script. All times are said: a log outlives a change of the presets.
fn write_scene(scene: &Scene) -> String {
    let nanos = |span: Duration| span.as_nanos() as u64;
    let Scene { seed, founders, joiners, council, timing, .. } = scene;
    let mut text = format!("world seed={seed} members={founders} joiners={joiners} council={council}");
    for (said, word) in [
        (!scene.bounded, " clocks=unbounded"),
        (!scene.hints, " hints=none"),
        (scene.trust_refused, " refused=trusted"),
        (scene.gossip, " gossip=real"),
        (scene.durable, " votes=durable"),
        (scene.lineages, " lineages=several"),
        (scene.asleep, " asleep=yes"),
    ] {
        text += if said { word } else { "" };
    }
    text += &format!(
        "\ntiming member-lease={} elder-lease={} beat={} retry={} stagger={} answer={} clock-error={}ppm\n",
        span(nanos(timing.member_lease)),
        span(nanos(timing.elder_lease)),
        span(nanos(timing.beat)),
        span(nanos(timing.retry)),
        span(nanos(timing.stagger)),
        span(nanos(timing.answer)),
        timing.clock_error_ppm
    );
    let shared = scene.hosts.iter().enumerate().any(|(place, host)| place != *host as usize);
    if shared {
        text += &scene.hosts.iter().fold("hosts".to_string(), |text, host| text + &format!(" {host}"));
        text += "\n";
    }
    for (place, ppm) in scene.clocks.iter().enumerate().filter(|(_, ppm)| **ppm != 0) {
        text += &format!("clock m{place}{}\n", write_rate(*ppm));
    }
    text
}

/// A line that says something of the scene. False: it does not.
fn read_scene(scene: &mut Scene, name: &str, args: &mut ArgumentConsumer<'_>) -> Parsed<bool> {
    match name {
        "world" => {
            while let Some((key, value)) = args.next_key() {
                match (key, value) {
                    ("seed", value) => scene.seed = value.parse()?,
                    ("members", value) => scene.founders = value.parse()?,
                    ("joiners", value) => scene.joiners = value.parse()?,
                    ("council", value) => scene.council = value.parse()?,
                    ("clocks", "unbounded") => scene.bounded = false,
                    ("hints", "none") => scene.hints = false,
                    ("refused", "trusted") => scene.trust_refused = true,
                    ("gossip", "real") => scene.gossip = true,
                    ("votes", "durable") => scene.durable = true,
                    ("lineages", "several") => scene.lineages = true,
                    ("asleep", "yes") => scene.asleep = true,
                    _ => return Err(format!("no world has {key}={value}").into()),
                }
            }
        }
        "timing" => {
            match args.next_pos() {
                Some("fast") => scene.timing = Timing::fast(),
                Some("lan") => scene.timing = Timing::lan(),
                Some("wan") => scene.timing = Timing::wan(),
                Some(name) => return Err(format!("no timing is called {name}").into()),
                None => {}
            }
            let timing = &mut scene.timing;
            while let Some((key, value)) = args.next_key() {
                match key {
                    "member-lease" => timing.member_lease = read_span(value)?,
                    "elder-lease" => timing.elder_lease = read_span(value)?,
                    "beat" => timing.beat = read_span(value)?,
                    "retry" => timing.retry = read_span(value)?,
                    "stagger" => timing.stagger = read_span(value)?,
                    "answer" => timing.answer = read_span(value)?,
                    "clock-error" => timing.clock_error_ppm = read_ppm(value)?,
                    _ => return Err(format!("no timing has a {key:?}").into()),
                }
            }
            timing.check()?;
        }
        "hosts" => scene.hosts = std::iter::from_fn(|| args.next_pos()).map(str::parse).collect::<Result<_, _>>()?,
        "clock" => {
            let place = place(args)?;
            scene.clocks.resize(scene.clocks.len().max(place + 1), 0);
            scene.clocks[place] = read_rate(args)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

impl Log {
    /// As a script, without what came of it. A block for each second in which there are steps.
    pub fn to_script(&self) -> String {
        let mut text = write_scene(&self.scene) + "---\n";
        let mut second = None;
        for (at, step) in &self.steps {
            if second.replace(at / SECOND) != Some(at / SECOND) {
                text += if text.ends_with("---\n") { "\n" } else { "---\n\n" };
            }
            writeln!(text, "at {} {}", time(*at), write_step(step)).expect("a string takes what is written to it");
        }
        // A demand takes its time itself.
        if self.steps.last().is_none_or(|(at, step)| *at < self.end && !step.takes_time()) {
            text += if text.ends_with("---\n") { "\n" } else { "---\n\n" };
            text += &format!("at {}\n", time(self.end));
        }
        text + "---\n"
    }
}

/// Tells a script to a World.
pub struct Teller<'a> {
    scene: Scene,
    world: Option<World>,
    prepare: Box<dyn Fn(World) -> World + 'a>,
    transcript: Transcript,
}

impl std::fmt::Debug for Teller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Teller({:?}, {:?})", self.scene, self.world)
    }
}

impl<'a> Teller<'a> {
    /// Tells it to a World that is changed by `prepare` before anything happens.
    pub fn new(prepare: impl Fn(World) -> World + 'a) -> Teller<'a> {
        let (world, transcript) = (None, Transcript::default());
        Teller { scene: Scene::new(1), world, prepare: Box::new(prepare), transcript }
    }

    /// The World; nothing has happened yet if it has not begun.
    pub fn world(&mut self) -> &mut World {
        let (scene, prepare) = (&self.scene, &self.prepare);
        self.world.get_or_insert_with(|| prepare(scene.world()))
    }

    /// The script with what came of it.
    pub fn tell(&mut self, script: &str) -> std::io::Result<String> {
        goldenscript::generate(self, script)
    }

    /// Goes on, and says what came of it.
    fn until(&mut self, args: &mut ArgumentConsumer<'_>) -> Parsed<()> {
        let within = args.take_key("within").map(read_span).transpose()?.unwrap_or(PATIENCE);
        let what = word(args, "what to wait for")?;
        let of = |world: &World, call: usize| world.named(call).ok_or_else(|| format!("there is no c{call}"));
        let world = self.world();
        let so: Box<dyn Fn(&World) -> bool> = match what {
            "granted" => one(of(world, call(args)?)?, World::is_granted),
            "answered" => one(of(world, call(args)?)?, World::is_answered),
            "lost" => one(of(world, call(args)?)?, |world, ask| world.lost(ask).is_some()),
            "ready" => at(place(args)?, World::is_ready),
            "suspended" => at(place(args)?, |world, place| !world.is_ready(place)),
            "gone" => at(place(args)?, |world, place| !world.is_alive(place)),
            "elder" => at(place(args)?, |world, place| world.find_elder() == Some(place)),
            "grantor" => {
                let (place, service) = (place(args)?, word(args, "a service")?.to_string());
                Box::new(move |world| world.find_grantor(&service) == Some(place))
            }
            "view" => {
                let these = places(args)?;
                Box::new(move |world| world.in_view() == these)
            }
            "held" => {
                let these = read_packets(args)?;
                Box::new(move |world| world.held_of(&these) > 0)
            }
            "idle" => Box::new(World::is_empty_everywhere),
            _ => return Err(format!("cannot wait for {what:?}").into()),
        };
        if world.run_until(so, within) || world.broken().is_some() {
            return Ok(());
        }
        Err(format!("it did not come about within {within:?}\n{}", show(world)).into())
    }

    /// Nobody of the one group reaches anybody of the other.
    fn part(&mut self, group: &[usize], others: &[usize]) -> Parsed<()> {
        for (a, b) in group.iter().flat_map(|a| others.iter().map(move |b| (*a, *b))) {
            if a == b || !self.world().apply(&Step::Cut(a, b)) || !self.world().apply(&Step::Cut(b, a)) {
                return Err(format!("m{a} and m{b} cannot be parted").into());
            }
        }
        Ok(())
    }

    fn command(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Parsed<String> {
        let mut said = String::new();
        if self.world.is_none() && read_scene(&mut self.scene, name, args)? {
            return Ok(said);
        }
        let mut name = name;
        if name == "at" {
            let time = read_time(word(args, "a time")?)?;
            self.world().run_to(time);
            name = args.next_pos().unwrap_or_default();
        }
        match name {
            "" => {}
            "run" => {
                let span = read_span(word(args, "a span")?)?;
                self.world().run_for(span);
            }
            "until" => self.until(args)?,
            "settle" => {
                let world = self.world();
                if !world.run_until(World::is_settled, PATIENCE * 2) && world.broken().is_none() {
                    return Err(format!("there is not one view with everybody who runs\n{}", show(world)).into());
                }
            }
            "show" => said += &show(self.world()),
            "part" => {
                let (a, b) = (place(args)?, place(args)?);
                self.part(&[a], &[b])?;
            }
            "isolate" => {
                let alone = place(args)?;
                let others: Vec<usize> = self.world().places().filter(|place| *place != alone).collect();
                self.part(&[alone], &others)?;
            }
            "split" => {
                let group = places(args)?;
                let others: Vec<usize> = self.world().places().filter(|place| !group.contains(place)).collect();
                self.part(&group, &others)?;
            }
            name => {
                let step = read_step(name, args)?.ok_or_else(|| format!("there is no {name:?} here"))?;
                let world = self.world();
                let done = world.broken().is_none() && world.apply(&step);
                let is_broken = world.broken().is_some();
                said += match (&step, done) {
                    (Step::Fence(_), true) => "the guard gives its token\n",
                    (Step::Fence(_) | Step::Write(_), false) if !is_broken => "the guard gives no token\n",
                    (Step::Restore | Step::RestorePart(_), true) => "everything works\n",
                    (Step::Restore | Step::RestorePart(_), false) if !is_broken => "a quorum is lost for good\n",
                    (_, false) if !is_broken => "there is nothing to do it to\n",
                    _ => "",
                };
            }
        }
        args.reject_next()?;
        Ok(said)
    }
}

fn one(ask: Ask, so: fn(&World, Ask) -> bool) -> Box<dyn Fn(&World) -> bool> {
    Box::new(move |world| so(world, ask))
}

fn at(place: usize, so: fn(&World, usize) -> bool) -> Box<dyn Fn(&World) -> bool> {
    Box::new(move |world| so(world, place))
}

/// Who sees what now.
fn show(world: &World) -> String {
    let mut text = String::new();
    for place in world.places().filter(|place| world.is_alive(*place)) {
        let view = world.view(place).map(|view| {
            let there = |member: &elderlock::protocol::Member| {
                let here = world.place_of(member.info.process).filter(|_| !member.ghost);
                here.map_or_else(|| "(ghost)".to_string(), |place| format!("m{place}"))
            };
            view.members.iter().map(there).collect::<Vec<_>>().join(" ")
        });
        let lease = if world.is_ready(place) { "" } else { ", without a lease" };
        text += &format!("m{place} sees {}{lease}\n", view.unwrap_or_else(|| "no view".to_string()));
    }
    text
}

impl Runner for Teller<'_> {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        // A panic of the core is a break like any other.
        let said = match catch_unwind(AssertUnwindSafe(|| self.command(&command.name, &mut args))) {
            Ok(said) => said?,
            Err(panic) => {
                self.world().fail_with(panic.as_ref());
                String::new()
            }
        };
        let news = self.world.as_ref().map(|world| self.transcript.news(world)).unwrap_or_default();
        Ok(news + &said)
    }

    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        self.world().read_again();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let ask = |wait, lease, name: &str| {
            let (service, name) = ("till 2".to_string(), name.to_string());
            Step::Ask { call: 7, place: 1, service, name, wait, lease }
        };
        let packets = [
            Packets::default(),
            Packets { from: Some(1), to: None, kind: Some("Grant") },
            Packets { from: None, to: Some(2), kind: None },
        ];
        let mut steps = vec![
            ask(Wait::Forever, None, "a"),
            ask(Wait::Try, Some(Duration::from_millis(70)), "a/b\"c"),
            ask(Wait::AtMost(Duration::from_micros(1_500)), None, "ä"),
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
            Step::Weather(Weather::FAIR),
            Step::Weather(Weather {
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
            Step::Clog(0, 1),
            Step::Unclog(0, 1),
            Step::Narrow(0, 1, Some(Narrow { each: 1_500, room: 3 })),
            Step::Narrow(0, 1, None),
            Step::Reset(0, 1),
            Step::ResetHalf(0, 1),
            Step::Reject(0, 1),
            Step::Accept(0, 1),
            Step::Deafen(0, 1),
            Step::Undeafen(0, 1),
            Step::TurnClock(0, -300),
            Step::TurnClock(1, 20_000),
            Step::StepWallClock(0, -1_500),
            Step::StepWallClock(1, 86_400_000),
            Step::Restore,
            Step::RestorePart(vec![0, 2]),
            Step::Fault { fault: 3, kind: "cut one way".to_string(), places: vec![0, 2] },
            Step::Mended { fault: 3 },
            Step::Deliver(0),
            Step::Lose(1),
            Step::Double(2),
            Step::Timer(3),
        ];
        steps.extend(RUMOURS.map(|(what, _)| Step::Notice { at: 0, about: 1, what }));
        for these in packets {
            steps.extend([Step::Hold(these), Step::LetGo(these), Step::DropHeld(these), Step::DropNext(these)]);
        }
        for step in steps {
            assert_eq!(read(&write_step(&step)), step, "{}", write_step(&step));
        }
    }

    #[test]
    fn spans_and_times_are_read_as_they_are_written() {
        for nanos in [0, 1, 999, 1_000, 1_500, 20 * MS, 1_234_567_891, 3 * SECOND] {
            assert_eq!(read_span(&span(nanos)).unwrap().as_nanos() as u64, nanos);
            assert_eq!(read_time(&time(nanos)).unwrap(), nanos);
        }
        assert_eq!(read_time("12.5").unwrap(), 12 * SECOND + SECOND / 2);
        assert!(read_span("20").is_err() && read_span("m").is_err() && read_time("1.0000000001").is_err());
    }
}
