//! The sheet: the figures that one case has measured, its problems, and their text.

use serde_json::{Value, json};
use std::time::Duration;

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// A time, in seconds.
    Seconds,
    /// A rate, for each second.
    PerSecond,
    /// A multiple of another figure, such as a floor.
    Times,
    /// A part of the whole: 1 is all of it.
    Share,
    /// A number of bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// A number without a unit.
    Count,
}

/// The target of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Target {
    /// The median is at most this value.
    AtMost(f64),
    /// The median is at least this value.
    AtLeast(f64),
}

/// A measured quantity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figure {
    /// The name of the figure.
    pub(crate) name: &'static str,
    /// The unit of the figure.
    pub(crate) unit: Unit,
    /// The target of the figure's median.
    pub(crate) target: Option<Target>,
}

/// A figure at one size, over all rounds.
pub(crate) struct Row {
    pub(crate) size: u32,
    figure: Figure,
    rounds: Vec<f64>,
}

/// A curve: the time of the slowest share of all operations.
struct Curve {
    name: &'static str,
    /// A share of all operations and their longest time in seconds; one list for each round.
    rounds: Vec<Vec<(f64, f64)>>,
}

/// All figures of one case.
pub(crate) struct Sheet {
    pub(crate) case: &'static str,
    /// The unit of the sizes.
    pub(crate) sizes: &'static str,
    rows: Vec<Row>,
    curves: Vec<Curve>,
    /// Remarks that are not problems.
    pub(crate) notes: Vec<String>,
    /// Requirements that were not met.
    pub(crate) problems: Vec<String>,
}

/// The limit for a linear time. From one size to ten times that size, the cost of each further lock
/// may at most double. Noise and the logarithm of a tree add less.
const LINEAR: f64 = 2.0;

impl Figure {
    /// A figure that is only shown.
    pub(crate) fn new(name: &'static str, unit: Unit) -> Figure {
        Figure { name, unit, target: None }
    }

    /// A time, only shown.
    pub(crate) fn time(name: &'static str) -> Figure {
        Figure::new(name, Unit::Seconds)
    }

    /// A rate that is only shown.
    pub(crate) fn rate(name: &'static str) -> Figure {
        Figure::new(name, Unit::PerSecond)
    }

    pub(crate) fn at_most(self, most: f64) -> Figure {
        Figure { target: Some(Target::AtMost(most)), ..self }
    }

    pub(crate) fn at_least(self, least: f64) -> Figure {
        Figure { target: Some(Target::AtLeast(least)), ..self }
    }
}

impl Unit {
    /// The unit with this name, as [`Unit::name`] gives it.
    pub(crate) fn named(name: &str) -> Unit {
        UNITS.into_iter().find(|unit| unit.name() == name).unwrap_or(Unit::Count)
    }

    /// The value with its unit, for people.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds if value < 1e-6 => format!("{:.0} ns", value * 1e9),
            Unit::Seconds if value < 1e-3 => format!("{:.1} µs", value * 1e6),
            Unit::Seconds if value < 1.0 => format!("{:.1} ms", value * 1e3),
            Unit::Seconds => format!("{value:.1} s"),
            Unit::PerSecond => format!("{}/s", thousands(value)),
            Unit::Times => format!("{value:.2} x"),
            Unit::Share if value < 0.01 => format!("{:.2} %", value * 100.0),
            Unit::Share => format!("{:.1} %", value * 100.0),
            Unit::Bytes if value >= 1e6 => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Unit::Bytes => format!("{} B", thousands(value)),
            Unit::BytesPerSecond => format!("{} B/s", thousands(value)),
            Unit::Count if value == value.round() => format!("{value:.0}"),
            Unit::Count if value.abs() < 0.001 => format!("{value:.5}"),
            Unit::Count => format!("{value:.3}"),
        }
    }

    /// A value and its range. The unit is printed once, where all three have the same one.
    fn show_range(self, value: f64, least: f64, most: f64) -> String {
        let [value, mut least, mut most] = [value, least, most].map(|value| self.show(value));
        let counted = value.trim_start_matches(|c: char| c.is_ascii_digit() || "-,.".contains(c));
        if let (Some(less), Some(more)) = (least.strip_suffix(counted), most.strip_suffix(counted))
        {
            (least, most) = (less.to_owned(), more.to_owned());
        }
        format!("{value} ({least} to {most})")
    }

    /// The name of the unit, for programs.
    fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::PerSecond => "1/s",
            Unit::Times => "times",
            Unit::Share => "share",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Count => "count",
        }
    }
}

