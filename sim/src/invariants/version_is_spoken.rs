//! `version_is_spoken`: every member of a view speaks the view's version. This version is the
//! highest that all of them speak, and no lower than that of an earlier view. No member is sent a
//! packet in a version that it does not speak.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, Lineage, View, ViewNumber};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct VersionIsSpoken {
    /// The version of each view.
    versions: BTreeMap<(Lineage, ViewNumber), u16>,
    premises: Count,
}

impl VersionIsSpoken {
    fn install(&mut self, view: &View) -> Verdict {
        let View { version, number, lineage, .. } = *view;
        if let Some(member) = view.members.iter().find(|member| !view.is_spoken_by(&member.info)) {
            let (process, versions) = (member.info.process, member.info.versions);
            return Err(format!(
                "view {number} has version {version}, and its member {process} speaks {versions}"
            ));
        }
        let highest = view.members.iter().map(|member| member.info.versions.highest).min();
        let first = (lineage, ViewNumber(0))..(lineage, number);
        let before = self.versions.range(first).next_back().map(|(_, before)| *before);
        let expected = before.max(highest).unwrap_or(version);
        if version != expected {
            return Err(format!("view {number} has version {version}, and not {expected}"));
        }
        self.versions.insert((lineage, number), version);
        Ok(())
    }
}

impl Invariant for VersionIsSpoken {
    fn name(&self) -> &'static str {
        "version_is_spoken"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, _world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Event { event: Event::ViewInstalled(view), .. } => {
                self.premises += 1;
                self.install(view)
            }
            Observation::Encoded { from, to, version, spoken } if !spoken.contains(*version) => {
                Err(format!(
                    "m{from} sends in version {version} to the member m{to}, which speaks {spoken}"
                ))
            }
            _ => Ok(()),
        }
    }
}
