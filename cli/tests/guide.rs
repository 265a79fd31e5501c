//! The command lines of the guide, carried out as they stand: in the order of the text, in an empty
//! directory, with running members.
//! Each block begins without members. Members of consecutive lines start together. Only addresses
//! are changed to those of this machine. Lines that need something that a test lacks are listed in
//! [`NOT_RUN`] with the reason, and `deploy.rs` checks their flags.
#![cfg(target_os = "linux")]

#[path = "support/running.rs"]
mod running;

use running::Running;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines with this beginning are not carried out, for this reason.
const NOT_RUN: [(&str, &str); 5] = [
    ("kubectl ", "there is no Kubernetes; deploy.rs runs those that ask a member"),
    ("docker ", "there is no Docker; `.ci/run full` runs the file of the image"),
    ("elderlock lock nightly-report --cluster ", "deploy.rs runs it beside the pods that it names"),
    ("ELDERLOCK_FENCE_COST=", "it is a test itself"),
    ("elderlock demo", "it takes both processors for long; `.ci/run demo` runs it"),
];

/// The blocks of shell commands, without comments. A continued line is one line.
fn blocks(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !["```sh", "```console"].contains(&line.trim_end()) {
            continue;
        }
        let mut block = Vec::new();
        let mut command = String::new();
        for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
            match line.strip_suffix('\\') {
                Some(begin) => command.push_str(begin),
                None => {
                    command.push_str(line.split(" #").next().unwrap_or_default().trim_end());
                    let command = std::mem::take(&mut command);
                    block.push(command.replace("cargo run --release -- ", "elderlock "));
                }
            }
        }
        found.push(block);
    }
    found
}

