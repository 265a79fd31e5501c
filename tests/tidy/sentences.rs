//! The length of sentences in comments and documents.

use super::ratchets::{CLAUSES, comments, texts, without_names, without_targets};
use std::path::Path;

/// The greatest number of words of a sentence.
const WORDS: usize = 25;

/// The document of measured figures, which a script writes.
const FIGURES: &str = "docs/measured.md";

#[test]
fn sentences_are_short() {
    let mut long = Vec::new();
    for (file, text) in CLAUSES.iter().flat_map(|(place, _)| texts(place)) {
        if file != Path::new(FIGURES) {
            let found = sentences(&file, &text).into_iter().map(|text| (words(&text), text));
            let found = found.filter(|(words, _)| *words > WORDS);
            long.extend(found.map(|(words, text)| (words, file.clone(), text)));
        }
    }
    long.sort();
    assert!(long.is_empty(), "sentences of over {WORDS} words: {long:#?}");
}

#[test]
fn sentences_end_with_a_stop_an_item_a_cell_or_a_paragraph() {
    let found = |file: &str, text: &str| sentences(Path::new(file), text);
    assert_eq!(
        found("x.rs", "//! # One\n//! Two two.\n//!\n//! - three `a. b`,\n//!   three\n//! - four"),
        ["One", "Two two.", "three x, three", "four"]
    );
    assert_eq!(
        found("x.rs", "/// One? (Two!) Three.\nfn four() {} // five"),
        ["One?", "(Two!)", "Three."]
    );
    assert_eq!(
        found("x.md", "One\ntwo.\n| three | four. Five |\n```\nsix\n```\n1. [seven](eight) 0.9"),
        ["One two.", "three", "four.", "Five", "[seven] 0.9"]
    );
    assert_eq!(found("run", "# One\necho two # three\n# four"), ["One", "four"]);
    assert_eq!(words("one - two (three), x"), 4);
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The sentences of a source's comments, or of a document without its code. A name in backticks
/// counts as one word.
fn sentences(file: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in paragraphs(file, text) {
        let mut sentence: Vec<&str> = Vec::new();
        let plain = without_targets(&without_names(&paragraph));
        for word in plain.split_whitespace() {
            sentence.push(word);
            if word.trim_end_matches([')', '*', '"', ']']).ends_with(['.', '?', '!']) {
                found.push(std::mem::take(&mut sentence).join(" "));
            }
        }
        found.extend((!sentence.is_empty()).then(|| sentence.join(" ")));
    }
    found
}

/// The paragraphs of the prose of a file. A heading, an item of a list and a cell of a table are
/// paragraphs.
fn paragraphs(file: &Path, text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in lines(file, text) {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
            found.push(String::new());
        } else if is_code || line.is_empty() {
            found.push(String::new());
        } else if let Some(cells) = line.strip_prefix('|') {
            found.extend(cells.split(" | ").map(|cell| cell.trim_matches('|').to_owned()));
            found.push(String::new());
        } else if line.starts_with('#') {
            found.extend([line.trim_start_matches('#').to_owned(), String::new()]);
        } else if let Some(item) = item(line) {
            found.push(item.to_owned());
        } else if let Some(last) = found.last_mut() {
            *last += &format!(" {line}");
        }
    }
    found
}

/// The text of an item of a list.
fn item(line: &str) -> Option<&str> {
    let (mark, text) = line.split_once(' ')?;
    let is_number = |mark: &str| mark.parse::<u8>().is_ok();
    (["-", "*", "+"].contains(&mark) || mark.strip_suffix('.').is_some_and(is_number))
        .then_some(text)
}

/// The lines of the prose. An empty line stands between two comments.
fn lines<'a>(file: &Path, text: &'a str) -> Vec<&'a str> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("md") => text.lines().collect(),
        Some("json") => Vec::new(),
        Some("rs" | "html") => source_comments(text).collect(),
        _ => comments(text).collect(),
    }
}

/// The comments of a source, each line without its mark; an empty line for each line of code.
fn source_comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| match line.trim_start().strip_prefix("//") {
        Some(comment) => comment.trim_start_matches(['/', '!']),
        None => "",
    })
}
