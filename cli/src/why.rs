//! `elderlock why` and `held`: the holders of locks, and the requests that wait for them.

use crate::Done;
use crate::control_escaper::to_json;
use crate::holders::{LockTarget, holder_text, lock, own_text, process};
use crate::orders::{OrderTarget, give};
use clap::Args;
use elderlock::{
    HolderInfo, HolderReport, Mode, Order, OrderReport, ReportedHolder, ReportedWaiter,
    ServiceName, WaiterReport,
};
use serde::Serialize;
use serde_json::json;
use serde_json::ser::PrettyFormatter;
use std::net::SocketAddr;

/// The lock to ask about, and the cluster.
#[derive(Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    lock: LockTarget,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: OrderTarget,
}

/// The service to list, and the cluster.
#[derive(Args)]
pub(crate) struct HeldArgs {
    /// Name of the lock service.
    service: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: OrderTarget,
}

/// A hold in the JSON of both commands.
#[derive(Serialize)]
struct HoldLine {
    name: Option<String>,
    addr: Option<SocketAddr>,
    #[serde(flatten)]
    holder: HolderReport,
}

/// A waiter in the JSON of `why`.
#[derive(Serialize)]
struct WaiterLine {
    addr: Option<SocketAddr>,
    #[serde(flatten)]
    waiter: WaiterReport,
}

impl HoldLine {
    fn new(holder: &ReportedHolder) -> HoldLine {
        HoldLine {
            name: holder.info.name.as_ref().map(ToString::to_string),
            addr: holder.addr,
            holder: HolderReport::new(&holder.info, holder.member.as_ref()),
        }
    }
}

/// The answer of the grantor.
#[derive(Default)]
struct Answer {
    holders: Vec<ReportedHolder>,
    more_holders: u64,
    waiters: Vec<ReportedWaiter>,
    more_waiters: u64,
    /// There is no such service, so nothing is printed but the error.
    no_service: bool,
}

impl Answer {
    fn take(&mut self, report: &OrderReport) {
        match report {
            OrderReport::Holder(holder) => self.holders.push(holder.clone()),
            OrderReport::Waiter(waiter) => self.waiters.push(waiter.clone()),
            OrderReport::More(more) => self.more_holders = *more,
            OrderReport::MoreWaiters(more) => self.more_waiters = *more,
            OrderReport::NoService => self.no_service = true,
            _ => {}
        }
    }

    fn holds(&self) -> Vec<HoldLine> {
        self.holders.iter().map(HoldLine::new).collect()
    }
}

/// Exit code 0 if the grantor answered, whether the lock is held or not; 4 if there is no such
/// service.
pub(crate) async fn why(args: WhyArgs) -> Done {
    let name = args.lock.name()?;
    let order = Order::Inspect { service: args.lock.service()?, name: name.clone() };
    let mut answer = Answer::default();
    let code = give(&args.target, order, |_, report| answer.take(report)).await?;
    if answer.no_service {
        return Ok(code);
    }
    if args.json {
        let waiter = |ReportedWaiter { info, addr, member, .. }: &ReportedWaiter| WaiterLine {
            addr: *addr,
            waiter: WaiterReport::new(info, member.as_ref()),
        };
        let value = json!({
            "version": 1,
            "service": args.lock.service,
            "name": name.map(|name| name.to_string()),
            "holders": answer.holds(),
            "more_holders": answer.more_holders,
            "waiters": answer.waiters.iter().map(waiter).collect::<Vec<_>>(),
            "more_waiters": answer.more_waiters,
        });
        println!("{}", to_json(&value, PrettyFormatter::new())?);
    } else {
        print!("{}", text(&args.lock.text(), &answer));
    }
    Ok(code)
}

/// The answer as people read it.
fn text(what: &str, answer: &Answer) -> String {
    let mut lines = Vec::new();
    for holder in &answer.holders {
        lines.push(format!("{what} is {} by {}", held_as(&holder.info), holder_text(holder)));
    }
    if answer.holders.is_empty() {
        lines.push(format!("no member holds {what}"));
    }
    if answer.more_holders > 0 {
        lines.push(format!("and {} more", answer.more_holders));
    }
    for (number, ReportedWaiter { info, addr, member, .. }) in answer.waiters.iter().enumerate() {
        let mode = mode(info.mode);
        let at = (member.as_ref(), *addr);
        let waiter = process(info.process, at, info.owner) + &own_text(&info.metadata);
        lines.push(format!("{}. {waiter} waits for {mode}", number + 1));
    }
    if answer.waiters.is_empty() {
        lines.push("no request waits for it".to_owned());
    }
    if answer.more_waiters > 0 {
        lines.push(format!("and {} more", answer.more_waiters));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn held_as(info: &HolderInfo) -> String {
    let how = match info.mode {
        Mode::Share => "shared".to_owned(),
        Mode::Permits(count) => format!("held ({count} permits)"),
        _ => "held".to_owned(),
    };
    let revocable = if info.revocable { ", revocable," } else { "" };
    format!("{how} for {:.1} s{revocable}", info.held_for.as_secs_f64())
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Share => "a share".to_owned(),
        Mode::Permits(count) => format!("{count} permits"),
        Mode::Suspension => "a suspension of the service".to_owned(),
        _ => "the lock".to_owned(),
    }
}

/// Exit code 0 if the grantor answered, whether any lock is held or not; 4 if there is no such
/// service.
pub(crate) async fn held(args: HeldArgs) -> Done {
    let order = Order::Held { service: ServiceName::new(&args.service)? };
    let mut answer = Answer::default();
    let code = give(&args.target, order, |_, report| {
        if !args.json
            && let OrderReport::Holder(holder) = report
        {
            let name = holder.info.name.as_ref().map(ToString::to_string);
            let what = lock(&args.service, name.as_deref());
            println!("{what} is {} by {}", held_as(&holder.info), holder_text(holder));
        } else {
            answer.take(report);
        }
    })
    .await?;
    if args.json && !answer.no_service {
        let value = json!({ "version": 1, "service": args.service, "holds": answer.holds() });
        println!("{}", to_json(&value, PrettyFormatter::new())?);
    }
    Ok(code)
}
