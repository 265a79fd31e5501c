//! The page of a batch of runs, and the data that it gathers from each run.

use super::words::meaning;
use crate::chaos::{ChaosPlan, ChaosRun, Summary};
use crate::record::{Entry, Record};
use crate::times::{Timed, Times};
use elderlock_testing::drawing::page::{about, bars, escape, facts, grouped, page, table, verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Slow heals kept.
const SLOWEST: usize = 10;

/// How long one run took to converge after everything was healed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConvergenceTime {
    /// Nanoseconds until the last view was installed or the last lease ran again.
    pub took: u64,
    /// The seed of the run.
    pub seed: u64,
    /// How many members it had.
    pub members: usize,
    /// The kinds of faults before.
    pub faults: Vec<&'static str>,
}

/// The data that the page of a batch shows beyond its [`Summary`].
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    /// Runs by the number of their members.
    pub sizes: BTreeMap<usize, u64>,
    /// Runs in which a kind of fault began, by kind and number of members.
    pub kinds: BTreeMap<(&'static str, usize), u64>,
    /// The slowest heals, slowest first.
    pub heals: Vec<ConvergenceTime>,
}

impl Gallery {
    /// Adds a run.
    pub fn add(&mut self, plan: &ChaosPlan, run: &ChaosRun) {
        let members = plan.founders + plan.joiners;
        *self.sizes.entry(members).or_default() += 1;
        for kind in run.faults.keys() {
            *self.kinds.entry((kind, members)).or_default() += 1;
        }
        if run.complete
            && let Some(took) = healing(run.world.record())
        {
            self.heals.push(ConvergenceTime {
                took,
                seed: plan.seed,
                members,
                faults: run.faults.keys().copied().collect(),
            });
            self.keep_slowest();
        }
    }

    /// Adds another gallery.
    pub fn merge(&mut self, other: Gallery) {
        for (size, count) in other.sizes {
            *self.sizes.entry(size).or_default() += count;
        }
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.heals.extend(other.heals);
        self.keep_slowest();
    }

    fn keep_slowest(&mut self) {
        // Equal times are ordered by seed, so that the order of the workers does not matter.
        self.heals.sort_by_key(|heal| (std::cmp::Reverse(heal.took), heal.seed));
        self.heals.truncate(SLOWEST);
    }
}

/// Returns the time from the healing to the last view and the last lease.
fn healing(record: &Record) -> Option<u64> {
    let healed = record.lines.iter().rposition(|line| line.entry == Entry::Heal)?;
    let comes_together = |entry: &Entry| match entry {
        Entry::View { .. } => true,
        Entry::Event { name } => name == "resumed",
        _ => false,
    };
    let last = record.lines[healed..].iter().rev().find(|line| comes_together(&line.entry));
    Some(last.map_or(0, |line| line.at - record.lines[healed].at))
}

/// A batch of runs.
#[derive(Clone, Debug)]
pub struct BatchReport<'a> {
    /// The summary of its runs.
    pub total: &'a Summary,
    /// The further data.
    pub gallery: &'a Gallery,
    /// The first seed.
    pub from: u64,
    /// The lowest and the highest number of members.
    pub members: (usize, usize),
    /// The record of one of its runs, with its caption.
    pub picture: Option<(String, Record)>,
}

/// The verdict on a batch without a break.
pub fn held(total: &Summary) -> String {
    let faults: u64 = total.faults.values().sum();
    format!(
        "{} seeds, {:.1} simulated hours, {} faults, {} grants, and nothing broke.",
        grouped(total.seeds),
        total.virtual_seconds as f64 / 3_600.0,
        grouped(faults),
        grouped(total.grants)
    )
}

/// The page of a batch without a break.
pub fn of_batch(batch: &BatchReport<'_>) -> String {
    let total = batch.total;
    let mut body = String::new();
    let (low, high) = batch.members;
    let last = batch.from + total.seeds.saturating_sub(1);
    let range =
        format!("Seeds {} to {}, {low} to {high} members.", grouped(batch.from), grouped(last));
    verdict(&mut body, true, &held(total), &range);
    facts(
        &mut body,
        &[
            (grouped(total.events), "steps of a core"),
            (grouped(total.lost), "holds lost, each told in time"),
            (grouped(total.refused), "stale writes refused"),
            (
                grouped(total.forced.values().sum()),
                "runs that lost their quorum for good and were forced to go on",
            ),
        ],
    );
    columns(
        &mut body,
        |out| {
            out.push_str("<h2>How long</h2>");
            let row = |(what, times): (&str, &Times)| {
                let at = |percent| about(times.percentile(percent));
                vec![what.to_string(), at(50.0), at(90.0), at(99.0), about(times.longest())]
            };
            table(
                out,
                &["", "#half", "#90 %", "#99 %", "#longest"],
                timed(&total.timed).into_iter().map(row),
            );
            fail_overs(out, &total.timed);
        },
        |out| heat(out, batch.gallery),
    );
    columns(
        &mut body,
        |out| {
            out.push_str("<h2>What always held</h2>");
            let row = |(name, count): (&&str, &u64)| vec![meaning(name).0, grouped(*count)];
            table(out, &["in words", "#premise held"], total.premises.iter().map(row));
        },
        |out| heals(out, batch),
    );
    rare(&mut body, total);
    if let Some((name, record)) = &batch.picture {
        let _ = write!(body, "<h2>One of the runs: {}</h2>", escape(name));
        super::draw_run(&mut body, &super::drawn(record));
    }
    page("Held", &body)
}

