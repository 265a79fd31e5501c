//! `elderlock node` during faults: real processes, their output and their exit codes.
#![cfg(target_os = "linux")]

#[path = "../../tests/support/ports.rs"]
mod ports;

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("elderlock-cli-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("it can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small file system for one test.
struct Tmpfs(Scratch);

impl Tmpfs {
    fn mount(name: &str) -> Option<Tmpfs> {
        let scratch = Scratch::new(name);
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&scratch.0).output() {
            Ok(output) if output.status.success() => Some(Tmpfs(scratch)),
            other => {
                println!("skipped: no tmpfs can be mounted here: {other:?}");
                None
            }
        }
    }

    /// A directory on the file system.
    fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.0.join(name);
        std::fs::create_dir(&path).expect("there is room");
        path
    }

    /// Fills the file system up.
    fn fill(&self) -> PathBuf {
        let path = self.0.0.join("filler");
        std::fs::write(&path, vec![1; 2 << 20]).expect_err("it has room for one megabyte");
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).status();
    }
}

fn free(count: usize) -> Vec<String> {
    ports::free(count).iter().map(ToString::to_string).collect()
}

/// `elderlock node` at this address.
fn node(bind: &str, seeds: &[String], data_dir: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear().args(["node", "--timing", "fast", "--join-seconds", "100", "--bind", bind]);
    // Standard error has only the reason of an end. The name of each member is its address.
    command.args(["--log", "off", "--name", bind]);
    command.args(["--seed", &seeds.join(",")]);
    if let Some(path) = data_dir {
        command.arg("--data-dir").arg(path);
    }
    command
}

/// A node that ends with this value.
struct Node {
    child: Child,
    lines: Receiver<String>,
}

impl Node {
    fn start(mut command: Command) -> Node {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut read = output.lines().map_while(Result::ok);
        std::thread::spawn(move || read.try_for_each(|line| sender.send(line)));
        Node { child, lines }
    }

    /// The next line that `is_it` accepts.
    fn until(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.lines.recv_timeout(HANG);
            let line = line.unwrap_or_else(|_| panic!("it never says {what}"));
            // The text follows the time.
            let text = line.split_once(' ').map_or("", |(_, text)| text);
            if is_it(text) {
                return text.to_owned();
            }
        }
    }

    fn until_joined(&self) {
        self.until("joined", |line| line.starts_with("joined as"));
    }

    /// Waits for a view of exactly these members, all reachable.
    fn until_view(&self, addrs: &[&String]) {
        self.until(&format!("a view of {addrs:?}"), |line| {
            let members = line.strip_prefix("view ").and_then(|line| line.split_once("; members "));
            let members = members.map_or("", |(_, members)| members).replace(" (learner)", "");
            let mut members: Vec<&str> = members.split(", ").collect();
            members.sort_unstable();
            let mut wanted: Vec<&str> = addrs.iter().map(|addr| addr.as_str()).collect();
            wanted.sort_unstable();
            members == wanted
        });
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of the node. Returns the exit code and the text of standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let began = Instant::now();
        let status: ExitStatus = loop {
            match self.child.try_wait().expect("it is a child") {
                Some(status) => break status,
                None => assert!(began.elapsed() < HANG, "it never ends"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut text = String::new();
        self.child.stderr.take().expect("it was piped").read_to_string(&mut text).expect("text");
        (status.code(), text)
    }

    /// Makes the node leave, and checks that it does.
    fn leave(self) {
        self.signal(Signal::TERM);
        assert_eq!(self.end(), (Some(0), String::new()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three nodes share a full disk. A join cannot be stored, and ends none of them. A start on that
/// disk fails and names it.
#[test]
fn nodes_on_a_full_disk_go_on_and_a_start_there_names_the_disk() {
    let Some(tmpfs) = Tmpfs::mount("full") else { return };
    let elsewhere = Scratch::new("full-elsewhere");
    let addrs = free(5);
    let seeds = &addrs[..3];
    let dirs = ["0", "1", "2", "late"].map(|name| tmpfs.dir(name));
    let start = |at: usize| Node::start(node(&addrs[at], seeds, Some(&dirs[at])));
    let mut nodes: Vec<Node> = (0..3).map(start).collect();
    nodes.iter().for_each(|node| node.until_view(&seeds.iter().collect::<Vec<_>>()));
    let filler = tmpfs.fill();

    let joiner = Node::start(node(&addrs[3], seeds, Some(&elsewhere.0)));
    for node in &nodes {
        let line = node.until("that it has no vote", |line| line.starts_with("the vote is not"));
        assert!(line.contains("No space left on device"), "{line}");
    }
    let (code, said) = Node::start(node(&addrs[4], seeds, Some(&dirs[3]))).end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(dirs[3].to_str().expect("text")) && !said.contains("seed"), "{said}");
    assert!(said.contains("No space left on device"), "{said}");

    // Longer than a member lease.
    std::thread::sleep(Duration::from_secs(4));
    assert!(nodes.iter_mut().all(Node::is_running), "a full disk ends no node");
    std::fs::remove_file(filler).expect("room can be made");
    joiner.until_joined();
    nodes.into_iter().chain([joiner]).for_each(Node::leave);
}

/// A node whose process was stopped is expelled and cannot begin a new incarnation: the system
/// gives no randomness for another process id. The node ends with that reason, and the others
/// continue.
#[test]
fn a_node_that_a_fault_ends_says_why_and_the_others_go_on() {
    let scratch = Scratch::new("fault");
    let library = scratch.0.join("no_randomness.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/no_randomness.c");
    let mut build = Command::new("cc");
    let built = build.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("cc can be started").success(), "cc builds tests/no_randomness.c");
    let on = scratch.0.join("on");
    let addrs = free(3);
    let start = |at: usize, variables: &[(&str, &OsStr)]| {
        let mut command = node(&addrs[at], &addrs, None);
        command.envs(variables.iter().copied());
        Node::start(command)
    };
    let preload = [("LD_PRELOAD", library.as_os_str()), ("NO_RANDOMNESS_ON", on.as_os_str())];
    let victim = start(2, &preload);
    let mut others = [start(0, &[]), start(1, &[])];
    victim.until_view(&addrs.iter().collect::<Vec<_>>());

    victim.signal(Signal::STOP);
    others[0].until_view(&[&addrs[0], &addrs[1]]);
    std::fs::write(&on, "").expect("there is room");
    victim.signal(Signal::CONT);
    let line = victim.until("that it failed", |line| line.starts_with("failed"));
    assert_eq!(line, "failed: no randomness for a new process id");
    assert_eq!(victim.end(), (Some(3), format!("elderlock: {line}\n")));
    assert!(others.iter_mut().all(Node::is_running));
    others.into_iter().for_each(Node::leave);
}
