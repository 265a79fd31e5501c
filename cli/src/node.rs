//! `elderlock node`: one member, run by hand.

use crate::control_escaper::to_json;
use crate::secret::{Secret, SecretFile, SecretVariables};
use crate::switch::Switch;
use crate::{CommandResult, cli_words, clock, keys, signals};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum, ValueHint};
use elderlock::http::HttpView;
use elderlock::telemetry::SECONDS_BUCKETS;
use elderlock::{Keyring, LeaveError, Member, MemberBuilder, MemberEvent, ProcessId, Timing, View};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use serde_json::ser::CompactFormatter;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use tracing_subscriber::filter::LevelFilter;

/// The settings of one run. Flags win over environment variables, and variables win over the file.
/// This rule also holds for a key and a token, whether a variable holds them or names their file.
/// Both of these variables together are an error.
///
/// The exit code is 0 after a leave, and 1 if no other member confirmed the leave. It is 2 if the
/// member could not start, and 3 if a fault ended it. The reason is on standard error.
#[derive(Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings: bind, advertise, name, seeds = [..], cluster, timing,
    /// found, expect, insecure, key_file, trust_refused, serve_sessions, allow_forced_revokes,
    /// data_dir, join_seconds. Those of HTTP are http, http_hosts = [..], http_insecure,
    /// http_token_file.
    #[arg(long, env = "ELDERLOCK_CONFIG")]
    config: Option<PathBuf>,
    /// Print one JSON object per event.
    #[arg(long, env = "ELDERLOCK_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
    /// The log on standard error has lines of this level and above: off, error, warn, info, debug.
    #[arg(long, env = "ELDERLOCK_LOG", value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
}

/// The settings of a member, from any source.
#[derive(Args, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[command(mut_args = Switch::alone)]
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
    #[arg(long, env = "ELDERLOCK_FOUND")]
    found: Option<Switch>,
    /// The least number of members with which this one founds the cluster, itself included (1
    /// unless given). Give more than half of all replicas, the same number for each.
    #[arg(long, env = "ELDERLOCK_EXPECT", value_name = "MEMBERS")]
    expect: Option<usize>,
    /// Listen outside the loopback without a key.
    #[arg(long, env = "ELDERLOCK_INSECURE")]
    insecure: Option<Switch>,
    /// File with the cluster keys, one per line: the member encrypts with the first key and accepts
    /// all of them. A file that others than its owner and group can read is refused. On SIGHUP the
    /// member reads the file again. Without this flag the variable ELDERLOCK_KEY may hold the keys
    /// themselves, separated by commas. It wins over a file that the TOML file names.
    #[arg(long, env = "ELDERLOCK_KEY_FILE", value_hint = ValueHint::FilePath)]
    key_file: Option<SecretFile>,
    /// Treat a member that refuses the connections of two others as dead. Use it only
    /// where no firewall refuses connections to a living member.
    #[arg(long, env = "ELDERLOCK_TRUST_REFUSED")]
    trust_refused: Option<Switch>,
    /// Hold locks for programs that are not members, such as `elderlock lock` starts. When this
    /// process is killed, others wait for the end of its lease before they go on.
    #[arg(long, env = "ELDERLOCK_SERVE_SESSIONS")]
    serve_sessions: Option<Switch>,
    /// Let `elderlock revoke --force` take away locks of this member that were not asked for as
    /// revocable.
    #[arg(long, env = "ELDERLOCK_ALLOW_FORCED_REVOKES")]
    allow_forced_revokes: Option<Switch>,
    /// Directory that keeps this member's vote, so that the cluster goes on after all members
    /// restart.
    #[arg(long, env = "ELDERLOCK_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Declare all members that do not answer dead for ever, and found a new lineage without a
    /// quorum. The start fails if a seed, or a member that the data directory knows, answers that
    /// its cluster has a quorum.
    #[arg(long)]
    #[serde(skip)]
    force: bool,
    /// Give up joining after this many seconds (30 unless given).
    #[arg(long, env = "ELDERLOCK_JOIN_SECONDS")]
    join_seconds: Option<u64>,
    /// Serve metrics, probes, the status and a page over HTTP at this address, such as
    /// 127.0.0.1:7480, from the start: before the member has joined.
    #[arg(long, env = "ELDERLOCK_HTTP", value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// With --http: a name that the Host header of requests may have, beside addresses and
    /// localhost; may be given several times, or with commas.
    #[arg(long = "http-host", env = "ELDERLOCK_HTTP_HOSTS", value_delimiter = ',')]
    http_hosts: Vec<String>,
    /// With --http: allow an address outside the loopback without a token.
    #[arg(long, env = "ELDERLOCK_HTTP_INSECURE")]
    http_insecure: Option<Switch>,
    /// With --http: file with the token that requests need. It has to be root's, or that of the
    /// user of this process. A file that others than its owner and group can read is refused.
    /// Without this flag the variable ELDERLOCK_HTTP_TOKEN may hold the token itself. It wins over
    /// a file that the TOML file names.
    #[arg(long, env = "ELDERLOCK_HTTP_TOKEN_FILE", value_hint = ValueHint::FilePath)]
    http_token_file: Option<SecretFile>,
}

