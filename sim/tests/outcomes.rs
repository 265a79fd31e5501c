//! The outcomes of two hundred seeds of chaos, pinned.
//!
//! `tests/chaos.rs` pins whole runs: every message of three seeds. These digests know no messages,
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
    3_886_307_532_827_094_494,
    14_519_244_339_332_508_688,
    6_569_445_965_285_569_200,
    9_621_677_741_239_996_630,
    8_227_914_528_718_923_645,
    10_624_430_461_250_080_901,
    14_084_358_120_012_979_638,
    7_393_234_914_609_018_136,
    17_785_216_319_862_855_988,
    805_847_517_933_163_466,
    2_837_406_959_368_924_005,
    18_103_360_089_609_730_537,
    10_355_835_723_390_855_154,
    6_683_488_796_158_854_373,
    7_302_139_386_348_690_086,
    17_817_268_976_347_318_349,
    10_213_297_133_551_088_956,
    16_930_881_827_952_878_929,
    11_008_482_026_208_475_735,
    6_347_738_825_399_792_336,
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
