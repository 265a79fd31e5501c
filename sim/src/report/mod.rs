//! Reports for people: one self-contained page of HTML for a run, or for a batch of runs. Written
//! by hand.

mod batch;
mod diagram;
mod labels;
mod page;
mod past;
mod story;
mod words;

pub use batch::{BatchReport, Gallery, Heal, held, of_batch, timed};
pub use page::{about, grouped};
pub use words::meaning;

use crate::record::Record;
use diagram::{DiagramFrame, duration};
use page::{command, facts, page, table, verdict};
use std::fmt::Write;
use story::{Span, Story};

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
    /// Where the run came from: "seed 7", the name of a file.
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
    /// Those steps, to be read.
    pub script: String,
    /// The command that runs it again.
    pub replay: Option<String>,
}

/// The violation of a recorded run, in plain words.
pub fn breach(record: &Record) -> Option<String> {
    Story::of(record).breach.map(|breach| breach.words)
}

/// The page of one run.
pub fn of_run(case: &Case) -> String {
    let story = Story::of(&case.record);
    let mut body = String::new();
    let title = match &story.breach {
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
        vec![(case.source.clone(), "run"), (story.lanes.len().to_string(), "members")];
    if !case.faults.is_empty() {
        figures.push((format!("{} of {}", needed, case.faults.len()), "faults it takes"));
    }
    if let Some((needed, all)) = case.steps {
        figures.push((
            format!("{} of {}", grouped(needed as u64), grouped(all as u64)),
            "steps it takes",
        ));
    }
    if let Some(breach) = &story.breach {
        figures.push((duration(breach.at), "into the run"));
    }
    if let Some(planted) = &case.planted {
        figures.push((planted.clone(), "planted in the core"));
    }
    facts(&mut body, &figures);
    if let Some(replay) = &case.replay {
        command(&mut body, replay);
    }
    draw(&mut body, &story);
    tell_faults(&mut body, &story, case);
    if !case.script.is_empty() {
        let script = page::escape(&case.script);
        let _ = write!(
            body,
            "<h2>The steps</h2><details><summary>all of them</summary><pre>{script}</pre></details>"
        );
    }
    if !case.setting.is_empty() {
        let _ =
            write!(body, "<h2>The World</h2><p class=\"soft\">{}</p>", page::escape(&case.setting));
    }
    page(&title, &body)
}

fn tell_faults(out: &mut String, story: &Story, case: &Case) {
    let head = ["#fault", "#at", "#for", "kind"];
    let row = |fault: &ReportedFault| {
        vec![fault.number.to_string(), about(fault.at), about(fault.lasts), fault.words.clone()]
    };
    let (needed, rest): (Vec<&ReportedFault>, Vec<&ReportedFault>) =
        case.faults.iter().partition(|fault| fault.needed);
    if case.faults.is_empty() {
        if !story.faults.is_empty() {
            out.push_str("<h2>Faults</h2>");
            let words = |fault: &story::FaultBand| fault.words(story.lanes.len());
            table(
                out,
                &head,
                story.faults.iter().map(|fault| {
                    let lasts = fault.span.until - fault.span.from;
                    vec![
                        fault.number.to_string(),
                        about(fault.span.from),
                        about(lasts),
                        words(fault),
                    ]
                }),
            );
        }
        return;
    }
    let _ = write!(out, "<h2>Faults that it takes</h2>");
    match needed.is_empty() {
        true => out.push_str("<p class=\"soft\">None: clients alone are enough.</p>"),
        false => table(out, &head, needed.into_iter().map(row)),
    }
    if !rest.is_empty() {
        let _ = write!(out, "<details><summary>{} that were taken out</summary>", rest.len());
        table(out, &head, rest.into_iter().map(row));
        out.push_str("</details>");
    }
}

/// The diagram at up to three scales, and its key.
fn draw(out: &mut String, story: &Story) {
    let past = past::past(story);
    let windows = windows(story, &past);
    let first = usize::from(windows.len() > 2);
    let end = if story.breach.is_some() { " data-end" } else { "" };
    let _ =
        write!(out, "<div class=\"diagram\"{end}><div class=\"controls\"><span class=\"tabs\">");
    for (level, (name, _)) in windows.iter().enumerate() {
        let checked = if level == first { " checked" } else { "" };
        let name = page::escape(name);
        let _ = write!(
            out,
            "<label><input type=\"radio\" name=\"level\" \
             id=\"level-{level}\"{checked}>{name}</label>"
        );
    }
    out.push_str("</span>");
    if !story.flights.is_empty() {
        out.push_str("<label><input type=\"checkbox\" id=\"all\"> all messages</label>");
    }
    out.push_str("</div>");
    key(out, story);
    for (level, (_, window)) in windows.iter().enumerate() {
        let named = story.breach.is_some() && level + 1 == windows.len();
        // Messages that the next picture shows as arrows would be a blot in this one.
        let blot = windows.get(level + 1).map_or(u64::MAX, |(_, next)| next.from);
        let shown: Vec<usize> = past
            .iter()
            .copied()
            .filter(|index| story.flights[*index].sent + (window.until - window.from) / 40 < blot)
            .collect();
        let shown: &[usize] = if level == 0 { &[] } else { &shown };
        let frame = DiagramFrame { story, window: *window, width: WIDTH, past: shown, named };
        let _ = write!(out, "<div class=\"level level-{level}\">{}</div>", diagram::draw(&frame));
    }
    out.push_str("</div>");
}

fn key(out: &mut String, story: &Story) {
    let mut entries = vec![
        ("elder", 3, "elder".to_string()),
        ("term s0", 12, "grantor and its epoch".to_string()),
    ];
    if let Some(lock) = story.focus() {
        entries.push(("hold", 12, format!("holds {lock}, with its token")));
        entries.push(("wait", 2, "waits for it".to_string()));
    }
    entries.push(("other", 5, "holds another lock".to_string()));
    if story.lanes.iter().any(|lane| !lane.paused.is_empty()) {
        entries.push(("paused", 12, "stopped".to_string()));
    }
    if story.lanes.iter().any(|lane| !lane.suspended.is_empty()) {
        entries.push(("suspended", 12, "without a lease".to_string()));
    }
    if !story.faults.is_empty() {
        entries.push(("fault", 12, "fault".to_string()));
    }
    if story.focus().is_some_and(|lock| story.breach.is_some() && !story.clashes(&lock).is_empty())
    {
        entries.push(("clash", 4, "held twice".to_string()));
    }
    out.push_str("<div class=\"key\">");
    for (class, height, words) in &entries {
        let y = (12 - height) / 2;
        let _ = write!(
            out,
            "<span><svg width=\"18\" height=\"12\"><rect class=\"{class}\" y=\"{y}\" width=\"18\" \
             height=\"{height}\"/></svg>{}</span>",
            page::escape(words)
        );
    }
    if story.breach.is_some() {
        out.push_str("<span>→ message in the past of the break</span>");
    }
    out.push_str("</div>");
}

/// The windows of the diagrams: the whole run, the causes of the break, and its last moments.
fn windows(story: &Story, past: &[usize]) -> Vec<(String, Span)> {
    let whole = ("the whole run".to_string(), Span { from: 0, until: story.end.max(1) });
    let Some(breach) = &story.breach else {
        let healing = story.heal.filter(|heal| *heal < story.end);
        let healing =
            healing.map(|heal| Span { from: heal.saturating_sub(heal / 20), until: story.end });
        return [Some(whole), healing.map(|span| ("the healing".to_string(), span))]
            .into_iter()
            .flatten()
            .collect();
    };
    let clashes = breach.lock.as_deref().map(|lock| story.clashes(lock)).unwrap_or_default();
    let held = clashes.iter().filter_map(|(index, _)| story.holds[*index].got);
    let faults = story
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
    let mut sent: Vec<u64> = past.iter().map(|index| story.flights[*index].sent).collect();
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
