//! `elderlock revoke`: has a member ask the holders of a lock to release it, and take it away with
//! `--force`.

use crate::Done;
use crate::duration::duration;
use crate::holders::{LockTarget, holder_text};
use crate::orders::{OrderTarget, give};
use clap::Args;
use elderlock::{Metadata, Order, OrderReport};
use std::time::Duration;

/// The hold to ask for, and the cluster.
#[derive(Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    lock: LockTarget,
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
        service: args.lock.service()?,
        name: args.lock.name()?,
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

/// A report as people read it. `told`: the number of holders that were told before.
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
