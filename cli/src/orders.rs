//! `elderlock transfer`, `leave` and `force`: orders of an operator to one member.

use crate::cli_words::flags;
use crate::control_escaper::to_json;
use crate::duration::duration;
use crate::secret::SecretFile;
use crate::status::{ASK_AGAIN, AskError, first_reached, first_view, in_no_view};
use crate::{CommandResult, keys};
use clap::{Args, ValueHint};
use elderlock::{MemberInfo, Order, OrderReport, QueryError, ServiceName};
use elderlock::{SessionError, SessionGuard, SessionRequest};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The member that carries the order out.
#[derive(Args)]
pub(crate) struct OrderTarget {
    /// Address of the running member that carries it out (host:port). Given several times, or with
    /// commas: the first of them that can be reached.
    #[arg(long, env = "ELDERLOCK_AT", value_delimiter = ',', required = true)]
    at: Vec<String>,
    /// Name of its cluster.
    #[arg(long, env = "ELDERLOCK_CLUSTER", default_value = "elderlock")]
    cluster: String,
    /// File with the operator key or the cluster key, if the cluster has one. Without this flag the
    /// variable ELDERLOCK_KEY may hold the key itself.
    #[arg(long, env = "ELDERLOCK_KEY_FILE", value_hint = ValueHint::FilePath)]
    key_file: Option<SecretFile>,
}

/// The service to transfer, and its next grantor.
#[derive(Args)]
pub(crate) struct TransferArgs {
    /// Name of the lock service.
    service: String,
    /// The member that becomes the grantor: its name, its address, or the first digits of its
    /// process id. Unless given: the member that is asked.
    #[arg(long, value_name = "MEMBER")]
    to: Option<String>,
    /// How long the transfer may take: 500ms, 5s, 2m.
    #[arg(long, default_value = "30s", value_parser = duration)]
    wait: Duration,
    /// Print one JSON object when it is done.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: OrderTarget,
}

/// The member of an order, and the form of the answer.
#[derive(Args)]
pub(crate) struct MemberOrderArgs {
    /// Print one JSON object when it is done.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: OrderTarget,
}

impl OrderTarget {
    /// The single member of the view that this text names.
    async fn member(&self, member: &str) -> Result<MemberInfo, Box<dyn std::error::Error>> {
        let ring = keys::find(self.key_file.as_ref())?;
        let view = first_view(&self.at, &self.cluster, ring.as_ref()).await?;
        Ok(named(member, view.members.iter().map(|member| &member.info))?.clone())
    }

    /// Holds a lock through the first member that can be reached. That member may still be joining,
    /// or may die or leave before the grant. The next one of the list then takes the request, at
    /// the end of the queue. `Ok(Err)` is the reason why the lock was not granted.
    pub(crate) async fn hold(
        &self,
        request: SessionRequest,
    ) -> Result<Result<SessionGuard, String>, Box<dyn std::error::Error>> {
        let ring = keys::find(self.key_file.as_ref())?;
        let began = Instant::now();
        let limit = request.wait;
        let mut request = request;
        let mut last: Result<String, Box<dyn std::error::Error>> =
            Err("no address is given".into());
        let mut remedy = "";
        for (number, at) in self.at.iter().enumerate() {
            request.wait = limit.map(|limit| limit.saturating_sub(began.elapsed()));
            let held = match &ring {
                Some(ring) => {
                    elderlock::hold_through_with(at, &self.cluster, ring, request.clone()).await
                }
                None => elderlock::hold_through(at, &self.cluster, request.clone()).await,
            };
            remedy = "";
            match held {
                Ok(guard) => return Ok(Ok(guard)),
                Err(SessionError::NotGranted { reason }) => return Ok(Err(reason)),
                Err(SessionError::MemberLeaves) => {
                    last = Ok(format!("not granted: the member at {at} leaves its cluster"));
                    remedy = ": give the address of another member with --at";
                }
                Err(SessionError::MemberFull) => {
                    let at = at.escape_debug();
                    last = Ok(format!(
                        "not granted: the member at {at} holds locks for as many programs as it may"
                    ));
                    remedy = ": ask again later, or give the address of another member with --at";
                }
                Err(SessionError::MemberJoins) => {
                    last = Err(in_no_view(at).into());
                    remedy = ASK_AGAIN;
                }
                Err(SessionError::Query(
                    error @ (QueryError::Unreachable { .. }
                    | QueryError::TimedOut { .. }
                    | QueryError::Closed { .. }),
                )) => last = Err(error.into()),
                Err(error) => return Err(flags(error.to_string()).into()),
            }
            if let Some(next) = self.at.get(number + 1) {
                let error = last.as_ref().map_or_else(ToString::to_string, Clone::clone);
                let (error, next) = (error.escape_debug(), next.escape_debug());
                eprintln!("elderlock: {error}; trying {next}, at the end of the queue");
            }
        }
        match last {
            Ok(left) => Ok(Err(left + remedy)),
            Err(error) if remedy.is_empty() => Err(error),
            Err(error) => Err(format!("{error}{remedy}").into()),
        }
    }
}

/// The member with this name or address, or whose process id begins with this text.
fn named<'a>(
    text: &str,
    members: impl Iterator<Item = &'a MemberInfo> + Clone,
) -> Result<&'a MemberInfo, String> {
    let is_it = |info: &&MemberInfo| {
        let process = format!("{:032x}", info.process.0);
        info.name.as_str() == text || info.addr.to_string() == text || process.starts_with(text)
    };
    let list = |members: Vec<&MemberInfo>| {
        let lines = members.iter().map(|MemberInfo { process, addr, name, .. }| {
            format!("{} ({addr}, process {process})", name.as_str().escape_debug())
        });
        lines.collect::<Vec<_>>().join(", ")
    };
    let found: Vec<&MemberInfo> = members.clone().filter(is_it).collect();
    let text = text.escape_debug();
    match found[..] {
        [info] => Ok(info),
        [] => Err(format!("no member is named {text}; members: {}", list(members.collect()))),
        _ => Err(format!("{text} names several members: {}", list(found))),
    }
}

