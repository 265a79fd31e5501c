//! Stories told as scripts, with what comes of them: a change of either is read as a diff.

use elderlock_sim::script::Teller;
use elderlock_sim::step::Step;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// The files of a folder of this crate, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Tells each and compares; with `UPDATE_GOLDENFILES=1` it is written anew instead. After it everything has to work.
fn tell_all(folder: &str) {
    let files = files(folder);
    assert!(!files.is_empty());
    let tell = |file: &PathBuf| {
        let mut teller = Teller::new(|world| world);
        goldenscript::run(&mut teller, file).unwrap();
        teller.world().apply(&Step::Restore);
        assert_eq!(teller.world().broken(), None);
    };
    let wrong = |file: &&PathBuf| catch_unwind(AssertUnwindSafe(|| tell(file))).is_err();
    let wrong: Vec<String> = files.iter().filter(wrong).map(|file| file.display().to_string()).collect();
    assert!(wrong.is_empty(), "these are told otherwise now, see above:\n{}", wrong.join("\n"));
}

#[test]
fn every_script_is_told_as_it_was() {
    tell_all("scripts");
}

/// What chaos once broke holds: each is the shrunk log of a defect.
#[test]
fn every_regression_holds() {
    tell_all("regressions");
}

/// A log would find its defect again: those of planted breaks name the mutant and what it breaks, and do break so.
#[cfg(elderlock_mutants)]
#[test]
fn every_regression_of_a_mutant_breaks_with_it() {
    use elderlock::protocol::mutant::Mutant;
    let mut told = 0;
    for file in files("regressions") {
        let script = std::fs::read_to_string(&file).unwrap();
        let Some(line) = script.lines().find_map(|line| line.strip_prefix("# Mutant ")) else { continue };
        let (name, broken) = line.trim_end_matches('.').split_once(" breaks ").unwrap();
        let mutant = Mutant::CHAOS.into_iter().find(|mutant| format!("{mutant:?}") == name).unwrap();
        let mut teller = Teller::new(move |world| world.mutant(mutant));
        teller.tell(&script).unwrap();
        let found = teller.world().broken().unwrap_or_else(|| panic!("{} holds", file.display()));
        let lock = found.lock.as_ref().map(|lock| format!(" of {lock}")).unwrap_or_default();
        assert_eq!(format!("{}{lock}", found.invariant), broken, "{}", file.display());
        told += 1;
    }
    assert!(told > 0);
}
