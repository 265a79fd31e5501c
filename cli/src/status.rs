//! `elderlock status`: what a running member sees.

use crate::Done;
use clap::Args;
use elderlock::{HolderInfo, LockStatus, Metadata, Status, WaiterInfo};
use std::process::ExitCode;

/// Where to ask.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Address of a running member (host:port).
    #[arg(long, env = "ELDERLOCK_AT")]
    at: String,
    /// Name of its cluster.
    #[arg(long, env = "ELDERLOCK_CLUSTER", default_value = "elderlock")]
    cluster: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: StatusArgs) -> Done {
    let status = elderlock::query_status(&args.at, &args.cluster).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", table(&status));
    }
    Ok(ExitCode::SUCCESS)
}

/// The status as people read it.
fn table(status: &Status) -> String {
    let mut text = format!("member   {} at {}\n", status.me.process, status.me.addr);
    text += &format!("lease    {}\n", if status.leased { "runs" } else { "has run out: no quorum heard" });
    match &status.view {
        None => text += "view     none yet: seeking its cluster\n",
        Some(view) => {
            text += &format!("view     {} of lineage {}, oldest first:\n", view.number, view.lineage);
            for member in &view.members {
                let process = member.info.process;
                let mut notes = Vec::new();
                if status.elder == Some(process) {
                    notes.push("elder");
                }
                if view.has_vote(process) {
                    notes.push("council");
                }
                if member.ghost {
                    notes.push("ghost");
                }
                if status.suspected.contains(&process) {
                    notes.push("suspected");
                }
                let line =
                    format!("  {process}  {:<21}  since {}  {}", member.info.addr, member.joined, notes.join(", "));
                text += line.trim_end();
                text += "\n";
            }
        }
    }
    for service in &status.services {
        let grantor = service.grantor.map_or("unknown".to_owned(), |grantor| grantor.to_string());
        let epoch = service.epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}"));
        text += &format!("service  {}: grantor {grantor}{epoch}", service.service);
        text += &format!(", held here {}, waiting here {}\n", service.held_here, service.waiting_here);
        for lock in &service.locks {
            let holder = match &lock.holder {
                Some(holder) => format!("held by {} with token {}", holder.process, holder.token),
                None => "free".to_owned(),
            };
            match &lock.name {
                Some(name) => text += &format!("  {name}  {holder}, {} waiting\n", lock.waiters),
                None => text += &suspension(lock),
            }
        }
        if service.more_locks > 0 {
            text += &format!("  and {} more\n", service.more_locks);
        }
    }
    text
}

/// The suspension of a service, with its reason.
fn suspension(lock: &LockStatus) -> String {
    let reason = |metadata: &Metadata| String::from_utf8_lossy(metadata.as_bytes()).escape_debug().to_string();
    let (process, why, state) = match (&lock.holder, &lock.next) {
        (Some(HolderInfo { process, metadata, token, .. }), _) => {
            (process, metadata, format!("suspended with token {token}"))
        }
        (None, Some(WaiterInfo { process, metadata, .. })) => (process, metadata, "not suspended yet".to_owned()),
        (None, None) => return String::new(),
    };
    format!("  {state} by {process}: {}; {} waiting\n", reason(why), lock.waiters)
}
