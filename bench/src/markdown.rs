//! Fills the tables of a Markdown page, such as docs/benchmarks.md, with measured figures.
//!
//! A table is between marks, `<!-- bench: how-fast -->` and `<!-- /bench -->`. Only the text
//! between the marks is replaced. It begins with the command of the run. A table changes only if
//! one run measures all of its cases, so that its rows come from one run and are complete.
//!
//! The template of a table is in a file (`how-fast.md`, `grantor.md`), with fields for figures.
//! Each field names a case and the name of the figure in that case:
//!
//! ```text
//! {local: floor L}             its median, at the largest of its sizes
//! {first local: floor L}       at the smallest of them
//! {range local: floor L}       the same, with the least and the most of the rounds
//! {size local: floor L}        the largest size, {first-size ...} the smallest
//! {met local: floor L}         its target, and whether it is met at all sizes that have it
//! {each local: floor L}        its medians at all sizes, a cell for each
//! {sizes local: floor L}       the sizes themselves, {rules ...} the lines below them
//! ```

use crate::sheet::{Row, Sheet, thousands};
use std::path::{Path, PathBuf};

struct MarkdownTable {
    mark: &'static str,
    /// The template of the table. `None`: a row for each measured lock service.
    template: Option<&'static str>,
}

const HOW_FAST: MarkdownTable =
    MarkdownTable { mark: "how-fast", template: Some(include_str!("how-fast.md")) };
const GRANTOR: MarkdownTable =
    MarkdownTable { mark: "grantor", template: Some(include_str!("grantor.md")) };
const MOVE: MarkdownTable = MarkdownTable { mark: "move", template: Some(include_str!("move.md")) };
const SECURE: MarkdownTable =
    MarkdownTable { mark: "secure", template: Some(include_str!("secure.md")) };
const KEPT: MarkdownTable = MarkdownTable { mark: "kept", template: Some(include_str!("kept.md")) };
const RIVALS: MarkdownTable = MarkdownTable { mark: "rivals", template: None };
const END: &str = "<!-- /bench -->";
/// The longest line of prose, in characters.
const LINE: usize = 100;

/// A file, and the tables of it that a run fills.
pub(crate) struct Markdown {
    file: PathBuf,
    tables: Vec<MarkdownTable>,
}

impl Markdown {
    /// Plans a run of these cases, or with `None` a run of other lock services. Fails before any
    /// measurement if the file lacks the marks, or if the run measures only some cases of a table.
    pub(crate) fn plan(file: &Path, cases: Option<&[&str]>) -> Result<Markdown, String> {
        let tables = match cases {
            Some(cases) => whole(cases)?,
            None => vec![RIVALS],
        };
        let markdown = Markdown { file: file.to_owned(), tables };
        markdown.fill(|_| Ok(String::new()))?;
        Ok(markdown)
    }

    /// Writes the tables into the file. After an error the file is unchanged.
    pub(crate) fn write(&self, about: &str, sheets: &[Sheet]) -> Result<(), String> {
        let text = self.fill(|table| {
            let rows = match table.template {
                Some(template) => expand(template, sheets)?,
                None => contenders(sheets),
            };
            Ok(format!("{}\n\n{}", wrapped(&format!("{about}:")), rows.trim_end()))
        })?;
        std::fs::write(&self.file, text).map_err(|error| self.complain(&error.to_string()))
    }

    /// The text of a file, with new content between its marks.
    fn fill(
        &self,
        inside: impl Fn(&MarkdownTable) -> Result<String, String>,
    ) -> Result<String, String> {
        let text = std::fs::read_to_string(&self.file)
            .map_err(|error| self.complain(&error.to_string()))?;
        let filled = self
            .tables
            .iter()
            .try_fold(text, |text, table| replace(&text, table.mark, &inside(table)?));
        filled.map_err(|problem| self.complain(&problem))
    }

    fn complain(&self, problem: &str) -> String {
        format!("{} is left as it is: {problem}", self.file.display())
    }
}

