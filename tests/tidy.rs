//! Reads the sources: imports between directories, words that do not belong, and tests that tables
//! name. For each rule a test shows a breach.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/ratchets.rs"]
mod ratchets;
#[path = "tidy/sentences.rs"]
mod sentences;

/// The layers, each with the layers that it may not name: all except itself and those below it.
const LAYERS: [(&str, &[&str]); 6] = [
    ("protocol", &["gossip", "wire", "runtime", "service", "recipes"]),
    ("gossip", &["wire", "runtime", "service", "recipes"]),
    ("wire", &["gossip", "runtime", "service", "recipes"]),
    ("runtime", &["service", "recipes"]),
    ("service", &["recipes"]),
    ("recipes", &[]),
];

/// The layers without sockets, clocks and threads.
const PURE: [&str; 3] = ["protocol", "gossip", "wire"];

/// The names that the pure layers do not use.
const IMPURE: [&str; 8] = [
    "tokio::",
    "use tokio",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::thread",
];

/// The names of calls that panic on a thread without a tokio runtime.
const RUNTIME: [&str; 4] = ["tokio::time", "tokio::spawn", "tokio::task::spawn", "tokio::net"];

/// The files that may need a runtime. Joining and serving need one, and say so. The member's own
/// runtime carries out orders, and tests have one.
const WITH_RUNTIME: [&str; 6] = [
    "service/member_builder/join.rs",
    "service/http.rs",
    "service/http/listener.rs",
    "service/orders.rs",
    "service/sessions.rs",
    "service/simulated.rs",
];

/// The words with which a reason begins, in a cell beside tests or in place of them.
const VERDICTS: [&str; 4] =
    ["does not apply: ", "applies: ", "applies in part: ", "not kept, because "];

/// Geode's test classes in the table of `docs/parity.md`, and the number of tests of each.
const GEODE: [(&str, usize); 27] = [
    ("DistributedLockServiceDUnitTest", 42),
    ("GrantorFailoverDUnitTest", 2),
    ("ElderMemberDistributedTest", 2),
    ("ClusterElderManagerTest", 18),
    ("DLockServiceCharacterizationTests", 8),
    ("DLockReentrantLockJUnitTest", 1),
    ("DLockServiceDisconnectIntegrationTest", 1),
    ("DLockServiceLeakTest", 3),
    ("DLockGrantorTest", 14),
    ("DLockRequestProcessorTest", 5),
    ("DLockReleaseProcessorTest", 1),
    ("TXLockServiceDUnitTest", 7),
    ("TXLockServiceImplTest", 1),
    ("DLockManagementDUnitTest", 2),
    ("LockServiceMBeanAuthorizationJUnitTest", 4),
    ("GemFireDeadlockDetectorDUnitTest", 3),
    ("ShowDeadlockDUnitTest", 2),
    ("DeadlockDetectorTest", 2),
    ("DeadlockDetectorIntegrationTest", 4),
    ("DependencyGraphJUnitTest", 4),
    ("UnsafeThreadLocalJUnitTest", 1),
    ("CollaborationJUnitTest", 6),
    ("GlobalLockingDUnitTest", 11),
    ("GlobalRegionDUnitTest", 4),
    ("PutAllGlobalDUnitTest", 1),
    ("PutAllGlobalLockJUnitTest", 1),
    ("DlockAndTxlockRegressionTest", 1),
];

/// The number of sentences of Geode's package documentation that describe behaviour.
const SENTENCES: usize = 91;

/// The heading of the table of complaints in `docs/parity.md`.
const COMPLAINTS: &str = "\n## Complaints of the users of other lock services";

/// The number of complaints that were collected.
const COMPLAINTS_COLLECTED: usize = 67;

/// The least number of words of a reason.
const FEWEST_WORDS: usize = 5;

/// The only file that names the codec's crate.
const CODEC: &str = "wire/codec.rs";

#[test]
fn layers_import_only_downward() {
    for (layer, file, text) in layer_files() {
        assert_eq!(upward(&layer, &text), Vec::<String>::new(), "{}", file.display());
    }
}

