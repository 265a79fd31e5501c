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
    973_951_864_089_174_230,
    3_586_934_556_060_919_286,
    16_408_067_285_547_519_326,
    6_019_243_542_570_659_219,
    7_177_780_170_155_986_169,
    14_739_836_619_630_551_177,
    4_046_580_926_884_387_917,
    8_260_198_959_947_048_111,
    2_498_825_790_572_284_137,
    4_299_897_038_846_542_159,
    15_485_793_559_957_815_233,
    9_153_165_044_490_858_490,
    15_385_966_156_947_955_738,
    9_120_541_271_423_927_956,
    5_667_186_538_251_119_912,
    1_334_576_677_937_181_297,
    15_432_898_286_307_348_077,
    195_914_023_575_706_796,
    12_044_377_440_691_061_911,
    15_594_654_328_455_438_369,
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
