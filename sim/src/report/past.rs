//! Which messages belong to a break: its causal past, as far back as a reader can follow.

use super::story::Story;
use std::collections::{BTreeMap, BTreeSet};

/// Messages shown at most.
const MOST: usize = 26;
/// The highest number of consecutive messages that it goes back.
const HOPS: usize = 4;

/// Whether packets of this kind are sent all the time, in any state.
pub(super) fn is_routine(kind: &str) -> bool {
    matches!(kind, "Beat" | "Pulse" | "Ack" | "Hello" | "HelloReply")
}

/// The messages, as indexes in `story.flights`, that may have led to the break: of each sender and
/// kind the last one that arrived before, and then the same for their senders. Routine packets only
/// one step back: they connect all members and explain nothing.
pub(super) fn past(story: &Story) -> Vec<usize> {
    let Some(breach) = &story.breach else { return Vec::new() };
    let mut horizon: BTreeMap<usize, u64> =
        story.scene().into_iter().map(|site| (site, breach.at)).collect();
    let mut chosen = Vec::new();
    // The messages that led to each of those holds.
    if let Some(lock) = &breach.lock {
        for (index, _) in story.clashes(lock) {
            let hold = &story.holds[index];
            let grant = story.flights.iter().position(|flight| {
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
        let flight = &story.flights[index];
        let known = horizon.entry(flight.from).or_default();
        *known = flight.sent.max(*known);
    }
    for hop in 0..HOPS {
        let mut last: BTreeMap<(usize, usize, &str), usize> = BTreeMap::new();
        for (index, flight) in story.flights.iter().enumerate() {
            let (Some(until), Some(arrived)) = (horizon.get(&flight.to), flight.arrived) else {
                continue;
            };
            let of_this_life =
                story.life(flight.to, *until).is_none_or(|life| life.from <= arrived);
            if arrived <= *until && of_this_life && !(hop > 0 && is_routine(&flight.kind)) {
                let newest = last.entry((flight.to, flight.from, &flight.kind)).or_insert(index);
                if story.flights[*newest].arrived <= flight.arrived {
                    *newest = index;
                }
            }
        }
        let mut these: Vec<usize> =
            last.into_values().filter(|index| !seen.contains(index)).collect();
        these.sort_by_key(|index| {
            let flight = &story.flights[*index];
            (is_routine(&flight.kind), std::cmp::Reverse(flight.arrived))
        });
        these.truncate(MOST.saturating_sub(chosen.len()).min(MOST / 2));
        horizon = BTreeMap::new();
        for &index in &these {
            let flight = &story.flights[index];
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
    use crate::record::{Entry, Line, Record};

    #[test]
    fn the_past_of_a_break_has_its_causes_and_nothing_else() {
        let line = |at, site, entry| Line { at, site: Some(site), life: 1, entry };
        let send = |at, from, packet, to, kind: &str| {
            line(at, from, Entry::Send { packet, to, kind: kind.into(), lost: None })
        };
        let arrive = |at, to, packet| line(at, to, Entry::Arrive { packet });
        let lines = vec![
            // Old news of the same kind.
            send(1, 1, 1, 0, "Grant"),
            arrive(2, 0, 1),
            send(10, 2, 2, 1, "Report"),
            arrive(12, 1, 2),
            send(13, 1, 3, 0, "Grant"),
            // To another member, and too late for its consequences.
            send(14, 1, 4, 3, "Queued"),
            arrive(15, 3, 4),
            send(16, 2, 5, 1, "RequestLock"),
            arrive(18, 1, 5),
            arrive(20, 0, 3),
            line(
                20,
                0,
                Entry::Break { invariant: "tokens_rise".into(), lock: None, words: String::new() },
            ),
        ];
        let story = Story::of(&Record { lines });
        let kinds: Vec<(&str, u64)> = past(&story)
            .into_iter()
            .map(|index| (story.flights[index].kind.as_str(), story.flights[index].sent))
            .collect();
        assert_eq!(kinds, [("Grant", 13), ("Report", 10)]);
    }
}
