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
    936_426_043_935_323_789,
    1_175_885_878_186_092_053,
    6_729_890_467_650_937_963,
    1_187_477_085_585_687_630,
    4_286_943_556_356_557_687,
    13_087_476_759_106_808_224,
    13_878_778_677_613_232_767,
    897_123_394_915_981_419,
    529_584_769_401_512_840,
    16_190_748_982_719_835_164,
    1_693_331_748_304_535_985,
    6_767_280_106_340_085_613,
    16_444_828_527_662_705_177,
    17_849_609_448_414_402_907,
    14_092_325_383_498_175_738,
    3_117_662_616_214_287_603,
    7_644_498_056_394_710_740,
    9_705_360_798_199_576_353,
    1_892_190_546_735_304_887,
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
