//! The source of process ids.

use crate::protocol::ProcessId;
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};

/// A process id never used before.
pub(crate) fn draw_process() -> Result<ProcessId, SysError> {
    #[cfg(feature = "simulated")]
    if let Some(process) = super::simulated::draw_process() {
        return Ok(process);
    }
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes)?;
    Ok(ProcessId(u128::from_le_bytes(bytes)))
}
