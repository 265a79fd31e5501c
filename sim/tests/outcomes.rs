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
    6_814_283_527_006_689_886,
    4_482_708_556_020_618_782,
    4_372_341_760_651_093_206,
    12_544_500_443_854_547_499,
    918_583_564_451_035_605,
    4_045_572_793_988_873_864,
    9_996_552_124_580_116_699,
    8_608_826_462_319_468_557,
    9_863_856_731_256_310_614,
    4_995_653_043_646_874_394,
    7_321_194_227_997_791_012,
    4_749_751_393_250_668_180,
    15_888_641_959_473_134_045,
    9_344_422_258_966_760_688,
    5_032_945_930_267_233_956,
    17_952_677_967_561_526_893,
    5_989_351_656_084_209_469,
    15_207_890_503_319_040_577,
    11_499_707_335_822_558_399,
    12_118_852_567_937_941_891,
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
