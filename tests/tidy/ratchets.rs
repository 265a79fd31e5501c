//! Measures of the text and the layout. Most measures have to be zero. The limit of any other
//! measure is its last measured value. A change that makes the value smaller lowers the limit. For
//! each measure a test shows a breach.

use super::{code, files_below, read, root, test_files};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Clauses with `who`, `whom`, `whoever` or `nobody`, or that begin with `what`, in 1,000 words of
/// prose. The prose is that of the files below a folder, or of one file. Some clauses
/// of `sim` are data.
pub(super) const CLAUSES: [(&str, f64); 30] = [
    ("src/lib.rs", 0.0),
    ("src/sql.rs", 0.0),
    ("src/protocol", 0.0),
    ("src/wire", 0.0),
    ("src/gossip", 0.0),
    ("src/runtime", 0.0),
    ("src/service", 0.0),
    ("src/recipes", 0.0),
    ("sim", 0.014),
    ("bench", 0.0),
    ("cli", 0.0),
    ("fence", 0.0),
    ("testing", 0.0),
    ("tests", 0.0),
    ("docs", 0.0),
    ("docs/schemas", 0.0),
    ("examples", 0.0),
    ("benches", 0.0),
    ("README.md", 0.0),
    ("DESIGN.md", 0.0),
    ("CONTRIBUTING.md", 0.0),
    ("CHANGELOG.md", 0.0),
    (".ci/run", 0.0),
    ("deploy", 0.0),
    ("src/service/http/page.html", 0.0),
    ("sim/scripts", 0.0),
    ("sim/regressions", 0.0),
    ("Cargo.toml", 0.0),
    ("clippy.toml", 0.0),
    ("deny.toml", 0.0),
];

/// Phrases in place of a number that the reader has to guess.
const GUESSED: [&str; 2] = ["so many", "that many"];

/// Words that are not a subject of a name. The subject is a noun of the glossary.
const NO_SUBJECTS: [&str; 7] = ["who", "whoever", "whom", "nobody", "somebody", "everybody", "he"];

/// The only name of a file, type or invariant without a subject: the documents quote it as a rule.
const NAMED_SO: [&str; 1] = ["what_is_seen_is_so"];

/// The folders whose files have names with a subject.
const NAMED: [&str; 12] = [
    "src", "sim", "bench", "cli", "fence", "testing", "tests", "docs", "examples", "benches",
    "deploy", ".ci",
];

/// Paragraphs of documentation that begin with one of [`VAGUE`], in the sources below a folder.
/// A reader of such a paragraph looks for its noun elsewhere.
const OPENINGS: [(&str, usize); 7] =
    [("src", 0), ("sim", 0), ("cli", 0), ("bench", 0), ("testing", 0), ("fence", 0), ("tests", 0)];

/// The words that stand for a missing noun at the beginning of a paragraph.
const VAGUE: [&str; 8] =
    ["It", "Those", "These", "That one", "The same", "One", "Another", "Likewise"];

/// The words of [`VAGUE`] that a noun may follow, as in "One member". They stand for a missing noun
/// only at the end of a clause and before one of [`NO_NOUNS`].
const COUNTED: [&str; 2] = ["One", "Another"];

/// The words after [`COUNTED`] that are no noun.
const NO_NOUNS: [&str; 8] = ["of", "in", "more", "is", "has", "that", "which", "for"];

/// The places without a line of more than 100 characters, outside tables and link targets. In TOML
/// and YAML only the comments count, because lists of features and values break badly. In [`LOGS`]
/// only the comments count, because a step is one line.
const WRAPPED: [&str; 27] = [
    "src",
    "sim",
    "sim/scripts",
    "sim/regressions",
    "sim/pictures/make",
    "bench",
    "cli",
    "fence",
    "testing",
    "tests",
    "docs",
    "examples",
    "benches",
    "README.md",
    "DESIGN.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    ".ci/run",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
    "deploy/Dockerfile",
    "deploy/alerts-test.yaml",
    "deploy/alerts.yaml",
    "deploy/kubernetes.yaml",
    "src/service/http/page.html",
];

/// The scripts and the logs of the simulator, whose files have no extension.
const LOGS: [&str; 2] = ["sim/scripts", "sim/regressions"];

/// The crates. In none of them do two types share a name.
pub(super) const CRATES: [&str; 6] =
    ["src", "sim/src", "bench/src", "cli/src", "fence/src", "testing/src"];

/// The folders of tests. Each file in them is a crate, with the folder of its name.
const TESTS: [&str; 6] =
    ["tests", "sim/tests", "bench/tests", "cli/tests", "fence/tests", "testing/tests"];

