//! `StatusReport`: a member's status for tools, in a stable form.

use crate::protocol::{
    GrantorState, HolderInfo, LockStatus, MemberName, Metadata, Mode, ProcessId, ServiceStatus,
    Status, ViewMember, WaiterInfo,
};
use serde::Serialize;
use std::net::SocketAddr;

/// A member's [`Status`](crate::Status) for tools: the JSON of `elderlock status --json` and of
/// `/status.json`.
///
/// Ids are hexadecimal. Tokens, epochs, owners and numbers of views are strings, because many
/// readers keep only 53 bits of a number. Times are seconds. A later release may add fields. A
/// release that changes the meaning of a field raises [`version`](StatusReport::version).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::StatusReport;
/// let member = elderlock::Member::local().await?;
/// let report = StatusReport::new(&member.status());
/// assert_eq!((report.version, report.state), (1, "healthy"));
/// assert_eq!(report.process.len(), 32);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct StatusReport {
    /// The version of this form: 1.
    pub version: u32,
    /// The process id of the member.
    pub process: String,
    /// The member's name.
    pub name: String,
    /// The member's address.
    pub addr: SocketAddr,
    /// `healthy`: the member's lease runs. `suspended`: the lease is over, or the clock is not
    /// trusted. `joining`: the member is in no view.
    pub state: &'static str,
    /// The view of the member.
    pub view: Option<ViewReport>,
    /// The services that the member uses or grants.
    pub services: Vec<ServiceReport>,
    /// The number of further services, which are not listed.
    pub more_services: usize,
}

/// A view in a [`StatusReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ViewReport {
    /// The number of the view.
    pub number: String,
    /// The lineage of the view, as [`LineageId`](crate::LineageId) displays it.
    pub lineage: String,
    /// The process id of the elder.
    pub elder: String,
    /// The member lease in seconds.
    pub member_lease: f64,
    /// The version of the wire that all members speak.
    pub wire_version: u16,
    /// The members, oldest first.
    pub members: Vec<MemberReport>,
}

/// A member in a [`StatusReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct MemberReport {
    /// The process id of the member.
    pub process: String,
    /// The name of the member.
    pub name: String,
    /// The address of the member.
    pub addr: SocketAddr,
    /// The number of the view in which the member joined.
    pub joined: String,
    /// The lowest and the highest version of the wire that the member speaks.
    pub wire_versions: [u16; 2],
    /// Whether the member is the elder.
    pub elder: bool,
    /// Whether the member has a vote.
    pub council: bool,
    /// Whether the member is listed only until its lease is surely over.
    pub ghost: bool,
    /// Whether the member has joined and not shown itself since.
    pub learner: bool,
    /// Whether a hint calls the member unreachable.
    pub suspected: bool,
}

/// A service in a [`StatusReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ServiceReport {
    /// The name of the service.
    pub service: String,
    /// The process id of the grantor, as far as it is known.
    pub grantor: Option<String>,
    /// The epoch of that grantor.
    pub epoch: Option<String>,
    /// The state of the grantor, if the member is the grantor: `receiving`, `passing on`,
    /// `recovering` or `acting`.
    pub granting: Option<&'static str>,
    /// Locks that are held or waited for. Only the grantor lists them.
    pub locks: Vec<LockReport>,
    /// The number of further locks, which are not listed.
    pub more_locks: usize,
    /// The number of waiting requests of this member.
    pub waiting_here: usize,
    /// The number of holds of this member.
    pub held_here: usize,
    /// The number of objects that this member has open.
    pub open_here: usize,
    /// The number of locks that this member keeps, in use or free.
    pub kept_here: usize,
    /// How many of these are in use.
    pub kept_in_use_here: usize,
}

