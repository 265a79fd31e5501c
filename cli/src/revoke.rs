//! `elderlock revoke`: makes a member ask the holders of a lock to release it. With `--force` it
//! takes the lock away.

use crate::control_escaper::to_json;
use crate::duration::duration;
use crate::holders::{LockTarget, holder_text};
use crate::orders::{OrderTarget, give};
use crate::why::HoldLine;
use crate::{CommandResult, caller};
use clap::Args;
use elderlock::{Metadata, Order, OrderReport};
use serde::Serialize;
use serde_json::json;
use serde_json::ser::PrettyFormatter;
use std::time::Duration;

/// The lock to revoke, and the cluster.
#[derive(Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    lock: LockTarget,
    /// Take the lock away from contacted holders that have not released it when the wait is over.
    /// From holders that did not ask for it as revocable it is taken away at once. Their members
    /// have to allow that (`elderlock node --allow-forced-revokes`).
    #[arg(long)]
    force: bool,
    /// The operator, for the events of members whose locks are taken away (the user unless given).
    #[arg(long, env = "ELDERLOCK_OPERATOR")]
    operator: Option<String>,
    /// Print one JSON object when it is done.
    #[arg(long)]
    json: bool,
    /// The text that the holder is given.
    #[arg(long, default_value = "elderlock revoke")]
    why: String,
    /// How long a contacted holder has to release it: 500ms, 5s, 2m.
    #[arg(long, default_value = "5s", value_parser = duration)]
    wait: Duration,
    #[command(flatten)]
    target: OrderTarget,
}

/// Runs the command. The exit code is 0 if every holder released the lock or lost it, or no member
/// holds it; else 1.
pub(crate) async fn run(args: RevokeArgs) -> CommandResult {
    let named = args.operator.clone().filter(|name| !name.is_empty());
    let operator = named.unwrap_or_else(caller::user);
    let order = Order::Revoke {
        service: args.lock.service()?,
        name: args.lock.name()?,
        metadata: Metadata::new(args.why.as_bytes())?,
        operator: Metadata::new(operator.as_bytes())?,
        wait: args.wait,
        force: args.force,
    };
    let (mut told, mut is_complete, mut reports) = (0, None, Vec::new());
    let told_of = |_: &str, report: &OrderReport| {
        if matches!(report, OrderReport::Told(_)) {
            told += 1;
        }
        if let OrderReport::Done { complete } = report {
            is_complete = Some(*complete);
        }
        if args.json {
            reports.extend(ReportLine::new(report));
        } else if let Some(line) = line(&args, told, report) {
            println!("{line}");
        }
    };
    let code = give(&args.target, order, told_of).await?;
    if args.json && is_complete.is_some() {
        let value = json!({
            "version": 1,
            "service": args.lock.service,
            "name": args.lock.name()?.map(|name| name.to_string()),
            "reports": reports,
            "complete": is_complete,
        });
        println!("{}", to_json(&value, PrettyFormatter::new())?);
    }
    Ok(code)
}

/// A report in the JSON.
#[derive(Serialize)]
struct ReportLine {
    report: &'static str,
    holder: Option<HoldLine>,
    count: Option<u64>,
    reason: Option<String>,
}

impl ReportLine {
    fn new(report: &OrderReport) -> Option<ReportLine> {
        let (word, holder) = match report {
            OrderReport::NotHeld => ("not_held", None),
            OrderReport::More(_) => ("more", None),
            OrderReport::Told(holder) => ("told", Some(holder)),
            OrderReport::NotRevocable(holder) => ("not_revocable", Some(holder)),
            OrderReport::ForceNotAllowed(holder) => ("force_not_allowed", Some(holder)),
            OrderReport::Kept(holder) => ("kept", Some(holder)),
            OrderReport::Taken(holder) => ("taken", Some(holder)),
            OrderReport::Released(holder) => ("released", Some(holder)),
            OrderReport::Unsure(holder, _) => ("unsure", Some(holder)),
            OrderReport::Later(holder) => ("later", Some(holder)),
            _ => return None,
        };
        let count = if let OrderReport::More(count) = report { Some(*count) } else { None };
        let reason =
            if let OrderReport::Unsure(_, reason) = report { Some(reason.clone()) } else { None };
        Some(ReportLine { report: word, holder: holder.map(HoldLine::new), count, reason })
    }
}

/// A report as a line for people. `told` is the number of holders that were told before.
fn line(args: &RevokeArgs, told: usize, report: &OrderReport) -> Option<String> {
    let what = args.lock.text();
    Some(match report {
        OrderReport::NotHeld => format!("no member holds {what}"),
        OrderReport::Told(holder) => {
            let why = args.why.escape_debug();
            format!("{} was told that {what} is requested back: {why}", holder_text(holder))
        }
        OrderReport::NotRevocable(holder) if told == 0 => {
            format!("the hold of {} is not revocable; no holder was contacted", holder_text(holder))
        }
        OrderReport::NotRevocable(holder) => {
            format!("the hold of {} is not revocable; it was not contacted", holder_text(holder))
        }
        OrderReport::ForceNotAllowed(holder) => format!(
            "the hold of {} is not revocable, and its member does not allow forced revokes: \
             start it with --allow-forced-revokes",
            holder_text(holder)
        ),
        OrderReport::More(more) => {
            format!("{more} further holders were not contacted; run again")
        }
        OrderReport::Kept(holder) => {
            let wait = args.wait;
            format!("{} still holds it after {wait:?}; --force takes it away", holder_text(holder))
        }
        OrderReport::Taken(holder) => format!("{} lost it: taken away", holder_text(holder)),
        OrderReport::Released(holder) => format!("{} released it", holder_text(holder)),
        OrderReport::Unsure(holder, error) => {
            format!("{} may still hold it: {}", holder_text(holder), error.escape_debug())
        }
        OrderReport::Later(holder) => {
            format!("{} took it meanwhile and was not contacted; run again", holder_text(holder))
        }
        _ => return None,
    })
}