/// The most fields that a struct of the protocol has.
const MOST_FIELDS: usize = 19;

/// The greatest number of lines of the two documents that are read first.
const MOST_LINES: [(&str, usize); 2] = [("README.md", 134), ("DESIGN.md", 275)];

#[test]
fn bare_clauses_grow_rarer() {
    let mut above = Vec::new();
    for (place, limit) in CLAUSES {
        // The samples below contain breaches.
        let files = texts(place).into_iter().filter(|(file, _)| !file.ends_with("ratchets.rs"));
        let prose: Vec<String> = files.map(|(file, text)| prose(&file, &text)).collect();
        let clauses: Vec<_> = prose.iter().flat_map(|text| bare_clauses(text)).collect();
        let words: usize = prose.iter().map(|text| text.split_whitespace().count()).sum();
        let rate = (clauses.len() * 1000) as f64 / words.max(1) as f64;
        println!("{place}: {rate:.3} bare clauses in 1,000 words ({} in {words})", clauses.len());
        if rate > limit {
            above.push(format!("{place}: {rate:.3} in 1,000 words; at most {limit}: {clauses:#?}"));
        }
    }
    assert!(above.is_empty(), "{}", above.join("\n"));
}

#[test]
fn a_bare_clause_is_found() {
    let file = Path::new("x.rs");
    let found = |text: &str| bare_clauses(&prose(file, text)).len();
    assert_eq!(found("/// Who waits hears of it.\nfn f() {}"), 1);
    assert_eq!(found("const TEXT: &str = \"to whom it belongs, whoever asks\";"), 2);
    assert_eq!(found("// What it holds is over. It says what it holds.\n"), 1);
    assert_eq!(found("// Nobody asks, or somebody does.\n"), 2);
    assert_eq!(found("let who = what; // a process\n"), 0);
    assert_eq!(found("const TEXT: &str = \"{who} waits: {what}.\";"), 0);
    assert_eq!(found("const TEXT: &str = \"it asks, \\\n    and who waits?\";"), 1);
    assert_eq!(found("const TEXT: &str = r#\"the \"who\"\"#; let c = '\"'; // of whom"), 2);
    // A backtick alone hides nothing behind it.
    assert_eq!(found("// A ` here.\nfn f() {}\n// Who waits, `who` says.\n"), 1);
    assert_eq!(bare_clauses(&prose(Path::new("run"), "# Who runs?\nwho\n")).len(), 1);
    assert_eq!(
        bare_clauses(&prose(Path::new("x.md"), "Who asks?\n```sh\nwho\n```\n`who`, who")).len(),
        2
    );
    let html = "<script>\n// Who asks?\nconst who = \"what waits\";";
    assert_eq!(bare_clauses(&prose(Path::new("x.html"), html)).len(), 2);
    assert_eq!(bare_clauses(&prose(Path::new("x.yaml"), "# Who asks?\nsummary: What?")).len(), 2);
}

#[test]
fn numbers_have_names() {
    for (place, _) in CLAUSES {
        let files = texts(place).into_iter().filter(|(file, _)| !file.ends_with("ratchets.rs"));
        for (file, text) in files {
            let found = guessed_numbers(&prose(&file, &text));
            assert_eq!(found, Vec::<String>::new(), "{}: name the number", file.display());
        }
    }
}

#[test]
fn a_number_without_a_name_is_found() {
    let found = |text: &str| guessed_numbers(&prose(Path::new("x.rs"), text)).len();
    assert_eq!(found("/// Keeps so many bytes.\n/// So\n/// many, and \"that many\".\n"), 3);
    assert_eq!(found("const TEXT: &str = \"at most that \\\n    many\";"), 1);
    assert_eq!(found("/// `so many`, so few, many, as many as that.\nlet so_many = 1;"), 0);
}

#[test]
fn names_of_tests_have_nouns_as_subjects() {
    for (file, names) in test_files() {
        let without: Vec<&String> = names.iter().filter(|name| lacks_subject(name)).collect();
        assert_eq!(without, Vec::<&String>::new(), "{}", file.display());
    }
}

#[test]
fn a_name_of_a_test_without_a_noun_is_found() {
    let without = ["who_waits_is_told", "a_lock_that_nobody_holds", "what_waits", "whatever_waits"];
    assert_eq!(without.map(lacks_subject), [true; 4]);
    let with = ["a_waiter_is_told", "a_client_sees_what_it_wrote", "when_all_leave_none_waits"];
    assert_eq!(with.map(lacks_subject), [false; 3]);
}

