//! `elderlock revoke`: asks the holders of a lock to release it, and takes it away with `--force`.
//!
//! It joins as a member meanwhile: only members are told the holders, and only a holder's own
//! member ends a hold.

use crate::{Done, keys};
use clap::Args;
use elderlock::{
    HolderInfo, InspectError, Inspection, LockService, Member, ProcessId, RevokeError, Unavailable,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The hold to ask for, and the cluster.
#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// Name of the lock service.
    service: String,
    /// Name of the lock, of the semaphore or of the leadership. Without it: the suspension of the
    /// service.
    name: Option<String>,
    /// Take it away from contacted holders that have not released it when the wait is over.
    #[arg(long)]
    force: bool,
    /// The text that the holder is told.
    #[arg(long, default_value = "elderlock revoke")]
    why: String,
    /// How long a contacted holder has to release it: 500ms, 5s, 2m.
    #[arg(long, default_value = "5s", value_parser = duration)]
    wait: Duration,
    /// Address of a running member (host:port); may be given several times, or with commas.
    #[arg(
        long = "seed",
        alias = "seeds",
        env = "ELDERLOCK_SEEDS",
        value_delimiter = ',',
        required = true
    )]
    seeds: Vec<String>,
    /// Name of their cluster.
    #[arg(long, env = "ELDERLOCK_CLUSTER", default_value = "elderlock")]
    cluster: String,
    /// Address at which the members reach this command, TCP and UDP (host:port).
    #[arg(long, default_value = "127.0.0.1:0")]
    bind: String,
    /// Listen outside the loopback without a key.
    #[arg(long, env = "ELDERLOCK_INSECURE")]
    insecure: bool,
    /// File with the cluster's key, if it has one; else the variable ELDERLOCK_KEY.
    #[arg(long, env = "ELDERLOCK_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Give up joining after this many seconds.
    #[arg(long, env = "ELDERLOCK_JOIN_SECONDS", default_value = "30")]
    join_seconds: u64,
}

/// The interval between two looks whether the holders have released the lock.
const LOOK: Duration = Duration::from_millis(50);

/// The time within which a lost grantor is replaced.
const SETTLED: Duration = Duration::from_secs(30);

/// Exit code 0 if every contacted holder released the lock or lost it, else 1.
pub(crate) async fn run(args: RevokeArgs) -> Done {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let interrupted = async {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    };
    let mut interrupted = std::pin::pin!(interrupted);
    let mut builder = Member::builder(&args.cluster)
        .bind(&args.bind)
        .seeds(&args.seeds)
        .join_limit(Duration::from_secs(args.join_seconds));
    let ring = keys::find(args.key_file.as_deref())?;
    keys::check_insecure(args.insecure, ring.as_ref())?;
    if args.insecure {
        builder = builder.insecure();
    }
    if let Some(ring) = ring {
        builder = builder.keyring(ring);
    }
    let member = tokio::select! {
        joined = builder.join() => joined?,
        () = &mut interrupted => return Ok(ExitCode::FAILURE),
    };
    let done = tokio::select! {
        done = revoke(&member, &args) => done,
        () = interrupted => Ok(ExitCode::FAILURE),
    };
    // On any result: else the others would wait for its lease to end.
    member.leave().await?;
    done
}

