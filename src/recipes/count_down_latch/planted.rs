//! Planted breaks of a latch, see `runtime/mutant.rs`.

use super::*;

impl CountDownLatch {
    /// Writes the count that this member knows, less one.
    pub(super) async fn count_down_blindly(&self) -> Result<u32, CountError> {
        let left = self.count()?.saturating_sub(1);
        self.count.set(left as i32).await.map(|_| left)
    }
}
