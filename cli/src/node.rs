//! `elderlock node`: one member, run by hand.

use crate::control_escaper::to_json;
use crate::{Done, cli_words, clock, keys, signals};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use elderlock::http::HttpView;
use elderlock::telemetry::SECONDS_BUCKETS;
use elderlock::{Keyring, LeaveError, Member, MemberEvent, ProcessId, Timing, View};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use serde_json::ser::CompactFormatter;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;
use tracing_subscriber::filter::LevelFilter;

/// How to run it. Flags win over environment variables, and those over the file.
///
/// Exit codes: 0 after a leave, 1 if no other member confirmed the leave, 2 if it could not start,
/// 3 if a fault ended it. The reason is on standard error.
#[derive(Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings: bind, advertise, name, seeds = [..], cluster, timing,
    /// found, expect, insecure, key_file, trust_refused, serve_sessions, allow_forced_revokes,
    /// data_dir, join_seconds.
    #[arg(long, env = "ELDERLOCK_CONFIG")]
    config: Option<PathBuf>,
    /// Serve metrics, probes, the status and a page over HTTP at this address, such as
    /// 127.0.0.1:7480. The variable ELDERLOCK_HTTP_TOKEN may have a token that requests need.
    #[arg(long, env = "ELDERLOCK_HTTP", value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// With --http: a name that the Host header of requests may have, beside addresses and
    /// localhost; may be given several times, or with commas.
    #[arg(long, env = "ELDERLOCK_HTTP_HOSTS", value_delimiter = ',', requires = "http")]
    http_host: Vec<String>,
    /// With --http: allow an address outside the loopback without a token.
    #[arg(long, requires = "http")]
    http_insecure: bool,
    /// Print one JSON object per event.
    #[arg(long, env = "ELDERLOCK_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
    /// The log on standard error has lines of this level and above: off, error, warn, info, debug.
    #[arg(long, env = "ELDERLOCK_LOG", value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
}

/// The settings of a member, from any source.
#[derive(Args, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Address to listen on, TCP and UDP (host:port).
    #[arg(long, env = "ELDERLOCK_BIND")]
    bind: Option<String>,
    /// Address that other members dial; the bound address unless given.
    #[arg(long, env = "ELDERLOCK_ADVERTISE")]
    advertise: Option<String>,
    /// Name of this member for people (the host name and the port unless given).
    #[arg(long, env = "ELDERLOCK_NAME")]
    name: Option<String>,
    /// Address of a seed; may be given several times, or with commas.
    #[arg(long = "seed", env = "ELDERLOCK_SEEDS", value_delimiter = ',')]
    seeds: Vec<String>,
    /// Name of the cluster ("elderlock" unless given).
    #[arg(long, env = "ELDERLOCK_CLUSTER")]
    cluster: Option<String>,
    /// The leases of the cluster ("lan" unless given).
    #[arg(long, env = "ELDERLOCK_TIMING")]
    timing: Option<Preset>,
    /// Found a new cluster with this member alone.
    #[arg(long, env = "ELDERLOCK_FOUND", value_parser = BoolishValueParser::new())]
    found: bool,
    /// The least number of members with which this one founds the cluster, itself included: more
    /// than half of all replicas, the same for each (1 unless given).
    #[arg(long, env = "ELDERLOCK_EXPECT", value_name = "MEMBERS")]
    expect: Option<usize>,
    /// Listen outside the loopback without a key.
    #[arg(long, env = "ELDERLOCK_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,
    /// File with the cluster keys, one per line: the member encrypts with the first key and accepts
    /// all of them. A file that others than its owner and group can read is refused. On SIGHUP the
    /// member reads the file again. Without a file, the variable ELDERLOCK_KEY may hold the keys,
    /// separated by commas.
    #[arg(long, env = "ELDERLOCK_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Treat a member that refuses the connections of two others as dead. Use it only
    /// where no firewall refuses connections to a living member.
    #[arg(long, env = "ELDERLOCK_TRUST_REFUSED", value_parser = BoolishValueParser::new())]
    trust_refused: bool,
    /// Hold locks for programs that are not members, such as `elderlock lock` starts. When this
    /// process is killed, others wait for the end of its lease before they go on.
    #[arg(long, env = "ELDERLOCK_SERVE_SESSIONS", value_parser = BoolishValueParser::new())]
    serve_sessions: bool,
    /// Let `elderlock revoke --force` take away locks of this member that were not asked for as
    /// revocable.
    #[arg(long, env = "ELDERLOCK_ALLOW_FORCED_REVOKES", value_parser = BoolishValueParser::new())]
    allow_forced_revokes: bool,
    /// Directory that keeps this member's vote, so that the cluster goes on after all members
    /// restart.
    #[arg(long, env = "ELDERLOCK_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Declare all members that do not answer dead for ever, and go on without a quorum.
    #[arg(long)]
    #[serde(skip)]
    force: bool,
    /// Give up joining after this many seconds (30 unless given).
    #[arg(long, env = "ELDERLOCK_JOIN_SECONDS")]
    join_seconds: Option<u64>,
}

