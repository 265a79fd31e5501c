//! Reports for people: one self-contained page of HTML for a run, or for a batch of runs. Written
//! by hand.

mod batch;
mod run_builder;
mod words;

pub use batch::{BatchReport, ConvergenceTime, Gallery, held, of_batch, timed};
pub use elderlock_testing::drawing::page::{about, grouped};
pub use words::meaning;

use crate::record::Record;
use elderlock_testing::drawing::diagram::duration;
use elderlock_testing::drawing::drawn_run::{DrawnRun, FaultBand, Span};
use elderlock_testing::drawing::page::{command, escape, facts, page, table, verdict};
use elderlock_testing::drawing::past::past;
use elderlock_testing::drawing::{FAULT_HEAD, draw, tell_needed_faults};
use run_builder::drawn;
use std::fmt::Write;

/// How wide a diagram is, in pixels.
const WIDTH: i64 = 1_120;

/// A fault, before and after shrinking.
#[derive(Clone, Debug)]
pub struct ReportedFault {
    /// Its number in the plan.
    pub number: usize,
    /// When it begins, in nanoseconds.
    pub at: u64,
    /// How long it lasts.
    pub lasts: u64,
    /// Its description.
    pub words: String,
    /// Whether the violation needs this fault.
    pub needed: bool,
}

/// One run and where it came from.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The record of the run.
    pub record: Record,
    /// The source of the run: "seed 7", the name of a file.
    pub source: String,
    /// The World in words.
    pub setting: String,
    /// The break that was planted in the core, if one was.
    pub planted: Option<String>,
    /// All faults of the plan; empty if they are not known.
    pub faults: Vec<ReportedFault>,
    /// How many steps of clients and faults the violation needs, and how many there were. `None` if
    /// nothing was shrunk.
    pub steps: Option<(usize, usize)>,
    /// The steps as a script.
    pub script: String,
    /// The command that repeats the run.
    pub replay: Option<String>,
}

/// The violation of a recorded run, in plain words.
pub fn breach(record: &Record) -> Option<String> {
    drawn(record).breach.map(|breach| breach.words)
}

/// The page of one run.
pub fn of_run(case: &Case) -> String {
    let run = drawn(&case.record);
    let mut body = String::new();
    let title = match &run.breach {
        Some(breach) => {
            let (_, broken) = words::meaning(&breach.invariant);
            verdict(
                &mut body,
                false,
                &format!("{broken}."),
                &format!("{}: {}", breach.invariant, breach.words),
            );
            format!("Broken: {broken}")
        }
        None => {
            verdict(&mut body, true, "nothing broke in this run.", "");
            "Held".to_string()
        }
    };
    let needed = case.faults.iter().filter(|fault| fault.needed).count();
    let mut figures =
        vec![(case.source.clone(), "run"), (run.drawn_sites.len().to_string(), "members")];
    if !case.faults.is_empty() {
        figures.push((format!("{} of {}", needed, case.faults.len()), "faults it takes"));
    }
    if let Some((needed, all)) = case.steps {
        figures.push((
            format!("{} of {}", grouped(needed as u64), grouped(all as u64)),
            "steps it takes",
        ));
    }
    if let Some(breach) = &run.breach {
        figures.push((duration(breach.at), "into the run"));
    }
    if let Some(planted) = &case.planted {
        figures.push((planted.clone(), "planted in the core"));
    }
    facts(&mut body, &figures);
    if let Some(replay) = &case.replay {
        command(&mut body, replay);
    }
    draw_run(&mut body, &run);
    tell_faults(&mut body, &run, case);
    if !case.script.is_empty() {
        let script = escape(&case.script);
        let _ = write!(
            body,
            "<h2>The steps</h2><details><summary>all of them</summary><pre>{script}</pre></details>"
        );
    }
    if !case.setting.is_empty() {
        let _ = write!(body, "<h2>The World</h2><p class=\"soft\">{}</p>", escape(&case.setting));
    }
    page(&title, &body)
}

fn tell_faults(out: &mut String, run: &DrawnRun, case: &Case) {
    if !case.faults.is_empty() {
        let rows = |is_needed: bool| {
            let these = case.faults.iter().filter(|fault| fault.needed == is_needed);
            these.map(planned_row).collect()
        };
        tell_needed_faults(out, rows(true), rows(false), "None: clients alone are enough.");
    } else if !run.faults.is_empty() {
        out.push_str("<h2>Faults</h2>");
        let row = |fault: &FaultBand| {
            vec![
                fault.number.map(|number| number.to_string()).unwrap_or_default(),
                about(fault.span.from),
                about(fault.span.until - fault.span.from),
                fault.words(run.drawn_sites.len()),
            ]
        };
        table(out, &FAULT_HEAD, run.faults.iter().map(row));
    }
}

fn planned_row(fault: &ReportedFault) -> Vec<String> {
    vec![fault.number.to_string(), about(fault.at), about(fault.lasts), fault.words.clone()]
}

/// The diagram at up to three scales, and its key.
fn draw_run(out: &mut String, run: &DrawnRun) {
    let past = past(run);
    draw(out, run, &windows(run, &past), &past, WIDTH);
}

/// The windows of the diagrams: the whole run, the causes of the break, and its last moments.
fn windows(run: &DrawnRun, past: &[usize]) -> Vec<(String, Span)> {
    let whole = ("the whole run".to_string(), Span { from: 0, until: run.end.max(1) });
    let Some(breach) = &run.breach else {
        let healing = run.heal.filter(|heal| *heal < run.end);
        let healing =
            healing.map(|heal| Span { from: heal.saturating_sub(heal / 20), until: run.end });
        return [Some(whole), healing.map(|span| ("the healing".to_string(), span))]
            .into_iter()
            .flatten()
            .collect();
    };
    let clashes = breach.lock.as_deref().map(|lock| run.clashes(lock)).unwrap_or_default();
    let held = clashes.iter().filter_map(|(index, _)| run.holds[*index].got);
    let faults = run
        .faults
        .iter()
        .rev()
        .filter(|fault| fault.span.from <= breach.at)
        .take(3)
        .map(|fault| fault.span.from);
    let earliest =
        held.chain(faults).min().unwrap_or_else(|| breach.at.saturating_sub(3_000_000_000));
    let from = earliest
        .max(breach.at.saturating_sub(15_000_000_000))
        .min(breach.at.saturating_sub(20_000_000));
    let from = from.saturating_sub((breach.at - from) / 12);
    let mut sent: Vec<u64> = past.iter().map(|index| run.flights[*index].sent).collect();
    sent.sort_unstable();
    let near = sent.iter().rev().nth(9).or(sent.first()).copied().unwrap_or(breach.at);
    let near = near.clamp(
        breach.at.saturating_sub((breach.at - from) / 3),
        breach.at.saturating_sub(3_000_000),
    );
    let near = near.saturating_sub((breach.at - near) / 12);
    let last = |from: u64| Span { from, until: breach.at };
    vec![
        whole,
        (format!("the last {}", about(breach.at - from)), last(from)),
        (format!("the last {}", about(breach.at - near)), last(near)),
    ]
}
