//! The checks of a builder's options, before anything is done.

use super::MemberBuilder;
use crate::protocol::{MAX_COUNCIL, MemberName};
use crate::runtime::MAX_BUSY_POLL;
use crate::service::join_error::JoinError;
use crate::wire::MAX_CLUSTER;
#[cfg(feature = "secure")]
use crate::wire::secure::Keyring;
use std::net::SocketAddr;

impl MemberBuilder {
    /// Returns the first error that can be found before anything is done.
    pub(super) fn check(&self) -> Result<(), JoinError> {
        let length = self.cluster.len();
        if length == 0 || length > MAX_CLUSTER {
            return Err(JoinError::InvalidCluster { length });
        }
        address("bind", &self.bind, true)?;
        if let Some(advertise) = &self.advertise {
            address("advertise", advertise, false)?;
        }
        for seed in &self.seeds {
            address("seed", seed, false)?;
        }
        if let Some(name) = &self.name {
            MemberName::new(name)?;
        }
        if self.seeds.is_empty() && !self.found && !self.force {
            return Err(JoinError::NoSeeds);
        }
        let expected = self.expected();
        if expected == 0 {
            return Err(JoinError::ZeroExpected);
        }
        if self.found && expected > 1 {
            return Err(JoinError::FoundsAlone { expected });
        }
        self.timing.check()?;
        if self.council == 0 || self.council > MAX_COUNCIL {
            return Err(JoinError::InvalidCouncil { given: self.council });
        }
        if self.join_limit.is_zero() {
            return Err(JoinError::ZeroLimit);
        }
        if self.busy_poll > MAX_BUSY_POLL {
            return Err(JoinError::LongBusyPoll { given: self.busy_poll });
        }
        #[cfg(feature = "secure")]
        if self.insecure && self.keyring.is_some() {
            return Err(JoinError::InsecureWithKey);
        }
        #[cfg(feature = "secure")]
        if let Some(role) = self.keyring.as_ref().and_then(Keyring::lower_role) {
            return Err(JoinError::RoleKey { role });
        }
        Ok(())
    }
}

/// Checks a `host:port`. The host is a name or an address; IPv6 addresses are in brackets.
fn address(what: &'static str, given: &str, zero_allowed: bool) -> Result<(), JoinError> {
    let wrong = |why| Err(JoinError::InvalidAddress { what, given: given.to_owned(), why });
    let port = match given.parse::<SocketAddr>() {
        Ok(addr) => addr.port(),
        Err(_) => {
            let Some((host, port)) = given.rsplit_once(':') else {
                return wrong("it has no port: host:port is wanted");
            };
            if host.is_empty() {
                return wrong("it has no host: host:port is wanted");
            }
            if host.contains(':') {
                return wrong("an IPv6 address goes in brackets: [::1]:7400");
            }
            if host.contains(|c: char| c.is_whitespace() || c == '/' || c == '[' || c == ']') {
                return wrong(
                    "this is not a host name: host:port is wanted, without a scheme or a path",
                );
            }
            match port.parse::<u16>() {
                Ok(port) => port,
                Err(_) => return wrong("the port is not a number from 0 to 65535"),
            }
        }
    };
    if port == 0 && !zero_allowed {
        return wrong("port 0 cannot be dialled");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Timing;
    use crate::service::member::Member;
    use std::time::Duration;

    #[test]
    fn good_addresses_are_taken() {
        for good in ["127.0.0.1:7400", "[::1]:7400", "seed.example:7400", "localhost:1"] {
            address("seed", good, false).unwrap();
        }
        address("bind", "127.0.0.1:0", true).unwrap();
    }

    #[test]
    fn bad_addresses_say_what_is_wrong() {
        for (bad, why) in [
            ("127.0.0.1", "no port"),
            ("", "no port"),
            (":7400", "no host"),
            ("::1:7400:x", "brackets"),
            ("http://seed:7400", "brackets"),
            ("a b:7400", "not a host name"),
            ("seed:70000", "not a number"),
            ("seed:", "not a number"),
            ("seed:0", "port 0"),
        ] {
            let error = address("seed", bad, false).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[tokio::test]
    async fn a_wrong_setting_is_reported_before_anything_is_done() {
        let good = || Member::builder("shop").bind("127.0.0.1:0").seeds(["127.0.0.1:7400"]);
        let errors = [
            Member::builder("").found().join().await,
            Member::builder("x".repeat(65)).found().join().await,
            good().bind("nowhere").join().await,
            good().advertise("10.0.0.5:0").join().await,
            good().seeds(["seed"]).join().await,
            good().seeds([""; 0]).join().await,
            good().timing(Timing { beat: Duration::ZERO, ..Timing::lan() }).join().await,
            good().council(0).join().await,
            good().council(32).join().await,
            good().expect(0).join().await,
            good().found().expect(2).join().await,
            good().join_limit(Duration::ZERO).join().await,
            good().busy_poll(Duration::from_micros(1001)).join().await,
        ];
        let texts: Vec<String> =
            errors.into_iter().map(|error| error.unwrap_err().to_string()).collect();
        let expected = [
            "64 bytes, not 0",
            "64 bytes, not 65",
            "bind address",
            "advertise address",
            "seed address",
            "no seeds",
            "beat is at least",
            "not 0",
            "not 32",
            "expect() is at least 1",
            "expect() wants 2 members",
            "limit is zero",
            "not 1.001ms",
        ];
        for (text, expected) in texts.iter().zip(expected) {
            assert!(text.contains(expected), "{text}");
        }
    }
}
