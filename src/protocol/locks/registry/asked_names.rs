//! `AskedNames`: the services that each member was the first to ask for.
//!
//! An elder stores a name as long as a member may have anything of the service. The counts here
//! bound the number of names that one member can make the elder store. One notice makes any process
//! a learner, so learners have one bound together, with those that have left the view since.

use crate::protocol::cluster::view::View;
use crate::protocol::id::{ProcessId, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// Learners together have one in `LEARNERS` of the names of a member with a vote.
const LEARNERS: usize = 4;

/// The names, by the member that was the first to ask for each.
#[derive(Clone, Debug, Default)]
pub(super) struct AskedNames {
    /// The member that first asked for each name. A member with a vote is forgotten when it leaves.
    first: BTreeMap<ServiceName, ProcessId>,
    members: BTreeMap<ProcessId, NamesOfMember>,
}

#[derive(Clone, Debug, Default)]
struct NamesOfMember {
    count: usize,
    /// The names of services of which no member has anything. They are forgotten when the member
    /// exceeds its number of names.
    vacant: BTreeSet<ServiceName>,
    /// Whether the member has no vote, or had none when it left.
    is_learner: bool,
}

impl AskedNames {
    /// Counts a new name that a member asks for. Returns `false` if the member, or all learners
    /// together, have as many names as they may, and `forget` can forget none of them. `most`: the
    /// number of names of a member with a vote.
    pub(super) fn add(
        &mut self,
        (requester, is_learner): (ProcessId, bool),
        service: &ServiceName,
        most: usize,
        mut forget: impl FnMut(&ServiceName) -> bool,
    ) -> bool {
        if self.first.contains_key(service) {
            return true;
        }
        self.members.entry(requester).or_default().is_learner = is_learner;
        while self.is_full(requester, most) {
            let mut counted = self.members.iter_mut().filter(|(process, names)| {
                **process == requester || is_learner && names.is_learner
            });
            let vacant = counted.find_map(|(_, names)| Some((names.vacant.pop_first()?, names)));
            let Some((vacant, names)) = vacant else { return false };
            if forget(&vacant) {
                names.count -= 1;
                self.first.remove(&vacant);
            }
        }
        self.members.entry(requester).or_default().count += 1;
        self.first.insert(service.clone(), requester);
        true
    }

    /// Returns whether the member, or all learners together, have as many names as they may.
    fn is_full(&self, requester: ProcessId, most: usize) -> bool {
        let count = |names: &NamesOfMember| names.count;
        let of = self.members.get(&requester);
        let learners = self.members.values().filter(|names| names.is_learner);
        of.map_or(0, count) >= most
            || of.is_some_and(|names| names.is_learner)
                && learners.map(count).sum::<usize>() >= (most / LEARNERS).max(1)
    }

    /// Notes that no member has anything of the service any more.
    pub(super) fn note_vacant(&mut self, service: &ServiceName) {
        if let Some(names) = self.first.get(service).and_then(|first| self.members.get_mut(first)) {
            names.vacant.insert(service.clone());
        }
    }

    /// Adopts a view: forgets the names of members with a vote which have left. Those of learners
    /// still count.
    pub(super) fn on_view(&mut self, view: &View) {
        for (process, names) in &mut self.members {
            if let Some(member) = view.member(*process) {
                names.is_learner = member.learner;
            }
        }
        self.members.retain(|process, names| {
            names.count > 0 && (names.is_learner || view.contains(*process))
        });
        let members = &self.members;
        self.first.retain(|_, requester| members.contains_key(requester));
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
    use crate::protocol::id::{MemberInfo, Slot};
    use crate::protocol::timing::Timing;

    const ANN: ProcessId = ProcessId(1);
    const BOB: ProcessId = ProcessId(2);
    const CYD: ProcessId = ProcessId(3);

    fn name(text: &str) -> ServiceName {
        ServiceName::new(text).expect("a name")
    }

    /// Asks for a name as a member with a vote, of which each may have two.
    fn add(names: &mut AskedNames, requester: ProcessId, text: &str, is_free: bool) -> bool {
        names.add((requester, false), &name(text), 2, |_| is_free)
    }

    /// Asks for a name as a learner. All learners together may have two.
    fn add_as_learner(names: &mut AskedNames, requester: ProcessId, text: &str) -> bool {
        names.add((requester, true), &name(text), 2 * LEARNERS, |_| true)
    }

    /// A view with these members, and with these learners among them.
    fn view(members: &[ProcessId], learners: &[ProcessId]) -> View {
        let info = |process: &ProcessId| MemberInfo::new(*process, ([127, 0, 0, 1], 1).into());
        let members = members.iter().map(info).collect();
        let mut view = View::first(Slot(9), members, Timing::lan(), 7);
        for member in &mut view.members {
            member.learner = learners.contains(&member.info.process);
        }
        view
    }

    #[test]
    fn a_member_has_a_number_of_names_and_those_of_vacant_services_make_room() {
        let mut names = AskedNames::default();
        assert_eq!(
            ["a", "b", "c"].map(|text| add(&mut names, ANN, text, true)),
            [true, true, false]
        );
        assert!(add(&mut names, ANN, "a", true), "a known name is no new one");
        assert!(add(&mut names, BOB, "c", true), "each member has its own");
        names.note_vacant(&name("b"));
        names.note_vacant(&name("unknown"));
        assert!(!add(&mut names, ANN, "d", false), "the vacant service is in use again");
        assert!(!add(&mut names, ANN, "d", true), "it was looked at");
        names.note_vacant(&name("b"));
        assert!(add(&mut names, ANN, "d", true));
        assert!(!add(&mut names, ANN, "b", true), "it was forgotten");
        names.on_view(&view(&[BOB], &[]));
        assert_eq!(names.first.len(), 1);
        assert_eq!(["a", "b"].map(|text| add(&mut names, ANN, text, true)), [true, true]);
    }

    #[test]
    fn learners_that_leave_and_come_again_have_one_bound_together() {
        let mut names = AskedNames::default();
        assert!(add_as_learner(&mut names, ANN, "a") && add_as_learner(&mut names, BOB, "b"));
        assert!(!add_as_learner(&mut names, ANN, "c"));
        names.on_view(&view(&[CYD], &[CYD]));
        assert!(!add_as_learner(&mut names, CYD, "c"), "the names of the others still count");
        assert!(add(&mut names, CYD, "c", true), "with a vote it has its own");
        names.note_vacant(&name("a"));
        assert!(add_as_learner(&mut names, BOB, "d"), "a vacant service makes room");
        names.on_view(&view(&[BOB, CYD], &[]));
        assert!(add_as_learner(&mut names, ANN, "e"), "BOB has a vote");
        assert_eq!(names.members.len(), 3);
    }
}
