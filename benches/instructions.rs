//! Counts the cost of every lock in the pure core, in instructions and allocations, and fails if
//! that is too much:
//!
//! - a free lock and its release at its grantor, alone and beside many that are held, by commands;
//! - the work of the core for a free lock that is taken without a step, and released before the
//!   next one;
//! - a release that grants the lock to the next of some waiters, and of many;
//! - the request for a lock, and its grant, to bytes and back;
//! - a free lock from another member and its release: all that two cores do about it, and their
//!   frames;
//! - a lock that the member keeps, and its release, by commands and without a step.
//!
//! It needs valgrind, and the runner in the version of Cargo.lock:
//!
//! ```text
//! cargo install --locked gungraun-runner --version 0.20.0
//! cargo bench -p elderlock --no-default-features --bench instructions
//! ```
//!
//! Each limit stands here, so a clean checkout is enough: it is the count with rustc 1.95, on
//! x86-64, and [`MARGIN`]. A count is the same however busy the machine is, but not with every
//! compiler. **If one shifts it:** count the last commit that was good with the new compiler and
//! with the one before. That difference is the compiler's: write the new counts here, with its
//! version, in a commit of their own. The rest is ours. A change that makes something cheaper
//! writes the new count as well, or the guard lets it be lost again.

// The items that the macros write are public and have no docs.
#![allow(missing_docs)]

mod grantor;

use elderlock::protocol::LockName;
use elderlock::wire::{Decoder, Frame, PROTOCOL_VERSION, encode};
use grantor::{Grantor, Line, MANY, Pair, free_names};
use gungraun::{
    Callgrind, Dhat, DhatMetric, EventKind, LibraryBenchmarkConfig, library_benchmark,
    library_benchmark_group,
};
use std::hint::black_box;

/// How often each is done, so that a one-time cost is lost in it.
const TURNS: u32 = 1000;

/// The percentage that may come on top. From rustc 1.95 to a nightly 1.97 it was one at most. A
/// count of no allocation stays none.
const MARGIN: u64 = 10;

/// How glibc copies bytes depends on the processor: with AVX2 or without, a tenth of the cost of
/// frames. So each copies alike.
const PLAIN: &str = "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-AVX_Fast_Unaligned_Load,-AVX512F,-AVX512VL";

/// The cost of one turn.
fn took(instructions: u64, allocations: u64) -> LibraryBenchmarkConfig {
    let limit = |count| u64::from(TURNS) * count * (100 + MARGIN) / 100;
    let mut config = LibraryBenchmarkConfig::default();
    config
        .env("GLIBC_TUNABLES", PLAIN)
        // A cache simulation is a guess, and takes as long again.
        .tool(
            Callgrind::with_args(["cache-sim=no"])
                .hard_limits([(EventKind::Ir, limit(instructions))]),
        )
        // An allocation is counted if this file is among its callers, which may be far away.
        .tool(
            Dhat::with_args(["num-callers=200"])
                .hard_limits([(DhatMetric::TotalBlocks, limit(allocations))]),
        );
    config
}

fn free_beside(held: u32) -> (Grantor, Vec<LockName>) {
    lock_all((Grantor::beside(held), free_names(TURNS)))
}

fn lock_all((mut grantor, names): (Grantor, Vec<LockName>)) -> (Grantor, Vec<LockName>) {
    for name in &names {
        let request = grantor.lock(name);
        grantor.release(request);
    }
    (grantor, names)
}

fn offer_all((mut grantor, names): (Grantor, Vec<LockName>)) -> (Grantor, Vec<LockName>) {
    for name in &names {
        assert!(grantor.offers(name), "it is free");
    }
    grantor.absorb(names.len() as u64);
    (grantor, names)
}

fn line_of(waiting: u32) -> Line {
    let line = take_turns(Line::new(waiting));
    line.check();
    line
}

fn take_turns(mut line: Line) -> Line {
    for _ in 0..TURNS {
        line.turn();
    }
    line
}

fn pair_of() -> (Pair, Vec<LockName>) {
    cycle_all((Pair::new(), free_names(TURNS)))
}

fn cycle_all((mut pair, names): (Pair, Vec<LockName>)) -> (Pair, Vec<LockName>) {
    for name in &names {
        pair.cycle(name);
    }
    (pair, names)
}

fn keeping() -> (Pair, Vec<LockName>) {
    let names = free_names(TURNS);
    cycle_all((Pair::keeping(&names), names))
}

fn cycle_all_kept((mut pair, names): (Pair, Vec<LockName>)) -> (Pair, Vec<LockName>) {
    for name in &names {
        pair.cycle_kept(name);
    }
    (pair, names)
}

/// Both frames, and room that was used before.
fn wire() -> Wire {
    let mut decoder = Decoder::new();
    decoder.open();
    there_and_back(Wire {
        frames: [grantor::request(), grantor::grant()],
        bytes: Vec::new(),
        decoder,
    })
}

struct Wire {
    frames: [Frame; 2],
    bytes: Vec<u8>,
    decoder: Decoder,
}

fn there_and_back(mut wire: Wire) -> Wire {
    for _ in 0..TURNS {
        for frame in &wire.frames {
            wire.bytes.clear();
            encode(black_box(frame), PROTOCOL_VERSION, &mut wire.bytes).expect("a short frame");
            wire.decoder.back().extend_from_slice(&wire.bytes);
            black_box(wire.decoder.next().expect("the encoded frame")).expect("all of it");
        }
    }
    wire
}

// Each gets its input and gives it back: neither making nor dropping it is counted.

#[library_benchmark]
#[bench::alone(args = (0), setup = free_beside, config = took(5_146, 0))]
#[bench::beside_many(args = (MANY), setup = free_beside, config = took(10_624, 0))]
fn lock_and_release(at: (Grantor, Vec<LockName>)) -> (Grantor, Vec<LockName>) {
    lock_all(at)
}

#[library_benchmark]
#[bench::alone(args = (0), setup = free_beside, config = took(368, 0))]
#[bench::beside_many(args = (MANY), setup = free_beside, config = took(483, 0))]
fn offer(at: (Grantor, Vec<LockName>)) -> (Grantor, Vec<LockName>) {
    offer_all(at)
}

#[library_benchmark]
#[bench::of_100(args = (100), setup = line_of, config = took(18_737, 2))]
#[bench::of_many(args = (MANY), setup = line_of, config = took(23_480, 2))]
fn release_to_the_next(line: Line) -> Line {
    take_turns(line)
}

#[library_benchmark]
#[bench::there_and_back(args = (), setup = wire, config = took(7_176, 2))]
fn frames(wire: Wire) -> Wire {
    there_and_back(wire)
}

#[library_benchmark]
#[bench::free(args = (), setup = pair_of, config = took(28_829, 6))]
fn from_another_member(at: (Pair, Vec<LockName>)) -> (Pair, Vec<LockName>) {
    cycle_all(at)
}

#[library_benchmark]
#[bench::by_commands(args = (), setup = keeping, config = took(5_285, 1))]
fn kept_by_commands(at: (Pair, Vec<LockName>)) -> (Pair, Vec<LockName>) {
    cycle_all(at)
}

#[library_benchmark]
#[bench::without_a_step(args = (), setup = keeping, config = took(1_916, 1))]
fn kept(at: (Pair, Vec<LockName>)) -> (Pair, Vec<LockName>) {
    cycle_all_kept(at)
}

library_benchmark_group!(
    name = core,
    benchmarks = [
        lock_and_release,
        offer,
        release_to_the_next,
        frames,
        from_another_member,
        kept_by_commands,
        kept,
    ]
);
gungraun::main!(library_benchmark_groups = core);
