//! `ReadWriteLock`: readers beside each other, writers alone, from one to the other and back.

use super::{Workload, goes_on, have_read_and_write};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{EnterError, LockError, Member, Owner, ReadGuard, Token};
use elderlock::{ReadWriteLock, UpgradeError, WriteGuard};
use std::rc::Rc;
use std::time::Duration;

const SERVICE: &str = "pages";
const NAMES: [&str; 2] = ["index", "news"];

pub(super) async fn play(worker: &Workload) {
    let owner = Owner::new();
    while !worker.is_ending() {
        worker.rest(1, 200).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        let name = *worker.pick(&NAMES);
        let lock = ReadWriteLock::new(&service, name);
        match worker.below(100) {
            0..=24 => for_owner(worker, name, &lock, owner).await,
            25..=49 => {
                let mut request = lock.read();
                if worker.below(4) == 0 {
                    request = request.wait(worker.millis(1, 1_000));
                }
                match worker.fickle("read", request.into_future()).await {
                    Some(Ok(guard)) => read(worker, name, guard).await,
                    Some(Err(LockError::TimedOut)) | None => {}
                    Some(Err(error)) => goes_on(worker, "read", &error),
                }
            }
            50..=84 => match worker.fickle("write", lock.write().into_future()).await {
                Some(Ok(guard)) => write(worker, name, guard).await,
                Some(Err(error)) => goes_on(worker, "write", &error),
                None => {}
            },
            85..=92 => {
                if let Some(Ok(guard)) =
                    worker.fickle("try to read", lock.try_read().into_future()).await
                {
                    read(worker, name, guard).await;
                }
            }
            93..=97 => {
                if let Some(Ok(guard)) =
                    worker.fickle("try to write", lock.try_write().into_future()).await
                {
                    write(worker, name, guard).await;
                }
            }
            _ => worker.turk(&service).await,
        }
    }
}

async fn read(worker: &Workload, name: &'static str, guard: ReadGuard) {
    worker.note(|| format!("reads {name} by {:?}", guard.token()));
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    worker.claim(SERVICE, name, ClaimMode::Share, Box::new(move || seen.upgrade()?.fence().ok()));
    worker.rest(1, 150).await;
    if worker.below(3) != 0 {
        return;
    }
    let Some(guard) = Rc::into_inner(guard) else { return };
    match worker.fickle("upgrade", guard.upgrade()).await {
        Some(Ok(guard)) => {
            worker.count("upgrades");
            Box::pin(write(worker, name, guard)).await;
        }
        Some(Err((UpgradeError::Shared { .. }, Some(guard)))) => {
            worker.count("upgrades refused");
            worker.note(|| format!("still reads {name}"));
            let guard = Rc::new(guard);
            let seen = Rc::downgrade(&guard);
            worker.claim(
                SERVICE,
                name,
                ClaimMode::Share,
                Box::new(move || seen.upgrade()?.fence().ok()),
            );
            worker.rest(1, 50).await;
        }
        Some(Err((error, _))) => goes_on(worker, "upgrade", &error),
        None => {}
    }
}

async fn write(worker: &Workload, name: &'static str, guard: WriteGuard) {
    worker.note(|| format!("writes {name} by {:?}", guard.token()));
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    worker.claim(SERVICE, name, ClaimMode::Lock, Box::new(move || seen.upgrade()?.fence().ok()));
    worker.rest(1, 100).await;
    if worker.below(3) != 0 {
        return;
    }
    let Some(guard) = Rc::into_inner(guard) else { return };
    if let Ok(guard) = guard.downgrade() {
        worker.count("downgrades");
        Box::pin(read(worker, name, guard)).await;
    }
}

/// A guard of an owner.
enum OwnerGuard {
    Reads(ReadGuard),
    Writes(WriteGuard),
}

impl OwnerGuard {
    fn fence(&self) -> Option<Token> {
        match self {
            OwnerGuard::Reads(guard) => guard.fence().ok(),
            OwnerGuard::Writes(guard) => guard.fence().ok(),
        }
    }
}

/// The guards that an owner has of one lock, as a program knows it.
struct OwnerGuards<'a> {
    worker: &'a Workload,
    name: &'static str,
    lock: &'a ReadWriteLock,
    owner: Owner,
    guards: Vec<Rc<OwnerGuard>>,
}

/// An owner asks again and again to read or to write, and releases its guards in any order.
async fn for_owner(worker: &Workload, name: &'static str, lock: &ReadWriteLock, owner: Owner) {
    let mut has = OwnerGuards { worker, name, lock, owner, guards: Vec::new() };
    for _ in 0..2 + worker.below(5) {
        match worker.below(4) {
            0 if !has.guards.is_empty() => {
                let next = worker.below(has.guards.len() as u64) as usize;
                drop(has.guards.swap_remove(next));
            }
            1 if !has.guards.is_empty() => has.change().await,
            _ if !has.ask().await => break,
            _ => {}
        }
        worker.rest(1, 40).await;
        has.check();
    }
    while !has.guards.is_empty() {
        let next = worker.below(has.guards.len() as u64) as usize;
        drop(has.guards.swap_remove(next));
        worker.rest(1, 20).await;
        has.check();
    }
}

