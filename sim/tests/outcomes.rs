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
    8_907_752_523_377_958_520,
    6_423_686_114_008_443_882,
    1_189_475_109_429_846_310,
    14_333_861_805_772_115_755,
    14_799_047_976_588_436_585,
    10_664_423_060_506_266_747,
    609_642_277_323_467_209,
    4_628_714_404_420_774_046,
    13_560_618_494_759_766_354,
    16_071_178_459_191_990_725,
    16_560_972_761_770_804_286,
    327_637_531_940_657_203,
    2_114_765_402_504_234_197,
    17_367_415_553_204_661_201,
    10_089_305_050_199_142_775,
    3_657_197_865_373_764_129,
    12_831_877_206_089_980_293,
    4_519_994_630_034_942_137,
    11_964_668_187_017_872_909,
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