/// The directory in which the lines are carried out, and the addresses of this run.
struct Place {
    dir: PathBuf,
    /// The first three parts of all addresses. Each run of this test has others.
    net: String,
    /// An offset of the last part, so that no two places share an address.
    first: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new(name: &str) -> Place {
        let id = std::process::id();
        let dir = std::env::temp_dir().join(format!("elderlock-guide-{id}-{name}"));
        std::fs::create_dir_all(&dir).expect("it can be made");
        let program = dir.join("bin");
        std::fs::create_dir_all(&program).expect("it can be made");
        symlink(env!("CARGO_BIN_EXE_elderlock"), program.join("elderlock")).expect("it is new");
        // A replacement for the command of the example.
        let report = dir.join("report.sh");
        std::fs::write(&report, "#!/bin/sh\necho \"token $ELDERLOCK_TOKEN\"\n").expect("text");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&report, mode).expect("it is ours");
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = 8 * (NEXT.fetch_add(1, Ordering::Relaxed) % 31);
        Place { dir, net: format!("127.{}.{}", 1 + (id >> 8) % 250, id % 256), first }
    }

    /// A command that runs the line in a shell. The shell's process becomes the last command of the
    /// line.
    fn shell(&self, line: &str) -> Command {
        let line = line
            .replace("127.0.0.1", &self.addr(1))
            .replace("127.0.0.2", &self.addr(2))
            .replace("127.0.0.3", &self.addr(3))
            .replace("10.0.0.5", &self.addr(5));
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).current_dir(&self.dir);
        shell.env_clear().stdin(Stdio::null());
        shell.env("PATH", format!("{}:/usr/bin:/bin", self.dir.join("bin").display()));
        shell
    }

    fn addr(&self, number: u32) -> String {
        format!("{}.{}", self.net, self.first + number)
    }

    /// Starts a member, and waits until it has joined.
    fn node(&self, line: &str) -> Running {
        let mut node = Running::start(&mut self.shell(&format!("exec {line}")));
        node.line_with("joined as");
        node
    }

    /// Starts members that may wait for each other, after these exports. Returns each with its
    /// line.
    fn nodes(&self, exports: &str, lines: &[&String]) -> Vec<(String, Running)> {
        let start = |line: &&String| {
            let line = line.to_string();
            let node = Running::start(&mut self.shell(&format!("{exports}exec {line}")));
            (line, node)
        };
        let mut nodes: Vec<_> = lines.iter().map(start).collect();
        nodes.iter_mut().for_each(|(_, node)| drop(node.line_with("joined as")));
        nodes
    }

    /// Carries the lines out. Returns the number of lines.
    fn carry_out(&self, block: &[String]) -> usize {
        let is_run = |line: &&String| !NOT_RUN.iter().any(|(begin, _)| line.starts_with(begin));
        let lines: Vec<&String> =
            block.iter().filter(|line| !line.is_empty()).filter(is_run).collect();
        let mut members: Vec<(String, Running)> = Vec::new();
        let mut others = Vec::new();
        let mut exports = String::new();
        let is_node = |line: &str| line.starts_with("elderlock node ");
        let starts_members = lines.iter().any(|line| is_node(line));
        if lines.iter().any(|line| line.contains(" --at ")) && !starts_members {
            // The text assumes a running member.
            let line = "elderlock node --serve-sessions --bind 127.0.0.1:7400 --found";
            others.push(self.node(line));
        }
        for lines_of_one_kind in lines.chunk_by(|one, next| is_node(one) && is_node(next)) {
            let line = lines_of_one_kind[0];
            if line.starts_with("export ") {
                exports += &format!("{line}; ");
                continue;
            }
            assert!(
                line.starts_with("elderlock "),
                "a test has to run this or say why not: {line}"
            );
            if is_node(line) {
                members.extend(self.nodes(&exports, lines_of_one_kind));
                if lines.iter().any(|line| line.contains(" revoke ")) {
                    others.extend(self.others());
                }
            } else if line.ends_with(" --watch") {
                // The command runs for ever. Two outputs show that it asks again.
                let watch = format!("{exports}exec {line}");
                let mut watch = Running::start(&mut self.shell(&watch));
                watch.line_with("member   ");
                watch.line_with("member   ");
            } else {
                // A guard against hangs, far above the time of any step here.
                let limited = format!("{exports}exec timeout -k 1 120 {line}");
                let output = self.shell(&limited).output().expect("it starts");
                assert!(output.status.success(), "{line}: {output:?}");
                if let Some((_, at)) = line.split_once(" leave --at ") {
                    // The text says to wait for the end of the member's process.
                    let bind = format!("--bind {at} ");
                    let at = members.iter().position(|(line, _)| line.contains(&bind));
                    if let Some((_, mut left)) = at.map(|at| members.remove(at)) {
                        assert!(left.child.wait().expect("it ends").success(), "{line}");
                    }
                }
            }
        }
        lines.len()
    }

    /// The second member of the text, and a program that holds the lock of the text through that
    /// member.
    fn others(&self) -> [Running; 2] {
        let member = "elderlock node --name pod-2 --bind 127.0.0.2:7400 --seed 127.0.0.1:7400 \
                      --serve-sessions --allow-forced-revokes";
        let member = self.node(member);
        let hold = "exec elderlock lock sku-42 --service inventory --at 127.0.0.2:7400 -- \
                    sh -c 'echo in; exec sleep 600'";
        let mut holder = Running::start(&mut self.shell(hold));
        holder.line_with("in");
        [member, holder]
    }
}

fn guide() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    let pages = std::fs::read_dir(folder).expect("it is there").map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("text"))
    });
    pages.collect()
}

#[test]
fn every_command_line_of_the_guide_does_what_the_text_says() {
    let mut count = 0;
    for (name, text) in guide() {
        for (number, block) in blocks(&text).iter().enumerate() {
            let place = Place::new(&format!("{name}-{number}"));
            let begun = count;
            count += place.carry_out(block);
            println!("{name}, block {number}: {} lines carried out", count - begun);
        }
    }
    assert!(count >= 15, "only {count} lines");
    for (begin, why) in NOT_RUN {
        let is_there = guide()
            .iter()
            .flat_map(|(_, text)| blocks(text))
            .flatten()
            .any(|line| line.starts_with(begin));
        assert!(is_there, "no line begins with {begin:?} any more ({why}): leave it out");
    }
}

#[test]
fn failing_lines_and_unknown_lines_are_found() {
    let fails = |text: &str| {
        let place = Place::new("wrong");
        let [block] = <[Vec<String>; 1]>::try_from(blocks(text)).expect("one block");
        std::panic::catch_unwind(|| place.carry_out(&block)).is_err()
    };
    // No member has that service.
    assert!(fails("```sh\nelderlock held --at 127.0.0.1:7400 invntory # its holds\n```"));
    assert!(fails("```sh\npsql -c 'SELECT 1'\n```"));
    assert!(!fails("```sh\nelderlock status --at \\\n    127.0.0.1:7400\nkubectl get pods\n```"));
    assert!(!fails("```console\nelderlock keygen --out cluster.key\n```\n`elderlock x`"));
}
