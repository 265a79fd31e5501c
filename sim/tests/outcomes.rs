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
    16_637_187_305_786_703_782,
    2_954_617_188_957_650_307,
    11_443_622_241_925_506_905,
    8_354_472_762_048_979_582,
    17_292_833_249_547_526_087,
    581_805_260_293_191_456,
    7_512_094_123_850_246_300,
    10_813_429_866_263_323_937,
    8_233_459_930_845_786_641,
    1_793_481_932_607_419_716,
    5_250_674_074_421_242_205,
    11_154_591_608_526_345_535,
    12_703_334_912_666_516_858,
    2_404_564_601_292_980_922,
    16_940_445_848_737_581_333,
    6_913_801_633_420_084_943,
    6_849_243_042_745_010_712,
    14_641_036_261_583_133_147,
    12_755_704_285_743_378_714,
    1_456_126_433_269_350_162,
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
