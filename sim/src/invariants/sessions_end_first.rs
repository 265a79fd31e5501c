//! `sessions_end_first`: no lock is granted while a program that is not a member may believe in it.
//! Such a program holds its lock through a member that serves sessions. The program believes in the
//! lock until the end that this member told last, also if the member is killed meanwhile. Inside
//! the clock bound.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, ClientRequest, HoldMode, Key};
use crate::world::{Observation, World};
use elderlock::protocol::LineageId;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct SessionsEndFirst {
    premises: Count,
    /// The sessions of the process that is about to end.
    ending: Vec<HeldSession>,
    /// The sessions of processes that have ended.
    left: Vec<HeldSession>,
    /// The lock that was granted too early.
    crowded: Option<Key>,
}

/// A belief that goes on without its member.
#[derive(Clone, Hash, Debug)]
struct HeldSession {
    ask: Ask,
    key: Key,
    mode: HoldMode,
    lineage: LineageId,
    /// The latest end that the program was told, in true time.
    until: u64,
}

impl SessionsEndFirst {
    fn sessions(world: &World, site: usize) -> Vec<HeldSession> {
        let peer = &world.sites[site];
        let Some(process) = peer.process().filter(|_| !peer.will_leave()) else {
            return Vec::new();
        };
        let held = world.history().claims().filter_map(|ask| {
            let call = world.call(ask);
            let is_lock = matches!(call.mode, HoldMode::Alone | HoldMode::Share);
            let ([key], true) = (&*call.keys, is_lock && call.process == process) else {
                return None;
            };
            world.fence(ask)?;
            Some(HeldSession {
                ask,
                key: key.clone(),
                mode: call.mode,
                lineage: world.lineage_of(process),
                until: peer.clock.when(call.until.min(peer.lease_end()))?,
            })
        });
        held.collect()
    }

    /// Returns whether the service was ended on demand after the session had asked for its lock.
    fn is_destroyed(world: &World, session: &HeldSession) -> bool {
        let later = &world.history().calls[session.ask.0..];
        later.iter().any(|call| {
            call.request_kind == ClientRequest::Destroy && call.service == session.key.0
        })
    }
}

impl Invariant for SessionsEndFirst {
    fn name(&self) -> &'static str {
        "sessions_end_first"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.crowded.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Ends { site, .. }
                if world.bounded && world.sites[*site].serves_sessions =>
            {
                self.ending = SessionsEndFirst::sessions(world, *site);
            }
            Observation::Ended { how, .. } => {
                let ended = std::mem::take(&mut self.ending);
                // A member that leaves first waits until its sessions are over.
                if *how != "left" {
                    self.premises += ended.len() as u64;
                    self.left.extend(ended);
                }
            }
            Observation::Stepped { .. } if !self.left.is_empty() => {
                self.left.retain(|session| world.now < session.until);
                for session in &self.left {
                    for ask in world.history().claims_of(&session.key) {
                        let call = world.call(ask);
                        if call.mode.suffers(session.mode)
                            || world.fence(ask).is_none()
                            || world.lineage_of(call.process) != session.lineage
                            || SessionsEndFirst::is_destroyed(world, session)
                        {
                            continue;
                        }
                        self.crowded = Some(session.key.clone());
                        return Err(format!(
                            "{:?} is held by m{} while a session of m{}, which has ended, may \
                             believe in it",
                            session.key,
                            call.member,
                            world.call(session.ask).member
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