/// Names of the timing presets.
#[derive(ValueEnum, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Preset {
    /// One network: leases of 5 s and 2 s.
    Lan,
    /// Far apart: leases of 15 s and 5 s.
    Wan,
    /// One rack or host: leases of 2.5 s and 1 s.
    Fast,
}

/// The token of HTTP requests. There is no flag, because other users see flags.
pub(crate) const HTTP_TOKEN: &str = "ELDERLOCK_HTTP_TOKEN";

/// The exit code when no other member confirmed the leave.
const UNHEARD: u8 = 1;

/// The exit code when a fault ended the member.
const FAILED: u8 = 3;

/// The listening address when none is given.
const DEFAULT_BIND: &str = "127.0.0.1:7400";

pub(crate) async fn run(args: NodeArgs) -> Done {
    // First of all: a SIGTERM during a long join must be heard too.
    let (mut terminate, mut interrupt) = (signals::terminate()?, signals::interrupt()?);
    let settings = match &args.config {
        Some(path) => args.settings.or(read(path)?),
        None => args.settings,
    };
    tracing_subscriber::fmt()
        .with_max_level(args.log)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let key_file = settings.key_file.clone();
    // Without a key file SIGHUP ends the process, as by default.
    let mut hangup = key_file.is_some().then(signals::hangup).transpose()?;
    // The exporter comes before the member; otherwise the member's frequent measurements would be
    // lost.
    let exporter = args.http.is_some().then(export_metrics).transpose()?;
    let member = tokio::select! {
        joined = settings.join() => joined?,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
    };
    let say = |name: &str, text: String, detail: Value| {
        if args.json {
            let line = event_json(name, detail);
            // A value can always be written.
            println!("{}", to_json(&line, CompactFormatter).unwrap_or_default());
        } else {
            println!("{} {text}", clock::rfc3339(SystemTime::now()));
        }
    };
    let mut events = member.events();
    // Checked and bound before anything is said, so that a wrong address is an error of the start.
    let http = match args.http {
        Some(addr) => {
            let mut view = HttpView::new(&member);
            if let Some(exporter) = exporter {
                view = view.exporter(move || exporter.render());
            }
            Some(serve(view, addr, &args.http_host, args.http_insecure).await?)
        }
        None => None,
    };
    let (name, process, addr) = (member.name(), member.process(), member.addr());
    say(
        "joined",
        format!("joined as {name}, process {process} at {addr}"),
        json!({ "name": name.as_str(), "process": hex(process), "addr": addr }),
    );
    if let Some((addr, _)) = &http {
        say("http", format!("serves http://{addr}/"), json!({ "addr": addr }));
    }
    if let Some(view) = member.status().view {
        say("view_installed", describe(&view), view_json(&view));
    }
    loop {
        tokio::select! {
            event = events.next() => {
                let Some(event) = event else { return Ok(ExitCode::SUCCESS) };
                let (name, text, detail) = tell(&event);
                if is_fault(&event) {
                    eprintln!("elderlock: {text}");
                }
                say(name, text, detail);
                if is_fault(&event) {
                    return Ok(ExitCode::from(FAILED));
                }
            }
            Some(path) = again(&mut hangup, key_file.as_deref()) => match rekey(&member, path) {
                Ok((keys, closed)) => {
                    let path = path.display();
                    let key = &keys[0];
                    let text = format!(
                        "has read {path}: seals with key {key}; {closed} connections closed"
                    );
                    say("keyring_replaced", text, json!({ "keys": keys, "closed": closed }));
                }
                Err(error) => {
                    let reason = error.to_string();
                    let text = format!("keeps its keys: {error}");
                    say("keyring_kept", text, json!({ "reason": reason }));
                }
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    if let Err(error) = member.leave().await {
        eprintln!("elderlock: {error}");
        return Ok(ExitCode::from(if error == LeaveError::Unheard { UNHEARD } else { FAILED }));
    }
    say("left", "left".to_owned(), Value::Null);
    Ok(ExitCode::SUCCESS)
}

/// Measures from now on. The buckets are emptied between two looks of a collector too.
fn export_metrics() -> Result<PrometheusHandle, Box<dyn std::error::Error>> {
    let exporter = PrometheusBuilder::new().set_buckets(&SECONDS_BUCKETS)?.install_recorder()?;
    let kept = exporter.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            kept.run_upkeep();
        }
    });
    Ok(exporter)
}

