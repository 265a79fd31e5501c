//! A worker: one real process that embeds the library and sells.
//!
//! A worker has one task for each article. So each article's queue has a waiter from each worker,
//! and each death leaves waiters behind. Workers know nothing of the demo's plan: they sell, and
//! follow the parent's orders.

use super::message::{ClusterSnapshot, WorkerOrder, WorkerReport};
use super::shop::{Audit, Fence, Shop, WriteResult};
use crate::CommandResult;
use crate::processes::{listen, send_report};
use clap::Args;
use elderlock::{Guard, Keyring, LockService, Member, ProcessId, Timing, View};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;

/// The arguments with which the parent starts a worker.
#[derive(Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    index: u32,
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long = "seed-address")]
    seeds: Vec<SocketAddr>,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    key_file: PathBuf,
    #[arg(long)]
    articles: u32,
    #[arg(long)]
    chance: u64,
    #[arg(long)]
    no_lock: bool,
    #[arg(long)]
    no_fence: bool,
}

/// Name of the cluster.
const CLUSTER: &str = "elderlock-demo";
/// Name of the one lock service.
const SERVICE: &str = "stock";
/// The time for which a task waits for a lock before it asks again.
const WAIT: Duration = Duration::from_secs(5);
/// The lock lease of a task; a sale takes milliseconds. The pause lasts longer than the lease.
const LEASE: Duration = Duration::from_secs(2);
/// The time between a worker's two counts.
const COUNTING: Duration = Duration::from_millis(300);
/// The owner that suspends the service. The tasks of articles have higher numbers.
const OFFICE: u64 = 1;
/// The interval at which a worker reads the state of the cluster.
const LOOK: Duration = Duration::from_millis(20);
/// The thought between the two transactions of a sale, in microseconds.
const THINK: std::ops::Range<u64> = 2_000..6_000;

/// The present work of the tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WorkPhase {
    Resting,
    Selling,
    Finishing,
}

/// The parent's orders.
struct Orders {
    phase: watch::Sender<WorkPhase>,
    stand: AtomicBool,
    go: Notify,
    become_grantor: Notify,
    count: Notify,
}

impl Orders {
    fn follow(&self, order: WorkerOrder) {
        match order {
            WorkerOrder::Open => drop(self.phase.send_replace(WorkPhase::Selling)),
            WorkerOrder::Rest => drop(self.phase.send_replace(WorkPhase::Resting)),
            WorkerOrder::Finish => drop(self.phase.send_replace(WorkPhase::Finishing)),
            WorkerOrder::Stand => self.stand.store(true, Ordering::SeqCst),
            WorkerOrder::Go => self.go.notify_one(),
            WorkerOrder::Become => self.become_grantor.notify_one(),
            WorkerOrder::Count => self.count.notify_one(),
        }
    }
}

/// The state that all tasks of a worker share.
struct Store {
    index: u32,
    member: Member,
    orders: Arc<Orders>,
    shop: Arc<Mutex<Shop>>,
    locking: bool,
    /// The number of tasks that ask for a lock or hold one.
    busy: AtomicUsize,
}