#[test]
fn an_upward_import_is_found_in_each_form() {
    assert_eq!(upward("protocol", "use crate::runtime::Engine;"), ["runtime"]);
    assert_eq!(upward("wire", "use crate::{protocol::Time, gossip::Swim};"), ["gossip"]);
    assert_eq!(
        upward("gossip", "use crate::{\n    protocol::{Time, View},\n    wire,\n};"),
        ["wire"]
    );
    assert_eq!(upward("runtime", "fn f(_: &crate::service::Member) {}"), ["service"]);
    assert_eq!(
        upward("runtime", "use crate::protocol::Time;\nuse crate::{wire, membership};"),
        Vec::<String>::new()
    );
    assert_eq!(upward("protocol", "// as crate::runtime does\nfn f() {}"), Vec::<String>::new());
    assert_eq!(
        upward("gossip", "#[cfg(test)]\nmod tests {\n    use crate::wire::GossipCodec;\n}"),
        Vec::<String>::new()
    );
    assert_eq!(upward("gossip", "#[cfg(test)]\nmod tests;\nuse crate::wire::Frame;"), ["wire"]);
}

#[test]
fn pure_layers_name_no_socket_clock_or_thread() {
    for (layer, file, text) in layer_files() {
        if PURE.contains(&layer.as_str()) {
            assert_eq!(named(&IMPURE, &code(&text)), Vec::<&str>::new(), "{}", file.display());
        }
    }
}

/// A planted break is a word or a statement of `planted!` in one line. Longer code stands in
/// `planted.rs`, beside the code that it breaks.
#[test]
fn shipped_files_have_no_function_of_a_planted_break() {
    for (_, file, text) in layer_files() {
        if !file.ends_with("mutant.rs") && !file.iter().any(|part| part == "tests") {
            assert_eq!(sabotage(&text), Vec::<&str>::new(), "{}", file.display());
            assert_eq!(long_thread_breaks(&text), Vec::<&str>::new(), "{}", file.display());
            if !file.ends_with("planted.rs") {
                assert_eq!(long_breaks(&text), Vec::<&str>::new(), "{}", file.display());
            }
        }
    }
}

#[test]
fn a_function_of_a_planted_break_is_found() {
    let text = "#[cfg(elderlock_mutants)]\n    pub(crate) fn lose(&mut self) {}\n";
    assert_eq!(sabotage(text), ["pub(crate) fn lose(&mut self) {}"]);
    assert_eq!(sabotage("    #[cfg(elderlock_mutants)]\n    if a {}"), ["if a {}"]);
    assert_eq!(
        sabotage("#[cfg(all(elderlock_mutants, feature = \"x\"))]\nfn lose() {}"),
        ["fn lose() {}"]
    );
    assert_eq!(sabotage("if cfg!(elderlock_mutants) {}"), ["if cfg!(elderlock_mutants) {}"]);
    let thread = "if !is_planted(ThreadMutant::Lose) {";
    assert_eq!(long_thread_breaks(&format!("{thread}\n    a();\n    b();\n}}")), [thread]);
    assert_eq!(long_thread_breaks(&format!("{thread}\n    a();\n}}")), Vec::<&str>::new());
    for long in ["planted!(a, Lose => {", "if planted!(Lose) {\n    a();\n}"] {
        assert_eq!(long_breaks(long).len(), 1, "{long}");
    }
    for short in ["planted!(a, Lose => b());", "if !planted!(Lose) {\n    a();\n}"] {
        assert_eq!(long_breaks(short), Vec::<&str>::new());
    }
    for plain in ["mod planted;", "pub mod mutant;", "mutant: Option<Mutant>,"] {
        assert_eq!(sabotage(&format!("#[cfg(elderlock_mutants)]\n{plain}")), Vec::<&str>::new());
    }
}

