//! Stories told as scripts, with their results: a change of either is read as a diff.

#[cfg(elderlock_mutants)]
use elderlock_sim::planted;
use elderlock_sim::script::ScriptRunner;
use elderlock_sim::step::Step;
#[cfg(elderlock_mutants)]
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// The files of a folder of this crate, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<PathBuf> =
        folder.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs each file and compares its outcome; `UPDATE_GOLDENFILES=1` writes the outcome anew instead.
/// After each run everything has to work.
fn run_all(folder: &str) {
    let files = files(folder);
    assert!(!files.is_empty());
    let tell = |file: &PathBuf| {
        let mut runner = ScriptRunner::new(|world| world);
        goldenscript::run(&mut runner, file).unwrap();
        runner.world().apply(&Step::Restore);
        assert_eq!(runner.world().broken(), None);
    };
    let wrong = |file: &&PathBuf| catch_unwind(AssertUnwindSafe(|| tell(file))).is_err();
    let wrong: Vec<String> =
        files.iter().filter(wrong).map(|file| file.display().to_string()).collect();
    assert!(wrong.is_empty(), "these are told otherwise now, see above:\n{}", wrong.join("\n"));
}

#[test]
fn every_script_is_told_as_it_was() {
    run_all("scripts");
}

/// Each defect that chaos found stays mended: each script is the shrunk log of a defect.
#[test]
fn every_regression_holds() {
    run_all("regressions");
}

/// A script that names a planted break violates the invariant that it names if the break is
/// planted. Such scripts are logs of planted breaks, and scripts that need one guard. A file that
/// `found_by` lists for a planted break names that break.
#[cfg(elderlock_mutants)]
#[test]
fn every_script_of_a_mutant_breaks_with_it() {
    use elderlock::protocol::mutant::ProtocolMutant;
    let mut told = Vec::new();
    for file in files("regressions").into_iter().chain(files("scripts")) {
        let script = std::fs::read_to_string(&file).unwrap();
        let named = script.lines().find_map(|line| line.strip_prefix("# Planted break "));
        let Some(line) = named else { continue };
        let (name, broken) = line.trim_end_matches('.').split_once(" violates ").unwrap();
        let mutant: ProtocolMutant = name.parse().unwrap();
        let mut runner = ScriptRunner::new(move |world| world.mutant(mutant));
        runner.run_script(&script).unwrap();
        let found = runner.world().broken().unwrap_or_else(|| panic!("{} holds", file.display()));
        let lock = found.lock.as_ref().map(|lock| format!(" of {lock}")).unwrap_or_default();
        assert_eq!(format!("{}{lock}", found.invariant), broken, "{}", file.display());
        told.push((mutant, file));
    }
    let (unit_tested, others): (BTreeSet<_>, BTreeSet<_>) =
        ProtocolMutant::ALL.into_iter().partition(|mutant| planted::has_unit_test(*mutant));
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for mutant in others {
        let Some(file) = planted::found_by(mutant) else { continue };
        let is_named = if file.ends_with(".rs") {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            text.contains(&format!("ProtocolMutant::{mutant:?}"))
        } else {
            told.contains(&(mutant, folder.join(file)))
        };
        assert!(is_named, "{file} does not name {mutant:?}");
    }
    assert_eq!(unit_tested, named_in_rules(&folder.join("../src/protocol")));
}

/// The planted breaks that the unit tests of the core plant: those of the rules, and one of links.
#[cfg(elderlock_mutants)]
fn named_in_rules(core: &std::path::Path) -> BTreeSet<elderlock::protocol::mutant::ProtocolMutant> {
    let read = |file: &str| std::fs::read_to_string(core.join(file)).unwrap();
    let rules = ["bounds.rs", "copies.rs", "grantors.rs", "parts.rs", "strangers.rs"];
    let rules = rules.map(|file| read(&format!("node/tests/rules/{file}"))).concat();
    let rules = read("node/tests/rules.rs") + &rules;
    let link = read("link/tests.rs");
    let rules = rules.split("\nrule!(").skip(1).filter_map(|rule| rule.split(',').nth(1));
    let links = link.split("ProtocolMutant::").skip(1);
    let links = links.filter_map(|rest| rest.split(|char: char| !char.is_alphanumeric()).next());
    rules.chain(links).map(|name| name.trim().parse().unwrap()).collect()
}

/// A violation in chaos is shrunk to a few steps, saved, and breaks again from the file, for the
/// same lock.
#[cfg(elderlock_mutants)]
#[test]
fn a_break_of_a_mutant_is_shrunk_and_saved() {
    use elderlock::protocol::mutant::ProtocolMutant;
    use elderlock_sim::World;
    use elderlock_sim::chaos::{ChaosPlan, run_seed};
    use elderlock_sim::shrink::{save, shrink, shrink_log};
    let prepare = |world: World| world.mutant(ProtocolMutant::ReuseTokens);
    let plans = (1..100).map(|seed| ChaosPlan::draw(seed, (3, 5)));
    let broken = plans.filter_map(|plan| {
        run_seed(&plan, prepare).world.broken().cloned().map(|found| (plan, found))
    });
    let (plan, found) = { broken }.find(|(_, found)| found.lock.is_some()).unwrap();
    let small = shrink(&plan, &found, prepare);
    let whole = run_seed(&small, prepare).log;
    let log = shrink_log(&whole, &found, prepare);
    let (left, all) = (log.steps.len(), whole.steps.len());
    assert!(left < 20 && all > 2 * left, "{left} of {all}");
    let folder = std::env::temp_dir().join(format!("elderlock-breaks-{}", std::process::id()));
    let file = save(plan.seed, &log, &found, prepare, &folder).unwrap().unwrap();
    let mut runner = ScriptRunner::new(prepare);
    runner.run_script(&std::fs::read_to_string(file).unwrap()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let again = runner.world().broken().unwrap();
    assert_eq!((again.invariant, &again.lock), (found.invariant, &found.lock));
}
