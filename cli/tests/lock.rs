//! `elderlock lock` with the real program: a command runs while a lock is held for it. Its belief
//! ends before that of the next holder begins, whichever process is killed.
#![cfg(unix)]

#[path = "support/both_outputs.rs"]
mod both_outputs;
#[path = "support/decided.rs"]
mod decided;
#[path = "support/running.rs"]
mod running;

use both_outputs::both_outputs;
use decided::decided;
use running::{Running, free_addr};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(300);

/// The times of members that no test stops. On a busy machine a shorter lease may end.
const PATIENT: &str = "wan";

/// The times of members of which one is stopped, so that the test waits for the end of a lease.
const QUICK: &str = "lan";

/// Makes `timeout` run this program. At the limit `timeout` ends with code 124.
fn limited(timeout: &mut Command) -> &mut Command {
    timeout.args(["-k", "1", "300", env!("CARGO_BIN_EXE_elderlock")])
}

fn elderlock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear().env("PATH", "/usr/bin:/bin").args(args);
    command
}

/// The exit code and both outputs of a command.
fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    (status.code(), String::from_utf8([stdout, stderr].concat()).expect("text"))
}

/// A shell that runs this script with `program` and its arguments.
fn elderlock_in(script: &str, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.env_clear().env("PATH", "/usr/bin:/bin").args(["-c", script, program]).args(args);
    command
}

impl Running {
    /// The exit code, and the rest of the output.
    fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("text");
        (self.child.wait().expect("it ends").code(), text)
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(killed.expect("kill is there").success());
    }
}

/// Two members on this host that serve sessions.
struct Pair {
    addrs: [String; 2],
    nodes: [Running; 2],
}

impl Pair {
    fn start(timing: &str) -> Pair {
        let addrs = [free_addr(), free_addr()];
        let node = |addr: &String, rest: &[&str]| {
            let mut args = vec!["node", "--timing", timing, "--serve-sessions", "--bind", addr];
            args.extend(rest);
            let mut node = Running::start(&mut elderlock(&args));
            node.line_with("joined as");
            node
        };
        let first = node(&addrs[0], &["--found"]);
        let second = node(&addrs[1], &["--seed", &addrs[0]]);
        Pair { addrs, nodes: [first, second] }
    }

    fn lock<'a>(&'a self, at: usize, rest: &[&'a str]) -> Command {
        let mut args = vec!["lock", "--at", &self.addrs[at]];
        args.extend(rest);
        elderlock(&args)
    }

    fn output(&self, at: usize, rest: &[&str]) -> (Option<i32>, String) {
        outcome(&mut self.lock(at, rest))
    }
}