/// Serves over HTTP in a task. Returns the address and the task, which ends if serving fails.
async fn serve(
    mut view: HttpView,
    addr: SocketAddr,
    hosts: &[String],
    insecure: bool,
) -> Result<(SocketAddr, JoinHandle<std::io::Result<()>>), Box<dyn std::error::Error>> {
    if let Some(token) = std::env::var(HTTP_TOKEN).ok().filter(|token| !token.is_empty()) {
        view = view.token(token);
    }
    for host in hosts {
        view = view.host(host);
    }
    if insecure {
        view = view.insecure();
    }
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut task = tokio::spawn(view.serve(addr, |addr| {
        // The caller waits for it.
        let _ = tell.send(addr);
    }));
    tokio::select! {
        biased;
        Ok(addr) = told => Ok((addr, task)),
        ended = &mut task => match ended? {
            Err(error) => Err(format!("--http: {}", cli_words::flags(error.to_string())).into()),
            Ok(()) => Err("--http: it ended".into()),
        },
    }
}

/// The key file, after a SIGHUP. Never ready without a key file.
async fn again<'a>(
    hangup: &mut Option<signals::Hangup>,
    key_file: Option<&'a Path>,
) -> Option<&'a Path> {
    match hangup {
        Some(hangup) => {
            hangup.recv().await?;
            key_file
        }
        None => std::future::pending().await,
    }
}

/// Reads the key file again. On an error the member keeps its keys.
fn rekey(member: &Member, path: &Path) -> Result<(Vec<String>, usize), Box<dyn std::error::Error>> {
    let ring = Keyring::read_file(path)?;
    let names = ring.names().map(|name| name.to_string()).collect();
    Ok((names, member.set_keyring(ring)?))
}

/// Returns whether a fault ended the member: this process ends too, with an exit code of its own.
fn is_fault(event: &MemberEvent) -> bool {
    matches!(event, MemberEvent::Failed { .. } | MemberEvent::WrongClock { .. })
}

impl Settings {
    /// Returns these settings, and `others` where these say nothing.
    fn or(self, others: Settings) -> Settings {
        Settings {
            bind: self.bind.or(others.bind),
            advertise: self.advertise.or(others.advertise),
            name: self.name.or(others.name),
            seeds: if self.seeds.is_empty() { others.seeds } else { self.seeds },
            cluster: self.cluster.or(others.cluster),
            timing: self.timing.or(others.timing),
            found: self.found || others.found,
            expect: self.expect.or(others.expect),
            insecure: self.insecure || others.insecure,
            key_file: self.key_file.or(others.key_file),
            trust_refused: self.trust_refused || others.trust_refused,
            serve_sessions: self.serve_sessions || others.serve_sessions,
            allow_forced_revokes: self.allow_forced_revokes || others.allow_forced_revokes,
            data_dir: self.data_dir.or(others.data_dir),
            force: self.force,
            join_seconds: self.join_seconds.or(others.join_seconds),
        }
    }