/// The lines of code that only builds with breaks have, except fields, modules and the macro.
fn sabotage(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = shipped(text).lines().map(str::trim).collect();
    let is_cfg = |line: &str| {
        line == "#[cfg(elderlock_mutants)]" || line.starts_with("#[cfg(all(elderlock_mutants")
    };
    let pairs = lines.windows(2).filter(|pair| is_cfg(pair[0]));
    const PLUMBING: [&str; 7] = [
        "mod planted;",
        "mod mutant;",
        "pub mod mutant;",
        "mutant:",
        "pub mutant:",
        "pub(crate) mutant:",
        "let planted =",
    ];
    let is_plumbing =
        |line: &str| line.contains('$') || PLUMBING.iter().any(|plain| line.starts_with(plain));
    let below = pairs.map(|pair| pair[1]).filter(|line| !is_plumbing(line));
    // Within functions only the macros may ask for the configuration.
    let inside = lines.iter().copied().filter(|line| {
        line.contains("cfg!(elderlock_mutants") || line.contains("cfg!(all(elderlock_mutants")
    });
    below.chain(inside).collect()
}

/// The planted breaks of more than one line. These are macros that do not end on their line, and
/// blocks that only a planted break runs.
fn long_breaks(text: &str) -> Vec<&str> {
    let is_open = |line: &str| {
        let rest = line.split_once("planted!(").map_or("", |(_, rest)| rest);
        rest.matches('(').count() + 1 > rest.matches(')').count() && !rest.is_empty()
    };
    let is_block = |line: &str| {
        line.starts_with("if planted!(") && line.ends_with(") {") && !line.contains("||")
    };
    let is_code = |line: &&str| !line.starts_with("//") && !line.contains('$');
    let lines = shipped(text).lines().map(str::trim).filter(is_code);
    lines.filter(|line| is_open(line) || is_block(line)).collect()
}

/// The blocks of more than one statement that a planted break of the threads runs or skips. A break
/// may also be a word of a condition.
fn long_thread_breaks(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = shipped(text).lines().map(str::trim).collect();
    let begins = |line: &str| {
        let condition = line.strip_prefix("if ").map(|rest| rest.trim_start_matches('!'));
        condition.is_some_and(|rest| rest.starts_with("is_planted(ThreadMutant::"))
            && line.ends_with('{')
    };
    let is_long = |at: usize| lines.get(at + 2).is_none_or(|line| !line.starts_with('}'));
    (0..lines.len()).filter(|at| begins(lines[*at]) && is_long(*at)).map(|at| lines[at]).collect()
}

#[test]
fn calls_of_the_application_need_no_runtime_of_their_own() {
    let has_runtime = |file: &Path| {
        file.iter().any(|part| part == "tests")
            || WITH_RUNTIME.iter().any(|name| file.ends_with(name))
    };
    for (layer, file, text) in layer_files() {
        if !(layer == "service" || layer == "recipes") || has_runtime(&file) {
            continue;
        }
        assert_eq!(named(&RUNTIME, &code(&text)), Vec::<&str>::new(), "{}", file.display());
    }
}

#[test]
fn a_call_that_needs_a_runtime_is_found() {
    for name in RUNTIME {
        assert!(
            !named(&RUNTIME, &code(&format!("fn f() {{}}\n{name}(x).await;\n"))).is_empty(),
            "{name}"
        );
    }
}

#[test]
fn an_impure_name_is_found() {
    for name in IMPURE {
        assert!(!named(&IMPURE, &code(&format!("fn f() {{}}\n{name} x;\n"))).is_empty(), "{name}");
    }
}

#[test]
fn the_codec_crate_is_named_in_one_file() {
    let mut seen = false;
    for (_, file, text) in layer_files() {
        let names_it = code(&text).contains("bincode");
        let is_codec = file.ends_with(CODEC);
        assert!(!names_it || is_codec, "{} names bincode", file.display());
        seen |= names_it;
    }
    assert!(seen, "{CODEC} does not name bincode: this rule would see no breach");
}

#[test]
fn nothing_is_left_undone() {
    let mut files = 0;
    for folder in ["src", "bench", "cli", "fence", "sim", "testing", "tests", "benches", "examples"]
    {
        for file in files_below(&root().join(folder), "rs") {
            let text = read(&file);
            assert_eq!(undone(&text), Vec::<String>::new(), "{}", file.display());
            files += 1;
        }
    }
    assert!(files > 10, "only {files} files were read");
}

