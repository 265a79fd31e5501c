//! The cost of the cluster key: the same loads with it and without it, in the same rounds.

use crate::cluster::{BenchCluster, BenchResult};
use crate::membership::{IDLERS, largest_idle};
use crate::message::{BenchOrder, BenchReport, Load, Taken};
use crate::sheet::{Figure, Sheet, Unit};
use crate::speed::{CONTENDERS, Pair, allocations_of_each, fight, rate_of_all};
use crate::{BenchArgs, Progress, failover};
use std::path::{Path, PathBuf};

/// The parts of a round.
pub(crate) const PARTS: usize = 6;
/// The variable that gives all members of the bench a key.
const VARIABLE: &str = "ELDERLOCK_BENCH_KEY_FILE";
/// The limit of the time that the key adds to a lock and its release from another member.
const REMOTE_MORE: f64 = 1e-6;
/// The target for a rate with the key, as a share of the rate without it.
const RATE: f64 = 0.9;
/// The target of the rate at the grantor's own member, as such a share. Nothing is sealed there, so
/// only noise differs.
const LOCAL_RATE: f64 = 0.95;
/// The limit of additional allocations, which the member's other work causes.
const BESIDE: f64 = 0.01;
/// The limit of the memory that the key adds to an idle member.
const IDLE_MORE: f64 = 1024.0 * 1024.0;
/// The number of concurrent tasks.
const MANY: u32 = 64;
/// The number of measurements of each cluster in one round of `remote`.
const SLICES: u32 = 40;
/// The number of names of each thread.
const OWN: u32 = 16;

/// Two clusters of the same size, without the key and with it.
struct ClusterPair {
    logs: [PathBuf; 2],
    key_file: PathBuf,
}

impl ClusterPair {
    fn new(logs: &Path) -> BenchResult<ClusterPair> {
        if std::env::var_os(VARIABLE).is_some() {
            return Err(format!("{VARIABLE} gives all members a key: unset it for this case"));
        }
        let text = |error: std::io::Error| error.to_string();
        let directories = ["without-key", "with-key"].map(|name| logs.join(name));
        for directory in &directories {
            std::fs::create_dir_all(directory).map_err(text)?;
        }
        let key_file = logs.join("cluster.key");
        let key = elderlock::ClusterKey::generate().map_err(|error| error.to_string())?;
        key.write_file(&key_file).map_err(|error| error.to_string())?;
        Ok(ClusterPair { logs: directories, key_file })
    }

    /// The cluster without the key, or the one with it.
    fn start(&self, has_key: bool, members: usize) -> BenchResult<BenchCluster> {
        let [without, with] = self.logs.clone();
        match has_key {
            false => BenchCluster::set(members, without),
            true => BenchCluster::set_with_key(members, with, self.key_file.clone()),
        }
    }

    /// Two members of each cluster, the first of which is the grantor.
    fn pairs(&self) -> BenchResult<[Pair; 2]> {
        let [without, with] = self.set(2)?;
        Ok([Pair::of(without)?, Pair::of(with)?])
    }

    /// Two clusters whose member at index 0 is the grantor.
    fn set(&self, members: usize) -> BenchResult<[BenchCluster; 2]> {
        let mut clusters = [self.start(false, members)?, self.start(true, members)?];
        for cluster in &mut clusters {
            cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
        }
        Ok(clusters)
    }
}

/// Measures both clusters in each round. In every other round the other one comes first.
fn in_turn<T>(
    args: &BenchArgs,
    progress: &Progress,
    part: &str,
    both: &mut [T; 2],
    mut measure: impl FnMut(&mut T, u32) -> BenchResult<f64>,
    mut note: impl FnMut([f64; 2]),
) -> BenchResult<()> {
    for round in 1..=args.rounds {
        progress.show(&format!("{part}, round {round} of {}", args.rounds));
        let [without, with] = both;
        let measured = if round % 2 == 0 {
            let with = measure(with, round)?;
            [measure(without, round)?, with]
        } else {
            [measure(without, round)?, measure(with, round)?]
        };
        note(measured);
        progress.step();
    }
    Ok(())
}