const UNITS: [Unit; 7] = [
    Unit::Seconds,
    Unit::PerSecond,
    Unit::Times,
    Unit::Share,
    Unit::Bytes,
    Unit::BytesPerSecond,
    Unit::Count,
];

/// A whole number in groups of three digits.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value <= -0.5 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Target {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Target::AtMost(most) => value <= most,
            Target::AtLeast(least) => value >= least,
        }
    }

    fn show(self, unit: Unit) -> String {
        match self {
            Target::AtMost(most) => format!("≤ {}", unit.show(most)),
            Target::AtLeast(least) => format!("≥ {}", unit.show(least)),
        }
    }

    fn json(self) -> Value {
        match self {
            Target::AtMost(most) => json!({ "at_most": most }),
            Target::AtLeast(least) => json!({ "at_least": least }),
        }
    }
}

impl Row {
    /// The median. For an even number of rounds, the mean of the two middle values.
    pub(crate) fn median(&self) -> f64 {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        let half = rounds.len() / 2;
        if rounds.len().is_multiple_of(2) {
            f64::midpoint(rounds[half - 1], rounds[half])
        } else {
            rounds[half]
        }
    }

    fn least(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns whether the median meets its target, if there is one.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.figure.target.map(|target| target.is_met_by(self.median()))
    }

    /// The median, for people.
    pub(crate) fn show(&self) -> String {
        self.figure.unit.show(self.median())
    }

    /// The median, the minimum and the maximum.
    pub(crate) fn show_range(&self) -> String {
        self.figure.unit.show_range(self.median(), self.least(), self.most())
    }

    /// The target of the figure.
    pub(crate) fn show_target(&self) -> Option<String> {
        self.figure.target.map(|target| target.show(self.figure.unit))
    }

    /// The name of the figure.
    pub(crate) fn name(&self) -> &'static str {
        self.figure.name
    }
}

/// The growth of a figure with the number of held locks.
struct Growth {
    name: &'static str,
    /// For each size above the least: the nanoseconds that each further lock costs since the size
    /// before.
    steps: Vec<(u32, f64)>,
}

impl Growth {
    /// Returns whether each further lock costs about the same at all sizes. `None` if there are too
    /// few sizes.
    fn is_linear(&self) -> Option<bool> {
        let [.., before, last] = &self.steps[..] else { return None };
        // Below a microsecond for each lock the first step is noise, and too short to matter.
        Some(last.1 <= LINEAR * before.1.max(1000.0))
    }
}

impl Sheet {
    pub(crate) fn new(case: &'static str, sizes: &'static str) -> Sheet {
        Sheet {
            case,
            sizes,
            rows: Vec::new(),
            curves: Vec::new(),
            notes: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Notes a figure of one round.
    pub(crate) fn note(&mut self, size: u32, figure: Figure, value: f64) {
        match self.rows.iter_mut().find(|row| (row.size, row.figure) == (size, figure)) {
            Some(row) => row.rounds.push(value),
            None => self.rows.push(Row { size, figure, rounds: vec![value] }),
        }
    }

    /// Notes a time of one round.
    pub(crate) fn note_time(&mut self, size: u32, figure: Figure, took: Duration) {
        self.note(size, figure, took.as_secs_f64());
    }

    /// Notes a curve of one round: shares of all operations, and the longest time of each share.
    pub(crate) fn trace(&mut self, name: &'static str, curve: Vec<(f64, f64)>) {
        match self.curves.iter_mut().find(|other| other.name == name) {
            Some(other) => other.rounds.push(curve),
            None => self.curves.push(Curve { name, rounds: vec![curve] }),
        }
    }

    /// Notes as a problem, and not only as a remark, that a figure misses its target.
    pub(crate) fn demand(&mut self, figure: Figure) {
        let missed = |row: &&Row| row.figure == figure && row.is_met() == Some(false);
        let problems = self.rows.iter().filter(missed).map(|row| {
            let target = row.show_target().unwrap_or_default();
            format!("{}: {}, and the target is {target}", row.name(), row.show())
        });
        self.problems.extend(problems);
    }

    /// All figures, in the order of their first notes.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The figure with this name at each of its sizes, from the least on.
    pub(crate) fn figure(&self, name: &str) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| row.figure.name == name).collect();
        rows.sort_by_key(|row| row.size);
        rows
    }