#[test]
fn an_undone_thing_is_found() {
    for word in undone_words() {
        assert_eq!(undone(&format!("// {word} later")), [word]);
    }
}

#[test]
fn the_readme_shows_the_example() {
    let readme = read(&root().join("README.md"));
    let example = read(&root().join("examples/first_lock.rs"));
    let program = example.split_once("\n\n").expect("the example opens with a comment").1;
    assert!(
        readme.contains(program),
        "README.md shows another program than examples/first_lock.rs"
    );
    assert!(program.lines().count() <= 20, "the first program has grown");
}

#[test]
fn the_guide_of_testing_shows_the_shop() {
    let guide = read(&root().join("docs/guide/testing.md"));
    let shop = read(&root().join("testing/tests/shop.rs"));
    let program = shop.split_once("\n\n").expect("the shop opens with a comment").1;
    assert!(guide.contains(program), "the guide shows another shop than testing/tests/shop.rs");
}

#[test]
fn every_test_that_the_tables_name_is_there() {
    let there = told();
    let named = tests_named(&read(&root().join("docs/parity.md")));
    assert!(named.len() > 80, "only {} tests are named", named.len());
    let missing: Vec<&String> = named.iter().filter(|name| !there.contains(*name)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn every_test_program_has_a_row_in_the_table_of_files() {
    let text = read(&root().join("tests/README.md"));
    let mut missing = Vec::new();
    for folder in ["tests", "cli/tests", "bench/tests", "testing/tests"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("it is there");
        let names = entries.map(|entry| entry.expect("it is readable").file_name());
        let names = names.map(|name| name.into_string().expect("it is text"));
        missing.extend(names.filter(|name| {
            let is_named =
                text.contains(&format!("`{name}`")) || text.contains(&format!("/{name}`"));
            name.ends_with(".rs") && !is_named
        }));
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_name_in_a_table_is_found_and_a_command_is_none() {
    let text = "| 1 | locks `one_test`, `wait::until`; scripts `late_release` |\n\
        ```\ncargo `test_x`\n```\n`word`, `a_b.rs`";
    assert_eq!(tests_named(text), ["late_release".to_owned(), "one_test".to_owned()].into());
    let source = "#[test]\nfn one_test() {}\n#[tokio::test(flavor = \"x\")]\n#[cfg(unix)]\n\
        async fn two() {}\nfn no_test() {}\n";
    assert_eq!(tests_of(source), ["one_test", "two"]);
    let source = "\nrule!(three, A, |b| c(b));\nrule!(\n    four,\n    A,\n);\n\
        stories! {\n    five: x;\n    six:\n        y;\n}\n";
    assert_eq!(tests_of(source), ["three", "four", "five", "six"]);
}

/// The tables of `docs/parity.md` have rows for each article, and for each sentence of Geode's
/// package documentation (001). Each row names an existing test, or the reason why there is none.
#[test]
fn every_row_of_the_articles_names_a_test_of_the_file_that_it_names_or_a_reason() {
    let files = files_and_rules();
    let rows = article_rows(&read(&root().join("docs/parity.md")));
    let count = |article| rows.iter().filter(|(of, ..)| of == article).count();
    assert_eq!(count("001"), SENTENCES);
    for article in ["000", "002", "003", "004"] {
        assert!(count(article) >= 10, "{} rows of {article}", count(article));
    }
    let wrong: Vec<_> =
        rows.iter().filter_map(|(_, what, here)| Some((what, row_lacks(here, &files)?))).collect();
    assert_eq!(wrong, Vec::new());
}

#[test]
fn a_row_without_a_test_or_a_reason_is_found() {
    let files =
        [(PathBuf::from("tests/leaders.rs"), vec!["one_leads".to_owned(), "two".to_owned()])];
    let of = |text| row_lacks(text, &files);
    assert_eq!(of("leaders `one_leads`: at once; leaders `one_leads`, `two`"), None);
    assert_eq!(of("does not apply: there is none"), None);
    assert!(of("").is_some() && of("does not apply:").is_some() && of("leaders, surely").is_some());
    assert_eq!(of("not kept, because it would lead twice: leaders `one_leads`"), None);
    assert!(of("mutexes `one_leads`").is_some() && of("leaders `one_lead`").is_some());
    assert!(of("not kept, because it would lead twice: leaders `one_lead`").is_some());
    assert!(of("does not apply: see leaders `one_lead`").is_some());
    let table = "| 004 | that | here |\n| 1 | 2 | 3 |\n| 12 | two |\n";
    assert_eq!(article_rows(table), [("004".to_owned(), "that".to_owned(), "here".to_owned())]);
}

/// Each test of Geode's lock service stands in a row. The row names an existing test, or a reason.
#[test]
fn every_test_of_geode_has_a_row_with_a_test_of_the_file_that_it_names_or_a_reason() {
    let files = files_and_rules();
    let rows = geode_rows(&read(&root().join("docs/parity.md")));
    let wrong: Vec<_> = rows
        .iter()
        .filter_map(|(class, _, here)| Some((class, row_lacks(here, &files)?)))
        .collect();
    assert_eq!(wrong, Vec::new());
    assert_eq!(tests_in(&rows), GEODE.map(|(class, tests)| (class.to_owned(), tests)).into());
}

#[test]
fn a_test_of_geode_that_has_no_row_is_found() {
    let count = |table| tests_in(&geode_rows(table));
    let two = "| class | its tests | here |\n| OneTest | testA, testB | x |\n\
        | OneTest | testC | y |\n| Two | a | b |\n";
    assert_eq!(count(two), [("OneTest".to_owned(), 3)].into());
    assert_eq!(count("| OneTest | testA, testA | x |\n"), [("OneTest".to_owned(), 1)].into());
    assert_eq!(count("| OneTest | testA, ... | x |\n"), [("OneTest".to_owned(), 1)].into());
}

/// The table of `docs/parity.md` has a row for each complaint. The row names the test that shows
/// that the complaint does not apply, or gives the reason. Otherwise it says that the complaint
/// applies.
#[test]
fn every_complaint_has_a_row_with_a_test_of_the_file_that_it_names_or_a_reason() {
    let (files, text) = (test_files(), read(&root().join("docs/parity.md")));
    let rows = complaint_rows(&text);
    assert_eq!(rows.len(), COMPLAINTS_COLLECTED);
    let lacks = |(row, number): (&Vec<&str>, usize)| {
        complaint_lacks(number, row, &files).map(|lacks| (number, lacks))
    };
    assert_eq!(rows.iter().zip(1..).filter_map(lacks).collect::<Vec<_>>(), Vec::new());
}

#[test]
fn a_complaint_without_a_row_a_test_or_a_reason_is_found() {
    let files = [(PathBuf::from("tests/leaders.rs"), vec!["one_leads".to_owned()])];
    let lacks = |here| complaint_lacks(7, &["7", "curator#1", "two lead", here], &files);
    assert_eq!(lacks("leaders `one_leads`: at once"), None);
    assert_eq!(lacks("does not apply: there is nothing that could lead"), None);
    assert_eq!(lacks("applies in part: two may lead for a while; leaders `one_leads`"), None);
    for wrong in [
        "",
        "leaders, surely",
        "leaders `one_lead`",
        "mutexes `one_leads`",
        "does not apply: never",
    ] {
        assert!(lacks(wrong).is_some(), "{wrong}");
    }
    assert!(lacks("applies: now and then; leaders `one_lead`").is_some());
    assert!(
        lacks("applies in part: sometimes").is_some()
            && lacks("it applies to all latches here").is_some()
    );
    let row = |row: &[&str]| complaint_lacks(8, row, &files);
    let here = "leaders `one_leads`";
    assert_eq!(row(&["8", "curator#1", "two lead", here]), None);
    assert!(
        row(&["7", "curator#1", "two lead", here]).is_some()
            && row(&["9", "curator#1", "two lead", here]).is_some()
    );
    assert!(
        row(&["8", "", "two lead", here]).is_some() && row(&["8", "curator#1", "", here]).is_some()
    );
    assert!(row(&["8", "curator#1", here]).is_some());
    let table = format!(
        "| 1 | a | b |\n{COMPLAINTS}\n\n| # | x | y | z |\n|---|\n| 1 | a | b | c |\n\
         | 3 | d |\n\n## Next\n| 4 |\n"
    );
    assert_eq!(complaint_rows(&table), [vec!["1", "a", "b", "c"], vec!["3", "d"]]);
}

/// The rows of tables that begin with the number of an article: the number, the statement, and the
/// test.
fn article_rows(text: &str) -> Vec<(String, String, String)> {
    rows_of_three(text, |article| article.len() == 3 && article.chars().all(|c| c.is_ascii_digit()))
}

/// The rows of tables that begin with one of Geode's test classes: the class, its tests, and their
/// counterparts here.
fn geode_rows(text: &str) -> Vec<(String, String, String)> {
    let is_name = |class: &str| class.chars().all(|c| c.is_ascii_alphanumeric());
    rows_of_three(text, |class| {
        is_name(class) && (class.ends_with("Test") || class.ends_with("Tests"))
    })
}

/// The rows of three cells whose first cell fits `is_first`.
fn rows_of_three(text: &str, is_first: impl Fn(&str) -> bool) -> Vec<(String, String, String)> {
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [first, what, here] = cells[..] else { return None };
        is_first(first).then(|| (first.to_owned(), what.to_owned(), here.to_owned()))
    });
    rows.collect()
}

/// The number of tests of each class that the rows name.
fn tests_in(rows: &[(String, String, String)]) -> BTreeMap<String, usize> {
    let is_name = |test: &&str| test.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut tests: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (class, named, _) in rows {
        tests.entry(class.clone()).or_default().extend(named.split(", ").filter(is_name));
    }
    tests.into_iter().map(|(class, tests)| (class, tests.len())).collect()
}

/// The error in a cell that names tests: parts between semicolons, each with a file and tests in
/// backticks.
fn row_lacks(here: &str, files: &[(PathBuf, Vec<String>)]) -> Option<String> {
    let mut tests = 0;
    for part in here.split("; ") {
        let Some((before, _)) = part.split_once('`') else { continue };
        let file = before.split_whitespace().last().unwrap_or_default();
        for test in tests_named(part) {
            tests += 1;
            let is_there = |(path, names): &(PathBuf, Vec<String>)| {
                path.with_extension("").components().any(|one| one.as_os_str() == file)
                    && names.contains(&test)
            };
            if !files.iter().any(is_there) {
                return Some(format!("no {test} in {file}"));
            }
        }
    }
    let is_reason = reason(here).is_some_and(|reason| !reason.is_empty());
    (tests == 0 && !is_reason).then(|| "neither a test nor a reason".to_owned())
}

/// The text after the verdict of a cell, if it has one.
fn reason(here: &str) -> Option<&str> {
    VERDICTS.iter().find_map(|verdict| here.strip_prefix(*verdict))
}

/// The cells of each row of the table of complaints, without its head.
fn complaint_rows(text: &str) -> Vec<Vec<&str>> {
    let (_, rest) = text.split_once(COMPLAINTS).expect("the table of complaints is there");
    let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The error in the row of a complaint that should have this number.
fn complaint_lacks(
    number: usize,
    row: &[&str],
    files: &[(PathBuf, Vec<String>)],
) -> Option<String> {
    let [first, place, what, here] = row[..] else { return Some("not four cells".to_owned()) };
    if first != number.to_string() {
        return Some(format!("number {first} in the place of {number}"));
    }
    if place.is_empty() || what.is_empty() {
        return Some("no complaint".to_owned());
    }
    if reason(here).is_some_and(|reason| reason.split_whitespace().count() < FEWEST_WORDS) {
        return Some("a reason of few words".to_owned());
    }
    row_lacks(here, files)
}

/// Words with an underscore in backticks, outside of code blocks: in the tables they are names of
/// tests.
fn tests_named(text: &str) -> BTreeSet<String> {
    let is_name = |word: &&str| {
        word.contains('_')
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .filter(is_name)
        .map(str::to_owned)
        .collect()
}

/// The names of all tests of the tree, and of all scripts and rules of the simulator.
fn told() -> BTreeSet<String> {
    files_and_rules().into_iter().flat_map(|(_, names)| names).collect()
}

/// Every file with its tests. In the simulator's folders of scripts and of invariants, each file
/// counts as one test.
fn files_and_rules() -> Vec<(PathBuf, Vec<String>)> {
    let folders =
        ["sim/scripts", "sim/regressions", "sim/src/invariants"].into_iter().map(|folder| {
            let entries = std::fs::read_dir(root().join(folder)).expect("the folder can be read");
            let name = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
            (PathBuf::from(folder), entries.filter_map(|entry| name(entry.ok()?.path())).collect())
        });
    test_files().into_iter().chain(folders).collect()
}

/// Every file with its tests. Paths start at the root.
fn test_files() -> Vec<(PathBuf, Vec<String>)> {
    let files = ["src", "bench", "cli", "fence", "sim", "testing", "tests"]
        .into_iter()
        .flat_map(|folder| files_below(&root().join(folder), "rs"));
    let tests = files.map(|file| {
        let names = tests_of(&read(&file)).into_iter().map(str::to_owned).collect();
        (file.strip_prefix(root()).map(Path::to_owned).unwrap_or(file), names)
    });
    tests.collect()
}

/// The names of functions below an attribute that makes them tests, and of the tests of the macros
/// `rule!` and `stories!`.
fn tests_of(text: &str) -> Vec<&str> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let code = line.strip_prefix("async ").unwrap_or(line);
        if let Some((name, _)) = code.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
            names.extend(is_test.then_some(name));
            is_test = false;
        }
    }
    let rules = text.split("\nrule!(").skip(1);
    names.extend(rules.filter_map(|rest| Some(rest.trim_start().split_once(',')?.0)));
    let stories = text.split_once("\nstories! {\n").and_then(|(_, rest)| rest.split_once("\n}"));
    let pairs = stories.into_iter().flat_map(|(list, _)| list.split(';'));
    names.extend(pairs.filter_map(|pair| Some(pair.split_once(':')?.0.trim())));
    names
}

/// The layers above `layer` that a file names.
fn upward(layer: &str, text: &str) -> Vec<String> {
    let above =
        LAYERS.iter().find(|(name, _)| *name == layer).expect("every layer is in the table").1;
    let code = code(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        for path in paths(rest) {
            let head: String =
                path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if above.contains(&head.as_str()) {
                found.push(head);
            }
        }
    }
    found
}

/// The paths that follow `crate::`: a single path, or the paths of a list in braces.
fn paths(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else { return vec![rest] };
    let (mut depth, mut begin, mut paths) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                paths.push(&list[begin..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// Returns the `names` that the code has.
fn named<'a>(names: &[&'a str], code: &str) -> Vec<&'a str> {
    names.iter().copied().filter(|name| code.contains(name)).collect()
}

/// Returns the text without comment lines and without the tests at the end of the file.
fn code(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    shipped(text).lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// Returns the text without the tests at the end of the file. A module of tests in a file of its
/// own may stand before code.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

fn undone(text: &str) -> Vec<String> {
    undone_words().into_iter().filter(|word| text.contains(word.as_str())).collect()
}

/// The words of unfinished work, put together here so that this file does not contain them.
fn undone_words() -> Vec<String> {
    [("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("unimplemented", "!"), ("todo", "!"), ("dbg", "!(")]
        .map(|(front, back)| format!("{front}{back}"))
        .to_vec()
}

/// Every file of every layer: the layer, the path, the text. Files that hold only tests are left
/// out.
fn layer_files() -> Vec<(String, PathBuf, String)> {
    let mut files = Vec::new();
    for (layer, _) in LAYERS {
        let found = files_below(&root().join("src").join(layer), "rs");
        assert!(!found.is_empty(), "layer {layer} is empty: its rules would see nothing");
        for file in found {
            if file.file_name().is_some_and(|name| name != "tests.rs") {
                files.push((layer.to_owned(), file.clone(), read(&file)));
            }
        }
    }
    files
}

/// The files below a folder whose names end so.
fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return files };
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                files.extend(files_below(&path, extension));
            }
        } else if path.extension().unwrap_or_default() == extension {
            files.push(path);
        }
    }
    files
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
