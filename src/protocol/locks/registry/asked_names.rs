//! `AskedNames`: the names of services that each member was the first to ask for.
//!
//! An elder keeps a name for as long as a member may have anything of the service. The numbers here
//! bound what one member can make the elder keep.

use crate::protocol::id::{ProcessId, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct AskedNames {
    /// The member that asked for a name first, while it is in the view.
    first: BTreeMap<ServiceName, ProcessId>,
    members: BTreeMap<ProcessId, NamesOfMember>,
}

#[derive(Clone, Debug, Default)]
struct NamesOfMember {
    count: usize,
    /// The names of services of which no member has anything. They are forgotten when the member
    /// asks for more names than it may.
    vacant: BTreeSet<ServiceName>,
}

impl AskedNames {
    /// Counts a new name that a member asks for. Returns `false` if the member has `most` names,
    /// none of which `forget` could forget.
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

    /// No member has anything of the service any more.
    pub(super) fn note_vacant(&mut self, service: &ServiceName) {
        if let Some(names) = self.first.get(service).and_then(|first| self.members.get_mut(first)) {
            names.vacant.insert(service.clone());
        }
    }

    /// Forgets which names the members asked for that have left the view.
    pub(super) fn keep(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.first.retain(|_, requester| is_there(*requester));
        self.members.retain(|requester, _| is_there(*requester));
    }
}

/// Elders decide alike whichever member asked first, except at the limit. A search of the states of
/// a cluster takes two such elders for one.
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
