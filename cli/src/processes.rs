//! Processes: this same program, started several times as members of a real cluster, and their
//! ends.
//!
//! The parent sends orders and the children send reports, one JSON object per line, on the standard
//! input and output of the child.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

/// The capacity for lines that wait for the parent: at most a tenth of a second of the demo's
/// sales. Beyond it, children wait at their pipes.
const INBOX: usize = 4096;

/// The result of a command. Exit code 2 means that the command could not be carried out at all.
pub(crate) type CommandResult = Result<ExitCode, Box<dyn std::error::Error>>;

/// The exit code of the program. An error is printed with those of its causes that its own text
/// lacks.
pub(crate) fn exit_code(program: &str, done: CommandResult) -> ExitCode {
    done.unwrap_or_else(|error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let said = cause.to_string();
            if !text.contains(&said) {
                text += &format!("\n  because: {said}");
            }
            source = cause.source();
        }
        eprintln!("{program}: {text}");
        ExitCode::from(2)
    })
}

/// Runs a command on a runtime of its own.
pub(crate) fn with_runtime(work: impl Future<Output = CommandResult>) -> CommandResult {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(work)
}

/// Children by their indexes. `R` is the type of the reports.
pub(crate) struct Processes<R> {
    children: Vec<Process>,
    lines: Receiver<OutputLine<R>>,
    sender: SyncSender<OutputLine<R>>,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    /// The number of this run. The pipe of an earlier run at this index may still hold messages.
    run: u32,
    /// The child's exit status, once it is known to have ended.
    ended: Option<ExitStatus>,
}

struct OutputLine<R> {
    index: usize,
    run: u32,
    at: Instant,
    /// A report, or why the line is none. `None` if the pipe was closed.
    report: Option<Result<R, String>>,
}

/// A message from a child.
pub(crate) struct ChildUpdate<R> {
    /// The child's index.
    pub(crate) index: usize,
    /// The time at which the message arrived here.
    pub(crate) at: Instant,
    /// Whether the child is known to have ended: the message was still in its pipe.
    pub(crate) is_late: bool,
    /// The message.
    pub(crate) what: ChildOutput<R>,
}

/// Signals that stop a child and continue it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StopSignal {
    /// SIGSTOP, which stops the child.
    Stop,
    /// SIGCONT, which continues the child.
    Continue,
}

/// A child's report, or its end.
pub(crate) enum ChildOutput<R> {
    /// A report of the child.
    Said(R),
    /// The child's line is not a report, for this reason.
    Nonsense(String),
    /// The child ended; [`Processes::ended`] says how.
    Ended,
}

