//! The versions of the wire.

use crate::protocol::Versions;

/// The highest version of all forms in `wire` that this build speaks. The rules for changes are in
/// docs/protocol/versions.md.
///
/// - 1: frames without a checksum.
/// - 2: a checksum behind each frame.
/// - 3: transfers, suspensions, batches and questions.
/// - 4: shares, permits and objects.
/// - 5: a relayed packet names the member through which its sender heard the other member;
///   suspicions beside a refused connection.
/// - 6: a member that asks for a grantor states the youngest epoch that it knows.
/// - 7: a holder is listed with its request, by which a revocation names the hold; messages are
///   grouped by the role that handles them.
/// - 8: the information of a process has the key of its vote; a vote successor proves its claim.
/// - 9: the information of a process has its static key; relayed packets are sealed.
/// - 10: the information of a process tells whether it serves sessions. A member asks the elder
///   whether a service exists. Holders and waiters are listed with their owners.
/// - 11: frames, sealed relays and stored votes name their version, and views the version that
///   their members speak. Processes have names and ranges of versions. Members of versions 11 and
///   later live together.
/// - 12: waiters are listed with the numbers of their requests.
/// - 13: a member may keep a lock after its release, until it is recalled. The member that carries
///   out an order tells its name.
pub const PROTOCOL_VERSION: u16 = 13;

/// All versions that this build speaks: the highest one and those before it with which it shares a
/// cluster.
pub const VERSIONS: Versions = Versions { lowest: 11, highest: PROTOCOL_VERSION };

/// The version of the forms that are read before the versions of the other side are known. These
/// forms are the bodies of a handshake, and the head of a sealed relay. Their only allowed change
/// is growth at their end.
pub(super) const FROZEN: u16 = 11;

/// The version in which the form of datagrams changed last. Members of all later versions read each
/// other's datagrams.
pub const GOSSIP_VERSION: u16 = 11;
