//! `elderlock status`: the state of the cluster, through any running member.

use crate::cluster_status::{self, ClusterStatus};
use crate::control_escaper::to_json;
use crate::holders::own_text;
use crate::secret::SecretFile;
use crate::{CommandResult, keys, members};
use clap::{Args, ValueHint};
use elderlock::{HolderInfo, Keyring, LockStatus, Mode, ProcessId, QueryError};
use elderlock::{Status, StatusReport, View, WaiterInfo};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// The interval of `--watch`.
const WATCH: Duration = Duration::from_secs(1);

/// The exit code of `--ready` for a member that is suspended or joining.
const NOT_READY: u8 = 1;

/// The advice about a process that is still joining.
pub(crate) const ASK_AGAIN: &str = ": ask again when it has joined";

/// A running member, and the key for questions to it.
#[derive(Args, Clone)]
pub(crate) struct MemberAddress {
    /// Address of a running member (host:port). Given several times, or with commas: the first of
    /// them that can be reached.
    #[arg(long, env = "ELDERLOCK_AT", value_delimiter = ',', required = true)]
    at: Vec<String>,
    /// Name of its cluster.
    #[arg(long, env = "ELDERLOCK_CLUSTER", default_value = "elderlock")]
    cluster: String,
    /// File with the cluster's key, if it has one. Without this flag the variable ELDERLOCK_KEY may
    /// hold the key itself.
    #[arg(long, env = "ELDERLOCK_KEY_FILE", value_hint = ValueHint::FilePath)]
    key_file: Option<SecretFile>,
}

/// The member to ask, and the form of the answer.
#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    address: MemberAddress,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// For probes: print one word. Exit codes: 0 if the member is healthy, 1 if it is suspended or
    /// joining, 2 if it was not reached.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    ready: bool,
    /// Ask every second and show the latest answer, until interrupted.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

impl MemberAddress {
    /// The address of another member of the cluster, with the same cluster name and key.
    pub(crate) fn at(&self, addr: SocketAddr) -> MemberAddress {
        MemberAddress { at: vec![addr.to_string()], ..self.clone() }
    }

    #[cfg(test)]
    pub(crate) fn of(addr: SocketAddr, cluster: &str) -> MemberAddress {
        MemberAddress { at: vec![addr.to_string()], cluster: cluster.to_owned(), key_file: None }
    }

    pub(crate) async fn ask(&self) -> Result<Status, Box<dyn std::error::Error>> {
        Ok(self.ask_first().await?.1)
    }

    /// The status, with the one address that has answered.
    pub(crate) async fn ask_first(
        &self,
    ) -> Result<(MemberAddress, Status), Box<dyn std::error::Error>> {
        let ring = keys::find(self.key_file.as_ref())?;
        let ask = |at| status_at(at, &self.cluster, ring.as_ref());
        let (at, status) = first_reached(&self.at, ask).await?;
        Ok((MemberAddress { at: vec![at.to_owned()], ..self.clone() }, status))
    }

    /// The status of another member, asked through the member at this address.
    pub(crate) async fn ask_of(
        &self,
        process: ProcessId,
    ) -> Result<Status, Box<dyn std::error::Error>> {
        let ring = keys::find(self.key_file.as_ref())?;
        let (ring, cluster) = (ring.as_ref(), self.cluster.as_str());
        let ask = |at| async move {
            let told = match ring {
                Some(ring) => elderlock::query_status_of_with(at, cluster, ring, process).await,
                None => elderlock::query_status_of(at, cluster, process).await,
            };
            told.map_err(AskError::Query)
        };
        Ok(first_reached(&self.at, ask).await?.1)
    }
}

/// The reason why a member of a list has not answered.
pub(crate) enum AskError {
    Query(QueryError),
    /// The member is joining; another member may know the answer.
    Joins,
}

impl From<QueryError> for AskError {
    fn from(error: QueryError) -> AskError {
        AskError::Query(error)
    }
}