/// The tables whose cases are all measured. A table with only some measured cases is an error.
fn whole(measured: &[&str]) -> Result<Vec<MarkdownTable>, String> {
    let mut tables = Vec::new();
    for table in [HOW_FAST, GRANTOR, MOVE, SECURE, KEPT] {
        let (there, lacking): (Vec<&str>, Vec<&str>) =
            cases(&table).into_iter().partition(|case| measured.contains(case));
        match (&there[..], &lacking[..]) {
            ([..], []) => tables.push(table),
            ([], [..]) => {}
            _ => {
                let lacking = lacking.join(", ");
                return Err(format!(
                    "the table `{}` is made as a whole, and wants {lacking} as well",
                    table.mark
                ));
            }
        }
    }
    Ok(tables)
}

/// The cases that a table names, each once.
fn cases(table: &MarkdownTable) -> Vec<&'static str> {
    let fields = table.template.unwrap_or_default().split('{').skip(1);
    let mut cases: Vec<&str> = fields.filter_map(|field| Some(parse(field)?.1)).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

/// The parts of a field: the wanted value, the case, and the figure.
fn parse(field: &str) -> Option<(&str, &str, &str)> {
    let (head, figure) = field.split_once(": ")?;
    let (verb, case) = head.rsplit_once(' ').unwrap_or(("", head));
    Some((verb, case, figure))
}

/// The text, wrapped into lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// The text, with `inside` between these marks.
fn replace(text: &str, mark: &str, inside: &str) -> Result<String, String> {
    let begin = format!("<!-- bench: {mark} -->");
    let mut parts = text.split(&begin);
    let (Some(before), Some(after), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("it should have the mark {begin} once"));
    };
    let (old, after) = after.split_once(END).ok_or(format!("no {END} follows {begin}"))?;
    if old.contains("<!-- bench: ") {
        return Err(format!("another table begins before {END} follows {begin}"));
    }
    Ok(format!("{before}{begin}\n\n{inside}\n\n{END}{after}"))
}

fn expand(template: &str, sheets: &[Sheet]) -> Result<String, String> {
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (field, rest) = part.split_once('}').ok_or(format!("a field has no end: {part}"))?;
        text += &show(field, sheets)?;
        text += rest;
    }
    Ok(text)
}

fn show(field: &str, sheets: &[Sheet]) -> Result<String, String> {
    let (verb, case, figure) =
        parse(field).ok_or(format!("`{field}` is not a field for a figure"))?;
    let sheet = sheets.iter().find(|sheet| sheet.case == case);
    let rows = sheet.map(|sheet| sheet.figure(figure)).unwrap_or_default();
    let [first, ..] = rows[..] else { return Err(format!("case {case} has no figure `{figure}`")) };
    let last = rows[rows.len() - 1];
    let size = |row: &Row| thousands(row.size.into());
    let cells = |cell: &dyn Fn(&Row) -> String| {
        rows.iter().map(|row| cell(row)).collect::<Vec<_>>().join(" | ")
    };
    Ok(match verb {
        "" => last.show(),
        "first" => first.show(),
        "range" => last.show_range(),
        "size" => size(last),
        "first-size" => size(first),
        "met" => verdict(&rows).ok_or(format!("`{figure}` of case {case} has no target"))?,
        "each" => cells(&Row::show),
        "sizes" => cells(&size),
        "rules" => "---|".repeat(rows.len()),
        _ => return Err(format!("unknown verb {verb} of a figure")),
    })
}

fn verdict(rows: &[&Row]) -> Option<String> {
    let target = rows.iter().rev().find_map(|row| row.show_target())?;
    let judged = rows.iter().filter(|row| row.is_met().is_some()).count();
    let missed = rows.iter().filter(|row| row.is_met() == Some(false));
    let missed: Vec<String> = missed.map(|row| thousands(row.size.into())).collect();
    Some(match missed.len() {
        0 => format!("{target}, met"),
        all if all == judged => format!("{target}, **missed**"),
        _ => format!("{target}, **missed** with {}", missed.join(", ")),
    })
}

