//! Takes the place of `keys` in a build without cluster keys.

use elderlock::{Member, MemberBuilder};

const ABSENT: &str = "this build has no cluster keys";

pub(crate) fn give(_: MemberBuilder, _: &str) -> Result<MemberBuilder, String> {
    Err(ABSENT.to_owned())
}

pub(crate) fn rekey(_: &Member, _: &str) -> Result<String, String> {
    Err(ABSENT.to_owned())
}