#[test]
fn names_of_files_types_and_invariants_have_nouns_as_subjects() {
    let sources = || NAMED.iter().filter(|folder| !["deploy", ".ci"].contains(folder));
    let rust = |folder: &str| texts(folder).into_iter().filter(|(file, _)| is_rust(file));
    let files = NAMED.iter().flat_map(|folder| names_below(&root().join(folder))).collect();
    let types = sources().flat_map(|folder| rust(folder)).flat_map(|(_, text)| types(&text));
    let invariants = rust("sim/src").flat_map(|(_, text)| quoted_names(&text));
    let kinds: [(&str, Vec<String>); 3] =
        [("files", files), ("types", types.collect()), ("invariants", invariants.collect())];
    for (kind, names) in kinds {
        // Each kind has the exception, so a rule that reads nothing fails.
        let without: BTreeSet<String> =
            names.into_iter().filter(|name| lacks_subject(name)).collect();
        assert_eq!(Vec::from_iter(without), NAMED_SO, "{kind}");
    }
}

#[test]
fn a_name_of_a_file_type_or_invariant_without_a_noun_is_found() {
    let found = |names: Vec<String>| names.iter().filter(|name| lacks_subject(name)).count();
    assert_eq!(found(types("pub struct WhoWaits;\nenum LockOfWhom {}\nstruct Holder;")), 2);
    assert_eq!(found(types("struct HeWaits;\nstruct Header;\ntype Whatever = u8;")), 2);
    assert_eq!(found(quoted_names("f(\"who_leaves\", \"who waits\", \"holds_survive\")")), 1);
    assert!(lacks_subject("who-waits") && !lacks_subject("whole-frames"));
    let names = names_below(&root().join("sim/src/invariants"));
    assert!(names.iter().any(|name| name == NAMED_SO[0]), "{names:?}");
}

#[test]
fn paragraphs_begin_with_a_noun() {
    for (place, limit) in OPENINGS {
        let files = texts(place).into_iter().filter(|(file, _)| is_rust(file));
        let found: Vec<String> = files
            .flat_map(|(file, text)| {
                let openings = vague_openings(&text).into_iter();
                openings.map(|text| format!("{}: {text}", file.display())).collect::<Vec<_>>()
            })
            .collect();
        println!("{place}: {} paragraphs begin without a noun; at most {limit}", found.len());
        assert!(
            found.len() <= limit,
            "{place}: {} paragraphs begin without a noun; at most {limit}: {found:#?}",
            found.len()
        );
    }
}

#[test]
fn a_paragraph_without_a_noun_at_its_beginning_is_found() {
    let found = vague_openings;
    assert_eq!(
        found("//! It waits.\n//! It holds.\n\n    /// Those here."),
        ["It waits.", "Those here."]
    );
    assert_eq!(found("/// A lock.\n///\n/// The same, later.\nfn f() {}"), ["The same, later."]);
    for word in VAGUE {
        assert_eq!(found(&format!("fn f() {{}}\n/// {word}: here")).len(), 1, "{word}");
    }
    assert_eq!(found("/// One of them.\n\n/// Another\n\n/// One, of two.").len(), 3);
    let none = Vec::<&str>::new();
    assert_eq!(found("/// One lock.\n\n/// Another member."), none);
    assert_eq!(found("/// A lock.\n/// It waits.\n// It waits.\nlet it = \"It waits\";"), none);
    assert_eq!(found("/// Its lock.\n\n/// [`One`] lock.\n\n/// Once.\n\n/// That lock."), none);
    assert_eq!(found("/// A lock:\n///\n/// ```\n///\n/// One\n/// ```\n"), none);
}

#[test]
fn lines_have_at_most_a_hundred_characters() {
    for folder in WRAPPED {
        for (file, text) in texts(folder) {
            assert_eq!(long_lines(&file, &text), 0, "{}: lines of over 100", file.display());
        }
    }
}

#[test]
fn a_long_line_is_found() {
    let long = "word ".repeat(21);
    assert_eq!(long_lines(Path::new("x.rs"), &format!("{long}\n//! | {long} |\nshort\n")), 1);
    assert_eq!(
        long_lines(Path::new("x.md"), &format!("| {long} |\n{long}\n[a](b/{})\n", "c".repeat(99))),
        1
    );
    assert_eq!(long_lines(Path::new("x.md"), &format!("{long} [a](b)\n")), 1);
    assert_eq!(long_lines(Path::new("run"), &format!("# {long}\n{long}\n")), 2);
    assert_eq!(long_lines(Path::new("x.toml"), &format!("# {long}\nx = \"{long}\"\n")), 1);
    assert_eq!(long_lines(Path::new("x.yaml"), &format!("  # {long}\nx: {long}\n")), 1);
    assert_eq!(long_lines(Path::new("sim/scripts/x"), &format!("# {long}\n{long}\n")), 1);
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    for folder in CRATES {
        assert_eq!(defined_twice(&texts(folder)), Vec::<String>::new(), "{folder}");
    }
    for folder in TESTS {
        let mut crates: BTreeMap<String, Vec<(PathBuf, String)>> = BTreeMap::new();
        for (file, text) in texts(folder) {
            let name = file.strip_prefix(folder).unwrap_or(&file).iter().next();
            let name = name.unwrap_or_default().to_string_lossy().replace(".rs", "");
            crates.entry(name).or_default().push((file, text));
        }
        for (name, files) in crates {
            assert_eq!(defined_twice(&files), Vec::<String>::new(), "{folder}/{name}");
        }
    }
}

