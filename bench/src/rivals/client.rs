//! A client of another lock service: a process that takes that service's locks on order.

use super::Rival;
use super::etcd::Etcd;
use crate::CommandResult;
use crate::clock;
use crate::load::{Locker, Outcome, run};
use crate::message::{
    BenchOrder, BenchReport, Load, LoadResult, Names, QueuedWaiter, Served, Window,
};
use crate::processes::{listen, send_report};
use clap::Args;
use redis::aio::MultiplexedConnection;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;
use tokio_postgres::{NoTls, Statement};
use zookeeper_client::{Acls, CreateMode, LockOptions, LockPrefix};

/// The arguments with which the parent starts a client.
#[derive(Args)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    rival: Rival,
    #[arg(long)]
    at: SocketAddr,
}

/// The time for which locks and sessions outlive their process. It is the least that ZooKeeper
/// grants by default, two of its ticks.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// The longest time until the server answers: a Java machine starts slowly.
const STARTING: Duration = Duration::from_secs(30);
/// The pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause after which a client that finds a lock taken in Redis tries again.
const POLL: Duration = Duration::from_millis(1);
/// Deletes the key if it is the client's own. The script is from Redis' manual.
const UNLOCK: &str = "if redis.call('get', KEYS[1]) == ARGV[1] \
    then return redis.call('del', KEYS[1]) else return 0 end";
/// The lock that the killed client held and another client waits for.
const LEGACY: &str = "legacy";

