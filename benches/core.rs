//! The time of the pure core for each lock: no socket, no task and no clock, so it is the core's
//! time alone.
//!
//! - node, at the grantor: lock and release of a free lock, and the offer of one. Both run alone
//!   and among many held locks.
//! - node, from another member: lock and release of a free lock, with frames to bytes and back.
//! - node, from another member that keeps the lock: lock and release without a step.
//! - node, with waiters: a release that grants the lock to the next of many.
//! - frame: the request for a lock, and its grant, to bytes and back.
//!
//! `elderlock bench` measures the total of that with sockets and tasks, beside floors.
//! `instructions.rs` counts the same, and fails.

mod grantor;

use criterion::{Criterion, Throughput};
use elderlock::wire::{Decoder, PROTOCOL_VERSION, encode};
use grantor::{Grantor, Line, MANY, Pair, free_names};
use std::hint::black_box;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    free(&mut criterion);
    offers(&mut criterion);
    from_another_member(&mut criterion);
    kept(&mut criterion);
    next_in_line(&mut criterion);
    frames(&mut criterion);
    criterion.final_summary();
}

fn free(criterion: &mut Criterion) {
    for held in [0, MANY] {
        let (mut grantor, names) = (Grantor::beside(held), free_names(MANY));
        let mut free = names.iter().cycle();
        criterion.bench_function(&format!("node/free lock and release, {held} held"), |bench| {
            bench.iter(|| {
                let request = grantor.lock(free.next().expect("there are some"));
                grantor.release(request);
            });
        });
    }
}

fn offers(criterion: &mut Criterion) {
    for held in [0, MANY] {
        let (mut grantor, names) = (Grantor::beside(held), free_names(MANY));
        let mut free = names.iter().cycle();
        criterion.bench_function(&format!("node/offer of a free lock, {held} held"), |bench| {
            bench.iter(|| {
                assert!(grantor.offers(free.next().expect("there are some")), "it is free")
            });
        });
        grantor.absorb(1);
        assert!(grantor.offers(&names[0]), "the absorbed lock is free again");
    }
}

fn from_another_member(criterion: &mut Criterion) {
    let (mut pair, names) = (Pair::new(), free_names(MANY));
    let mut free = names.iter().cycle();
    criterion.bench_function("node/free lock and release from another member", |bench| {
        bench.iter(|| pair.cycle(free.next().expect("there are some")));
    });
}

fn kept(criterion: &mut Criterion) {
    let names = free_names(1000);
    let mut pair = Pair::keeping(&names);
    let mut kept = names.iter().cycle();
    criterion.bench_function("node/kept lock and release from another member", |bench| {
        bench.iter(|| pair.cycle_kept(kept.next().expect("there are some")));
    });
}

fn next_in_line(criterion: &mut Criterion) {
    for waiting in [100, MANY] {
        let mut line = Line::new(waiting);
        criterion.bench_function(&format!("node/release to the next of {waiting}"), |bench| {
            bench.iter(|| line.turn())
        });
        line.check();
    }
}

fn frames(criterion: &mut Criterion) {
    for (what, frame) in [("request", grantor::request()), ("grant", grantor::grant())] {
        let mut bytes = Vec::new();
        encode(&frame, PROTOCOL_VERSION, &mut bytes).expect("a short frame");
        let mut group = criterion.benchmark_group("frame");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let mut out = Vec::new();
        group.bench_function(format!("encode a {what}"), |bench| {
            bench.iter(|| {
                out.clear();
                encode(black_box(&frame), PROTOCOL_VERSION, &mut out)
                    .expect("it was encoded before");
            });
        });
        let mut decoder = Decoder::new();
        decoder.open();
        group.bench_function(format!("decode a {what}"), |bench| {
            bench.iter(|| {
                decoder.back().extend_from_slice(black_box(&bytes));
                black_box(decoder.next().expect("the encoded frame")).expect("all of it");
            });
        });
        group.finish();
    }
}
