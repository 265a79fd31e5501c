//! Links of the documents resolve, and the functions that they name exist. Each rule is shown a
//! breach.

use super::{files_below, read, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The documents that link to each other and to the sources, and the folder of the others.
const DOCUMENTS: [&str; 7] = [
    "README.md",
    "DESIGN.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "tests/README.md",
    "sim/README.md",
    "sim/survivors.md",
];

#[test]
fn every_link_of_a_document_resolves() {
    let mut links = 0;
    for file in documents() {
        let text = read(&file);
        links += targets(&text).len();
        assert_eq!(dead_links(&file, &text), Vec::<String>::new(), "{}", file.display());
    }
    assert!(links > 300, "only {links} links were read");
}

#[test]
fn a_dead_link_is_found() {
    let dead = |text: &str| dead_links(&root().join("docs/README.md"), text);
    assert_eq!(dead("[a](../README.md#limits), [b](glossary.md), `[c](d)`"), Vec::<String>::new());
    assert_eq!(dead("[a](https://example.org/b), [b](#c)\n\n# C\n"), Vec::<String>::new());
    assert_eq!(dead("[a\nb](../READ.md)"), ["../READ.md"]);
    assert_eq!(dead("| [a](../README.md#limit) |"), ["../README.md#limit"]);
    assert_eq!(dead("[a](#c)"), ["#c"]);
    assert_eq!(dead("```\n# C\n```\n[a](#c)"), ["#c"]);
    assert_eq!(dead("[a]: nowhere.md\n<img src=\"b.png\">"), ["nowhere.md", "b.png"]);
}

/// Outside of the repository, a file of the package has its page on docs.rs.
#[test]
fn the_front_page_links_files_of_the_package() {
    const PAGE: &str = "https://docs.rs/crate/elderlock/latest/source/";
    let text = read(&root().join("src/lib.rs"));
    let linked: Vec<&str> =
        text.split(PAGE).skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    let guides = files_below(&root().join("docs/guide"), "md");
    assert_eq!(linked.len(), guides.len(), "{linked:?}");
    assert!(linked.iter().all(|file| guides.contains(&root().join(file))), "{linked:?}");
}

#[test]
fn an_anchor_is_the_heading_in_small_letters() {
    let text = "# One: two `three_four`\n\n## One: two `three_four`\n### [A](b)'s, c/d\n";
    assert_eq!(
        Vec::from_iter(anchors(text)),
        ["as-cd", "one-two-three_four", "one-two-three_four-1"]
    );
}

#[test]
fn documents_cite_no_section_of_the_design_by_its_number() {
    for file in documents() {
        let text = read(&file);
        assert_eq!(numbered(&text), Vec::<&str>::new(), "{}", file.display());
    }
    assert_eq!(numbered("see DESIGN 9.1, and DESIGN.md"), ["9.1,"]);
}

#[test]
fn the_newcomers_page_names_functions_that_exist() {
    let page = root().join("docs/newcomer.md");
    let text = read(&page);
    let answers: Vec<String> = answers(&text);
    assert_eq!(answers.len(), 10);
    for answer in answers {
        assert_eq!(unknown_names(&page, &answer), Vec::<String>::new(), "{answer}");
    }
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    let page = root().join("docs/newcomer.md");
    let unknown = |name: &str| {
        let file = "[`grantor/recovery.rs`](../src/protocol/locks/grantor/recovery.rs)";
        unknown_names(&page, &format!("1. `{name}` ({file})"))
    };
    assert_eq!(unknown("Grantor::recover"), Vec::<String>::new());
    assert_eq!(unknown("Grantor::recovers"), ["Grantor::recovers"]);
    assert_eq!(unknown("Granter::recover"), ["Granter::recover"]);
    assert_eq!(unknown("recove"), ["recove"]);
}

fn documents() -> Vec<PathBuf> {
    let single = DOCUMENTS.iter().map(|file| root().join(file));
    single.chain(files_below(&root().join("docs"), "md")).collect()
}

/// The links of a document that lead to no file, or to no heading of their file.
fn dead_links(file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().unwrap_or(root());
    let is_dead = |target: &String| {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let to = if path.is_empty() { file.to_path_buf() } else { folder.join(path) };
        let has_anchor = || match path.is_empty() {
            true => anchors(text).contains(anchor),
            false => anchors(&read(&to)).contains(anchor),
        };
        !to.exists() || !anchor.is_empty() && !has_anchor()
    };
    targets(text).into_iter().filter(is_dead).collect()
}

/// The targets of the links of a document, without those that lead to other sites.
fn targets(text: &str) -> Vec<String> {
    let prose: String = without_code(text).split('`').step_by(2).collect::<Vec<_>>().join("x");
    let after = |mark: &str, end: char| -> Vec<String> {
        let parts = prose.split(mark).skip(1);
        parts.filter_map(|part| Some(part.split_once(end)?.0.to_owned())).collect()
    };
    let named = prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    let found = [after("](", ')'), named.map(|(_, to)| to.trim().to_owned()).collect()];
    let pictures = [after("src=\"", '"'), after("srcset=\"", '"')];
    let all = found.into_iter().chain(pictures).flatten();
    all.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a document's headings, as forges and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in without_code(text).lines().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim();
        let visible: String = heading
            .split("](")
            .enumerate()
            .map(|(at, part)| match at {
                0 => part,
                _ => part.split_once(')').map_or("", |(_, after)| after),
            })
            .collect();
        let letters = visible.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = letters.collect::<String>().to_lowercase().replace(' ', "-");
        let mut name = anchor.clone();
        for number in 1.. {
            if found.insert(name) {
                break;
            }
            name = format!("{anchor}-{number}");
        }
    }
    found
}

