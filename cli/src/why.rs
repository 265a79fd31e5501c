//! `elderlock why` and `held`: the holders of locks, and the requests that wait for them.

use crate::CommandResult;
use crate::control_escaper::to_json;
use crate::holders::{LockTarget, holder_text, lock, own_text, process};
use crate::orders::{OrderTarget, give};
use clap::Args;
use elderlock::{
    Circle, HoldLease, HolderInfo, HolderReport, Mode, Order, OrderReport, OwnerWait,
    ReportedBlocker, ReportedHolder, ReportedWaiter, ServiceName, WaiterReport,
};
use serde::Serialize;
use serde_json::json;
use serde_json::ser::PrettyFormatter;
use std::net::SocketAddr;
use std::process::ExitCode;

/// The lock to show, and the cluster.
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
    /// Ask each holder's member how long the lease of its hold lasts: one more question for each
    /// hold.
    #[arg(long)]
    leases: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: OrderTarget,
}

/// A hold in the JSON of these commands and of `revoke`.
#[derive(Serialize)]
pub(crate) struct HoldLine {
    name: Option<String>,
    addr: Option<SocketAddr>,
    /// Whether the holder's member has answered how much of the lease is left.
    lease_known: bool,
    /// The remaining seconds of the lease. `None` if they are unknown, or the hold has no lease.
    lease_left: Option<f64>,
    #[serde(flatten)]
    holder: HolderReport,
}

/// A request for which an owner waits, in the JSON of `why`.
#[derive(Serialize)]
struct WaitLine {
    service: String,
    name: Option<String>,
    name_count: u32,
    mode: &'static str,
}

/// A hold of the chain in the JSON of `why`.
#[derive(Serialize)]
struct ChainLine {
    depth: u64,
    wait: Option<WaitLine>,
    service: String,
    #[serde(flatten)]
    hold: HoldLine,
    circle: Option<&'static str>,
}

/// A waiter in the JSON of `why`.
#[derive(Serialize)]
struct WaiterLine {
    addr: Option<SocketAddr>,
    #[serde(flatten)]
    waiter: WaiterReport,
}

impl HoldLine {
    pub(crate) fn new(holder: &ReportedHolder) -> HoldLine {
        HoldLine {
            name: holder.info.name.as_ref().map(ToString::to_string),
            addr: holder.addr,
            lease_known: holder.lease != HoldLease::Unknown,
            lease_left: match holder.lease {
                HoldLease::Left(left) => Some(left.as_secs_f64()),
                _ => None,
            },
            holder: HolderReport::new(&holder.info, holder.member.as_ref()),
        }
    }
}

impl WaitLine {
    fn new(wait: &OwnerWait) -> WaitLine {
        WaitLine {
            service: wait.service.as_str().to_owned(),
            name: wait.name.as_ref().map(ToString::to_string),
            name_count: wait.names,
            mode: mode_word(wait.mode),
        }
    }
}

impl ChainLine {
    fn new(blocker: &ReportedBlocker) -> ChainLine {
        ChainLine {
            depth: blocker.depth,
            wait: blocker.wait.as_ref().map(WaitLine::new),
            service: blocker.service.as_str().to_owned(),
            hold: HoldLine::new(&blocker.holder),
            circle: blocker.circle.map(|circle| match circle {
                Circle::Deadlock => "deadlock",
                _ => "possible",
            }),
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
    /// The blockers of the lock: its holds, and the holds that their owners wait for.
    chain: Vec<ReportedBlocker>,
    chain_is_cut: bool,
    /// There is no such service, so only the error is printed.
    no_service: bool,
}

impl Answer {
    fn take(&mut self, report: &OrderReport) {
        match report {
            OrderReport::Holder(holder) => self.holders.push(holder.clone()),
            OrderReport::Waiter(waiter) => self.waiters.push(waiter.clone()),
            OrderReport::More(more) => self.more_holders = *more,
            OrderReport::MoreWaiters(more) => self.more_waiters = *more,
            OrderReport::Blocker(blocker) => self.chain.push((**blocker).clone()),
            OrderReport::ChainCut => self.chain_is_cut = true,
            OrderReport::NoService => self.no_service = true,
            _ => {}
        }
    }

    fn has_deadlock(&self) -> bool {
        self.chain.iter().any(|blocker| blocker.circle == Some(Circle::Deadlock))
    }

    fn holds(&self) -> Vec<HoldLine> {
        self.holders.iter().map(HoldLine::new).collect()
    }
}

/// The exit code when the holders are in a circle.
const DEADLOCK: u8 = 5;

/// Runs `why`. The exit code is 0 if the grantor answered, whether the lock is held or not. It is 5
/// if the holders are in a deadlock, or wait for one, and 4 if there is no such service.
pub(crate) async fn why(args: WhyArgs) -> CommandResult {
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
            "chain": answer.chain.iter().map(ChainLine::new).collect::<Vec<_>>(),
            "chain_complete": !answer.chain_is_cut,
            "deadlock": answer.has_deadlock(),
        });
        println!("{}", to_json(&value, PrettyFormatter::new())?);
    } else {
        print!("{}", text(&args.lock.text(), &answer));
    }
    if answer.has_deadlock() {
        return Ok(ExitCode::from(DEADLOCK));
    }
    Ok(code)
}

