//! A child process as the test sees it, and the members in it.

use super::child;
use super::status::{self, Seen};
use super::wait::{self, HANG};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The number of a child's latest events that are kept.
const EVENTS: usize = 4096;

/// A child process. The drop kills it.
pub(crate) struct Process {
    child: Mutex<Child>,
    input: Mutex<Input>,
    board: Arc<ProcessBoard>,
}

struct Input {
    pipe: ChildStdin,
    next: u64,
}

/// The output of a child, filled by the thread that reads it.
#[derive(Default)]
struct ProcessBoard {
    state: Mutex<ChildOutput>,
    changed: Condvar,
}

#[derive(Default)]
struct ChildOutput {
    answers: HashMap<u64, Answer>,
    events: VecDeque<String>,
    ended: bool,
}

/// A member's answer: the text of a success or of an error.
pub(crate) type Answer = Result<String, String>;

impl Process {
    /// Starts the test binary again as a child, in the network namespace `namespace` if one is
    /// given.
    pub(crate) fn start(number: usize, namespace: Option<&str>) -> Arc<Process> {
        Process::start_with(number, namespace, &[])
    }

    /// Like [`Process::start`], with these variables in its environment.
    pub(crate) fn start_with(
        number: usize,
        namespace: Option<&str>,
        variables: &[(&str, &OsStr)],
    ) -> Arc<Process> {
        let exe = std::env::current_exe().expect("the test knows its own binary");
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(exe);
                command
            }
            None => Command::new(exe),
        };
        // The children use both flavours of the runtime by turns.
        let threads = if number.is_multiple_of(2) { "one" } else { "many" };
        let mut child = command
            .args(["--exact", "child_member", "--nocapture", "--test-threads=1"])
            .env(child::THREADS, threads)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary can be started");
        let board = Arc::new(ProcessBoard::default());
        let output = child.stdout.take().expect("it was piped");
        let pipe = child.stdin.take().expect("it was piped");
        std::thread::spawn({
            let board = board.clone();
            move || listen(output, &board)
        });
        Arc::new(Process {
            child: Mutex::new(child),
            input: Mutex::new(Input { pipe, next: 1 }),
            board,
        })
    }

    /// Sends SIGKILL and reaps the process.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
    }

    /// Sends SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.lock().unwrap().id();
        let pid = Pid::from_raw(pid as i32).expect("a child has a process number");
        kill_process(pid, signal).expect("a child can be signalled");
    }

    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.child.lock().unwrap().try_wait(), Ok(None))
    }

    /// The memory in use, in KiB.
    pub(crate) fn memory(self: &Arc<Self>) -> u64 {
        let text = self.ask(0, "memory").wait().expect("a child knows its memory");
        text.parse().expect("a number")
    }

    fn ask(self: &Arc<Self>, member: usize, command: &str) -> Pending {
        let mut input = self.input.lock().unwrap();
        let seq = input.next;
        input.next += 1;
        // A failed write means a dead child. The end of its output shows the death.
        let _ = writeln!(input.pipe, "{seq} {member} {command}");
        Pending { board: self.board.clone(), seq, what: format!("{command} at member {member}") }
    }

    fn events(&self, member: usize) -> Vec<String> {
        self.said(&format!("{member} "))
    }

    fn said(&self, head: &str) -> Vec<String> {
        let state = self.board.state.lock().unwrap();
        state.events.iter().filter_map(|event| event.strip_prefix(head)).map(String::from).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(|poison| poison.into_inner());
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn listen(output: ChildStdout, board: &ProcessBoard) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { break };
        let Some(line) = line.strip_prefix("@ ") else { continue };
        let mut state = board.state.lock().unwrap();
        if let Some(event) = line.strip_prefix("! ") {
            if state.events.len() == EVENTS {
                state.events.pop_front();
            }
            state.events.push_back(event.into());
        } else if let Some((seq, rest)) = line.split_once(' ') {
            let (kind, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let answer = if kind == "ok" { Ok(text.to_owned()) } else { Err(text.to_owned()) };
            state.answers.insert(seq.parse().expect("a sequence number"), answer);
        }
        board.changed.notify_all();
    }
    board.state.lock().unwrap().ended = true;
    board.changed.notify_all();
}

/// A command that was sent to a child.
pub(crate) struct Pending {
    board: Arc<ProcessBoard>,
    seq: u64,
    what: String,
}

