//! `NetworkInbox`: the way from the network to the engine.

use crate::protocol::{Input, Status};
use crate::runtime::engine::Engine;
use crate::runtime::inbox::{Inbox, OrderExchange, OrderWork};
use crate::service::orders;
use crate::wire::Order;
use std::sync::Weak;

/// Passes the packets that the network receives to the engine. Does not keep the engine alive.
pub(super) struct NetworkInbox {
    pub(super) engine: Weak<Engine>,
}

impl Inbox for NetworkInbox {
    fn input(&self, input: Input) {
        if let Some(engine) = self.engine.upgrade() {
            engine.input(input);
        }
    }

    fn deliver(&self, packets: &mut Vec<Input>) -> bool {
        match self.engine.upgrade() {
            Some(engine) => engine.deliver(packets),
            None => {
                packets.clear();
                false
            }
        }
    }

    fn status(&self, most: usize) -> Option<Status> {
        Inbox::status(&*self.engine.upgrade()?, most)
    }

    fn carry_out(&self, order: Order, exchange: OrderExchange) -> OrderWork {
        let engine = self.engine.clone();
        Box::pin(async move {
            if let Some(engine) = engine.upgrade() {
                orders::carry_out(engine, order, exchange).await;
            }
        })
    }
}
