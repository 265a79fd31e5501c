//! The outcomes of two hundred seeds of chaos, pinned.
//!
//! `tests/chaos.rs` pins whole runs: every message of three seeds. These digests know no messages,
//! only the order of answers, tokens, losses, contents and views. So they stay equal when
//! messages get another form, and show a decision of the protocol that came out otherwise.

use elderlock_sim::chance::mix;
use elderlock_sim::chaos::{ChaosPlan, run_seed};
use elderlock_sim::network::SECOND;

/// Seeds of one digest.
const SEEDS: u64 = 10;

/// The digests of the seeds from 1 on, ten seeds each. After an intended change of the protocol's
/// decisions, or of how plans are drawn, put here the values that the failing test prints.
const PINNED: [u64; 20] = [
    2_905_725_935_136_576_838,
    3_538_124_049_621_417_860,
    2_945_506_562_275_991_647,
    528_324_300_226_591_104,
    15_622_418_832_333_755_904,
    8_911_849_654_276_214_387,
    18_177_918_706_018_359_872,
    16_107_327_146_880_380_761,
    15_867_832_168_414_562_882,
    2_150_442_309_282_080_896,
    14_661_060_436_562_594_299,
    14_091_194_150_600_214_051,
    16_758_904_001_466_066_743,
    7_719_657_792_959_323_641,
    13_828_773_192_597_449_916,
    7_242_941_431_476_203_247,
    8_192_937_557_223_423_572,
    9_984_420_471_029_611_362,
    8_803_334_054_682_188_554,
    5_874_378_086_104_070_448,
];

#[test]
fn two_hundred_seeds_have_the_outcomes_that_they_have_everywhere() {
    let outcomes = |seed| {
        let plan = ChaosPlan { span: 10 * SECOND, ..ChaosPlan::draw(seed, (3, 7)) };
        let run = run_seed(&plan, |world| world);
        assert_eq!(run.world.broken(), None, "seed {seed}");
        run.world.outcomes()
    };
    let found: Vec<u64> = (0..PINNED.len() as u64)
        .map(|ten| (1..=SEEDS).fold(0, |digest, seed| mix(&[digest, outcomes(ten * SEEDS + seed)])))
        .collect();
    assert_eq!(found, PINNED);
}
