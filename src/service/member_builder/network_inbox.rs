//! `NetworkInbox`: the way from the network to the engine.

use crate::protocol::{Command, Input, Status};
use crate::runtime::engine::Engine;
use crate::runtime::inbox::{Inbox, OrderExchange, OrderWork};
use crate::runtime::net::transport::Transport;
use crate::service::orders;
use crate::wire::Order;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Weak;

/// The packets that the network receives, on their way to the engine. Keeps neither of them alive.
pub(super) struct NetworkInbox {
    pub(super) engine: Weak<Engine>,
    pub(super) transport: Weak<Transport>,
}

impl Inbox for NetworkInbox {
    fn input(&self, input: Input) {
        let (Some(engine), Some(transport)) = (self.engine.upgrade(), self.transport.upgrade())
        else {
            return;
        };
        engine.input(match input {
            Input::Command(Command::Seeds(seeds)) => {
                Input::Command(Command::Seeds(known_seeds(&transport, seeds)))
            }
            input => input,
        });
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

/// The seeds to look for. While the name of one does not resolve, this member does not count itself
/// as a seed. Otherwise it would found the cluster without the missing one, or even alone.
pub(super) fn known_seeds(
    transport: &Transport,
    mut seeds: BTreeSet<SocketAddr>,
) -> BTreeSet<SocketAddr> {
    if !transport.unresolved().is_empty() {
        seeds.remove(&transport.advertised());
    }
    seeds
}
