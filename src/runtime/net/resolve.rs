//! Seeds: addresses and host names, and the present addresses of the names.

use super::transport_state::TransportState;
use crate::protocol::{Command, Input};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// The time between two lookups while the member has no cluster.
const IN_DISCOVERY: Duration = Duration::from_secs(5);
/// The time between two lookups of a member that has a cluster.
const LATER: Duration = Duration::from_secs(30);
/// The limit for one name; a name server that does not answer must not hold up the others.
const LOOKUP: Duration = Duration::from_secs(2);

/// The present addresses of the seeds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// All addresses of all names whose address family this member can reach.
    pub(super) addrs: BTreeSet<SocketAddr>,
    /// Names without such an address, with the reason.
    pub(super) unresolved: Vec<(String, String)>,
}

/// All addresses of `host:port`.
pub(super) async fn lookup(name: &str) -> io::Result<Vec<SocketAddr>> {
    match timeout(LOOKUP, tokio::net::lookup_host(name)).await {
        Ok(found) => Ok(found?.collect()),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer")),
    }
}

/// Resolves every seed, for a member bound to an address of the given family.
pub(super) async fn resolve(seeds: &[String], ipv4: bool) -> Resolved {
    let mut resolved = Resolved::default();
    for seed in seeds {
        match lookup(seed).await {
            Ok(found) => {
                let before = resolved.addrs.len();
                let mut fitting = found
                    .iter()
                    .filter(|addr| addr.is_ipv4() == ipv4 && addr.port() != 0)
                    .peekable();
                if fitting.peek().is_none() && before == resolved.addrs.len() {
                    let family = if ipv4 { "IPv4" } else { "IPv6" };
                    resolved
                        .unresolved
                        .push((seed.clone(), format!("has no {family} address with a port")));
                }
                resolved.addrs.extend(fitting);
            }
            Err(error) => resolved.unresolved.push((seed.clone(), error.to_string())),
        }
    }
    resolved
}

