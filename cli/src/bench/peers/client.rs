//! A rival's client: one process, that takes that rival's locks when it is told to.

use super::{Outcome, Rival};
use crate::Done;
use crate::bench::load::{Locker, run};
use crate::bench::message::{Load, Names, Order, Ran, Report, Window};
use crate::processes::{listen, say};
use clap::Args;
use redis::aio::MultiplexedConnection;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;
use tokio_postgres::{NoTls, Statement};
use zookeeper_client::{Acls, CreateMode, LockPrefix};

/// How the parent starts a client.
#[derive(Args)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    rival: Rival,
    #[arg(long)]
    at: SocketAddr,
}

/// Until the server answers: a Java machine takes its time to start.
const STARTING: Duration = Duration::from_secs(30);
/// Between two tries of it.
const PAUSE: Duration = Duration::from_millis(100);
/// How long locks and sessions last, where something must be said: longer than any round.
const LEASE: Duration = Duration::from_secs(120);
/// Whoever finds a lock taken in Redis tries again after that.
const POLL: Duration = Duration::from_millis(1);
/// Deletes the key if it is one's own: what Redis' manual gives for it.
const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

pub(crate) async fn serve(args: ClientArgs) -> Done {
    let (sender, mut orders) = unbounded_channel();
    listen(move |order: Result<Order, String>| drop(sender.send(order)))?;
    let until = Instant::now() + STARTING;
    let mut client = loop {
        match Client::connect(args.rival, args.at).await {
            Ok(client) => break client,
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    say(&Report::Joined(String::new()));
    while let Some(order) = orders.recv().await {
        let ran = match order {
            Ok(Order::Run { load: Load::Locks { tasks, names, timed }, window }) => {
                client.run(tasks as usize, names, window, timed).await
            }
            Ok(order) => Err(format!("no client can {order:?}").into()),
            Err(nonsense) => Err(nonsense.into()),
        };
        match ran {
            Ok(ran) => say(&Report::Ran(ran)),
            Err(error) => say(&Report::Failed(error.to_string())),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Connected to a rival.
enum Client {
    /// Such a lock belongs to a connection, so each task has one; they are kept.
    Postgresql(SocketAddr, Vec<Postgresql>),
    Redis(Redis),
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
    Zookeeper(Zookeeper),
}

impl Client {
    async fn connect(rival: Rival, at: SocketAddr) -> Outcome<Client> {
        Ok(match rival {
            Rival::Postgresql => Client::Postgresql(at, vec![Postgresql::connect(at).await?]),
            Rival::Redis => Client::Redis(Redis::connect(at).await?),
            #[cfg(feature = "etcd")]
            Rival::Etcd => Client::Etcd(Etcd::connect(at).await?),
            #[cfg(not(feature = "etcd"))]
            Rival::Etcd => return Err(super::NO_ETCD.into()),
            Rival::Zookeeper => Client::Zookeeper(Zookeeper::connect(at).await?),
        })
    }

    async fn run(&mut self, tasks: usize, names: Names, window: Window, timed: bool) -> Outcome<Ran> {
        match self {
            Client::Postgresql(at, kept) => {
                while kept.len() < tasks {
                    kept.push(Postgresql::connect(*at).await?);
                }
                run(kept[..tasks].to_vec(), names, window, timed).await
            }
            Client::Redis(locker) => run(vec![locker.clone(); tasks], names, window, timed).await,
            #[cfg(feature = "etcd")]
            Client::Etcd(locker) => run(vec![locker.clone(); tasks], names, window, timed).await,
            Client::Zookeeper(locker) => run(vec![locker.clone(); tasks], names, window, timed).await,
        }
    }
}

#[derive(Clone)]
struct Postgresql {
    client: Arc<tokio_postgres::Client>,
    lock: Statement,
    unlock: Statement,
}

impl Postgresql {
    async fn connect(at: SocketAddr) -> Outcome<Postgresql> {
        let address = format!("host={} port={} user=bench dbname=postgres", at.ip(), at.port());
        let (client, connection) = tokio_postgres::connect(&address, NoTls).await?;
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_advisory_lock(hashtextextended($1, 0))").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock(hashtextextended($1, 0))").await?;
        Ok(Postgresql { client: Arc::new(client), lock, unlock })
    }
}

impl Locker for Postgresql {
    async fn turn(&mut self, name: &str) -> Outcome<()> {
        self.client.query_one(&self.lock, &[&name]).await?;
        let held: bool = self.client.query_one(&self.unlock, &[&name]).await?.try_get(0)?;
        if held { Ok(()) } else { Err("the lock was not held".into()) }
    }
}

#[derive(Clone)]
struct Redis {
    connection: MultiplexedConnection,
    unlock: redis::Script,
    /// Tells this process' locks from others'; its tasks never want the same.
    mark: u32,
}

impl Redis {
    async fn connect(at: SocketAddr) -> Outcome<Redis> {
        let connection = redis::Client::open(format!("redis://{at}/"))?.get_multiplexed_async_connection().await?;
        Ok(Redis { connection, unlock: redis::Script::new(UNLOCK), mark: std::process::id() })
    }
}

impl Locker for Redis {
    async fn turn(&mut self, name: &str) -> Outcome<()> {
        loop {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(self.mark).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
            let set: Option<String> = set.query_async(&mut self.connection).await?;
            if set.is_some() {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        let deleted: u32 = self.unlock.key(name).arg(self.mark).invoke_async(&mut self.connection).await?;
        if deleted == 1 { Ok(()) } else { Err("the lock was not held".into()) }
    }
}

#[cfg(feature = "etcd")]
#[derive(Clone)]
struct Etcd {
    client: etcd_client::LockClient,
    lease: i64,
}

#[cfg(feature = "etcd")]
impl Etcd {
    async fn connect(at: SocketAddr) -> Outcome<Etcd> {
        let client = etcd_client::Client::connect([at.to_string()], None).await?;
        let granted = client.lease_client().grant(LEASE.as_secs() as i64, None).await?;
        let (mut keeper, mut kept) = client.lease_client().keep_alive(granted.id()).await?;
        tokio::spawn(async move {
            while keeper.keep_alive().await.is_ok() && kept.message().await.is_ok() {
                tokio::time::sleep(LEASE / 3).await;
            }
        });
        Ok(Etcd { client: client.lock_client(), lease: granted.id() })
    }
}

#[cfg(feature = "etcd")]
impl Locker for Etcd {
    async fn turn(&mut self, name: &str) -> Outcome<()> {
        let held = self.client.lock(name, Some(etcd_client::LockOptions::new().with_lease(self.lease))).await?;
        self.client.unlock(held.key()).await?;
        Ok(())
    }
}

#[derive(Clone)]
struct Zookeeper(zookeeper_client::Client);

impl Zookeeper {
    async fn connect(at: SocketAddr) -> Outcome<Zookeeper> {
        Ok(Zookeeper(zookeeper_client::Client::connect(&at.to_string()).await?))
    }
}

impl Locker for Zookeeper {
    async fn turn(&mut self, name: &str) -> Outcome<()> {
        let folder = format!("/locks/{name}");
        let parents = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = zookeeper_client::LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents)?;
        let held = self.0.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", options).await?;
        let path = held.lock_path().to_owned();
        self.0.delete(&path, None).await?;
        // It would be deleted once more, in the background: Curator's release waits for the deletion, so that was done above.
        std::mem::forget(held);
        Ok(())
    }
}
