//! Answers questions for the status of this member, or of another member of the view, which this
//! one asks in its turn.

use super::counters::add;
use super::incarnation::Incarnation;
use super::query;
use super::stranger_budget::BudgetShare;
use super::transport_state::TransportState;
use crate::protocol::{ProcessId, Status};
use crate::wire::{Frame, HandshakeRefusal};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most services, and the most locks in all, in a status for a caller from outside. With names
/// and metadata of any length they fit one frame, and collecting them is a short turn.
const MAX_LOCKS_TOLD: usize = 256;
/// The most letters of a reason why another member gives no answer: a refusal is a short frame.
const MAX_REASON: usize = 500;

/// The answer to a question for the status of this member, or of another one. It stays within the
/// rate of such answers and the memory for strangers.
pub(super) async fn answer(
    shared: &TransportState,
    incarnation: &Incarnation,
    of: Option<ProcessId>,
) -> Option<Frame> {
    let is_full = shared.budget().is_spent() && !planted!(AnswerBeyondMemory);
    if !(shared.may_tell_status() || planted!(TellAllStatus)) || is_full {
        add(&shared.reception.counters.busy, 1);
        return Some(Frame::Refused(HandshakeRefusal::Busy));
    }
    let status = match of.filter(|of| *of != incarnation.me.process) {
        None => incarnation.inbox.status(MAX_LOCKS_TOLD)?,
        Some(of) => match ask(shared, of).await {
            Ok(status) => status,
            Err(reason) => {
                let reason = reason.chars().take(MAX_REASON).collect();
                return Some(Frame::Refused(HandshakeRefusal::NotReached(reason)));
            }
        },
    };
    Some(Frame::StatusIs(Box::new(status)))
}

/// Asks another member for its status, at its address in the view. The caller names a process and
/// no address, so it cannot make this member dial any other address.
async fn ask(shared: &TransportState, of: ProcessId) -> Result<Status, String> {
    let addr = shared.reception.addr_of(of).ok_or("its view has no such process")?;
    let asked = async {
        // Questions wait for their turn: too many connections of this host would take the place of
        // its member's own.
        let _turn = shared.questions_passed_on.acquire().await;
        let (addr, cluster) = (addr.to_string(), shared.cluster.as_str());
        #[cfg(feature = "secure")]
        if let Some(security) = &shared.security {
            return query::query_status_with(&addr, cluster, &security.ring()).await;
        }
        query::query_status(&addr, cluster).await
    };
    // The caller waits within the time limit of its handshake, and must get the reason in time.
    let limit = shared.reception.timeouts.handshake * 3 / 4;
    match timeout(limit, asked).await {
        Ok(Ok(status)) if status.me.process == of => Ok(status),
        Ok(Ok(_)) => Err(format!("another process answers at {addr}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer from {addr} within {limit:?}")),
    }
}

/// Sends an answer. Its bytes count in the memory for strangers while they wait.
pub(super) async fn tell(shared: &TransportState, stream: &mut TcpStream, answer: &[u8]) {
    let _share = BudgetShare::new(shared.budget(), answer.len());
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}
