//! `crowd`: the cost of idle members, from a few to a thousand, and the time until all members know
//! that a member came or went.

use elderlock::protocol::Timing;
use elderlock_sim::World;
use elderlock_sim::meter::Metered;
use elderlock_sim::report::grouped;
use std::process::ExitCode;
use std::time::Duration;

/// Members that are seeds and found the cluster; all others join it.
const SEEDS: usize = 3;
/// Members that join at once, as a fleet is rolled out.
const WAVE: usize = 50;
/// Members on one host, which can vouch that one of them is dead.
const NEIGHBOURS: usize = 10;
/// The time limit for one view with all members.
const LIMIT: Duration = Duration::from_secs(60);
/// Gossip goes on reporting the joined members. The run waits at most this many times, until gossip
/// sends hardly less than before.
const MOST_WAITS: usize = 40;
/// The length of a measurement: beats, gossip and renewals all come several times in it.
const LOOK: Duration = Duration::from_secs(10);
/// The resolution of the time of a view change.
const GRAIN: Duration = Duration::from_micros(100);
/// The target from the start of a member, or its kill, until all have the view.
const TARGET: Duration = Duration::from_secs(1);

/// The options of `crowd`.
#[derive(Debug, clap::Args)]
pub(crate) struct CrowdOptions {
    /// Sizes of the cluster, each a run of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 10, 30, 100, 300, 1000])]
    members: Vec<usize>,
    /// The seed of the network's delays.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &CrowdOptions) -> ExitCode {
    if let Some(few) = options.members.iter().find(|members| **members < SEEDS) {
        eprintln!("{few} members are too few: it takes {SEEDS} to lose one and go on");
        return ExitCode::from(2);
    }
    println!(
        "The packets that an idle member sends in a second, the inputs of its core, and the time \
         until all members"
    );
    println!(
        "have the view with one more member, and without it: it is killed, and its host vouches \
         for that.\n"
    );
    let [frames, datagrams, bytes, inputs] = ["frames", "datagrams", "bytes", "inputs"];
    println!("{:>7}  {:^39}  {:^28}  {:^17}", "", "a member", "the elder", "view change, ms");
    println!(
        "{:>7}  {frames:>8} {datagrams:>10} {bytes:>9} {inputs:>9}  {frames:>8} {bytes:>9} \
         {inputs:>9}  {:>8} {:>8}",
        "members", "joins", "dies"
    );
    let mut in_time = true;
    for &members in &options.members {
        match look(members, options.seed) {
            Ok(looked) => {
                looked.print(members);
                in_time &= looked.joined.max(looked.died) <= TARGET;
            }
            Err(what) => {
                println!("{members:>7}  {what}");
                in_time = false;
            }
        }
    }
    if !in_time {
        println!("\na view change took longer than {TARGET:?}");
    }
    if in_time { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The measurements of one cluster.
struct CrowdMeasurement {
    /// The mean of all members but the elder.
    other: Metered,
    elder: Metered,
    joined: Duration,
    died: Duration,
}

impl CrowdMeasurement {
    fn print(&self, members: usize) {
        let rate = |count: u64| {
            let rate = count as f64 / LOOK.as_secs_f64();
            if rate < 100.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
        };
        let CrowdMeasurement { other, elder, joined, died } = self;
        let millis = |span: &Duration| format!("{:.1}", span.as_secs_f64() * 1e3);
        println!(
            "{members:>7}  {:>8} {:>10} {:>9} {:>9}  {:>8} {:>9} {:>9}  {:>8} {:>8}",
            rate(other.frames),
            rate(other.datagrams),
            rate(other.bytes()),
            rate(other.inputs),
            rate(elder.frames),
            rate(elder.bytes()),
            rate(elder.inputs),
            millis(joined),
            millis(died),
        );
    }
}

fn look(members: usize, seed: u64) -> Result<CrowdMeasurement, String> {
    let one_more = members;
    let hosts = members.div_ceil(NEIGHBOURS) as u32;
    let host_of: Vec<u32> = (0..=one_more as u32).map(|site| site % hosts).collect();
    let world =
        World::new(seed).timing(Timing::default()).members(SEEDS).joiners(members - SEEDS + 1);
    let mut world = world.hosts(&host_of).with_gossip().unwatched().metered();
    await_all(&mut world, SEEDS)?;
    for first in (SEEDS..members).step_by(WAVE) {
        let wave = first..members.min(first + WAVE);
        wave.clone().for_each(|site| world.start(site));
        await_all(&mut world, wave.end)?;
    }
    let elder = world.view(0).map_or(0, |view| world.site_of(view.elder().process).unwrap_or(0));
    let (mut other, mut of_elder) = watch(&mut world, members, elder);
    for _ in 0..MOST_WAITS {
        let before = other.bytes();
        (other, of_elder) = watch(&mut world, members, elder);
        if other.bytes() * 20 >= before * 19 {
            break;
        }
    }

    let begun = world.elapsed();
    world.start(one_more);
    await_all(&mut world, members + 1)?;
    let joined = world.elapsed() - begun;
    world.run_for(LOOK);
    let begun = world.elapsed();
    world.crash(one_more);
    await_all(&mut world, members)?;
    Ok(CrowdMeasurement { other, elder: of_elder, joined, died: world.elapsed() - begun })
}

/// Measures the packets and steps of the elder, and the mean of all other members, over a while.
fn watch(world: &mut World, members: usize, elder: usize) -> (Metered, Metered) {
    let meter =
        |world: &World| -> Vec<Metered> { (0..members).map(|site| world.meter(site)).collect() };
    let before = meter(world);
    world.run_for(LOOK);
    let mut spent: Vec<Metered> =
        meter(world).into_iter().zip(before).map(|(after, before)| after - before).collect();
    let elder = spent.swap_remove(elder);
    (Metered::mean(&spent), elder)
}

/// Waits until the first `members` sites are in one view of exactly `members` members.
fn await_all(world: &mut World, members: usize) -> Result<(), String> {
    let end = world.elapsed() + LIMIT;
    let is_there = |world: &World| {
        let number = world.view(0).map(|view| view.number);
        let has_it = |site| {
            world
                .view(site)
                .is_some_and(|view| Some(view.number) == number && view.members.len() == members)
        };
        (0..members).all(has_it)
    };
    while !is_there(world) {
        if world.elapsed() >= end {
            return Err(format!("no view with all of {members} within {LIMIT:?}"));
        }
        world.run_for(GRAIN);
    }
    Ok(())
}
