//! `Inbox`: the way from the network to the engine.

use crate::protocol::{Input, Status};
use crate::wire::{Order, OrderReport, SessionMessage};
use std::future::Future;
use std::pin::Pin;
use tokio::sync::mpsc;

/// The work of an order that is carried out.
pub(crate) type OrderWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The two ways between an order and the connection that gave it.
pub(crate) struct OrderExchange {
    /// The reports on the steps of the order.
    pub(crate) reports: mpsc::Sender<OrderReport>,
    /// The messages of a session. They end with the connection.
    pub(crate) messages: mpsc::Receiver<SessionMessage>,
}

/// The network puts the received packets here. Implemented by the engine.
pub(crate) trait Inbox: Send + Sync {
    /// Takes one input. Callable from any thread, at any time. Blocks for a short lock at most.
    fn input(&self, input: Input);

    /// Takes packets that came together, in their order, and empties `packets`. Returns whether the
    /// packets were questions that are answered now, while no caller of this member waited for any
    /// of them.
    fn deliver(&self, packets: &mut Vec<Input>) -> bool;

    /// The member's status for a caller from outside: at most `most` services, and at most `most`
    /// locks in all, and the numbers of the others. `None` once the member is gone.
    fn status(&self, most: usize) -> Option<Status>;

    /// Carries out an operator's order, with a report on each step. It stops when the future is
    /// dropped.
    fn carry_out(&self, order: Order, exchange: OrderExchange) -> OrderWork {
        Box::pin(async move {
            let reason = format!("no member carries out {} here", order.kind());
            let _ = exchange.reports.send(OrderReport::Failed(reason)).await;
        })
    }
}