    /// Returns the growth of the times that have a target and are measured at several numbers of
    /// held locks.
    fn growths(&self) -> Vec<Growth> {
        let mut growths: Vec<Growth> = Vec::new();
        if self.sizes != HELD {
            return growths;
        }
        let has_target =
            |row: &&Row| row.figure.target.is_some() && row.figure.unit == Unit::Seconds;
        for row in self.rows.iter().filter(has_target) {
            let mut of_it = self.rows.iter().filter(|other| other.figure == row.figure);
            let Some(before) = of_it.rfind(|other| other.size < row.size) else { continue };
            let more = (row.median() - before.median()) * 1e9;
            let step = (row.size, more / f64::from(row.size - before.size));
            match growths.iter_mut().find(|growth| growth.name == row.figure.name) {
                Some(growth) => growth.steps.push(step),
                None => growths.push(Growth { name: row.figure.name, steps: vec![step] }),
            }
        }
        growths
    }

    /// The sheet as JSON, for programs.
    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "size": row.size,
                    "name": row.figure.name,
                    "unit": row.figure.unit.name(),
                    "rounds": row.rounds,
                    "median": row.median(),
                    "min": row.least(),
                    "max": row.most(),
                    "target": row.figure.target.map(Target::json),
                    "met": row.is_met(),
                })
            })
            .collect();
        let curves: Vec<Value> = self
            .curves
            .iter()
            .map(|curve| json!({ "name": curve.name, "rounds": curve.rounds }))
            .collect();
        let growths: Vec<Value> = self
            .growths()
            .iter()
            .map(|growth| {
                let steps: Vec<Value> = growth
                    .steps
                    .iter()
                    .map(|(holds, cost)| json!({ "up_to": holds, "ns_per_lock": cost }))
                    .collect();
                json!({ "name": growth.name, "steps": steps, "linear": growth.is_linear() })
            })
            .collect();
        json!({
            "case": self.case,
            "sizes": self.sizes,
            "figures": rows,
            "curves": curves,
            "growth": growths,
            "notes": self.notes,
            "problems": self.problems,
        })
    }

    /// The sheet as a table, for people.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "\n{:<48} {:>9}  {:>12} {:>12} {:>12}  {}\n",
            self.case, self.sizes, "median", "min", "max", "target"
        );
        for row in &self.rows {
            let unit = row.figure.unit;
            let target = match (row.show_target(), row.is_met()) {
                (Some(target), Some(true)) => format!("{target}, met"),
                (Some(target), _) => format!("{target}, MISSED"),
                (None, _) => String::new(),
            };
            let (median, least, most) = (row.show(), unit.show(row.least()), unit.show(row.most()));
            let line = format!(
                "  {:<46} {:>9}  {median:>12} {least:>12} {most:>12}  {target}",
                row.figure.name, row.size
            );
            text += line.trim_end();
            text.push('\n');
        }
        for growth in self.growths() {
            let steps: Vec<String> = growth
                .steps
                .iter()
                .map(|(holds, cost)| format!("{cost:.0} ns up to {holds}"))
                .collect();
            let verdict = match growth.is_linear() {
                Some(true) => "linear",
                Some(false) => "NOT linear",
                None => "too few sizes to say whether that is linear",
            };
            text += &format!(
                "  {}: each lock more costs {}: {verdict}\n",
                growth.name,
                steps.join(", ")
            );
        }
        for note in &self.notes {
            text += &format!("  note: {note}\n");
        }
        for problem in &self.problems {
            text += &format!("  wrong: {problem}\n");
        }
        text
    }
}