#[test]
fn a_command_runs_with_its_token_and_its_exit_code_is_passed_on() {
    let pair = Pair::start(PATIENT);
    let (code, text) = pair.output(0, &["job", "--", "sh", "-c", "echo token $ELDERLOCK_TOKEN"]);
    let token: i64 = text.trim().strip_prefix("token ").expect(&text).parse().expect("a number");
    assert!(code == Some(0) && token > 0, "{code:?} {text}");
    let (code, text) = pair.output(1, &["job", "--", "sh", "-c", "echo $ELDERLOCK_TOKEN; exit 7"]);
    assert!(code == Some(7) && text.trim().parse::<i64>().expect("a number") > token, "{text}");
    let (code, _) = pair.output(0, &["job", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(code, Some(128 + 9));
    let (code, text) = pair.output(0, &["job", "--", "no-such-command"]);
    assert!(code == Some(127) && text.contains("no-such-command"), "{code:?} {text}");
    // The lock is free after each of these commands.
    assert_eq!(pair.output(1, &["job", "--wait", "2m", "--", "true"]).0, Some(0));
}

/// Each of two programs holds a lock, and a command of it takes the other's lock.
#[test]
fn nested_commands_that_wait_for_each_other_are_named_a_deadlock() {
    const DEADLOCK: i32 = 5;
    let pair = Pair::start(PATIENT);
    let both_hold = std::env::temp_dir().join(format!("elderlock-both-{}", std::process::id()));
    // A killed process with this number may have left its own.
    let _ = std::fs::remove_file(&both_hold);
    let (path, at) = (both_hold.to_str().expect("text"), pair.addrs[0].as_str());
    let nested = |outer: &str, inner: &str| {
        let script = format!(
            "echo in; until [ -e {path} ]; do sleep 0.02; done; \
             exec \"$0\" lock {inner} --at {at} -- true"
        );
        let program = env!("CARGO_BIN_EXE_elderlock");
        let mut held =
            Running::start(&mut pair.lock(0, &[outer, "--", "sh", "-c", &script, program]));
        held.line_with("in");
        held
    };
    let programs = [nested("a", "b"), nested("b", "a")];
    std::fs::write(&both_hold, "").expect("it can be written");
    let why = || elderlock(&["why", "a", "--at", at]).output().expect("it starts");
    let began = Instant::now();
    while why().status.code() != Some(DEADLOCK) {
        assert!(began.elapsed() < HANG, "{:?}", why());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(&both_hold).expect("it is there");
    programs.iter().for_each(|program| program.signal("-TERM"));
    let mut odd = pair.lock(0, &["c", "--", "true"]);
    let refused = odd.env("ELDERLOCK_OWNER", "me").output().expect("it starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && text.contains("\"me\""), "{text}");
}

#[test]
fn a_lock_that_is_not_granted_in_time_is_75_and_shares_stand_beside_each_other() {
    let pair = Pair::start(PATIENT);
    let mut holder =
        Running::start(&mut pair.lock(0, &["job", "--", "sh", "-c", "echo in; exec sleep 600"]));
    holder.line_with("in");
    let (code, text) = pair.output(1, &["job", "--wait", "0s", "--", "echo", "executed"]);
    assert!(
        code == Some(75)
            && text.contains("not granted within the wait limit")
            && !text.contains("executed"),
        "{text}"
    );
    let args = ["shared", "--shared", "--", "sh", "-c", "echo in; exec sleep 600"];
    let mut reader = Running::start(&mut pair.lock(0, &args));
    reader.line_with("in");
    let (code, _) = pair.output(1, &["shared", "--shared", "--wait", "2m", "--", "true"]);
    assert_eq!(code, Some(0));
    let (code, _) = pair.output(1, &["shared", "--wait", "0s", "--", "true"]);
    assert_eq!(code, Some(75));
}

/// A program in another language holds a lock through a child process, as the guide
/// `from-curator.md` describes.
#[test]
fn a_lock_is_held_until_the_input_of_the_command_is_closed() {
    let pair = Pair::start(PATIENT);
    let script = "echo \"$ELDERLOCK_TOKEN $ELDERLOCK_LINEAGE\"; exec cat";
    let mut command = pair.lock(0, &["job", "--wait", "2m", "--", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    let words: Vec<_> = line.split_whitespace().collect();
    assert!(words.len() == 2 && words[0].parse::<elderlock::Token>().is_ok(), "{line}");
    // Both forms of the status show the same lineage.
    for (form, lineage) in [
        (&["--json"][..], format!("\"lineage\": \"{}\"", words[1])),
        (&[], format!(" of lineage {},", words[1])),
    ] {
        let args = [&["status", "--at", &pair.addrs[1]], form].concat();
        let status = elderlock(&args).output().expect("it starts");
        let text = String::from_utf8(status.stdout).expect("text");
        assert!(text.contains(&lineage), "{lineage}: {text}");
    }
    assert_eq!(pair.output(1, &["job", "--wait", "0s", "--", "true"]).0, Some(75));
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(pair.output(1, &["job", "--wait", "2m", "--", "true"]).0, Some(0));
}

/// A command that prints every ten milliseconds that it believes in its lock.
const BELIEVE: &str = "echo in; while :; do cut -d' ' -f1 /proc/uptime; sleep 0.01; done";

/// The last instant at which the command believed in its lock, from its output.
fn last_belief(text: &str) -> u128 {
    let seconds: f64 = text
        .lines()
        .rev()
        .find_map(|line| line.parse().ok())
        .unwrap_or_else(|| panic!("no time in {text:?}"));
    (seconds * 1000.0) as u128
}

/// The last instant of a command's belief when its member is killed, and that of the next grant.
fn killed_member_round() -> (u128, u128) {
    let mut pair = Pair::start(QUICK);
    let mut third = vec!["node", "--timing", QUICK, "--bind"];
    let addr = free_addr();
    third.extend([addr.as_str(), "--seed", pair.addrs[0].as_str(), "--serve-sessions"]);
    let mut third = Running::start(&mut elderlock(&third));
    third.line_with("joined as");
    // The command ignores the first signal, so that its belief lasts as long as possible.
    let stubborn = format!("trap '' TERM; {BELIEVE}");
    let mut holder = Running::start(&mut pair.lock(1, &["job", "--", "sh", "-c", &stubborn]));
    holder.line_with(".");
    let next = ["job", "--", "sh", "-c", "cut -d' ' -f1 /proc/uptime"];
    let next = Running::start(&mut pair.lock(0, &next));
    pair.nodes[1].child.kill().expect("it runs");
    let (code, text) = holder.end();
    assert_eq!(code, Some(76), "{text}");
    let (code, granted) = next.end();
    assert_eq!(code, Some(0), "{granted}");
    drop(third);
    (last_belief(&text), last_belief(&granted))
}

/// The program that ends the command may itself stand still for a while, and then the command
/// lives too long. A belief that is too long shows in each round.
#[test]
fn a_killed_member_is_outlived_by_the_command_but_not_into_the_next_grant() {
    let mut rounds: Vec<(u128, u128)> = Vec::new();
    while rounds.last().is_none_or(|(last, granted)| last > granted) {
        assert!(rounds.len() < 3, "last beliefs and next grants: {rounds:?}");
        rounds.push(killed_member_round());
    }
}

#[test]
fn a_wait_goes_on_through_another_member_when_its_own_is_killed() {
    a_wait_outlives_its_member("-KILL");
}

#[test]
fn a_wait_goes_on_through_another_member_when_its_own_leaves() {
    a_wait_outlives_its_member("-TERM");
}

/// The member hangs, so no connection ends, and the wait has no limit.
#[test]
fn a_wait_goes_on_through_another_member_when_its_own_hangs() {
    a_wait_outlives_its_member("-STOP");
}

fn a_wait_outlives_its_member(signal: &str) {
    let pair = Pair::start(QUICK);
    let addr = free_addr();
    let third = ["node", "--timing", QUICK, "--bind", &addr, "--seed", &pair.addrs[0]];
    let mut third = Running::start(&mut elderlock(&third));
    third.line_with("joined as");
    let mut holder = Running::start(&mut pair.lock(0, &["job", "--", "sh", "-c", BELIEVE]));
    holder.line_with(".");
    let list = pair.addrs.iter().rev().map(String::as_str).collect::<Vec<_>>().join(",");
    let waits = ["lock", "job", "--at", &list, "--", "echo", "granted"];
    let mut waits = Running::start(limited(&mut both_outputs("timeout")).args(waits));
    let began = Instant::now();
    let is_queued = || {
        let status = elderlock(&["status", "--at", &pair.addrs[0], "--json"]).output();
        let text = String::from_utf8(status.expect("it starts").stdout).expect("text");
        text.replace(' ', "").contains("\"waiter_count\":1")
    };
    while !is_queued() {
        assert!(began.elapsed() < HANG, "it does not wait");
    }
    pair.nodes[1].signal(signal);
    waits.line_with("at the end of the queue");
    holder.signal("-TERM");
    holder.end();
    let (code, text) = waits.end();
    assert_eq!((code, text.as_str()), (Some(0), "granted\n"));
    drop(third);
}

#[test]
fn a_killed_program_takes_its_command_with_it_and_its_lock_is_granted_after_its_session() {
    let pair = Pair::start(QUICK);
    let mut holder = Running::start(&mut pair.lock(0, &["job", "--", "sh", "-c", BELIEVE]));
    holder.line_with(".");
    holder.signal("-KILL");
    // The pipe ends when the command does.
    holder.end();
    assert_eq!(pair.output(1, &["job", "--wait", "2m", "--", "true"]).0, Some(0));
}

#[test]
fn a_member_that_leaves_has_the_command_stopped_first() {
    let mut pair = Pair::start(PATIENT);
    let trap = format!("trap 'echo stopped; exit 3' TERM; {BELIEVE}");
    let mut holder = Running::start(&mut pair.lock(1, &["job", "--", "sh", "-c", &trap]));
    holder.line_with("in");
    pair.nodes[1].signal("-TERM");
    let (code, text) = holder.end();
    assert!(code == Some(76) && text.contains("stopped"), "{code:?} {text}");
    let left = pair.nodes[1].child.wait().expect("it ends");
    assert_eq!(left.code(), Some(0), "it has left in order");
    assert_eq!(pair.output(0, &["job", "--wait", "2m", "--", "true"]).0, Some(0));
}

#[test]
fn a_member_that_leaves_says_so_to_a_program_that_waits_and_to_one_that_asks() {
    let pair = Pair::start(PATIENT);
    let trap = format!("trap '' TERM; {BELIEVE}");
    let mut holder = Running::start(&mut pair.lock(1, &["job", "--", "sh", "-c", &trap]));
    holder.line_with("in");
    let waits = ["lock", "job", "--at", &pair.addrs[1], "--", "echo", "executed"];
    let waits = Running::start(limited(&mut both_outputs("timeout")).args(waits));
    let began = Instant::now();
    let is_queued = || {
        let status = elderlock(&["status", "--at", &pair.addrs[0], "--json"]).output();
        let text = String::from_utf8(status.expect("it starts").stdout).expect("text");
        text.replace(' ', "").contains("\"waiter_count\":1")
    };
    while !is_queued() {
        assert!(began.elapsed() < HANG, "it does not wait");
    }
    pair.nodes[1].signal("-TERM");
    let expected = format!(
        "elderlock: not granted: the member at {} leaves its cluster: give the address of another \
         member with --at\n",
        pair.addrs[1]
    );
    assert_eq!(waits.end(), (Some(75), expected.clone()));
    // The member is leaving until the command ends.
    assert_eq!(pair.output(1, &["other", "--", "echo", "executed"]), (Some(75), expected));
}

/// A node that serves sessions and waits for a seed, and its address.
fn joining() -> (Running, String) {
    let (addr, missing) = (free_addr(), free_addr());
    let seeds = ["--seed", &addr, "--seed", &missing, "--join-seconds", "600"];
    let args = [&["node", "--serve-sessions", "--bind", &addr][..], &seeds].concat();
    let node = Running::start(&mut elderlock(&args));
    let began = Instant::now();
    let joins = || elderlock(&["status", "--at", &addr, "--ready"]).output().expect("it starts");
    while joins().status.code() != Some(1) {
        assert!(began.elapsed() < HANG, "{:?}", joins());
    }
    (node, addr)
}

#[test]
fn a_member_that_joins_says_so_and_asks_for_no_other_start() {
    let (_node, addr) = joining();
    let output = elderlock(&["lock", "job", "--at", &addr, "--", "true"]).output();
    let Output { status, stderr, .. } = output.expect("it starts");
    let expected = format!(
        "elderlock: the process at {addr} joins and is in no view yet: ask again when it has \
         joined\n"
    );
    assert_eq!((status.code(), String::from_utf8(stderr).expect("text")), (Some(2), expected));
}

#[test]
fn a_list_of_members_goes_on_behind_one_that_joins() {
    let pair = Pair::start(PATIENT);
    let (_node, addr) = joining();
    let next = &pair.addrs[0];
    let run = |command: &[&str], at: &str, rest: &[&str]| {
        let args = [command, &["--at", at][..], rest].concat();
        let output = limited(&mut both_outputs("timeout")).args(args).output();
        let Output { status, stdout, .. } = output.expect("it starts");
        (status.code(), String::from_utf8(stdout).expect("text"))
    };
    let list = format!("{addr},{next}");
    let run = |command: &[&str], at: &str, rest: &[&str]| decided(|| run(command, at, rest));
    let joins = format!("elderlock: the process at {addr} joins and is in no view yet");
    let expected = format!("{joins}; trying {next}, at the end of the queue\nexecuted\n");
    let executed = ["--", "echo", "executed"];
    assert_eq!(run(&["lock", "job"], &list, &executed), (Some(0), expected));
    // An order, and a member that another one has to name from its view.
    let expected = format!("{joins}; trying {next}\n");
    let held = format!("{expected}no member holds a lock of default\n");
    assert_eq!(run(&["held", "default"], &list, &[]), (Some(0), held));
    let transfer = ["transfer", "default", "--to", &pair.addrs[1]];
    let (code, text) = run(&transfer, &list, &[]);
    assert!(code == Some(0) && text.starts_with(&expected), "{code:?} {text}");

    let all = format!("{addr},{addr}");
    for (command, rest) in [(&["lock", "job"][..], &executed[..]), (&["held", "default"], &[])] {
        let (code, text) = run(command, &all, rest);
        let last = format!("\n{joins}: ask again when it has joined\n");
        assert!(code == Some(2) && text.ends_with(&last), "{code:?} {text}");
    }
}

/// No connection ends when a member hangs, as when its host dies silently.
#[test]
fn a_member_that_hangs_holds_up_no_command() {
    let pair = Pair::start(QUICK);
    let limited = |name: &str, rest: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "300", env!("CARGO_BIN_EXE_elderlock"), "lock", name]);
        command.args(["--at", &pair.addrs[1]]).args(rest);
        command
    };
    let script = "echo in; read line; exit 5";
    let mut holder = limited("job", &["--", "sh", "-c", script]);
    let mut holder = Running::start(holder.stdin(Stdio::piped()));
    holder.line_with("in");
    pair.nodes[1].signal("-STOP");
    drop(holder.child.stdin.take());
    let (code, text) = holder.end();
    let waits = limited("other", &["--wait", "1s", "--", "true"]).output().expect("it starts");
    pair.nodes[1].signal("-CONT");
    // The command may end by itself before the end of its belief, or be stopped then.
    assert!(code == Some(5) || code == Some(76), "{code:?} {text}");
    assert_eq!(waits.status.code(), Some(2), "{waits:?}");
}

/// The member answers questions, so the wait may be longer than the longest silence of a member.
#[test]
fn a_request_waits_through_a_member_for_as_long_as_the_lock_is_held() {
    let pair = Pair::start(PATIENT);
    let mut holder =
        Running::start(&mut pair.lock(0, &["job", "--", "sh", "-c", "echo in; exec sleep 8"]));
    holder.line_with("in");
    let waits = ["lock", "job", "--at", &pair.addrs[1], "--", "echo", "granted"];
    let output = limited(&mut both_outputs("timeout")).args(waits).output().expect("it starts");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"granted\n"[..]));
    assert_eq!(holder.end().0, Some(0));
}

