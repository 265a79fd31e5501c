//! `Connection`: states come in the documented order, none is lost, and guards fail before the
//! state is told.

use super::{Workload, goes_on, have_read_and_write, poll_once};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{
    Connection, ConnectionEvent, ConnectionStatus, Guard, LockError, LockService, LostReason,
    Member,
};
use std::rc::Rc;

const SERVICE: &str = "sessions";
const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 100).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        match worker.below(100) {
            0..=89 => listen(worker, &service).await,
            _ => worker.turk(&service).await,
        }
    }
}

/// A guard that was valid after this number of disconnections was told.
struct KeptGuard {
    guard: Rc<Guard>,
    breaks: usize,
}

/// The states that a reader has heard, and the guards that depend on them.
struct Listener<'a> {
    worker: &'a Workload,
    connection: Connection,
    heard: Vec<ConnectionEvent>,
    kept: Vec<KeptGuard>,
    /// The member has left, and everything was read.
    is_over: bool,
}

async fn listen(worker: &Workload, service: &LockService) {
    let (connection, mut lazy) = (worker.member.connection(), worker.member.connection());
    let mut listener =
        Listener { worker, connection, heard: Vec::new(), kept: Vec::new(), is_over: false };
    for _ in 0..5 + worker.below(40) {
        if worker.is_ending() || listener.is_over {
            break;
        }
        match worker.below(6) {
            0 | 1 => listener.take(service, false).await,
            2 => listener.take(service, true).await,
            3 if !listener.kept.is_empty() => {
                let one = worker.below(listener.kept.len() as u64) as usize;
                drop(listener.kept.swap_remove(one));
            }
            4 => {
                let limit = worker.millis(1, 1_000);
                let next = tokio::time::timeout(limit, listener.connection.next());
                match worker.fickle("a state", next).await {
                    Some(Ok(Some(state))) => listener.on_state(state),
                    Some(Ok(None)) => listener.on_end(),
                    Some(Err(_)) | None => {}
                }
            }
            _ => worker.rest(1, 300).await,
        }
        listener.hear().await;
    }
    listener.hear().await;
    let mut other = Vec::new();
    while let Some(Some(state)) = poll_once(lazy.next()).await {
        other.push(state);
    }
    if other != listener.heard {
        listener.fail("states_come_in_order", format!("another reader heard {other:?}"));
    }
}

impl Listener<'_> {
    fn fail(&self, invariant: &'static str, what: String) {
        let (worker, heard) = (self.worker, &self.heard);
        worker
            .harness
            .checker
            .fail(invariant, format!("worker {} heard {heard:?}: {what}", worker.number));
    }

    fn breaks(&self) -> usize {
        self.heard.iter().filter(|state| !state.is_connected()).count()
    }

    async fn take(&mut self, service: &LockService, is_share: bool) {
        let worker = self.worker;
        let name = *worker.pick(&NAMES);
        let request = if is_share { service.share(name) } else { service.lock(name) };
        let request = request.wait(worker.millis(1, 600)).owner(worker.number);
        match worker.fickle(name, request.into_future()).await {
            Some(Ok(guard)) => {
                // The earlier states are read first: this guard has survived them, unless it fails
                // with the last of them at this instant.
                let before = self.breaks();
                self.hear().await;
                if guard.fence().is_err() && self.breaks() > before {
                    return;
                }
                let guard = Rc::new(guard);
                let seen = Rc::downgrade(&guard);
                let mode = if is_share { ClaimMode::Share } else { ClaimMode::Lock };
                worker.claim(SERVICE, name, mode, Box::new(move || seen.upgrade()?.fence().ok()));
                self.kept.push(KeptGuard { guard, breaks: self.breaks() });
            }
            Some(Err(LockError::TimedOut)) | None => {}
            Some(Err(error)) => goes_on(worker, name, &error),
        }
    }

    /// Reads all pending states. Asking for the connection status makes the member read its clock.
    async fn hear(&mut self) {
        let status = self.worker.member.connection_status();
        while !self.is_over {
            match poll_once(self.connection.next()).await {
                Some(Some(state)) => self.on_state(state),
                Some(None) => self.on_end(),
                None => break,
            }
        }
        let last = self.heard.last().map(|state| match state {
            ConnectionEvent::Connected | ConnectionEvent::Reconnected => {
                ConnectionStatus::Connected
            }
            ConnectionEvent::Suspended => ConnectionStatus::Suspended,
            ConnectionEvent::Missed { status, .. } => *status,
            _ => ConnectionStatus::Lost,
        });
        if last != Some(status) {
            self.fail("states_come_in_order", format!("the member is {status:?}"));
        }
        let breaks = self.breaks();
        for kept in &self.kept {
            let Err(lost) = kept.guard.fence() else { continue };
            self.worker.count("guards that failed");
            let by_member = [LostReason::Suspended, LostReason::Expelled, LostReason::Left]
                .contains(&lost.reason);
            if by_member && breaks == kept.breaks {
                self.fail("states_come_in_order", format!("that a guard is {lost:?} was not told"));
            }
        }
        self.kept.retain(|kept| kept.guard.fence().is_ok());
    }

    fn on_state(&mut self, state: ConnectionEvent) {
        use ConnectionEvent::{Connected, Lost, Missed, Reconnected, Suspended};
        let worker = self.worker;
        worker.note(|| format!("hears {state:?}"));
        worker.count(match state {
            Connected => "connections heard of",
            Suspended => "suspensions heard of",
            Reconnected => "reconnections heard of",
            Missed { .. } => "states missed",
            _ => "losses heard of",
        });
        let before = self.heard.last().copied();
        let follows = match before {
            None => matches!(state, Connected | Suspended | Lost),
            Some(Connected | Reconnected) => matches!(state, Suspended | Lost),
            Some(Suspended) => matches!(state, Reconnected | Lost),
            Some(Lost) => state == Reconnected,
            // Any state may follow missed states.
            Some(_) => true,
        };
        let is_next = follows || matches!(state, Missed { .. });
        self.heard.push(state);
        if !is_next {
            self.fail("states_come_in_order", "that does not follow".to_owned());
        }
        // `guards_fail_before_it_is_told`
        if !state.is_connected() && self.kept.iter().any(|kept| kept.guard.fence().is_ok()) {
            self.fail(
                "guards_fail_before_it_is_told",
                "a guard from before is still good".to_owned(),
            );
        }
    }

    fn on_end(&mut self) {
        self.is_over = true;
        if self.heard.last() != Some(&ConnectionEvent::Lost) {
            self.fail("states_come_in_order", "that is all".to_owned());
        }
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have_read_and_write(member, SERVICE, name).await?;
    }
    Ok(())
}
