//! The version of the wire.

/// The version of everything in `wire`. Members of different versions do not speak to each
/// other.
///
/// - 1: frames without a checksum.
/// - 2: a checksum behind each frame.
/// - 3: transfers, suspensions, batches and questions.
/// - 4: shares, permits and objects.
/// - 5: a relayed packet names the member through which its sender heard the other; suspicions
///   beside a refused connection.
/// - 6: a member that asks for a grantor states the youngest epoch that it has heard of.
/// - 7: a holder is listed with its request, by which a revocation names the hold; messages are
///   grouped by the role that handles them.
/// - 8: the information of a process has the key of its vote; a vote successor proves its claim.
/// - 9: the information of a process has its static key; relayed packets are sealed.
/// - 10: the information of a process tells whether it serves sessions; a member asks the elder
///   whether a service exists; holders and waiters are listed with their owners.
pub const PROTOCOL_VERSION: u16 = 10;
