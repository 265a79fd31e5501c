//! The sheet: what one case has measured, what came of it, and how it is told.

use serde_json::{Value, json};
use std::time::Duration;

/// How much a case had to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// Locks that were held.
    pub(crate) holds: u32,
    /// Requests that waited.
    pub(crate) waiters: u32,
}

/// Something that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Figure {
    /// What it is.
    pub(crate) name: &'static str,
    /// What its median is to be at most.
    pub(crate) target: Option<Duration>,
}

/// One figure at one size, over all rounds.
struct Row {
    size: Size,
    figure: Figure,
    rounds: Vec<Duration>,
}

/// All figures of one case.
pub(crate) struct Sheet {
    case: &'static str,
    rows: Vec<Row>,
    /// What was not as it must be.
    pub(crate) problems: Vec<String>,
}

/// A figure that more than doubles what each further lock costs, from one size to ten times that, is not linear. What
/// noise and the logarithm of a tree add is less.
const LINEAR: f64 = 2.0;

impl Row {
    fn median(&self) -> Duration {
        let mut rounds = self.rounds.clone();
        rounds.sort();
        rounds[rounds.len() / 2]
    }

    fn least(&self) -> Duration {
        self.rounds.iter().copied().min().unwrap_or_default()
    }

    fn most(&self) -> Duration {
        self.rounds.iter().copied().max().unwrap_or_default()
    }

    fn is_met(&self) -> Option<bool> {
        self.figure.target.map(|target| self.median() <= target)
    }
}

/// How a figure grows with the locks that are held.
struct Growth {
    name: &'static str,
    /// For each size above the least: nanoseconds that each lock more has cost since the size before.
    steps: Vec<(u32, f64)>,
}

impl Growth {
    /// Whether each lock more costs about the same, however many there are; `None`: too few sizes to say.
    fn is_linear(&self) -> Option<bool> {
        let [.., before, last] = &self.steps[..] else { return None };
        // Below a microsecond a lock the first step is all noise, and nobody's worry.
        Some(last.1 <= LINEAR * before.1.max(1000.0))
    }
}

impl Sheet {
    pub(crate) fn new(case: &'static str) -> Sheet {
        Sheet { case, rows: Vec::new(), problems: Vec::new() }
    }

    /// One round's figure.
    pub(crate) fn note(&mut self, size: Size, figure: Figure, took: Duration) {
        match self.rows.iter_mut().find(|row| (row.size, row.figure) == (size, figure)) {
            Some(row) => row.rounds.push(took),
            None => self.rows.push(Row { size, figure, rounds: vec![took] }),
        }
    }

    fn growths(&self) -> Vec<Growth> {
        let mut growths: Vec<Growth> = Vec::new();
        for row in self.rows.iter().filter(|row| row.figure.target.is_some()) {
            let mut of_it = self.rows.iter().filter(|other| other.figure == row.figure);
            let Some(before) = of_it.rfind(|other| other.size.holds < row.size.holds) else { continue };
            let more = row.median().as_nanos() as f64 - before.median().as_nanos() as f64;
            let step = (row.size.holds, more / f64::from(row.size.holds - before.size.holds));
            match growths.iter_mut().find(|growth| growth.name == row.figure.name) {
                Some(growth) => growth.steps.push(step),
                None => growths.push(Growth { name: row.figure.name, steps: vec![step] }),
            }
        }
        growths
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let milliseconds = |span: Duration| span.as_micros() as f64 / 1e3;
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "holds": row.size.holds,
                    "waiters": row.size.waiters,
                    "what": row.figure.name,
                    "rounds": row.rounds.len(),
                    "median_ms": milliseconds(row.median()),
                    "min_ms": milliseconds(row.least()),
                    "max_ms": milliseconds(row.most()),
                    "target_ms": row.figure.target.map(milliseconds),
                    "met": row.is_met(),
                })
            })
            .collect();
        let growths: Vec<Value> = self
            .growths()
            .iter()
            .map(|growth| {
                let steps: Vec<Value> =
                    growth.steps.iter().map(|(holds, cost)| json!({ "up_to": holds, "ns_per_lock": cost })).collect();
                json!({ "what": growth.name, "steps": steps, "linear": growth.is_linear() })
            })
            .collect();
        json!({ "case": self.case, "figures": rows, "growth": growths, "problems": self.problems })
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let milliseconds = |span: Duration| format!("{:.1} ms", span.as_secs_f64() * 1e3);
        let mut text = format!(
            "\n{:<38} {:>7} {:>7}  {:>10} {:>10} {:>10}  {}\n",
            self.case, "held", "waiting", "median", "min", "max", "target"
        );
        for row in &self.rows {
            let target = match (row.figure.target, row.is_met()) {
                (Some(target), Some(true)) => format!("{}, met", milliseconds(target)),
                (Some(target), _) => format!("{}, MISSED", milliseconds(target)),
                (None, _) => String::new(),
            };
            let (median, least, most) =
                (milliseconds(row.median()), milliseconds(row.least()), milliseconds(row.most()));
            let line = format!(
                "  {:<36} {:>7} {:>7}  {median:>10} {least:>10} {most:>10}  {target}",
                row.figure.name, row.size.holds, row.size.waiters
            );
            text += line.trim_end();
            text.push('\n');
        }
        for growth in self.growths() {
            let steps: Vec<String> =
                growth.steps.iter().map(|(holds, cost)| format!("{cost:.0} ns up to {holds}")).collect();
            let verdict = match growth.is_linear() {
                Some(true) => "linear",
                Some(false) => "NOT linear",
                None => "too few sizes to say whether that is linear",
            };
            text += &format!("  {}: each lock more costs {}: {verdict}\n", growth.name, steps.join(", "));
        }
        for problem in &self.problems {
            text += &format!("  wrong: {problem}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE: Figure = Figure { name: "the leave", target: Some(Duration::from_millis(200)) };

    fn sheet(times: &[(u32, u64)]) -> Sheet {
        let mut sheet = Sheet::new("hand-off");
        for &(holds, milliseconds) in times {
            sheet.note(Size { holds, waiters: 10 }, FIGURE, Duration::from_millis(milliseconds));
        }
        sheet
    }

    #[test]
    fn the_median_decides_whether_a_target_is_met() {
        let met = sheet(&[(100, 1), (100, 900), (100, 200)]);
        assert_eq!(met.rows[0].median(), Duration::from_millis(200));
        assert!(met.table().contains("200.0 ms, met"));
        assert!(sheet(&[(100, 201), (100, 1), (100, 300)]).table().contains("200.0 ms, MISSED"));
    }

    #[test]
    fn a_cost_that_grows_with_the_table_is_not_linear() {
        assert!(sheet(&[(100, 1), (10_000, 20), (100_000, 200)]).table().contains(": linear"));
        assert!(sheet(&[(100, 1), (10_000, 20), (100_000, 2000)]).table().contains("NOT linear"));
        assert!(sheet(&[(100, 1), (10_000, 20)]).table().contains("too few"));
    }
}
