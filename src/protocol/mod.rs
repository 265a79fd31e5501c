//! The protocol: every decision of elderlock, as a pure state machine.
//!
//! A [`Node`] is one member. It has one way in, [`Node::step`], which takes the time, an [`Input`]
//! and a list to which it appends [`Output`]s. It has one time at which it wants to be called
//! again, [`Node::deadline`]. It has no clock, no socket, no thread and no randomness; all its maps
//! are ordered. The runtime drives it with real sockets. The simulator and the model checker drive
//! the same code in virtual time.
//!
//! ```text
//!   commands of the program ---+                      +--> packets to other members
//!   packets of other members --+--> Node::step(now) --+--> answers and losses for the program
//!   hints (gossip, sockets) ---+                      +--> votes to be stored, events
//!   the timer -----------------+
//! ```
//!
//! # Two sides
//!
//! A node has two sides. `cluster.rs` has the membership: views, votes, leases, deaths, and the
//! elder's renewals. `locks.rs` has the locks: the elder's registry of services, the grantors, and
//! the lock client. `node.rs` routes between them and the links.
//!
//! ```text
//!   Notice  --> Cluster ---- named calls: a view, a lease, the membership begins or ends --+
//!                  |                                                                       v
//!                  +-- Standing: the view, whether the lease runs (read only) ---------> Locks
//!   Message (on a link) ---------------------------------------------------------------> |
//! ```
//!
//! A [`Message`] never changes the membership.
//!
//! # Roles
//!
//! Each member has some of these roles at the same time:
//!
//! | role | file | its decisions |
//! |---|---|---|
//! | member | `cluster/affiliation.rs`, `cluster/leasing.rs` | whether its own lease runs |
//! | voter | `cluster/decision.rs`, `cluster/voting.rs`, `cluster/vote_successor.rs` | the next view, with a quorum of the council |
//! | elder | `cluster/elder.rs`, `locks/registry.rs` | which leases it renews, which member grants which service |
//! | grantor | `locks/grantor.rs`, `locks/grantor/`, `locks/table.rs`, `locks/table/` | which request has which lock of one service |
//! | lock client | `locks/client.rs`, `locks/client/` | nothing for others: it asks, waits, holds and releases |
//!
//! The elder is the oldest living member of the view. Any member can be the grantor of any
//! service.
//!
//! # Two layers of messages
//!
//! A [`Notice`] is about membership. It may be lost, doubled and reordered, and its sender repeats
//! it. A [`Message`] is about locks. It travels on a *link* (`link.rs`). The message is numbered,
//! kept until it is acknowledged, and delivered once and in order as long as both processes are in
//! the view. A link belongs to two process ids, so a frame of an earlier incarnation means nothing.
//! Roles therefore have no timers for lost messages, and a release cannot overtake the grant that
//! it answers.
//!
//! # Views and the council
//!
//! A [`View`] lists the members, oldest first. View n+1 is chosen by a quorum of the *council* of
//! view n: its oldest living members with a vote, seven unless configured. The elder weighs a
//! little more than the others.
//!
//! ```text
//! elder      Accept, round 0 --> council: Accepted --> quorum: Install to all members
//! candidate  PreVote --> PreVoteReply --> Prepare --> Promise --> Accept --> Accepted --> Install
//! ```
//!
//! The elder proposes in round 0, in one round trip. When it is silent, another member of the
//! council asks for pre-votes. Only with a quorum of willing voters does it raise a ballot. A
//! candidate finishes any change that a voter has accepted already. Council members that did not
//! answer become *ghosts*: they have no vote and no renewal, but their holds count until their
//! leases are surely over.
//!
//! A process leaves the view in one of three cases. It said goodbye, its lease is surely over, or
//! its death is vouched for. A member on the same kernel vouches, or with `trust_refused` members
//! that it refuses. Each start draws a new process id, so no process comes back as itself. A
//! program with a data directory stores its vote before any message tells of it. The next process
//! on that directory is its *vote successor* and has that vote.
//!
//! # Founding and joining
//!
//! ```text
//! all seeds     Hello --> all seeds: HelloReply with equal seed lists
//! lowest seed   Found --> all seeds: FoundOk --> all agreed: FullView to all founders
//! joiner        Join  --> elder: Install to all members --> FullView: the joiner is a learner
//! learner       Beat  --> elder: the next view --> the learner has a vote
//! ```
//!
//! A process in no view is in *discovery* (`cluster/discovery.rs`). It greets its seeds and listens
//! for a quarter of a member lease. If it hears of a cluster, it asks to be taken in, again and
//! again. If it hears of no cluster with an elder, the seeds found one together. A process founds
//! alone if its program says so, or if its own address is its only seed.
//!
//! The first view takes *all* seeds. The seed with the lowest address proposes it when each seed
//! has answered with the same seed list. It installs the view when all have agreed. A seed agrees
//! to one founding only, so two foundings would need one process to agree twice. When a founder
//! dies, the others may give themselves up and start again: a process without a lease holds
//! nothing.
//!
//! All views that follow one founding are a *lineage*. Lineages do not merge. A member that hears
//! of a later lineage with an elder gives up its own, with all its holds, and joins the later one.
//! The later lineage wins because its tokens are higher: a resource that saw one of them refuses
//! all tokens of the earlier lineage.
//!
//! A process that joins is a *learner*: it may hold and grant, and has no vote. A later view
//! promotes it when its beats show that it has a view with itself. A view promotes at most as many
//! learners as it has other voters. A group that joins and falls silent therefore takes no quorum
//! away. Founders have a vote in the first view.
//!
//! # Leases
//!
//! ```text
//! member --> elder    Beat k, confirms pulse p
//! elder  --> member   Pulse p', renews beat k
//! ```
//!
//! A member's lease runs for `member_lease` from the *sending* of the renewed beat. The elder
//! counts from its *arrival*, and adds the error of clock rates ([`Timing::surely`]). So a hold
//! ends at its holder before any other member may have the lock, as long as clock rates agree
//! within the bound. The elder renews only while a quorum confirms its pulses, within
//! `elder_lease`.
//!
//! A member whose lease is over is *suspended*: its guards fail for good, and its waiters keep
//! their positions. Its grantors keep their tables and grant nothing.
//!
//! # The life of a lock
//!
//! ```text
//! lock client                     elder                        grantor
//!   | FindGrantor ----------------> | names a member:             |
//!   |                               | NameGrantor --------------> | recovers or receives a table
//!   | <------------------ GrantorIs |                             |
//!   | RequestLock ----------------------------------------------> | table: free?
//!   | <---------------------------------------------------- Grant | yes: with a token
//!   | <--------------------------------------------------- Queued | no: with a ticket
//!   | Release --------------------------------------------------> | ended, cancelled, unwanted
//! ```
//!
//! At the grantor's own member the same exchange takes place inside one step, without a packet.
//!
//! - The *token* of a grant comes from a range that the elder dealt to this grantor. The elder
//!   deals ranges in ascending order, and a grantor uses them in ascending order, so tokens rise.
//! - The *epoch* of a grantor is the first token of its first range. A member that has reported to
//!   an epoch refuses the grants of all earlier epochs.
//! - The *ticket* of a waiter is its position: the epoch in which it was acknowledged and a number.
//!   The waiter keeps it, and a later grantor sorts by it.
//! - Wait limits and lock leases live at the lock client, on its member's clock. The grantor times
//!   nothing.
//!
//! # Wants
//!
//! The *want* of a request is one of six. The queue of a name has the waits for all of its uses, in
//! the order of their tickets (`locks/table/line.rs`, `locks/table/queues.rs`).
//!
//! | want | takes | excludes |
//! |---|---|---|
//! | lock | one name | the lock, shares and permits of the name |
//! | batch | up to 1,024 locks, all or nothing | the same, for each of its names |
//! | share | one name, beside other shares | the lock and permits of the name |
//! | permits | n units of an object's limit, all or nothing | the lock and shares of the name, and permits above the limit |
//! | suspension | the whole service | the holds of all other owners, and later requests |
//! | open object | the value of a name | nothing: it is not a hold |
//!
//! A *try* is a request that is granted at once or refused, so it never waits in a queue.
//!
//! A suspension is granted when no other owner holds anything and no earlier request can be
//! granted. An owner that has a hold *passes* it: the owner's next request gets a ticket before
//! the suspension. Otherwise the suspension would wait for the owner's hold, and the owner for the
//! suspension.
//!
//! # A grantor's states
//!
//! A grantor is [`Recovering`](GrantorState::Recovering), [`Receiving`](GrantorState::Receiving),
//! [`PassingOn`](GrantorState::PassingOn) or [`Acting`](GrantorState::Acting).
//! docs/protocol/transfer.md has the table of these states and of the ways between them.
//!
//! A *recovering* grantor asks each member of the view for its holds, waiters and open objects
//! (`Recover`, `Report`), ghosts included. It acts when all have reported or left the view. Before
//! that, it grants the names of each part that all have reported. Of
//! two claims to one lock the higher token counts, and the other holder is told (`Supersede`). The
//! elder names the next grantor as soon as the present one is silent. If the replaced grantor is
//! still alive, it answers `Recover` with its table.
//!
//! A *receiving* grantor follows a living one: a young turk asked to become grantor, or the former
//! grantor leaves and proposed a successor. It asks for the table (`RequestTable`, `TableChunk`)
//! and acts when the table is complete. A young turk copies a large table before it bids, so that
//! only the last changes are missing then (docs/protocol/copy.md). It revalidates the table while
//! it grants: it asks each member with an entry. If a younger turk asks it meanwhile, it *passes*
//! the table *on*.
//!
//! # Fewer messages
//!
//! Two options save messages. Both are off by default. A member may *keep* a lock after its release
//! (a `Grant` with further tokens) and grant it to itself until `Recall`. It answers `Recall` with
//! `Release` or `KeepInUse`. A member that gets most of a service's tokens may bid for the service
//! as a young turk.
//!
//! # Further exchanges
//!
//! | exchange | file | in short |
//! |---|---|---|
//! | relay and detour | `link/detour.rs` | while the straight path to a process is in trouble, its packets also go through the council |
//! | revocation | `locks/client/revocation.rs` | a holder's member is asked for a revocable hold; once the holder was told, the hold can be taken away |
//! | deadlock probe | `locks/client/probes.rs`, `locks/grantor/probing.rs` | a probe follows waits and holds; if it finds one circle twice, a request of the circle is told |
//! | version of the wire | `cluster/view.rs`, `id/versions.rs` | all members of a view speak its version; a view without the last older member raises it |
//! | force | `cluster/affiliation.rs` | an operator gives up all processes that do not answer; a member without a lease founds a later lineage alone |
//! | suspension of a member | `cluster/leasing.rs` | a member whose lease ends is suspended; it resumes with the next renewal, while it is in the view |
//!
//! # When a process dies
//!
//! | process | consequence |
//! |---|---|
//! | holder | its holds are freed by the view without it |
//! | waiter | its requests are dropped by the view without it |
//! | grantor | the elder names another, which recovers from the surviving members |
//! | elder | the next oldest member takes over, asks all members for an inventory, and renews leases |
//! | voter | the others are a quorum, or members suspend themselves and wait for one |
//!
//! DESIGN.md has the promises and their arguments. The chapters of docs/protocol have each table of
//! messages and of deaths, and the reason for each rule. A line with `planted!` marks a rule that a
//! planted break removes in builds for the simulator.
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::too_many_lines)]

