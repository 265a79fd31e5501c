//! A pool whose size changes while it is used. Workers at three members take one to three permits
//! each for a piece of work. The limit goes up and down meanwhile. In the end the example compares
//! every grant with the limit and the held permits at that time. It exits with code 1 if a grant
//! exceeded the limit. The example takes about six seconds. Run it with `cargo run --example
//! rate_pool`.

use elderlock::{ClusterKey, Keyring, Member, Semaphore, Token};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WORKERS: u32 = 24;
const LIMITS: [i32; 6] = [6, 12, 3, 8, 1, 10];
const EACH: Duration = Duration::from_millis(800);

/// The grants of all workers.
#[derive(Default)]
struct Book {
    /// The held permits, by the token of their grant.
    held: BTreeMap<Token, u32>,
    /// The token of each grant, with the least number of permits that were held at that time.
    grants: Vec<(Token, u32)>,
}

impl Book {
    fn granted(&mut self, token: Token, permits: u32) {
        self.held.insert(token, permits);
        // Tokens rise with the grants. So a held permit with a lower token was also held at the
        // time of this grant.
        let held = self.held.range(..=token).map(|(_, permits)| permits).sum();
        self.grants.push((token, held));
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    println!("three members, {WORKERS} workers, one pool whose limit changes every {EACH:?}");
    let ring = Keyring::new(ClusterKey::generate()?);
    let builder = || Member::builder("rate pool").bind("127.0.0.1:0").keyring(ring.clone());
    let founder = builder().found().join().await?;
    let join = || builder().seeds([founder.addr().to_string()]).join();
    let (second, third) = tokio::try_join!(join(), join())?;
    let members = [founder, second, third];

    let mut pools = Vec::new();
    for member in &members {
        let service = member.lock_service("work").await?;
        pools.push(Semaphore::open(&service, "pool", LIMITS[0] as u32).await?);
    }
    let book = Arc::new(Mutex::new(Book::default()));
    let end = Instant::now() + EACH * LIMITS.len() as u32;
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            tokio::spawn(work(
                worker,
                pools[worker as usize % pools.len()].clone(),
                book.clone(),
                end,
            ))
        })
        .collect();

    // Each limit is in force from its version on.
    let mut limits = BTreeMap::new();
    for limit in LIMITS {
        limits.insert(pools[0].limit().set(limit).await?, limit as u32);
        tokio::time::sleep(EACH / 2).await;
        let usage = pools[1].usage().await?;
        println!(
            "limit {limit:2}: {:2} permits in use, {:2} workers wait",
            usage.used, usage.waiting
        );
        tokio::time::sleep(EACH / 2).await;
    }
    for worker in workers {
        worker.await?.map_err(|error| error.to_string())?;
    }
    for member in &members {
        member.leave().await?;
    }

    let grants = std::mem::take(&mut book.lock().expect("no worker panics").grants);
    let too_much = grants.iter().filter(|(token, held)| {
        let limit = limits.range(..token).next_back().map_or(LIMITS[0] as u32, |(_, limit)| *limit);
        *held > limit
    });
    let (too_much, most) = (too_much.count(), grants.iter().map(|(_, held)| held).max());
    println!("{} grants, at most {} permits at once", grants.len(), most.unwrap_or(&0));
    if too_much > 0 || grants.is_empty() {
        println!("broken: {too_much} grants went above the limit");
        return Ok(ExitCode::FAILURE);
    }
    println!("kept: no grant went above the limit that was in force");
    Ok(ExitCode::SUCCESS)
}

/// Takes permits, works for a while, and releases them, until the end.
async fn work(
    worker: u32,
    pool: Semaphore,
    book: Arc<Mutex<Book>>,
    end: Instant,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    // A request above the limit waits until the limit is raised. So a big piece of work may have to
    // wait, but not for ever.
    let permits = 1 + worker % 3;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let guard =
            match pool.acquire(permits).wait(left).metadata(format!("worker {worker}")).await {
                Err(error) if error.is_timeout() => break,
                granted => granted?,
            };
        book.lock().expect("no worker panics").granted(guard.fence()?, permits);
        tokio::time::sleep(Duration::from_millis(u64::from(5 + worker % 7 * 5))).await;
        // The entry is removed before the permits are released: from then on others may have them.
        book.lock().expect("no worker panics").held.remove(&guard.token());
        guard.release().await?;
    }
    Ok(())
}
