//! Bounds and sizes of members: as usual here, tiny, and as words of a script.

use crate::chance::Rng;
use elderlock::protocol::Limits;

/// The defaults of programs, except for the chunk size: tables are small here, and must have
/// several chunks all the same.
pub const SMALL_PARTS: Limits = Limits { part_bytes: 400, ..Limits::DEFAULT };

/// A bound, as a field of all bounds.
type Bound = fn(&mut Limits) -> &mut u32;

/// The bounds by name, each with the least and the most that chaos draws for it.
const BOUNDS: [(&str, Bound, (u64, u64)); 23] = [
    ("part-bytes", |limits| &mut limits.part_bytes, (1, 200)),
    ("inventory-part", |limits| &mut limits.inventory_part, (1, 1)),
    ("listed", |limits| &mut limits.listed, (1, 3)),
    ("backlog", |limits| &mut limits.backlog, (8, 40)),
    ("requests", |limits| &mut limits.requests, (12, 24)),
    ("early", |limits| &mut limits.early, (1, 3)),
    ("parked", |limits| &mut limits.parked, (1, 4)),
    ("wanted", |limits| &mut limits.wanted, (1, 2)),
    ("link-early", |limits| &mut limits.link.early, (1, 6)),
    ("link-burst", |limits| &mut limits.link.burst, (1, 8)),
    ("ack-every", |limits| &mut limits.link.ack_every, (1, 4)),
    ("joins", |limits| &mut limits.joins, (1, 2)),
    ("contacts", |limits| &mut limits.contacts, (2, 6)),
    ("dead", |limits| &mut limits.dead, (1, 3)),
    ("ticket-room", |limits| &mut limits.ticket_room, (4, 16)),
    ("ticket-blocks", |limits| &mut limits.ticket_blocks, (2, 40)),
    ("first-range", |limits| &mut limits.first_range, (3, 12)),
    ("max-range", |limits| &mut limits.max_range, (12, 48)),
    ("view-tokens", |limits| &mut limits.view_tokens, (48, 160)),
    ("counted", |limits| &mut limits.counted, (1, 3)),
    ("detour-notices", |limits| &mut limits.link.detour_notices, (1, 2)),
    ("slice", |limits| &mut limits.slice, (1, 3)),
    ("early-bytes", |limits| &mut limits.link.early_bytes, (1, 3_000)),
];

/// The bounds that were added after many seeds had become known. They have a draw of their own.
const LATER_BOUNDS: [(&str, Bound, (u64, u64)); 2] = [
    ("kept-bytes", |limits| &mut limits.link.kept_bytes, (2_000, 20_000)),
    ("kept-locks", |limits| &mut limits.link.kept_locks, (0, 3)),
];

/// The bounds that were added last. They have a draw of their own, too. The bytes have room for
/// several openings of objects, which count with the longest value. A grantor has twice as many
/// bytes, so that kept locks fit in on top.
const LAST_BOUNDS: [(&str, Bound, (u64, u64)); 1] =
    [("request-bytes", |limits| &mut limits.link.request_bytes, (2_500, 6_000))];

/// Draws the bounds: in half of all plans, half of the bounds are tiny.
pub(crate) fn draw(rng: &mut Rng) -> Limits {
    let mut limits = SMALL_PARTS;
    if rng.chance(500_000) {
        draw_tiny(&mut limits, &BOUNDS, rng);
    }
    limits
}

/// Draws the later bounds: half of them are tiny.
pub(crate) fn draw_later(limits: &mut Limits, rng: &mut Rng) {
    draw_tiny(limits, &LATER_BOUNDS, rng);
}

/// Draws the last bounds: half of them are tiny.
pub(crate) fn draw_last(limits: &mut Limits, rng: &mut Rng) {
    draw_tiny(limits, &LAST_BOUNDS, rng);
}

fn draw_tiny(limits: &mut Limits, bounds: &[(&str, Bound, (u64, u64))], rng: &mut Rng) {
    for (_, bound, (least, most)) in bounds {
        let tiny = rng.between(*least, *most) as u32;
        if rng.chance(500_000) {
            *bound(limits) = tiny;
        }
    }
}

/// All bounds as words of a script, each after a space. A later bound is left out if it has its
/// usual value.
pub(crate) fn write(mut limits: Limits) -> String {
    let mut usual = SMALL_PARTS;
    let later = LATER_BOUNDS.iter().chain(&LAST_BOUNDS);
    let later = later.filter(|(_, bound, _)| bound(&mut limits) != bound(&mut usual));
    let bounds: Vec<_> = BOUNDS.iter().chain(later).collect();
    bounds.iter().map(|(name, bound, _)| format!(" {name}={}", bound(&mut limits))).collect()
}

/// Sets the limit with this name.
pub(crate) fn read(limits: &mut Limits, name: &str, value: &str) -> Result<(), String> {
    let (_, bound, _) = BOUNDS
        .iter()
        .chain(&LATER_BOUNDS)
        .chain(&LAST_BOUNDS)
        .find(|(known, ..)| *known == name)
        .ok_or(format!("no limit is called {name}"))?;
    *bound(limits) = value.parse().map_err(|error| format!("{name}={value}: {error}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let some =
            (1..).map(|seed| draw(&mut Rng::new(seed, 10))).find(|limits| *limits != SMALL_PARTS);
        let (mut drawn, mut read_again) = (some.expect("half of all"), Limits::DEFAULT);
        let usual = drawn;
        for seed in 1.. {
            draw_later(&mut drawn, &mut Rng::new(seed, 76));
            draw_last(&mut drawn, &mut Rng::new(seed, 78));
            if drawn.link.request_bytes != usual.link.request_bytes
                && drawn.link.kept_locks != usual.link.kept_locks
                && drawn.link.kept_bytes != usual.link.kept_bytes
            {
                break;
            }
        }
        for word in write(drawn).split_whitespace() {
            let (name, value) = word.split_once('=').expect("a name and a value");
            read(&mut read_again, name, value).expect("it was written");
        }
        assert_eq!(read_again, drawn);
        assert!(read(&mut read_again, "breath", "1").is_err());
    }
}
