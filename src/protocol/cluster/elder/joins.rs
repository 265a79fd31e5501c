//! The processes that wait to join, with a fair share for each host.
//!
//! A process asks again until it is in a view. The table is bounded, and without a key one host can
//! fill it with processes that do not exist. So a full table makes room for a host with fewer
//! entries. In a view one process of each host joins before the second one of any. Where not all
//! have room, the first ones differ from view to view. So no choice of process ids keeps others
//! waiting.

use crate::protocol::id::{MemberInfo, ProcessId, ViewNumber};
use crate::protocol::time::Time;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

/// The most views with joining processes that an elder makes in a row.
const VIEWS_IN_A_ROW: u32 = 64;

/// The waiting processes, with the time of each one's last request.
pub(super) type WaitingJoins = BTreeMap<ProcessId, (MemberInfo, Time)>;

/// A limit of views in which processes join. Each view costs every member a line in its log, and a
/// write where votes are kept. Any process may ask to join and leave again at once.
#[derive(Clone, Debug)]
pub(super) struct JoinRate {
    /// The views that could be made at `since` without waiting.
    left: u32,
    since: Time,
}

impl JoinRate {
    pub(super) fn new(now: Time) -> JoinRate {
        JoinRate { left: VIEWS_IN_A_ROW, since: now }
    }

    /// Returns whether processes may join now. `every`: the time after which one more view is made,
    /// once the views in a row are used up.
    pub(super) fn may_join(&self, now: Time, every: Duration) -> bool {
        self.at(now, every).left > 0
    }

    /// Notes a view in which processes have joined.
    pub(super) fn note(&mut self, now: Time, every: Duration) {
        *self = self.at(now, every);
        self.left = self.left.saturating_sub(1);
    }

    /// This rate at a later time.
    fn at(&self, now: Time, every: Duration) -> JoinRate {
        let every = every.as_nanos().max(1) as u64;
        let gained = now.since(self.since).as_nanos() as u64 / every;
        let left = u64::from(self.left) + gained;
        match u32::try_from(left) {
            Ok(left) if left < VIEWS_IN_A_ROW => {
                JoinRate { left, since: self.since + Duration::from_nanos(every * gained) }
            }
            _ => JoinRate::new(now),
        }
    }
}

/// The rate affects an elder's decisions only at the limit. So two elders that differ only in it
/// compare equal, and a search of all states counts them as one.
impl PartialEq for JoinRate {
    fn eq(&self, _: &JoinRate) -> bool {
        true
    }
}

impl Eq for JoinRate {}

impl Hash for JoinRate {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The host of a process by its address: an IPv6 host has a network of 64 bits.
fn host(info: &MemberInfo) -> IpAddr {
    match info.addr.ip() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        ip => ip,
    }
}

/// Notes that a process asks to join. `most`: the room for all processes.
pub(super) fn note(joins: &mut WaitingJoins, most: usize, now: Time, info: MemberInfo) {
    if joins.len() >= most && !joins.contains_key(&info.process) && !make_room(joins, host(&info)) {
        return;
    }
    joins.insert(info.process, (info, now));
}

/// Forgets the latest process of the host with the most entries. Nothing is forgotten if the
/// requesting host would then have more entries than that host.
fn make_room(joins: &mut WaitingJoins, of: IpAddr) -> bool {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (info, _) in joins.values() {
        *counts.entry(host(info)).or_default() += 1;
    }
    let own = counts.get(&of).copied().unwrap_or(0);
    let Some((&top, &count)) = counts.iter().max_by_key(|(ip, count)| (**count, **ip)) else {
        return false;
    };
    if count < own + 2 {
        return false;
    }
    let of_top = joins.iter().filter(|(_, (info, _))| host(info) == top);
    let latest = of_top.max_by_key(|(process, (_, heard))| (*heard, **process));
    let latest = latest.map(|(process, _)| *process);
    latest.is_some_and(|process| joins.remove(&process).is_some())
}

/// The waiting processes in the order in which they join the view after this one: the first of each
/// host, then the second of each. `room`: how many of them that view takes in.
pub(super) fn in_turn(
    joins: &WaitingJoins,
    room: usize,
    view: ViewNumber,
) -> Vec<&(MemberInfo, Time)> {
    let mut order: Vec<_> = joins.iter().collect();
    if order.len() > room {
        order.sort_by_key(|(process, _)| (place(**process, view), **process));
    }
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut ranked: Vec<_> = order
        .into_iter()
        .map(|(_, join)| {
            let count = counts.entry(host(&join.0)).or_default();
            *count += 1;
            (*count, join)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, join)| join).collect()
}