    async fn join(self) -> Result<Member, Box<dyn std::error::Error>> {
        let ring = keys::find(self.key_file.as_deref())?;
        keys::check_insecure(self.insecure, ring.as_ref())?;
        let timing = match self.timing.unwrap_or(Preset::Lan) {
            Preset::Lan => Timing::lan(),
            Preset::Wan => Timing::wan(),
            Preset::Fast => Timing::fast(),
        };
        let mut builder = Member::builder(self.cluster.as_deref().unwrap_or("elderlock"))
            .bind(self.bind.as_deref().unwrap_or(DEFAULT_BIND))
            .seeds(self.seeds)
            .timing(timing)
            .trust_refused(self.trust_refused)
            .serve_sessions(self.serve_sessions)
            .forced_revokes(self.allow_forced_revokes);
        if let Some(advertise) = self.advertise {
            builder = builder.advertise(advertise);
        }
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if self.found {
            builder = builder.found();
        }
        if let Some(members) = self.expect {
            builder = builder.expect(members);
        }
        if let Some(path) = self.data_dir {
            builder = builder.data_dir(path);
        }
        if self.force {
            builder = builder.force();
        }
        if self.insecure {
            builder = builder.insecure();
        }
        if let Some(seconds) = self.join_seconds {
            builder = builder.join_limit(Duration::from_secs(seconds));
        }
        if let Some(ring) = ring {
            builder = builder.keyring(ring);
        }
        Ok(builder.join().await.map_err(|error| cli_words::join_error(&error))?)
    }
}