#[test]
fn a_type_with_the_name_of_another_is_found() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let files = [file("a.rs", "struct One;\nenum Two {}"), file("b.rs", "struct Two;")];
    assert_eq!(defined_twice(&files), ["Two"]);
}

#[test]
fn a_defined_type_is_found() {
    let text = "pub(crate) struct One<T>(T);\n    enum Two {}\npub trait Three: Send {}\n\
        impl One { type Four = u8; }\ntype Five = u8;\n// struct Six\n\
        pub(in crate::a) struct Seven;";
    assert_eq!(defined(text), ["One", "Two", "Three", "Five", "Seven"]);
}

#[test]
fn no_files_import_each_other_in_circles() {
    let files: Vec<(PathBuf, String)> =
        texts("src").into_iter().filter(|(file, _)| is_rust(file)).collect();
    let graph = imports(&files);
    let circles: Vec<Vec<String>> = circles(&graph).into_iter().map(Vec::from_iter).collect();
    assert_eq!(circles, Vec::<Vec<String>>::new(), "{graph:#?}");
}

#[test]
fn a_circle_of_files_is_found() {
    let found = |files: &[(&str, &str)]| {
        let file = |(path, text): &(&str, &str)| (PathBuf::from(path), text.to_string());
        let files: Vec<_> = files.iter().map(file).collect();
        let circles = circles(&imports(&files));
        circles.iter().map(|circle| Vec::from_iter(circle.clone()).join(" ")).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    let top = ("src/lib.rs", "mod a; mod c;");
    assert_eq!(
        found(&[top, ("src/a.rs", "use crate::c::D;"), ("src/c.rs", "use super::a;")]),
        ["a c"]
    );
    // A path within the code is an import, too.
    assert_eq!(
        found(&[top, ("src/a.rs", "fn f() { crate::c::d(); }"), ("src/c.rs", "use crate::a::E;")]),
        ["a c"]
    );
    // A part of `a` names `a`, and `a` names nothing of it.
    let part = ("src/a/b.rs", "use super::*;\nimpl A {}");
    assert_eq!(found(&[top, ("src/a.rs", "mod b;\nstruct A;"), part]), none);
    // In each of these forms `a` names the part as well.
    for form in [
        "use b::B;",
        "struct A(b::B);",
        "pub use b::B;\nstruct A(B);",
        "pub(crate) use b::B;\nfn f() -> B {}",
    ] {
        let text = format!("mod b;\n{form}");
        assert_eq!(found(&[top, ("src/a.rs", text.as_str()), part]), ["a a::b"], "{form}");
    }
    // Such a type is in a file below `a` and its part.
    let below = ("src/a.rs", "mod b;\nmod e;\nuse e::E;\nstruct A(E);");
    assert_eq!(found(&[top, below, part, ("src/a/e.rs", "struct E;")]), none);
    // A planted break may name the code that it breaks.
    let planted = ("src/a.rs", "mod planted;\nfn f() { planted::g() }");
    assert_eq!(found(&[top, planted, ("src/a/planted.rs", "use super::*;")]), none);
    // A module of tests at the top hides nothing below it.
    let chance = ("src/a.rs", "#[cfg(test)]\nmod chance;\nmod b;\nuse b::B;");
    assert_eq!(found(&[top, chance, part]), ["a a::b"]);
    // `c` uses a child of `a` that leads to no other file, and `a` uses `c`.
    let child = ("src/a.rs", "mod b;\npub mod e;\nuse e::E;\nuse crate::c::D;");
    let leaf = [top, child, ("src/a/e.rs", "struct E;"), ("src/c.rs", "use crate::a::e::E;")];
    assert_eq!(found(&leaf), none);
    // Here the same child leads to a part of `a`, and so to `c` again.
    let mut through = leaf.to_vec();
    through[2].1 = "use super::b::B;";
    through.push(("src/a/b.rs", "use super::*;\nstruct B;"));
    assert_eq!(found(&through), ["a a::b a::e c"]);
    // A list of imports names the modules in it, and not their parent.
    let list = ("src/a.rs", "pub mod e;\npub mod f;\nuse e::E;");
    assert_eq!(
        found(&[top, list, ("src/a/e.rs", "use super::{f::F};"), ("src/a/f.rs", "struct F;")]),
        none
    );
    // A public child that names its parent is not a part.
    assert_eq!(
        found(&[top, ("src/a.rs", "pub mod e;\nuse e::E;"), ("src/a/e.rs", "use super::F;")]),
        ["a a::e"]
    );
    // A name that `a` only re-exports is not an edge of `a`. It leads to its own file.
    let front = ("src/a.rs", "mod e;\nmod f;\npub use e::E;\npub use f::F;");
    assert_eq!(
        found(&[top, front, ("src/a/e.rs", "use crate::a::F;"), ("src/a/f.rs", "struct F;")]),
        none
    );
    assert_eq!(
        found(&[top, front, ("src/a/e.rs", "use crate::a::F;"), ("src/a/f.rs", "use super::E;")]),
        ["a::e a::f"]
    );
}

#[test]
fn structs_of_the_protocol_have_fewer_fields() {
    for (file, text) in texts("src/protocol") {
        for (name, fields) in fields(&text) {
            assert!(
                fields <= MOST_FIELDS,
                "{}: {name} has {fields} fields; at most {MOST_FIELDS}",
                file.display()
            );
        }
    }
}

#[test]
fn a_field_is_counted() {
    let text = "pub struct One {\n    /// A field: one.\n    pub(crate) a: u8,\n    #[cfg(test)]\n\
        \x20   b: Vec<u8>,\n}\nstruct Two(u8);\n";
    assert_eq!(fields(text), [("One".to_string(), 2)]);
}

#[test]
fn the_first_documents_stay_short() {
    for (file, limit) in MOST_LINES {
        let lines = read(&root().join(file)).lines().count();
        assert!(lines <= limit, "{file} has {lines} lines; at most {limit}");
    }
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

/// The sources and documents of a folder, its logs, or one file, with their paths from the top.
pub(super) fn texts(place: &str) -> Vec<(PathBuf, String)> {
    let from_top =
        |file: &Path| file.strip_prefix(root()).map(Path::to_path_buf).unwrap_or_default();
    let kinds: &[&str] = match place {
        "deploy" => &["", "yaml", "json"],
        "docs/schemas" => &["json"],
        _ if LOGS.contains(&place) => &[""],
        _ => &["rs", "md", "toml"],
    };
    let place = root().join(place);
    let found: Vec<PathBuf> = match place.is_file() {
        true => vec![place],
        false => kinds.iter().flat_map(|extension| files_below(&place, extension)).collect(),
    };
    assert!(!found.is_empty(), "a rule reads nothing: there is no such place");
    found.into_iter().map(|file| (from_top(&file), read(&file))).collect()
}

/// The prose of a file: comments and string literals, comments alone, or a document without code.
/// Values of YAML and JSON have no quotation marks, or names with them: the whole text counts.
fn prose(file: &Path, text: &str) -> String {
    let chunks = match file.extension().and_then(|extension| extension.to_str()) {
        Some("rs" | "html") => rust_prose(text),
        Some("md" | "yaml" | "json") => text.to_owned(),
        _ => comments(text).collect::<Vec<_>>().join("\n"),
    };
    let mut out = String::new();
    let mut is_code = false;
    for line in chunks.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            out.push_str(&format!("{line}\n"));
        }
    }
    out.split("\n\n").map(without_names).collect::<Vec<_>>().join("\n\n")
}

