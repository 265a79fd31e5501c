//! The page of plots: the result of `--json`, drawn. The page is one HTML file that loads nothing.
//!
//! The figures of one case and unit share a drawing. Figures that were measured at several sizes
//! are lines over the sizes. The others are side by side; a single figure is in the table only.
//! Large dots are medians. Small dots are the rounds, in their order where there is room. Scales
//! are logarithmic, unless there is a zero.

use crate::sheet::{Unit, thousands};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark;
  --paper: light-dark(#fcfbf8, #15171b); --ink: light-dark(#1c2026, #e8e6e1);
  --soft: light-dark(#5d636d, #9ea5b0); --line: light-dark(#e3e0d8, #2d3139);
  --bad: light-dark(#c0241c, #ff7b6d); --good: light-dark(#1f7a4a, #67c493); }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
.drawings { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { margin: 0; } figcaption, .soft { color: var(--soft); }
svg text { fill: var(--soft); font-size: 11px; } svg .grid { stroke: var(--line); }
svg .target { stroke: var(--bad); stroke-dasharray: 4 3; }
.c0 { --c: light-dark(#2c5a94, #7fb0ec); } .c1 { --c: light-dark(#b5651d, #eaa968); }
.c2 { --c: light-dark(#1f7a4a, #67c493); } .c3 { --c: light-dark(#8a3a8f, #d79bdc); }
.c4 { --c: light-dark(#6b6b1e, #c8c86a); } .c5 { --c: light-dark(#44505f, #b9c4d2); }
svg .c { stroke: var(--c); fill: none; } svg .dot, svg .round { fill: var(--c); stroke: none; }
svg .round { opacity: .55; }
.key { color: var(--c); } ul.keys { list-style: none; padding: 0; margin: 0; font-size: 13px; }
table { border-collapse: collapse; font-size: 13px; margin-top: 1rem; }
td, th { padding: .15rem .7rem; text-align: right;
  border-bottom: 1px solid var(--line); } td:first-child, th:first-child { text-align: left; }
.met { color: var(--good); } .missed { color: var(--bad); }
";

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
/// The room for the labels beside the scales.
const LEFT: f64 = 84.0;
/// Half of the widest label of a size.
const RIGHT: f64 = 30.0;
const BELOW: f64 = 34.0;
const ABOVE: f64 = 12.0;
const COLOURS: usize = 6;
/// The distance between the dots of two rounds.
const APART: f64 = 10.0;

/// The page of one run, with its circumstances.
pub(crate) fn page(about: &str, record: &Value) -> String {
    let mut body = String::new();
    for case in list(&record["cases"]) {
        draw_case(&mut body, case);
    }
    let about = escape(about).replacen('`', "<code>", 1).replacen('`', "</code>", 1);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>elderlock, measured</title>\n<link rel=\"icon\" href=\"data:,\"/>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>elderlock, measured</h1>\n\
         <p>{about}.</p>\n\
         <p class=\"soft\">Large dots are medians, small ones the rounds, bars go from the least \
         to the most, broken lines are \
         targets.</p>\n\
         {body}</body>\n</html>\n"
    )
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A figure at all its sizes.
struct PlotLine {
    name: String,
    points: Vec<Point>,
}

struct Point {
    x: f64,
    median: f64,
    least: f64,
    most: f64,
    rounds: Vec<f64>,
    target: Option<f64>,
}

fn draw_case(out: &mut String, case: &Value) {
    let _ = writeln!(out, "<h2>{}</h2>\n<div class=\"drawings\">", text(&case["case"]));
    let mut units: Vec<&str> = Vec::new();
    for row in list(&case["figures"]) {
        let unit = row["unit"].as_str().unwrap_or_default();
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    for unit in units {
        let lines = lines(case, unit);
        let sizes = lines.iter().any(|line| line.points.len() > 1);
        let x = if sizes { XAxis::Sizes(text(&case["sizes"])) } else { XAxis::Names };
        if sizes || lines.len() > 1 {
            draw(out, &lines, Unit::named(unit), x);
        }
    }
    let curves: Vec<PlotLine> = list(&case["curves"]).iter().map(curve).collect();
    if !curves.is_empty() {
        draw(out, &curves, Unit::Seconds, XAxis::Shares);
    }
    out.push_str("</div>\n");
    draw_table(out, case);
}

fn lines(case: &Value, unit: &str) -> Vec<PlotLine> {
    let mut lines: Vec<PlotLine> = Vec::new();
    for row in list(&case["figures"]).iter().filter(|row| row["unit"] == unit) {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let point = Point {
            x: number(&row["size"]),
            median: number(&row["median"]),
            least: number(&row["min"]),
            most: number(&row["max"]),
            rounds: list(&row["rounds"]).iter().filter_map(Value::as_f64).collect(),
            target: row["target"]["at_most"].as_f64().or(row["target"]["at_least"].as_f64()),
        };
        let name = text(&row["name"]);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(PlotLine { name, points: vec![point] }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    lines
}

/// The medians, at each share, of the values of all rounds' curves.
fn curve(curve: &Value) -> PlotLine {
    let rounds: Vec<&[Value]> =
        list(&curve["rounds"]).iter().map(list).filter(|round| !round.is_empty()).collect();
    let points = (0..rounds.first().map_or(0, |round| round.len())).map(|index| {
        let mut values: Vec<f64> =
            rounds.iter().filter_map(|round| round.get(index)?[1].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        let share = rounds[0][index][0].as_f64().unwrap_or_default();
        Point {
            x: nines(share),
            median: values.get(values.len() / 2).copied().unwrap_or_default(),
            least: values.first().copied().unwrap_or_default(),
            most: values.last().copied().unwrap_or_default(),
            rounds: Vec::new(),
            target: None,
        }
    });
    PlotLine { name: text(&curve["name"]), points: points.collect() }
}

/// The quantity on the horizontal axis.
enum XAxis {
    Sizes(String),
    Names,
    Shares,
}

/// The position of a share. Each further nine takes the same room, and the whole comes last.
fn nines(share: f64) -> f64 {
    if share >= 1.0 { 4.0 } else { -(1.0 - share).log10() }
}

/// The map from values to coordinates.
struct Scale {
    least: f64,
    most: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Scale {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        let is_log = least > 0.0;
        let (least, most) =
            if is_log { (least / 1.3, most * 1.3) } else { (least.min(0.0), most.max(1e-9)) };
        Scale { least, most, is_log, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        };
        self.from + part * (self.to - self.from)
    }

    /// The values that get a line: round numbers, and some of them on any scale, however short.
    fn ticks(&self) -> Vec<f64> {
        let within = |tick: &f64| (self.least..=self.most).contains(tick);
        if self.is_log {
            let decades = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
            for steps in [&[1.0][..], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]] {
                let all = decades
                    .clone()
                    .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
                let ticks: Vec<f64> = all.filter(within).collect();
                if ticks.len() >= FEWEST_TICKS {
                    return ticks;
                }
            }
        }
        let step = (self.most - self.least) / FEWEST_TICKS as f64;
        let decade = 10_f64.powf(step.log10().floor());
        let step =
            decade * [5.0, 2.0].into_iter().find(|part| part * decade <= step).unwrap_or(1.0);
        let first = (self.least / step).ceil();
        (0..)
            .map(|number| (first + f64::from(number)) * step)
            .take_while(|tick| *tick <= self.most)
            .collect()
    }
}

const FEWEST_TICKS: usize = 3;

fn draw(out: &mut String, lines: &[PlotLine], unit: Unit, x: XAxis) {
    let values = lines.iter().flat_map(|line| {
        line.points
            .iter()
            .flat_map(|point| [point.least, point.most].into_iter().chain(point.target))
    });
    let y = Scale::new(values, HEIGHT - BELOW, ABOVE);
    let across = match x {
        XAxis::Sizes(_) => Scale::new(
            lines.iter().flat_map(|line| line.points.iter().map(|point| point.x)),
            LEFT,
            WIDTH - RIGHT,
        ),
        XAxis::Names => Scale {
            least: -0.6,
            most: lines.len() as f64 - 0.4,
            is_log: false,
            from: LEFT,
            to: WIDTH - RIGHT,
        },
        XAxis::Shares => {
            Scale { least: 0.0, most: 4.2, is_log: false, from: LEFT, to: WIDTH - RIGHT }
        }
    };
    let _ = writeln!(
        out,
        "<figure><svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         role=\"img\">"
    );
    for tick in y.ticks() {
        let at = y.at(tick);
        let shown = escape(&unit.show(tick));
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{shown}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    let mut label = |at: f64, shown: &str| {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{shown}</text>",
            across.at(at),
            HEIGHT - 18.0
        );
    };
    match &x {
        XAxis::Sizes(_) => {
            let mut sizes: Vec<f64> =
                lines.iter().flat_map(|line| line.points.iter().map(|point| point.x)).collect();
            sizes.sort_by(f64::total_cmp);
            sizes.dedup();
            sizes.iter().for_each(|size| label(*size, &thousands(*size)));
        }
        XAxis::Names => {}
        XAxis::Shares => {
            for (share, shown) in [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")]
            {
                label(nines(share), shown);
            }
            label(nines(1.0), "most");
        }
    }
    if let XAxis::Sizes(name) = &x {
        let _ = writeln!(
            out,
            "<text x=\"{WIDTH}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            HEIGHT - 4.0
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let across = |point: &Point| {
            across.at(if matches!(x, XAxis::Names) { number as f64 } else { point.x })
        };
        let _ = writeln!(out, "<g class=\"c{}\">", number % COLOURS);
        if line.points.len() > 1 {
            let path: Vec<String> = line
                .points
                .iter()
                .map(|point| format!("{:.1},{:.1}", across(point), y.at(point.median)))
                .collect();
            let _ = writeln!(out, "<polyline class=\"c\" points=\"{}\"/>", path.join(" "));
        }
        for point in &line.points {
            let (at, median) = (across(point), y.at(point.median));
            let shown = escape(&unit.show(point.median));
            let _ = writeln!(
                out,
                "<line class=\"c\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <circle class=\"dot\" cx=\"{at:.1}\" cy=\"{median:.1}\" r=\"3.5\">\
                 <title>{}: {shown}</title></circle>",
                y.at(point.least),
                y.at(point.most),
                line.name
            );
            // There is room side by side: the rounds from left to right, with their result in
            // figures.
            let apart = if matches!(x, XAxis::Names) { APART } else { 0.0 };
            let middle = (point.rounds.len() as f64 - 1.0) / 2.0;
            for (number, round) in (0..).zip(&point.rounds) {
                let (at, height) = (at + (f64::from(number) - middle) * apart, y.at(*round));
                let _ = writeln!(
                    out,
                    "<circle class=\"round\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"2.5\"/>"
                );
            }
            if matches!(x, XAxis::Names) {
                let _ = writeln!(
                    out,
                    "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{shown}</text>",
                    HEIGHT - 18.0
                );
            }
            if let Some(target) = point.target {
                let height = y.at(target);
                let _ = writeln!(
                    out,
                    "<line class=\"target\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{height:.1}\" \
                     y2=\"{height:.1}\"/>",
                    at - 16.0,
                    at + 16.0
                );
            }
        }
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n<figcaption><ul class=\"keys\">");
    for (number, line) in lines.iter().enumerate() {
        let _ = write!(
            out,
            "<li><span class=\"key c{}\">●</span> {}</li>",
            number % COLOURS,
            line.name
        );
    }
    out.push_str("</ul></figcaption></figure>\n");
}

fn draw_table(out: &mut String, case: &Value) {
    let _ = writeln!(
        out,
        "<table><tr><th></th><th>{}</th><th>median</th><th>min</th><th>max</th>\
         <th>target</th></tr>",
        text(&case["sizes"])
    );
    for row in list(&case["figures"]) {
        let unit = Unit::named(row["unit"].as_str().unwrap_or_default());
        let shown =
            |value: &Value| value.as_f64().map_or(String::new(), |value| escape(&unit.show(value)));
        let target = match (&row["target"]["at_most"], &row["target"]["at_least"]) {
            (most @ Value::Number(_), _) => format!("≤ {}", shown(most)),
            (_, least @ Value::Number(_)) => format!("≥ {}", shown(least)),
            _ => String::new(),
        };
        let met = match row["met"].as_bool() {
            Some(true) => "<td class=\"met\">",
            Some(false) => "<td class=\"missed\">",
            None => "<td>",
        };
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{met}{target}</td></tr>",
            text(&row["name"]),
            thousands(row["size"].as_f64().unwrap_or_default()),
            shown(&row["median"]),
            shown(&row["min"]),
            shown(&row["max"])
        );
    }
    out.push_str("</table>\n");
    for said in list(&case["notes"]).iter().chain(list(&case["problems"])) {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", text(said));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::{Figure, Sheet};
    use serde_json::json;

    /// The first error in the tags: each begun tag has to end, in order.
    fn unbalanced(page: &str) -> Option<String> {
        let mut open: Vec<&str> = Vec::new();
        for part in page.split('<').skip(1) {
            let Some((tag, _)) = part.split_once('>') else {
                return Some(format!("no end of <{part}"));
            };
            if tag.matches('"').count() % 2 == 1 {
                return Some(format!("odd quotes in <{tag}>"));
            }
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            match tag {
                _ if tag.starts_with('!') || tag.ends_with('/') => {}
                _ if tag.starts_with('/') => {
                    if open.pop() != Some(name) {
                        return Some(format!("</{name}> ends nothing"));
                    }
                }
                _ => open.push(name),
            }
        }
        open.pop().map(|name| format!("<{name}> has no end"))
    }

    fn record() -> Value {
        let mut sheet = Sheet::new("remote", "tasks");
        for (round, tasks) in [(1.0, 1), (1.1, 1), (40.0, 64), (50.0, 64)] {
            sheet.note(tasks, Figure::rate("lock & release"), 1e4 * round);
            sheet.note(tasks, Figure::new("rate / R", Unit::Share).at_least(0.5), 0.4 * round);
        }
        sheet.note(1, Figure::new("messages", Unit::Count).at_most(0.0), 0.0);
        sheet.trace("lock", vec![(0.0, 1e-5), (0.5, 1e-4), (0.99, 1e-3), (1.0, 1e-2)]);
        sheet.problems.push("a <lock> was lost".to_owned());
        json!({ "ok": true, "cases": [sheet.json(), Sheet::new("empty", "members").json()] })
    }

    #[test]
    fn the_page_is_well_formed_and_draws_every_figure() {
        let page = page("`bench <all>`, on a machine", &record());
        assert_eq!(unbalanced(&page), None);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        assert!(!page.contains("http"), "the page wants something that is not in it");
        for drawn in [
            "lock &amp; release",
            "rate / R",
            "messages",
            "a &lt;lock&gt; was lost",
            "99.9 %",
            "<code>bench &lt;all&gt;</code>",
        ] {
            assert!(page.contains(drawn), "{drawn} is missing");
        }
        // The drawings are rates and shares over two sizes, and a curve. The one count is in the
        // table only.
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("class=\"round\"").count(), 8, "each round has its dot");
    }

    #[test]
    fn a_scale_has_round_ticks_however_short_it_is() {
        for values in
            [[130e-9, 310e-9], [0.35, 0.6], [45.0, 46.0], [1e-6, 2e3], [0.0, 0.01], [7e5, 1.6e7]]
        {
            let scale = Scale::new(values.into_iter(), 0.0, 1.0);
            let ticks = scale.ticks();
            assert!((3..=12).contains(&ticks.len()), "{values:?}: {ticks:?}");
            for pair in ticks.windows(2) {
                assert!(
                    pair[0] < pair[1] && scale.at(pair[0]) >= 0.0 && scale.at(pair[1]) <= 1.0,
                    "{ticks:?}"
                );
            }
        }
    }

    #[test]
    fn a_tag_that_does_not_end_is_found() {
        assert!(unbalanced("<p><b>x</p></b>").is_some());
        assert!(unbalanced("<p>").is_some());
        assert!(unbalanced("<p class=\"x>y</p>").is_some());
        assert_eq!(unbalanced("<!doctype html><p class=\"x\">y<br/></p>"), None);
    }
}
