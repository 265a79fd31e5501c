//! The rate of locks under attack. The rate depends on optimization, so the test is beside the
//! bench, whose optimized build has all that it needs: `cargo test --profile chaos -p
//! elderlock-bench --test attacks`. All other attacks are in `tests/security.rs` and
//! `tests/replays.rs`, which the feature `secure` of this package builds too.

#[allow(dead_code, reason = "tests/security.rs uses the rest")]
#[path = "../../tests/support/attacks.rs"]
mod attacks;
mod support;

use attacks::{new_key, withstands_attacks};
use support::child;
use support::cluster::Cluster;
use support::leases::Leases;
use support::rng::Rng;

/// Not a test: the program of a child process, see `tests/README.md`.
#[test]
fn child_member() {
    child::serve();
}

#[test]
fn attackers_without_the_key_change_nothing_and_take_no_lock() {
    let key = new_key();
    let cluster = Cluster::start_with(3, &key, Leases::Long, &mut Rng::new("attacks", 3));
    withstands_attacks(&cluster, Some(&key));
}

#[test]
fn strangers_change_nothing_and_take_no_lock_of_a_cluster_without_a_key() {
    let cluster = Cluster::start(3, Leases::Long, &mut Rng::new("keyless attacks", 6));
    withstands_attacks(&cluster, None);
}