/// An order to transfer is not repeated at another member, which would become the grantor itself.
#[test]
fn an_order_waits_for_no_member_that_hangs() {
    let pair = Pair::start(QUICK);
    let mut holder =
        Running::start(&mut pair.lock(0, &["job", "--", "sh", "-c", "echo in; exec sleep 600"]));
    holder.line_with("in");
    pair.nodes[1].signal("-STOP");
    let [other, hung] = &pair.addrs;
    let list = format!("{hung},{other}");
    let run = |command: &[&str], at: &str| {
        let args = [command, &["--at", at]].concat();
        let output = limited(&mut both_outputs("timeout")).args(args).output();
        let Output { status, stdout, .. } = output.expect("it starts");
        (status.code(), String::from_utf8(stdout).expect("text"))
    };
    let why = ["why", "job"];
    let (alone, both) = (run(&why, hung), decided(|| run(&why, &list)));
    let moved = run(&["transfer", "default"], &list);
    pair.nodes[1].signal("-CONT");
    let failed = (Some(2), format!("elderlock: no answer from {hung} within 5s\n"));
    assert_eq!([alone, moved], [failed.clone(), failed]);
    assert!(both.0 == Some(0) && both.1.contains("job"), "{both:?}");
}

/// A member's room for sessions is an eighth of the files that it may open.
#[test]
fn a_member_that_holds_for_as_many_programs_as_it_may_names_the_remedy() {
    let pair = Pair::start(PATIENT);
    let full = free_addr();
    let program = env!("CARGO_BIN_EXE_elderlock");
    let script = "ulimit -n 64; exec \"$0\" \"$@\"";
    let node = ["node", "--timing", PATIENT, "--serve-sessions", "--bind", &full];
    let mut node =
        elderlock_in(script, program, &[&node[..], &["--seed", &pair.addrs[0]]].concat());
    let mut node = Running::start(&mut node);
    node.line_with("joined as");
    let holders = (0..8).map(|number| {
        let name = format!("job-{number}");
        let args = ["lock", &name, "--at", &full, "--", "sh", "-c", "echo in; exec sleep 600"];
        let mut holder = Running::start(&mut elderlock(&args));
        holder.line_with("in");
        holder
    });
    let holders: Vec<Running> = holders.collect();
    let run = |at: &str| {
        let args = ["lock", "other", "--at", at, "--", "echo", "executed"];
        let output = limited(&mut both_outputs("timeout")).args(args).output();
        let Output { status, stdout, .. } = output.expect("it starts");
        (status.code(), String::from_utf8(stdout).expect("text"))
    };
    let reason = format!(
        "elderlock: not granted: the member at {full} holds locks for as many programs as it may"
    );
    let remedy = "ask again later, or give the address of another member with --at";
    assert_eq!(run(&full), (Some(75), format!("{reason}: {remedy}\n")));
    let next = &pair.addrs[0];
    let expected = format!("{reason}; trying {next}, at the end of the queue\nexecuted\n");
    assert_eq!(run(&format!("{full},{next}")), (Some(0), expected));
    drop(holders);
}

