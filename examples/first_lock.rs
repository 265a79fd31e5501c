//! The shortest program that takes a fenced lock: a cluster of one, here. Run it with
//! `cargo run --example first_lock`.

use elderlock::{ClusterKey, Keyring, Member};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = "127.0.0.1:7400";
    // Each process names the same seeds and has the same key, mostly from `Keyring::read_file`.
    let ring = Keyring::new(ClusterKey::generate()?);
    let member = Member::builder("shop").bind(here).seeds([here]).keyring(ring).join().await?;
    let stock = member.lock_service("inventory").await?;

    let (wait, lease) = (Duration::from_secs(2), Duration::from_secs(10));
    let guard = stock.lock("sku-42").wait(wait).lease(lease).await?;
    // Write with the token and its lineage; `elderlock-fence` refuses stale ones where you write.
    println!("sku-42 is mine, token {}, lineage {}", guard.fence()?.as_i64(), guard.lineage());
    guard.release().await?;

    member.leave().await?;
    Ok(())
}