/// The status of a member at this address.
async fn status_at(at: &str, cluster: &str, ring: Option<&Keyring>) -> Result<Status, AskError> {
    Ok(match ring {
        Some(ring) => elderlock::query_status_with(at, cluster, ring).await?,
        None => elderlock::query_status(at, cluster).await?,
    })
}

/// The view of the first member that can be reached and has one.
pub(crate) async fn first_view(
    addrs: &[String],
    cluster: &str,
    ring: Option<&Keyring>,
) -> Result<View, Box<dyn std::error::Error>> {
    let ask = |at| async move { status_at(at, cluster, ring).await?.view.ok_or(AskError::Joins) };
    Ok(first_reached(addrs, ask).await?.1)
}

/// Asks the members one after the other, until one of them can be reached and answers. Returns its
/// address and its answer.
pub(crate) async fn first_reached<'a, T, F>(
    addrs: &'a [String],
    ask: impl Fn(&'a str) -> F,
) -> Result<(&'a str, T), Box<dyn std::error::Error>>
where
    F: Future<Output = Result<T, AskError>>,
{
    let mut last = None;
    for (number, at) in addrs.iter().enumerate() {
        match ask(at).await {
            Ok(answer) => return Ok((at, answer)),
            Err(AskError::Query(error)) if !is_out_of_reach(&error) => return Err(error.into()),
            Err(error) => {
                if let (AskError::Joins, Some(next)) = (&error, addrs.get(number + 1)) {
                    eprintln!("elderlock: {}; trying {}", in_no_view(at), next.escape_debug());
                }
                last = Some((at, error));
            }
        }
    }
    Err(match last {
        None => "no address is given".into(),
        Some((_, AskError::Query(error))) => error.into(),
        Some((at, AskError::Joins)) => joins(at).into(),
    })
}

fn is_out_of_reach(error: &QueryError) -> bool {
    use QueryError::{Closed, TimedOut, Unreachable};
    // A forwarded port without a process behind it accepts a connection and closes it.
    matches!(error, Unreachable { .. } | TimedOut { .. } | Closed { .. })
}

/// The text that the process at this address is in no view.
pub(crate) fn in_no_view(at: &str) -> String {
    format!("the process at {} joins and is in no view yet", at.escape_debug())
}

/// The text that the process at this address is in no view, with advice.
pub(crate) fn joins(at: &str) -> String {
    in_no_view(at) + ASK_AGAIN
}

pub(crate) async fn run(args: StatusArgs) -> CommandResult {
    if args.watch {
        return watch(&args.address).await;
    }
    if args.ready {
        let status = args.address.ask().await?;
        let state = StatusReport::new(&status).state;
        println!("{state}");
        return Ok(match state {
            "healthy" => ExitCode::SUCCESS,
            _ => ExitCode::from(NOT_READY),
        });
    }
    let found = cluster_status::ask(&args.address).await?;
    if args.json {
        println!("{}", to_json(&StatusJson::new(&found), PrettyFormatter::new())?);
    } else {
        print!("{}", cluster_table(&found));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the latest answer in place of the one before, until the output is closed.
async fn watch(address: &MemberAddress) -> CommandResult {
    loop {
        let text = match cluster_status::ask(address).await {
            Ok(found) => cluster_table(&found),
            Err(error) => format!("{error}\n"),
        };
        // Go to the top left and clear the rest. Clearing the whole screen first would flicker.
        let screen = format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"));
        let mut out = std::io::stdout();
        let written = out.write_all(screen.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = written {
            let is_closed = error.kind() == std::io::ErrorKind::BrokenPipe;
            return if is_closed { Ok(ExitCode::SUCCESS) } else { Err(error.into()) };
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// The JSON of the command.
#[derive(Serialize)]
struct StatusJson {
    #[serde(flatten)]
    report: StatusReport,
    /// The process ids of members that did not answer. A service whose grantor is among them may be
    /// missing, or has no locks.
    not_reached: Vec<String>,
}

impl StatusJson {
    fn new(found: &ClusterStatus) -> StatusJson {
        let not_reached =
            found.not_reached.iter().map(|(info, _)| format!("{:032x}", info.process.0));
        let report = StatusReport::new(&found.status);
        StatusJson { report, not_reached: not_reached.collect() }
    }
}

/// The state of the cluster as text.
fn cluster_table(found: &ClusterStatus) -> String {
    let mut text = table(&found.status);
    for (info, why) in &found.not_reached {
        let why = why.escape_debug();
        text += &format!("missing  {} ({}) at {}: {why}\n", info.name, info.process, info.addr);
    }
    text
}

/// The status as text.
fn table(status: &Status) -> String {
    let mut text = format!(
        "member   {}, process {} at {}\n",
        status.me.name, status.me.process, status.me.addr
    );
    text += &format!(
        "lease    {}\n",
        if status.leased {
            "runs"
        } else {
            "does not run: no quorum heard, or the clock is not trusted"
        }
    );
    match &status.view {
        None => text += "view     none yet: seeking its cluster\n",
        Some(view) => {
            text += &format!(
                "view     {} of lineage {}, wire version {}, oldest first:\n",
                view.number, view.lineage, view.version
            );
            for line in members::lines(status).lines() {
                text += &format!("  {line}\n");
            }
        }
    }
    for service in &status.services {
        let grantor =
            service.grantor.map_or("unknown".to_owned(), |grantor| member(status, grantor));
        let epoch = service.epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}"));
        let name = service.service.as_str().escape_debug();
        text += &format!("service  {name}: grantor {grantor}{epoch}");
        text +=
            &format!(", held here {}, waiting here {}", service.held_here, service.waiting_here);
        if service.kept_here > 0 {
            text += &format!(
                ", kept here {}, of them in use {}",
                service.kept_here, service.kept_in_use_here
            );
        }
        text += "\n";
        for lock in &service.locks {
            match &lock.name {
                Some(name) => {
                    text += &format!(
                        "  {name}  {}, {} waiting\n",
                        held(status, lock),
                        lock.waiter_count
                    )
                }
                None => text += &suspension(status, lock),
            }
        }
        if service.more_locks > 0 {
            text += &format!("  and {} more\n", service.more_locks);
        }
    }
    if status.more_services > 0 {
        text += &format!("and {} more services\n", status.more_services);
    }
    text
}

/// A member by its name and process, or a process that is in no view here.
fn member(status: &Status, process: ProcessId) -> String {
    match status.member_name(process) {
        Some(name) => format!("{name} ({process})"),
        None => process.to_string(),
    }
}

/// The holders of a lock, of shares or of permits, and the number of members with its object open.
fn held(status: &Status, lock: &LockStatus) -> String {
    let mut text = match &lock.holder {
        None => "free".to_owned(),
        Some(HolderInfo { process, token, mode, revocable, .. }) => {
            let how = match mode {
                Mode::Share => "shared",
                Mode::Permits(_) => "permits held",
                _ => "held",
            };
            let by = member(status, *process);
            format!("{how} by {by} with token {token}{}", revocability(*revocable))
        }
    };
    if lock.holder_count > 1 {
        text += &format!(" and {} more", lock.holder_count - 1);
    }
    if lock.opener_count > 0 {
        text += &format!(", open at {}", lock.opener_count);
    }
    text
}

/// The suspension of a service, with its metadata if it has some.
fn suspension(status: &Status, lock: &LockStatus) -> String {
    let (process, why, state) = match (&lock.holder, &lock.next) {
        (Some(HolderInfo { process, metadata, token, revocable, .. }), _) => {
            (process, metadata, format!("suspended with token {token}{}", revocability(*revocable)))
        }
        (None, Some(WaiterInfo { process, metadata, .. })) => {
            (process, metadata, "not suspended yet".to_owned())
        }
        (None, None) => return String::new(),
    };
    let by = member(status, *process);
    format!("  {state} by {by}{}; {} waiting\n", own_text(why), lock.waiter_count)
}

/// The mark of a hold that other members may request back.
fn revocability(revocable: bool) -> &'static str {
    if revocable { ", revocable" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elderlock::Member;

    /// The status text about suspensions.
    fn told(member: &Member) -> Vec<String> {
        let text = table(&member.status());
        text.lines().filter(|line| line.contains("suspended")).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn shares_permits_and_objects_are_told_apart() {
        let member = Member::local().await.expect("it joins");
        let service = member.lock_service("stock").await.expect("a good name");
        let me = super::member(&member.status(), member.process());
        let readers = [
            service.share("a").await.expect("it is free"),
            service.share("a").await.expect("so it is"),
        ];
        let pool =
            service.open("b", 3_u32.to_le_bytes()).await.expect("an object can be opened at once");
        let permits = service.permits("b", 2).revocable().await.expect("there are three");
        let lines = |names: [&str; 2]| {
            let text = table(&member.status());
            // Each name is matched with the separators of columns. A member's name is a number in
            // hexadecimal, and may begin like a lock's.
            let row = |name: &str| {
                text.lines()
                    .find(|line| line.starts_with(&format!("  {name}  ")))
                    .map(str::to_owned)
            };
            names.map(|name| row(name).unwrap_or_default())
        };
        let first = readers[0].token();
        let expected = [
            format!("  a  shared by {me} with token {first} and 1 more, 0 waiting"),
            format!(
                "  b  permits held by {me} with token {}, revocable, open at 1, 0 waiting",
                permits.token()
            ),
        ];
        assert_eq!(lines(["a", "b"]), expected);
        drop((readers, pool, permits));
    }

    #[tokio::test]
    async fn a_name_with_control_characters_is_shown_escaped() {
        let member = Member::local().await.expect("it joins");
        let service = member.lock_service("stock\u{1b}[2J\n").await.expect("a good name");
        let guard = service.lock("a\u{1b}").await.expect("it is free");
        let text = table(&member.status());
        assert!(
            !text.contains('\u{1b}') && text.contains("service  stock\\u{1b}[2J\\n: grantor"),
            "{text}"
        );
        drop(guard);
    }

    #[tokio::test]
    async fn json_escapes_control_characters_of_a_name() {
        let member = Member::local().await.expect("it joins");
        let name = "stock\u{9b}2J\u{85}";
        let service = member.lock_service(name).await.expect("a good name");
        let guard = service.lock("a").await.expect("it is free");
        let text = to_json(&StatusReport::new(&member.status()), PrettyFormatter::new())
            .expect("it is JSON");
        assert!(text.contains(r"stock\u009b2J\u0085"), "{text}");
        assert!(text.chars().all(|letter| !letter.is_control() || letter == '\n'), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(value["services"][0]["service"], name);
        drop(guard);
    }

    #[tokio::test]
    async fn a_suspension_is_told_with_its_reason_whether_it_holds_or_waits() {
        let member = Member::local().await.expect("it joins");
        let service = member.lock_service("stock").await.expect("a good name");
        let me = super::member(&member.status(), member.process());
        let guard = service.lock("a").owner(1).await.expect("it is free");
        assert_eq!(told(&member), Vec::<String>::new());

        let first = service.suspend().owner(2).reason("stock-taking").start();
        assert_eq!(
            told(&member),
            [format!("  not suspended yet by {me} (stock-taking); 1 waiting")]
        );
        let second = service.suspend().owner(3).reason("two\nlines").start();
        let third = service.suspend().owner(4).start();
        assert_eq!(
            told(&member),
            [format!("  not suspended yet by {me} (stock-taking); 3 waiting")]
        );

        guard.release().await.expect("it is held");
        let first = first.await.expect("no lock is held");
        let token = first.token();
        assert_eq!(
            told(&member),
            [format!("  suspended with token {token} by {me} (stock-taking); 2 waiting")]
        );
        first.resume().await.expect("it is suspended");
        let second = second.await.expect("it is next");
        let token = second.token();
        assert_eq!(
            told(&member),
            [format!("  suspended with token {token} by {me} (two\\nlines); 1 waiting")]
        );
        second.resume().await.expect("it is suspended");
        let third = third.await.expect("it is next");
        let token = third.token();
        assert_eq!(told(&member), [format!("  suspended with token {token} by {me}; 0 waiting")]);
        third.resume().await.expect("it is suspended");
        assert_eq!(told(&member), Vec::<String>::new());
    }
}