impl<R: DeserializeOwned + Send + 'static> Processes<R> {
    /// A set without children.
    pub(crate) fn new() -> Self {
        let (sender, lines) = sync_channel(INBOX);
        Processes { children: Vec::new(), lines, sender }
    }

    /// Starts this program with `arguments` at a new index, or again at the index of an ended
    /// child.
    pub(crate) fn start(
        &mut self,
        index: usize,
        arguments: &[String],
        errors: &Path,
    ) -> std::io::Result<()> {
        let run = self.children.get(index).map_or(0, |process| process.run + 1);
        let errors = File::options().create(true).append(true).open(errors)?;
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let orders = child.stdin.take().expect("stdin was asked for as a pipe in the line above");
        let output = child.stdout.take().expect("so was stdout");
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                let at = Instant::now();
                let report = serde_json::from_str(&text)
                    .map_err(|error| format!("unreadable report {text:?}: {error}"));
                if sender.send(OutputLine { index, run, at, report: Some(report) }).is_err() {
                    return;
                }
            }
            let _ = sender.send(OutputLine { index, run, at: Instant::now(), report: None });
        });
        let process = Process { child, orders, run, ended: None };
        match self.children.get_mut(index) {
            Some(before) => *before = process,
            None => self.children.push(process),
        }
        Ok(())
    }

    /// Sends an order. A failure means that the child is dead, which the end of its output shows.
    pub(crate) fn order(&mut self, index: usize, order: &impl Serialize) {
        let line = serde_json::to_string(order).expect("orders always serialise");
        let _ = writeln!(self.children[index].orders, "{line}");
    }

    /// Sends SIGKILL. No message about the end follows.
    pub(crate) fn kill(&mut self, index: usize) {
        let process = &mut self.children[index];
        let _ = process.child.kill();
        process.ended = process.child.wait().ok();
    }

    /// Sends SIGSTOP or SIGCONT.
    #[cfg(unix)]
    pub(crate) fn signal(&self, index: usize, signal: StopSignal) -> std::io::Result<()> {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match signal {
            StopSignal::Stop => Signal::STOP,
            StopSignal::Continue => Signal::CONT,
        };
        Ok(kill_process(Pid::from_child(&self.children[index].child), signal)?)
    }

    /// Windows has no signal that stops a process.
    #[cfg(not(unix))]
    pub(crate) fn signal(&self, _: usize, signal: StopSignal) -> std::io::Result<()> {
        Err(std::io::Error::new(
            std::io::ErrorKind::Unsupported,
            format!("{signal:?}: this system stops no processes, and the demo needs that"),
        ))
    }

    /// The next update of any child. `None` if none arrives before `until`.
    pub(crate) fn next(&mut self, until: Instant) -> Option<ChildUpdate<R>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            };
            let process = &mut self.children[line.index];
            let is_late = line.run != process.run || process.ended.is_some();
            let what = match line.report {
                Some(Ok(report)) => ChildOutput::Said(report),
                Some(Err(nonsense)) => ChildOutput::Nonsense(nonsense),
                None if is_late => continue,
                None => {
                    process.ended = process.child.wait().ok();
                    ChildOutput::Ended
                }
            };
            return Some(ChildUpdate { index: line.index, at: line.at, is_late, what });
        }
    }

    /// The exit status of the child of this index. `None` while it is not known to have ended.
    pub(crate) fn ended(&self, index: usize) -> Option<ExitStatus> {
        self.children[index].ended
    }

    /// The number of living children.
    pub(crate) fn living(&self) -> usize {
        self.children.iter().filter(|process| process.ended.is_none()).count()
    }
}

impl<R> Drop for Processes<R> {
    /// Kills all children, also stopped ones.
    fn drop(&mut self) {
        for process in &mut self.children {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// Sends a report from a child to its parent.
pub(crate) fn send_report(report: &impl Serialize) {
    let mut line = serde_json::to_string(report).expect("reports always serialise");
    line.push('\n');
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        std::process::exit(ORPHAN);
    }
}

/// Follows the parent's orders in the child, on a thread of its own, because reading standard input
/// blocks.
pub(crate) fn listen<O: DeserializeOwned>(
    mut follow: impl FnMut(Result<O, String>) + Send + 'static,
) -> std::io::Result<()> {
    // Without a parent this process would run for ever. A stopped process does not even see the end
    // of its input.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            follow(serde_json::from_str(&line).map_err(|error| format!("order {line:?}: {error}")));
        }
        std::process::exit(ORPHAN);
    });
    Ok(())
}

/// The exit code of a child whose parent has ended.
const ORPHAN: i32 = 3;

/// Loopback addresses with a port that is free for TCP and UDP. Each stays bound until all are
/// found, so they differ.
///
/// The ports are below the range that the kernel gives to outgoing connections. Another child's
/// connection could take a port of that range while the port's own child is dead.
pub(crate) fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    const PORTS: std::ops::Range<u16> = 15_000..32_000;
    let start = std::process::id().wrapping_mul(37) % PORTS.len() as u32;
    let ports = PORTS.cycle().skip(start as usize).take(PORTS.len());
    let mut held = Vec::new();
    for addr in ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        if let (Ok(tcp), Ok(udp)) = (TcpListener::bind(addr), UdpSocket::bind(addr)) {
            held.push((addr, tcp, udp));
        }
        if held.len() == count {
            return Ok(held.into_iter().map(|(addr, _, _)| addr).collect());
        }
    }
    Err(std::io::Error::other("no free ports on the loopback"))
}

/// A temporary directory, removed at the end unless kept.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    /// Creates a directory that only this process uses.
    pub(crate) fn make(name: &str) -> std::io::Result<Directory> {
        let path = std::env::temp_dir().join(format!("elderlock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }

    /// Keeps the directory, and returns its path.
    pub(crate) fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
