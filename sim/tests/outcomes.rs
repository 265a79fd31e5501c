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
    2_088_584_569_030_582_205,
    8_141_889_393_529_255_748,
    5_670_794_772_219_524_936,
    13_068_640_932_697_523_895,
    531_671_251_756_685_867,
    10_624_430_461_250_080_901,
    3_869_874_308_283_638_266,
    17_780_550_904_805_856_486,
    13_560_618_494_759_766_354,
    16_071_178_459_191_990_725,
    1_094_764_419_606_478_618,
    327_637_531_940_657_203,
    13_158_538_584_693_970_814,
    8_497_421_783_315_726_442,
    13_336_300_687_460_428_103,
    707_987_543_017_422_411,
    227_787_239_772_993_127,
    9_283_083_158_086_556_564,
    5_402_933_941_285_440_414,
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