/// An upgrade of the package replaces the program in this way.
#[test]
fn a_command_runs_although_the_program_was_replaced_meanwhile() {
    let pair = Pair::start(PATIENT);
    let script = "echo in; read line";
    let mut holder = pair.lock(0, &["job", "--", "sh", "-c", script]);
    let mut holder = Running::start(holder.stdin(Stdio::piped()));
    holder.line_with("in");
    let copy = std::env::temp_dir().join(format!("elderlock-copy-{}", std::process::id()));
    // Another process writes the copy. A child that another thread starts meanwhile would inherit
    // this process's open file, and a file that is open for writing cannot be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_elderlock")).arg(&copy).status();
    assert!(copied.expect("cp is there").success(), "there is room");
    let mut waits = both_outputs(copy.to_str().expect("text"));
    // The command prints that it waits, because no member is at the first address.
    let list = format!("{},{}", free_addr(), pair.addrs[1]);
    let mut waits = Running::start(waits.args(["lock", "job", "--at", &list, "--", "echo", "in"]));
    waits.line_with("at the end of the queue");
    std::fs::remove_file(&copy).expect("it is there");
    drop(holder.child.stdin.take());
    assert_eq!(waits.end(), (Some(0), "in\n".to_owned()));
}

#[test]
fn a_request_without_a_limit_waits_for_no_member_that_hangs() {
    let pair = Pair::start(QUICK);
    pair.nodes[1].signal("-STOP");
    let list = pair.addrs.iter().rev().map(String::as_str).collect::<Vec<_>>().join(",");
    let through = |at: &str| {
        let args = ["lock", "job", "--at", at, "--", "echo", "executed"];
        let output = limited(&mut both_outputs("timeout")).args(args).output();
        let Output { status, stdout, .. } = output.expect("it starts");
        (status.code(), String::from_utf8(stdout).expect("text"))
    };
    let alone = through(&pair.addrs[1]);
    let both = through(&list);
    pair.nodes[1].signal("-CONT");
    let reason = format!("no answer from {} within 5s", pair.addrs[1]);
    assert_eq!(alone, (Some(2), format!("elderlock: {reason}\n")));
    let next = &pair.addrs[0];
    let expected =
        format!("elderlock: {reason}; trying {next}, at the end of the queue\nexecuted\n");
    assert_eq!(both, (Some(0), expected));
}

