//! The cluster keys of a child's members: in base64, with commas.

use elderlock::{Keyring, Member, MemberBuilder};

fn ring(keys: &str) -> Result<Keyring, String> {
    Keyring::parse(&keys.replace(',', "\n")).map_err(|error| error.to_string())
}

/// Gives a member keys before it joins.
pub(crate) fn give(builder: MemberBuilder, keys: &str) -> Result<MemberBuilder, String> {
    Ok(builder.keyring(ring(keys)?))
}

/// Gives a member other keys.
pub(crate) fn rekey(member: &Member, keys: &str) -> Result<String, String> {
    let closed = member.set_keyring(ring(keys)?);
    closed.map(|closed| closed.to_string()).map_err(|error| error.to_string())
}