pub(crate) async fn serve(args: ClientArgs) -> CommandResult {
    let (sender, mut orders) = unbounded_channel();
    listen(move |order: Result<BenchOrder, String>| drop(sender.send(order)))?;
    let until = Instant::now() + STARTING;
    let client = loop {
        match Client::connect(args.rival, args.at).await {
            Ok(client) => break client,
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    let mut desk = ClientPool { clients: vec![client] };
    send_report(&BenchReport::Joined(String::new()));
    while let Some(order) = orders.recv().await {
        let report = match order {
            Ok(order) => desk.obey(order).await,
            Err(nonsense) => Err(nonsense.into()),
        };
        send_report(&report.unwrap_or_else(|error| BenchReport::Failed(error.to_string())));
    }
    Ok(ExitCode::SUCCESS)
}

/// The clients of one process, one for each concurrent task.
struct ClientPool {
    clients: Vec<Client>,
}

impl ClientPool {
    /// Carries an order out. The parent sends one order at a time, so a wait delays nothing else.
    async fn obey(&mut self, order: BenchOrder) -> Outcome<BenchReport> {
        Ok(match order {
            BenchOrder::Run { load: Load::Locks { tasks, names, timed }, window } => {
                BenchReport::Ran(self.run(tasks as usize, names, window, timed).await?)
            }
            BenchOrder::HoldQueues(1) => {
                self.clients[0].take(LEGACY).await?;
                BenchReport::Done
            }
            BenchOrder::Wait(waiters) => {
                let held = self.clients[0].take(LEGACY).await?;
                let at = clock::now();
                self.clients[0].give(&held).await?;
                let served = |waiter: QueuedWaiter| Served { waiter, token: 0, at };
                BenchReport::Served(waiters.into_iter().map(served).collect())
            }
            order => return Err(format!("no client can {order:?}").into()),
        })
    }

    async fn run(
        &mut self,
        tasks: usize,
        names: Names,
        window: Window,
        timed: bool,
    ) -> Outcome<LoadResult> {
        while self.clients.len() < tasks {
            let another = self.clients[0].another().await?;
            self.clients.push(another);
        }
        run(self.clients[..tasks].to_vec(), names, window, timed).await
    }
}

/// A connection to another lock service.
#[derive(Clone)]
enum Client {
    Postgresql(Postgresql),
    Redis(Redis),
    Etcd(Etcd),
    Zookeeper(Zookeeper),
}

impl Client {
    async fn connect(rival: Rival, at: SocketAddr) -> Outcome<Client> {
        Ok(match rival {
            Rival::Postgresql => Client::Postgresql(Postgresql::connect(at).await?),
            Rival::Redis => Client::Redis(Redis::connect(at).await?),
            Rival::Etcd => Client::Etcd(Etcd::connect(at).await?),
            Rival::Zookeeper => Client::Zookeeper(Zookeeper::connect(at).await?),
        })
    }

    /// A client for one more task of the same process. Only PostgreSQL's locks need a connection
    /// for each client.
    async fn another(&self) -> Outcome<Client> {
        Ok(match self {
            Client::Postgresql(postgresql) => {
                Client::Postgresql(Postgresql::connect(postgresql.at).await?)
            }
            other => other.clone(),
        })
    }

    /// Waits for the lock. Returns the handle that releases it.
    async fn take(&mut self, name: &str) -> Outcome<String> {
        match self {
            Client::Postgresql(postgresql) => postgresql.take(name).await,
            Client::Redis(redis) => redis.take(name).await,
            Client::Etcd(etcd) => etcd.take(name).await,
            Client::Zookeeper(zookeeper) => zookeeper.take(name).await,
        }
    }

    async fn give(&mut self, held: &str) -> Outcome<()> {
        match self {
            Client::Postgresql(postgresql) => postgresql.give(held).await,
            Client::Redis(redis) => redis.give(held).await,
            Client::Etcd(etcd) => etcd.give(held).await,
            Client::Zookeeper(zookeeper) => zookeeper.give(held).await,
        }
    }
}

impl Locker for Client {
    async fn take(&mut self, name: &str) -> Outcome<()> {
        let held = self.take(name).await?;
        self.give(&held).await
    }
}

/// The error of a release when the lock was not held.
const NOT_HELD: &str = "the lock was not held";

/// A client of PostgreSQL. An advisory lock belongs to its connection.
#[derive(Clone)]
struct Postgresql {
    at: SocketAddr,
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
        Ok(Postgresql { at, client: Arc::new(client), lock, unlock })
    }

    async fn take(&self, name: &str) -> Outcome<String> {
        self.client.query_one(&self.lock, &[&name]).await?;
        Ok(name.to_owned())
    }

    async fn give(&self, held: &str) -> Outcome<()> {
        let was_held: bool = self.client.query_one(&self.unlock, &[&held]).await?.try_get(0)?;
        if was_held { Ok(()) } else { Err(NOT_HELD.into()) }
    }
}

#[derive(Clone)]
struct Redis {
    connection: MultiplexedConnection,
    unlock: redis::Script,
    /// Distinguishes this process' locks from others'. Two tasks of it never want the same lock.
    mark: u32,
}

impl Redis {
    async fn connect(at: SocketAddr) -> Outcome<Redis> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let to = redis::IntoConnectionInfo::into_connection_info(format!("redis://{at}/"))?;
        let client = redis::Client::open(
            to.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true)),
        )?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Redis { connection, unlock: redis::Script::new(UNLOCK), mark: std::process::id() })
    }

    async fn take(&mut self, name: &str) -> Outcome<String> {
        loop {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(self.mark).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
            let set: Option<String> = set.query_async(&mut self.connection).await?;
            if set.is_some() {
                return Ok(name.to_owned());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn give(&mut self, held: &str) -> Outcome<()> {
        let deleted: u32 =
            self.unlock.key(held).arg(self.mark).invoke_async(&mut self.connection).await?;
        if deleted == 1 { Ok(()) } else { Err(NOT_HELD.into()) }
    }
}

#[derive(Clone)]
struct Zookeeper(zookeeper_client::Client);

impl Zookeeper {
    async fn connect(at: SocketAddr) -> Outcome<Zookeeper> {
        let connector = zookeeper_client::Client::connector().with_session_timeout(LEASE);
        Ok(Zookeeper(connector.connect(&at.to_string()).await?))
    }

    async fn take(&self, name: &str) -> Outcome<String> {
        let folder = format!("/locks/{name}");
        let parents = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents)?;
        let held = self.0.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", options).await?;
        let path = held.lock_path().to_owned();
        // The drop of the handle would delete the lock in the background. Curator's release waits
        // for the deletion, and so does `give`.
        std::mem::forget(held);
        Ok(path)
    }

    async fn give(&self, held: &str) -> Outcome<()> {
        Ok(self.0.delete(held, None).await?)
    }
}
