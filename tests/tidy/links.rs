//! Links of the documents resolve, and the code that they name exists. For each rule a test shows a
//! breach.

use super::ratchets::CRATES;
use super::{files_below, read, root};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// The documents outside of the book, and the folder of the book.
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

/// A reader of the published package has only the package's files, without a repository.
#[test]
fn the_readme_and_the_guide_link_files_of_the_package() {
    let guide = files_below(&root().join("docs/guide"), "md");
    assert!(guide.len() > 5, "only {} pages of the guide were read", guide.len());
    for page in [root().join("README.md")].into_iter().chain(guide) {
        let left = links_out_of_package(&page, &read(&page));
        assert_eq!(left, Vec::<String>::new(), "{}", page.display());
    }
}

#[test]
fn a_link_out_of_the_package_is_found() {
    let left = |text: &str| links_out_of_package(&root().join("docs/guide/testing.md"), text);
    assert_eq!(
        left(
            "[a](../../sim/README.md#a-crowd), [b](../../cli), [c](../../.ci/run)\n\n[d]: ../../.."
        ),
        ["../../sim/README.md#a-crowd", "../../cli", "../../.ci/run", "../../.."]
    );
    let breaks = ["../../src/protocol/mutant.rs", "../../src/protocol/cluster/planted.rs"];
    assert_eq!(left(&format!("[a]({}), [b]({})", breaks[0], breaks[1])), breaks);
    let examples = "[a](../../examples), [b](../../examples/leader.rs)";
    assert_eq!(
        left(&format!("{examples}, [c](../../src/protocol), [d](recipes.md), [e](#f)")),
        Vec::<String>::new()
    );
    assert_eq!(left("[a](../../examples/flash_sale.rs)"), ["../../examples/flash_sale.rs"]);
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

/// The book has no page of its summary, and a reader of the sources begins at the front page. So
/// both list the chapters.
#[test]
fn the_front_page_of_the_book_has_the_chapters_of_its_summary() {
    let (front, summary) = (root().join("docs/README.md"), root().join("docs/SUMMARY.md"));
    let chapters = chapters(&summary, &read(&summary));
    assert!(chapters.len() > 20, "only {} chapters were read", chapters.len());
    let is_chapter = |file: &PathBuf| file.starts_with(root().join("docs"));
    let linked: BTreeSet<PathBuf> =
        linked_files(&front, &read(&front)).into_iter().filter(is_chapter).collect();
    assert_eq!(linked, chapters);
}

#[test]
fn a_chapter_of_a_summary_is_found() {
    let summary = root().join("docs/SUMMARY.md");
    let text = "[elderlock](README.md)\n[Ten](newcomer.md)\n\n# Guide\n\n\
        - [Index](protocol/index.md)\n  - [Links](protocol/links.md)\n";
    let found = ["newcomer.md", "protocol/index.md"].map(|file| root().join("docs").join(file));
    assert_eq!(chapters(&summary, text), BTreeSet::from(found));
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

/// The README links to the page, so each answer is two links away from it. The chapter with the
/// answer is at most three links away even without the page.
#[test]
fn each_answer_of_the_newcomers_page_is_at_most_three_links_from_the_readme() {
    let page = root().join("docs/newcomer.md");
    assert_eq!(links_from_readme(None).get(&page), Some(&1));
    let away = links_from_readme(Some(&page));
    for answer in answers(&read(&page)) {
        let linked = linked_files(&page, &answer);
        let is_chapter = |file: &&PathBuf| file.extension().is_some_and(|kind| kind == "md");
        let (chapters, sources): (Vec<_>, Vec<_>) = linked.iter().partition(is_chapter);
        assert!(!chapters.is_empty() && !sources.is_empty(), "{answer}");
        for chapter in chapters {
            let links = away.get(chapter);
            assert!(links.is_some_and(|links| *links <= 3), "{}: {links:?}", chapter.display());
        }
    }
    assert_eq!(links_from_readme(Some(&root().join("README.md"))), BTreeMap::new());
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

#[test]
fn the_glossary_names_code_that_exists() {
    let spans = glossary_spans(&read(&root().join("docs/glossary.md")));
    assert!(spans.len() > 200, "only {} names were read", spans.len());
    let sources = sources();
    let unknown: Vec<_> = spans.iter().filter(|span| !is_in_code(span, &sources)).collect();
    assert_eq!(unknown, Vec::<&String>::new());
}

#[test]
fn a_name_of_the_glossary_that_does_not_exist_is_found() {
    let row = "| term | meaning | in the code |\n|---|---|---|\n\
        | a | `b` | `One`, `c/d` (`e!`) |\n";
    assert_eq!(glossary_spans(row), ["One", "c/d", "e!"]);
    let source = "pub struct One {\n    pub(crate) two: u8,\n}\nimpl One {\n    fn three() {}\n}\n\
        enum Four {\n    Five,\n    Six(u8),\n    Seven { two: u8 },\n}\nmacro_rules! eight {";
    let is_there = |span: &str| is_in_code(span, &[source.to_owned()]);
    for span in ["One", "One::two", "One::three", "Four::Five", "Six", "Seven", "eight!"] {
        assert!(is_there(span), "{span}");
    }
    for span in ["On", "One::four", "Two::three", "u8", "protocol/nod", "eight!!"] {
        assert!(!is_there(span), "{span}");
    }
    assert!(is_there("src/protocol") && is_there("protocol/node.rs") && is_there("testing"));
}

fn documents() -> Vec<PathBuf> {
    let single = DOCUMENTS.iter().map(|file| root().join(file));
    single.chain(files_below(&root().join("docs"), "md")).collect()
}

/// The number of links from the README to each document, without the links of the page `without`.
fn links_from_readme(without: Option<&Path>) -> BTreeMap<PathBuf, usize> {
    let readme = root().join("README.md");
    let (mut found, mut next) = (BTreeMap::new(), VecDeque::from([(readme, 0)]));
    while let Some((file, links)) = next.pop_front() {
        let is_known = found.contains_key(&file) || without == Some(&*file);
        if is_known || file.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        next.extend(linked_files(&file, &read(&file)).into_iter().map(|to| (to, links + 1)));
        found.insert(file, links);
    }
    found
}

/// The chapters of a summary, without those below another one and without the front page.
fn chapters(summary: &Path, text: &str) -> BTreeSet<PathBuf> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    let mut files = linked_files(summary, &lines.join("\n"));
    files.remove(&root().join("docs/README.md"));
    files
}

/// The files to which a text of a document links.
fn linked_files(document: &Path, text: &str) -> BTreeSet<PathBuf> {
    let folder = document.parent().unwrap_or(root());
    let files = targets(text).into_iter().filter_map(|target| {
        let (file, _) = target.split_once('#').unwrap_or((&target, ""));
        folder.join(file).canonicalize().ok()
    });
    files.filter(|file| file.is_file()).collect()
}

/// The links of a document that lead to no file of the published package.
fn links_out_of_package(file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().unwrap_or(root());
    let excluded = excluded();
    let leaves = |target: &String| {
        let (path, _) = target.split_once('#').unwrap_or((target, ""));
        !path.is_empty() && !is_packaged(&folder.join(path), &excluded)
    };
    targets(text).into_iter().filter(leaves).collect()
}

/// Returns whether the package has this file, or files below this folder. Folders with a manifest
/// are packages of their own, and `target` is no source.
fn is_packaged(to: &Path, excluded: &[Vec<String>]) -> bool {
    let top = root().canonicalize().expect("the root is there");
    let Ok(to) = to.canonicalize() else { return false };
    let Ok(path) = to.strip_prefix(&top) else { return false };
    let is_other_package = |folder: &Path| {
        !folder.as_os_str().is_empty() && top.join(folder).join("Cargo.toml").is_file()
    };
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    !path.ancestors().any(is_other_package)
        && !path.starts_with("target")
        && !excluded.iter().any(|pattern| excludes(pattern, &parts))
}

/// The patterns of `exclude` in the manifest, each split at its slashes.
fn excluded() -> Vec<Vec<String>> {
    let manifest = read(&root().join("Cargo.toml"));
    assert!(!manifest.contains("\ninclude = "), "a list that is not read here");
    let (_, list) = manifest.split_once("\nexclude = [").expect("the manifest has the list");
    let (list, _) = list.split_once("\n]").expect("the list ends");
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    let patterns = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    let parts = patterns.map(|pattern| {
        let from_top = pattern.strip_prefix('/').expect("a pattern begins at the root");
        let parts: Vec<String> = from_top.split('/').map(str::to_owned).collect();
        let is_read = |part: &String| part == "**" || !part.contains(['*', '?', '[', '!']);
        assert!(parts.iter().all(is_read), "{pattern}: a pattern that is not read here");
        parts
    });
    parts.collect()
}

/// Returns whether a pattern fits the path, or a folder above it. `**` is any number of folders.
fn excludes(pattern: &[String], path: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return true };
    match first == "**" {
        true => (0..=path.len()).any(|at| excludes(rest, &path[at..])),
        false => path.first() == Some(&first.as_str()) && excludes(rest, &path[1..]),
    }
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

/// The anchors of a document's headings, as forges and mdBook generate them.
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

/// The references to a numbered section of the design, which has none.
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

/// The names in an answer that no linked source defines, nor any other source.
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
    let is_defined = |name: &str| sources.iter().any(|text| has_item(text, name));
    let spans = answer.split('`').skip(1).step_by(2).filter(is_name);
    spans.filter(|span| !span.split("::").all(is_defined)).map(str::to_owned).collect()
}

/// Returns whether a source defines an item of this name, or has an `impl` of it.
fn has_item(source: &str, name: &str) -> bool {
    const STARTS: [&str; 8] =
        ["fn ", "struct ", "enum ", "trait ", "type ", "mod ", "macro_rules! ", "impl "];
    words(source, name).any(|at| STARTS.iter().any(|start| source[..at].ends_with(start)))
}

/// Returns whether a source has a field or a variant of this name.
fn has_part(source: &str, name: &str) -> bool {
    words(source, name).any(|at| {
        let before = source[..at].rsplit('\n').next().unwrap_or_default().trim();
        let is_first = before.is_empty() || before.starts_with("pub") && !before.contains(' ');
        let rest = &source[at + name.len()..];
        is_first && [",", "(", " {", " =", ": "].iter().any(|next| rest.starts_with(next))
    })
}

/// The positions at which a source has this name as a whole word.
fn words<'a>(source: &'a str, name: &'a str) -> impl Iterator<Item = usize> {
    let is_longer = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let found = source.match_indices(name).map(|(at, _)| at);
    found.filter(move |at| !is_longer(&source[at + name.len()..]))
}

/// The names and paths in the last column of the glossary's tables.
fn glossary_spans(text: &str) -> Vec<String> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.rsplit('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns whether a file or folder has this path, from the root or from `src`, or one source
/// defines all parts of this name.
fn is_in_code(span: &str, sources: &[String]) -> bool {
    let name = span.strip_suffix('!').unwrap_or(span);
    let is_defined = |source: &String| {
        name.split("::").all(|part| has_item(source, part) || has_part(source, part))
    };
    root().join(span).exists()
        || root().join("src").join(span).exists()
        || sources.iter().any(is_defined)
}

/// The sources of all crates.
fn sources() -> Vec<String> {
    let folders = CRATES.iter().flat_map(|folder| files_below(&root().join(folder), "rs"));
    folders.map(|file| read(&file)).collect()
}
