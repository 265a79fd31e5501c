//! The holders of each name of a table, and whether a further request fits beside them.

use super::occupancy::{PermitHolders, beginning};
use super::*;

/// The most names, and the most requests, that are searched for a hold in the way of a suspension.
pub(super) const MAX_SEARCHED: usize = 1 << 10;

impl Table {
    /// All held locks, with their requests and tokens.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&LockName, ProcessId, RequestId, Token)> {
        self.all_held()
            .filter_map(|(name, key)| Some((name, key.0, key.1, self.token_of(key, Some(name))?)))
    }

    /// All held names, with the requests that hold them.
    fn all_held(&self) -> impl Iterator<Item = (&LockName, RequestKey)> {
        let all = self
            .held
            .iter()
            .flat_map(|(name, used)| self.holders(name, used).map(move |key| (name, key)));
        all.inspect(|_| touch())
    }

    /// A hold of another owner: the one of the first name, or, after very many names of the owner
    /// itself, one of another member. `None`: the limited search found none.
    pub(super) fn other_hold(
        &self,
        process: ProcessId,
        owner: OwnerId,
    ) -> Option<(&LockName, RequestKey)> {
        let mut held = self.all_held().take(MAX_SEARCHED);
        let first = held.find(|(_, key)| !self.is_of(*key, process, owner));
        first.or_else(|| {
            let others =
                self.parts.iter().filter(|(other, part)| **other != process && part.holds > 0);
            let requests = others.flat_map(|(other, part)| {
                part.requests.iter().map(|(id, one)| ((*other, id), one))
            });
            let held = requests.take(MAX_SEARCHED).filter(|(_, one)| one.is_hold());
            held.filter_map(|(key, one)| Some((one.entry.want.names().first()?, key))).next()
        })
    }

    /// The requests that hold a name.
    pub(crate) fn holders_of(&self, name: &LockName) -> impl Iterator<Item = RequestKey> {
        self.held.get(name).into_iter().flat_map(move |used| self.holders(name, used))
    }

    /// The requests in this occupancy of a name, in the order of their keys.
    pub(super) fn holders(
        &self,
        name: &LockName,
        used: &Occupancy,
    ) -> impl Iterator<Item = RequestKey> {
        let (one, many) = match used {
            Occupancy::Lock(request, begins) => (self.holder(name, *request, *begins), None),
            Occupancy::Shares(keys) => (None, Some(&**keys)),
            Occupancy::Permits(permitted) => (None, Some(&permitted.keys)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }

    /// The request that holds the lock of this name, found by its number and the highest bits of
    /// its process number. Two requests hardly ever share both.
    fn holder(&self, name: &LockName, request: RequestId, begins: u32) -> Option<RequestKey> {
        let first = u128::from(begins) << 96;
        let mut alike = self.parts.range(ProcessId(first)..=ProcessId(first | u128::MAX >> 32));
        let has = |part: &MemberRequests| {
            part.requests.get(&request).is_some_and(|request| request.has_lock(name))
        };
        alike.find(|(_, part)| has(part)).map(|(process, _)| (*process, request))
    }

    /// Returns whether a want may hold the name beside its present holds.
    pub(super) fn fits(&self, name: &LockName, want: &Want) -> bool {
        let used = self.held.get(name);
        let is_beside = used.is_none_or(|used| used.is_beside(want));
        match (want, used) {
            (Want::Permits(_, permits), Some(Occupancy::Permits(permitted))) => {
                is_beside && permitted.sum + u64::from(permits.get()) <= self.limit(name).into()
            }
            (Want::Permits(_, permits), None) => permits.get() <= self.limit(name),
            _ => is_beside,
        }
    }

    /// The number of other requests with a share of the same lock; `None`: the request has no
    /// share.
    pub(crate) fn others_beside(&self, key: RequestKey) -> Option<usize> {
        let Some(TableRequest {
            entry: LockRequest { want: Want::Share(name), .. },
            state: TableRequestState::Holds { .. },
        }) = self.get(key)
        else {
            return None;
        };
        self.held.get(name).map(|used| used.len() - 1)
    }

    /// Adds the request to the holders of the name, if no present hold excludes its want. Returns
    /// whether it was added. The limit of permits is ignored.
    pub(super) fn occupy(&mut self, name: &LockName, key: RequestKey, want: &Want) -> bool {
        self.reconsider(name, |table| table.put(name, key, want))
    }

    pub(super) fn vacate(&mut self, name: &LockName, key: RequestKey, want: &Want) {
        self.reconsider(name, |table| table.remove_use(name, key, want));
    }

    /// Replaces a request's hold of its names by another kind of hold.
    pub(super) fn exchange(&mut self, key: RequestKey, from: &Want, to: &Want) {
        for name in from.names() {
            self.reconsider(name, |table| {
                table.remove_use(name, key, from);
                table.put(name, key, to)
            });
        }
    }

    /// Records another request of the same member as the holder of a name's lock.
    pub(super) fn reoccupy(&mut self, name: &LockName, by: RequestKey) {
        let want = Want::Lock(name.clone());
        self.reconsider(name, |table| {
            table.remove_use(name, by, &want);
            table.put(name, by, &want)
        });
    }

    /// In nearly all cases the name is free.
    fn put(&mut self, name: &LockName, key: RequestKey, want: &Want) -> bool {
        let first = || match want {
            Want::Share(_) => Occupancy::Shares(Box::new(BTreeSet::from([key]))),
            Want::Permits(_, permits) => Occupancy::Permits(Box::new(PermitHolders {
                keys: BTreeSet::from([key]),
                sum: permits.get().into(),
            })),
            _ => Occupancy::Lock(key.1, beginning(key.0)),
        };
        self.held.put(name, first, |used| match (used, want) {
            (Occupancy::Shares(keys), Want::Share(_)) => keys.insert(key),
            (Occupancy::Permits(permitted), Want::Permits(_, permits)) => {
                permitted.sum += u64::from(permits.get());
                permitted.keys.insert(key)
            }
            _ => false,
        })
    }

    fn remove_use(&mut self, name: &LockName, key: RequestKey, want: &Want) {
        self.held.take(name, |used| match used {
            Occupancy::Shares(keys) => keys.remove(&key) && keys.is_empty(),
            Occupancy::Permits(permitted) => {
                permitted.sum -= u64::from(want.tokens());
                permitted.keys.remove(&key) && permitted.keys.is_empty()
            }
            Occupancy::Lock(..) => true,
        });
    }
}