fn columns(out: &mut String, left: impl FnOnce(&mut String), right: impl FnOnce(&mut String)) {
    out.push_str("<div class=\"columns\"><div>");
    left(out);
    out.push_str("</div><div>");
    right(out);
    out.push_str("</div></div>");
}

/// The measured times, with their names.
pub fn timed(timed: &Timed) -> [(&'static str, &Times); 3] {
    [
        ("wait for a lock", &timed.waits),
        ("next grant after a grantor's end", &timed.grantor_failovers),
        ("next elder after an elder's end", &timed.elder_failovers),
    ]
}

/// The distribution of the times without a grantor.
fn fail_overs(out: &mut String, timed: &Timed) {
    out.push_str("<h2>From the end of a grantor to the next grant</h2>");
    let ranges = timed.grantor_failovers.ranges();
    let first = ranges.iter().position(|(_, count)| *count > 0).unwrap_or(0);
    let rows: Vec<(String, u64)> = ranges[first..]
        .iter()
        .map(|(until, count)| (format!("up to {}", round(*until)), *count))
        .collect();
    bars(out, &rows);
}

/// The end of a range, to the millisecond or the second.
fn round(nanos: u64) -> String {
    match nanos / 1_000_000 {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis => format!("{} s", millis / 1_000),
    }
}

/// Writes how many runs reached each rare state.
fn rare(out: &mut String, total: &Summary) {
    let reached = total.rare.values().filter(|count| **count > 0).count();
    let _ = write!(
        out,
        "<h2>Rare states</h2><p class=\"soft\">{reached} of {} were reached, each in the \
         number of seeds beside it.</p><ul class=\"rare\">",
        total.rare.len()
    );
    for (name, count) in &total.rare {
        let class = if *count == 0 { " class=\"zero\"" } else { "" };
        let _ =
            write!(out, "<li{class}><span>{}</span><b>{}</b></li>", escape(name), grouped(*count));
    }
    out.push_str("</ul>");
}

/// Kinds of faults by numbers of members: in how many runs of that size it began.
fn heat(out: &mut String, gallery: &Gallery) {
    let kinds: BTreeSet<&str> = gallery.kinds.keys().map(|(kind, _)| *kind).collect();
    let most = gallery.kinds.values().copied().max().unwrap_or(1).max(1);
    out.push_str("<h2>Seeds by kind of fault and number of members</h2>");
    out.push_str("<div class=\"wide\"><table class=\"heat\"><tr><th></th>");
    for size in gallery.sizes.keys() {
        let _ = write!(out, "<th>{size}</th>");
    }
    out.push_str("</tr>");
    for kind in kinds {
        let _ = write!(out, "<tr><td class=\"kind\">{kind}</td>");
        for size in gallery.sizes.keys() {
            let count = gallery.kinds.get(&(kind, *size)).copied().unwrap_or(0);
            let depth = 6 + count * 44 / most;
            let _ = write!(
                out,
                "<td style=\"background:color-mix(in srgb, var(--heat) {depth}%, \
                 transparent)\">{}</td>",
                grouped(count)
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
}

fn heals(out: &mut String, batch: &BatchReport<'_>) {
    if batch.gallery.heals.is_empty() {
        return;
    }
    out.push_str("<h2>The slowest heals</h2>");
    out.push_str(
        "<p class=\"soft\">From the end of all faults until all members are in one view.</p>",
    );
    let (low, high) = batch.members;
    let slow = batch.gallery.heals.iter().filter(|heal| heal.took > 0);
    let row = |heal: &ConvergenceTime| {
        let draw = format!("report --seed {} --members {low}..{high}", heal.seed);
        vec![about(heal.took), heal.members.to_string(), draw, heal.faults.join(", ")]
    };
    table(out, &["#took", "#members", "=elderlock-sim …", "after"], slow.map(row));
}
