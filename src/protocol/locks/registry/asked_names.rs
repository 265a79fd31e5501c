//! `AskedNames`: the services that each member was the first to ask for.
//!
//! An elder stores a name as long as a member may have anything of the service. The counts here
//! bound the number of names that one member can make the elder store.

use crate::protocol::id::{ProcessId, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// The names, by the member that was the first to ask for each.
#[derive(Clone, Debug, Default)]
pub(super) struct AskedNames {
    /// The member that first asked for each name, while it is in the view.
    first: BTreeMap<ServiceName, ProcessId>,
    members: BTreeMap<ProcessId, NamesOfMember>,
}

#[derive(Clone, Debug, Default)]
struct NamesOfMember {
    count: usize,
    /// The names of services of which no member has anything. They are forgotten when the member
    /// exceeds its number of names.
    vacant: BTreeSet<ServiceName>,
}

impl AskedNames {
    /// Counts a new name that a member asks for. Returns `false` if the member already has `most`
    /// names and `forget` can forget none of them.
    pub(super) fn add(
        &mut self,
        requester: ProcessId,
        service: &ServiceName,
        most: usize,
        mut forget: impl FnMut(&ServiceName) -> bool,
    ) -> bool {
        if self.first.contains_key(service) {
            return true;
        }
        let names = self.members.entry(requester).or_default();
        while names.count >= most {
            let Some(vacant) = names.vacant.pop_first() else { return false };
            if forget(&vacant) {
                names.count -= 1;
                self.first.remove(&vacant);
            }
        }
        names.count += 1;
        self.first.insert(service.clone(), requester);
        true
    }

    /// Notes that no member has anything of the service any more.
    pub(super) fn note_vacant(&mut self, service: &ServiceName) {
        if let Some(names) = self.first.get(service).and_then(|first| self.members.get_mut(first)) {
            names.vacant.insert(service.clone());
        }
    }

    /// Forgets the names that members which have left the view asked for.
    pub(super) fn keep(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.first.retain(|_, requester| is_there(*requester));
        self.members.retain(|requester, _| is_there(*requester));
    }
}

/// The first requester affects an elder's decisions only at the limit. So two elders that differ
/// only in it compare equal, and a search of all states counts them as one.
impl PartialEq for AskedNames {
    fn eq(&self, _: &AskedNames) -> bool {
        true
    }
}

impl Eq for AskedNames {}

impl Hash for AskedNames {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_so_many_names_and_those_of_vacant_services_make_room() {
        let (ann, bob) = (ProcessId(1), ProcessId(2));
        let name = |text: &str| ServiceName::new(text).expect("a name");
        let mut names = AskedNames::default();
        let add = |names: &mut AskedNames, requester, text: &str, is_free: bool| {
            names.add(requester, &name(text), 2, |_| is_free)
        };
        assert_eq!(
            ["a", "b", "c"].map(|text| add(&mut names, ann, text, true)),
            [true, true, false]
        );
        assert!(add(&mut names, ann, "a", true), "a known name is no new one");
        assert!(add(&mut names, bob, "c", true), "each member has its own");
        names.note_vacant(&name("b"));
        names.note_vacant(&name("unknown"));
        assert!(!add(&mut names, ann, "d", false), "the vacant service is in use again");
        assert!(!add(&mut names, ann, "d", true), "it was looked at");
        names.note_vacant(&name("b"));
        assert!(add(&mut names, ann, "d", true));
        assert!(!add(&mut names, ann, "b", true), "it was forgotten");
        names.keep(|process| process == bob);
        assert_eq!(names.first.len(), 1);
        assert_eq!(["a", "b"].map(|text| add(&mut names, ann, text, true)), [true, true]);
    }
}
