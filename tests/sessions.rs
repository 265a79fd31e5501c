//! A program that is not a member holds a lock through one. It has the key of the cluster, a key
//! whose role does not allow sessions, another key, or none.
#![cfg(feature = "secure")]

#[path = "support/leases.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod leases;

use elderlock::wire::{Frame, OrderRequest, SessionMessage, VERSIONS, encode};
use elderlock::{
    ClusterKey, Keyring, LockName, LockService, Member, Order, Role, ServiceName, SessionEnd,
    SessionError, SessionGuard, SessionRequest, TryLockError, hold_through, hold_through_with,
};
use leases::Leases;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);

struct Served {
    member: Member,
    service: LockService,
    addr: String,
}

impl Served {
    /// A member with this key that serves sessions.
    async fn with(key: Option<&ClusterKey>) -> Served {
        // A member keeps the lock of a session that broke off for up to a lease.
        let mut builder = Member::builder("shop").bind("127.0.0.1:0");
        builder = builder.timing(Leases::Short.timing()).found().serve_sessions(true);
        if let Some(key) = key {
            builder = builder.keyring(Keyring::new(key.clone()));
        }
        let member = builder.join().await.expect("it founds");
        let service = member.lock_service("stock").await.expect("a service");
        let addr = member.addr().to_string();
        Served { member, service, addr }
    }

    async fn hold(&self, key: &ClusterKey) -> Result<SessionGuard, SessionError> {
        let ring = Keyring::new(key.clone());
        let held = hold_through_with(&self.addr, "shop", &ring, request());
        tokio::time::timeout(HANG, held).await.expect("an answer")
    }

    /// Waits until the lock is free. Returns whether it became free.
    async fn is_free(&self) -> bool {
        self.service.lock("sku-42").wait(HANG).await.is_ok()
    }
}

fn request() -> SessionRequest {
    let service = ServiceName::new("stock").expect("a name");
    SessionRequest::new(service, LockName::new(b"sku-42").expect("a name")).wait(HANG)
}

fn new_key() -> ClusterKey {
    ClusterKey::generate().expect("randomness")
}

