//! `elderlock lock`: runs a command while a lock is held for it, through a running member.

use crate::duration::duration;
use crate::orders::OrderTarget;
use crate::{CommandResult, caller, signals};
use clap::Args;
use elderlock::{
    InvalidName, LockName, Metadata, ServiceName, SessionEnd, SessionGuard, SessionRequest,
    SessionStop,
};
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// Exit codes of sysexits.h: a failure that may pass, and a fault of the remote end.
const NOT_GRANTED: u8 = 75;
const LOST: u8 = 76;
/// The variables of the command.
pub(crate) const TOKEN: &str = "ELDERLOCK_TOKEN";
pub(crate) const LINEAGE: &str = "ELDERLOCK_LINEAGE";
pub(crate) const OWNER: &str = "ELDERLOCK_OWNER";
/// The longest text that this command makes, in bytes.
const LONGEST_TEXT: usize = 512;
/// A request has 4,096 bytes. The names of service and cluster need the rest.
const REQUEST_ROOM: usize = 3584;
/// The interval at which the remaining time of the lock is checked.
const LOOK: Duration = Duration::from_millis(20);
/// The most by which the end of a lease, as the member tells it, lies before the end by this clock.
const LEASE_SLACK: Duration = Duration::from_millis(100);

/// A lock, and the command that needs it.
#[derive(Args)]
pub(crate) struct LockArgs {
    /// Name of the lock.
    name: String,
    /// Name of its lock service.
    #[arg(long, default_value = "default")]
    service: String,
    /// How long to wait for the lock: 500ms, 5s, 2m; 0s tries once. Without a limit unless given.
    #[arg(long, value_parser = duration)]
    wait: Option<Duration>,
    /// How long the command may have the lock. Without a limit unless given. The command gets
    /// SIGTERM before that end, by the time of `--grace`, or by a third of this time if it is less.
    #[arg(long, value_parser = duration)]
    lease: Option<Duration>,
    /// Take a share of the lock, beside which other shares may stand.
    #[arg(long)]
    shared: bool,
    /// Text for `elderlock why` and `held`: the purpose of the lock. Unless given: the user, the
    /// host, the number of this process, and the program of the command without its arguments.
    #[arg(long)]
    metadata: Option<String>,
    /// How long before the end of a lock that is not confirmed any more, or after its loss, the
    /// command has to end by itself. It gets SIGTERM, and after this time SIGKILL.
    #[arg(long, default_value = "1s", value_parser = duration)]
    grace: Duration,
    #[command(flatten)]
    target: OrderTarget,
    /// The command, with its arguments.
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// The hidden command whose process becomes the command of [`LockArgs`].
#[derive(Args)]
pub(crate) struct ExecArgs {
    /// The process number of `elderlock lock`.
    parent: u32,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the command while the lock is held. Its exit code is the command's. The exit code is 75 if
/// the lock was not granted, and 76 if it was lost.
pub(crate) async fn lock(args: LockArgs) -> CommandResult {
    let owner = owner(std::env::var_os(OWNER))?;
    let guard = match args.target.hold(request(&args)?.owner(owner)).await? {
        Ok(guard) => guard,
        Err(reason) => {
            eprintln!("elderlock: {}", reason.escape_debug());
            return Ok(ExitCode::from(NOT_GRANTED));
        }
    };
    // A signal to this process is passed on from the start of the command on.
    let signals = (signals::terminate()?, signals::interrupt()?, signals::hangup()?);
    let mut child = match start(&args.command, &guard, owner) {
        Ok(child) => child,
        Err(error) => {
            let _ = guard.release().await;
            return Err(error.into());
        }
    };
    let (status, end) = supervise(&mut child, &guard, (args.grace, args.lease), signals).await?;
    let was_held = !guard.left().is_zero();
    match end {
        // The lock was lost and the command stopped; ignore its exit code.
        Some((end, cause)) => {
            guard.stop(cause).await;
            eprintln!("elderlock: lost: {}", end.escape_debug());
            Ok(ExitCode::from(LOST))
        }
        None => match guard.release().await {
            Ok(()) => Ok(code(status)),
            Err(end) if was_held => {
                eprintln!("elderlock: not confirmed: {}", end.to_string().escape_debug());
                Ok(code(status))
            }
            Err(end) => {
                eprintln!("elderlock: lost: {}", end.to_string().escape_debug());
                Ok(ExitCode::from(LOST))
            }
        },
    }
}

fn request(args: &LockArgs) -> Result<SessionRequest, InvalidName> {
    let service = ServiceName::new(&args.service)?;
    let name = LockName::new(args.name.as_bytes())?;
    let metadata = args.metadata.clone().unwrap_or_else(|| own_metadata(args));
    let metadata = Metadata::new(metadata.as_bytes())?;
    let mut request = SessionRequest::new(service, name).metadata(metadata);
    if args.shared {
        request = request.shared();
    }
    if let Some(wait) = args.wait {
        request = request.wait(wait);
    }
    if let Some(lease) = args.lease {
        request = request.lease(lease);
    }
    Ok(request)
}

/// The owner of the lock. It is the owner of an enclosing command, which keeps its locks while this
/// command waits. Without one, it is a new owner.
fn owner(around: Option<OsString>) -> Result<u64, String> {
    let Some(text) = around else {
        let random = SysRng.try_next_u64();
        return random.map_err(|error| format!("no random number for an owner: {error}"));
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        format!(
            "{OWNER} is {text:?}, and has to be the number that `elderlock lock` gives to its \
             command. Unset it"
        )
    })
}

/// The metadata of a holder that gives none: user, host, process and program. The arguments of the
/// program may be secrets, and all members can read the text. On the host, the process number leads
/// to the arguments.
fn own_metadata(args: &LockArgs) -> String {
    let (user, host, pid) = (caller::user(), caller::host(), std::process::id());
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let mut text = format!("{user}@{host}, pid {pid}: {program}");
    let room = LONGEST_TEXT.min(REQUEST_ROOM.saturating_sub(args.name.len()));
    while text.len() > room {
        text.pop();
    }
    text
}

/// Starts the command, with the token in its environment, and without the key. On Linux the system
/// kills the command if this process is killed.
fn start(command: &[OsString], guard: &SessionGuard, owner: u64) -> std::io::Result<Child> {
    let mut child = if cfg!(target_os = "linux") {
        // The program's path is useless if the file was replaced meanwhile.
        let mut child = Command::new("/proc/self/exe");
        child.args(["exec", &std::process::id().to_string(), "--"]).args(command);
        child
    } else {
        let mut child = Command::new(&command[0]);
        child.args(&command[1..]);
        child
    };
    child
        .env(TOKEN, guard.token().as_i64().to_string())
        .env(LINEAGE, guard.lineage().to_string())
        .env(OWNER, owner.to_string())
        // Only this process needs the cluster's key.
        .env_remove(crate::keys::VARIABLE)
        .kill_on_drop(true)
        .spawn()
}

/// The reason why a command was stopped, and the cause as the member is told it.
type Stop = (String, SessionStop);

/// Waits for the end of the command, and ends the command before another member may have the lock.
/// Returns the reason if the lock ended first.
async fn supervise(
    child: &mut Child,
    guard: &SessionGuard,
    (grace, lease): (Duration, Option<Duration>),
    mut signals: (signals::Terminate, signals::Interrupt, signals::Hangup),
) -> std::io::Result<(ExitStatus, Option<Stop>)> {
    let granted = Instant::now();
    let grace = grace.min(guard.left() / 3);
    let mut look = tokio::time::interval(LOOK);
    let mut end = None;
    let mut kill_at = None;
    loop {
        let over = tokio::select! {
            status = child.wait() => return Ok((status?, end)),
            over = guard.ended(), if end.is_none() => Some((over.to_string(), match over {
                SessionEnd::MemberLeaves => SessionStop::MemberLeaves,
                _ => SessionStop::Unconfirmed,
            })),
            _ = look.tick(), if end.is_none() => (guard.left() <= grace).then(|| {
                let until = granted.elapsed() + guard.left() + LEASE_SLACK;
                match lease.filter(|lease| until >= *lease) {
                    Some(lease) => {
                        let text = format!("its lease of {} s is over", lease.as_secs_f64());
                        (text, SessionStop::LeaseEnds)
                    }
                    None => {
                        let text = SessionEnd::Unconfirmed("no answer".into()).to_string();
                        (text, SessionStop::Unconfirmed)
                    }
                }
            }),
            () = tokio::time::sleep_until(kill_at.unwrap_or_else(Instant::now)),
                if kill_at.is_some() =>
            {
                kill_at = None;
                child.start_kill()?;
                None
            }
            // The command decides what a signal means.
            _ = signals.0.recv() => { pass_on(child, PassedSignal::Terminate); None }
            _ = signals.1.recv() => { pass_on(child, PassedSignal::Interrupt); None }
            _ = signals.2.recv() => { pass_on(child, PassedSignal::Hangup); None }
        };
        if let Some(over) = over {
            // The lock is surely held while time is left.
            let left = guard.left();
            let until = if left.is_zero() { grace } else { left };
            kill_at = Some(Instant::now() + until);
            pass_on(child, PassedSignal::Terminate);
            end = Some(over);
        }
    }
}

#[derive(Clone, Copy)]
enum PassedSignal {
    Terminate,
    Interrupt,
    Hangup,
}

#[cfg(unix)]
fn pass_on(child: &Child, signal: PassedSignal) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match signal {
        PassedSignal::Terminate => Signal::TERM,
        PassedSignal::Interrupt => Signal::INT,
        PassedSignal::Hangup => Signal::HUP,
    };
    // The call fails if the child has ended meanwhile.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid as i32)) {
        let _ = kill_process(pid, signal);
    }
}

/// On Windows the console signals the child itself.
#[cfg(not(unix))]
fn pass_on(_: &Child, _: PassedSignal) {}

/// The exit code of a command, as a shell reports it.
fn code(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let killed = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    #[cfg(not(unix))]
    let killed = None;
    let code = status.code().or(killed).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

/// Becomes the command, which the system kills with its parent.
#[cfg(target_os = "linux")]
pub(crate) fn exec(args: ExecArgs) -> CommandResult {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt as _;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call above.
    if getppid().map(|parent| parent.as_raw_nonzero().get() as u32) != Some(args.parent) {
        return Err("the process that has the lock has ended".into());
    }
    let error = std::process::Command::new(&args.command[0]).args(&args.command[1..]).exec();
    eprintln!("elderlock: {}: {error}", args.command[0].display());
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    Ok(ExitCode::from(if is_missing { 127 } else { 126 }))
}

/// Fails: only on Linux `lock` starts this command.
#[cfg(not(target_os = "linux"))]
pub(crate) fn exec(args: ExecArgs) -> CommandResult {
    Err(format!("{} needs Linux: {:?}", args.parent, args.command).into())
}
