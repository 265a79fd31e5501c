//! `Access`: decides which requests are answered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::{IpAddr, Ipv6Addr};

/// The rules of a view.
#[derive(Default)]
pub(super) struct Access {
    pub(super) token: Option<String>,
    /// Names that a `Host` may have, in lower case.
    pub(super) hosts: Vec<String>,
    pub(super) insecure: bool,
}

impl Access {
    /// Returns whether a request to this `host`, with or without a port, is answered.
    pub(super) fn allows_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => {
                return rest.split(']').next().is_some_and(|addr| addr.parse::<Ipv6Addr>().is_ok());
            }
            None => host.split(':').next().unwrap_or_default().to_ascii_lowercase(),
        };
        // Another site cannot point an IP address here, as it can a name.
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.hosts.contains(&name)
    }

    /// Returns whether the content of `Authorization` has the token.
    pub(super) fn allows_token(&self, given: Option<&str>) -> bool {
        let Some(token) = &self.token else { return true };
        let Some((scheme, rest)) = given.and_then(|given| given.split_once(' ')) else {
            return false;
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            return is_same(rest.trim().as_bytes(), token.as_bytes());
        }
        let Some(decoded) = scheme
            .eq_ignore_ascii_case("basic")
            .then(|| STANDARD.decode(rest.trim()).ok())
            .flatten()
        else {
            return false;
        };
        let password = decoded.split(|byte| *byte == b':').skip(1).collect::<Vec<_>>().join(&b':');
        is_same(&password, token.as_bytes())
    }
}

/// Compares in constant time: a text that begins like the token takes as long as any other of its
/// length.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differs = given.iter().zip(token).fold(0, |seen, (one, other)| seen | (one ^ other));
    given.len() == token.len() && std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_named_hosts_are_answered_and_other_names_are_not() {
        let access = Access { hosts: vec!["pod-0.shop".into()], ..Access::default() };
        for good in ["127.0.0.1:7480", "10.0.0.5", "[::1]:7480", "LocalHost:1", "Pod-0.shop:7480"] {
            assert!(access.allows_host(good), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example:7480", "", "[evil]", "127.0.0.1.nip.io"]
        {
            assert!(!access.allows_host(bad), "{bad}");
        }
    }

    #[test]
    fn a_token_is_taken_from_a_bearer_or_a_password_and_nothing_else_is() {
        let access = Access { token: Some("se:cret".into()), ..Access::default() };
        for good in ["Bearer se:cret", "bearer  se:cret", "Basic eDpzZTpjcmV0"] {
            assert!(access.allows_token(Some(good)), "{good}");
        }
        for bad in ["Bearer se:cre", "Bearer se:crett", "se:cret", "Basic eDpz", "Basic !", ""] {
            assert!(!access.allows_token(Some(bad)), "{bad}");
        }
        assert!(!access.allows_token(None) && Access::default().allows_token(None));
    }
}