/// The times of a lock and its release without and with the key, and the difference. They are
/// medians of many short measurements by turns. The machine's other work changes the time from one
/// second to the next by more than the key does. Each start of the processes does so too, so each
/// round has new pairs.
fn remote_times(pairs: &mut [Pair; 2], args: &BenchArgs) -> BenchResult<[f64; 3]> {
    let short = BenchArgs { millis: (args.millis / SLICES).max(10), ..args.clone() };
    let mut all = [const { Vec::new() }; 3];
    for slice in 0..SLICES {
        let mut times = [0.0; 2];
        for place in if slice % 2 == 0 { [0, 1] } else { [1, 0] } {
            times[place] = 1.0 / pairs[place].locks(1, &short)?.rate();
        }
        let [without, with] = times;
        for (times, time) in all.iter_mut().zip([without, with, with - without]) {
            times.push(time);
        }
    }
    Ok(all.map(|mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

pub(crate) fn secure(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let both = ClusterPair::new(logs)?;
    for round in 1..=args.rounds {
        progress.show(&format!("remote, round {round} of {}", args.rounds));
        let mut pairs = both.pairs()?;
        let [without, with, more] = remote_times(&mut pairs, args)?;
        sheet.note(1, Figure::time("remote without the key, each"), without);
        sheet.note(1, Figure::time("remote with the key, each"), with);
        let figure = Figure::time("remote, more with the key").at_most(REMOTE_MORE);
        sheet.note(1, figure, more);
        progress.step();
    }
    let mut pairs = both.pairs()?;
    let rate = |pair: &mut Pair, _| Ok(pair.locks(MANY, args)?.rate());
    in_turn(args, progress, "remote-64", &mut pairs, rate, |[without, with]| {
        sheet.note(MANY, Figure::rate("remote-64 without the key"), without);
        let share = Figure::new("remote-64, with / without", Unit::Share).at_least(RATE);
        sheet.note(MANY, share, with / without);
    })?;
    drop(pairs);

    let mut contended = both.set(CONTENDERS + 1)?;
    let rate = |cluster: &mut BenchCluster, _| Ok(rate_of_all(&fight(cluster, args)?, args));
    in_turn(args, progress, "contended", &mut contended, rate, |[without, with]| {
        let size = CONTENDERS as u32;
        sheet.note(size, Figure::rate("contended without the key"), without);
        let share = Figure::new("contended, with / without", Unit::Share).at_least(RATE);
        sheet.note(size, share, with / without);
    })?;
    drop(contended);

    let mut alone = both.set(1)?;
    let rate = |cluster: &mut BenchCluster, round| {
        let load = Load::Threads { threads: 1, names: OWN, round, takes: Taken::Lock };
        Ok(cluster.run(&[(0, load)], args.span())?[0].rate())
    };
    in_turn(args, progress, "local", &mut alone, rate, |[without, with]| {
        sheet.note(1, Figure::rate("local without the key"), without);
        let share = Figure::new("local, with / without", Unit::Share).at_least(LOCAL_RATE);
        sheet.note(1, share, with / without);
    })?;
    let allocations = Figure::new("local with the key, allocations of each", Unit::Count);
    let [_, with] = &mut alone;
    sheet.note(1, allocations.at_most(BESIDE), allocations_of_each(with)?);
    drop(alone);

    let mut idle = both.set(IDLERS)?;
    let resident = |cluster: &mut BenchCluster, _| largest_idle(cluster, IDLERS);
    in_turn(args, progress, "idle", &mut idle, resident, |[without, with]| {
        let size = IDLERS as u32;
        sheet.note(size, Figure::new("idle without the key, the largest", Unit::Bytes), without);
        let more = Figure::new("idle, more with the key", Unit::Bytes).at_most(IDLE_MORE);
        sheet.note(size, more, with - without);
    })?;
    drop(idle);

    // Each kill needs a new cluster.
    let time = |has_key: &mut bool, _| {
        let cluster = both.start(*has_key, failover::MEMBERS)?;
        Ok(failover::GRANTOR.kill(cluster)?.as_secs_f64())
    };
    in_turn(args, progress, "fail-over", &mut [false, true], time, |[without, with]| {
        let size = failover::MEMBERS as u32;
        sheet.note(size, Figure::time("fail-over without the key"), without);
        let figure = Figure::time("fail-over with the key").at_most(failover::GRANTOR.target);
        sheet.note(size, figure, with);
    })
}
