//! The source of process ids, and of the secrets of their votes.

use crate::protocol::{ProcessId, VoteSecret};
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};

/// Draws a process id that was never used before.
pub(crate) fn draw_process() -> Result<ProcessId, SysError> {
    #[cfg(feature = "simulated")]
    if let Some(process) = super::simulated::draw_process() {
        return Ok(process);
    }
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes)?;
    Ok(ProcessId(u128::from_le_bytes(bytes)))
}

/// Draws the secret of the vote of a new process.
pub(crate) fn draw_vote_secret() -> Result<VoteSecret, SysError> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes)?;
    Ok(VoteSecret::new(bytes))
}