pub(crate) async fn work(args: WorkerArgs) -> CommandResult {
    let orders = Arc::new(Orders {
        phase: watch::Sender::new(WorkPhase::Resting),
        stand: AtomicBool::new(false),
        go: Notify::new(),
        become_grantor: Notify::new(),
        count: Notify::new(),
    });
    let followed = orders.clone();
    listen(move |order| match order {
        Ok(order) => followed.follow(order),
        Err(trouble) => send_report(&WorkerReport::Trouble(trouble)),
    })?;
    let shop = Shop::open(&args.file, !args.no_fence)?;
    let member = Member::builder(CLUSTER)
        .bind(args.bind.to_string())
        .seeds(args.seeds.iter().map(SocketAddr::to_string))
        .keyring(Keyring::read_file(&args.key_file)?)
        .timing(Timing::fast())
        .join_limit(Duration::from_secs(20))
        .join()
        .await?;
    let shop = Arc::new(Mutex::new(shop));
    let store = Arc::new(Store {
        index: args.index,
        member,
        orders,
        shop,
        locking: !args.no_lock,
        busy: AtomicUsize::new(0),
    });
    let look = tokio::spawn(look_around(store.clone()));

    let mut phase = store.orders.phase.subscribe();
    phase.wait_for(|phase| *phase != WorkPhase::Resting).await?;
    let service = store.member.lock_service(SERVICE).await?;
    let mut sellers = JoinSet::new();
    for article in 0..args.articles {
        let chance = StdRng::seed_from_u64(args.chance ^ u64::from(article) << 32);
        sellers.spawn(sell_article(store.clone(), service.clone(), article, chance));
    }
    let office = tokio::spawn(office(store.clone(), service.clone()));
    while let Some(ended) = sellers.join_next().await {
        ended?;
    }
    office.abort();
    look.abort();
    // At the end all workers leave at once, and the last ones may find no member to confirm it.
    // Their sales are in the books, which are audited.
    if let Err(unheard) = store.member.leave().await {
        eprintln!("elderlock: {unheard}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The task of one article. It sells the article again and again.
async fn sell_article(store: Arc<Store>, service: LockService, article: u32, mut chance: StdRng) {
    let mut phase = store.orders.phase.subscribe();
    loop {
        let now = *phase.borrow_and_update();
        match now {
            WorkPhase::Finishing => return,
            WorkPhase::Resting => {
                // The call fails when the store is closed: then there is nothing left to sell.
                if phase.changed().await.is_err() {
                    return;
                }
            }
            WorkPhase::Selling => {
                store.busy.fetch_add(1, Ordering::SeqCst);
                let hold = tokio::select! {
                    hold = store.hold(&service, article) => hold,
                    // Dropping the future cancels a wait that is no longer needed.
                    () = ended(&mut phase) => Hold::Denied,
                };
                let sold = store.sell(hold, article, &mut chance).await;
                store.busy.fetch_sub(1, Ordering::SeqCst);
                if let Err(trouble) = sold {
                    send_report(&WorkerReport::Trouble(format!("article {article}: {trouble}")));
                }
            }
        }
    }
}

/// Completes when selling has ended, for now or for good.
async fn ended(phase: &mut watch::Receiver<WorkPhase>) {
    // The call fails when the store is closed, which also ends selling.
    let _ = phase.wait_for(|phase| *phase != WorkPhase::Selling).await;
}

/// Does the work on the service as a whole.
async fn office(store: Arc<Store>, service: LockService) {
    loop {
        let done = tokio::select! {
            () = store.orders.become_grantor.notified() => store.become_grantor(&service).await,
            () = store.orders.count.notified() => store.count(&service).await,
        };
        send_report(&done.unwrap_or_else(|error| WorkerReport::Failed(error.to_string())));
    }
}

/// The permission to sell.
enum Hold {
    /// A fenced lock.
    Lock(Guard),
    /// The permission to sell without a lock (`--no-lock`).
    Nothing,
    /// The lock was not granted this time.
    Denied,
}

impl Hold {
    /// The fence for the write, if the hold is not lost.
    fn fence(&self) -> Option<Fence> {
        match self {
            Hold::Lock(guard) => {
                let token = guard.fence().ok()?.as_i64();
                Some(Fence { token, lineage: guard.lineage().as_i64() })
            }
            Hold::Nothing => Some(Fence::default()),
            Hold::Denied => None,
        }
    }
}

impl Store {
    async fn hold(&self, service: &LockService, article: u32) -> Hold {
        if !self.locking {
            return Hold::Nothing;
        }
        let name = format!("article-{article}");
        let metadata = format!("worker {}", self.index);
        let owner = OFFICE + 1 + u64::from(article);
        match service
            .lock(&name)
            .owner(owner)
            .wait(WAIT)
            .lease(LEASE)
            .metadata(metadata.as_bytes())
            .await
        {
            Ok(guard) => Hold::Lock(guard),
            Err(error) => {
                // The wait ended in a long fail-over, or this process was expelled and joins again:
                // ask again soon.
                send_report(&WorkerReport::Unserved(format!("article {article}: {error}")));
                tokio::time::sleep(LOOK).await;
                Hold::Denied
            }
        }
    }

    /// Sells one piece.
    async fn sell(
        &self,
        hold: Hold,
        article: u32,
        chance: &mut StdRng,
    ) -> Result<(), Box<dyn std::error::Error>> {
        if matches!(hold, Hold::Denied) {
            return Ok(());
        }
        let shop = self.shop.clone().lock_owned().await;
        let stock = tokio::task::spawn_blocking(move || shop.stock(article)).await??;
        if stock <= 0 {
            return Err("sold out".into());
        }
        tokio::time::sleep(Duration::from_micros(chance.random_range(THINK))).await;

        // The connection to the books is taken before `fence()`, so that only the write follows it.
        // A process that is stopped in between leaves no open transaction, which would block the
        // other workers.
        let mut shop = self.shop.clone().lock_owned().await;
        let Some(fence) = hold.fence() else {
            send_report(&WorkerReport::Unserved(format!("article {article}: the lock was lost")));
            return Ok(());
        };
        let token = fence.token;
        if self.orders.stand.swap(false, Ordering::SeqCst) {
            send_report(&WorkerReport::Standing { article, token, sight: self.sight() });
            self.orders.go.notified().await;
        }
        let worker = self.index;
        let written =
            tokio::task::spawn_blocking(move || shop.sell(article, stock, worker, fence)).await??;
        send_report(&match written {
            WriteResult::Sold => WorkerReport::Sale { article, token },
            WriteResult::Refused => WorkerReport::Refused { article, token },
        });
        if let Hold::Lock(guard) = hold {
            // An error means that the hold was lost before. The table has already judged the write
            // by its token.
            let _ = guard.release().await;
        }
        Ok(())
    }

    async fn become_grantor(
        &self,
        service: &LockService,
    ) -> Result<WorkerReport, Box<dyn std::error::Error + Send + Sync>> {
        service.become_grantor().wait(WAIT).await?;
        if !service.is_grantor() {
            return Err("said to be the grantor, and is not".into());
        }
        Ok(WorkerReport::Became(self.sight()))
    }

    /// Counts twice, with time in between in which unblocked tasks would sell. The tasks of this
    /// worker have owners of their own and wait like all others.
    async fn count(
        &self,
        service: &LockService,
    ) -> Result<WorkerReport, Box<dyn std::error::Error + Send + Sync>> {
        let begun = Instant::now();
        let suspended =
            service.suspend().owner(OFFICE).reason("stock-taking").wait(WAIT).lease(LEASE).await?;
        let waited = begun.elapsed();
        let (before, after) = suspended
            .protect(async {
                let before = self.audit().await?;
                tokio::time::sleep(COUNTING).await;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>((before, self.audit().await?))
            })
            .await??;
        suspended.resume().await?;
        Ok(WorkerReport::Counted {
            before: before.sales,
            after: after.sales,
            missing: after.oversold,
            waited_milliseconds: waited.as_micros() as f64 / 1e3,
        })
    }

    async fn audit(&self) -> Result<Audit, Box<dyn std::error::Error + Send + Sync>> {
        let shop = self.shop.clone().lock_owned().await;
        Ok(tokio::task::spawn_blocking(move || shop.audit()).await??)
    }

    fn sight(&self) -> ClusterSnapshot {
        let status = self.member.status();
        let view = status.view.as_ref();
        let service = status.services.iter().find(|service| service.service.as_str() == SERVICE);
        let number = |process: ProcessId| format!("{:032x}", process.0);
        ClusterSnapshot {
            me: number(status.me.process),
            view: view.map_or(0, |view| view.number.0),
            members: view
                .into_iter()
                .flat_map(View::living)
                .map(|member| number(member.info.process))
                .collect(),
            ghosts: view.map_or(0, |view| view.members.len() - view.living().count()),
            elder: status.elder.map(number),
            grantor: service.and_then(|service| service.grantor).map(number),
            leased: status.leased,
            idle: self.busy.load(Ordering::SeqCst) == 0,
        }
    }
}

/// Reports this worker's snapshot of the cluster to the parent when it changes.
async fn look_around(store: Arc<Store>) {
    let mut last = None;
    loop {
        let sight = store.sight();
        if last.as_ref() != Some(&sight) {
            send_report(&WorkerReport::Sees(sight.clone()));
            last = Some(sight);
        }
        tokio::time::sleep(LOOK).await;
    }
}
