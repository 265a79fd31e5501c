//! Draws a run of a simulated cluster as a self-contained page of HTML. The page has a diagram with
//! time from left to right and a lane for each member. `elderlock-sim` draws runs of the core, and
//! `chaos` draws runs of whole members. This module is outside of semver.

pub mod diagram;
pub mod drawn_run;
pub mod labels;
pub mod page;
pub mod past;

use diagram::DiagramFrame;
use drawn_run::{DrawnRun, Span};
use page::{escape, table};
use std::fmt::Write;

/// The diagram, with a picture of each window and a key. There are at most three windows. `past`
/// lists the packets to show, as indexes in `run.flights`. `width` is that of a picture, in pixels.
pub fn draw(
    out: &mut String,
    run: &DrawnRun,
    windows: &[(String, Span)],
    past: &[usize],
    width: i64,
) {
    let first = usize::from(windows.len() > 2);
    out.push_str("<div class=\"diagram\"><div class=\"controls\"><span class=\"tabs\">");
    for (level, (name, _)) in windows.iter().enumerate() {
        let checked = if level == first { " checked" } else { "" };
        let name = escape(name);
        let _ = write!(
            out,
            "<label><input type=\"radio\" name=\"level\" \
             id=\"level-{level}\"{checked}>{name}</label>"
        );
    }
    out.push_str("</span>");
    if !run.flights.is_empty() {
        out.push_str("<label><input type=\"checkbox\" id=\"all\"> all messages</label>");
    }
    out.push_str("</div>");
    key(out, run);
    for (level, (_, window)) in windows.iter().enumerate() {
        let named = run.breach.is_some() && level + 1 == windows.len();
        // Messages that the next picture shows as arrows would only blur this picture.
        let blot = windows.get(level + 1).map_or(u64::MAX, |(_, next)| next.from);
        let shown: Vec<usize> = past
            .iter()
            .copied()
            .filter(|index| run.flights[*index].sent + (window.until - window.from) / 40 < blot)
            .collect();
        let shown: &[usize] = if level == 0 { &[] } else { &shown };
        let frame = DiagramFrame { run, window: *window, width, past: shown, named };
        // The part that is in sight first, of a picture that is wider than its window.
        let first = match &run.breach {
            Some(breach) if named && breach.at > window.until => " data-middle",
            Some(_) => " data-end",
            None => "",
        };
        let picture = diagram::draw(&frame);
        let _ = write!(out, "<div class=\"level level-{level}\"{first}>{picture}</div>");
    }
    out.push_str("</div>");
}

/// The head of a table of faults.
pub const FAULT_HEAD: [&str; 4] = ["#fault", "#at", "#for", "kind"];

/// The faults that a failure needs, a row of a table each, and the other faults folded. `none` is
/// the sentence for a failure that needs no fault.
pub fn tell_needed_faults(
    out: &mut String,
    needed: Vec<Vec<String>>,
    others: Vec<Vec<String>>,
    none: &str,
) {
    out.push_str("<h2>Faults that it takes</h2>");
    if needed.is_empty() {
        let _ = write!(out, "<p class=\"soft\">{none}</p>");
    } else {
        table(out, &FAULT_HEAD, needed);
    }
    if !others.is_empty() {
        let _ = write!(out, "<details><summary>{} that were taken out</summary>", others.len());
        table(out, &FAULT_HEAD, others);
        out.push_str("</details>");
    }
}

fn key(out: &mut String, run: &DrawnRun) {
    let mut entries = vec![
        ("elder", 3, "elder".to_string()),
        ("term s0", 12, "grantor and its epoch".to_string()),
    ];
    if let Some(lock) = run.focus() {
        entries.push(("hold", 12, format!("holds {lock}, with its token")));
        entries.push(("wait", 2, "waits for it".to_string()));
    }
    let focus = run.focus();
    if run.holds.iter().any(|hold| Some(&hold.lock) != focus.as_ref()) {
        entries.push(("other", 5, "holds another lock".to_string()));
    }
    if run.drawn_sites.iter().any(|lane| !lane.paused.is_empty()) {
        entries.push(("paused", 12, "stopped".to_string()));
    }
    if run.drawn_sites.iter().any(|lane| !lane.suspended.is_empty()) {
        entries.push(("suspended", 12, "without a lease".to_string()));
    }
    if !run.faults.is_empty() {
        entries.push(("fault", 12, "fault".to_string()));
    }
    if run.focus().is_some_and(|lock| run.breach.is_some() && !run.clashes(&lock).is_empty()) {
        entries.push(("clash", 4, "held twice".to_string()));
    }
    out.push_str("<div class=\"key\">");
    for (class, height, words) in &entries {
        let y = (12 - height) / 2;
        let _ = write!(
            out,
            "<span><svg width=\"18\" height=\"12\"><rect class=\"{class}\" y=\"{y}\" width=\"18\" \
             height=\"{height}\"/></svg>{}</span>",
            escape(words)
        );
    }
    if run.breach.is_some() && !run.flights.is_empty() {
        out.push_str("<span>→ message in the past of the break</span>");
    }
    out.push_str("</div>");
}
