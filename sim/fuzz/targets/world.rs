//! The World, told by a tape. Members, calls, faults and delays are the fuzzer's, and the
//! invariants judge. Then all heals, and everything has to work. `elderlock-sim tape FILE` shows
//! what a tape says.
#![no_main]

use elderlock_sim::tape::tell;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|tape: &[u8]| {
    let told = tell(tape, |world| world);
    if let Some(found) = told.world.broken() {
        println!("{}", told.log.to_script());
        panic!("{} is broken: {}", found.invariant, found.what);
    }
    // A run is a function of its tape: some tapes run twice, and the digests must be equal.
    if told.world.digest() % 16 == 0 {
        assert_eq!(
            tell(tape, |world| world).world.digest(),
            told.world.digest(),
            "told twice, two stories"
        );
    }
});