/// Names of the code are not prose. A backtick without another one in its paragraph is a letter.
pub(super) fn without_names(paragraph: &str) -> String {
    let parts: Vec<&str> = paragraph.split('`').collect();
    let last = parts.len() - 1;
    let kept = parts.iter().enumerate().map(|(at, part)| match at % 2 == 0 || at == last {
        true => *part,
        false => "x",
    });
    kept.collect()
}

/// The comments of a script, or of TOML.
pub(super) fn comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.trim_start().strip_prefix('#').map_or("", str::trim_start))
}

/// Comments and string literals of a source, each with a blank line behind it.
fn rust_prose(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    let mut is_comment = false;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let before = &rest[..at];
        if is_comment && !before.trim().is_empty() {
            out.push('\n');
            is_comment = false;
        }
        let hashes = before.len() - before.trim_end_matches('#').len();
        let is_raw = before[..at - hashes].ends_with('r');
        rest = &rest[at..];
        if rest.starts_with("//") {
            let line = rest.lines().next().unwrap_or_default();
            out.push_str(line.trim_start_matches(['/', '!']).trim_start());
            out.push('\n');
            is_comment = true;
            rest = &rest[line.len()..];
        } else if rest.starts_with('"') && is_raw {
            let end = format!("\"{}", "#".repeat(hashes));
            let literal = rest[1..].split(&end).next().unwrap_or_default();
            out.push_str(&format!("{literal}.\n\n"));
            rest = rest.get(1 + literal.len() + end.len()..).unwrap_or_default();
        } else if rest.starts_with('"') {
            let mut length = 1;
            while let Some(letter) = rest[length..].chars().next().filter(|letter| *letter != '"') {
                length += letter.len_utf8();
                let is_escape = letter == '\\';
                length += is_escape
                    .then(|| rest[length..].chars().next())
                    .flatten()
                    .map_or(0, char::len_utf8);
            }
            // A line that ends with a backslash goes on without the spaces of the next one.
            let lines = rest[1..length].split("\\\n").map(str::trim_start);
            out.push_str(&format!("{}.\n\n", lines.collect::<String>()));
            rest = rest.get(length + 1..).unwrap_or_default();
        } else {
            let is_letter = |literal: &&str| rest.starts_with(*literal);
            let skipped = ["'\"'", "'/'", "'\\''", "'\\\\'"].iter().find(|one| is_letter(one));
            rest = &rest[skipped.map_or(1, |one| one.len())..];
        }
    }
    out
}