#[test]
fn the_text_of_a_holder_names_its_user_and_program_unless_it_gives_one() {
    let pair = Pair::start(PATIENT);
    // An argument may be a secret.
    let command = ["--", "sh", "-c", "echo in; exec sleep 600 # secret"];
    let text_of = |name: &str, more: &[&str]| {
        let args = [&[name], more, &command[..]].concat();
        let mut holder = Running::start(pair.lock(0, &args).env("USER", "ann\u{9b}\n"));
        holder.line_with("in");
        let (mut texts, at) = (Vec::new(), &pair.addrs[1]);
        for args in [&["why", name, "--at", at][..], &["held", "default", "--at", at]] {
            let (_, text) = decided(|| outcome(&mut elderlock(args)));
            let line = text.lines().find(|line| line.contains(name)).unwrap_or_default();
            texts.push(line.split_once(" (").map_or("", |(_, text)| text).to_owned());
        }
        let (_, json) = decided(|| outcome(&mut elderlock(&["why", name, "--json", "--at", at])));
        let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        let metadata = value["holders"][0]["metadata"].as_str().expect("text").to_owned();
        (holder.child.id(), texts, metadata)
    };
    let host = Command::new("uname").arg("-n").output().expect("it starts").stdout;
    let host = String::from_utf8(host).expect("text");
    let (pid, texts, metadata) = text_of("job", &[]);
    let expected = format!("ann\u{9b}\n@{}, pid {pid}: sh", host.trim());
    assert_eq!(metadata, expected);
    for text in texts {
        assert_eq!(text.trim_end_matches(')'), expected.escape_debug().to_string());
    }
    let (_, texts, metadata) = text_of("other", &["--metadata", "till 3"]);
    assert!(metadata == "till 3" && texts.iter().all(|text| text == "till 3)"), "{texts:?}");
    let (_, _, metadata) = text_of("nothing", &["--metadata", ""]);
    assert_eq!(metadata, "");

    // The default metadata leaves room for a long lock name.
    let name = "n".repeat(3900);
    let (code, text) = pair.output(0, &[&name, "--", "true"]);
    assert_eq!((code, text.as_str()), (Some(0), ""));
}

