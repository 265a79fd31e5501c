//! The cost of idle members, from few to many, and the time until all members know that a member is
//! gone.

use crate::clock::between;
use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, Event, Usage};
use crate::sheet::{Figure, Sheet, Unit};
use crate::{BenchArgs, Progress};
use std::path::Path;
use std::time::Duration;

/// The limit of a member's cost in a larger cluster, as a multiple of its cost in the smallest.
const FLAT: f64 = 1.5;
/// The limit of a view change: from the kill of a member until all others have the view without it.
const VIEW: Duration = Duration::from_secs(1);
/// The limit of an idle member's share of one core.
const IDLE_BUSY: f64 = 0.01;
/// The limit of an idle member's memory.
const IDLE_RESIDENT: f64 = 15.0 * 1024.0 * 1024.0;
/// The limit of the memory that a member's page over HTTP adds.
const HTTP_MORE: f64 = 1024.0 * 1024.0;
/// The fewest rounds from which memory is judged, and not only shown.
const JUDGED: u32 = 3;
/// The number of members of the idle cluster.
pub(crate) const IDLERS: usize = 5;
/// The smallest cluster that survives the loss of one member.
const FEWEST: usize = 3;
/// The time until the members that joined last have met all others.
const SETTLE: Duration = Duration::from_secs(2);
/// The time of a measurement. Beats, gossip and renewals all occur several times in it.
const LOOK: Duration = Duration::from_secs(4);

/// The resources that one member used in a measurement.
struct Used {
    /// The share of a core.
    busy: f64,
    /// The bytes in a second, in and out.
    traffic: f64,
    resident: f64,
}

/// Measures the resources of each member while all are idle.
fn watch(cluster: &mut BenchCluster, members: usize) -> BenchResult<Vec<Used>> {
    let usages = |cluster: &mut BenchCluster| -> BenchResult<Vec<Usage>> {
        (0..members).map(|index| cluster.usage(index)).collect()
    };
    cluster.pause(SETTLE)?;
    let before = usages(cluster)?;
    cluster.pause(LOOK)?;
    let after = usages(cluster)?;
    let used = before.iter().zip(&after).map(|(before, after)| Used {
        busy: (after.busy - before.busy) as f64 / (after.at - before.at) as f64,
        traffic: (after.traffic - before.traffic) as f64
            / between(before.at, after.at).as_secs_f64(),
        resident: after.resident as f64,
    });
    Ok(used.collect())
}

/// The memory of the largest of these idle members.
pub(crate) fn largest_idle(cluster: &mut BenchCluster, members: usize) -> BenchResult<f64> {
    Ok(most(&watch(cluster, members)?, |used| used.resident))
}

fn mean(used: &[Used], what: impl Fn(&Used) -> f64) -> f64 {
    used.iter().map(what).sum::<f64>() / used.len() as f64
}

fn most(used: &[Used], what: impl Fn(&Used) -> f64) -> f64 {
    used.iter().map(what).fold(0.0, f64::max)
}

pub(crate) fn idle(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let size = IDLERS as u32;
    let with_http = Figure::new("in memory, more with HTTP", Unit::Bytes).at_most(HTTP_MORE);
    for round in 1..=args.rounds {
        let mut cluster = BenchCluster::set(IDLERS, logs.to_owned())?;
        cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
        progress.show(&format!("round {round} of {}", args.rounds));
        let used = watch(&mut cluster, IDLERS)?;
        let busiest = Figure::new("of one core, the busiest", Unit::Share).at_most(IDLE_BUSY);
        sheet.note(size, busiest, most(&used, |used| used.busy));
        let largest = Figure::new("in memory, the largest", Unit::Bytes).at_most(IDLE_RESIDENT);
        let resident = most(&used, |used| used.resident);
        sheet.note(size, largest, resident);
        sheet.note(
            size,
            Figure::new("traffic of each", Unit::BytesPerSecond),
            mean(&used, |used| used.traffic),
        );
        progress.step();
        progress.show(&format!("with HTTP, round {round} of {}", args.rounds));
        for index in 0..IDLERS {
            cluster.ask(index, &BenchOrder::ServeHttp, BenchReport::done)?;
        }
        sheet.note(size, with_http, largest_idle(&mut cluster, IDLERS)? - resident);
        progress.step();
    }
    // Memory depends less than times on other work of the machine. The resident pages of one round
    // say little.
    if args.rounds >= JUDGED {
        sheet.demand(with_http);
    }
    Ok(())
}

/// Returns the sizes from the fewest up to the ordered number, three times as many each time.
pub(crate) fn sizes(members: u32) -> Vec<usize> {
    let members = (members as usize).max(FEWEST);
    let mut sizes: Vec<usize> = std::iter::successors(Some(FEWEST), |size| Some(size * 3))
        .take_while(|size| *size < members)
        .collect();
    sizes.push(members);
    sizes
}

pub(crate) fn members(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let sizes = sizes(args.members);
    for round in 1..=args.rounds {
        let room = args.members.max(FEWEST as u32) as usize;
        let mut cluster = BenchCluster::with_room(FEWEST, room, logs.to_owned())?;
        cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
        let (mut there, mut few) = (FEWEST, None);
        for &members in &sizes {
            progress.show(&format!("{members} members, round {round} of {}", args.rounds));
            while there < members {
                cluster.enter(there)?;
                there += 1;
            }
            let used = watch(&mut cluster, members)?;
            let size = members as u32;
            let (busy, traffic) = (mean(&used, |used| used.busy), mean(&used, |used| used.traffic));
            sheet.note(size, Figure::new("of one core, each", Unit::Share), busy);
            sheet.note(
                size,
                Figure::new("of one core, the busiest", Unit::Share),
                most(&used, |used| used.busy),
            );
            sheet.note(size, Figure::new("traffic of each", Unit::BytesPerSecond), traffic);
            let busiest = Figure::new("traffic of the busiest", Unit::BytesPerSecond);
            sheet.note(size, busiest, most(&used, |used| used.traffic));
            let (few_busy, few_traffic) = *few.get_or_insert((busy, traffic));
            if members > FEWEST {
                sheet.note(
                    size,
                    Figure::new("time of each / with 3", Unit::Times).at_most(FLAT),
                    busy / few_busy,
                );
                let flat = Figure::new("traffic of each / with 3", Unit::Times).at_most(FLAT);
                sheet.note(size, flat, traffic / few_traffic);
            }
            let change = Figure::time("view change").at_most(VIEW.as_secs_f64());
            sheet.note_time(size, change, view_change(&mut cluster, members)?);
            progress.step();
        }
    }
    Ok(())
}

/// Kills the last member and starts it again. Returns the time until all others had the view
/// without it.
fn view_change(cluster: &mut BenchCluster, members: usize) -> BenchResult<Duration> {
    let last = members - 1;
    let dead = cluster.process(last).to_owned();
    let from = cluster.kill(last);
    let mut to = from;
    for index in 0..last {
        let (at, ..) =
            cluster.event(from, "a view without the dead", |there, event| match event {
                Event::View(members) if there == index && !members.contains(&dead) => Some(()),
                _ => None,
            })?;
        to = to.max(at);
    }
    cluster.enter(last)?;
    Ok(between(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_size_is_the_one_that_was_ordered() {
        assert_eq!(sizes(30), [3, 9, 27, 30]);
        assert_eq!(sizes(9), [3, 9]);
        assert_eq!(sizes(1), [3]);
    }
}
