//! Tries the defects that `drawn/` has planted in a copy of the repository, one after the other,
//! until chaos breaks. Available only there, under `RUSTFLAGS="--cfg elderlock_drawn"`.

use std::process::ExitCode;

/// The options of `drawn`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrawnOptions {
    /// The first defect, by its number in the list.
    #[arg(long, default_value_t = 1)]
    first: usize,
    /// The last defect.
    #[arg(long, default_value_t = 440)]
    last: usize,
    /// Seeds spent on one defect at most.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 3_000_000)]
    from: u64,
    /// How many seeds are tried at once.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

#[cfg(not(elderlock_drawn))]
pub(crate) fn run(_: &DrawnOptions) -> ExitCode {
    eprintln!(
        "drawn defects exist only in the copy that sim/drawn makes; sim/survivors.md says how"
    );
    ExitCode::from(2)
}

#[cfg(elderlock_drawn)]
pub(crate) fn run(options: &DrawnOptions) -> ExitCode {
    use crate::command::lock;
    use elderlock::protocol::drawn::switch;
    use elderlock_sim::chaos::{ChaosPlan, run_seed};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    std::panic::set_hook(Box::new(|_| {}));
    let end = options.from + options.seeds;
    for number in options.first..=options.last {
        switch(number);
        let (next, found) = (AtomicU64::new(options.from), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..options.jobs {
                scope.spawn(|| {
                    while lock(&found).is_none() {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            break;
                        }
                        let run = run_seed(&ChaosPlan::draw(seed, (3, 7)), |world| world);
                        if let Some(one) = run.world.broken() {
                            *lock(&found) = Some((seed, one.invariant));
                        }
                    }
                });
            }
        });
        let met = switch(0);
        match *lock(&found) {
            Some((seed, invariant)) => {
                println!("{number}\t{}\t{invariant}", seed - options.from + 1)
            }
            None => println!("{number}\t-\tSURVIVES, come to {met} times"),
        }
    }
    ExitCode::SUCCESS
}