#[test]
fn a_command_that_is_stopped_is_no_success() {
    let pair = Pair::start(PATIENT);
    let script = "trap 'exit 0' TERM; while :; do sleep 0.02; done";
    let (code, text) = pair.output(0, &["job", "--lease", "5s", "--", "sh", "-c", script]);
    assert!(code == Some(76) && text.contains("lost"), "{code:?} {text}");
}

#[test]
fn a_lock_whose_lease_ends_says_so_and_blames_no_member() {
    let pair = Pair::start(PATIENT);
    let (code, text) = pair.output(0, &["job", "--lease", "2s", "--", "sleep", "60"]);
    assert!(code == Some(76) && text.contains("its lease of 2 s is over"), "{code:?} {text}");
}

/// The command ends before the member has lost the lock. So only the program can tell that it was
/// stopped, and why.
#[test]
fn a_lock_whose_command_is_stopped_is_logged_as_lost_by_its_member() {
    let (first, second) = (free_addr(), free_addr());
    let node = |addr: &str, rest: &[&str]| {
        let args = ["node", "--timing", QUICK, "--serve-sessions", "--bind", addr];
        let mut command = both_outputs(env!("CARGO_BIN_EXE_elderlock"));
        let mut node = Running::start(command.args(args).args(rest));
        node.line_with("joined as");
        node
    };
    let elder = node(&first, &["--found"]);
    let mut member = node(&second, &["--seed", &first]);
    let lock = ["lock", "--at", &second, "job"];
    let lease = [&lock[..], &["--lease", "2s", "--", "sleep", "60"]].concat();
    let (code, text) = outcome(&mut elderlock(&lease));
    assert!(code == Some(76) && text.contains("its lease of 2 s is over"), "{code:?} {text}");
    let line = member.line_with("WARN lock lost");
    assert!(line.contains("reason=lease_ended"), "{line}");

    let script = ["--", "sh", "-c", "echo in; exec sleep 600"];
    let mut holds = both_outputs(env!("CARGO_BIN_EXE_elderlock"));
    let mut holds = Running::start(holds.args(lock).args(script));
    holds.line_with("in");
    // Of two members the elder alone is a quorum, and the other one is not.
    elder.signal("-STOP");
    let (code, text) = holds.end();
    assert!(code == Some(76) && text.contains("did not confirm the lock"), "{code:?} {text}");
    // If this host is slow, the member loses the lock before it is told.
    let line = member.line_with("WARN lock lost");
    let reasons = ["reason=session_ended", "reason=suspended"];
    assert!(reasons.iter().any(|reason| line.contains(reason)), "{line}");
}