/// A lock in a [`StatusReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LockReport {
    /// The name of the lock, with escapes of Rust for bytes that are not printable; `None`: the
    /// suspension of the whole service.
    pub name: Option<String>,
    /// The holder. Of many shares or permits one holder.
    pub holder: Option<HolderReport>,
    /// The number of holders.
    pub holder_count: u64,
    /// The number of waiters.
    pub waiter_count: u64,
    /// The first waiter.
    pub next: Option<WaiterReport>,
    /// The number of members that have the object of that name open.
    pub opener_count: u64,
}

/// A holder in a [`StatusReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct HolderReport {
    /// The process id of the holder.
    pub process: String,
    /// The name of the holder's member; `None`: the view does not have it.
    pub member: Option<String>,
    /// The owner of the request within that process; `None`: the process as a whole.
    pub owner: Option<String>,
    /// The token of the hold.
    pub token: String,
    /// `lock`, `share`, `permits` or `suspension`.
    pub mode: &'static str,
    /// The number of permits; `None`: the hold is of another kind.
    pub permits: Option<u32>,
    /// Whether other members may request the hold back.
    pub revocable: bool,
    /// The metadata of the hold, as text.
    pub metadata: String,
    /// The time for which the hold has lasted, in seconds.
    pub held_for: f64,
}

/// A waiter in a [`StatusReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct WaiterReport {
    /// The process id of the waiter.
    pub process: String,
    /// The name of the waiter's member; `None`: the view does not have it.
    pub member: Option<String>,
    /// The owner of the request within that process; `None`: the process as a whole.
    pub owner: Option<String>,
    /// The number of the request within that process; `None`: a member of the previous release does
    /// not report it.
    pub request: Option<String>,
    /// `lock`, `share`, `permits` or `suspension`.
    pub mode: &'static str,
    /// The metadata of the request, as text.
    pub metadata: String,
}

impl StatusReport {
    /// The report of a status.
    pub fn new(status: &Status) -> StatusReport {
        let view = status.view.as_ref().map(|view| ViewReport {
            number: view.number.0.to_string(),
            lineage: view.lineage.id().to_string(),
            elder: hex(view.elder().process),
            member_lease: view.timing.member_lease.as_secs_f64(),
            wire_version: view.version,
            members: view
                .members
                .iter()
                .map(|member| member_report(status, member, view.has_vote(member.info.process)))
                .collect(),
        });
        StatusReport {
            version: 1,
            process: hex(status.me.process),
            name: status.me.name.to_string(),
            addr: status.me.addr,
            state: match (&status.view, status.leased) {
                (None, _) => "joining",
                (Some(_), true) => "healthy",
                (Some(_), false) => "suspended",
            },
            view,
            services: status
                .services
                .iter()
                .map(|service| service_report(status, service))
                .collect(),
            more_services: status.more_services,
        }
    }
}

fn member_report(status: &Status, member: &ViewMember, council: bool) -> MemberReport {
    let process = member.info.process;
    MemberReport {
        process: hex(process),
        name: member.info.name.to_string(),
        addr: member.info.addr,
        joined: member.joined.0.to_string(),
        wire_versions: [member.info.versions.lowest, member.info.versions.highest],
        elder: status.elder == Some(process),
        council,
        ghost: member.ghost,
        learner: member.learner,
        suspected: status.suspected.contains(&process),
    }
}

fn service_report(status: &Status, service: &ServiceStatus) -> ServiceReport {
    ServiceReport {
        service: service.service.as_str().to_owned(),
        grantor: service.grantor.map(hex),
        epoch: service.epoch.map(|epoch| epoch.0.to_string()),
        granting: service.granting.map(|state| match state {
            GrantorState::Receiving => "receiving",
            GrantorState::PassingOn => "passing on",
            GrantorState::Recovering => "recovering",
            GrantorState::Acting => "acting",
        }),
        locks: service.locks.iter().map(|lock| LockReport::new(status, lock)).collect(),
        more_locks: service.more_locks,
        waiting_here: service.waiting_here,
        held_here: service.held_here,
        open_here: service.open_here,
        kept_here: service.kept_here,
        kept_in_use_here: service.kept_in_use_here,
    }
}

