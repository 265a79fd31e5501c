//! The report of a failure: a page of HTML with the shrunk run, and its folder.

use crate::chaos::ChaosFailure;
use crate::drawing::diagram::duration;
use crate::drawing::drawn_run::{DrawnRun, Span};
use crate::drawing::page::{about, command, escape, facts, grouped, headline, page as whole};
use crate::drawing::{draw, tell_needed_faults};
use crate::fault_plan::PlannedFault;
use crate::run_record::RecordedRun;
use std::convert::Infallible;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{env, fs, thread};

/// The name of the folder in cargo's target directory.
const FOLDER: &str = "elderlock-testing";

/// The most characters of a file's name without its seed.
const LONGEST_NAME: usize = 120;

/// The width of a diagram, in pixels.
const WIDTH: i64 = 1_080;

/// The time shown around the faults, and around the end of the last fault, in nanoseconds.
const AROUND: u64 = 1_500_000_000;

/// The number of lines beyond which a story is folded.
const FOLDED: usize = 150;

/// The place of reports.
#[derive(Clone, Debug)]
pub(crate) enum ReportFolder {
    /// Reports are in cargo's target directory.
    Default,
    At(PathBuf),
    Nowhere,
}

impl FromStr for ReportFolder {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ReportFolder, Infallible> {
        Ok(if text == "none" { ReportFolder::Nowhere } else { ReportFolder::At(text.into()) })
    }
}

impl ReportFolder {
    /// Writes the page of a seed and returns its path. `Err` is the reason why it was not written;
    /// empty if none was wanted.
    pub(crate) fn write(self, seed: u64, page: &str) -> Result<PathBuf, String> {
        let program = env::current_exe().unwrap_or_default();
        let folder = match self {
            ReportFolder::Default => target(&program).join(FOLDER),
            ReportFolder::At(folder) => folder,
            ReportFolder::Nowhere => return Err(String::new()),
        };
        let file = folder.join(file_name(&program, test().as_deref(), seed));
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&file, page))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    }
}

/// Cargo's target directory. It has the program at `debug/deps/program`. For a program elsewhere,
/// such as a doctest, it is the one below the current directory.
fn target(program: &Path) -> PathBuf {
    let deps = program.parent().filter(|folder| folder.ends_with("deps"));
    let target = deps.and_then(Path::parent).and_then(Path::parent);
    target.map_or_else(|| PathBuf::from("target"), Path::to_path_buf)
}

/// The name of the running test: the name of its thread, or else of the one test that the program
/// was ordered to run.
fn test() -> Option<String> {
    if let Some(name) = thread::current().name().filter(|name| *name != "main") {
        return Some(name.to_owned());
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let is_one = arguments.iter().any(|argument| argument == "--exact");
    arguments.into_iter().find(|argument| is_one && !argument.starts_with('-'))
}

/// The name of the file. Two tests that fail at one seed have different files.
fn file_name(program: &Path, test: Option<&str>, seed: u64) -> String {
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a hash to the program's name.
    let is_hash = |end: &str| end.len() == 16 && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    let program = match program.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash) => name,
        _ => &program,
    };
    let name = test.map_or_else(|| program.to_owned(), |test| format!("{program}-{test}"));
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_".contains(*letter);
    let name: String = name
        .chars()
        .map(|letter| if is_plain(&letter) { letter } else { '-' })
        .take(LONGEST_NAME)
        .collect();
    format!("{name}-{seed}.html")
}

/// The page of a failure and of its shrunk run.
pub(crate) fn page(failure: &ChaosFailure, record: &RecordedRun) -> String {
    let run = &record.run;
    let (seed, why) = (failure.seed(), failure.reason());
    let first = why.lines().next().unwrap_or_default();
    let mut body = String::new();
    headline(&mut body, "bad", "Failed:", first);
    if first != why {
        let _ = write!(body, "<pre>{}</pre>", escape(why));
    }
    if let Some(place) = failure.place() {
        let _ = write!(body, "<p class=\"soft\">at {}</p>", escape(place));
    }
    let (all, needed) = (failure.drawn_faults(), failure.faults());
    facts(
        &mut body,
        &[
            (seed.to_string(), "seed"),
            (run.sites().to_string(), "members"),
            (format!("{} of {}", needed.len(), all.len()), "faults it takes"),
            (duration(run.end), "into the run"),
        ],
    );
    command(&mut body, &failure.command());
    if !failure.repeats() {
        body.push_str(
            "<p class=\"soft\">The same seed went another way when it was repeated: the program \
             has a chance of its own.</p>",
        );
    }
    draw(&mut body, run, &windows(run), &[], WIDTH);
    if record.forgotten > 0 {
        let count = grouped(record.forgotten as u64);
        let _ = write!(body, "<p class=\"soft\">Without the first {count} holds that ended.</p>");
    }
    tell_faults(&mut body, all, needed, record.begun);
    tell_story(&mut body, failure.story());
    whole(&format!("seed {seed} failed: {first}"), &body)
}

fn tell_faults(out: &mut String, all: &[PlannedFault], needed: &[usize], begun: u64) {
    let rows = |is_needed: bool| {
        let these = all.iter().filter(|fault| needed.contains(&fault.number) == is_needed);
        these.map(|fault| row(fault, begun)).collect()
    };
    tell_needed_faults(out, rows(true), rows(false), "None: the programs alone are enough.");
}

fn row(fault: &PlannedFault, begun: u64) -> Vec<String> {
    vec![
        fault.number.to_string(),
        about(begun + fault.at.as_nanos() as u64),
        about(fault.lasts.as_nanos() as u64),
        fault.fault.to_string(),
    ]
}

fn tell_story(out: &mut String, story: &str) {
    let lines = story.lines().count();
    let open = if lines > FOLDED { "" } else { " open" };
    let (lines, story) = (grouped(lines as u64), escape(story));
    let _ = write!(
        out,
        "<h2>The story</h2><details{open}><summary>{lines} lines</summary><pre>{story}</pre>\
         </details>"
    );
}

/// The windows of the diagram: the whole run, its faults, and the end of the last fault. A process
/// that resumes there may still believe in its hold.
fn windows(run: &DrawnRun) -> Vec<(String, Span)> {
    let around = |span: Span| Span {
        from: span.from.saturating_sub(AROUND),
        until: (span.until + AROUND).min(run.end.max(1)),
    };
    let mut windows = vec![("the whole run".to_owned(), Span { from: 0, until: run.end.max(1) })];
    let first = run.faults.iter().map(|fault| fault.span.from).min();
    let last = run.faults.iter().max_by_key(|fault| fault.span.until);
    if let (Some(from), Some(last)) = (first, last) {
        let until = last.span.until;
        windows.push(("the faults".to_owned(), around(Span { from, until })));
        windows.push(("the last fault ends".to_owned(), around(Span { from: until, until })));
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_names_of_program_and_test_and_the_seed() {
        let program = Path::new("/shop/target/debug/deps/sales-0123456789abcdef");
        assert_eq!(target(program), Path::new("/shop/target"));
        assert_eq!(
            file_name(program, Some("a::sale is <once>"), 7),
            "sales-a--sale-is--once--7.html"
        );
        assert_eq!(file_name(program, None, 8), "sales-8.html");
        let doctest = Path::new("/tmp/rustdoctest/rust-out");
        assert_eq!(target(doctest), Path::new("target"));
        assert_eq!(file_name(doctest, None, 9), "rust-out-9.html");
        let long = "x".repeat(500);
        assert_eq!(file_name(doctest, Some(&long), 1).len(), LONGEST_NAME + "-1.html".len());
    }
}