async fn revoke(member: &Member, args: &RevokeArgs) -> Done {
    let service = member.lock_service(&args.service).await?;
    let what = match &args.name {
        Some(name) => format!("{} of {}", name.escape_debug(), args.service.escape_debug()),
        None => format!("the suspension of {}", args.service.escape_debug()),
    };
    let ask = match &args.name {
        Some(name) => service.revoke(name),
        None => service.revoke_suspension(),
    };
    let asked = match ask.metadata(&args.why).await {
        Ok(asked) => asked,
        Err(RevokeError::NotHeld) => {
            println!("no member holds {what}");
            return Ok(ExitCode::FAILURE);
        }
        Err(RevokeError::NotRevocable(holder)) => {
            let holder = who(member, &holder);
            println!("the hold of {holder} is not revocable; no holder was contacted");
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    };
    for holder in &asked.told {
        println!(
            "{} was told that {what} is requested back: {}",
            who(member, holder),
            args.why.escape_debug()
        );
    }
    for holder in &asked.firm {
        let holder = who(member, holder);
        println!("the hold of {holder} is not revocable; it was not contacted");
    }
    if asked.more > 0 {
        println!("{} further holders were not contacted; run again", asked.more);
    }

    let mut is_over = asked.firm.is_empty() && asked.more == 0;
    let known: BTreeSet<_> = asked.told.iter().chain(&asked.firm).map(key).collect();
    let told: BTreeSet<_> = asked.told.iter().map(key).collect();
    let keep = watch(member, args, &service, asked.told, &known).await?;
    for holder in keep.into_values() {
        let whose = who(member, &holder);
        if !args.force {
            println!("{whose} still holds it after {:?}; --force takes it away", args.wait);
            is_over = false;
            continue;
        }
        match service.force_revoke(&holder).await {
            Ok(()) => println!("{whose} lost it: taken away"),
            Err(RevokeError::NotHeld) => println!("{whose} released it"),
            Err(error) => {
                println!("{whose} may still hold it: {error}");
                is_over = false;
            }
        }
    }
    let seen = at_last(args, &service).await?;
    // A share that became the lock has another token, and so has a second hold of the same process.
    let is_later = |holder: &HolderInfo| {
        told.range(..key(holder)).any(|(process, _)| *process == holder.process)
    };
    for holder in
        seen.holders.iter().filter(|holder| is_later(holder) && !known.contains(&key(holder)))
    {
        println!("{} took it meanwhile and was not contacted; run again", who(member, holder));
        is_over = false;
    }
    if seen.more_holders > 0 && asked.more == 0 {
        println!("{} further holders do not fit into the list; run again", seen.more_holders);
        is_over = false;
    }
    Ok(if is_over { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Watches the told holders until all have released it, or the time is over. Returns the holders
/// that have not, by process and token. `known`: the holders that were reported already.
async fn watch(
    member: &Member,
    args: &RevokeArgs,
    service: &LockService,
    told: Vec<HolderInfo>,
    known: &BTreeSet<(ProcessId, u64)>,
) -> Result<BTreeMap<(ProcessId, u64), HolderInfo>, InspectError> {
    let started = Instant::now();
    let mut left: BTreeMap<_, _> = told.into_iter().map(|holder| (key(&holder), holder)).collect();
    loop {
        let seen = match look(args, service).await {
            // A long list is cut: a holder that is not in it may still hold the lock.
            Ok(seen) if seen.more_holders > 0 => left.keys().copied().collect(),
            Ok(seen) => seen.holders.iter().map(key).collect(),
            // The grantor may be replaced meanwhile. Until a grantor answers, they have it.
            Err(InspectError::Undecided | InspectError::Unavailable(Unavailable::Busy)) => {
                left.keys().copied().collect::<BTreeSet<_>>()
            }
            Err(error) => return Err(error),
        };
        left.retain(|key, holder| {
            let has = seen.contains(key);
            let has_another =
                seen.range(*key..).any(|other| other.0 == key.0 && !known.contains(other));
            if !has && !has_another {
                println!("{} released it", who(member, holder));
            }
            has
        });
        if left.is_empty() || started.elapsed() >= args.wait {
            return Ok(left);
        }
        tokio::time::sleep(LOOK.min(args.wait.saturating_sub(started.elapsed()))).await;
    }
}

/// The holders, as soon as a grantor answers.
async fn at_last(args: &RevokeArgs, service: &LockService) -> Result<Inspection, InspectError> {
    let started = Instant::now();
    loop {
        match look(args, service).await {
            Err(InspectError::Undecided | InspectError::Unavailable(Unavailable::Busy))
                if started.elapsed() < SETTLED =>
            {
                tokio::time::sleep(LOOK).await;
            }
            seen => return seen,
        }
    }
}

async fn look(args: &RevokeArgs, service: &LockService) -> Result<Inspection, InspectError> {
    match &args.name {
        Some(name) => service.inspect(name).await,
        None => service.inspect_suspension().await,
    }
}

fn key(holder: &HolderInfo) -> (ProcessId, u64) {
    (holder.process, holder.token.get())
}

/// A holder as people know it: its process, where that is, its token, and its own text.
fn who(member: &Member, holder: &HolderInfo) -> String {
    let mut text = format!("process {}", holder.process);
    if let Some(view) = member.status().view
        && let Some(found) =
            view.members.iter().find(|member| member.info.process == holder.process)
    {
        text += &format!(" at {}", found.info.addr);
    }
    text += &format!(" with token {}", holder.token);
    if !holder.metadata.as_bytes().is_empty() {
        text +=
            &format!(" ({})", String::from_utf8_lossy(holder.metadata.as_bytes()).escape_debug());
    }
    text
}

/// A number with its unit; seconds without one.
fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let millis = match &text[number.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        _ => return Err("append ms, s or m to the number".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "give a whole number followed by ms, s or m".to_owned())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_number_with_its_unit() {
        for (text, millis) in
            [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("7", 7_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
        }
        for wrong in
            ["", "s", "5h", "-1s", "1.5s", "5 s", "99999999999999999999s", "9999999999999999999m"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