/// A planted break: whether it is in force, or after `=>` a statement that is run if it is. In a
/// build for use none is planted, and the statement is not code. So it may call functions of the
/// modules `planted`, which only builds with breaks have.
macro_rules! planted {
    ($mutant:expr, $name:ident => $($statement:tt)+) => {
        #[cfg(elderlock_mutants)]
        if planted!($mutant, $name) {
            $($statement)+;
        }
    };
    ($mutant:expr, $name:ident) => {{
        #[cfg(elderlock_mutants)]
        let planted = $crate::protocol::mutant::ProtocolMutant::$name.is_planted($mutant);
        #[cfg(not(elderlock_mutants))]
        let planted = false;
        planted
    }};
    (=> $($statement:tt)+) => {
        #[cfg(elderlock_mutants)]
        $($statement)+;
    };
}

#[cfg(test)]
mod chance;
mod cluster;
pub mod content;
pub mod event;
pub mod id;
mod limits;
mod link;
mod locks;
pub mod message;
#[cfg(elderlock_mutants)]
pub mod mutant;
pub mod node;
pub(crate) mod paged_map;
mod step_context;
mod step_parts;
pub mod time;
pub mod timing;
pub mod versioned;
mod visit_count;
mod vote_claim;
mod vote_key;

pub use cluster::discovery::SeedReport;
pub use cluster::view::{Change, View, ViewMember};
pub use cluster::vote_successor::{StoredVote, StoredVoter};
pub use content::{Content, Edit, LastWrite, NumberEdit};
pub use event::{
    Command, Config, Event, GrantorLoad, GrantorState, Hint, Input, LedMember, LockStatus,
    LostReason, Outcome, Output, RevocationRequest, RevokeCommand, ServiceStatus, Sizes, Status,
    Wait,
};
pub use id::{
    Batch, Epoch, Host, InvalidBatch, InvalidMemberName, InvalidName, InvalidPermits, InvalidValue,
    Lineage, LineageId, LockName, MAX_MEMBER_NAME, MemberInfo, MemberName, Metadata, Mode,
    OpenRequest, OwnerId, Permits, ProcessId, RequestId, ServiceName, Slot, StaticPublicKey,
    Ticket, Token, Value, Versions, ViewNumber, Want,
};
pub use limits::{Limits, LinkLimits, MAX_COUNCIL};
pub use locks::name_part::{ALL_PARTS, part_of};
pub use locks::table::Contents;
pub use message::{
    Affiliation, Blocked, BlockingHold, ChainLink, ClientMessage, ForceOrder, GrantorMessage,
    HoldReport, HoldState, HolderInfo, LockRequest, MemberMessage, Message, Notice, OwnerWait,
    Packet, Probe, Query, QueryReply, Refusal, RegistryMessage, RevocationAnswer, RevocationDemand,
    WaitReport, WaiterInfo,
};
#[cfg(feature = "tokio")]
pub(crate) use node::FastOutcome;
pub use node::{KeptUse, LocalGrant, LocalOffer, Node};
pub use time::Time;
pub use timing::{InvalidTiming, Timing};
pub use vote_claim::VoteClaim;
pub use vote_key::{VoteKey, VoteProof, VoteSecret};
