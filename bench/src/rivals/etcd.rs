//! etcd's locks, and the part of its interface that they need. Field numbers are those of its
//! `rpc.proto` and `v3lock.proto`.

use super::client::LEASE;
use crate::load::Outcome;
use prost::Message;
use std::net::SocketAddr;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::once;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// A client with a lease for all its locks, which it keeps alive.
#[derive(Clone)]
pub(super) struct Etcd {
    grpc: Grpc<Channel>,
    lease: i64,
}

impl Etcd {
    pub(super) async fn connect(at: SocketAddr) -> Outcome<Etcd> {
        let channel = Endpoint::from_shared(format!("http://{at}"))?.connect().await?;
        let mut etcd = Etcd { grpc: Grpc::new(channel), lease: 0 };
        let wanted = LeaseGrantRequest { ttl: LEASE.as_secs() as i64 };
        let granted: LeaseGrantResponse = etcd.ask(wanted, LEASE_GRANT).await?;
        etcd.lease = granted.id;
        tokio::spawn(etcd.clone().keep_alive());
        Ok(etcd)
    }

    pub(super) async fn take(&mut self, name: &str) -> Outcome<String> {
        let wanted = LockRequest { name: name.to_owned(), lease: self.lease };
        let locked: LockResponse = self.ask(wanted, LOCK).await?;
        Ok(locked.key)
    }

    pub(super) async fn give(&mut self, held: &str) -> Outcome<()> {
        Ok(self
            .ask::<_, UnlockResponse>(UnlockRequest { key: held.to_owned() }, UNLOCK)
            .await
            .map(drop)?)
    }

    /// Keeps the lease alive as often as etcd's clients do.
    async fn keep_alive(mut self) -> Result<(), Status> {
        let path = PathAndQuery::from_static(LEASE_KEEP_ALIVE);
        loop {
            tokio::time::sleep(LEASE / 3).await;
            self.ready().await?;
            let beat = Request::new(once(LeaseKeepAliveRequest { id: self.lease }));
            let codec: ProstCodec<_, LeaseKeepAliveResponse> = ProstCodec::default();
            self.grpc.streaming(beat, path.clone(), codec).await?.get_mut().message().await?;
        }
    }

    async fn ask<Q, A>(&mut self, question: Q, path: &'static str) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer =
            self.grpc.unary(Request::new(question), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))
    }
}

#[derive(Message)]
struct LockRequest {
    // The field is bytes there and text here, which are the same on the wire.
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Message)]
struct LockResponse {
    #[prost(string, tag = "2")]
    key: String,
}

#[derive(Message)]
struct UnlockRequest {
    #[prost(string, tag = "1")]
    key: String,
}

#[derive(Message)]
struct UnlockResponse {}

#[derive(Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Message)]
struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Message)]
struct LeaseKeepAliveResponse {}
