//! Random numbers for tests of the core. Any sequence will do, if it is the same in each run.

/// Numbers below the given limit, by Knuth's multiplier.
pub(super) fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut chance = seed;
    move |bound| {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % bound
    }
}
