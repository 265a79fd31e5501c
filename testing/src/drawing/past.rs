//! The messages that lead to a violation: its causal past, as far back as a reader can follow.

use super::drawn_run::DrawnRun;
use std::collections::{BTreeMap, BTreeSet};

/// The most messages that are shown.
const MOST: usize = 26;
/// The most consecutive messages that the past goes back.
const HOPS: usize = 4;

/// Returns whether packets of this kind are sent all the time, in any state.
pub fn is_routine(kind: &str) -> bool {
    matches!(kind, "Beat" | "Pulse" | "Ack" | "Hello" | "HelloReply")
}

/// The messages, as indexes in `run.flights`, that may have led to the violation. For each sender
/// and kind, it is the last message that arrived before. The senders of these messages are treated
/// in the same way. Routine packets count for one step only: they connect all members and explain
/// nothing.
pub fn past(run: &DrawnRun) -> Vec<usize> {
    let Some(breach) = &run.breach else { return Vec::new() };
    let mut horizon: BTreeMap<usize, u64> =
        run.scene().into_iter().map(|site| (site, breach.at)).collect();
    let mut chosen = Vec::new();
    // The messages that led to each hold of the lock.
    if let Some(lock) = &breach.lock {
        for (index, _) in run.clashes(lock) {
            let hold = &run.holds[index];
            let grant = run.flights.iter().position(|flight| {
                flight.to == hold.site
                    && flight.kind == "Grant"
                    && flight.arrived == hold.got
                    && hold.got.is_some()
            });
            chosen.extend(grant);
        }
    }
    let mut seen: BTreeSet<usize> = chosen.iter().copied().collect();
    for &index in &chosen {
        let flight = &run.flights[index];
        let known = horizon.entry(flight.from).or_default();
        *known = flight.sent.max(*known);
    }
    for hop in 0..HOPS {
        let mut last: BTreeMap<(usize, usize, &str), usize> = BTreeMap::new();
        for (index, flight) in run.flights.iter().enumerate() {
            let (Some(until), Some(arrived)) = (horizon.get(&flight.to), flight.arrived) else {
                continue;
            };
            let of_this_life = run.life(flight.to, *until).is_none_or(|life| life.from <= arrived);
            if arrived <= *until && of_this_life && !(hop > 0 && is_routine(&flight.kind)) {
                let newest = last.entry((flight.to, flight.from, &flight.kind)).or_insert(index);
                if run.flights[*newest].arrived <= flight.arrived {
                    *newest = index;
                }
            }
        }
        let mut these: Vec<usize> =
            last.into_values().filter(|index| !seen.contains(index)).collect();
        these.sort_by_key(|index| {
            let flight = &run.flights[*index];
            (is_routine(&flight.kind), std::cmp::Reverse(flight.arrived))
        });
        these.truncate(MOST.saturating_sub(chosen.len()).min(MOST / 2));
        horizon = BTreeMap::new();
        for &index in &these {
            let flight = &run.flights[index];
            let known = horizon.entry(flight.from).or_default();
            *known = flight.sent.max(*known);
        }
        seen.extend(&these);
        chosen.extend(these);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::drawn_run::{Breach, DrawnPacket};

    #[test]
    fn the_past_of_a_break_has_its_causes_and_nothing_else() {
        let flight = |way: [usize; 2], kind: &str, times: [u64; 2]| DrawnPacket {
            from: way[0],
            to: way[1],
            kind: kind.into(),
            sent: times[0],
            arrived: Some(times[1]),
            lost: None,
        };
        let flights = vec![
            // An older message of the same kind.
            flight([1, 0], "Grant", [1, 2]),
            flight([2, 1], "Report", [10, 12]),
            // A message to another member, and one that is too late to matter.
            flight([1, 3], "Queued", [14, 15]),
            flight([2, 1], "RequestLock", [16, 18]),
            flight([1, 0], "Grant", [13, 20]),
        ];
        let breach = Breach {
            at: 20,
            site: Some(0),
            invariant: "tokens_rise".into(),
            lock: None,
            words: String::new(),
        };
        let run = DrawnRun { flights, breach: Some(breach), ..DrawnRun::default() };
        let kinds: Vec<(&str, u64)> = past(&run)
            .into_iter()
            .map(|index| (run.flights[index].kind.as_str(), run.flights[index].sent))
            .collect();
        assert_eq!(kinds, [("Grant", 13), ("Report", 10)]);
    }
}