/// Of two members the elder is stopped, so the other one has no quorum.
#[test]
fn orders_at_a_suspended_member_name_its_suspension() {
    let pair = Pair::start(QUICK);
    let at = &*pair.addrs[1];
    let used = pair.output(1, &["job", "--", "true"]);
    assert_eq!(used, (Some(0), String::new()));
    pair.nodes[0].signal("-STOP");
    let began = Instant::now();
    while outcome(&mut elderlock(&["status", "--ready", "--at", at])).0 != Some(1) {
        assert!(began.elapsed() < HANG, "it is never suspended");
    }
    let lock = ["lock", "job", "--at", at, "--wait", "1s", "--", "true"];
    let held = ["held", "default", "--at", at];
    let why = ["why", "job", "--at", at];
    let revoke = ["revoke", "job", "--at", at];
    let transfer = ["transfer", "default", "--to", at, "--at", at];
    for (args, code) in
        [(&lock[..], 75), (&held[..], 2), (&why[..], 2), (&revoke[..], 2), (&transfer[..], 2)]
    {
        let (ended, text) = outcome(&mut elderlock(args));
        let is_told = text.contains("this member is suspended, as it has no quorum");
        assert!(ended == Some(code) && is_told, "{args:?}: {ended:?} {text}");
    }
}