/// Resolves the seeds again and again, and passes each change to engine and gossip.
pub(super) async fn keep_resolving(shared: Arc<TransportState>, seeds: Vec<String>) {
    // An address needs no lookup.
    if seeds.iter().all(|seed| seed.parse::<SocketAddr>().is_ok()) {
        return;
    }
    let mut in_discovery = shared.in_discovery.subscribe();
    // The engine began with these seeds.
    let mut known = shared.known_seeds();
    loop {
        let pause = if *in_discovery.borrow_and_update() { IN_DISCOVERY } else { LATER };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // A member that loses its cluster looks at once; a member that found one begins the
            // wait again.
            changed = in_discovery.changed() => {
                if changed.is_err() {
                    return;
                }
                if !*in_discovery.borrow() {
                    continue;
                }
            }
            () = shared.closing.cancelled() => return,
        }
        let found = tokio::select! {
            found = resolve(&seeds, shared.bound.is_ipv4()) => found,
            () = shared.closing.cancelled() => return,
        };
        *shared.unresolved.lock().unwrap_or_else(PoisonError::into_inner) = found.unresolved;
        // A name server that fails for a while must not make any member forget the seeds.
        if found.addrs.is_empty() {
            continue;
        }
        if *shared.seeds.borrow() != found.addrs {
            shared.seeds.send_replace(found.addrs);
        }
        // A name that resolves at last may give only addresses that another name gave before. Then
        // all addresses are as before, but the engine's seeds now include this member's own
        // address.
        let present = shared.known_seeds();
        if present == known {
            continue;
        }
        known = present;
        if let Some(incarnation) = shared.incarnation() {
            incarnation.inbox.input(Input::Command(Command::Seeds(known.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{MemberInfo, ProcessId, Status};
    use crate::runtime::inbox::Inbox;
    use crate::runtime::net::dialer;
    use crate::runtime::net::reception::Reception;
    use crate::runtime::net::timeouts::ConnectionTimeouts;
    use crate::runtime::net::transport_state::TransportParts;
    use tokio::sync::mpsc;

    /// Hang guard: far longer than any awaited event takes.
    const GUARD: Duration = Duration::from_secs(120);

    /// The address of the member itself, and that of another seed.
    const OWN: &str = "127.0.0.1:7400";
    const OTHER: &str = "127.0.0.1:7401";

    /// An inbox that hands all inputs to the test.
    struct ForwardingInbox(mpsc::UnboundedSender<Input>);

    impl Inbox for ForwardingInbox {
        fn input(&self, input: Input) {
            self.0.send(input).expect("the test receives");
        }

        fn deliver(&self, packets: &mut Vec<Input>) -> bool {
            packets.drain(..).for_each(|packet| self.input(packet));
            false
        }

        fn status(&self, _: usize) -> Option<Status> {
            None
        }
    }

    fn names(seeds: &[&str]) -> Vec<String> {
        seeds.iter().map(|seed| seed.to_string()).collect()
    }

    fn addrs(seeds: &[&str]) -> BTreeSet<SocketAddr> {
        seeds.iter().map(|seed| seed.parse().unwrap()).collect()
    }

    /// The seeds with which the engine of the member at `OWN` begins, and the next ones that it is
    /// given. The names resolve as `first` at the start, and as `later` from then on.
    async fn seeds_told(first: &[&str], later: &[&str]) -> [BTreeSet<SocketAddr>; 2] {
        let own: SocketAddr = OWN.parse().unwrap();
        let found = resolve(&names(first), true).await;
        let (gossip, _) = mpsc::channel(1);
        let (timeouts, memory) = (ConnectionTimeouts::default(), 1 << 20);
        let shared = Arc::new(TransportState::new(TransportParts {
            cluster: "shop".into(),
            bound: own,
            advertised: own,
            reception: Reception::new(timeouts, Duration::ZERO, memory, gossip),
            drive: dialer::drive,
            security: None,
            seeds: found.addrs,
            unresolved: found.unresolved,
        }));
        let began = shared.known_seeds();
        let (sender, mut inputs) = mpsc::unbounded_channel();
        let me = MemberInfo::new(ProcessId(1), own);
        shared.begin(Arc::new(ForwardingInbox(sender)), me);
        let input = async {
            // The resolver looks at once when the member seeks a cluster anew.
            while shared.in_discovery.receiver_count() == 0 {
                tokio::task::yield_now().await;
            }
            shared.in_discovery.send_replace(true);
            inputs.recv().await
        };
        let input = tokio::select! {
            () = keep_resolving(shared.clone(), names(later)) => panic!("it resolves no more"),
            input = timeout(GUARD, input) => input,
        };
        match input {
            Ok(Some(Input::Command(Command::Seeds(told)))) => [began, told],
            other => panic!("the engine is told of no seeds: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_member_is_its_own_seed_while_each_name_resolves() {
        // The names are a service and a member in it: the last one has no address but one of the
        // first.
        let (service, missing) = ("localhost:7400", "no port at all");
        let (some, all) = ([service, OTHER, missing], [service, OTHER, OWN]);
        let (without, with) = (addrs(&[OTHER]), addrs(&[OWN, OTHER]));
        assert_eq!(seeds_told(&some, &all).await, [without.clone(), with.clone()]);
        assert_eq!(seeds_told(&all, &some).await, [with, without]);
    }

    #[tokio::test]
    async fn addresses_of_the_other_family_are_left_out() {
        let seeds = names(&["127.0.0.1:7400", "[::1]:7400"]);
        let four = resolve(&seeds, true).await;
        assert_eq!(four.addrs, ["127.0.0.1:7400".parse().unwrap()].into());
        assert_eq!(
            four.unresolved,
            [("[::1]:7400".to_string(), "has no IPv4 address with a port".to_string())]
        );
        let six = resolve(&seeds, false).await;
        assert_eq!(six.addrs, ["[::1]:7400".parse().unwrap()].into());
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_resolved_is_kept_for_the_error() {
        let seeds = names(&["no port at all", "127.0.0.1:0", "127.0.0.1:7400"]);
        let found = resolve(&seeds, true).await;
        assert_eq!(found.addrs.len(), 1);
        let unresolved: Vec<_> = found.unresolved.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(unresolved, ["no port at all", "127.0.0.1:0"]);
    }

    #[tokio::test]
    async fn localhost_is_a_name_like_any_other() {
        let found = resolve(&names(&["localhost:7400"]), true).await;
        assert!(found.addrs.contains(&"127.0.0.1:7400".parse().unwrap()), "{found:?}");
    }
}