/// The exit code when no member uses the service.
const NO_SERVICE: u8 = 4;

/// Gives the order. Passes each report to `tell`, with the address of the member that carries the
/// order out. The exit code is 0 if all of it was done, 4 if there is no such service, else 1.
pub(crate) async fn give(
    target: &OrderTarget,
    order: Order,
    mut tell: impl FnMut(&str, &OrderReport),
) -> CommandResult {
    let ring = keys::find(target.key_file.as_ref())?;
    let (ring, cluster) = (ring.as_ref(), target.cluster.as_str());
    // Repeating these orders at another member is safe. `Leave`, `Force` and `Transfer` are not
    // repeated: the first member may still carry them out.
    let may_repeat =
        matches!(order, Order::Revoke { .. } | Order::Inspect { .. } | Order::Held { .. });
    let ask = |at| {
        let order = order.clone();
        async move {
            let mut reports = match ring {
                Some(ring) => elderlock::give_order_with(at, cluster, ring, order).await?,
                None => elderlock::give_order(at, cluster, order).await?,
            };
            match reports.next().await {
                Ok(Some(OrderReport::Failed(reason))) if reason == OrderReport::JOINS => {
                    Err(AskError::Joins)
                }
                Err(error) if may_repeat => Err(error.into()),
                // From here on the member may carry the order out, so no other member is asked.
                first => Ok((first, reports)),
            }
        }
    };
    let (at, (mut report, mut reports)) = first_reached(&target.at, ask).await?;
    while let Some(told) = report? {
        tell(at, &told);
        match told {
            OrderReport::Done { complete: true } => return Ok(ExitCode::SUCCESS),
            OrderReport::Done { complete: false } => return Ok(ExitCode::FAILURE),
            OrderReport::NoService => {
                eprintln!("elderlock: {}", no_service(&order));
                return Ok(ExitCode::from(NO_SERVICE));
            }
            OrderReport::Failed(reason) => return Err(reason.escape_debug().to_string().into()),
            _ => {}
        }
        report = reports.next().await;
    }
    Err("the member ended the connection before the order was done".into())
}

fn no_service(order: &Order) -> String {
    let name = order
        .service()
        .map_or("that name".to_owned(), |service| service.as_str().escape_debug().to_string());
    format!("there is no service {name}: no member uses it")
}

/// Gives an order and prints the result at its end: one JSON object, or the text of `text`. That
/// function gets the text for the member and whether all of it was done.
async fn give_and_print(
    target: &OrderTarget,
    order: Order,
    json: bool,
    text: impl Fn(&str, bool) -> String,
) -> CommandResult {
    let service = order.service().map(|service| service.as_str().to_owned());
    let mut outcome = OutcomeJson { version: 1, service, ..OutcomeJson::default() };
    let code = give(target, order, |at, report| match report {
        OrderReport::CarriedOutBy { member, process, addr } => {
            outcome.member = Some(member.to_string());
            outcome.process = Some(format!("{:032x}", process.0));
            outcome.addr = addr.to_string();
        }
        OrderReport::Done { complete } => {
            outcome.complete = Some(*complete);
            if outcome.addr.is_empty() {
                outcome.addr = at.to_owned();
            }
        }
        _ => {}
    })
    .await?;
    match outcome.complete {
        Some(_) if json => println!("{}", to_json(&outcome, PrettyFormatter::new())?),
        Some(complete) => {
            let by = match &outcome.member {
                Some(name) => format!("member {name} ({})", outcome.addr),
                None => format!("the member at {}", outcome.addr),
            };
            println!("{}", text(&by, complete));
        }
        None => {}
    }
    Ok(code)
}

/// The JSON of the commands of this module.
#[derive(Default, Serialize)]
struct OutcomeJson {
    version: u32,
    /// The transferred service.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// The name of the member that carried out the order. A member of the release before tells
    /// neither its name nor its process.
    member: Option<String>,
    process: Option<String>,
    /// Its address. If it does not tell its name, the address that was asked.
    addr: String,
    complete: Option<bool>,
}

/// Runs `transfer`. The exit code is 0 if the member is the grantor, 4 if there is no such service.
pub(crate) async fn transfer(args: TransferArgs) -> CommandResult {
    let service = ServiceName::new(&args.service)?;
    let order = Order::Transfer { service, wait: args.wait };
    let order = match &args.to {
        Some(member) => {
            let to = args.target.member(member).await?;
            Order::PassOn { to: to.process, order: Box::new(order) }
        }
        None => order,
    };
    let service = args.service.escape_debug();
    let text = |by: &str, _| format!("{by} is the grantor of {service}");
    give_and_print(&args.target, order, args.json, text).await
}

/// Runs `leave`. The exit code is 0 if another member confirmed the leave, else 1.
pub(crate) async fn leave(args: MemberOrderArgs) -> CommandResult {
    give_and_print(&args.target, Order::Leave, args.json, |by, complete| match complete {
        true => format!("{by} has left"),
        false => format!("{by} has left, and no other member confirmed it"),
    })
    .await
}

/// Runs `force`. The exit code is 0 if the member continues.
pub(crate) async fn force(args: MemberOrderArgs) -> CommandResult {
    give_and_print(&args.target, Order::Force, args.json, |by, _| {
        format!("{by} goes on without a quorum, as a new lineage")
    })
    .await
}
