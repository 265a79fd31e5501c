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
    15_649_687_272_863_372_521,
    713_289_762_257_523_282,
    6_581_368_628_046_142_283,
    6_019_243_542_570_659_219,
    4_242_279_839_318_061_595,
    6_729_196_710_299_730_938,
    4_046_580_926_884_387_917,
    13_314_150_393_999_966_563,
    11_967_804_336_413_985_615,
    14_232_664_775_299_344_470,
    122_888_425_111_586_835,
    11_408_732_989_732_460_610,
    6_921_393_237_494_049_730,
    6_111_346_149_695_856_555,
    9_270_788_418_624_525_264,
    5_335_625_154_842_619_074,
    9_300_390_501_766_683_418,
    195_914_023_575_706_796,
    5_754_435_363_898_381_374,
    11_335_712_360_679_593_532,
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