/// The unit of sizes that are numbers of held locks.
pub(crate) const HELD: &str = "held";

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(times: &[(u32, u64)]) -> Sheet {
        let mut sheet = Sheet::new("leave", HELD);
        for &(holds, milliseconds) in times {
            let figure = Figure::time("the leave").at_most(0.2);
            sheet.note_time(holds, figure, Duration::from_millis(milliseconds));
        }
        sheet
    }

    #[test]
    fn the_median_decides_whether_a_target_is_met() {
        let met = sheet(&[(100, 1), (100, 900), (100, 200)]);
        assert_eq!(met.rows[0].median(), 0.2);
        assert!(met.table().contains("≤ 200.0 ms, met"));
        assert!(sheet(&[(100, 201), (100, 1), (100, 300)]).table().contains("≤ 200.0 ms, MISSED"));
        assert_eq!(sheet(&[(100, 900), (100, 200), (100, 1), (100, 300)]).rows[0].median(), 0.25);
    }

    #[test]
    fn a_rate_that_is_too_low_misses_its_target() {
        let mut sheet = Sheet::new("remote", "tasks");
        let figure = Figure::new("rate to floor", Unit::Share).at_least(0.5);
        sheet.note(64, figure, 0.49);
        assert!(sheet.table().contains("≥ 50.0 %, MISSED"), "{}", sheet.table());
        sheet.note(64, figure, 0.51);
        assert!(sheet.table().contains("≥ 50.0 %, met"), "{}", sheet.table());
    }

    #[test]
    fn a_demanded_figure_that_misses_its_target_is_a_problem() {
        let memory = Figure::new("more memory", Unit::Bytes).at_most(1000.0);
        let mut sheet = sheet(&[(100, 201)]);
        sheet.note(5, memory, 1000.0);
        sheet.demand(memory);
        assert!(sheet.problems.is_empty(), "the time is shown only: {:?}", sheet.problems);
        [1001.0, 1001.0].into_iter().for_each(|more| sheet.note(5, memory, more));
        sheet.demand(memory);
        assert_eq!(sheet.problems, ["more memory: 1,001 B, and the target is ≤ 1,000 B"]);
    }

    #[test]
    fn a_cost_that_grows_with_the_table_is_not_linear() {
        assert!(sheet(&[(100, 1), (10_000, 20), (100_000, 200)]).table().contains(": linear"));
        assert!(sheet(&[(100, 1), (10_000, 20), (100_000, 2000)]).table().contains("NOT linear"));
        assert!(sheet(&[(100, 1), (10_000, 20)]).table().contains("too few"));
    }

    #[test]
    fn each_unit_is_shown_as_people_read_it() {
        let shown = [
            (Unit::Seconds, 2.5e-7, "250 ns"),
            (Unit::Seconds, 9e-5, "90.0 µs"),
            (Unit::Seconds, 0.0123, "12.3 ms"),
            (Unit::Seconds, 3.96, "4.0 s"),
            (Unit::PerSecond, 4_400_000.0, "4,400,000/s"),
            (Unit::PerSecond, 80.0, "80/s"),
            (Unit::Times, 2.0, "2.00 x"),
            (Unit::Share, 0.6, "60.0 %"),
            (Unit::Share, 0.0026, "0.26 %"),
            (Unit::Bytes, 320.0, "320 B"),
            (Unit::Bytes, -7752.0, "-7,752 B"),
            (Unit::Bytes, 15_728_640.0, "15.0 MiB"),
            (Unit::Count, 2.0, "2"),
            (Unit::Count, 2.03, "2.030"),
            (Unit::Count, 0.0001, "0.00010"),
        ];
        for (unit, value, text) in shown {
            assert_eq!(unit.show(value), text);
            assert_eq!(Unit::named(unit.name()), unit);
        }
        assert_eq!(Unit::Times.show_range(1.2, 1.1, 1.3), "1.20 x (1.10 to 1.30)");
        assert_eq!(Unit::Seconds.show_range(2e-3, 8e-4, 3e-3), "2.0 ms (800.0 µs to 3.0 ms)");
        assert_eq!(Unit::Seconds.show_range(2e-3, 2e-3, 1.5), "2.0 ms (2.0 ms to 1.5 s)");
        assert_eq!(Unit::Count.show_range(2.0, 2.0, 2.001), "2 (2 to 2.001)");
    }
}
