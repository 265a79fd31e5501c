//! Naming grantors, asking them, and telling a new elder about them.

use super::*;

impl Node {
    pub(super) fn on_inventory_wanted(&mut self, from: ProcessId, view: ViewNumber, turn: &mut Turn) {
        let mut known: BTreeMap<ServiceName, (ProcessId, Epoch)> = BTreeMap::new();
        for (service, grantor, epoch) in self.holder.known() {
            // Only the host itself says where its grantor is, so our own word counts for our own grantors only.
            let grantor = if grantor == turn.me { ProcessId(0) } else { grantor };
            known.insert(service.clone(), (grantor, epoch));
        }
        for (service, early) in &self.early {
            if let Some((epoch, _)) = early.iter().max_by_key(|(epoch, _)| *epoch) {
                known.entry(service.clone()).or_insert((ProcessId(0), *epoch));
            }
        }
        known.extend(self.grantors.iter().map(|(service, grantor)| (service.clone(), (turn.me, grantor.epoch()))));
        let known: Vec<_> = known.into_iter().map(|(service, (grantor, epoch))| (service, grantor, epoch)).collect();
        let mut parts = known.chunks(INVENTORY_PART).peekable();
        if parts.peek().is_none() {
            turn.say(from, Message::InventoryIs { view, known: Vec::new(), last: true });
        }
        while let Some(part) = parts.next() {
            turn.say(from, Message::InventoryIs { view, known: part.to_vec(), last: parts.peek().is_none() });
        }
    }

    pub(super) fn become_grantor(&mut self, service: ServiceName, range: TokenRange, recover: bool, turn: &mut Turn) {
        let epoch = Epoch(range.first);
        if self.stage != Stage::Member || self.holder.newest(&service).is_some_and(|newest| newest > epoch) {
            return;
        }
        let Some(view) = self.view.clone() else { return };
        self.end_grantor_below(&service, epoch, turn);
        if self.grantors.contains_key(&service) {
            return;
        }
        let grantor = Grantor::new(service.clone(), range, recover.then_some(&view), turn);
        self.grantors.insert(service.clone(), grantor);
        if !recover {
            turn.out.push(Output::Event(Event::BecameGrantor { service: service.clone(), epoch }));
        }
        for (_, asked) in self.early.remove(&service).unwrap_or_default() {
            if let Some(grantor) = self.grantors.get_mut(&service) {
                grantor.on_ask(asked, turn);
            }
        }
    }

    pub(super) fn on_ask(&mut self, service: ServiceName, epoch: Epoch, asked: Asked, turn: &mut Turn) {
        if let Some(grantor) = self.grantors.get_mut(&service)
            && grantor.epoch() >= epoch
        {
            grantor.on_ask(asked, turn);
            return;
        }
        let outdated = self.holder.newest(&service).is_some_and(|newest| newest > epoch);
        let early = self.early.entry(service.clone()).or_default();
        if outdated || early.len() >= MAX_EARLY || self.stage != Stage::Member {
            if early.is_empty() {
                self.early.remove(&service);
            }
            turn.say(asked.from, Message::NotGrantor { service, epoch, request: asked.request });
            return;
        }
        // Named, perhaps, and the word is still on its way: wait for it, and ask the elder for certainty.
        if early.is_empty() {
            turn.say_elder(Message::WhoGrants { service });
        }
        early.push((epoch, asked));
    }

    /// The elder says who grants: those who asked us in vain are told to ask there.
    pub(super) fn send_on_early(&mut self, service: &ServiceName, grantor: ProcessId, epoch: Epoch, turn: &mut Turn) {
        if grantor == turn.me {
            return; // our own naming is on its way, in order, on the same link
        }
        for (asked_for, asked) in self.early.remove(service).unwrap_or_default() {
            if asked_for <= epoch {
                let (service, request) = (service.clone(), asked.request);
                turn.say(asked.from, Message::NotGrantor { service, epoch: asked_for, request });
            } else {
                self.early.entry(service.clone()).or_default().push((asked_for, asked));
            }
        }
    }

    pub(super) fn end_grantor_below(&mut self, service: &ServiceName, epoch: Epoch, turn: &mut Turn) {
        if let Some(grantor) = self.grantors.get(service)
            && grantor.epoch() < epoch
        {
            lost_grantor(service, grantor.epoch(), turn);
            self.grantors.remove(service);
        }
    }

    pub(super) fn end_grantors(&mut self, turn: &mut Turn) {
        for (service, grantor) in std::mem::take(&mut self.grantors) {
            lost_grantor(&service, grantor.epoch(), turn);
        }
    }
}
