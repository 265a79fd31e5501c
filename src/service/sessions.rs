//! Sessions, at the member that holds their locks: docs/protocol/sessions.md.

use super::guard::Guard;
use super::lock_error::{LockError, Lost};
use super::lock_service::LockService;
use crate::protocol::Timing;
use crate::runtime::engine::{Engine, SessionCount};
use crate::wire::{OrderReport, SessionMessage, SessionRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

const NOT_SERVED: &str = "this member holds no locks for programs that are not members: build it \
                          with serve_sessions(true), or start it with --serve-sessions";

/// Takes the lock, and holds it for as long as the program keeps its session.
pub(super) async fn serve(
    engine: &Arc<Engine>,
    request: SessionRequest,
    reports: &mpsc::Sender<OrderReport>,
    mut messages: mpsc::Receiver<SessionMessage>,
) -> OrderReport {
    if !engine.serves_sessions() {
        return OrderReport::Failed(NOT_SERVED.into());
    }
    // Held to the end: the member does not leave before.
    let Some(_open) = SessionCount::open(engine) else {
        return OrderReport::Leaves;
    };
    let Some(timing) = engine.session_timing() else {
        return OrderReport::Failed(OrderReport::JOINS.into());
    };
    let service = LockService::new(engine.clone(), request.service.clone());
    let guard = tokio::select! {
        granted = take(&service, &request) => match granted {
            Ok(guard) => guard,
            Err(error) => return OrderReport::NotGranted(error.to_string()),
        },
        // A program that has nothing yet can only give up.
        () = given_up(&mut messages, reports) => return OrderReport::Done { complete: true },
        () = engine.sessions.closing().cancelled() => return OrderReport::Leaves,
    };
    let grant = OrderReport::Granted { token: guard.token(), lineage: guard.lineage() };
    let _ = reports.send(grant).await;
    let session = ServedSession { guard, timing, told_until: Instant::now(), is_kept: true };
    session.run(engine, reports, messages).await
}

async fn take(service: &LockService, request: &SessionRequest) -> Result<Guard, LockError> {
    let name = request.name.as_bytes();
    let mut lock = match request.shared {
        true => service.share(name),
        false => service.lock(name),
    };
    lock = lock.metadata(request.metadata.as_bytes()).owner(request.owner);
    if let Some(limit) = request.wait {
        lock = lock.wait(limit);
    }
    if let Some(lease) = request.lease {
        lock = lock.lease(lease);
    }
    lock.await
}

/// Completes when the program gives its session up, or is gone. Until then it learns that the
/// member is still there, and that nothing is held.
async fn given_up(
    messages: &mut mpsc::Receiver<SessionMessage>,
    reports: &mpsc::Sender<OrderReport>,
) {
    while let Some(SessionMessage::KeepAlive(number)) = messages.recv().await {
        let _ = reports.send(OrderReport::Alive { number, held_for: Duration::ZERO }).await;
    }
}

/// A session with its lock.
struct ServedSession {
    guard: Guard,
    timing: Timing,
    /// The time until which the program may believe in the lock, whichever clock it has.
    told_until: Instant,
    /// Questions are answered: the connection lives, and the member does not leave.
    is_kept: bool,
}

impl ServedSession {
    async fn run(
        mut self,
        engine: &Arc<Engine>,
        reports: &mpsc::Sender<OrderReport>,
        mut messages: mpsc::Receiver<SessionMessage>,
    ) -> OrderReport {
        // The program asks at once. One that does not has no belief that could be wrong.
        self.told_until += self.timing.member_lease;
        let mut is_connected = true;
        loop {
            tokio::select! {
                // The end is polled first, so no answer follows it.
                biased;
                () = tokio::time::sleep_until(self.told_until) => {
                    let _ = self.guard.release().await;
                    return OrderReport::Lost("the program did not keep its session".into());
                }
                reason = self.guard.lost() => {
                    return OrderReport::Lost(Lost::new(reason).to_string());
                }
                message = messages.recv(), if is_connected => match message {
                    Some(SessionMessage::KeepAlive(number)) if self.is_kept => {
                        let held_for = self.promise();
                        let _ = reports.send(OrderReport::Alive { number, held_for }).await;
                    }
                    Some(SessionMessage::KeepAlive(_)) => {}
                    Some(SessionMessage::Release) => {
                        return match self.guard.release().await {
                            Ok(()) => OrderReport::Done { complete: true },
                            Err(error) => OrderReport::Lost(error.to_string()),
                        };
                    }
                    // The program may live on, and believes what it was told last.
                    None => is_connected = false,
                },
                () = engine.sessions.closing().cancelled(), if self.is_kept => {
                    self.is_kept = false;
                    let _ = reports.send(OrderReport::Leaves).await;
                }
            }
        }
    }

    /// Says how long the lock is surely held, and keeps it for as long.
    fn promise(&mut self) -> Duration {
        // A member that is a quorum alone has a lease without end.
        let held_for = self.guard.hold().left().min(self.timing.member_lease);
        // The program's clock may be slow by the error, and this one fast.
        self.told_until = self.told_until.max(Instant::now() + self.timing.surely(held_for));
        held_for
    }
}
