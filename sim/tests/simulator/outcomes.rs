//! The outcomes of two hundred seeds of chaos, pinned.
//!
//! `chaos.rs` pins whole runs: every message of three seeds. These digests know no messages,
//! only the order of answers, tokens, losses, contents and views. So they stay equal when
//! messages get another form, and show a decision of the protocol that came out otherwise. Only
//! damaged frames depend on the bytes of a message: a longer one is damaged in another place.

use elderlock_sim::chance::mix;
use elderlock_sim::chaos::{ChaosPlan, run_seed};
use elderlock_sim::network::SECOND;

/// Seeds of one digest.
const SEEDS: u64 = 10;

/// The digests of the seeds from 1 on, ten seeds each. After an intended change of the protocol's
/// decisions, or of how plans are drawn, put here the values that the failing test prints.
const PINNED: [u64; 20] = [
    14_490_499_193_853_692_780,
    1_175_885_878_186_092_053,
    6_729_890_467_650_937_963,
    12_240_823_243_987_701_810,
    1_602_492_631_855_262_584,
    2_644_617_277_157_322_860,
    13_878_778_677_613_232_767,
    897_123_394_915_981_419,
    529_584_769_401_512_840,
    2_481_156_080_007_532_981,
    12_178_306_805_100_736_082,
    8_268_482_784_382_058_676,
    4_588_239_452_419_349_515,
    10_722_936_641_229_812_479,
    1_111_108_090_840_669_926,
    3_117_662_616_214_287_603,
    472_068_225_854_641_807,
    13_661_013_788_628_981_438,
    8_739_295_283_441_724_269,
    3_787_377_053_303_803_429,
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
