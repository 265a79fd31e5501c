//! How long a service is without grants while members die without a witness, one every member
//! lease.

use elderlock::protocol::Timing;
use elderlock_sim::World;
use elderlock_sim::chance::mix;
use elderlock_sim::network::SECOND;
use std::time::Duration;

/// How often the asking member looks whether it has its lock.
const STEP: Duration = Duration::from_millis(20);

/// Members: with one dead and one on its way back, five are a safe quorum.
const MEMBERS: usize = 7;

/// Deaths of one run.
const DEATHS: u64 = 20;

/// The times between two grants that are longer than a tenth of a second, in nanoseconds. One
/// member after the other is killed, a member lease apart, and starts again a lease later.
/// `spares`: the elder is never killed.
fn interruptions(seed: u64, spares: bool) -> Vec<u64> {
    let mut w = World::new(seed).members(MEMBERS).timing(Timing::lan());
    w.settle();
    let lease = Timing::lan().member_lease;
    let (mut asked, mut number, mut last) = (None, 0, w.elapsed().as_nanos() as u64);
    let mut gaps = Vec::new();
    let mut dead: Option<usize> = None;
    for death in 0..DEATHS {
        if let Some(site) = dead.take() {
            w.restart(site);
        }
        let elder = w.find_elder().filter(|_| spares);
        let up: Vec<usize> =
            w.sites().filter(|site| w.is_ready(*site) && elder != Some(*site)).collect();
        let victim = up.get(mix(&[seed, death]) as usize % up.len().max(1)).copied();
        if let Some(site) = victim {
            w.crash(site);
            dead = Some(site);
        }
        let until = w.elapsed() + lease;
        while w.elapsed() < until {
            let is_lost =
                |(_, site, life): (_, usize, _)| !w.is_up(site) || w.process(site) != life;
            if asked.is_none_or(is_lost)
                && let Some(site) = w.sites().rfind(|site| w.is_ready(*site))
            {
                number += 1;
                asked = Some((w.lock(site, "s", &format!("n{number}")), site, w.process(site)));
            }
            w.run_for(STEP);
            if let Some((ask, ..)) = asked.filter(|(ask, ..)| w.is_granted(*ask)) {
                let now = w.elapsed().as_nanos() as u64;
                if now - last > SECOND / 10 {
                    gaps.push(now - last);
                }
                last = now;
                w.release(ask);
                asked = None;
            }
        }
    }
    assert_eq!(w.broken(), None, "seed {seed}");
    gaps
}

/// The median and the longest of some interruptions, in milliseconds.
fn figures(what: &str, spares: bool) -> (u64, u64) {
    let mut gaps: Vec<u64> = (1..=16).flat_map(|seed| interruptions(seed, spares)).collect();
    gaps.sort_unstable();
    assert!(gaps.len() >= 30, "{what}: too few interruptions to say anything: {}", gaps.len());
    let (half, longest) =
        (gaps[gaps.len() / 2] * 1_000 / SECOND, gaps[gaps.len() - 1] * 1_000 / SECOND);
    println!(
        "{what}: {} interruptions, half of at most {half} ms, the longest of {longest} ms",
        gaps.len()
    );
    (half, longest)
}

/// The death of a grantor costs its lease. It does not add the leases of members that die after
/// they have reported to the next grantor. It adds the lease of a member that died before it
/// reported, and of a next grantor that dies before it acts.
#[test]
fn deaths_without_a_witness_hardly_add_up() {
    let (half, longest) = figures("the elder lives", true);
    assert!(half < 5_500 && longest < 11_000, "{half} and {longest} ms");
}

/// A takeover starts all leases anew, so the deaths of elders add up.
#[test]
fn deaths_of_elders_add_a_lease_each() {
    let (half, longest) = figures("all die", false);
    assert!(half < 8_000 && longest < 23_000, "{half} and {longest} ms");
}
