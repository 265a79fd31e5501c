//! The stream of a member's events.

use crate::protocol::{
    Epoch, Event, LockName, Metadata, ProcessId, ServiceName, Slot, Status, Token, View, ViewMember,
};
use crate::runtime::clock_watch::Rates;
use crate::runtime::engine::{Announcement, Engine};
use crate::runtime::telemetry::words;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// An event of a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub enum MemberEvent {
    /// The members agreed on a new view, and this member is in it.
    ViewInstalled(View),
    /// This member is now the elder: it names grantors and renews the others' leases.
    BecameElder,
    /// This member now grants the locks of a service.
    BecameGrantor {
        /// The service.
        service: ServiceName,
        /// The grantor's epoch.
        epoch: Epoch,
    },
    /// This member no longer grants the locks of a service: once for each
    /// [`BecameGrantor`](MemberEvent::BecameGrantor).
    NoLongerGrantor {
        /// The service.
        service: ServiceName,
        /// The epoch that ended.
        epoch: Epoch,
    },
    /// This member makes most of a service's requests, and has asked the elder to become its
    /// grantor: [`follow_load`](crate::LockService::follow_load) allows that.
    FollowsLoad {
        /// The service.
        service: ServiceName,
    },
    /// No elder with a quorum renewed this member's lease in time: every guard is lost, and this
    /// member grants nothing until [`Resumed`](MemberEvent::Resumed).
    Suspended,
    /// The member's lease runs again.
    Resumed,
    /// The member has been suspended for three member leases: a quorum may never return. The member
    /// continues to wait for one. If the other members are dead for ever, an operator may order it
    /// to continue with [`Member::force`](crate::Member::force).
    Orphaned,
    /// Another process has this member's process id: a copy of a virtual machine that was cloned or
    /// restored while the member ran. Every guard is lost. [`Expelled`](MemberEvent::Expelled)
    /// follows, and the member joins again with a new id. The other process keeps the id and its
    /// holds.
    IdentityTaken,
    /// The cluster continues without this member: every guard is lost. The member joins again by
    /// itself, as a new process.
    Expelled,
    /// The member has joined again.
    Rejoined {
        /// The new process.
        process: ProcessId,
    },
    /// The clock of the leases runs at another rate than the cluster's `clock_error_ppm` allows,
    /// mostly because a time daemon slews it. Every guard is lost, and this member acts as if it
    /// were cut off until the clock is steady and its lease is over.
    ClockDistrusted {
        /// The length of a span by the clock of the leases (`CLOCK_BOOTTIME`).
        boottime: Duration,
        /// The length of the same span by the hardware's clock (`CLOCK_MONOTONIC_RAW`).
        raw: Duration,
    },
    /// The clock is steady again. [`Resumed`](MemberEvent::Resumed) or
    /// [`Expelled`](MemberEvent::Expelled) follows.
    ClockTrusted,
    /// The wall clock has jumped. Leases do not depend on the wall clock, but the tokens of a
    /// cluster that is founded later do.
    WallClockJumped {
        /// The size of the jump in milliseconds, forward if more than zero.
        millis: i64,
    },
    /// The cluster's tokens are more than an hour above this machine's clock. One of the two clocks
    /// is wrong, and this member takes no part. [`Left`](MemberEvent::Left) follows.
    WrongClock {
        /// The distance of the tokens from this machine's clock.
        ahead: Duration,
    },
    /// The data directory does not take this member's vote: the disk is full, say. The member holds
    /// and grants as before, and its vote does not count until
    /// [`VoteStored`](MemberEvent::VoteStored). If too many members' votes are missing, no member
    /// joins and none is removed.
    VoteNotStored {
        /// The system's message.
        reason: String,
    },
    /// The vote is in the data directory again.
    VoteStored,
    /// An operator has revoked a lock that was not requested as
    /// [revocable](crate::LockBuilder::revocable): its guards are lost. Only if this member allows
    /// [forced revokes](crate::MemberBuilder::forced_revokes).
    ForcedRevoke {
        /// The service.
        service: ServiceName,
        /// The lock, or the first of a batch; `None`: the suspension of the service.
        name: Option<LockName>,
        /// The token of the hold.
        token: Token,
        /// The member that carried out the order.
        by: ProcessId,
        /// The operator, as the order names it.
        operator: Metadata,
        /// The reason that the operator gave.
        reason: Metadata,
    },
    /// The member has left, for good. No event follows.
    Left,
    /// A fault ended the member, for good. All its guards failed first. After a panic of its core
    /// it says goodbye to the elder, if that is another member. After any other fault, or if the
    /// goodbye is lost, the other members wait for its lease to end. They do not wait if one of
    /// them sees that its process has ended. No event follows.
    Failed {
        /// A description of the fault.
        reason: String,
    },
    /// The reader was too slow: some events are skipped, and their result is here. The next events
    /// are those from now on.
    Missed {
        /// The number of skipped events.
        count: u64,
        /// The member's present status.
        status: Box<Status>,
    },
}