/// Names of the timing presets.
#[derive(ValueEnum, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Preset {
    /// A single network: leases of 5 s and 2 s.
    Lan,
    /// Far apart: leases of 15 s and 5 s.
    Wan,
    /// A single rack or host: leases of 2.5 s and 1 s.
    Fast,
}

/// The variable of the token for HTTP requests. There is no flag for it, because other users see
/// flags.
pub(crate) const HTTP_TOKEN: &str = "ELDERLOCK_HTTP_TOKEN";

/// The variables of the token.
const HTTP_TOKENS: SecretVariables =
    SecretVariables { file: "ELDERLOCK_HTTP_TOKEN_FILE", text: HTTP_TOKEN };

/// The exit code when no other member confirmed the leave.
const UNHEARD: u8 = 1;

/// The exit code when a fault ended the member.
const FAILED: u8 = 3;

/// The listening address when none is given.
const DEFAULT_BIND: &str = "127.0.0.1:7400";

pub(crate) async fn run(args: NodeArgs) -> CommandResult {
    // The signals are watched first, so that a SIGTERM during a long join counts.
    let (mut terminate, mut interrupt) = (signals::terminate()?, signals::interrupt()?);
    let settings = match &args.config {
        Some(path) => args.settings.or(read(path)?),
        None => args.settings,
    };
    tracing_subscriber::fmt()
        .with_max_level(args.log)
        .with_writer(std::io::stderr)
        .with_target(false)
        // A log without a reader must not end the tasks that write it.
        .log_internal_errors(false)
        .init();
    let keys = keys::source(settings.key_file.as_ref())?;
    let key_file = match &keys {
        Some(Secret::File(path)) => Some(path.as_path()),
        Some(Secret::Text(_)) | None => None,
    };
    // Without a key file SIGHUP ends the process, as by default.
    let mut hangup = key_file.is_some().then(signals::hangup).transpose()?;
    // The exporter comes before the member; otherwise the member's many measurements would be lost.
    let http = HttpServer::of(&settings)?;
    let exporter = http.is_some().then(export_metrics).transpose()?;
    let say = |name: &str, text: String, detail: Value| {
        if args.json {
            let line = event_json(name, detail);
            // Any value can be written.
            println!("{}", to_json(&line, CompactFormatter).unwrap_or_default());
        } else {
            println!("{} {text}", clock::rfc3339(SystemTime::now()));
        }
    };
    let tell = |event: &MemberEvent| {
        let (name, detail) = named(event);
        say(name, event.to_string(), detail);
    };
    let mut builder = settings.builder(keys.as_ref())?;
    // Probes need answers while the member joins, and a wrong address is an error of the start.
    if let Some(http) = http {
        let mut view = builder.http_view();
        if let Some(exporter) = exporter {
            view = view.exporter(move || exporter.render());
        }
        let addr = http.serve(view).await?;
        say("http", format!("serves http://{addr}/"), json!({ "addr": addr }));
    }
    let member = tokio::select! {
        joined = builder.join() => joined.map_err(|error| cli_words::join_error(&error))?,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
    };
    let mut events = member.events();
    let (name, process, addr) = (member.name(), member.process(), member.addr());
    say(
        "joined",
        format!("joined as {name}, process {process} at {addr}"),
        json!({ "name": name.as_str(), "process": hex(process), "addr": addr }),
    );
    if let Some(view) = member.status().view {
        tell(&MemberEvent::ViewInstalled(view));
    }
    loop {
        tokio::select! {
            event = events.next() => {
                // An operator made the member leave. The outcome is printed below.
                let Some(event) = event.filter(|event| *event != MemberEvent::Left) else { break };
                if is_fault(&event) {
                    eprintln!("elderlock: {event}");
                }
                tell(&event);
                if is_fault(&event) {
                    return Ok(ExitCode::from(FAILED));
                }
            }
            Some(path) = again(&mut hangup, key_file) => match rekey(&member, path) {
                Ok((keys, closed)) => {
                    let path = path.display();
                    let key = &keys[0];
                    let text = format!(
                        "read {path}; now sealing with key {key}; {closed} connections closed"
                    );
                    say("keyring_replaced", text, json!({ "keys": keys, "closed": closed }));
                }
                Err(error) => {
                    let reason = error.to_string();
                    let text = format!("keys unchanged: {error}");
                    say("keyring_kept", text, json!({ "reason": reason }));
                }
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // After an order to leave, this call waits until the report on it has left the network.
    if let Err(error) = member.leave().await {
        eprintln!("elderlock: {error}");
        return Ok(ExitCode::from(if error == LeaveError::Unheard { UNHEARD } else { FAILED }));
    }
    tell(&MemberEvent::Left);
    Ok(ExitCode::SUCCESS)
}

/// Starts the exporter. The buckets are also emptied between two readings of a collector.
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

/// The settings with which the member is served over HTTP.
struct HttpServer {
    addr: SocketAddr,
    hosts: Vec<String>,
    insecure: bool,
    token: Option<String>,
}

impl HttpServer {
    /// `None` if the settings ask for no HTTP.
    fn of(settings: &Settings) -> Result<Option<HttpServer>, String> {
        let Settings { http, http_hosts, http_insecure, http_token_file, .. } = settings;
        let is_insecure = Switch::is_on(*http_insecure);
        let Some(addr) = *http else {
            let unused = [
                ("--http-host", !http_hosts.is_empty()),
                ("--http-insecure", is_insecure),
                ("--http-token-file", http_token_file.is_some()),
            ];
            return match unused.into_iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => Err(format!("{flag} needs --http: give both or none")),
                None => Ok(None),
            };
        };
        let token = http_token(http_token_file.as_ref())?;
        Ok(Some(HttpServer { addr, hosts: http_hosts.clone(), insecure: is_insecure, token }))
    }

    /// Serves in a task until the process ends. Returns the address.
    async fn serve(self, mut view: HttpView) -> Result<SocketAddr, Box<dyn std::error::Error>> {
        if let Some(token) = self.token {
            view = view.token(token);
        }
        for host in &self.hosts {
            view = view.host(host);
        }
        if self.insecure {
            view = view.insecure();
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut task = tokio::spawn(view.serve(self.addr, |addr| {
            // The caller waits for the address.
            let _ = tell.send(addr);
        }));
        tokio::select! {
            biased;
            Ok(addr) = told => Ok(addr),
            ended = &mut task => {
                let error = ended?.err().map_or("it ended".to_owned(), |error| error.to_string());
                Err(format!("--http: {}", cli_words::flags(error)).into())
            }
        }
    }
}

/// The token of the strongest source. `None` if no source gives one.
fn http_token(file: Option<&SecretFile>) -> Result<Option<String>, String> {
    let path = match HTTP_TOKENS.find(file)? {
        Some(Secret::File(path)) => path,
        Some(Secret::Text(token)) => return Ok(Some(token)),
        None => return Ok(None),
    };
    let text = elderlock::read_secret_file(&path);
    let text = text.map_err(|error| format!("HTTP token file {error}"))?;
    match text.trim() {
        "" => Err(format!("HTTP token file {}: it has no token", path.display())),
        token => Ok(Some(token.to_owned())),
    }
}

/// Waits for a SIGHUP and returns the key file. Never ready without a key file.
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

/// Returns whether a fault ended the member. This process ends too then, with an exit code of its
/// own.
fn is_fault(event: &MemberEvent) -> bool {
    matches!(event, MemberEvent::Failed { .. } | MemberEvent::WrongClock { .. })
}

impl Settings {
    /// Returns these settings, completed by `others`.
    fn or(self, others: Settings) -> Settings {
        Settings {
            bind: self.bind.or(others.bind),
            advertise: self.advertise.or(others.advertise),
            name: self.name.or(others.name),
            seeds: if self.seeds.is_empty() { others.seeds } else { self.seeds },
            cluster: self.cluster.or(others.cluster),
            timing: self.timing.or(others.timing),
            found: self.found.or(others.found),
            expect: self.expect.or(others.expect),
            insecure: self.insecure.or(others.insecure),
            key_file: self.key_file.or(others.key_file),
            trust_refused: self.trust_refused.or(others.trust_refused),
            serve_sessions: self.serve_sessions.or(others.serve_sessions),
            allow_forced_revokes: self.allow_forced_revokes.or(others.allow_forced_revokes),
            data_dir: self.data_dir.or(others.data_dir),
            force: self.force,
            join_seconds: self.join_seconds.or(others.join_seconds),
            http: self.http.or(others.http),
            http_hosts: if self.http_hosts.is_empty() {
                others.http_hosts
            } else {
                self.http_hosts
            },
            http_insecure: self.http_insecure.or(others.http_insecure),
            http_token_file: self.http_token_file.or(others.http_token_file),
        }
    }

    fn builder(self, keys: Option<&Secret>) -> Result<MemberBuilder, Box<dyn std::error::Error>> {
        let ring = keys.map(keys::read).transpose()?;
        let is_insecure = Switch::is_on(self.insecure);
        keys::check_insecure(is_insecure, ring.as_ref())?;
        let timing = match self.timing.unwrap_or(Preset::Lan) {
            Preset::Lan => Timing::lan(),
            Preset::Wan => Timing::wan(),
            Preset::Fast => Timing::fast(),
        };
        let mut builder = Member::builder(self.cluster.as_deref().unwrap_or("elderlock"))
            .bind(self.bind.as_deref().unwrap_or(DEFAULT_BIND))
            .seeds(self.seeds)
            .timing(timing)
            .trust_refused(Switch::is_on(self.trust_refused))
            .serve_sessions(Switch::is_on(self.serve_sessions))
            .forced_revokes(Switch::is_on(self.allow_forced_revokes));
        if let Some(advertise) = self.advertise {
            builder = builder.advertise(advertise);
        }
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if Switch::is_on(self.found) {
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
        if is_insecure {
            builder = builder.insecure();
        }
        if let Some(seconds) = self.join_seconds {
            builder = builder.join_limit(Duration::from_secs(seconds));
        }
        if let Some(ring) = ring {
            builder = builder.keyring(ring);
        }
        Ok(builder)
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

/// The name and JSON detail of an event. The text line comes from `Display`.
fn named(event: &MemberEvent) -> (&'static str, Value) {
    match event {
        MemberEvent::ViewInstalled(view) => ("view_installed", view_json(view)),
        MemberEvent::BecameElder => ("became_elder", Value::Null),
        MemberEvent::BecameGrantor { service, epoch } => {
            let epoch = epoch.0.to_string();
            ("became_grantor", json!({ "service": service.as_str(), "epoch": epoch }))
        }
        MemberEvent::NoLongerGrantor { service, epoch } => {
            let epoch = epoch.0.to_string();
            ("no_longer_grantor", json!({ "service": service.as_str(), "epoch": epoch }))
        }
        MemberEvent::FollowsLoad { service } => {
            ("follows_load", json!({ "service": service.as_str() }))
        }
        MemberEvent::Suspended => ("suspended", Value::Null),
        MemberEvent::Orphaned => ("orphaned", Value::Null),
        MemberEvent::Resumed => ("resumed", Value::Null),
        MemberEvent::IdentityTaken => ("identity_taken", Value::Null),
        MemberEvent::Expelled => ("expelled", Value::Null),
        MemberEvent::Rejoined { process } => ("rejoined", json!({ "process": hex(*process) })),
        MemberEvent::ClockDistrusted { boottime, raw } => (
            "clock_distrusted",
            json!({ "boottime": boottime.as_secs_f64(), "raw": raw.as_secs_f64() }),
        ),
        MemberEvent::ClockTrusted => ("clock_trusted", Value::Null),
        MemberEvent::WallClockJumped { millis } => {
            ("wall_clock_jumped", json!({ "seconds": *millis as f64 / 1e3 }))
        }
        MemberEvent::WrongClock { ahead } => {
            ("wrong_clock", json!({ "ahead": ahead.as_secs_f64() }))
        }
        MemberEvent::VoteNotStored { reason } => ("vote_not_stored", json!({ "reason": reason })),
        MemberEvent::ForcedRevoke { service, name, token, by, operator, reason } => {
            let what = name.as_ref().map(ToString::to_string);
            let text = |metadata: &elderlock::Metadata| {
                String::from_utf8_lossy(metadata.as_bytes()).into_owned()
            };
            let detail = json!({
                "service": service.as_str(), "name": what, "token": token.to_string(),
                "by": hex(*by), "operator": text(operator), "reason": text(reason),
            });
            ("forced_revoke", detail)
        }
        MemberEvent::VoteStored => ("vote_stored", Value::Null),
        MemberEvent::Failed { reason } => ("failed", json!({ "reason": reason })),
        MemberEvent::Left => ("left", Value::Null),
        MemberEvent::Missed { count, .. } => ("missed", json!({ "count": count })),
        // An event of a later version.
        _ => ("other", Value::String(event.to_string())),
    }
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

/// The whole process id, in the form of all JSON.
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
            MemberEvent::FollowsLoad { service: service.clone() },
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
            let (name, detail) = named(&event);
            schemas::check("event.json", &event_json(name, detail));
        }
        let millis = MemberEvent::WallClockJumped { millis: -250 };
        assert_eq!(named(&millis).1, json!({ "seconds": -0.25 }));
        let keys = json!({ "keys": ["old", "new"], "closed": 0 });
        schemas::check("event.json", &event_json("keyring_replaced", keys));
        schemas::check("event.json", &event_json("keyring_kept", json!({ "reason": "no key" })));
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = Settings {
            bind: Some("127.0.0.1:1".to_owned()),
            found: Some(true.into()),
            ..Settings::default()
        };
        let file: Settings = toml::from_str(
            "bind = '127.0.0.1:2'\ncluster = 'shop'\nseeds = ['a:1', 'b:2']\n\
             timing = 'fast'\njoin_seconds = 5\nexpect = 3\n\
             http = '127.0.0.1:3'\nhttp_hosts = ['a']\nhttp_token_file = 'token'",
        )
        .unwrap();
        let both = flags.or(file);
        assert_eq!(both.bind.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(both.cluster.as_deref(), Some("shop"));
        assert_eq!(both.seeds, ["a:1", "b:2"]);
        assert_eq!(
            (both.timing, both.found, both.join_seconds),
            (Some(Preset::Fast), Some(true.into()), Some(5))
        );
        let http = (both.http, &both.http_hosts[..], both.http_token_file.clone());
        let given = "127.0.0.1:3".parse().ok();
        let token = SecretFile::Config("token".into());
        assert_eq!(http, (given, &["a".to_owned()][..], Some(token)));
        let flag = Settings { http: "127.0.0.1:4".parse().ok(), ..Settings::default() };
        assert_eq!(flag.or(both.clone()).http, "127.0.0.1:4".parse().ok());
        assert_eq!(both.clone().or(Settings { expect: Some(2), ..both.clone() }).expect, Some(3));
        assert_eq!(Settings::default().or(both.clone()), both);
        assert_eq!(both.clone().or(Settings::default()), both);
    }

    #[test]
    fn a_switch_that_is_off_wins_over_the_file() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            node: NodeArgs,
        }
        const SWITCHES: [&str; 6] = [
            "found",
            "insecure",
            "trust_refused",
            "serve_sessions",
            "allow_forced_revokes",
            "http_insecure",
        ];
        let values = |of: &Settings| {
            let rest = (of.serve_sessions, of.allow_forced_revokes, of.http_insecure);
            [of.found, of.insecure, of.trust_refused, rest.0, rest.1, rest.2]
        };
        let all = |value: &str| {
            let flags = SWITCHES.map(|name| format!("--{}{value}", name.replace('_', "-")));
            let line = ["node".to_owned()].into_iter().chain(flags);
            let line: Line = clap::Parser::try_parse_from(line).expect("they are flags");
            line.node.settings
        };
        let file: Settings =
            toml::from_str(&SWITCHES.map(|name| format!("{name} = true\n")).concat())
                .expect("it is read");
        let [on, off] = [true, false].map(|is_on| [Some(Switch::from(is_on)); SWITCHES.len()]);
        assert_eq!(values(&Settings::default().or(file.clone())), on);
        assert_eq!(values(&all("=false").or(file)), off);
        assert_eq!(values(&all("")), on);
    }

    #[test]
    fn the_configuration_file_of_the_guide_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/operations.md");
        let text = std::fs::read_to_string(path).expect("it is there");
        let (_, block) = text.split_once("```toml\n").expect("it has one");
        let settings: Settings =
            toml::from_str(block.split("```").next().expect("a text")).expect("it is read");
        let http = HttpServer::of(&Settings { http_token_file: None, ..settings.clone() });
        let http = http.expect("it has no token").expect("it serves");
        assert_eq!(
            (http.addr.port(), &http.hosts[..]),
            (7480, &["monitor.example".to_owned()][..])
        );
        assert!(settings.http_token_file.is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_token_file_that_another_user_may_read_or_that_has_no_token_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("elderlock-token-{}", std::process::id()));
        let read_as = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("it can be written");
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, rights).expect("it is ours");
            http_token(Some(&SecretFile::Flag(path.clone())))
        };
        let read = [("secret\n", 0o640), ("secret\n", 0o644), (" \n", 0o600)];
        let [group, all, empty] = read.map(|(text, mode)| read_as(text, mode));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(group, Ok(Some("secret".to_owned())));
        let path = path.display();
        let exposed = format!("HTTP token file {path} has mode 0644: other users may use it");
        assert!(all.as_ref().is_err_and(|error| error.starts_with(&exposed)), "{all:?}");
        assert_eq!(empty, Err(format!("HTTP token file {path}: it has no token")));
    }

    #[test]
    fn a_fault_has_an_exit_code_of_its_own_and_says_its_reason() {
        let failed = MemberEvent::Failed { reason: "no randomness".to_owned() };
        assert_eq!(
            (failed.to_string().as_str(), named(&failed)),
            ("failed: no randomness", ("failed", json!({ "reason": "no randomness" })))
        );
        let behind = MemberEvent::WrongClock { ahead: Duration::from_secs(7200) };
        assert_eq!(named(&behind).0, "wrong_clock");
        assert!(is_fault(&failed) && is_fault(&behind));
        let full = MemberEvent::VoteNotStored { reason: "no space".to_owned() };
        assert!(
            ![full, MemberEvent::VoteStored, MemberEvent::Left, MemberEvent::Expelled]
                .iter()
                .any(is_fault)
        );
    }

    #[test]
    fn a_misspelt_setting_is_an_error() {
        assert!(toml::from_str::<Settings>("bnid = '127.0.0.1:2'").is_err());
    }
}