/// Returns each clause with a few words around it. The arguments of format strings are left out,
/// because they are names.
fn bare_clauses(prose: &str) -> Vec<String> {
    let is_argument = |word: &&str| word.contains('{') && word.contains('}');
    let words: Vec<&str> = prose.split_whitespace().filter(|word| !is_argument(word)).collect();
    let mut found = Vec::new();
    let mut is_start = true;
    for (at, word) in words.iter().enumerate() {
        let plain = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
        let is_bare = match plain.as_str() {
            "who" | "whom" | "whoever" | "whomever" | "nobody" | "somebody" | "everybody" => true,
            "what" | "whatever" => is_start,
            _ => false,
        };
        if is_bare {
            found.push(words[at.saturating_sub(3)..words.len().min(at + 7)].join(" "));
        }
        is_start = word.ends_with(['.', ':', ';', ',', '?', '!', '|', '-', '*']);
    }
    found
}

/// Returns each phrase in place of a number, with a few words before and after it.
fn guessed_numbers(prose: &str) -> Vec<String> {
    let words: Vec<&str> = prose.split_whitespace().collect();
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let is_guessed = |at: &usize| {
        let phrase = words[*at..].iter().take(2).map(|word| plain(word)).collect::<Vec<_>>();
        GUESSED.contains(&phrase.join(" ").as_str())
    };
    let around = |at: usize| words[at.saturating_sub(3)..words.len().min(at + 5)].join(" ");
    (0..words.len()).filter(is_guessed).map(around).collect()
}

/// Returns whether a name begins with `what`, or has a word that stands for a missing noun. The
/// words are in small letters.
fn lacks_subject(name: &str) -> bool {
    let mut words = name.split(['_', '-']);
    name.starts_with("what") || words.any(|word| NO_SUBJECTS.contains(&word))
}

/// The names of the files and folders below a folder, without extensions.
fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_dir() && name != "target" {
            names.extend(names_below(&path));
        }
        names.push(name);
    }
    names
}

/// The types that a file defines, with names in the form of a file's.
fn types(text: &str) -> Vec<String> {
    let words = |name: &String| {
        let mut out = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !out.is_empty() {
                out.push('_');
            }
            out.extend(letter.to_lowercase());
        }
        out
    };
    defined(text).iter().map(words).collect()
}

