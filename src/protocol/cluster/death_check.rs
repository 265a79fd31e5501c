//! The death check: the conditions for a refused connection to count as a death, if the operator
//! allows that.
//!
//! One member may be refused by a firewall, or use a wrong address. So a refused member asks the
//! council, and each council member greets the suspected process. The refusal counts as a death
//! only if a second member is refused as well, or does not reach the process for a while. It does
//! not count if any member has heard the process since.
//!
//! ```text
//! A, refused by P ->[SuspectDead P] council ->[Hello] P
//! a member that hears P     ->[Alive P] A: nothing has happened
//! a member that is refused  ->[SuspectDead P] A: P is dead
//! a member that hears nothing for a `retry` ->[SuspectDead P] A: P is dead
//! ```
//!
//! A broken connection alone shows nothing: the process may answer on the next one.

use super::*;

impl Cluster {
    /// Returns whether a refused connection may count as a death.
    pub(super) fn trusts_refused(&self) -> bool {
        self.config.trust_refused || planted!(self.config.mutant, TrustRefused)
    }

    /// The suspicion of a member of the view. It begins if there is none.
    fn suspect(&mut self, now: Time, process: ProcessId) -> Option<&mut DeathSuspicion> {
        let view = self.view.as_ref()?;
        if !view.contains(process)
            || process == self.config.me.process
            || self.liveness.dead.contains(&process)
            // The death of this process would change nothing.
            || self.outlives_death(view, process)
        {
            return None;
        }
        let again_at = now + view.timing.retry;
        let witnesses = BTreeSet::new();
        let new =
            DeathSuspicion { since: now, refused: false, unreached: false, witnesses, again_at };
        Some(self.liveness.death_suspicions.entry(process).or_insert(new))
    }

    /// Notes that the process refuses this member's connections.
    pub(super) fn on_refused(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        if !self.trusts_refused() {
            return self.on_unreached(now, process, step);
        }
        planted!(=> if self.plant_suspicion(process) { return self.on_dead(now, process, step) });
        if let Some(suspicion) = self.suspect(now, process) {
            let was_refused = std::mem::replace(&mut suspicion.refused, true);
            suspicion.unreached = true;
            if !was_refused {
                self.tell_suspicion(now, process, step);
            }
            self.judge_suspicion(now, process, step);
        }
    }

    /// Notes that this member does not reach the process. The report is sent only if another member
    /// suspects the process, too, and the process is not heard before the report is due.
    pub(super) fn on_unreached(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        let at_once = planted!(self.config.mutant, CallBrokenUnreached);
        if let Some(suspicion) = self.liveness.death_suspicions.get_mut(&process)
            && !std::mem::replace(&mut suspicion.unreached, true)
            && at_once
        {
            self.tell_suspicion(now, process, step);
        }
    }

    /// Greets a member of the view that became silent: it may refuse connections by now, which only
    /// a question shows.
    pub(super) fn try_silent(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        if self.trusts_refused() {
            self.greet_suspect(now, process, step);
        }
    }

    /// Handles another member's report that the process refuses it, or is unreachable.
    pub(super) fn on_suspect_dead(
        &mut self,
        now: Time,
        (from, addr): (ProcessId, SocketAddr),
        about: ProcessId,
        step: &mut StepParts,
    ) {
        let is_known = self.view.as_ref().is_some_and(|view| view.contains(from));
        if !is_known && !planted!(self.config.mutant, SuspectForAny) {
            return;
        }
        if about == self.config.me.process {
            return self.reply(now, addr, from, Notice::Alive { process: about }, step);
        }
        let Some(suspicion) = self.suspect(now, about) else { return };
        if suspicion.witnesses.insert(from) {
            match suspicion.refused {
                true => self.reply(now, addr, from, Notice::SuspectDead { process: about }, step),
                false => self.greet_suspect(now, about, step),
            }
        }
        self.judge_suspicion(now, about, step);
    }

    /// Ends the suspicion, since the process was heard: it lives. Tells the members that suspect
    /// it.
    pub(super) fn end_suspicion(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        let Some(suspicion) = self.liveness.death_suspicions.remove(&process) else { return };
        let Some(view) = self.view.clone() else { return };
        for witness in suspicion.witnesses.iter().filter_map(|witness| view.member(*witness)) {
            self.reply(
                now,
                witness.info.addr,
                witness.info.process,
                Notice::Alive { process },
                step,
            );
        }
    }

    /// Handles another member's report that it has heard the process.
    pub(super) fn on_alive(&mut self, from: ProcessId, process: ProcessId) {
        if self.view.as_ref().is_some_and(|view| view.contains(from)) {
            self.liveness.death_suspicions.remove(&process);
        }
    }

    /// Sends suspicions again, and forgets those that no other member shares.
    pub(super) fn keep_suspicions(&mut self, now: Time, step: &mut StepParts) {
        let timing = *self.timing();
        let due = |suspicion: &DeathSuspicion| suspicion.again_at <= now;
        let due: Vec<ProcessId> = self
            .liveness
            .death_suspicions
            .iter()
            .filter(|(_, one)| due(one))
            .map(|(process, _)| *process)
            .collect();
        for process in due {
            let Some(suspicion) = self.liveness.death_suspicions.get_mut(&process) else {
                continue;
            };
            suspicion.again_at = now + timing.retry;
            if suspicion.since + timing.elder_lease <= now {
                self.liveness.death_suspicions.remove(&process);
                continue;
            }
            self.tell_suspicion(now, process, step);
            self.judge_suspicion(now, process, step);
        }
    }

    /// Returns the time at which [`keep_suspicions`](Cluster::keep_suspicions) is due.
    pub(super) fn suspicions_due(&self) -> Option<Time> {
        self.liveness.death_suspicions.values().map(|suspicion| suspicion.again_at).min()
    }

    fn tell_suspicion(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        let Some(view) = self.view.clone() else { return };
        if self.liveness.death_suspicions.get(&process).is_some_and(|suspicion| suspicion.unreached)
        {
            let me = self.config.me.process;
            let others = view.council().filter(|info| ![process, me].contains(&info.process));
            for info in others {
                self.reply(now, info.addr, info.process, Notice::SuspectDead { process }, step);
            }
        }
        self.greet_suspect(now, process, step);
    }

    /// Asks the suspected process to answer.
    fn greet_suspect(&self, now: Time, process: ProcessId, step: &mut StepParts) {
        let Some(member) = self.view.as_ref().and_then(|view| view.member(process)) else { return };
        self.send_hello(now, member.info.addr, Some(process), step);
    }

    /// Judges whether the process is dead. This member must be refused, and a second one must
    /// report the process. All others must have reported it too, or had their time to answer that
    /// they hear it.
    fn judge_suspicion(&mut self, now: Time, process: ProcessId, step: &mut StepParts) {
        let (Some(suspicion), Some(view)) =
            (self.liveness.death_suspicions.get(&process), &self.view)
        else {
            return;
        };
        if !suspicion.refused || suspicion.witnesses.is_empty() {
            return;
        }
        let is_asked = |other: &ProcessId| {
            ![process, self.config.me.process].contains(other)
                && !self.liveness.dead.contains(other)
        };
        let is_shared =
            |other: ProcessId| !is_asked(&other) || suspicion.witnesses.contains(&other);
        let has_waited = suspicion.since + view.timing.retry * 2 <= now;
        if has_waited || view.council().all(|info| is_shared(info.process)) {
            self.liveness.death_suspicions.remove(&process);
            self.on_dead(now, process, step);
        }
    }
}
