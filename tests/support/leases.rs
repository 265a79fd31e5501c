//! The leases of the members of a test.

use elderlock::Timing;

/// The length of the leases. A process of a busy machine may stand still for seconds, and must not
/// lose a lease that its test needs.
///
/// Messages go as often as with [`Timing::fast`]. So a longer lease costs time only where a test
/// waits for its end. A question may wait for its answer as long as a member lease lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leases {
    /// Leases of 15 s: no member of the test is killed, cut off or stopped.
    Long,
    /// Leases of 5 s: members are killed, cut off or stopped.
    Short,
    /// Leases of 15 s, and messages as rare as with [`Timing::wan`]: very many members share few
    /// processors.
    Slow,
}

impl Leases {
    const ALL: [Leases; 3] = [Leases::Long, Leases::Short, Leases::Slow];

    /// The times of a member with these leases.
    pub(crate) fn timing(self) -> Timing {
        let (leases, pace) = match self {
            Leases::Long => (Timing::wan(), Timing::fast()),
            Leases::Short => (Timing::lan(), Timing::fast()),
            Leases::Slow => (Timing::wan(), Timing::wan()),
        };
        let Timing { member_lease, elder_lease, .. } = leases;
        Timing { member_lease, elder_lease, answer: member_lease, ..pace }
    }

    /// The leases of this name: a command of a child has the name of a variant.
    pub(crate) fn named(name: &str) -> Option<Leases> {
        Leases::ALL.into_iter().find(|leases| format!("{leases:?}") == name)
    }
}