/// The names in quotation marks. An invariant has its name so, with and without a file of its own.
fn quoted_names(text: &str) -> Vec<String> {
    let is_name = |part: &&str| {
        part.contains('_')
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.split('"').filter(is_name).map(str::to_owned).collect()
}

/// The first line of each paragraph of documentation that begins with one of [`VAGUE`].
fn vague_openings(text: &str) -> Vec<&str> {
    let (mut found, mut is_start, mut is_code) = (Vec::new(), true, false);
    for line in text.lines().map(str::trim) {
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let doc = comment.map(str::trim).filter(|doc| !doc.is_empty());
        is_code ^= doc.is_some_and(|doc| doc.starts_with("```"));
        if is_start && !is_code {
            found.extend(doc.filter(|doc| is_vague(doc)));
        }
        is_start = doc.is_none();
    }
    found
}

fn is_vague(paragraph: &str) -> bool {
    let is_mark = |letter: char| letter.is_ascii_punctuation();
    let mut words = paragraph.split_whitespace();
    let whole = words.next().unwrap_or_default();
    let first = whole.trim_end_matches(is_mark);
    let second = words.next().unwrap_or_default().trim_end_matches(is_mark);
    if COUNTED.contains(&whole) {
        return second.is_empty() || NO_NOUNS.contains(&second);
    }
    VAGUE.contains(&first) || VAGUE.contains(&format!("{first} {second}").as_str())
}

fn long_lines(file: &Path, text: &str) -> usize {
    let is_table = |line: &str| line.trim_start_matches([' ', '/', '!']).starts_with('|');
    let is_document = file.extension().is_some_and(|extension| extension == "md");
    let is_data =
        file.extension().is_some_and(|extension| extension == "toml" || extension == "yaml");
    let is_log = file.parent().is_some_and(|folder| LOGS.iter().any(|log| folder.ends_with(log)));
    let is_counted = |line: &&str| !is_data && !is_log || line.trim_start().starts_with('#');
    let length = |line: &str| match is_document {
        true => without_targets(line).chars().count(),
        false => line.chars().count(),
    };
    text.lines().filter(is_counted).filter(|line| length(line) > 100 && !is_table(line)).count()
}

/// A line of a document without the targets of its links, which cannot be broken.
pub(super) fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push(']');
        out.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    out.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

/// The names of more than one type in these files.
fn defined_twice(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    for (_, text) in files.iter().filter(|(file, _)| is_rust(file)) {
        defined(text).into_iter().for_each(|name| *types.entry(name).or_default() += 1);
    }
    types.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
}

/// The types that a file defines.
fn defined(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let mut words = without_visibility(line).split_whitespace().peekable();
        let is_alias = words.peek() == Some(&"type") && !line.starts_with(' ');
        if is_alias
            || words.peek().is_some_and(|word| ["struct", "enum", "trait", "union"].contains(word))
        {
            let name = words.nth(1).unwrap_or_default();
            let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
            names.push(name[..end].to_string());
        }
    }
    names
}

/// A line without its beginning `pub`, or `pub(crate)`, or `pub(in crate::a)`.
fn without_visibility(line: &str) -> &str {
    let line = line.trim_start();
    match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(')').map_or("", |(_, item)| item),
        None => line.strip_prefix("pub ").unwrap_or(line),
    }
}

