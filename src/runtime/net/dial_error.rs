//! `DialError`: why an address was not reached.

/// Why an address was not reached.
#[derive(Debug)]
pub(super) enum DialError {
    /// The address refuses connections.
    Refused,
    /// The process at the address is not a member of this cluster.
    Stranger(String),
    /// No process answers, or the one that answered went away.
    Unreachable(String),
}

impl DialError {
    pub(super) fn text(&self) -> String {
        match self {
            DialError::Refused => "connection refused".into(),
            DialError::Stranger(why) | DialError::Unreachable(why) => why.clone(),
        }
    }
}