fn read(path: &Path) -> Result<Settings, Box<dyn std::error::Error>> {
    let problem = |error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(problem)?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The line of an event with `--json`.
fn event_json(name: &str, detail: Value) -> Value {
    let time = clock::rfc3339(SystemTime::now());
    json!({ "version": 1, "time": time, "event": name, "detail": detail })
}

/// An event's name, its line, and its detail as JSON.
fn tell(event: &MemberEvent) -> (&'static str, String, Value) {
    let debug = || format!("{event:?}");
    match event {
        MemberEvent::ViewInstalled(view) => ("view_installed", describe(view), view_json(view)),
        MemberEvent::BecameElder => ("became_elder", "became the elder".to_owned(), Value::Null),
        MemberEvent::BecameGrantor { service, epoch } => {
            let detail = json!({ "service": service.as_str(), "epoch": epoch.0.to_string() });
            let service = service.as_str().escape_debug();
            ("became_grantor", format!("became grantor of {service} in epoch {epoch}"), detail)
        }
        MemberEvent::NoLongerGrantor { service, epoch } => {
            let detail = json!({ "service": service.as_str(), "epoch": epoch.0.to_string() });
            let service = service.as_str().escape_debug();
            ("no_longer_grantor", format!("no longer grantor of {service}, epoch {epoch}"), detail)
        }
        MemberEvent::Suspended => {
            ("suspended", "suspended: no quorum, all locks lost".to_owned(), Value::Null)
        }
        MemberEvent::Orphaned => {
            ("orphaned", "orphaned: no quorum for long; see --force".to_owned(), Value::Null)
        }
        MemberEvent::Resumed => ("resumed", "resumed".to_owned(), Value::Null),
        MemberEvent::IdentityTaken => {
            let text = "another process has this member's id: the machine was cloned or restored";
            ("identity_taken", text.to_owned(), Value::Null)
        }
        MemberEvent::Expelled => (
            "expelled",
            "expelled: the cluster went on without this member".to_owned(),
            Value::Null,
        ),
        MemberEvent::Rejoined { process } => {
            ("rejoined", format!("rejoined as {process}"), json!({ "process": hex(*process) }))
        }
        MemberEvent::ClockDistrusted { boottime, raw } => {
            let text =
                format!("suspended: its clock ran {boottime:?} while the hardware's ran {raw:?}");
            (
                "clock_distrusted",
                text,
                json!({ "boottime": boottime.as_secs_f64(), "raw": raw.as_secs_f64() }),
            )
        }
        MemberEvent::ClockTrusted => {
            ("clock_trusted", "its clock is steady again".to_owned(), Value::Null)
        }
        MemberEvent::WallClockJumped { millis } => (
            "wall_clock_jumped",
            format!("the wall clock jumped by {millis} ms"),
            json!({ "seconds": *millis as f64 / 1e3 }),
        ),
        MemberEvent::WrongClock { ahead } => {
            let text = format!(
                "the cluster is {ahead:?} ahead of this machine's clock; an hour is allowed"
            );
            ("wrong_clock", text, json!({ "ahead": ahead.as_secs_f64() }))
        }
        MemberEvent::VoteNotStored { reason } => {
            let text = format!("its vote is not stored, and does not count until it is: {reason}");
            ("vote_not_stored", text, json!({ "reason": reason }))
        }
        MemberEvent::ForcedRevoke { service, name, token, by, operator, reason } => {
            let what = name.as_ref().map(ToString::to_string);
            let text = |metadata: &elderlock::Metadata| {
                String::from_utf8_lossy(metadata.as_bytes()).into_owned()
            };
            let (operator, reason) = (text(operator), text(reason));
            let said = format!(
                "operator {} took {} of {} away, through process {by}: {}",
                operator.escape_debug(),
                what.as_deref().unwrap_or("the suspension"),
                service.as_str().escape_debug(),
                reason.escape_debug()
            );
            let detail = json!({
                "service": service.as_str(), "name": what, "token": token.to_string(),
                "by": hex(*by), "operator": operator, "reason": reason,
            });
            ("forced_revoke", said, detail)
        }
        MemberEvent::VoteStored => {
            ("vote_stored", "its vote is stored again".to_owned(), Value::Null)
        }
        MemberEvent::Failed { reason } => {
            ("failed", format!("failed: {reason}"), json!({ "reason": reason }))
        }
        MemberEvent::Left => ("left", "left".to_owned(), Value::Null),
        MemberEvent::Missed { count, .. } => {
            ("missed", format!("missed {count} events: read too slowly"), json!({ "count": count }))
        }
        // A later version's.
        _ => ("other", debug(), Value::String(debug())),
    }
}

fn describe(view: &View) -> String {
    let members: Vec<String> = view
        .members
        .iter()
        .map(|member| {
            format!(
                "{} ({}@{}){}",
                member.info.name,
                member.info.process,
                member.info.addr,
                if member.ghost {
                    " (ghost)"
                } else if member.learner {
                    " (learner)"
                } else {
                    ""
                }
            )
        })
        .collect();
    format!("view {}: elder {}; {}", view.number, view.elder().name, members.join(", "))
}

fn view_json(view: &View) -> Value {
    let members: Vec<Value> = view
        .members
        .iter()
        .map(|member| {
            json!({
                "process": hex(member.info.process),
                "name": member.info.name.as_str(),
                "addr": member.info.addr,
                "joined": member.joined.0.to_string(),
                "ghost": member.ghost,
                "learner": member.learner,
            })
        })
        .collect();
    json!({
        "number": view.number.0.to_string(),
        "lineage": view.lineage.to_string(),
        "elder": hex(view.elder().process),
        "members": members,
    })
}

/// The whole id, as all JSON has it.
fn hex(process: ProcessId) -> String {
    format!("{:032x}", process.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use elderlock::{Epoch, Metadata, ServiceName, Token};

    #[tokio::test]
    async fn each_event_fits_the_schema_of_the_events() {
        let member = Member::local().await.expect("it joins");
        let status = Box::new(member.status());
        let service = ServiceName::new("stock").expect("a good name");
        let (process, epoch) =
            (member.process(), Epoch(Token::from_i64(7).expect("it is positive")));
        let reason = || "no space".to_owned();
        let (boottime, raw) = (Duration::from_secs(1), Duration::from_millis(1500));
        let says = |text: &str| Metadata::new(text.as_bytes()).expect("it is short");
        let forced = MemberEvent::ForcedRevoke {
            service: service.clone(),
            name: None,
            token: epoch.0,
            by: process,
            operator: says("ann"),
            reason: says("it hangs"),
        };
        for event in [
            MemberEvent::ViewInstalled(status.view.clone().expect("it has joined")),
            MemberEvent::BecameElder,
            MemberEvent::BecameGrantor { service: service.clone(), epoch },
            MemberEvent::NoLongerGrantor { service, epoch },
            MemberEvent::Suspended,
            MemberEvent::Resumed,
            MemberEvent::Orphaned,
            MemberEvent::IdentityTaken,
            MemberEvent::Expelled,
            MemberEvent::Rejoined { process },
            MemberEvent::ClockDistrusted { boottime, raw },
            MemberEvent::ClockTrusted,
            MemberEvent::WallClockJumped { millis: -250 },
            MemberEvent::WrongClock { ahead: boottime },
            MemberEvent::VoteNotStored { reason: reason() },
            MemberEvent::VoteStored,
            forced,
            MemberEvent::Left,
            MemberEvent::Failed { reason: reason() },
            MemberEvent::Missed { count: 3, status },
        ] {
            let (name, _, detail) = tell(&event);
            schemas::check("event.json", &event_json(name, detail));
        }
        let millis = MemberEvent::WallClockJumped { millis: -250 };
        assert_eq!(tell(&millis).2, json!({ "seconds": -0.25 }));
        let keys = json!({ "keys": ["old", "new"], "closed": 0 });
        schemas::check("event.json", &event_json("keyring_replaced", keys));
        schemas::check("event.json", &event_json("keyring_kept", json!({ "reason": "no key" })));
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags =
            Settings { bind: Some("127.0.0.1:1".to_owned()), found: true, ..Settings::default() };
        let file: Settings = toml::from_str(
            "bind = '127.0.0.1:2'\ncluster = 'shop'\nseeds = ['a:1', 'b:2']\n\
             timing = 'fast'\njoin_seconds = 5\nexpect = 3",
        )
        .unwrap();
        let both = flags.or(file);
        assert_eq!(both.bind.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(both.cluster.as_deref(), Some("shop"));
        assert_eq!(both.seeds, ["a:1", "b:2"]);
        assert_eq!(
            (both.timing, both.found, both.join_seconds),
            (Some(Preset::Fast), true, Some(5))
        );
        assert_eq!(both.clone().or(Settings { expect: Some(2), ..both.clone() }).expect, Some(3));
    }

    #[test]
    fn a_fault_has_an_exit_code_of_its_own_and_says_its_reason() {
        let failed = MemberEvent::Failed { reason: "no randomness".to_owned() };
        assert_eq!(
            tell(&failed),
            ("failed", "failed: no randomness".to_owned(), json!({ "reason": "no randomness" }))
        );
        let behind = MemberEvent::WrongClock { ahead: Duration::from_secs(7200) };
        assert_eq!(tell(&behind).0, "wrong_clock");
        assert!(is_fault(&failed) && is_fault(&behind));
        let full = MemberEvent::VoteNotStored { reason: "no space".to_owned() };
        assert!(
            ![full, MemberEvent::VoteStored, MemberEvent::Left, MemberEvent::Expelled]
                .iter()
                .any(is_fault)
        );
    }

    #[tokio::test]
    async fn the_name_of_a_service_is_printed_escaped() {
        let member = Member::local().await.expect("it joins");
        let mut events = member.events();
        let service = member.lock_service("stock\u{1b}[2J\n").await.expect("a good name");
        drop(service.lock("a").await.expect("it is free"));
        loop {
            let event = events.next().await.expect("it becomes the grantor");
            if let (name @ "became_grantor", text, _) = tell(&event) {
                assert!(
                    text.starts_with("became grantor of stock\\u{1b}[2J\\n in"),
                    "{name}: {text}"
                );
                return;
            }
        }
    }

    #[test]
    fn a_misspelt_setting_is_an_error() {
        assert!(toml::from_str::<Settings>("bnid = '127.0.0.1:2'").is_err());
    }
}
