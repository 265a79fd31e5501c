//! A member of the bench: one real process, that does what the parent orders and says when.

use super::clock;
use super::message::{Event, Holdings, Order, Place, Report};
use crate::Done;
use crate::processes::{listen, say};
use clap::Args;
use elderlock::{Events, Guard, LockService, Member, MemberEvent};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{JoinHandle, JoinSet};

/// How the parent starts a member.
#[derive(Args)]
pub(crate) struct MemberArgs {
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long)]
    seed: SocketAddr,
}

/// Longer than anything may take: a request that waits so long has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// Locks that are asked for at the same time while many are taken.
const AT_ONCE: u32 = 64;
/// From one probe to the next: enough to see a gap of a few milliseconds, and little enough not to be one more load
/// that is measured.
const BETWEEN_PROBES: Duration = Duration::from_millis(1);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Probes = JoinHandle<Outcome<Vec<(u64, u64)>>>;

/// A member with what it holds.
struct Desk {
    member: Member,
    service: LockService,
    guards: Vec<Guard>,
    queues: Vec<Guard>,
    probing: Option<(Arc<AtomicBool>, Probes)>,
}

pub(crate) async fn serve(args: MemberArgs) -> Done {
    let (sender, mut orders) = unbounded_channel();
    // Fails when the other end is gone, and with it the process.
    listen(move |order: Result<Order, String>| drop(sender.send(order)))?;
    let (bind, seed) = (args.bind.to_string(), args.seed.to_string());
    let member = Member::builder("elderlock-bench").bind(bind).seeds([seed]).join_limit(LIMIT).join().await?;
    tokio::spawn(tell(member.events()));
    say(&Report::Joined(format!("{:032x}", member.process().0)));
    let service = member.lock_service("bench").await?;
    let mut desk = Desk { member, service, guards: Vec::new(), queues: Vec::new(), probing: None };
    while let Some(order) = orders.recv().await {
        let leaves = order == Ok(Order::Leave);
        let report = match order {
            Ok(order) => desk.obey(order).await,
            Err(nonsense) => Err(nonsense.into()),
        };
        match report {
            Ok(Some(report)) => say(&report),
            Ok(None) => {}
            Err(error) => say(&Report::Failed(error.to_string())),
        }
        if leaves {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells the parent what happens to the member.
async fn tell(mut events: Events) {
    while let Some(event) = events.next().await {
        let at = clock::now();
        let event = match event {
            MemberEvent::ViewInstalled(view) => {
                Event::View(view.members.iter().map(|member| format!("{:032x}", member.info.process.0)).collect())
            }
            MemberEvent::BecameGrantor { .. } => Event::BecameGrantor,
            MemberEvent::Suspended | MemberEvent::Lost | MemberEvent::Missed { .. } => {
                say(&Report::Failed(format!("{event:?}")));
                continue;
            }
            _ => continue,
        };
        say(&Report::Event { at, event });
    }
}

impl Desk {
    async fn obey(&mut self, order: Order) -> Outcome<Option<Report>> {
        Ok(Some(match order {
            Order::Hold { first, count } => {
                self.hold(first, count).await?;
                Report::Holding(self.count()?)
            }
            Order::Count => Report::Holding(self.count()?),
            Order::HoldQueues(queues) => {
                for queue in 0..queues {
                    self.queues.push(self.service.lock(queue_name(queue)).wait(LIMIT).await?);
                }
                Report::Done
            }
            Order::FreeQueues => {
                for guard in self.queues.drain(..) {
                    guard.release().await?;
                }
                Report::Done
            }
            Order::Wait(places) => {
                let service = self.service.clone();
                tokio::spawn(async move {
                    match wait(service, places).await {
                        Ok(served) => say(&Report::Served(served)),
                        Err(error) => say(&Report::Failed(format!("a wait failed: {error}"))),
                    }
                });
                return Ok(None);
            }
            Order::Look(queues) => self.look(queues).await?,
            Order::Probe => {
                let stop = Arc::new(AtomicBool::new(false));
                self.probing = Some((stop.clone(), tokio::spawn(probe(self.service.clone(), stop))));
                Report::Done
            }
            Order::Rest => {
                let (stop, probes) = self.probing.take().ok_or("there is no probe")?;
                stop.store(true, Ordering::Relaxed);
                Report::Probed(probes.await?.map_err(|error| format!("a probe failed: {error}"))?)
            }
            Order::Become => {
                let from = clock::now();
                self.service.become_grantor().wait(LIMIT).await?;
                let to = clock::now();
                if !self.service.is_grantor() {
                    return Err("said to be the grantor, and is not".into());
                }
                Report::Did { from, to }
            }
            Order::Leave => {
                let from = clock::now();
                self.member.leave().await?;
                Report::Did { from, to: clock::now() }
            }
        }))
    }

    async fn hold(&mut self, first: u32, count: u32) -> Outcome<()> {
        let mut takers = JoinSet::new();
        for taker in 0..AT_ONCE {
            let service = self.service.clone();
            takers.spawn(async move {
                let mut guards = Vec::new();
                for number in (first..first + count).skip(taker as usize).step_by(AT_ONCE as usize) {
                    guards.push(service.lock(held_name(number)).wait(LIMIT).await?);
                }
                Outcome::Ok(guards)
            });
        }
        while let Some(guards) = takers.join_next().await {
            self.guards.extend(guards??);
        }
        Ok(())
    }

    /// What is held, if all of it is.
    fn count(&self) -> Outcome<Holdings> {
        let mut holdings = Holdings::default();
        for guard in &self.guards {
            holdings.add(guard.fence().map_err(|lost| format!("a hold was lost: {lost}"))?.as_i64());
        }
        Ok(holdings)
    }

    async fn look(&self, queues: u32) -> Outcome<Report> {
        let mut holdings = Holdings::default();
        let mut held = self.service.held();
        while let Some(holder) = held.next().await? {
            if holder.name.is_some_and(|name| name.as_bytes().starts_with(HELD.as_bytes())) {
                holdings.add(holder.token.as_i64());
            }
        }
        let mut waiting = Vec::new();
        for queue in 0..queues {
            let seen = self.service.inspect(queue_name(queue)).await?;
            let number = |metadata: &[u8]| Some(u32::from_le_bytes(metadata.try_into().ok()?));
            waiting.push(seen.waiters.iter().filter_map(|waiter| number(waiter.metadata.as_bytes())).collect());
        }
        Ok(Report::Seen { holdings, queues: waiting })
    }
}

/// Waits in all these places at the same time.
async fn wait(service: LockService, places: Vec<Place>) -> Outcome<Vec<(Place, i64)>> {
    let mut waiters = JoinSet::new();
    for place in places {
        let service = service.clone();
        waiters.spawn(async move {
            let name = queue_name(place.queue);
            let guard = service.lock(name).metadata(place.waiter.to_le_bytes()).wait(LIMIT).await?;
            let token = guard.fence()?.as_i64();
            guard.release().await?;
            Outcome::Ok((place, token))
        });
    }
    let mut served = Vec::new();
    while let Some(one) = waiters.join_next().await {
        served.push(one??);
    }
    Ok(served)
}

/// Takes and gives back locks that nobody else wants.
async fn probe(service: LockService, stop: Arc<AtomicBool>) -> Outcome<Vec<(u64, u64)>> {
    let mut probes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("probe-{}", probes.len());
        let from = clock::now();
        let guard = service.lock(name).wait(LIMIT).await?;
        let to = clock::now();
        guard.release().await?;
        probes.push((from, to));
        tokio::time::sleep(BETWEEN_PROBES).await;
    }
    Ok(probes)
}

/// How the names of held locks begin.
const HELD: &str = "held-";

fn held_name(number: u32) -> String {
    format!("{HELD}{number:06}")
}

fn queue_name(number: u32) -> String {
    format!("queue-{number}")
}