#[tokio::test]
async fn the_cluster_key_and_the_operator_key_hold_a_lock() {
    let key = new_key();
    let served = Served::with(Some(&key)).await;
    let mut last = None;
    for key in [key.clone(), key.derive(Role::Operator).expect("a cluster key")] {
        let guard = served.hold(&key).await.expect("it is granted");
        let token = guard.fence().expect("it is held");
        assert!(last < Some(token), "tokens rise");
        last = Some(token);
        let refused = served.service.try_lock("sku-42").await;
        assert!(matches!(refused, Err(TryLockError::Held(_))), "{refused:?}");
        guard.release().await.expect("the member hears it");
        assert!(served.is_free().await);
    }
    let guard = served.hold(&key).await.expect("it is granted");
    drop(guard);
    assert!(served.is_free().await, "a dropped guard releases");
    let guard = served.hold(&key).await.expect("it is granted");
    served.member.leave().await.expect("it leaves");
    let mut ended = guard.fence();
    while ended.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        ended = guard.fence();
    }
    assert!(
        matches!(ended, Err(SessionEnd::MemberLeaves | SessionEnd::Unconfirmed(_))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_key_that_does_not_allow_it_another_key_and_no_key_change_nothing() {
    let key = new_key();
    let served = Served::with(Some(&key)).await;
    let observer = key.derive(Role::Observer).expect("a cluster key");
    for (key, word) in [(&observer, "observer"), (&new_key(), "does not have the key")] {
        let error = served.hold(key).await.expect_err("it is refused");
        assert!(error.to_string().contains(word), "{error}");
    }
    let error = hold_through(&served.addr, "shop", request()).await.expect_err("it is refused");
    assert!(error.to_string().contains("cluster key"), "{error}");
    let ring = Keyring::new(key.clone());
    let error = hold_through_with(&served.addr, "bank", &ring, request()).await;
    let error = error.expect_err("it is refused");
    assert!(error.to_string().contains("cluster of another name"), "{error}");
    assert!(served.is_free().await);
    let keyless = Served::with(None).await;
    let error = keyless.hold(&key).await.expect_err("it is refused");
    assert!(error.to_string().contains("it has no cluster key"), "{error}");
    assert!(keyless.is_free().await);
}

/// A program floods the member with messages of its session, reads nothing, and ends.
#[tokio::test]
async fn a_session_that_is_flooded_ends_with_its_connection() {
    let served = Served::with(None).await;
    let bytes_of = |frame: Frame| {
        let mut bytes = Vec::new();
        encode(&frame, 0, &mut bytes).expect("it fits");
        bytes
    };
    let order =
        OrderRequest { cluster: "shop".into(), versions: VERSIONS, order: Order::Lock(request()) };
    let order = bytes_of(Frame::Order(Box::new(order)));
    let messages: Vec<u8> = (0..1000)
        .flat_map(|number| bytes_of(Frame::Session(SessionMessage::KeepAlive(number))))
        .collect();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(&served.addr).await.expect("it listens");
        stream.write_all(&order).await.expect("it reads");
        let flood = async {
            for _ in 0..200 {
                stream.write_all(&messages).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        // The member may end the connection, or read slowly.
        let _ = tokio::time::timeout(Duration::from_secs(1), flood).await;
        drop(stream);
        assert!(served.is_free().await);
    }
    served.member.leave().await.expect("no session is left");
}

/// Each of two programs holds a lock and wants the lock of the other. Each has one owner for its
/// sessions.
#[tokio::test]
async fn a_circle_of_programs_with_owners_is_a_deadlock() {
    let served = Served::with(None).await;
    let hold = |name: &str, owner: u64| {
        let service = ServiceName::new("stock").expect("a name");
        let name = LockName::new(name.as_bytes()).expect("a name");
        let request = SessionRequest::new(service, name).wait(HANG).owner(owner);
        hold_through(&served.addr, "shop", request)
    };
    let firsts = [hold("a", 7).await.expect("it is free"), hold("b", 8).await.expect("it is free")];
    let both = async { tokio::join!(hold("b", 7), hold("a", 8)) };
    let sees = async {
        loop {
            let blockers = served.service.blockers("a").await.expect("the grantor answers");
            if blockers.has_deadlock() {
                return blockers;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let blockers = tokio::select! {
        blockers = tokio::time::timeout(HANG, sees) => blockers.expect("it is seen"),
        granted = both => panic!("each waits for the other: {:?}", granted.0.err()),
    };
    let owners: Vec<u64> = blockers.holds.iter().map(|hold| hold.holder.owner).collect();
    assert_eq!(owners, [7, 8, 7]);
    drop(firsts);
}

/// A member of an older release sends nothing while a request waits, but answers questions for its
/// status. A proxy swallows the program's messages meanwhile.
#[tokio::test]
async fn a_program_waits_through_a_member_that_answers_no_question_of_its_session() {
    let served = Served::with(None).await;
    let holder = served.service.lock("sku-42").await.expect("it is free");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let between = listener.local_addr().expect("an address").to_string();
    let (connections, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, passes, to) = (connections.clone(), is_open.clone(), served.addr.clone());
    tokio::spawn(async move {
        loop {
            let (program, _) = listener.accept().await.expect("it listens");
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let member = TcpStream::connect(&to).await.expect("it listens");
            let ((mut from_program, mut to_program), (mut from_member, mut to_member)) =
                (program.into_split(), member.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_member, &mut to_program).await });
            let passes = passes.clone();
            tokio::spawn(async move {
                let (mut bytes, mut is_first) = ([0; 4096], true);
                while let Ok(count @ 1..) = from_program.read(&mut bytes).await {
                    if number > 0 || is_first || passes.load(Ordering::SeqCst) {
                        to_member.write_all(&bytes[..count]).await.expect("it reads");
                    }
                    is_first = false;
                }
            });
        }
    });
    let waits = hold_through(&between, "shop", request());
    let release = async {
        // The order, and questions for the status in two intervals of silence.
        while connections.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        is_open.store(true, Ordering::SeqCst);
        holder.release().await.expect("it is held");
    };
    let (held, ()) = tokio::join!(waits, release);
    held.expect("it is granted").release().await.expect("the member hears it");
}