#[test]
fn a_member_that_serves_no_sessions_says_how_to_change_that() {
    let addr = free_addr();
    let mut node =
        Running::start(&mut elderlock(&["node", "--timing", "fast", "--found", "--bind", &addr]));
    node.line_with("joined as");
    let output = elderlock(&["lock", "job", "--at", &addr, "--", "true"]).output();
    let Output { status, stderr, .. } = output.expect("it can be started");
    let text = String::from_utf8(stderr).expect("text");
    assert!(status.code() == Some(2) && text.contains("start it with --serve-sessions"), "{text}");
    assert!(!text.contains("serve_sessions"), "{text}");
    let output = elderlock(&["lock", "job", "--at", &free_addr(), "--", "true"]).output();
    assert_eq!(output.expect("it can be started").status.code(), Some(2));
}

#[test]
fn fifty_programs_at_once_change_no_quorum_and_take_turns() {
    let pair = Pair::start(PATIENT);
    let file =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fifty-{}", std::process::id()));
    // A killed process with this number may have left its own.
    let _ = std::fs::remove_file(&file);
    let path = file.display().to_string();
    let began = Instant::now();
    let voters = || loop {
        let (code, text) = outcome(&mut elderlock(&["members", "--at", &pair.addrs[0]]));
        if code == Some(0) {
            break text.matches("council").count();
        }
        assert!(began.elapsed() < HANG, "{code:?} {text}");
    };
    // The second member has joined, and is promoted to a vote soon.
    while voters() != 2 {
        assert!(began.elapsed() < HANG, "{} of two members vote", voters());
    }
    // Without the lock two commands would read the same number.
    let add = format!("n=$(cat {path} 2>/dev/null || echo 0); sleep 0.005; echo $((n+1)) > {path}");
    let programs: Vec<Running> = (0..50)
        .map(|number| {
            let args = ["job", "--wait", "600s", "--", "sh", "-c", &add];
            Running::start(&mut pair.lock(number % 2, &args))
        })
        .collect();
    assert_eq!(voters(), 2);
    for program in programs {
        assert_eq!(program.end().0, Some(0));
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it was written").trim(), "50");
    let _ = std::fs::remove_file(file);
}
