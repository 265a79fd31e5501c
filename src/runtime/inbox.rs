//! `Inbox`: the way from the network to the engine.

use crate::protocol::{Input, Status};

/// The network puts the received packets here. Implemented by the engine.
pub(crate) trait Inbox: Send + Sync {
    /// From any thread, at any time; never blocks but for a short lock.
    fn input(&self, input: Input);

    /// The same with packets that came together, in their order. Leaves none behind. Returns
    /// whether they were questions: they were answered, and no caller of this member has waited for
    /// them.
    fn deliver(&self, packets: &mut Vec<Input>) -> bool;

    /// The member's status, for a caller that asks from outside: so many services, and so many
    /// locks in all, and how many more there are. `None` once it is gone.
    fn status(&self, most: usize) -> Option<Status>;
}
