//! Measures of the text and the layout. Most have to be none; a limit of another is the value that
//! was measured last, and a change that makes the value smaller lowers it. Each measure is shown a
//! breach.

use super::{code, files_below, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Clauses with `who`, `whom` or `whoever`, or that begin with `what`, in 1,000 words of prose. The
/// aim is 0.5 everywhere.
const CLAUSES: [(&str, f64); 10] = [
    ("src/protocol", 0.5),
    ("src/runtime", 0.5),
    ("src/service", 0.5),
    ("src/recipes", 0.1),
    ("sim", 0.05),
    ("bench", 0.0),
    ("cli", 0.0),
    ("fence", 0.0),
    ("tests", 0.15),
    ("docs", 0.3),
];

/// No line there has more than 100 characters, outside tables and links.
const WRAPPED: [&str; 7] = ["src", "sim", "bench", "cli", "fence", "tests", "docs"];

/// In none of these crates do two types share a name.
const CRATES: [&str; 5] = ["src", "sim/src", "bench/src", "cli/src", "fence/src"];

/// The most fields that a struct of the protocol has.
const MOST_FIELDS: usize = 20;

/// The most lines of the two documents that are read first.
const MOST_LINES: [(&str, usize); 2] = [("README.md", 150), ("DESIGN.md", 400)];

#[test]
fn bare_clauses_grow_rarer() {
    for (folder, limit) in CLAUSES {
        let prose: Vec<String> =
            texts(folder).into_iter().map(|(file, text)| prose(&file, &text)).collect();
        let clauses: Vec<_> = prose.iter().flat_map(|text| bare_clauses(text)).collect();
        let words: usize = prose.iter().map(|text| text.split_whitespace().count()).sum();
        let rate = (clauses.len() * 1000) as f64 / words.max(1) as f64;
        println!("{folder}: {rate:.2} bare clauses in 1,000 words ({} in {words})", clauses.len());
        assert!(
            rate <= limit,
            "{folder}: {rate:.2} bare clauses in 1,000 words; at most {limit}: {clauses:#?}"
        );
    }
}

#[test]
fn a_bare_clause_is_found() {
    let file = Path::new("x.rs");
    let found = |text: &str| bare_clauses(&prose(file, text)).len();
    assert_eq!(found("/// Who waits hears of it.\nfn f() {}"), 1);
    assert_eq!(found("const TEXT: &str = \"to whom it belongs, whoever asks\";"), 2);
    assert_eq!(found("// What it holds is over. It says what it holds.\n"), 1);
    assert_eq!(found("let who = what; // a process\n"), 0);
    assert_eq!(found("const TEXT: &str = \"{who} waits: {what}.\";"), 0);
    assert_eq!(
        bare_clauses(&prose(Path::new("x.md"), "Who asks?\n```sh\nwho\n```\n`who`, who")).len(),
        2
    );
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
        long_lines(Path::new("x.md"), &format!("| {long} |\n{long}\n[a]: https://{long}\n")),
        1
    );
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    for folder in CRATES {
        let mut types: BTreeMap<String, usize> = BTreeMap::new();
        for (_, text) in texts(folder).iter().filter(|(file, _)| is_rust(file)) {
            defined(text).into_iter().for_each(|name| *types.entry(name).or_default() += 1);
        }
        types.retain(|_, count| *count > 1);
        assert_eq!(types, BTreeMap::new(), "{folder}");
    }
}

#[test]
fn a_defined_type_is_found() {
    let text = "pub(crate) struct One<T>(T);\n    enum Two {}\npub trait Three: Send {}\n\
        impl One { type Four = u8; }\ntype Five = u8;\n// struct Six";
    assert_eq!(defined(text), ["One", "Two", "Three", "Five"]);
}

#[test]
fn no_files_import_each_other_in_circles() {
    let files: Vec<(PathBuf, String)> =
        texts("src").into_iter().filter(|(file, _)| is_rust(file)).collect();
    assert_eq!(circles(&imports(&files)), Vec::<BTreeSet<String>>::new());
}

