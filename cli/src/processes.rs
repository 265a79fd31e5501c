//! Processes: this very program, started several times over, as members of a real cluster; and the
//! end of each.
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

/// Lines that wait for the parent: a tenth of a second's worth of the demo's sales at most, then
/// children wait at their pipes.
const INBOX: usize = 4096;

/// The result of a command. Exit code 2 stands for "could not be done at all".
pub(crate) type Done = Result<ExitCode, Box<dyn std::error::Error>>;

/// The exit code of the program. An error is printed with those of its causes that its own text
/// does not have.
pub(crate) fn exit_code(program: &str, done: Done) -> ExitCode {
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
pub(crate) fn with_runtime(work: impl Future<Output = Done>) -> Done {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(work)
}

/// Children by their indexes, as their parent has them. `R` is the type of the reports.
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
    /// How it ended, if that is known.
    ended: Option<ExitStatus>,
}

struct OutputLine<R> {
    index: usize,
    run: u32,
    at: Instant,
    /// `None`: the pipe was closed.
    report: Option<Result<R, String>>,
}

/// A message from a child.
pub(crate) struct ChildUpdate<R> {
    /// The child's index.
    pub(crate) index: usize,
    /// The time at which it arrived here.
    pub(crate) at: Instant,
    /// The child is known to have ended: this was still in its pipe.
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
    /// The child's line is not a report, for that reason.
    Nonsense(String),
    /// The child ended; [`Processes::ended`] says how.
    Ended,
}

impl<R: DeserializeOwned + Send + 'static> Processes<R> {
    /// No child yet.
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
                let report =
                    serde_json::from_str(&text).map_err(|error| format!("said {text:?}: {error}"));
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

    /// Sends an order. A child that cannot be reached is dead, and that is seen at its other pipe.
    pub(crate) fn order(&mut self, index: usize, order: &impl Serialize) {
        let line = serde_json::to_string(order).expect("orders always serialise");
        let _ = writeln!(self.children[index].orders, "{line}");
    }

    /// SIGKILL. No news of its end follows.
    pub(crate) fn kill(&mut self, index: usize) {
        let process = &mut self.children[index];
        let _ = process.child.kill();
        process.ended = process.child.wait().ok();
    }

    /// SIGSTOP or SIGCONT.
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

    /// The next update of any child; `None` when it is `until` and no child sent one.
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

    /// How the child of this index ended; `None`: it lives, as far as is known.
    pub(crate) fn ended(&self, index: usize) -> Option<ExitStatus> {
        self.children[index].ended
    }

    /// How many are alive.
    pub(crate) fn living(&self) -> usize {
        self.children.iter().filter(|process| process.ended.is_none()).count()
    }
}

impl<R> Drop for Processes<R> {
    /// Kills all children, stopped ones included.
    fn drop(&mut self) {
        for process in &mut self.children {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// Sends a report to the parent by the child's end of its pipes.
pub(crate) fn send_report(report: &impl Serialize) {
    let mut line = serde_json::to_string(report).expect("reports always serialise");
    line.push('\n');
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        std::process::exit(ORPHAN);
    }
}

/// The other end: follows the parent's orders on a thread of its own, for reading standard input
/// blocks.
pub(crate) fn listen<O: DeserializeOwned>(
    mut follow: impl FnMut(Result<O, String>) + Send + 'static,
) -> std::io::Result<()> {
    // Without a parent this process would run for ever: if it is stopped, it does not even see the
    // end of its input.
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

/// The exit code of a child after the end of its parent.
const ORPHAN: i32 = 3;

/// Loopback addresses with a port that is free for TCP and UDP. All are held until all are found,
/// so they differ.
///
/// They come from below the range that the kernel gives to outgoing connections. A port of that
/// range could be taken by another child's connection while its own child is dead.
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

/// A temporary directory, taken away at the end unless kept.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    /// Makes a directory of this process alone.
    pub(crate) fn make(name: &str) -> std::io::Result<Directory> {
        let path = std::env::temp_dir().join(format!("elderlock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }

    /// Leaves it where it is.
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