/// The most members that the line about a view names.
const MOST_NAMES: usize = 16;

/// One line of text. Text from other processes is escaped.
impl fmt::Display for MemberEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |span: &Duration| format!("{:.3} s", span.as_secs_f64());
        let escaped = |text: &str| text.escape_debug().to_string();
        match self {
            MemberEvent::ViewInstalled(view) => {
                let name = |member: &ViewMember| match (member.ghost, member.learner) {
                    (true, _) => format!("{} (unreachable)", member.info.name),
                    (_, true) => format!("{} (learner)", member.info.name),
                    _ => member.info.name.to_string(),
                };
                let members: Vec<String> = view.members.iter().take(MOST_NAMES).map(name).collect();
                let (number, elder) = (view.number, &view.elder().name);
                write!(f, "view {number}: elder {elder}; members {}", members.join(", "))?;
                match view.members.len() - members.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            MemberEvent::BecameElder => f.write_str("became the elder"),
            MemberEvent::BecameGrantor { service, epoch } => {
                write!(f, "became grantor of {} in epoch {epoch}", escaped(service.as_str()))
            }
            MemberEvent::NoLongerGrantor { service, epoch } => {
                write!(f, "no longer grantor of {}, epoch {epoch}", escaped(service.as_str()))
            }
            MemberEvent::FollowsLoad { service } => write!(
                f,
                "asks to grant {}, since most of its requests come from here",
                escaped(service.as_str())
            ),
            MemberEvent::Suspended => f.write_str(words::SUSPENDED),
            MemberEvent::Resumed => f.write_str(words::RESUMED),
            MemberEvent::Orphaned => f.write_str(words::ORPHANED),
            MemberEvent::IdentityTaken => f.write_str(words::IDENTITY_TAKEN),
            MemberEvent::Expelled => f.write_str(words::EXPELLED),
            MemberEvent::Rejoined { process } => write!(f, "joined again as process {process}"),
            MemberEvent::ClockDistrusted { boottime, raw } => write!(
                f,
                "suspended: the clock ran {} while the hardware's clock ran {}",
                seconds(boottime),
                seconds(raw)
            ),
            MemberEvent::ClockTrusted => f.write_str("the clock is steady again"),
            MemberEvent::WallClockJumped { millis } => {
                write!(f, "the wall clock jumped by {millis} ms")
            }
            MemberEvent::WrongClock { ahead } => write!(
                f,
                "the cluster is {} ahead of this machine's clock; an hour is allowed",
                seconds(ahead)
            ),
            MemberEvent::VoteNotStored { reason } => write!(
                f,
                "the vote is not stored, and does not count until it is: {}",
                escaped(reason)
            ),
            MemberEvent::VoteStored => f.write_str("the vote is stored again"),
            MemberEvent::ForcedRevoke { service, name, by, operator, reason, .. } => {
                let said = |data: &Metadata| escaped(&String::from_utf8_lossy(data.as_bytes()));
                write!(
                    f,
                    "operator {} took {} of {} away, through process {by}: {}",
                    said(operator),
                    // The `Display` of a lock's name escapes it.
                    name.as_ref().map_or("the suspension".to_owned(), LockName::to_string),
                    escaped(service.as_str()),
                    said(reason)
                )
            }
            MemberEvent::Left => f.write_str("left"),
            MemberEvent::Failed { reason } => write!(f, "failed: {}", escaped(reason)),
            MemberEvent::Missed { count, .. } => {
                write!(f, "{count} earlier events are gone: they were read too late")
            }
        }
    }
}

