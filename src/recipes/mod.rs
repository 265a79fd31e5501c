//! Recipes: what programs make of locks, each a type of its own on the one kind of queue. None has a message of its own.

mod acquire;
mod multi_lock;
mod mutex;
mod owner;
mod reentrant_mutex;

pub use acquire::Acquire;
pub use multi_lock::{MultiGuard, MultiLock, MultiLockError};
pub use mutex::Mutex;
pub use owner::Owner;
pub use reentrant_mutex::{EnterError, ReentrantMutex};

#[cfg(test)]
mod tests;