impl LockReport {
    /// The report of a lock of that status.
    pub(super) fn new(status: &Status, lock: &LockStatus) -> LockReport {
        let name = |process| status.member_name(process);
        let holder = |info: &HolderInfo| HolderReport::new(info, name(info.process));
        let waiter = |info: &WaiterInfo| WaiterReport::new(info, name(info.process));
        LockReport {
            name: lock.name.as_ref().map(ToString::to_string),
            holder: lock.holder.as_ref().map(holder),
            holder_count: lock.holder_count as u64,
            waiter_count: lock.waiter_count as u64,
            next: lock.next.as_ref().map(waiter),
            opener_count: lock.opener_count as u64,
        }
    }
}

impl HolderReport {
    /// The report of a holder. `member`: the name of its member.
    pub fn new(holder: &HolderInfo, member: Option<&MemberName>) -> HolderReport {
        HolderReport {
            process: hex(holder.process),
            member: member.map(MemberName::to_string),
            owner: owner(holder.owner),
            token: holder.token.to_string(),
            mode: mode_name(holder.mode),
            permits: if let Mode::Permits(count) = holder.mode { Some(count) } else { None },
            revocable: holder.revocable,
            metadata: text(&holder.metadata),
            held_for: holder.held_for.as_secs_f64(),
        }
    }
}

impl WaiterReport {
    /// The report of a waiter. `member`: the name of its member.
    pub fn new(waiter: &WaiterInfo, member: Option<&MemberName>) -> WaiterReport {
        WaiterReport {
            process: hex(waiter.process),
            member: member.map(MemberName::to_string),
            owner: owner(waiter.owner),
            request: waiter.request.map(|request| request.0.to_string()),
            mode: mode_name(waiter.mode),
            metadata: text(&waiter.metadata),
        }
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Lock => "lock",
        Mode::Share => "share",
        Mode::Permits(_) => "permits",
        Mode::Suspension => "suspension",
    }
}

/// The owner as a string, because an owner has 64 bits.
fn owner(owner: u64) -> Option<String> {
    (owner != 0).then(|| owner.to_string())
}

fn hex(process: ProcessId) -> String {
    format!("{:032x}", process.0)
}

fn text(metadata: &Metadata) -> String {
    String::from_utf8_lossy(metadata.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn the_report_has_hex_ids_tokens_as_strings_and_seconds_as_numbers() {
        let member = Member::local().await.unwrap();
        let service = member.lock_service("stock").await.unwrap();
        let guard = service.lock("a\n").metadata("till 3").await.unwrap();
        let waits = service.lock("a\n").start();
        let json: Value =
            serde_json::to_value(StatusReport::new(&member.status())).expect("it is JSON");
        let process = format!("{:032x}", member.process().0);
        assert_eq!((&json["version"], &json["state"]), (&json!(1), &json!("healthy")));
        assert_eq!(json["process"], json!(process));
        let view = &json["view"];
        assert_eq!(view["elder"], json!(process));
        assert_eq!(view["members"][0]["elder"], json!(true));
        let name = json!(member.name().as_str());
        assert_eq!((&json["name"], &view["members"][0]["name"]), (&name, &name));
        assert_eq!(view["member_lease"], json!(5.0));
        let lock = &json["services"][0]["locks"][0];
        assert_eq!((&lock["name"], &lock["waiter_count"]), (&json!("a\\n"), &json!(1)));
        assert_eq!(lock["holder"]["token"], json!(guard.token().to_string()));
        assert_eq!(lock["holder"]["metadata"], json!("till 3"));
        assert_eq!((&lock["holder"]["member"], &lock["next"]["member"]), (&name, &name));
        assert!(lock["holder"]["held_for"].is_f64() && lock["next"]["mode"] == json!("lock"));
        drop(waits);
    }
}
