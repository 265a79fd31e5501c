//! The longest frames, by the stage of a connection.

/// The longest frame, without its length, with its checksum. The largest packets are parts of a
/// report, cut far below this.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;
/// The longest frame before the handshake is done, counted likewise.
pub const MAX_HELLO: usize = 4096;

/// The longest frame that a listener takes from a process outside its view, counted likewise.
pub const MAX_STRANGE_FRAME: usize = 16 * 1024;