impl Pending {
    /// The answer, if it has arrived. A child that has ended answers "ended".
    pub(crate) fn poll(&self) -> Option<Answer> {
        let state = self.board.state.lock().unwrap();
        let ended = || state.ended.then(|| Err("ended".into()));
        state.answers.get(&self.seq).cloned().or_else(ended)
    }

    /// Waits for the answer.
    ///
    /// # Panics
    /// If none comes within [`HANG`], with the child's latest events.
    pub(crate) fn wait(&self) -> Answer {
        self.wait_at_most(HANG)
    }

    /// Like [`Pending::wait`], with another limit.
    pub(crate) fn wait_at_most(&self, guard: Duration) -> Answer {
        let start = Instant::now();
        let mut state = self.board.state.lock().unwrap();
        loop {
            if let Some(answer) = state.answers.get(&self.seq) {
                return answer.clone();
            }
            if state.ended {
                return Err("ended".into());
            }
            let left = guard.saturating_sub(start.elapsed());
            if left.is_zero() {
                let events: Vec<_> = state.events.iter().rev().take(30).rev().cloned().collect();
                drop(state);
                panic!("no answer within {guard:?} to: {}; latest events: {events:#?}", self.what);
            }
            state = self.board.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

/// A granted lock, as a member reported it.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) guard: u64,
    pub(crate) token: u64,
    /// An instant at which the lock was believed to be held, on the clock that all processes share.
    /// The belief began shortly before.
    pub(crate) at: u64,
}

impl Grant {
    pub(crate) fn read(text: &str) -> Grant {
        let words: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
        Grant { guard: words[0], token: words[1], at: words[2] }
    }
}

/// A member in a child.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) process: Arc<Process>,
    pub(crate) index: usize,
    pub(crate) addr: String,
}

impl Peer {
    /// Sends a command and does not wait.
    pub(crate) fn begin(&self, command: &str) -> Pending {
        let mut pending = self.process.ask(self.index, command);
        pending.what = format!("{} ({})", pending.what, self.addr);
        pending
    }

    pub(crate) fn ask(&self, command: &str) -> Answer {
        self.begin(command).wait()
    }

    pub(crate) fn begin_lock(&self, service: &str, lock: &str) -> Pending {
        self.begin(&format!("lock {service} {lock} - -"))
    }

    /// Takes a lock that is free or becomes free.
    pub(crate) fn lock(&self, service: &str, lock: &str) -> Grant {
        match self.begin_lock(service, lock).wait() {
            Ok(text) => Grant::read(&text),
            Err(error) => {
                panic!("lock {lock} of {service} at {}: {error}; {:#?}", self.addr, self.events())
            }
        }
    }

    pub(crate) fn fence(&self, grant: &Grant) -> Result<u64, String> {
        self.ask(&format!("fence {}", grant.guard)).map(|text| text.parse().expect("a token"))
    }

    pub(crate) fn release(&self, grant: &Grant) -> Answer {
        self.ask(&format!("release {}", grant.guard))
    }

    pub(crate) fn status(&self) -> Seen {
        match self.ask("status") {
            Ok(line) => status::read(&line),
            Err(error) => panic!("status of {}: {error}", self.addr),
        }
    }

    /// Waits until `waiters` requests wait for a lock that this member grants.
    pub(crate) fn until_waiting(&self, service: &str, lock: &str, waiters: usize) {
        wait::until(&format!("{waiters} in the queue for {lock}"), || {
            let status = self.status();
            match status.service(service).and_then(|service| service.lock(lock)) {
                Some(lock) if lock.waiters == waiters => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    /// The events of this member so far.
    pub(crate) fn events(&self) -> Vec<String> {
        self.process.events(self.index)
    }

    /// The output of the forked copies of this member's process.
    pub(crate) fn copies(&self) -> Vec<String> {
        self.process.said(&format!("copy {} ", self.index))
    }

    /// Waits until the member has reported the loss of a guard. Returns the last instant at which
    /// the guard was believed to hold.
    pub(crate) fn last_belief(&self, grant: &Grant) -> u64 {
        let head = format!("guard-lost {} ", grant.guard);
        wait::until(&format!("{} loses its guard", self.addr), || {
            let events = self.events();
            match events.iter().find_map(|event| event.strip_prefix(&head)) {
                Some(rest) => {
                    Ok(rest.split(' ').next().unwrap_or_default().parse().expect("a time"))
                }
                None => Err(format!("{events:?}")),
            }
        })
    }
}
