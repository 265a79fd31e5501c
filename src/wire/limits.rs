//! The longest frames, by the stage of a connection.

/// The longest frame in bytes. Its checksum counts, its length field does not. The largest packets
/// are chunks of a report, which are far shorter.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;
/// The longest frame before the end of the handshake, counted in the same way.
pub const MAX_HELLO: usize = 4096;

/// The longest frame that a listener accepts from a process outside its view, counted in the same
/// way.
pub const MAX_STRANGE_FRAME: usize = 16 * 1024;

/// The longest frame that a listener accepts while it is in no view, counted in the same way: the
/// view of some two thousand members.
pub const MAX_UNKNOWN_FRAME: usize = 256 * 1024;