fn without_code(text: &str) -> String {
    let mut is_code = false;
    let mut out = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            out.push_str(&format!("{line}\n"));
        }
    }
    out
}

/// Numbers behind the name of the design, which has no numbered sections.
fn numbered(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_design = |word: &str| word.trim_start_matches(['(', '[']) == "DESIGN";
    let pairs = words.windows(2).filter(|pair| is_design(pair[0]));
    pairs.map(|pair| pair[1]).filter(|next| next.starts_with(|c: char| c.is_numeric())).collect()
}

/// The numbered answers of a page, each in one text.
fn answers(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_first =
            line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        if is_first {
            found.push(String::new());
        }
        if let Some(answer) = found.last_mut() {
            answer.push_str(&format!("{line}\n"));
        }
    }
    found
}

/// The names of an answer that no source to which it links defines, nor any other source.
fn unknown_names(page: &Path, answer: &str) -> Vec<String> {
    let folder = page.parent().unwrap_or(root());
    let linked: Vec<PathBuf> = targets(answer).iter().map(|to| folder.join(to)).collect();
    let is_source = |file: &&PathBuf| file.extension().is_some_and(|end| end == "rs");
    let mut sources: Vec<String> = linked.iter().filter(is_source).map(|file| read(file)).collect();
    for place in linked.iter().filter(|place| place.is_dir()) {
        sources.extend(files_below(place, "rs").iter().map(|file| read(file)));
    }
    let is_name = |name: &&str| {
        name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':')
            && !name.is_empty()
            && !sources.is_empty()
    };
    let is_defined = |name: &str| {
        let starts = ["fn ", "struct ", "enum ", "trait ", "type ", "impl "];
        let begins = |at: usize, source: &str| {
            !source[at + name.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
                && starts.iter().any(|start| source[..at].ends_with(start))
        };
        sources.iter().any(|text| text.match_indices(name).any(|(at, _)| begins(at, text)))
    };
    let spans = answer.split('`').skip(1).step_by(2).filter(is_name);
    spans.filter(|span| !span.split("::").all(is_defined)).map(str::to_owned).collect()
}
