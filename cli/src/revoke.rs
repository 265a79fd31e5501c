//! `elderlock revoke`: has a member ask the holders of a lock to release it, and take it away with
//! `--force`.

use crate::Done;
use crate::orders::{OrderTarget, give};
use clap::Args;
use elderlock::{LockName, Metadata, Order, OrderReport, ProcessId, ReportedHolder, ServiceName};
use std::net::SocketAddr;
use std::time::Duration;

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
    #[command(flatten)]
    target: OrderTarget,
}

/// Exit code 0 if every holder released the lock or lost it, or no member holds it; else 1.
pub(crate) async fn run(args: RevokeArgs) -> Done {
    let order = Order::Revoke {
        service: ServiceName::new(&args.service)?,
        name: args.name.as_ref().map(|name| LockName::new(name.as_bytes())).transpose()?,
        metadata: Metadata::new(args.why.as_bytes())?,
        wait: args.wait,
        force: args.force,
    };
    let mut told = 0;
    let told_of = |_: &str, report: &OrderReport| {
        if matches!(report, OrderReport::Told(_)) {
            told += 1;
        }
        if let Some(line) = line(&args, told, report) {
            println!("{line}");
        }
    };
    give(&args.target, order, told_of).await
}

/// A lock, or the suspension of its service.
pub(crate) fn lock(service: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{} of {}", name.escape_debug(), service.escape_debug()),
        None => format!("the suspension of {}", service.escape_debug()),
    }
}

/// A report as people read it. `told`: the number of holders that were told before.
fn line(args: &RevokeArgs, told: usize, report: &OrderReport) -> Option<String> {
    let what = lock(&args.service, args.name.as_deref());
    Some(match report {
        OrderReport::NotHeld => format!("no member holds {what}"),
        OrderReport::Told(holder) => {
            let why = args.why.escape_debug();
            format!("{} was told that {what} is requested back: {why}", who(holder))
        }
        OrderReport::NotRevocable(holder) if told == 0 => {
            format!("the hold of {} is not revocable; no holder was contacted", who(holder))
        }
        OrderReport::NotRevocable(holder) => {
            format!("the hold of {} is not revocable; it was not contacted", who(holder))
        }
        OrderReport::More(more) => {
            format!("{more} further holders were not contacted; run again")
        }
        OrderReport::Kept(holder) => {
            let wait = args.wait;
            format!("{} still holds it after {wait:?}; --force takes it away", who(holder))
        }
        OrderReport::Taken(holder) => format!("{} lost it: taken away", who(holder)),
        OrderReport::Released(holder) => format!("{} released it", who(holder)),
        OrderReport::Unsure(holder, error) => {
            format!("{} may still hold it: {}", who(holder), error.escape_debug())
        }
        OrderReport::Later(holder) => {
            format!("{} took it meanwhile and was not contacted; run again", who(holder))
        }
        _ => return None,
    })
}

/// A holder as people know it: its process, where that is, its token, and its own text.
pub(crate) fn who(holder: &ReportedHolder) -> String {
    let ReportedHolder { info, addr, .. } = holder;
    let token = format!(" with token {}", info.token);
    process(info.process, *addr) + &token + &own_text(&info.metadata)
}

/// A process, and where it is.
pub(crate) fn process(process: ProcessId, addr: Option<SocketAddr>) -> String {
    match addr {
        Some(addr) => format!("process {process} at {addr}"),
        None => format!("process {process}"),
    }
}

/// The text that a holder or waiter gave with its request, in parentheses.
pub(crate) fn own_text(metadata: &Metadata) -> String {
    if metadata.as_bytes().is_empty() {
        return String::new();
    }
    format!(" ({})", String::from_utf8_lossy(metadata.as_bytes()).escape_debug())
}

/// A number with its unit; seconds without one.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
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