impl OwnerGuards<'_> {
    fn fail(&self, invariant: &'static str, what: &str) {
        let what = format!("worker {} of {}: {what}", self.worker.number, self.name);
        self.worker.harness.checker.fail(invariant, what);
    }

    fn good(&self, writes: bool) -> Option<Token> {
        let is_it = |guard: &&Rc<OwnerGuard>| matches!(***guard, OwnerGuard::Writes(_)) == writes;
        self.guards.iter().filter(is_it).find_map(|guard| guard.fence())
    }

    fn put(&mut self, guard: OwnerGuard) {
        let mode = match guard {
            OwnerGuard::Writes(_) => ClaimMode::Lock,
            OwnerGuard::Reads(_) => ClaimMode::Share,
        };
        let guard = Rc::new(guard);
        let seen = Rc::downgrade(&guard);
        self.worker.claim(SERVICE, self.name, mode, Box::new(move || seen.upgrade()?.fence()));
        self.guards.push(guard);
    }

    /// `owners_enter_together`: an owner with a hold enters it at once, or is refused at once.
    /// Returns whether it goes on.
    async fn ask(&mut self) -> bool {
        let (writes, reads) = (self.good(true), self.good(false));
        let wants_write = self.worker.below(2) == 0;
        let entered = if writes.is_some() || reads.is_some() {
            self.enter_soon(wants_write).await
        } else {
            self.wait(wants_write).await
        };
        match entered {
            Some(Ok(guard)) => {
                if let (Some(had), Some(token)) = (writes.or(reads), guard.fence()) {
                    self.worker.count("read/write locks entered again");
                    if wants_write && writes.is_none() {
                        self.fail("owners_enter_together", "an owner that only reads writes");
                    } else if had != token {
                        self.fail(
                            "owners_enter_together",
                            &format!("had {had:?} and enters {token:?}"),
                        );
                    }
                }
                self.put(guard);
                true
            }
            Some(Err(EnterError::Lock(LockError::Deadlock))) => {
                self.worker.count("readers refused to write");
                if writes.is_some() && self.good(true).is_some() || !wants_write {
                    self.fail("owners_enter_together", "an owner is refused what it has");
                }
                true
            }
            Some(Err(error)) => {
                if writes.or(reads).is_some() && self.good(true).or(self.good(false)).is_some() {
                    let what = format!("does not enter what it has: {error}");
                    self.fail("owners_enter_together", &what);
                }
                goes_on(self.worker, "for an owner", &error);
                false
            }
            None => false,
        }
    }

    async fn enter_soon(&self, wants_write: bool) -> Option<Result<OwnerGuard, EnterError>> {
        let soon = Duration::from_millis(20);
        Some(if wants_write {
            self.lock.write_for(self.owner).wait(soon).await.map(OwnerGuard::Writes)
        } else {
            self.lock.read_for(self.owner).wait(soon).await.map(OwnerGuard::Reads)
        })
    }

    async fn wait(&self, wants_write: bool) -> Option<Result<OwnerGuard, EnterError>> {
        let limit = self.worker.millis(1, 1_500);
        if wants_write {
            let asked = self.lock.write_for(self.owner).wait(limit).into_future();
            Some(self.worker.fickle("write for an owner", asked).await?.map(OwnerGuard::Writes))
        } else {
            let asked = self.lock.read_for(self.owner).wait(limit).into_future();
            Some(self.worker.fickle("read for an owner", asked).await?.map(OwnerGuard::Reads))
        }
    }

    /// Makes a reader of a writer, or a writer of a reader.
    async fn change(&mut self) {
        let next = self.worker.below(self.guards.len() as u64) as usize;
        let Some(guard) = Rc::into_inner(self.guards.swap_remove(next)) else { return };
        match guard {
            OwnerGuard::Writes(guard) => {
                if let Ok(guard) = guard.downgrade() {
                    self.put(OwnerGuard::Reads(guard));
                }
            }
            OwnerGuard::Reads(guard) => {
                match self.worker.fickle("upgrade", guard.upgrade()).await {
                    Some(Ok(guard)) => self.put(OwnerGuard::Writes(guard)),
                    Some(Err((_, Some(guard)))) => self.put(OwnerGuard::Reads(guard)),
                    Some(Err((_, None))) | None => {}
                }
            }
        }
    }

    /// `owners_know_what_they_hold`.
    fn check(&self) {
        let has = (self.good(true).is_some(), self.good(false).is_some());
        let says = (self.lock.is_written_by(self.owner), self.lock.is_read_by(self.owner));
        if has != says {
            let what = format!("writes and reads {has:?}, and its lock says {says:?}");
            self.fail("owners_know_what_they_hold", &what);
        }
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have_read_and_write(member, SERVICE, name).await?;
    }
    Ok(())
}