/// The events of a member, in order, from [`Member::events`](crate::Member::events).
///
/// Keeps the latest 1024 events for a slow reader; a reader that falls further behind gets
/// [`MemberEvent::Missed`]. This value does not keep the member from leaving.
pub struct Events {
    engine: Arc<Engine>,
    receiver: Receiver<Announcement>,
}

impl Events {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let receiver = engine.subscribe();
        Events { engine, receiver }
    }

    /// The next event; `None` once the member has left and all events were read.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{Member, MemberEvent};
    /// let member = Member::local().await?;
    /// let mut events = member.events();
    /// member.leave().await?;
    /// while let Some(event) = events.next().await {
    ///     println!("{event:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Option<MemberEvent> {
        loop {
            match self.receiver.recv().await.map(member_event) {
                Ok(None) => {}
                Ok(event) => return event,
                Err(RecvError::Closed) => return None,
                Err(RecvError::Lagged(count)) => {
                    // Events that are still in the ring are older than the status, so they are
                    // skipped too. The status is taken after subscribing again, so no event is
                    // between the two.
                    let count = count + self.receiver.len() as u64;
                    self.receiver = self.engine.subscribe();
                    let status = Box::new(self.engine.status());
                    return Some(MemberEvent::Missed { count, status });
                }
            }
        }
    }

    /// The events as a [`Stream`], for the combinators of other crates.
    ///
    /// Dropping the stream, or a future of its next event, loses no event of other readers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{Member, MemberEvent};
    /// use futures_util::StreamExt as _;
    /// let member = Member::local().await?;
    /// let events = member.events().into_stream();
    /// member.leave().await?;
    /// let events: Vec<MemberEvent> = events.collect().await;
    /// assert_eq!(events.last(), Some(&MemberEvent::Left));
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = MemberEvent> + Send + Unpin {
        Box::pin(unfold(self, |mut events| async { Some((events.next().await?, events)) }))
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("process", &self.engine.process()).finish_non_exhaustive()
    }
}