/// The module of a file: `a::b` for `src/a/b.rs`.
fn module(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> = file
        .with_extension("")
        .iter()
        .skip(1)
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// Returns, for each file, the files that it names. A part of a module is a node of its own. An
/// `impl` of the parent's type in a file of its own names the parent. The parent names nothing of
/// that file. So the types in the parent's fields stand in files below it. A re-export is an edge
/// only if the file uses the name itself. The path of a re-exported name leads to the file that
/// defines the name. So circles through parents count.
///
/// Planted breaks are left out: they reach into the code that they break, and no shipped build has
/// them.
fn imports(files: &[(PathBuf, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let is_test = |file: &Path| file.iter().any(|part| part == "tests" || part == "tests.rs");
    let files: Vec<(Vec<String>, String)> = files
        .iter()
        .filter(|(file, _)| !is_test(file) && !file.ends_with("planted.rs"))
        .map(|(file, text)| (module(file), code(text)))
        .collect();
    let modules: BTreeSet<Vec<String>> = files.iter().map(|(own, _)| own.clone()).collect();
    let exported = re_exports(&files, &modules);
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (own, text) in &files {
        for path in named_paths(text) {
            let Some(path) = absolute(own, &path, &modules) else { continue };
            let to = origin(path, &modules, &exported);
            if *own != to && !own.is_empty() && !to.is_empty() {
                graph.entry(own.join("::")).or_default().insert(to.join("::"));
            }
        }
    }
    graph
}

/// The paths that a file names: its imports, the paths within its code, and the names that it both
/// re-exports and uses.
fn named_paths(code: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<&str> =
        outside_uses(code).flat_map(|part| part.split(|c: char| !is_word(c))).collect();
    let is_used = |path: &str| path.rsplit("::").next().is_some_and(|name| words.contains(name));
    let imported = used(code).into_iter().filter(|(public, path)| !public || is_used(path));
    imported.map(|(_, path)| path).chain(inline(code)).collect()
}

/// The path from the top of the crate. `None` if it leads out of the crate.
fn absolute(own: &[String], path: &str, modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut at: Vec<String> = own.to_vec();
    match *parts.peek()? {
        "crate" => at.clear(),
        "self" | "super" => {}
        child => {
            at.push(child.to_owned());
            if !modules.contains(&at) {
                return None;
            }
            at.pop();
        }
    }
    while let Some(first) = parts.next_if(|part| ["crate", "self", "super"].contains(part)) {
        if first == "super" {
            at.pop();
        }
    }
    at.extend(parts.map(str::to_owned));
    Some(at)
}

/// The names that a module re-exports, each with its original path.
type ReExports = BTreeMap<Vec<String>, Vec<String>>;

fn re_exports(files: &[(Vec<String>, String)], modules: &BTreeSet<Vec<String>>) -> ReExports {
    let mut found = ReExports::new();
    for (own, text) in files {
        for (_, path) in used(text).into_iter().filter(|(public, _)| *public) {
            let Some(to) = absolute(own, &path, modules) else { continue };
            let Some(name) = to.last().filter(|name| *name != "*").cloned() else { continue };
            found.insert([own.as_slice(), &[name]].concat(), to);
        }
    }
    found
}

/// The module in which the last name of a path is defined.
fn origin(
    mut path: Vec<String>,
    modules: &BTreeSet<Vec<String>>,
    exported: &ReExports,
) -> Vec<String> {
    // A name that is re-exported more often is re-exported in a circle.
    for _ in 0..8 {
        let length = (1..=path.len()).find(|length| exported.contains_key(&path[..*length]));
        let Some(length) = length else { break };
        path = [exported[&path[..length]].as_slice(), &path[length..]].concat();
    }
    while !path.is_empty() && !modules.contains(&path) {
        path.pop();
    }
    path
}

/// The paths in the code, outside of `use` statements.
fn inline(code: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = outside_uses(code).flat_map(|part| part.split(|c: char| !is_path(c)));
    let paths = words.map(|word| word.trim_end_matches(':')).filter(|word| word.contains("::"));
    // A visibility such as `pub(in super::super)` names no item.
    let is_item = |path: &&str| !path.starts_with(':') && !path.ends_with("::super");
    paths.filter(is_item).map(str::to_owned).collect()
}

/// The code without its `use` statements.
fn outside_uses(code: &str) -> impl Iterator<Item = &str> {
    code.split(';').map(before_use)
}

/// The text up to the `use` statement that ends it, if there is one. The path before a list of
/// imports names no item.
fn before_use(part: &str) -> &str {
    let is_start = |at: usize| {
        let before = part[..at].rsplit('\n').next().unwrap_or_default().trim();
        before.is_empty() || before.starts_with("pub")
    };
    part.match_indices("use ").find(|(at, _)| is_start(*at)).map_or(part, |(at, _)| &part[..at])
}

/// The paths of all `use` statements, each written out, and whether it is re-exported.
fn used(code: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let before = &code[..at];
        let begins = before.chars().next_back().is_none_or(char::is_whitespace);
        let is_public =
            before.rsplit('\n').next().is_some_and(|line| line.trim().starts_with("pub"));
        if let Some(end) = code[at..].find(';').filter(|_| begins) {
            let mut paths = Vec::new();
            expand("", &code[at + "use ".len()..at + end], &mut paths);
            found.extend(paths.into_iter().map(|path| (is_public, path)));
        }
    }
    found
}

/// Writes out the lists of a path: `a::{b, c::{d}}` is `a::b` and `a::c::d`.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let (mut depth, mut begin) = (0, 0);
    let ends: Vec<usize> = tree
        .char_indices()
        .filter_map(|(at, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (c == ',' && depth == 0).then_some(at)
        })
        .chain([tree.len()])
        .collect();
    for end in ends {
        let branch = tree[begin..end].trim();
        begin = (end + 1).min(tree.len());
        match branch.split_once('{') {
            Some((stem, list)) => {
                let list = list.trim_end().strip_suffix('}').unwrap_or(list);
                expand(&format!("{before}{}", stem.trim()), list, found);
            }
            None if branch.is_empty() => {}
            None => found.push(format!(
                "{before}{}",
                branch.split(" as ").next().unwrap_or_default().trim()
            )),
        }
    }
}

/// The sets of modules in which each module leads to each other one.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            for to in graph.get(&next).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|from| (from, reach(from))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (from, there) in &reached {
        let circle: BTreeSet<String> = there
            .iter()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(*from)))
            .cloned()
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// The structs of a file that have named fields, and their numbers of fields.
fn fields(text: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if line.ends_with('{') && line.contains("struct ") && !line.starts_with(' ') {
            found.push((defined(line).pop().unwrap_or_default(), 0));
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if is_inside
            && line.starts_with("    ")
            && !line.starts_with("     ")
            && !line.trim_start().starts_with(['/', '#'])
            && line.contains(": ")
            && let Some((_, count)) = found.last_mut()
        {
            *count += 1;
        }
    }
    found
}