/// The place of a process among those that wait. It is another one in each view.
fn place(process: ProcessId, view: ViewNumber) -> u128 {
    /// An odd number whose bits look random: 2^128 divided by the golden ratio.
    const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (process.0 ^ u128::from(view.0).wrapping_mul(SPREAD)).wrapping_mul(SPREAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(process: u128, ip: &str) -> MemberInfo {
        let addr = (ip.parse::<IpAddr>().expect("an address"), process as u16).into();
        MemberInfo::new(ProcessId(process), addr)
    }

    fn full_of(ip: &str) -> WaitingJoins {
        let mut joins = WaitingJoins::new();
        for process in 1..=8 {
            note(&mut joins, 8, Time::ZERO, info(process, ip));
        }
        joins
    }

    #[test]
    fn a_host_that_fills_the_table_makes_room_for_others() {
        for crowd in ["10.0.0.9", "2001:db8::9"] {
            let mut joins = full_of(crowd);
            note(&mut joins, 8, Time::ZERO, info(99, crowd));
            assert!(joins.len() == 8 && !joins.contains_key(&ProcessId(99)), "no room for its own");
            for process in [100, 101, 102, 103] {
                note(&mut joins, 8, Time::ZERO, info(process, "10.0.0.1"));
                assert!(joins.len() == 8 && joins.contains_key(&ProcessId(process)));
            }
            // Both hosts have equally many entries; a further one evicts none.
            note(&mut joins, 8, Time::ZERO, info(104, "10.0.0.1"));
            note(&mut joins, 8, Time::ZERO, info(9, crowd));
            assert!([9, 104].iter().all(|process| !joins.contains_key(&ProcessId(*process))));
            // A waiting process asks again.
            let later = Time::ZERO + std::time::Duration::from_secs(1);
            note(&mut joins, 8, later, info(100, "10.0.0.1"));
            assert_eq!(joins[&ProcessId(100)].1, later);
        }
    }

    #[test]
    fn after_some_views_with_joins_the_next_ones_have_a_rate() {
        let every = Duration::from_millis(50);
        let mut rate = JoinRate::new(Time::ZERO);
        let mut joins = |now: Time| {
            let may = rate.may_join(now, every);
            if may {
                rate.note(now, every);
            }
            may
        };
        let first = Time::ZERO + every / 2;
        assert_eq!((0..100).filter(|_| joins(first)).count(), VIEWS_IN_A_ROW as usize);
        let last = (1..=1000).map(|tenth| first + every * tenth / 10);
        assert_eq!(last.filter(|now| joins(*now)).count(), 100);
        assert_eq!((0..100).filter(|_| joins(first + every * 1000)).count(), 64, "after a rest");
    }

    #[test]
    fn a_network_of_ipv6_is_one_host() {
        let mut joins = WaitingJoins::new();
        for process in 1..=8 {
            note(&mut joins, 8, Time::ZERO, info(process, &format!("2001:db8::{process}")));
        }
        note(&mut joins, 8, Time::ZERO, info(9, "2001:db8::9"));
        assert!(!joins.contains_key(&ProcessId(9)));
        note(&mut joins, 8, Time::ZERO, info(10, "2001:db8:0:1::1"));
        assert!(joins.contains_key(&ProcessId(10)));
    }

    #[test]
    fn a_view_takes_in_a_process_of_each_host_before_the_second_of_any() {
        let mut joins = full_of("10.0.0.9");
        note(&mut joins, 16, Time::ZERO, info(100, "10.0.0.1"));
        note(&mut joins, 16, Time::ZERO, info(101, "10.0.0.1"));
        let order = |view| -> Vec<u128> {
            in_turn(&joins, 4, ViewNumber(view)).iter().map(|(info, _)| info.process.0).collect()
        };
        let mut first = std::collections::BTreeSet::new();
        for view in 1..100 {
            let order = order(view);
            let of_few = [&order[..2], &order[2..4], &order[4..]]
                .map(|some| some.iter().filter(|process| **process >= 100).count());
            assert_eq!(of_few, [1, 1, 0], "{order:?}");
            first.extend(order[..2].iter().copied());
        }
        assert_eq!(first.len(), 10, "each process is among the first in some view");
    }
}