/// The event for this announcement. `None`: programs get no event for it.
pub(super) fn member_event(announcement: Announcement) -> Option<MemberEvent> {
    let event = match announcement {
        Announcement::Expelled => return Some(MemberEvent::Expelled),
        Announcement::Rejoined(process) => return Some(MemberEvent::Rejoined { process }),
        Announcement::Distrusted(Rates { boottime, raw }) => {
            return Some(MemberEvent::ClockDistrusted { boottime, raw });
        }
        Announcement::Trusted => return Some(MemberEvent::ClockTrusted),
        Announcement::WallJump(millis) => return Some(MemberEvent::WallClockJumped { millis }),
        Announcement::VoteNotStored(reason) => return Some(MemberEvent::VoteNotStored { reason }),
        Announcement::VoteStored => return Some(MemberEvent::VoteStored),
        Announcement::Failed(reason) => {
            return Some(MemberEvent::Failed { reason: reason.to_owned() });
        }
        Announcement::Event(event) => event,
    };
    Some(match event {
        Event::ViewInstalled(view) => MemberEvent::ViewInstalled(view),
        Event::BecameElder(_) => MemberEvent::BecameElder,
        Event::BecameGrantor { service, epoch } => MemberEvent::BecameGrantor { service, epoch },
        Event::NoLongerGrantor { service, epoch } => {
            MemberEvent::NoLongerGrantor { service, epoch }
        }
        Event::FollowsLoad { service } => MemberEvent::FollowsLoad { service },
        Event::Suspended => MemberEvent::Suspended,
        Event::Resumed => MemberEvent::Resumed,
        Event::Orphaned => MemberEvent::Orphaned,
        Event::IdentityTaken => MemberEvent::IdentityTaken,
        // The engine reports these events by `Announcement::Expelled`.
        Event::Expelled | Event::Abandoned | Event::Forced => MemberEvent::Expelled,
        Event::WrongClock { theirs, ours } => {
            MemberEvent::WrongClock { ahead: Slot::span(theirs.0.saturating_sub(ours.0)) }
        }
        Event::ForcedRevoke { service, want, token, by, order } => MemberEvent::ForcedRevoke {
            service,
            name: want.names().first().cloned(),
            token,
            by,
            operator: order.operator,
            reason: order.reason,
        },
        Event::Left { .. } => MemberEvent::Left,
        // These are no news for a program: another grantor, tokens, an epoch that never began, a
        // bound, a start that failed. A stranger's claim and another lineage are for its operator.
        // The engine announces none of them.
        Event::FoundGrantor { .. }
        | Event::GrantorAborted { .. }
        | Event::Supplied { .. }
        | Event::ForceRefused(_)
        | Event::VoteClaimRefused { .. }
        | Event::OtherLineage(_)
        | Event::WaitsLeftOut { .. }
        | Event::TableRefused { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;

    #[tokio::test]
    async fn each_event_writes_itself_in_words_and_with_escapes() {
        let member = Member::local().await.unwrap();
        let status = Box::new(member.status());
        let service = ServiceName::new("sto\nck").unwrap();
        let (process, epoch) = (member.process(), Epoch(Token::from_i64(7).unwrap()));
        let reason = || "no\nspace".to_owned();
        let data = |text: &str| Metadata::new(text.as_bytes()).unwrap();
        let (boottime, raw) = (Duration::from_secs(1), Duration::from_millis(1500));
        let name = status.me.name.clone();
        let view = status.view.clone().unwrap();
        let epoch_text = epoch.to_string();
        let revoked = MemberEvent::ForcedRevoke {
            service: service.clone(),
            name: None,
            token: epoch.0,
            by: process,
            operator: data("ann"),
            reason: data("it\nhangs"),
        };
        let grantor = MemberEvent::BecameGrantor { service: service.clone(), epoch };
        let follows = MemberEvent::FollowsLoad { service: service.clone() };
        let before = MemberEvent::NoLongerGrantor { service, epoch };
        for (event, words) in [
            (
                MemberEvent::ViewInstalled(view.clone()),
                format!("view {}: elder {name}; members {name}", view.number),
            ),
            (MemberEvent::BecameElder, "became the elder".into()),
            (grantor, format!("became grantor of sto\\nck in epoch {epoch_text}")),
            (before, format!("no longer grantor of sto\\nck, epoch {epoch_text}")),
            (follows, "asks to grant sto\\nck, since most of its requests come from here".into()),
            (MemberEvent::Suspended, words::SUSPENDED.into()),
            (MemberEvent::Resumed, words::RESUMED.into()),
            (MemberEvent::Orphaned, words::ORPHANED.into()),
            (MemberEvent::IdentityTaken, words::IDENTITY_TAKEN.into()),
            (MemberEvent::Expelled, words::EXPELLED.into()),
            (MemberEvent::Rejoined { process }, format!("joined again as process {process}")),
            (
                MemberEvent::ClockDistrusted { boottime, raw },
                "suspended: the clock ran 1.000 s while the hardware's clock ran 1.500 s".into(),
            ),
            (MemberEvent::ClockTrusted, "the clock is steady again".into()),
            (
                MemberEvent::WallClockJumped { millis: -250 },
                "the wall clock jumped by -250 ms".into(),
            ),
            (
                MemberEvent::WrongClock { ahead: boottime },
                "the cluster is 1.000 s ahead of this machine's clock; an hour is allowed".into(),
            ),
            (
                MemberEvent::VoteNotStored { reason: reason() },
                "the vote is not stored, and does not count until it is: no\\nspace".into(),
            ),
            (MemberEvent::VoteStored, "the vote is stored again".into()),
            (
                revoked,
                format!(
                    "operator ann took the suspension of sto\\nck away, through process {process}: \
                     it\\nhangs"
                ),
            ),
            (MemberEvent::Left, "left".into()),
            (MemberEvent::Failed { reason: reason() }, "failed: no\\nspace".into()),
            (
                MemberEvent::Missed { count: 3, status },
                "3 earlier events are gone: they were read too late".into(),
            ),
        ] {
            assert_eq!(event.to_string(), words);
        }
    }
}