/// The answer as text.
fn text(what: &str, answer: &Answer) -> String {
    let mut lines = Vec::new();
    for holder in &answer.holders {
        lines.push(held_line(what, holder));
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
    lines.extend(chain_text(answer));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn held_line(what: &str, holder: &ReportedHolder) -> String {
    let lease = match holder.lease {
        HoldLease::Left(left) => format!("; its lease ends in {:.1} s", left.as_secs_f64()),
        _ => String::new(),
    };
    format!("{what} is {} by {}{lease}", held_as(&holder.info), holder_text(holder))
}

/// The holds that the holders wait for, each step indented.
fn chain_text(answer: &Answer) -> Vec<String> {
    let mut lines = Vec::new();
    let mut path: Vec<&ReportedHolder> = Vec::new();
    for blocker in &answer.chain {
        let depth = blocker.depth as usize;
        path.truncate(depth);
        if let (Some(wait), Some(waits)) = (&blocker.wait, path.last()) {
            let name = wait.name.as_ref().map(ToString::to_string);
            let more = match wait.names {
                0 | 1 => String::new(),
                names => format!(" and {} more locks", names - 1),
            };
            let wanted = lock_text(wait.service.as_str(), name.as_deref());
            let info = &waits.info;
            let at = (waits.member.as_ref(), waits.addr);
            let owner = process(info.process, at, info.owner);
            let indent = "  ".repeat(depth);
            let what = lock_text(
                blocker.service.as_str(),
                blocker.holder.info.name.as_ref().map(ToString::to_string).as_deref(),
            );
            let circle = match blocker.circle {
                Some(Circle::Deadlock) => ": deadlock",
                Some(_) => ": possible deadlock",
                None => "",
            };
            let mode = mode(wait.mode);
            lines.push(format!("{indent}{owner} waits for {mode} {wanted}{more}"));
            lines.push(format!("{indent}{}{circle}", held_line(&what, &blocker.holder)));
        }
        path.push(&blocker.holder);
    }
    if !lines.is_empty() {
        lines.insert(0, "its holders wait, too:".to_owned());
    }
    if answer.chain_is_cut {
        lines.push("the chain of waits may go on: not every question was answered".to_owned());
    }
    lines
}

/// A lock, or the suspension, by a name that is already escaped.
fn lock_text(service: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{name} of {}", service.escape_debug()),
        None => lock(service, None),
    }
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Share => "share",
        Mode::Permits(_) => "permits",
        Mode::Suspension => "suspension",
        _ => "lock",
    }
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

/// Runs `held`. The exit code is 0 if the grantor answered, whether any lock is held or not. It is
/// 4 if there is no such service.
pub(crate) async fn held(args: HeldArgs) -> CommandResult {
    let order = Order::Held { service: ServiceName::new(&args.service)?, leases: args.leases };
    let mut answer = Answer::default();
    let mut is_empty = true;
    let code = give(&args.target, order, |_, report| {
        if !args.json
            && let OrderReport::Holder(holder) = report
        {
            is_empty = false;
            let name = holder.info.name.as_ref().map(ToString::to_string);
            let what = lock(&args.service, name.as_deref());
            println!("{}", held_line(&what, holder));
        } else {
            answer.take(report);
        }
    })
    .await?;
    if args.json && !answer.no_service {
        let value = json!({ "version": 1, "service": args.service, "holds": answer.holds() });
        println!("{}", to_json(&value, PrettyFormatter::new())?);
    } else if is_empty && code == ExitCode::SUCCESS {
        println!("no member holds a lock of {}", args.service.escape_debug());
    }
    Ok(code)
}
