//! A member's status as one line of text: the child writes it, the test reads it.

use elderlock::{GrantorState, Status};
use std::fmt::Write;

/// The parts of a [`Status`] that the tests need.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) process: String,
    /// The lineage and the number of the view.
    pub(crate) view: Option<(String, u32)>,
    pub(crate) elder: Option<String>,
    pub(crate) leased: bool,
    /// Whether no learner waits for a vote in the view.
    pub(crate) voted: bool,
    /// The process, the address and whether it is a ghost, oldest first.
    pub(crate) members: Vec<(String, String, bool)>,
    pub(crate) services: Vec<Service>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) grantor: Option<String>,
    pub(crate) epoch: u64,
    /// Whether the grantor is acting and not recovering.
    pub(crate) acting: bool,
    pub(crate) waiting_here: usize,
    pub(crate) held_here: usize,
    pub(crate) locks: Vec<Lock>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) holder: Option<(String, u64)>,
    pub(crate) waiters: usize,
}

impl Seen {
    pub(crate) fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    pub(crate) fn is_elder(&self) -> bool {
        self.elder.as_ref() == Some(&self.process)
    }
}

impl Service {
    pub(crate) fn lock(&self, name: &str) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.name == name)
    }
}

/// Writes the status as words separated by spaces, each `key=value`. Services and locks are words
/// of their own after the words of their owners.
pub(crate) fn write(status: &Status) -> String {
    let mut line = format!("me={:032x} leased={}", status.me.process.0, u8::from(status.leased));
    if let Some(view) = &status.view {
        let _ = write!(
            line,
            " lineage={:032x} view={} elder={:032x} voted={}",
            view.lineage.founder.0,
            view.number,
            view.elder().process.0,
            u8::from(view.has_promoted_all())
        );
        for member in &view.members {
            let (info, ghost) = (&member.info, u8::from(member.ghost));
            let _ = write!(line, " member={:032x},{},{ghost}", info.process.0, info.addr);
        }
    }
    for service in &status.services {
        let grantor = service.grantor.map_or("-".into(), |process| format!("{:032x}", process.0));
        let epoch = service.epoch.map_or(0, |epoch| epoch.0.get());
        let acting = u8::from(service.granting == Some(GrantorState::Acting));
        let (waiting, held) = (service.waiting_here, service.held_here);
        let _ = write!(
            line,
            " service={},{grantor},{epoch},{acting},{waiting},{held}",
            service.service
        );
        for lock in &service.locks {
            let holder = match &lock.holder {
                Some(holder) => format!("{:032x},{}", holder.process.0, holder.token),
                None => "-,0".into(),
            };
            let name = lock.name.as_ref().map_or("(suspension)".to_owned(), ToString::to_string);
            let _ = write!(line, " lock={name},{holder},{}", lock.waiter_count);
        }
    }
    line
}

pub(crate) fn read(line: &str) -> Seen {
    let mut seen = Seen::default();
    let mut lineage = String::new();
    let some = |text: &str| (text != "-").then(|| text.to_owned());
    for word in line.split(' ') {
        let (key, value) =
            word.split_once('=').unwrap_or_else(|| panic!("no key in {word:?} of {line:?}"));
        let parts: Vec<&str> = value.split(',').collect();
        let number = |index: usize| {
            parts[index].parse::<u64>().unwrap_or_else(|_| panic!("no number in {word:?}"))
        };
        match key {
            "me" => seen.process = value.into(),
            "leased" => seen.leased = value == "1",
            "lineage" => lineage = value.into(),
            "view" => seen.view = Some((lineage.clone(), number(0) as u32)),
            "elder" => seen.elder = some(value),
            "voted" => seen.voted = value == "1",
            "member" => seen.members.push((parts[0].into(), parts[1].into(), parts[2] == "1")),
            "service" => seen.services.push(Service {
                name: parts[0].into(),
                grantor: some(parts[1]),
                epoch: number(2),
                acting: parts[3] == "1",
                waiting_here: number(4) as usize,
                held_here: number(5) as usize,
                locks: Vec::new(),
            }),
            "lock" => {
                let holder = some(parts[1]).map(|process| (process, number(2)));
                let lock = Lock { name: parts[0].into(), holder, waiters: number(3) as usize };
                seen.services.last_mut().expect("locks come after their service").locks.push(lock);
            }
            _ => panic!("unknown word {word:?}"),
        }
    }
    seen
}