#[test]
fn a_circle_of_files_is_found() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_string());
    let files = [
        file("src/lib.rs", "mod a;"),
        file("src/a.rs", "mod b; use crate::c::D;"),
        file("src/a/b.rs", "use super::D;"),
        file("src/c.rs", "use super::a::b;"),
        file("src/d.rs", "use crate::a::b::X;"),
    ];
    let names = |circle: &BTreeSet<String>| circle.iter().cloned().collect::<Vec<_>>();
    // `c` names a part of `a`, and a part may name its own module: neither is an edge back to `a`.
    assert_eq!(
        circles(&imports(&files)).iter().map(names).collect::<Vec<_>>(),
        Vec::<Vec<String>>::new()
    );
    let files = [
        file("src/lib.rs", "mod a;"),
        file("src/a.rs", "use crate::c::D;"),
        file("src/c.rs", "use super::a;"),
    ];
    assert_eq!(circles(&imports(&files)).iter().map(names).collect::<Vec<_>>(), [["a", "c"]]);
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

/// The sources and documents below a folder, with their paths from the top.
fn texts(folder: &str) -> Vec<(PathBuf, String)> {
    let from_top =
        |file: &Path| file.strip_prefix(root()).map(Path::to_path_buf).unwrap_or_default();
    let found =
        ["rs", "md"].into_iter().flat_map(|extension| files_below(&root().join(folder), extension));
    found.map(|file| (from_top(&file), read(&file))).collect()
}

/// The prose of a file: comments and string literals, or a document without code.
fn prose(file: &Path, text: &str) -> String {
    let mut out = String::new();
    if is_rust(file) {
        for line in text.lines() {
            let (code, comment) =
                match line.find("//").filter(|at| line[..*at].matches('"').count() % 2 == 0) {
                    Some(at) => (&line[..at], line[at..].trim_start_matches(['/', '!'])),
                    None => (line, ""),
                };
            for literal in code.split('"').skip(1).step_by(2) {
                out.push_str(&format!("{literal}. "));
            }
            out.push_str(&format!("{comment}{}", if comment.is_empty() { " " } else { "\n" }));
        }
    } else {
        let mut is_code = false;
        for line in text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            if !is_code && !is_fence {
                out.push_str(&format!("{line}\n"));
            }
        }
    }
    // Names of the code are no prose.
    out.split('`').step_by(2).collect::<Vec<_>>().join("x")
}

/// Each with a few words around it, without the arguments of format strings, which are names.
fn bare_clauses(prose: &str) -> Vec<String> {
    let is_argument = |word: &&str| word.contains('{') && word.contains('}');
    let words: Vec<&str> = prose.split_whitespace().filter(|word| !is_argument(word)).collect();
    let mut found = Vec::new();
    let mut is_start = true;
    for (at, word) in words.iter().enumerate() {
        let plain = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
        let is_bare = match plain.as_str() {
            "who" | "whom" | "whoever" | "whomever" => true,
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

fn long_lines(file: &Path, text: &str) -> usize {
    let is_table = |line: &str| line.trim_start_matches([' ', '/', '!']).starts_with('|');
    let is_link = |line: &str| line.contains("://") || line.contains("](");
    let is_exempt = |line: &str| is_table(line) || !is_rust(file) && is_link(line);
    text.lines().filter(|line| line.chars().count() > 100 && !is_exempt(line)).count()
}

/// The types that a file defines.
fn defined(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub")).peekable();
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

/// The module that a file is: `a::b` for `src/a/b.rs`.
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

/// Of each module which others it names. A module and its own parts may name each other.
fn imports(files: &[(PathBuf, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeSet<Vec<String>> =
        files.iter().map(|(file, _)| module(file)).filter(|m| !m.is_empty()).collect();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in files {
        let own = module(file);
        if own.is_empty() || file.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        for path in used(&code(text)) {
            let mut at: Vec<String> = Vec::new();
            let mut parts = path.split("::").map(str::trim).peekable();
            match parts.next() {
                Some("crate") => {}
                Some("super") => {
                    at = own[..own.len() - 1].to_vec();
                    while parts.next_if_eq(&"super").is_some() {
                        at.pop();
                    }
                }
                _ => continue,
            }
            at.extend(parts.map(str::to_string));
            while !at.is_empty() && !modules.contains(&at) {
                at.pop();
            }
            let is_family = at.starts_with(&own) || own.starts_with(&at);
            if !at.is_empty() && !is_family {
                graph.entry(own.join("::")).or_default().insert(at.join("::"));
            }
        }
    }
    graph
}

/// The paths of all `use` statements, each written out.
fn used(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let begins = code[..at].chars().next_back().is_none_or(char::is_whitespace);
        if let Some(end) = code[at..].find(';').filter(|_| begins) {
            expand("", &code[at + "use ".len()..at + end], &mut found);
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

/// The sets of modules each of which comes to each other one.
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

/// The structs with named fields of a file, and how many each has.
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