/// A row for each measured lock service, and a column for each work.
fn contenders(sheets: &[Sheet]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in sheets.iter().flat_map(Sheet::rows) {
        if !names.contains(&row.name()) {
            names.push(row.name());
        }
    }
    let line = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let heading = |sheet: &Sheet| match sheet.rows().first() {
        Some(row) if row.size > 1 => format!("{}, {} {}", sheet.case, row.size, sheet.sizes),
        _ => sheet.case.to_owned(),
    };
    let mut text = line("", sheets.iter().map(heading).collect());
    text += &format!("|---|{}\n", "---|".repeat(sheets.len()));
    for name in names {
        let cell = |sheet: &Sheet| {
            sheet.figure(name).first().map_or(String::new(), |row| row.show_range())
        };
        text += &line(name, sheets.iter().map(cell).collect());
    }
    let notes: Vec<String> =
        sheets.iter().flat_map(|sheet| &sheet.notes).map(|note| format!("- {note}\n")).collect();
    format!("{text}\n{}", notes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CASES;
    use crate::sheet::{Figure, HELD, Unit};

    const PAGE: &str = include_str!("../../docs/benchmarks.md");

    fn sheets() -> Vec<Sheet> {
        let mut local = Sheet::new("local", "tasks");
        let mut transfer = Sheet::new("transfer", HELD);
        for round in [1.0, 2.0, 3.0] {
            local.note(1, Figure::rate("floor L"), 1000.0 * round);
            local.note(2, Figure::rate("floor L"), 2000.0 * round);
            local.note(1, Figure::new("lock and release / L", Unit::Times).at_most(2.5), round);
            local.note(1, Figure::new("scaling", Unit::Share), 0.1 * round);
            local.note(2, Figure::new("scaling", Unit::Share).at_least(0.9), 0.1 * round);
            transfer.note(100, Figure::time("gap").at_most(0.2), 0.01 * round);
            transfer.note(10_000, Figure::time("gap").at_most(0.2), 0.2 * round);
        }
        vec![local, transfer]
    }

    #[test]
    fn fields_are_filled_with_figures() {
        let shown = |field: &str| show(field, &sheets()).unwrap();
        assert_eq!(shown("local: floor L"), "4,000/s");
        assert_eq!(shown("first local: floor L"), "2,000/s");
        assert_eq!(shown("range local: floor L"), "4,000/s (2,000 to 6,000)");
        assert_eq!(shown("size transfer: gap"), "10,000");
        assert_eq!(shown("first-size transfer: gap"), "100");
        assert_eq!(shown("each transfer: gap"), "20.0 ms | 400.0 ms");
        assert_eq!(shown("sizes transfer: gap"), "100 | 10,000");
        assert_eq!(shown("rules transfer: gap"), "---|---|");
        assert_eq!(shown("met local: lock and release / L"), "≤ 2.50 x, met");
        assert_eq!(shown("met local: scaling"), "≥ 90.0 %, **missed**");
        assert_eq!(shown("met transfer: gap"), "≤ 200.0 ms, **missed** with 10,000");
        assert_eq!(expand("a {size local: floor L}, b", &sheets()).as_deref(), Ok("a 2, b"));
    }

    #[test]
    fn a_figure_that_was_not_measured_is_missed() {
        for field in [
            "local: floor R",
            "remote: floor R",
            "met local: floor L",
            "most local: floor L",
            "local",
        ] {
            assert!(show(field, &sheets()).is_err(), "{field}");
        }
        assert!(expand("a {local: floor L", &sheets()).is_err());
    }

    #[test]
    fn text_between_the_marks_is_replaced_and_nothing_else() {
        let text = "a\n<!-- bench: x -->\nold\n<!-- /bench -->\nb\n<!-- bench: y -->\nkept\n\
            <!-- /bench -->\nc";
        let new = "a\n<!-- bench: x -->\n\nnew\n\n<!-- /bench -->\nb\n\
            <!-- bench: y -->\nkept\n<!-- /bench -->\nc";
        assert_eq!(replace(text, "x", "new").as_deref(), Ok(new));
        assert_eq!(replace(new, "x", "new").as_deref(), Ok(new));
    }

    #[test]
    fn a_text_without_its_marks_is_refused() {
        for text in [
            "",
            "<!-- bench: x -->",
            "<!-- /bench --><!-- bench: x -->",
            "<!-- bench: x --><!-- /bench --><!-- bench: x --><!-- /bench -->",
            "<!-- bench: x --><!-- bench: y --><!-- /bench -->",
        ] {
            assert!(replace(text, "x", "new").is_err(), "{text}");
        }
    }

    #[test]
    fn a_table_is_made_of_all_its_cases_or_not_at_all() {
        let all: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        let marks = |measured: &[&str]| {
            whole(measured).map(|tables| tables.iter().map(|table| table.mark).collect::<Vec<_>>())
        };
        assert_eq!(marks(&all), Ok(vec!["how-fast", "grantor", "move", "secure", "kept"]));
        assert_eq!(marks(&["secure"]), Ok(vec!["secure"]));
        assert_eq!(marks(&["recovery", "transfer", "leave"]), Ok(vec!["grantor"]));
        let lacking = marks(&["recovery", "transfer"]).unwrap_err();
        assert!(lacking.contains("wants leave as well"), "{lacking}");
        assert!(marks(&["local", "recovery", "transfer", "leave"]).is_err());
        let tables = [HOW_FAST, GRANTOR, MOVE, SECURE, KEPT];
        let mut named: Vec<&str> = tables.iter().flat_map(cases).collect();
        named.sort_unstable();
        let mut all = all;
        all.sort_unstable();
        assert_eq!(named, all, "each case is of one table");
    }

    /// The sources of all cases.
    fn sources() -> String {
        [
            include_str!("bulk.rs"),
            include_str!("membership.rs"),
            include_str!("failover.rs"),
            include_str!("kept.rs"),
            include_str!("secure.rs"),
            include_str!("speed.rs"),
            include_str!("grantor_change.rs"),
            include_str!("wake.rs"),
        ]
        .concat()
    }

    fn templates() -> impl Iterator<Item = &'static str> {
        [HOW_FAST, GRANTOR, MOVE, SECURE, KEPT].into_iter().filter_map(|table| table.template)
    }

    /// A check of the sources, because a run of all cases takes minutes.
    #[test]
    fn each_figure_of_a_table_is_noted_by_a_case() {
        let noted = sources();
        for part in templates().flat_map(|template| template.split('{').skip(1)) {
            let field = part.split_once('}').unwrap().0;
            let (verb, _, figure) = parse(field).unwrap();
            let known =
                ["", "first", "range", "size", "first-size", "met", "each", "sizes", "rules"];
            assert!(known.contains(&verb), "{field}");
            assert!(noted.contains(&format!("\"{figure}\"")), "no case notes {figure}");
        }
    }

    #[test]
    fn each_figure_with_a_target_is_in_a_table() {
        let sources = sources();
        let figures = sources.split("Figure::").skip(1).filter_map(|rest| {
            let statement = rest.split(';').next()?;
            let is_judged = statement.contains(".at_most(") || statement.contains(".at_least(");
            // A name that is a variable cannot be read here.
            let name = statement.split_once('(')?.1.trim_start().strip_prefix('"')?;
            is_judged.then_some(name.split('"').next()?)
        });
        let figures: Vec<&str> = figures.collect();
        assert!(figures.len() > 20, "only {} figures are read", figures.len());
        for figure in figures {
            let field = format!(": {figure}}}");
            let is_there = templates().any(|template| template.contains(&field));
            assert!(is_there, "no table has the figure `{figure}`");
        }
    }

    #[test]
    fn rivals_have_a_row_each_and_one_that_is_not_there_is_named() {
        let mut work = Sheet::new("one client", "tasks");
        work.note(64, Figure::rate("elderlock"), 1000.0);
        work.note(64, Figure::rate("Redis"), 10.0);
        work.notes.push("etcd: missing: there is no etcd here".to_owned());
        let mut killed = Sheet::new("holder killed", "waiting");
        killed.note(1, Figure::time("Redis"), 3.5);
        let rows = [
            "|  | one client, 64 tasks | holder killed |\n|---|---|---|\n",
            "| elderlock | 1,000/s (1,000 to 1,000) |  |\n",
            "| Redis | 10/s (10 to 10) | 3.5 s (3.5 to 3.5) |\n",
            "\n- etcd: missing: there is no etcd here\n",
        ];
        assert_eq!(contenders(&[work, killed]), rows.concat());
    }

    #[test]
    fn readme_has_the_marks() {
        for table in [HOW_FAST, GRANTOR, MOVE, SECURE, KEPT, RIVALS] {
            replace(PAGE, table.mark, "").unwrap();
        }
        assert_eq!(
            PAGE.matches("<!-- bench: ").count(),
            6,
            "docs/benchmarks.md has an unknown mark"
        );
    }
}
