//! Eight writers sell one article. One of them stops in the middle of its sale until its lease is
//! over and another writer has the lock.

use elderlock::{LockService, Member};
use elderlock_fence::Stamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) const WRITERS: usize = 8;
const STOCK: i64 = 100;

/// The lease of the writer that stops.
const LEASE: Duration = Duration::from_millis(10);

/// The time for which the writer stops if it has the row, so that the others cannot continue.
const WAIT_LIMIT: Duration = Duration::from_millis(30);

/// The limit for a connection of a pool. A busy machine may take long to make one.
pub(crate) const ACQUIRE: Duration = Duration::from_secs(120);

/// The number of rounds for each variant. An environment variable sets another number.
pub(crate) fn rounds() -> u32 {
    std::env::var("ELDERLOCK_FENCE_ROUNDS")
        .map_or(50, |text| text.parse().expect("a number of rounds"))
}

/// The form of a sale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) fenced: bool,
    /// Whether the read and the write are two transactions.
    pub(crate) split: bool,
}

/// The reason why nothing was sold.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A later holder was admitted.
    Stale,
    /// The database asks to run the whole transaction again.
    Again,
}

/// The interface of all adapters.
pub(crate) trait Shop: Send + Sync + 'static {
    /// Sets the stock of the article.
    fn fill(&self, article: &str, stock: i64) -> impl Future<Output = ()> + Send;

    /// The stock of the article.
    fn stock(&self, article: &str) -> impl Future<Output = i64> + Send;

    /// Reads the stock, waits for `pause`, and writes one piece less.
    fn sell(
        &self,
        writer: usize,
        article: &str,
        stamp: Stamp,
        plan: Plan,
        pause: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Result<(), Refused>> + Send;
}

/// Implements the shop for `Pool`, a database through `sqlx`, with the statements `FILL`, `READ`
/// and `WRITE` of the module. The closure judges a write that fails.
macro_rules! sqlx_shop {
    ($pool:ty, $failed:expr) => {
        struct Pool($pool);

        impl $crate::rounds::Shop for Pool {
            async fn fill(&self, article: &str, stock: i64) {
                sqlx::query(FILL).bind(article).bind(stock).execute(&self.0).await.unwrap();
            }

            async fn stock(&self, article: &str) -> i64 {
                sqlx::query_scalar(READ).bind(article).fetch_one(&self.0).await.unwrap()
            }

            async fn sell(
                &self,
                _: usize,
                article: &str,
                stamp: elderlock_fence::Stamp,
                plan: $crate::rounds::Plan,
                pause: impl Future<Output = ()> + Send,
            ) -> Result<(), $crate::rounds::Refused> {
                use $crate::postgres::refused;
                let failed: fn(sqlx::Error, $crate::rounds::Plan) -> $crate::rounds::Refused =
                    $failed;
                let mut tx = self.0.begin().await.unwrap();
                if plan.fenced {
                    Fence::new().admit(&mut tx, article, &stamp).await.map_err(refused)?;
                }
                let stock: i64 =
                    sqlx::query_scalar(READ).bind(article).fetch_one(&mut *tx).await.unwrap();
                if plan.split {
                    tx.commit().await.unwrap();
                    pause.await;
                    tx = self.0.begin().await.unwrap();
                    if plan.fenced {
                        Fence::new().admit(&mut tx, article, &stamp).await.map_err(refused)?;
                    }
                } else {
                    pause.await;
                }
                let write =
                    sqlx::query(WRITE).bind(stock - 1).bind(article).execute(&mut *tx).await;
                write.map_err(|error| failed(error, plan))?;
                tx.commit().await.unwrap();
                Ok(())
            }
        }
    };
}
pub(crate) use sqlx_shop;

/// The outcomes of some rounds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) rounds: u32,
    /// Rounds after which the stock does not match the sales.
    pub(crate) lost: u32,
    pub(crate) stale: u32,
    pub(crate) again: u32,
}

/// With the fence no round loses an update. Without it at least one round in a hundred does. Prints
/// the outcomes of both.
pub(crate) async fn prove(name: &str, shop: impl Shop, splits: &[bool]) {
    let shop = Arc::new(shop);
    if let Ok(sales) = std::env::var("ELDERLOCK_FENCE_COST") {
        return cost(name, &*shop, splits, sales.parse().expect("a number of sales")).await;
    }
    let member = Member::local().await.expect("a member can be made");
    let service = member.lock_service("inventory").await.expect("a service can be opened");
    let start = std::time::Instant::now();
    let mut fenced = Outcome::default();
    for number in 0..rounds() {
        let split = splits[number as usize % splits.len()];
        let article = format!("{name}-fenced-{number}");
        round(&shop, &service, &article, Plan { fenced: true, split }, &mut fenced).await;
        assert_eq!(fenced.lost, 0, "{name}: an update was lost in round {number}: {fenced:?}");
    }
    let took = start.elapsed();
    assert!(
        fenced.stale > 0,
        "{name}: no writer was ever stale, so the rounds show nothing: {fenced:?}"
    );
    let mut open = Outcome::default();
    for number in 0..100 {
        let split = splits[number as usize % splits.len()];
        let article = format!("{name}-open-{number}");
        round(&shop, &service, &article, Plan { fenced: false, split }, &mut open).await;
        if open.lost > 0 {
            break;
        }
    }
    println!("{name}: fenced {fenced:?} in {took:.1?}; unfenced {open:?}");
    assert!(
        open.lost > 0,
        "{name}: without the fence no update was lost in a hundred rounds: {open:?}"
    );
    member.leave().await.expect("a member can leave");
}

/// The cost of the fence: the time of a sale by one writer, with and without the fence by turns.
async fn cost(name: &str, shop: &impl Shop, splits: &[bool], sales: u32) {
    for &split in splits {
        let article = format!("{name}-cost-{split}");
        shop.fill(&article, i64::MAX).await;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for number in 0..sales {
            let stamp = super::stamp(1 + i64::from(number), 1);
            for (fenced, times) in [(true, &mut with), (false, &mut without)] {
                let start = std::time::Instant::now();
                shop.sell(0, &article, stamp, Plan { fenced, split }, async {})
                    .await
                    .expect("it is alone");
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let [with, without] = [with, without].map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        let what = if split { "two transactions" } else { "one transaction" };
        println!(
            "{name}: {what}: {with:.0} us with the fence, {without:.0} us without, {:.2} times",
            with / without
        );
    }
}

/// The shared state of a round's writers.
#[derive(Default)]
struct Progress {
    grants: AtomicU32,
    sold: AtomicU32,
    stale: AtomicU32,
    again: AtomicU32,
    news: Notify,
}

impl Progress {
    fn add(&self, count: &AtomicU32) {
        count.fetch_add(1, Ordering::SeqCst);
        self.news.notify_waiters();
    }

    async fn until(&self, count: &AtomicU32, least: u32) {
        let mut news = std::pin::pin!(self.news.notified());
        loop {
            news.as_mut().enable();
            if count.load(Ordering::SeqCst) >= least {
                return;
            }
            news.as_mut().await;
            news.set(self.news.notified());
        }
    }
}

async fn round(
    shop: &Arc<impl Shop>,
    service: &LockService,
    article: &str,
    plan: Plan,
    outcome: &mut Outcome,
) {
    shop.fill(article, STOCK).await;
    let progress = Arc::new(Progress::default());
    let mut writers = tokio::task::JoinSet::new();
    let stopped = service.lock(article).lease(LEASE).await.expect("the lock is free");
    progress.add(&progress.grants);
    for writer in 0..WRITERS {
        let (shop, service, article) = (shop.clone(), service.clone(), article.to_owned());
        let progress = progress.clone();
        let mut stopped = (writer == 0).then(|| service_stamp(&stopped));
        writers.spawn(async move {
            loop {
                let is_stopped = stopped.is_some();
                let guard = match is_stopped {
                    true => None,
                    false => {
                        let guard = service.lock(&article).await.expect("a lock is granted");
                        progress.add(&progress.grants);
                        Some(guard)
                    }
                };
                // A stopped process does not read the clock, so it shows its earlier stamp.
                let stamp = stopped
                    .take()
                    .or_else(|| service_stamp(guard.as_ref()?).into())
                    .expect("there is one");
                let pause = async {
                    if is_stopped {
                        progress.until(&progress.grants, 2).await;
                        let sale = progress.until(&progress.sold, 1);
                        // Between two transactions the writer has no row, so another one sells.
                        if plan.split {
                            sale.await;
                        } else {
                            let _ = tokio::time::timeout(WAIT_LIMIT, sale).await;
                        }
                    }
                };
                match shop.sell(writer, &article, stamp, plan, pause).await {
                    Ok(()) => {
                        progress.add(&progress.sold);
                        return;
                    }
                    Err(Refused::Stale) => progress.add(&progress.stale),
                    Err(Refused::Again) => progress.add(&progress.again),
                }
                if is_stopped {
                    return;
                }
            }
        });
    }
    stopped.lost().await;
    while let Some(ended) = writers.join_next().await {
        ended.expect("no writer fails");
    }
    let sold = progress.sold.load(Ordering::SeqCst);
    outcome.rounds += 1;
    outcome.lost += u32::from(shop.stock(article).await != STOCK - i64::from(sold));
    outcome.stale += progress.stale.load(Ordering::SeqCst);
    outcome.again += progress.again.load(Ordering::SeqCst);
}

fn service_stamp(guard: &elderlock::Guard) -> Stamp {
    Stamp { token: guard.token(), lineage: guard.lineage() }
}
